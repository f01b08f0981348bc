// SPDX-License-Identifier: Apache-2.0
#include "evaluate/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "evaluate/dice.h"
#include "evaluate/owner_trace.h"

namespace rn::evaluate {

namespace {

constexpr double kGB = 1e9;
constexpr double kFromGpu = 4 * kGB;  ///< bytes/s, over PCIe into the host's memory and page cache

constexpr std::array<StateKind, 6> kKinds = {{
    {"vision-small", 0.30, 1 * kGB, 1 * kGB, 0, kFromGpu, 6'000},
    {"vision-large", 0.20, 4 * kGB, 4 * kGB, 0, kFromGpu, 10'000},
    {"language", 0.20, 12 * kGB, 12 * kGB, 0, kFromGpu, 20'000},
    {"language-large", 0.05, 40 * kGB, 40 * kGB, 0, kFromGpu, 40'000},
    {"adapter", 0.15, 8 * kGB, 0.4 * kGB, 0, kFromGpu, 16'000},
    {"embeddings", 0.10, 20 * kGB, 2 * kGB, 8e6, kFromGpu, 20'000},
}};

constexpr std::array<double, 8> kLengths_h = {0.04, 0.1, 0.3, 0.8, 2, 5, 12, 30};
constexpr std::array<double, 8> kLengthShares = {0.12, 0.16, 0.19, 0.18, 0.15, 0.11, 0.06, 0.03};
constexpr std::array<std::uint32_t, 3> kGpus = {1, 2, 4};
constexpr std::array<double, 3> kGpusShares = {0.86, 0.1, 0.04};

std::array<double, kKinds.size()> kind_shares() {
  std::array<double, kKinds.size()> shares{};
  for (std::size_t i = 0; i < kKinds.size(); ++i) shares[i] = kKinds[i].share;
  return shares;
}

struct User {
  std::string name;
  std::string lab;
  std::size_t kind = 0;
  double keenness = 1;
  int first_day = 0;    ///< of the project's active days,
  int active_days = 7;  ///< and of as many quiet ones afterwards
  int course_day = 3;   ///< of the week; its exercise is due then
};

User make_user(const WorkloadOptions& options, std::uint64_t seed, std::uint32_t number) {
  Dice dice(seed, "user", number);
  User user;
  user.name = "user-" + std::to_string(number + 1);
  user.lab = "lab-" + std::to_string(number % options.labs + 1);
  user.kind = dice.pick(kind_shares());
  user.keenness = dice.between(0.3, 1.7);
  user.active_days = dice.whole(5, 20);
  user.first_day = dice.whole(-20, 10);
  user.course_day = dice.whole(0, 4);
  return user;
}

void submit_day(
    const User& user,
    int day,
    const WorkloadOptions& options,
    Dice& dice,
    std::vector<SubmittedJob>& jobs
) {
  const int cycle = (day - user.first_day) % (2 * user.active_days);
  const bool is_active = day >= user.first_day && cycle < user.active_days;
  const bool is_due_soon = (user.course_day - day % 7 + 7) % 7 <= 1;
  double chance = is_active ? 0.75 : 0.1;
  if (is_due_soon) chance += 0.2;
  if (day % 7 >= 5) chance *= 0.35;
  if (!dice.chance(chance)) return;
  const auto many = static_cast<int>(
      std::lround(dice.triangular(0.3, 0.8, 2) * options.jobs_a_day * user.keenness)
  );
  double at = (day * 24 + dice.triangular(8, 14, 23.5)) * kHour;
  for (int i = 0; i < many; ++i) {
    SubmittedJob job{.kind = user.kind, .user = user.name, .lab = user.lab};
    job.work_s = kLengths_h[dice.pick(kLengthShares)] * kHour * dice.between(0.6, 1.5);
    job.gpus = std::min(kGpus[dice.pick(kGpusShares)], options.most_gpus);
    // A sweep: the same with other parameters, all at once.
    const int copies = dice.chance(0.12) ? dice.whole(3, 10) : 1;
    for (int copy = 0; copy < copies; ++copy) {
      job.at_s = at + copy * dice.between(1, 20);
      if (job.at_s < options.days * kDay) jobs.push_back(job);
    }
    at += dice.between(0.05, 1.5) * kHour;
  }
}

void sort_by_time(std::vector<SubmittedJob>& jobs) {
  std::stable_sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) {
    return a.at_s < b.at_s;
  });
}

}  // namespace

std::span<const StateKind> state_kinds() {
  return kKinds;
}

std::vector<StateKind> state_kinds_times(double factor) {
  std::vector<StateKind> kinds(state_kinds().begin(), state_kinds().end());
  for (StateKind& kind : kinds) {
    kind.bytes *= factor;
    kind.hot_bytes *= factor;
    kind.touched_bytes_per_s *= factor;
  }
  return kinds;
}

double differing_bytes(const StateKind& kind, double work_s) {
  if (!(std::abs(work_s) > 0)) return 0;
  return std::min(kind.bytes, kind.hot_bytes + std::abs(work_s) * kind.touched_bytes_per_s);
}

double whole_bytes(const StateKind& kind, double progress_s) {
  if (!(kind.numbered_step_s > 0)) return kind.bytes;
  return std::min(kind.bytes, progress_s * kind.touched_bytes_per_s);
}

double differing_bytes(const StateKind& kind, double from_s, double to_s) {
  if (!(kind.numbered_step_s > 0)) return differing_bytes(kind, to_s - from_s);
  const auto digits = [&](double progress_s) {
    return std::to_string(std::llround(progress_s / kind.numbered_step_s)).size();
  };
  const double whole = whole_bytes(kind, to_s);
  if (digits(from_s) != digits(to_s)) return whole;
  return std::min(whole, differing_bytes(kind, to_s - from_s));
}

std::vector<SubmittedJob> make_jobs(const WorkloadOptions& options, std::uint64_t seed) {
  std::vector<SubmittedJob> jobs;
  for (std::uint32_t number = 0; number < options.users; ++number) {
    const User user = make_user(options, seed, number);
    Dice dice(seed, "submits", number);
    for (int day = 0; day < options.days; ++day) submit_day(user, day, options, dice, jobs);
  }
  sort_by_time(jobs);
  return jobs;
}

std::vector<SubmittedJob> jobs_of(
    const std::vector<RecordedJob>& recorded, const WorkloadOptions& options, std::uint64_t seed
) {
  std::vector<SubmittedJob> jobs;
  if (recorded.empty()) return jobs;
  Dice dice(seed, "recorded");
  const auto shares = kind_shares();
  const std::int64_t midnight =
      recorded.front().submitted_ms - recorded.front().submitted_ms % kDayMs;
  const std::int64_t length =
      (recorded.back().submitted_ms - midnight) / (7 * kDayMs) * (7 * kDayMs) + 7 * kDayMs;
  for (double begin = 0; begin < options.days * kDay; begin += static_cast<double>(length) / 1000) {
    for (const RecordedJob& one : recorded) {
      SubmittedJob job{.work_s = one.duration_s, .gpus = std::min(one.gpus, options.most_gpus)};
      job.at_s = begin + static_cast<double>(one.submitted_ms - midnight) / 1000;
      job.kind = dice.pick(shares);
      const int user = dice.whole(0, static_cast<int>(options.users) - 1);
      job.user = "user-" + std::to_string(user + 1);
      job.lab = "lab-" + std::to_string(user % static_cast<int>(options.labs) + 1);
      if (job.at_s < options.days * kDay) jobs.push_back(std::move(job));
    }
  }
  sort_by_time(jobs);
  return jobs;
}

}  // namespace rn::evaluate
