// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_quota.h"

#include <algorithm>
#include <set>

#include "base/counted.h"
#include "base/planted.h"
#include "coordinator/core_commands.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kQuotasMost = 20'000;
constexpr std::size_t kModelBytesMost = 64;
constexpr double kGpuHoursMost = 1e9;
constexpr std::uint32_t kQuotaWindowLeastS = 3600;  // use is kept by the hour
constexpr std::uint32_t kIdleStopLeastS = 60;

sched::QuotaNeed need_of(const JobSpec& spec) {
  const std::uint32_t gpus = spec.resources.gpus;
  return {.gpus = gpus, .gpu_hours = gpus * (spec.max_duration_s / 3600.0)};
}

std::vector<std::string> subjects_of(const UserId& user, const LabId& lab) {
  return {quota_subject(user), quota_subject(lab)};
}

std::vector<std::string> subjects_of(const Job& job) {
  return subjects_of(job.owner, job.lab);
}

/// What a job that runs may still use, as far as it says for how long it runs.
double promised_gpu_hours(const State& state, const JobEntry& job) {
  const Job& j = job.row.job;
  const sched::QuotaNeed need = need_of(j.spec);
  const auto attempt = state.attempts.find({j.id, j.epoch});
  if (attempt == state.attempts.end() || !attempt->second.is_live()) return need.gpu_hours;
  const std::int64_t started_ms = attempt->second.row.attempt.started_wall_ms;
  if (started_ms == 0 || need.gpu_hours <= 0) return need.gpu_hours;
  const double ran_s = static_cast<double>(state.wall_ms() - started_ms) / 1e3;
  const double left_s = std::clamp(j.spec.max_duration_s - ran_s, 0.0, 1.0 * j.spec.max_duration_s);
  return need.gpus * left_s / 3600;
}

bool lends_model(const NodeRow& node, const std::string& pattern) {
  return std::any_of(node.facts.gpus.begin(), node.facts.gpus.end(), [&](const Gpu& gpu) {
    return is_gpu_lent(node.contract, gpu.index) && sched::is_gpu_model(pattern, gpu.model);
  });
}

/// All that are not over, those that wait for others, too.
std::uint32_t unfinished_jobs_of(const State& state, const std::string& subject) {
  std::uint32_t count = 0;
  for (const JobId& id : state.unfinished) {
    const Job& job = state.jobs.at(id).row.job;
    if (quota_subject(job.owner) == subject || quota_subject(job.lab) == subject) ++count;
  }
  return count;
}

std::string called(const std::string& subject, const std::string& gpu_model) {
  return subject + (gpu_model.empty() ? "" : " on " + gpu_model);
}

std::string quota_words(const Quota& quota) {
  std::vector<std::string> parts;
  if (quota.gpus) parts.push_back(counted(*quota.gpus, "GPU") + " at once");
  if (quota.running) parts.push_back(counted(*quota.running, "job") + " at once");
  if (quota.jobs) parts.push_back(counted(*quota.jobs, "job") + " that wait or run");
  if (quota.gpu_hours)
    parts.push_back(
        decimal(*quota.gpu_hours, 1) + " GPU-hours in " +
        short_duration(std::int64_t{quota.window_s} * 1000)
    );
  if (quota.idle_stop_s)
    parts.push_back(
        "stopped when they use nothing for " +
        short_duration(std::int64_t{*quota.idle_stop_s} * 1000)
    );
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return called(quota.subject, quota.gpu_model) + ": " + text;
}

Status check_subject(const State& state, const std::string& subject) {
  const auto colon = subject.find(':');
  const std::string kind = subject.substr(0, colon);
  const std::string name = colon == std::string::npos ? "" : subject.substr(colon + 1);
  if ((kind != "user" && kind != "lab") || (name != "*" && !is_name(name)))
    return fail(
        ErrorCode::kInvalid,
        "subject: expected user:NAME or lab:NAME",
        "user:* and lab:* are of each that has none of its own"
    );
  const auto has_lab = [&](const auto& entry) { return entry.second.lab.str() == name; };
  const bool is_known =
      name == "*" ||
      (kind == "user"
           ? state.users.contains(UserId(name))
           : std::any_of(state.users.begin(), state.users.end(), has_lab) ||
                 std::any_of(state.nodes.begin(), state.nodes.end(), [&](const auto& entry) {
                   return entry.second.row.lab.str() == name;
                 }));
  if (is_known) return {};
  return fail(
      ErrorCode::kNotFound,
      "no " + kind + " " + name + " is known here",
      kind == "user" ? "`reclaim token create --user NAME` makes one; user:* is of all others"
                     : "a lab is known by its users and nodes; lab:* is of all others"
  );
}

