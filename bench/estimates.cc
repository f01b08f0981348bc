// SPDX-License-Identifier: Apache-2.0
// How often what a job used lies within the interval that jobs like it gave (docs/results.md,
// section Estimates).
//   estimates TRACE.csv.gz… [--every N]
// Each file holds submit_time,duration_s,gpus of one virtual cluster (`reclaim-sim` says where they
// come from); together they are a site. The traces know nothing of users, images, commands and
// memory: a cluster stands for the user, the number of GPUs for the command, and time is what is
// estimated. In time order each Nth job is held out and estimated from the newest 2000 before it
// that had ended when it was submitted; in random order, from 2000 others.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench_report.h"

#include "base/rng.h"
#include "evaluate/job_trace.h"
#include "sched/estimate.h"

namespace rn::bench {
namespace {

constexpr std::size_t kNewest = 2000;  ///< as the coordinator
constexpr std::size_t kRandomHeldOut = 4000;
constexpr std::array kShares = {0.5, 0.8, 0.9};

struct TracedJob {
  std::int64_t submitted_ms = 0;
  std::int64_t ended_ms = 0;
  sched::PastUse use;
};

/// Of jobs held out, for one share and one likeness.
struct Score {
  std::size_t held_out = 0;
  std::size_t unknown = 0;
  std::size_t below = 0;
  std::size_t above = 0;
  std::vector<double> widths;  ///< the upper end by the lower one

  void add(const sched::Estimate& seen, double used) {
    if (!seen.is_known) {
      ++unknown;
      return;
    }
    ++held_out;
    if (used < seen.low) ++below;
    if (used > seen.high) ++above;
    widths.push_back(seen.high / seen.low);
  }
};

constexpr std::size_t kLikenesses = std::size(EnumWords<Likeness>::kWords);

/// By share; for each all together, then by likeness.
using Scores = std::array<std::array<Score, kLikenesses + 1>, kShares.size()>;

void hold_out(const TracedJob& job, const std::vector<sched::PastUse>& past, Scores& scores) {
  for (std::size_t i = 0; i < kShares.size(); ++i) {
    const sched::Estimate seen = sched::estimate(job.use.kind, past, kShares[i]);
    scores[i][0].add(seen, job.use.used);
    scores[i][1 + static_cast<std::size_t>(seen.likeness)].add(seen, job.use.used);
  }
}

void print_score(const char* name, double share, const Score& score) {
  if (score.held_out == 0) return;
  const auto n = static_cast<double>(score.held_out);
  const auto outside = static_cast<double>(score.below + score.above);
  std::printf(
      "  %-16s %4.0f %%  %7.1f %%  %7.1f %%  %7.1f %%  %10.0f  %7zu  %7zu\n",
      name,
      100 * share,
      100 * (1 - outside / n),
      100 * static_cast<double>(score.below) / n,
      100 * static_cast<double>(score.above) / n,
      quantile(score.widths, 0.5),
      score.held_out,
      score.unknown
  );
}

void print_scores(const char* order, const Scores& scores) {
  std::printf(
      "\n%s\n  stands on        nominal   inside      below      above  high / low        n  "
      "unknown\n",
      order
  );
  for (std::size_t i = 0; i < kShares.size(); ++i) {
    print_score("all", kShares[i], scores[i][0]);
    for (std::size_t likeness = 0; likeness < kLikenesses; ++likeness) {
      const std::string name(EnumWords<Likeness>::kWords[likeness]);
      print_score(name.c_str(), kShares[i], scores[i][1 + likeness]);
    }
  }
}

std::vector<TracedJob> read_site(const std::vector<std::string>& paths) {
  std::vector<TracedJob> site;
  for (const std::string& path : paths) {
    const auto jobs = evaluate::read_job_trace(path);
    if (!jobs) {
      std::fprintf(stderr, "estimates: %s\n", jobs.error().message.c_str());
      std::exit(1);
    }
    for (const evaluate::RecordedJob& job : *jobs) {
      const auto took_ms = static_cast<std::int64_t>(job.duration_s * 1e3);
      const sched::JobKind kind{UserId(path), "", std::to_string(job.gpus)};
      site.push_back({job.submitted_ms, job.submitted_ms + took_ms, {kind, job.duration_s}});
    }
  }
  std::stable_sort(site.begin(), site.end(), [](const TracedJob& a, const TracedJob& b) {
    return a.submitted_ms < b.submitted_ms;
  });
  return site;
}

Scores in_time_order(const std::vector<TracedJob>& site, std::size_t every) {
  Scores scores;
  using End = std::pair<std::int64_t, std::size_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> running;
  std::set<std::size_t> ended;
  for (std::size_t i = 0; i < site.size(); ++i) {
    for (; !running.empty() && running.top().first <= site[i].submitted_ms; running.pop())
      ended.insert(running.top().second);
    running.emplace(site[i].ended_ms, i);
    if (i % every != 0) continue;
    std::vector<sched::PastUse> past;
    for (auto at = ended.rbegin(); at != ended.rend() && past.size() < kNewest; ++at)
      past.push_back(site[*at].use);
    hold_out(site[i], past, scores);
  }
  return scores;
}

Scores in_random_order(std::vector<TracedJob> site) {
  SeededRng rng(1);
  for (std::size_t left = site.size(); left > 1; --left)
    std::swap(site[left - 1], site[rng.below(left)]);
  Scores scores;
  const std::size_t most = std::min(kRandomHeldOut, site.size());
  for (std::size_t i = 0; i < most; ++i) {
    std::vector<sched::PastUse> past;
    for (std::size_t k = 1; k <= kNewest && k < site.size(); ++k)
      past.push_back(site[(i + k * 7) % site.size()].use);
    hold_out(site[i], past, scores);
  }
  return scores;
}

int run(int argc, char** argv) {
  std::vector<std::string> paths;
  std::size_t every = 3;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--every") == 0 && i + 1 < argc) {
      every = std::max(1UL, std::strtoul(argv[++i], nullptr, 10));
    } else {
      paths.emplace_back(argv[i]);
    }
  }
  if (paths.empty()) {
    std::fprintf(stderr, "usage: estimates TRACE.csv.gz... [--every N]\n");
    return 2;
  }
  print_machine("estimates of time, on recorded jobs");
  const std::vector<TracedJob> site = read_site(paths);
  std::printf("%zu jobs of %zu clusters\n", site.size(), paths.size());
  print_scores("in time order", in_time_order(site, every));
  print_scores("in random order", in_random_order(site));
  return 0;
}

}  // namespace
}  // namespace rn::bench

int main(int argc, char** argv) {
  return rn::bench::run(argc, argv);
}
