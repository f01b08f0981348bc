// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's memory, shared by its parts (registry, commands, placement, job_life, copies, usage,
// home). Each part is a set of functions over State; nobody outside the core includes this.
// Everything is ordered (std::map), so that equal inputs give equal outputs.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "coordinator/core_gpu_hours.h"
#include "coordinator/core_paths.h"
#include "coordinator/core_types.h"
#include "coordinator/states.h"
#include "coordinator/transfer_book.h"
#include "model/api.h"
#include "reclaim/evacuation.h"
#include "reclaim/hazard.h"
#include "sched/candidates.h"
#include "sched/fair_share.h"
#include "sched/survival.h"
#include "sched/use_window.h"

namespace rn::coordinator {

using AttemptKey = std::pair<JobId, LeaseEpoch>;

/// p99 of the last 128 durations.
class Latency {
 public:
  explicit Latency(milliseconds first) : first_(first) {}

  void add(nanoseconds value);
  /// `first` while fewer than 8 are known.
  nanoseconds p99() const;

 private:
  milliseconds first_;
  std::array<std::int64_t, 128> ring_{};
  std::size_t count_ = 0;
};

struct Connection {
  NodeId node;
  Digest public_key{};
  std::string remote;
  bool is_greeted = false;  ///< hello was accepted
};

/// Sums of one node's telemetry in the running bucket.
struct RollupSums {
  RollupRow row;  ///< sums until it is closed
  std::uint32_t lending = 0;
};

struct NodeEntry {
  NodeRow row;
  std::string contract_version;  ///< as it says; empty: not yet, or an older agent
  ContractProposal proposal;     ///< that waits there
  ConnectionId connection = 0;   ///< 0 = none
  Instant heard;                 ///< last message, or the coordinator's start
  bool is_expected = true;       ///< may still come back before it is lost
  bool was_greeted = false;      ///< welcomed by this process, so it knows this generation from us
  LendingState lending = LendingState::kNotLending;
  NodeTelemetry telemetry;
  std::int64_t clock_offset_ms = 0;
  /// When a living connection of this node met another one with its identity; the newest ones.
  std::vector<Instant> contested;
  Instant open_since;  ///< since when it takes guests; meaningful while lending is open
  Instant accounted;   ///< exposure is counted up to here
  nanoseconds unsaved_exposure{0};  ///< below a second
  sched::SurvivalCurve outlook;     ///< how likely it stays, as seen at outlook_at
  double departures_per_day = 0;    ///< the hazard then
  Instant outlook_at;
  wire::HazardForecast forecast;     ///< of the same instant, for the agent; without leaves_in_s
  wire::HazardForecast told_hazard;  ///< what the agent knows
  Instant hazard_told_at;
  ConnectionId hazard_told_on = 0;
  std::optional<Now> closed;            ///< stopped lending, and why is not yet known
  std::int64_t announced_leave_ms = 0;  ///< wall clock; 0 = nothing announced
  std::int64_t announced_ahead_ms = 0;  ///< how long before that it was announced
  std::int64_t window_ends_ms = 0;      ///< the same, of its lending window
  std::set<AttemptKey> attempts;        ///< live ones
  std::map<ProbeId, Resources> probes;  ///< asked, not answered or held
  std::set<JobId> copies_of;            ///< jobs whose generations it may hold
  std::map<JobId, std::uint32_t>
      collecting;                   ///< job-over garbage told on this connection; heartbeats since
  std::uint64_t precopy_bytes = 0;  ///< sent ahead since precopy_since
  Instant precopy_since;
  double restore_s = 10;  ///< from a lease to the first step: what it took lately
  RollupSums rollup;
  std::optional<Instant> health_noted;  ///< when its owners were told of its GPUs last
  std::optional<Instant> clock_noted;   ///< and that its clock is apart from ours
  bool is_clock_apart = false;          ///< as they were told
  std::optional<Instant> empty_since;   ///< no guest runs
  ReclaimId lost_record;                ///< our own record of its present absence
  std::uint64_t beat = 0;               ///< its newest heartbeat, of beat_at, which came by beat_on
  Instant beat_at;
  ConnectionId beat_on = 0;
};

/// An owner's order to take back, and its memory (core_orders.cc).
struct OrderEntry {
  ReclaimOrder row;
  Instant made;   ///< or our start
  Instant until;  ///< it is not begun later
};

/// An owner's edit of a contract (core_contracts.cc), without the contract.
struct EditEntry {
  ContractEdit row;
  std::string content;  ///< a digest of all that was said
  Instant made;
  Instant until;  ///< the node does not take it later
};

/// A live attempt, or the newest one of a job.
struct AttemptEntry {
  AttemptRow row;
  bool is_granted = false;  ///< the node said that it holds the lease
  bool was_noticed = false;
  std::optional<wire::Commit> commit;  ///< repeated until answered
  Instant commit_sent;
  Instant since;  ///< lease, or our start
  Instant state_since;
  Instant running_since;  ///< heard of it on the own clock; epoch (0) = never, or before our start
  AttemptEnd reported_end = AttemptEnd::kNone;
  std::int64_t since_save_ms = -1;  ///< AttemptReport::since_save_ms, of since_save_told
  Instant since_save_told;
  std::string save_trouble;             ///< its node's newest word; empty = none
  std::string saving;                   ///< AttemptReport::saving
  std::vector<std::uint32_t> gpus;      ///< AttemptReport::gpus
  std::vector<NodeId> waits_for;        ///< AttemptReport::waits_for, as far as it is believed
  bool is_wait_told = false;            ///< in the history already
  std::set<std::string> told_troubles;  ///< in the history already; bounded
  std::uint32_t beats_absent = 0;       ///< heartbeats in a row that did not mention it
  bool is_fencing_said = false;
  wire::CopyPlan plan;
  Instant plan_made;
  NodeId next;  ///< where it would go on if its node were taken back; empty: that is not expected
  std::int64_t tickets_expire_wall_ms = 0;
  std::string shortfall;
  std::string evacuation;    ///< the newest word on whether a copy of it arrives in time, for `why`
  std::uint64_t cpu_ms = 0;  ///< AttemptReport::cpu_ms
  bool is_visited = false;   ///< AttemptReport::is_visited
  std::uint64_t cpu_seen_ms = 0;  ///< as it was at cpu_seen
  Instant cpu_seen;
  std::optional<double> cores_milli;    ///< that it uses; nullopt: nobody knows
  std::optional<sched::UseWindow> use;  ///< of its GPUs, or its cores (core_idle.h)
  std::optional<sched::UseWindow>
      use_to_stop;   ///< the same, over the time after which it is stopped
  Instant use_seen;  ///< the newest sample; epoch (0): none
  std::optional<wire::AttemptEvent> held_end;  ///< waits for the check of the outputs
  bool is_checking_outputs = false;
  AttemptState ended_in = AttemptState::kLeased;  ///< what it did when its end was told

