// SPDX-License-Identifier: Apache-2.0
#include "sim/point_faults.h"

namespace rn::sim {

bool applies(PointFault fault, std::string_view point) {
  const bool is_of_agent = point.starts_with("agent.");
  const bool is_on_node = is_of_agent || point.starts_with("warden.");
  switch (fault) {
    case PointFault::kTwice:
    case PointFault::kLate:
      return point.find(".send.") != std::string_view::npos;
    case PointFault::kFailedSync:  // the others' journals are no files here
    case PointFault::kLie:
      return is_of_agent;
    case PointFault::kPower:  // the coordinator's commits and logs are whole or not there: a kill
    case PointFault::kNow:
    case PointFault::kNotice:
    case PointFault::kCoordinator:
    case PointFault::kEngine:
      return is_on_node;
    case PointFault::kKill:
    case PointFault::kStop:
    case PointFault::kDiskFull:
    case PointFault::kCut:
    case PointFault::kCutOut:
    case PointFault::kCutIn:
    case PointFault::kBreak:
    case PointFault::kClock:
    case PointFault::kOther:
      return true;
  }
  return false;
}

}  // namespace rn::sim
