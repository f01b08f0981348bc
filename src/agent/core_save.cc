// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "agent/core_state.h"
#include "base/log.h"
#include "checkpoint/watch.h"

namespace rn::agent {

namespace {

constexpr seconds kPeerRest{10};  // before a peer that failed is asked again
constexpr std::uint32_t kLeastIntervalS =
    1;  // between snapshots of a guest that says again and again that it saved
constexpr seconds kCrowdedInterval{30};   // between snapshots while nothing becomes durable
constexpr seconds kKillLag{1};            // from a guest's kill until the agent hears of it
constexpr seconds kUncopiedPatience{30};  // with copies that fail everywhere; then it is told
constexpr std::size_t kCrowd = 4;         // generations that wait to become durable
constexpr std::size_t kGangGenerationsKept = 8;  // durable: a set may be made of any of them
constexpr milliseconds kLastPause{300};  // before a last snapshot that failed is tried again
constexpr std::uint32_t kLastTries = 3;  // of a last snapshot for which nobody waits
constexpr seconds kAheadPause{60};       // between copies ahead to the same peer
constexpr double kGoesSoon_s = 600;      // then there is no such pause

/// What the author of a guest can do so that it is saved.
std::string saving_advice(const CheckpointSpec& spec) {
  return "write it under another name and rename it into place, or leave it alone for " +
         std::to_string((std::max(spec.quiet_ms, 1u) + 999) / 1000) +
         " s after each save, or save into a folder of its own and put a file " +
         (spec.complete_marker.empty() ? ".complete" : spec.complete_marker) + " into it last";
}

/// Where copies fail, and what the site's people can do about it.
std::string copy_trouble_words(const std::map<NodeId, Error>& errors) {
  constexpr std::size_t kNamed = 4;
  std::string text = "no copy of what it saves can be made, so nothing new becomes durable";
  std::size_t named = 0;
  bool are_full = true;
  bool are_silent = true;
  for (const auto& [node, error] : errors) {
    are_full &= error.code == ErrorCode::kExhausted;
    are_silent &= error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kTimeout;
    if (named < kNamed)
      text += (named == 0 ? ": " : "; ") + node.str() + " says: " + readable(error.message);
    ++named;
  }
  if (named > kNamed) text += "; and " + std::to_string(named - kNamed) + " more";
  text += "; next: ";
  if (are_full)
    return text + "make room on these nodes (store_mib of their contracts), or let another join";
  if (are_silent)
    return text + "see whether its node reaches their peer ports: `reclaim-agent doctor` there";
  return text + "`reclaim-agent doctor` on these nodes tells more";
}

}  // namespace

std::string readable(std::string_view text, std::size_t longest) {
  std::string out(text.substr(0, longest));
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) c = '?';
  }
  return out;
}

GenerationRow* Core::State::newest(Attempt& a) {
  return a.row.generations.empty() ? nullptr : &a.row.generations.back();
}

void Core::State::step_generations(Attempt& a) {
  if (a.commit.spec.checkpoint.is_stateless || a.row.is_fenced) return;
  const bool is_alive = a.row.phase == Phase::kRunning || a.row.phase == Phase::kNoticed;
  if (is_alive && !a.is_watching && !a.row.disk.empty()) {
    a.is_watching = true;
    const GenerationRow* const last = newest(a);
    out_.effects.emplace_back(StartWatch{
        a.name, a.row.disk, a.commit.spec.checkpoint, last != nullptr ? last->ref : a.row.restored}
    );
  }
  if (is_alive && a.is_detected && may_work(a, Task::kSnapshot)) {
    const auto waiting = std::count_if(
        a.row.generations.begin(),
        a.row.generations.end(),
        [](const GenerationRow& g) { return !g.is_committed && !g.is_refused; }
    );
    seconds interval(std::max(
        {kLeastIntervalS, a.commit.spec.checkpoint.min_interval_s, a.row.plan.min_interval_s}
    ));
    if (static_cast<std::size_t>(waiting) >= kCrowd)
      interval = std::max(interval, kCrowdedInterval);
    if (a.is_save_owed) interval = seconds(kLeastIntervalS);
    const bool is_soon = a.snapshot_at && now_.boot - *a.snapshot_at < interval;
    if (a.row.phase == Phase::kNoticed || !is_soon) take_snapshot(a, false);
  }
  if (is_alive) {
    look_for_saves(a);
    look_at_risk(a);
    judge_saves(a);
    tell_to_save(a);
  }
  pump_precopy(a);
  pump_ahead(a);
  if (a.row.phase < Phase::kRunning || a.row.phase > Phase::kDraining) return;
  if (GenerationRow* const row = generation_to_copy(a)) {
    leave_older(a, *row);
    if (!waits_for_next_save(a)) pump_copies(a, *row);
  }
  look_for_copies(a);
}

