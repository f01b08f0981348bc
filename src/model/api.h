// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bodies of the coordinator's REST API that are not structures of the model already. Both ends use
// these; docs/openapi.yaml is made from the same field tables.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "model/checkpoint.h"
#include "model/contract_edit.h"
#include "model/fields.h"
#include "model/gang.h"
#include "model/job.h"
#include "model/node.h"
#include "model/reclaim.h"
#include "model/reclaim_order.h"

namespace rn::api {

/// Prefixes of tokens as people carry them: PREFIX.ID.SECRET.CA-FINGERPRINT. A join token is used
/// once; a user token is the bearer of every call.
inline constexpr const char* kJoinTokenPrefix = "rn1";
inline constexpr const char* kUserTokenPrefix = "rnu1";

struct ErrorBody {
  std::string code;  ///< the words of ErrorCode
  std::string message;
  std::string hint;  ///< what to do next

  RN_FIELDS(ErrorBody, code, message, hint)
};

struct ErrorAnswer {
  ErrorBody error;

  RN_FIELDS(ErrorAnswer, error)
};

// ---- nodes and their identity

struct JoinRequest {
  std::string token;
  std::string csr_pem;
  std::string machine_id;  ///< hash of the machine's own identifier
  std::string hostname;
  std::string lab;  ///< expected; empty = whatever the token says
  Digest verify_key{};
  Digest box_key{};

  RN_FIELDS(JoinRequest, token, csr_pem, machine_id, hostname, lab, verify_key, box_key)
};

struct JoinAnswer {
  std::string node_id;
  std::string lab;
  std::string certificate_pem;
  std::string ca_pem;
  std::string coordinator_url;  ///< "https://host:port"
  std::string agent_url;        ///< "wss://host:port/v1/agent"

  RN_FIELDS(JoinAnswer, node_id, lab, certificate_pem, ca_pem, coordinator_url, agent_url)
};

struct RenewRequest {
  std::string csr_pem;  ///< of the same key

  RN_FIELDS(RenewRequest, csr_pem)
};

struct RenewAnswer {
  std::string certificate_pem;
  std::string ca_pem;

  RN_FIELDS(RenewAnswer, certificate_pem, ca_pem)
};

/// Who has a part of a machine at the moment, for whoever the machine belongs to. What the job is
/// called and does stays its user's.
struct GuestInfo {
  std::uint64_t job_number = 0;
  UserId user;
  LabId lab;
  JobState state = JobState::kRunning;
  std::uint32_t gpus = 0;  ///< it asked for
  std::int64_t since_wall_ms = 0;

  RN_FIELDS(GuestInfo, job_number, user, lab, state, gpus, since_wall_ms)
};

/// A node as people see it.
struct NodeInfo {
  NodeId id;
  LabId lab;
  NodeState state = NodeState::kUp;
  bool is_connected = false;
  bool is_revoked = false;
  LendingState lending = LendingState::kOpen;
  NodeFacts facts;
  Contract contract;
  NodeAddress address;
  NodeTelemetry telemetry;
  std::int64_t clock_offset_ms = 0;  ///< coordinator's wall clock minus the node's
  std::int64_t silent_ms = 0;        ///< since its last message
  double departures_per_day = 0;
  double stays_1h = 0;  ///< chance that its owner leaves it lent for so long, as placement sees it
  double stays_8h = 0;
  double leaves_in_s = -1;      ///< announced, or the end of a window; negative: neither is known
  std::uint32_t used_gpus = 0;  ///< of what is lent: by guests, and kept for who comes
  std::uint32_t used_cpu_milli = 0;
  std::uint64_t used_memory_mib = 0;
  std::vector<JobId> jobs;        ///< those that the caller may read
  std::vector<GuestInfo> guests;  ///< all, for admins and the owners of its lab; else none
  /// Orders to take it back that came by the coordinator lately, newest first; for the same.
  std::vector<ReclaimOrder> orders;
  std::string contract_version;  ///< for the same: an edit names it; "": its agent takes none
  std::optional<ContractProposal> proposal;  ///< for the same: waits for somebody at the machine
  std::vector<ContractEdit> edits;           ///< for the same: lately, newest first
  std::string version;
  std::int64_t joined_wall_ms = 0;
  std::int64_t last_seen_wall_ms = 0;

