// SPDX-License-Identifier: Apache-2.0
#include "evaluate/redundancy.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

namespace rn::evaluate {

namespace {
constexpr double kServerRate = 1e9;  ///< bytes/s that one client reads or writes at most
constexpr Moment kPassAfter = seconds(3);
constexpr Moment kProcessesStart = seconds(1);
constexpr Moment kMissedAfter = seconds(300);
constexpr Moment kLooksAgain = seconds(5);
}  // namespace

void Redundancy::begin(World& world) {
  world_ = &world;
  places_.resize(world.campus().nodes.size());
  for (std::size_t i = 0; i < places_.size(); ++i)
    places_[i].free_gpus = world.campus().nodes[i].gpus;
}

void Redundancy::on_submit(JobNumber job) {
  queue_.insert(job);
  want_pass();
}

void Redundancy::on_lent(NodeNumber node) {
  places_[node].is_open = true;
  if (const auto missed = missed_.extract(node); !missed.empty())
    queue_.insert(missed.mapped().begin(), missed.mapped().end());
  want_pass();
}

void Redundancy::on_declared(NodeNumber node, ReclaimKind kind, Moment deadline) {
  places_[node].is_open = false;
  std::vector<JobNumber> shadows;
  std::vector<JobNumber> guests;
  for (auto& [job, work] : works_) {
    if (work.shadow && work.shadow->node == node) shadows.push_back(job);
    for (Seat& seat : work.seats) {
      if (!seat.is_there || seat.node != node || seat.leaves_as) continue;
      seat.leaves_as = run_end_of(kind);
      seat.leaves_at = deadline;
      if (guests.empty() || guests.back() != job) guests.push_back(job);
    }
  }
  for (const JobNumber job : shadows) drop_shadow(job);
  for (const JobNumber job : guests) {
    Work& work = works_.at(job);
    if (!work.has_begun) {
      give_up(job, std::nullopt);
    } else if (!is_pipeline(work)) {
      hand_over(job);
    }
  }
  want_pass();
}

void Redundancy::on_taken(NodeNumber node, ReclaimKind kind) {
  places_[node].is_open = false;
  std::vector<JobNumber> all;
  for (const auto& [job, work] : works_) all.push_back(job);
  for (const JobNumber job : all) leave(job, node, run_end_of(kind), false);
  want_pass();
}

void Redundancy::on_gone(NodeNumber node) {
  places_[node].is_open = false;
  std::vector<JobNumber> all;
  for (const auto& [job, work] : works_) all.push_back(job);
  for (const JobNumber job : all) leave(job, node, RunEnd::kLost, true);
  want_pass();
  world_->agenda().after(kMissedAfter, [this, node] {
    if (places_[node].is_open) return;
    const auto missed = missed_.extract(node);
    if (missed.empty()) return;
    queue_.insert(missed.mapped().begin(), missed.mapped().end());
    want_pass();
  });
}

void Redundancy::on_finished(RunNumber run) {
  const JobNumber job = by_run_.at(run);
  by_run_.erase(run);
  works_.at(job).run = 0;
  release(job);
  saved_s_.erase(job);
  want_pass();
}

/// The node is no longer this job's. Who computes on others hears of it by broken connections.
void Redundancy::leave(JobNumber job, NodeNumber node, RunEnd end, bool is_silent) {
  Work& work = works_.at(job);
  if (work.shadow && work.shadow->node == node) drop_shadow(job);
  for (Seat& seat : work.seats) {
    if (!seat.next || seat.next->node != node) continue;
    stop_flow(seat.next->flow);
    places_[node].free_gpus += work.gpus_each;
    seat.next.reset();
  }
  const bool is_here = std::any_of(work.seats.begin(), work.seats.end(), [&](const Seat& seat) {
    return seat.is_there && seat.node == node;
  });
  if (!is_here) return;
  if (work.run != 0) {
    if (world_->has_run(work.run)) world_->stop(work.run, end, node);
    by_run_.erase(work.run);
    work.run = 0;
    work.state_s = world_->left_at_s(job);
  }
  work.turn = next_turn_++;
  end_saving(work);
  if (!work.has_begun) return give_up(job, std::nullopt);
  if (is_pipeline(work)) return lose_stages(job, node, is_silent);
  if (work.shadow && work.shadow->holds_s) return promote(job, pause_s(job));
  give_up(job, is_silent ? std::optional(node) : std::nullopt);
}

/// Of the local rendezvous: GPT-2 and BERT, GNMT, VGG and AlexNet.
double Redundancy::pause_s(JobNumber job) const {
  const std::string_view kind = world_->kind(job).name;
  if (kind.starts_with("vision")) return 5;
  return kind == "embeddings" ? 10 : 20;
}

// ---- places

std::uint32_t Redundancy::room(NodeNumber node, bool shadows_go) const {
  const Place& place = places_[node];
  return place.free_gpus + (shadows_go ? place.shadow_gpus : 0);
}

/// Another machine than the others if there is one, another lab (or the same), then the best fit.
std::optional<NodeNumber> Redundancy::choose_one(
    JobNumber job,
    std::uint32_t gpus,
    const std::vector<NodeNumber>& others,
    std::uint32_t gpus_later,
    bool shadows_go
) const {
  using Rank = std::tuple<std::size_t, std::size_t, std::uint32_t, std::uint64_t>;
  std::optional<NodeNumber> best;
  std::optional<Rank> least;
  const auto& nodes = world_->campus().nodes;
  for (NodeNumber node = 0; node < places_.size(); ++node) {
    if (!places_[node].is_open || nodes[node].gpu_memory_mib < world_->kind(job).gpu_memory_mib)
      continue;
    const auto here = static_cast<std::size_t>(std::count(others.begin(), others.end(), node));
    const std::uint32_t free = room(node, shadows_go);
    if (free < gpus + gpus_later * here) continue;
    const auto lab =
        static_cast<std::size_t>(std::count_if(others.begin(), others.end(), [&](NodeNumber other) {
          return nodes[other].lab == nodes[node].lab;
        }));
    const std::size_t apart = options_.is_spread ? lab : others.size() - lab;
    const Rank rank(here, apart, free, nodes[node].gpu_memory_mib);
    if (least && !(rank < *least)) continue;
    best = node;
    least = rank;
  }
  return best;
}

/// All at once, or none.
std::vector<NodeNumber> Redundancy::choose_seats(JobNumber job, bool shadows_go) const {
  const std::uint32_t gpus = world_->job(job).gpus;
  const std::uint32_t seats = options_.has_pipelines ? gpus : 1;
  std::vector<NodeNumber> chosen;
  while (chosen.size() < seats) {
    const auto node = choose_one(job, gpus / seats, chosen, gpus / seats, shadows_go);
    if (!node) return {};
    chosen.push_back(*node);
  }
  return chosen;
}

/// Shadows there make room.
void Redundancy::occupy(NodeNumber node, std::uint32_t gpus) {
  std::vector<JobNumber> shadowed;
  for (const auto& [job, work] : works_) {
    if (work.shadow && work.shadow->node == node) shadowed.push_back(job);
  }
  while (places_[node].free_gpus < gpus) {
    drop_shadow(shadowed.back());
    shadowed.pop_back();
  }
  places_[node].free_gpus -= gpus;
}

void Redundancy::want_pass() {
  if (std::exchange(is_pass_wanted_, true)) return;
  world_->agenda().after(kPassAfter, [this] { pass(); });
}

/// Jobs, then stages that are missing or will be, then shadows.
void Redundancy::pass() {
  is_pass_wanted_ = false;
  for (auto at = queue_.begin(); at != queue_.end();) {
    std::vector<NodeNumber> nodes = choose_seats(*at, false);
    if (nodes.empty()) nodes = choose_seats(*at, true);
    if (nodes.empty()) {
      ++at;
      continue;
    }
    begin_work(*at, nodes);
    at = queue_.erase(at);
  }
  for (const auto& [job, work] : works_) {
    if (work.has_begun && is_pipeline(work)) seek_successors(job);
  }
  for (const auto& [job, work] : works_) {
    if (work.run != 0 && !is_pipeline(work) && !work.shadow) seek_shadow(job);
  }
}

void Redundancy::begin_work(JobNumber job, const std::vector<NodeNumber>& nodes) {
  Work work;
  work.gpus_each = world_->job(job).gpus / static_cast<std::uint32_t>(nodes.size());
  work.turn = next_turn_++;
  for (const NodeNumber node : nodes) {
    occupy(node, work.gpus_each);
    work.seats.push_back({.node = node});
  }
  const std::uint64_t turn = work.turn;
  works_[job] = std::move(work);
  world_->agenda().after(kProcessesStart, [this, job, turn] {
    const Work* const here = find(job);
    if (here != nullptr && here->turn == turn) load(job);
  });
}

/// Every stage its part.
void Redundancy::load(JobNumber job) {
  Work& work = works_.at(job);
  const auto saved = saved_s_.find(job);
  if (saved == saved_s_.end()) return run(job);
  work.state_s = saved->second;
  for (const Seat& seat : work.seats) {
    const auto flow = std::make_shared<Flows::Id>(0);
    *flow = world_->flows().start(
        {.from = world_->store(),
         .to = world_->place(seat.node),
         .bytes = world_->kind(job).bytes / static_cast<double>(work.seats.size()),
         .most = kServerRate,
         .on_arrived =
             [this, job, turn = work.turn, flow] {
               Work* const here = find(job);
               if (here == nullptr || here->turn != turn) return;
               here->loads.erase(*flow);
               if (here->loads.empty()) run(job);
             }}
    );
    work.loads.insert(*flow);
  }
}

void Redundancy::run(JobNumber job) {
  Work& work = works_.at(job);
  std::vector<NodeNumber> nodes;
  for (const Seat& seat : work.seats) {
    if (seat.is_there) nodes.push_back(seat.node);
  }
  work.run = world_->start_spread(job, nodes, work.gpus_each, work.state_s);
  by_run_[work.run] = job;
  if (!std::exchange(work.has_begun, true)) work.saved_at = world_->now();
  if (is_pipeline(work)) world_->slow(work.run, speed_lost(work));
  look_at_save(job, work.turn);
  want_pass();
  // Its owner has said so while it stood still.
  if (!is_pipeline(work) && work.seats.front().leaves_as) hand_over(job);
}

Redundancy::Work* Redundancy::find(JobNumber job) {
  const auto found = works_.find(job);
  return found == works_.end() ? nullptr : &found->second;
}

void Redundancy::stop_flow(std::optional<Flows::Id>& flow) {
  if (flow && world_->flows().has(*flow)) world_->flows().stop(*flow);
  flow.reset();
}

void Redundancy::stop_flows(std::set<Flows::Id>& flows) {
  for (const Flows::Id flow : flows) {
    if (world_->flows().has(flow)) world_->flows().stop(flow);
  }
  flows.clear();
}

void Redundancy::end_saving(Work& work) {
  stop_flows(work.uploads);
  work.is_saving = false;
}

/// Its places are free.
void Redundancy::release(JobNumber job) {
  drop_shadow(job);
  Work& work = works_.at(job);
  stop_flows(work.loads);
  stop_flows(work.uploads);
  for (Seat& seat : work.seats) {
    if (seat.is_there) places_[seat.node].free_gpus += work.gpus_each;
    if (!seat.next) continue;
    stop_flow(seat.next->flow);
    places_[seat.next->node].free_gpus += work.gpus_each;
  }
  works_.erase(job);
}

/// What it has not saved is gone. A machine that is silent, and had no other beside it, is waited
/// for.
void Redundancy::give_up(JobNumber job, std::optional<NodeNumber> silent) {
  release(job);
  (silent ? missed_[*silent] : queue_).insert(job);
  want_pass();
}

// ---- the file server

void Redundancy::look_at_save(JobNumber job, std::uint64_t turn) {
  Work* const work = find(job);
  if (work == nullptr || work->turn != turn || work->run == 0 || work->leaves_as) return;
  const Moment due = work->saved_at + moment_of(options_.interval_s);
  if (world_->now() >= due && !work->is_saving) {
    save(job);
    return look_at_save(job, turn);
  }
  const Moment next = work->is_saving ? std::max(due, world_->now() + kLooksAgain) : due;
  world_->agenda().at(std::max(next, world_->now() + milliseconds(1)), [this, job, turn] {
    look_at_save(job, turn);
  });
}

void Redundancy::save(JobNumber job) {
  Work& work = works_.at(job);
  work.is_saving = true;
  work.saved_at = world_->now();
  const std::uint64_t number = work.save = next_turn_++;
  world_->save(work.run, [this, job, number](double progress_s) {
    upload(job, number, progress_s);
  });
}

/// Every stage its part; who does two, both.
void Redundancy::upload(JobNumber job, std::uint64_t number, double progress_s) {
  Work* const work = find(job);
  if (work == nullptr || work->save != number || !work->is_saving) return;
  const auto there = std::count_if(work->seats.begin(), work->seats.end(), [](const Seat& seat) {
    return seat.is_there;
  });
  for (const Seat& seat : work->seats) {
    if (!seat.is_there) continue;
    const auto flow = std::make_shared<Flows::Id>(0);
    *flow = world_->flows().start(
        {.from = world_->place(seat.node),
         .to = world_->store(),
         .bytes = world_->kind(job).bytes / static_cast<double>(there),
         .most = kServerRate,
         .on_arrived =
             [this, job, number, flow, progress_s] { uploaded(job, number, *flow, progress_s); }}
    );
    work->uploads.insert(*flow);
  }
}

void Redundancy::uploaded(JobNumber job, std::uint64_t number, Flows::Id flow, double progress_s) {
  Work* const work = find(job);
  if (work == nullptr || work->save != number || work->uploads.erase(flow) == 0) return;
  if (!work->uploads.empty()) return;
  work->is_saving = false;
  double& saved = saved_s_[job];
  saved = std::max(saved, progress_s);
  if (!work->leaves_as) return;
  world_->stop(work->run, *work->leaves_as);
  by_run_.erase(work->run);
  give_up(job, std::nullopt);
}

}  // namespace rn::evaluate
