// SPDX-License-Identifier: Apache-2.0
#pragma once

// What goes into the coordinator's core and what comes out. The core does no I/O (ADR 0001): the
// shell turns sockets, timers and files into events, makes an Output's writes durable, and then
// carries out its effects in order.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/crypto.h"
#include "base/error.h"
#include "base/ids.h"
#include "coordinator/rows.h"
#include "model/api.h"
#include "model/quota.h"
#include "model/reclaim_order.h"
#include "model/suspicion.h"
#include "model/wire.h"
#include "reclaim/deadline_rates.h"
#include "reclaim/evacuation.h"
#include "reclaim/topology.h"
#include "sched/queue.h"
#include "sched/survival.h"

namespace rn::coordinator {

using ConnectionId = std::uint64_t;  ///< given by the shell, never used twice in a process
using RequestId = std::uint64_t;     ///< given by the shell, never used twice in a process

/// Who asks, as the bearer token says (Core::authenticate).
struct Caller {
  UserId user;
  LabId lab;
  Role role = Role::kViewer;
};

// ---- API commands
// -------------------------------------------------------------------------------------------

/// The shell has checked that the workspace listing and all its blobs are in the blob store.
/// The same key with the same specification by the same user answers the first job; with another
/// specification kConflict. Answer: JobSubmitted.
struct SubmitJob {
  std::string idempotency_key;  ///< ≤ 128 bytes; empty = every submit is a new job
  JobSpec spec;
};

/// One job for each index, or none. The key counts as that of SubmitJob. Answer: api::ArrayAnswer.
struct SubmitArray {
  std::string idempotency_key;
  api::ArrayRequest request;
};

/// All tasks of it. Answer: api::ArrayStopped.
struct StopArray {
  std::string array;
  bool saves_first = false;
  std::uint32_t deadline_ms = 60'000;  ///< for saves_first
  std::string reason;
};

/// All members, or none. The key counts as that of SubmitJob. Admins only. Answer: api::GangAnswer.
struct SubmitGang {
  std::string idempotency_key;
  api::GangRequest request;
};

/// All members of it; one that is over answers the same. Answer: api::GangStopped.
struct StopGang {
  GangId gang;
  bool saves_first = false;
  std::uint32_t deadline_ms = 60'000;  ///< for saves_first
  std::string reason;
};

/// Answer: JobStopping. A finished job answers the same (idempotent).
struct StopJob {
  JobId job;
  bool saves_first = false;
  std::uint32_t deadline_ms = 60'000;  ///< for saves_first
  std::string reason;
};

/// The shell has checked that all of the image's blobs are in the blob store and give its digest.
/// Answer: ImageListed. kConflict if the name is listed with another digest.
struct AddImage {
  Image image;
};

/// Answer: Done. Running jobs are not touched.
struct RemoveImage {
  std::string name;
};

/// Answer: TokenMade. Owners for their own lab, admins for any.
struct CreateJoinToken {
  LabId lab;
  std::uint32_t ttl_s = 3600;
};

/// Redeems a join token: the caller is nobody yet. Answer: NodeJoined; the shell then signs the
/// certificate for that identity. The same token, key and machine once more (a lost answer) is
/// answered the same for ten minutes; any other second use is kDenied.
struct JoinNode {
  std::string token;  ///< its id
  std::string secret;
  Digest public_key{};     ///< SHA-256 of the SubjectPublicKeyInfo (DER) of the signing request
  std::string machine_id;  ///< as in wire::Hello
  std::string hostname;
};

/// Answer: TokenMade. Admins only.
struct CreateUserToken {
  UserId user;
  LabId lab;
  Role role = Role::kUser;
  std::uint32_t ttl_s = 0;  ///< 0 = never expires
};

/// A token for whom the identity provider vouched for. Answer: TokenMade. The coordinator itself
/// only.
struct SignIn {
  UserId user;
  LabId lab_if_new;           ///< empty: who is unknown is refused
  bool may_be_admin = false;  ///< the operator named this person
  std::uint32_t ttl_s = 0;    ///< at least 1
  std::string contact;        ///< whom who is refused may ask
};

/// Answer: Done.
struct RevokeToken {
  std::string id;
};

/// The node's certificate is taken no more; its jobs move as if it were lost. Answer: Done.
struct RevokeNode {
  NodeId node;
};

/// The node, or GPUs of it, are taken back for their owner (ADR 0017): for owners of its lab, and
/// admins of it. The same id again is the same order; with another content kConflict. Answer:
/// ReclaimOrdered, when it is written down and before the node has said anything.
struct OrderReclaim {
  NodeId node;
  std::string order;  ///< its id
  ReclaimKind kind = ReclaimKind::kNotice;
  std::vector<std::uint32_t> gpus;
  std::uint32_t in_s = 0;  ///< kAnnounced
};

/// An owner who is elsewhere writes another contract for the node (ADR 0024): for owners of its
/// lab, and admins of it. The contract itself is not kept here. The same id again is the same edit;
/// with another content kConflict, as one that was made from another contract than the one in
/// force, or before what waits on the node. kUnavailable while the node is away. Answer:
/// ContractProposed, when the node is told and before it has said anything.
struct ProposeContract {
  NodeId node;
  std::string edit;      ///< its id
  std::string from;      ///< NodeContract::version
  std::string replaces;  ///< id of what waits there; empty: nothing does
  Contract contract;
};

/// The whole quota of a subject, "user:anna" or "lab:*", for GPUs of a model or all. Admins only.
/// Answer: Quota.
struct SetQuota {
  std::string subject;
  api::QuotaRequest request;
};

/// Admins only. Answer: Done.
struct RemoveQuota {
  std::string subject;
  std::string gpu_model;
};

/// What the shell's collector has to say of a job that is over; the core may have forgotten it.
/// Answer: Done, when it is in the history.
struct NoteJob {
  JobId job;
  UserId owner;
  LabId lab;
  std::string kind;
  std::string message;
};

using Command = std::variant<
    SubmitJob,
    StopJob,
    SubmitArray,
    StopArray,
    SubmitGang,
    StopGang,
    AddImage,
    RemoveImage,
    CreateJoinToken,
    JoinNode,
    CreateUserToken,
    SignIn,
    RevokeToken,
    RevokeNode,
    OrderReclaim,
    ProposeContract,
    SetQuota,
    RemoveQuota,
    NoteJob>;

struct JobSubmitted {
  Job job;
  bool is_repeat = false;
  std::vector<std::string> warnings;  ///< e.g. that nothing says where the job saves
};

struct JobStopping {
  Job job;
};

struct ImageListed {
  Image image;
};

struct TokenMade {
  TokenRow token;
  std::string secret;  ///< shown once; 64 hex digits
};

struct NodeJoined {
  NodeId node;
  LabId lab;
};

struct ReclaimOrdered {
  ReclaimOrder order;
};

struct ContractProposed {
  ContractEdit edit;
};

struct Done {};

using Answer = std::variant<
    JobSubmitted,
    JobStopping,
    api::ArrayAnswer,
    api::ArrayStopped,
    api::GangAnswer,
    api::GangStopped,
    ImageListed,
    TokenMade,
    NodeJoined,
    ReclaimOrdered,
    ContractProposed,
    Quota,
    Done>;

// ---- events
// -------------------------------------------------------------------------------------------------

/// A TLS connection of an agent is up; `node` is what its verified certificate says.
struct AgentConnected {
  ConnectionId connection = 0;
  NodeId node;
  Digest public_key{};  ///< as in JoinNode, of the certificate presented
  std::string remote;   ///< "address:port", for people
};

struct AgentMessage {
  ConnectionId connection = 0;
  wire::Message message;
};

struct AgentDisconnected {
  ConnectionId connection = 0;
  std::string reason;
};

struct ApiCommand {
  RequestId request = 0;
  Caller caller;
  Command command;
};

/// Several times per heartbeat period (Config::tick_ms). Everything that waits is looked at here.
struct Tick {
  /// Of the campus's clocks now, as the shell reads it; none: as before (Config::utc_offset_s).
  std::optional<std::int32_t> utc_offset_s = std::nullopt;
};

/// The log file of this attempt is fsynced up to `next_offset`.
struct LogStored {
  JobId job;
  LeaseEpoch epoch;
  std::uint64_t next_offset = 0;
};

/// The answer to CheckOutputs: the listing and all its blobs are in the blob store and fsynced, or
/// why not.
struct OutputsChecked {
  JobId job;
  LeaseEpoch epoch;
  Digest listing{};
  Status status;
};

/// Each of these agents says once more what it said last: a heartbeat that tells of no attempts and
/// of nothing new, in this order. It is answered only where the answer says something. For shells
/// that know this of agents without messages of theirs: simulations of long times.
struct StillThere {
  std::vector<ConnectionId> connections;
};

/// Blobs that one node fetches from us: pieces of images, and of the folders that users submitted.
struct BlobsToNode {
  NodeId node;
  std::vector<Digest> asked;        ///< since the last look, the newest of them
  std::uint64_t bytes_waiting = 0;  ///< of what was asked: not there yet
  std::uint64_t bytes_sent = 0;     ///< that is there, since it began; only grows
};

/// While nodes fetch: each that does, when one begins and several times a second. The last one is
/// empty.
struct BlobsSent {
  std::vector<BlobsToNode> nodes;
};

using Event = std::variant<
    AgentConnected,
    AgentMessage,
    AgentDisconnected,
    ApiCommand,
    Tick,
    LogStored,
    OutputsChecked,
    StillThere,
    BlobsSent>;

// ---- effects
// ------------------------------------------------------------------------------------------------

/// A connection that is gone meanwhile is no error: the effect is dropped.
struct SendToAgent {
  ConnectionId connection = 0;
  wire::Message message;
};

/// After everything that was sent to it before.
struct CloseAgent {
  ConnectionId connection = 0;
  std::string reason;
};

struct Reply {
  RequestId request = 0;
  Result<Answer> answer;
};

/// Append to the log of this attempt at `offset`. The file's length is the truth: bytes below it
/// are skipped, a gap writes nothing. In both cases, and after the fsync of the batch, LogStored
/// follows with the file's length.
struct AppendLog {
  JobId job;
  LeaseEpoch epoch;
  std::uint64_t offset = 0;
  Blob bytes;
};

/// Look whether a listing and its blobs are in the blob store, fsynced; answer with OutputsChecked.
struct CheckOutputs {
  JobId job;
  LeaseEpoch epoch;
  Digest listing{};
};

/// How fast all that this node fetches from us goes, together. 0: nothing that is known bounds it.
struct PaceBlobs {
  NodeId node;
  std::uint64_t rate_bps = 0;
};

using Effect = std::variant<SendToAgent, CloseAgent, Reply, AppendLog, CheckOutputs, PaceBlobs>;

struct Output {
  std::vector<Write> writes;
  std::vector<Effect> effects;
};

// ---- configuration
// ------------------------------------------------------------------------------------------

struct SiteKeys {
  crypto::Key256 wrapping_key{};  ///< wraps job keys
  crypto::SigningKey ticket_key{};
};

/// What a study of the decisions leaves out or decides otherwise, to see what they are worth
/// (src/evaluate, reclaim-coordinator-studied). Sites have the defaults: no option of their daemon
/// sets any of it.
struct Study {
  bool is_hazard_constant = false;  ///< every owner is as any other, at any hour
  bool chooses_alone = false;       ///< each evacuation, whatever others need
  bool ignores_groups = false;      ///< what is taken back together is as what is not
  reclaim::DestinationRule destinations = reclaim::DestinationRule::kUseful;
  reclaim::RateRule rates = reclaim::RateRule::kDeadlines;
  /// Where a job goes on next, and who is to hold what it saves, as somebody else decided it: for
  /// the question what a decision leads to, apart from the decision. Empty answers: as ever.
  std::function<NodeId(const JobId&)> given_destination = {};
  std::function<NodeId(const JobId&)> given_holder = {};
};

struct Config {
  std::string version = "0.1.0";
  std::uint32_t tick_ms = 250;
  std::uint32_t heartbeat_ms = 5000;
  std::uint32_t lost_after = 3;  ///< missed heartbeats
  std::uint32_t lease_ms = 15'000;
  sched::Strategy strategy = sched::Strategy::kFair;
  std::uint32_t fair_half_life_s = 7 * 86'400;
  std::uint32_t max_unfinished_jobs = 10'000;
  std::uint32_t max_unfinished_jobs_per_user = 2'000;
  std::uint32_t max_finished_jobs_kept = 10'000;  ///< in memory; older ones are in the store only
  std::uint32_t max_placements_in_flight = 32;    ///< jobs between probe and lease
  std::uint32_t max_nodes = 20'000;
  std::uint32_t probe_timeout_ms = 1000;
  std::uint32_t commit_timeout_ms = 10'000;  ///< of an unanswered commit before it is repeated
  std::uint32_t start_timeout_ms = 900'000;  ///< from lease to running (image transfer included)
  std::uint32_t drain_wait_ms =
      120'000;  ///< how long a displaced job waits for its last generation
  std::uint32_t stop_deadline_ms = 60'000;  ///< a save-first stop by the coordinator itself
  std::uint32_t ticket_valid_s = 2 * 3600;  ///< ≥ 1 h: evacuations work while we are away
  std::uint32_t crash_after_resume_s = kCrashAfterResumeS;
  std::uint32_t backoff_first_ms = 1000;
  std::uint32_t backoff_max_ms = 300'000;
  std::uint32_t rollup_s = 300;       ///< width of telemetry's buckets
  std::int32_t utc_offset_s = 0;      ///< of the campus's clocks at the start; later: Tick
  std::uint32_t idle_after_s = 3600;  ///< a job that uses nothing for so long is told; 0: none is
  std::uint32_t idle_below_percent = 5;    ///< of the busiest of its GPUs: that is nothing
  std::uint32_t gang_patience_s = 600;     ///< tried in vain for so long, places are kept for it
  std::uint32_t gang_gather_s = 2 * 3600;  ///< for so long at a time
  std::uint32_t gang_save_s = 60;      ///< for a set, where a member's node is gone without notice
  std::uint32_t wanted_after_s = 600;  ///< so long a job waits before the owners are told
  bool migrates_back = true;
  std::uint32_t min_residence_s = 300;    ///< no migrate-back before
  std::uint32_t order_valid_ms = 15'000;  ///< an owner's order to take back is not begun later
  std::uint32_t home_settle_s = 60;       ///< the returned node must have been open for so long
  /// Bytes that each node may send ahead to where its jobs would go next; 0 = none are.
  std::uint64_t precopy_mib_per_hour = 4096;
  reclaim::Topology topology;  ///< as declared; empty: nodes have only their own uplinks
  std::string hostname;        ///< of our own machine: our place in it
  Study study;
};

// ---- views
// --------------------------------------------------------------------------------------------------

/// A node as people see it.
struct NodeView {
  NodeRow row;
  bool is_connected = false;
  LendingState lending = LendingState::kOpen;
  NodeTelemetry telemetry;
  std::int64_t clock_offset_ms = 0;  ///< coordinator's wall clock minus the node's
  std::int64_t silent_ms = 0;        ///< since the last message
  double departures_per_day = 0;     ///< hazard now
  sched::SurvivalCurve outlook;      ///< how likely it stays, as placement sees it
  std::uint32_t used_gpus = 0;       ///< of what it lends, as placement counts it
  std::uint32_t used_cpu_milli = 0;
  std::uint64_t used_memory_mib = 0;
  std::vector<JobId> jobs;  ///< with a live attempt on it
};

/// What a node says its contract is.
struct NodeContract {
  Contract contract;
  std::string version;        ///< empty: it is an older agent's, or nothing was heard of it yet
  ContractProposal proposal;  ///< that waits there; no id: none
};

/// Numbers for /metrics; all grow unless named gauges.
struct Metrics {
  std::uint64_t jobs_submitted = 0;
  std::uint64_t jobs_succeeded = 0;
  std::uint64_t jobs_failed = 0;
  std::uint64_t jobs_cancelled = 0;
  std::uint64_t probes_sent = 0;
  std::uint64_t probes_refused = 0;
  std::uint64_t probes_unanswered = 0;
  std::uint64_t commits_sent = 0;
  std::uint64_t commits_lost = 0;
  std::uint64_t leases_granted = 0;
  std::uint64_t attempts_crashed = 0;
  std::uint64_t displacements_announced = 0;
  std::uint64_t displacements_notice = 0;
  std::uint64_t displacements_emergency = 0;
  std::uint64_t displacements_lost = 0;
  std::uint64_t migrations_back = 0;
  std::uint64_t reattached = 0;      ///< suspect nodes that came back with their attempts
  std::uint64_t effects_fenced = 0;  ///< refused because of a stale epoch
  std::uint64_t generations_durable = 0;
  std::uint64_t generations_refused = 0;
  std::uint64_t heartbeats = 0;
  std::uint64_t connections_refused = 0;
  std::uint64_t log_bytes = 0;
  std::uint64_t evacuations_admitted = 0;  ///< promised to arrive before the deadline
  std::uint64_t evacuations_refused = 0;
  std::uint64_t evacuations_withdrawn = 0;  ///< promised, and then the lines had less than before
  std::uint64_t evacuations_in_time = 0;    ///< of those promised
  std::uint64_t evacuations_missed = 0;     ///< of those promised
  /// Where jobs go, chosen or chosen differently, by reclaim::EvacuationWay.
  std::array<std::uint64_t, 4> choices{};
  double gang_gathering_idle_gpu_s = 0;  ///< of places that were kept for gangs
  std::uint64_t orders_given = 0;        ///< to take a node back
  /// What was heard of them, by OrderState; of one that was unanswered first, both.
  std::array<std::uint64_t, 6> orders_ended{};
  // gauges
  std::uint64_t jobs_queued = 0;
  std::uint64_t jobs_held = 0;  ///< not in the queue: they wait for other jobs
  std::uint64_t jobs_placing = 0;
  std::uint64_t jobs_running = 0;  ///< with a live attempt
  std::uint64_t nodes_up = 0;
  std::uint64_t nodes_suspect = 0;
  std::uint64_t nodes_lost = 0;
  std::uint64_t gpus_total = 0;
  std::uint64_t gpus_open = 0;        ///< on nodes that take guests now
  std::uint64_t transfers = 0;        ///< copies under way
  std::uint64_t fetches_awaited = 0;  ///< from peers or from us, for a job's start
  std::uint64_t fetches_others = 0;
  std::uint64_t uploads = 0;                    ///< outputs on their way to us
  double planned_rate = 0;                      ///< bytes/s of those whose rate is bounded
  std::uint64_t evacuations = 0;                ///< jobs whose place is or was taken back
  std::uint64_t evacuations_without_place = 0;  ///< of these, for whom nobody has room
  std::uint64_t jobs_without_holder = 0;        ///< queued, and who holds what they need is away
};

}  // namespace rn::coordinator