  RN_FIELDS(
      NodeInfo,
      id,
      lab,
      state,
      is_connected,
      is_revoked,
      lending,
      facts,
      contract,
      address,
      telemetry,
      clock_offset_ms,
      silent_ms,
      departures_per_day,
      stays_1h,
      stays_8h,
      leaves_in_s,
      used_gpus,
      used_cpu_milli,
      used_memory_mib,
      jobs,
      guests,
      orders,
      contract_version,
      proposal,
      edits,
      version,
      joined_wall_ms,
      last_seen_wall_ms
  )
};

struct NodeList {
  std::vector<NodeInfo> nodes;

  RN_FIELDS(NodeList, nodes)
};

struct ReclaimList {
  std::vector<ReclaimRecord> reclaims;  ///< newest first

  RN_FIELDS(ReclaimList, reclaims)
};

/// Takes a node, or GPUs of it, back: of the own lab, and never anything else.
struct ReclaimRequest {
  std::string order;  ///< its name, by whoever asks: 8 to 64 letters, digits, -_; said again it is
                      ///< the same order
  ReclaimKind kind = ReclaimKind::kNotice;  ///< notice: the contract's; emergency: now
  std::vector<std::uint32_t> gpus;          ///< none: the whole node
  std::uint32_t in_s = 0;                   ///< announced: from now

  RN_FIELDS(ReclaimRequest, order, kind, gpus, in_s)
};

/// Another contract for a node of the own lab. What only narrows the one in force takes effect by
/// itself; anything else waits for somebody at the machine.
struct ContractEditRequest {
  std::string edit;      ///< its name, as ReclaimRequest::order; not needed for a check
  std::string from;      ///< NodeInfo::contract_version that it was made from
  std::string replaces;  ///< NodeInfo::proposal's id that it takes the place of; none waits: empty
  Contract contract;

  RN_FIELDS(ContractEditRequest, edit, from, replaces, contract)
};

/// What another contract would mean to a guest that is there now.
struct ContractGuest {
  std::uint64_t job_number = 0;
  UserId user;
  LabId lab;
  std::int64_t leaves_in_s_before = -1;  ///< by the contract in force; -1: not within a week
  std::int64_t leaves_in_s_after = -1;
  std::uint32_t notice_s = 0;  ///< that it has then, at most
  std::string message;         ///< the same in a sentence

  RN_FIELDS(
      ContractGuest, job_number, user, lab, leaves_in_s_before, leaves_in_s_after, notice_s, message
  )
};

/// What an edit would do, before it is made; nothing is kept, and the node is not asked.
struct ContractPreview {
  std::string version;                    ///< of the contract in force that it is compared with
  std::vector<std::string> problems;      ///< why it is no contract, the field's name in front
  bool narrows = false;                   ///< it takes effect by itself
  std::vector<std::string> widens;        ///< why it would wait for somebody at the machine
  std::vector<std::string> changes;       ///< a line for each field
  std::uint32_t lent_minutes_before = 0;  ///< of the week's 10080, holidays aside
  std::uint32_t lent_minutes_after = 0;
  std::vector<ContractGuest> guests;
  std::vector<std::string> notes;  ///< what else there is to know

  RN_FIELDS(
      ContractPreview,
      version,
      problems,
      narrows,
      widens,
      changes,
      lent_minutes_before,
      lent_minutes_after,
      guests,
      notes
  )
};

struct ReclaimOrders {
  std::vector<ReclaimOrder> orders;  ///< oldest first

  RN_FIELDS(ReclaimOrders, orders)
};

// ---- jobs

struct SubmitAnswer {
  Job job;
  bool is_repeat = false;  ///< the same Idempotency-Key was answered before
  std::vector<std::string> warnings;

  RN_FIELDS(SubmitAnswer, job, is_repeat, warnings)
};

/// One job for each index, or none at all. They find theirs in SLURM_ARRAY_TASK_ID, and what else
/// Slurm says of an array in SLURM_ARRAY_TASK_COUNT, _MIN, _MAX and SLURM_ARRAY_JOB_ID.
struct ArrayRequest {
  JobSpec spec;
  std::vector<std::uint32_t> indices;  ///< ascending, 1000 at most
  std::uint32_t at_most = 0;           ///< so many of them run at once; 0: no bound

