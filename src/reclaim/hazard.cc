// SPDX-License-Identifier: Apache-2.0
#include "reclaim/hazard.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/assert.h"

namespace rn::reclaim {
namespace {

constexpr std::int64_t kHourMs = 3'600'000;
constexpr double kMaxHorizon_s = 14 * 86400.0;
/// As much variance as a regime counts, at most, for what evidence of the owner would make known:
/// with it some four departures make an owner known, as agents ask (ADR 0011).
constexpr double kUnknownRegime = 0.3;
constexpr double kMaxWeight = 1e9;  // then the tallies are divided by it: every 630 days
constexpr Gamma kCertainlyOne{.shape = 1e12, .rate = 1e12};

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

std::size_t hour_of_week_ms(std::int64_t ms, std::int64_t utc_offset_s) {
  const std::int64_t hours = floor_div(ms + utc_offset_s * 1000, kHourMs);
  // The epoch was a Thursday: three days after a Monday.
  constexpr std::int64_t kWeek = kHoursOfWeek;
  return static_cast<std::size_t>(((hours + 3 * 24) % kWeek + kWeek) % kWeek);
}

std::size_t age_band(std::int64_t age_ms) {
  std::size_t band = 0;
  while (band + 1 < kAgeBands && static_cast<double>(age_ms) >= kAgeBandStarts_s[band + 1] * 1000) {
    ++band;
  }
  return band;
}

void add(Tally& tally, double events, double exposure_s) {
  tally.events += events;
  tally.exposure_s += exposure_s;
}

void scale(Tally& tally, double by) {
  tally.events *= by;
  tally.exposure_s *= by;
}

Tally smoothed(const std::vector<Tally>& hours, std::size_t hour) {
  const Tally& before = hours[(hour + kHoursOfWeek - 1) % kHoursOfWeek];
  const Tally& at = hours[hour];
  const Tally& after = hours[(hour + 1) % kHoursOfWeek];
  return {
      .events = before.events / 4 + at.events / 2 + after.events / 4,
      .exposure_s = before.exposure_s / 4 + at.exposure_s / 2 + after.exposure_s / 4};
}

/// The same hour of all workdays, or of both days of the weekend.
Tally of_like_days(const std::vector<Tally>& hours, std::size_t hour) {
  constexpr std::size_t kWorkdays = 5;
  const bool is_workday = hour / 24 < kWorkdays;
  Tally sum;
  for (std::size_t day = is_workday ? 0 : kWorkdays; day < (is_workday ? kWorkdays : 7); ++day) {
    const Tally like = smoothed(hours, day * 24 + hour % 24);
    add(sum, like.events, like.exposure_s);
  }
  return sum;
}

std::int64_t ms_of(double seconds) {
  return static_cast<std::int64_t>(std::llround(seconds * 1000));
}

}  // namespace

std::size_t hour_of_week(WallTime at, std::int64_t utc_offset_s) {
  return hour_of_week_ms(to_ms(at), utc_offset_s);
}

double SurvivalForecast::probability() const {
  if (leaves_before) return 0;
  const double k = spread();
  return std::exp(-k * std::log1p(expected_departures / k));
}

double SurvivalForecast::quantile(double q) const {
  if (leaves_before) return 0;
  // A small survival goes with a large hazard.
  const double k = spread();
  return std::exp(-expected_departures * gamma_quantile({.shape = k, .rate = k}, 1 - q));
}

double constant_rate(double survival, double horizon_s) {
  if (!(horizon_s > 0)) return 0;
  return -std::log(std::clamp(survival, 1e-9, 1.0)) / horizon_s;
}

HazardModel::HazardModel(HazardParameters parameters) : parameters_(parameters) {
  campus_.edition = kHazardEdition;
  campus_.hours.resize(kHoursOfWeek);
  campus_.ages.resize(kAgeBands);
  no_lab_.hours.resize(kHoursOfWeek);
}

Result<HazardModel> HazardModel::restore(HazardParameters parameters, HazardState state) {
  RN_CHECK(check(state));
  HazardModel model(parameters);
  model.campus_ = std::move(state.campus);
  if (model.campus_.edition < kHazardEdition) {
    const HazardStrengths before = std::exchange(model.campus_.strengths, {});
    model.campus_.strengths.lab = before.lab;
    model.campus_.strengths.node = before.node;
    model.campus_.edition = kHazardEdition;
  }
  for (LabHazard& lab : state.labs) model.labs_.emplace(lab.lab, std::move(lab));
  for (NodeHazard& node : state.nodes) model.nodes_.emplace(node.node, std::move(node));
  return model;
}

HazardState HazardModel::state() const {
  HazardState state{.campus = campus_};
  for (const auto& [id, lab] : labs_) state.labs.push_back(lab);
  for (const auto& [id, node] : nodes_) state.nodes.push_back(node);
  return state;
}

const LabHazard* HazardModel::find_lab(const LabId& lab) const {
  const auto found = labs_.find(lab);
  return found == labs_.end() ? nullptr : &found->second;
}

const NodeHazard* HazardModel::find_node(const NodeId& node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? nullptr : &found->second;
}

// ---- what happened

LabHazard& HazardModel::lab_of(const LabId& lab) {
  LabHazard& found = labs_[lab];
  if (found.hours.empty()) {
    found.lab = lab;
    found.hours.resize(kHoursOfWeek);
  }
  return found;
}

void HazardModel::lend(
    const NodeId& id, const LabId& lab, WallTime at, std::optional<WallTime> lent_since
) {
  NodeHazard& node = nodes_[id];
  if (node.is_lent && node.lab == lab) return;
  if (node.lab != lab) {
    if (node.is_lent) advance(node, to_ms(at));
    node = NodeHazard{.node = id, .lab = lab, .seen_to_ms = node.seen_to_ms};
    lab_of(lab);
  }
  node.is_lent = true;
  node.seen_to_ms = std::max(to_ms(at), node.seen_to_ms);
  node.lent_since_ms = node.seen_to_ms;
  if (lent_since) node.lent_since_ms = std::min(node.lent_since_ms, to_ms(*lent_since));
  if (campus_.reference_ms == 0) campus_.reference_ms = node.seen_to_ms;
}

void HazardModel::advance(const NodeId& id, WallTime to) {
  const auto found = nodes_.find(id);
  if (found != nodes_.end()) advance(found->second, to_ms(to));
}

void HazardModel::advance_all(WallTime to) {
  for (auto& [id, node] : nodes_) advance(node, to_ms(to));
}

void HazardModel::advance(NodeHazard& node, std::int64_t to_ms) {
  if (!node.is_lent || to_ms <= node.seen_to_ms) return;
  if (weight(to_ms) > kMaxWeight) rebase(to_ms);
  LabHazard& lab = lab_of(node.lab);
  while (node.seen_to_ms < to_ms) {
    const Stretch part = stretch(node, lab, node.seen_to_ms, to_ms);
    count_exposure(node, lab, part);
    node.seen_to_ms = part.to_ms;
  }
}

void HazardModel::set_presence(const NodeId& id, OwnerPresence presence, WallTime at) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  advance(found->second, to_ms(at));
  found->second.owner_login = presence.is_logged_in;
  found->second.foreign_process = presence.has_foreign_process;
}

