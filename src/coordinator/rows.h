// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the coordinator keeps: one structure per table. The store writes each as one row (its key
// columns beside a JSON body made by model/codec.h); the core reads them all back once, at start.
// rows.cc instantiates the codec for every one of them.

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "model/checkpoint.h"
#include "model/gang.h"
#include "model/job.h"
#include "model/node.h"
#include "model/quota.h"
#include "model/reclaim.h"
#include "reclaim/hazard_state.h"

namespace rn::coordinator {

/// What a caller may do, in ascending order. A viewer reads; a user also submits and stops own
/// jobs; an owner also makes join tokens for the own lab and stops jobs of the own lab; an admin
/// may do everything.
enum class Role : std::uint8_t { kViewer, kUser, kOwner, kAdmin };

enum class TokenKind : std::uint8_t { kUser, kJoin };

}  // namespace rn::coordinator

namespace rn {
RN_ENUM(coordinator::Role, "viewer", "user", "owner", "admin")
RN_ENUM(coordinator::TokenKind, "user", "join")
}  // namespace rn

namespace rn::coordinator {

using rn::to_string;

/// Key: job.id. The job with everything about it that no user sees.
struct JobRow {
  Job job;
  Blob wrapped_key;             ///< job key, sealed by the site's wrapping key (associated: job id)
  std::string idempotency_key;  ///< unique per owner; empty = none given
  std::int64_t not_before_wall_ms = 0;  ///< backoff after a crash; 0 = at once
  std::int64_t queued_wall_ms = 0;      ///< since when it waits
  bool is_displaced = false;            ///< goes to the head of its class
  bool is_fallback = false;  ///< the newest generation crashed at once and was condemned: resumes
                             ///< from the one before, once
  NodeId home;               ///< node it was displaced from and may return to
  NodeId avoid;              ///< node of the newest crash; others are tried first
  std::string stop_reason;   ///< a stop was asked; empty = none
  AttemptEnd stop_end = AttemptEnd::kNone;  ///< what the asked stop ends the attempt as
  bool stop_saves_first = false;
  std::uint32_t stop_deadline_ms = 0;
  bool is_going_home = false;  ///< the asked stop is a migrate-back
  /// Not in the queue yet: it waits for others (core_waiting.h). Once false, it stays so.
  bool is_held = false;
  std::vector<AfterJob> waits_for;  ///< of spec.after what has not happened yet, with ids
  Digest request{};  ///< of an array's first task: SHA-256 of what was asked with its key

  RN_FIELDS(
      JobRow,
      job,
      wrapped_key,
      idempotency_key,
      not_before_wall_ms,
      queued_wall_ms,
      is_displaced,
      is_fallback,
      home,
      avoid,
      stop_reason,
      stop_end,
      stop_saves_first,
      stop_deadline_ms,
      is_going_home,
      is_held,
      waits_for,
      request
  )
};

/// Key: id. What belongs to all members of a gang (ADR 0027); each has its JobRow beside it.
struct GangRow {
  GangId id;
  UserId owner;
  LabId lab;
  std::uint32_t size = 0;
  GangSaves saves = GangSaves::kAuto;
  GangShare share = GangShare::kAll;
  GangEnds ends = GangEnds::kAll;
  GangSpread spread = GangSpread::kNode;
  std::vector<JobId> members;  ///< by rank
  GangState state = GangState::kWaiting;
  LeaseEpoch epoch;       ///< of all members' newest attempts; none before the first placement
  bool is_go = false;     ///< all were ready in this epoch, and are told to begin
  bool all_save = false;  ///< of GangSaves::kAuto: another rank than 0 saves, too; never unsaid
  GangCause cause;        ///< of the newest stop
  AttemptEnd stop_end = AttemptEnd::kNone;  ///< a stop was asked: what it ends as
  bool stop_saves_first = false;
  std::uint32_t stop_deadline_ms = 0;  ///< from stopped_wall_ms
  std::int64_t stopped_wall_ms = 0;    ///< since when it stops; 0 = it does not
  GangSet set;                         ///< the newest
  GangSet previous;                    ///< the one before it
  bool is_fallback = false;  ///< the newest set was condemned: it goes on from the one before, once
  std::int64_t not_before_wall_ms = 0;  ///< pause before it is placed again; 0 = none
  std::int64_t queued_wall_ms = 0;      ///< since when it waits
  bool is_displaced = false;            ///< goes to the head of its class
  std::int64_t gathered_wall_ms = 0;    ///< end of its newest gathering in vain; 0 = never
  std::string idempotency_key;          ///< unique per owner; empty = none given
  Digest request{};                     ///< SHA-256 of what was asked with that key

