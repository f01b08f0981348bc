// SPDX-License-Identifier: Apache-2.0
#include "reclaim/hazard.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "model/codec.h"

namespace rn::reclaim {
namespace {

constexpr std::int64_t kMinuteMs = 60'000;
constexpr std::int64_t kHourMs = 60 * kMinuteMs;
constexpr std::int64_t kDayMs = 24 * kHourMs;
constexpr std::int64_t kMonday = 1'588'550'400'000;  // 4 May 2020, 00:00 UTC
const LabId kLab("lab-a");
const LabId kOtherLab("lab-b");

WallTime wall(std::int64_t ms) {
  return wall_from_ms(kMonday + ms);
}

NodeId node(int number) {
  return NodeId("n-" + std::to_string(number));
}

/// A campus whose owners take nodes back at `rate(node, time)` 1/s, and give them back after an
/// hour. `rate` is looked at each minute.
template <class Rate>
HazardModel learn(
    int nodes, std::int64_t span, const Rate& rate, HazardModel model = HazardModel()
) {
  SeededRng rng(23);
  std::vector<std::int64_t> back_at(static_cast<std::size_t>(nodes), 0);
  for (std::int64_t t = 0; t < span; t += kMinuteMs) {
    for (int i = 0; i < nodes; ++i) {
      auto& back = back_at[static_cast<std::size_t>(i)];
      if (t < back) continue;
      model.lend(node(i), kLab, wall(t));
      if (rng.unit() < -std::expm1(-60 * rate(i, t))) {
        model.reclaimed(node(i), wall(t + kMinuteMs));
        back = t + kHourMs;
      } else if (t % (10 * kMinuteMs) == 0) {
        model.advance(node(i), wall(t + kMinuteMs));
      }
    }
  }
  return model;
}

TEST(Hazard, a_new_campus_has_the_prior) {
  const HazardModel model;

  EXPECT_NEAR(model.rate(node(1), kLab, wall(0)), 1.0 / (35 * 3600), 1e-12);
  EXPECT_FALSE(model.is_known(node(1)));
}

TEST(Hazard, learns_a_constant_rate_and_becomes_sure_of_it) {
  const auto constant = [](int, std::int64_t) { return 1 / (4 * 3600.0); };
  const HazardModel week = learn(6, 7 * kDayMs, constant);
  const HazardModel months = learn(6, 60 * kDayMs, constant);

  EXPECT_NEAR(months.rate(node(1), kLab, wall(60 * kDayMs)) * 4 * 3600, 1, 0.25);
  const SurvivalForecast two_hours = months.survival(node(1), kLab, wall(60 * kDayMs), 7200);
  EXPECT_NEAR(two_hours.probability(), std::exp(-0.5), 0.06);
  const SurvivalForecast earlier = week.survival(node(1), kLab, wall(7 * kDayMs), 7200);
  EXPECT_GT(two_hours.shape, earlier.shape);
}

TEST(
    Hazard, rates_of_a_rarely_and_an_often_reclaimed_node_come_apart_and_a_new_one_is_like_its_lab
) {
  const HazardModel model = learn(4, 21 * kDayMs, [](int i, std::int64_t) {
    return i == 0 ? 1 / (30 * 3600.0) : 1 / (2 * 3600.0);
  });
  const WallTime now = wall(21 * kDayMs);

  const double calm = model.rate(node(0), kLab, now);
  const double restless = model.rate(node(1), kLab, now);
  const double unknown = model.rate(node(9), kLab, now);
  const double elsewhere = model.rate(node(9), kOtherLab, now);

  EXPECT_GT(restless, 5 * calm);
  EXPECT_GT(unknown, 2 * calm);
  EXPECT_GT(elsewhere, calm);
  EXPECT_LT(
      model.survival(node(9), kOtherLab, now, 7200).shape,
      model.survival(node(1), kLab, now, 7200).shape
  );
}

TEST(Hazard, knows_the_hour_of_the_week_and_smooths_it_over_its_neighbours) {
  HazardModel model;
  SeededRng rng(29);
  constexpr int kWeeks = 8;
  for (int day = 0; day < 7 * kWeeks; ++day) {  // each lab comes on most Mondays, between 9 and 10
    for (int i = 0; i < 12; ++i) {
      const LabId lab("lab-" + std::to_string(i));
      const std::int64_t t = day * kDayMs;
      model.lend(node(i), lab, wall(t));
      const std::int64_t end =
          t + 9 * kHourMs + static_cast<std::int64_t>(rng.below(60)) * kMinuteMs;
      if (day % 7 == 0 && rng.unit() < 0.9) model.reclaimed(node(i), wall(end));
    }
  }
  const auto rate = [&](std::int64_t hour) {
    return model.rate(NodeId("n-new"), kLab, wall(kWeeks * 7 * kDayMs + hour * kHourMs));
  };

  EXPECT_GT(rate(9), 2.5 * rate(33));
  EXPECT_GT(rate(8), 1.5 * rate(33));
  EXPECT_GT(rate(9), 1.2 * rate(8));
  // A forecast made on Sunday evening sees it coming.
  const WallTime sunday = wall(kWeeks * 7 * kDayMs - 2 * kHourMs);
  const auto expected = [&](double horizon_s) {
    return model.survival(NodeId("n-new"), kLab, sunday, horizon_s).expected_departures;
  };
  EXPECT_GT(
      expected(13 * 3600) - expected(10 * 3600), 1.5 * (expected(8 * 3600) - expected(5 * 3600))
  );
}

TEST(Hazard, its_explanation_has_each_hour_of_the_week_by_what_lasts) {
  HazardModel model;
  for (int day = 0; day < 56; ++day) {  // comes on Mondays at half past nine
    model.lend(node(0), kLab, wall(day * kDayMs));
    if (day % 7 == 0)
      model.reclaimed(node(0), wall(day * kDayMs + 9 * kHourMs + 30 * kMinuteMs));
    else
      model.advance(node(0), wall((day + 1) * kDayMs));
  }
  const WallTime thursday = wall(59 * kDayMs + 15 * kHourMs + 30 * kMinuteMs);

  const HazardExplanation why = model.why(node(0), kLab, thursday);

  ASSERT_EQ(why.week_per_hour.size(), kHoursOfWeek);
  EXPECT_GT(why.week_per_hour[9], 1.2 * why.week_per_hour[9 + 24]);
  EXPECT_GT(why.week_per_hour[9], 1.5 * why.week_per_hour[15]);
  double now = why.base_per_hour;
  for (const HazardFactor& factor : why.factors) {
    const bool is_of_today = factor.name == "age" || factor.name.ends_with("these hours");
    if (!is_of_today) now *= factor.value;
  }
  EXPECT_NEAR(why.week_per_hour[3 * 24 + 15], now, 1e-9);
}

TEST(Hazard, hours_of_the_week_are_local) {
  EXPECT_EQ(hour_of_week(wall(0), 0), 0u);
  EXPECT_EQ(hour_of_week(wall(-1), 0), 167u);
  EXPECT_EQ(hour_of_week(wall(0), 8 * 3600), 8u);
  EXPECT_EQ(hour_of_week(wall(0), -3600), 167u);
  EXPECT_EQ(hour_of_week(wall_from_ms(0), 0), 72u);  // Thursday
}

TEST(Hazard, falls_with_age_where_short_stays_are_common) {
  HazardModel model;
  std::int64_t t = 0;
  for (int round = 0; round < 200; ++round) {  // three short stays, then a long one
    const std::int64_t stay = round % 4 == 3 ? 30 * kHourMs : 8 * kMinuteMs;
    model.lend(node(0), kLab, wall(t));
    model.reclaimed(node(0), wall(t + stay));
    t += stay + kHourMs;
  }

  model.lend(node(0), kLab, wall(t));
  const double young = model.rate(node(0), kLab, wall(t + 5 * kMinuteMs));
  const double old = model.rate(node(0), kLab, wall(t + 12 * kHourMs));

  EXPECT_GT(young, 20 * old);
}

/// A warning whose weight is learnt, and which fades.
void is_learnt(const OwnerPresence& presence) {
  HazardModel model;
  SeededRng rng(5);
  std::int64_t t = 0;
  for (int round = 0; round < 300; ++round) {  // is there, and takes it back soon
    model.lend(node(0), kLab, wall(t));
    model.set_presence(node(0), presence, wall(t + 10 * kHourMs));
    const auto minutes = static_cast<std::int64_t>(1 + rng.below(20));
    model.reclaimed(node(0), wall(t + 10 * kHourMs + minutes * kMinuteMs));
    model.set_presence(node(0), {}, wall(t + 11 * kHourMs));
    t += 12 * kHourMs;
  }
  model.lend(node(0), kLab, wall(t));
  t += kHourMs;
  const double away = model.rate(node(0), kLab, wall(t));
  const double away_8h = model.survival(node(0), kLab, wall(t), 8 * 3600).expected_departures;

  model.set_presence(node(0), presence, wall(t));

  EXPECT_GT(model.rate(node(0), kLab, wall(t)), 10 * away);
  // For half an hour the forecast counts on it, then on nothing unusual.
  const double half = model.survival(node(0), kLab, wall(t), 1800).expected_departures;
  const double eight = model.survival(node(0), kLab, wall(t), 8 * 3600).expected_departures;
  EXPECT_LT(eight - half, away_8h);

  // Each for itself: the other one has warned of nothing.
  model.set_presence(node(0), {!presence.is_logged_in, !presence.has_foreign_process}, wall(t));
  EXPECT_LT(model.rate(node(0), kLab, wall(t)), 2 * away);
}

TEST(Hazard, a_login_of_the_owner_is_a_warning_whose_weight_is_learnt_and_which_fades) {
  is_learnt({.is_logged_in = true});
}

TEST(Hazard, so_is_a_process_of_the_owner_on_a_lent_gpu) {
  is_learnt({.has_foreign_process = true});
}

TEST(Hazard, a_reclaimed_lab_mate_is_a_warning_for_a_quarter_of_an_hour) {
  HazardModel model;
  std::int64_t t = 0;
  for (int round = 0; round < 60; ++round) {
    model.lend(node(0), kLab, wall(t));
    model.lend(node(1), kLab, wall(t));
    model.reclaimed(node(0), wall(t + 20 * kHourMs));
    model.reclaimed(node(1), wall(t + 20 * kHourMs + 5 * kMinuteMs));
    t += kDayMs;
  }
  model.lend(node(0), kLab, wall(t));
  model.lend(node(1), kLab, wall(t));
  t += 10 * kHourMs;
  const double calm = model.rate(node(1), kLab, wall(t));

  model.reclaimed(node(0), wall(t));

  EXPECT_GT(model.rate(node(1), kLab, wall(t + 14 * kMinuteMs)), 10 * calm);
  EXPECT_LT(model.rate(node(1), kLab, wall(t + 16 * kMinuteMs)), 3 * calm);
}

TEST(Hazard, nodes_that_go_together_do_not_warn_each_other_whatever_the_order) {
  HazardModel forward;
  HazardModel backward;
  for (HazardModel* model : {&forward, &backward}) {
    model->lend(node(0), kLab, wall(0));
    model->lend(node(1), kLab, wall(0));
  }

  forward.reclaimed(node(0), wall(kHourMs));
  forward.reclaimed(node(1), wall(kHourMs));
  backward.reclaimed(node(1), wall(kHourMs));
  backward.reclaimed(node(0), wall(kHourMs));

  EXPECT_EQ(forward.state(), backward.state());
  EXPECT_EQ(forward.state().campus.mates_reclaimed.events, 0);
}

TEST(Hazard, what_we_end_ourselves_is_no_departure) {
  HazardModel withdrawn;
  HazardModel taken;
  for (int day = 0; day < 20; ++day) {
    for (HazardModel* model : {&withdrawn, &taken}) model->lend(node(0), kLab, wall(day * kDayMs));
    withdrawn.withdrawn(node(0), wall(day * kDayMs + 10 * kHourMs));
    taken.reclaimed(node(0), wall(day * kDayMs + 10 * kHourMs));
  }

  EXPECT_EQ(withdrawn.state().campus.base.events, 0);
  EXPECT_GT(withdrawn.state().campus.base.exposure_s, 0);
  EXPECT_LT(withdrawn.rate(node(0), kLab, wall(20 * kDayMs)), 1.0 / (35 * 3600));
  EXPECT_GT(taken.rate(node(0), kLab, wall(20 * kDayMs)), 1.0 / (15 * 3600));
}

TEST(Hazard, an_announced_departure_is_a_deadline_and_not_a_risk) {
  HazardModel model;
  model.lend(node(0), kLab, wall(0));
  model.advance(node(0), wall(kMinuteMs));
  const double before = model.rate(node(0), kLab, wall(kMinuteMs));

  model.announce(node(0), wall(2 * kHourMs), wall(kMinuteMs));

  EXPECT_EQ(model.rate(node(0), kLab, wall(kMinuteMs)), before);
  EXPECT_GT(model.survival(node(0), kLab, wall(kMinuteMs), 7000).probability(), 0.9);
  EXPECT_EQ(model.survival(node(0), kLab, wall(kMinuteMs), 7200).probability(), 0);
  EXPECT_EQ(model.survival(node(0), kLab, wall(kMinuteMs), 7200).quantile(0.95), 0);
  EXPECT_NEAR(model.why(node(0), kLab, wall(kMinuteMs)).leaves_in_s, 7140, 1e-9);

  model.announce(node(0), std::nullopt, wall(kMinuteMs));
  EXPECT_GT(model.survival(node(0), kLab, wall(kMinuteMs), 7200).probability(), 0.9);
}

TEST(Hazard, who_comes_as_announced_counts_as_any_other_and_is_told_apart) {
  HazardModel sudden;
  HazardModel announced;
  EXPECT_EQ(sudden.unannounced_share(node(0), kLab, wall(0)), 1) << "nothing was seen yet";
  for (int day = 0; day < 20; ++day) {
    for (HazardModel* model : {&sudden, &announced}) {
      model->lend(node(0), kLab, wall(day * kDayMs));
      const Warning warning = model == &announced ? Warning::kAnnounced : Warning::kNone;
      model->reclaimed(node(0), wall(day * kDayMs + 10 * kHourMs), warning);
    }
  }
  const WallTime now = wall(20 * kDayMs);

  EXPECT_EQ(announced.rate(node(0), kLab, now), sudden.rate(node(0), kLab, now));
  EXPECT_EQ(sudden.unannounced_share(node(0), kLab, now), 1);
  EXPECT_LT(announced.unannounced_share(node(0), kLab, now), 0.05);
  // Of a node that nobody has seen its lab says it, and of another lab the campus.
  const double of_lab = announced.unannounced_share(node(1), kLab, now);
  const double of_campus = announced.unannounced_share(node(2), kOtherLab, now);
  EXPECT_LT(announced.unannounced_share(node(0), kLab, now), of_lab);
  EXPECT_LT(of_lab, of_campus);
  EXPECT_LT(of_campus, 0.15);
  const HazardExplanation why = announced.why(node(0), kLab, now);
  EXPECT_NE(describe(why).find("% of them as was announced"), std::string::npos) << describe(why);
  // Two years later, when all evidence was divided once, the shares are the same.
  announced.lend(node(0), kLab, wall(20 * kDayMs));
  announced.advance(node(0), wall(750 * kDayMs));
  ASSERT_NE(announced.campus().reference_ms, sudden.campus().reference_ms);
  EXPECT_TRUE(check(announced.state()).has_value());
}

TEST(Hazard, a_deadline_ends_with_the_stay_that_it_was_announced_for) {
  for (const bool was_taken : {true, false}) {
    HazardModel model;
    model.lend(node(0), kLab, wall(0));
    model.announce(node(0), wall(2 * kHourMs), wall(kMinuteMs));
    if (was_taken) {
      model.reclaimed(node(0), wall(kHourMs));
    } else {
      model.withdrawn(node(0), wall(kHourMs));
    }
    model.lend(node(0), kLab, wall(kHourMs + kMinuteMs));

    EXPECT_FALSE(model.survival(node(0), kLab, wall(kHourMs + kMinuteMs), 7200).leaves_before);
  }
}

TEST(Hazard, a_node_that_moved_to_another_lab_is_unknown_there) {
  const HazardModel model = learn(2, 10 * kDayMs, [](int, std::int64_t) { return 1 / 7200.0; });
  const WallTime now = wall(10 * kDayMs);

  EXPECT_EQ(model.rate(node(1), kOtherLab, now), model.rate(node(99), kOtherLab, now));
}

TEST(Hazard, an_unusual_day_is_noticed_at_once_and_forgotten_soon) {
  HazardModel model = learn(6, 20 * kDayMs, [](int, std::int64_t) { return 1 / (20 * 3600.0); });
  const std::int64_t t = 20 * kDayMs;
  const double usual = model.rate(node(0), kLab, wall(t));
  for (int round = 0; round < 20; ++round) {
    model.lend(node(1), kLab, wall(t + round * 30 * kMinuteMs));
    model.reclaimed(node(1), wall(t + round * 30 * kMinuteMs + 20 * kMinuteMs));
  }

  const double unusual = model.rate(node(7), kLab, wall(t + 10 * kHourMs + 10 * kMinuteMs));
  const double after = model.rate(node(7), kLab, wall(t + 3 * kDayMs));

  EXPECT_GT(unusual, 1.4 * usual);
  EXPECT_LT(after, 0.8 * unusual);
}

/// Of six nodes, against a true rate.
double mean_rate(const HazardModel& model, std::int64_t at, double true_rate) {
  double sum = 0;
  for (int i = 0; i < 6; ++i) sum += model.rate(node(i), kLab, wall(at)) / true_rate / 6;
  return sum;
}

TEST(Hazard, a_dozen_reclaims_close_half_of_the_gap_when_owners_come_twice_as_often) {
  constexpr double kBefore = 1 / (10 * 3600.0);
  constexpr std::int64_t kDays = 14 * kDayMs;
  constexpr int kSeeds = 16;
  constexpr int kReclaims = 12;
  const HazardModel learnt = learn(6, kDays, [](int, std::int64_t) { return kBefore; });
  double before = 0;
  double followed = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    HazardModel model = learnt;
    SeededRng rng(static_cast<std::uint64_t>(seed) + 1);
    before += mean_rate(model, kDays, 2 * kBefore) / kSeeds;
    std::int64_t t = kDays;
    for (int reclaims = 0; reclaims < kReclaims; t += kMinuteMs) {
      for (int i = 0; i < 6; ++i) {
        model.lend(node(i), kLab, wall(t));
        if (rng.unit() >= -std::expm1(-60 * 2 * kBefore)) continue;
        model.reclaimed(node(i), wall(t + kMinuteMs));
        ++reclaims;
      }
    }
    // An hour later nobody is warned by a lab-mate any more.
    t += kHourMs;
    model.advance_all(wall(t));
    followed += mean_rate(model, t, 2 * kBefore) / kSeeds;
  }