void HazardModel::announce(const NodeId& id, std::optional<WallTime> leaves_at, WallTime at) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  advance(found->second, to_ms(at));
  found->second.leaves_at_ms = leaves_at ? to_ms(*leaves_at) : 0;
}

void HazardModel::reclaimed(const NodeId& id, WallTime at, Warning warning) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || !found->second.is_lent) return;
  NodeHazard& node = found->second;
  const std::int64_t at_ms = std::max(to_ms(at), node.seen_to_ms);
  for (auto& [other_id, other] : nodes_) {
    if (other.lab == node.lab) advance(other, at_ms);
  }
  LabHazard& lab = lab_of(node.lab);
  count_departure(node, lab, at_ms, warning);
  node.is_lent = false;
  node.leaves_at_ms = 0;
  if (at_ms > lab.contagion_until_ms) lab.contagion_from_ms = at_ms;
  lab.contagion_until_ms = at_ms + ms_of(parameters_.contagion_s);
}

void HazardModel::withdrawn(const NodeId& id, WallTime at) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  advance(found->second, to_ms(at));
  found->second.is_lent = false;
  found->second.leaves_at_ms = 0;
}

void HazardModel::forget(const NodeId& id) {
  nodes_.erase(id);
}

// ---- the arithmetic

double HazardModel::weight(std::int64_t at_ms) const {
  const double age_s = static_cast<double>(at_ms - campus_.reference_ms) / 1000;
  return std::exp2(std::max(0.0, age_s) / parameters_.half_life_s);
}

