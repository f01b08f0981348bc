// SPDX-License-Identifier: Apache-2.0
// What people ask of the hazard model, and what makes a saved one unusable.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/core.h>

#include "reclaim/hazard.h"

namespace rn::reclaim {
namespace {

constexpr std::array<const char*, kAgeBands> kAgeNames = {
    "0-10 min", "10-30 min", "30 min-2 h", "2-8 h", "8-24 h", "over 24 h"};
constexpr std::array<const char*, 7> kDays = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};
constexpr std::array<double, 4> kHorizons_s = {300, 1800, 7200, 28800};

bool is_sound(const Tally& tally) {
  return std::isfinite(tally.events) && std::isfinite(tally.exposure_s) && tally.events >= 0 &&
         tally.exposure_s >= 0;
}

Status check_table(const std::vector<Tally>& table, std::size_t size, const std::string& name) {
  if (table.size() != size) {
    return fail(
        ErrorCode::kInvalid, fmt::format("{}: {} entries instead of {}", name, table.size(), size)
    );
  }
  if (!std::all_of(table.begin(), table.end(), is_sound)) {
    return fail(ErrorCode::kInvalid, name + ": a number that is negative or not finite");
  }
  return {};
}

Status check_tallies(std::initializer_list<Tally> tallies, const std::string& name) {
  return check_table(std::vector<Tally>(tallies), tallies.size(), name);
}

Status check_campus(const CampusHazard& campus) {
  RN_CHECK(check_table(campus.hours, kHoursOfWeek, "campus.hours"));
  RN_CHECK(check_table(campus.ages, kAgeBands, "campus.ages"));
  RN_CHECK(check_tallies(
      {campus.base,
       campus.owner_login,
       campus.foreign_process,
       campus.mates_reclaimed,
       campus.regime},
      "campus"
  ));
  const HazardStrengths& strengths = campus.strengths;
  for (const double strength :
       {strengths.hour,
        strengths.age,
        strengths.lab,
        strengths.lab_hour,
        strengths.node,
        strengths.covariate,
        strengths.campus_regime,
        strengths.lab_regime}) {
    if (!std::isfinite(strength) || strength <= 0) {
      return fail(ErrorCode::kInvalid, "campus.strengths: a strength that is not positive");
    }
  }
  return {};
}

std::string duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace

Status check(const HazardState& state) {
  RN_CHECK(check_campus(state.campus));
  std::set<LabId> labs;
  for (const LabHazard& lab : state.labs) {
    const std::string name = "labs." + lab.lab.str();
    RN_CHECK(check_table(lab.hours, kHoursOfWeek, name + ".hours"));
    RN_CHECK(check_tallies({lab.rate, lab.regime}, name));
    if (!labs.insert(lab.lab).second) return fail(ErrorCode::kInvalid, name + ": twice");
  }
  std::set<NodeId> nodes;
  for (const NodeHazard& node : state.nodes) {
    const std::string name = "nodes." + node.node.str();
    RN_CHECK(check_tallies({node.rate}, name));
    if (!labs.contains(node.lab)) {
      return fail(ErrorCode::kInvalid, name + ": its lab " + node.lab.str() + " is missing");
    }
    if (node.seen_to_ms < node.lent_since_ms) {
      return fail(ErrorCode::kInvalid, name + ": seen before it was lent");
    }
    if (!nodes.insert(node.node).second) return fail(ErrorCode::kInvalid, name + ": twice");
  }
  return {};
}

void HazardModel::describe_factors(
    const Subject& asked, const Posteriors& known, const Stretch& now, HazardExplanation& out
) const {
  const std::string hour = fmt::format("{} {:02}:00", kDays[now.hour / 24], now.hour % 24);
  const std::array<std::pair<const char*, std::string>, kFactorCount> words = {{
      {"hour of week", hour},
      {"age", kAgeNames[now.age_band]},
      {"lab", asked.node.lab.str()},
      {"lab's hour", hour},
      {"node", asked.node.node.str()},
      {"owner login", "somebody is logged in"},
      {"foreign process", "a process that is not ours on a lent GPU"},
      {"lab-mates", "another node of the lab was just reclaimed"},
      {"campus these days", "fades within days"},
      {"lab these hours", "fades within hours"},
  }};
  const HazardStrengths& strengths = campus_.strengths;
  const std::array<double, kFactorCount> priors = {
      strengths.hour,
      strengths.age,
      strengths.lab,
      strengths.lab_hour,
      strengths.node,
      strengths.covariate,
      strengths.covariate,
      strengths.covariate,
      strengths.campus_regime,
      strengths.lab_regime};
  for (std::size_t f = 0; f < kFactorCount; ++f) {
    if (!known[f]) continue;
    out.factors.push_back(
        {.name = words[f].first,
         .value = known[f]->mean(),
         .low = gamma_quantile(*known[f], 0.05),
         .high = gamma_quantile(*known[f], 0.95),
         .events = known[f]->shape - priors[f],
         .detail = words[f].second}
    );
  }
}

HazardExplanation HazardModel::why(const NodeId& id, const LabId& lab, WallTime at) const {
  const Subject asked = subject(id, lab, to_ms(at));
  const std::int64_t at_ms = std::max(to_ms(at), asked.node.lent_since_ms);
  const Stretch now = stretch(asked.node, *asked.lab, at_ms, at_ms + 1);
  const Posteriors known = posteriors(asked.node, *asked.lab, now, at_ms);

  HazardExplanation out{.node = id, .is_lent = asked.node.is_lent};
  out.base_per_hour = base(weight(at_ms)).mean() * 3600;
  out.rate_per_hour = rate(id, lab, at) * 3600;
  out.age_s = static_cast<double>(at_ms - asked.node.lent_since_ms) / 1000;
  describe_factors(asked, known, now, out);
  for (const double horizon_s : kHorizons_s) {
    const SurvivalForecast forecast = survival(id, lab, at, horizon_s);
    out.survival.push_back(
        {.horizon_s = horizon_s,
         .probability = forecast.probability(),
         .low = forecast.quantile(0.05),
         .high = forecast.quantile(0.95)}
    );
  }
  if (asked.node.leaves_at_ms != 0) {
    out.leaves_in_s = std::max(0.0, static_cast<double>(asked.node.leaves_at_ms - at_ms) / 1000);
  }
  return out;
}

std::string describe(const HazardExplanation& why) {
  std::string text = fmt::format(
      "{}: {:.3f} departures an hour (one in {}), {}\n",
      why.node.str(),
      why.rate_per_hour,
      duration(3600 / why.rate_per_hour),
      why.is_lent ? "lent for " + duration(why.age_s) : "not lent now"
  );
  text += fmt::format("  {:<18} {:8.3f} an hour\n", "base", why.base_per_hour);
  for (const HazardFactor& factor : why.factors) {
    text += fmt::format(
        "  {:<18} x {:5.2f} ({:.2f} to {:.2f}, from {:.1f} departures) {}\n",
        factor.name,
        factor.value,
        factor.low,
        factor.high,
        factor.events,
        factor.detail
    );
  }
  for (const SurvivalAt& point : why.survival) {
    text += fmt::format(
        "  stays {:<11} {:5.1f} % ({:.1f} to {:.1f})\n",
        duration(point.horizon_s),
        100 * point.probability,
        100 * point.low,
        100 * point.high
    );
  }
  if (why.leaves_in_s >= 0) {
    text += fmt::format("  announced to leave in {}\n", duration(why.leaves_in_s));
  }
  return text;
}

}  // namespace rn::reclaim
