// SPDX-License-Identifier: Apache-2.0
#include "reclaim/deadline_rates.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace rn::reclaim {
namespace {

constexpr double kMega = 1e6;

Instant at_s(double value_s) {
  return Instant(seconds(1000)) + nanoseconds(static_cast<std::int64_t>(value_s * 1e9));
}

/// 100 MB/s, nobody else on it.
LinkState a_link(const char* name = "n-1 up", double mega = 100) {
  LinkState link;
  link.name = name;
  link.capacity = {{Instant{}, mega * kMega}};
  return link;
}

DeadlineTransfer an_evacuation(const char* id, double mega, double notice_s, double value = 1) {
  DeadlineTransfer transfer;
  transfer.id = TransferId(id);
  transfer.bytes_left = static_cast<std::uint64_t>(mega * kMega);
  transfer.path = {0};
  transfer.value = value;
  transfer.begun = at_s(0);
  transfer.deadline = at_s(notice_s);
  return transfer;
}

DeadlineTransfer another(TransferClass kind, const char* id, double mega, double index = 1) {
  DeadlineTransfer transfer;
  transfer.id = TransferId(id);
  transfer.kind = kind;
  transfer.bytes_left = static_cast<std::uint64_t>(mega * kMega);
  transfer.path = {0};
  transfer.value = index;
  transfer.index = index;
  return transfer;
}

DeadlineTransfer a_checkpoint(const char* id, double mega, double index = 1) {
  return another(TransferClass::kCheckpoint, id, mega, index);
}

/// The plan, and a memory that goes on from call to call.
struct Site {
  std::vector<LinkState> links = {a_link()};
  RatePolicy policy;
  RateMemory memory;

  RatePlan plan(const std::vector<DeadlineTransfer>& transfers, double now_s = 0) {
    auto made = plan_rates(links, transfers, policy, memory, at_s(now_s));
    EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().describe());
    return made ? *std::move(made) : RatePlan{};
  }
};

double mega_of(const TransferGrant& grant) {
  return static_cast<double>(grant.rate_bytes_per_s) / kMega;
}

std::vector<std::uint64_t> rates_of(const RatePlan& plan) {
  std::vector<std::uint64_t> rates;
  for (const TransferGrant& grant : plan.grants) rates.push_back(grant.rate_bytes_per_s);
  return rates;
}

TEST(DeadlineRates, a_lone_evacuation_takes_the_whole_link_and_knows_its_minimum) {
  Site site;

  const RatePlan plan = site.plan({an_evacuation("t-1", 950, 20)});

  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kSends);
  EXPECT_NEAR(mega_of(plan.grants[0]), 100, 0.001);
  EXPECT_NEAR(static_cast<double>(plan.grants[0].minimum_bytes_per_s) / kMega, 50, 0.001);
  EXPECT_DOUBLE_EQ(plan.grants[0].window_s, 19);
  EXPECT_EQ(plan.next_at, at_s(0.25));
}

TEST(DeadlineRates, slack_is_five_percent_or_three_round_trips_and_the_restore) {
  Site site;
  DeadlineTransfer transfer = an_evacuation("t-1", 10, 20);
  transfer.restore_s = 4;
  EXPECT_DOUBLE_EQ(site.plan({transfer}).grants[0].window_s, 20 - 4 - 1);

  transfer.rtt_s = 0.5;
  EXPECT_DOUBLE_EQ(site.plan({transfer}).grants[0].window_s, 20 - 4 - 1.5);
}

TEST(DeadlineRates, of_two_that_do_not_fit_the_less_valuable_is_told_why) {
  Site site;

  const RatePlan plan =
      site.plan({an_evacuation("t-1", 1500, 20, 3), an_evacuation("t-2", 1500, 20, 5)});

  EXPECT_EQ(plan.grants[1].outcome, TransferOutcome::kSends);
  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kAccept);
  EXPECT_EQ(plan.grants[0].reason, DropReason::kRivals);
  EXPECT_EQ(
      plan.grants[0].sentence,
      "1.50 GB in 19.0 s do not fit beside others that are worth more; "
      "the job resumes from its last durable generation"
  );
  EXPECT_DOUBLE_EQ(plan.kept_value, 5);
  EXPECT_DOUBLE_EQ(plan.lost_value, 3);
}

