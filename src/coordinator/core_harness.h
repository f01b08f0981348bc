// SPDX-License-Identifier: Apache-2.0
#pragma once

// A whole site in memory for tests of the core: tables that check the rows' conditions (I4, I12,
// conditional writes) as the store would, and agents that answer as they are told to.

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/time.h"
#include "coordinator/core.h"
#include "model/signing.h"

namespace rn::coordinator {

struct Tables {
  std::map<std::string, std::string> meta;
  std::map<JobId, JobRow> jobs;
  std::map<std::pair<JobId, LeaseEpoch>, AttemptRow> attempts;
  std::map<NodeId, NodeRow> nodes;
  std::map<std::pair<JobId, std::uint32_t>, GenerationRow> generations;
  std::map<std::pair<NodeId, ReclaimId>, ReclaimRow> reclaims;
  std::map<std::string, Image> images;
  std::map<std::string, TokenRow> tokens;
  std::map<UserId, UserRow> users;
  std::map<std::pair<UserId, LabId>, UsageRow> usage;
  std::map<std::pair<JobId, LeaseEpoch>, OutputsRow> outputs;
  std::vector<EventRow> events;
  std::vector<RollupRow> rollups;
  std::optional<reclaim::CampusHazard> campus_hazard;
  std::map<LabId, reclaim::LabHazard> lab_hazards;
  std::map<NodeId, reclaim::NodeHazard> node_hazards;
  std::map<std::pair<std::string, std::string>, Quota> quotas;
  std::map<std::tuple<std::int64_t, UserId, LabId, std::string>, GpuHourRow> gpu_hours;
  std::map<GangId, GangRow> gangs;

  void apply(const Write& write) {
    std::visit([this](const auto& w) { put(w); }, write);
  }

  Snapshot snapshot() const {
    Snapshot s;
    s.meta = meta;
    for (const auto& [k, v] : jobs) s.jobs.push_back(v);
    for (const auto& [k, v] : attempts) s.attempts.push_back(v);
    for (const auto& [k, v] : nodes) s.nodes.push_back(v);
    for (const auto& [k, v] : generations) s.generations.push_back(v);
    for (const auto& [k, v] : reclaims) s.reclaims.push_back(v);
    for (const auto& [k, v] : images) s.images.push_back(v);
    for (const auto& [k, v] : tokens) s.tokens.push_back(v);
    for (const auto& [k, v] : users) s.users.push_back(v);
    for (const auto& [k, v] : usage) s.usage.push_back(v);
    s.campus_hazard = campus_hazard;
    for (const auto& [k, v] : lab_hazards) s.lab_hazards.push_back(v);
    for (const auto& [k, v] : node_hazards) s.node_hazards.push_back(v);
    for (const auto& [k, v] : quotas) s.quotas.push_back(v);
    for (const auto& [k, v] : gpu_hours) s.gpu_hours.push_back(v);
    for (const auto& [k, v] : gangs) s.gangs.push_back(v);
    return s;
  }

 private:
  void put(const PutJob& w) {
    const auto found = jobs.find(w.row.job.id);
    if (found != jobs.end()) {
      EXPECT_TRUE(may_follow(found->second.job.state, w.row.job.state))
          << to_string(found->second.job.state) << " to " << to_string(w.row.job.state);
      EXPECT_LE(found->second.job.epoch, w.row.job.epoch) << "I4";
    }
    jobs[w.row.job.id] = w.row;
  }

  void put(const PutAttempt& w) { attempts[{w.row.attempt.job, w.row.attempt.epoch}] = w.row; }

  void put(const PutNode& w) { nodes[w.row.node] = w.row; }

  void put(const PutGeneration& w) {
    EXPECT_EQ(jobs.at(w.row.generation.job).job.epoch, w.required_epoch) << "conditional row";
    generations[{w.row.generation.job, w.row.generation.generation}] = w.row;
  }

  void put(const PutReclaim& w) { reclaims[{w.row.record.node, w.row.record.id}] = w.row; }

  void put(const PutImage& w) { images[w.image.name] = w.image; }

  void put(const DeleteImage& w) { images.erase(w.name); }

  void put(const PutToken& w) { tokens[w.row.id] = w.row; }