/// Makes the weight 1 at `at_ms`, so that it never overflows.
void HazardModel::rebase(std::int64_t at_ms) {
  const double by = 1 / weight(at_ms);
  const auto all = [by](std::vector<Tally>& tallies) {
    for (Tally& tally : tallies) scale(tally, by);
  };
  scale(campus_.base, by);
  campus_.announced *= by;
  all(campus_.hours);
  all(campus_.ages);
  for (Tally* tally : {&campus_.owner_login, &campus_.foreign_process, &campus_.mates_reclaimed}) {
    scale(*tally, by);
  }
  for (auto& [id, lab] : labs_) {
    scale(lab.rate, by);
    lab.announced *= by;
    all(lab.hours);
  }
  for (auto& [id, node] : nodes_) {
    scale(node.rate, by);
    node.announced *= by;
  }
  campus_.reference_ms = at_ms;
}

Gamma HazardModel::base(double weight) const {
  return {
      .shape = parameters_.prior_events + campus_.base.events / weight,
      .rate = parameters_.prior_events / parameters_.prior_rate + campus_.base.exposure_s / weight};
}

HazardModel::Stretch HazardModel::stretch(
    const NodeHazard& node, const LabHazard& lab, std::int64_t from_ms, std::int64_t to_ms
) const {
  const std::int64_t offset_ms = parameters_.utc_offset_s * 1000;
  const std::int64_t age_ms = from_ms - node.lent_since_ms;
  Stretch part{.from_ms = from_ms};
  part.hour = hour_of_week_ms(from_ms, parameters_.utc_offset_s);
  part.age_band = age_band(age_ms);
  part.login = node.owner_login;
  part.foreign = node.foreign_process;
  part.mates = from_ms >= lab.contagion_from_ms && from_ms < lab.contagion_until_ms;

  std::int64_t end = (floor_div(from_ms + offset_ms, kHourMs) + 1) * kHourMs - offset_ms;
  if (part.age_band + 1 < kAgeBands) {
    end = std::min(end, node.lent_since_ms + ms_of(kAgeBandStarts_s[part.age_band + 1]));
  }
  if (from_ms < lab.contagion_from_ms) end = std::min(end, lab.contagion_from_ms);
  if (part.mates) end = std::min(end, lab.contagion_until_ms);
  part.to_ms = std::min(end, to_ms);
  RN_ASSERT(part.to_ms > from_ms, "time goes on");
  return part;
}

Gamma HazardModel::hour_posterior(
    const std::vector<Tally>& hours,
    std::size_t hour,
    double prior_mean,
    double strength,
    double weight
) const {
  const Tally seen = smoothed(hours, hour);
  return {
      .shape = strength + seen.events / weight,
      .rate = strength / prior_mean + base(weight).mean() * seen.exposure_s / weight};
}