  bool is_live() const { return row.attempt.state != AttemptState::kEnded; }
};

/// A node that was asked for a job.
struct Asked {
  enum class Phase : std::uint8_t { kWaiting, kOffered, kOver };

  ProbeId probe;
  NodeId node;
  ConnectionId connection = 0;
  Phase phase = Phase::kWaiting;
  HoldId hold;
  Instant asked_at;
  Instant hold_until;
  double score = 0;
  std::uint32_t cpu_milli = 0;
  std::string because;
};

struct Placement {
  std::vector<Asked> asked;  ///< best first
  Instant choose_at;         ///< with whatever offers there are then
  Instant give_up_at;
  bool is_degraded = false;
};

struct Refusal {
  std::string reason;
  bool is_permanent = false;
  Instant until;  ///< not asked again before
};

struct JobEntry {
  JobRow row;
  std::optional<Placement> placement;
  std::map<NodeId, Refusal> refusals;  ///< bounded by the number of nodes
  std::uint32_t commits_lost = 0;      ///< in a row
  std::set<NodeId> awaited;            ///< holders that gave no word to its newest attempt
  bool is_want_told = false;           ///< the owners of the one lab that could take it know
  bool is_away_told = false;           ///< that no holder is there is in the history already
  Instant state_since;
  Instant stop_sent;
  Instant home_judged;
  std::string demand_key;     ///< of the scheduler's pass; made when first asked
  GenerationRef of_set;       ///< of a gang's member: what its gang's set has of it
  std::string home_sentence;  ///< the newest judgement on going home, for `why`
};

/// What is known of a gang's member beside its job.
struct GangMember {
  Instant heard_bare;         ///< its agent said then that it had found no checkpoint; 0 = never
  bool has_found = false;     ///< it has found one
  bool ended_bare = false;    ///< its node told its end, and that it had found none
  bool is_stop_told = false;  ///< by us, not by its owner
  Instant go_sent;
  std::uint32_t links_broken = 0;  ///< AttemptReport::links_broken, the most that was told
  Instant greeted;                 ///< its agent came anew after all were told to go; 0 = never
};

/// Of a gang in its newest epoch, beside its row; begun anew with each (core_gang_life.h).
struct GangLife {
  LeaseEpoch epoch;
  std::vector<GangMember> members;  ///< by rank
  Instant stop_until;               ///< all are to have left by then
  Instant stop_sent;
  Instant crashed_at;           ///< of a cause that is not clear yet
  bool is_saved = false;        ///< all who save have: nobody waits for the deadline
  bool is_no_set_told = false;  ///< that the marks do not meet is in the history
  std::map<std::uint32_t, Instant> durable_at;  ///< rank 0's generations that are in no set yet
};

/// Tasks of an array, by the numbers of their jobs.
struct ArrayEntry {
  std::map<std::uint64_t, JobId> tasks;  ///< those that are remembered
  std::set<std::uint64_t> in_turn;       ///< held, and for their turn alone
  std::uint32_t released = 0;            ///< neither held nor over
};

/// The places of a gang that is asked for, by rank. Memory alone: holds run out by themselves.
struct GangRound {
  std::vector<Asked> seats;
  Instant began;
  std::uint32_t replaced = 0;  ///< members for whom another node was asked
};

/// What belongs to all members of a gang; each is a job of its own beside it.
struct GangEntry {
  GangRow row;
  std::optional<GangRound> round;
  Instant not_before;     ///< no round before; after one in vain
  Instant vain_since;     ///< since when it is tried in vain; epoch (0): it is not
  std::string waits_for;  ///< why it is not placed, as of the newest pass
  Instant state_since;
};

/// Places that become free are kept for one gang, until there are enough of them together.
struct GangGathering {
  GangId gang;
  Instant since;
  Instant counted;                       ///< what it costs is counted up to here
  std::map<NodeId, std::uint32_t> kept;  ///< members for whom there is room
  std::uint32_t most = 0;                ///< so many there were together
};

/// A job whose node is taken back or lost, until it runs elsewhere (core_evacuation.h).
struct Evacuation {
  NodeId source;
  ReclaimId reclaim;
  Instant deadline;    ///< of its source
  Instant kept_until;  ///< until then its place at the destination is kept free
  Instant first_chosen_at;
  Instant chosen_at;
  Instant waits_since;             ///< in the queue; epoch (0): its attempt is there yet
  bool is_stranded = false;        ///< nothing can be copied from its source any more
  bool is_announced = false;       ///< its owner said when they come: it may stay until then
  bool may_return = false;         ///< to its source, should that be open by then
  bool is_beyond = false;          ///< of those that are not chosen for, and told so
  std::uint32_t tries = 0;         ///< destinations that did not take it while it waited
  NodeId destination;              ///< empty: nobody can take it now
  NodeId holder;                   ///< of what it saves last; empty: nowhere
  std::set<NodeId> refused_guest;  ///< bounded by the number of nodes
  std::set<NodeId> refused_copy;
  std::set<NodeId> too_late;  ///< copies to them were not promised, and broken off
  std::uint32_t moves = 0;    ///< so often
  std::uint32_t told = 0;     ///< events of it so far
  api::EvacuationView view;   ///< the newest choice; without a way before the first
};

struct State {
  State(const Config& config_in, const SiteKeys& keys_in, Rng& rng_in)
      : config(config_in),
        keys(keys_in),
        rng(rng_in),
        hazard(
            {.utc_offset_s = config_in.utc_offset_s,
             .is_constant = config_in.study.is_hazard_constant}
        ) {}