  RN_FIELDS(ArrayRequest, spec, indices, at_most)
};

struct ArrayJob {
  JobId job;
  std::uint64_t number = 0;
  std::uint32_t index = 0;

  RN_FIELDS(ArrayJob, job, number, index)
};

struct ArrayAnswer {
  std::string array;            ///< its id
  std::vector<ArrayJob> tasks;  ///< by index; of a repetition those that are still known
  bool is_repeat = false;       ///< the same Idempotency-Key was answered before
  std::vector<std::string> warnings;

  RN_FIELDS(ArrayAnswer, array, tasks, is_repeat, warnings)
};

struct ArrayStopped {
  std::string array;
  std::uint32_t stopping = 0;  ///< tasks that were not over
  std::uint32_t over = 0;

  RN_FIELDS(ArrayStopped, array, stopping, over)
};

/// So many members, all alike, that begin, stop and go on together; or none at all.
struct GangRequest {
  JobSpec spec;
  std::uint32_t size = 0;
  GangSaves saves = GangSaves::kAuto;
  GangShare share = GangShare::kAll;
  GangEnds ends = GangEnds::kAll;
  GangSpread spread = GangSpread::kNode;

  RN_FIELDS(GangRequest, spec, size, saves, share, ends, spread)
};

struct GangJob {
  JobId job;
  std::uint64_t number = 0;
  std::uint32_t rank = 0;

  RN_FIELDS(GangJob, job, number, rank)
};

struct GangAnswer {
  GangId gang;
  std::vector<GangJob> members;  ///< by rank
  bool is_repeat = false;        ///< the same Idempotency-Key was answered before
  std::vector<std::string> warnings;

  RN_FIELDS(GangAnswer, gang, members, is_repeat, warnings)
};

/// A member as it is now.
struct GangMemberView {
  JobId job;
  std::uint64_t number = 0;
  std::uint32_t rank = 0;
  JobState state = JobState::kQueued;
  NodeId node;
  std::string attempt;  ///< what its attempt does, e.g. "ready"; empty: it has none
  std::string reason;

  RN_FIELDS(GangMemberView, job, number, rank, state, node, attempt, reason)
};

/// What all members would go on from.
struct GangSetView {
  std::uint32_t number = 0;                ///< 0: there is none
  std::int64_t mark = -1;                  ///< step; -1: not known
  std::vector<std::uint32_t> generations;  ///< by rank; 0: that member saves nothing

  RN_FIELDS(GangSetView, number, mark, generations)
};

struct GangInfo {
  GangId gang;
  UserId owner;
  LabId lab;
  std::uint32_t size = 0;
  GangSaves saves = GangSaves::kAuto;
  GangShare share = GangShare::kAll;
  GangEnds ends = GangEnds::kAll;
  GangSpread spread = GangSpread::kNode;
  GangState state = GangState::kWaiting;
  std::string epoch;  ///< of all members; empty before the first placement
  bool all_save = false;
  std::string reason;  ///< what it waits for, or why it stops
  GangSetView set;
  GangSetView previous;
  std::vector<GangMemberView> members;  ///< by rank; those that are remembered

  RN_FIELDS(
      GangInfo,
      gang,
      owner,
      lab,
      size,
      saves,
      share,
      ends,
      spread,
      state,
      epoch,
      all_save,
      reason,
      set,
      previous,
      members
  )
};

struct GangStopped {
  GangId gang;
  GangState state = GangState::kStopping;

  RN_FIELDS(GangStopped, gang, state)
};

struct JobList {
  std::vector<Job> jobs;  ///< newest first

  RN_FIELDS(JobList, jobs)
};

struct StopRequest {
  bool saves_first = false;
  std::uint32_t deadline_ms = 60'000;  ///< for saves_first
  std::string reason;

