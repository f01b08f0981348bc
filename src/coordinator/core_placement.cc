// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_placement.h"

#include <algorithm>
#include <optional>

#include "base/assert.h"
#include "base/log.h"
#include "base/planted.h"
#include "coordinator/core_copies.h"
#include "coordinator/core_evacuation.h"
#include "coordinator/core_gang_life.h"
#include "coordinator/core_gang_placement.h"
#include "coordinator/core_holders.h"
#include "coordinator/core_job_ends.h"
#include "coordinator/core_job_life.h"
#include "coordinator/core_quota.h"
#include "coordinator/core_usage.h"
#include "coordinator/core_why.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kClassesPerPass = 64;
constexpr std::size_t kTriedPerPass = 256;
constexpr std::size_t kGangsPerPass = 16;  // each is judged by all nodes
/// A commit waits for its row on the disk, longest where many jobs are placed at once. Who gets
/// none is told so at once, so that a long hold keeps nobody out.
constexpr milliseconds kHoldMin{1000};
constexpr milliseconds kHoldMax{10'000};
constexpr milliseconds kAnswerMin{20};
constexpr std::chrono::seconds kRefusedFor{5};
constexpr std::chrono::seconds kSilentFor{10};
constexpr std::chrono::seconds kPassEvery{1};

milliseconds to_milliseconds(nanoseconds value) {
  return std::chrono::ceil<milliseconds>(value);
}

/// How long the others may take once somebody has offered.
nanoseconds answer_time(const State& state) {
  const nanoseconds wait = std::max<nanoseconds>(kAnswerMin, state.probe_latency.p99() * 3 / 2);
  return std::min<nanoseconds>(wait, milliseconds(state.config.probe_timeout_ms));
}

milliseconds hold_time(const State& state) {
  const nanoseconds trip = state.probe_latency.p99() + state.commit_latency.p99();
  return std::clamp(to_milliseconds(answer_time(state) + 2 * trip), kHoldMin, kHoldMax);
}

/// Jobs with equal keys are refused alike in one pass.
const std::string& demand_key(JobEntry& job) {
  if (!job.demand_key.empty()) return job.demand_key;
  const Job& j = job.row.job;
  const Resources& r = j.spec.resources;
  std::string key;
  for (const std::uint64_t number :
       {std::uint64_t{r.gpus},
        r.gpu_memory_mib,
        std::uint64_t{r.cpu_milli},
        std::uint64_t{r.cpu_milli_min},
        r.memory_mib,
        r.disk_mib})
    key += std::to_string(number) + '|';
  key += r.compute_capability_min + '|' + j.owner.str() + '|' + j.lab.str() + '|' + j.image_digest;
  for (const std::string& lab : j.spec.only_labs) key += '|' + lab;
  for (const std::string& name : j.spec.data) key += '/' + name;
  return job.demand_key = std::move(key);
}

void ask(State& state, JobEntry& job, NodeEntry& node, Asked asked) {
  send_probe(state, job, node, asked, hold_time(state));
  job.placement->asked.push_back(std::move(asked));
}

/// What one pass knows of the nodes, and of whom it tried in vain.
struct PassView {
  std::vector<sched::Candidate> open;  ///< as most jobs see them
  /// With what is kept for a gang; made when it is used.
  std::optional<std::vector<sched::Candidate>> all;
  std::map<std::string, std::string> hopeless;  ///< class of jobs: what it waits for
  std::map<std::string, std::string> hopeless_of_all;
};

/// As it is now, with what was asked of it in this pass.
void see_again(const State& state, sched::Candidate& c, bool may_have_kept) {
  c = candidate_of(state, state.nodes.at(c.node));
  if (!may_have_kept) count_kept(state, c);
}

/// The best nodes that may be asked now; of a job that was sent somewhere only that node, which is
/// found as it would be without it. Its indices are into `candidates`.
std::vector<sched::Ranked> askable(
    State& state,
    const JobEntry& job,
    const sched::Demand& demand,
    std::vector<sched::Candidate>& candidates,
    const QuotaBook& quotas,
    bool may_have_kept
) {
  const JobId& id = job.row.job.id;
  for (sched::Candidate& c : candidates) {
    if (c.node == demand.chosen) c = candidate_of(state, state.nodes.at(c.node), {id});
  }
  std::vector<sched::Ranked> best;
  for (sched::Ranked& r : sched::rank(demand, candidates)) {
    const NodeId& node = candidates[r.index].node;
    if (!demand.chosen.empty() && node != demand.chosen) continue;
    if (!quotas.barred(job, state.nodes.at(node).row).empty()) continue;
    if (best.size() < kProbed && is_askable(state, job, node)) best.push_back(r);
  }
  if (!demand.chosen.empty() && best.empty()) {
    for (sched::Candidate& c : candidates) {
      if (c.node != demand.chosen) continue;
      const std::string reason = sched::judge(demand, c).reason;
      note_turned_down(state, id, c.node, reason.empty() ? "refused it a moment ago" : reason);
      see_again(state, c, may_have_kept);
    }
  }
  return best;
}

/// Asks the best nodes. False if none fits.
bool place(
    State& state,
    JobEntry& job,
    std::vector<sched::Candidate>& candidates,
    const QuotaBook& quotas,
    bool may_have_kept
) {
  sched::Demand demand = demand_of(job);
  demand.chosen = kept_destination(state, job.row.job.id);
  if (demand.chosen.empty() && state.config.study.given_destination)
    demand.chosen = state.config.study.given_destination(job.row.job.id);
  const std::vector<sched::Ranked> best =
      askable(state, job, demand, candidates, quotas, may_have_kept);
  if (best.empty()) return false;
  job.placement.emplace();
  job.placement->choose_at = state.now.boot + milliseconds(state.config.probe_timeout_ms);
  job.placement->give_up_at = job.placement->choose_at;
  job.placement->is_degraded = best.front().survival < kVolatileSurvival;
  std::string names;
  for (const sched::Ranked& r : best) {
    sched::Candidate& c = candidates[r.index];
    names += (names.empty() ? "" : " and ") + state.name_of(c.node);
    Asked asked;
    asked.score = r.score;
    asked.cpu_milli = r.cpu_milli;
    asked.because = sched::because(demand, c, r);
    ask(state, job, *state.find_node(c.node), std::move(asked));
    see_again(state, c, may_have_kept);
  }
  state.move_unsaved(job, JobState::kPlacing, "asks " + names);
  return true;
}

/// Those that the job was asked of, as the other view has them.
void note_asked(
    const State& state,
    const JobEntry& job,
    std::vector<sched::Candidate>& candidates,
    bool may_have_kept
) {
  for (sched::Candidate& c : candidates) {
    const auto& asked = job.placement->asked;
    const bool is_asked = std::any_of(asked.begin(), asked.end(), [&](const Asked& one) {
      return one.node == c.node;
    });
    if (is_asked) see_again(state, c, may_have_kept);
  }
}

/// The same by what this pass knows. One that lost its node may have what is kept for a gang that
/// is gathered: it takes from all.
bool place_in_pass(
    State& state, JobEntry& job, PassView& view, const QuotaBook& quotas, bool takes_kept
) {
  if (takes_kept && !view.all) view.all = candidates_of(state, true);
  if (!place(state, job, takes_kept ? *view.all : view.open, quotas, takes_kept)) return false;
  if (takes_kept) {
    note_asked(state, job, view.open, false);
  } else if (view.all) {
    note_asked(state, job, *view.all, true);
  }
  return true;
}

/// Of the gangs in the queue those that one pass tries: each is judged by all nodes. Where there
/// are more, the next pass goes on where this one has stopped.
class GangTurns {
 public:
  GangTurns(const State& state, const std::vector<JobId>& order) {
    const auto next = state.gangs.find(state.next_gang);
    is_behind_ =
        next != state.gangs.end() && !next->second.row.members.empty() &&
        std::find(order.begin(), order.end(), next->second.row.members.front()) != order.end();
  }

  void take(State& state, GangEntry& gang, PassView& view, QuotaBook& quotas) {
    if (is_behind_ && gang.row.id == state.next_gang) is_behind_ = false;
    // The last pass has tried it. What is kept for one must not lie idle.
    if (is_behind_ && !is_gathered(state, gang)) return;
    if (judged_ >= kGangsPerPass) {
      if (next_.empty()) next_ = gang.row.id;
      return;
    }
    if (!place_gang(state, gang, view.open, quotas)) return;
    ++judged_;
    if (gang.round) view.all.reset();  // it has asked for places
  }

  /// After the last one.
  void end(State& state) { state.next_gang = next_; }

 private:
  bool is_behind_ = false;
  std::size_t judged_ = 0;
  GangId next_;
};

void back_to_queue(State& state, JobEntry& job, std::string reason) {
  for (const Asked& asked : job.placement->asked) {
    if (asked.phase == Asked::Phase::kOver) continue;
    if (asked.phase == Asked::Phase::kOffered) cancel_hold(state, asked);
    close_probe(state, asked);
  }
  job.placement.reset();
  state.move_unsaved(job, JobState::kQueued, std::move(reason));
}

/// The attempt before this one can no longer have effects.
void burn_predecessor(State& state, JobEntry& job) {
  AttemptEntry* before = state.newest_attempt(job);
  if (before == nullptr || !before->is_live()) return;
  const bool was_draining = before->row.attempt.state == AttemptState::kDraining;
  before->row.is_tail_open = was_draining;
  close_attempt(
      state,
      *before,
      was_draining ? AttemptEnd::kReclaimed : AttemptEnd::kLost,
      "a successor is placed: epoch " + to_string(before->row.attempt.epoch) + " is burnt"
  );
}

Blob sealed_key_for(State& state, const JobEntry& job, const NodeEntry& node) {
  const BlobView id = as_bytes(job.row.job.id.str());
  const auto key = crypto::unseal(state.keys.wrapping_key, job.row.wrapped_key, id);
  RN_ASSERT(key.has_value(), "a job's key does not open with the site's key");
  return crypto::seal_for(node.row.box_key, *key, id, state.rng);
}

wire::Commit commit_for(
    State& state, JobEntry& job, AttemptEntry& attempt, const NodeEntry& node, const Asked& asked
) {
  const Job& j = job.row.job;
  wire::Commit commit;
  commit.hold = asked.hold;
  commit.job = j.id;
  commit.epoch = j.epoch;
  commit.lease_ms = state.config.lease_ms;
  commit.spec = j.spec;
  commit.spec.after.clear();  // has happened; other jobs are no node's business
  commit.user = j.owner;
  commit.lab = j.lab;
  commit.job_number = j.number;
  commit.image_digest = j.image_digest;
  for (const auto& [name, image] : state.images) {
    if (image.digest != j.image_digest) continue;
    commit.image_bytes = image.bytes;
    commit.image_blobs = image.blobs;
    commit.image_layers = image.layers;
  }
  commit.image_peers = image_grants(state, job, j.epoch, node.row.node);
  commit.sealed_job_key = sealed_key_for(state, job, node);
  const ResumePoint point = resume_point(job);
  if (!planted("coordinator.forgets_resume_points")) {
    commit.resume = point.resume;
    // What all go on from is one set: no member takes an older one by itself.
    if (!j.gang) commit.resume_previous = point.previous;
  }
  commit.resume_from = resume_grants(state, job, j.epoch, node.row.node);
  commit.gang = j.gang;
  if (j.gang) commit.shares = shares_for(state, job, *state.find_node(node.row.node));
  refresh_plan(state, job, attempt);
  commit.plan = attempt.plan;
  commit.restart_count = j.restarts + j.displacements;
  return commit;
}

void say_degraded(State& state, JobEntry& job, bool is_degraded, const NodeEntry& node) {
  if (is_degraded && !job.row.job.is_degraded)
    state.note(
        job,
        "job.degraded",
        "only nodes that leave often are free (" + state.name_of(node.row.node) +
            " stays an hour with " + decimal(sched::survival(node.outlook, 3600), 2) +
            "): one copy more, saves allowed twice as often",
        {{"departures_per_day", decimal(node.departures_per_day, 2)}}
    );
  job.row.job.is_degraded = is_degraded;
}

void commit(State& state, JobEntry& job, const Asked& chosen) {
  for (const Asked& asked : job.placement->asked) {
    if (asked.probe != chosen.probe && asked.phase == Asked::Phase::kOffered)
      cancel_hold(state, asked);
    close_probe(state, asked);
  }
  const LeaseEpoch last = job.row.job.epoch;
  const std::uint32_t step = planted("coordinator.reuses_epochs") ? 0U : 1U;
  issue(state, job, chosen, {state.generation, last.attempt + step}, job.placement->is_degraded);
  job.placement.reset();
}

const Asked* best_offer(const State& state, const Placement& placement) {
  const Asked* best = nullptr;
  for (const Asked& asked : placement.asked) {
    if (asked.phase != Asked::Phase::kOffered || asked.hold_until <= state.now.boot) continue;
    if (best == nullptr || asked.score > best->score) best = &asked;
  }
  return best;
}

bool is_anybody_waited_for(const Placement& placement) {
  return std::any_of(placement.asked.begin(), placement.asked.end(), [](const Asked& asked) {
    return asked.phase == Asked::Phase::kWaiting;
  });
}

/// Commits the best offer, or puts the job back.
void settle(State& state, JobEntry& job) {
  for (const Asked& asked : job.placement->asked) {
    if (asked.phase != Asked::Phase::kWaiting) continue;
    ++state.metrics.probes_unanswered;
    job.refusals[asked.node] =
        Refusal{.reason = "did not answer", .until = state.now.boot + nanoseconds(kSilentFor)};
    note_turned_down(state, job.row.job.id, asked.node, "did not answer");
  }
  if (const Asked* best = best_offer(state, *job.placement)) {
    const Asked chosen = *best;
    return commit(state, job, chosen);
  }
  back_to_queue(state, job, "nobody that was asked could take it");
}

bool is_ready(const State& state, const JobEntry& job) {
  return job.row.not_before_wall_ms <= state.wall_ms() ||
         // A wall clock that jumped back must not hold a job for longer than the longest backoff.
         job.row.not_before_wall_ms > state.wall_ms() + state.config.backoff_max_ms;
}

/// What it waits for, whatever places there are. The reason is what people see in lists: it is made
/// anew, and goes to the disk with the row.
bool waits_anyhow(State& state, JobEntry& job, const QuotaBook& quotas) {
  if (!is_image_listed(state, job)) {
    job.row.job.reason = "waits: its image was taken off the allow list after the submit";
    return true;
  }
  if (!away_words(state, job).empty()) {
    hold_back(state, job);
    return true;
  }
  job.is_away_told = false;
  std::string held = quotas.held_back(job);
  if (held.empty()) return false;
  job.row.job.reason = "waits: " + std::move(held);
  return true;
}

void repeat_commit(State& state, AttemptEntry& attempt) {
  NodeEntry* node = state.find_node(attempt.row.attempt.node);
  if (node == nullptr || node->connection == 0) return;
  if (state.now.boot - attempt.commit_sent < milliseconds(state.config.commit_timeout_ms)) return;
  attempt.commit_sent = state.now.boot;
  ++state.metrics.commits_sent;
  state.send(*node, *attempt.commit);
}

Asked* find_asked(JobEntry* job, const ProbeId& probe) {
  if (job == nullptr || !job->placement) return nullptr;
  for (Asked& asked : job->placement->asked) {
    if (asked.probe == probe) return &asked;
  }
  return nullptr;
}

/// Each lost commit costs an epoch and its rows: the pauses double, from half a second to a minute.
nanoseconds lost_pause(JobEntry& job) {
  const nanoseconds pause = milliseconds(500) * (1 << std::min(job.commits_lost, 7u));
  ++job.commits_lost;
  return std::min<nanoseconds>(pause, std::chrono::minutes(1));
}

/// The job is asked for there anew. A node has one hold for each job, and offers it again: what a
/// late answer tells of is what the next answer will offer, or has.
bool is_hold_wanted(State& state, const NodeEntry& node, const wire::ProbeReply& reply) {
  const JobEntry* job = state.find_job(reply.job);
  if (job != nullptr && job->row.job.gang) return is_seat_wanted(state, *job, node, reply.hold);
  if (job == nullptr || !job->placement) return false;
  const auto& asked = job->placement->asked;
  return std::any_of(asked.begin(), asked.end(), [&](const Asked& one) {
    return one.node == node.row.node &&
           (one.phase == Asked::Phase::kWaiting || one.hold == reply.hold);
  });
}

}  // namespace