/// What the campus's like days say of this hour, before its own day of the week says more.
double HazardModel::usual_hour(std::size_t hour, double weight) const {
  const Tally like = of_like_days(campus_.hours, hour);
  const double strength = campus_.strengths.day_hour;
  return (strength + like.events / weight) /
         (strength + base(weight).mean() * like.exposure_s / weight);
}

Gamma HazardModel::regime_posterior(
    const Tally& regime, double age_s, double half_life_s, double strength, double base_rate
) const {
  const double left = std::exp2(-std::max(0.0, age_s) / half_life_s);
  return {
      .shape = strength + regime.events * left,
      .rate = strength + base_rate * regime.exposure_s * left};
}

HazardModel::Posteriors HazardModel::posteriors(
    const NodeHazard& node, const LabHazard& lab, const Stretch& part, std::int64_t at_ms
) const {
  if (parameters_.is_constant) {
    Posteriors ones;
    ones.fill(kCertainlyOne);
    return ones;
  }
  const HazardStrengths& strengths = campus_.strengths;
  const double now = weight(at_ms);
  const double rate = base(now).mean();
  const auto posterior = [&](const Tally& tally, double strength) -> Gamma {
    return {
        .shape = strength + tally.events / now, .rate = strength + rate * tally.exposure_s / now};
  };
  Posteriors known;
  known[kHour] =
      hour_posterior(campus_.hours, part.hour, usual_hour(part.hour, now), strengths.hour, now);
  known[kAge] = posterior(campus_.ages[part.age_band], strengths.age);
  known[kLab] = posterior(lab.rate, strengths.lab);
  known[kLabHour] = hour_posterior(lab.hours, part.hour, 1, strengths.lab_hour, now);
  known[kNode] = posterior(node.rate, strengths.node);
  if (part.login) known[kLogin] = posterior(campus_.owner_login, strengths.covariate);
  if (part.foreign) known[kForeign] = posterior(campus_.foreign_process, strengths.covariate);
  if (part.mates) known[kMates] = posterior(campus_.mates_reclaimed, strengths.covariate);
  const auto regime_age_s = [&](std::int64_t regime_ms) {
    return static_cast<double>(part.from_ms - regime_ms) / 1000;
  };
  known[kCampusRegime] = regime_posterior(
      campus_.regime,
      regime_age_s(campus_.regime_ms),
      parameters_.campus_regime_half_life_s,
      strengths.campus_regime,
      rate
  );
  known[kLabRegime] = regime_posterior(
      lab.regime,
      regime_age_s(lab.regime_ms),
      parameters_.lab_regime_half_life_s,
      strengths.lab_regime,
      rate
  );
  return known;
}

std::array<Tally*, HazardModel::kFactorCount> HazardModel::tallies(
    NodeHazard& node, LabHazard& lab, const Stretch& part
) {
  std::array<Tally*, kFactorCount> found{};
  found[kHour] = &campus_.hours[part.hour];
  found[kAge] = &campus_.ages[part.age_band];
  found[kLab] = &lab.rate;
  found[kLabHour] = &lab.hours[part.hour];
  found[kNode] = &node.rate;
  if (part.login) found[kLogin] = &campus_.owner_login;
  if (part.foreign) found[kForeign] = &campus_.foreign_process;
  if (part.mates) found[kMates] = &campus_.mates_reclaimed;
  found[kCampusRegime] = &campus_.regime;
  found[kLabRegime] = &lab.regime;
  return found;
}

void HazardModel::fade_regimes(LabHazard& lab, std::int64_t at_ms) {
  const auto fade = [&](Tally& regime, std::int64_t& regime_ms, double half_life_s) {
    if (at_ms <= regime_ms) return;
    const double age_s = static_cast<double>(at_ms - regime_ms) / 1000;
    scale(regime, std::exp2(-age_s / half_life_s));
    regime_ms = at_ms;
  };
  fade(campus_.regime, campus_.regime_ms, parameters_.campus_regime_half_life_s);
  fade(lab.regime, lab.regime_ms, parameters_.lab_regime_half_life_s);
}