  void put(const PutUser& w) { users[w.row.user] = w.row; }

  void put(const PutUsage& w) { usage[{w.row.user, w.row.lab}] = w.row; }

  void put(const PutOutputs& w) {
    EXPECT_EQ(jobs.at(w.row.job).job.epoch, w.row.epoch) << "conditional row";
    outputs[{w.row.job, w.row.epoch}] = w.row;
  }

  void put(const AppendEvent& w) { events.push_back(w.row); }

  void put(const SetMeta& w) { meta[w.key] = w.value; }

  void put(const PutRollup& w) { rollups.push_back(w.row); }

  void put(const PutCampusHazard& w) { campus_hazard = w.row; }

  void put(const PutLabHazard& w) { lab_hazards[w.row.lab] = w.row; }

  void put(const PutNodeHazard& w) {
    EXPECT_TRUE(lab_hazards.contains(w.row.lab)) << "a node's row is of use only beside its lab's";
    node_hazards[w.row.node] = w.row;
  }

  void put(const PutQuota& w) { quotas[{w.row.subject, w.row.gpu_model}] = w.row; }

  void put(const DeleteQuota& w) { quotas.erase({w.subject, w.gpu_model}); }

  void put(const PutGpuHour& w) {
    gpu_hours[{w.row.hour, w.row.user, w.row.lab, w.row.gpu_model}] = w.row;
  }

  void put(const DropGpuHours& w) {
    std::erase_if(gpu_hours, [&](const auto& one) { return one.second.hour < w.before_hour; });
  }

  void put(const PutGang& w) { gangs[w.row.id] = w.row; }
};

/// An agent that offers, grants and beats, unless told otherwise.
struct FakeAgent {
  enum class Answer { kOffer, kRefuse, kSilent };

  NodeId id;
  ConnectionId connection = 0;
  crypto::SigningKey signing;
  crypto::BoxKey box;
  wire::Hello hello;
  Answer to_probe = Answer::kOffer;
  Answer to_commit = Answer::kOffer;  ///< kRefuse: the hold is lost
  bool beats = true;
  LendingState lending = LendingState::kOpen;
  NodeTelemetry telemetry;
  std::uint32_t granted_cpu = 0;
  std::uint32_t closes_in_s = 0;
  std::int64_t clock_ahead_ms = 0;  ///< in what it says of attempts
  std::map<std::pair<JobId, LeaseEpoch>, wire::AttemptReport> attempts;
  std::map<std::pair<JobId, LeaseEpoch>, std::uint64_t> seq;
  std::vector<wire::Message> inbox;
  std::uint64_t beat = 0;
  std::string closed;

  template <class M>
  std::vector<M> received() const {
    std::vector<M> result;
    for (const auto& message : inbox)
      if (const auto* m = std::get_if<M>(&message)) result.push_back(*m);
    return result;
  }

  /// The newest of its kind; the test fails if there is none.
  template <class M>
  M last() const {
    const auto all = received<M>();
    EXPECT_FALSE(all.empty()) << "no such message came";
    return all.empty() ? M{} : all.back();
  }
};

class CoreSite : public ::testing::Test {
 protected:
  CoreSite() { keys.ticket_key = crypto::make_signing_key(rng); }

  void start() {
    if (core == nullptr) restart();
    run(Core::system_caller(), AddImage{a_image("base")});
  }

  /// A new process on the same tables. Connections are gone.
  void restart() {
    core.reset();
    for (auto& [id, agent] : agents) agent.connection = 0;
    pending.clear();
    core = std::make_unique<Core>(config, keys, rng);
    take(core->restore(tables.snapshot(), clock.now()));
  }

  /// After the grace time of a start.
  void settle() { pass(config.heartbeat_ms * (config.lost_after + 1)); }

  /// Two that lend, the first with the image, and one that only keeps copies.
  void start_with_a_store() {
    start();
    add_node("a", "lab-a").hello.facts.images = {a_image("base").digest};
    add_node("b", "lab-b");
    add_node("store", "storage").hello.contract.lends = false;
    connect(node("a"));
    connect(node("store"));
    settle();
  }