bool is_askable(const State& state, const JobEntry& job, const NodeId& node) {
  const auto found = job.refusals.find(node);
  if (found == job.refusals.end()) return true;
  return !found->second.is_permanent && state.now.boot >= found->second.until;
}

void send_probe(
    State& state, const JobEntry& job, NodeEntry& node, Asked& asked, milliseconds hold
) {
  const Job& j = job.row.job;
  asked.probe = ProbeId("p-" + state.rng.hex(8));
  asked.node = node.row.node;
  asked.connection = node.connection;
  asked.asked_at = state.now.boot;
  node.probes[asked.probe] = j.spec.resources;
  state.probes[asked.probe] = j.id;
  ++state.metrics.probes_sent;
  state.send(
      node,
      wire::Probe{
          .probe = asked.probe,
          .job = j.id,
          .user = j.owner,
          .lab = j.lab,
          .resources = j.spec.resources,
          .image_digest = j.image_digest,
          .priority = j.spec.priority,
          .notice_s = j.spec.notice_s,
          .hold_ms = static_cast<std::uint32_t>(hold.count()),
          .data = j.spec.data,
          .gang = j.gang ? j.gang->gang : GangId()}
  );
}

void close_probe(State& state, const Asked& asked) {
  state.probes.erase(asked.probe);
  if (NodeEntry* node = state.find_node(asked.node)) node->probes.erase(asked.probe);
}

