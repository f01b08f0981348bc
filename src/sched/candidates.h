// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/job.h"
#include "model/node.h"
#include "sched/survival.h"

// Which nodes could take a job, and in which order they are asked. Pure: the node itself decides
// (probe, hold, commit).
namespace rn::sched {

/// What a job needs. Borrows nothing.
struct Demand {
  Resources resources;
  UserId user;
  LabId lab;
  std::string image_digest;
  std::vector<std::string> only_labs;
  std::vector<std::string> data;  ///< names of data sets; only nodes that offer all of them can
  NodeId chosen;                  ///< where its evacuation went: before the preferred one
  NodeId preferred;               ///< asked first if it fits at all; empty = none
  NodeId avoided;                 ///< asked last
  std::uint32_t notice_s = 0;     ///< asked for; owners decide, so it only moves the rank
  double horizon_s = 4 * 3600.0;  ///< expected remaining time
  bool is_member = false;         ///< of a gang: only nodes that know gangs and lend to them can
};

/// A node as the scheduler sees it. Borrows; the pointers outlive the call and are not null.
struct Candidate {
  NodeId node;
  LabId lab;
  const NodeFacts* facts = nullptr;
  const Contract* contract = nullptr;
  const NodeTelemetry* telemetry = nullptr;
  LendingState lending = LendingState::kOpen;
  bool is_up = true;
  bool has_peer_port = true;  ///< others' agents reach it
  SurvivalCurve outlook;
  std::uint32_t used_gpus = 0;  ///< by attempts and probes that the coordinator knows of
  std::uint32_t used_cpu_milli = 0;
  std::uint64_t used_memory_mib = 0;
  std::uint32_t guests = 0;
};

/// kFits: ask it. kNotNow: may change by itself (FAILED, try again). kNever: this job cannot run
/// there unless somebody changes the job or the contract (INFEASIBLE).
enum class Fit : std::uint8_t { kFits, kNotNow, kNever };

struct Judgement {
  Fit fit = Fit::kFits;
  std::string reason;           ///< empty if it fits
  std::uint32_t cpu_milli = 0;  ///< that the node would grant
  double shortfall = 0;         ///< of kNever: 0 nearly fits … 1 not at all; for "closest"
  bool is_named = false;        ///< of kNotNow: the reason is one node's own, told with its name
};

Judgement judge(const Demand& demand, const Candidate& candidate);

/// A candidate that fits, with the numbers of its rank.
struct Ranked {
  std::size_t index = 0;  ///< into the candidates
  double score = 0;       ///< expected useful share of the horizon
  double survival = 0;    ///< over the first hour
  std::uint32_t cpu_milli = 0;
  double speed = 1;  ///< a factor of the score
  double worth = 0;  ///< the score without it
};

/// The numbers of one that fits; `index` is its own among the candidates.
Ranked score(
    const Demand& demand, const Candidate& candidate, std::size_t index, std::uint32_t cpu_milli
);

/// All that fit, best first. score = speed · cautious mean survival over the horizon,
/// where speed = min(1, granted / wanted cores) for CPU jobs and 1 for GPU jobs; × 1.05 on the
/// job's own lab (disturbs nobody else), × 1.02 where the image is present, × 0.8 where the
/// contract grants less notice than the job asks for, shortened to where a GPU's own window ends, ×
/// 0.5 on the avoided node. The chosen node comes first, then the preferred one. Ties: fewest GPUs
/// left over (best fit), then id.
std::vector<Ranked> rank(const Demand& demand, const std::vector<Candidate>& candidates);

/// The numbers of a choice in words: "survives 1 h with 0.97, grants 1000 of 1000 milli-cores, own
/// lab, score 0.812".
std::string because(const Demand& demand, const Candidate& candidate, const Ranked& ranked);

/// One sentence on why nothing fits: "0 of 41 GPUs can ever match; closest: lab-b/n-1 (…)", or "3
/// nodes could run it, none can now: 2 outside their lending window; 1 busy with other jobs", or
/// "no node offers data set imagenet". Up to three nodes whose container engine is refused are
/// named with the reason, as only their owners can change it.
std::string explain(const Demand& demand, const std::vector<Candidate>& candidates);

/// The most cores (thousandths) that one guest gets on a candidate which can ever run it; nullopt
/// if none can.
std::optional<std::uint32_t> most_cpu_milli(
    const Demand& demand, const std::vector<Candidate>& candidates
);

/// The longest notice that a candidate grants which can ever run it; nullopt if none can.
std::optional<std::uint32_t> longest_notice_s(
    const Demand& demand, const std::vector<Candidate>& candidates
);

/// True if at least one candidate can ever run it.
bool is_feasible(const Demand& demand, const std::vector<Candidate>& candidates);

/// -1, 0, 1 as in "7.5" against "8.6"; missing numbers count as 0.
int compare_versions(const std::string& a, const std::string& b);

}  // namespace rn::sched
