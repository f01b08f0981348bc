// SPDX-License-Identifier: Apache-2.0
#include "evaluate/sweep.h"

#include <algorithm>

#include <fmt/core.h>

#include "evaluate/policies.h"

namespace rn::evaluate {

namespace {

constexpr std::string_view kBest = "-best";

double middle_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

std::string swept_family(std::string_view name) {
  if (name.ends_with(kBest)) name.remove_suffix(kBest.size());
  const std::string family =
      name == "s1" || name == "s2" ? "slurm-" + std::string(name) : std::string(name);
  return is_family(family) ? family : "";
}

Result<Sweep> sweep(
    const SettingOptions& options,
    std::string_view family,
    std::uint64_t first_seed,
    std::uint64_t seeds,
    const std::function<void(const Outcome&)>& on_outcome
) {
  if (!is_family(family))
    return fail(
        ErrorCode::kInvalid,
        std::string(family) + " is no family of policies that differ in an interval",
        "name one, as slurm-s1"
    );
  Sweep found{.family = std::string(family)};
  for (const double interval_s : kSweptIntervals_s) {
    Swept one{.interval_s = interval_s, .policy = fmt::format("{}-{:.0f}", family, interval_s)};
    for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
      RN_TRY(const Outcome outcome, evaluate(options, one.policy, seed));
      one.losses_gpu_h.push_back(outcome.figures.all.lost_gpu_s / 3600);
      one.mean_moved_gb += outcome.figures.moved_bytes / 1e9 / static_cast<double>(seeds);
      one.mean_paused_gpu_h += outcome.figures.paused_gpu_s / 3600 / static_cast<double>(seeds);
      if (on_outcome) on_outcome(outcome);
    }
    one.median_loss_gpu_h = middle_of(one.losses_gpu_h);
    found.all.push_back(std::move(one));
  }
  for (std::size_t i = 0; i < found.all.size(); ++i) {
    if (found.all[i].median_loss_gpu_h <= found.all[found.best].median_loss_gpu_h) found.best = i;
  }
  return found;
}

std::string words(const Sweep& sweep) {
  std::string text = fmt::format(
      "{} swept over {} seeds: work loss in GPU-hours (median, least, most), traffic, standstill\n",
      sweep.family,
      sweep.all.front().losses_gpu_h.size()
  );
  for (std::size_t i = 0; i < sweep.all.size(); ++i) {
    const Swept& one = sweep.all[i];
    const auto [least, most] =
        std::minmax_element(one.losses_gpu_h.begin(), one.losses_gpu_h.end());
    text += fmt::format(
        "  {:>5.0f} s  {:9.2f} {:9.2f} {:9.2f}  {:9.1f} GB  {:8.2f} GPU-hours{}\n",
        one.interval_s,
        one.median_loss_gpu_h,
        *least,
        *most,
        one.mean_moved_gb,
        one.mean_paused_gpu_h,
        i == sweep.best ? "  <- best" : ""
    );
  }
  return text;
}

std::string pipeline_check(const Losses& losses) {
  std::string text;
  for (const auto& [pipeline, lost] : losses) {
    if (!pipeline.starts_with("bamboo") && !pipeline.starts_with("warm-shadow")) continue;
    for (const auto& [slurm, beside] : losses) {
      if (!slurm.starts_with("slurm")) continue;
      std::vector<double> ratios;
      for (std::size_t i = 0; i < std::min(lost.size(), beside.size()); ++i) {
        if (beside[i] > 0) ratios.push_back(lost[i] / beside[i]);
      }
      if (ratios.empty()) continue;
      text += fmt::format(
          "check: {} loses {:.3f} of what {} does (median of {}; the paper implies about 0.55)\n",
          pipeline,
          middle_of(ratios),
          slurm,
          ratios.size()
      );
    }
  }
  return text;
}

}  // namespace rn::evaluate
