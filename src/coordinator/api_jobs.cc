// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "base/log.h"
#include "coordinator/api_answers.h"
#include "coordinator/daemon_listing.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kMaxKeyBytes = 128;
constexpr std::size_t kJobsPerPage = 1000;

bool is_zero(const Digest& digest) {
  return digest == Digest{};
}

void run_submit(
    ApiContext& context, const Caller& caller, Command command, const io::Responder& responder
) {
  context.shell.command(caller, std::move(command), [&context, responder](Result<Answer> result) {
    if (!result) return responder.send_error(result.error());
    if (const auto* array = std::get_if<api::ArrayAnswer>(&*result))
      return answer(context, responder, *array, array->is_repeat ? 200 : 201);
    if (const auto* gang = std::get_if<api::GangAnswer>(&*result))
      return answer(context, responder, *gang, gang->is_repeat ? 200 : 201);
    auto& submitted = std::get<JobSubmitted>(*result);
    const api::SubmitAnswer body{submitted.job, submitted.is_repeat, std::move(submitted.warnings)};
    answer(context, responder, body, submitted.is_repeat ? 200 : 201);
  });
}

/// Its Idempotency-Key; false if it is none, and the error is sent.
bool take_key(const ApiRequest& request, const io::Responder& responder, std::string& out) {
  out = std::string(request.http.header("Idempotency-Key"));
  if (out.size() <= kMaxKeyBytes) return true;
  responder.send_error(Error{
      ErrorCode::kInvalid, "Idempotency-Key has more than 128 bytes", "a UUID is long enough"});
  return false;
}

/// `then` once the listing and all its blobs are known to be there.
template <class Then>
void with_workspace(
    ApiContext& context, const io::Responder& responder, const Digest& workspace, Then then
) {
  if (is_zero(workspace)) return then();
  on_worker(
      context,
      responder,
      [&blobs = context.blobs, workspace]() -> Status {
        RN_CHECK(read_listing(blobs, workspace));
        return {};
      },
      std::move(then)
  );
}

/// The newest `most` of both that the caller may read; of a job in both, what is `live`.
std::vector<Job> newest_of(
    const std::vector<Job>& live,
    const std::vector<Job>& stored,
    const Caller& caller,
    std::size_t most
) {
  std::map<std::uint64_t, Job, std::greater<>> jobs;
  for (const Job& job : live) jobs.emplace(job.number, job);
  for (const Job& job : stored)
    if (Core::may_read(caller, job)) jobs.emplace(job.number, job);
  std::vector<Job> out;
  for (auto& [number, job] : jobs)
    if (out.size() < most) out.push_back(std::move(job));
  return out;
}

/// All of it to who may read it. An owner who stops a job of the lab gets what an owner sees of a
/// guest: what it is called and does stays its user's.
Job job_as_seen_by(const Caller& caller, const Job& job) {
  if (Core::may_read(caller, job)) return job;
  Job shown;
  shown.id = job.id;
  shown.number = job.number;
  shown.owner = job.owner;
  shown.lab = job.lab;
  shown.state = job.state;
  shown.epoch = job.epoch;
  shown.node = job.node;
  return shown;
}

}  // namespace

void submit_job(ApiContext& context, ApiRequest request, io::Responder responder) {
  SubmitJob command;
  if (!read_body(request, responder, command.spec)) return;
  if (!take_key(request, responder, command.idempotency_key)) return;
  const Digest workspace = command.spec.workspace;
  with_workspace(
      context,
      responder,
      workspace,
      [&context, caller = request.caller, command = std::move(command), responder]() mutable {
        run_submit(context, caller, std::move(command), responder);
      }
  );
}

void submit_array(ApiContext& context, ApiRequest request, io::Responder responder) {
  SubmitArray command;
  if (!read_body(request, responder, command.request)) return;
  if (!take_key(request, responder, command.idempotency_key)) return;
  const Digest workspace = command.request.spec.workspace;
  with_workspace(
      context,
      responder,
      workspace,
      [&context, caller = request.caller, command = std::move(command), responder]() mutable {
        run_submit(context, caller, std::move(command), responder);
      }
  );
}

void stop_array(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::StopRequest body;
  if (!read_body(request, responder, body)) return;
  StopArray command{request.path.at("id"), body.saves_first, body.deadline_ms, body.reason};
  context.shell
      .command(request.caller, std::move(command), [&context, responder](Result<Answer> r) {
        if (!r) return responder.send_error(r.error());
        answer(context, responder, std::get<api::ArrayStopped>(*r));
      });
}

