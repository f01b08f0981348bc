// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/error.h"

namespace rn::warden {

/// What one guest may have of each thing that the kernel also charges to root, who made the guest's
/// user namespace: this part of the machine's own bound.
inline constexpr std::uint64_t kGuestsPartOfRoot = 16;

/// Bounds the inotify instances and watches of the user namespace of `pid` to a sixteenth of what
/// the machine allows a user (fs.inotify.max_user_*), so that its guest cannot use up root's. The
/// guest cannot raise it: that takes CAP_SYS_RESOURCE there. Nothing to do for a process in our own
/// user namespace, as under an owner's engine that maps no users: what such a guest has is charged
/// to its own user. kInternal when the kernel refuses; a kernel without such bounds needs none.
/// Blocking: a child that makes a few system calls.
Status bound_kernel_objects(std::int32_t pid);

}  // namespace rn::warden
