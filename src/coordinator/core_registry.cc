// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_registry.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "coordinator/core_contracts.h"
#include "coordinator/core_copies.h"
#include "coordinator/core_evacuation.h"
#include "coordinator/core_garbage.h"
#include "coordinator/core_hazard.h"
#include "coordinator/core_holders.h"
#include "coordinator/core_idle.h"
#include "coordinator/core_job_life.h"
#include "coordinator/core_orders.h"
#include "coordinator/core_owners.h"
#include "coordinator/core_placement.h"
#include "coordinator/core_usage.h"
#include "model/data_sets.h"
#include "model/uplink_rate.h"

namespace rn::coordinator {

namespace {

constexpr std::uint32_t kGenerationJump = 100'000;  // a lie must not use epochs up (I15)
constexpr std::size_t kListed = 4096;
constexpr std::size_t kEngineRefusalBytes = 512;
// The third meeting with a living connection within four times lost_after is a second machine's.
constexpr std::size_t kTwinMeetings = 3;
constexpr int kTwinWindow = 4;

struct Rejection {
  ErrorCode code = ErrorCode::kDenied;
  std::string message;
  std::string hint;
  std::uint32_t retry_after_ms = 0;
  const char* event = "node.refused";  ///< nullptr: said already
};

void reject(State& state, ConnectionId id, const Rejection& why) {
  ++state.metrics.connections_refused;
  state.act(SendToAgent{
      id,
      wire::Refused{
          .code = std::string(to_string(why.code)),
          .message = why.message,
          .hint = why.hint,
          .retry_after_ms = why.retry_after_ms}});
  state.act(CloseAgent{id, why.message});
  const NodeId node = state.connections.at(id).node;
  const NodeEntry* known = state.find_node(node);
  if (known != nullptr && why.event != nullptr) {
    state.note(
        *known,
        why.event,
        why.message,
        {{"hint", why.hint}, {"remote", state.connections.at(id).remote}}
    );
  } else {
    log::warning("node.refused", {{"node", node.str()}, {"what", why.message}});
  }
  state.connections.erase(id);
}

std::optional<Rejection> check_protocol(const State& state, const wire::Hello& hello) {
  const std::string range =
      std::to_string(wire::kOldestProtocol) + " to " + std::to_string(wire::kProtocol);
  if (hello.protocol < wire::kOldestProtocol)
    return Rejection{
        ErrorCode::kUnsupported,
        "agent " + hello.version + " speaks protocol " + std::to_string(hello.protocol) +
            ", this coordinator " + range,
        "upgrade reclaim-agent on this machine to version " + state.config.version,
        3'600'000};
  if (hello.oldest_protocol > wire::kProtocol)
    return Rejection{
        ErrorCode::kUnsupported,
        "agent " + hello.version + " needs protocol " + std::to_string(hello.oldest_protocol) +
            " or newer, this coordinator speaks " + range,
        "upgrade reclaim-coordinator (it is version " + state.config.version +
            "), or install that version of reclaim-agent",
        3'600'000};
  return std::nullopt;
}

std::optional<Rejection> check_identity(
    const State& state,
    const Connection& connection,
    const wire::Hello& hello,
    const NodeEntry* node
) {
  const std::string rejoin =
      "run `reclaim-agent join URL --token T --again` with a new token on that machine";
  if (hello.node != connection.node)
    return Rejection{
        ErrorCode::kDenied,
        "the certificate is for " + connection.node.str() + ", the agent says " + hello.node.str(),
        rejoin};
  if (node == nullptr)
    return Rejection{
        ErrorCode::kDenied, "no node " + hello.node.str() + " has joined this site", rejoin};
  if (node->row.is_revoked)
    return Rejection{
        ErrorCode::kDenied, "the identity of " + hello.node.str() + " was taken back", rejoin};
  if (node->row.public_key != Digest{} && node->row.public_key != connection.public_key)
    return Rejection{
        ErrorCode::kDenied, "the certificate's key is not the one that joined", rejoin};
  if (!node->row.machine_id.empty() && node->row.machine_id != hello.machine_id)
    return Rejection{
        ErrorCode::kConflict,
        "this identity belongs to another machine (" + node->row.facts.hostname +
            "): it was copied with a disk or an image",
        "on the copy, delete the agent's state folder and run `reclaim-agent join` with a new "
        "token",
        0,
        "node.clone_refused"};
  if (hello.facts.gpus.size() > kMaxGpus || hello.facts.images.size() > kListed ||
      hello.facts.data_sets.size() > kMaxDataSetsOfNode || hello.attempts.size() > kListed ||
      hello.reclaims.size() > kListed)
    return Rejection{
        ErrorCode::kExhausted,
        "the hello lists more than 64 GPUs, 256 data sets or 4096 other things",
        rejoin};
  if (hello.highest_generation > state.generation &&
      hello.highest_generation - state.generation > kGenerationJump)
    return Rejection{
        ErrorCode::kInvalid,
        "the agent claims epoch generation " + std::to_string(hello.highest_generation) +
            ", this database is at " + std::to_string(state.generation),
        "if the database was restored from a very old backup, start the coordinator with a higher "
        "generation"};
  return std::nullopt;
}

/// A machine that was copied while it ran (a snapshot of its memory): both have one identity and
/// one boot id, and each would throw the other out for ever. One machine has one connection, and
/// when it makes another one the old one is silent; so who meets a living one again and again
/// within a short time is a second machine. The one that is connected stays.
std::optional<Rejection> find_twin(State& state, NodeEntry& node, const std::string& remote) {
  const nanoseconds living = state.heartbeat() * 3 / 2;
  if (state.now.boot - node.heard >= living) return std::nullopt;
  std::erase_if(node.contested, [&](Instant at) {
    return state.now.boot - at > kTwinWindow * state.lost_after();
  });
  node.contested.push_back(state.now.boot);
  if (node.contested.size() < kTwinMeetings) return std::nullopt;
  const auto connected = state.connections.find(node.connection);
  // Should it be one machine on a bad line after all, the old connection is silent by then, and the
  // node not yet lost.
  const auto wait = std::chrono::duration_cast<milliseconds>(living);
  const bool is_first = node.contested.size() == kTwinMeetings;
  return Rejection{
      ErrorCode::kConflict,
      "two machines use this identity at the same time: one at " +
          (connected == state.connections.end() ? "?" : connected->second.remote) +
          " is connected, one at " + remote + " is refused",
      "one is a copy that was made of the other while it ran: on the copy, delete the agent's "
      "state "
      "folder, then run `reclaim-agent join` with a new token",
      static_cast<std::uint32_t>(wait.count()),
      is_first ? "node.clone_refused" : nullptr};
}

/// Closes the older connection or refuses the newer one.
std::optional<Rejection> settle_second(
    State& state, NodeEntry& node, const wire::Hello& hello, const std::string& remote
) {
  if (node.connection == 0) return std::nullopt;
  const nanoseconds silent = state.now.boot - node.heard;
  if (!node.row.boot_id.empty() && node.row.boot_id != hello.boot_id &&
      silent < state.lost_after()) {
    const auto wait = std::chrono::duration_cast<milliseconds>(state.lost_after());
    return Rejection{
        ErrorCode::kConflict,
        "another machine is connected with this identity, and was heard " +
            short_duration(std::chrono::duration_cast<milliseconds>(silent).count()) + " ago",
        "if the machine has just been restarted, wait; if it is a copy, join it by its own",
        static_cast<std::uint32_t>(wait.count()),
        "node.clone_refused"};
  }
  if (auto twin = find_twin(state, node, remote)) return twin;
  state.act(CloseAgent{node.connection, "superseded by a newer connection of the same machine"});
  state.connections.erase(node.connection);
  node.connection = 0;
  return std::nullopt;
}

/// I4: every epoch that we issue from now on is above everything that this node has seen. A
/// generation grows durably before anybody hears of it, so a node that knows a higher one, or knows
/// ours before we told it, learned it from a later life of this site: the database was put back to
/// an older one.
void rise_above(State& state, const NodeEntry& node, std::uint32_t highest) {
  const bool is_told_by_us = node.was_greeted && highest == state.generation;
  if (highest < state.generation || is_told_by_us) return;
  const std::uint32_t before = state.generation;
  state.generation = highest + 1;
  state.write(SetMeta{"generation", std::to_string(state.generation)});
  const std::string what =
      "this database is older than what " + state.name_of(node.row.node) +
      " has seen (epoch generation " + std::to_string(highest) + ", here " +
      std::to_string(before) +
      "): it was restored from a backup. New epochs begin above it; what was submitted, saved or "
      "finished after the backup is not known here";
  log::error("site.database_is_older", {{"what", what}});
  state.note(
      node,
      "site.database_is_older",
      what,
      {{"hint",
        "compare `reclaim ps --all` with what was submitted, and submit again what is missing"},
       {"known_there", std::to_string(highest)},
       {"generation", std::to_string(state.generation)}}
  );
}

/// A name that is none can be asked for by no job, and would reach people's screens. A grant that
/// no line has is taken for the most that one may have.
void take_facts(NodeRow& row, const NodeFacts& facts) {
  row.facts = facts;
  std::erase_if(row.facts.data_sets, [](const auto& name) { return !is_data_set_name(name); });
  if (row.facts.engine_refusal.size() > kEngineRefusalBytes)
    row.facts.engine_refusal = "what its agent says is too long to be told";
  if (facts.uplink_bps != 0 && !is_uplink_rate(facts.uplink_bps)) {
    row.facts.uplink_bps = 0;
    row.facts.warnings.push_back(
        "its agent says that its line carries " + std::to_string(facts.uplink_bps) +
        " bit/s, which none does: taken as not known"
    );
  }
  if (facts.transfers_bps > kMostGranted_bps) {
    row.facts.transfers_bps = kMostGranted_bps;
    row.facts.warnings.push_back(
        "its agent says that copies may send " + std::to_string(facts.transfers_bps) +
        " bit/s, which no line carries: 1 Tbit/s is taken"
    );
  }
}

/// A clock may be off by anything, and a node may say what no clock shows: then as far as one can
/// be.
std::int64_t clock_offset_ms(const State& state, std::int64_t told_ms) {
  constexpr std::int64_t kFar_ms = 1'000'000'000'000'000;
  return state.wall_ms() - std::clamp(told_ms, -kFar_ms, kFar_ms);
}

/// What was promised and chosen by the old bounds of what its copies may send is looked at again.
void follow_grant(State& state, const NodeEntry& node, const NodeRow& before) {
  const auto bounds = [](const NodeRow& row) {
    return std::tuple(
        row.facts.transfers_bps,
        row.facts.are_transfers_cut,
        row.contract.uplink_bps_normal,
        row.contract.uplink_bps_evacuation
    );
  };
  if (bounds(node.row) == bounds(before)) return;
  state.transfers.is_changed = true;
  for (const auto& [job, e] : state.evacuations) {
    const bool is_hit = e.source == node.row.node || e.holder == node.row.node;
    if (is_hit)
      return want_choice(state, state.name_of(node.row.node) + " lets its copies send otherwise");
  }
}

/// Facts with a bound on what people's screens and our rows have to carry.
void take_over(State& state, NodeEntry& node, const wire::Hello& hello) {
  NodeRow row = node.row;
  row.boot_id = hello.boot_id;
  if (row.machine_id.empty()) row.machine_id = hello.machine_id;
  row.address = hello.address;
  take_facts(row, hello.facts);
  row.contract = hello.contract;
  row.box_key = hello.box_key;
  row.verify_key = hello.verify_key;
  row.version = hello.version;
  row.state = NodeState::kUp;
  row.last_seen_wall_ms = state.wall_ms();
  std::swap(node.row, row);
  state.save(node);
  follow_grant(state, node, row);
  // Of one that was heard of for the first time nothing has changed.
  const bool is_known = row.last_seen_wall_ms != 0;
  follow_contract(
      state,
      node,
      is_known ? row.contract : node.row.contract,
      hello.contract_version,
      hello.proposal
  );
}

void open_lending(State& state, NodeEntry& node, LendingState lending) {
  account_exposure(state, node);
  if (lending == LendingState::kOpen && node.lending != LendingState::kOpen) {
    node.open_since = state.now.boot;
    state.is_dispatch_wanted = true;
    forget_refusals(state, node.row.node);
  }
  node.lending = lending;
}

void heard_from(State& state, NodeEntry& node) {
  node.heard = state.now.boot;
  node.is_expected = true;
  if (node.row.state != NodeState::kSuspect) return;
  node.row.state = NodeState::kUp;
  ++state.metrics.reattached;
  state.is_dispatch_wanted = true;
  state.note(node, "node.back", "heard again before it was lost; nothing moved");
}

void close_lost_record(State& state, NodeEntry& node) {
  if (node.lost_record.empty()) return;
  const auto found = state.reclaims.find({node.row.node, node.lost_record});
  if (found != state.reclaims.end()) {
    ReclaimRow row = found->second;
    row.record.phase = ReclaimPhase::kReturned;
    row.reported_wall_ms = state.wall_ms();
    state.write(PutReclaim{row});
    state.keep(std::move(row));
  }
  node.lost_record = ReclaimId();
}

void lose(State& state, NodeEntry& node) {
  node.row.state = NodeState::kLost;
  node.is_expected = false;
  account_exposure(state, node);
  node.lending = LendingState::kNotLending;
  ++node.row.history.lost;
  ReclaimRow row;
  row.record.id = ReclaimId("r-" + state.rng.hex(8));
  row.record.node = node.row.node;
  row.record.kind = ReclaimKind::kLost;
  row.record.boot_id = node.row.boot_id;
  row.record.declared_wall_ms = state.wall_ms();
  row.record.message = "found by missed heartbeats";
  row.reported_wall_ms = state.wall_ms();
  node.lost_record = row.record.id;
  state.keep(row);
  state.write(PutReclaim{row});
  state.save(node);
  state.note(
      node,
      "node.lost",
      std::to_string(state.config.lost_after) + " heartbeats missed",
      {{"attempts", std::to_string(node.attempts.size())}}
  );
  if (node.connection != 0) {
    state.act(CloseAgent{node.connection, "silent for too long"});
    state.connections.erase(node.connection);
    node.connection = 0;
  }
  forget_probes(state, node);
  note_departure(state, node, state.now.wall);
  lose_attempts_of(state, node);
}

/// What its newest heartbeat says of the node is in its entry.
wire::HeartbeatAck follow_beat(
    State& state, NodeEntry& node, const std::vector<wire::AttemptReport>& attempts
) {
  follow_lending(state, node);
  add_to_rollup(state, node);
  wire::HeartbeatAck ack;
  ack.clock_offset_ms = node.clock_offset_ms;
  ack.verdicts = reconcile_beat(state, node, attempts);
  for (const AttemptKey& key : node.attempts) {
    JobEntry* job = state.find_job(key.first);
    AttemptEntry* attempt = state.find_attempt(key.first, key.second);
    if (job == nullptr || attempt == nullptr || !attempt->is_granted) continue;
    refresh_plan(state, *job, *attempt);
    if (!attempt->plan.job.empty()) ack.plans.push_back(attempt->plan);
  }
  ack.hazard = news_of_hazard(state, node);
  return ack;
}

/// Reports are samples: a cut that was cleared at once may never be told by itself.
bool may_be_told_after(ReclaimPhase known, ReclaimPhase told) {
  return may_follow(known, told) ||
         (known == ReclaimPhase::kEvacuating && may_follow(ReclaimPhase::kCut, told));
}

}  // namespace

void on_connected(State& state, const AgentConnected& event) {
  Connection connection;
  connection.node = event.node;
  connection.public_key = event.public_key;
  connection.remote = event.remote;
  state.connections[event.connection] = std::move(connection);
}

void on_disconnected(State& state, const AgentDisconnected& event) {
  const auto found = state.connections.find(event.connection);
  if (found == state.connections.end()) return;
  NodeEntry* node = state.find_node(found->second.node);
  state.connections.erase(found);
  if (node == nullptr || node->connection != event.connection) return;
  // No verdict yet: heartbeats decide (reattach).
  node->connection = 0;
  forget_probes(state, *node);
  log::info("node.disconnected", {{"node", node->row.node.str()}, {"why", event.reason}});
}

void end_grace_if_all_are_back(State& state) {
  if (!state.is_in_grace()) return;
  for (const auto& [id, node] : state.nodes) {
    const bool may_come = node.row.state == NodeState::kUp && node.is_expected;
    if (may_come && node.connection == 0) return;
  }
  state.grace_until = state.now.boot;
  state.is_dispatch_wanted = true;
}

void on_hello(State& state, ConnectionId id, const wire::Hello& hello) {
  const auto found = state.connections.find(id);
  if (found == state.connections.end()) return;
  NodeEntry* node = state.find_node(found->second.node);
  auto rejection = check_protocol(state, hello);
  if (!rejection) rejection = check_identity(state, found->second, hello, node);
  if (!rejection && node->connection != id)
    rejection = settle_second(state, *node, hello, found->second.remote);
  if (rejection) return reject(state, id, *rejection);

  found->second.is_greeted = true;
  const bool was_lost = node->row.state == NodeState::kLost;
  const bool has_rebooted = !node->row.boot_id.empty() && node->row.boot_id != hello.boot_id;
  node->connection = id;
  rise_above(state, *node, hello.highest_generation);
  node->was_greeted = true;
  heard_from(state, *node);
  take_over(state, *node, hello);
  close_lost_record(state, *node);
  node->clock_offset_ms = clock_offset_ms(state, hello.wall_ms);
  node->accounted = state.now.boot;
  node->lending = LendingState::kNotLending;
  open_lending(state, *node, hello.lending);
  forget_refusals(state, node->row.node);
  note_holder_back(state, node->row.node);
  state.note(
      *node,
      was_lost ? "node.returned" : "node.connected",
      "agent " + hello.version + " is connected",
      {{"clock_offset_ms", std::to_string(node->clock_offset_ms)},
       {"boot", hello.boot_id},
       {"remote", found->second.remote}}
  );

  wire::Welcome welcome;
  welcome.version = state.config.version;
  welcome.generation = state.generation;
  welcome.heartbeat_ms = state.config.heartbeat_ms;
  welcome.lost_after = state.config.lost_after;
  welcome.clock_offset_ms = node->clock_offset_ms;
  std::copy(
      state.keys.ticket_key.public_key.begin(),
      state.keys.ticket_key.public_key.end(),
      welcome.ticket_key.begin()
  );
  welcome.verdicts = reconcile_hello(state, *node, hello.attempts);
  state.send(*node, std::move(welcome));
  for (const ReclaimRecord& record : hello.reclaims) on_reclaim_report(state, *node, record);
  note_evacuees(state, *node);  // whose GPUs are taken back is known only now
  if (has_rebooted) note_departure(state, *node, state.now.wall);
  follow_lending(state, *node);
  greet_holder(state, *node);
  end_grace_if_all_are_back(state);
}

void on_heartbeat(State& state, NodeEntry& node, const wire::Heartbeat& beat) {
  ++state.metrics.heartbeats;
  heard_from(state, node);
  node.clock_offset_ms = clock_offset_ms(state, beat.wall_ms);
  node.telemetry = beat.telemetry;
  open_lending(state, node, beat.lending);
  const std::int64_t closes_in_ms = std::int64_t{beat.closes_in_s} * 1000;
  node.window_ends_ms = closes_in_ms == 0 ? 0 : state.wall_ms() + closes_in_ms;
  node.beat = beat.seq;
  node.beat_at = state.now.boot;
  node.beat_on = node.connection;
  wire::HeartbeatAck ack = follow_beat(state, node, beat.attempts);
  look_at_use(state, node);
  ack.seq = beat.seq;
  state.send(node, std::move(ack));
  send_orders(state, node);
  count_beat_for_garbage(state, node);
  follow_health(state, node);
  follow_clock(state, node);
  follow_guests(state, node);
}

void on_still_there(State& state, const StillThere& event) {
  for (const ConnectionId id : event.connections) {
    const auto found = state.connections.find(id);
    if (found == state.connections.end() || !found->second.is_greeted) continue;
    NodeEntry* const node = state.find_node(found->second.node);
    if (node == nullptr || node->connection != id) continue;
    ++state.metrics.heartbeats;
    heard_from(state, *node);
    open_lending(state, *node, node->lending);
    wire::HeartbeatAck ack = follow_beat(state, *node, {});
    const bool says_nothing =
        ack.verdicts.empty() && ack.plans.empty() && ack.hazard.per_day.empty();
    if (!says_nothing) state.send(*node, std::move(ack));
    count_beat_for_garbage(state, *node);
  }
}

void on_node_update(State& state, NodeEntry& node, const wire::NodeUpdate& update) {
  if (update.facts.gpus.size() > kMaxGpus || update.facts.images.size() > kListed ||
      update.facts.data_sets.size() > kMaxDataSetsOfNode)
    return;
  const NodeRow before = node.row;
  take_facts(node.row, update.facts);
  node.row.contract = update.contract;
  node.row.address = update.address;
  state.save(node);
  follow_grant(state, node, before);
  follow_contract(state, node, before.contract, update.contract_version, update.proposal);
  forget_refusals(state, node.row.node);
  state.is_dispatch_wanted = true;
}

namespace {

/// ", GPU 0, GPU 2"; of a whole node nothing.
std::string of_gpus(const std::vector<std::uint32_t>& gpus) {
  std::string text;
  for (const std::uint32_t gpu : gpus) text += ", GPU " + std::to_string(gpu);
  return text;
}

}  // namespace

void on_reclaim_report(State& state, NodeEntry& node, const ReclaimRecord& record) {
  ReclaimRecord own = record;
  own.node = node.row.node;  // a node speaks of itself only
  const auto key = std::make_pair(own.node, own.id);
  const auto found = state.reclaims.find(key);
  const bool is_new = found == state.reclaims.end();
  const wire::ReclaimAck ack{.id = own.id, .phase = own.phase};
  if (!is_new &&
      (found->second.record == own || !may_be_told_after(found->second.record.phase, own.phase)))
    return state.send(node, ack);

  if (is_new) {
    account_exposure(state, node);
    note_reclaim(state, node, own);
    state.save(node);
  }
  note_announcement(state, node, own);
  const ReclaimRow row{.record = own, .reported_wall_ms = state.wall_ms()};
  state.keep(row);
  state.write(PutReclaim{row});
  state.note(
      node,
      "reclaim." + std::string(to_string(own.phase)),
      "reclaim " + own.id.str() + " (" + std::string(to_string(own.kind)) + of_gpus(own.gpus) +
          ") is " + std::string(to_string(own.phase)),
      {{"reclaim", own.id.str()},
       {"declared_ns", std::to_string(own.declared_ns)},
       {"deadline_ns", std::to_string(own.deadline_ns)},
       {"cut_ns", std::to_string(own.cut_ns)},
       {"cleared_ns", std::to_string(own.cleared_ns)}}
  );
  state.send(node, ack);
  note_evacuees(state, node);
  if (own.phase != ReclaimPhase::kReturned || own.gpus.empty()) return;
  // That the node is open was never in doubt: what it refused for this GPU is asked for again.
  forget_refusals(state, node.row.node);
  state.is_dispatch_wanted = true;
}

void on_leave(State& state, NodeEntry& node, const std::string& reason) {
  state.note(node, "node.left", reason.empty() ? "its owner takes it out for good" : reason);
  revoke(state, node, wire::kLeftReason);
}

void revoke(State& state, NodeEntry& node, const std::string& reason) {
  account_exposure(state, node);
  note_withdrawal(state, node);
  node.row.state = NodeState::kLeft;
  node.row.is_revoked = true;
  node.lending = LendingState::kNotLending;
  node.telemetry.guests = 0;  // its last heartbeat still counted them
  state.save(node);
  forget_probes(state, node);
  note_left_copies(state, node);
  if (node.connection != 0) {
    state.act(CloseAgent{node.connection, reason});
    state.connections.erase(node.connection);
    node.connection = 0;
  }
  lose_attempts_of(state, node);
}

void look_for_silence(State& state) {
  const nanoseconds since_look =
      state.now.boot - std::exchange(state.silence_looked_at, state.now.boot);
  if (since_look > state.heartbeat()) {  // this process had no processor, or was stopped
    state.stood_still_until = state.now.boot;
    state.stood_still = since_look;
  }
  for (auto& [id, node] : state.nodes) {
    const NodeState before = node.row.state;
    if (before == NodeState::kLeft || before == NodeState::kLost) continue;
    nanoseconds silent = state.now.boot - node.heard;
    if (node.heard < state.stood_still_until) silent -= state.stood_still;
    if (silent >= state.lost_after()) {
      lose(state, node);
    } else if (silent >= state.heartbeat() * 3 / 2 && before == NodeState::kUp && node.is_expected) {
      node.row.state = NodeState::kSuspect;
      state.note(node, "node.suspect", "a heartbeat is missing");
    }
  }
}

}  // namespace rn::coordinator
