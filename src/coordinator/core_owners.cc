// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_owners.h"

#include <algorithm>

#include "arbiter/clocks.h"
#include "base/printable.h"
#include "coordinator/core_placement.h"
#include "sched/candidates.h"

namespace rn::coordinator {

namespace {

constexpr seconds kHealthEvery{60};
constexpr std::chrono::hours kClockEvery{1};
constexpr std::size_t kSicknessBytes = 300;
constexpr seconds kEmptyFor{900};  // short jobs one after the other are one time of lending
constexpr seconds kWantedEvery{60};
constexpr std::size_t kWantedJobs = 64;

std::string gpu_name(std::uint32_t index) {
  return "GPU " + std::to_string(index);
}

std::string sickness_told(const NodeEntry& node, std::uint32_t index) {
  for (const GpuTelemetry& live : node.telemetry.gpus) {
    if (live.index == index) return printable(live.sickness.substr(0, kSicknessBytes));
  }
  return "";
}

bool is_at_work(const AttemptEntry& attempt) {
  const AttemptState at = attempt.row.attempt.state;
  return at == AttemptState::kRunning || at == AttemptState::kNoticed;
}

/// "job 7 of ann (lab-x)"
std::string told_name(const Job& job) {
  return "job " + std::to_string(job.number) + " of " + job.owner.str() + " (" + job.lab.str() +
         ")";
}

/// The one lab whose machines could take it, if none of them lends now; empty: it is not so.
LabId only_lab(
    const State& state, const JobEntry& job, const std::vector<sched::Candidate>& candidates
) {
  const sched::Demand demand = demand_of(job);
  LabId lab;
  for (const sched::Candidate& c : candidates) {
    const sched::Judgement judgement = sched::judge(demand, c);
    if (judgement.fit == sched::Fit::kNever) continue;
    const auto node = state.nodes.find(c.node);
    if (node == state.nodes.end() || judgement.fit == sched::Fit::kFits) return {};
    if (!lab.empty() && lab != node->second.row.lab) return {};
    if (node->second.lending == LendingState::kOpen) return {};  // it lends, and is full
    lab = node->second.row.lab;
  }
  return lab;
}

/// A machine of the lab that is connected and could take it.
NodeEntry* wanted_node(
    State& state,
    const JobEntry& job,
    const LabId& lab,
    const std::vector<sched::Candidate>& candidates
) {
  const sched::Demand demand = demand_of(job);
  for (const sched::Candidate& c : candidates) {
    if (sched::judge(demand, c).fit == sched::Fit::kNever) continue;
    NodeEntry* const node = state.find_node(c.node);
    if (node != nullptr && node->row.lab == lab && node->connection != 0) return node;
  }
  return nullptr;
}

}  // namespace

void follow_health(State& state, NodeEntry& node) {
  std::vector<std::uint32_t> sick;
  for (const Gpu& gpu : node.row.facts.gpus) {
    if (!sickness_told(node, gpu.index).empty()) sick.push_back(gpu.index);
  }
  const std::vector<std::uint32_t> before = node.row.sick_gpus;
  const bool is_early =
      node.health_noted && state.now.boot - *node.health_noted < nanoseconds(kHealthEvery);
  if (sick == before || is_early) return;
  const auto is_in = [](const std::vector<std::uint32_t>& list, std::uint32_t gpu) {
    return std::find(list.begin(), list.end(), gpu) != list.end();
  };
  for (const std::uint32_t gpu : sick) {
    if (is_in(before, gpu)) continue;
    state.note(
        node,
        "gpu.sick",
        gpu_name(gpu) + " is sick: " + sickness_told(node, gpu),
        {{"gpu", std::to_string(gpu)}}
    );
  }
  for (const std::uint32_t gpu : before) {
    if (!is_in(sick, gpu))
      state.note(
          node, "gpu.well", gpu_name(gpu) + " is well again", {{"gpu", std::to_string(gpu)}}
      );
  }
  node.row.sick_gpus = std::move(sick);
  node.health_noted = state.now.boot;
  state.save(node);
  forget_refusals(state, node.row.node);
  state.is_dispatch_wanted = true;
}

void follow_clock(State& state, NodeEntry& node) {
  const bool is_apart = arbiter::are_clocks_apart(node.clock_offset_ms);
  if (is_apart == node.is_clock_apart) return;
  const bool is_early =
      node.clock_noted && state.now.boot - *node.clock_noted < nanoseconds(kClockEvery);
  if (is_apart && is_early) return;
  node.is_clock_apart = is_apart;
  node.clock_noted = state.now.boot;
  state.note(
      node,
      is_apart ? "node.clock_apart" : "node.clock_right",
      is_apart ? arbiter::clocks_words(node.row.contract, node.clock_offset_ms) +
                     "; next: " + arbiter::kClocksHelp
               : "its clock and the coordinator's are the same again",
      {{"clock_offset_ms", std::to_string(node.clock_offset_ms)}}
  );
}

void follow_guests(State& state, NodeEntry& node) {
  const AttemptEntry* guest = nullptr;
  for (const AttemptKey& key : node.attempts) {
    const auto found = state.attempts.find(key);
    if (found != state.attempts.end() && is_at_work(found->second)) guest = &found->second;
  }
  if (guest == nullptr) {
    if (!node.row.is_lent) return;
    if (!node.empty_since) node.empty_since = state.now.boot;
    if (state.now.boot - *node.empty_since < nanoseconds(kEmptyFor)) return;
    node.row.is_lent = false;
    return state.save(node);
  }
  node.empty_since.reset();
  if (node.row.is_lent) return;
  node.row.is_lent = true;
  state.save(node);
  const JobEntry* const job = state.find_job(guest->row.attempt.job);
  if (job == nullptr) return;
  state.note(
      node,
      "node.lent",
      told_name(job->row.job) + " runs on it",
      {{"number", std::to_string(job->row.job.number)}, {"lab", job->row.job.lab.str()}}
  );
}

void look_for_wanted(State& state) {
  if (state.is_in_grace() || state.now.boot - state.wanted_looked_at < nanoseconds(kWantedEvery))
    return;
  state.wanted_looked_at = state.now.boot;
  std::vector<sched::Candidate> candidates;
  std::size_t looked = 0;
  for (const JobId& id : state.queued) {
    JobEntry* const job = state.find_job(id);
    if (job == nullptr || job->is_want_told || job->row.is_held) continue;
    const std::int64_t waited_ms = state.wall_ms() - job->row.job.submitted_wall_ms;
    if (waited_ms < std::int64_t{state.config.wanted_after_s} * 1000) continue;
    if (looked++ == kWantedJobs) break;
    if (candidates.empty()) candidates = candidates_of(state);
    const LabId lab = only_lab(state, *job, candidates);
    if (lab.empty()) continue;
    NodeEntry* const node = wanted_node(state, *job, lab, candidates);
    if (node == nullptr) continue;
    job->is_want_told = true;
    state.note(
        *node,
        "node.wanted",
        told_name(job->row.job) + " has waited for " +
            short_duration(state.wall_ms() - job->row.job.submitted_wall_ms) +
            ", and only machines of this lab could take it",
        {{"number", std::to_string(job->row.job.number)}}
    );
  }
}

}  // namespace rn::coordinator
