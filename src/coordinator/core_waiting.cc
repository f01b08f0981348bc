// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_waiting.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "base/assert.h"
#include "base/planted.h"
#include "coordinator/core_job_life.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kNamedInWords = 3;

/// A job or an array that others may wait for, and what has become of it.
struct Named {
  std::string id;
  std::string words;  ///< "job 17 (train)", "array 17 (train)"
  bool is_array = false;
  std::size_t tasks = 1;
  std::size_t ended = 0;
  std::size_t begun = 0;    ///< they run, or have run or ended
  bool has_failed = false;  ///< one of them has ended, and not succeeded

  bool is_over() const { return ended == tasks; }
};

void count_in(Named& named, const Job& job) {
  const bool has_ended = is_terminal(job.state);
  named.ended += has_ended ? 1 : 0;
  named.begun += has_ended || job.started_wall_ms != 0 ? 1 : 0;
  named.has_failed = named.has_failed || (has_ended && job.state != JobState::kSucceeded);
}

std::string called_for_people(const char* kind, std::uint64_t number, const Job& job) {
  return kind + std::to_string(number) + (job.spec.name.empty() ? "" : " (" + job.spec.name + ")");
}

/// By id; nullopt for what is not remembered (a task of an array is enough). Of an array tasks that
/// are not remembered have ended.
std::optional<Named> named_by(const State& state, const std::string& id) {
  Named named;
  named.id = id;
  if (const auto array = state.arrays.find(id); array != state.arrays.end()) {
    const Job& first = state.jobs.at(array->second.tasks.begin()->second).row.job;
    named.is_array = true;
    named.words = called_for_people("array ", first.array->first_number, first);
    named.tasks = first.array->tasks;
    named.ended = named.begun = named.tasks - array->second.tasks.size();
    for (const auto& [number, job] : array->second.tasks)
      count_in(named, state.jobs.at(job).row.job);
    return named;
  }
  const auto job = state.jobs.find(JobId(id));
  if (job == state.jobs.end()) return std::nullopt;
  named.words = called_for_people("job ", job->second.row.job.number, job->second.row.job);
  count_in(named, job->second.row.job);
  return named;
}

enum class Outlook : std::uint8_t { kHappened, kOpen, kNever };

Outlook outlook(AfterWhen when, const Named& named) {
  const bool is_over = named.is_over();
  switch (when) {
    case AfterWhen::kOk:
      return named.has_failed ? Outlook::kNever : is_over ? Outlook::kHappened : Outlook::kOpen;
    case AfterWhen::kFail:
      if (!is_over) return Outlook::kOpen;
      return named.has_failed ? Outlook::kHappened : Outlook::kNever;
    case AfterWhen::kAny:
      return is_over ? Outlook::kHappened : Outlook::kOpen;
    case AfterWhen::kStarted:
      return named.begun == named.tasks ? Outlook::kHappened : Outlook::kOpen;
  }
  return Outlook::kNever;
}

/// Once a task has failed, all that is left of `fail` is that the array ends. Whoever waits need
/// not remember the task then.
AfterWhen still_wanted(AfterWhen when, const Named& named) {
  return when == AfterWhen::kFail && named.has_failed ? AfterWhen::kAny : when;
}

/// The job or array that a submitter means: by its id, or by its number, which is an array's if the
/// job is an array's first task. Nothing for what is unknown, another user's, or an array that is
/// not remembered as a whole.
std::optional<Named> find_named(const State& state, const UserId& user, const std::string& name) {
  std::string id = name;
  std::uint64_t number = 0;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end) {
    const auto by_number = state.jobs_by_number.find(number);
    if (by_number == state.jobs_by_number.end()) return std::nullopt;
    id = by_number->second.str();
    const std::optional<ArrayTask>& array = state.jobs.at(by_number->second).row.job.array;
    if (array && array->first_number == number) id = array->array;
  }
  JobId any(id);
  if (const auto array = state.arrays.find(id); array != state.arrays.end()) {
    any = array->second.tasks.begin()->second;
    const Job& task = state.jobs.at(any).row.job;
    if (array->second.tasks.size() != task.array->tasks) return std::nullopt;
  }
  const auto job = state.jobs.find(any);
  if (job == state.jobs.end() || job->second.row.job.owner != user) return std::nullopt;
  return named_by(state, id);
}

