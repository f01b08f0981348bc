// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/error.h"

namespace rn::traffic {

/// Makes `folder` (absolute) and mounts a bpffs on it, unless it already lies on one. Idempotent.
/// kDenied without CAP_SYS_ADMIN, else kInternal.
Status ensure_bpffs(const std::string& folder);

/// Unmounts the bpffs on `folder` if ensure_bpffs() mounted it (by the mount's source name), and
/// removes the empty folder. A bpffs of somebody else stays. Idempotent.
Status release_bpffs(const std::string& folder);

}  // namespace rn::traffic
