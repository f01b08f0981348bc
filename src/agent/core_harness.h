// SPDX-License-Identifier: Apache-2.0
#pragma once

// A node for core tests: the core with a journal in memory, and everything it lets out kept in
// lists. Tests play warden, coordinator and workers by hand.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/core.h"
#include "base/time.h"

namespace rn::agent {

class CoreTest : public testing::Test {
 protected:
  CoreTest() {
    config.node = NodeId("n-1");
    config.lab = LabId("lab-a");
    config.boot_id = "boot-1";
    facts.cpu_milli = 4000;
    facts.memory_mib = 8000;
    facts.disk_mib = 100'000;
    warden.is_engine_up = true;
    make_core();
  }

  void make_core() { core = std::make_unique<Core>(config, rng); }

  // ---- driving

  void feed(const Event& event) {
    if (const auto* measured = std::get_if<TelemetrySampled>(&event)) newest_sample = *measured;
    Output out = core->handle(event, clock.now());
    for (const JournalWrite& write : out.writes) {
      if (write.value) {
        journal[write.key] = *write.value;
      } else {
        journal.erase(write.key);
      }
    }
    for (Effect& effect : out.effects) std::visit([this](auto& e) { keep(e); }, effect);
  }

  /// In small steps, with a coordinator that acknowledges heartbeats (without verdicts) as long as
  /// it is connected, and a machine that is measured all the time.
  void advance(nanoseconds by) {
    while (by > nanoseconds(0)) {
      const nanoseconds step = std::min(by, nanoseconds(seconds(1)));
      by -= step;
      clock.advance(step);
      if (newest_sample && is_measuring) feed(TelemetrySampled(*newest_sample));
      feed(Tick{});
      if (is_acking) tell(wire::HeartbeatAck{});
    }
  }

  /// Crash: memory and everything under way is lost, the journal stays.
  void crash_and_restart() {
    forget_outputs();
    make_core();
    std::vector<JournalRow> rows;
    for (const auto& [key, value] : journal) rows.push_back({key, value});
    const Status restored = core->restore(rows);
    ASSERT_TRUE(restored) << restored.error().describe();
    feed(Started{facts, contract, 0});
    sample();
  }

  void start() {
    feed(Started{facts, contract, 0});
    sample();
    feed(WardenConnected{});
    answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
    connect();
  }

  void sample() {
    TelemetrySampled sampled;
    sampled.telemetry.disk_free_mib = 50'000;
    sampled.idle_s = 100'000;
    feed(sampled);
  }

  void connect() {
    feed(CoordinatorConnected{});
    wire::Welcome welcome;
    welcome.generation = 1;
    welcome.heartbeat_ms = 5000;
    tell(welcome);
  }

  void tell(wire::Message message) { feed(CoordinatorMessage{std::move(message)}); }

  /// The coordinator's order to end the attempt of job 1.
  void order_stop(StopMode mode, AttemptEnd end, std::uint32_t deadline_ms = 0) {
    wire::StopAttempt stop;
    stop.job = JobId("j-1");
    stop.epoch = kEpoch;
    stop.mode = mode;
    stop.deadline_ms = deadline_ms;
    stop.end = end;
    tell(stop);
  }

  void push_state() { feed(WardenReply{warden_wire::StateChanged{warden}}); }

  // ---- what came out

  template <class T>
  std::vector<T> sent() const {
    std::vector<T> out;
    for (const wire::Message& message : messages) {
      if (const T* found = std::get_if<T>(&message)) out.push_back(*found);
    }
    return out;
  }

  template <class T>
  bool has_asked() const {
    return std::any_of(asks.begin(), asks.end(), [](const auto& ask) {
      return std::holds_alternative<T>(ask.request);
    });
  }

  template <class T>
  std::vector<T> asked() const {
    std::vector<T> out;
    for (const auto& ask : asks) {
      if (const T* found = std::get_if<T>(&ask.request)) out.push_back(*found);
    }
    return out;
  }