Status check_model(const std::string& model) {
  const bool is_plain =
      std::all_of(model.begin(), model.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (is_plain && model.size() <= kModelBytesMost) return {};
  return fail(
      ErrorCode::kInvalid,
      "gpu_model: expected a part of a model's name, of 64 bytes at most",
      "for example H100"
  );
}

Status check_limits(const api::QuotaRequest& request) {
  if (!request.gpus && !request.running && !request.jobs && !request.gpu_hours &&
      !request.idle_stop_s)
    return fail(
        ErrorCode::kInvalid,
        "the quota bounds nothing",
        "name gpus, running, jobs, gpu_hours or idle_stop_s; `reclaim quota rm` takes one away"
    );
  if (request.idle_stop_s && *request.idle_stop_s < kIdleStopLeastS)
    return fail(
        ErrorCode::kInvalid,
        "idle_stop_s: less than a minute",
        "for example 7200, two hours; leave it out, and jobs are stopped only where they ask for it"
    );
  if (!request.gpu_model.empty() && (request.running || request.jobs || request.idle_stop_s))
    return fail(
        ErrorCode::kInvalid,
        "gpu_model: jobs are not bounded by the model of GPUs, as one that waits has none",
        "bound gpus or gpu_hours of a model, and jobs without one"
    );
  if (request.gpu_hours && !(*request.gpu_hours >= 0 && *request.gpu_hours <= kGpuHoursMost))
    return fail(
        ErrorCode::kInvalid, "gpu_hours: expected 0 to 1000000000", "leave it out for no bound"
    );
  if (request.window_s < kQuotaWindowLeastS || request.window_s > kQuotaWindowMostS)
    return fail(
        ErrorCode::kInvalid,
        "window_s: expected an hour to 31 days (3600 to 2678400)",
        "604800, a week, is the default"
    );
  return {};
}

Status check_administrator(const Caller& caller) {
  if (caller.role >= Role::kAdmin) return {};
  return fail(ErrorCode::kDenied, "only administrators set quotas", "ask one");
}

}  // namespace

QuotaBook::QuotaBook(const State& state, bool is_for_people)
    : state_(state), is_counted_(is_for_people || !state.quotas.empty()) {
  if (!is_counted_) return;
  for (const auto& [key, quota] : state.quotas) {
    if (!key.second.empty()) patterns_.insert(key.second);
  }
  for (const JobId& id : state.unfinished) {
    const JobEntry& job = state.jobs.at(id);
    for (const std::string& subject : subjects_of(job.row.job)) ++counts_[subject].jobs;
    const bool waits = state.held.contains(id) || (state.is_waiting(job) && !job.row.is_displaced);
    if (!waits) count_running(job);
  }
}

void QuotaBook::count_running(const JobEntry& job) {
  const Job& j = job.row.job;
  const double promised = promised_gpu_hours(state_, job);
  for (const std::string& subject : subjects_of(j)) {
    sched::QuotaCount& held = counts_[subject];
    ++held.running;
    held.gpus += j.spec.resources.gpus;
    held.promised_gpu_hours += promised;
    for (const std::string& pattern : patterns_)
      gpus_of_[{subject, pattern}] += gpus_of_model(job, pattern);
  }
}

std::uint32_t QuotaBook::gpus_of_model(const JobEntry& job, const std::string& pattern) const {
  const Job& j = job.row.job;
  if (j.spec.resources.gpus == 0) return 0;
  // One of those that are asked takes it: the most counts.
  if (job.placement) {
    std::uint32_t most = 0;
    for (const Asked& asked : job.placement->asked)
      most = std::max(most, gpus_at(job, asked.node, {}, pattern));
    return most;
  }
  if (const Asked* seat = state_.seat_of(job)) return gpus_at(job, seat->node, {}, pattern);
  const auto attempt = state_.attempts.find({j.id, j.epoch});
  if (attempt == state_.attempts.end() || !attempt->second.is_live()) return 0;
  return gpus_at(job, attempt->second.row.attempt.node, attempt->second.gpus, pattern);
}

