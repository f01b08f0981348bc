// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/time.h"
#include "model/warden.h"

namespace rn::warden {

/// Of the files in `reclaim/`: the warden's word to a guest's PID 1 that a save is due or that the
/// guest has to leave. PID 1 removes it when the guest has saved.
inline constexpr const char* kWordFile = "told";
/// There PID 1 says how the newest run of the hook ended (agent/local_work.h reads it).
inline constexpr const char* kHookEndFile = "hook";

/// One line of JSON: `reason`, `told_unix`, and, when the guest has to leave, `deadline_unix` and
/// `grace_s`. A reason is cut after a KiB. Pure.
std::string word_as_json(const warden_wire::TellGuest& order, WallTime now);

/// What lies in kWordFile: that line, and behind a zero byte each the variables of a hook,
/// `RECLAIM_REASON`, `RECLAIM_TOLD_UNIX`, `RECLAIM_DEADLINE_UNIX` and `RECLAIM_GRACE_S`; the last
/// two are empty while the guest may stay. At most 8 KiB. Pure.
std::string word_for_init(const warden_wire::TellGuest& order, WallTime now);

}  // namespace rn::warden
