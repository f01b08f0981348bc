// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"

// Where the jobs of machines that are taken back go, chosen together. Pure. Seconds from now,
// bytes, bytes per second, useful seconds (a second of work at the speed that the job wished for).
//
//   chance(j, d)  = P(save + transfer + slack ≤ notice), links serving the earliest deadline first
//   U(j, d)       = w · (speed · ∫ S_lo(T + u) du − T) − θ · group risk,   T = arrival + restore
//   group risk(d) = Σ over the groups of d: jobs already there · P(the group is taken back while
//   the
//                   job is there)
//
// S_lo is the cautious survival (what is not known of a node counts against it). Among the
// destinations with chance ≥ 0.95 the job that would lose most by not getting its best one chooses
// first (regret); slots, room and links are debited, and all others are scored anew. Where nothing
// is left that is reached in time: the delta to the nearest holder of the parent, then a checkpoint
// store, then the last durable generation.
//
// Of a stranded job nothing can be copied: T is the fetch of what is durable, from the nearest that
// has it, and the restore; it has no deadline.
namespace rn::reclaim {

/// What of a link, or of a path whose links are not known, is left for evacuations. The true rate
/// is taken as log-normal; equal figures mean that it is certain.
struct Bandwidth {
  double q10 = 12.5e6;  ///< exceeded nine times of ten
  double median = 12.5e6;
};

/// P(the rate is at least `wanted`). 0 for a link without bandwidth, 1 if nothing is wanted.
double chance_of_rate(const Bandwidth& bandwidth, double wanted);
/// The rate that is reached with probability `chance` (0 < chance < 1).
double rate_with_chance(const Bandwidth& bandwidth, double chance);

/// How likely a node stays. Between samples, and after the last one, the hazard is constant.
struct StayCurve {
  struct Sample {
    double at_s = 0;
    double cautious = 1;
  };