std::uint32_t QuotaBook::gpus_at(
    const JobEntry& job,
    const NodeId& id,
    const std::vector<std::uint32_t>& known,
    const std::string& pattern
) const {
  const auto node = state_.nodes.find(id);
  if (node == state_.nodes.end()) return 0;
  const auto models = gpu_models_of(node->second.row, known, job.row.job.spec.resources.gpus);
  return static_cast<std::uint32_t>(std::count_if(
      models.begin(),
      models.end(),
      [&](const std::string& model) { return sched::is_gpu_model(pattern, model); }
  ));
}

double QuotaBook::used_hours(const std::string& subject, const Quota& quota) const {
  const auto key = std::make_tuple(subject, quota.gpu_model, quota.window_s);
  const auto known = hours_.find(key);
  if (known != hours_.end()) return known->second;
  const double used =
      state_.gpu_hours.used(subject, quota.gpu_model, state_.wall_ms(), quota.window_s);
  return hours_[key] = used;
}

sched::QuotaCount QuotaBook::count(const std::string& subject, const Quota& quota) const {
  const auto found = counts_.find(subject);
  sched::QuotaCount result = found == counts_.end() ? sched::QuotaCount{} : found->second;
  if (!quota.gpu_model.empty()) {
    const auto of_model = gpus_of_.find({subject, quota.gpu_model});
    result.gpus = of_model == gpus_of_.end() ? 0 : of_model->second;
    result.promised_gpu_hours = 0;  // where a job runs that says how long is not known beforehand
  }
  result.gpu_hours = used_hours(subject, quota);
  return result;
}

std::vector<const Quota*> QuotaBook::quotas_for(const std::string& subject) const {
  std::map<std::string, const Quota*> by_model;
  const std::string everybody = subject.substr(0, subject.find(':') + 1) + "*";
  for (const std::string& name : {everybody, subject}) {
    auto at = state_.quotas.lower_bound({name, std::string()});
    for (; at != state_.quotas.end() && at->first.first == name; ++at)
      by_model[at->first.second] = &at->second;
  }
  std::vector<const Quota*> all;
  for (const auto& [model, quota] : by_model) all.push_back(quota);
  return all;
}

std::string QuotaBook::held_back(const JobEntry& job) const {
  if (state_.quotas.empty() || job.row.is_displaced) return {};
  if (planted("coordinator.forgets_quotas")) return {};
  const sched::QuotaNeed need = need_of(job.row.job.spec);
  for (const std::string& subject : subjects_of(job.row.job)) {
    const std::string who = sched::quota_subject_words(subject);
    for (const Quota* quota : quotas_for(subject)) {
      if (!quota->gpu_model.empty()) continue;
      std::string words = sched::not_now_words(*quota, who, count(subject, *quota), need);
      // One that was lowered since its submit.
      if (words.empty()) words = sched::never_words(*quota, who, need);
      if (!words.empty()) return words;
    }
  }
  return {};
}

std::string QuotaBook::barred(const JobEntry& job, const NodeRow& node) const {
  const std::uint32_t gpus = job.row.job.spec.resources.gpus;
  if (patterns_.empty() || job.row.is_displaced || gpus == 0) return {};
  const bool is_bounded =
      std::any_of(patterns_.begin(), patterns_.end(), [&](const std::string& pattern) {
        return lends_model(node, pattern);
      });
  if (!is_bounded) return {};
  for (const std::string& subject : subjects_of(job.row.job)) {
    const std::string who = sched::quota_subject_words(subject);
    for (const Quota* quota : quotas_for(subject)) {
      if (quota->gpu_model.empty() || !lends_model(node, quota->gpu_model)) continue;
      std::string words = sched::not_now_words(*quota, who, count(subject, *quota), {.gpus = gpus});
      if (!words.empty()) return words;
    }
  }
  return {};
}

void QuotaBook::take(const JobEntry& job) {
  if (is_counted_ && !job.row.is_displaced) count_running(job);
}

