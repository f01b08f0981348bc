// SPDX-License-Identifier: Apache-2.0
#include "forecast_folds.h"

#include <algorithm>
#include <iterator>

#include <fmt/core.h>

namespace rn::bench {
namespace {

struct Cut {
  int fit_days = 0;
  int test_until_day = 0;
};

/// Days 1 to 5 are a holiday.
constexpr Cut kCuts[] = {{5, 10}, {7, 14}, {10, 14}};

template <class T>
void append(std::vector<T>& to, std::vector<T>&& from) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

/// Each fitting lab in turn is unknown when the tested days begin.
Fold left_out(const std::string& name, const Split& common, Learning learning) {
  Fold fold{.name = name};
  for (std::size_t lab = 0; lab < common.fit_labs.size(); ++lab) {
    if (!common.fit_labs[lab]) continue;
    Split split = common;
    split.learning = learning;
    split.fit_labs[lab] = false;
    split.test_labs.assign(common.fit_labs.size(), false);
    split.test_labs[lab] = true;
    fold.splits.push_back(std::move(split));
  }
  return fold;
}

}  // namespace

std::vector<LabTrace> fitting_part(std::vector<LabTrace> labs, int fit_days) {
  const std::int64_t end_ms = labs.empty() ? 0 : labs.front().begins_ms + fit_days * kDayMs;
  for (std::size_t i = 0; i < labs.size(); ++i) {
    auto& spells = labs[i].spells;
    std::erase_if(spells, [&](const LentSpell& spell) {
      return i % 2 == 1 || spell.from_ms >= end_ms;
    });
    for (LentSpell& spell : spells) {
      if (spell.to_ms <= end_ms) continue;
      spell.to_ms = end_ms;
      spell.is_reclaimed = false;
    }
  }
  return labs;
}

std::vector<Fold> forecast_folds(std::size_t labs, int fit_days) {
  std::vector<Fold> folds;
  for (const Cut& cut : kCuts) {
    Split common{
        .fit_days = cut.fit_days,
        .test_until_day = std::min(cut.test_until_day, fit_days),
        .fit_labs = std::vector<bool>(labs)};
    for (std::size_t i = 0; i < labs; i += 2) common.fit_labs[i] = true;
    common.test_labs = common.fit_labs;
    const std::string days =
        fmt::format("days {} to {}", common.fit_days + 1, common.test_until_day);
    folds.push_back({.name = days + ", labs known", .splits = {common}});
    folds.push_back(left_out(days + ", each lab unknown before", common, Learning::kOnline));
    folds.push_back(left_out(days + ", the same, nothing learnt then", common, Learning::kFrozen));
  }
  return folds;
}

Replay replay_fold(
    const std::vector<LabTrace>& labs,
    const Fold& fold,
    const reclaim::HazardParameters& parameters,
    const reclaim::HazardStrengths& strengths
) {
  Replay all;
  for (const Split& split : fold.splits) {
    Replay one = replay_forecasts(labs, split, parameters, strengths);
    all.rows.resize(one.rows.size());
    for (std::size_t h = 0; h < one.rows.size(); ++h) append(all.rows[h], std::move(one.rows[h]));
    all.reclaims += one.reclaims;
    all.spells += one.spells;
    append(all.residuals, std::move(one.residuals));
    append(all.rated, std::move(one.rated));
    all.model = std::move(one.model);
  }
  return all;
}

}  // namespace rn::bench
