// SPDX-License-Identifier: Apache-2.0
#pragma once

// Messages between coordinator and agents (one outbound WebSocket per agent, CBOR,
// docs/formats/wire.md). Only durations and boot-time stamps of the sender cross the wire where
// order matters; wall times are for people. Every message that has an effect carries the lease
// epoch; requests are idempotent, so sending one again is always safe.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "model/checkpoint.h"
#include "model/contract_edit.h"
#include "model/job.h"
#include "model/node.h"
#include "model/reclaim.h"
#include "model/wire_gangs.h"
#include "model/wire_transfers.h"

namespace rn {

/// kSaveFirst lets the guest save until the deadline (migrate-back, stop); kFenced: the epoch is
/// stale, stop at once.
enum class StopMode : std::uint8_t { kSaveFirst, kAtOnce, kFenced };
RN_ENUM(StopMode, "save_first", "at_once", "fenced")

/// Of an attempt whose node is taken back later: somebody can take its job, or nobody can now.
enum class Departure : std::uint8_t { kUntold, kGoes, kStays };
RN_ENUM(Departure, "untold", "goes", "stays")

/// What a node did with an order to take back. Unclear: its warden was asked and has not answered.
enum class OrderOutcome : std::uint8_t { kTaken, kRefused, kLate, kUnclear };
RN_ENUM(OrderOutcome, "taken", "refused", "late", "unclear")

}  // namespace rn

namespace rn::wire {

inline constexpr std::uint32_t kProtocol = 1;
inline constexpr std::uint32_t kOldestProtocol = 1;
inline constexpr std::size_t kMaxMessageBytes = 4u << 20;

// ---- agent → coordinator
// ----------------------------------------------------------------------------------------

/// What a node knows of an attempt it holds; reconciliation compares it with the coordinator's
/// rows.
struct AttemptReport {
  JobId job;
  LeaseEpoch epoch;
  AttemptState state = AttemptState::kLeased;
  AttemptEnd end = AttemptEnd::kNone;
  std::int32_t exit_code = 0;
  std::string detail;
  std::uint32_t safe_generation = 0;  ///< newest complete on the node's own disk
  std::int64_t step = -1;
  std::int64_t since_save_ms = -1;  ///< age of the newest safe generation; -1 = none yet
  /// Why what the guest writes is not saved, and what its author can do; empty = nothing is known.
  std::string save_trouble;
  std::string saving;  ///< how often its saves go elsewhere, what waits, and why; empty = at once
  std::vector<std::uint32_t> gpus;  ///< by index; an older agent says none
  /// Its generation cannot be put back now: these holders give no word, and nobody else has it
  /// whole. With the end `refused`: that is why.
  std::vector<NodeId> waits_for;
  /// The most that its guest was seen to hold, now and then: short peaks are missed. 0 = not known,
  /// and so of an older agent.
  std::uint64_t memory_peak_mib = 0;
  std::uint64_t gpu_memory_peak_mib = 0;  ///< on all its GPUs together
  std::uint32_t checkpoints_found = 0;    ///< whole ones that were seen in this epoch
  std::uint32_t links_broken = 0;  ///< links of this attempt that the agent broke or could not open
  /// Processor time of its guest since it began here. 0 = not known, and so of an older agent.
  std::uint64_t cpu_ms = 0;
  bool is_visited = false;  ///< a tunnel into it is open now

  RN_FIELDS(
      AttemptReport,
      job,
      epoch,
      state,
      end,
      exit_code,
      detail,
      safe_generation,
      step,
      since_save_ms,
      save_trouble,
      saving,
      gpus,
      waits_for,
      memory_peak_mib,
      gpu_memory_peak_mib,
      checkpoints_found,
      links_broken,
      cpu_ms,
      is_visited
  )
};

/// First message of every connection.
struct Hello {
  std::uint32_t protocol = kProtocol;
  std::uint32_t oldest_protocol = kOldestProtocol;
  std::string version;
  NodeId node;
  std::string machine_id;  ///< hash of the machine's own identifier: a clone of the identity on
                           ///< another machine is refused
  std::string boot_id;
  LabId lab;
  NodeAddress address;
  NodeFacts facts;
  Contract contract;
  LendingState lending = LendingState::kOpen;
  std::vector<AttemptReport> attempts;   ///< every attempt that is not yet acknowledged as ended
  std::vector<ReclaimRecord> reclaims;   ///< every reclaim that is not yet acknowledged as returned
  std::uint32_t highest_generation = 0;  ///< highest LeaseEpoch::generation ever seen (I4)
  std::int64_t wall_ms = 0;
  Digest box_key{};     ///< X25519 public key for sealed job keys
  Digest verify_key{};  ///< Ed25519 public key of manifests and receipts
  std::string
      contract_version;       ///< names this contract among all of the node's; an older agent: ""
  ContractProposal proposal;  ///< that waits for somebody at the machine; no id: none