void QuotaBook::take_at(const JobEntry& job, const NodeId& node) {
  if (!is_counted_ || job.row.is_displaced) return;
  const bool is_known = state_.seat_of(job) != nullptr;
  count_running(job);
  if (is_known) return;
  for (const std::string& subject : subjects_of(job.row.job)) {
    for (const std::string& pattern : patterns_)
      gpus_of_[{subject, pattern}] += gpus_at(job, node, {}, pattern);
  }
}

namespace {

/// `count` jobs, of which all that are needed at once together ask for `need`.
Status check_quotas_of(
    const State& state, const Caller& caller, const sched::QuotaNeed& need, std::size_t count
) {
  if (state.quotas.empty()) return {};
  const QuotaBook book(state);
  for (const std::string& subject : subjects_of(caller.user, caller.lab)) {
    const std::string who = sched::quota_subject_words(subject);
    for (const Quota* quota : book.quotas_for(subject)) {
      const std::string never = sched::never_words(*quota, who, need);
      if (!never.empty())
        return fail(
            ErrorCode::kExhausted,
            never,
            "ask for less, or ask an administrator for more; `reclaim quota` shows what you may "
            "have"
        );
      if (!quota->jobs) continue;
      const sched::QuotaCount has{.jobs = unfinished_jobs_of(state, subject)};
      const std::string many = sched::too_many_words(*quota, who, has, count);
      if (many.empty()) continue;
      return fail(
          ErrorCode::kExhausted,
          many,
          count > *quota->jobs ? "submit fewer at a time, or ask an administrator for more"
                               : "stop some, or submit it again when one has ended"
      );
    }
  }
  return {};
}

}  // namespace

Status check_quotas(
    const State& state, const Caller& caller, const JobSpec& spec, std::size_t count
) {
  return check_quotas_of(state, caller, need_of(spec), count);
}

Status check_gang_quotas(
    const State& state, const Caller& caller, const JobSpec& spec, std::uint32_t size
) {
  sched::QuotaNeed need = need_of(spec);
  need.gpus *= size;
  need.gpu_hours *= size;
  RN_CHECK(check_quotas_of(state, caller, need, size));
  const QuotaBook book(state);
  for (const std::string& subject : subjects_of(caller.user, caller.lab)) {
    for (const Quota* quota : book.quotas_for(subject)) {
      if (!quota->running || *quota->running >= size) continue;
      return fail(
          ErrorCode::kExhausted,
          sched::quota_subject_words(subject) + " may have " + counted(*quota->running, "job") +
              " at once, and all " + std::to_string(size) + " members of a gang run together",
          "ask for fewer members, or ask an administrator for more"
      );
    }
  }
  return {};
}

Result<Answer> set_quota(State& state, const Caller& caller, const SetQuota& command) {
  const api::QuotaRequest& request = command.request;
  RN_CHECK(check_administrator(caller));
  RN_CHECK(check_subject(state, command.subject));
  RN_CHECK(check_model(request.gpu_model));
  RN_CHECK(check_limits(request));
  const std::pair key(command.subject, request.gpu_model);
  if (!state.quotas.contains(key) && state.quotas.size() >= kQuotasMost)
    return fail(ErrorCode::kExhausted, "20000 quotas are set", "remove some");
  const Quota quota{
      .subject = command.subject,
      .gpu_model = request.gpu_model,
      .gpus = request.gpus,
      .running = request.running,
      .jobs = request.jobs,
      .gpu_hours = request.gpu_hours,
      .window_s = request.window_s,
      .idle_stop_s = request.idle_stop_s,
      .set_by = caller.user,
      .set_wall_ms = state.wall_ms()};
  state.quotas[key] = quota;
  state.write(PutQuota{quota});
  audit(state, caller, "quota.set", quota_words(quota));
  state.is_dispatch_wanted = true;
  return quota;
}

Result<Answer> remove_quota(State& state, const Caller& caller, const RemoveQuota& command) {
  RN_CHECK(check_administrator(caller));
  const std::string name = called(command.subject, command.gpu_model);
  if (state.quotas.erase({command.subject, command.gpu_model}) == 0)
    return fail(
        ErrorCode::kNotFound,
        "there is no quota of " + name.substr(0, 200),
        "`reclaim quota` lists them"
    );
  state.write(DeleteQuota{command.subject, command.gpu_model});
  audit(state, caller, "quota.removed", name);
  state.is_dispatch_wanted = true;
  return Done{};
}

