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

/// A part of `tally.events`; rounding may lead a little beyond.
Status check_announced(double announced, const Tally& tally, const std::string& name) {
  if (std::isfinite(announced) && announced >= 0 && announced <= tally.events * (1 + 1e-6) + 1e-6)
    return {};
  return fail(ErrorCode::kInvalid, name + ".announced: not a part of its departures");
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
  RN_CHECK(check_announced(campus.announced, campus.base, "campus"));
  const HazardStrengths& strengths = campus.strengths;
  for (const double strength :
       {strengths.hour,
        strengths.day_hour,
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

std::string history_of(const NodeHistory& history) {
  const std::uint32_t sudden = history.notice + history.emergency + history.lost;
  std::string text = fmt::format(
      "n = {} departures in {} lent: {} with notice",
      sudden,
      duration(static_cast<double>(history.exposure_s)),
      history.notice
  );
  if (history.notice_s_max > 0)
    text += fmt::format(" ({} to {} s)", history.notice_s_min, history.notice_s_max);
  return text + fmt::format(
                    ", {} at once, {} lost; {} more announced",
                    history.emergency,
                    history.lost,
                    history.announced
                );
}

}  // namespace

Status check(const HazardState& state) {
  RN_CHECK(check_campus(state.campus));
  std::set<LabId> labs;
  for (const LabHazard& lab : state.labs) {
    const std::string name = "labs." + lab.lab.str();
    RN_CHECK(check_table(lab.hours, kHoursOfWeek, name + ".hours"));
    RN_CHECK(check_tallies({lab.rate, lab.regime}, name));
    RN_CHECK(check_announced(lab.announced, lab.rate, name));
    if (!labs.insert(lab.lab).second) return fail(ErrorCode::kInvalid, name + ": twice");
  }
  std::set<NodeId> nodes;
  for (const NodeHazard& node : state.nodes) {
    const std::string name = "nodes." + node.node.str();
    RN_CHECK(check_tallies({node.rate}, name));
    RN_CHECK(check_announced(node.announced, node.rate, name));
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
  const std::string like = fmt::format(
      "; this hour of all {}: x {:.2f}",
      now.hour / 24 < 5 ? "workdays" : "weekends",
      usual_hour(now.hour, weight(now.from_ms))
  );
  const std::array<std::pair<const char*, std::string>, kFactorCount> words = {{
      {"hour of week", hour + like},
      {"age", kAgeNames[now.age_band]},
      {"lab", asked.node.lab.str()},
      {"lab's hour", hour},
      {"node", asked.node.node.str()},
      {"owner login", "somebody is logged in"},
      {"foreign process", "a process that is not ours on a lent GPU"},
      {"lab-mates", "another node of the lab was just reclaimed"},
      {"campus these hours", "fades within a day"},
      {"lab these hours", "fades within a day"},
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

/// A node's own record counts against its lab's by the strength of the prior; so do the lab's
/// against the campus's, and the campus's against what other campuses have seen.
std::string HazardModel::prior_of(const Subject& asked, std::int64_t at_ms) const {
  const double now = weight(at_ms);
  const HazardStrengths& strengths = campus_.strengths;
  const double own = asked.node.rate.events / now;
  const double of_lab = asked.lab->rate.events / now;
  const double of_campus = campus_.base.events / now;
  if (own >= strengths.node)
    return fmt::format(
        "its own record counts most: {:.1f} departures, against {:.1f} that its lab's rate weighs",
        own,
        strengths.node
    );
  const std::string little = fmt::format(
      "little is known of the node itself ({:.1f} departures, {:.1f} would outweigh what follows)",
      own,
      strengths.node
  );
  if (of_lab >= strengths.lab)
    return fmt::format("{}: its lab's rate stands for it, from {:.1f} departures", little, of_lab);
  if (of_campus >= parameters_.prior_events)
    return fmt::format(
        "{}, nor of its lab ({:.1f}): the campus's rate stands for it, from {:.1f} departures",
        little,
        of_lab,
        of_campus
    );
  return fmt::format(
      "{}, of its lab ({:.1f}) and the campus ({:.1f}): the prior stands for it, one departure in "
      "{}",
      little,
      of_lab,
      of_campus,
      duration(1 / parameters_.prior_rate)
  );
}

/// What lasts, hour by hour.
std::vector<double> HazardModel::week_of(const Subject& asked, std::int64_t at_ms) const {
  const double base_per_hour = base(weight(at_ms)).mean() * 3600;
  std::vector<double> week;
  for (std::size_t hour = 0; hour < kHoursOfWeek; ++hour) {
    const Stretch part{.from_ms = at_ms, .to_ms = at_ms + 1, .hour = hour};
    const Posteriors known = posteriors(asked.node, *asked.lab, part, at_ms);
    double rate = base_per_hour;
    for (const Factor lasting : {kHour, kLab, kLabHour, kNode}) rate *= known[lasting]->mean();
    week.push_back(rate);
  }
  return week;
}

HazardExplanation HazardModel::why(const NodeId& id, const LabId& lab, WallTime at) const {
  const Subject asked = subject(id, lab, to_ms(at));
  const std::int64_t at_ms = std::max(to_ms(at), asked.node.lent_since_ms);
  const Stretch now = stretch(asked.node, *asked.lab, at_ms, at_ms + 1);
  const Posteriors known = posteriors(asked.node, *asked.lab, now, at_ms);

  HazardExplanation out{.node = id, .lab = lab, .is_lent = asked.node.is_lent};
  out.base_per_hour = base(weight(at_ms)).mean() * 3600;
  out.rate_per_hour = rate(id, lab, at) * 3600;
  out.age_s = static_cast<double>(at_ms - asked.node.lent_since_ms) / 1000;
  describe_factors(asked, known, now, out);
  for (const double horizon_s : kHorizons_s) {
    const SurvivalForecast forecast = survival(id, lab, at, horizon_s);
    out.reclaimed_within.push_back(
        {.horizon_s = horizon_s,
         .probability = 1 - forecast.probability(),
         .low = 1 - forecast.quantile(0.95),
         .high = 1 - forecast.quantile(0.05)}
    );
  }
  out.base_events = campus_.base.events / weight(at_ms);
  out.announced = 1 - unannounced_share(asked, at_ms);
  out.prior = prior_of(asked, at_ms);
  out.week_per_hour = week_of(asked, at_ms);
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
  for (const ReclaimChance& chance : why.reclaimed_within) {
    text += fmt::format(
        "  taken back within {:<7} {:5.1f} % ({:.1f} to {:.1f})\n",
        duration(chance.horizon_s),
        100 * chance.probability,
        100 * chance.low,
        100 * chance.high
    );
  }
  if (why.leaves_in_s >= 0) {
    text += fmt::format("  announced to leave in {}\n", duration(why.leaves_in_s));
  }
  if (why.announced > 0.005) {
    text += fmt::format(
        "  {:.0f} % of them as was announced: those count for where guests go, and not for when "
        "they "
        "save\n",
        100 * why.announced
    );
  }
  text += "  " + history_of(why.history) + "\n  " + why.prior + "\n";
  text += fmt::format(
      "  {:<18} {:8.3f} an hour (from {:.1f} departures of the whole campus)\n",
      "base",
      why.base_per_hour,
      why.base_events
  );
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
  return text;
}

}  // namespace rn::reclaim
