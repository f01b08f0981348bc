// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/time.h"
#include "model/warden.h"

namespace rn::agent {

/// Cut and clear through the warden's kill socket; 0 = the whole node. Answers the warden's last
/// word. kUnavailable: no warden (then `reclaim-kill` by hand does the same); kDenied: refused.
/// Blocking, at most `limit`.
Result<warden_wire::KillFrame> send_kill(
    const std::string& socket, std::uint64_t gpu_mask, milliseconds limit
);

/// JSON with milliseconds from the declaration.
std::string describe_kill(const warden_wire::KillFrame& frame);

}  // namespace rn::agent