  const Config config;
  const SiteKeys keys;
  Rng& rng;

  // ---- of the event being handled
  Now now{};
  Output output;

  // ---- state
  std::uint32_t generation = 0;
  std::uint64_t next_job_number = 1;
  Instant grace_until;
  bool is_restored = false;
  bool is_dispatch_wanted = false;
  Instant dispatched_at;
  Instant silence_looked_at;
  Instant stood_still_until;  ///< this process, the last time that it did
  nanoseconds stood_still{0};
  Instant usage_accounted_at;
  Instant usage_saved_at;
  Instant lent_saved_at;
  bool is_usage_new = false;  ///< something was charged since it was saved
  Instant homes_judged_at;
  Instant wanted_looked_at;

  std::map<ConnectionId, Connection> connections;
  std::map<NodeId, NodeEntry> nodes;
  std::map<JobId, JobEntry> jobs;
  std::map<std::uint64_t, JobId> jobs_by_number;
  std::map<std::pair<UserId, std::string>, JobId> jobs_by_key;
  std::set<JobId> unfinished;
  std::set<JobId> queued;
  std::set<JobId> held;  ///< unfinished, and not in the queue: they wait for others
  std::map<std::string, std::set<JobId>> waiters;  ///< who waits for the job or array of this id
  std::map<std::string, ArrayEntry> arrays;
  std::map<GangId, GangLife> gang_lives;
  std::map<GangId, std::uint32_t> gang_aborts;  ///< in a row, before they were told to go
  std::set<GangId> stirred;  ///< in this event something has happened to a member of theirs
  std::vector<JobId> moved;  ///< began to run or ended in this event: others may wait for that
  std::set<JobId> placing;   ///< between probe and lease
  std::map<UserId, std::uint32_t> unfinished_of;
  std::map<UserId, std::int64_t> served_wall_ms;  ///< when a job of theirs last went to a node
  std::map<AttemptKey, AttemptEntry> attempts;
  std::map<JobId, std::map<std::uint32_t, GenerationRow>> generations;
  std::map<std::pair<NodeId, ReclaimId>, ReclaimRow> reclaims;  ///< by keep() alone
  std::set<std::pair<NodeId, ReclaimId>> open_reclaims;         ///< those that are not over
  std::map<std::string, Image> images;
  std::map<std::string, TokenRow> tokens;
  std::map<Digest, std::string> token_by_secret;
  std::map<UserId, UserRow> users;
  std::map<ProbeId, JobId> probes;
  reclaim::HazardModel hazard;
  Now hazard_seen{};        ///< both clocks at the last look
  NodeId hazard_looked_to;  ///< the last node whose outlook was made anew
  Instant hazard_refitted_at;
  std::map<GangId, GangEntry> gangs;
  std::set<GangId> open_gangs;  ///< those that are not over
  std::optional<GangGathering> gathering;
  GangId next_gang;  ///< to which the newest pass has not come; empty: it came to all
  std::map<JobId, Evacuation> evacuations;
  std::set<std::string> evacuation_causes;  ///< why they are chosen anew; empty: they are not
  bool is_choice_put_off = false;           ///< who waits is chosen for after the grace time
  Instant evacuations_looked_at;
  reclaim::ForecastTrust trust;
  PathRates path_rates;
  std::int64_t hazard_reference_ms = 0;  ///< of the rows on the disk; 0 = there are none
  std::set<LabId> labs_departed;         ///< of nodes that departed in this event
  std::set<LabId> labs_saved;            ///< their hazards have rows
  std::map<UserId, std::pair<LabId, sched::DecayedSum>> used;
  std::map<LabId, sched::DecayedSum> used_by_lab;
  std::map<LabId, sched::DecayedSum> lent_by_lab;
  std::map<std::pair<std::string, std::string>, Quota> quotas;  ///< by subject and model
  GpuHours gpu_hours;
  Latency probe_latency{milliseconds(250)};
  Latency commit_latency{milliseconds(250)};
  TransferBook transfers;
  std::vector<OrderEntry> orders;  ///< oldest first; those of the last minutes
  std::vector<EditEntry> edits;    ///< the same, and what waits on its node
  Metrics metrics;
  States told;  ///< what the events say (I12)

