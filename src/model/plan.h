// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/fields.h"

// What would become of a job if it were submitted now. Nothing of it is kept.
namespace rn {

enum class PlanVerdict : std::uint8_t {
  kNow,    ///< nodes fit and would be asked at once
  kWaits,  ///< nodes could run it, none can now
  kNever   ///< no node can, unless somebody changes the job or a contract
};

RN_ENUM(PlanVerdict, "now", "waits", "never")

enum class PlanFit : std::uint8_t { kFits, kNotNow, kNever };
RN_ENUM(PlanFit, "fits", "not_now", "never")

/// How near to a job those are that an estimate stands on, the nearest first: of the same user,
/// image and command (but for its numbers); of this user and image; of this image; all.
enum class Likeness : std::uint8_t { kCommand, kUserAndImage, kImage, kSite };
RN_ENUM(Likeness, "command", "user_and_image", "image", "site")

/// What of a job is estimated, in this unit.
enum class Estimated : std::uint8_t { kDuration, kCheckpoint, kMemory, kGpuMemory };
RN_ENUM(Estimated, "duration_s", "checkpoint_mib", "memory_mib", "gpu_memory_mib")

namespace api {

/// A node as placement sees it for this one job.
struct PlanCandidate {
  NodeId node;
  LabId lab;
  std::string hostname;
  PlanFit fit = PlanFit::kNever;
  std::uint32_t rank = 0;       ///< in which nodes are asked, from 1; 0: it does not fit now
  std::string reason;           ///< the numbers of its rank, or why it does not fit
  double score = 0;             ///< of its rank
  std::uint32_t cpu_milli = 0;  ///< that it would grant; 0: it does not fit now
  std::uint32_t notice_s = 0;   ///< before a reclaim, as its owner grants it
  /// Until the job's first step there: what starts took there lately; where it does not fit yet,
  /// from when those of the guests there must have ended whose jobs say how long they may run.
  /// None: nothing that is known says it.
  std::optional<double> starts_in_s;
  std::optional<double> leaves_in_s;  ///< announced by its owner, or the end of a lending window
  /// Reclaims expected within the plan's horizon, or until it leaves, which counts as one.
  double interruptions = 0;
  double stays = 0;  ///< chance of none within the horizon
  double stays_low = 0;
  double stays_high = 0;  ///< 90 % band of what is not known of its owner

  RN_FIELDS(
      PlanCandidate,
      node,
      lab,
      hostname,
      fit,
      rank,
      reason,
      score,
      cpu_milli,
      notice_s,
      starts_in_s,
      leaves_in_s,
      interruptions,
      stays,
      stays_low,
      stays_high
  )
};

/// What jobs like it used that have ended well.
struct PlanEstimate {
  Estimated of = Estimated::kDuration;
  Likeness likeness = Likeness::kSite;
  std::uint32_t jobs = 0;         ///< that it stands on; where they are too few: that there are
  std::uint32_t jobs_needed = 0;  ///< fewer say nothing
  double share = 0;               ///< of such jobs within the interval
  std::optional<double> low;
  std::optional<double> typical;
  std::optional<double> high;

  RN_FIELDS(PlanEstimate, of, likeness, jobs, jobs_needed, share, low, typical, high)
};

/// For a range, what is said is from the nodes that would be asked now, or if there are none from
/// all that could run it.
struct Plan {
  PlanVerdict verdict = PlanVerdict::kNever;
  std::string sentence;
  bool is_over_quota = false;         ///< with kNever: a submit would be refused, whatever is lent
  std::uint32_t queue_position = 0;   ///< from 1, among the jobs that wait
  std::optional<double> starts_in_s;  ///< as PlanCandidate has it, of the first node that could
  double horizon_s = 0;               ///< over which it is forecast: the job's run
  bool is_horizon_assumed = false;    ///< the job does not say how long it may run
  bool is_horizon_estimated = false;  ///< then: it is the upper end of what jobs like it ran
  double interruptions_least = 0;
  double interruptions_most = 0;
  std::uint32_t notice_wanted_s = 0;
  std::uint32_t notice_least_s = 0;
  std::uint32_t notice_most_s = 0;
  std::vector<std::string> warnings;      ///< what it asks for and gets less of
  std::vector<PlanCandidate> candidates;  ///< as they rank; then who could, then who never can
  std::vector<PlanEstimate> estimates;    ///< one for each Estimated
  std::uint32_t members = 0;              ///< of a gang; 0: it is a job by itself
  std::uint32_t members_now = 0;          ///< for so many of them there is room at once

  RN_FIELDS(
      Plan,
      verdict,
      sentence,
      is_over_quota,
      queue_position,
      starts_in_s,
      horizon_s,
      is_horizon_assumed,
      is_horizon_estimated,
      interruptions_least,
      interruptions_most,
      notice_wanted_s,
      notice_least_s,
      notice_most_s,
      warnings,
      candidates,
      estimates,
      members,
      members_now
  )
};

}  // namespace api

}  // namespace rn