  RN_FIELDS(StopRequest, saves_first, deadline_ms, reason)
};

/// Where a job goes whose node is taken back, and every number that this was chosen from.
struct EvacuationView {
  std::string way;          ///< destination, delta, store or last_durable
  std::string destination;  ///< where it goes on; empty: nobody can take it now
  /// Where its newest state goes, or who gives what is durable once it has lost its node. Empty:
  /// nobody.
  std::string holder;
  std::uint64_t bytes = 0;  ///< to the holder
  double rate_q10 = 0;  ///< bytes a second that are exceeded nine times of ten; 0: no bottleneck
  double arrives_s = 0;
  double notice_s = 0;  ///< that was left
  double chance = 0;    ///< that all of it arrives in time
  double downtime_s = 0;
  double stay_s = 0;  ///< expected there, cautiously
  double speed = 0;
  double group_risk = 0;  ///< expected number of jobs lost together with it
  double utility = 0;     ///< useful seconds
  double regret = 0;      ///< by how much the next best was worse
  std::string next_best;
  std::uint32_t together = 0;  ///< jobs that were chosen for at once
  double trust = 1;            ///< in what is forecast of owners, 0 … 1
  std::string because;         ///< what made it be chosen anew
  std::string sentence;

  RN_FIELDS(
      EvacuationView,
      way,
      destination,
      holder,
      bytes,
      rate_q10,
      arrives_s,
      notice_s,
      chance,
      downtime_s,
      stay_s,
      speed,
      group_risk,
      utility,
      regret,
      next_best,
      together,
      trust,
      because,
      sentence
  )
};

struct NotebookAnswer {
  std::string url;            ///< for one browser, once
  std::string place;          ///< the same for as long as the job lives, for who has a session
  std::uint32_t lives_s = 0;  ///< of `url`, unless it is used before
  std::uint32_t port = 0;     ///< on which it listens in the guest

  RN_FIELDS(NotebookAnswer, url, place, lives_s, port)
};

struct WhyAnswer {
  JobId job;
  JobState state = JobState::kQueued;
  std::string sentence;
  std::optional<std::uint32_t> queue_position;  ///< from 1; none if it does not wait
  std::optional<EvacuationView> evacuation;     ///< none while it keeps its node

  RN_FIELDS(WhyAnswer, job, state, sentence, queue_position, evacuation)
};

struct AttemptList {
  std::vector<Attempt> attempts;  ///< oldest first

  RN_FIELDS(AttemptList, attempts)
};

/// What is in a log from `offset` on came at this time, or up to a second later.
struct LogTime {
  std::uint64_t offset = 0;
  std::int64_t wall_ms = 0;

  RN_FIELDS(LogTime, offset, wall_ms)
};

/// Where in an attempt's log that is which was asked for: bytes from `begin` until before `end`.
struct LogRange {
  std::uint32_t attempt = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size = 0;         ///< of the whole log, now
  std::vector<LogTime> times;     ///< the first one is that of `begin`; empty: none were kept
  std::uint64_t times_until = 0;  ///< behind it they are left out: ask again with it as `offset`

  RN_FIELDS(LogRange, attempt, begin, end, size, times, times_until)
};

struct GenerationInfo {
  GenerationRef generation;
  NodeId source;
  std::vector<NodeId> holders;
  std::int64_t committed_wall_ms = 0;
  bool is_collected = false;

  RN_FIELDS(GenerationInfo, generation, source, holders, committed_wall_ms, is_collected)
};

struct GenerationList {
  std::vector<GenerationInfo> generations;  ///< oldest first

  RN_FIELDS(GenerationList, generations)
};

// ---- events, images, blobs, tokens

/// The first message of an event stream.
struct StreamHello {
  std::uint64_t seq = 0;  ///< of the newest event that counts as told
  /// Every later event follows. False: more were missed than are told again, so that whoever reads
  /// must load anew what it shows.
  bool is_complete = true;

  RN_FIELDS(StreamHello, seq, is_complete)
};

/// For an owner: something that is not theirs to read happened on a machine of theirs.
struct StreamTouched {
  NodeId node;

  RN_FIELDS(StreamTouched, node)
};

struct EventInfo {
  std::uint64_t seq = 0;
  Digest hash{};  ///< SHA-256 of the previous event's hash and this event's body
  std::string kind;
  std::string message;
  JobId job;
  LeaseEpoch epoch;
  NodeId node;
  LabId lab;
  UserId user;
  std::int64_t at_wall_ms = 0;
  std::map<std::string, std::string> data;