  /// Of a copy that the job's node sends to the node "store".
  wire::TransferReport copy_report(
      const JobId& id, std::uint64_t bytes, std::uint32_t deadline_ms = 0
  ) {
    wire::TransferReport report;
    report.id = 7;
    report.job = id;
    report.epoch = job(id).epoch;
    report.peer = node("store").id;
    report.kind = deadline_ms > 0 ? TransferKind::kEvacuation : TransferKind::kCheckpoint;
    report.bytes_left = bytes;
    report.is_size_known = true;
    report.deadline_ms = deadline_ms;
    return report;
  }

  static Image a_image(const char* name, char digit = 'a') {
    return {.name = name, .digest = "sha256:" + std::string(64, digit), .bytes = 10};
  }

  static Caller user(const char* name = "ann", const char* lab = "lab-x") {
    return {UserId(name), LabId(lab), Role::kUser};
  }

  static Caller admin() { return {UserId("root"), LabId("it"), Role::kAdmin}; }

  /// Joins and connects a node of one core and 8 GiB.
  FakeAgent& add_node(const std::string& name, const std::string& lab) {
    const auto made = run(admin(), CreateJoinToken{.lab = LabId(lab)});
    const auto& token = std::get<TokenMade>(made.value());
    JoinNode join{
        .token = token.token.id,
        .secret = token.secret,
        .machine_id = "m-" + name,
        .hostname = name};
    join.public_key = crypto::sha256(as_bytes(name));
    const auto joined = run({}, join);
    EXPECT_TRUE(joined) << joined.error().describe();
    const NodeId id = std::get<NodeJoined>(joined.value()).node;
    FakeAgent& agent = agents[id];
    names[name] = id;
    agent.id = id;
    agent.signing = crypto::make_signing_key(rng);
    agent.box = crypto::make_box_key(rng);
    wire::Hello& h = agent.hello;
    h.version = "0.1.0";
    h.node = id;
    h.machine_id = "m-" + name;
    h.boot_id = "boot-1";
    h.lab = LabId(lab);
    h.address = {.peer = name + ":7445", .api = name + ":7444"};
    h.facts.hostname = name;
    h.facts.cpu_milli = 4000;
    h.facts.memory_mib = 8192;
    h.facts.disk_mib = 100'000;
    h.box_key = agent.box.public_key;
    h.verify_key = agent.signing.public_key;
    connect(agent);
    return agent;
  }

  FakeAgent& node(const std::string& name) { return agents.at(names.at(name)); }

  /// A new connection, as after a reconnect.
  void connect(FakeAgent& agent) {
    agent.connection = ++connections;
    agent.closed.clear();
    handle(AgentConnected{agent.connection, agent.id, public_key_of(agent), "10.0.0.1:1"});
    say_hello(agent);
  }

  void say_hello(FakeAgent& agent) {
    agent.hello.wall_ms = to_ms(clock.now().wall);
    agent.hello.lending = agent.lending;
    agent.hello.attempts.clear();
    for (const auto& [key, report] : agent.attempts) agent.hello.attempts.push_back(report);
    tell(agent, agent.hello);
  }

  Digest public_key_of(const FakeAgent& agent) const {
    for (const auto& [name, id] : names)
      if (id == agent.id) return crypto::sha256(as_bytes(name));
    return {};
  }

  void disconnect(FakeAgent& agent) {
    const ConnectionId id = std::exchange(agent.connection, 0);
    handle(AgentDisconnected{id, "reset"});
  }

  void tell(FakeAgent& agent, wire::Message message) {
    handle(AgentMessage{agent.connection, std::move(message)});
  }

  Result<Answer> run(const Caller& caller, Command command) {
    const RequestId request = ++requests;
    handle(ApiCommand{request, caller, std::move(command)});
    const auto found = replies.find(request);
    if (found == replies.end()) return fail(ErrorCode::kInternal, "no reply came");
    return found->second;
  }

  static JobSpec a_spec() {
    JobSpec spec;
    spec.command = {"python", "train.py"};
    spec.checkpoint.paths = {"*.pt"};
    spec.resources.cpu_milli_min = 100;
    return spec;
  }