  /// Answers the oldest unanswered request of this kind.
  template <class T>
  void answer(const std::function<void(warden_wire::Answer&)>& fill = {}) {
    const auto found = std::find_if(asks.begin(), asks.end(), [](const auto& ask) {
      return std::holds_alternative<T>(ask.request);
    });
    ASSERT_NE(found, asks.end()) << "the warden was not asked";
    warden_wire::Answer reply;
    reply.request = found->number;
    if (fill) fill(reply);
    asks.erase(found);
    feed(WardenReply{reply});
  }

  template <class T>
  bool has_work() const {
    return std::any_of(works.begin(), works.end(), [](const Work& w) {
      return std::holds_alternative<T>(w.body);
    });
  }

  template <class T>
  const T& work_body() const {
    const auto found = std::find_if(works.begin(), works.end(), [](const Work& w) {
      return std::holds_alternative<T>(w.body);
    });
    EXPECT_NE(found, works.end());
    return std::get<T>(found->body);
  }

  /// Finishes the oldest work of this kind.
  template <class T>
  void finish(WorkResult result) {
    const auto found = std::find_if(works.begin(), works.end(), [](const Work& w) {
      return std::holds_alternative<T>(w.body);
    });
    ASSERT_NE(found, works.end()) << "no such work";
    const WorkId id = found->id;
    works.erase(found);
    feed(WorkDone{id, std::move(result)});
  }

  AttemptState state() const {
    const auto reports = core->reports(clock.now());
    return reports.empty() ? AttemptState::kEnded : reports.front().state;
  }

  std::string phase() const {
    const auto view = core->view(clock.now());
    return view.attempts.empty() ? "none" : view.attempts.front().phase;
  }

  AttemptEnd last_end() const {
    const auto events = sent<wire::AttemptEvent>();
    return events.empty() ? AttemptEnd::kNone : events.back().report.end;
  }

  void forget_outputs() {
    messages.clear();
    asks.clear();
    works.clear();
    watches.clear();
    unwatches.clear();
    cancelled.clear();
    rates.clear();
    closes.clear();
    kills.clear();
    uses.clear();
  }

  // ---- a job's way

  static constexpr LeaseEpoch kEpoch{1, 1};

  wire::Commit a_commit() {
    wire::Commit commit;
    commit.job = JobId("j-1");
    commit.epoch = kEpoch;
    commit.spec = spec;
    commit.user = UserId("ann");
    commit.lab = LabId("lab-x");
    commit.job_number = 7;
    commit.image_digest = "sha256:img";
    commit.plan = a_plan();
    commit.resume = resume;
    commit.gang = gang;
    commit.shares = shares;
    commit.resume_previous = resume_previous;
    return commit;
  }

  static PeerGrant a_peer(const std::string& node) {
    PeerGrant grant;
    grant.node = NodeId(node);
    grant.address = node + ":7445";
    grant.failure_domain = "domain-" + node;
    return grant;
  }

  static wire::CopyPlan a_plan() {
    wire::CopyPlan plan;
    plan.job = JobId("j-1");
    plan.epoch = kEpoch;
    plan.copies = {a_peer("n-2"), a_peer("n-3")};
    plan.wanted = 1;
    return plan;
  }

  void lease() {
    wire::Probe probe;
    probe.job = JobId("j-1");
    probe.resources.disk_mib = 1000;
    tell(probe);
    wire::Commit commit = a_commit();
    ASSERT_FALSE(sent<wire::ProbeReply>().empty());
    commit.hold = sent<wire::ProbeReply>().back().hold;
    ASSERT_FALSE(commit.hold.empty()) << sent<wire::ProbeReply>().back().reason;
    tell(commit);
  }

  void set_guest(GuestState state, std::int32_t exit_code = 0) {
    warden_wire::GuestReport report;
    report.guest = GuestName{JobId("j-1"), kEpoch};
    report.state = state;
    report.exit_code = exit_code;
    report.disk = "/disk/1";
    report.started_boot_ns = to_ns(clock.now().boot);
    warden.guests = {report};
  }

  /// From the lease to the order to start the guest.
  void prepare() {
    warden.images = {"sha256:img"};
    push_state();
    lease();
    answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/1"; });
    finish<PrepareWork>(WorkPrepared{resume, ""});
    answer<warden_wire::AdoptDisk>();
  }

