// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "base/time.h"
#include "coordinator/core_types.h"
#include "model/api.h"
#include "model/plan.h"
#include "reclaim/hazard_state.h"

namespace rn::coordinator {

struct State;

/// The coordinator's decisions: registry, queue, placement, job life cycle, durability,
/// migrate-back. A state machine without I/O, threads or clock of its own; deterministic for equal
/// events, times and random numbers. One thread.
///
///   Core core(config, keys, rng);
///   shell.carry_out(core.restore(store.load(), clock.now()));
///   loop: shell.carry_out(core.handle(event, clock.now()));
///
/// Commands are authorized here; what a view may show to whom is asked with may_read().
class Core {
 public:
  /// Borrows `rng`, which must outlive this and be unpredictable in production (keys, tokens).
  Core(const Config& config, const SiteKeys& keys, Rng& rng);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// First call, exactly once. Takes over the rows, and opens a new database generation (a write).
  /// No job is dispatched for lost_after heartbeats afterwards, so that running attempts are
  /// adopted.
  Output restore(Snapshot snapshot, Now now);

  /// Never fails: what is wrong with an event is said to whoever sent it.
  Output handle(const Event& event, Now now);

  /// When the next Tick is wanted, at the latest: a hold of a node lives only as long as some round
  /// trips, so a regular tick may come too late. Never later than Config::tick_ms from `now`.
  Instant wake_at(Now now) const;

  // ---- views: state that may be ahead of the disk. Answer a request from them only after all
  // earlier outputs are durable.

  /// The caller behind a bearer token's id and secret. kDenied with what to do next if unknown,
  /// expired or revoked, and if they do not belong together.
  Result<Caller> authenticate(std::string_view id, std::string_view secret, WallTime now) const;
  /// The same for one whose secret was seen before, by its id: whether it still counts.
  Result<Caller> caller_of_token(const std::string& id, WallTime now) const;
  /// True once a user token exists: before, the shell makes the first admin token itself.
  bool has_users() const;
  /// Whether the table of users says laboratory and role of the token's user as the token does.
  bool is_as_in_table(const TokenRow& token) const;
  /// True if `caller` may read the logs, outputs, command and environment of a job.
  static bool may_read(const Caller& caller, const Job& job);
  /// True if `caller` may stop it: its user, an owner of its lab, an admin.
  static bool may_stop(const Caller& caller, const Job& job);
  /// A node's identity is known and not revoked, with this key: its certificate may be renewed.
  bool may_renew(const NodeId& node, const Digest& public_key) const;

  /// nullptr if unknown (finished long ago: ask the store). Valid until the next event.
  const Job* find_job(const JobId& id) const;
  const Job* find_job(std::uint64_t number) const;
  std::vector<Job> jobs(bool with_finished) const;  ///< by number, ascending
  std::vector<Attempt> attempts(const JobId& id) const;
  std::optional<api::GangInfo> gang(const GangId& id) const;      ///< nullopt: not remembered
  std::vector<GenerationRow> generations(const JobId& id) const;  ///< durable ones, ascending
  /// One sentence: what it does and why, or what it waits for ("0 of 41 GPUs can ever match; …").
  Result<std::string> why(const JobId& id, Now now) const;
  /// The newest choice for a job whose node is taken back; nullopt if there is none.
  std::optional<api::EvacuationView> evacuation(const JobId& id) const;
  /// From 1; nullopt if the job does not wait.
  std::optional<std::uint32_t> queue_position(const JobId& id, Now now) const;
  /// What would become of such a job if the caller submitted it now. Errors as a submit's.
  Result<api::Plan> plan(
      const Caller& caller,
      const JobSpec& spec,
      Now now,
      std::uint32_t members = 0,  ///< of a gang of such jobs; 0: it is one by itself
      GangSpread spread = GangSpread::kNode
  ) const;
  /// Quotas, and who has how much of them, as far as the caller may see it.
  api::QuotaList quotas(const Caller& caller, Now now) const;
  std::vector<NodeView> nodes(Now now) const;  ///< by id
  std::optional<NodeView> node(const NodeId& id, Now now) const;
  /// What is expected of the node's owner, and from what; nullopt if the node is unknown.
  std::optional<reclaim::HazardExplanation> hazard(const NodeId& id, Now now) const;
  std::vector<ReclaimRow> reclaims() const;  ///< by node, then time
  /// Owners' orders to take the node back, of the last minutes, newest first.
  std::vector<ReclaimOrder> orders(const NodeId& id) const;
  /// Edits of the node's contract from afar, of the last minutes or still waiting, newest first.
  std::vector<ContractEdit> edits(const NodeId& id) const;
  std::optional<NodeContract> contract_of(const NodeId& id) const;  ///< nullopt: no such node
  /// kNotFound, kDenied: it is edited by the owners of the node's lab alone.
  Status may_edit_contract(const Caller& caller, const NodeId& id) const;
  std::vector<Image> images() const;     ///< by name
  std::vector<TokenRow> tokens() const;  ///< by id, without secrets
  Metrics metrics() const;
  /// True while attempts are being re-adopted after a start: /readyz says so.
  bool is_in_grace(Now now) const;
  /// The caller for the shell's own commands (first admin token).
  static Caller system_caller();

 private:
  std::unique_ptr<State> state_;
};

}  // namespace rn::coordinator