void cancel_hold(State& state, const Asked& asked) {
  if (asked.hold.empty()) return;
  state.act(SendToAgent{asked.connection, wire::CancelHold{asked.hold}});
}

void take_offer(Asked& asked, const wire::ProbeReply& reply) {
  asked.phase = Asked::Phase::kOffered;
  asked.hold = reply.hold;
  // The hold began when the node answered: half a round trip ago at the most.
  asked.hold_until = asked.asked_at + milliseconds(reply.ttl_ms);
  if (reply.cpu_milli > 0 && asked.cpu_milli > 0 && reply.cpu_milli < asked.cpu_milli)
    asked.score *= static_cast<double>(reply.cpu_milli) / asked.cpu_milli;
  if (reply.cpu_milli > 0) asked.cpu_milli = reply.cpu_milli;
}

bool is_image_listed(const State& state, const JobEntry& job) {
  return std::any_of(state.images.begin(), state.images.end(), [&](const auto& image) {
    return image.second.digest == job.row.job.image_digest;
  });
}

void issue(State& state, JobEntry& job, const Asked& chosen, LeaseEpoch epoch, bool is_degraded) {
  NodeEntry& node = *state.find_node(chosen.node);
  burn_predecessor(state, job);
  Job& j = job.row.job;
  j.epoch = epoch;
  j.node = node.row.node;
  j.idle_since_wall_ms = 0;
  j.outputs = Digest{};  // an older epoch's are void with it
  say_degraded(state, job, is_degraded, node);
  const std::uint32_t resumed = resume_point(job).resume.generation;
  AttemptEntry& attempt = state.attempts[{j.id, j.epoch}];
  attempt = AttemptEntry{};
  Attempt& a = attempt.row.attempt;
  a.job = j.id;
  a.epoch = j.epoch;
  a.node = node.row.node;
  a.leased_wall_ms = state.served_wall_ms[j.owner] = state.wall_ms();
  a.resumed_generation = resumed;
  a.placed_because = chosen.because;
  attempt.row.granted_cpu_milli = chosen.cpu_milli;
  attempt.since = attempt.state_since = attempt.commit_sent = state.now.boot;
  node.attempts.insert({j.id, j.epoch});
  node.copies_of.insert(j.id);  // its own store keeps what the attempt saves, durable or not
  attempt.commit = commit_for(state, job, attempt, node, chosen);
  state.save(attempt);
  state.move(job, JobState::kPlacing, "waits for the lease of " + state.name_of(node.row.node));
  state.note(
      job,
      "job.placed",
      "goes to " + state.name_of(node.row.node) + ": " + a.placed_because,
      {{"resume_generation", std::to_string(resumed)}}
  );
  ++state.metrics.commits_sent;
  state.send(node, *attempt.commit);
}