TEST(DeadlineRates, less_is_offered_in_order_delta_nearest_own_disk_last_durable) {
  Site site;
  site.links.push_back(a_link("n-2 up"));
  DeadlineTransfer large = an_evacuation("t-1", 5000, 20, 10);
  large.delta = Alternative{.bytes = 400'000'000, .path = {0}, .value = 8};
  large.nearest = Alternative{.bytes = 300'000'000, .path = {1}, .value = 7};
  large.spill = LocalSpill{.bytes = 5'000'000'000, .disk_bytes_per_s = 500e6, .value = 4};

  RatePlan plan = site.plan({large});
  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kDelta);
  EXPECT_EQ(plan.grants[0].reason, DropReason::kTooLarge);
  EXPECT_EQ(plan.grants[0].bytes, 400'000'000u);
  EXPECT_GT(plan.grants[0].rate_bytes_per_s, 0u);
  EXPECT_DOUBLE_EQ(plan.grants[0].lost_value, 2);

  large.delta->bytes = 4'000'000'000;
  plan = site.plan({large});
  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kNearest);
  EXPECT_NEAR(mega_of(plan.grants[0]), 100, 0.001);

  large.nearest->bytes = 4'000'000'000;
  plan = site.plan({large});
  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kSpill);
  EXPECT_EQ(plan.grants[0].rate_bytes_per_s, 0u);
  EXPECT_DOUBLE_EQ(plan.grants[0].kept_value, 4);

  large.spill->disk_bytes_per_s = 100e6;
  plan = site.plan({large});
  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kAccept);
  EXPECT_DOUBLE_EQ(plan.grants[0].lost_value, 10);
}

TEST(DeadlineRates, a_delta_is_offered_only_if_it_hurts_nobody_who_was_admitted) {
  Site site;
  DeadlineTransfer small = an_evacuation("t-2", 1500, 20, 3);
  small.delta = Alternative{.bytes = 300'000'000, .path = {0}, .value = 2};

  const auto outcome = [&] {
    return site.plan({an_evacuation("t-1", 1500, 20, 5), small}).grants[1].outcome;
  };
  EXPECT_EQ(outcome(), TransferOutcome::kDelta);

  small.delta->bytes = 500'000'000;
  EXPECT_EQ(outcome(), TransferOutcome::kAccept);
}

TEST(DeadlineRates, zero_bytes_are_done_even_after_their_deadline) {
  Site site;

  const RatePlan plan = site.plan({an_evacuation("t-1", 0, 20)}, 30);

  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kDone);
  EXPECT_EQ(plan.grants[0].rate_bytes_per_s, 0u);
  EXPECT_DOUBLE_EQ(plan.kept_value, 1);
  EXPECT_EQ(site.plan({a_checkpoint("t-2", 0)}).grants[0].outcome, TransferOutcome::kDone);
}

TEST(DeadlineRates, after_its_deadline_a_transfer_falls_back_to_the_last_durable) {
  Site site;
  DeadlineTransfer late = an_evacuation("t-1", 10, 20);
  late.spill = LocalSpill{.bytes = 10, .disk_bytes_per_s = 1e6, .value = 1};
  late.delta = Alternative{.bytes = 1, .path = {0}, .value = 1};

  const RatePlan plan = site.plan({late}, 20);

  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kAccept);
  EXPECT_EQ(plan.grants[0].reason, DropReason::kDeadlinePassed);
  EXPECT_EQ(plan.grants[0].rate_bytes_per_s, 0u);
}