/// How far it is known what is usual here, and so whether something else is unusual: 1 / (1 + the
/// relative variance of all that a regime multiplies). Of a young site a departure says that owners
/// come, and hardly that these hours are special.
double HazardModel::familiarity(const Posteriors& known, std::int64_t at_ms) const {
  double unknown = 1 / base(weight(at_ms)).shape;
  for (std::size_t f = 0; f < kFactorCount; ++f) {
    if (known[f] && f != kCampusRegime && f != kLabRegime) unknown += 1 / known[f]->shape;
  }
  return 1 / (1 + unknown);
}

void HazardModel::count_exposure(NodeHazard& node, LabHazard& lab, const Stretch& part) {
  const Posteriors known = posteriors(node, lab, part, part.from_ms);
  double product = 1;
  for (const auto& factor : known) product *= factor ? factor->mean() : 1;
  const double seconds = static_cast<double>(part.to_ms - part.from_ms) / 1000;
  const double weighted = product * seconds * weight(part.to_ms);
  fade_regimes(lab, part.to_ms);
  add(campus_.base, 0, weighted);
  const auto targets = tallies(node, lab, part);
  for (std::size_t f = 0; f < kFactorCount; ++f) {
    if (targets[f] == nullptr) continue;
    const bool is_regime = f == kCampusRegime || f == kLabRegime;
    const double counted =
        is_regime ? familiarity(known, part.from_ms) * product * seconds : weighted;
    add(*targets[f], 0, counted / known[f]->mean());
  }
}

void HazardModel::count_departure(
    NodeHazard& node, LabHazard& lab, std::int64_t at_ms, Warning warning
) {
  // The stretch that ends here, not the one that begins.
  const std::int64_t before_ms = std::max(node.lent_since_ms, at_ms - 1);
  const Stretch part = stretch(node, lab, before_ms, before_ms + 1);
  fade_regimes(lab, at_ms);
  const double weighted = weight(at_ms);
  const double unusual = familiarity(posteriors(node, lab, part, before_ms), before_ms);
  add(campus_.base, weighted, 0);
  if (warning == Warning::kAnnounced) {
    for (double* announced : {&campus_.announced, &lab.announced, &node.announced})
      *announced += weighted;
  }
  const auto targets = tallies(node, lab, part);
  for (std::size_t f = 0; f < kFactorCount; ++f) {
    if (targets[f] == nullptr) continue;
    const bool is_regime = f == kCampusRegime || f == kLabRegime;
    add(*targets[f], is_regime ? unusual : weighted, 0);
  }
}

std::vector<EventCount> HazardModel::counts(const std::vector<Tally>& tallies, double weight)
    const {
  const double rate = base(weight).mean();
  std::vector<EventCount> found;
  for (const Tally& tally : tallies) {
    found.push_back({.events = tally.events / weight, .expected = rate * tally.exposure_s / weight}
    );
  }
  return found;
}

void HazardModel::refit_strengths(WallTime at) {
  const HazardStrengths defaults;
  const double now = weight(to_ms(at));
  std::vector<Tally> labs;
  std::vector<Tally> nodes;
  for (const auto& [id, lab] : labs_) labs.push_back(lab.rate);
  for (const auto& [id, node] : nodes_) nodes.push_back(node.rate);
  // Below 0.3 one departure would triple a rate; above 300 a factor is as good as switched off.
  campus_.strengths.lab = best_strength(counts(labs, now), 0.3, 300, defaults.lab);
  campus_.strengths.node = best_strength(counts(nodes, now), 0.3, 300, defaults.node);
}

// ---- what to expect

HazardModel::Subject HazardModel::subject(const NodeId& id, const LabId& lab, std::int64_t at_ms)
    const {
  Subject asked;
  const auto node = nodes_.find(id);
  if (node != nodes_.end() && node->second.lab == lab) {
    asked.node = node->second;
  } else {
    asked.node.node = id;
    asked.node.lab = lab;
  }
  if (!asked.node.is_lent) asked.node.lent_since_ms = at_ms;
  const auto found = labs_.find(lab);
  asked.lab = found != labs_.end() ? &found->second : &no_lab_;
  return asked;
}