  RN_FIELDS(
      Hello,
      protocol,
      oldest_protocol,
      version,
      node,
      machine_id,
      boot_id,
      lab,
      address,
      facts,
      contract,
      lending,
      attempts,
      reclaims,
      highest_generation,
      wall_ms,
      box_key,
      verify_key,
      contract_version,
      proposal
  )
};

struct Heartbeat {
  std::uint64_t seq = 0;
  LendingState lending = LendingState::kOpen;
  NodeTelemetry telemetry;
  std::vector<AttemptReport> attempts;
  std::int64_t wall_ms = 0;
  std::uint32_t closes_in_s = 0;  ///< end of the lending window; 0 = none within a week

  RN_FIELDS(Heartbeat, seq, lending, telemetry, attempts, wall_ms, closes_in_s)
};

/// Facts, contract or addresses changed.
struct NodeUpdate {
  NodeFacts facts;
  Contract contract;
  NodeAddress address;
  std::string contract_version;  ///< as in Hello
  ContractProposal proposal;

  RN_FIELDS(NodeUpdate, facts, contract, address, contract_version, proposal)
};

struct ProbeReply {
  ProbeId probe;
  JobId job;
  HoldId hold;  ///< empty = refused
  std::uint32_t ttl_ms = 0;
  std::string reason;           ///< of a refusal, for `why`
  bool is_permanent = false;    ///< the node can never take this job (too small, not allowed)
  std::uint32_t cpu_milli = 0;  ///< what it would grant
  bool has_image = false;

  RN_FIELDS(ProbeReply, probe, job, hold, ttl_ms, reason, is_permanent, cpu_milli, has_image)
};

struct CommitReply {
  HoldId hold;
  JobId job;
  LeaseEpoch epoch;
  bool is_granted = false;
  std::uint32_t lease_ms = 0;
  std::string reason;

  RN_FIELDS(CommitReply, hold, job, epoch, is_granted, lease_ms, reason)
};

/// A change in an attempt's life. `seq` counts per attempt from 1; the agent repeats it until
/// acknowledged.
struct AttemptEvent {
  AttemptReport report;
  std::uint64_t seq = 0;
  std::int64_t at_boot_ns = 0;
  std::int64_t at_wall_ms = 0;

  RN_FIELDS(AttemptEvent, report, seq, at_boot_ns, at_wall_ms)
};

/// Asks for the conditional row that makes a generation durable. Repeated until answered; survives
/// restarts of both sides.
struct CommitGeneration {
  GenerationRef generation;
  std::vector<Receipt> receipts;

  RN_FIELDS(CommitGeneration, generation, receipts)
};

/// Asks for peers to copy a generation to (none of the planned ones answered), or to fetch one
/// from.
struct GrantRequest {
  JobId job;
  LeaseEpoch epoch;
  TicketAction action = TicketAction::kStore;
  std::vector<NodeId> tried;

  RN_FIELDS(GrantRequest, job, epoch, action, tried)
};

struct LogAppend {
  JobId job;
  LeaseEpoch epoch;
  std::uint64_t offset = 0;
  Blob bytes;

  RN_FIELDS(LogAppend, job, epoch, offset, bytes)
};

/// Outputs are in the blob store (PUT by the agent over REST); publish them. Repeated until
/// answered by AttemptAck with seq 0 (the row is durable, or refused as stale). The end of the
/// attempt is reported afterwards; a job without outputs reports its end at once.
struct PublishOutputs {
  JobId job;
  LeaseEpoch epoch;
  Digest listing{};