TEST(DeadlineRates, what_is_dropped_may_use_what_is_left_if_it_could_still_arrive) {
  Site site;
  site.links[0].background_bytes_per_s = 20 * kMega;

  // 1.6 GB is due in 19 s at 90 MB/s; 300 MB more could arrive if nothing went wrong.
  RatePlan plan = site.plan({an_evacuation("t-1", 1650, 20, 5), an_evacuation("t-2", 300, 20, 1)});
  EXPECT_EQ(plan.grants[1].outcome, TransferOutcome::kAccept);
  EXPECT_EQ(plan.grants[1].rate_bytes_per_s, 0u) << "evacuations took all";

  DeadlineTransfer capped = an_evacuation("t-1", 400, 20, 5);
  capped.cap_bytes_per_s = 30 * kMega;
  plan = site.plan({capped, an_evacuation("t-2", 1300, 20, 1)});
  EXPECT_EQ(plan.grants[1].outcome, TransferOutcome::kSends);

  site.memory = {};
  plan = site.plan({capped, an_evacuation("t-2", 1750, 20, 1)});
  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kSends);
  EXPECT_EQ(plan.grants[1].outcome, TransferOutcome::kAccept);
  EXPECT_DOUBLE_EQ(plan.grants[1].kept_value, 0);
  EXPECT_NEAR(mega_of(plan.grants[1]), 50, 0.001);
}

TEST(DeadlineRates, when_both_ends_are_reclaimed_only_another_destination_helps) {
  Site site;
  DeadlineTransfer transfer = an_evacuation("t-1", 100, 20);
  transfer.destination_is_leaving = true;
  transfer.delta = Alternative{.bytes = 1000, .path = {0}, .value = 1};

  RatePlan plan = site.plan({transfer});
  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kAccept);
  EXPECT_EQ(plan.grants[0].reason, DropReason::kDestinationLeaving);

  transfer.nearest = Alternative{.bytes = 100'000'000, .path = {0}, .value = 1};
  plan = site.plan({transfer});
  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kNearest);
  EXPECT_GT(plan.grants[0].rate_bytes_per_s, 0u);
}

TEST(DeadlineRates, bandwidth_that_drops_to_zero_gives_up_and_resumes_when_it_is_back) {
  Site site;
  DeadlineTransfer transfer = an_evacuation("t-1", 1000, 20);
  transfer.spill = LocalSpill{.bytes = 1'000'000'000, .disk_bytes_per_s = 500e6, .value = 0.5};
  EXPECT_EQ(site.plan({transfer}).grants[0].outcome, TransferOutcome::kSends);

  transfer.bytes_left = 800'000'000;
  site.links[0].capacity[0].bytes_per_s = 0;
  RatePlan plan = site.plan({transfer}, 2);
  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kSpill);
  EXPECT_EQ(plan.grants[0].reason, DropReason::kNoCapacity);
  EXPECT_EQ(plan.grants[0].rate_bytes_per_s, 0u);

  site.links[0].capacity[0].bytes_per_s = 100 * kMega;
  plan = site.plan({transfer}, 3);
  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kSends);
}

TEST(DeadlineRates, an_admitted_one_that_falls_behind_uses_its_slack_before_it_is_given_up) {
  Site site;
  DeadlineTransfer transfer = an_evacuation("t-1", 1890, 20);
  EXPECT_EQ(site.plan({transfer}).grants[0].outcome, TransferOutcome::kSends);

  transfer.bytes_left = 940'000'000;  // 50 MB behind, half of the slack
  EXPECT_EQ(site.plan({transfer}, 10).grants[0].outcome, TransferOutcome::kSends);

  RateMemory nothing;
  EXPECT_EQ(
      plan_rates(site.links, {transfer}, site.policy, nothing, at_s(10))->grants[0].outcome,
      TransferOutcome::kAccept
  );

  transfer.bytes_left = 1'010'000'000;
  EXPECT_EQ(site.plan({transfer}, 10).grants[0].outcome, TransferOutcome::kAccept);
}

TEST(DeadlineRates, a_newcomer_displaces_only_what_it_clearly_outweighs) {
  Site site;
  const DeadlineTransfer first = an_evacuation("t-1", 1500, 20, 10);
  site.plan({first});

  RatePlan plan = site.plan({first, an_evacuation("t-2", 1500, 20, 14)});
  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kSends);
  EXPECT_EQ(plan.grants[1].outcome, TransferOutcome::kAccept);

  plan = site.plan({first, an_evacuation("t-2", 1500, 20, 16)});
  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kAccept);
  EXPECT_EQ(plan.grants[1].outcome, TransferOutcome::kSends);
}