std::vector<JobId> queue_order(const State& state, const JobEntry* also) {
  std::vector<sched::QueuedJob> waiting;
  waiting.reserve(state.queued.size() + 1);
  const auto add = [&waiting](const JobRow& row) {
    waiting.push_back(
        {.id = row.job.id,
         .owner = row.job.owner,
         .priority = row.job.spec.priority,
         .gpus = sched::gpu_equivalents(row.job.spec.resources),
         .queued_wall_ms = row.queued_wall_ms,
         .is_displaced = row.is_displaced}
    );
  };
  // A gang has one place, by its first member's name.
  for (const GangEntry* gang : waiting_gangs(state)) {
    if (gang->round) continue;
    add(state.jobs.at(gang->row.members.front()).row);
    sched::QueuedJob& all = waiting.back();
    all.gpus *= gang->row.size;
    all.queued_wall_ms = gang->row.queued_wall_ms;
    all.is_displaced = gang->row.is_displaced;
  }
  for (const JobId& id : state.queued) add(state.jobs.at(id).row);
  if (also != nullptr) add(also->row);
  std::vector<JobId> result;
  result.reserve(waiting.size());
  for (const std::size_t i : sched::order(waiting, standings(state), state.config.strategy))
    result.push_back(waiting[i].id);
  return result;
}

