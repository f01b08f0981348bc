// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "evaluate/evaluation.h"

// Policies that differ in one interval, at their best: what a site's people would arrive at who
// tried all of them on the very weeks that are to come. That is more than anybody can, and so the
// strongest form of such a baseline.
namespace rn::evaluate {

/// From a minute to two hours.
inline constexpr std::array<double, 9> kSweptIntervals_s = {
    60, 120, 300, 600, 900, 1200, 1800, 3600, 7200};

struct Swept {
  double interval_s = 0;
  std::string policy;                ///< as make_policy() takes it
  std::vector<double> losses_gpu_h;  ///< of each seed
  double median_loss_gpu_h = 0;
  double mean_moved_gb = 0;
  double mean_paused_gpu_h = 0;
};

struct Sweep {
  std::string family;
  std::vector<Swept> all;
  std::size_t best = 0;  ///< of the least median work loss; of equal ones the longest interval
};

/// Each interval with each of the seeds. kInvalid if it is no family (policies.h), or as
/// evaluate(). `on_outcome` sees every run.
Result<Sweep> sweep(
    const SettingOptions& options,
    std::string_view family,
    std::uint64_t first_seed,
    std::uint64_t seeds,
    const std::function<void(const Outcome&)>& on_outcome = nullptr
);

/// "slurm-s1" of "slurm-s1-best" and of "s1"; empty: it is no such name.
std::string swept_family(std::string_view name);

/// A table, for people.
std::string words(const Sweep& sweep);

/// Work loss in GPU-hours of each run: by policy, in the order of the seeds.
using Losses = std::map<std::string, std::vector<double>>;

/// What pipelines and shadows lose of what Slurm's policies do, as the median over the pairs; empty
/// if not both are there. A check of the setting: ReclaimNet's abstract implies about 0.55.
std::string pipeline_check(const Losses& losses);

}  // namespace rn::evaluate