TEST(DeadlineRates, checkpoints_go_one_at_a_time_by_their_index) {
  Site site;

  const RatePlan plan = site.plan(
      {a_checkpoint("t-1", 500, 1), a_checkpoint("t-2", 500, 3), a_checkpoint("t-3", 500, 2)}
  );

  EXPECT_EQ(rates_of(plan), (std::vector<std::uint64_t>{0, 100'000'000, 0}));
  EXPECT_EQ(plan.grants[0].outcome, TransferOutcome::kWaits);
  EXPECT_EQ(plan.grants[1].outcome, TransferOutcome::kSends);
}

TEST(DeadlineRates, a_running_checkpoint_keeps_the_link_against_a_slightly_higher_index) {
  Site site;
  site.plan({a_checkpoint("t-1", 500, 10)});

  EXPECT_EQ(
      rates_of(site.plan({a_checkpoint("t-1", 500, 10), a_checkpoint("t-2", 500, 10.5)})),
      (std::vector<std::uint64_t>{100'000'000, 0})
  );
  EXPECT_EQ(
      rates_of(site.plan({a_checkpoint("t-1", 500, 10), a_checkpoint("t-2", 500, 11.5)})),
      (std::vector<std::uint64_t>{0, 100'000'000})
  );
}

TEST(DeadlineRates, evacuations_go_first_then_checkpoints_then_prefetch_within_the_guard) {
  Site site;
  site.links[0].background_bytes_per_s = 20 * kMega;
  site.links[0].guard_bytes_per_s = 10 * kMega;
  DeadlineTransfer checkpoint = a_checkpoint("t-2", 500);
  checkpoint.cap_bytes_per_s = 50 * kMega;
  const DeadlineTransfer prefetch = another(TransferClass::kPrefetch, "t-3", 500);

  EXPECT_EQ(
      rates_of(site.plan({checkpoint, prefetch})),
      (std::vector<std::uint64_t>{50'000'000, 20'000'000})
  );
  EXPECT_EQ(
      rates_of(site.plan({checkpoint, prefetch, an_evacuation("t-1", 1000, 60)})),
      (std::vector<std::uint64_t>{0, 0, 90'000'000})
  );
}

TEST(DeadlineRates, an_evacuation_takes_its_larger_share_only_for_its_seconds) {
  Site site;
  site.links[0].background_bytes_per_s = 50 * kMega;
  site.links[0].evacuation_limit = seconds(30);
  DeadlineTransfer transfer = an_evacuation("t-1", 20000, 600);

  EXPECT_NEAR(mega_of(site.plan({transfer}, 0).grants[0]), 90, 0.001);
  EXPECT_NEAR(mega_of(site.plan({transfer}, 29).grants[0]), 90, 0.001);
  EXPECT_NEAR(mega_of(site.plan({transfer}, 30).grants[0]), 50, 0.001);
  EXPECT_NEAR(mega_of(site.plan({transfer}, 45).grants[0]), 50, 0.001);

  site.plan({}, 60);
  EXPECT_NEAR(mega_of(site.plan({transfer}, 70).grants[0]), 50, 0.001) << "25 s of rest";
  site.plan({}, 101);
  EXPECT_NEAR(mega_of(site.plan({transfer}, 102).grants[0]), 90, 0.001) << "32 s of rest";
}

TEST(DeadlineRates, the_end_of_the_larger_share_is_known_when_transfers_are_admitted) {
  Site site;
  site.links[0].background_bytes_per_s = 50 * kMega;
  site.links[0].evacuation_limit = seconds(30);

  // 30 s at 90 and 65 s at 50 MB/s are 5950 MB.
  EXPECT_EQ(
      site.plan({an_evacuation("t-1", 5900, 100)}).grants[0].outcome, TransferOutcome::kSends
  );
  EXPECT_EQ(site.plan({an_evacuation("t-2", 6000, 100)}).grants[0].reason, DropReason::kTooLarge);
}