  /// From the lease to a running guest.
  void run() {
    prepare();
    answer<warden_wire::StartGuest>();
    set_guest(GuestState::kRunning);
    push_state();
    ASSERT_EQ(state(), AttemptState::kRunning);
    acknowledge();
  }

  /// Acknowledges every event so far.
  void acknowledge() {
    const auto events = sent<wire::AttemptEvent>();
    if (events.empty()) return;
    wire::AttemptAck ack;
    ack.job = events.back().report.job;
    ack.epoch = events.back().report.epoch;
    ack.seq = events.back().seq;
    tell(ack);
  }

  GenerationRef a_generation(std::uint32_t number, std::int64_t step = -1) {
    GenerationRef ref;
    ref.job = JobId("j-1");
    ref.epoch = kEpoch;
    ref.generation = number;
    ref.step = step;
    ref.manifest[0] = static_cast<std::uint8_t>(number);
    return ref;
  }

  Receipt a_receipt(const std::string& node, std::uint32_t generation) {
    Receipt receipt;
    receipt.job = JobId("j-1");
    receipt.epoch = kEpoch;
    receipt.generation = generation;
    receipt.holder = NodeId(node);
    receipt.failure_domain = "domain-" + node;
    return receipt;
  }

  /// The guest saved; it becomes generation `number` in the own store.
  void save(std::uint32_t number) {
    feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
    if (!has_work<TakeSnapshot>()) advance(seconds(1));  // one a second is taken
    ASSERT_EQ(work_body<TakeSnapshot>().generation, number);
    finish<TakeSnapshot>(SnapshotTaken{a_generation(number, number * 10)});
  }

  void copied(const std::string& node, std::uint32_t generation) {
    finish<CopyGeneration>(GenerationCopied{a_receipt(node, generation)});
  }

  void committed(std::uint32_t generation, bool is_accepted = true) {
    wire::GenerationCommitted answer;
    answer.job = JobId("j-1");
    answer.epoch = kEpoch;
    answer.generation = generation;
    answer.is_accepted = is_accepted;
    tell(answer);
  }

  /// The guest ends, and what it saved last is copied to another node.
  void leaves_with_a_last_save() {
    set_guest(GuestState::kExited, 0);
    push_state();
    EXPECT_TRUE(work_body<TakeSnapshot>().is_final);
    finish<TakeSnapshot>(SnapshotTaken{a_generation(1)});
    log_is_empty();
    copied("n-2", 1);
    committed(1);
  }

  /// The guest ends with this code, and what is new is saved: nothing; its log: empty.
  void fails_with(int exit_code) {
    set_guest(GuestState::kExited, exit_code);
    push_state();
    finish<TakeSnapshot>(NothingNew{});
    log_is_empty();
  }

  void log_is_empty() {
    while (has_work<ReadLog>()) finish<ReadLog>(LogRead{0, {}, 0});
  }

  /// A guest that does not catch signals is told of its end: it saves once more, is killed, and
  /// what it saved is durable elsewhere.
  void evacuate() {
    save(1);
    answer<warden_wire::KillGuest>();
    finish<TakeSnapshot>(NothingNew{});
    log_is_empty();
    copied("n-2", 1);
    committed(1);
  }

  ReclaimRecord a_reclaim(ReclaimKind kind, seconds deadline = seconds(60)) {
    ReclaimRecord record;
    record.id = ReclaimId("r-1");
    record.kind = kind;
    record.phase = ReclaimPhase::kEvacuating;
    record.boot_id = config.boot_id;
    record.declared_ns = to_ns(clock.now().boot);
    record.deadline_ns = to_ns(clock.now().boot + deadline);
    return record;
  }

  warden_wire::Announce last_announcement() const {
    const auto all = asked<warden_wire::Announce>();
    EXPECT_FALSE(all.empty()) << "nothing was announced";
    return all.empty() ? warden_wire::Announce{} : all.back();
  }