void Core::State::on(const SaveTrouble& e) {
  const auto found = attempts_.find(e.guest);
  if (found == attempts_.end()) return;
  Attempt& a = found->second;
  a.save_trouble = readable(e.path) + " is not saved: " + readable(e.reason) +
                   "; next: " + saving_advice(a.commit.spec.checkpoint);
}

/// A guest that runs for long and saves nothing loses everything with its node: its author hears
/// it.
void Core::State::look_for_saves(Attempt& a) {
  if (!a.save_trouble.empty()) return;
  const CheckpointSpec& spec = a.commit.spec.checkpoint;
  if (a.unsaved_since && now_.boot - *a.unsaved_since >= config_.unsaved_after) {
    const bool is_its_own = a.unsaved_why.code == ErrorCode::kUnavailable;
    a.save_trouble =
        "each try to save it fails: " + readable(a.unsaved_why.message) + "; next: " +
        (is_its_own ? saving_advice(spec) : "`reclaim-agent doctor` on its node tells more");
    return;
  }
  const nanoseconds patience =
      std::max(config_.no_save_after, milliseconds(seconds(spec.min_interval_s) * 2));
  const nanoseconds ran(to_ns(now_.boot) - a.row.started_ns);
  if (!a.row.generations.empty() || a.row.started_ns == 0 || ran < patience) return;
  std::string globs;
  for (const std::string& glob :
       spec.paths.empty() ? checkpoint::usual_checkpoint_names() : spec.paths)
    globs += (globs.empty() ? "" : " ") + glob;
  a.save_trouble = "it has run for more than " +
                   told_duration(std::chrono::duration<double>(patience).count()) +
                   " and no checkpoint of it was found (looked for: " + readable(globs) +
                   "); next: name its checkpoints with --checkpoint GLOB, or --stateless if there "
                   "are none";
}

/// In the same words until other holders fail, or for other reasons: messages count what is free.
void Core::State::look_for_copies(Attempt& a) {
  if (!a.uncopied_since || now_.boot - *a.uncopied_since < kUncopiedPatience) return;
  std::map<NodeId, ErrorCode> causes;
  for (const auto& [node, error] : a.copy_errors) causes[node] = error.code;
  if (causes.empty() || causes == a.copy_trouble_of) return;
  a.copy_trouble = copy_trouble_words(a.copy_errors);
  a.copy_trouble_of = std::move(causes);
}

void Core::State::copies_are_made(Attempt& a) {
  a.uncopied_since.reset();
  a.copy_errors.clear();
  a.copy_trouble.clear();
  a.copy_trouble_of.clear();
}

/// While its guest computes one core is enough. When it leaves, or has left, the cores that the
/// owner lends are free, and its machine is waited for: those who leave together share them.
std::uint32_t Core::State::snapshot_lanes(const Attempt& a, bool is_final) const {
  if (!is_final && a.row.phase < Phase::kNoticed) return 1;
  const auto leaving = std::count_if(attempts_.begin(), attempts_.end(), [](const auto& one) {
    const Phase phase = one.second.row.phase;
    return phase >= Phase::kNoticed && phase <= Phase::kSaving;
  });
  const std::int64_t cores = lent_cpu_milli(contract_, facts_) / 1000;
  return static_cast<std::uint32_t>(
      std::max<std::int64_t>(1, cores / std::max<std::int64_t>(1, leaving))
  );
}

