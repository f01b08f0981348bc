// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_holders.h"

#include <algorithm>
#include <utility>

#include "coordinator/core_copies.h"
#include "coordinator/core_evacuation.h"
#include "coordinator/core_job_ends.h"

namespace rn::coordinator {

namespace {

/// Those of the site that have it, as far as the rows say: by receipt, or because they made it.
std::vector<NodeId> holders_of(const State& state, const GenerationRef& ref) {
  const GenerationRow* row =
      ref.generation == 0 ? nullptr : find_generation(state, ref.job, ref.generation);
  if (row == nullptr) return {};
  std::vector<NodeId> named;
  for (const Receipt& receipt : row->receipts) named.push_back(receipt.holder);
  named.push_back(row->source);
  std::vector<NodeId> holders;
  for (const NodeId& id : named) {
    const auto node = state.nodes.find(id);
    const bool is_known = std::find(holders.begin(), holders.end(), id) != holders.end();
    if (node == state.nodes.end() || node->second.row.is_revoked || is_known) continue;
    holders.push_back(id);
  }
  return holders;
}

bool is_up(const State& state, const NodeId& id) {
  const auto node = state.nodes.find(id);
  return node != state.nodes.end() && state.is_up(node->second);
}

bool is_any_up(const State& state, const std::vector<NodeId>& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [&](const NodeId& id) {
    return is_up(state, id);
  });
}

std::string absence_of(const State& state, const NodeId& id) {
  if (is_up(state, id)) return "connected, but without an answer";
  const auto silent = state.now.boot - state.nodes.at(id).heard;
  return "not heard for " +
         short_duration(std::chrono::duration_cast<milliseconds>(silent).count());
}

/// "waits for lab-a/one (not heard for 3 min), which alone has generation 4". Without ages: for
/// rows and events, which are read later.
std::string words_for(
    const State& state, const std::vector<NodeId>& holders, std::uint32_t generation, bool has_ages
) {
  std::string names;
  for (const NodeId& id : holders) {
    names += (names.empty() ? "" : " or ") + state.name_of(id);
    if (has_ages) names += " (" + absence_of(state, id) + ")";
  }
  return "waits for " + names + ", " + (holders.size() == 1 ? "which" : "who") + " alone " +
         (holders.size() == 1 ? "has" : "have") + " generation " + std::to_string(generation);
}

/// The one that they hold: where nobody has the newest any more, the one before it is waited for.
std::uint32_t generation_of(
    const State& state, const JobEntry& job, const std::vector<NodeId>& holders
) {
  const ResumePoint point = resume_point(job);
  const std::vector<NodeId> newest = holders_of(state, point.resume);
  const bool is_newest = std::all_of(holders.begin(), holders.end(), [&](const NodeId& id) {
    return std::find(newest.begin(), newest.end(), id) != newest.end();
  });
  return is_newest ? point.resume.generation : point.previous.generation;
}

std::string restore_words(
    const State& state, const JobEntry& job, const AttemptEntry& attempt, bool has_ages
) {
  const std::vector<NodeId>& holders = attempt.waits_for;
  return "restoring on " + state.name_of(attempt.row.attempt.node) + " " +
         words_for(state, holders, generation_of(state, job, holders), has_ages);
}

State::EventData data_of(
    const State& state, const JobEntry& job, const std::vector<NodeId>& holders
) {
  std::string ids;
  for (const NodeId& id : holders) ids += (ids.empty() ? "" : " ") + id.str();
  return {{"holders", ids}, {"generation", std::to_string(generation_of(state, job, holders))}};
}

}  // namespace

std::string away_words(const State& state, const JobEntry& job) {
  const GenerationRef resume = resume_point(job).resume;
  const std::vector<NodeId> holders = holders_of(state, resume);
  if (holders.empty() || is_any_up(state, holders)) return {};
  return words_for(state, holders, resume.generation, true);
}

