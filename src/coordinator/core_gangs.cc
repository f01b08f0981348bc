// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_gangs.h"

#include <algorithm>
#include <utility>

#include "base/crypto.h"
#include "coordinator/core_commands.h"
#include "coordinator/core_gang_life.h"
#include "coordinator/core_gang_placement.h"
#include "coordinator/core_gang_sets.h"
#include "coordinator/core_quota.h"
#include "model/codec.h"

namespace rn::coordinator {

namespace {

constexpr const char* kServesBrowsers = "NOTEBOOK_PORT";  // a job with it is a notebook
constexpr std::uint32_t kGangCopies = 2;  // a set is lost with any one of its generations

tl::unexpected<Error> wrong_gang(std::string message, std::string hint) {
  return fail(ErrorCode::kInvalid, std::move(message), std::move(hint));
}

Status check_gang(const api::GangRequest& request) {
  if (request.size < kGangSizeMin || request.size > kGangSizeMax)
    return wrong_gang(
        "size: " + std::to_string(request.size) + ": a gang has " + std::to_string(kGangSizeMin) +
            " to " + std::to_string(kGangSizeMax) + " members",
        request.size < kGangSizeMin ? "submit it as a job" : "use fewer nodes, or more GPUs of each"
    );
  if (request.spec.env.contains(kServesBrowsers))
    return wrong_gang(
        "spec.env." + std::string(kServesBrowsers) + ": a notebook is no gang",
        "submit the notebook as a job of its own"
    );
  if (request.spec.idle_stop_s > 0 && request.spec.resources.gpus == 0)
    return wrong_gang(
        "spec.idle_stop_s: members without GPUs are never idle", "leave it out, or ask for GPUs"
    );
  return {};
}

api::GangAnswer gang_answer_of(const State& state, const GangEntry& gang) {
  api::GangAnswer answer{.gang = gang.row.id};
  for (std::uint32_t rank = 0; rank < gang.row.members.size(); ++rank) {
    const auto job = state.jobs.find(gang.row.members[rank]);
    if (job != state.jobs.end())
      answer.members.push_back({job->first, job->second.row.job.number, rank});
  }
  return answer;
}

bool has_star(const std::vector<std::string>& paths) {
  return std::any_of(paths.begin(), paths.end(), [](const std::string& path) {
    return path.find('*') != std::string::npos;
  });
}

std::vector<std::string> warnings_of(const State& state, const GangEntry& gang) {
  const JobEntry& first = state.jobs.at(gang.row.members.front());
  std::vector<std::string> warnings = warnings_for(state, first);
  const CheckpointSpec& c = first.row.job.spec.checkpoint;
  if (c.is_stateless) return warnings;
  if (gang.row.saves == GangSaves::kFirst)
    warnings.emplace_back(
        "saves is `first`: only what rank 0 saves is kept; files of the other members are lost "
        "with their nodes"
    );
  if (gang.row.saves == GangSaves::kAll && !c.paths.empty() && !has_star(c.paths))
    warnings.emplace_back(
        "no pattern of checkpoint.paths has a star: saves of the members belong together by the "
        "step in their names, as ckpt-{step}.pt; without one nothing can be gone on from"
    );
  if (gang.row.saves != GangSaves::kFirst && gang.row.share == GangShare::kAll)
    warnings.emplace_back(
        "share is `all`: at each start every member fetches what all have saved; who loads its "
        "own part alone says `own`"
    );
  if (std::string never = gang_never_words(demand_of(state, gang), candidates_of(state));
      !never.empty())
    warnings.push_back("it waits: " + std::move(never));
  return warnings;
}

Result<Answer> gang_again(
    State& state, const Caller& caller, const SubmitGang& command, const Digest& asked
) {
  const JobEntry& job =
      *state.find_job(state.jobs_by_key.at({caller.user, command.idempotency_key}));
  const GangEntry* gang = state.gang_of(job);
  if (gang == nullptr || job.row.request != asked) return fail(key_used_for(job));
  api::GangAnswer answer = gang_answer_of(state, *gang);
  answer.is_repeat = true;
  answer.warnings = warnings_of(state, *gang);
  return answer;
}

/// All members have one key, so that a member's node can read what the others have saved.
void share_key(State& state, JobEntry& job, const crypto::Key256& key) {
  job.row.wrapped_key =
      crypto::seal(state.keys.wrapping_key, key, as_bytes(job.row.job.id.str()), state.rng);
  state.save(job);
}

GangRow gang_row(const State& state, const Caller& caller, const SubmitGang& command) {
  const api::GangRequest& request = command.request;
  GangRow row;
  row.owner = caller.user;
  row.lab = caller.lab;
  row.size = request.size;
  row.saves = request.saves;
  row.share = request.share;
  row.ends = request.ends;
  row.spread = request.spread;
  row.queued_wall_ms = state.wall_ms();
  row.idempotency_key = command.idempotency_key;
  return row;
}

api::GangSetView set_view(const GangSet& set) {
  api::GangSetView view{.number = set.number, .mark = set.mark};
  for (const GenerationRef& ref : set.refs) view.generations.push_back(ref.generation);
  return view;
}

}  // namespace

Result<Answer> submit_gang(State& state, const Caller& caller, const SubmitGang& command) {
  const api::GangRequest& request = command.request;
  RN_CHECK(check_submitter(caller, command.idempotency_key));
  if (caller.role < Role::kAdmin)
    return fail(
        ErrorCode::kDenied,
        "only administrators submit gangs yet",
        "use more GPUs of one node (resources.gpus), or an array of jobs"
    );
  RN_CHECK(check_gang(request));
  const Digest asked = crypto::sha256(to_cbor(request));
  if (is_key_known(state, caller, command.idempotency_key))
    return gang_again(state, caller, command, asked);
  RN_TRY(JobRow base, new_row(state, caller, request.spec, request.size));
  RN_CHECK(check_gang_quotas(state, caller, request.spec, request.size));
  CheckpointSpec& c = base.job.spec.checkpoint;
  if (!c.is_stateless) c.copies = std::max(c.copies, kGangCopies);
  GangRow row = gang_row(state, caller, command);
  row.id = GangId("g-" + state.rng.hex(8));
  row.request = asked;
  const crypto::Key256 key = crypto::random_key(state.rng);
  GangPlace place{
      .gang = row.id,
      .size = request.size,
      .first_number = state.next_job_number,
      .ends = request.ends};
  for (std::uint32_t rank = 0; rank < request.size; ++rank) {
    JobRow member = base;
    place.rank = rank;
    member.job.gang = place;
    if (rank == 0) member.idempotency_key = command.idempotency_key;
    if (rank == 0) member.request = asked;
    JobEntry& job = take_job(state, caller, std::move(member));
    share_key(state, job, key);
    row.members.push_back(job.row.job.id);
  }
  state.write(SetMeta{"next_job_number", std::to_string(state.next_job_number)});
  GangEntry& gang = state.adopt(std::move(row));
  state.move(gang, GangState::kWaiting);
  state.note(
      *state.find_job(gang.row.members.front()),
      "gang.submitted",
      std::to_string(request.size) + " members, jobs " + std::to_string(place.first_number) +
          " to " + std::to_string(place.first_number + request.size - 1),
      {{"gang", gang.row.id.str()}, {"size", std::to_string(request.size)}}
  );
  api::GangAnswer answer = gang_answer_of(state, gang);
  answer.warnings = warnings_of(state, gang);
  return answer;
}

Result<Answer> stop_gang_by(State& state, const Caller& caller, const StopGang& command) {
  GangEntry* gang = state.find_gang(command.gang);
  const JobEntry* first = gang == nullptr ? nullptr : state.find_job(gang->row.members.front());
  if (first == nullptr || !may_stop(caller, first->row.job))
    return fail(
        ErrorCode::kNotFound,
        "no gang " + command.gang.str(),
        "`reclaim show JOB` names the gang of a job"
    );
  stop_gang(
      state,
      *gang,
      AttemptEnd::kCancelled,
      command.saves_first,
      std::min(command.deadline_ms, 900'000u),
      stop_words(caller, command.reason)
  );
  return api::GangStopped{.gang = command.gang, .state = gang->row.state};
}

std::string gang_words(const State& state, const JobEntry& job) {
  if (!job.row.job.gang) return {};
  const GangPlace& place = *job.row.job.gang;
  const auto found = state.gangs.find(place.gang);
  if (found == state.gangs.end()) return {};
  const GangRow& row = found->second.row;
  std::string text = "member " + std::to_string(place.rank) + " of " + std::to_string(place.size) +
                     " of gang " + place.gang.str() + ", which is " +
                     std::string(to_string(row.state));
  const bool is_preparing = row.state == GangState::kPreparing;
  std::string late;
  for (std::uint32_t rank = 0; rank < row.members.size(); ++rank) {
    const auto attempt = state.attempts.find({row.members[rank], row.epoch});
    if (attempt == state.attempts.end()) continue;
    const Attempt& a = attempt->second.row.attempt;
    const bool is_late = a.state != (is_preparing ? AttemptState::kReady : AttemptState::kEnded);
    if (is_late)
      late += (late.empty() ? "" : ", ") + std::to_string(rank) + " on " + state.name_of(a.node) +
              " (" + std::string(to_string(a.state)) + ")";
  }
  if (is_preparing && !late.empty()) text += " and waits for rank " + late;
  if (row.state == GangState::kStopping) {
    text += " because of " + row.cause.reason;
    if (!late.empty()) text += " and waits for the end of rank " + late;
  }
  const bool has_set = row.set.number > 0;
  return text + "; all would go on from " + (has_set ? set_words(row.set) : "the start");
}

api::GangInfo gang_info(const State& state, const GangEntry& gang) {
  const GangRow& row = gang.row;
  api::GangInfo info;
  info.gang = row.id;
  info.owner = row.owner;
  info.lab = row.lab;
  info.size = row.size;
  info.saves = row.saves;
  info.share = row.share;
  info.ends = row.ends;
  info.spread = row.spread;
  info.state = row.state;
  if (!row.epoch.is_none()) info.epoch = to_string(row.epoch);
  info.all_save = row.saves == GangSaves::kAll || row.all_save;
  info.reason = row.cause.reason;
  info.set = set_view(row.set);
  info.previous = set_view(row.previous);
  for (std::uint32_t rank = 0; rank < row.members.size(); ++rank) {
    const auto found = state.jobs.find(row.members[rank]);
    if (found == state.jobs.end()) continue;
    const Job& job = found->second.row.job;
    api::GangMemberView member;
    member.job = job.id;
    member.number = job.number;
    member.rank = rank;
    member.state = job.state;
    member.node = job.node;
    member.reason = job.reason;
    const auto attempt = state.attempts.find({job.id, job.epoch});
    if (attempt != state.attempts.end() && attempt->second.is_live())
      member.attempt = std::string(to_string(attempt->second.row.attempt.state));
    info.members.push_back(std::move(member));
  }
  // Of one that waits the cause is of its last stop: what it lacks now is news.
  if (row.state == GangState::kWaiting && !info.members.empty())
    info.reason = info.members.front().reason;
  return info;
}

}  // namespace rn::coordinator
