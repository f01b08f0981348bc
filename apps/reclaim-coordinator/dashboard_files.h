// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "coordinator/dashboard.h"

namespace rn::coordinator {

/// What web/ was built to; only a page that says so, if it was not built.
std::span<const DashboardFile> dashboard_files();

}  // namespace rn::coordinator
