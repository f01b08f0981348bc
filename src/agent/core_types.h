// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "agent/gpu_health.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/checkpoint.h"
#include "model/contract_edit.h"
#include "model/job.h"
#include "model/node.h"
#include "model/reclaim.h"
#include "model/warden.h"
#include "model/wire.h"

// What goes into and comes out of the agent's core (core.h). Plain values: the daemon's shell and
// the simulator both feed and obey them.

namespace rn::agent {

using warden_wire::GuestName;

// ---- work: everything that blocks, done by the shell's worker pool
// -----------------------------------------------------------------

/// Grows by one per process life. Results of another life, or of a cancelled work, are void.
using WorkId = std::uint64_t;

/// Brings the image's archive into the state folder, SHA-256 verified: from peers in order, else
/// the coordinator's blobs. Answered by ImageFetched.
struct FetchImage {
  std::string digest;
  std::uint64_t bytes = 0;
  std::vector<Digest> blobs;
  std::vector<PeerGrant> peers;
};

/// Writes the submitted workspace and then, if there is one, the resume generation into `disk`/work
/// (which the agent owns), replacing whatever an interrupted earlier try left there. If `resume`
/// cannot be restored, `resume_previous` is taken. Answered by WorkPrepared, or by HoldersAway;
/// kUnavailable = try again, anything else ends the attempt.
struct PrepareWork {
  std::string disk;
  Digest workspace{};
  Blob sealed_job_key;
  GenerationRef resume;
  GenerationRef resume_previous;
  std::vector<PeerGrant> resume_from;
  std::uint32_t lanes = 1;  ///< cores to decode with
  /// Of a gang: then those files of the others' checkpoints that are not there yet. One that cannot
  /// be restored is as bad as `resume`.
  std::vector<wire::SharedGeneration> shares = {};
  std::vector<std::string> checkpoint_paths = {};  ///< CheckpointSpec::paths, for what is shared
};

/// Makes the newest complete state of `disk`/work a generation in the own chunk store. Answered by
/// SnapshotTaken once it is safe, or by NothingNew if no complete state differs
/// from `parent`; kUnavailable if the files did not hold still (the watch reports again).
struct TakeSnapshot {
  std::string disk;
  LeaseEpoch epoch;
  std::uint32_t generation = 0;
  GenerationRef parent;  ///< generation 0 = none
  CheckpointSpec spec;
  Digest workspace{};
  Blob sealed_job_key;
  bool is_final = false;  ///< no writer is left: look for yourself instead of waiting for the watch
  /// Of a final one: what changed after this moment may be cut off in the middle, for its writer
  /// was killed then. By the node's own wall clock, as the files' times are; 0 = it left by itself.
  std::int64_t torn_after_ns = 0;
  /// By the same clock: no process of the guest ran before; 0 = not known.
  std::int64_t guest_since_ns = 0;
  std::uint32_t lanes = 1;  ///< cores to encode with, beside the one that reads
};

/// Sends what the peer lacks of the generation. Answered by GenerationCopied with the peer's
/// verified receipt. One that is ahead begins while the guest's snapshot is taken: its chunks go as
/// they are made, and what is left after ReleaseCopy has named the generation.
struct CopyGeneration {
  GenerationRef generation;
  PeerGrant peer;
  std::uint64_t rate_bps = 0;  ///< to begin with; 0 = no limit. Then SetRate
  bool is_ahead = false;       ///< `generation` has no manifest yet
};

/// Puts the outputs into the coordinator's blob store. Answered by OutputsUploaded.
struct UploadOutputs {
  std::string disk;
  CheckpointSpec spec;
  Digest workspace{};
  std::uint64_t rate_bps = 0;  ///< to begin with; 0 = no limit. Then SetRate
};

/// Copies what is new in `disk`/reclaim/log to the agent's own spool (so that it outlives the
/// disk), then reads the spool. A disk that is gone is no error: the spool is what there is.
/// Answered by LogRead.
struct ReadLog {
  std::string disk;
  std::uint64_t offset = 0;
  std::uint32_t max_bytes = 0;  ///< 0 = only copy to the spool
  bool has_hook = false;        ///< and how its newest run ended
};

/// Own store: deletes generations of the job older than `keep_from` but for those of `also_keep`,
/// or everything of it, or the one that is `replaced`.
struct CollectGarbage {
  JobId job;
  std::uint32_t keep_from = 0;
  bool is_job_over = false;
  LeaseEpoch epoch;  ///< the job's newest: of a job that is over, nothing of it is stored any more
  std::uint32_t replaced = 0;  ///< of `epoch`; a newer one is safe, and nobody was told of this one
  std::vector<std::uint32_t> also_keep = {};  ///< older than `keep_from`, and needed
};

/// Own store: the jobs of which something lies there.
struct ListHoldings {};

/// Deletes the spooled log and other leftovers of an attempt that is acknowledged as ended.
struct ForgetAttempt {};

using WorkBody = std::variant<
    FetchImage,
    PrepareWork,
    TakeSnapshot,
    CopyGeneration,
    UploadOutputs,
    ReadLog,
    CollectGarbage,
    ListHoldings,
    ForgetAttempt>;

std::string_view name_of(const WorkBody& body);

struct Work {
  WorkId id = 0;
  GuestName guest;  ///< on whose behalf; epoch none for CollectGarbage, nobody for ListHoldings
  WorkBody body;
};

struct ImageFetched {
  std::string archive_path;
};

struct WorkPrepared {
  GenerationRef restored;  ///< generation 0 = started from the workspace alone
  std::string note;        ///< why it is not the wanted one; empty if it is
};

/// The wanted generation may lie with these holders, who gave no word; nobody else has it whole. An
/// older one is not taken for it.
struct HoldersAway {
  std::uint32_t generation = 0;
  std::vector<NodeId> holders;
  std::string why;  ///< the newest failure
};

struct SnapshotTaken {
  GenerationRef generation;
  nanoseconds cpu{0};  ///< of one core, to make it; 0 = not measured
};

struct NothingNew {};

struct GenerationCopied {
  Receipt receipt;
  std::uint64_t bytes = 0;  ///< that moved
  nanoseconds cpu{0};       ///< of one core, to send them; 0 = not measured
};

struct OutputsUploaded {
  Digest listing{};
  std::string left_out;  ///< what could not be read, and why; empty = nothing
};

/// How a run of a guest's hook ended, as its PID 1 says in reclaim/hook.
struct HookEnd {
  std::uint32_t run = 0;  ///< from 1
  std::int32_t exit_code = 0;
  bool is_late = false;  ///< it was ended
};

struct LogRead {
  std::uint64_t offset = 0;
  Blob bytes;
  std::uint64_t spooled_bytes = 0;  ///< whole length of the spool
  bool is_declared = false;         ///< new in it: the line by which a guest says that it has saved
  std::optional<HookEnd> hook = {};
};

struct HoldingsListed {
  std::vector<JobId> jobs;
};

struct Done {};

using WorkResult = std::variant<
    Error,
    ImageFetched,
    WorkPrepared,
    HoldersAway,
    SnapshotTaken,
    NothingNew,
    GenerationCopied,
    OutputsUploaded,
    LogRead,
    HoldingsListed,
    Done>;

// ---- events
// ------------------------------------------------------------------------------------------------

/// First event of a process, after restore(). The core then asks the warden what there is.
struct Started {
  NodeFacts facts;
  Contract contract;
  std::int32_t utc_offset_s = 0;  ///< of the contract's time zone, now
};

struct CoordinatorConnected {};

struct CoordinatorMessage {
  wire::Message message;
};

struct CoordinatorDisconnected {
  std::string reason;
};

struct WardenConnected {};

struct WardenReply {
  warden_wire::Reply reply;
};

struct WardenDisconnected {};

struct WorkDone {
  WorkId id = 0;
  WorkResult result;
};

/// The watch found a complete generation in the guest's work folder.
struct GenerationDetected {
  GuestName guest;
  std::optional<Instant> began;  ///< when the guest began to write it; none = not known
};

/// The watch gave a checkpoint up, or found that it never holds still.
struct SaveTrouble {
  GuestName guest;
  std::string path;  ///< the guest's own name for it
  std::string reason;
};

/// A link of a gang's member broke, or was not opened, for what is no program's doing: its guest
/// may crash for that. Comes before the guest can know of it.
struct LinkBroken {
  GuestName guest;
};

/// Every few seconds.
struct TelemetrySampled {
  NodeTelemetry telemetry;
  std::uint64_t idle_s =
      0;  ///< since the owner's last input or login; only read if the idle rule is on
  std::int32_t utc_offset_s = 0;
  std::map<std::string, std::uint64_t> guest_memory_mib;  ///< HostSampler::guest_memory_mib
  std::map<std::string, std::uint64_t> guest_cpu_ms;      ///< HostSampler::guest_cpu_ms
  std::set<std::string> visited;                          ///< Tunnels::guests
  std::vector<GpuSigns> signs;                            ///< of GPUs that NVML knows
};

/// The owner has looked at a sick GPU, and lends it again.
struct GpuAccepted {
  std::uint32_t gpu = 0;
};

/// How far one copy is.
struct TransferProgress {
  WorkId id = 0;
  std::optional<std::uint64_t> bytes_left;  ///< none: not known yet
  std::uint64_t bytes_sent = 0;             ///< that the peer has acknowledged
  std::string local = {};                   ///< its connection's own end; empty: it has none now
  std::string remote = {};
  nanoseconds round_trip{0};        ///< of its connection, as TCP smooths it; 0: not known
  nanoseconds least_round_trip{0};  ///< of the same, some minutes back; 0: not known
};

/// Ids of what peers fetch here begin with this one: no work has such a number.
inline constexpr WorkId kFirstFetch = WorkId{1} << 48;

/// One connection by which a peer fetches what it has a ticket for.
struct FetchProgress {
  TransferProgress progress;
  JobId job;
  LeaseEpoch epoch;
  NodeId peer;
  std::string image = {};  ///< empty: a generation
};

/// All copies under way, outputs on their way home, and all fetches of peers; several times a
/// second as long as there is one, and once when the last fetch is over.
struct TransfersMeasured {
  std::vector<TransferProgress> transfers;
  std::uint64_t foreign_bps = 0;  ///< what others send by the node's uplink
  std::vector<FetchProgress> fetches = {};
};

/// The owner wrote a new (valid) contract.
struct ContractChanged {
  Contract contract;
  std::int32_t utc_offset_s = 0;
  std::string edit = {};  ///< that came from afar and is in force now; empty: the owner's own
};

/// An edit that came from afar could not be put in force (kConflict: the owner was faster), or
/// names a time zone that the machine does not know.
struct EditUnusable {
  std::string edit;
  Error error;
};

/// Somebody at the machine does not want the contract that waits.
struct ProposalRejected {
  std::string id;
};

/// The machine or its reachability changed (image list, addresses).
struct FactsChanged {
  NodeFacts facts;
};

/// The owner leaves for good: evacuate what runs (with the contract's notice), tell the
/// coordinator, then LeftForGood.
struct OwnerLeaves {
  std::string reason;
};

/// Somebody went to the warden past the core (an emergency): its state is asked for at once.
struct WardenActed {};

/// What came of KillNow.
struct KilledNow {
  std::string order;
  std::optional<Error> error;  ///< none: cut and cleared, or wedged, as the warden's record says
  bool is_late = false;        ///< its time was over before it could go out: nothing was done
};

/// The journal waits for room on a full disk: nothing new is made durable until JournalGoesOn.
/// `told` is what has left for the coordinator (told_reports.h), who is told no more meanwhile.
struct JournalWaits {
  std::string why;
  std::vector<wire::AttemptReport> told;
};

/// What waited is durable and has left.
struct JournalGoesOn {};

/// Every Config::tick or later; deadlines are looked at then.
struct Tick {};

/// Of a core that rests (Core::rests): since the newest event the machine was measured as before,
/// and heartbeats that told of nothing new were sent and acknowledged, without a word more.
struct NothingHappened {
  std::uint32_t beats = 0;
  Instant beat_at{};      ///< of the newest
  Instant heard_at{};     ///< its acknowledgement
  Instant measured_at{};  ///< newest
};

using Event = std::variant<
    Started,
    CoordinatorConnected,
    CoordinatorMessage,
    CoordinatorDisconnected,
    WardenConnected,
    WardenReply,
    WardenDisconnected,
    WorkDone,
    GenerationDetected,
    SaveTrouble,
    LinkBroken,
    TelemetrySampled,
    GpuAccepted,
    TransfersMeasured,
    ContractChanged,
    EditUnusable,
    ProposalRejected,
    FactsChanged,
    OwnerLeaves,
    WardenActed,
    KilledNow,
    JournalWaits,
    JournalGoesOn,
    Tick,
    NothingHappened>;

// ---- output
// ------------------------------------------------------------------------------------------------

/// One row of the journal, replaced as a whole; no value = deleted.
struct JournalWrite {
  std::string key;
  std::optional<std::string> value;

