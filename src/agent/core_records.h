// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/gpu_health.h"
#include "arbiter/arbiter.h"
#include "model/checkpoint.h"
#include "model/job.h"
#include "model/reclaim.h"
#include "model/wire.h"

namespace rn {

/// An attempt's life as the agent drives it; journalled before it is acted on.
enum class AttemptPhase : std::uint8_t {
  kLeased,     ///< the journal has it; nothing was touched
  kFetching,   ///< the image's archive is on its way
  kLoading,    ///< the warden gives it to the engine
  kMounting,   ///< the warden makes the disk
  kRestoring,  ///< workspace and resume generation are written
  kAdopting,   ///< the warden gives work/ to the guest; we never write there again
  kReady,      ///< a member of a gang, filled: waits until all others are, and for the word to go
  kStarting,   ///< the warden was asked to start the guest
  kRunning,
  kNoticed,     ///< told to save; runs until its next complete generation, at most to the deadline
  kStopping,    ///< the warden was asked to kill it
  kSaving,      ///< no process is left; a last snapshot, and the log into the spool
  kDraining,    ///< the newest generation goes to peers and becomes durable
  kPublishing,  ///< a success: outputs go to the coordinator
  kClosing,     ///< the rest of the log goes to the coordinator
  kEnded,       ///< waits for the acknowledgement, and for the warden to remove what is left
};
RN_ENUM(
    AttemptPhase,
    "leased",
    "fetching",
    "loading",
    "mounting",
    "restoring",
    "adopting",
    "ready",
    "starting",
    "running",
    "noticed",
    "stopping",
    "saving",
    "draining",
    "publishing",
    "closing",
    "ended"
)

}  // namespace rn

namespace rn::agent {

using Phase = AttemptPhase;

/// A generation in the own store.
struct GenerationRow {
  GenerationRef ref;
  std::vector<Receipt> receipts;
  bool is_committed = false;
  bool is_refused = false;  ///< the coordinator refused it; it stays as a parent only

  RN_FIELDS(GenerationRow, ref, receipts, is_committed, is_refused)
};

/// Why an attempt has to stop, and by when.
struct StopOrder {
  AttemptEnd end = AttemptEnd::kNone;  ///< none = no order
  std::int64_t deadline_ns = 0;        ///< boot clock; 0 = at once
  std::string reason;
  ReclaimId reclaim;         ///< that caused it; empty = another cause
  std::int64_t kill_ns = 0;  ///< shortly before the deadline: time for a last snapshot

  RN_FIELDS(StopOrder, end, deadline_ns, reason, reclaim, kill_ns)
};

/// What changes in an attempt's life. The commit message is a row of its own, written once.
struct AttemptRow {
  Phase phase = Phase::kLeased;
  arbiter::Grant grant;
  std::string boot_id;  ///< of the boot that the *_ns fields belong to
  std::int64_t leased_ns = 0;
  std::int64_t started_ns = 0;
  std::int64_t drain_since_ns = 0;
  std::string disk;
  StopOrder stop;
  std::uint32_t signalled = 0;
  bool is_signalled = false;  ///< SignalGuest was answered
  AttemptEnd end = AttemptEnd::kNone;
  std::int32_t exit_code = 0;
  std::string detail;
  GenerationRef restored;
  std::vector<GenerationRow> generations;  ///< oldest first; the newest few
  wire::CopyPlan plan;                     ///< the newest one
  Digest outputs{};
  bool has_outputs = false;
  bool is_published = false;
  bool is_fenced = false;
  bool is_disk_gone = false;
  std::uint64_t next_seq = 1;
  std::vector<wire::AttemptEvent> events;  ///< not yet acknowledged
  bool is_released = false;                ///< container and disk are gone
  std::vector<NodeId> waits_for;           ///< holders of what it resumes from, who give no word
  std::optional<wire::GangGo> gang_go;     ///< the newest; none: its gang may not begin yet
  std::uint32_t checkpoints_found = 0;     ///< whole ones, of a gang's member
  /// Signals asked for whose answer is not known: some process may have had one. Written before the
  /// warden is asked, since either daemon may die between the signal and the answer.
  std::uint32_t signals_in_doubt = 0;
  /// Boot clock; a notice that was withdrawn after a signal gave it this long: who leaves before
  /// then leaves for that. 0 = none.
  std::int64_t told_until_ns = 0;
  /// Links of a gang's member that this agent broke or could not open; of those that broke with an
  /// earlier process of it at least one. Written for the first one alone.
  std::uint32_t links_broken = 0;

  RN_FIELDS(
      AttemptRow,
      phase,
      grant,
      boot_id,
      leased_ns,
      started_ns,
      drain_since_ns,
      disk,
      stop,
      signalled,
      is_signalled,
      end,
      exit_code,
      detail,
      restored,
      generations,
      plan,
      outputs,
      has_outputs,
      is_published,
      is_fenced,
      is_disk_gone,
      next_seq,
      events,
      is_released,
      waits_for,
      gang_go,
      checkpoints_found,
      signals_in_doubt,
      told_until_ns,
      links_broken
  )
};

/// A reclaim that the coordinator does not know completely yet.
struct ReclaimRow {
  ReclaimRecord record;
  bool is_acked = false;
  ReclaimPhase acked = ReclaimPhase::kDeclared;
  bool is_own = false;  ///< by the contract: end of a window, owner at the machine, leaving

  RN_FIELDS(ReclaimRow, record, is_acked, acked, is_own)
};

struct EpochRow {
  LeaseEpoch epoch;

  RN_FIELDS(EpochRow, epoch)
};

struct NodeRow {
  std::uint32_t highest_generation = 0;
  bool is_leaving = false;
  std::string leave_reason;
  std::vector<GpuHealth> health;  ///< of GPUs that have been seen

  RN_FIELDS(NodeRow, highest_generation, is_leaving, leave_reason, health)
};

/// Keys: "commit/JOB/EPOCH", "attempt/JOB/EPOCH", "epoch/JOB", "reclaim/ID", "node", "proposal".
std::string encode_row(const AttemptRow& row);
std::string encode_row(const ReclaimRow& row);
std::string encode_row(const EpochRow& row);
std::string encode_row(const NodeRow& row);
std::string encode_row(const wire::Commit& row);
std::string encode_row(const ContractProposal& row);

/// kCorrupt; fields that this version does not know are ignored.
Result<AttemptRow> decode_attempt_row(const std::string& text);
Result<ReclaimRow> decode_reclaim_row(const std::string& text);
Result<EpochRow> decode_epoch_row(const std::string& text);
Result<NodeRow> decode_node_row(const std::string& text);
Result<wire::Commit> decode_commit_row(const std::string& text);
Result<ContractProposal> decode_proposal_row(const std::string& text);

}  // namespace rn::agent
