// SPDX-License-Identifier: Apache-2.0
// How long the coordinator's core takes from the report of a reclaim to the choice for all jobs
// that have to go, with the state that it has: 54 nodes in nine labs and three buildings, 16 jobs
// with generations at several holders. And how far the joint choice is from the best one that there
// is.
//   evacuation_site [rounds, default 300] [small cases, default 300]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench_report.h"

#include "base/crypto.h"
#include "base/log.h"
#include "coordinator/core.h"
#include "reclaim/evacuation.h"
#include "reclaim/evacuation_cases.h"

namespace {

using namespace rn;  // NOLINT: a program
using coordinator::Core;

constexpr std::size_t kNodes = 54;
constexpr std::size_t kJobs = 16;
constexpr std::size_t kNodesOfLab = 6;

NodeId node_id(std::size_t n) {
  return NodeId("n-" + std::to_string(100 + n));
}

reclaim::Topology a_campus() {
  reclaim::TopologyDeclaration declared;
  declared.switches.push_back({.name = "campus", .parent = "", .line = {}});
  const auto line = [](double gbit) {
    return reclaim::TopologyLine{.up = gbit * 125e6, .down = gbit * 125e6, .latency_s = 1e-4};
  };
  for (std::size_t b = 0; b < 3; ++b)
    declared.switches.push_back({"building-" + std::to_string(b), "campus", line(2)});
  for (std::size_t n = 0; n < kNodes; ++n)
    declared.nodes.push_back(
        {node_id(n).str(), "building-" + std::to_string(n / kNodesOfLab / 3), line(n % 5 ? 1 : 0.1)}
    );
  auto made = reclaim::Topology::make(declared);
  if (!made) std::abort();
  return *std::move(made);
}

/// A site whose jobs run on its first `sources` nodes.
class Site {
 public:
  Site(std::uint64_t seed, std::size_t sources) : rng_(seed), sources_(sources) {
    coordinator::Config config;
    config.topology = a_campus();
    keys_.ticket_key = crypto::make_signing_key(rng_);
    core_ = std::make_unique<Core>(config, keys_, rng_);
    core_->restore(a_snapshot(), now_);
    for (std::size_t n = 0; n < kNodes; ++n) connect(n);
  }

  /// Takes all sources back; answers how long the last report took, in milliseconds.
  double take_back() {
    double took = 0;
    for (std::size_t n = 0; n < sources_; ++n) {
      ReclaimRecord record;
      record.id = ReclaimId("r-" + std::to_string(n));
      record.phase = ReclaimPhase::kEvacuating;
      record.declared_ns = 1;
      record.deadline_ns = 120'000'000'001;
      record.declared_wall_ms = to_ms(now_.wall);
      const auto begin = std::chrono::steady_clock::now();
      core_->handle(coordinator::AgentMessage{n + 1, wire::ReclaimReport{record}}, now_);
      took = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
                 .count();
    }
    return took;
  }

  std::size_t chosen(const char* way) const {
    std::size_t count = 0;
    for (std::size_t j = 0; j < kJobs; ++j) {
      const auto view = core_->evacuation(job_id(j));
      count += view && view->way == way && !view->destination.empty() ? 1 : 0;
    }
    return count;
  }

 private:
  static JobId job_id(std::size_t j) { return JobId("j-" + std::to_string(100 + j)); }

  coordinator::NodeRow a_node(std::size_t n) {
    coordinator::NodeRow row;
    row.node = node_id(n);
    row.lab = LabId("lab-" + std::to_string(n / kNodesOfLab));
    row.machine_id = "m" + std::to_string(n);
    row.state = NodeState::kUp;
    row.address.peer = "peer:1";
    row.facts.hostname = "h" + std::to_string(n);
    row.facts.cpu_milli = 16'000;
    row.facts.memory_mib = 64'000;
    row.facts.disk_mib = 1'000'000;
    row.facts.gpus.resize(1 + rng_.below(2));
    for (std::uint32_t g = 0; g < row.facts.gpus.size(); ++g) {
      row.facts.gpus[g].index = g;
      row.facts.gpus[g].memory_mib = 24'000;
    }
    row.contract.max_guests = 2;
    row.contract.store_mib = 500'000;
    row.contract.lends = n % 18 != 17;  // a store in each building
    row.history.exposure_s = 20 * 86'400;
    row.history.notice = static_cast<std::uint32_t>(rng_.below(40));
    return row;
  }

  void add_job(std::size_t j, coordinator::Snapshot& s) {
    coordinator::JobRow row;
    Job& job = row.job;
    job.id = job_id(j);
    job.number = j + 1;
    job.owner = UserId("ann");
    job.lab = LabId("lab-0");
    job.spec.command = {"train"};
    job.spec.resources.gpus = 1;
    job.spec.resources.gpu_memory_mib = 8000;
    job.state = JobState::kRunning;
    job.epoch = {1, 1};
    job.node = node_id(j % sources_);
    const auto bytes = static_cast<std::uint64_t>(2e8 + 4e9 * rng_.unit());
    for (std::uint32_t g = 1; g <= 3; ++g) {
      coordinator::GenerationRow generation;
      GenerationRef& ref = generation.generation;
      ref = {.job = job.id, .epoch = job.epoch, .generation = g};
      ref.bytes = bytes;
      ref.new_bytes = g == 1 ? bytes : bytes / 10;
      generation.source = job.node;
      for (int copy = 0; copy < 2; ++copy)
        generation.receipts.push_back(
            {.job = job.id,
             .epoch = job.epoch,
             .generation = g,
             .holder = node_id(rng_.below(kNodes))}
        );
      job.previous = job.durable;
      job.durable = ref;
      s.generations.push_back(std::move(generation));
    }
    coordinator::AttemptRow attempt;
    attempt.attempt.job = job.id;
    attempt.attempt.epoch = job.epoch;
    attempt.attempt.node = job.node;
    attempt.attempt.state = AttemptState::kRunning;
    attempt.attempt.started_wall_ms = to_ms(now_.wall) - 3'600'000;
    attempt.safe_generation = 3;
    s.attempts.push_back(attempt);
    s.jobs.push_back(std::move(row));
  }