void dispatch(State& state) {
  const bool is_due = state.now.boot - state.dispatched_at >= nanoseconds(kPassEvery);
  if (state.is_in_grace() || !(state.is_dispatch_wanted || is_due)) return;
  if (state.queued.empty() && waiting_gangs(state).empty() && !state.gathering) return;
  state.is_dispatch_wanted = false;
  state.dispatched_at = state.now.boot;
  gather_gangs(state);
  PassView view{.open = candidates_of(state)};
  std::size_t tried = 0;
  std::size_t ahead = 0;
  const std::vector<JobId> order = queue_order(state);
  QuotaBook quotas(state);
  GangTurns gangs(state, order);
  for (const JobId& id : order) {
    JobEntry& job = *state.find_job(id);
    ++ahead;
    if (GangEntry* gang = state.gang_of(job)) {
      gangs.take(state, *gang, view, quotas);
      continue;
    }
    if (!is_ready(state, job) || waits_anyhow(state, job, quotas)) continue;
    const std::string& key = demand_key(job);
    // What is kept for a gang is no lack of those who may have it, and nothing that others have.
    const bool takes_kept = job.row.is_displaced && state.gathering.has_value();
    auto& hopeless = takes_kept ? view.hopeless_of_all : view.hopeless;
    // A place that is kept for it says nothing of others, nor what they lack of it.
    const bool is_sent = !kept_destination(state, id).empty();
    if (const auto known = hopeless.find(key); known != hopeless.end() && !is_sent) {
      job.row.job.reason = known->second;
      continue;
    }
    if (state.placing.size() >= state.config.max_placements_in_flight || tried >= kTriedPerPass ||
        hopeless.size() >= kClassesPerPass) {
      job.row.job.reason = "waits behind " + std::to_string(ahead - 1) + " others";
      continue;
    }
    ++tried;
    if (place_in_pass(state, job, view, quotas, takes_kept)) {
      quotas.take(job);
      continue;
    }
    job.row.job.reason = waits_for(state, job, view.open, quotas);
    // Only what nodes are like in general says something about the next job of the class.
    if (job.refusals.empty() && !is_sent) hopeless[key] = job.row.job.reason;
  }
  gangs.end(state);
}