  // ---- small steps that everybody takes
  std::int64_t wall_ms() const { return to_ms(now.wall); }

  nanoseconds heartbeat() const { return milliseconds(config.heartbeat_ms); }

  /// Silence after which a node is lost: lost_after beats, and half of one for the way.
  nanoseconds lost_after() const { return heartbeat() * config.lost_after + heartbeat() / 2; }

  void write(Write write) { output.writes.push_back(std::move(write)); }

  void act(Effect effect) { output.effects.push_back(std::move(effect)); }

  /// Dropped if the node has no connection.
  void send(const NodeEntry& node, wire::Message message);
  void send(const NodeId& node, wire::Message message);

  void save(const JobEntry& job) { write(PutJob{job.row}); }

  void save(const AttemptEntry& attempt) { write(PutAttempt{attempt.row}); }

  void save(const NodeEntry& node) { write(PutNode{node.row}); }

  void save(const GangEntry& gang) { write(PutGang{gang.row}); }

  /// In memory: the row of a reclaim, new or in place of the one before.
  void keep(ReclaimRow row);

  using EventData = std::map<std::string, std::string>;
  void note(const JobEntry& job, std::string kind, std::string message, EventData data = {});
  void note(const NodeEntry& node, std::string kind, std::string message, EventData data = {});

