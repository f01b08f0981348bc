// SPDX-License-Identifier: Apache-2.0
// What the whole site must show: in time while nothing fails, when a machine is cleared, at the
// end.
#include <algorithm>
#include <vector>

#include "model/codec.h"
#include "sim/agent_work.h"
#include "sim/cluster.h"

namespace rn::sim {

namespace {
constexpr auto kIdleMost = std::chrono::minutes(20);  ///< beside somebody who waits
}  // namespace

void Cluster::trace_unfinished() {
  for (const auto& [key, job] : jobs_) {
    if (is_terminal(state_of(key))) continue;
    const auto why = coordinator_->core() == nullptr || job.id.empty()
                         ? Result<std::string>("not acknowledged")
                         : coordinator_->core()->why(job.id, coordinator_->clock().now());
    world_.trace("user", key + ": " + why.value_or("unknown"));
  }
}

bool Cluster::is_there_to_lend(const Node& node) const {
  return node.agent->contract().lends && !node.is_gone && !node.has_left;
}

bool Cluster::is_taken(const Node& node) const {
  bool is_any = node.warden->is_taken();
  for (std::uint32_t gpu = 0; gpu < options_.gpus; ++gpu)
    is_any = is_any || node.warden->is_taken(gpu);
  return is_any;
}

bool Cluster::could_run(const Node& node, const Training& training) const {
  const auto index = static_cast<std::size_t>(&node - nodes_.data());
  return is_there_to_lend(node) && training.gpus <= options_.gpus &&
         (!training.wants_data || index < options_.data_nodes);
}

nanoseconds Cluster::time_needed() const {
  nanoseconds all{0};
  nanoseconds longest{0};
  nanoseconds in_turn{0};  // of those that wait for others, or for their turn
  Training choosiest;
  for (const auto& [key, mine] : jobs_) {
    if (is_terminal(state_of(key))) continue;
    choosiest.wants_data |= mine.training.wants_data;
    const auto work = 2 * milliseconds(std::int64_t{mine.training.steps} * mine.training.step_ms);
    all += work;
    longest = std::max<nanoseconds>(longest, work);
    if (mine.is_task || !mine.after.empty()) in_turn += work;
  }
  const auto lenders = std::count_if(nodes_.begin(), nodes_.end(), [&](const Node& node) {
    return could_run(node, choosiest);
  });
  return all / std::max<std::int64_t>(lenders, 1) + longest + in_turn + std::chrono::hours(1);
}

void Cluster::check_idle(std::map<std::string, TrueTime>& idle_since) {
  // A gang that was tried in vain has what becomes free kept for it, for two hours at most.
  constexpr auto kBesideAGang = std::chrono::minutes(140);
  const auto patience = does_a_gang_wait() ? kBesideAGang : kIdleMost;
  for (const Node& node : nodes_) {
    const bool is_wanted = std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
      const auto& [key, mine] = entry;
      return state_of(key) == JobState::kQueued && !is_held(key) && !checkers_.is_quota_full() &&
             !mine.training.is_member() && could_run(node, mine.training);
    });
    const bool is_idle = node.machine->containers().empty();
    if (!is_idle || !is_wanted || world_.is_violated()) {
      idle_since.erase(node.name);
      continue;
    }
    const auto since = idle_since.emplace(node.name, world_.now()).first->second;
    if (world_.now() - since <= patience) continue;
    trace_unfinished();
    world_.violate("I13", "jobs wait for 20 minutes although " + node.name + " has nothing to do");
  }
  check_idle_gangs(idle_since);
}

bool Cluster::does_a_gang_wait() const {
  return std::any_of(gangs_.begin(), gangs_.end(), [this](const auto& entry) {
    const coordinator::GangRow* row = gang(entry.first);
    return row != nullptr && row->state == GangState::kWaiting;
  });
}

/// G8: as many machines as it has members have nothing to do, all the time, and it waits.
void Cluster::check_idle_gangs(std::map<std::string, TrueTime>& idle_since) {
  for (const auto& [key, mine] : gangs_) {
    const coordinator::GangRow* row = gang(key);
    const auto idle =
        std::count_if(nodes_.begin(), nodes_.end(), [&, &member = mine](const Node& n) {
          return n.machine->containers().empty() && could_run(n, member.training);
        });
    const bool waits = row != nullptr && row->state == GangState::kWaiting &&
                       idle >= static_cast<std::ptrdiff_t>(mine.size) && !checkers_.is_quota_full();
    if (!waits || world_.is_violated()) {
      idle_since.erase("gang " + key);
      continue;
    }
    const auto since = idle_since.emplace("gang " + key, world_.now()).first->second;
    if (world_.now() - since <= kIdleMost) continue;
    trace_unfinished();
    world_.violate(
        "G8",
        "gang " + key + " waits for 20 minutes beside " + std::to_string(idle) +
            " machines that have nothing to do"
    );
  }
}