void Core::State::take_snapshot(Attempt& a, bool is_final) {
  const GenerationRow* const last = newest(a);
  TakeSnapshot snapshot;
  snapshot.disk = a.row.disk;
  snapshot.epoch = a.name.epoch;
  snapshot.parent = last != nullptr ? last->ref : a.row.restored;
  snapshot.generation =
      std::max({a.commit.resume.generation, a.row.restored.generation, snapshot.parent.generation}
      ) +
      1;
  snapshot.spec = a.commit.spec.checkpoint;
  snapshot.workspace = a.commit.spec.workspace;
  snapshot.sealed_job_key = a.commit.sealed_job_key;
  snapshot.is_final = is_final;
  snapshot.guest_since_ns = a.guest_since_ns;
  snapshot.lanes = snapshot_lanes(a, is_final);
  if (is_final && !a.has_left) {
    const milliseconds quiet(a.commit.spec.checkpoint.quiet_ms);
    snapshot.torn_after_ns =
        std::max<std::int64_t>(to_ms(a.gone_at - quiet - kKillLag) * 1'000'000, 1);
  }
  a.is_detected = false;
  a.snapshot_at = now_.boot;
  // One that the guest was writing already says nothing of what it does about the notice.
  a.is_snapshot_after_notice = a.row.phase >= Phase::kNoticed && a.detected_began >= a.noticed_at;
  a.is_snapshot_final = is_final;
  const std::uint32_t number = snapshot.generation;
  work(a, Task::kSnapshot, std::move(snapshot), {}, number);
  pump_ahead(a);
}

void Core::State::on_snapshot(Attempt& a, const WorkResult& result) {
  const bool is_saving = a.row.phase == Phase::kSaving;
  if (const auto* taken = std::get_if<SnapshotTaken>(&result)) {
    GenerationRow row;
    row.ref = taken->generation;
    row.ref.snapshot_boot_ns = to_ns(a.snapshot_at.value_or(now_.boot));
    log::info(
        "generation.safe",
        {{"job", a.name.job.str()},
         {"generation", row.ref.generation},
         {"step", row.ref.step},
         {"new_bytes", row.ref.new_bytes}}
    );
    release_ahead(a, row.ref);
    const GenerationRef before = newest(a) != nullptr ? newest(a)->ref : GenerationRef{};
    a.row.generations.push_back(std::move(row));
    a.is_dirty = true;
    count_checkpoint(a, static_cast<std::uint32_t>(a.row.generations.size()));
    learn_saves(a, before, a.row.generations.back().ref, taken->cpu);
    a.save_trouble.clear();
    a.risk_trouble.clear();
    a.risk_told_at = nanoseconds(0);
    a.unsaved_since.reset();
    a.is_save_owed = false;
    a.commit_sent_at = Instant{};
    if (a.row.phase == Phase::kNoticed && a.is_snapshot_after_notice) a.is_safe_after_notice = true;
    note_save_in_stay(a);
    // One that began while the guest still ran is not yet the last word.
    if (is_saving && a.is_snapshot_final) a.is_final_snapshot_done = true;
    return;
  }
  stop_ahead(a);
  if (std::holds_alternative<NothingNew>(result)) {
    a.is_save_owed = false;
    if (is_saving && a.is_snapshot_final) a.is_final_snapshot_done = true;
    return;
  }
  const auto* const error = std::get_if<Error>(&result);
  if (error == nullptr) return;
  log::warning("generation.failed", {{"job", a.name.job.str()}, {"error", error->describe()}});
  if (is_saving) {
    if (!a.is_snapshot_final || tries_last_snapshot_again(a, *error)) return;
    a.is_final_snapshot_done = true;
    a.row.detail +=
        (a.row.detail.empty() ? "" : "; ") + ("the last snapshot failed: " + error->message);
    a.is_dirty = true;
    return;
  }
  if (!a.unsaved_since) a.unsaved_since = now_.boot;
  a.unsaved_why = *error;
  a.is_save_owed = error->code == ErrorCode::kUnavailable;
  if (a.is_save_owed) return;  // the watch reports it again
  a.is_detected = true;
  retry_work(a, Task::kSnapshot);
}

/// As long as the deadline allows; what the disk or the guest's files forbid stays forbidden.
bool Core::State::tries_last_snapshot_again(Attempt& a, const Error& error) {
  const bool is_for_good = error.code == ErrorCode::kDenied || error.code == ErrorCode::kInvalid ||
                           error.code == ErrorCode::kUnsupported ||
                           error.code == ErrorCode::kNotFound;
  if (is_for_good) return false;
  const std::int64_t deadline_ns = a.row.stop.deadline_ns;
  const bool is_in_time = deadline_ns != 0 ? to_ns(now_.boot + kLastPause) < deadline_ns
                                           : a.final_tries + 1 < kLastTries;
  if (!is_in_time) return false;
  ++a.final_tries;
  a.work_after[Task::kSnapshot] = now_.boot + kLastPause;
  return true;
}