  RN_FIELDS(PublishOutputs, job, epoch, listing)
};

/// Repeated until acknowledged, in order, per reclaim.
struct ReclaimReport {
  ReclaimRecord record;

  RN_FIELDS(ReclaimReport, record)
};

/// The answer to TakeBack. A later one of the same order counts more than an unclear one.
struct TakenBack {
  std::string order;
  OrderOutcome outcome = OrderOutcome::kTaken;
  ReclaimId reclaim;    ///< of one that was taken; empty: it is not known yet
  std::string message;  ///< why not, and what to do

  RN_FIELDS(TakenBack, order, outcome, reclaim, message)
};

/// The answer to EditContract, and what became later of one that was pending.
struct ContractEdited {
  std::string edit;
  EditState state = EditState::kInForce;
  std::string message;  ///< why, and what to do

  RN_FIELDS(ContractEdited, edit, state, message)
};

/// With this reason the coordinator closes the connection of a node that has left for good, once
/// that is in its database: the node may forget all it has.
inline constexpr const char* kLeftReason = "left";

/// The node leaves for good; its rows are closed.
struct Leave {
  std::string reason;

  RN_FIELDS(Leave, reason)
};

// ---- coordinator → agent
// ----------------------------------------------------------------------------------------

/// A verdict on an attempt the agent reported: keep it, or stop it because its epoch is stale.
struct AttemptVerdict {
  JobId job;
  LeaseEpoch epoch;
  bool is_current = false;
  bool is_end_known = false;  ///< the end is recorded: the agent may forget the attempt
  Departure departure = Departure::kUntold;  ///< counts for some missed heartbeats

  RN_FIELDS(AttemptVerdict, job, epoch, is_current, is_end_known, departure)
};

struct Welcome {
  std::uint32_t protocol = kProtocol;
  std::string version;
  std::uint32_t generation = 0;  ///< of the coordinator's database
  std::uint32_t heartbeat_ms = 5000;
  std::uint32_t lost_after = 3;      ///< missed heartbeats
  std::int64_t clock_offset_ms = 0;  ///< coordinator's wall clock minus the agent's
  Digest ticket_key{};               ///< Ed25519 public key of tickets
  std::vector<AttemptVerdict> verdicts;

  RN_FIELDS(
      Welcome,
      protocol,
      version,
      generation,
      heartbeat_ms,
      lost_after,
      clock_offset_ms,
      ticket_key,
      verdicts
  )
};

/// The connection is refused; the agent shows the message and retries only if told so.
struct Refused {
  std::string code;
  std::string message;
  std::string hint;
  std::uint32_t retry_after_ms = 0;  ///< 0 = never

  RN_FIELDS(Refused, code, message, hint, retry_after_ms)
};

/// What to do for one attempt, now and when the coordinator is away: where copies go (tickets
/// included).
struct CopyPlan {
  JobId job;
  LeaseEpoch epoch;
  std::vector<PeerGrant>
      copies;  ///< in order of preference; the first `wanted` that answer are used
  std::uint32_t wanted = 1;
  std::uint32_t min_interval_s = 0;
  /// Where the job would go on if its node were taken back: they get what is durable already, while
  /// nothing else is sent, so that little is left to move then.
  std::vector<PeerGrant> precopies;
  /// Copies of a guest that leaves, to others than the first `wanted`, would be late: they are
  /// broken off, and begin anew at these.
  bool leaves_others = false;

  RN_FIELDS(CopyPlan, job, epoch, copies, wanted, min_interval_s, precopies, leaves_others)
};

inline constexpr std::size_t kMaxHazardSteps = 96;

/// How likely the node's owner takes it back, from now on. Of no steps: nothing new is said.
struct HazardForecast {
  std::uint32_t step_s = 0;
  std::vector<double> per_day;    ///< departures, constant within a step
  double low = 0;                 ///< 90 % credible band, as factors of per_day
  double high = 0;                ///< 0 = nobody knows
  std::uint32_t leaves_in_s = 0;  ///< announced, or its window ends; 0 = none within a week
  double noticed = 0;             ///< share of its departures that came with notice
  std::uint32_t notice_s_min = 0;
  std::uint32_t notice_s_max = 0;

