// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_why.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "coordinator/core_copies.h"
#include "coordinator/core_fetches.h"
#include "coordinator/core_gang_placement.h"
#include "coordinator/core_gangs.h"
#include "coordinator/core_holders.h"
#include "coordinator/core_idle.h"
#include "coordinator/core_placement.h"
#include "coordinator/core_waiting.h"

namespace rn::coordinator {

namespace {

std::string refusals_of(const State& state, const JobEntry& job) {
  std::string text;
  std::size_t shown = 0;
  for (const auto& [node, refusal] : job.refusals) {
    if (++shown > 3) return text + "; …";
    text += (text.empty() ? "; asked " : "; ") + state.name_of(node) + ": " + refusal.reason;
  }
  return text;
}

/// For a queue: why no node takes the job now.
std::string lacks(
    const State& state,
    const JobEntry& job,
    const std::vector<sched::Candidate>& candidates,
    const QuotaBook& quotas
) {
  if (std::string held = quotas.held_back(job); !held.empty()) return held;
  if (!quotas.has_models())
    return sched::explain(demand_of(job), candidates) + refusals_of(state, job);
  std::string barred;
  std::vector<sched::Candidate> others;
  for (const sched::Candidate& c : candidates) {
    std::string words = quotas.barred(job, state.nodes.at(c.node).row);
    if (words.empty()) others.push_back(c);
    if (barred.empty()) barred = std::move(words);
  }
  const std::string text = others.empty() && !barred.empty()
                               ? "no node has other GPUs"
                               : sched::explain(demand_of(job), others);
  return (barred.empty() ? "" : barred + "; of the others: ") + text + refusals_of(state, job);
}

/// Where an evacuation goes.
std::string sent_words(const State& state, const JobEntry& job) {
  const auto found = state.evacuations.find(job.row.job.id);
  if (found == state.evacuations.end() || found->second.view.way.empty()) return {};
  return "; evacuation: " + found->second.view.sentence;
}

std::string why_queued(const State& state, const JobEntry& job) {
  if (job.row.is_held) return waiting_words_now(state, job);
  if (job.row.job.gang) return why_gang_waits(state, job);
  const std::int64_t wait = job.row.not_before_wall_ms - state.wall_ms();
  if (wait > 0 && wait <= state.config.backoff_max_ms)
    return "waits " + short_duration(wait) + " before " +
           (job.row.job.restarts == 0  // refusals use up none
                ? "it is tried again"
                : "restart " + std::to_string(job.row.job.restarts) + " of " +
                      std::to_string(job.row.job.spec.max_restarts)) +
           ": " + job.row.job.reason;
  if (state.is_in_grace())
    return "the coordinator has just started and first waits " +
           short_duration(
               std::chrono::duration_cast<milliseconds>(state.grace_until - state.now.boot).count()
           ) +
           " for running attempts to report";
  const bool is_listed =
      std::any_of(state.images.begin(), state.images.end(), [&](const auto& image) {
        return image.second.digest == job.row.job.image_digest;
      });
  if (!is_listed)
    return "its image " + job.row.job.image_digest +
           " was taken off the allow list after the submit";
  if (const std::string away = away_words(state, job); !away.empty())
    return away + "; " + resume_words(job) + " when one is back" + sent_words(state, job);
  const std::string kept = kept_words(state);
  const std::vector<JobId> order = queue_order(state);
  const auto at = std::find(order.begin(), order.end(), job.row.job.id);
  return "number " + std::to_string(at - order.begin() + 1) + " of " +
         std::to_string(order.size()) +
         " in the queue: " + lacks(state, job, candidates_of(state), QuotaBook(state)) +
         (kept.empty() ? "" : "; " + kept) +
         (job.row.job.epoch.is_none() ? "" : "; " + resume_words(job)) + sent_words(state, job);
}

std::string why_running(const State& state, const JobEntry& job) {
  const Job& j = job.row.job;
  const auto found = state.attempts.find({j.id, j.epoch});
  std::string text = j.reason;
  if (found != state.attempts.end()) {
    const AttemptEntry& attempt = found->second;
    if (!attempt.waits_for.empty()) text = restore_wait_words(state, job, attempt);
    text += " (" + attempt.row.attempt.placed_because + ")";
    if (attempt.row.last_step >= 0) text += ", step " + std::to_string(attempt.row.last_step);
    if (!attempt.row.attempt.detail.empty()) text += "; " + attempt.row.attempt.detail;
    if (const std::string fetched = fetch_words(state, job); !fetched.empty())
      text += "; " + fetched;
    if (!attempt.evacuation.empty()) text += "; " + attempt.evacuation;
    if (!attempt.shortfall.empty()) text += "; " + attempt.shortfall;
    if (!attempt.save_trouble.empty()) text += "; " + attempt.save_trouble;
    if (!attempt.saving.empty()) text += "; " + attempt.saving;
    if (const std::string idle = idle_words(state, job); !idle.empty()) text += "; " + idle;
  }
  if (const std::string left = left_copies_words(state, job); !left.empty())
    text += "; " + left;
  else if (j.durable.generation > 0)
    text += "; durable: generation " + std::to_string(j.durable.generation);
  else if (!j.spec.checkpoint.is_stateless)
    text += "; nothing is durable yet";
  const auto node = state.nodes.find(j.node);
  if (node != state.nodes.end() && !state.is_up(node->second))
    text +=
        "; its node has not been heard for " +
        short_duration(
            std::chrono::duration_cast<milliseconds>(state.now.boot - node->second.heard).count()
        );
  if (j.is_degraded) text += "; degraded: only nodes that leave often were free";
  if (job.row.stop_end != AttemptEnd::kNone) text += "; stopping: " + job.row.stop_reason;
  if (!job.home_sentence.empty()) text += "; " + job.home_sentence;
  if (const std::string gang = gang_words(state, job); !gang.empty()) text += "; " + gang;
  return text + sent_words(state, job);
}

}  // namespace

std::string resume_words(const JobEntry& job) {
  const GenerationRef resume = resume_point(job).resume;
  if (resume.generation == 0)
    return job.row.job.spec.checkpoint.is_stateless
               ? "it starts from its beginning, as a stateless job does"
               : "it starts from its beginning: nothing of it is durable";
  return "the files of generation " + std::to_string(resume.generation) +
         (resume.step >= 0 ? " (step " + std::to_string(resume.step) + ")" : "") +
         " are put back for it, in " + job.row.job.spec.work_dir + " (RECLAIM_RESUME_FROM)";
}

std::string waits_for(
    const State& state,
    const JobEntry& job,
    const std::vector<sched::Candidate>& candidates,
    const QuotaBook& quotas
) {
  return "waits: " + lacks(state, job, candidates, quotas);
}

std::string why(const State& state, const JobEntry& job) {
  switch (job.row.job.state) {
    case JobState::kQueued:
      return why_queued(state, job);
    case JobState::kPlacing:
      return job.row.job.reason + refusals_of(state, job);
    case JobState::kStarting:
    case JobState::kRunning:
    case JobState::kNoticed:
    case JobState::kSaving:
    case JobState::kDraining:
      return why_running(state, job);
    case JobState::kSucceeded:
    case JobState::kFailed:
    case JobState::kCancelled:
      return std::string(to_string(job.row.job.state)) + ": " + job.row.job.reason;
  }
  return {};
}

}  // namespace rn::coordinator