std::string verb_of(AfterWhen when) {
  switch (when) {
    case AfterWhen::kOk:
      return "has succeeded";
    case AfterWhen::kFail:
      return "has failed";
    case AfterWhen::kAny:
      return "has ended";
    case AfterWhen::kStarted:
      return "has begun";
  }
  return "has ended";
}

std::string end_of(const State& state, const Named& named) {
  if (named.is_array) return named.has_failed ? "has a task that did not succeed" : "has succeeded";
  const JobState end = state.jobs.at(JobId(named.id)).row.job.state;
  return end == JobState::kSucceeded   ? "has succeeded"
         : end == JobState::kCancelled ? "was cancelled"
                                       : "has failed";
}

/// What it does now.
std::string presence_of(const State& state, const Named& named) {
  if (named.is_array)
    return std::to_string(named.ended) + " of its " + std::to_string(named.tasks) +
           " tasks have ended";
  const JobEntry& job = state.jobs.at(JobId(named.id));
  return job.row.is_held ? "it waits itself"
                         : "it is " + std::string(to_string(job.row.job.state)) + " now";
}

std::string turn_words(const State& state, const JobEntry& job, bool is_now) {
  const ArrayTask& task = *job.row.job.array;
  std::string text = "waits for its turn: at most " + std::to_string(task.at_most) + " of the " +
                     std::to_string(task.tasks) + " tasks of array " +
                     std::to_string(task.first_number) + " run at once";
  if (!is_now) return text;
  const ArrayEntry& array = state.arrays.at(task.array);
  const auto before =
      std::distance(array.in_turn.begin(), array.in_turn.lower_bound(job.row.job.number));
  return text + ", and " + std::to_string(before) + " wait before it";
}

std::string held_words(const State& state, const JobEntry& job, bool is_now) {
  const std::vector<AfterJob>& all = job.row.waits_for;
  if (all.empty()) return turn_words(state, job, is_now);
  std::string text = "waits until ";
  const std::size_t shown = std::min(all.size(), kNamedInWords);
  for (std::size_t i = 0; i < shown; ++i) {
    const auto named = named_by(state, all[i].job);
    text += (i == 0 ? "" : ", ") + (named ? named->words : all[i].job) + " " + verb_of(all[i].when);
    if (is_now && named) text += " (" + presence_of(state, *named) + ")";
  }
  if (all.size() > shown) text += ", and so for " + std::to_string(all.size() - shown) + " more";
  return text;
}

/// The only way out of State::held for a job that goes on.
void release(State& state, JobEntry& job, const std::string& why) {
  RN_ASSERT(job.row.is_held && job.row.waits_for.empty(), "a job is released that is not held");
  const Job& j = job.row.job;
  job.row.is_held = false;
  job.row.job.reason = why;
  state.held.erase(j.id);
  if (!j.gang) state.queued.insert(j.id);
  if (j.array) {
    ArrayEntry& array = state.arrays.at(j.array->array);
    array.in_turn.erase(j.number);
    ++array.released;
  }
  state.is_dispatch_wanted = true;
  state.save(job);
  state.note(job, "job.released", why);
}

/// As many as may run at once, the first ones first.
void take_turns(State& state, const std::string& id, const std::string& why) {
  ArrayEntry& array = state.arrays.at(id);
  while (!array.in_turn.empty()) {
    JobEntry& next = *state.find_job(array.tasks.at(*array.in_turn.begin()));
    const std::uint32_t at_most = next.row.job.array->at_most;
    const bool is_full = at_most != 0 && array.released >= at_most;
    if (is_full && !planted("coordinator.forgets_throttles")) return;
    release(state, next, why);
  }
}

/// Nothing that it waited for is left: it is in the queue, or in turn.
void go_on(State& state, JobEntry& job, const std::string& why) {
  job.row.queued_wall_ms = state.wall_ms();
  const std::optional<ArrayTask>& task = job.row.job.array;
  if (!task || task->at_most == 0) return release(state, job, why);
  state.arrays.at(task->array).in_turn.insert(job.row.job.number);
  job.row.job.reason = waiting_words(state, job);
  state.save(job);
}