namespace {

/// Whose use the caller may see: the own, and the lab's sum where a quota of the lab counts for
/// them; an owner the lab's and its users', an admin everybody's.
std::set<std::string> subjects_seen_by(
    const State& state, const QuotaBook& book, const Caller& caller
) {
  std::set<std::string> seen;
  if (!caller.user.empty()) seen.insert(quota_subject(caller.user));
  const bool has_lab = !caller.user.empty() && !caller.lab.empty();
  if (has_lab && !book.quotas_for(quota_subject(caller.lab)).empty())
    seen.insert(quota_subject(caller.lab));
  const auto see = [&](const UserId& user, const LabId& lab) {
    const bool is_owners = caller.role == Role::kOwner && lab == caller.lab && !lab.empty();
    if (caller.role != Role::kAdmin && !is_owners) return;
    seen.insert(quota_subject(user));
    seen.insert(quota_subject(lab));
  };
  if (caller.role == Role::kOwner) seen.insert(quota_subject(caller.lab));
  for (const auto& [user, row] : state.users) see(user, row.lab);
  for (const JobId& id : state.unfinished) {
    const Job& job = state.jobs.at(id).row.job;
    see(job.owner, job.lab);
  }
  if (caller.role == Role::kAdmin) seen.merge(state.gpu_hours.subjects());
  return seen;
}

api::QuotaUse use_of(const QuotaBook& book, const std::string& subject, const Quota& quota) {
  const sched::QuotaCount count = book.count(subject, quota);
  return {
      .subject = subject,
      .rule = quota.subject,
      .gpu_model = quota.gpu_model,
      .gpus_used = count.gpus,
      .gpus = quota.gpus,
      .running_used = count.running,
      .running = quota.running,
      .jobs_used = count.jobs,
      .jobs = quota.jobs,
      .gpu_hours_used = count.gpu_hours,
      .gpu_hours = quota.gpu_hours,
      .window_s = quota.window_s};
}

}  // namespace

api::QuotaList quotas_seen_by(const State& state, const Caller& caller) {
  const QuotaBook book(state, true);
  api::QuotaList list;
  std::set<std::pair<std::string, std::string>> counting;
  for (const Quota* quota : book.quotas_for(quota_subject(caller.lab)))
    counting.emplace(quota->subject, quota->gpu_model);
  for (const std::string& subject : subjects_seen_by(state, book, caller)) {
    const std::vector<const Quota*> quotas = book.quotas_for(subject);
    for (const Quota* quota : quotas) {
      counting.emplace(quota->subject, quota->gpu_model);
      list.uses.push_back(use_of(book, subject, *quota));
    }
    const bool has_whole = !quotas.empty() && quotas.front()->gpu_model.empty();
    if (!has_whole) list.uses.push_back(use_of(book, subject, Quota{}));
  }
  for (const auto& [key, quota] : state.quotas) {
    if (caller.role == Role::kAdmin || counting.contains(key)) list.quotas.push_back(quota);
  }
  return list;
}

void restore_quotas(State& state, const Snapshot& snapshot) {
  for (const Quota& quota : snapshot.quotas) state.quotas[{quota.subject, quota.gpu_model}] = quota;
  for (const GpuHourRow& row : snapshot.gpu_hours) state.gpu_hours.restore(row);
}

void charge_gpu_hours(State& state, const AttemptEntry& attempt, const Job& job, double elapsed_s) {
  const NodeEntry* node = state.find_node(attempt.row.attempt.node);
  if (node == nullptr || job.spec.resources.gpus == 0) return;
  for (const std::string& model : gpu_models_of(node->row, attempt.gpus, job.spec.resources.gpus))
    state.gpu_hours.add(job.owner, job.lab, model, state.wall_ms(), elapsed_s);
}

void save_gpu_hours(State& state) {
  if (const auto first = state.gpu_hours.forget_old(state.wall_ms()))
    state.write(DropGpuHours{*first});
  for (GpuHourRow& row : state.gpu_hours.take_changed()) state.write(PutGpuHour{std::move(row)});
}

}  // namespace rn::coordinator
