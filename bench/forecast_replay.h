// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "forecast_scores.h"

#include "evaluate/owner_trace.h"
#include "reclaim/hazard.h"

// Plays recorded owners to the hazard model and to climatologies, minute by minute, and scores what
// each of them forecasts every five minutes for every lent node.
namespace rn::bench {

using evaluate::kDayMs;
using evaluate::kMinuteMs;
using evaluate::LabTrace;
using evaluate::LentSpell;

/// What a forecaster may learn from after the fitting part.
enum class Learning {
  kFrozen,   ///< nothing: all is as it was when the fitting part ended
  kOnline,   ///< everything up to the forecast's instant, from the first held-back day on
  kAllLabs,  ///< the same, and held-back labs were watched from the first day too
};

struct Split {
  std::string name;
  Learning learning = Learning::kOnline;
  int fit_days = 14;  ///< from the first day
  int test_until_day = 21;
  std::vector<bool> fit_labs;   ///< by lab
  std::vector<bool> test_labs;  ///< by lab
};

inline constexpr std::size_t kModel = 0;         ///< the product's
inline constexpr std::size_t kConstantLab = 1;   ///< constant rate per owner (lab)
inline constexpr std::size_t kConstantNode = 2;  ///< constant rate per node, shrunk to its lab
inline constexpr std::size_t kHourOfWeek = 3;    ///< the class's hours of the week, nothing else
/// Constant rate per lab as it will have been in the tested days, which nobody can know.
inline constexpr std::size_t kHindsightLab = 4;
inline constexpr std::size_t kForecasters = 5;
inline constexpr double kHorizons_s[] = {300, 1800, 7200, 28800};

/// A spell of a tested lab that began in the tested days and ended with a reclaim, with the hazard
/// that the model gave at the beginning of each of its minutes.
struct RatedSpell {
  LentSpell spell;
  std::vector<double> hazard;  ///< 1/s
  double constant_rate = 0;    ///< of its lab when it began, as the climatology saw it
};

struct Replay {
  /// Per horizon of kHorizons_s: the same instants, another forecast.
  std::vector<std::vector<ForecastRow>> rows;
  std::size_t reclaims = 0;  ///< in the tested labs and days
  std::size_t spells = 0;
  /// Hazard between successive reclaims of a node, as forecast: Exp(1) if the model is right.
  std::vector<double> residuals;
  std::vector<RatedSpell> rated;
  reclaim::HazardModel model;  ///< as it is at the end
};

Replay replay_forecasts(
    const std::vector<LabTrace>& labs,
    const Split& split,
    const reclaim::HazardParameters& parameters,
    const reclaim::HazardStrengths& strengths
);

/// Names used for the nodes of a trace.
NodeId node_name(const LabTrace& lab, std::size_t node);

}  // namespace rn::bench
