// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/error.h"

struct bpf_object;

namespace rn::traffic {

/// Makes `folder` (absolute) and mounts a bpffs on it, unless it already lies on one. Idempotent.
/// kDenied without CAP_SYS_ADMIN, else kInternal.
Status ensure_bpffs(const std::string& folder);

/// Unmounts the bpffs on `folder` if ensure_bpffs() mounted it (by the mount's source name), and
/// removes the empty folder. A bpffs of somebody else stays. Idempotent.
Status release_bpffs(const std::string& folder);

/// Names the pins of an object's maps before it is loaded: those in `folder` are adopted then.
Status pin_maps_in(const std::string& folder, bpf_object* object);
/// What a refused load means, and what to do. Pure.
Error load_error(int error);

}  // namespace rn::traffic
