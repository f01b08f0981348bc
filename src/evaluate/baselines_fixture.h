// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "evaluate/world_fixture.h"

namespace rn::evaluate {

// The small state: 1 GB, 0.25 s to leave the GPU, 8 s over the line.
inline constexpr double kPause = 0.25;
inline constexpr double kWay = 8;
/// Three seconds to the scheduler's pass, one to start.
inline constexpr double kPlaced = 4;

inline Setting one_job_on(std::size_t nodes, double work_s) {
  Setting setting;
  setting.campus = small_campus(nodes);
  setting.jobs = {small_job(0, work_s)};
  setting.days = 1;
  return setting;
}

inline Interruption notice(
    std::size_t node, double declared_s, double deadline_s, double returns_s
) {
  return {node, ReclaimKind::kNotice, declared_s, deadline_s, returns_s};
}

inline Interruption emergency(std::size_t node, double at_s, double returns_s) {
  return {node, ReclaimKind::kEmergency, at_s, at_s, returns_s};
}

inline std::size_t displaced_by(const Figures& figures, const std::string& end) {
  const auto found = figures.by_end.find(end);
  return found == figures.by_end.end() ? 0 : found->second.displaced;
}

/// "JOB@NODE" of each run, in order.
inline std::vector<std::string> started_in(const std::vector<std::string>& rows) {
  std::vector<std::string> starts;
  for (const std::string& row : rows) {
    if (row.find(",started,") == std::string::npos) continue;
    std::vector<std::string> fields;
    for (std::size_t at = 0; at <= row.size();) {
      const std::size_t comma = std::min(row.find(',', at), row.size());
      fields.push_back(row.substr(at, comma - at));
      at = comma + 1;
    }
    starts.push_back(fields.at(2) + "@" + fields.at(4));
  }
  return starts;
}

}  // namespace rn::evaluate