  /// The warden takes up what it was told last: holds it, declares it if its time has come, or
  /// gives the node back.
  void obey_announcement() {
    const warden_wire::Announce told = last_announcement();
    while (has_asked<warden_wire::Announce>()) answer<warden_wire::Announce>();
    if (told.deadline_ns == 0) {
      for (ReclaimRecord& record : warden.reclaims) {
        if (record.id != warden.announced.reclaim) continue;
        record.phase = ReclaimPhase::kReturned;
        record.returned_ns = to_ns(clock.now().boot);
      }
      warden.announced = {};
    } else {
      warden.announced = {told.declare_ns, told.deadline_ns, told.message, {}};
      if (told.declare_ns <= to_ns(clock.now().boot)) declare_announced();
    }
    push_state();
  }

  /// What the warden does by itself when the time has come.
  void declare_announced() {
    ReclaimRecord record = a_reclaim(ReclaimKind::kAnnounced);
    record.id = ReclaimId("r-announced");
    record.deadline_ns = warden.announced.deadline_ns;
    record.message = warden.announced.message;
    warden.announced.reclaim = record.id;
    warden.reclaims.push_back(record);
  }

  /// The warden cut, killed and looked; nothing was left.
  void clear_announced() {
    warden.guests.clear();
    for (ReclaimRecord& record : warden.reclaims) {
      if (record.id != warden.announced.reclaim) continue;
      record.phase = ReclaimPhase::kCleared;
      record.cut_ns = to_ns(clock.now().boot) + 1;
      record.killed_ns = record.cut_ns + 1;
      record.cleared_ns = record.killed_ns + 1;
    }
    push_state();
  }

  ManualClock clock;
  SeededRng rng{1};
  CoreConfig config;
  NodeFacts facts;
  Contract contract;
  JobSpec spec;
  GenerationRef resume;
  GenerationRef resume_previous;
  std::optional<GangPlace> gang;  ///< of job 1
  std::vector<wire::SharedGeneration> shares;
  warden_wire::WardenState warden;
  std::unique_ptr<Core> core;

  std::map<std::string, std::string> journal;
  std::vector<wire::Message> messages;
  std::vector<warden_wire::NumberedRequest> asks;
  std::vector<Work> works;
  std::vector<WorkId> cancelled;
  std::vector<SetRate> rates;
  std::vector<StartWatch> watches;
  std::vector<StopWatch> unwatches;
  std::vector<CloseCoordinator> closes;
  std::vector<KillNow> kills;
  std::vector<UseContract> uses;  ///< of contracts, that the shell was told
  bool has_left = false;
  bool is_known_to_have_left = false;
  bool is_acking = true;
  bool is_measuring = true;
  std::optional<TelemetrySampled> newest_sample;

 private:
  void keep(SendToCoordinator& e) { messages.push_back(std::move(e.message)); }

  void keep(CloseCoordinator& e) { closes.push_back(e); }

  void keep(AskWarden& e) { asks.push_back(std::move(e.request)); }

  void keep(KillNow& e) { kills.push_back(std::move(e)); }

  void keep(UseContract& e) { uses.push_back(std::move(e)); }

  void keep(StartWork& e) { works.push_back(std::move(e.work)); }

  void keep(CancelWork& e) {
    cancelled.push_back(e.id);
    std::erase_if(works, [&](const Work& w) { return w.id == e.id; });
  }

  /// The copy goes on as one that began with the whole generation.
  void keep(ReleaseCopy& e) {
    const auto found =
        std::find_if(works.begin(), works.end(), [&](const Work& w) { return w.id == e.id; });
    ASSERT_NE(found, works.end()) << "released, but not under way";
    auto& copy = std::get<CopyGeneration>(found->body);
    EXPECT_TRUE(copy.is_ahead);
    copy.generation = e.generation;
    copy.is_ahead = false;
  }

  void keep(SetRate& e) { rates.push_back(e); }

  void keep(StartWatch& e) { watches.push_back(e); }

  void keep(StopWatch& e) { unwatches.push_back(e); }

  void keep(LeftForGood& e) {
    has_left = true;
    is_known_to_have_left = e.is_known;
  }
};

}  // namespace rn::agent
