// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

// Recorded occupancy of labs, read as owners who lend and take back.
namespace rn::bench {

inline constexpr std::int64_t kMinuteMs = 60'000;
inline constexpr std::int64_t kDayMs = 86'400'000;

/// One stretch for which a node was lent.
struct LentSpell {
  std::size_t lab = 0;   ///< into the list of labs
  std::size_t node = 0;  ///< within the lab: node k is free while at least 8·(k+1) GPUs are idle
  std::int64_t from_ms = 0;
  std::int64_t to_ms = 0;
  bool is_reclaimed = false;  ///< false: the trace ends or has a gap there
};

struct LabTrace {
  std::string name;
  std::size_t nodes = 0;
  std::int64_t begins_ms = 0;
  std::int64_t ends_ms = 0;
  std::size_t gaps = 0;  ///< places where minutes are missing
  std::vector<LentSpell> spells;
};

/// Reads every LAB.csv.gz of `folder` (columns time,total_gpus,idle_gpus,…; local times, treated as
/// UTC), in the order of the names. A node is lent once it has been free for `idle_minutes`, and
/// reclaimed the minute it stops being free. kNotFound if there is none, kInvalid with file and
/// line for a row that cannot be read. Reads files, blocks.
Result<std::vector<LabTrace>> read_owner_traces(const std::string& folder, int idle_minutes);

}  // namespace rn::bench