  coordinator::Snapshot a_snapshot() {
    coordinator::Snapshot s;
    for (std::size_t n = 0; n < kNodes; ++n) s.nodes.push_back(a_node(n));
    for (std::size_t j = 0; j < kJobs; ++j) add_job(j, s);
    rows_ = s.nodes;
    return s;
  }

  void connect(std::size_t n) {
    const coordinator::NodeRow& row = rows_[n];
    wire::Hello hello;
    hello.version = "0.1.0";
    hello.node = row.node;
    hello.machine_id = row.machine_id;
    hello.boot_id = "b";
    hello.lab = row.lab;
    hello.address = row.address;
    hello.facts = row.facts;
    hello.contract = row.contract;
    hello.wall_ms = to_ms(now_.wall);
    hello.lending = row.contract.lends ? LendingState::kOpen : LendingState::kNotLending;
    for (std::size_t j = 0; j < kJobs; ++j) {
      if (n != j % sources_) continue;
      wire::AttemptReport report;
      report.job = job_id(j);
      report.epoch = {1, 1};
      report.state = AttemptState::kRunning;
      report.safe_generation = 3;
      hello.attempts.push_back(report);
    }
    core_->handle(coordinator::AgentConnected{n + 1, row.node, {}, "x"}, now_);
    core_->handle(coordinator::AgentMessage{n + 1, hello}, now_);
  }

  SeededRng rng_;
  std::size_t sources_;
  coordinator::SiteKeys keys_;
  Now now_{Instant{} + std::chrono::hours(1), wall_from_ms(1'780'000'000'000)};
  std::vector<coordinator::NodeRow> rows_;
  std::unique_ptr<Core> core_;
};

/// The best value over all joint choices.
double best_value(const reclaim::EvacuationCase& c) {
  std::vector<std::optional<std::size_t>> at(c.jobs.size());
  double best = -std::numeric_limits<double>::infinity();
  const std::function<void(std::size_t)> visit = [&](std::size_t j) {
    if (j == at.size()) {
      if (const auto value = reclaim::evacuation_value(c.site, c.jobs, at))
        best = std::max(best, *value);
      return;
    }
    at[j].reset();
    visit(j + 1);
    for (std::size_t n = 0; n < c.site.nodes.size(); ++n) {
      if (!c.jobs[j].options[n].can_run) continue;
      at[j] = n;
      visit(j + 1);
    }
    at[j].reset();
  };
  visit(0);
  return best;
}

void print_gap(std::uint64_t cases) {
  std::vector<double> gaps;
  std::size_t worse = 0;
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    const auto c = reclaim::a_case(seed, 1, 5, 4);
    const double best = best_value(c);
    if (!(best > 0)) continue;
    const auto choices = reclaim::choose_evacuation(c.site, c.jobs);
    const auto value = reclaim::evacuation_value(c.site, c.jobs, reclaim::straight(choices));
    const double gap = value ? (best - *value) / best : 1;
    gaps.push_back(100 * gap);
    worse += gap > 0.05 ? 1 : 0;
  }
  std::printf(
      "against every joint choice (1 source, 5 other nodes, 4 jobs; n=%zu of %lu with a value "
      "above "
      "0): gap median %.2f %% p99 %.2f %% max %.2f %%; more than 5 %%: %zu\n",
      gaps.size(),
      static_cast<unsigned long>(cases),
      bench::quantile(gaps, 0.5),
      bench::quantile(gaps, 0.99),
      bench::quantile(gaps, 1),
      worse
  );
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 300;
  const std::uint64_t cases = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 300;
  bench::print_machine("choice of destinations in the coordinator's core");
  log::set_level(log::Level::kError);
  for (const std::size_t sources : {1, 4, 8}) {
    std::vector<double> took;
    std::size_t straight = 0;
    std::size_t delta = 0;
    for (std::uint64_t seed = 1; seed <= rounds; ++seed) {
      Site site(seed, sources);
      took.push_back(site.take_back());
      straight += site.chosen("destination");
      delta += site.chosen("delta");
    }
    std::printf(
        "54 nodes x 16 jobs of %zu sources, from the report to the choice, its events and the "
        "plans: "
        "n=%lu median %.2f ms p99 %.2f ms max %.2f ms; of 16 jobs %.1f go straight, %.1f as a "
        "delta\n",
        sources,
        static_cast<unsigned long>(rounds),
        bench::quantile(took, 0.5),
        bench::quantile(took, 0.99),
        bench::quantile(took, 1),
        static_cast<double>(straight) / static_cast<double>(rounds),
        static_cast<double>(delta) / static_cast<double>(rounds)
    );
  }
  print_gap(cases);
}
