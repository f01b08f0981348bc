// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "agent/core_state.h"
#include "arbiter/contract_rules.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/planted.h"
#include "model/slurm_name.h"

namespace rn::agent {

namespace {

constexpr std::uint32_t kDecodingCoresMax = 8;

/// Where libraries look for how many threads to start: OpenMP (PyTorch's own loops as well),
/// OpenBLAS, MKL, BLIS, numexpr, Numba, TensorFlow, Rust's rayon, Go, Python from 3.13 on.
constexpr std::array<const char*, 11> kThreadCounts = {
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "RAYON_NUM_THREADS",
    "GOMAXPROCS",
    "PYTHON_CPU_COUNT"};

/// A guest sees all processors of the machine, and its quota stops it for the rest of each period
/// when as many threads use it up. What the submitter says himself stays.
/// By what the job asked for and not by what this node granted: with another number of threads sums
/// come out different in their last bits, and attempts must not differ from lab to lab.
/// Rounded down, because one thread more than whole processors is what the quota stops; the others
/// would wait for it, spinning.
void add_thread_counts(std::map<std::string, std::string>& env, std::uint32_t cpu_milli_wanted) {
  const std::string count = std::to_string(std::max(1u, cpu_milli_wanted / 1000));
  env["RECLAIM_CPUS_NUM"] = count;
  for (const char* name : kThreadCounts) env.emplace(name, count);
}

/// What only the coordinator knows of a job that is told of Slurm. Before the first restart the
/// count is not set, as by Slurm.
void add_slurm_numbers(std::map<std::string, std::string>& env, const wire::Commit& commit) {
  env["SLURM_JOB_ID"] = env["SLURM_JOBID"] = std::to_string(commit.job_number);
  env.erase("SLURM_RESTART_COUNT");
  if (commit.restart_count > 0) env["SLURM_RESTART_COUNT"] = std::to_string(commit.restart_count);
}

/// A member of a gang has nothing to fall back to: all go on from one set, or nobody does.
PrepareWork prepare_work(const Attempt& a) {
  const wire::Commit& commit = a.commit;
  return {
      a.row.disk,
      commit.spec.workspace,
      commit.sealed_job_key,
      commit.resume,
      commit.gang ? GenerationRef{} : commit.resume_previous,
      commit.resume_from,
      std::clamp(a.row.grant.cpu_milli / 1000, 1U, kDecodingCoresMax),
      commit.shares,
      commit.spec.checkpoint.paths};
}

/// Over what a job of its own is told.
void add_rank(std::map<std::string, std::string>& env, const GangPlace& place) {
  env["RECLAIM_GANG"] = place.gang.str();
  env["RECLAIM_NODE_RANK"] = std::to_string(place.rank);
  env["RECLAIM_NODES_NUM"] = std::to_string(place.size);
}

}  // namespace

void Core::State::set_phase(Attempt& a, Phase phase) {
  if (a.row.phase == phase) return;
  const AttemptState before = state_of(a.row.phase);
  log::info(
      "attempt.phase",
      {{"job", a.name.job.str()},
       {"epoch", to_string(a.name.epoch)},
       {"from", std::string(to_string(a.row.phase))},
       {"to", std::string(to_string(phase))}}
  );
  a.row.phase = phase;
  a.is_dirty = true;
  if (state_of(phase) != before) emit(a);
}

void Core::State::emit(Attempt& a) {
  if (a.row.is_fenced) return;
  wire::AttemptEvent event;
  event.report = report(a);
  event.report.saving.clear();  // of the moment, and told with each heartbeat
  event.seq = a.row.next_seq++;
  event.at_boot_ns = to_ns(now_.boot);
  event.at_wall_ms = to_ms(now_.wall);
  a.row.events.push_back(std::move(event));
  a.is_dirty = true;
  a.event_sent_at = Instant{};  // send_events() sends it with everything before it
}

void Core::State::send_events(Attempt& a) {
  if (a.row.events.empty() || a.row.is_fenced || !is_welcome_) return;
  if (a.event_sent_at != Instant{} && !is_due(a.event_sent_at)) return;
  a.event_sent_at = now_.boot;
  for (const wire::AttemptEvent& event : a.row.events) send(event);
}

/// Makes sure that what the phase needs is under way, through as many phases as can be passed now.
/// Cheap when nothing is to be done. It ends: phases only go forward, but for loading, which goes
/// back to fetching once and then waits for that work.
void Core::State::step(Attempt& a) {
  Phase before{};
  do {
    before = a.row.phase;
    step_phase(a);
    step_generations(a);
    step_log(a);
  } while (a.row.phase != before);
  send_events(a);
}

void Core::State::step_phase(Attempt& a) {
  switch (a.row.phase) {
    case Phase::kLeased:
    case Phase::kFetching:
    case Phase::kLoading:
    case Phase::kMounting:
    case Phase::kRestoring:
    case Phase::kAdopting:
    case Phase::kStarting:
      step_start(a);
      break;
    case Phase::kReady:  // it has no guest yet: its place is kept for as long as a running one's
      if (a.row.gang_go)
        begin_starting(a);
      else
        ends_as_orphan(a);
      break;
    case Phase::kRunning:
      step_running(a);
      break;
    case Phase::kNoticed:
      step_noticed(a);
      break;
    case Phase::kStopping:
      ask(a, Ask::kKill, warden_wire::KillGuest{a.name});
      break;
    case Phase::kSaving:
      step_saving(a);
      break;
    case Phase::kDraining:
      if (step_draining(a)) set_phase(a, Phase::kClosing);
      break;
    case Phase::kPublishing:
      step_publishing(a);
      break;
    case Phase::kClosing:
      if (is_log_done(a)) end(a);
      break;
    case Phase::kEnded:
      break;
  }
  if (a.row.phase == Phase::kEnded) step_ended(a);
}

void Core::State::step_start(Attempt& a) {
  if (engine_gone_since_ && now_.boot - *engine_gone_since_ >= config_.start_patience)
    return give_up_start(
        a,
        warden_.engine_refusal.empty()
            ? "its container engine does not answer"
            : "its container engine is refused: " + warden_.engine_refusal
    );
  const wire::Commit& commit = a.commit;
  const auto has_image = [&] {
    return std::find(warden_.images.begin(), warden_.images.end(), commit.image_digest) !=
           warden_.images.end();
  };
  if (a.row.phase == Phase::kLeased) set_phase(a, Phase::kFetching);
  if ((a.row.phase == Phase::kFetching || a.row.phase == Phase::kLoading) && has_image()) {
    cancel_works(a, true);
    set_phase(a, Phase::kMounting);
  }
  switch (a.row.phase) {
    case Phase::kFetching:
      if (may_work(a, Task::kFetch))
        work(
            a,
            Task::kFetch,
            FetchImage{
                commit.image_digest, commit.image_bytes, commit.image_blobs, commit.image_peers}
        );
      return;
    case Phase::kLoading:
      // After a restart the archive's path is not known: fetching again finds it on the disk.
      if (!is_asking(a, Ask::kLoad) && now_.boot >= a.ask_after[Ask::kLoad])
        set_phase(a, Phase::kFetching);
      return;
    case Phase::kMounting:
      ask(a, Ask::kPrepare, warden_wire::PrepareDisk{a.name, a.row.grant.disk_mib});
      return;
    case Phase::kRestoring:
      if (may_work(a, Task::kPrepare)) work(a, Task::kPrepare, prepare_work(a));
      return;
    case Phase::kAdopting:
      ask(a, Ask::kAdopt, warden_wire::AdoptDisk{a.name});
      return;
    case Phase::kStarting:
      ask(a, Ask::kStart, start_request(a));
      return;
    case Phase::kLeased:
    case Phase::kReady:
    case Phase::kRunning:
    case Phase::kNoticed:
    case Phase::kStopping:
    case Phase::kSaving:
    case Phase::kDraining:
    case Phase::kPublishing:
    case Phase::kClosing:
    case Phase::kEnded:
      return;
  }
}

void Core::State::on_prepared(Attempt& a, const WorkResult& result) {
  const auto* const error = std::get_if<Error>(&result);
  if (const auto* away = std::get_if<HoldersAway>(&result)) return wait_for_holders(a, *away);
  if (error != nullptr && !is_for_good_here(*error)) return retry_work(a, Task::kPrepare);
  if (!a.row.waits_for.empty()) a.is_dirty = true;
  a.row.waits_for.clear();
  a.holders_away_since.reset();
  if (const auto* prepared = std::get_if<WorkPrepared>(&result)) {
    a.row.restored = prepared->restored;
    a.row.detail = prepared->note;
    set_phase(a, Phase::kAdopting);
  } else if (error != nullptr && a.commit.gang && planted("agent.falls_back_alone")) {
    set_phase(a, Phase::kAdopting);
  } else if (error != nullptr) {
    order_stop(a, StopOrder{AttemptEnd::kRefused, 0, "workspace: " + error->message, {}, 0});
  }
}

/// They may be back in a moment, and whoever has nothing to go on with must not keep the place from
/// others for ever: the job waits for them in the queue then. Nothing older is taken in any case.
void Core::State::wait_for_holders(Attempt& a, const HoldersAway& away) {
  if (a.row.waits_for != away.holders) {
    a.row.waits_for = away.holders;
    a.is_dirty = true;
  }
  if (!a.holders_away_since) {
    a.holders_away_since = now_.boot;
    log::warning(
        "restore.waits",
        {{"job", a.name.job.str()},
         {"generation", away.generation},
         {"holders", away.holders.size()},
         {"why", away.why}}
    );
  }
  if (now_.boot - *a.holders_away_since < config_.holder_patience)
    return retry_work(a, Task::kPrepare);
  const auto waited = std::chrono::duration_cast<seconds>(config_.holder_patience).count();
  const std::string words = "generation " + std::to_string(away.generation) +
                            " was not to be had for " + std::to_string(waited) + " s: " + away.why;
  order_stop(a, StopOrder{AttemptEnd::kRefused, 0, words, {}, 0});
}

void Core::State::begin_starting(Attempt& a) {
  std::string closed;
  for (const NetworkAllow& wanted : a.commit.spec.peers) {
    if (arbiter::is_opened(wanted, contract_.network)) continue;
    closed += (closed.empty() ? "" : ", ") + wanted.prefix + " port " +
              std::to_string(wanted.port) + " " + wanted.protocol;
  }
  if (!closed.empty())
    a.row.detail += (a.row.detail.empty() ? "" : "; ") +
                    ("this node's owner opens no way to " + readable(closed));
  a.guest_since_ns = (to_ms(now_.wall) + 1) * 1'000'000;  // of the next millisecond: it is rounded
  set_phase(a, Phase::kStarting);
}

/// Our variables come last, so that a job cannot pretend them; what steers the runtime is
/// the warden's business (it refuses such names).
warden_wire::StartGuest Core::State::start_request(const Attempt& a) const {
  const wire::Commit& commit = a.commit;
  const JobSpec& spec = commit.spec;
  warden_wire::StartGuest out;
  out.guest = a.name;
  out.image_digest = commit.image_digest;
  out.command = spec.command;
  out.work_dir = spec.work_dir;
  out.cpu_milli = a.row.grant.cpu_milli;
  out.memory_mib = a.row.grant.memory_mib;
  out.max_pids = contract_.max_pids;
  out.gpus = a.row.grant.gpus;
  for (const NetworkAllow& wanted : spec.peers) {
    if (arbiter::is_opened(wanted, contract_.network)) out.network.push_back(wanted);
  }
  if (!planted("agent.forgets_data_sets")) out.data = spec.data;
  out.env = spec.env;
  std::erase_if(out.env, [](const auto& entry) { return entry.first.starts_with("RECLAIM_"); });
  add_thread_counts(out.env, spec.resources.cpu_milli);
  // Python keeps up to 8 KiB of what a script prints when nobody sits at a terminal: it would come
  // late, and what lies there when a guest is killed would be lost.
  out.env.emplace("PYTHONUNBUFFERED", "1");
  // Compiled modules would travel with each generation. NOTE: a PYTHONPYCACHEPREFIX would keep them
  // apart, but then those of the image's own packages are not found, and all are compiled anew.
  out.env.emplace("PYTHONDONTWRITEBYTECODE", "1");
  const std::string gpus = std::to_string(a.row.grant.gpus.size());
  out.env["JOB_ID"] = std::to_string(commit.job_number);
  out.env["RECLAIM_JOB_ID"] = commit.job.str();
  out.env["RECLAIM_JOB_NUMBER"] = std::to_string(commit.job_number);
  out.env["RECLAIM_JOB_NAME"] = spec.name;
  out.env["RECLAIM_ATTEMPT"] = std::to_string(commit.epoch.attempt);
  out.env["RECLAIM_EPOCH"] = to_string(commit.epoch);
  out.env["RECLAIM_RESTART_COUNT"] = std::to_string(commit.restart_count);
  if (out.env.contains(kSlurmJobName)) add_slurm_numbers(out.env, commit);
  out.env["RECLAIM_NODE_RANK"] = "0";
  out.env["RECLAIM_NODES_NUM"] = "1";
  out.env["RECLAIM_NODES_IPS"] = "127.0.0.1";
  out.env["RECLAIM_MASTER_NODE_IP"] = "127.0.0.1";
  if (commit.gang) add_rank(out.env, *commit.gang);
  out.env["RECLAIM_GPUS_NUM"] = gpus;
  out.env["RECLAIM_GPUS_PER_NODE"] = gpus;
  out.env["RECLAIM_CHECKPOINT_DIR"] = spec.work_dir;
  out.env["RECLAIM_NOTICE_FILE"] = "/reclaim/notice";
  const std::string& tell_file = spec.checkpoint.tell_file;
  if (!tell_file.empty()) out.env["RECLAIM_TELL_FILE"] = join_path(spec.work_dir, tell_file);
  out.tell_hook = spec.checkpoint.tell_hook;
  out.tell_api = spec.checkpoint.tell_api;
  if (out.tell_api) out.env["RECLAIM_API"] = "/reclaim/api.sock";
  if (a.row.restored.generation > 0) {
    out.env["RECLAIM_RESUME_FROM"] = spec.work_dir;
    out.env["RECLAIM_RESUME_GENERATION"] = std::to_string(a.row.restored.generation);
  }
  // Inside the container the GPUs that it got count from 0.
  std::string visible;
  for (std::size_t i = 0; i < a.row.grant.gpus.size(); ++i)
    visible += (i == 0 ? "" : ",") + std::to_string(i);
  out.env["CUDA_VISIBLE_DEVICES"] = visible;
  if (commit.gang) tell_of_members(*commit.gang, out);
  return out;
}

void Core::State::on_started(Attempt& a, std::int64_t started_ns) {
  a.row.started_ns = started_ns > 0 ? started_ns : to_ns(now_.boot);
  set_phase(a, Phase::kRunning);
}

}  // namespace rn::agent