/// The first peers of the plan that work, each in another failure domain. Every generation is
/// offered, but only the newest: what it shares with older ones is already there.
void Core::State::pump_copies(Attempt& a, GenerationRow& generation) {
  if (generation.is_committed || generation.is_refused) return;
  const std::size_t wanted = std::max(a.row.plan.wanted, 1u);
  if (generation.receipts.size() >= wanted) {
    send_commit(a, generation);
    return;
  }
  PeerChoice peers = choose_peers(a, generation.receipts);
  std::set<std::string> domains = domains_under_way(a);
  for (const PeerGrant& peer : peers.ready) {
    if (generation.receipts.size() + a.copies.size() >= wanted) break;
    const bool is_new_domain =
        peer.failure_domain.empty() || domains.insert(peer.failure_domain).second;
    if (is_new_domain) begin_copy(a, peer, generation.ref, false);
  }
  if (peers.ready.empty() && a.copies.empty() && is_welcome_ && is_due(a.grant_sent_at)) {
    a.grant_sent_at = now_.boot;
    send(wire::GrantRequest{
        a.name.job, a.name.epoch, TicketAction::kStore, std::move(peers.resting)});
  }
}

PeerChoice Core::State::choose_peers(const Attempt& a, const std::vector<Receipt>& receipts) const {
  std::vector<PeerGrant> peers = a.row.plan.copies;
  for (const PeerGrant& extra : a.extra_peers) {
    std::erase_if(peers, [&](const PeerGrant& p) { return p.node == extra.node; });
    peers.push_back(extra);
  }
  PeerChoice out;
  for (PeerGrant& peer : peers) {
    if (peer.node == config_.node || a.copies.contains(peer.node)) continue;
    const bool has_it = std::any_of(receipts.begin(), receipts.end(), [&](const Receipt& r) {
      return r.holder == peer.node ||
             (!peer.failure_domain.empty() && r.failure_domain == peer.failure_domain);
    });
    if (has_it) continue;
    const auto after = a.peer_after.find(peer.node);
    if (after != a.peer_after.end() && now_.boot < after->second)
      out.resting.push_back(peer.node);
    else
      out.ready.push_back(std::move(peer));
  }
  return out;
}

/// Two copies in one domain count as one: the coordinator would refuse the generation.
std::set<std::string> Core::State::domains_under_way(const Attempt& a) const {
  std::set<std::string> domains;
  for (const auto* peers : {&a.row.plan.copies, &a.extra_peers}) {
    for (const PeerGrant& peer : *peers) {
      if (a.copies.contains(peer.node)) domains.insert(peer.failure_domain);
    }
  }
  return domains;
}

void Core::State::begin_copy(
    Attempt& a, const PeerGrant& peer, GenerationRef generation, bool is_ahead
) {
  const std::uint64_t cap = cap_of(a);
  const std::uint32_t number = generation.generation;
  const WorkId id = work(
      a, Task::kCopy, CopyGeneration{std::move(generation), peer, cap, is_ahead}, peer.node, number
  );
  works_.at(id).is_ahead = works_.at(id).was_ahead = is_ahead;
  works_.at(id).transfer.rate_bps = cap;
  a.copies[peer.node] = id;
}

/// While a snapshot is taken its chunks go ahead to the peers that will get the generation, unless
/// an older one still has to become durable: that goes first. After a snapshot that failed nothing
/// goes ahead until one succeeds, so that a peer holds at most one capture's worth in vain.
void Core::State::pump_ahead(Attempt& a) {
  const bool is_taking = a.works.contains(Task::kSnapshot);
  if (!is_taking) return stop_ahead(a);
  if (a.unsaved_since || a.row.is_fenced || !may_go_ahead(a)) return;
  const std::size_t wanted = std::max(a.row.plan.wanted, 1u);
  const GenerationRow* const last = newest(a);
  const bool leaves = a.row.phase >= Phase::kNoticed && a.copies.empty();
  const bool is_settled = last == nullptr || last->is_committed || last->is_refused ||
                          last->receipts.size() >= wanted || leaves;
  if (!is_settled || a.copies.size() >= wanted) return;
  GenerationRef coming;
  coming.job = a.name.job;
  coming.epoch = a.name.epoch;
  coming.generation = works_.at(a.works.at(Task::kSnapshot)).generation;
  std::set<std::string> domains = domains_under_way(a);
  for (const PeerGrant& peer : choose_peers(a, {}).ready) {
    if (a.copies.size() >= wanted) return;
    const bool is_new_domain =
        peer.failure_domain.empty() || domains.insert(peer.failure_domain).second;
    if (is_new_domain) begin_copy(a, peer, coming, true);
  }
}