/// Of what it waits for, `cause` has begun or ended, or a task of it.
void look_again(State& state, JobEntry& job, const Named& cause) {
  std::vector<AfterJob>& all = job.row.waits_for;
  for (const AfterJob& after : all) {
    if (after.job != cause.id || outlook(after.when, cause) != Outlook::kNever) continue;
    finish(
        state,
        job,
        JobState::kCancelled,
        cause.words + " " + end_of(state, cause) + ", and this job waits until that " +
            verb_of(after.when) + ": it can never begin"
    );
    return;
  }
  const std::vector<AfterJob> before = all;
  std::erase_if(all, [&](const AfterJob& after) {
    return after.job == cause.id && (outlook(after.when, cause) == Outlook::kHappened ||
                                     planted("coordinator.takes_a_begin_for_an_end"));
  });
  for (AfterJob& after : all) {
    if (after.job == cause.id) after.when = still_wanted(after.when, cause);
  }
  if (all == before) return;
  const bool is_waited_for = std::any_of(all.begin(), all.end(), [&](const AfterJob& after) {
    return after.job == cause.id;
  });
  if (!is_waited_for) state.waiters[cause.id].erase(job.row.job.id);
  if (all.empty())
    return go_on(state, job, cause.words + (cause.is_over() ? " has ended" : " has begun"));
  job.row.job.reason = waiting_words(state, job);
  state.save(job);
}

void tell_waiters(State& state, const std::string& id) {
  const auto found = state.waiters.find(id);
  if (found == state.waiters.end()) return;
  const std::set<JobId> waiting = found->second;
  const auto cause = named_by(state, id);
  RN_ASSERT(cause.has_value(), "what others wait for is not there");
  std::set<std::string> arrays;
  for (const JobId& waiter : waiting) {
    JobEntry& job = *state.find_job(waiter);
    if (is_terminal(job.row.job.state)) continue;  // with another member of its gang
    look_again(state, job, *cause);
    if (job.row.job.array) arrays.insert(job.row.job.array->array);
  }
  // Their turns are by number, so all must be there first.
  for (const std::string& array : arrays)
    take_turns(state, array, "its turn in its array has come");
  const auto rest = state.waiters.find(id);
  if (rest != state.waiters.end() && rest->second.empty()) state.waiters.erase(rest);
}

}  // namespace

Result<std::vector<AfterJob>> unmet_of(
    const State& state, const Caller& caller, const JobSpec& spec
) {
  std::vector<AfterJob> unmet;
  for (std::size_t i = 0; i < spec.after.size(); ++i) {
    const AfterJob& after = spec.after[i];
    const std::string at = "after[" + std::to_string(i) + "]: ";
    const auto named = find_named(state, caller.user, after.job);
    if (!named)
      return fail(
          ErrorCode::kNotFound,
          at + "no job " + after.job,
          "`reclaim ps --all` lists the jobs; one waits for jobs of its own user that exist already"
      );
    const Outlook seen = outlook(after.when, *named);
    if (seen == Outlook::kNever)
      return fail(
          ErrorCode::kConflict,
          at + named->words + " " + end_of(state, *named) +
              ", and this job would wait until that " + verb_of(after.when) +
              ": it could never begin",
          "submit it without, or wait for another job"
      );
    if (seen == Outlook::kOpen)
      unmet.push_back({.job = named->id, .when = still_wanted(after.when, *named)});
  }
  return unmet;
}

void settle_waiting(State& state) {
  // NOTE: who is cancelled here is appended, and looked at in turn: a chain needs no recursion.
  for (std::size_t i = 0; i < state.moved.size(); ++i) {
    const JobId id = state.moved[i];
    tell_waiters(state, id.str());
    const std::optional<ArrayTask> task = state.find_job(id)->row.job.array;
    if (!task) continue;
    tell_waiters(state, task->array);
    take_turns(state, task->array, "its turn in its array has come");
  }
  state.moved.clear();
}

std::string waiting_words(const State& state, const JobEntry& job) {
  return held_words(state, job, false);
}

std::string waiting_words_now(const State& state, const JobEntry& job) {
  return held_words(state, job, true);
}

}  // namespace rn::coordinator