  JobId submit(
      const JobSpec& spec = a_spec(), const Caller& caller = user(), std::string key = ""
  ) {
    const auto answer = run(caller, SubmitJob{.idempotency_key = std::move(key), .spec = spec});
    EXPECT_TRUE(answer) << answer.error().describe();
    return answer ? std::get<JobSubmitted>(*answer).job.id : JobId();
  }

  const Job& job(const JobId& id) { return *core->find_job(id); }

  JobState state(const JobId& id) { return job(id).state; }

  std::string where(const JobId& id) {
    for (const auto& [name, node_id] : names)
      if (node_id == job(id).node) return name;
    return "";
  }

  /// Time in steps of a tick, with heartbeats of every connected agent that beats.
  void pass(std::int64_t ms) {
    for (std::int64_t done = 0; done < ms; done += 250) {
      clock.advance(milliseconds(250));
      since_beat += 250;
      if (since_beat >= config.heartbeat_ms) {
        since_beat = 0;
        for (auto& [id, agent] : agents)
          if (agent.connection != 0 && agent.beats) beat(agent);
      }
      handle(Tick{});
    }
  }

  void beat(FakeAgent& agent) {
    wire::Heartbeat heartbeat;
    heartbeat.seq = ++agent.beat;
    heartbeat.lending = agent.lending;
    heartbeat.closes_in_s = agent.closes_in_s;
    heartbeat.telemetry = agent.telemetry;
    heartbeat.wall_ms = to_ms(clock.now().wall);
    for (const auto& [key, report] : agent.attempts) heartbeat.attempts.push_back(report);
    tell(agent, heartbeat);
  }

  /// What the agent of the job's newest attempt says of it.
  wire::AttemptAck say(
      FakeAgent& agent,
      const JobId& id,
      LeaseEpoch epoch,
      AttemptState phase,
      AttemptEnd end = AttemptEnd::kNone,
      std::int32_t exit_code = 0
  ) {
    wire::AttemptReport& report = agent.attempts[{id, epoch}];
    report.job = id;
    report.epoch = epoch;
    report.state = phase;
    report.end = end;
    report.exit_code = exit_code;
    wire::AttemptEvent event;
    event.report = report;
    event.seq = ++agent.seq[{id, epoch}];
    event.at_wall_ms = to_ms(clock.now().wall) + agent.clock_ahead_ms;
    if (phase == AttemptState::kEnded) agent.attempts.erase({id, epoch});
    tell(agent, event);
    const auto acks = agent.received<wire::AttemptAck>();
    return acks.empty() ? wire::AttemptAck{} : acks.back();
  }

  /// Submits, waits until it is placed, and lets it run.
  JobId running(const JobSpec& spec = a_spec(), const Caller& caller = user()) {
    const JobId id = submit(spec, caller);
    pass(2000);
    EXPECT_EQ(state(id), JobState::kStarting) << core->why(id, clock.now()).value();
    say(node(where(id)), id, job(id).epoch, AttemptState::kRunning);
    EXPECT_EQ(state(id), JobState::kRunning);
    return id;
  }

  Receipt receipt(FakeAgent& holder, const GenerationRef& ref) {
    Receipt r;
    r.job = ref.job;
    r.epoch = ref.epoch;
    r.generation = ref.generation;
    r.manifest = ref.manifest;
    r.holder = holder.id;
    r.failure_domain = holder.hello.lab.str();
    return signed_receipt(r, holder.signing);
  }

  GenerationRef generation(const JobId& id, std::uint32_t number) {
    GenerationRef ref;
    ref.job = id;
    ref.epoch = job(id).epoch;
    ref.generation = number;
    ref.manifest = crypto::sha256(as_bytes(id.str() + std::to_string(number)));
    ref.step = number * 100;
    ref.bytes = 1000;
    return ref;
  }

  wire::GenerationCommitted commit_generation(
      FakeAgent& source, const GenerationRef& ref, std::vector<Receipt> receipts
  ) {
    tell(source, wire::CommitGeneration{.generation = ref, .receipts = std::move(receipts)});
    return source.last<wire::GenerationCommitted>();
  }

  std::size_t count_events(const std::string& kind) const {
    return static_cast<std::size_t>(std::count_if(
        tables.events.begin(),
        tables.events.end(),
        [&](const EventRow& e) { return e.kind == kind; }
    ));
  }

