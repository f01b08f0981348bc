// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace rn::evaluate {

/// The time for which one of a cloud's spot machines was there.
struct SpotSpell {
  std::string machine;
  std::int64_t from_ms = 0;
  std::int64_t to_ms = 0;
  bool is_removed = false;  ///< false: it was there when the trace ended

  friend bool operator==(const SpotSpell&, const SpotSpell&) = default;
};

struct SpotTrace {
  std::int64_t ends_ms = 0;  ///< its last event
  std::size_t most_at_once = 0;
  std::vector<SpotSpell> spells;  ///< by begin, then machine
};

/// The table ms,event,node with events add and remove, ordered by time. kInvalid with file and
/// line: as parse_owner_trace, and for a machine that is added twice or removed without being
/// there. Pure.
Result<SpotTrace> parse_spot_trace(std::string_view text, const std::string& file);
/// Reads a file, blocks.
Result<SpotTrace> read_spot_trace(const std::string& path);

}  // namespace rn::evaluate