  /// The only way in which a job changes its state (I12). Keeps the indices, saves the row.
  void move(JobEntry& job, JobState to, std::string reason);
  /// The same without a row: between queued and placing while only probes are out.
  void move_unsaved(JobEntry& job, JobState to, std::string reason);

  /// The only way in which a gang changes its state. Keeps the indices, saves the row.
  void move(GangEntry& gang, GangState to);

  /// A held job, or the task of an array, enters its indices; and leaves them when it is over.
  void enter_waits(const JobEntry& job);
  void leave_waits(const JobEntry& job);

  JobEntry* find_job(const JobId& id);
  NodeEntry* find_node(const NodeId& id);
  GangEntry* find_gang(const GangId& id);
  /// The gang of which the job is a member; nullptr of any other job.
  GangEntry* gang_of(const JobEntry& job);
  /// It is in the queue, by itself or with its gang.
  bool is_waiting(const JobEntry& job) const;
  /// Where a member is asked for in a round; nullptr if it is not.
  const Asked* seat_of(const JobEntry& job) const;
  /// The attempt of exactly this epoch, if it is in memory.
  AttemptEntry* find_attempt(const JobId& id, LeaseEpoch epoch);
  /// The attempt with the job's newest epoch, live or not; nullptr before the first.
  AttemptEntry* newest_attempt(const JobEntry& job);
  /// I3: this epoch's effects still count. True until a successor's epoch is issued, also while the
  /// node is lost or its job waits in the queue again, and false for a job that is over.
  bool is_current(const JobId& id, LeaseEpoch epoch);

  bool is_in_grace() const { return now.boot < grace_until; }

  bool is_up(const NodeEntry& node) const {
    return node.connection != 0 && node.row.state == NodeState::kUp;
  }

  /// "lab/hostname" of a node, for people.
  std::string name_of(const NodeId& node) const;
  /// Adds a job to all indices.
  JobEntry& adopt(JobRow row);
  GangEntry& adopt(GangRow row);
  void forget_old_jobs();
  /// The output is whole: what it changes gets its events.
  Output take_output();
};

/// What the scheduler sees of a node: capacity less what is known to run, to be asked for, or to be
/// kept for evacuations, but for what the jobs `without` have there.
sched::Candidate candidate_of(
    const State& state, const NodeEntry& node, const std::set<JobId>& without = {}
);
/// Places that are kept for a gang count as used, unless it is for whom they are kept, or who may
/// have them all the same.
std::vector<sched::Candidate> candidates_of(const State& state, bool may_have_kept = false);
/// Adds what is kept on it for a gang that is gathered.
void count_kept(const State& state, sched::Candidate& candidate);
sched::Demand demand_of(const JobEntry& job);
/// Given back, or known from silence alone: it takes nothing from anybody any more.
bool is_over(const ReclaimRecord& record);
/// Number with `digits` decimals, for people.
std::string decimal(double value, int digits);
std::string short_duration(std::int64_t ms);

}  // namespace rn::coordinator