  RN_FIELDS(
      GangRow,
      id,
      owner,
      lab,
      size,
      saves,
      share,
      ends,
      spread,
      members,
      state,
      epoch,
      is_go,
      all_save,
      cause,
      stop_end,
      stop_saves_first,
      stop_deadline_ms,
      stopped_wall_ms,
      set,
      previous,
      is_fallback,
      not_before_wall_ms,
      queued_wall_ms,
      is_displaced,
      gathered_wall_ms,
      idempotency_key,
      request
  )
};

/// Key: attempt.job, attempt.epoch.
struct AttemptRow {
  Attempt attempt;
  std::uint64_t last_seq = 0;  ///< every event up to it is in here
  std::uint64_t granted_cpu_milli = 0;
  std::uint32_t safe_generation = 0;
  bool is_tail_open = false;  ///< it ended in order: the rest of its log is still taken
  std::int64_t last_step = -1;

  RN_FIELDS(
      AttemptRow, attempt, last_seq, granted_cpu_milli, safe_generation, is_tail_open, last_step
  )
};

/// Key: node. Everything that a restarted coordinator must know before the node says hello again.
struct NodeRow {
  NodeId node;
  LabId lab;
  std::string machine_id;  ///< hash of the machine's identifier, fixed at join
  std::string boot_id;
  Digest public_key{};  ///< SHA-256 of the certificate key's SubjectPublicKeyInfo (DER)
  NodeState state = NodeState::kUp;
  bool is_revoked = false;  ///< its certificate is no longer taken
  NodeAddress address;
  NodeFacts facts;
  Contract contract;
  Digest box_key{};
  Digest verify_key{};
  std::string version;
  std::int64_t joined_wall_ms = 0;
  std::int64_t last_seen_wall_ms = 0;
  NodeHistory history;
  std::vector<std::uint32_t> sick_gpus;  ///< as its owners were told
  bool is_lent = false;                  ///< a guest ran there a short while ago: they know

  RN_FIELDS(
      NodeRow,
      node,
      lab,
      machine_id,
      boot_id,
      public_key,
      state,
      is_revoked,
      address,
      facts,
      contract,
      box_key,
      verify_key,
      version,
      joined_wall_ms,
      last_seen_wall_ms,
      history,
      sick_gpus,
      is_lent
  )
};

/// Key: generation.job, generation.generation. A durable generation with the word of its holders.
struct GenerationRow {
  GenerationRef generation;
  NodeId source;
  std::vector<Receipt> receipts;
  std::int64_t committed_wall_ms = 0;
  bool is_collected = false;  ///< holders were told to delete it

  RN_FIELDS(GenerationRow, generation, source, receipts, committed_wall_ms, is_collected)
};

/// Key: record.node, record.id. The newest phase that the node reported.
struct ReclaimRow {
  ReclaimRecord record;
  std::int64_t reported_wall_ms = 0;

  RN_FIELDS(ReclaimRow, record, reported_wall_ms)
};

/// Key: id. The secret itself is never stored.
struct TokenRow {
  std::string id;        ///< "t-", or of a sign-in "s-", and 16 hex digits
  Digest secret_hash{};  ///< SHA-256 of the secret's text
  TokenKind kind = TokenKind::kUser;
  UserId user;  ///< whom it stands for, or who made the join token
  LabId lab;
  Role role = Role::kUser;
  std::int64_t created_wall_ms = 0;
  std::int64_t expires_wall_ms = 0;  ///< 0 = never
  std::int64_t used_wall_ms = 0;     ///< of a join token: redeemed; 0 = not yet
  NodeId used_by;
  bool is_revoked = false;