void look_at_placements(State& state) {
  look_at_gang_rounds(state);
  const std::set<JobId> placing = state.placing;
  for (const JobId& id : placing) {
    JobEntry& job = *state.find_job(id);
    if (job.placement) {
      if (state.now.boot >= job.placement->choose_at) settle(state, job);
      continue;
    }
    AttemptEntry* attempt = state.newest_attempt(job);
    if (attempt != nullptr && attempt->commit && job.row.stop_end == AttemptEnd::kNone)
      repeat_commit(state, *attempt);
  }
}

void on_probe_reply(State& state, NodeEntry& node, const wire::ProbeReply& reply) {
  const auto found = state.probes.find(reply.probe);
  JobEntry* job = found == state.probes.end() ? nullptr : state.find_job(found->second);
  if (job != nullptr && job->row.job.gang) return on_seat_reply(state, *job, node, reply);
  Asked* asked = find_asked(job, reply.probe);
  if (asked == nullptr || asked->node != node.row.node) {
    // Late, or never asked: the hold must not lie idle. A committed hold is the node's to know.
    const bool is_committed =
        std::any_of(node.attempts.begin(), node.attempts.end(), [&](const AttemptKey& key) {
          const AttemptEntry* attempt = state.find_attempt(key.first, key.second);
          return attempt != nullptr && attempt->commit && attempt->commit->hold == reply.hold;
        });
    const bool is_idle =
        !reply.hold.empty() && !is_committed && !is_hold_wanted(state, node, reply);
    if (is_idle) state.send(node, wire::CancelHold{reply.hold});
    return;
  }
  if (asked->phase != Asked::Phase::kWaiting) {
    // Twice: the same hold again is nothing new, another one is one too many.
    if (!reply.hold.empty() && reply.hold != asked->hold)
      state.send(node, wire::CancelHold{reply.hold});
    return;
  }
  state.probe_latency.add(state.now.boot - asked->asked_at);
  if (reply.hold.empty()) {
    ++state.metrics.probes_refused;
    asked->phase = Asked::Phase::kOver;
    close_probe(state, *asked);
    job->refusals[node.row.node] = Refusal{
        .reason = reply.reason.substr(0, 200),
        .is_permanent = reply.is_permanent,
        .until = state.now.boot + nanoseconds(kRefusedFor)};
    note_turned_down(state, job->row.job.id, node.row.node, reply.reason);
  } else {
    take_offer(*asked, reply);
    job->placement->choose_at =
        std::min(job->placement->choose_at, state.now.boot + answer_time(state));
  }
  if (!is_anybody_waited_for(*job->placement)) settle(state, *job);
}

