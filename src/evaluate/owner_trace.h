// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

// Recorded occupancy of labs, read as owners who lend and take back.
namespace rn::evaluate {

inline constexpr std::int64_t kMinuteMs = 60'000;
inline constexpr std::int64_t kDayMs = 86'400'000;

/// One stretch for which a node was lent.
struct LentSpell {
  std::size_t lab = 0;   ///< into the list of labs
  std::size_t node = 0;  ///< within the lab: node k is free while at least 8·(k+1) GPUs are idle
  std::int64_t from_ms = 0;
  std::int64_t to_ms = 0;
  bool is_reclaimed = false;  ///< false: the trace ends or has a gap there

  friend bool operator==(const LentSpell&, const LentSpell&) = default;
};

struct LabTrace {
  std::string name;
  std::size_t nodes = 0;
  std::size_t gpus_per_node = 0;
  std::int64_t begins_ms = 0;
  std::int64_t ends_ms = 0;
  std::size_t gaps = 0;  ///< places where minutes are missing
  std::vector<LentSpell> spells;
};

/// What becomes of minutes that are missing.
enum class TraceGaps : std::uint8_t {
  kRefused,    ///< kInvalid, with the minutes
  kEndSpells,  ///< nothing is lent there, and nothing was taken back
};

struct OwnerTraceRule {
  int idle_minutes = 10;  ///< a node is lent once it has been free for so long
  TraceGaps gaps = TraceGaps::kRefused;
};

/// The table time,total_gpus,idle_gpus of one lab (other columns are not looked at), one row a
/// minute, local times. A node of eight GPUs, or of all if they are fewer, is reclaimed the minute
/// it stops being free. kInvalid with file and line: a column is missing, a field is no number or
/// no time, more GPUs are idle than there are, times do not ascend or are no whole minutes, minutes
/// are missing. Pure.
Result<LabTrace> parse_owner_trace(
    std::string_view text,
    const std::string& file,
    const std::string& lab,
    const OwnerTraceRule& rule
);

/// One file; the lab's name is the file's up to its first dot. Reads a file, blocks.
Result<LabTrace> read_owner_trace(const std::string& path, const OwnerTraceRule& rule);

/// Every LAB.csv.gz of `folder`, in the order of the names; `lab` of a spell is its place there.
/// kNotFound if there is none. Reads files, blocks.
Result<std::vector<LabTrace>> read_owner_traces(
    const std::string& folder, const OwnerTraceRule& rule
);

}  // namespace rn::evaluate