double HazardModel::rate(const NodeId& id, const LabId& lab, WallTime at) const {
  const Subject asked = subject(id, lab, to_ms(at));
  const std::int64_t at_ms = std::max(to_ms(at), asked.node.lent_since_ms);
  const Stretch part = stretch(asked.node, *asked.lab, at_ms, at_ms + 1);
  double rate = base(weight(at_ms)).mean();
  for (const auto& factor : posteriors(asked.node, *asked.lab, part, at_ms)) {
    rate *= factor ? factor->mean() : 1;
  }
  return rate;
}

double HazardModel::unannounced_share(const Subject& asked, std::int64_t at_ms) const {
  const double now = weight(at_ms);
  double share = 1;
  const auto refine = [&](const Tally& rate, double announced, double strength) {
    share = (strength * share + (rate.events - announced) / now) / (strength + rate.events / now);
  };
  refine(campus_.base, campus_.announced, parameters_.prior_events);
  refine(asked.lab->rate, asked.lab->announced, campus_.strengths.lab);
  refine(asked.node.rate, asked.node.announced, campus_.strengths.node);
  return std::clamp(share, 1e-6, 1.0);
}

double HazardModel::unannounced_share(const NodeId& node, const LabId& lab, WallTime at) const {
  return unannounced_share(subject(node, lab, to_ms(at)), to_ms(at));
}

SurvivalForecast HazardModel::survival(
    const NodeId& id, const LabId& lab, WallTime at, double horizon_s
) const {
  Subject asked = subject(id, lab, to_ms(at));
  const std::int64_t at_ms = std::max(to_ms(at), asked.node.lent_since_ms);
  const std::int64_t end_ms = at_ms + ms_of(horizon_s > 0 ? std::min(horizon_s, kMaxHorizon_s) : 0);
  const std::int64_t presence_end_ms = at_ms + ms_of(parameters_.presence_s);
  const Gamma base_rate = base(weight(at_ms));

  SurvivalForecast forecast;
  forecast.leaves_before = asked.node.leaves_at_ms != 0 && asked.node.leaves_at_ms <= end_ms;
  double variance = 0;  // of log hazard, averaged over the expected departures
  double unrest = 0;
  for (std::int64_t from_ms = at_ms; from_ms < end_ms;) {
    const bool is_present = asked.node.owner_login || asked.node.foreign_process;
    const std::int64_t limit = is_present ? std::min(end_ms, presence_end_ms) : end_ms;
    const Stretch part = stretch(asked.node, *asked.lab, from_ms, limit);
    double hazard = base_rate.mean();
    double unknown = 1 / base_rate.shape;
    double open = 0;
    const Posteriors known = posteriors(asked.node, *asked.lab, part, at_ms);
    for (std::size_t f = 0; f < kFactorCount; ++f) {
      if (!known[f]) continue;
      hazard *= known[f]->mean();
      const bool is_regime = f == kCampusRegime || f == kLabRegime;
      const double of_this = 1 / known[f]->shape;
      const double learnable = is_regime ? std::min(of_this, kUnknownRegime) : of_this;
      unknown += learnable;
      open += of_this - learnable;
    }
    const double departures = hazard * static_cast<double>(part.to_ms - from_ms) / 1000;
    forecast.expected_departures += departures;
    variance += unknown * departures;
    unrest += open * departures;
    from_ms = part.to_ms;
    if (from_ms >= presence_end_ms) {
      asked.node.owner_login = false;
      asked.node.foreign_process = false;
    }
  }
  if (variance > 0) {
    forecast.shape = forecast.expected_departures / variance;
    forecast.unrest = unrest / forecast.expected_departures;
  }
  return forecast;
}

}  // namespace rn::reclaim