void submit_gang(ApiContext& context, ApiRequest request, io::Responder responder) {
  SubmitGang command;
  if (!read_body(request, responder, command.request)) return;
  if (!take_key(request, responder, command.idempotency_key)) return;
  const Digest workspace = command.request.spec.workspace;
  with_workspace(
      context,
      responder,
      workspace,
      [&context, caller = request.caller, command = std::move(command), responder]() mutable {
        run_submit(context, caller, std::move(command), responder);
      }
  );
}

/// As a job's: an unknown one and another user's are told alike.
void show_gang(ApiContext& context, ApiRequest request, io::Responder responder) {
  const std::string& name = request.path.at("id");
  const Core& core = context.shell.core();
  const auto gang = core.gang(GangId(name));
  const Job* first =
      !gang || gang->members.empty() ? nullptr : core.find_job(gang->members.front().job);
  if (first == nullptr || !Core::may_read(request.caller, *first)) {
    return responder.send_error(Error{
        ErrorCode::kNotFound, "no gang " + name, "`reclaim show JOB` names the gang of a job"});
  }
  answer(context, responder, *gang);
}

void stop_gang(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::StopRequest body;
  if (!read_body(request, responder, body)) return;
  StopGang command{GangId(request.path.at("id")), body.saves_first, body.deadline_ms, body.reason};
  context.shell
      .command(request.caller, std::move(command), [&context, responder](Result<Answer> r) {
        if (!r) return responder.send_error(r.error());
        answer(context, responder, std::get<api::GangStopped>(*r));
      });
}

void list_jobs(ApiContext& context, ApiRequest request, io::Responder responder) {
  const auto before = query_number(request, "before", 0);
  const auto limit = query_number(request, "limit", 100);
  if (!before) return responder.send_error(before.error());
  if (!limit) return responder.send_error(limit.error());
  const std::size_t most = std::min<std::uint64_t>(*limit, kJobsPerPage);
  const bool with_finished = query_flag(request, "all");
  api::JobList live;
  const std::vector<Job> known = context.shell.core().jobs(with_finished);
  for (auto job = known.rbegin(); job != known.rend() && live.jobs.size() < most; ++job) {
    const bool is_wanted = *before == 0 || job->number < *before;
    if (is_wanted && Core::may_read(request.caller, *job)) live.jobs.push_back(*job);
  }
  if (!with_finished) return answer(context, responder, live);
  // Finished long ago: only the store has them, and a job that runs for weeks is older than many of
  // them.
  JobFilter filter;
  if (request.caller.role != Role::kAdmin) filter.owner = request.caller.user;
  filter.with_finished = true;
  filter.before_number = *before;
  filter.limit = static_cast<std::uint32_t>(most);
  on_worker(
      context,
      responder,
      [&store = context.store, filter] { return store.jobs(filter); },
      [&context, caller = request.caller, responder, live = std::move(live), most](
          const std::vector<Job>& stored
      ) { answer(context, responder, api::JobList{newest_of(live.jobs, stored, caller, most)}); }
  );
}

void show_job(ApiContext& context, ApiRequest request, io::Responder responder) {
  with_job(context, request, responder, [&context, responder](const Job& job, bool) {
    answer(context, responder, job);
  });
}

void explain_job(ApiContext& context, ApiRequest request, io::Responder responder) {
  with_job(context, request, responder, [&context, responder](const Job& job, bool is_live) {
    api::WhyAnswer body{job.id, job.state, job.reason, std::nullopt, std::nullopt};
    if (is_live) {
      const Now now = context.shell.now();
      auto sentence = context.shell.core().why(job.id, now);
      if (!sentence) return responder.send_error(sentence.error());
      body.sentence = *std::move(sentence);
      body.queue_position = context.shell.core().queue_position(job.id, now);
      body.evacuation = context.shell.core().evacuation(job.id);
    }
    answer(context, responder, body);
  });
}

/// Changes nothing. A workspace is not looked for: it need not be uploaded yet.
void plan_job(ApiContext& context, ApiRequest request, io::Responder responder) {
  JobSpec spec;
  if (!read_body(request, responder, spec)) return;
  const auto plan = context.shell.core().plan(request.caller, spec, context.shell.now());
  if (!plan) return responder.send_error(plan.error());
  answer(context, responder, *plan);
}

