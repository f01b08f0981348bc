// SPDX-License-Identifier: Apache-2.0
#include "forecast_replay.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace rn::bench {
namespace {

constexpr std::int64_t kGridMs = 5 * kMinuteMs;

struct Rate {
  double events = 0;
  double seconds = 0;
};

using NodeKey = std::pair<std::size_t, std::size_t>;  // lab, node

/// The simple forecasters, which see exactly what the model sees.
class Climatology {
 public:
  void expose(const NodeKey& key, std::int64_t from_ms, std::int64_t to_ms) {
    const double seconds = static_cast<double>(to_ms - from_ms) / 1000;
    all_.seconds += seconds;
    labs_[key.first].seconds += seconds;
    nodes_[key].seconds += seconds;
    hours_[hour(from_ms)].seconds += seconds;
  }

  void count(const NodeKey& key, std::int64_t at_ms) {
    all_.events += 1;
    labs_[key.first].events += 1;
    nodes_[key].events += 1;
    hours_[hour(at_ms - 1)].events += 1;
  }

  double lab_rate(std::size_t lab) const { return shrunk(labs_, lab, 1, mean()); }

  double node_rate(const NodeKey& key) const { return shrunk(nodes_, key, 3, lab_rate(key.first)); }

  /// Hazard of the class within the horizon.
  double by_hour(std::int64_t at_ms, double horizon_s) const {
    constexpr std::int64_t kHourMs = 3'600'000;
    const std::int64_t end_ms = at_ms + static_cast<std::int64_t>(horizon_s * 1000);
    double sum = 0;
    while (at_ms < end_ms) {
      const std::int64_t next = std::min(end_ms, (at_ms / kHourMs + 1) * kHourMs);
      sum += hour_rate(hour(at_ms)) * static_cast<double>(next - at_ms) / 1000;
      at_ms = next;
    }
    return sum;
  }

 private:
  static std::size_t hour(std::int64_t at_ms) {
    return reclaim::hour_of_week(wall_from_ms(at_ms), 0);
  }

  double mean() const { return (all_.events + 1) / (all_.seconds + 35 * 3600.0); }

  double hour_rate(std::size_t hour) const {
    constexpr std::size_t kHours = reclaim::kHoursOfWeek;
    const Rate& before = hours_[(hour + kHours - 1) % kHours];
    const Rate& at = hours_[hour];
    const Rate& after = hours_[(hour + 1) % kHours];
    const double events = before.events / 4 + at.events / 2 + after.events / 4;
    const double seconds = before.seconds / 4 + at.seconds / 2 + after.seconds / 4;
    return (events + 1) / (seconds + 1 / mean());
  }

  template <class Map, class Key>
  static double shrunk(const Map& map, const Key& key, double strength, double parent) {
    const auto found = map.find(key);
    const Rate own = found == map.end() ? Rate{} : found->second;
    return (own.events + strength) / (own.seconds + strength / parent);
  }