  friend bool operator==(const JournalWrite&, const JournalWrite&) = default;
};

struct JournalRow {
  std::string key;
  std::string value;
};

/// Dropped silently if there is no connection: the core repeats what matters.
struct SendToCoordinator {
  wire::Message message;
};

/// Closes the connection (it is dead, or refused). `retry_ms`: 0 = by the usual backoff;
/// `is_final`: never connect again.
struct CloseCoordinator {
  std::string reason;
  std::uint32_t retry_ms = 0;
  bool is_final = false;
};

struct AskWarden {
  warden_wire::NumberedRequest request;
};

/// Cut and clear by the warden's kill socket, as the owner's own command does it; needs neither the
/// warden's journal nor its engine. Answered by KilledNow.
struct KillNow {
  std::string order;
  std::uint64_t gpu_mask = 0;  ///< 0 = the whole node
  Instant until{};             ///< it does not go out later
};

/// Puts a contract in force that narrows the one whose version is `from`, if that is still in
/// force. Answered by ContractChanged or EditUnusable, with the same edit.
struct UseContract {
  std::string edit;
  std::string from;
  Contract contract;
};

struct StartWork {
  Work work;
};

/// The result, if one still comes, is void.
struct CancelWork {
  WorkId id = 0;
};

/// The generation that this work copies ahead is whole, and journalled: it may be told. Nothing if
/// the work is not under way any more.
struct ReleaseCopy {
  WorkId id = 0;
  GenerationRef generation;
};

/// From now on this copy, these outputs, or this connection of a peer that fetches, send so fast
/// and no faster; 0 = no limit. Nothing if it is not under way any more.
struct SetRate {
  WorkId id = 0;
  std::uint64_t rate_bps = 0;
};

/// Starts (or, after a restart, resumes) watching `disk`/work for complete generations. `since` is
/// what the newest own snapshot holds (generation 0 = what was restored): anything complete that
/// differs is reported. Repeating it is harmless.
struct StartWatch {
  GuestName guest;
  std::string disk;
  CheckpointSpec spec;
  GenerationRef since;
};

struct StopWatch {
  GuestName guest;
};

/// Nothing is left to do for a node that leaves; the process may end once the coordinator knows.
struct LeftForGood {
  bool is_known = false;  ///< it said so before: it no longer takes this identity for a node's
};

using Effect = std::variant<
    SendToCoordinator,
    CloseCoordinator,
    AskWarden,
    KillNow,
    UseContract,
    StartWork,
    CancelWork,
    ReleaseCopy,
    SetRate,
    StartWatch,
    StopWatch,
    LeftForGood>;

/// The shell makes all writes durable (one transaction), then carries out the effects in order. ADR
/// 0001.
struct Output {
  std::vector<JournalWrite> writes;
  std::vector<Effect> effects;
  /// No row stands behind its effects, and it has no writes: earlier outputs are not waited for.
  bool overtakes = false;
};

// ---- views
// -------------------------------------------------------------------------------------------------

/// One attempt as `status` and the LAN REST show it.
struct AttemptView {
  wire::AttemptReport report;
  UserId user;
  LabId lab;
  std::uint64_t job_number = 0;
  std::string name;
  std::string phase;  ///< the core's own, finer phase
  std::string disk;
  std::vector<std::uint32_t> gpus;
  std::uint32_t cpu_milli = 0;
  std::uint64_t memory_mib = 0;
  std::uint32_t durable_generation = 0;
  std::int64_t lease_left_ms = 0;      ///< negative: the lease ran out, the attempt is an orphan
  std::int64_t deadline_left_ms = -1;  ///< of a notice; -1 = none
  std::int64_t stays_ms = -1;  ///< until it has to leave at last; -1 = it does not stay for that

