// SPDX-License-Identifier: Apache-2.0
#include "cli_history.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "cli_job_file.h"
#include "cli_print.h"

#include "base/printable.h"
#include "io/http.h"
#include "model/codec_detail.h"

namespace rn::cli {

namespace {

constexpr std::size_t kHistoryPage = 1000;  ///< of the coordinator
constexpr int kHistoryPagesMax = 20;        ///< of all jobs that the caller may see
constexpr std::size_t kHistoryCallsAtOnce = 8;

/// After which the job goes on with what was saved.
bool went_on(AttemptEnd end) {
  switch (end) {
    case AttemptEnd::kReclaimed:
    case AttemptEnd::kMigrated:
    case AttemptEnd::kLost:
    case AttemptEnd::kFenced:
    case AttemptEnd::kHolderAway:
    case AttemptEnd::kCrashed:
    case AttemptEnd::kRefused:
      return true;
    case AttemptEnd::kNone:
    case AttemptEnd::kSucceeded:
    case AttemptEnd::kCancelled:
    case AttemptEnd::kTimedOut:
      return false;
  }
  return false;
}

bool is_wanted_past(const Job& job, const std::string& user, const HistoryOptions& options) {
  return is_terminal(job.state) && job.owner.str() == user &&
         (options.status.empty() || to_string(job.state) == options.status);
}

/// The caller's jobs that have ended, newest first, as many as are wanted.
Result<std::vector<Job>> ended_jobs(
    const Client& client, const HistoryOptions& options, std::int64_t since_wall_ms
) {
  RN_TRY(const auto who, client.get_as<api::Whoami>("/v1/whoami"));
  std::vector<Job> jobs;
  std::string before;
  for (int page = 0; page < kHistoryPagesMax && jobs.size() < options.limit; ++page) {
    RN_TRY(
        const auto list,
        client.get_as<api::JobList>("/v1/jobs?all=1&limit=" + std::to_string(kHistoryPage) + before)
    );
    for (const Job& job : list.jobs) {
      if (jobs.size() < options.limit && is_wanted_past(job, who.user, options) &&
          job.finished_wall_ms >= since_wall_ms)
        jobs.push_back(job);
    }
    if (list.jobs.size() < kHistoryPage) break;
    before = "&before=" + std::to_string(list.jobs.back().number);
  }
  return jobs;
}

struct PastParts {
  api::AttemptList attempts;
  api::GenerationList generations;
};

/// Two calls for each job, many at once.
Result<std::vector<PastParts>> parts_of(const Client& client, const std::vector<Job>& jobs) {
  std::vector<PastParts> parts(jobs.size());
  std::uint64_t asked = 0;
  const auto next = [&](io::HttpCall& call, std::uint64_t& tag) -> Result<bool> {
    if (asked == 2 * jobs.size()) return false;
    tag = asked++;
    call = client.call(
        "GET",
        "/v1/jobs/" + io::percent_encode(jobs[tag / 2].id.str()) +
            (tag % 2 == 0 ? "/attempts" : "/generations")
    );
    return true;
  };
  const auto done = [&](std::uint64_t tag, const io::HttpReply& reply) -> Status {
    PastParts& own = parts[tag / 2];
    if (tag % 2 == 0) {
      RN_TRY(own.attempts, from_json<api::AttemptList>(reply.body, Unknown::kLenient));
    } else {
      RN_TRY(own.generations, from_json<api::GenerationList>(reply.body, Unknown::kLenient));
    }
    return {};
  };
  const Status asked_all = perform_many(kHistoryCallsAtOnce, next, done);
  if (!asked_all) return fail(with_next_step(asked_all.error(), client.login().url));
  return parts;
}

Result<PastJobs> read_history(
    const Client& client, const HistoryOptions& options, std::int64_t since_wall_ms
) {
  RN_TRY(const std::vector<Job> jobs, ended_jobs(client, options, since_wall_ms));
  RN_TRY(const std::vector<PastParts> parts, parts_of(client, jobs));
  RN_TRY(const auto nodes, client.get_as<api::NodeList>("/v1/nodes"));
  std::map<NodeId, std::string> hosts;
  for (const api::NodeInfo& node : nodes.nodes) {
    if (!node.facts.hostname.empty()) hosts[node.id] = node.facts.hostname;
  }
  PastJobs history;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    history.jobs.push_back(
        past_job(jobs[i], parts[i].attempts.attempts, parts[i].generations.generations, hosts)
    );
  std::stable_sort(
      history.jobs.begin(),
      history.jobs.end(),
      [](const PastJob& a, const PastJob& b) { return a.finished_wall_ms > b.finished_wall_ms; }
  );
  return history;
}

std::string seconds_words(double seconds) {
  return seconds > 0 ? duration_words(seconds) : "-";
}

}  // namespace

std::int64_t lost_work_ms(
    const std::vector<Attempt>& attempts, const std::vector<api::GenerationInfo>& generations
) {
  std::vector<const Attempt*> ran;
  for (const Attempt& attempt : attempts) {
    if (attempt.started_wall_ms != 0) ran.push_back(&attempt);
  }
  std::int64_t lost = 0;
  for (std::size_t i = 0; i + 1 < ran.size(); ++i) {
    const Attempt& one = *ran[i];
    const std::uint32_t resumed = ran[i + 1]->resumed_generation;
    if (one.ended_wall_ms == 0 || !went_on(one.end)) continue;
    const auto saved =
        std::find_if(generations.begin(), generations.end(), [&](const api::GenerationInfo& info) {
          return info.generation.generation == resumed;
        });
    if (resumed != 0 && saved == generations.end()) continue;
    const std::int64_t since = resumed == 0 ? 0 : saved->generation.created_wall_ms;
    lost += std::max<std::int64_t>(0, one.ended_wall_ms - std::max(one.started_wall_ms, since));
  }
  return lost;
}

PastJob past_job(
    const Job& job,
    const std::vector<Attempt>& attempts,
    const std::vector<api::GenerationInfo>& generations,
    const std::map<NodeId, std::string>& hosts
) {
  PastJob past;
  past.job = job.id;
  past.number = job.number;
  past.name = job.spec.name;
  past.state = job.state;
  past.submitted_wall_ms = job.submitted_wall_ms;
  past.started_wall_ms = job.started_wall_ms;
  past.finished_wall_ms = job.finished_wall_ms;
  past.displacements = job.displacements;
  past.restarts = job.restarts;
  past.exit_code = job.exit_code;
  past.reason = job.reason;
  std::int64_t ran_ms = 0;
  for (const Attempt& attempt : attempts) {
    if (attempt.started_wall_ms == 0) continue;
    ++past.attempts;
    ran_ms += std::max<std::int64_t>(0, attempt.ended_wall_ms - attempt.started_wall_ms);
    const auto host = hosts.find(attempt.node);
    const std::string name = host == hosts.end() ? attempt.node.str() : host->second;
    if (past.hosts.empty() || past.hosts.back() != name) past.hosts.push_back(name);
  }
  past.ran_s = static_cast<double>(ran_ms) / 1e3;
  past.lost_s = static_cast<double>(lost_work_ms(attempts, generations)) / 1e3;
  return past;
}

std::string table_of_history(const PastJobs& history, std::int64_t now_wall_ms) {
  std::vector<std::vector<std::string>> rows;
  for (const PastJob& job : history.jobs) {
    std::string where;
    for (const std::string& host : job.hosts) where += (where.empty() ? "" : " > ") + host;
    rows.push_back(
        {std::to_string(job.number),
         job.job.str(),
         dash(shorten(job.name, 20)),
         std::string(to_string(job.state)),
         std::to_string(job.exit_code),
         relative_time(job.finished_wall_ms, now_wall_ms),
         seconds_words(job.ran_s),
         seconds_words(job.lost_s),
         std::to_string(job.attempts),
         dash(shorten(where, 40))}
    );
  }
  return table(
      {"NO", "JOB", "NAME", "STATE", "EXIT", "ENDED", "RAN", "DONE AGAIN", "ATTEMPTS", "WHERE"},
      rows
  );
}

int history(const Client& client, const HistoryOptions& options) {
  std::int64_t since_wall_ms = 0;
  const std::int64_t now = wall_now_ms();
  if (!options.since.empty()) {
    const auto since_s = parse_duration_s(options.since);
    if (!since_s) return complain(since_s.error().with("--since").hinting("for example 7d or 12h"));
    since_wall_ms = now - static_cast<std::int64_t>(*since_s) * 1000;
  }
  const auto past = read_history(client, options, since_wall_ms);
  if (!past) return complain(past.error());
  if (options.is_json) {
    print_json(to_json(*past));
    return 0;
  }
  std::fputs(table_of_history(*past, now).c_str(), stdout);
  if (past->jobs.empty())
    std::fprintf(stderr, "no such jobs have ended; 'reclaim ps' lists those that have not\n");
  return 0;
}

}  // namespace rn::cli
