// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/ids.h"
#include "base/time.h"
#include "reclaim/gamma.h"
#include "reclaim/hazard_state.h"

// How likely an owner takes a node back, learnt from what owners did. Pure: time is passed in.
//
// Piecewise-exponential hazard of node i of lab l, in departures per second
// of lent time:
//
//   h = base · H[hour of week] · g[age band] · R_lab · D_lab[hour of week] · r_node
//       · owner login · foreign process · lab-mates just reclaimed · regime_campus · regime_lab
//
// Every factor f has a Gamma(κ, κ) prior around 1 and the posterior mean (κ + n) / (κ + E), where n
// counts its departures and E is what all *other* factors together expected in its exposure: a
// factor explains only what the others do not. Hours are smoothed circularly by (¼, ½, ¼); those of
// the campus's week have a prior around the same hour of all workdays, or of the weekend.
// Evidence is forgotten with a half-life of 21 days; the regimes (holidays, deadlines, a burst of
// work) are the same update with a half-life of six hours, so they fade to 1 in a forecast.
// Withdrawals by us end the exposure and count nothing (right-censoring). An announced departure is
// a deadline after which nothing survives; when it has come it counts as any other, for it
// displaces guests, and as one of the share that was announced, for it takes no work with it.
namespace rn::reclaim {

struct HazardParameters {
  double prior_rate = 1.0 / (35 * 3600);  ///< 1/s; mean of interrupted runs at Salad
  double prior_events = 1;                ///< its weight
  double half_life_s = 21 * 86400.0;
  double campus_regime_half_life_s = 6 * 3600.0;
  double lab_regime_half_life_s = 6 * 3600.0;
  double contagion_s = 15 * 60.0;  ///< for how long a reclaimed lab-mate raises the hazard
  double presence_s = 30 * 60.0;   ///< for how long a forecast expects today's presence to last
  std::int64_t utc_offset_s = 0;   ///< of the campus's clocks: hours of the week are local
  /// Of a study: all factors are 1, so that every owner is as any other, at any hour and age. What
  /// is announced is known all the same.
  bool is_constant = false;
};

/// How a departure came.
enum class Warning : std::uint8_t {
  kNone,       ///< at once, or with a notice
  kAnnounced,  ///< as was announced
};

/// What stands for the owner's presence on a node, as its agent last saw it.
struct OwnerPresence {
  bool is_logged_in = false;
  bool has_foreign_process = false;  ///< on a lent GPU, and not ours

  friend bool operator==(const OwnerPresence&, const OwnerPresence&) = default;
};

/// Chance of staying, with what is not known about the hazard itself.
struct SurvivalForecast {
  /// Departures expected within the horizon, at the posterior means.
  double expected_departures = 0;
  /// Shape of the Gamma posterior of the hazard as a whole (mean 1): the more evidence, the larger.
  double shape = 1;
  /// Variance of the hazard (mean 1) that no evidence makes small, on top of 1 / shape: regimes
  /// come and go within hours.
  double unrest = 0;
  bool leaves_before = false;  ///< an announced departure lies within the horizon

  /// E[exp(−r·Λ)] over r ~ Gamma(k, k) with 1 / k = 1 / shape + unrest: (1 + Λ / k)^−k, which is
  /// exp(−Λ) once much is known. This is the probability to quote: exp(−mean) would be too
  /// pessimistic about little-known nodes.
  double probability() const;
  /// The survival that is exceeded with probability 1 − q: 0.05 and 0.95 bound the 90 % credible
  /// band, 0.25 is the risk-averse figure for destinations. 0 < q < 1.
  double quantile(double q) const;

 private:
  double spread() const { return 1 / (1 / shape + unrest); }
};

/// The constant rate (1/s) under which this survival over the horizon would be seen: for rules that
/// take rates (choose_copies, decide_migrate_back), where quantile(0.25) gives the risk-averse one.
/// At most −ln(1e-9) / horizon; 0 for an empty horizon.
double constant_rate(double survival, double horizon_s);

/// Value type: copies are independent, no clocks, no I/O, not thread-safe. Calls about one node
/// must not go back in time; a time before what was already counted is taken as that time.
class HazardModel {
 public:
  explicit HazardModel(HazardParameters parameters = {});

  /// kInvalid as check(HazardState) says. A node whose exposure ends long before `seen_to` was
  /// unobserved meanwhile: tell the model with withdrawn() and lend() what is known.
  static Result<HazardModel> restore(HazardParameters parameters, HazardState state);
  HazardState state() const;

  const CampusHazard& campus() const { return campus_; }

  /// nullptr if unknown. Valid until the next change.
  const LabHazard* find_lab(const LabId& lab) const;
  const NodeHazard* find_node(const NodeId& node) const;

  // ---- what happened

  /// The node takes guests; its exposure counts from `at`, its age from `lent_since` (a node that
  /// was lent before we saw it) or `at`. Nothing happens if it is lent already in the same lab. A
  /// node that moves to another lab begins anew.
  void lend(
      const NodeId& node,
      const LabId& lab,
      WallTime at,
      std::optional<WallTime> lent_since = std::nullopt
  );
  /// Counts a lent node's exposure up to `to`. O(hours since the last call); call each minute or
  /// so.
  void advance(const NodeId& node, WallTime to);
  void advance_all(WallTime to);

  /// The campus's clocks changed, as for summer time: hours are counted so from where each node was
  /// advanced to.
  void set_utc_offset(std::int64_t utc_offset_s) { parameters_.utc_offset_s = utc_offset_s; }

