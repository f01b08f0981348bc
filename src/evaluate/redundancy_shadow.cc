// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>

#include "evaluate/redundancy.h"

// A second machine that has a job's state, and goes on with it.
namespace rn::evaluate {

namespace {
constexpr double kReplicaRate = 1e9;  ///< bytes/s of one copy
constexpr double kWarmStart_s = 1;
}  // namespace

/// In another lab if there is one, by the fastest line.
void Redundancy::seek_shadow(JobNumber job) {
  Work& work = works_.at(job);
  const auto& nodes = world_->campus().nodes;
  const NodeNumber own = work.seats.front().node;
  if (work.seats.front().leaves_as) return;
  using Rank = std::tuple<bool, double, std::uint32_t>;
  std::optional<NodeNumber> best;
  std::optional<Rank> least;
  for (NodeNumber node = 0; node < places_.size(); ++node) {
    if (node == own || !places_[node].is_open || places_[node].free_gpus < work.gpus_each) continue;
    if (nodes[node].gpu_memory_mib < world_->kind(job).gpu_memory_mib) continue;
    const bool is_near = nodes[node].lab == nodes[own].lab;
    const double line = std::min(nodes[node].line, nodes[own].line);
    const Rank rank(is_near, -line, places_[node].free_gpus);
    if (least && !(rank < *least)) continue;
    best = node;
    least = rank;
  }
  if (!best) return;
  places_[*best].free_gpus -= work.gpus_each;
  places_[*best].shadow_gpus += work.gpus_each;
  work.shadow = Shadow{.node = *best};
  replicate(job);
}

void Redundancy::drop_shadow(JobNumber job) {
  Work& work = works_.at(job);
  if (!work.shadow) return;
  stop_flow(work.shadow->flow);
  places_[work.shadow->node].free_gpus += work.gpus_each;
  places_[work.shadow->node].shadow_gpus -= work.gpus_each;
  work.shadow.reset();
  want_pass();
}

void Redundancy::replicate(JobNumber job) {
  Work& work = works_.at(job);
  const std::uint64_t number = work.shadow->number = next_turn_++;
  work.shadow->began = world_->now();
  world_->save(work.run, [this, job, number](double progress_s) { send(job, number, progress_s); });
}

/// What differs from what is there.
void Redundancy::send(JobNumber job, std::uint64_t number, double progress_s) {
  Work* const work = find(job);
  if (work == nullptr || !work->shadow || work->shadow->number != number) return;
  Shadow& shadow = *work->shadow;
  const StateKind& kind = world_->kind(job);
  shadow.flow = world_->flows().start(
      {.from = world_->place(work->seats.front().node),
       .to = world_->place(shadow.node),
       .bytes = shadow.holds_s ? differing_bytes(kind, progress_s - *shadow.holds_s) : kind.bytes,
       .most = kReplicaRate,
       .on_arrived = [this, job, number, progress_s] { replicated(job, number, progress_s); }}
  );
}

void Redundancy::replicated(JobNumber job, std::uint64_t number, double progress_s) {
  Work* const work = find(job);
  if (work == nullptr || !work->shadow || work->shadow->number != number) return;
  work->shadow->flow.reset();
  work->shadow->holds_s = progress_s;
  const std::optional<RunEnd> end = work->seats.front().leaves_as;
  if (end) {
    world_->stop(work->run, *end);
    by_run_.erase(work->run);
    work->run = 0;
    return promote(job, kWarmStart_s);
  }
  const StateKind& kind = world_->kind(job);
  const double pause_s = kind.bytes / kind.pause_bytes_per_s;
  const Moment due = work->shadow->began + moment_of(pause_s / options_.overhead);
  world_->agenda().at(std::max(due, world_->now()), [this, job, number] {
    const Work* const here = find(job);
    if (here == nullptr || !here->shadow || here->shadow->number != number) return;
    if (here->run != 0 && !here->seats.front().leaves_as) replicate(job);
  });
}

/// The shadow's GPUs are the job's now.
void Redundancy::promote(JobNumber job, double after_s) {
  Work& work = works_.at(job);
  Shadow shadow = *work.shadow;
  stop_flow(shadow.flow);
  places_[work.seats.front().node].free_gpus += work.gpus_each;
  places_[shadow.node].shadow_gpus -= work.gpus_each;
  work.seats.front() = {.node = shadow.node};
  work.state_s = *shadow.holds_s;
  work.shadow.reset();
  end_saving(work);
  form_anew(job, after_s);
}

/// It began before, and a new one would be late.
bool Redundancy::is_better_ended(JobNumber job, Flows::Id flow) const {
  const Flows& flows = world_->flows();
  const Seat& seat = works_.at(job).seats.front();
  const double left_s = seconds_of(seat.leaves_at - world_->now());
  return flows.has(flow) && world_->kind(job).bytes > flows.rate(flow) * left_s;
}

/// One last time, from which the guest stands still; to the file server if there is no shadow that
/// has anything.
void Redundancy::hand_over(JobNumber job) {
  Work& work = works_.at(job);
  if (work.run == 0) return;  // it stands still already, and this comes when it does not
  world_->slow(work.run, 1);
  if (work.shadow && work.shadow->holds_s) {
    if (work.shadow->flow && is_better_ended(job, *work.shadow->flow)) return;
    stop_flow(work.shadow->flow);
    return replicate(job);
  }
  drop_shadow(job);
  work.leaves_as = work.seats.front().leaves_as;
  if (work.uploads.size() == 1 && is_better_ended(job, *work.uploads.begin())) return;
  stop_flows(work.uploads);
  save(job);
}

}  // namespace rn::evaluate