  Rate all_;
  std::map<std::size_t, Rate> labs_;
  std::map<NodeKey, Rate> nodes_;
  std::array<Rate, reclaim::kHoursOfWeek> hours_{};
};

struct Event {
  std::int64_t at_ms = 0;
  bool is_end = false;
  const LentSpell* spell = nullptr;
};

class Player {
 public:
  Player(const std::vector<LabTrace>& labs, const Split& split, reclaim::HazardModel model)
      : labs_(labs), split_(split), model_(std::move(model)) {
    result_.rows.resize(std::size(kHorizons_s));
    begin_ms_ = labs.front().begins_ms;
    test_ms_ = begin_ms_ + split.fit_days * kDayMs;
    end_ms_ = begin_ms_ + split.test_until_day * kDayMs;
    for (const LabTrace& lab : labs) {
      Rate tested;
      for (const LentSpell& spell : lab.spells) {
        const std::int64_t from_ms = std::max(spell.from_ms, test_ms_);
        const std::int64_t to_ms = std::min(spell.to_ms, end_ms_);
        if (to_ms > from_ms) tested.seconds += static_cast<double>(to_ms - from_ms) / 1000;
        if (to_ms > from_ms && to_ms == spell.to_ms && spell.is_reclaimed) ++tested.events;
        events_.push_back({spell.from_ms, false, &spell});
        events_.push_back({spell.to_ms, true, &spell});
      }
      hindsight_.push_back(tested.seconds > 0 ? tested.events / tested.seconds : 0);
    }
    // Ends before beginnings, so that a node which is taken and given in a minute is given last.
    std::stable_sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
      return a.at_ms != b.at_ms ? a.at_ms < b.at_ms : a.is_end && !b.is_end;
    });
  }

  Replay play() {
    std::size_t next = 0;
    for (std::int64_t now = begin_ms_; now < end_ms_; now += kMinuteMs) {
      if (now == test_ms_) begin_test();
      if ((now - begin_ms_) % kDayMs == 0 && is_learning(now)) {
        model_.refit_strengths(wall_from_ms(now));
      }
      for (; next < events_.size() && events_[next].at_ms <= now; ++next) apply(events_[next]);
      if (now >= test_ms_) rate_spells(now);
      if ((now - begin_ms_) % kGridMs != 0) continue;
      learn_to(now);
      if (now >= test_ms_) forecast(now);
    }
    result_.model = model_;
    return std::move(result_);
  }

 private:
  bool is_learning(std::int64_t now) const {
    return now <= test_ms_ || split_.learning != Learning::kFrozen;
  }

  bool is_shown(std::size_t lab, std::int64_t now) const {
    if (split_.learning == Learning::kAllLabs) return true;
    if (now < test_ms_) return split_.fit_labs[lab];
    return split_.learning == Learning::kOnline;
  }

  static NodeKey key_of(const LentSpell& spell) { return {spell.lab, spell.node}; }

  NodeId name(const LentSpell& spell) const { return node_name(labs_[spell.lab], spell.node); }

  LabId lab(const LentSpell& spell) const { return LabId(labs_[spell.lab].name); }

  /// From here on, all labs may be shown: those that are lent already have an age.
  void begin_test() {
    learn_to(test_ms_);
    if (split_.learning != Learning::kOnline) return;
    for (const auto& [key, spell] : lent_) show(*spell, test_ms_);
  }

  void show(const LentSpell& spell, std::int64_t now) {
    model_.lend(name(spell), lab(spell), wall_from_ms(now), wall_from_ms(spell.from_ms));
    counted_to_.emplace(key_of(spell), now);
  }

  void learn_to(std::int64_t now) {
    for (auto& [key, to_ms] : counted_to_) {
      if (is_shown(key.first, now)) climate_.expose(key, to_ms, now);
      to_ms = now;
    }
    if (is_learning(now)) model_.advance_all(wall_from_ms(now));
  }

  void apply(const Event& event) {
    const LentSpell& spell = *event.spell;
    if (!event.is_end) {
      lent_[key_of(spell)] = &spell;
      if (is_shown(spell.lab, event.at_ms)) show(spell, event.at_ms);
      if (event.at_ms >= test_ms_ && split_.test_labs[spell.lab]) {
        ++result_.spells;
        const std::int64_t grid = (event.at_ms / kGridMs + 1) * kGridMs;
        if (event.at_ms % kGridMs != 0) add_hazard(spell, event.at_ms, grid);
      }
      return;
    }
    lent_.erase(key_of(spell));
    end_rating(spell);
    if (is_shown(spell.lab, event.at_ms)) end_shown(spell, event.at_ms);
    if (event.at_ms >= test_ms_ && split_.test_labs[spell.lab] && spell.is_reclaimed) {
      ++result_.reclaims;
      result_.residuals.push_back(hazard_[key_of(spell)]);
      hazard_[key_of(spell)] = 0;
    }
  }

  void end_shown(const LentSpell& spell, std::int64_t now) {
    const auto counted = counted_to_.find(key_of(spell));
    if (counted != counted_to_.end()) {
      climate_.expose(counted->first, counted->second, now);
      counted_to_.erase(counted);
    }
    if (spell.is_reclaimed) {
      climate_.count(key_of(spell), now);
      ++known_reclaims_[key_of(spell)];
      model_.reclaimed(name(spell), wall_from_ms(now));
    } else {
      model_.withdrawn(name(spell), wall_from_ms(now));
    }
  }

  /// The model that is asked: as learnt, or for a frozen one a copy that knows who is lent now.
  reclaim::HazardModel frozen(std::int64_t now) const {
    reclaim::HazardModel copy = model_;
    for (const auto& [key, spell] : lent_) {
      copy.lend(name(*spell), lab(*spell), wall_from_ms(now), wall_from_ms(spell->from_ms));
    }
    return copy;
  }

  /// The hazard of this minute for every spell that began in the tested days.
  void rate_spells(std::int64_t now) {
    if (split_.learning == Learning::kFrozen) return;  // the schedule is scored with a live model
    for (const auto& [key, spell] : lent_) {
      if (!split_.test_labs[spell->lab] || spell->from_ms < test_ms_) continue;
      RatedSpell& rated = rating_[key];
      if (rated.hazard.empty()) {
        rated.spell = *spell;
        rated.constant_rate = climate_.lab_rate(spell->lab);
      }
      rated.hazard.push_back(model_.rate(name(*spell), lab(*spell), wall_from_ms(now)));
    }
  }

  void end_rating(const LentSpell& spell) {
    const auto found = rating_.find(key_of(spell));
    if (found == rating_.end()) return;
    if (spell.is_reclaimed) result_.rated.push_back(std::move(found->second));
    rating_.erase(found);
  }

  void add_hazard(const LentSpell& spell, std::int64_t from_ms, std::int64_t to_ms) {
    const std::int64_t end_ms = std::min(to_ms, spell.to_ms);
    const auto horizon_s = static_cast<double>(end_ms - from_ms) / 1000;
    if (split_.learning == Learning::kFrozen) {
      hazard_[key_of(spell)] +=
          frozen(from_ms)
              .survival(name(spell), lab(spell), wall_from_ms(from_ms), horizon_s)
              .expected_departures;
      return;
    }
    hazard_[key_of(spell)] +=
        model_.survival(name(spell), lab(spell), wall_from_ms(from_ms), horizon_s)
            .expected_departures;
  }

  void forecast(std::int64_t now) {
    const bool is_frozen = split_.learning == Learning::kFrozen;
    const reclaim::HazardModel asked = is_frozen ? frozen(now) : reclaim::HazardModel();
    const reclaim::HazardModel& model = is_frozen ? asked : model_;
    for (const auto& [key, spell] : lent_) {
      if (!split_.test_labs[spell->lab] || spell->to_ms <= now) continue;
      const std::int64_t seen_ms = std::min(spell->to_ms, end_ms_);
      ForecastRow row{.observed_s = static_cast<double>(seen_ms - now) / 1000};
      row.is_reclaimed = spell->is_reclaimed && spell->to_ms <= end_ms_;
      row.block = spell->lab * 1000 + static_cast<std::size_t>((now - begin_ms_) / kDayMs);
      const auto known = known_reclaims_.find(key);
      row.known_reclaims = known == known_reclaims_.end() ? 0 : known->second;
      for (std::size_t h = 0; h < std::size(kHorizons_s); ++h) {
        const double horizon_s = kHorizons_s[h];
        row.stays = {
            model.survival(name(*spell), lab(*spell), wall_from_ms(now), horizon_s).probability(),
            std::exp(-climate_.lab_rate(key.first) * horizon_s),
            std::exp(-climate_.node_rate(key) * horizon_s),
            std::exp(-climate_.by_hour(now, horizon_s)),
            std::exp(-hindsight_[key.first] * horizon_s)};
        result_.rows[h].push_back(row);
      }
      hazard_[key] +=
          model
              .survival(
                  name(*spell), lab(*spell), wall_from_ms(now), std::min(300.0, row.observed_s)
              )
              .expected_departures;
    }
  }

  const std::vector<LabTrace>& labs_;
  const Split& split_;
  reclaim::HazardModel model_;
  Climatology climate_;
  std::vector<double> hindsight_;  ///< 1/s, by lab
  std::vector<Event> events_;
  std::map<NodeKey, const LentSpell*> lent_;
  std::map<NodeKey, std::int64_t> counted_to_;  ///< of nodes that are shown
  std::map<NodeKey, std::size_t> known_reclaims_;
  std::map<NodeKey, RatedSpell> rating_;
  std::map<NodeKey, double> hazard_;  ///< since the node's last reclaim
  std::int64_t begin_ms_ = 0;
  std::int64_t test_ms_ = 0;
  std::int64_t end_ms_ = 0;
  Replay result_;
};

}  // namespace

NodeId node_name(const LabTrace& lab, std::size_t node) {
  return NodeId(lab.name + "/" + std::to_string(node));
}

Replay replay_forecasts(
    const std::vector<LabTrace>& labs,
    const Split& split,
    const reclaim::HazardParameters& parameters,
    const reclaim::HazardStrengths& strengths
) {
  reclaim::HazardState start = reclaim::HazardModel(parameters).state();
  start.campus.strengths = strengths;
  return Player(labs, split, *reclaim::HazardModel::restore(parameters, std::move(start))).play();
}

}  // namespace rn::bench