  RN_FIELDS(
      AttemptView,
      report,
      user,
      lab,
      job_number,
      name,
      phase,
      disk,
      gpus,
      cpu_milli,
      memory_mib,
      durable_generation,
      lease_left_ms,
      deadline_left_ms,
      stays_ms
  )
};

struct NodeView {
  LendingState lending = LendingState::kOpen;
  std::string why;  ///< one sentence for the owner: why it lends or doesn't
  bool is_coordinator_connected = false;
  bool is_warden_connected = false;
  std::string engine;                 ///< as the warden names it; empty = not seen yet
  std::string engine_refusal;         ///< why the warden does not use it although it answers
  std::int64_t engine_gone_s = -1;    ///< it is not to be had since then; -1 = it is
  std::int64_t announced_in_ms = -1;  ///< until the contract takes the node back; -1 = not in sight
  std::string announced_because;
  std::int64_t clock_offset_ms = 0;
  std::uint32_t holds = 0;
  std::uint64_t works_running = 0;
  std::uint64_t works_queued = 0;
  std::int64_t journal_waits_s = -1;  ///< for room on a full disk since then; -1 = it does not
  Contract contract;
  NodeFacts facts;
  NodeTelemetry telemetry;
  std::vector<AttemptView> attempts;
  std::vector<ReclaimRecord> reclaims;  ///< newest last
  std::vector<std::string> troubles;    ///< what others did to guests here, with its age
  bool are_copies_bounded = false;      ///< by the warden, at the uplink
  std::string copies;                   ///< what bounds them, in words
  std::string
      taking;  ///< what is taken back later, when, and who stays until when; empty = nothing
  std::string contract_version;            ///< names `contract` among all of this node's
  ContractProposal proposal;               ///< that waits for somebody at the machine; no id: none
  std::vector<std::uint32_t> paused_gpus;  ///< that take no new guest, beside the node

  RN_FIELDS(
      NodeView,
      lending,
      why,
      is_coordinator_connected,
      is_warden_connected,
      engine,
      engine_refusal,
      engine_gone_s,
      announced_in_ms,
      announced_because,
      clock_offset_ms,
      holds,
      works_running,
      works_queued,
      journal_waits_s,
      contract,
      facts,
      telemetry,
      attempts,
      reclaims,
      troubles,
      are_copies_bounded,
      copies,
      taking,
      contract_version,
      proposal,
      paused_gpus
  )
};

/// What an owner can do about a container engine that is gone, or refused.
const char* engine_help(bool is_refused);
/// "has not answered for 31 s" (or yet, if it was never seen), or why it is refused. Only while
/// `engine_gone_s` is not negative.
std::string engine_trouble(const NodeView& view);
/// What an owner can do about a disk that is too full for the journal.
extern const char* const kRoomHelp;

std::string to_json_text(const NodeView& view);
Result<NodeView> node_view_from_json(const std::string& text);

}  // namespace rn::agent