/// The row is written before the effects of this output: what a peer is told is journalled.
void Core::State::release_ahead(Attempt& a, const GenerationRef& generation) {
  for (const auto& [peer, id] : a.copies) {
    PendingWork& pending = works_.at(id);
    if (!pending.is_ahead || pending.generation != generation.generation) continue;
    pending.is_ahead = false;
    pending.released_at = now_.boot;
    if (pending.is_started) {
      out_.effects.emplace_back(ReleaseCopy{id, generation});
      continue;
    }
    for (Work& queued : queue_) {
      if (queued.id != id) continue;
      auto& copy = std::get<CopyGeneration>(queued.body);
      copy.generation = generation;
      copy.is_ahead = false;
    }
  }
}

/// Of a snapshot that did not become a generation.
void Core::State::stop_ahead(Attempt& a) {
  std::erase_if(a.copies, [&](const auto& copy) {
    const auto found = works_.find(copy.second);
    if (found == works_.end() || !found->second.is_ahead) return false;
    cancel_work(copy.second);
    return true;
  });
}

/// While nothing else is to be saved or sent, what is durable goes to where the job would go on
/// next. Not each save, unless its node is soon to go: a guest that saves all the time rewrites
/// what went there before anybody needs it.
void Core::State::pump_precopy(Attempt& a) {
  const GenerationRow* const last = newest(a);
  const bool is_idle = last != nullptr && last->is_committed && a.row.phase == Phase::kRunning &&
                       !a.works.contains(Task::kSnapshot) && is_welcome_;
  if (!is_idle) return stop_precopy(a);
  if (!a.copies.empty()) return;
  const auto leaves_s = leaves_in_s(a);
  const nanoseconds pause = leaves_s && *leaves_s < kGoesSoon_s ? seconds(0) : kAheadPause;
  for (const PeerGrant& peer : a.row.plan.precopies) {
    const auto after = a.peer_after.find(peer.node);
    const auto came = a.ahead_at.find(peer.node);
    const bool rests = (after != a.peer_after.end() && now_.boot < after->second) ||
                       (came != a.ahead_at.end() && now_.boot - came->second < pause);
    const bool has_it =
        std::any_of(last->receipts.begin(), last->receipts.end(), [&](const Receipt& r) {
          return r.holder == peer.node;
        });
    if (rests || has_it || peer.node == config_.node) continue;
    begin_copy(a, peer, last->ref, false);
    works_.at(a.copies.at(peer.node)).is_precopy = true;
    return;
  }
}

void Core::State::stop_precopy(Attempt& a) {
  std::erase_if(a.copies, [&](const auto& copy) {
    const auto found = works_.find(copy.second);
    if (found == works_.end() || !found->second.is_precopy) return false;
    cancel_work(copy.second);
    return true;
  });
}

/// The coordinator knows that they would be late, and who is reached in time. If one of those has
/// just failed, what is under way goes on.
void Core::State::leave_others(Attempt& a) {
  if (a.row.phase < Phase::kNoticed || a.row.phase > Phase::kDraining) return;
  const std::size_t wanted = std::max(a.row.plan.wanted, 1u);
  std::set<NodeId> first;
  for (const PeerGrant& peer : a.row.plan.copies) {
    const auto after = a.peer_after.find(peer.node);
    const bool rests = after != a.peer_after.end() && now_.boot < after->second;
    if (first.size() < wanted && !rests) first.insert(peer.node);
  }
  if (first.size() < wanted || !first.contains(a.row.plan.copies.front().node)) return;
  std::erase_if(a.copies, [&](const auto& copy) {
    const auto found = works_.find(copy.second);
    if (first.contains(copy.first) || found == works_.end()) return false;
    cancel_work(copy.second);
    return true;
  });
}

void Core::State::send_commit(Attempt& a, const GenerationRow& generation) {
  if (!is_welcome_ || !is_due(a.commit_sent_at)) return;
  a.commit_sent_at = now_.boot;
  send(wire::CommitGeneration{generation.ref, generation.receipts});
}

