// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/rng.h"
#include "base/time.h"
#include "model/node.h"
#include "model/wire.h"

// The node decides: probes become holds or refusals, a
// commit turns one hold into a lease. Pure: no I/O, no clock; owned by one thread.

namespace rn::arbiter {

/// What an attempt gets.
struct Grant {
  std::vector<std::uint32_t> gpus;
  std::uint32_t cpu_milli = 0;
  std::uint64_t memory_mib = 0;
  std::uint64_t disk_mib = 0;

  RN_FIELDS(Grant, gpus, cpu_milli, memory_mib, disk_mib)
};

/// What the node knows of itself besides contract and facts. Refreshed before it is asked.
/// Arbiter::why() of a node that its owner has announced to take back.
inline constexpr std::string_view kTakenLater = "the owner takes the node back";

/// A GPU that the contract gives windows of its own, now.
struct GpuWindow {
  std::uint32_t gpu = 0;
  std::uint32_t closes_in_s = 0;  ///< its own window's end; 0 = none within a week
  std::string closed_because;     ///< takes nobody new: why, as a part of a sentence; empty = open
};

struct Conditions {
  std::int32_t utc_offset_s = 0;
  bool is_paused = false;
  bool is_reclaimed = false;                  ///< the whole node
  bool is_taken_later = false;                ///< by every reclaim of it: guests may be there yet
  std::vector<std::uint32_t> reclaimed_gpus;  ///< single GPUs
  std::vector<std::uint32_t> paused_gpus;     ///< those, too; who has one keeps it
  std::vector<GpuWindow> gpu_windows;         ///< of single GPUs; the others go with the node
  bool is_owner_present = false;              ///< by the idle rule
  bool is_draining = false;                   ///< the node is leaving
  std::string taken_because;                  ///< the contract takes it back: why; empty = no
  bool is_able = true;                        ///< warden reachable, engine up
  std::string unable_because;
  Instant closed_until{};  ///< min_free_s after the last reclaim
  std::uint64_t disk_free_mib = 0;
  std::vector<GpuTelemetry> gpus;  ///< wedged, sick, foreign processes
};

struct Refusal {
  std::string reason;         ///< one sentence, for `why`
  bool is_permanent = false;  ///< this node can never take this job
};

struct ProbeAnswer {
  HoldId hold;  ///< empty = refused
  milliseconds ttl{0};
  Grant grant;
  Refusal refusal;
};

struct CommitAnswer {
  bool is_granted = false;
  bool is_repeated = false;  ///< this epoch's lease was granted before
  Grant grant;
  std::string reason;
};

struct Lease {
  LeaseEpoch epoch;
  Grant grant;
  Instant expiry{};
};

class Arbiter {
 public:
  static constexpr std::size_t kHoldsMax = 64;
  static constexpr milliseconds kHoldMin{50};
  static constexpr milliseconds kHoldMax{60000};

  /// `rng` names holds; it outlives the arbiter.
  Arbiter(LabId own_lab, Rng& rng) : own_lab_(std::move(own_lab)), rng_(rng) {}

  void set_contract(Contract contract) { contract_ = std::move(contract); }

  void set_facts(NodeFacts facts) { facts_ = std::move(facts); }

  void set_conditions(Conditions conditions) { conditions_ = std::move(conditions); }

  const Contract& contract() const { return contract_; }

  /// Whether a new guest could come at all, and one sentence why (not).
  LendingState lending(Now now) const;
  std::string why(Now now) const;

  /// One hold per job: a repeated probe gets the same hold with a fresh time to live. A hold may
  /// replace weaker uncommitted ones (own lab first if the contract says so, then priority).
  ProbeAnswer probe(const wire::Probe& probe, Now now);
  void cancel(const HoldId& hold);

  /// Turns the hold into a lease; the same commit again is granted again. Refused: unknown or
  /// expired hold, an epoch that is not above every epoch of this job seen here, a node that
  /// stopped lending meanwhile.
  CommitAnswer commit(const wire::Commit& commit, Now now);

  /// False if the job has no lease of this epoch.
  bool renew(const JobId& job, LeaseEpoch epoch, Instant expiry);
  void release(const JobId& job, LeaseEpoch epoch);
  /// After a restart: a lease that the journal knows.
  void restore_lease(const JobId& job, Lease lease);
  /// After a restart, and when a stale message told of one.
  void note_epoch(const JobId& job, LeaseEpoch epoch);

  LeaseEpoch highest_epoch(const JobId& job) const;  ///< none if the job was never here
  std::size_t holds(Now now) const;

  const std::map<JobId, Lease>& leases() const { return leases_; }

  void forget_job(const JobId& job) { highest_.erase(job); }

  void expire(Now now);  ///< drops holds that are over

 private:
  struct Hold {
    HoldId id;
    Grant grant;
    Instant expiry{};
    std::uint32_t priority = 0;
    bool is_own_lab = false;
  };

  struct Fit {
    bool fits = false;
    Grant grant;
    std::string reason;
  };

  Refusal never(const wire::Probe& probe) const;
  Fit fit(const wire::Probe& probe, const std::map<JobId, Hold>& holds) const;
  std::string why_gpus(const Resources& wanted, std::size_t free) const;
  bool is_gpu_usable(const Gpu& gpu) const;
  const GpuWindow* window_of(std::uint32_t gpu) const;
  std::vector<const Gpu*> last_to_close_first() const;
  std::vector<JobId> weaker_holds(const wire::Probe& probe) const;
  bool is_weaker(const Hold& hold, const wire::Probe& probe) const;
  std::uint32_t cpu_cap() const;
  std::uint32_t cpu_cap_of_one() const;
  std::uint64_t memory_cap() const;

  LabId own_lab_;
  Rng& rng_;
  Contract contract_;
  NodeFacts facts_;
  Conditions conditions_;
  std::map<JobId, Hold> holds_;
  std::map<JobId, Lease> leases_;
  std::map<JobId, LeaseEpoch> highest_;
};

/// True if capability "8.6" is at least "7.0"; an empty minimum is always met, an unreadable one
/// never.
bool is_capable(const std::string& capability, const std::string& minimum);

}  // namespace rn::arbiter
