// SPDX-License-Identifier: Apache-2.0
#include "sim/checkers_gangs.h"

#include <algorithm>
#include <utility>

#include "sim/coordinator_host.h"

namespace rn::sim {

namespace {

constexpr auto kGangSave = seconds(60);  ///< gang_save_s
constexpr auto kGangLag = seconds(15);   ///< heartbeats in which a stop is told, and its killing
constexpr auto kGangHoldMost =
    seconds(10);  ///< of a hold, and so of a round that has come to commits
constexpr auto kRoundMost = seconds(4);
constexpr auto kRoundPause = seconds(5);  ///< before a gang is tried again
constexpr auto kSettled = seconds(30);
constexpr auto kTold = seconds(10);  ///< two heartbeats
constexpr std::size_t kTurnsOfUse = 5;

std::string member_name(const warden_wire::GuestName& guest) {
  return guest.job.str() + " epoch " + to_string(guest.epoch);
}

}  // namespace

GangChecks::History* GangChecks::gang_of(const JobId& job) {
  const auto found = gang_of_.find(job);
  return found == gang_of_.end() ? nullptr : &gangs_.at(found->second);
}

void GangChecks::on_write(const coordinator::Write& write) {
  if (const auto* gang = std::get_if<coordinator::PutGang>(&write)) return on_gang(gang->row);
  if (const auto* put = std::get_if<coordinator::PutAttempt>(&write)) {
    const Attempt& attempt = put->row.attempt;
    History* const gang = gang_of(attempt.job);
    if (gang == nullptr) return;
    touched_.insert(gang->row.id);
    if (attempt.state == AttemptState::kReady) gang->ready[attempt.epoch].insert(attempt.job);
  }
  if (const auto* put = std::get_if<coordinator::PutJob>(&write)) {
    const auto found = gang_of_.find(put->row.job.id);
    if (found != gang_of_.end()) touched_.insert(found->second);
  }
}

void GangChecks::on_gang(const coordinator::GangRow& row) {
  ++checks_;
  History& gang = gangs_[row.id];
  const coordinator::GangRow before = gang.row;
  touched_.insert(row.id);
  for (const JobId& member : row.members) gang_of_[member] = row.id;
  if (row.set.number != before.set.number || row.set.mark != before.set.mark) {
    gang.is_set_new = row.set.number > before.set.number;
    if (before.set.number > 0 && row.set.mark < before.set.mark && !row.is_fallback)
      world_.violate(
          "G4",
          "gang " + row.id.str() + " went back from a set of mark " +
              std::to_string(before.set.mark) + " to " + std::to_string(row.set.mark)
      );
  }
  if (row.epoch != before.epoch) gang.begins_at[row.epoch] = row.set.number > 0 ? row.set.mark : 0;
  if (row.is_go && row.state == GangState::kRunning)
    gang.is_go_new = gang.went.insert(row.epoch).second;
  const bool stops = row.state == GangState::kStopping;
  const bool stopped_before = before.state == GangState::kStopping && before.epoch == row.epoch;
  if (stops && !stopped_before) gang.stopped = world_.now();
  if (stops && (!stopped_before || row.stop_deadline_ms != before.stop_deadline_ms))
    gang.stop_until = gang.stopped + milliseconds(row.stop_deadline_ms);
  if (row.epoch != before.epoch) gang.computing.clear();
  if (row.state == GangState::kPreparing && before.state == GangState::kWaiting) end_round(gang);
  gang.row = row;
}

/// It has all its places: from its first probe until now no other gang was in a round.
void GangChecks::end_round(History& gang) {
  const auto since = std::exchange(gang.round_since, std::nullopt);
  if (!since) return;
  for (const auto& [id, other] : gangs_) {
    if (&other == &gang || !other.round_since || other.probed < *since) continue;
    world_.violate(
        "G7", "gang " + id.str() + " asks nodes while another gang is in a round that succeeds"
    );
  }
}

void GangChecks::on_committed() {
  for (const GangId& id : touched_) {
    ++checks_;
    History& gang = gangs_.at(id);
    check_attempts(gang);
    if (std::exchange(gang.is_set_new, false)) check_set(gang);
    if (std::exchange(gang.is_go_new, false)) check_go(gang);
    check_ends(gang);
  }
  touched_.clear();
}

void GangChecks::on_restore() {
  gangs_.clear();
  gang_of_.clear();
  touched_.clear();
  for (const auto& [id, row] : store_.gangs()) on_gang(row);
  // Whom the lost time had told to go is told to stop, by its old epoch.
  for (auto& [id, gang] : gangs_) {
    if (gang.row.is_go) gang.went.insert(gang.row.epoch);
    for (const JobId& member : gang.row.members) gang.ready[gang.row.epoch].insert(member);
    gang.begins_at.clear();  // its set may be another than when the epoch was issued
    gang.is_set_new = gang.is_go_new = false;
  }
  touched_.clear();
}

void GangChecks::check_attempts(const History& gang) {
  std::map<LeaseEpoch, std::size_t> had;
  for (const JobId& member : gang.row.members) {
    const auto& attempts = store_.attempts();
    for (auto it = attempts.lower_bound({member, LeaseEpoch{}});
         it != attempts.end() && it->first.first == member;
         ++it) {
      const Attempt& attempt = it->second.attempt;
      ++had[attempt.epoch];
      const bool is_live = attempt.state != AttemptState::kEnded;
      if (is_live && attempt.epoch != gang.row.epoch)
        world_.violate(
            "G1",
            "an attempt of " + member.str() + " lives at epoch " + to_string(attempt.epoch) +
                ", its gang is at " + to_string(gang.row.epoch)
        );
    }
  }
  for (const auto& [epoch, count] : had) {
    if (count != gang.row.members.size())
      world_.violate(
          "G1",
          "of epoch " + to_string(epoch) + " of gang " + gang.row.id.str() + " there are " +
              std::to_string(count) + " attempts of " + std::to_string(gang.row.members.size())
      );
  }
}

void GangChecks::check_go(const History& gang) {
  const auto ready = gang.ready.find(gang.row.epoch);
  const std::size_t count = ready == gang.ready.end() ? 0 : ready->second.size();
  if (count < gang.row.members.size())
    world_.violate(
        "G2",
        "gang " + gang.row.id.str() + " is told to go, and " + std::to_string(count) + " of " +
            std::to_string(gang.row.members.size()) + " were ready"
    );
}

void GangChecks::check_set(const History& gang) {
  const GangSet& set = gang.row.set;
  const std::string which = "set " + std::to_string(set.number) + " of gang " + gang.row.id.str();
  if (set.refs.size() != gang.row.members.size())
    return world_.violate("G3", which + " does not name all members");
  const bool is_of_all = gang.row.saves == GangSaves::kAll ||
                         (gang.row.saves == GangSaves::kAuto && gang.row.all_save);
  for (std::size_t rank = 0; rank < set.refs.size(); ++rank) {
    const GenerationRef& ref = set.refs[rank];
    if (ref.generation == 0) {
      if (rank == 0 || is_of_all)
        world_.violate("G3", which + " has nothing of rank " + std::to_string(rank));
      continue;
    }
    const auto row = store_.generations().find({gang.row.members[rank], ref.generation});
    const bool is_there =
        row != store_.generations().end() && row->second.generation.manifest == ref.manifest;
    if (!is_there)
      world_.violate(
          "G3", which + ": the part of rank " + std::to_string(rank) + " is not durable"
      );
    if (ref.step != set.mark || ref.epoch != set.epoch)
      world_.violate(
          "G3", which + ": the part of rank " + std::to_string(rank) + " is of another save"
      );
  }
}

void GangChecks::check_ends(const History& gang) {
  std::size_t over = 0;
  std::optional<std::pair<std::uint32_t, std::uint32_t>> counts;
  for (const JobId& member : gang.row.members) {
    const auto row = store_.jobs().find(member);
    if (row == store_.jobs().end())
      return world_.violate("G6", member.str() + " of a gang is not in the store");
    const Job& job = row->second.job;
    over += is_terminal(job.state) ? 1 : 0;
    const std::pair mine(job.restarts, job.displacements);
    if (counts && *counts != mine)
      world_.violate(
          "G6", "members of gang " + gang.row.id.str() + " were not restarted equally often"
      );
    counts = mine;
  }
  if (over != 0 && over != gang.row.members.size())
    world_.violate(
        "G6",
        std::to_string(over) + " members of gang " + gang.row.id.str() + " are over, of " +
            std::to_string(gang.row.members.size())
    );
}

void GangChecks::on_effect(const coordinator::Effect& effect, std::uint64_t life) {
  if (life != std::exchange(life_, life)) {
    for (auto& [id, gang] : gangs_) gang.round_since.reset();
  }
  const auto* const send = std::get_if<coordinator::SendToAgent>(&effect);
  if (send == nullptr) return;
  if (const auto* probe = std::get_if<wire::Probe>(&send->message)) on_probe(*probe);
  if (const auto* order = std::get_if<wire::CollectGarbage>(&send->message))
    check_collection(*order);
}

/// A round that came to nothing is followed by a pause; one that came to something by commits.
void GangChecks::on_probe(const wire::Probe& probe) {
  if (probe.gang.empty()) return;
  ++checks_;
  const auto found = gangs_.find(probe.gang);
  if (found == gangs_.end())
    return world_.violate("G7", "a node is asked for gang " + probe.gang.str() + ", which is none");
  History& gang = found->second;
  if (milliseconds(probe.hold_ms) > kGangHoldMost)
    world_.violate("G7", "a hold for gang " + probe.gang.str() + " is asked for too long");
  const TrueTime now = world_.now();
  if (gang.round_since && now - gang.probed >= kRoundPause - seconds(1)) gang.round_since.reset();
  if (gang.round_since && now - *gang.round_since > kRoundMost)
    world_.violate("G7", "a round of gang " + probe.gang.str() + " does not end");
  if (!gang.round_since) gang.round_since = now;
  gang.probed = now;
}

void GangChecks::check_collection(const wire::CollectGarbage& order) {
  const History* const gang = gang_of(order.job);
  if (gang == nullptr || gang->row.state == GangState::kOver) return;
  ++checks_;
  if (order.is_job_over)
    return world_.violate("G4", "all of " + order.job.str() + " is collected, its gang goes on");
  for (const GangSet* set : {&gang->row.set, &gang->row.previous}) {
    for (const GenerationRef& ref : set->refs) {
      if (ref.job != order.job || ref.generation == 0 || ref.generation >= order.keep_from)
        continue;
      const auto& also = order.also_keep;
      if (std::find(also.begin(), also.end(), ref.generation) == also.end())
        world_.violate(
            "G4",
            "generation " + std::to_string(ref.generation) + " of " + order.job.str() +
                " is collected, and set " + std::to_string(set->number) + " needs it"
        );
    }
  }
}

// --- guests

void GangChecks::on_snapshot(const GenerationRef& generation) {
  if (History* const gang = gang_of(generation.job)) gang->saved[generation.job] = world_.now();
}

void GangChecks::on_create(const Machine& machine, const Machine::Container& container) {
  if (!container.training.is_member()) return;
  ++checks_;
  const History* const gang = gang_of(container.guest.job);
  if (gang == nullptr || !gang->went.contains(container.guest.epoch))
    world_.violate(
        "G2",
        member_name(container.guest) + " is created on " + machine.name() +
            ", and its gang was not told to go"
    );
}

void GangChecks::on_start(const Machine::Container& container) {
  History* const gang = gang_of(container.guest.job);
  if (gang == nullptr) return;
  ++checks_;
  if (container.guest.epoch == gang->row.epoch) gang->computing.insert(container.guest.job);
  const auto from = gang->begins_at.find(container.guest.epoch);
  if (from == gang->begins_at.end()) return;
  if (static_cast<std::int64_t>(container.progress.step) != from->second)
    world_.violate(
        "G3",
        member_name(container.guest) + " begins at step " +
            std::to_string(container.progress.step) + ", its gang's set is of " +
            std::to_string(from->second)
    );
}

/// For the coordinator it has ended, whatever it computes where nobody hears it: by the rows.
bool GangChecks::is_given_up(const JobId& job, LeaseEpoch epoch) const {
  const auto attempt = store_.attempts().find({job, epoch});
  if (attempt == store_.attempts().end()) return true;
  if (attempt->second.attempt.state == AttemptState::kEnded) return true;
  const auto node = store_.nodes().find(attempt->second.attempt.node);
  return node == store_.nodes().end() || node->second.state == NodeState::kLost ||
         node->second.state == NodeState::kLeft;
}

bool GangChecks::saves_first(const History& gang) const {
  return gang.row.state == GangState::kStopping && gang.row.is_go && gang.row.stop_saves_first;
}

std::set<std::uint32_t> GangChecks::needed(const JobId& job) const {
  std::set<std::uint32_t> out;
  const auto gang = gang_of_.find(job);
  if (gang == gang_of_.end()) return out;
  const coordinator::GangRow& row = gangs_.at(gang->second).row;
  if (row.state == GangState::kOver) return out;
  for (const GangSet* set : {&row.set, &row.previous}) {
    for (const GenerationRef& ref : set->refs) {
      if (ref.job == job && ref.generation > 0) out.insert(ref.generation);
    }
  }
  return out;
}

void GangChecks::on_step(
    const Machine& machine, const Machine::Container& container, nanoseconds alive
) {
  const History* const gang = gang_of(container.guest.job);
  if (gang == nullptr) return;
  ++checks_;
  const bool is_cut = world_.network().is_cut(machine.name(), CoordinatorHost::kName) ||
                      world_.network().is_cut(CoordinatorHost::kName, machine.name());
  TrueTime& unreached = unreached_[container.guest];
  // What its agent cannot write down it does not do.
  if (is_cut || machine.is_disk_full() || unreached == TrueTime{0}) unreached = world_.now();
  const bool is_current = container.guest.epoch == gang->row.epoch;
  if (gang->row.state != GangState::kStopping || !is_current) return;
  const nanoseconds length = std::max(gang->stop_until - gang->stopped, TrueTime{0});
  const nanoseconds most = length + kGangSave + kGangLag;
  const bool is_reached = alive > most && world_.now() - unreached > most;
  if (is_reached && world_.now() - gang->stopped > most)
    world_.violate(
        "G5",
        member_name(container.guest) + " computes on " + machine.name() + ", " +
            std::to_string((world_.now() - gang->stopped) / seconds(1)) +
            " s after its gang was stopped"
    );
}

void GangChecks::on_end(
    const Machine& machine, const Machine::Container& container, nanoseconds alive, bool is_taken
) {
  const auto unreached = unreached_.extract(container.guest);
  History* const gang = gang_of(container.guest.job);
  if (gang == nullptr || container.guest.epoch != gang->row.epoch) return;
  ++checks_;
  gang->computing.erase(container.guest.job);
  const bool is_killed = container.exit_code == 137;
  const bool is_reached = !unreached.empty() && world_.now() - unreached.mapped() > kSettled &&
                          alive > kSettled && world_.now() - gang->stopped > kTold;
  if (!is_killed && container.exit_code != 0 && is_reached && saves_first(*gang) &&
      !container.is_told)
    world_.violate(
        "G5",
        member_name(container.guest) + " gives up on " + machine.name() +
            ", and was not told that its gang stops"
    );
  const bool is_cut = world_.network().is_cut(machine.name(), CoordinatorHost::kName) ||
                      world_.network().is_cut(CoordinatorHost::kName, machine.name());
  // One that has just been created is no use to the others.
  const bool has_computed = container.turns >= kTurnsOfUse;
  if (!is_killed || is_taken || is_cut || alive < kSettled || !has_computed) return;
  if (!saves_first(*gang)) return;
  const nanoseconds length = gang->stop_until - gang->stopped;
  const nanoseconds margin = std::min<nanoseconds>(length / 5, seconds(2)) + seconds(1);
  if (world_.now() >= gang->stop_until - margin) return;
  for (const JobId& other : gang->computing) {
    if (is_given_up(other, gang->row.epoch)) continue;
    const auto rank = static_cast<std::size_t>(
        std::find(gang->row.members.begin(), gang->row.members.end(), other) -
        gang->row.members.begin()
    );
    const auto saved = gang->saved.find(other);
    const bool has_saved = saved != gang->saved.end() && saved->second >= gang->stopped;
    if ((container.training.all_save || rank == 0) && !has_saved)
      world_.violate(
          "G5",
          member_name(container.guest) + " is stopped on " + machine.name() + ", and " +
              other.str() + " has not saved yet"
      );
  }
}

}  // namespace rn::sim
