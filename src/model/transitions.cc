// SPDX-License-Identifier: Apache-2.0
#include "model/job.h"

namespace rn {

bool may_follow(JobState from, JobState to) {
  if (from == to) return true;
  if (is_terminal(from)) return false;
  if (to == JobState::kCancelled || to == JobState::kFailed) return true;
  switch (from) {
    case JobState::kQueued:
      return to == JobState::kPlacing;
    case JobState::kPlacing:
      return to == JobState::kStarting || to == JobState::kQueued;
    case JobState::kStarting:
    case JobState::kRunning:
    case JobState::kNoticed:
    case JobState::kSaving:
    case JobState::kDraining:
      // Forward along the life, back to the queue with a resume point, or back to running when a
      // reclaim was withdrawn.
      if (to == JobState::kPlacing) return false;
      if (to == JobState::kQueued || to == JobState::kSucceeded) return true;
      return to > from || to == JobState::kRunning;
    case JobState::kSucceeded:
    case JobState::kFailed:
    case JobState::kCancelled:
      return false;
  }
  return false;
}

}  // namespace rn
