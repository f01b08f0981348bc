// SPDX-License-Identifier: Apache-2.0
#include "evaluate/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/core.h>

#include "evaluate/job_trace.h"
#include "evaluate/owner_trace.h"
#include "evaluate/policies.h"
#include "evaluate/spot_trace.h"

namespace rn::evaluate {

namespace {

Result<std::vector<Interruption>> make_interruptions(
    const SettingOptions& options, const Campus& campus, std::uint64_t seed
) {
  if (!options.spot.empty()) {
    RN_TRY(const SpotTrace trace, read_spot_trace(options.spot));
    return interruptions_of(trace, campus.nodes.size());
  }
  if (options.notices == "gpunion")
    return gpunion_interruptions(campus.nodes.size(), options.days, seed);
  RN_TRY(const DeclaredNotices notices, find_notices(options.notices));
  if (options.owners.empty()) {
    const OwnerUses uses = make_owner_uses(campus, {.days = options.days}, seed);
    return interruptions_of(uses, notices, seed);
  }
  const OwnerTraceRule rule{
      .gaps = options.ends_gaps ? TraceGaps::kEndSpells : TraceGaps::kRefused};
  std::vector<LabTrace> labs;
  for (const std::string& path : options.owners) {
    RN_TRY(LabTrace lab, read_owner_trace(path, rule));
    labs.push_back(std::move(lab));
  }
  RN_TRY(const OwnerUses uses, uses_of(labs, campus.nodes.size(), options.days, seed));
  return interruptions_of(uses, notices, seed);
}

double share(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// The figures that stand in every output, by name.
std::vector<std::pair<std::string, double>> numbers(const Outcome& outcome) {
  const Figures& f = outcome.figures;
  const auto count = [](std::size_t n) { return static_cast<double>(n); };
  std::vector<std::pair<std::string, double>> out = {
      {"nodes", count(outcome.nodes)},
      {"gpus", outcome.gpus},
      {"simulated_h", f.simulated_s / 3600},
      {"jobs_submitted", count(f.submitted)},
      {"jobs_finished", count(f.finished)},
      {"lent_gpu_h", f.lent_gpu_s / 3600},
      {"used_gpu_h", f.used_gpu_s / 3600},
      {"useful_gpu_h", f.useful_gpu_s / 3600},
      {"redone_gpu_h", f.redone_gpu_s / 3600},
      {"paused_gpu_h", f.paused_gpu_s / 3600},
      {"utilisation", share(f.used_gpu_s, f.lent_gpu_s)},
      {"useful_utilisation", share(f.useful_gpu_s, f.lent_gpu_s)},
      {"reclaims", count(f.reclaims)},
      {"displaced", count(f.all.displaced)},
      {"resumed", count(f.all.resumed)},
      {"caught_up", count(f.all.caught_up)},
      {"loss_gpu_h", f.all.lost_gpu_s / 3600},
      {"loss_share_of_useful", share(f.all.lost_gpu_s, f.useful_gpu_s)},
      {"loss_gpu_s_per_displaced", share(f.all.lost_gpu_s, count(f.all.resumed))},
      {"loss_gpu_s_median", median(f.all.losses)},
      {"downtime_s_mean", share(f.all.downtime_s, count(f.all.caught_up))},
      {"downtime_s_median", median(f.all.downtimes)},
      {"scheduled_departures", count(f.scheduled_departures)},
      {"clean_departures", count(f.clean_departures)},
      {"overstays", count(f.overstays)},
      {"moved_gb", f.moved_bytes / 1e9}};
  for (const char* kind : {"announced", "notice", "emergency", "lost", "moved"}) {
    const auto found = f.by_end.find(kind);
    const LossFigures none;
    const LossFigures& of = found == f.by_end.end() ? none : found->second;
    const std::string name = kind;
    out.emplace_back(name + "_displaced", count(of.displaced));
    out.emplace_back(name + "_loss_gpu_h", of.lost_gpu_s / 3600);
    out.emplace_back(name + "_downtime_s_mean", share(of.downtime_s, count(of.caught_up)));
  }
  out.emplace_back("wall_s", outcome.wall_s);
  out.emplace_back("simulated_h_per_wall_s", outcome.simulated_h_per_wall_s());
  out.emplace_back("interval_s", outcome.interval_s);
  return out;
}

}  // namespace

Result<Setting> make_setting(const SettingOptions& options, std::uint64_t seed) {
  Setting setting;
  CampusOptions campus = options.campus;
  campus.days = options.days;
  campus.labs = std::min(campus.labs, campus.nodes);
  campus.buildings = std::min(campus.buildings, campus.labs);
  setting.days = options.days;
  setting.state_factor = options.state_factor;
  setting.campus = make_campus(campus, seed);
  scale_lines(setting.campus, options.line_factor);
  RN_TRY(setting.interruptions, make_interruptions(options, setting.campus, seed));
  WorkloadOptions workload{
      .days = options.days,
      .users = options.users,
      .labs = campus.labs,
      .jobs_a_day = options.jobs_a_day};
  std::uint32_t most_gpus = 1;
  for (const CampusNode& node : setting.campus.nodes) most_gpus = std::max(most_gpus, node.gpus);
  workload.most_gpus = most_gpus;
  if (options.jobs.empty()) {
    setting.jobs = make_jobs(workload, seed);
  } else {
    RN_TRY(const std::vector<RecordedJob> recorded, read_job_trace(options.jobs));
    setting.jobs = jobs_of(recorded, workload, seed);
  }
  return setting;
}

double Outcome::simulated_h_per_wall_s() const {
  return wall_s > 0 ? figures.simulated_s / 3600 / wall_s : 0;
}

Result<Outcome> evaluate(
    const SettingOptions& options,
    std::string_view policy_name,
    std::uint64_t seed,
    std::function<void(const std::string&)> rows
) {
  RN_TRY(Setting setting, make_setting(options, seed));
  RN_TRY(const std::unique_ptr<Policy> policy, make_policy(policy_name, seed, setting));
  Outcome outcome;
  outcome.policy = policy->name();
  outcome.interval_s = interval_in_name(policy_name).value_or(0);
  outcome.seed = seed;
  outcome.notices = options.spot.empty() ? options.notices : "spot";
  outcome.nodes = setting.campus.nodes.size();
  outcome.gpus = setting.campus.gpus();
  RN_TRY(const std::unique_ptr<World> world, World::make(std::move(setting), std::move(rows)));
  const auto began = std::chrono::steady_clock::now();
  world->run(*policy);
  outcome.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  outcome.figures = world->figures();
  outcome.events = world->agenda().executed();
  if (const auto* product = dynamic_cast<const Production*>(policy.get()))
    outcome.counts = product->counts();
  return outcome;
}

std::string csv_header() {
  std::string line = "policy,seed,notices";
  for (const auto& [name, value] : numbers({})) line += "," + name;
  return line;
}

std::string csv_row(const Outcome& outcome) {
  std::string line = fmt::format("{},{},{}", outcome.policy, outcome.seed, outcome.notices);
  for (const auto& [name, value] : numbers(outcome)) line += fmt::format(",{:.10g}", value);
  return line;
}

std::string to_json_line(const Outcome& outcome) {
  std::string line = fmt::format(
      R"({{"policy":"{}","seed":{},"notices":"{}")", outcome.policy, outcome.seed, outcome.notices
  );
  for (const auto& [name, value] : numbers(outcome))
    line += fmt::format(R"(,"{}":{:.10g})", name, std::isfinite(value) ? value : 0);
  return line + "}";
}

std::string words(const Outcome& outcome) {
  const Figures& f = outcome.figures;
  std::string text = fmt::format(
      "{}  seed {}  {}  {} nodes, {} GPUs, {:.1f} days\n"
      "  jobs       {} submitted, {} finished\n"
      "  reclaims   {}, {} guests displaced, {} resumed\n"
      "  work loss  {:.2f} GPU-hours, {:.2f} % of useful work, {:.1f} GPU-s per displaced guest\n"
      "  downtime   {:.1f} s on average, median {:.1f} s\n"
      "  lent GPUs  {:.1f} % used, {:.1f} % useful ({:.1f} of {:.1f} GPU-hours), {:.2f} GPU-hours "
      "redone\n"
      "  departures {} with notice, {} of them lost at most {:.0f} s of work; {} overstayed\n"
      "  traffic    {:.1f} GB\n",
      outcome.policy,
      outcome.seed,
      outcome.notices,
      outcome.nodes,
      outcome.gpus,
      f.simulated_s / 86'400,
      f.submitted,
      f.finished,
      f.reclaims,
      f.all.displaced,
      f.all.resumed,
      f.all.lost_gpu_s / 3600,
      100 * share(f.all.lost_gpu_s, f.useful_gpu_s),
      share(f.all.lost_gpu_s, static_cast<double>(f.all.resumed)),
      share(f.all.downtime_s, static_cast<double>(f.all.caught_up)),
      median(f.all.downtimes),
      100 * share(f.used_gpu_s, f.lent_gpu_s),
      100 * share(f.useful_gpu_s, f.lent_gpu_s),
      f.useful_gpu_s / 3600,
      f.lent_gpu_s / 3600,
      f.redone_gpu_s / 3600,
      f.scheduled_departures,
      f.clean_departures,
      kCleanLoss_s,
      f.overstays,
      f.moved_bytes / 1e9
  );
  if (outcome.counts)
    text += fmt::format(
        "  cores      {} coordinator events, {} agent events, {} warden events; {} generations, {} "
        "copies ({:.1f} GB)\n",
        outcome.counts->coordinator_events,
        outcome.counts->agent_events,
        outcome.counts->warden_events,
        outcome.counts->generations,
        outcome.counts->copies,
        outcome.counts->copied_bytes / 1e9
    );
  text += fmt::format(
      "  speed      {:.1f} simulated hours per wall second ({:.2f} s, {} events)\n",
      outcome.simulated_h_per_wall_s(),
      outcome.wall_s,
      outcome.events
  );
  return text;
}

}  // namespace rn::evaluate