TEST(DeadlineRates, a_queue_halves_what_has_no_deadline_and_lets_it_rise_slowly) {
  Site site;
  site.links[0].least_rtt_s = 0.010;
  const auto rates_at = [&](double now_s, double probe_s, double evacuation_mega) {
    site.links[0].probe_rtt_s = probe_s;
    DeadlineTransfer evacuation = an_evacuation("t-1", evacuation_mega, 60);
    evacuation.cap_bytes_per_s = 10 * kMega;
    return rates_of(site.plan({evacuation, a_checkpoint("t-2", 5000)}, now_s));
  };
  using Rates = std::vector<std::uint64_t>;

  EXPECT_EQ(rates_at(0, 0.020, 100), (Rates{10'000'000, 90'000'000}));
  EXPECT_EQ(rates_at(1, 0.080, 100), (Rates{10'000'000, 40'000'000}));
  EXPECT_EQ(rates_at(1.1, 0.080, 100), (Rates{10'000'000, 40'000'000})) << "once per 250 ms";
  EXPECT_EQ(rates_at(1.3, 0.080, 100), (Rates{10'000'000, 15'000'000}));
  EXPECT_EQ(rates_at(2.3, 0.020, 100), (Rates{10'000'000, 25'000'000}));
  EXPECT_EQ(rates_at(20, 0.020, 100), (Rates{10'000'000, 90'000'000}));
}

TEST(DeadlineRates, a_rate_rises_only_by_more_than_two_percent_and_falls_at_once) {
  Site site;
  const auto rate_at = [&](double mega) {
    site.links[0].capacity[0].bytes_per_s = mega * kMega;
    return rates_of(site.plan({a_checkpoint("t-1", 500)}))[0];
  };

  EXPECT_EQ(rate_at(100), 100'000'000u);
  EXPECT_EQ(rate_at(101), 100'000'000u);
  EXPECT_EQ(rate_at(103), 103'000'000u);
  EXPECT_EQ(rate_at(102), 102'000'000u);
}

TEST(DeadlineRates, the_order_of_the_transfers_and_a_second_call_change_nothing) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SeededRng rng(seed);
    Site site;
    site.links = {a_link("a"), a_link("b"), a_link("c")};
    std::vector<DeadlineTransfer> transfers;
    for (int i = 0; i < 14; ++i) {
      const std::string id = "t-" + std::to_string(10 + i);
      transfers.push_back(an_evacuation(
          id.c_str(), 200 + 600 * rng.unit(), 10 + 20 * rng.unit(), 1 + 9 * rng.unit()
      ));
      transfers.back().path = {static_cast<LinkIndex>(rng.below(3))};
    }
    Site reversed = site;
    const RatePlan plan = site.plan(transfers);
    const RateMemory memory = site.memory;

    EXPECT_EQ(rates_of(site.plan(transfers)), rates_of(plan)) << "seed " << seed;
    EXPECT_EQ(site.memory, memory) << "seed " << seed;
    auto backwards = transfers;
    std::reverse(backwards.begin(), backwards.end());
    auto rates = rates_of(reversed.plan(backwards));
    std::reverse(rates.begin(), rates.end());
    EXPECT_EQ(rates, rates_of(plan)) << "seed " << seed;
  }
}

TEST(DeadlineRates, a_hundred_thousand_recomputations_drift_nowhere) {
  Site site;
  site.links[0].background_bytes_per_s = 33'333'333.3;
  const std::vector<DeadlineTransfer> transfers = {
      an_evacuation("t-1", 123.456789, 70.1, 0.1), a_checkpoint("t-2", 765.4321, 0.7)};
  const RatePlan first = site.plan(transfers);
  const RateMemory memory = site.memory;

  for (int i = 0; i < 100'000; ++i) {
    const auto plan = plan_rates(site.links, transfers, site.policy, site.memory, at_s(0));
    if (i % 1000 != 999) continue;
    ASSERT_EQ(rates_of(*plan), rates_of(first)) << i;
    ASSERT_EQ(site.memory, memory) << i;
  }
}