  EXPECT_LT(before, 0.75);
  EXPECT_GT(followed, (1 + before) / 2);
  EXPECT_LT(followed, 1.35);
}

double factor(const HazardExplanation& why, const std::string& name) {
  for (const HazardFactor& factor : why.factors) {
    if (factor.name == name) return factor.value;
  }
  return 0;
}

TEST(Hazard, in_a_young_site_a_departure_is_hardly_a_sign_that_these_hours_are_special) {
  HazardModel young;
  young.lend(node(0), kLab, wall(0));
  young.lend(node(1), kLab, wall(0));
  HazardModel old = learn(2, 30 * kDayMs, [](int, std::int64_t) { return 1 / (10 * 3600.0); });
  const auto after_one = [](HazardModel& model, std::int64_t at) {
    model.lend(node(0), kLab, wall(at));
    const double before = factor(model.why(node(1), kLab, wall(at)), "lab these hours");
    model.reclaimed(node(0), wall(at + 10 * kMinuteMs));
    return factor(model.why(node(1), kLab, wall(at + kHourMs)), "lab these hours") / before;
  };

  const double of_young = after_one(young, 0);
  const double of_old = after_one(old, 30 * kDayMs);

  EXPECT_LT(of_young, 1.6);
  EXPECT_GT(of_old, 1.4);
  // The lab-mate of a young site is expected to stay most of an afternoon all the same.
  EXPECT_GT(young.survival(node(1), kLab, wall(kHourMs), 4 * 3600).probability(), 0.55);
}

TEST(Hazard, an_hour_of_a_day_that_was_never_seen_is_like_that_hour_of_other_workdays) {
  HazardModel model;
  for (int day = 0; day < 3; ++day) {  // Monday to Wednesday at nine
    for (int i = 0; i < 8; ++i) {
      const LabId lab("lab-" + std::to_string(i));
      model.lend(node(i), lab, wall(day * kDayMs));
      model.reclaimed(node(i), wall(day * kDayMs + 9 * kHourMs + (i + 1) * 5 * kMinuteMs));
      model.lend(node(i), lab, wall(day * kDayMs + 10 * kHourMs));
      model.withdrawn(node(i), wall((day + 1) * kDayMs));
    }
  }
  const auto rate = [&](int day, std::int64_t hour) {
    return model.rate(NodeId("n-new"), kOtherLab, wall(day * kDayMs + hour * kHourMs));
  };

  EXPECT_GT(rate(3, 9), 2 * rate(3, 15));
  EXPECT_LT(rate(5, 9), 1.1 * rate(5, 15));
  const HazardExplanation why = model.why(node(0), kLab, wall(3 * kDayMs + 9 * kHourMs));
  EXPECT_NE(describe(why).find("Thu 09:00; this hour of all workdays: x "), std::string::npos)
      << describe(why);
}

TEST(Hazard, of_nodes_that_differ_the_calm_ones_are_what_is_left_at_long_horizons) {
  constexpr double kCalm = 1 / (100 * 3600.0);
  constexpr double kRestless = 1 / (2 * 3600.0);
  HazardModel model =
      learn(12, 30 * kDayMs, [](int i, std::int64_t) { return i % 2 == 0 ? kRestless : kCalm; });
  const WallTime now = wall(30 * kDayMs);
  model.refit_strengths(now);

  const SurvivalForecast day = model.survival(node(99), kLab, now, 24 * 3600);

  // Half of the nodes are calm: some 40 % of all stay a day.
  const double stays = (std::exp(-86400 * kCalm) + std::exp(-86400 * kRestless)) / 2;
  EXPECT_NEAR(day.probability(), stays, 0.15);
  EXPECT_LT(std::exp(-day.expected_departures), stays - 0.15);
}

TEST(Hazard, what_regimes_leave_open_is_no_ignorance_of_the_owner) {
  const HazardModel model =
      learn(6, 20 * kDayMs, [](int, std::int64_t) { return 1 / (10 * 3600.0); });
  // Weeks later the regimes have faded; what was learnt of the owners has not.
  const SurvivalForecast now = model.survival(node(0), kLab, wall(27 * kDayMs), 7200);

  EXPECT_GT(now.unrest, 0.5);
  // Agents take an owner as known while the band ends below 3.45 times its mean (ADR 0011).
  EXPECT_LT(gamma_quantile({.shape = now.shape, .rate = now.shape}, 0.95), 3.45);
  const double all = 1 / (1 / now.shape + now.unrest);
  EXPECT_GT(gamma_quantile({.shape = all, .rate = all}, 0.95), 3.45);
  EXPECT_LT(
      SurvivalForecast({.expected_departures = 1, .shape = 1e6, .unrest = 1}).probability(), 0.501
  );
  EXPECT_GT(
      SurvivalForecast({.expected_departures = 1, .shape = 1e6, .unrest = 1}).probability(), 0.499
  );
}

TEST(Hazard, a_row_of_an_older_program_keeps_what_was_learnt_and_takes_todays_strengths) {
  const auto older = from_json<CampusHazard>(
      R"({"strengths":{"hour":10,"age":3,"lab":7,"lab_hour":40,"node":9,"covariate":1,)"
      R"("campus_regime":100,"lab_regime":2}})",
      Unknown::kStrict
  );
  ASSERT_TRUE(older.has_value()) << older.error().describe();
  const HazardModel before = learn(2, 5 * kDayMs, [](int, std::int64_t) { return 1 / 7200.0; });
  HazardState state = before.state();
  state.campus.edition = older->edition;
  state.campus.strengths = older->strengths;

  const auto restored = HazardModel::restore({}, state);

  ASSERT_TRUE(restored.has_value()) << restored.error().describe();
  HazardState expected = before.state();
  expected.campus.strengths.lab = 7;
  expected.campus.strengths.node = 9;
  EXPECT_EQ(restored->state(), expected);
  // Of its own edition nothing is replaced.
  expected.campus.strengths.hour = 77;
  EXPECT_EQ(HazardModel::restore({}, expected)->state(), expected);
}

TEST(Hazard, forgets_with_a_half_life_of_three_weeks) {
  HazardModel model = learn(3, 14 * kDayMs, [](int, std::int64_t) { return 1 / 3600.0; });
  const double fresh = model.rate(node(0), kLab, wall(14 * kDayMs));

  EXPECT_GT(model.rate(node(0), kLab, wall(35 * kDayMs)), 0.3 * fresh);
  EXPECT_NEAR(model.rate(node(0), kLab, wall(900 * kDayMs)) * 35 * 3600, 1, 0.05);
}

TEST(Hazard, years_of_evidence_do_not_overflow) {
  HazardParameters quick;
  quick.half_life_s = 3600;
  HazardModel model(quick);
  for (int hour = 0; hour < 400; ++hour) {
    model.lend(node(0), kLab, wall(hour * kHourMs));
    model.reclaimed(node(0), wall(hour * kHourMs + 30 * kMinuteMs));
  }

  const HazardState state = model.state();
  EXPECT_TRUE(check(state).has_value());
  EXPECT_LT(state.campus.base.events, 1e5);  // 2^10 since the last time they were brought back to 1
  EXPECT_LT(state.nodes.at(0).rate.events, 1e5);
  for (const Tally& hour : state.labs.at(0).hours) EXPECT_LT(hour.events, 1e5);
  EXPECT_GT(model.rate(node(0), kLab, wall(400 * kHourMs)), 1.0 / (35 * 3600));
  EXPECT_LT(model.rate(node(0), kLab, wall(400 * kHourMs)), 1 / 600.0);
}

TEST(Hazard, how_often_it_is_told_changes_little) {
  HazardModel often;
  HazardModel seldom;
  for (int day = 0; day < 10; ++day) {
    for (HazardModel* model : {&often, &seldom}) model->lend(node(0), kLab, wall(day * kDayMs));
    for (int minute = 1; minute < 20 * 60; ++minute) {
      often.advance(node(0), wall(day * kDayMs + minute * kMinuteMs));
    }
    for (HazardModel* model : {&often, &seldom}) {
      model->reclaimed(node(0), wall(day * kDayMs + 20 * kHourMs));
    }
  }
  const WallTime now = wall(10 * kDayMs);

  EXPECT_NEAR(often.rate(node(0), kLab, now) / seldom.rate(node(0), kLab, now), 1, 0.1);
}

TEST(Hazard, a_clock_that_goes_back_and_calls_about_unknown_nodes_do_no_harm) {
  HazardModel model;
  model.advance(node(5), wall(0));
  model.reclaimed(node(5), wall(0));
  model.withdrawn(node(5), wall(0));
  model.set_presence(node(5), {.is_logged_in = true}, wall(0));
  EXPECT_FALSE(model.is_known(node(5)));

  model.lend(node(0), kLab, wall(kDayMs));
  model.advance(node(0), wall(kDayMs + kHourMs));
  const HazardState before = model.state();
  model.advance(node(0), wall(0));
  model.lend(node(0), kLab, wall(0));
  EXPECT_EQ(model.state(), before);

  model.reclaimed(node(0), wall(0));
  EXPECT_TRUE(check(model.state()).has_value());
  EXPECT_GT(model.rate(node(0), kLab, wall(0)), 0);
}

TEST(Hazard, a_node_that_was_lent_before_we_saw_it_has_its_age_and_no_exposure) {
  HazardModel model;
  model.lend(node(0), kLab, wall(kDayMs), wall(0));
  EXPECT_EQ(model.why(node(0), kLab, wall(kDayMs)).age_s, 86400);

  model.advance(node(0), wall(kDayMs + 100'000));
  EXPECT_LT(model.state().campus.base.exposure_s, 101);
}

TEST(Hazard, survives_a_restart) {
  HazardModel model = learn(4, 10 * kDayMs, [](int i, std::int64_t) { return (i + 1) / 36'000.0; });
  const auto read = from_cbor<HazardState>(to_cbor(model.state()));
  ASSERT_TRUE(read.has_value()) << read.error().describe();

  const auto restored = HazardModel::restore({}, *read);

  ASSERT_TRUE(restored.has_value()) << restored.error().describe();
  EXPECT_EQ(restored->state(), model.state());
  const WallTime now = wall(11 * kDayMs);
  EXPECT_EQ(restored->rate(node(2), kLab, now), model.rate(node(2), kLab, now));
}

TEST(Hazard, a_state_that_cannot_be_is_refused_by_name) {
  HazardModel model;
  model.lend(node(0), kLab, wall(0));
  const HazardState good = model.state();
  const auto why_not = [](const HazardState& state) {
    const auto model_or = HazardModel::restore({}, state);
    return model_or ? std::string("taken") : model_or.error().message;
  };
  EXPECT_EQ(why_not(good), "taken");

  HazardState shorter = good;
  shorter.campus.hours.resize(24);
  EXPECT_EQ(why_not(shorter), "campus.hours: 24 entries instead of 168");
  HazardState negative = good;
  negative.labs[0].rate.events = -1;
  EXPECT_EQ(why_not(negative), "labs.lab-a: a number that is negative or not finite");
  HazardState orphan = good;
  orphan.labs.clear();
  EXPECT_EQ(why_not(orphan), "nodes.n-0: its lab lab-a is missing");
  HazardState twice = good;
  twice.nodes.push_back(twice.nodes[0]);
  EXPECT_EQ(why_not(twice), "nodes.n-0: twice");
  HazardState weak = good;
  weak.campus.strengths.node = 0;
  EXPECT_EQ(why_not(weak), "campus.strengths: a strength that is not positive");
  HazardState more = good;
  more.campus.announced = 1e6;
  EXPECT_EQ(why_not(more), "campus.announced: not a part of its departures");
  HazardState unsound = good;
  unsound.campus.strengths.day_hour = std::nan("");
  EXPECT_EQ(why_not(unsound), "campus.strengths: a strength that is not positive");
}

TEST(Hazard, strengths_follow_how_much_nodes_differ) {
  HazardModel alike = learn(12, 30 * kDayMs, [](int, std::int64_t) { return 1 / 36'000.0; });
  HazardModel unlike = learn(12, 30 * kDayMs, [](int i, std::int64_t) {
    return i % 2 == 0 ? 1 / 7200.0 : 1 / 360'000.0;
  });
  alike.refit_strengths(wall(30 * kDayMs));
  unlike.refit_strengths(wall(30 * kDayMs));

  EXPECT_GT(alike.state().campus.strengths.node, 5 * unlike.state().campus.strengths.node);
  EXPECT_LT(unlike.state().campus.strengths.node, 3);
}

TEST(Survival, little_evidence_is_less_pessimistic_than_the_mean_and_much_is_exponential) {
  const SurvivalForecast little{.expected_departures = 1, .shape = 1};
  const SurvivalForecast much{.expected_departures = 1, .shape = 1e6};

  EXPECT_NEAR(little.probability(), 0.5, 1e-12);
  EXPECT_NEAR(much.probability(), std::exp(-1), 1e-5);
  EXPECT_LT(little.quantile(0.05), 0.06);
  EXPECT_GT(little.quantile(0.95), 0.94);
  EXPECT_LT(much.quantile(0.95) - much.quantile(0.05), 0.01);
}

TEST(Survival, stands_for_a_constant_rate_where_one_is_asked_for) {
  EXPECT_NEAR(constant_rate(std::exp(-2), 3600), 2 / 3600.0, 1e-12);
  EXPECT_EQ(constant_rate(1, 3600), 0);
  EXPECT_EQ(constant_rate(0.5, 0), 0);
  EXPECT_NEAR(constant_rate(0, 100), 0.2072, 1e-4);
}

TEST(Survival, never_rises_with_the_horizon) {
  const HazardModel model =
      learn(3, 10 * kDayMs, [](int i, std::int64_t) { return (i + 1) / 36'000.0; });
  double last = 1;
  for (double horizon_s = 0; horizon_s < 200'000; horizon_s += 1000) {
    const double now =
        model.survival(node(1), kLab, wall(10 * kDayMs), horizon_s).expected_departures;
    const double stays = std::exp(-now);
    EXPECT_LE(stays, last);
    last = stays;
  }
  EXPECT_EQ(model.survival(node(1), kLab, wall(10 * kDayMs), -5).probability(), 1);
  EXPECT_EQ(model.survival(node(1), kLab, wall(10 * kDayMs), std::nan("")).probability(), 1);
}

TEST(Why, the_factors_multiply_to_the_rate_and_every_number_is_said) {
  HazardModel model = learn(3, 10 * kDayMs, [](int, std::int64_t) { return 1 / 36'000.0; });
  model.lend(node(9), kLab, wall(10 * kDayMs));
  model.set_presence(node(9), {.is_logged_in = true}, wall(10 * kDayMs + kMinuteMs));

  const HazardExplanation why = model.why(node(9), kLab, wall(10 * kDayMs + kMinuteMs));

  double product = why.base_per_hour;
  for (const HazardFactor& factor : why.factors) {
    product *= factor.value;
    EXPECT_LE(factor.low, factor.value) << factor.name;
    EXPECT_GE(factor.high, factor.value) << factor.name;
  }
  EXPECT_NEAR(product, why.rate_per_hour, 1e-9);
  ASSERT_EQ(why.reclaimed_within.size(), 4u);
  const std::string text = describe(why);
  for (const char* word :
       {"Thu 00:00", "0-10 min", "lab-a", "owner login", "taken back within 8.0 h"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " in:\n" << text;
  }
  EXPECT_NE(to_json(why).find("\"rate_per_hour\""), std::string::npos);
}

TEST(Why, a_chance_of_a_reclaim_is_what_survival_leaves_and_grows_with_the_horizon) {
  HazardModel model = learn(3, 10 * kDayMs, [](int, std::int64_t) { return 1 / 36'000.0; });
  const WallTime now = wall(10 * kDayMs);

  const HazardExplanation why = model.why(node(1), kLab, now);

  double before = 0;
  for (const ReclaimChance& chance : why.reclaimed_within) {
    const SurvivalForecast stays = model.survival(node(1), kLab, now, chance.horizon_s);
    EXPECT_DOUBLE_EQ(chance.probability, 1 - stays.probability());
    EXPECT_LE(chance.low, chance.probability);
    EXPECT_GE(chance.high, chance.probability);
    EXPECT_GT(chance.probability, before);
    before = chance.probability;
  }
}

TEST(Why, says_which_prior_stands_for_what_is_not_known) {
  const auto prior = [](const HazardModel& model, const NodeId& id, const LabId& lab) {
    return model.why(id, lab, wall(10 * kDayMs)).prior;
  };
  const HazardModel model = learn(3, 10 * kDayMs, [](int, std::int64_t) { return 1 / 36'000.0; });

  EXPECT_NE(
      prior(HazardModel(), node(1), kLab).find("the prior stands for it, one departure in 35.0 h"),
      std::string::npos
  );
  EXPECT_NE(prior(model, node(1), kLab).find("its own record counts most"), std::string::npos);
  EXPECT_NE(prior(model, node(9), kLab).find("its lab's rate stands for it"), std::string::npos);
  EXPECT_NE(
      prior(model, node(9), kOtherLab).find("the campus's rate stands for it"), std::string::npos
  );
}

TEST(Why, the_history_behind_it_is_said) {
  HazardExplanation why = HazardModel().why(node(1), kLab, wall(0));
  why.history = {
      .exposure_s = 36'000,
      .announced = 1,
      .notice = 2,
      .emergency = 3,
      .lost = 4,
      .notice_s_min = 20,
      .notice_s_max = 60};

  EXPECT_NE(
      describe(why).find("n = 9 departures in 10.0 h lent: 2 with notice (20 to 60 s), 3 at once, "
                         "4 lost; 1 more announced"),
      std::string::npos
  ) << describe(why);
}

// ---- of a study

TEST(Hazard, constant_is_the_campuss_rate_for_everybody_at_any_time_and_announced_ends_are_known) {
  const auto by_night = [](int i, std::int64_t t) {
    const bool is_night = t % kDayMs < 8 * kHourMs;
    return (i == 0 ? 0.2 : 1.0) * (is_night ? 0.1 : 1.0) / (2 * 3600.0);
  };
  HazardModel model =
      learn(4, 21 * kDayMs, by_night, HazardModel(HazardParameters{.is_constant = true}));
  const WallTime midnight = wall(21 * kDayMs);
  const WallTime noon = wall(21 * kDayMs + 12 * kHourMs);

  const double rate = model.rate(node(0), kLab, noon);
  EXPECT_NEAR(model.rate(node(1), kLab, noon), rate, 1e-9 * rate);
  EXPECT_NEAR(model.rate(node(9), kOtherLab, noon), rate, 1e-9 * rate);
  EXPECT_NEAR(model.rate(node(1), kLab, midnight), rate, 1e-3 * rate) << "less is forgotten";
  const auto two_hours = model.survival(node(1), kLab, noon, 7200);
  EXPECT_NEAR(two_hours.expected_departures, 7200 * rate, 1e-6);
  EXPECT_GT(rate, 0.2 / (2 * 3600.0));
  EXPECT_LT(rate, 1.0 / (2 * 3600.0));

  model.lend(node(1), kLab, noon);
  model.announce(node(1), noon + std::chrono::minutes(30), noon);
  EXPECT_EQ(model.survival(node(1), kLab, noon, 7200).probability(), 0);
}

}  // namespace
}  // namespace rn::reclaim
