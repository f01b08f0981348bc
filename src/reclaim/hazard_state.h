// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "model/fields.h"
#include "model/reclaim.h"

// What the hazard model has learnt, as plain structures: a row per campus, lab and node.
// Times are wall time in milliseconds; 0 = never.
namespace rn::reclaim {

inline constexpr std::size_t kHoursOfWeek = 168;
inline constexpr std::size_t kAgeBands = 6;

/// Evidence for one factor of the hazard, forgotten exponentially.
///
/// `exposure_s` is lent time weighted by all *other* factors except the campus's base rate, so that
/// base · exposure_s is the number of departures expected if this factor were 1, also after the
/// base rate has been corrected. Both are weighted by 2^((t − reference) / half-life) when they are
/// added, and divided by today's weight when they are read: an update costs O(1), not O(factors).
struct Tally {
  double events = 0;
  double exposure_s = 0;

  RN_FIELDS(Tally, events, exposure_s)
};

/// How strongly a factor is held to 1: κ of its Gamma(κ, κ) prior, in events.
struct HazardStrengths {
  double hour = 5;           ///< the campus's hours of the week, within those of like days
  double day_hour = 2;       ///< hours of the day, of workdays and of weekends
  double age = 8;            ///< age bands
  double lab = 2;            ///< labs within the campus
  double lab_hour = 40;      ///< a lab's hours within its own rate and the campus's profile
  double node = 3;           ///< nodes within their lab
  double covariate = 1;      ///< owner present, foreign process, lab-mates reclaimed
  double campus_regime = 5;  ///< what is unusual on the campus these hours
  double lab_regime = 0.7;   ///< and in the lab

  RN_FIELDS(
      HazardStrengths,
      hour,
      day_hour,
      age,
      lab,
      lab_hour,
      node,
      covariate,
      campus_regime,
      lab_regime
  )
};

/// Which choice of strengths a row was written under. Rows of an older one keep what was learnt
/// (the strengths of labs and nodes, all evidence) and take today's for the others, which belong to
/// the half-lives of today's program.
inline constexpr std::uint32_t kHazardEdition = 1;

struct CampusHazard {
  std::uint32_t edition = 0;
  std::int64_t reference_ms = 0;  ///< where the weight of evidence is 1; 0 = nothing seen yet
  Tally base;
  std::vector<Tally> hours;  ///< kHoursOfWeek
  std::vector<Tally> ages;   ///< kAgeBands
  Tally owner_login;
  Tally foreign_process;
  Tally mates_reclaimed;
  Tally regime;  ///< own, short half-life; weighted to `regime_ms`
  std::int64_t regime_ms = 0;
  HazardStrengths strengths;
  double announced = 0;  ///< of base.events: so many came as was announced

  RN_FIELDS(
      CampusHazard,
      edition,
      reference_ms,
      base,
      hours,
      ages,
      owner_login,
      foreign_process,
      mates_reclaimed,
      regime,
      regime_ms,
      strengths,
      announced
  )
};

struct LabHazard {
  LabId lab;
  Tally rate;
  std::vector<Tally> hours;  ///< kHoursOfWeek
  Tally regime;
  std::int64_t regime_ms = 0;
  /// While one of its nodes was reclaimed a short time ago: [from, until).
  std::int64_t contagion_from_ms = 0;
  std::int64_t contagion_until_ms = 0;
  double announced = 0;  ///< of rate.events

  RN_FIELDS(
      LabHazard,
      lab,
      rate,
      hours,
      regime,
      regime_ms,
      contagion_from_ms,
      contagion_until_ms,
      announced
  )
};

struct NodeHazard {
  NodeId node;
  LabId lab;
  Tally rate;
  bool is_lent = false;
  std::int64_t lent_since_ms = 0;
  std::int64_t seen_to_ms = 0;    ///< its exposure is counted up to here
  std::int64_t leaves_at_ms = 0;  ///< announced departure
  bool owner_login = false;
  bool foreign_process = false;
  double announced = 0;  ///< of rate.events

  RN_FIELDS(
      NodeHazard,
      node,
      lab,
      rate,
      is_lent,
      lent_since_ms,
      seen_to_ms,
      leaves_at_ms,
      owner_login,
      foreign_process,
      announced
  )
};

struct HazardState {
  CampusHazard campus;
  std::vector<LabHazard> labs;
  std::vector<NodeHazard> nodes;

  RN_FIELDS(HazardState, campus, labs, nodes)
};

/// kInvalid naming the first thing wrong: a table of the wrong length, a number that is negative or
/// not finite, a strength of 0, a node whose lab is missing, a name twice.
Status check(const HazardState& state);

/// One factor of a node's hazard now, for people and for `reclaim nodes --why`.
struct HazardFactor {
  std::string name;  ///< "hour of week", "age", "lab", …
  double value = 1;  ///< multiplies the base rate
  double low = 1;    ///< 90 % credible band
  double high = 1;
  double events = 0;  ///< departures behind it, after forgetting
  std::string detail;

  RN_FIELDS(HazardFactor, name, value, low, high, events, detail)
};

/// Chance that a node is gone within `horizon_s`, with its 90 % credible band. 1 if a departure is
/// announced for that time.
struct ReclaimChance {
  double horizon_s = 0;
  double probability = 0;
  double low = 0;
  double high = 0;

  RN_FIELDS(ReclaimChance, horizon_s, probability, low, high)
};

struct HazardExplanation {
  NodeId node;
  LabId lab;
  bool is_lent = false;
  double base_per_hour = 0;
  double rate_per_hour = 0;  ///< base · the product of all factors
  double age_s = 0;
  std::vector<HazardFactor> factors;
  std::vector<ReclaimChance> reclaimed_within;  ///< 5 min, 30 min, 2 h, 8 h
  double leaves_in_s = -1;                      ///< announced; negative = nothing announced
  double announced = 0;    ///< share of the departures that come as was announced
  double base_events = 0;  ///< departures of the whole campus behind `base_per_hour`
  std::string prior;       ///< one sentence: what stands in for what is not known of the node
  NodeHistory history;     ///< as counted since it joined; the model does not fill it in
  /// For each hour of the week, local, from Monday 00:00 on: departures an hour if it is lent then,
  /// whatever its age, who is at it and what these days are like.
  std::vector<double> week_per_hour;

  RN_FIELDS(
      HazardExplanation,
      node,
      lab,
      is_lent,
      base_per_hour,
      rate_per_hour,
      age_s,
      factors,
      reclaimed_within,
      leaves_in_s,
      announced,
      base_events,
      prior,
      history,
      week_per_hour
  )
};

/// A few lines of text for a terminal.
std::string describe(const HazardExplanation& explanation);

}  // namespace rn::reclaim