  const EventRow& last_event(const std::string& kind) const {
    for (auto at = tables.events.rbegin(); at != tables.events.rend(); ++at)
      if (at->kind == kind) return *at;
    ADD_FAILURE() << "no event " << kind;
    return tables.events.front();
  }

  void handle(Event event) {
    pending.push_back(std::move(event));
    if (is_pumping) return;
    is_pumping = true;
    while (!pending.empty()) {
      const Event next = std::move(pending.front());
      pending.pop_front();
      take(core->handle(next, clock.now()));
    }
    is_pumping = false;
  }

  void take(const Output& output) {
    for (const Write& write : output.writes) tables.apply(write);
    writes += output.writes.size();
    for (const Effect& effect : output.effects)
      std::visit([this](const auto& e) { carry_out(e); }, effect);
  }

  FakeAgent* agent_on(ConnectionId id) {
    for (auto& [node_id, agent] : agents)
      if (agent.connection == id && id != 0) return &agent;
    return nullptr;
  }

  void carry_out(const SendToAgent& effect) {
    FakeAgent* agent = agent_on(effect.connection);
    if (agent == nullptr) {
      stray.push_back(effect);
      return;
    }
    agent->inbox.push_back(effect.message);
    if (const auto* probe = std::get_if<wire::Probe>(&effect.message)) answer(*agent, *probe);
    if (const auto* commit = std::get_if<wire::Commit>(&effect.message)) answer(*agent, *commit);
  }

  void answer(FakeAgent& agent, const wire::Probe& probe) {
    if (agent.to_probe == FakeAgent::Answer::kSilent) return;
    wire::ProbeReply reply{.probe = probe.probe, .job = probe.job};
    if (agent.to_probe == FakeAgent::Answer::kOffer) {
      reply.hold = HoldId("h-" + std::to_string(++holds));
      reply.ttl_ms = probe.hold_ms;
      reply.cpu_milli = agent.granted_cpu > 0 ? agent.granted_cpu : probe.resources.cpu_milli;
    } else {
      reply.reason = "its owner is at the keyboard";
    }
    pending.push_back(AgentMessage{agent.connection, reply});
  }

  void answer(FakeAgent& agent, const wire::Commit& commit) {
    if (agent.to_commit == FakeAgent::Answer::kSilent) return;
    const bool granted = agent.to_commit == FakeAgent::Answer::kOffer;
    if (granted) {
      auto& report = agent.attempts[{commit.job, commit.epoch}];
      report.job = commit.job;
      report.epoch = commit.epoch;
    }
    pending.push_back(AgentMessage{
        agent.connection,
        wire::CommitReply{
            .hold = commit.hold,
            .job = commit.job,
            .epoch = commit.epoch,
            .is_granted = granted,
            .reason = granted ? "" : "the hold has expired"}});
  }

  void carry_out(const CloseAgent& effect) {
    if (FakeAgent* agent = agent_on(effect.connection)) {
      agent->closed = effect.reason;
      agent->connection = 0;
    }
  }

  void carry_out(const Reply& effect) { replies.insert_or_assign(effect.request, effect.answer); }

  void carry_out(const AppendLog& effect) { logs.push_back(effect); }

  void carry_out(const CheckOutputs& effect) { checks.push_back(effect); }

  void carry_out(const PaceBlobs& effect) { paced[effect.node] = effect.rate_bps; }

  Config config;
  SiteKeys keys;
  SeededRng rng{42};
  ManualClock clock;
  Tables tables;
  std::unique_ptr<Core> core;
  std::map<NodeId, FakeAgent> agents;
  std::map<std::string, NodeId> names;
  std::map<RequestId, Result<Answer>> replies;
  std::vector<AppendLog> logs;
  std::vector<CheckOutputs> checks;
  std::map<NodeId, std::uint64_t> paced;  ///< what they fetch from us, as told last
  std::vector<SendToAgent> stray;
  std::deque<Event> pending;
  ConnectionId connections = 0;
  RequestId requests = 0;
  std::uint64_t holds = 0;
  std::uint64_t writes = 0;
  std::int64_t since_beat = 0;
  bool is_pumping = false;
};

}  // namespace rn::coordinator