void Core::State::on_copied(Attempt& a, const PendingWork& pending, const WorkResult& result) {
  a.copies.erase(pending.peer);
  if (const auto* copied = std::get_if<GenerationCopied>(&result)) {
    a.copy_errors.erase(pending.peer);
    for (GenerationRow& generation : a.row.generations) {
      if (generation.ref.generation != pending.generation) continue;
      generation.receipts.push_back(copied->receipt);
      learn_copy(a, pending, *copied);
      // So that the coordinator knows of one holder more. Lost, it learns of it with no other.
      if (pending.is_precopy) a.ahead_at[pending.peer] = now_.boot;
      if (pending.is_precopy) send(wire::CommitGeneration{generation.ref, generation.receipts});
      if (generation.receipts.size() >= std::max(a.row.plan.wanted, 1u)) copies_are_made(a);
      a.is_dirty = true;
      a.commit_sent_at = Instant{};
    }
    return;
  }
  a.peer_after[pending.peer] = now_.boot + kPeerRest;
  if (const auto* error = std::get_if<Error>(&result)) {
    if (!pending.is_precopy) {  // what is durable is no trouble of the job's
      if (!a.uncopied_since) a.uncopied_since = now_.boot;
      a.copy_errors[pending.peer] = *error;
    }
    log::warning(
        "generation.copy_failed",
        {{"job", a.name.job.str()},
         {"generation", pending.generation},
         {"peer", pending.peer.str()},
         {"error", error->describe()}}
    );
  }
}

/// I8: the newest durable generation and the one before it stay.
void Core::State::trim_generations(Attempt& a) {
  std::vector<std::uint32_t> durable;
  for (const GenerationRow& g : a.row.generations) {
    if (g.is_committed) durable.push_back(g.ref.generation);
  }
  const std::size_t kept = a.commit.gang ? kGangGenerationsKept : 2;
  if (durable.size() < kept) return;
  const std::uint32_t keep_from = durable[durable.size() - kept];
  const auto dropped = std::erase_if(a.row.generations, [&](const GenerationRow& g) {
    return g.ref.generation < keep_from;
  });
  if (dropped == 0) return;
  a.is_dirty = true;
  if (a.commit.gang) return;  // the coordinator knows which of them are in a set
  work_node(
      Task::kGarbage, GuestName{a.name.job, {}}, CollectGarbage{a.name.job, keep_from, false}
  );
}

/// True when nothing is left to move. Copies have the contract's time; a generation that has its
/// receipts waits for the coordinator as long as it takes, because ending first would lose it.
bool Core::State::step_draining(Attempt& a) {
  if (a.commit.spec.checkpoint.is_stateless) return true;
  const GenerationRow* const last = newest(a);
  if (last == nullptr || last->is_committed || last->is_refused) return true;
  if (a.row.drain_since_ns == 0) {
    a.row.drain_since_ns = to_ns(now_.boot);
    a.is_dirty = true;
  }
  if (last->receipts.size() >= std::max(a.row.plan.wanted, 1u)) return false;
  const nanoseconds drained(to_ns(now_.boot) - a.row.drain_since_ns);
  if (drained < seconds(contract_.max_drain_s)) return false;
  if (!last->receipts.empty()) {
    send_commit(a, *last);  // fewer copies than wanted: the coordinator decides
    return false;
  }
  a.row.detail += "; generation " + std::to_string(last->ref.generation) +
                  " could not be copied within " + std::to_string(contract_.max_drain_s) + " s";
  a.is_dirty = true;
  return true;
}

void Core::State::step_publishing(Attempt& a) {
  if (!a.row.has_outputs) {
    if (a.row.is_disk_gone) {
      // Taken back in the middle: what is not published must be computed again.
      decide_end(a, AttemptEnd::kReclaimed, "cut by a reclaim before its outputs were uploaded");
      set_phase(a, Phase::kDraining);
      return;
    }
    if (may_work(a, Task::kUpload)) begin_upload(a);
    return;
  }
  if (a.row.is_published || a.row.outputs == Digest{}) {
    set_phase(a, Phase::kClosing);
    return;
  }
  if (!is_welcome_ || !is_due(a.publish_sent_at)) return;
  a.publish_sent_at = now_.boot;
  send(wire::PublishOutputs{a.name.job, a.name.epoch, a.row.outputs});
}

}  // namespace rn::agent
