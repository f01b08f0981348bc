// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_plan.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "coordinator/core_commands.h"
#include "coordinator/core_estimates.h"
#include "coordinator/core_gang_placement.h"
#include "coordinator/core_placement.h"
#include "coordinator/core_quota.h"
#include "coordinator/core_waiting.h"

namespace rn::coordinator {

namespace {

constexpr double kForecastMost_s = 14 * 86'400.0;  // no hazard is forecast for longer
constexpr double kBandLow = 0.05;
constexpr double kBandHigh = 0.95;

/// When a guest must have ended.
struct GuestEnd {
  double in_s = 0;
  JobId job;
  std::vector<std::uint32_t> gpus;
};

/// Guests of a node whose jobs say how long they may run, first to end first.
std::vector<GuestEnd> ends_of_guests(const State& state, const NodeEntry& node) {
  std::vector<GuestEnd> ends;
  for (const AttemptKey& key : node.attempts) {
    const auto job = state.jobs.find(key.first);
    const auto attempt = state.attempts.find(key);
    if (job == state.jobs.end() || attempt == state.attempts.end()) continue;
    const std::uint32_t longest_s = job->second.row.job.spec.max_duration_s;
    if (longest_s == 0) continue;
    // One that starts yet has all of its time before it.
    const std::int64_t started_ms = attempt->second.row.attempt.started_wall_ms;
    const std::int64_t ran_ms = started_ms == 0 ? 0 : state.wall_ms() - started_ms;
    const double left_s = std::max(0.0, longest_s - static_cast<double>(ran_ms) / 1e3);
    ends.push_back({left_s, key.first, attempt->second.gpus});
  }
  std::sort(ends.begin(), ends.end(), [](const GuestEnd& a, const GuestEnd& b) {
    return std::tie(a.in_s, a.job) < std::tie(b.in_s, b.job);
  });
  return ends;
}

/// From when on it fits, should no guest end before it must; nullopt if that is not enough.
std::optional<double> fits_in_s(
    const State& state, const sched::Demand& demand, const NodeEntry& node
) {
  std::set<JobId> gone;
  NodeTelemetry telemetry = node.telemetry;
  for (const GuestEnd& end : ends_of_guests(state, node)) {
    gone.insert(end.job);
    for (GpuTelemetry& gpu : telemetry.gpus) {
      const bool is_its = std::find(end.gpus.begin(), end.gpus.end(), gpu.index) != end.gpus.end();
      if (is_its) gpu.memory_used_mib = gpu.foreign_vram_mib;
    }
    sched::Candidate then = candidate_of(state, node, gone);
    then.telemetry = &telemetry;
    if (sched::judge(demand, then).fit == sched::Fit::kFits) return end.in_s;
  }
  return std::nullopt;
}

PlanFit fit_of(sched::Fit fit) {
  switch (fit) {
    case sched::Fit::kFits:
      return PlanFit::kFits;
    case sched::Fit::kNotNow:
      return PlanFit::kNotNow;
    case sched::Fit::kNever:
      return PlanFit::kNever;
  }
  return PlanFit::kNever;
}

void add_forecast(
    const State& state, const NodeEntry& node, double horizon_s, api::PlanCandidate& out
) {
  const NodeId& id = node.row.node;
  const LabId& lab = node.row.lab;
  const WallTime now = state.now.wall;
  const auto forecast = state.hazard.survival(id, lab, now, horizon_s);
  out.stays = forecast.probability();
  out.stays_low = forecast.quantile(kBandLow);
  out.stays_high = forecast.quantile(kBandHigh);
  out.interruptions = forecast.expected_departures;
  const reclaim::NodeHazard* known = state.hazard.find_node(id);
  if (known == nullptr || !known->is_lent || known->leaves_at_ms == 0) return;
  const double leaves_in_s =
      std::max(0.0, static_cast<double>(known->leaves_at_ms - state.wall_ms()) / 1e3);
  out.leaves_in_s = leaves_in_s;
  if (!forecast.leaves_before) return;
  // What the job meets after that it meets elsewhere.
  out.interruptions = 1 + state.hazard.survival(id, lab, now, leaves_in_s).expected_departures;
}

api::PlanCandidate candidate_for_people(
    const State& state,
    const sched::Demand& demand,
    const sched::Candidate& candidate,
    const sched::Judgement& judgement,
    double horizon_s
) {
  const NodeEntry& node = state.nodes.at(candidate.node);
  api::PlanCandidate out;
  out.node = candidate.node;
  out.lab = candidate.lab;
  out.hostname = candidate.facts->hostname;
  out.fit = fit_of(judgement.fit);
  out.reason = judgement.reason;
  out.cpu_milli = judgement.cpu_milli;
  out.notice_s = candidate.contract->notice_s;
  add_forecast(state, node, horizon_s, out);
  if (judgement.fit == sched::Fit::kFits) out.starts_in_s = node.restore_s;
  if (judgement.fit == sched::Fit::kNotNow) {
    out.starts_in_s = fits_in_s(state, demand, node);
    if (out.starts_in_s) *out.starts_in_s += node.restore_s;
  }
  return out;
}

/// Those that fit as they rank; who could by when that may be, and who never can by how near they
/// are to it.
std::vector<api::PlanCandidate> candidates_for_people(
    const State& state,
    const sched::Demand& demand,
    const std::vector<sched::Candidate>& candidates,
    double horizon_s
) {
  std::vector<api::PlanCandidate> out;
  for (const sched::Ranked& ranked : sched::rank(demand, candidates)) {
    const sched::Candidate& c = candidates[ranked.index];
    const sched::Judgement judgement{.fit = sched::Fit::kFits, .cpu_milli = ranked.cpu_milli};
    out.push_back(candidate_for_people(state, demand, c, judgement, horizon_s));
    out.back().rank = static_cast<std::uint32_t>(out.size());
    out.back().score = ranked.score;
    out.back().reason = sched::because(demand, c, ranked);
  }
  std::vector<api::PlanCandidate> later;
  std::vector<std::pair<double, api::PlanCandidate>> never;
  for (const sched::Candidate& c : candidates) {
    const sched::Judgement judgement = sched::judge(demand, c);
    if (judgement.fit == sched::Fit::kFits) continue;
    auto one = candidate_for_people(state, demand, c, judgement, horizon_s);
    if (judgement.fit == sched::Fit::kNotNow) {
      later.push_back(std::move(one));
    } else {
      never.emplace_back(judgement.shortfall, std::move(one));
    }
  }
  std::stable_sort(later.begin(), later.end(), [](const auto& a, const auto& b) {
    if (a.starts_in_s.has_value() != b.starts_in_s.has_value()) return a.starts_in_s.has_value();
    return a.starts_in_s && *a.starts_in_s < *b.starts_in_s;
  });
  std::stable_sort(never.begin(), never.end(), [](const auto& a, const auto& b) {
    return a.first < b.first;
  });
  for (auto& one : later) out.push_back(std::move(one));
  for (auto& [shortfall, one] : never) out.push_back(std::move(one));
  return out;
}

/// From the nodes that would be asked, or if none fits from all that could run it.
void summarize(api::Plan& plan) {
  bool is_first = true;
  for (const api::PlanCandidate& c : plan.candidates) {
    if (c.fit == PlanFit::kNever) continue;
    if (plan.verdict == PlanVerdict::kNow && (c.rank == 0 || c.rank > kProbed)) continue;
    if (is_first) {
      plan.starts_in_s = c.starts_in_s;
      plan.interruptions_least = plan.interruptions_most = c.interruptions;
      plan.notice_least_s = plan.notice_most_s = c.notice_s;
      is_first = false;
    }
    plan.interruptions_least = std::min(plan.interruptions_least, c.interruptions);
    plan.interruptions_most = std::max(plan.interruptions_most, c.interruptions);
    plan.notice_least_s = std::min(plan.notice_least_s, c.notice_s);
    plan.notice_most_s = std::max(plan.notice_most_s, c.notice_s);
  }
}

/// What jobs like it used, and over how long its reclaims are forecast: as it says itself, else the
/// upper end of what these ran, else what placement assumes.
void add_estimates(
    const State& state, const JobEntry& job, const sched::Demand& demand, api::Plan& plan
) {
  plan.estimates = estimates_for(state, job);
  plan.is_horizon_assumed = job.row.job.spec.max_duration_s == 0;
  plan.horizon_s = demand.horizon_s;
  for (const api::PlanEstimate& one : plan.estimates) {
    if (!plan.is_horizon_assumed || one.of != Estimated::kDuration || !one.high) continue;
    plan.is_horizon_estimated = true;
    plan.horizon_s = *one.high;
  }
  plan.horizon_s = std::min(plan.horizon_s, kForecastMost_s);
}

/// Nobody is placed while attempts are taken over after a start.
void hold_for_grace(const State& state, api::Plan& plan) {
  if (!state.is_in_grace() || plan.verdict != PlanVerdict::kNow) return;
  const nanoseconds left = state.grace_until - state.now.boot;
  plan.verdict = PlanVerdict::kWaits;
  plan.sentence = "the coordinator has just started and first waits " +
                  short_duration(std::chrono::duration_cast<milliseconds>(left).count()) +
                  " for running attempts to report; then " + plan.sentence;
  const double left_s = std::chrono::duration<double>(left).count();
  for (api::PlanCandidate& c : plan.candidates) {
    if (c.fit == PlanFit::kFits && c.starts_in_s) *c.starts_in_s += left_s;
  }
}

/// Nobody knows when the jobs that it waits for have ended.
void hold_for_others(const State& state, const JobEntry& job, api::Plan& plan) {
  if (!job.row.is_held) return;
  if (plan.verdict == PlanVerdict::kNow) plan.verdict = PlanVerdict::kWaits;
  plan.sentence = waiting_words(state, job) + "; then " + plan.sentence;
  for (api::PlanCandidate& c : plan.candidates) c.starts_in_s.reset();
}

/// Nodes with GPUs of which its user or lab has as many as they may: behind those that fit.
void bar_by_quota(
    const State& state, const JobEntry& job, const QuotaBook& quotas, api::Plan& plan
) {
  std::string barred;
  for (api::PlanCandidate& c : plan.candidates) {
    if (c.fit == PlanFit::kNever) continue;
    std::string words = quotas.barred(job, state.nodes.at(c.node).row);
    if (words.empty()) continue;
    if (barred.empty()) barred = words;
    c.fit = PlanFit::kNotNow;
    c.rank = 0;
    c.score = 0;
    c.starts_in_s.reset();
    c.reason = std::move(words);
  }
  if (barred.empty()) return;
  std::stable_sort(
      plan.candidates.begin(),
      plan.candidates.end(),
      [](const api::PlanCandidate& a, const api::PlanCandidate& b) { return a.fit < b.fit; }
  );
  std::uint32_t rank = 0;
  for (api::PlanCandidate& c : plan.candidates) {
    if (c.fit == PlanFit::kFits) c.rank = ++rank;
  }
  if (rank == 0) plan.sentence = std::move(barred);
}

/// Nobody knows when its user or lab has less.
void hold_for_quota(const QuotaBook& quotas, const JobEntry& job, api::Plan& plan) {
  const std::string held = quotas.held_back(job);
  if (held.empty()) return;
  if (plan.verdict == PlanVerdict::kNow) plan.verdict = PlanVerdict::kWaits;
  plan.sentence = held + "; then " + plan.sentence;
  for (api::PlanCandidate& c : plan.candidates) c.starts_in_s.reset();
}

/// A submit would be refused.
void refuse_by_quota(const Status& allowed, api::Plan& plan) {
  if (allowed) return;
  plan.verdict = PlanVerdict::kNever;
  plan.is_over_quota = true;
  plan.sentence = allowed.error().message;
  for (api::PlanCandidate& c : plan.candidates) c.starts_in_s.reset();
}

/// All members or none: what one of them finds says little of them together.
void place_together(
    const sched::GangDemand& demand,
    const std::vector<sched::Candidate>& candidates,
    api::Plan& plan
) {
  plan.members = demand.size;
  plan.members_now = sched::room_now(demand, candidates);
  const std::string never = gang_never_words(demand, candidates);
  if (!never.empty()) {
    plan.verdict = PlanVerdict::kNever;
    plan.sentence = never;
  } else if (plan.members_now < plan.members) {
    plan.verdict = PlanVerdict::kWaits;
    plan.sentence = gang_lacks_words(demand, candidates);
  } else if (plan.verdict == PlanVerdict::kNow) {
    plan.sentence = "there is room for all " + std::to_string(plan.members) + " members at once";
  }
  if (plan.verdict == PlanVerdict::kNow) return;
  for (api::PlanCandidate& c : plan.candidates) c.starts_in_s.reset();
}

/// Each owner who comes back stops all: of the first who could take a member, all count.
void add_up_interruptions(api::Plan& plan) {
  double sum = 0;
  std::uint32_t seen = 0;
  for (const api::PlanCandidate& c : plan.candidates) {
    if (c.fit == PlanFit::kNever || seen == plan.members) continue;
    sum += c.interruptions;
    ++seen;
  }
  plan.interruptions_least = plan.interruptions_most = sum;
}

std::uint32_t position_of(const State& state, const JobEntry& job) {
  const std::vector<JobId> order = queue_order(state, &job);
  const auto at = std::find(order.begin(), order.end(), job.row.job.id);
  return static_cast<std::uint32_t>(at - order.begin() + 1);
}

}  // namespace

Result<api::Plan> make_plan(
    const State& state,
    const Caller& caller,
    const JobSpec& spec,
    std::uint32_t members,
    GangSpread spread
) {
  const bool is_gang = members > 0;
  JobEntry job;
  RN_TRY(job.row, new_row(state, caller, spec, is_gang ? members : 1));
  job.row.job.id = JobId("~");  // behind those that were submitted in the same millisecond
  if (is_gang) job.row.job.gang = GangPlace{.size = members};
  const sched::Demand demand = demand_of(job);
  const std::vector<sched::Candidate> candidates = candidates_of(state);
  api::Plan plan;
  add_estimates(state, job, demand, plan);
  plan.candidates = candidates_for_people(state, demand, candidates, plan.horizon_s);
  plan.sentence = sched::explain(demand, candidates);
  plan.queue_position = position_of(state, job);
  plan.notice_wanted_s = spec.notice_s;
  plan.warnings = shortfalls_of(state, job, candidates);
  const QuotaBook quotas(state);
  bar_by_quota(state, job, quotas, plan);
  // They come in this order.
  const auto best = plan.candidates.empty() ? PlanFit::kNever : plan.candidates.front().fit;
  plan.verdict = best == PlanFit::kFits     ? PlanVerdict::kNow
                 : best == PlanFit::kNotNow ? PlanVerdict::kWaits
                                            : PlanVerdict::kNever;
  if (is_gang) {
    place_together(
        {.member = demand, .size = members, .is_spread = spread == GangSpread::kNode},
        candidates,
        plan
    );
  }
  hold_for_grace(state, plan);
  hold_for_others(state, job, plan);
  hold_for_quota(quotas, job, plan);
  refuse_by_quota(
      is_gang ? check_gang_quotas(state, caller, spec, members)
              : check_quotas(state, caller, spec, 1),
      plan
  );
  summarize(plan);
  if (is_gang) add_up_interruptions(plan);
  return plan;
}

}  // namespace rn::coordinator
