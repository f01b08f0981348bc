// SPDX-License-Identifier: Apache-2.0
#include "forecast_scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/rng.h"

namespace rn::bench {
namespace {

constexpr std::size_t kBins = 10;
constexpr std::size_t kResamples = 400;

/// Inverse-probability weight of a row at a horizon, and whether it stayed.
struct Outcome {
  double weight = 0;
  double stayed = 0;
};

Outcome outcome(const ForecastRow& row, const CensoringCurve& observed, double horizon_s) {
  if (row.is_reclaimed && row.observed_s <= horizon_s) {
    return {.weight = 1 / observed.before(row.observed_s), .stayed = 0};
  }
  if (row.observed_s >= horizon_s) {
    return {.weight = 1 / observed.before(horizon_s), .stayed = 1};
  }
  return {};
}

}  // namespace

CensoringCurve::CensoringCurve(const std::vector<ForecastRow>& rows) {
  std::vector<std::pair<double, bool>> ends;
  ends.reserve(rows.size());
  for (const ForecastRow& row : rows) ends.emplace_back(row.observed_s, row.is_reclaimed);
  std::sort(ends.begin(), ends.end());
  double value = 1;
  for (std::size_t i = 0; i < ends.size();) {
    std::size_t next = i;
    std::size_t censored = 0;
    while (next < ends.size() && ends[next].first <= ends[i].first) {
      censored += ends[next].second ? 0 : 1;
      ++next;
    }
    if (censored > 0) {
      value *= 1 - static_cast<double>(censored) / static_cast<double>(ends.size() - i);
      times_.push_back(ends[i].first);
      values_.push_back(value);
    }
    i = next;
  }
}

double CensoringCurve::before(double time_s) const {
  const auto found = std::lower_bound(times_.begin(), times_.end(), time_s);
  if (found == times_.begin()) return 1;
  return values_[static_cast<std::size_t>(found - times_.begin()) - 1];
}

BrierScore brier(
    const std::vector<ForecastRow>& rows,
    const CensoringCurve& observed,
    std::size_t forecaster,
    double horizon_s
) {
  struct Bin {
    double weight = 0;
    double forecast = 0;
    double stayed = 0;
  };

  std::array<Bin, kBins> bins{};
  BrierScore score;
  double total = 0;
  for (const ForecastRow& row : rows) {
    const Outcome seen = outcome(row, observed, horizon_s);
    if (seen.weight <= 0) continue;
    const double p = row.stays[forecaster];
    ++score.rows;
    total += seen.weight;
    score.brier += seen.weight * (p - seen.stayed) * (p - seen.stayed);
    Bin& bin = bins[std::min(kBins - 1, static_cast<std::size_t>(p * kBins))];
    bin.weight += seen.weight;
    bin.forecast += seen.weight * p;
    bin.stayed += seen.weight * seen.stayed;
  }
  if (total <= 0) return score;
  score.brier /= total;
  for (const Bin& bin : bins) {
    score.calibration_error += std::abs(bin.forecast - bin.stayed) / total;
  }
  return score;
}

Skill skill(
    const std::vector<ForecastRow>& rows,
    const CensoringCurve& observed,
    std::size_t forecaster,
    std::size_t reference,
    double horizon_s
) {
  std::map<std::size_t, std::array<double, 2>> by_block;
  for (const ForecastRow& row : rows) {
    const Outcome seen = outcome(row, observed, horizon_s);
    const double own = row.stays[forecaster] - seen.stayed;
    const double other = row.stays[reference] - seen.stayed;
    by_block[row.block][0] += seen.weight * own * own;
    by_block[row.block][1] += seen.weight * other * other;
  }
  std::vector<std::array<double, 2>> blocks;
  std::array<double, 2> sum{};
  for (const auto& [block, value] : by_block) {
    blocks.push_back(value);
    sum[0] += value[0];
    sum[1] += value[1];
  }
  if (sum[1] <= 0) return {};
  SeededRng rng(20260001);
  std::vector<double> resampled;
  for (std::size_t round = 0; round < kResamples; ++round) {
    std::array<double, 2> drawn{};
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const auto& block = blocks[rng.below(blocks.size())];
      drawn[0] += block[0];
      drawn[1] += block[1];
    }
    if (drawn[1] > 0) resampled.push_back(1 - drawn[0] / drawn[1]);
  }
  if (resampled.empty()) return {.skill = 1 - sum[0] / sum[1]};
  std::sort(resampled.begin(), resampled.end());
  return {
      .skill = 1 - sum[0] / sum[1],
      .low = resampled[resampled.size() / 20],
      .high = resampled[resampled.size() - 1 - resampled.size() / 20]};
}

KolmogorovSmirnov ks_exponential(std::vector<double> samples) {
  KolmogorovSmirnov result;
  if (samples.empty()) return result;
  std::sort(samples.begin(), samples.end());
  const auto n = static_cast<double>(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double expected = -std::expm1(-samples[i]);
    const double below = expected - static_cast<double>(i) / n;
    const double above = static_cast<double>(i + 1) / n - expected;
    result.distance = std::max({result.distance, below, above});
  }
  const double x = (std::sqrt(n) + 0.12 + 0.11 / std::sqrt(n)) * result.distance;
  double p = 0;
  for (int k = 1; k <= 100; ++k) {
    p += (k % 2 == 1 ? 2 : -2) * std::exp(-2.0 * k * k * x * x);
  }
  result.p_value = std::clamp(p, 0.0, 1.0);
  return result;
}

}  // namespace rn::bench
