// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/error.h"

namespace rn::warden {

/// Mounts the ext4 image on `folder` by a loop device that frees itself with the last unmount.
/// nosuid, nodev, noatime. kExhausted when no loop device is free; kCorrupt when it is no ext4.
Status mount_image(const std::string& image, const std::string& folder);

/// Mounts the folder on itself, shared: what is mounted below it later is seen by the mount
/// namespaces made from this one, a private engine's for example. Idempotent.
Status mount_shared(const std::string& folder);

/// Unmounts what is mounted on `folder`, if anything. kUnavailable while it is busy.
Status unmount(const std::string& folder);

/// True when something is mounted exactly there, in this mount namespace.
Result<bool> is_mounted(const std::string& folder);

}  // namespace rn::warden
