// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "evaluate/redundancy.h"

// Stages that go, and come anew.
namespace rn::evaluate {

namespace {
constexpr double kGlobalRendezvous_s = 30;
constexpr double kSlowerByTwoStages = 1.5;
constexpr double kStageRate = 1e9;  ///< bytes/s of one copy
constexpr Moment kStageStarts = seconds(1);
}  // namespace

/// Whose neighbour before it is gone, too, is in nobody's memory.
bool Redundancy::is_lost(const Work& work) const {
  const std::size_t stages = work.seats.size();
  for (std::size_t i = 0; i < stages; ++i) {
    const bool is_kept = work.seats[i].is_there || work.seats[(i + stages - 1) % stages].is_there;
    if (!is_kept) return true;
  }
  return false;
}

double Redundancy::speed_lost(const Work& work) const {
  const bool is_whole = std::all_of(work.seats.begin(), work.seats.end(), [](const Seat& seat) {
    return seat.is_there;
  });
  const double speed = 1 - options_.overhead;
  return 1 - (is_whole ? speed : speed / kSlowerByTwoStages);
}

void Redundancy::lose_stages(JobNumber job, NodeNumber node, bool is_silent) {
  Work& work = works_.at(job);
  for (Seat& seat : work.seats) {
    if (!seat.is_there || seat.node != node) continue;
    seat.is_there = false;
    seat.leaves_as.reset();
    places_[node].free_gpus += work.gpus_each;
  }
  if (!is_lost(work)) {
    for (std::size_t i = 0; i < work.seats.size(); ++i) {
      auto& next = work.seats[i].next;
      if (!next || !next->flow || next->from != node) continue;
      stop_flow(next->flow);
      load_stage(job, i);
    }
    return form_anew(job, pause_s(job));
  }
  const bool is_any_there =
      std::any_of(work.seats.begin(), work.seats.end(), [](const Seat& s) { return s.is_there; });
  give_up(job, is_silent && !is_any_there ? std::optional(node) : std::nullopt);
}

/// Those that are there stand still for so long, and go on together.
void Redundancy::form_anew(JobNumber job, double after_s) {
  Work& work = works_.at(job);
  const std::uint64_t turn = work.turn = next_turn_++;
  world_->agenda().after(moment_of(after_s), [this, job, turn] {
    const Work* const here = find(job);
    if (here != nullptr && here->turn == turn) run(job);
  });
  want_pass();
}

/// For stages that are missing, or whose machine's owner is coming.
void Redundancy::seek_successors(JobNumber job) {
  Work& work = works_.at(job);
  for (std::size_t i = 0; i < work.seats.size(); ++i) {
    Seat& seat = work.seats[i];
    if (seat.next || (seat.is_there && !seat.leaves_as)) continue;
    std::vector<NodeNumber> others;
    for (const Seat& other : work.seats) {
      if (&other == &seat) continue;
      if (other.is_there) others.push_back(other.node);
      if (other.next) others.push_back(other.next->node);
    }
    auto node = choose_one(job, work.gpus_each, others, 0, false);
    if (!node) node = choose_one(job, work.gpus_each, others, 0, true);
    if (!node) continue;
    occupy(*node, work.gpus_each);
    seat.next = Successor{.node = *node};
    world_->agenda().after(kStageStarts, [this, job, i, to = *node] {
      const Work* const here = find(job);
      if (here == nullptr || i >= here->seats.size()) return;
      const auto& next = here->seats[i].next;
      if (next && next->node == to && !next->flow) load_stage(job, i);
    });
  }
}

/// From the one before it, or from its own machine while that is there.
void Redundancy::load_stage(JobNumber job, std::size_t stage) {
  Work& work = works_.at(job);
  const std::size_t stages = work.seats.size();
  const Seat& before = work.seats[(stage + stages - 1) % stages];
  Seat& seat = work.seats[stage];
  seat.next->from = before.is_there ? before.node : seat.node;
  seat.next->flow = world_->flows().start(
      {.from = world_->place(seat.next->from),
       .to = world_->place(seat.next->node),
       .bytes = world_->kind(job).bytes / static_cast<double>(stages),
       .most = kStageRate,
       .on_arrived =
           [this, job, stage, to = seat.next->node] {
             const Work* const here = find(job);
             if (here == nullptr || stage >= here->seats.size()) return;
             const auto& next = here->seats[stage].next;
             if (next && next->node == to && next->flow) join(job, stage);
           }}
  );
}

void Redundancy::join(JobNumber job, std::size_t stage) {
  Work& work = works_.at(job);
  Seat& seat = work.seats[stage];
  if (work.run != 0) {
    world_->stop(work.run, seat.leaves_as.value_or(RunEnd::kMoved), seat.node);
    by_run_.erase(work.run);
    work.run = 0;
    work.state_s = world_->left_at_s(job);
  }
  end_saving(work);
  if (seat.is_there) places_[seat.node].free_gpus += work.gpus_each;
  seat = {.node = seat.next->node};
  form_anew(job, kGlobalRendezvous_s);
}

}  // namespace rn::evaluate