/// G8: where nothing fails and it would fit, somebody is gathered for when a gang waits for long.
void Cluster::check_gathering() {
  // A coordinator that starts anew gathers anew.
  const nanoseconds alive = coordinator_->process().alive_for();
  const bool is_whole = std::all_of(nodes_.begin(), nodes_.end(), [this](const Node& node) {
    return node.agent->process().is_up() && !node.is_owner_using && !is_taken(node);
  });
  for (const auto& [key, mine] : gangs_) {
    const coordinator::GangRow* row = gang(key);
    const auto fitting =
        std::count_if(nodes_.begin(), nodes_.end(), [&, &member = mine](const Node& node) {
          return could_run(node, member.training);
        });
    const bool waits = is_whole && row != nullptr && row->state == GangState::kWaiting &&
                       fitting >= static_cast<std::ptrdiff_t>(mine.size) &&
                       !checkers_.is_quota_full();
    if (!waits) {
      gangs_wait_since_.erase(key);
      continue;
    }
    const auto since = gangs_wait_since_.emplace(key, world_.now()).first->second;
    if (std::min<nanoseconds>(world_.now() - since, alive) <= kIdleMost) continue;
    const auto& events = coordinator_->store().events();
    const bool is_any = std::any_of(events.begin(), events.end(), [](const auto& event) {
      return event.kind == "gang.gathers";
    });
    if (!is_any)
      world_.violate(
          "G8", "gang " + key + " waits for 20 minutes, and nothing is kept for anybody"
      );
  }
}

/// Before the deadline a node is cleared only when the newest generation of each guest is
/// elsewhere.
void Cluster::check_evacuation(const Node& node, const warden::Clear& clear, nanoseconds left) {
  if (left <= nanoseconds(0) || !node.agent->process().is_up()) return;
  checkpoint::ChunkStore* mine = node.agent->work().store();
  if (mine == nullptr) return;
  for (const warden::GuestRecord& guest : clear.guests) {
    const auto row = coordinator_->store().jobs().find(guest.guest.job);
    const bool is_current = row != coordinator_->store().jobs().end() &&
                            row->second.job.epoch == guest.guest.epoch &&
                            !is_terminal(row->second.job.state);
    if (!is_current) continue;
    // The agent goes by receipts: it cannot know that a copy rots or was never kept.
    if (!site_.hollow.empty() || checkers_.has_rotted(guest.guest.job)) continue;
    // What it has computed is home: nothing of it is resumed any more.
    if (checkers_.has_uploaded(guest.guest.job, guest.guest.epoch)) continue;
    // An agent that died before its journal knew takes a number twice: either is the newest.
    std::vector<GenerationRef> newest;
    for (const GenerationRef& one : mine->list(guest.guest.job)) {
      if (one.epoch != guest.guest.epoch) continue;
      if (!newest.empty() && one.generation > newest.front().generation) newest.clear();
      if (newest.empty() || one.generation == newest.front().generation) newest.push_back(one);
    }
    if (newest.empty()) continue;
    const bool is_elsewhere = std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& other) {
      if (&other == &node || !other.agent->process().is_up()) return false;
      checkpoint::ChunkStore* store = other.agent->work().store();
      return store != nullptr && std::any_of(newest.begin(), newest.end(), [&](const auto& one) {
               return store->verify(one.job, one.manifest).has_value();
             });
    });
    const bool are_all_up = std::all_of(nodes_.begin(), nodes_.end(), [](const Node& other) {
      return other.agent->process().is_up();
    });
    if (are_all_up) checkers_.on_early_clear(node.name, newest.front(), is_elsewhere, left);
  }
}

void Cluster::check_results() {
  replay_.check_all(coordinator_->store());
  for (const auto& [key, submitted] : jobs_) {
    const Job* row = job(key);
    const JobState state = state_of(key);
    if (state != submitted.ends_as && !submitted.may_be_stopped) {
      const std::string wanted(to_string(submitted.ends_as));
      world_.violate(
          "I1",
          key + " has not " + wanted + " but is " + std::string(to_string(state)) + ": " +
              (row == nullptr ? "unknown" : row->reason)
      );
      return;
    }
    if (state != JobState::kSucceeded || row == nullptr) continue;
    const auto log = coordinator_->logs().find({row->id, row->epoch});
    checkers_.on_final_log(
        row->id, row->epoch, log == coordinator_->logs().end() ? BlobView() : BlobView(log->second)
    );
    const auto listing_blob = coordinator_->blobs().find(row->outputs);
    if (listing_blob == coordinator_->blobs().end())
      return world_.violate("I1", key + " has no outputs");
    const auto listing = from_cbor<Listing>(listing_blob->second);
    if (!listing || listing->files.size() != 1)
      return world_.violate("I6", key + " has other outputs than it wrote");
    checkers_.on_outputs(
        row->id, coordinator_->blobs().at(listing->files[0].blobs.at(0)), submitted.training
    );
  }
}

/// When the jobs are over and word of it has gone round, their traces are gone too; what was there
/// before us is as it was.
void Cluster::check_residue() {
  run_until(world_.now() + std::chrono::minutes(10));
  checkers_.check_charged(coordinator_->process().life());
  for (Node& node : nodes_) {
    if (world_.is_violated()) return;
    if (!node.agent->process().is_up() && !node.has_left) continue;
    const auto left = [&](const std::string& what) {
      world_.violate("I10", what + " is left on " + node.name + " after its jobs");
    };
    if (!node.machine->containers().empty())
      left("a container of " + node.machine->containers().begin()->first.job.str());
    const auto thesis = read_all(node.machine->disk(), kOwnersFile, 4096);
    if (!thesis || as_text(*thesis) != kOwnersWords)
      world_.violate("I10", "the owner's file on " + node.name + " has changed");
    if (node.has_left) continue;  // files and copies go with `reclaim-warden leave`
    for (const char* folder : {"/attempts", "/spool"}) {
      const auto names = node.machine->disk().list(folder);
      if (names && !names->empty()) left(std::string(folder) + "/" + names->front());
    }
    const auto jobs = node.agent->work().store()->jobs();
    if (!jobs.empty()) left("a generation of " + jobs.front().str());
  }
}

}  // namespace rn::sim
