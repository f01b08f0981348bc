// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "forecast_replay.h"

// Folds inside the fitting part: what parameters are chosen by, without a look at what is held
// back.
namespace rn::bench {

/// Splits that ask the same of different labs; their forecasts are scored together.
struct Fold {
  std::string name;
  std::vector<Split> splits;
};

/// The odd labs (first, third, …), each up to the end of day `fit_days`; of the others nothing is
/// left, and what goes on longer is cut as if observation ended there.
std::vector<LabTrace> fitting_part(std::vector<LabTrace> labs, int fit_days);

/// Forward in time from three days, and within each of them: all fitting labs with their past, each
/// of them unknown until then (learning on), and each of them unknown with nothing learnt any more.
std::vector<Fold> forecast_folds(std::size_t labs, int fit_days);

/// All splits of a fold, one after the other; the model is the last one's.
Replay replay_fold(
    const std::vector<LabTrace>& labs,
    const Fold& fold,
    const reclaim::HazardParameters& parameters,
    const reclaim::HazardStrengths& strengths
);

}  // namespace rn::bench