  std::vector<Sample> samples;                                   ///< ascending; none: it stays
  double leaves_in_s = std::numeric_limits<double>::infinity();  ///< announced; a window's end
};

/// ∫ of the survival from `from_s` to `to_s`: the time that it is expected to be there.
double expected_stay_s(const StayCurve& curve, double from_s, double to_s);

struct Slots {
  std::uint32_t guests = 0;
  std::uint32_t gpus = 0;
  std::uint32_t cpu_milli = 0;
  std::uint64_t memory_mib = 0;
};

struct EvacuationNode {
  NodeId node;
  std::string name;         ///< for people
  Slots free;               ///< none for what takes no guests: sources, stores
  double room_bytes = 0;    ///< for copies
  bool is_storage = false;  ///< lends no compute: its owner has no reason to cut it
  double restore_s = 10;    ///< from the last byte to the first step
  StayCurve stays;
  std::vector<std::size_t> groups;  ///< lab, building, switch: what is taken back together
};

/// Machines that their owners take back together.
struct EvacuationGroup {
  std::string name;
  double jobs = 0;            ///< there already; those that leave are none
  double reclaim_chance = 0;  ///< that all of it goes, within `within_s`
  double within_s = 4 * 3600.0;
};

/// What a job would find at one node.
struct EvacuationOption {
  bool can_run = false;      ///< fits, is admitted, has its data; apart from free slots
  bool can_store = false;    ///< a copy there counts: reachable, allowed, in another failure domain
  bool has_parent = false;   ///< holds the newest durable generation
  double bytes = 0;          ///< that are missing there of what the job will have saved
  bool is_prepared = false;  ///< it was expected to go there, and copies of it were sent ahead
  double speed = 1;          ///< useful seconds per second
};

struct EvacuatingJob {
  JobId job;
  std::string name;        ///< for people
  std::size_t source = 0;  ///< into the site's nodes
  double notice_s = 0;     ///< until the source is cut
  double save_s = 5;       ///< until the first byte may leave
  double rtt_s = 0.001;
  double remaining_s = 4 * 3600.0;  ///< of work, at speed 1; known or guessed
  double weight = 1;                ///< of a second: its GPUs, at least 1
  double lost_s = 0;                ///< work since the last durable generation
  double stored_bytes = 0;          ///< room that a copy takes
  /// Its source sends nothing any more (lost, cut): whoever goes on with it fetches what is
  /// durable. Notice, save and work that is lost do not count.
  bool is_stranded = false;
  bool may_stay = false;  ///< it computes, and its owner announced when they come: for words
  /// Of CPU jobs, at speed 1: they get what of it is left at a node. 0: options tell the speed.
  std::uint32_t cpu_wanted_milli = 0;
  Slots needs;
  std::vector<EvacuationOption> options;  ///< one per node of the site
};

struct EvacuationSite {
  std::vector<EvacuationNode> nodes;
  std::vector<EvacuationGroup> groups;
  std::vector<Bandwidth> links;
  /// Links between two nodes (by index), each once. Of no link: the path is no bottleneck.
  std::function<std::vector<std::uint32_t>(std::size_t from, std::size_t to)> path;
};

/// Which destination is the best of those that are reached in time. A site takes the most useful;
/// the others are of a study, to compare with.
enum class DestinationRule : std::uint8_t {
  kUseful,    ///< U(j, d)
  kRandom,    ///< drawn by the names of job, source and destination
  kMostFree,  ///< GPUs, then places for guests
  kNearest,   ///< the fewest lines between, then the widest of their narrowest
};

struct EvacuationPolicy {
  DestinationRule rule = DestinationRule::kUseful;
  double chance_min = 0.95;
  double slack_share = 0.05;  ///< of the notice; at least three round trips
  double group_risk_s = 600;  ///< θ: useful seconds that a job costs which is lost with others
  /// By so many useful seconds another place has to be better than one that is prepared: less is
  /// within what forecasts know, and what was sent ahead would be for nothing.
  double prepared_s = 30;
  /// 1: forecasts of owners are believed; 0: every node counts as the pool's average, and only
  /// topology, sizes and deadlines decide (ForecastTrust).
  double trust = 1;
  /// Looks through all nodes for one job, per stage: bounds the time of a decision.
  std::size_t searches_max = 400;
};

/// How the newest state of the job gets away, from best to worst. Each is taken only if the one
/// before is not to be had in time.
enum class EvacuationWay : std::uint8_t {
  kDestination,  ///< straight to the node that goes on with it
  kDelta,        ///< only what is new, to the nearest node that has the rest
  kStore,        ///< to a node that keeps it
  kLastDurable,  ///< nothing arrives in time: the last durable generation is what there is
};

/// One choice with every number that it was made from.
struct EvacuationChoice {
  EvacuationWay way = EvacuationWay::kLastDurable;
  std::optional<std::size_t> destination;  ///< where it goes on; none: nobody can take it now
  /// Where its newest state goes; of a stranded job: from whom it is fetched. None: nowhere.
  std::optional<std::size_t> holder;
  double bytes = 0;       ///< to the holder
  double rate = 0;        ///< 10 % quantile of the path's narrowest link
  double arrives_s = 0;   ///< last byte at the holder, at that rate
  double chance = 0;      ///< that this is within the notice
  double downtime_s = 0;  ///< until it computes at the destination
  double stay_s = 0;      ///< expected there, cautiously
  double speed = 0;       ///< there
  double group_risk = 0;  ///< expected number of jobs lost together with it
  double utility = 0;     ///< useful seconds
  double regret = 0;      ///< by how much the next best destination was worse; of kDestination
  std::string next_best;  ///< its name; empty: there was none
  std::optional<std::size_t> runner_up;  ///< the same node
  std::string sentence;                  ///< for people
};

/// One choice per job, in their order. `jobs[i].options` has one entry per node. Numbers that
/// cannot be (negative, not a number) count as 0. Greedy, then moves of single jobs and chains of
/// two; if some job finds no destination, the same from two other orders; then branch and bound. At
/// most O((jobs² + searches_max) · nodes).
std::vector<EvacuationChoice> choose_evacuation(
    const EvacuationSite& site,
    const std::vector<EvacuatingJob>& jobs,
    const EvacuationPolicy& policy = {}
);

/// What a joint choice of direct destinations is worth (nullopt: the job is left where it is, and
/// loses what is not durable), nullopt if one of them would be late or there is no slot: for
/// comparing choices with each other.
std::optional<double> evacuation_value(
    const EvacuationSite& site,
    const std::vector<EvacuatingJob>& jobs,
    const std::vector<std::optional<std::size_t>>& destinations,
    const EvacuationPolicy& policy = {}
);

std::string_view to_string(EvacuationWay way);

/// Whether the forecasts tell owners apart at all, learnt from who departs: the partial likelihood
/// of Cox (1972) against drawing lots. It does not change when all hazards are wrong by one factor,
/// and falls when they are assigned to the wrong nodes.
class ForecastTrust {
 public:
  /// `rates[who]` has departed; `rates` are the forecasts of all that could have, just before.
  /// Ignored unless there are two, all positive.
  void departed(std::span<const double> rates, std::size_t who);
  /// 1 while the forecasts do better than lots; falls to 0 within some departures otherwise.
  double trust() const;

 private:
  static constexpr double kFirst = 1.5;  ///< nats: believed at first
  static constexpr double kMost = 4;     ///< so that it can be lost again
  static constexpr double kLeast = -4;   ///< and won back
  double score_ = kFirst;
};

}  // namespace rn::reclaim
