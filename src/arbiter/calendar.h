// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"
#include "model/node.h"

// The contract's weekly windows and holidays. Pure: the offset of the contract's time zone is
// handed in by whoever can look it up (io or the shell), so that the simulator needs no zone
// database.

namespace rn::arbiter {

struct LocalTime {
  std::int64_t day = 0;       ///< days since 1970-01-01
  std::uint32_t weekday = 0;  ///< 0 = Monday
  std::uint32_t minute = 0;   ///< of the day
};

LocalTime local_time(WallTime wall, std::int32_t utc_offset_s);

/// "HH:MM" from 00:00 to 24:00 as a minute of the day; nullopt for anything else.
std::optional<std::uint32_t> parse_minute(std::string_view text);

/// "mon".."sun" as 0..6; nullopt for anything else.
std::optional<std::uint32_t> parse_weekday(std::string_view text);

/// "YYYY-MM-DD" as days since 1970-01-01; nullopt for anything that is no date.
std::optional<std::int64_t> parse_date(std::string_view text);

/// True if the contract's calendar lends at that minute: no windows at all, a holiday, or inside a
/// window. A window whose `to` is not after its `from` ends on the next day. Windows that cannot be
/// read do not lend (contract_rules.h refuses them earlier).
bool is_inside_windows(const Contract& contract, const LocalTime& at);

/// Time until the calendar's answer changes, at most eight days ahead; nullopt if it does not
/// change by then. The zone's offset is taken as constant.
std::optional<seconds> time_to_change(
    const Contract& contract, WallTime wall, std::int32_t utc_offset_s
);

/// The windows and holidays that a GPU has of its own, in a contract that says nothing else; of one
/// that has none, a contract that lends always. The machine's own calendar is another question: a
/// GPU is lent when both lend.
Contract calendar_of_gpu(const Contract& contract, std::uint32_t gpu);

/// "mon 18:00", in the contract's zone.
std::string describe(const LocalTime& at);

}  // namespace rn::arbiter