  RN_FIELDS(
      TokenRow,
      id,
      secret_hash,
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

/// Key: user.
struct UserRow {
  UserId user;
  LabId lab;
  Role role = Role::kUser;
  std::int64_t created_wall_ms = 0;

  RN_FIELDS(UserRow, user, lab, role, created_wall_ms)
};

/// Key: user. Half-life usage (sched/fair_share.h): GPU-seconds, decayed to `as_of_wall_ms`.
struct UsageRow {
  UserId user;
  LabId lab;
  double used_gpu_s = 0;
  double lent_gpu_s = 0;  ///< only in the lab's own row (empty user): what its nodes gave to others
  std::int64_t as_of_wall_ms = 0;

  RN_FIELDS(UsageRow, user, lab, used_gpu_s, lent_gpu_s, as_of_wall_ms)
};

/// Key: all but gpu_s. What a user of a lab used of GPUs of one model in one hour of the wall
/// clock.
struct GpuHourRow {
  UserId user;
  LabId lab;
  std::string gpu_model;
  std::int64_t hour = 0;  ///< since 1970
  double gpu_s = 0;

  RN_FIELDS(GpuHourRow, user, lab, gpu_model, hour, gpu_s)
};

/// Append only; the store numbers and hash-chains them. `data` holds the numbers for programs.
struct EventRow {
  std::string kind;  ///< "job.submitted", "node.lost", …
  std::string message;
  JobId job;
  LeaseEpoch epoch;
  NodeId node;
  LabId lab;
  UserId user;
  std::int64_t at_wall_ms = 0;
  std::map<std::string, std::string> data;
  std::map<std::string, std::string> states;  ///< what has changed with it, see states.h

  RN_FIELDS(EventRow, kind, message, job, epoch, node, lab, user, at_wall_ms, data, states)
};

/// Key: job, epoch.
struct OutputsRow {
  JobId job;
  LeaseEpoch epoch;
  Digest listing{};
  std::int64_t published_wall_ms = 0;

  RN_FIELDS(OutputsRow, job, epoch, listing, published_wall_ms)
};

/// Mean and maximum of one GPU in one bucket of time.
struct GpuRollup {
  std::uint32_t index = 0;
  std::uint32_t samples = 0;  ///< that have this GPU; what follows is of these alone
  double utilisation_percent = 0;
  double memory_used_mib = 0;
  std::uint64_t memory_used_mib_max = 0;
  std::int32_t temperature_c_max = 0;
  double power_mw = 0;

  RN_FIELDS(
      GpuRollup,
      index,
      samples,
      utilisation_percent,
      memory_used_mib,
      memory_used_mib_max,
      temperature_c_max,
      power_mw
  )
};

/// Key: node, bucket_wall_ms. Written once, when the bucket is over.
struct RollupRow {
  NodeId node;
  std::int64_t bucket_wall_ms = 0;
  std::uint32_t bucket_s = 300;
  std::uint32_t samples = 0;
  double cpu_percent = 0;
  double memory_used_mib = 0;
  std::uint64_t memory_used_mib_max = 0;
  std::uint64_t disk_free_mib_min = 0;
  double guests = 0;
  double lending_share = 0;  ///< share of the samples in which the node took guests
  std::vector<GpuRollup> gpus;

  RN_FIELDS(
      RollupRow,
      node,
      bucket_wall_ms,
      bucket_s,
      samples,
      cpu_percent,
      memory_used_mib,
      memory_used_mib_max,
      disk_free_mib_min,
      guests,
      lending_share,
      gpus
  )
};

// ---- mutations
// ----------------------------------------------------------------------------------------------

/// Insert or replace by key, unless said otherwise. The store applies the writes of a batch in
/// order in one transaction.
struct PutJob {
  JobRow row;
};

struct PutAttempt {
  AttemptRow row;
};

struct PutGang {
  GangRow row;
};

struct PutNode {
  NodeRow row;
};

/// Only where the job's row has exactly this epoch; a condition that fails in the store is a broken
/// invariant (the core checked it), and ends the process.
struct PutGeneration {
  GenerationRow row;
  LeaseEpoch required_epoch;
};

struct PutReclaim {
  ReclaimRow row;
};

struct PutImage {
  Image image;
};

struct DeleteImage {
  std::string name;
};

struct PutToken {
  TokenRow row;
};

struct PutUser {
  UserRow row;
};

struct PutUsage {
  UsageRow row;
};

/// Conditional like PutGeneration.
struct PutOutputs {
  OutputsRow row;
};

struct AppendEvent {
  EventRow row;
};

/// "generation" (the database generation of epochs), "next_job_number", …
struct SetMeta {
  std::string key;
  std::string value;
};

struct PutRollup {
  RollupRow row;
};

/// What was learnt of the owners: one row for the campus, one for each lab, one for each node.
struct PutCampusHazard {
  reclaim::CampusHazard row;
};

/// Key: lab.
struct PutLabHazard {
  reclaim::LabHazard row;
};

/// Key: node.
struct PutNodeHazard {
  reclaim::NodeHazard row;
};

struct PutQuota {
  Quota row;
};

struct DeleteQuota {
  std::string subject;
  std::string gpu_model;
};

struct PutGpuHour {
  GpuHourRow row;
};

/// All of before this hour, of everybody.
struct DropGpuHours {
  std::int64_t before_hour = 0;
};

using Write = std::variant<
    PutJob,
    PutAttempt,
    PutNode,
    PutGeneration,
    PutReclaim,
    PutImage,
    DeleteImage,
    PutToken,
    PutUser,
    PutUsage,
    PutOutputs,
    AppendEvent,
    SetMeta,
    PutRollup,
    PutCampusHazard,
    PutLabHazard,
    PutNodeHazard,
    PutQuota,
    DeleteQuota,
    PutGpuHour,
    DropGpuHours,
    PutGang>;

/// Everything that the core needs at start. Jobs: every unfinished one, and at least the newest
/// finished ones (their attempts and generations too). Events and rollups stay in the store.
struct Snapshot {
  std::map<std::string, std::string> meta;
  std::vector<JobRow> jobs;
  std::vector<AttemptRow> attempts;
  std::vector<NodeRow> nodes;
  std::vector<GenerationRow> generations;
  std::vector<ReclaimRow> reclaims;
  std::vector<Image> images;
  std::vector<TokenRow> tokens;
  std::vector<UserRow> users;
  std::vector<UsageRow> usage;
  std::optional<reclaim::CampusHazard> campus_hazard;  ///< none before the first was written
  std::vector<reclaim::LabHazard> lab_hazards;
  std::vector<reclaim::NodeHazard> node_hazards;
  std::vector<Quota> quotas;
  std::vector<GpuHourRow> gpu_hours;
  std::vector<GangRow> gangs;  ///< every one that is not over, and at least the newest others
};

}  // namespace rn::coordinator
