// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's inside; only core*.cc include it. The core is level-triggered: every event changes
// rows, and then step() makes sure that whatever the row's phase needs (a request to the warden, a
// work, a message) is under way. Losing any of them costs a repetition, never the attempt.

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "agent/core.h"
#include "agent/core_records.h"
#include "agent/lending_watch.h"
#include "agent/save_schedule.h"
#include "arbiter/arbiter.h"
#include "reclaim/copy_cost.h"
#include "reclaim/deadline_rates.h"
#include "reclaim/last_moment.h"
#include "reclaim/shown_rate.h"

namespace rn::agent {

/// Requests to the warden; at most one of each kind is under way per attempt.
enum class Ask : std::uint8_t {
  kQuery,
  kLoad,
  kPrepare,
  kAdopt,
  kStart,
  kSignal,
  kKill,
  kNotice,
  kRemove,
  kRelease,
  kEvacuated,
  kAnnounce,
  kTell,
  kTransfers,
  kTakeBack,
};

/// Works; at most one of each kind per attempt (copies: one per peer).
enum class Task : std::uint8_t {
  kFetch,
  kPrepare,
  kSnapshot,
  kUpload,
  kLog,
  kForget,
  kCopy,
  kGarbage,
  kHoldings
};

inline double in_s(nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

/// An order to leave later, of a guest that need not yet (core_stay.cc). In memory: the warden's
/// records bring it back.
struct PutOff {
  StopOrder order;
  Instant since{};
  bool is_saved = false;  ///< with what may be its last save in time
};

struct LogState {
  std::uint64_t acked = 0;                 ///< everything below is durable at the coordinator
  std::uint64_t spooled = 0;               ///< length of the spool, as last seen
  std::optional<std::uint64_t> in_flight;  ///< end of the LogAppend that is under way
  Instant sent_at{};
  Instant looked_at{};
  bool is_final_asked = false;    ///< the read under way was begun after the last process was gone
  bool is_final_spooled = false;  ///< read once after the last process was gone
  bool is_done = false;           ///< nothing more will be sent
};

/// Memory beside the journalled row; lost in a crash and made anew.
struct Attempt {
  GuestName name;
  wire::Commit commit;
  AttemptRow row;
  bool is_dirty = false;
  bool is_new = false;  ///< the commit's row is not written yet

  std::map<Ask, std::uint64_t> asks;
  std::map<Ask, Instant> ask_after;
  std::map<Ask, std::uint32_t> ask_failures;  ///< in a row
  std::optional<Instant> stuck_since;         ///< steps of the start fail since then
  std::optional<Instant> holders_away_since;  ///< its restore waits since then
  std::map<Task, WorkId> works;
  std::map<Task, Instant> work_after;
  std::map<NodeId, WorkId> copies;
  std::map<NodeId, Instant> peer_after;
  std::map<NodeId, Instant> ahead_at;  ///< when a copy ahead arrived there last
  std::vector<PeerGrant> extra_peers;  ///< from Grants

  Instant renewed_at{};
  bool is_watching = false;
  bool is_seen_running = false;
  bool is_detected = false;  ///< the watch reported something that no snapshot covers
  Instant detected_began{};  ///< when the guest began to write that, as far as is known
  Instant noticed_at{};
  std::uint32_t final_tries = 0;  ///< of the last snapshot
  bool is_final_snapshot_done = false;
  bool has_left = false;              ///< by itself: what it wrote is written
  std::int64_t guest_since_ns = 0;    ///< as TakeSnapshot's
  std::string container;              ///< of its guest, as the warden says it
  std::uint64_t memory_peak_mib = 0;  ///< as reported
  std::uint64_t gpu_memory_peak_mib = 0;
  std::uint64_t cpu_ms = 0;
  bool is_visited = false;
  WallTime gone_at{};                  ///< when no process of it was left; the epoch: nobody saw it
  std::optional<Instant> snapshot_at;  ///< when the newest snapshot was begun
  bool is_snapshot_after_notice = false;  ///< the running snapshot was begun after the notice
  bool is_snapshot_final = false;         ///< the running snapshot was begun after the end
  bool is_safe_after_notice = false;
  bool is_saved_in_time = false;  ///< just before the notice: enough where nobody catches a signal
  bool is_gang_saved = false;     ///< since the notice all members of its gang that save have
  std::optional<PutOff> put_off;
  Departure departure = Departure::kUntold;  ///< the coordinator's newest word, of departure_at
  std::optional<Instant> departure_at;
  std::string save_trouble;    ///< as reported; gone with the next safe generation
  std::string hook_trouble;    ///< as reported; gone with the next run of the hook that ends well
  std::uint32_t hook_run = 0;  ///< the newest that ended, as far as is known
  /// The newest snapshot found its files changed since the watch's report, which is true for a
  /// moment only where a guest writes often: the next report is taken whatever the interval says.
  bool is_save_owed = false;
  std::optional<Instant> upload_since;  ///< its outputs wait, or are on their way, since then
  std::optional<Instant> upload_fails_since;
  std::optional<ErrorCode> upload_trouble_of;  ///< what upload_trouble says
  std::string upload_trouble;                  ///< as reported; gone when they are home
  std::optional<Instant> unsaved_since;        ///< snapshots fail since then
  Error unsaved_why;                           ///< of the newest of them
  std::optional<Instant> uncopied_since;       ///< no generation has got its copies since then
  std::map<NodeId, Error> copy_errors;         ///< of holders whose newest copy failed
  std::string copy_trouble;  ///< as reported; gone with the next full set of copies
  std::map<NodeId, ErrorCode> copy_trouble_of;  ///< what copy_trouble says
  std::string risk_trouble;                     ///< as reported; gone with the next safe generation
  SaveSchedule schedule;
  nanoseconds risk_told_at{0};    ///< how old its newest checkpoint was when that was said
  bool is_notice_due = false;     ///< the guest's notice says something else than its row
  bool was_told_in_wait = false;  ///< of a notice, without a row: whoever leaves then leaves for it
  bool is_remove_asked = false;
  std::uint32_t log_failures = 0;
  Instant event_sent_at{};
  Instant commit_sent_at{};
  Instant grant_sent_at{};
  Instant publish_sent_at{};
  LogState log;
};

struct PendingAsk {
  GuestName guest;
  Ask kind = Ask::kQuery;
  Instant sent_at{};
  ReclaimId reclaim;
  std::string order;  ///< of kTakeBack
};

/// An order of the owner's that came by the coordinator (ADR 0017), and what is said of it.
struct TakeBackOrder {
  wire::TakeBack wanted;
  Instant came_at{};
  std::optional<wire::TakenBack> answer;
};

/// An edit of the contract that came by the coordinator (ADR 0024), and what is said of it.
struct ContractEditing {
  std::string edit;
  Instant since{};  ///< it came, or was answered
  std::optional<wire::ContractEdited> answer;
};

struct SentBeat {
  std::uint64_t seq = 0;
  Instant at{};
};

/// How a copy under way goes; beside its work.
struct TransferState {
  Instant measured_at{};
  std::optional<std::uint64_t> bytes_left;
  std::uint64_t bytes_sent = 0;
  double sent_bps = 0;         ///< over about half a second
  std::uint64_t rate_bps = 0;  ///< as the shell was told; 0 = no limit
  std::uint64_t told_bps = 0;  ///< by the coordinator, at told_at
  std::optional<Instant> told_at;
  std::uint64_t alone_bps = 0;  ///< by the own plan; 0 = no limit
  bool is_planned = false;      ///< alone_bps counts
  std::string local = {};       ///< ends of its connection; empty while it has none
  std::string remote = {};
  std::uint64_t wanted_bps = 0;        ///< what rate_bps is to become; 0 = no limit
  std::optional<Instant> waits_since;  ///< for its claim, to go faster
  std::uint64_t slowed_from_bps = 0;   ///< what it makes way from; 0 = it does not
};

/// By one connection, a peer fetches a generation for an attempt of its, or pieces of an image.
struct ServedFetch {
  JobId job;
  LeaseEpoch epoch;
  NodeId peer;
  std::string image;       ///< empty: a generation
  bool is_awaited = true;  ///< a job's start waits for it, unless the coordinator knows better
  Instant since{};
  TransferState transfer = {};
  reclaim::ShownRate shown = {};  ///< while the node plans alone
  Instant looked_at{};            ///< then, with so many bytes sent
  std::uint64_t sent_then = 0;

  bool is_same(const ServedFetch& other) const {
    return std::tie(job, epoch, peer, image) ==
           std::tie(other.job, other.epoch, other.peer, other.image);
  }
};

/// What is sent now, a copy, outputs or a fetch, for those who do not care which.
struct Sending {
  WorkId id = 0;
  TransferState* transfer = nullptr;
  NodeId peer;                                             ///< empty: the coordinator
  TransferPurpose purpose = TransferPurpose::kCheckpoint;  ///< as the kernel's classes count it
  bool is_urgent = false;                                  ///< never makes way
  std::uint64_t cap_bps = 0;                               ///< of the contract; 0 = none
  std::uint64_t least_bps = 0;
};

/// How long what is sent to a peer waits on its way, also by what others send.
struct PathToPeer {
  reclaim::LatencyGuard guard{};
  Instant seen_at{};
  nanoseconds longest{0};  ///< of the copies to it, since the guard was told last; 0: none
  nanoseconds least{0};
};

struct PendingWork {
  GuestName guest;
  Task task = Task::kFetch;
  NodeId peer;
  std::uint32_t generation = 0;
  bool is_started = false;
  bool is_ahead = false;    ///< a copy whose generation is not whole yet
  bool is_precopy = false;  ///< of a generation that is durable already
  bool was_ahead = false;
  Instant started_at{};
  Instant released_at{};        ///< of one that was ahead: since then its generation is whole
  TransferState transfer = {};  ///< of a copy, or of outputs

  /// By a connection that is paced.
  bool is_sent() const { return is_started && (task == Task::kCopy || task == Task::kUpload); }
};

/// The time in which the journal cannot write. What may not be answered without it is kept, in
/// order, until it can.
struct JournalWait {
  std::string why;
  Instant since{};
  std::vector<wire::AttemptReport> told;
  std::deque<Event> held;
  std::map<GuestName, std::int64_t> noticed;  ///< deadlines that guests were told of; 0 = withdrawn
};

/// Whom a generation may be offered to now, best first.
struct PeerChoice {
  std::vector<PeerGrant> ready;
  std::vector<NodeId> resting;  ///< failed a short while ago
};

/// Trying again here would not help, or not soon: a full disk is another node's chance.
bool is_for_good_here(const Error& error);

class Core::State {
 public:
  State(CoreConfig config, Rng& rng);

  Status restore(const std::vector<JournalRow>& rows);
  Output handle(const Event& event, Now now);
  bool rests(Now now) const;
  NodeView view(Now now) const;
  std::vector<wire::AttemptReport> reports(Now now) const;
  std::vector<LinkedGuest> linked_guests() const;
  std::uint64_t granted_bps() const;  // core_transfers.cc

 private:
  using Attempts = std::map<GuestName, Attempt>;

  // core.cc: dispatch, connection, heartbeats
  void drive();
  void on(const Started& e);
  void on(const CoordinatorConnected& e);
  void on(const CoordinatorMessage& e);
  void on(const CoordinatorDisconnected& e);
  void on(const WardenConnected& e);
  void on(const WardenReply& e);
  void on(const WardenDisconnected& e);
  void on(const WorkDone& e);
  void on(const GenerationDetected& e);
  void on(const SaveTrouble& e);
  void on(const LinkBroken& e);
  void on(const TelemetrySampled& e);
  void on(const GpuAccepted& e);
  void on(const TransfersMeasured& e);
  void on(const ContractChanged& e);
  void on(const EditUnusable& e);
  void on(const ProposalRejected& e);
  void on(const FactsChanged& e);
  void on(const OwnerLeaves& e);
  void on(const WardenActed& e);
  void on(const KilledNow& e);
  void on(const JournalWaits& e);
  void on(const JournalGoesOn& e);
  void on(const Tick& e);
  void on(const NothingHappened& e);
  void maybe_hello();
  void heartbeat();
  void send(wire::Message message);
  void send_node_update();
  void write_dirty();
  void write_node();
  wire::AttemptReport report(const Attempt& a) const;
  AttemptView view_of(const Attempt& a, Now now) const;
  std::vector<wire::AttemptReport> tellable_reports() const;

  bool is_due(Instant last) const { return now_.boot - last >= config_.repeat; }

  // core_rest.cc: while nothing happens
  bool has_work_to_do() const;
  bool are_reclaims_told(Now now) const;

  // core_waiting.cc: while the journal waits for room
  void hear_in_wait(const Event& event);
  void hear_in_wait(const wire::Message& message);
  void refuse_in_wait(const wire::Commit& commit);
  bool holds_in_wait(const Event& event);
  StopOrder notice_in_wait(const Attempt& a, const warden_wire::WardenState& state) const;
  void tell_notices_in_wait(const warden_wire::WardenState& state);
  void hold(Event event);
  std::string room_words() const;
  /// Why no guest can start while the container engine is not to be had.
  std::string engine_words() const;

  // core_coordinator.cc: messages from the coordinator
  void on_message(const wire::Welcome& m);
  void on_message(const wire::Refused& m);
  void on_message(const wire::HeartbeatAck& m);
  void on_message(const wire::Probe& m);
  void on_message(const wire::CancelHold& m);
  void on_message(const wire::Commit& m);
  void on_message(const wire::StopAttempt& m);
  void on_message(const wire::GenerationCommitted& m);
  void on_message(const wire::Grants& m);
  void on_message(const wire::LogAck& m);
  void on_message(const wire::AttemptAck& m);
  void on_message(const wire::ReclaimAck& m);
  void on_message(const wire::CollectGarbage& m);
  void on_message(const wire::TransferRates& m);
  void on_message(const wire::TakeBack& m);
  void on_message(const wire::EditContract& m);
  void on_message(const wire::GangGo& m);
  void on_message(const wire::GangSaved& m);

  template <class Other>
  void on_message(const Other&) {}  // agents' own messages: nobody sends them here

  void on_verdict(const wire::AttemptVerdict& verdict);
  void on_plan(const wire::CopyPlan& plan);
  void list_holdings();
  void send_holdings(const WorkResult& result);
  void note_generation(std::uint32_t generation);
  Attempt* find(const JobId& job, LeaseEpoch epoch);

  // core_warden.cc: the warden's answers and state
  void ask(Attempt& a, Ask kind, warden_wire::Request request);
  void ask_node(Ask kind, warden_wire::Request request, ReclaimId reclaim = {});

  bool is_asking(const Attempt& a, Ask kind) const { return a.asks.contains(kind); }

  void on_answer(const warden_wire::Answer& answer);
  void on_attempt_answer(Attempt& a, Ask kind, const warden_wire::Answer& answer);
  void on_ask_failed(Attempt& a, Ask kind, const warden_wire::Answer& answer);
  void on_state(const warden_wire::WardenState& state);
  bool is_paused_for(const Attempt& a) const;
  void offer_data_sets(const std::vector<std::string>& there);
  void offer_features();  // core_gang_links.cc
  static void note_broken_before(Attempt& a);
  void forget_old_boot(Attempt& a) const;  // core.cc
  void leave_where_unwanted(Attempt& a);   // core_gang.cc
  void tell_grant(const warden_wire::TransfersEdge& edge);
  void on_guest(Attempt& a, const warden_wire::GuestReport* report);
  void clean_strangers(const warden_wire::WardenState& state);
  void time_out_asks();
  void failed_start_step(Attempt& a, const std::string& why);
  bool is_disk_to_come() const;
  void give_up_start(Attempt& a, const std::string& why);
  const ReclaimRecord* cutting_reclaim(const Attempt& a) const;

  // core_start.cc: phases up to running
  void step(Attempt& a);
  void step_phase(Attempt& a);
  void step_start(Attempt& a);
  void on_prepared(Attempt& a, const WorkResult& result);
  void wait_for_holders(Attempt& a, const HoldersAway& away);
  void begin_starting(Attempt& a);
  warden_wire::StartGuest start_request(const Attempt& a) const;
  void on_started(Attempt& a, std::int64_t started_ns);
  void on_adopted(Attempt& a);  ///< in core_gang.cc, as the next
  void count_checkpoint(Attempt& a, std::uint32_t at_least);

  // core_stop.cc: notices, stops, ends
  void order_stop(Attempt& a, StopOrder order);
  void withdraw_stop(Attempt& a, const ReclaimId& reclaim);
  StopOrder stop_order(const ReclaimRecord& record) const;  ///< of a reclaim with notice
  warden_wire::WriteNotice notice(const GuestName& guest, const StopOrder& stop) const;
  void hand_back(Attempt& a);
  void fence(Attempt& a, const std::string& why);
  bool ends_as_orphan(Attempt& a);
  void step_running(Attempt& a);

  // core_stay.cc: who computes on until its last save is due
  bool is_for_later(const ReclaimRecord& record) const;
  double bytes_of_leaving(const Attempt& a) const;
  double leaving_rate() const;
  reclaim::LastMoments last_moments_of(const Attempt& a) const;
  bool puts_off(Attempt& a, const ReclaimRecord& record, const StopOrder& order);
  void leave_by(Attempt& a, const ReclaimRecord& record);
  bool stays(const Attempt& a) const;
  void step_stay(Attempt& a);
  void note_save_in_stay(Attempt& a);
  void hear_departure(Attempt& a, Departure departure);
  std::optional<nanoseconds> stay_left(const Attempt& a, Instant now) const;
  std::string stay_words(const Attempt& a) const;

  void tell_notice(Attempt& a);
  void step_noticed(Attempt& a);
  bool has_saved_enough(const Attempt& a) const;
  void step_saving(Attempt& a);
  void step_ended(Attempt& a);
  void on_gone(Attempt& a, std::optional<std::int32_t> exit_code, bool is_oom_killed);
  void decide_end(Attempt& a, AttemptEnd end, const std::string& detail);
  void after_guest(Attempt& a);
  void drop_disk_users(Attempt& a);
  bool saves_at_end(const Attempt& a) const;
  void set_phase(Attempt& a, Phase phase);
  void emit(Attempt& a);
  void send_events(Attempt& a);
  void end(Attempt& a);
  void forget(const GuestName& name);

  // core_save.cc: generations, copies, outputs
  void step_generations(Attempt& a);
  std::uint32_t snapshot_lanes(const Attempt& a, bool is_final) const;
  void take_snapshot(Attempt& a, bool is_final);
  void on_snapshot(Attempt& a, const WorkResult& result);
  bool tries_last_snapshot_again(Attempt& a, const Error& error);
  void look_for_saves(Attempt& a);
  void look_for_copies(Attempt& a);
  void copies_are_made(Attempt& a);
  void pump_copies(Attempt& a, GenerationRow& generation);
  void pump_ahead(Attempt& a);
  void release_ahead(Attempt& a, const GenerationRef& generation);
  void stop_ahead(Attempt& a);
  void leave_others(Attempt& a);
  void pump_precopy(Attempt& a);
  void stop_precopy(Attempt& a);
  PeerChoice choose_peers(const Attempt& a, const std::vector<Receipt>& receipts) const;
  std::set<std::string> domains_under_way(const Attempt& a) const;
  void begin_copy(Attempt& a, const PeerGrant& peer, GenerationRef generation, bool is_ahead);
  void send_commit(Attempt& a, const GenerationRow& generation);
  void on_copied(Attempt& a, const PendingWork& pending, const WorkResult& result);
  GenerationRow* newest(Attempt& a);
  bool step_draining(Attempt& a);
  void step_publishing(Attempt& a);
  void trim_generations(Attempt& a);

  // core_newest.cc: which of its saves counts for a guest that has to leave
  double leaving_share() const;
  double missing_bytes(const Attempt& a, const GenerationRow& row) const;
  double lacking_bytes(const Attempt& a, const NodeId& peer, std::uint32_t generation) const;
  bool is_nearly_there(const Attempt& a, const PendingWork& pending, const GenerationRow& newer)
      const;
  void leave_older(Attempt& a, const GenerationRow& row);
  std::optional<double> next_save_s(const Attempt& a) const;
  bool waits_for_next_save(const Attempt& a) const;

  // core_transfers.cc: how fast copies and fetches go
  std::uint64_t cap_of(const Attempt& a) const;
  void see_progress(TransferState& transfer, const TransferProgress& seen) const;
  std::vector<Sending> sendings();
  std::optional<nanoseconds> evacuation_left(const Attempt& a) const;
  std::uint64_t estimate(const Attempt& a, const PendingWork& pending) const;
  wire::TransferReport transfer_report(WorkId id, const PendingWork& pending) const;
  reclaim::Transfer copy_to_plan(WorkId id, const PendingWork& pending) const;
  void step_transfers();
  void plan_alone();
  void set_rates(const std::vector<Sending>& all);
  void fit_into_grant(const std::vector<Sending>& all) const;
  void report_transfers();

  // core_outputs.cc: what goes home to the coordinator
  std::optional<nanoseconds> upload_left(const Attempt& a) const;
  std::uint64_t upload_cap(const Attempt& a) const;
  void begin_upload(Attempt& a);
  void note_failed_upload(Attempt& a, const Error& error);
  Sending upload_sending(WorkId id, PendingWork& pending);
  wire::TransferReport upload_report(WorkId id, const PendingWork& pending) const;
  reclaim::Transfer upload_to_plan(WorkId id, const PendingWork& pending) const;

  // core_fetches.cc: what peers fetch here
  void see_fetches(const std::vector<FetchProgress>& seen);
  std::uint64_t connections_of(const ServedFetch& fetch) const;
  void share_rate(const ServedFetch& fetch, const wire::TransferRate& told);
  std::vector<std::vector<ServedFetch*>> fetches_by_ticket();
  reclaim::Transfer fetch_to_plan(const std::vector<ServedFetch*>& one);
  std::vector<wire::FetchReport> fetch_reports() const;
  std::string name_of_claim(const warden_wire::Transfer& claim) const;

  // core_guard.cc: copies that nothing urgent waits for make way when others wait for them
  void see_path(const NodeId& peer, const TransferState& before, const TransferProgress& seen);
  void look_at_paths();
  std::uint64_t slowed(const Sending& one, std::uint64_t wanted);
  std::string slowed_words() const;

  // core_claims.cc: what the warden is told of copies, so that the kernel holds them to their rates
  bool has_edge() const;
  TransferPurpose purpose_of(const PendingWork& pending) const;
  warden_wire::SetTransfers wanted_claims();
  void step_claims();
  void on_claims(const warden_wire::Answer& answer);
  void forget_claims();
  bool waits_for_claim(WorkId id, TransferState& transfer);
  std::string copies_words() const;

  // core_schedule.cc: what the owner is expected to do, and how often it is worth to save
  void on_hazard(const wire::HazardForecast& told);
  std::optional<double> told_hazard() const;
  std::optional<double> known_hazard() const;
  void look_at_risk(Attempt& a);

  // core_uplink.cc: which generation is copied when, and whose turn it is
  double planning_hazard() const;
  std::optional<double> leaves_in_s(const Attempt& a);
  double uplink_rate() const;
  reclaim::ExposedWork exposed_work(const Attempt& a) const;
  double copy_cores(const Attempt& a) const;
  reclaim::CheckpointJob checkpoint_job(const Attempt& a, double hazard) const;
  bool plans_saves(const Attempt& a) const;
  bool takes_turns(const Attempt& a) const;
  void plan_saves();
  /// Seconds between the saves of each.
  std::vector<double> plan_together(
      const std::vector<reclaim::CheckpointJob>& jobs,
      const std::vector<double>& in_force,
      double rate
  );
  GenerationRow* find_generation(Attempt& a, std::uint32_t number);
  bool has_its_copies(const Attempt& a, const GenerationRow& row) const;
  bool can_send(const Attempt& a, const GenerationRow& row) const;
  double remaining_bytes(const Attempt& a) const;
  void adopt_copy(Attempt& a);
  void judge_saves(Attempt& a);
  void let_go(Attempt& a, const GenerationRow& row);
  void choose_turn();
  void stop_copies(Attempt& a);
  GenerationRow* generation_to_copy(Attempt& a);
  bool may_go_ahead(const Attempt& a) const;
  void replace_waiting(Attempt& a);
  void learn_saves(
      Attempt& a, const GenerationRef& before, const GenerationRef& ref, nanoseconds cpu
  );
  void learn_copy(const Attempt& a, const PendingWork& pending, const GenerationCopied& copied);
  std::string cost_words(const Attempt& a) const;
  std::string saving_words(const Attempt& a) const;

  // core_tell.cc: who is told to save, and how
  warden_wire::Request save_request(const Attempt& a) const;
  void tell_to_save(Attempt& a);
  void on_told(Attempt& a, std::uint32_t count);
  void on_told_by_word(Attempt& a, bool is_new);
  void hear_hook(Attempt& a, const HookEnd& end);
  void on_not_told(Attempt& a, ErrorCode code, const warden_wire::Answer& answer);
  void on_told_to_leave(Attempt& a, std::uint32_t count);
  void tell_again(Attempt& a);

  // core_log.cc: logs, works
  void step_log(Attempt& a);
  void on_log(Attempt& a, const WorkResult& result);
  bool is_log_done(const Attempt& a) const;
  WorkId work(Attempt& a, Task task, WorkBody body, NodeId peer = {}, std::uint32_t generation = 0);
  void work_node(Task task, GuestName guest, WorkBody body);
  void cancel_works(Attempt& a, bool also_copies);
  void cancel_work(WorkId id);
  void pump_works();
  void on_work(Attempt& a, const PendingWork& pending, const WorkResult& result);
  bool may_work(const Attempt& a, Task task) const;
  void retry_work(Attempt& a, Task task);

  // core_reclaim.cc: reclaims, lending, leaving
  void on_reclaims(const std::vector<ReclaimRecord>& records);
  void apply_reclaim(const ReclaimRecord& record);
  void report_reclaims();
  void step_evacuations();
  void refresh_conditions();
  bool are_guests_gone();
  void step_leaving();
  void drop_cut(Attempt& a);
  bool covers(const ReclaimRecord& record, const Attempt& a) const;
  bool is_evacuated(const Attempt& a) const;
  void write_reclaim(const ReclaimRow& row);

  // core_orders.cc: what the owner takes back from afar
  void note_beat();
  Instant end_of(std::uint64_t beat_seq, std::uint32_t valid_ms) const;
  std::string unknown_gpus(const wire::TakeBack& order) const;
  void carry_out(TakeBackOrder& order);
  TakeBackOrder* find_order(const std::string& id);
  void answer_order(TakeBackOrder& order, OrderOutcome outcome, std::string message);
  void answer_order(TakeBackOrder& order, const ReclaimId& reclaim);
  void tell_order(TakeBackOrder& order);
  void on_order_answer(const std::string& id, const warden_wire::Answer& answer);
  bool hears_order_in_wait(const Event& event);
  void settle_kills();
  void doubt_orders(const char* why, nanoseconds older_than);
  void tell_orders();
  bool has_open_orders() const;

  // core_contract.cc: edits of the contract from afar
  ContractEditing* find_edit(const std::string& id);
  ContractEditing& note_edit(const std::string& id);
  void answer_edit(const std::string& id, EditState state, std::string message);
  void tell_edit(const ContractEditing& edit);
  void tell_edits();
  bool is_refused(const wire::EditContract& m);
  bool is_in_conflict(const wire::EditContract& m);
  void propose(const wire::EditContract& m);
  void drop_proposal(EditState state, std::string message);
  void settle_edit(const std::string& edit);
  void step_proposal();
  void take_contract(const Contract& contract, std::int32_t utc_offset_s);

  // core_lending.cc: what the contract takes back by itself
  struct Closing {
    std::string reason;
    nanoseconds left;
  };

  void step_lending();
  void announce(const warden_wire::Announce& wanted);
  warden_wire::Announce wanted_announcement(const std::optional<Closing>& closing);
  std::optional<Closing> closing();
  bool is_calendar_fresh(const std::optional<Calendar>& seen) const;
  Calendar look_at(const Contract& contract) const;
  const Calendar& calendar();
  const Calendar& gpu_calendar(std::uint32_t gpu);
  std::uint32_t closes_in_s(const Calendar& windows) const;
  std::uint32_t closes_in_s();
  std::string taken_because() const;

  // core_gpus.cc: single GPUs that go back by themselves
  GpuWatch& watch_of(std::uint32_t gpu);
  void note_gpus();
  GpuHealth& health_of(std::uint32_t gpu);
  void note_health(const std::vector<GpuSigns>& signs);
  void note_heat(GpuWatch& watch);
  void judge_health(std::uint32_t gpu, GpuWatch& watch);
  void show_health();
  std::string gpu_leaves_because(std::uint32_t gpu, const GpuWatch& watch) const;
  bool is_gpu_free_again(std::uint32_t gpu, const GpuWatch& watch) const;
  bool has_guest_on(std::uint32_t gpu) const;
  void announce_gpu(GpuWatch& watch, const warden_wire::AnnounceGpu& wanted);
  bool is_gpu_settled(const ReclaimId& id) const;
  std::optional<Closing> gpu_closing(std::uint32_t gpu, const GpuWatch& watch);
  warden_wire::AnnounceGpu wanted_of_gpu(
      std::uint32_t gpu, const GpuWatch& watch, const std::optional<Closing>& why
  );
  void step_gpu(std::uint32_t gpu, GpuWatch& watch);
  void step_gpus();
  std::vector<arbiter::GpuWindow> gpu_windows();
  void show_gpu_windows(NodeTelemetry& telemetry) const;
  bool is_announced(const ReclaimId& id) const;

  CoreConfig config_;
  Rng& rng_;
  Now now_{};
  Output out_;

  arbiter::Arbiter arbiter_;
  Contract contract_;
  NodeFacts facts_;
  NodeTelemetry telemetry_;
  std::uint64_t idle_s_ = 0;
  std::optional<Instant> telemetry_at_;  ///< of the newest sample
  std::int32_t utc_offset_s_ = 0;

  Attempts attempts_;
  NodeRow node_;
  bool is_node_dirty_ = false;

  bool is_started_ = false;
  Instant started_at_{};
  bool is_connected_ = false;
  bool is_hello_sent_ = false;
  bool is_welcome_ = false;
  Instant welcomed_at_{};
  bool is_hello_outdated_ = false;  ///< facts or contract changed before it was answered
  std::string refusal_;             ///< the coordinator's newest, until it welcomes us
  milliseconds heartbeat_every_{5000};
  std::uint32_t lost_after_ = 3;
  std::int64_t clock_offset_ms_ = 0;
  std::uint64_t heartbeat_seq_ = 0;
  Instant heartbeat_at_{};
  LendingState told_lending_ = LendingState::kNotLending;  ///< in the newest heartbeat
  Instant heard_at_{};
  wire::HazardForecast hazard_;  ///< the newest that was told, counted from hazard_at_
  Instant hazard_at_{};
  std::optional<Instant> planned_at_;
  reclaim::IntervalPlanner intervals_{kIntervalLimits};
  std::optional<GuestName> turn_;  ///< whose copy has the uplink; none = nobody's, or no plan
  double uplink_bytes_per_s_ = 0;  ///< measured; 0 = not yet
  reclaim::CopyCost sending_;      ///< to one peer

  bool is_warden_connected_ = false;
  bool is_reconciled_ = false;  ///< the warden's state was seen since it connected
  bool was_reconciled_ = false;
  warden_wire::WardenState warden_;
  std::string missing_data_sets_;          ///< that were told of
  std::vector<std::string> own_features_;  ///< of NodeFacts, without the warden's word
  std::optional<Instant> engine_gone_since_;
  std::uint64_t next_ask_ = 1;
  std::map<std::uint64_t, PendingAsk> asks_;
  std::map<GuestName, Instant> strangers_;  ///< asked to be removed, and when

  WorkId next_work_ = 1;
  std::map<WorkId, PendingWork> works_;
  std::deque<Work> queue_;

  std::map<WorkId, ServedFetch> fetches_;  ///< under way, as they were measured last

  reclaim::RatePlanner planner_{reclaim::LinkGuard{}, config_.rates};  ///< of the node alone
  Instant planned_alone_at_{};
  std::uint64_t foreign_bps_ = 0;
  std::map<NodeId, PathToPeer> paths_;  ///< seen in the last ten minutes
  Instant paths_looked_at_{};
  std::set<WorkId> told_transfers_;  ///< in the newest report
  bool is_evacuating_told_ = false;  ///< and it had a deadline
  Instant transfers_told_at_{};
  nanoseconds rates_valid_{0};

  std::optional<warden_wire::SetTransfers> claims_;        ///< that the warden has taken
  std::optional<warden_wire::SetTransfers> claims_asked_;  ///< under way
  Instant claims_asked_at_{};
  bool is_claim_void_ = false;  ///< the warden that is connected takes none
  std::string claims_refusal_;  ///< the newest, as told
  warden_wire::TransferCounts transfer_counts_;

  std::deque<SentBeat> beats_;        ///< the newest ones of this connection
  std::deque<TakeBackOrder> orders_;  ///< the newest ones, oldest first

  std::string contract_version_;
  std::deque<ContractEditing> edits_;  ///< the newest ones, oldest first
  std::string edit_in_use_;            ///< the shell puts it in force now; empty: none
  std::optional<ContractProposal> proposal_;
  bool is_proposal_dirty_ = false;

  std::map<ReclaimId, ReclaimRow> reclaims_;
  std::map<ReclaimId, Instant> reclaim_sent_at_;
  std::map<ReclaimId, Instant> evacuated_sent_at_;
  warden_wire::Announce announcement_;  ///< as the warden shall hold it; deadline 0 = none
  std::optional<warden_wire::Announce> announce_sent_;
  Instant announce_sent_at_{};
  std::map<std::uint32_t, GpuWatch> gpu_watches_;
  std::optional<Calendar> calendar_;
  std::map<std::uint32_t, std::optional<Calendar>> gpu_calendars_;  ///< of GPUs with own windows
  std::optional<JournalWait> wait_;
  bool is_left_ = false;
  bool is_disowned_ = false;  ///< the coordinator takes this identity for no node's any more
  std::optional<Instant> only_remains_since_;  ///< a node that leaves: of guests that have ended
};

/// The coordinator's word for a phase.
AttemptState state_of(Phase phase);
bool has_guest(Phase phase);  ///< a container may be running
/// "40 min", "3 h", "2 days": rough, so that the same words stay for a while.
std::string rough_duration(double duration_s);
/// The same, and below a minute in seconds: for what is said once.
std::string told_duration(double duration_s);
/// A guest's own words, for people's terminals: at most so long, no control characters.
std::string readable(std::string_view text, std::size_t longest = 200);

}  // namespace rn::agent
