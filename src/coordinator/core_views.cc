// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "coordinator/core.h"
#include "coordinator/core_commands.h"
#include "coordinator/core_contracts.h"
#include "coordinator/core_gang_placement.h"
#include "coordinator/core_gangs.h"
#include "coordinator/core_placement.h"
#include "coordinator/core_plan.h"
#include "coordinator/core_quota.h"
#include "coordinator/core_state.h"
#include "coordinator/core_why.h"

namespace rn::coordinator {

namespace {

NodeView view_of(const State& state, const NodeEntry& node, Now now) {
  NodeView view;
  view.row = node.row;
  view.is_connected = node.connection != 0;
  view.lending = node.lending;
  view.telemetry = node.telemetry;
  view.clock_offset_ms = node.clock_offset_ms;
  view.silent_ms = std::chrono::duration_cast<milliseconds>(now.boot - node.heard).count();
  view.departures_per_day = node.departures_per_day;
  view.outlook = node.outlook;
  const sched::Candidate candidate = candidate_of(state, node);
  view.used_gpus = candidate.used_gpus;
  view.used_cpu_milli = candidate.used_cpu_milli;
  view.used_memory_mib = candidate.used_memory_mib;
  for (const AttemptKey& key : node.attempts) {
    const auto job = state.jobs.find(key.first);
    if (job != state.jobs.end() && job->second.row.job.epoch == key.second)
      view.jobs.push_back(key.first);
  }
  return view;
}

constexpr const char* kTokenHint =
    "log in with a token from an administrator, whole as it was shown: `reclaim login URL`";

}  // namespace

Result<Caller> Core::authenticate(std::string_view id, std::string_view secret, WallTime now)
    const {
  const auto by_secret = state_->token_by_secret.find(crypto::sha256(as_bytes(secret)));
  if (by_secret == state_->token_by_secret.end() || by_secret->second != id)
    return fail(ErrorCode::kDenied, "the token is unknown", kTokenHint);
  return caller_of_token(by_secret->second, now);
}

Result<Caller> Core::caller_of_token(const std::string& id, WallTime now) const {
  const auto found = state_->tokens.find(id);
  if (found == state_->tokens.end())
    return fail(ErrorCode::kDenied, "the token is unknown", kTokenHint);
  const TokenRow& token = found->second;
  if (token.kind != TokenKind::kUser)
    return fail(ErrorCode::kDenied, "a join token is for `reclaim-agent join` only", kTokenHint);
  if (token.is_revoked) return fail(ErrorCode::kDenied, "the token was revoked", kTokenHint);
  if (token.expires_wall_ms != 0 && to_ms(now) >= token.expires_wall_ms)
    return fail(ErrorCode::kDenied, "the token has expired", kTokenHint);
  return Caller{.user = token.user, .lab = token.lab, .role = token.role};
}

bool Core::has_users() const {
  return std::any_of(state_->tokens.begin(), state_->tokens.end(), [](const auto& token) {
    return token.second.kind == TokenKind::kUser;
  });
}

bool Core::is_as_in_table(const TokenRow& token) const {
  const auto found = state_->users.find(token.user);
  return found != state_->users.end() && found->second.lab == token.lab &&
         found->second.role == token.role;
}

bool Core::may_read(const Caller& caller, const Job& job) {
  return caller.role == Role::kAdmin || (!caller.user.empty() && caller.user == job.owner);
}

bool Core::may_stop(const Caller& caller, const Job& job) {
  return rn::coordinator::may_stop(caller, job);
}

bool Core::may_renew(const NodeId& node, const Digest& public_key) const {
  const NodeEntry* entry = state_->find_node(node);
  return entry != nullptr && !entry->row.is_revoked && public_key != Digest{} &&
         entry->row.public_key == public_key;
}

const Job* Core::find_job(const JobId& id) const {
  const JobEntry* job = state_->find_job(id);
  return job == nullptr ? nullptr : &job->row.job;
}

const Job* Core::find_job(std::uint64_t number) const {
  const auto found = state_->jobs_by_number.find(number);
  return found == state_->jobs_by_number.end() ? nullptr : find_job(found->second);
}

std::vector<Job> Core::jobs(bool with_finished) const {
  std::vector<Job> result;
  for (const auto& [number, id] : state_->jobs_by_number) {
    const Job& job = state_->jobs.at(id).row.job;
    if (with_finished || !is_terminal(job.state)) result.push_back(job);
  }
  return result;
}

std::vector<Attempt> Core::attempts(const JobId& id) const {
  std::vector<Attempt> result;
  for (auto at = state_->attempts.lower_bound({id, LeaseEpoch{}});
       at != state_->attempts.end() && at->first.first == id;
       ++at)
    result.push_back(at->second.row.attempt);
  return result;
}

std::optional<api::GangInfo> Core::gang(const GangId& id) const {
  const GangEntry* gang = state_->find_gang(id);
  if (gang == nullptr) return std::nullopt;
  return gang_info(*state_, *gang);
}

std::vector<GenerationRow> Core::generations(const JobId& id) const {
  std::vector<GenerationRow> result;
  const auto found = state_->generations.find(id);
  if (found == state_->generations.end()) return result;
  for (const auto& [number, row] : found->second) result.push_back(row);
  return result;
}

Result<std::string> Core::why(const JobId& id, Now now) const {
  const JobEntry* job = state_->find_job(id);
  if (job == nullptr)
    return fail(ErrorCode::kNotFound, "no job " + id.str(), "`reclaim ps --all` lists the jobs");
  state_->now = now;
  return coordinator::why(*state_, *job);
}

std::optional<api::EvacuationView> Core::evacuation(const JobId& id) const {
  const auto found = state_->evacuations.find(id);
  if (found == state_->evacuations.end() || found->second.view.way.empty()) return std::nullopt;
  return found->second.view;
}

std::optional<std::uint32_t> Core::queue_position(const JobId& id, Now now) const {
  if (!state_->queued.contains(id)) return std::nullopt;
  state_->now = now;
  const std::vector<JobId> order = queue_order(*state_);
  const auto at = std::find(order.begin(), order.end(), id);
  return static_cast<std::uint32_t>(at - order.begin() + 1);
}

Result<api::Plan> Core::plan(
    const Caller& caller, const JobSpec& spec, Now now, std::uint32_t members, GangSpread spread
) const {
  state_->now = now;
  return make_plan(*state_, caller, spec, members, spread);
}

api::QuotaList Core::quotas(const Caller& caller, Now now) const {
  state_->now = now;
  return quotas_seen_by(*state_, caller);
}

std::vector<NodeView> Core::nodes(Now now) const {
  std::vector<NodeView> result;
  for (const auto& [id, node] : state_->nodes) result.push_back(view_of(*state_, node, now));
  return result;
}

std::optional<NodeView> Core::node(const NodeId& id, Now now) const {
  const NodeEntry* node = state_->find_node(id);
  if (node == nullptr) return std::nullopt;
  return view_of(*state_, *node, now);
}

std::optional<reclaim::HazardExplanation> Core::hazard(const NodeId& id, Now now) const {
  const NodeEntry* node = state_->find_node(id);
  if (node == nullptr) return std::nullopt;
  reclaim::HazardExplanation why = state_->hazard.why(id, node->row.lab, now.wall);
  why.history = node->row.history;
  return why;
}

std::vector<ReclaimRow> Core::reclaims() const {
  std::vector<ReclaimRow> result;
  for (const auto& [key, row] : state_->reclaims) result.push_back(row);
  std::stable_sort(result.begin(), result.end(), [](const ReclaimRow& a, const ReclaimRow& b) {
    if (a.record.node != b.record.node) return a.record.node < b.record.node;
    return a.record.declared_wall_ms < b.record.declared_wall_ms;
  });
  return result;
}

std::vector<ReclaimOrder> Core::orders(const NodeId& id) const {
  std::vector<ReclaimOrder> result;
  for (auto at = state_->orders.rbegin(); at != state_->orders.rend(); ++at)
    if (at->row.node == id) result.push_back(at->row);
  return result;
}

std::vector<ContractEdit> Core::edits(const NodeId& id) const {
  std::vector<ContractEdit> result;
  for (auto at = state_->edits.rbegin(); at != state_->edits.rend(); ++at)
    if (at->row.node == id) result.push_back(at->row);
  return result;
}

std::optional<NodeContract> Core::contract_of(const NodeId& id) const {
  const NodeEntry* const node = state_->find_node(id);
  if (node == nullptr) return std::nullopt;
  return NodeContract{node->row.contract, node->contract_version, node->proposal};
}

Status Core::may_edit_contract(const Caller& caller, const NodeId& id) const {
  return coordinator::may_edit_contract(*state_, caller, id);
}

std::vector<Image> Core::images() const {
  std::vector<Image> result;
  for (const auto& [name, image] : state_->images) result.push_back(image);
  return result;
}

std::vector<TokenRow> Core::tokens() const {
  std::vector<TokenRow> result;
  for (const auto& [id, token] : state_->tokens) result.push_back(token);
  return result;
}

Metrics Core::metrics() const {
  Metrics m = state_->metrics;
  m.jobs_queued = state_->queued.size();
  for (const GangEntry* gang : waiting_gangs(*state_)) m.jobs_queued += gang->row.size;
  m.jobs_placing = state_->placing.size();
  m.jobs_held = state_->held.size();
  for (const auto& [key, entry] : state_->transfers.entries)
    ++(entry.is_upload    ? m.uploads
       : !entry.is_fetch  ? m.transfers
       : entry.is_awaited ? m.fetches_awaited
                          : m.fetches_others);
  m.planned_rate = state_->transfers.planned_rate;
  m.evacuations = state_->evacuations.size();
  for (const auto& [id, e] : state_->evacuations)
    if (e.destination.empty()) ++m.evacuations_without_place;
  for (const JobId& id : state_->queued)
    if (state_->jobs.at(id).is_away_told) ++m.jobs_without_holder;
  m.jobs_running = state_->unfinished.size() - m.jobs_queued - m.jobs_placing - m.jobs_held;
  for (const auto& [id, node] : state_->nodes) {
    if (node.row.state == NodeState::kUp && node.connection != 0) ++m.nodes_up;
    if (node.row.state == NodeState::kSuspect) ++m.nodes_suspect;
    if (node.row.state == NodeState::kLost) ++m.nodes_lost;
    if (node.row.is_revoked) continue;
    m.gpus_total += node.row.facts.gpus.size();
    if (state_->is_up(node) && node.lending == LendingState::kOpen)
      m.gpus_open += node.row.facts.gpus.size();
  }
  return m;
}

bool Core::is_in_grace(Now now) const {
  return now.boot < state_->grace_until;
}

Caller Core::system_caller() {
  return {.user = UserId("system"), .lab = LabId("site"), .role = Role::kAdmin};
}

}  // namespace rn::coordinator