  std::int64_t utc_offset_s() const { return parameters_.utc_offset_s; }

  void set_presence(const NodeId& node, OwnerPresence presence, WallTime at);
  /// `leaves_at` = when it will be gone, nullopt = nothing announced any more.
  void announce(const NodeId& node, std::optional<WallTime> leaves_at, WallTime at);
  /// The owner took it back, or it was lost. A node that is not lent was not at risk: no effect.
  /// O(nodes of its lab): they are advanced, because their hazard rises from here on. Nodes of a
  /// lab that go in the same millisecond do not count as warnings for each other.
  void reclaimed(const NodeId& node, WallTime at, Warning warning = Warning::kNone);
  /// We left, a window closed, or a departure came that had been known long before: exposure ends,
  /// nothing is counted.
  void withdrawn(const NodeId& node, WallTime at);
  void forget(const NodeId& node);

  /// Learns the prior strengths of hours, labs, lab hours and nodes by empirical Bayes. O(all
  /// tallies · 30); once a day is plenty.
  void refit_strengths(WallTime at);

  // ---- what to expect

  bool is_known(const NodeId& node) const { return nodes_.contains(node); }

  /// Departures per second at `at`, posterior mean. A node that is not lent counts as lent since
  /// `at`; an unknown node is its lab's newest, an unknown lab the campus's.
  double rate(const NodeId& node, const LabId& lab, WallTime at) const;
  /// Of its departures, those that nobody announces: 1 where nothing was seen yet, else the node's
  /// share within its lab's within the campus's. In (0, 1].
  double unannounced_share(const NodeId& node, const LabId& lab, WallTime at) const;
  /// Within `horizon_s` (clamped to 0 … 14 days) from `at`, if it is lent and nothing happens in
  /// between. O(hours of the horizon).
  SurvivalForecast survival(const NodeId& node, const LabId& lab, WallTime at, double horizon_s)
      const;
  HazardExplanation why(const NodeId& node, const LabId& lab, WallTime at) const;

 private:
  enum Factor : std::size_t {
    kHour,
    kAge,
    kLab,
    kLabHour,
    kNode,
    kLogin,
    kForeign,
    kMates,
    kCampusRegime,
    kLabRegime,
    kFactorCount
  };

  using Posteriors = std::array<std::optional<Gamma>, kFactorCount>;  // none: does not apply now

  /// A stretch in which no factor changes.
  struct Stretch {
    std::int64_t from_ms = 0;
    std::int64_t to_ms = 0;
    std::size_t hour = 0;
    std::size_t age_band = 0;
    bool login = false;
    bool foreign = false;
    bool mates = false;
  };

  /// Who is asked about, with what is known of them; neutral where nothing is.
  struct Subject {
    NodeHazard node;
    const LabHazard* lab = nullptr;
  };

  Subject subject(const NodeId& node, const LabId& lab, std::int64_t at_ms) const;
  Stretch stretch(
      const NodeHazard& node, const LabHazard& lab, std::int64_t from_ms, std::int64_t to_ms
  ) const;
  double weight(std::int64_t at_ms) const;
  Gamma base(double weight) const;
  Posteriors posteriors(
      const NodeHazard& node, const LabHazard& lab, const Stretch& stretch, std::int64_t at_ms
  ) const;
  Gamma hour_posterior(
      const std::vector<Tally>& hours,
      std::size_t hour,
      double prior_mean,
      double strength,
      double weight
  ) const;
  double usual_hour(std::size_t hour, double weight) const;
  Gamma regime_posterior(
      const Tally& regime, double age_s, double half_life_s, double strength, double base_rate
  ) const;
  std::array<Tally*, kFactorCount> tallies(
      NodeHazard& node, LabHazard& lab, const Stretch& stretch
  );
  void fade_regimes(LabHazard& lab, std::int64_t at_ms);
  double familiarity(const Posteriors& known, std::int64_t at_ms) const;
  void count_exposure(NodeHazard& node, LabHazard& lab, const Stretch& stretch);
  void count_departure(NodeHazard& node, LabHazard& lab, std::int64_t at_ms, Warning warning);
  double unannounced_share(const Subject& subject, std::int64_t at_ms) const;
  void rebase(std::int64_t at_ms);
  void advance(NodeHazard& node, std::int64_t to_ms);
  LabHazard& lab_of(const LabId& lab);
  std::vector<EventCount> counts(const std::vector<Tally>& tallies, double weight) const;
  void describe_factors(
      const Subject& subject, const Posteriors& known, const Stretch& now, HazardExplanation& out
  ) const;
  std::string prior_of(const Subject& subject, std::int64_t at_ms) const;
  std::vector<double> week_of(const Subject& subject, std::int64_t at_ms) const;

  HazardParameters parameters_;
  CampusHazard campus_;
  std::map<LabId, LabHazard> labs_;
  std::map<NodeId, NodeHazard> nodes_;
  LabHazard no_lab_;  ///< what is known of a lab that nobody has seen yet: nothing
};

/// 0 = Monday 00:00–01:00 local time.
std::size_t hour_of_week(WallTime at, std::int64_t utc_offset_s);

/// Ages at which bands begin, in seconds since the node was lent.
inline constexpr std::array<double, kAgeBands> kAgeBandStarts_s = {
    0, 600, 1800, 7200, 8 * 3600., 24 * 3600.};

}  // namespace rn::reclaim