  RN_FIELDS(
      HazardForecast, step_s, per_day, low, high, leaves_in_s, noticed, notice_s_min, notice_s_max
  )
};

struct HeartbeatAck {
  std::uint64_t seq = 0;
  std::vector<AttemptVerdict> verdicts;  ///< a current one renews the lease
  std::vector<CopyPlan> plans;           ///< for every current attempt
  std::int64_t clock_offset_ms = 0;
  HazardForecast hazard = {};  ///< when it is no longer what was told on this connection

  RN_FIELDS(HeartbeatAck, seq, verdicts, plans, clock_offset_ms, hazard)
};

struct Probe {
  ProbeId probe;
  JobId job;
  UserId user;
  LabId lab;
  Resources resources;
  std::string image_digest;
  std::uint32_t priority = 4;
  std::uint32_t notice_s = 0;
  std::uint32_t hold_ms = 1000;   ///< asked time to live of the hold
  std::vector<std::string> data;  ///< JobSpec::data
  GangId gang;                    ///< of which the job is a member; empty = none

  RN_FIELDS(
      Probe, probe, job, user, lab, resources, image_digest, priority, notice_s, hold_ms, data, gang
  )
};

struct CancelHold {
  HoldId hold;

  RN_FIELDS(CancelHold, hold)
};

/// Turns a hold into a lease and starts the attempt. No payload moved before this.
struct Commit {
  HoldId hold;
  JobId job;
  LeaseEpoch epoch;
  std::uint32_t lease_ms = 15000;
  JobSpec spec;
  UserId user;
  LabId lab;
  std::uint64_t job_number = 0;
  std::string image_digest;
  std::uint64_t image_bytes = 0;
  std::vector<Digest> image_blobs;  ///< also at the coordinator: GET /v1/blobs/{sha256}
  std::vector<PeerGrant> image_peers;
  std::vector<Digest> image_layers;  ///< Image::layers
  Blob sealed_job_key;   ///< 32 bytes by crypto::seal_for this node's box key, associated: the
                         ///< job id's text
  GenerationRef resume;  ///< generation 0 = from the submitted workspace
  GenerationRef resume_previous;  ///< used if `resume` cannot be restored
  std::vector<PeerGrant> resume_from;
  CopyPlan plan;
  std::uint32_t restart_count = 0;
  std::optional<GangPlace> gang;         ///< a member: it waits, filled, until GangGo says "begin"
  std::vector<SharedGeneration> shares;  ///< of the other members, by rank; of no gang: none

  RN_FIELDS(
      Commit,
      hold,
      job,
      epoch,
      lease_ms,
      spec,
      user,
      lab,
      job_number,
      image_digest,
      image_bytes,
      image_blobs,
      image_peers,
      image_layers,
      sealed_job_key,
      resume,
      resume_previous,
      resume_from,
      plan,
      restart_count,
      gang,
      shares
  )
};

struct StopAttempt {
  JobId job;
  LeaseEpoch epoch;
  StopMode mode = StopMode::kAtOnce;
  std::uint32_t deadline_ms = 0;  ///< from receipt, for kSaveFirst
  AttemptEnd end = AttemptEnd::kCancelled;
  std::string reason;

  RN_FIELDS(StopAttempt, job, epoch, mode, deadline_ms, end, reason)
};

struct GenerationCommitted {
  JobId job;
  LeaseEpoch epoch;
  std::uint32_t generation = 0;
  bool is_accepted =
      false;  ///< false: stale epoch or receipts that don't verify; the reason says which
  std::string reason;

  RN_FIELDS(GenerationCommitted, job, epoch, generation, is_accepted, reason)
};

struct Grants {
  JobId job;
  LeaseEpoch epoch;
  TicketAction action = TicketAction::kStore;
  std::vector<PeerGrant> peers;

  RN_FIELDS(Grants, job, epoch, action, peers)
};

struct LogAck {
  JobId job;
  LeaseEpoch epoch;
  std::uint64_t next_offset = 0;  ///< everything below is durable at the coordinator
  bool is_accepted = true;

