// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.h"

namespace rn::warden_cli {

/// Command `serve`: runs the daemon; `code` becomes its exit code.
void add_serve(CLI::App& app, Options& options, int& code);

}  // namespace rn::warden_cli
