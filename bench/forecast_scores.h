// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

// How good forecasts of staying were. Pure.
namespace rn::bench {

/// One forecast and what became of it. Rows of one block (a lab's day) are not independent.
struct ForecastRow {
  std::vector<double> stays;  ///< forecast probability of staying, one per forecaster
  double observed_s = 0;      ///< until the reclaim, or until observation ended
  bool is_reclaimed = false;
  std::size_t block = 0;
  std::size_t known_reclaims = 0;  ///< of this node, that the forecasters had been shown
};

/// For one horizon and forecaster. Rows whose observation ended before the horizon weigh nothing,
/// and the others by the inverse probability of having been observed that long (Kaplan–Meier of the
/// censoring times; Graf et al. 1999).
struct BrierScore {
  double brier = 0;
  double calibration_error = 0;  ///< ECE, 10 bins of equal width
  std::size_t rows = 0;          ///< with a weight
};

/// Skill of `forecaster` against `reference`: 1 − Brier / Brier of the reference; with the 5 % and
/// 95 % quantiles of 400 resamples of whole blocks.
struct Skill {
  double skill = 0;
  double low = 0;
  double high = 0;
};

/// Probability of still being observed at a time, estimated from the rows.
class CensoringCurve {
 public:
  explicit CensoringCurve(const std::vector<ForecastRow>& rows);
  double before(double time_s) const;  ///< just before `time_s`; 1 while nothing was censored

 private:
  std::vector<double> times_;
  std::vector<double> values_;
};

BrierScore brier(
    const std::vector<ForecastRow>& rows,
    const CensoringCurve& observed,
    std::size_t forecaster,
    double horizon_s
);

Skill skill(
    const std::vector<ForecastRow>& rows,
    const CensoringCurve& observed,
    std::size_t forecaster,
    std::size_t reference,
    double horizon_s
);

/// Largest distance between the empirical distribution of `samples` and Exp(1), and its
/// probability under independence (Kolmogorov, Stephens' correction).
struct KolmogorovSmirnov {
  double distance = 0;
  double p_value = 1;
};

KolmogorovSmirnov ks_exponential(std::vector<double> samples);

}  // namespace rn::bench