/// Sends at the granted rates from plan to plan until all deadlines are over.
TEST(DeadlineRates, what_is_admitted_arrives_when_the_forecast_holds) {
  int admitted = 0;
  int arrived = 0;
  int dropped = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SeededRng rng(seed);
    Site site;
    site.links = {a_link("a"), a_link("b"), a_link("c")};
    site.links[0].capacity.push_back({at_s(12), 40 * kMega});
    std::vector<DeadlineTransfer> transfers;
    for (int i = 0; i < 10; ++i) {
      const std::string id = "t-" + std::to_string(i);
      transfers.push_back(
          an_evacuation(id.c_str(), 100 + 700 * rng.unit(), 10 + 30 * rng.unit(), 1 + rng.unit())
      );
      transfers.back().path = {static_cast<LinkIndex>(rng.below(3))};
      if (rng.below(2) == 0) transfers.back().path.push_back((transfers.back().path[0] + 1) % 3);
    }
    std::vector<char> was_admitted(10, 0);
    std::int64_t now_ns = 0;
    while (now_ns < 41'000'000'000) {
      const RatePlan plan = site.plan(transfers, static_cast<double>(now_ns) / 1e9);
      const std::int64_t step_ns = (plan.next_at - at_s(static_cast<double>(now_ns) / 1e9)).count();
      ASSERT_GE(step_ns, 100'000'000);
      ASSERT_LE(step_ns, 250'000'000);
      for (std::size_t i = 0; i < 10; ++i) {
        if (plan.grants[i].outcome == TransferOutcome::kSends) was_admitted[i] = 1;
        const auto sent = static_cast<std::uint64_t>(
            static_cast<double>(plan.grants[i].rate_bytes_per_s) * static_cast<double>(step_ns) /
            1e9
        );
        transfers[i].bytes_left -= std::min(transfers[i].bytes_left, sent);
      }
      now_ns += step_ns;
    }
    for (std::size_t i = 0; i < 10; ++i) {
      admitted += was_admitted[i];
      arrived += was_admitted[i] != 0 && transfers[i].bytes_left == 0 ? 1 : 0;
      dropped += was_admitted[i] == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(admitted, 200);
  EXPECT_GT(dropped, 20);
  EXPECT_EQ(arrived, admitted);
}

TEST(DeadlineRates, input_that_makes_no_sense_is_refused_by_name_and_changes_nothing) {
  Site site;
  site.plan({an_evacuation("t-0", 10, 20)});
  const RateMemory before = site.memory;
  const auto refusal = [&](const std::vector<DeadlineTransfer>& transfers) {
    const auto plan = plan_rates(site.links, transfers, site.policy, site.memory, at_s(1));
    EXPECT_EQ(site.memory, before);
    return plan ? std::string("none") : plan.error().message;
  };

  DeadlineTransfer bad = an_evacuation("t-1", 10, 20);
  bad.path = {0, 7};
  EXPECT_EQ(refusal({bad}), "transfer t-1: its path crosses link 7, which is not there");
  bad.path = {0, 0};
  EXPECT_EQ(refusal({bad}), "transfer t-1: its path crosses link 0 twice");
  bad.path = {};
  EXPECT_EQ(refusal({bad}), "transfer t-1: its path crosses no link");

  bad = an_evacuation("t-1", 10, 20);
  bad.value = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(refusal({bad}), "transfer t-1: its value is negative or not a number");
  bad = an_evacuation("t-1", 10, -20);
  EXPECT_EQ(refusal({bad}), "transfer t-1: its deadline is before its beginning");
  bad = an_evacuation("t-1", 10, 20);
  bad.cap_bytes_per_s = -1;
  EXPECT_NE(refusal({bad}).find("its cap must lie between"), std::string::npos);
  bad = an_evacuation("t-1", 10, 20);
  bad.delta = Alternative{.bytes = 1, .path = {4}, .value = 1};
  EXPECT_NE(refusal({bad}).find("an alternative: its path crosses link 4"), std::string::npos);
  EXPECT_EQ(
      refusal({an_evacuation("t-1", 10, 20), an_evacuation("t-1", 10, 20)}),
      "transfer t-1 is named twice"
  );
  const std::vector<DeadlineTransfer> many(kMaxTransfers + 1, an_evacuation("t-1", 1, 20));
  EXPECT_EQ(refusal(many), "4097 transfers, at most 4096");

  site.links[0].capacity[0].bytes_per_s = -5;
  EXPECT_NE(
      refusal({an_evacuation("t-1", 10, 20)}).find("link n-1 up: a capacity"), std::string::npos
  );
}

}  // namespace
}  // namespace rn::reclaim
