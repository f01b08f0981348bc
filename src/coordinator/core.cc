// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core.h"

#include <algorithm>
#include <charconv>

#include "base/assert.h"
#include "base/log.h"
#include "base/planted.h"
#include "coordinator/core_commands.h"
#include "coordinator/core_contracts.h"
#include "coordinator/core_copies.h"
#include "coordinator/core_evacuation.h"
#include "coordinator/core_fetches.h"
#include "coordinator/core_gang_life.h"
#include "coordinator/core_garbage.h"
#include "coordinator/core_hazard.h"
#include "coordinator/core_home.h"
#include "coordinator/core_job_ends.h"
#include "coordinator/core_job_life.h"
#include "coordinator/core_orders.h"
#include "coordinator/core_owners.h"
#include "coordinator/core_placement.h"
#include "coordinator/core_quota.h"
#include "coordinator/core_registry.h"
#include "coordinator/core_state.h"
#include "coordinator/core_transfers.h"
#include "coordinator/core_usage.h"
#include "coordinator/core_waiting.h"
#include "coordinator/core_why.h"

namespace rn::coordinator {

namespace {

/// What a crash may forget of usage, and of lent time.
constexpr std::chrono::seconds kUsageSavedEvery{10};
constexpr std::chrono::minutes kLentSavedEvery{5};

std::uint64_t number_in(const std::map<std::string, std::string>& meta, const std::string& key) {
  const auto found = meta.find(key);
  std::uint64_t value = 0;
  if (found != meta.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
  return value;
}

void open_generation(State& state, const Snapshot& snapshot) {
  std::uint64_t highest = number_in(snapshot.meta, "generation");
  for (const JobRow& row : snapshot.jobs)
    highest = std::max<std::uint64_t>(highest, row.job.epoch.generation);
  RN_ASSERT(highest < 0xffffffff, "the epochs' generations are used up");
  const bool is_kept = planted("coordinator.keeps_its_generation") && highest > 0;
  state.generation = static_cast<std::uint32_t>(highest) + (is_kept ? 0 : 1);
  state.write(SetMeta{"generation", std::to_string(state.generation)});
  state.next_job_number = std::max<std::uint64_t>(1, number_in(snapshot.meta, "next_job_number"));
  for (const JobRow& row : snapshot.jobs)
    state.next_job_number = std::max(state.next_job_number, row.job.number + 1);
}

void restore_nodes(State& state, Snapshot& snapshot) {
  for (NodeRow& row : snapshot.nodes) {
    NodeEntry& node = state.nodes[row.node];
    if (row.state == NodeState::kSuspect) row.state = NodeState::kUp;
    node.is_expected = row.state == NodeState::kUp;
    node.row = std::move(row);
    node.heard = node.accounted = state.now.boot;
  }
  for (ReclaimRow& row : snapshot.reclaims) {
    NodeEntry* node = state.find_node(row.record.node);
    const bool is_ours =
        row.record.kind == ReclaimKind::kLost && row.record.phase != ReclaimPhase::kReturned;
    if (node != nullptr && is_ours) node->lost_record = row.record.id;
    state.keep(std::move(row));
  }
}

void restore_generations(State& state, Snapshot& snapshot) {
  for (GenerationRow& row : snapshot.generations) {
    const JobId job = row.generation.job;
    if (!row.is_collected) {
      for (const Receipt& receipt : row.receipts) {
        if (NodeEntry* node = state.find_node(receipt.holder)) node->copies_of.insert(job);
      }
      if (NodeEntry* node = state.find_node(row.source)) node->copies_of.insert(job);
    }
    state.generations[job][row.generation.generation] = std::move(row);
  }
}

/// An attempt that was leased may run; one that was only committed may be known to its node or not.
void restore_attempts(State& state, Snapshot& snapshot) {
  for (AttemptRow& row : snapshot.attempts) {
    const AttemptKey key{row.attempt.job, row.attempt.epoch};
    AttemptEntry& attempt = state.attempts[key];
    attempt.row = std::move(row);
    attempt.since = attempt.state_since = state.now.boot;
    const JobEntry* job = state.find_job(key.first);
    NodeEntry* node = state.find_node(attempt.row.attempt.node);
    if (job != nullptr && node != nullptr && !is_terminal(job->row.job.state))
      node->copies_of.insert(key.first);
    if (job != nullptr) {
      std::int64_t& served = state.served_wall_ms[job->row.job.owner];
      served = std::max(served, attempt.row.attempt.leased_wall_ms);
    }
    if (!attempt.is_live() || job == nullptr || node == nullptr) continue;
    attempt.is_granted = attempt.row.attempt.state != AttemptState::kLeased ||
                         job->row.job.state != JobState::kPlacing;
    attempt.was_noticed = attempt.row.attempt.state >= AttemptState::kNoticed;
    if (state.is_current(key.first, key.second)) node->attempts.insert(key);
  }
}

/// A row that says "placing" without a live attempt was never committed.
void requeue_unplaced(State& state) {
  const std::set<JobId> all = state.unfinished;
  for (const JobId& id : all) {
    JobEntry& job = *state.find_job(id);
    // A member is committed by rows with all others, and goes where its gang goes.
    if (state.gang_of(job) != nullptr) continue;
    const AttemptEntry* attempt = state.newest_attempt(job);
    const bool has_attempt = attempt != nullptr && attempt->is_live();
    if (job.row.job.state != JobState::kQueued && !has_attempt)
      queue_again(state, job, "the coordinator was restarted before it was placed");
  }
}

void restore_people(State& state, Snapshot& snapshot) {
  for (Image& image : snapshot.images) state.images[image.name] = std::move(image);
  for (UserRow& row : snapshot.users) state.users[row.user] = std::move(row);
  for (TokenRow& row : snapshot.tokens) {
    state.token_by_secret[row.secret_hash] = row.id;
    state.tokens[row.id] = std::move(row);
  }
  for (const UsageRow& row : snapshot.usage) {
    const sched::DecayedSum used(row.used_gpu_s, row.as_of_wall_ms);
    if (row.user.empty()) {
      state.used_by_lab[row.lab] = used;
      state.lent_by_lab[row.lab] = sched::DecayedSum(row.lent_gpu_s, row.as_of_wall_ms);
    } else {
      state.used[row.user] = {row.lab, used};
    }
  }
}

/// Whose facts a node tells: its own, whatever name it gives.
NodeEntry& told_of(State& state, NodeEntry& sender, const NodeFacts& facts) {
  if (!planted("coordinator.takes_facts_by_name")) return sender;
  const auto named = std::find_if(state.nodes.begin(), state.nodes.end(), [&](const auto& entry) {
    return entry.second.row.facts.hostname == facts.hostname;
  });
  return named == state.nodes.end() ? sender : named->second;
}

void on_message(State& state, const AgentMessage& event) {
  if (const auto* hello = std::get_if<wire::Hello>(&event.message))
    return on_hello(state, event.connection, *hello);
  const auto found = state.connections.find(event.connection);
  if (found == state.connections.end()) return;  // closed meanwhile
  NodeEntry* const node = state.find_node(found->second.node);
  if (!found->second.is_greeted || node == nullptr || node->connection != event.connection) {
    state.act(SendToAgent{
        event.connection,
        wire::Refused{
            .code = "invalid",
            .message = "the first message of a connection must be hello",
            .retry_after_ms = 60'000}});
    state.act(CloseAgent{event.connection, "no hello"});
    state.connections.erase(found);
    return;
  }
  node->heard = std::max(node->heard, state.now.boot);
  std::visit(
      [&](const auto& message) {
        using M = std::decay_t<decltype(message)>;
        if constexpr (std::is_same_v<M, wire::Heartbeat>) {
          on_heartbeat(state, *node, message);
        } else if constexpr (std::is_same_v<M, wire::NodeUpdate>) {
          on_node_update(state, told_of(state, *node, message.facts), message);
        } else if constexpr (std::is_same_v<M, wire::ProbeReply>) {
          on_probe_reply(state, *node, message);
        } else if constexpr (std::is_same_v<M, wire::CommitReply>) {
          on_commit_reply(state, *node, message);
        } else if constexpr (std::is_same_v<M, wire::AttemptEvent>) {
          on_attempt_event(state, *node, message);
        } else if constexpr (std::is_same_v<M, wire::CommitGeneration>) {
          on_commit_generation(state, *node, message);
        } else if constexpr (std::is_same_v<M, wire::GrantRequest>) {
          on_grant_request(state, *node, message);
        } else if constexpr (std::is_same_v<M, wire::Holdings>) {
          on_holdings(state, *node, message);
        } else if constexpr (std::is_same_v<M, wire::Transfers>) {
          on_transfers(state, *node, message);
        } else if constexpr (std::is_same_v<M, wire::LogAppend>) {
          on_log_append(state, *node, message);
        } else if constexpr (std::is_same_v<M, wire::PublishOutputs>) {
          on_publish_outputs(state, *node, message);
        } else if constexpr (std::is_same_v<M, wire::ReclaimReport>) {
          on_reclaim_report(state, *node, message.record);
        } else if constexpr (std::is_same_v<M, wire::TakenBack>) {
          on_taken_back(state, *node, message);
        } else if constexpr (std::is_same_v<M, wire::ContractEdited>) {
          on_contract_edited(state, *node, message);
        } else if constexpr (std::is_same_v<M, wire::Leave>) {
          on_leave(state, *node, message.reason.substr(0, 500));
        } else {
          log::warning("agent.odd_message", {{"node", node->row.node.str()}});
        }
      },
      event.message
  );
}

void on_tick(State& state, const Tick& tick) {
  if (tick.utc_offset_s) set_utc_offset(state, *tick.utc_offset_s);
  look_for_silence(state);
  look_at_orders(state);
  look_at_edits(state);
  look_at_placements(state);
  if (state.now.boot - state.usage_accounted_at >= std::chrono::seconds(1)) {
    account_usage(state);
    look_at_attempts(state);
    look_at_gangs(state);
    close_rollups(state);
    settle_waiting(state);  // who waits for a job hears of its end before that is forgotten
    state.forget_old_jobs();
  }
  if (state.now.boot - state.homes_judged_at >= state.heartbeat()) look_for_homecomers(state);
  look_for_wanted(state);
  look_at_hazards(state);
  look_at_evacuations(state);
  if (state.now.boot - state.usage_saved_at >= kUsageSavedEvery) save_usage(state);
  if (state.now.boot - state.lent_saved_at >= kLentSavedEvery) {
    save_lent(state);
    save_hazard(state);
  }
}

}  // namespace

Core::Core(const Config& config, const SiteKeys& keys, Rng& rng)
    : state_(std::make_unique<State>(config, keys, rng)) {
  state_->transfers.planner = reclaim::RatePlanner(reclaim::LinkGuard{}, config.study.rates);
}

Core::~Core() = default;

Output Core::restore(Snapshot snapshot, Now now) {
  State& state = *state_;
  RN_ASSERT(!state.is_restored, "restore is called once, and first");
  state.is_restored = true;
  state.now = now;
  state.output = Output();
  state.grace_until = now.boot + state.heartbeat() * state.config.lost_after;
  state.usage_accounted_at = state.usage_saved_at = state.lent_saved_at = now.boot;
  state.silence_looked_at = now.boot;
  state.homes_judged_at = now.boot;
  state.told = states_of(snapshot);
  open_generation(state, snapshot);
  restore_people(state, snapshot);
  restore_quotas(state, snapshot);
  restore_nodes(state, snapshot);
  restore_hazard(state, snapshot);
  restore_orders(state, snapshot);
  for (JobRow& row : snapshot.jobs) state.adopt(std::move(row));
  for (GangRow& row : snapshot.gangs) state.adopt(std::move(row));
  restore_generations(state, snapshot);
  restore_attempts(state, snapshot);
  requeue_unplaced(state);
  restore_gangs(state);
  restore_evacuations(state);
  state.forget_old_jobs();
  end_grace_if_all_are_back(state);
  EventRow row;
  row.kind = "coordinator.started";
  row.message = "version " + state.config.version + ", generation " +
                std::to_string(state.generation) + ", " + std::to_string(state.unfinished.size()) +
                " unfinished jobs";
  row.at_wall_ms = state.wall_ms();
  state.write(AppendEvent{std::move(row)});
  return state.take_output();
}

Output Core::handle(const Event& event, Now now) {
  State& state = *state_;
  RN_ASSERT(state.is_restored, "restore comes before the first event");
  // NOTE: a clock that goes backwards would make silence negative; boot clocks do not.
  state.now = now;
  state.output = Output();
  std::visit(
      [&](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, AgentConnected>) {
          on_connected(state, e);
        } else if constexpr (std::is_same_v<E, AgentMessage>) {
          on_message(state, e);
        } else if constexpr (std::is_same_v<E, AgentDisconnected>) {
          on_disconnected(state, e);
        } else if constexpr (std::is_same_v<E, ApiCommand>) {
          on_command(state, e);
        } else if constexpr (std::is_same_v<E, Tick>) {
          on_tick(state, e);
        } else if constexpr (std::is_same_v<E, LogStored>) {
          on_log_stored(state, e);
        } else if constexpr (std::is_same_v<E, OutputsChecked>) {
          on_outputs_checked(state, e);
        } else if constexpr (std::is_same_v<E, StillThere>) {
          on_still_there(state, e);
        } else {
          static_assert(std::is_same_v<E, BlobsSent>);
          on_blobs_sent(state, e);
        }
      },
      event
  );
  settle_gangs(state);
  settle_waiting(state);
  settle_departures(state);
  settle_evacuations(state);
  plan_transfers(state);
  dispatch(state);
  return state.take_output();
}

Instant Core::wake_at(Now now) const {
  const Instant tick = now.boot + milliseconds(state_->config.tick_ms);
  return transfers_wake(*state_, placement_wake(*state_, tick));
}

}  // namespace rn::coordinator
