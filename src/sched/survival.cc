// SPDX-License-Identifier: Apache-2.0
#include "sched/survival.h"

#include <algorithm>
#include <cmath>

namespace rn::sched {

namespace {

/// A chance of 0 would have no rate.
double log_of(double chance) {
  return std::log(std::clamp(chance, 1e-12, 1.0));
}

/// Walks over the pieces of constant hazard in [0, seconds]: visit(length, survival at its begin,
/// rate).
template <class Visit>
void for_pieces(const SurvivalCurve::Samples& samples, double seconds, const Visit& visit) {
  double begin = 0;
  double log_begin = 0;
  for (std::size_t i = 0; i < samples.size() && begin < seconds; ++i) {
    const bool is_last = i + 1 == samples.size();
    const double rate = std::max(0.0, (log_begin - log_of(samples[i])) / (kHorizons_s[i] - begin));
    const double end = is_last ? seconds : std::min(seconds, kHorizons_s[i]);
    visit(end - begin, std::exp(log_begin), rate);
    log_begin -= rate * (end - begin);
    begin = end;
  }
}

double at(const SurvivalCurve::Samples& samples, double seconds) {
  double stays = 1;
  for_pieces(samples, seconds, [&](double length, double begin, double rate) {
    stays = begin * std::exp(-rate * length);
  });
  return stays;
}

double mean_over(const SurvivalCurve::Samples& samples, double seconds, double leaves_in_s) {
  if (!(seconds > 0)) return leaves_in_s > 0 ? 1 : 0;
  double there_s = 0;
  for_pieces(
      samples,
      std::min(seconds, std::max(0.0, leaves_in_s)),
      [&](double length, double begin, double rate) {
        const double x = rate * length;
        there_s += begin * (x < 1e-9 ? length : -std::expm1(-x) / rate);
      }
  );
  return there_s / seconds;
}

}  // namespace

SurvivalCurve constant_curve(double mean_rate, double cautious_rate) {
  SurvivalCurve curve;
  for (std::size_t i = 0; i < kHorizons_s.size(); ++i) {
    curve.mean[i] = std::exp(-mean_rate * kHorizons_s[i]);
    curve.cautious[i] = std::exp(-cautious_rate * kHorizons_s[i]);
  }
  return curve;
}

double survival(const SurvivalCurve& curve, double seconds) {
  return seconds >= curve.leaves_in_s ? 0 : at(curve.mean, seconds);
}

double cautious_survival(const SurvivalCurve& curve, double seconds) {
  return at(curve.cautious, seconds);
}

double mean_survival(const SurvivalCurve& curve, double seconds) {
  return mean_over(curve.mean, seconds, curve.leaves_in_s);
}

double cautious_mean_survival(const SurvivalCurve& curve, double seconds) {
  return mean_over(curve.cautious, seconds, curve.leaves_in_s);
}

}  // namespace rn::sched
