// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "model/node.h"

// Which of two contracts lends less (ADR 0024). A partial order: many pairs lend neither more nor
// less. All of it is pure.

namespace rn::arbiter {

/// Why `to` might lend something that `from` does not, a sentence each with the field's name in
/// front; empty: at no instant is anything lent by `to` that `from` does not lend, no limit is
/// larger, and nobody has to wait longer for the machine. Whatever is not known to be less is
/// named. `facts` say what a field without a line comes to. Both contracts are good ones
/// (contract_rules.h) within check_bounds.
std::vector<std::string> widenings(
    const Contract& from, const Contract& to, const NodeFacts& facts
);

/// True if there are no widenings.
bool narrows(const Contract& from, const Contract& to, const NodeFacts& facts);

/// What differs, a line for each field: "notice_s: 60, and it was 120". Empty: nothing.
std::vector<std::string> changes(const Contract& from, const Contract& to);

/// Minutes of the week that the calendar lends, holidays aside: 0 to 10080.
std::uint32_t lent_minutes(const Contract& contract);

/// In what time the contract makes a guest go that is there now, its notice within: none if it may
/// stay for a week.
std::optional<seconds> guests_leave_in(
    const Contract& contract, WallTime wall, std::int32_t utc_offset_s
);

/// The same of one that has these GPUs, whose own windows may end before those of the machine.
std::optional<seconds> guests_leave_in(
    const Contract& contract,
    WallTime wall,
    std::int32_t utc_offset_s,
    const std::vector<std::uint32_t>& gpus
);

/// Equal for equal contracts, and for nothing else: 64 hex digits. Of the machine that says it;
/// another version of the program may say another one.
std::string version_of(const Contract& contract);

/// kInvalid, with the field's name, for lists that are longer than any owner writes: what comes
/// from afar is bounded before it is looked at.
Status check_bounds(const Contract& contract);

}  // namespace rn::arbiter
