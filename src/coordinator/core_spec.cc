// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <utility>

#include "coordinator/core_commands.h"
#include "coordinator/core_copies.h"
#include "coordinator/core_idle.h"
#include "coordinator/core_quota.h"

namespace rn::coordinator {

namespace {

std::string cores(std::uint32_t milli) {
  char text[16];
  std::snprintf(text, sizeof text, "%g", milli / 1000.0);
  return text;
}

}  // namespace

std::vector<std::string> warnings_for(const State& state, const JobEntry& job) {
  std::vector<std::string> warnings;
  const CheckpointSpec& c = job.row.job.spec.checkpoint;
  if (!c.is_stateless && c.paths.empty() && c.complete_marker.empty())
    warnings.emplace_back(
        "nothing says where this job saves: files with the usual checkpoint names (*.pt, *.pth, "
        "*.pth.tar, *.ckpt, *.safetensors, checkpoint*/) are looked for. A job that never saves "
        "starts over after "
        "every reclaim; name its files with --checkpoint GLOB (checkpoint.paths), or say "
        "--stateless "
        "(checkpoint.is_stateless)"
    );
  const sched::Demand demand = demand_of(job);
  const auto candidates = candidates_of(state);
  if (!sched::is_feasible(demand, candidates))
    warnings.push_back("it waits until a node fits: " + sched::explain(demand, candidates));
  for (std::string& one : shortfalls_of(state, job, candidates)) warnings.push_back(std::move(one));
  const std::string held = QuotaBook(state).held_back(job);
  if (!held.empty() && !is_terminal(job.row.job.state) && job.row.job.epoch.is_none())
    warnings.push_back("it waits for its quota: " + held);
  if (std::string stop = idle_stop_words(state, job.row.job); !stop.empty())
    warnings.push_back(std::move(stop) + "; its own idle_stop takes the place of that");
  return warnings;
}

std::vector<std::string> shortfalls_of(
    const State& state, const JobEntry& job, const std::vector<sched::Candidate>& candidates
) {
  std::vector<std::string> warnings;
  const JobSpec& spec = job.row.job.spec;
  const CheckpointSpec& c = spec.checkpoint;
  const sched::Demand demand = demand_of(job);
  const auto most = sched::most_cpu_milli(demand, candidates);
  if (most && *most < spec.resources.cpu_milli)
    warnings.push_back(
        "it asks for " + cores(spec.resources.cpu_milli) + " cores, and no guest gets more than " +
        cores(*most) + " on any node that could run it: it is that much slower, or ask for less"
    );
  const auto longest = sched::longest_notice_s(demand, candidates);
  if (longest && *longest < spec.notice_s)
    warnings.push_back(
        "it asks for " + std::to_string(spec.notice_s) +
        " s of notice before a reclaim, and the longest that a node's owner grants is " +
        std::to_string(*longest) + " s: save more often than that"
    );
  // One of them runs the job.
  const std::size_t places = copy_domains(state, job).size();
  if (!c.is_stateless && places > 0 && c.copies > 1 && places - 1 < c.copies)
    warnings.push_back(
        "it asks for " + std::to_string(c.copies) +
        " copies, and the nodes where they may lie are " + std::to_string(places) +
        " failure domains with the one that runs it: a generation counts as durable with as many "
        "as there are"
    );
  if (!c.is_stateless && places == 0 && !state.nodes.empty())
    warnings.emplace_back(
        "no node or lab of this site has a name that --copies-at (checkpoint.destinations) gives: "
        "nothing becomes durable; `reclaim nodes` lists them"
    );
  if (spec.max_duration_s == 0 && spec.resources.gpus > 0)
    warnings.emplace_back("max_duration_s is not set: placement assumes that it runs for 4 hours");
  return warnings;
}

}  // namespace rn::coordinator
