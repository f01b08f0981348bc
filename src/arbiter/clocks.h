// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/time.h"
#include "model/node.h"

// A machine's wall clock beside the site's. A contract's hours are counted by the machine's own
// clock (docs/lending.md, "Whose clock"): when the two differ, somebody has to be told.

namespace rn::arbiter {

/// What differs by less is nobody's trouble: windows are of whole minutes.
inline constexpr std::chrono::minutes kClocksApart{2};

/// True if clocks so far apart are worth a word.
bool are_clocks_apart(std::int64_t site_ahead_ms);

/// That they are apart, and what it means to the contract's windows; `site_ahead_ms` is the
/// coordinator's wall clock minus the node's. Empty: they are not. Pure.
std::string clocks_words(const Contract& contract, std::int64_t site_ahead_ms);

/// What to do about it, for the owner.
inline constexpr const char* kClocksHelp =
    "see which of the two is wrong (`date`, `timedatectl`), and set it";

}  // namespace rn::arbiter