  RN_FIELDS(LogAck, job, epoch, next_offset, is_accepted)
};

struct AttemptAck {
  JobId job;
  LeaseEpoch epoch;
  std::uint64_t seq = 0;    ///< every event up to it is durable
  bool is_accepted = true;  ///< false: the epoch is stale

  RN_FIELDS(AttemptAck, job, epoch, seq, is_accepted)
};

struct ReclaimAck {
  ReclaimId id;
  ReclaimPhase phase = ReclaimPhase::kDeclared;

  RN_FIELDS(ReclaimAck, id, phase)
};

/// Holders delete generations of the job older than `keep_from`, but not those of `also_keep`.
/// Never issued before the successor is durable (I8).
struct CollectGarbage {
  JobId job;
  LeaseEpoch epoch;
  std::uint32_t keep_from = 0;
  bool is_job_over = false;              ///< delete everything of the job
  std::vector<std::uint32_t> also_keep;  ///< older ones that a gang's sets need; ascending

  RN_FIELDS(CollectGarbage, job, epoch, keep_from, is_job_over, also_keep)
};

/// The owner takes the node, or GPUs of it, back (ADR 0017). It is not begun when `valid_ms` have
/// passed since the node sent heartbeat `beat` on this connection, by the node's own boot clock: so
/// one that was under way for long is found too late without any clock of ours. Done once for each
/// `order`. There is no message that gives back.
struct TakeBack {
  std::string order;
  ReclaimKind kind = ReclaimKind::kNotice;
  std::vector<std::uint32_t> gpus;  ///< empty = the whole node
  std::uint32_t in_s = 0;           ///< of an announced one; a notice is as long as the contract's
  std::uint64_t beat = 0;
  std::uint32_t valid_ms = 0;

  RN_FIELDS(TakeBack, order, kind, gpus, in_s, beat, valid_ms)
};

/// An owner who is elsewhere writes another contract (ADR 0024). The node puts it in force by
/// itself only if it narrows the one in force, and that is the one that it was made from. Not taken
/// later than `valid_ms` after heartbeat `beat`, as TakeBack. Done once for each `edit`.
struct EditContract {
  std::string edit;
  UserId user;           ///< who wrote it
  std::string from;      ///< Hello::contract_version that it was made from
  std::string replaces;  ///< the proposal that waited when it was made; empty: none did
  Contract contract;
  std::uint64_t beat = 0;
  std::uint32_t valid_ms = 0;

  RN_FIELDS(EditContract, edit, user, from, replaces, contract, beat, valid_ms)
};

/// Agent to coordinator, after each welcome: the jobs of which generations lie in its own store. A
/// coordinator that crashed after it had named this node as a holder, and before a receipt was
/// committed, knows no more that something is to be collected here. At most kMaxHoldings each;
/// several follow each other when there are more.
struct Holdings {
  std::vector<JobId> jobs;

  RN_FIELDS(Holdings, jobs)
};

inline constexpr std::size_t kMaxHoldings = 4096;

// ---- envelope
// ---------------------------------------------------------------------------------------------------

using Message = std::variant<
    Hello,
    Heartbeat,
    NodeUpdate,
    ProbeReply,
    CommitReply,
    AttemptEvent,
    CommitGeneration,
    GrantRequest,
    LogAppend,
    PublishOutputs,
    ReclaimReport,
    Leave,
    Holdings,
    Transfers,
    TakenBack,
    ContractEdited,
    Welcome,
    Refused,
    HeartbeatAck,
    Probe,
    CancelHold,
    Commit,
    StopAttempt,
    GenerationCommitted,
    Grants,
    LogAck,
    AttemptAck,
    ReclaimAck,
    CollectGarbage,
    TransferRates,
    TakeBack,
    EditContract,
    GangGo,
    GangSaved>;

/// The word of a message on the wire, e.g. "hello", "commit_generation".
std::string_view name_of(const Message& message);

/// {"type": name, "body": {...}} in CBOR.
Blob encode(const Message& message);

/// kInvalid for anything that is not a message; kUnsupported for a well-formed envelope of an
/// unknown type (skip it); kExhausted above kMaxMessageBytes or 32 levels of nesting.
Result<Message> decode(BlobView bytes);

}  // namespace rn::wire