void stop_job(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::StopRequest body;
  if (!read_body(request, responder, body)) return;
  const Caller caller = request.caller;
  with_job(
      context,
      request,
      responder,
      [&context, caller, body, responder](const Job& job, bool is_live) {
        if (!is_live) return answer(context, responder, job_as_seen_by(caller, job));
        StopJob command{job.id, body.saves_first, body.deadline_ms, body.reason};
        context.shell
            .command(caller, std::move(command), [&context, caller, responder](Result<Answer> r) {
              if (!r) return responder.send_error(r.error());
              answer(context, responder, job_as_seen_by(caller, std::get<JobStopping>(*r).job));
            });
      },
      Core::may_stop
  );
}

void list_attempts(ApiContext& context, ApiRequest request, io::Responder responder) {
  with_job(context, request, responder, [&context, responder](const Job& job, bool is_live) {
    if (is_live)
      return answer(context, responder, api::AttemptList{context.shell.core().attempts(job.id)});
    on_worker(
        context,
        responder,
        [&store = context.store, id = job.id] { return store.attempts(id); },
        [&context, responder](std::vector<Attempt> attempts) {
          answer(context, responder, api::AttemptList{std::move(attempts)});
        }
    );
  });
}

namespace {

api::GenerationList generation_list(const std::vector<GenerationRow>& rows) {
  api::GenerationList list;
  for (const GenerationRow& row : rows) {
    api::GenerationInfo info{
        row.generation, row.source, {}, row.committed_wall_ms, row.is_collected};
    for (const Receipt& receipt : row.receipts) info.holders.push_back(receipt.holder);
    list.generations.push_back(std::move(info));
  }
  return list;
}

}  // namespace

void list_generations(ApiContext& context, ApiRequest request, io::Responder responder) {
  with_job(context, request, responder, [&context, responder](const Job& job, bool is_live) {
    if (is_live)
      return answer(context, responder, generation_list(context.shell.core().generations(job.id)));
    on_worker(
        context,
        responder,
        [&store = context.store, id = job.id] { return store.generations(id); },
        [&context, responder](const std::vector<GenerationRow>& rows) {
          answer(context, responder, generation_list(rows));
        }
    );
  });
}

namespace {

/// When its owner asks for the outputs of a job that is over, they count as fetched.
Result<Listing> read_outputs(
    const BlobStore& blobs, AttemptLogs& logs, const Job& job, const UserId& caller
) {
  auto listing = read_listing(blobs, job.outputs);
  if (!is_terminal(job.state)) return listing;
  if (!listing && listing.error().code == ErrorCode::kNotFound) {
    const bool is_fetched = logs.is_fetched(job.id);
    return fail(
        ErrorCode::kNotFound,
        "the outputs of job " + job.id.str() +
            " are no longer kept: " + (is_fetched ? "they were fetched" : "nobody fetched them") +
            ", and it ended too long ago",
        std::string("submit it again, or ask the operator for a longer ") +
            (is_fetched ? "keep_ended_s" : "keep_outputs_s")
    );
  }
  if (listing && caller == job.owner) {
    const Status marked = logs.mark_fetched(job.id);
    if (!marked) log::warning("outputs.not_marked", {{"why", marked.error().describe()}});
  }
  return listing;
}

}  // namespace

void show_outputs(ApiContext& context, ApiRequest request, io::Responder responder) {
  const UserId caller = request.caller.user;
  with_job(context, request, responder, [&context, caller, responder](const Job& job, bool) {
    if (is_zero(job.outputs)) {
      return responder.send_error(Error{
          ErrorCode::kNotFound,
          "job " + job.id.str() + " has published no outputs",
          job.state == JobState::kSucceeded
              ? "it wrote no file, or none that its --output patterns name; what it printed: "
                "'reclaim logs'"
          : is_terminal(job.state)
              ? "only a job that succeeds publishes them; what this one printed: 'reclaim logs'"
              : "they are published when it succeeds; see 'reclaim why'"});
    }
    on_worker(
        context,
        responder,
        [&blobs = context.blobs, &logs = context.logs, job, caller] {
          return read_outputs(blobs, logs, job, caller);
        },
        [&context, responder](const Listing& listing) { answer(context, responder, listing); }
    );
  });
}

}  // namespace rn::coordinator