void hold_back(State& state, JobEntry& job) {
  const GenerationRef resume = resume_point(job).resume;
  const std::vector<NodeId> holders = holders_of(state, resume);
  const std::string words = words_for(state, holders, resume.generation, false);
  job.row.job.reason = words;  // without ages: who follows the job is told what changes
  // A place that is kept for it would lie idle; a connection that is made anew takes a moment.
  const bool is_soon_back = std::any_of(holders.begin(), holders.end(), [&](const NodeId& id) {
    return state.nodes.at(id).row.state == NodeState::kUp;
  });
  if (!is_soon_back) end_evacuation(state, job.row.job.id);
  if (std::exchange(job.is_away_told, true)) return;
  state.note(job, "job.waits_for_holder", words, data_of(state, job, holders));
}

std::vector<NodeId> believed_holders(
    const State& state, const JobEntry& job, const std::vector<NodeId>& named
) {
  const ResumePoint point = resume_point(job);
  std::vector<NodeId> result;
  for (const GenerationRef* ref : {&point.resume, &point.previous}) {
    for (const NodeId& id : holders_of(state, *ref)) {
      const bool is_named = std::find(named.begin(), named.end(), id) != named.end();
      const bool is_known = std::find(result.begin(), result.end(), id) != result.end();
      if (is_named && !is_known) result.push_back(id);
    }
  }
  return result;
}

void take_restore_wait(
    State& state, JobEntry& job, AttemptEntry& attempt, const wire::AttemptReport& report
) {
  if (report.state != AttemptState::kPreparing || job.row.job.state != JobState::kStarting) {
    attempt.waits_for.clear();
    return;
  }
  attempt.waits_for = believed_holders(state, job, report.waits_for);
  if (attempt.waits_for.empty() || std::exchange(attempt.is_wait_told, true)) return;
  std::string words = restore_words(state, job, attempt, false);
  job.row.job.reason = words;
  state.save(job);
  state.note(job, "restore.waits", std::move(words), data_of(state, job, attempt.waits_for));
}

std::string restore_wait_words(
    const State& state, const JobEntry& job, const AttemptEntry& attempt
) {
  return attempt.waits_for.empty() ? "" : restore_words(state, job, attempt, true);
}

void wait_for_holder(State& state, JobEntry& job, const AttemptEntry& attempt) {
  const std::vector<NodeId>& holders = attempt.waits_for;
  const NodeId& node = attempt.row.attempt.node;
  // One that is there and does not answer this node may answer another one, or later.
  const bool is_there = is_any_up(state, holders);
  if (is_there) job.row.avoid = node;
  // Those that are there have it no more, says the node; it may be wrong.
  const bool is_held_back = !away_words(state, job).empty();
  const std::int64_t pause =
      is_held_back ? 0
      : is_there   ? backoff_ms(state.config, ended_in_a_row(state, job, AttemptEnd::kHolderAway))
                   : state.config.backoff_max_ms;
  job.row.not_before_wall_ms = pause == 0 ? 0 : state.wall_ms() + pause;
  job.row.is_displaced = true;  // before those that have not begun, as before
  job.awaited = {holders.begin(), holders.end()};
  job.is_away_told = true;
  const std::string words = words_for(state, holders, generation_of(state, job, holders), false);
  State::EventData data = data_of(state, job, holders);
  data["wait_ms"] = std::to_string(pause);
  state.note(
      job,
      "job.waits_for_holder",
      state.name_of(node) + " has its place back: the job " + words,
      std::move(data)
  );
  queue_again(state, job, words);
}

void note_holder_back(State& state, const NodeId& node) {
  for (const JobId& id : state.queued) {
    JobEntry& job = state.jobs.at(id);
    if (job.awaited.erase(node) == 0 || job.row.not_before_wall_ms == 0) continue;
    job.row.not_before_wall_ms = 0;
    state.save(job);
    state.is_dispatch_wanted = true;
  }
}

}  // namespace rn::coordinator
