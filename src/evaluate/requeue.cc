// SPDX-License-Identifier: Apache-2.0
#include "evaluate/requeue.h"

#include <algorithm>
#include <utility>

namespace rn::evaluate {

namespace {
constexpr double kFileServer = 1e9;  ///< bytes/s that one client reads or writes at most
constexpr Moment kLookAgain = seconds(5);
}  // namespace

void Requeue::begin(World& world) {
  world_ = &world;
  places_.resize(world.campus().nodes.size());
  for (std::size_t i = 0; i < places_.size(); ++i)
    places_[i].free_gpus = world.campus().nodes[i].gpus;
}

void Requeue::on_submit(JobNumber job) {
  queue_.insert(job);
  want_pass();
}

/// A machine that was without power says so, and what ran there is queued at once.
void Requeue::on_lent(NodeNumber node) {
  places_[node].is_open = true;
  if (const auto missed = missed_.extract(node); !missed.empty())
    queue_.insert(missed.mapped().begin(), missed.mapped().end());
  want_pass();
}

void Requeue::on_declared(NodeNumber node, ReclaimKind kind, Moment deadline) {
  places_[node].is_open = false;
  if (saves_at_notice()) clear_out(node, run_end_of(kind), deadline);
}

/// An upload under way goes on if a new one would be late: it began before, and may arrive.
bool Requeue::is_better_ended(const Stay& stay, Moment left) const {
  const Flows& flows = world_->flows();
  if (!stay.upload || !flows.has(*stay.upload)) return false;
  return world_->kind(stay.job).bytes > flows.rate(*stay.upload) * seconds_of(left);
}

void Requeue::clear_out(NodeNumber node, RunEnd end, Moment deadline) {
  places_[node].is_open = false;
  std::vector<std::uint64_t> all;
  for (const auto& [number, stay] : places_[node].stays) {
    if (!stay.leaves_as) all.push_back(number);
  }
  if (grace())
    world_->agenda().after(*grace(), [this, node, all] { kill_at_grace_end(node, all); });
  for (const std::uint64_t number : all) {
    Stay& stay = places_[node].stays.at(number);
    stay.leaves_as = end;
    if (stay.run == 0) {
      queue_.insert(stay.job);
      end_stay(node, number);
      want_pass();
      continue;
    }
    world_->slow(stay.run, 1);
    if (is_better_ended(stay, deadline - world_->now())) continue;
    // What is under way is older than what could be saved now: the line is better used for that.
    if (stay.upload && world_->flows().has(*stay.upload)) world_->flows().stop(*stay.upload);
    stay.upload.reset();
    stay.is_saving = false;
    save(node, number);
  }
}

void Requeue::kill_at_grace_end(NodeNumber node, const std::vector<std::uint64_t>& stays) {
  for (const std::uint64_t number : stays) {
    const Stay* const stay = find(node, number);
    if (stay == nullptr) continue;
    world_->stop(stay->run, *stay->leaves_as);
    queue_.insert(stay->job);
    end_stay(node, number);
    want_pass();
  }
}

void Requeue::on_taken(NodeNumber node, ReclaimKind kind) {
  Place& place = places_[node];
  place.is_open = false;
  while (!place.stays.empty()) {
    const auto& [number, stay] = *place.stays.begin();
    if (stay.run != 0 && world_->has_run(stay.run)) world_->stop(stay.run, run_end_of(kind));
    queue_.insert(stay.job);
    end_stay(node, number);
  }
  hear_of_loss(node);
  want_pass();
}

void Requeue::on_gone(NodeNumber node) {
  Place& place = places_[node];
  place.is_open = false;
  while (!place.stays.empty()) {
    missed_[node].insert(place.stays.begin()->second.job);
    end_stay(node, place.stays.begin()->first);
  }
  world_->agenda().after(times_.silence, [this, node] {
    if (places_[node].is_open) return;
    hear_of_loss(node);
    const auto missed = missed_.extract(node);
    if (missed.empty()) return;
    queue_.insert(missed.mapped().begin(), missed.mapped().end());
    want_pass();
  });
}

void Requeue::on_finished(RunNumber run) {
  const auto [node, stay] = by_run_.at(run);
  saved_s_.erase(places_[node].stays.at(stay).job);
  end_stay(node, stay);
  want_pass();
}

Requeue::Stay* Requeue::find(NodeNumber node, std::uint64_t number) {
  const auto found = places_[node].stays.find(number);
  return found == places_[node].stays.end() ? nullptr : &found->second;
}

void Requeue::want_pass() {
  if (std::exchange(is_pass_wanted_, true)) return;
  world_->agenda().after(times_.pass, [this] { pass(); });
}

void Requeue::pass() {
  is_pass_wanted_ = false;
  for (auto at = queue_.begin(); at != queue_.end();) {
    const auto node = find_place(*at);
    if (!node) {
      ++at;
      continue;
    }
    begin_stay(*at, *node);
    at = queue_.erase(at);
  }
}

std::optional<Requeue::Rank> Requeue::rank(JobNumber, NodeNumber node) const {
  return Rank(
      places_[node].free_gpus, static_cast<double>(world_->campus().nodes[node].gpu_memory_mib)
  );
}

std::optional<NodeNumber> Requeue::find_place(JobNumber job) const {
  const std::uint32_t gpus = world_->job(job).gpus;
  const std::uint64_t memory = world_->kind(job).gpu_memory_mib;
  std::optional<NodeNumber> best;
  std::optional<Rank> least;
  for (NodeNumber node = 0; node < places_.size(); ++node) {
    const Place& place = places_[node];
    if (!place.is_open || place.free_gpus < gpus) continue;
    if (world_->campus().nodes[node].gpu_memory_mib < memory) continue;
    const std::optional<Rank> here = rank(job, node);
    if (!here || (least && !(*here < *least))) continue;
    best = node;
    least = here;
  }
  return best;
}

std::vector<JobNumber> Requeue::jobs_at(NodeNumber node) const {
  std::vector<JobNumber> jobs;
  for (const auto& [number, stay] : places_[node].stays) jobs.push_back(stay.job);
  return jobs;
}

void Requeue::begin_stay(JobNumber job, NodeNumber node) {
  places_[node].free_gpus -= world_->job(job).gpus;
  const std::uint64_t number = next_stay_++;
  Stay& stay = places_[node].stays[number];
  stay.job = job;
  world_->agenda().after(times_.start, [this, node, number] {
    Stay* const here = find(node, number);
    if (here == nullptr) return;
    if (!saved_s_.contains(here->job)) return run(node, number);
    here->load = world_->flows().start(
        {.from = world_->store(),
         .to = world_->place(node),
         .bytes = world_->kind(here->job).bytes,
         .most = kFileServer,
         .on_arrived =
             [this, node, number] {
               if (find(node, number) != nullptr) run(node, number);
             }}
    );
  });
}

void Requeue::run(NodeNumber node, std::uint64_t number) {
  Stay& stay = *find(node, number);
  const auto saved = saved_s_.find(stay.job);
  stay.load.reset();
  stay.run = world_->start(stay.job, node, saved == saved_s_.end() ? 0 : saved->second);
  stay.saved_at = world_->now();
  by_run_[stay.run] = {node, number};
  look_at_save(node, number);
}

/// When the next save is due, by what is known now.
void Requeue::look_at_save(NodeNumber node, std::uint64_t number) {
  Stay* const stay = find(node, number);
  if (stay == nullptr || stay->leaves_as) return;
  const std::optional<double> interval = interval_s(stay->job);
  if (!interval) return;
  const Moment due = stay->saved_at + moment_of(*interval);
  if (world_->now() >= due && !stay->is_saving) {
    save(node, number);
    return look_at_save(node, number);
  }
  const Moment next = stay->is_saving ? std::max(due, world_->now() + kLookAgain) : due;
  world_->agenda().at(std::max(next, world_->now() + milliseconds(1)), [this, node, number] {
    look_at_save(node, number);
  });
}

void Requeue::save(NodeNumber node, std::uint64_t number) {
  Stay& stay = *find(node, number);
  stay.is_saving = true;
  stay.saved_at = world_->now();
  const std::uint64_t save = ++stay.save;
  world_->save(stay.run, [this, node, number, save](double progress_s) {
    upload(node, number, save, progress_s);
  });
}

void Requeue::upload(NodeNumber node, std::uint64_t number, std::uint64_t save, double progress_s) {
  Stay* const stay = find(node, number);
  if (stay == nullptr || stay->save != save) return;
  stay->upload = world_->flows().start(
      {.from = world_->place(node),
       .to = world_->store(),
       .bytes = world_->kind(stay->job).bytes,
       .most = kFileServer,
       .on_arrived =
           [this, node, number, save, progress_s] { uploaded(node, number, save, progress_s); }}
  );
}

void Requeue::uploaded(
    NodeNumber node, std::uint64_t number, std::uint64_t save, double progress_s
) {
  Stay* const stay = find(node, number);
  if (stay == nullptr || stay->save != save) return;
  stay->upload.reset();
  stay->is_saving = false;
  double& saved = saved_s_[stay->job];
  saved = std::max(saved, progress_s);
  hear_of_save(stay->job, seconds_of(world_->now() - stay->saved_at));
  if (!stay->leaves_as) return;
  world_->stop(stay->run, *stay->leaves_as);
  queue_.insert(stay->job);
  end_stay(node, number);
  want_pass();
}

void Requeue::end_stay(NodeNumber node, std::uint64_t number) {
  Stay& stay = places_[node].stays.at(number);
  for (const auto& flow : {stay.load, stay.upload}) {
    if (flow && world_->flows().has(*flow)) world_->flows().stop(*flow);
  }
  places_[node].free_gpus += world_->job(stay.job).gpus;
  if (stay.run != 0) by_run_.erase(stay.run);
  places_[node].stays.erase(number);
}

}  // namespace rn::evaluate
