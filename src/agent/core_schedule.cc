// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>

#include "agent/core_state.h"

namespace rn::agent {

namespace {

/// A band up to so many times the mean rests on what owners did: some four departures. It is 4.3
/// where nobody was seen, and 3.0 after fifty that say nothing of the last hours.
constexpr double kSure = 3.45;
constexpr std::uint32_t kLongestHazardStep_s = 3600;
constexpr double kDay_s = 86'400;
constexpr double kRiskTold = 0.25;  // of the owner's mean time away, spent without a checkpoint

bool is_sane(const wire::HazardForecast& told) {
  const auto is_rate = [](double value) { return value >= 0 && std::isfinite(value); };
  return is_rate(told.noticed) && told.step_s > 0 && told.step_s <= kLongestHazardStep_s &&
         told.per_day.size() <= wire::kMaxHazardSteps && is_rate(told.low) && is_rate(told.high) &&
         std::all_of(told.per_day.begin(), told.per_day.end(), is_rate);
}

}  // namespace

std::string rough_duration(double duration_s) {
  const double minutes = duration_s / 60;
  if (!(minutes < 1e7)) return "many years";
  if (minutes < 90)
    return std::to_string(std::max<std::int64_t>(std::llround(minutes), 1)) + " min";
  if (minutes < 48 * 60) return std::to_string(std::llround(minutes / 60)) + " h";
  return std::to_string(std::llround(minutes / (24 * 60))) + " days";
}

std::string told_duration(double duration_s) {
  if (duration_s >= 60) return rough_duration(duration_s);
  return std::to_string(std::max<std::int64_t>(static_cast<std::int64_t>(duration_s), 1)) + " s";
}

void Core::State::on_hazard(const wire::HazardForecast& told) {
  if (told.per_day.empty() || !is_sane(told)) return;
  hazard_ = told;
  hazard_at_ = now_.boot;
}

/// Departures per second now, by the newest word, however little it rests on. None where there is
/// none: never told, or told too long ago.
std::optional<double> Core::State::told_hazard() const {
  if (hazard_.per_day.empty() || !(hazard_.high > 0)) return std::nullopt;
  const auto step = static_cast<std::size_t>((now_.boot - hazard_at_) / seconds(hazard_.step_s));
  if (step >= hazard_.per_day.size()) return std::nullopt;
  return hazard_.per_day[step] / kDay_s;
}

/// The same, and none where so little is known of the owner that a guess stands for it.
std::optional<double> Core::State::known_hazard() const {
  return hazard_.high > kSure ? std::nullopt : told_hazard();
}

/// A guest that has not saved for long, for how often its owner comes back: its author hears it,
/// again when it is twice as long, and in the same words in between.
void Core::State::look_at_risk(Attempt& a) {
  const GenerationRow* const last = newest(a);
  const std::optional<double> hazard = known_hazard();
  if (last == nullptr || !hazard || a.row.boot_id != config_.boot_id) return;
  const nanoseconds age(to_ns(now_.boot) - last->ref.snapshot_boot_ns);
  if (last->ref.snapshot_boot_ns <= 0 || age < config_.no_save_after || age < 2 * a.risk_told_at)
    return;
  const double age_s = std::chrono::duration<double>(age).count();
  if (*hazard * age_s < kRiskTold) return;
  a.risk_told_at = age;
  a.risk_trouble = "its last checkpoint is more than " + told_duration(age_s) +
                   " old on a node whose owner comes back every " + told_duration(1 / *hazard) +
                   " on average; next: let it save more often";
}

}  // namespace rn::agent