  RN_FIELDS(EventInfo, seq, hash, kind, message, job, epoch, node, lab, user, at_wall_ms, data)
};

struct EventList {
  std::vector<EventInfo> events;
  std::uint64_t next_after = 0;  ///< `after` of the next page

  RN_FIELDS(EventList, events, next_after)
};

struct ImageList {
  std::vector<Image> images;

  RN_FIELDS(ImageList, images)
};

/// The archive's pieces are uploaded as blobs before.
struct ImageRequest {
  std::string name;
  std::string digest;  ///< "sha256:…" of the whole archive
  std::uint64_t bytes = 0;
  std::string base;
  std::vector<Digest> blobs;

  RN_FIELDS(ImageRequest, name, digest, bytes, base, blobs)
};

struct BlobQuery {
  std::vector<Digest> digests;

  RN_FIELDS(BlobQuery, digests)
};

struct BlobMissing {
  std::vector<Digest> missing;

  RN_FIELDS(BlobMissing, missing)
};

struct TokenRequest {
  std::string kind = "join";  ///< "join" or "user"
  std::string user;
  std::string lab;
  std::string role = "user";   ///< of a user token: "viewer", "user", "owner", "admin"
  std::uint32_t ttl_s = 3600;  ///< join: at most 3600; user: 0 = never expires

  RN_FIELDS(TokenRequest, kind, user, lab, role, ttl_s)
};

struct TokenInfo {
  std::string id;
  std::string kind;
  std::string user;
  std::string lab;
  std::string role;
  std::int64_t created_wall_ms = 0;
  std::int64_t expires_wall_ms = 0;  ///< 0 = never
  std::int64_t used_wall_ms = 0;     ///< 0 = not yet
  std::string used_by;
  bool is_revoked = false;

  RN_FIELDS(
      TokenInfo,
      id,
      kind,
      user,
      lab,
      role,
      created_wall_ms,
      expires_wall_ms,
      used_wall_ms,
      used_by,
      is_revoked
  )
};

struct TokenAnswer {
  std::string token;  ///< shown once
  TokenInfo info;

  RN_FIELDS(TokenAnswer, token, info)
};

struct TokenList {
  std::vector<TokenInfo> tokens;

  RN_FIELDS(TokenList, tokens)
};

// ---- history and the service itself

struct GpuHistory {
  std::uint32_t index = 0;
  std::uint32_t samples = 0;  ///< that have this GPU; what follows is of these alone
  double utilisation_percent = 0;
  double memory_used_mib = 0;
  double power_mw = 0;
  std::int32_t temperature_c_max = 0;

  RN_FIELDS(
      GpuHistory, index, samples, utilisation_percent, memory_used_mib, power_mw, temperature_c_max
  )
};

/// Means over one bucket of time.
struct NodeHistoryPoint {
  NodeId node;
  std::int64_t bucket_wall_ms = 0;
  std::uint32_t bucket_s = 300;
  std::uint32_t samples = 0;
  double cpu_percent = 0;
  double memory_used_mib = 0;
  double guests = 0;
  double lending_share = 0;
  std::vector<GpuHistory> gpus;

  RN_FIELDS(
      NodeHistoryPoint,
      node,
      bucket_wall_ms,
      bucket_s,
      samples,
      cpu_percent,
      memory_used_mib,
      guests,
      lending_share,
      gpus
  )
};

struct TelemetryList {
  std::vector<NodeHistoryPoint> points;

  RN_FIELDS(TelemetryList, points)
};

struct Whoami {
  std::string user;
  std::string lab;
  std::string role;
  std::string node;  ///< of an agent's certificate

  RN_FIELDS(Whoami, user, lab, role, node)
};

struct VersionAnswer {
  std::string version;
  std::uint32_t protocol = 0;
  std::uint32_t oldest_protocol = 0;

  RN_FIELDS(VersionAnswer, version, protocol, oldest_protocol)
};

struct HealthAnswer {
  bool is_ok = true;
  bool is_adopting = false;  ///< after a start: running attempts are taken over, nothing is placed
  std::string reason;

  RN_FIELDS(HealthAnswer, is_ok, is_adopting, reason)
};

}  // namespace rn::api
