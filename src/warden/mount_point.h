// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/error.h"

namespace rn::warden {

/// Where every containerd keeps the sockets of its shims, whatever its own folders are, and where
/// dockerd looks for a containerd of the machine's before it starts one of its own (containerd 1.6,
/// dockerd 20.10). A private engine has a folder of its own mounted over it.
inline constexpr const char* kContainerdFolder = "/run/containerd";

/// `folder` is there afterwards; `marker` is made when it was not there before. Blocks.
Status make_mount_point(const std::string& folder, const std::string& marker);

/// Removes the folder that make_mount_point() made for `marker`, unless something lies in it or any
/// process has something mounted on it; and the marker. Looks at every process. Blocks.
void remove_mount_point(const std::string& folder, const std::string& marker);

}  // namespace rn::warden