void on_commit_reply(State& state, NodeEntry& node, const wire::CommitReply& reply) {
  AttemptEntry* attempt = state.find_attempt(reply.job, reply.epoch);
  JobEntry* job = state.find_job(reply.job);
  if (attempt == nullptr || job == nullptr || attempt->row.attempt.node != node.row.node) return;
  if (!attempt->is_live() || !state.is_current(reply.job, reply.epoch)) {
    if (reply.is_granted) say_fenced(state, node, *attempt, "a lease");
    return;
  }
  if (attempt->is_granted) return;  // twice
  // Also of one that came too late: else only those that are fast enough would be learnt from.
  state.commit_latency.add(state.now.boot - attempt->commit_sent);
  if (reply.is_granted) return grant(state, *job, *attempt);
  ++state.metrics.commits_lost;
  close_attempt(state, *attempt, AttemptEnd::kRefused, "commit lost: " + reply.reason);
  if (job->row.job.gang) return member_not_granted(state, *job, node.row.node, reply.reason);
  if (job->row.stop_end != AttemptEnd::kNone) return finish_stopped(state, *job);
  job->refusals[node.row.node] =
      Refusal{.reason = reply.reason.substr(0, 200), .until = state.now.boot + lost_pause(*job)};
  note_turned_down(state, job->row.job.id, node.row.node, reply.reason);
  queue_again(state, *job, state.name_of(node.row.node) + " no longer held the place");
}

void cancel_placement(State& state, JobEntry& job) {
  if (job.row.job.gang) cancel_gang_round(state, job);
  if (job.placement) back_to_queue(state, job, "placement cancelled");
}

void forget_probes(State& state, NodeEntry& node) {
  const std::map<ProbeId, Resources> probes = node.probes;
  for (const auto& [probe, resources] : probes) {
    const auto found = state.probes.find(probe);
    JobEntry* job = found == state.probes.end() ? nullptr : state.find_job(found->second);
    if (job != nullptr && job->row.job.gang) {
      on_seat_gone(state, *job, node, probe);
      continue;
    }
    Asked* asked = find_asked(job, probe);
    state.probes.erase(probe);
    node.probes.erase(probe);
    if (asked == nullptr) continue;
    asked->phase = Asked::Phase::kOver;
    job->refusals[node.row.node] = Refusal{
        .reason = "vanished when asked", .until = state.now.boot + nanoseconds(kRefusedFor)};
    note_turned_down(state, job->row.job.id, node.row.node, "vanished when asked");
    if (!is_anybody_waited_for(*job->placement)) settle(state, *job);
  }
}

void forget_refusals(State& state, const NodeId& node) {
  // Jobs that run have none: a lease clears them.
  for (const auto* waiting : {&state.queued, &state.placing}) {
    for (const JobId& id : *waiting) state.jobs.at(id).refusals.erase(node);
  }
  for (const GangEntry* gang : waiting_gangs(state))
    state.jobs.at(gang->row.members.front()).refusals.erase(node);
}

Instant placement_wake(const State& state, Instant otherwise) {
  Instant result = otherwise;
  for (const JobId& id : state.placing) {
    const JobEntry& job = state.jobs.at(id);
    if (job.placement) result = std::min(result, job.placement->choose_at);
  }
  return gang_rounds_wake(state, result);
}

}  // namespace rn::coordinator
