// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

constexpr nanoseconds kEmptyLine = milliseconds(2);
constexpr nanoseconds kFullLine = milliseconds(80);
constexpr std::uint64_t kPlanned = 64'000'000;

class Guard : public CoreTest {
 protected:
  /// A guest that has saved once; the copy of that to n-2 is under way as planned, on an empty
  /// line.
  void start_copying() {
    start();
    run();
    save(1);
    look_for_copy();
    send_for(seconds(1), kEmptyLine);
  }

  void look_for_copy() {
    id_ = std::find_if(works.begin(), works.end(), [](const Work& w) {
            return std::holds_alternative<CopyGeneration>(w.body);
          })->id;
  }

  void send_for(nanoseconds span, nanoseconds round_trip, std::uint64_t bytes_in_look = 100'000) {
    for (const Instant end = clock.now().boot + span; clock.now().boot < end;) {
      clock.advance(milliseconds(125));
      TransferProgress seen{id_, 800'000'000, sent_ += bytes_in_look};
      seen.round_trip = round_trip;
      seen.least_round_trip = least_;
      feed(TransfersMeasured{{seen}, 0});
      if (planned_bps_ != 0) grant(planned_bps_);
    }
  }

  void grant(std::uint64_t bps) {
    wire::TransferRates told;
    told.rates = {{id_, bps, true}};
    told.valid_ms = 2000;
    tell(told);
  }

  void notice() {
    warden.reclaims = {a_reclaim(ReclaimKind::kNotice, seconds(300))};
    push_state();
  }

  std::uint64_t rate() const { return rates.empty() ? 0 : rates.back().rate_bps; }

  WorkId id_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t planned_bps_ = kPlanned;
  nanoseconds least_{0};
};

TEST_F(Guard, a_copy_goes_as_planned_as_long_as_nobody_waits) {
  start_copying();

  send_for(seconds(20), milliseconds(20));

  EXPECT_EQ(rate(), kPlanned);
}

TEST_F(Guard, a_copy_of_a_checkpoint_makes_way_while_the_line_is_full_and_comes_back) {
  start_copying();
  ASSERT_EQ(rate(), kPlanned);

  send_for(milliseconds(500), kFullLine);
  EXPECT_EQ(rate(), kPlanned / 4);
  send_for(seconds(10), kFullLine);
  EXPECT_EQ(rate(), kPlanned / 64) << "it never stands still";
  EXPECT_NE(core->view(clock.now()).copies.find("slowed to 2 %"), std::string::npos)
      << core->view(clock.now()).copies;

  send_for(seconds(8), kEmptyLine);
  EXPECT_NEAR(static_cast<double>(rate()), kPlanned * 0.52, kPlanned * 0.03);
  send_for(seconds(9), kEmptyLine);
  EXPECT_NEAR(static_cast<double>(rate()), kPlanned, kPlanned * 0.02);
  EXPECT_EQ(core->view(clock.now()).copies.find("slowed"), std::string::npos);
}

TEST_F(Guard, an_evacuation_never_makes_way_and_has_its_rate_back_at_the_notice) {
  start_copying();
  send_for(seconds(10), kFullLine);
  ASSERT_EQ(rate(), kPlanned / 64);

  notice();
  EXPECT_EQ(rate(), kPlanned);
  send_for(seconds(10), kFullLine);
  EXPECT_EQ(rate(), kPlanned);
}

TEST_F(Guard, with_the_coordinator_away_it_makes_way_all_the_same) {
  facts.uplink_bps = 100'000'000;
  start_copying();
  planned_bps_ = 0;
  feed(CoordinatorDisconnected{"gone"});
  send_for(seconds(3), kEmptyLine);
  ASSERT_NEAR(static_cast<double>(rate()), 95e6, 2e6);

  send_for(milliseconds(500), kFullLine);

  EXPECT_NEAR(static_cast<double>(rate()), 95e6 / 4, 1e6);
}

TEST_F(Guard, a_copy_that_nothing_bounds_makes_way_by_what_is_known_of_the_uplink) {
  planned_bps_ = 0;
  start_copying();
  ASSERT_EQ(rate(), 0u) << "no bound";

  send_for(milliseconds(250), kFullLine);
  EXPECT_EQ(rate(), 50'000'000u) << "of 12.5 MB/s, until a copy was measured";

  send_for(seconds(20), kEmptyLine);
  EXPECT_EQ(rate(), 0u);
}

TEST_F(Guard, what_is_planned_lower_because_it_made_way_is_not_cut_again) {
  start_copying();
  send_for(milliseconds(500), kFullLine);
  ASSERT_EQ(rate(), kPlanned / 4);

  planned_bps_ = kPlanned / 4;
  send_for(milliseconds(500), kEmptyLine);

  EXPECT_GE(rate(), kPlanned / 8) << "not a part of the 16 Mbit/s";
}

TEST_F(Guard, a_copy_that_stands_still_is_no_witness) {
  start_copying();

  send_for(seconds(10), kFullLine, 0);

  EXPECT_EQ(rate(), kPlanned);
}

TEST_F(Guard, a_round_trip_that_is_not_known_changes_nothing) {
  start_copying();

  send_for(seconds(10), nanoseconds(0));

  EXPECT_EQ(rate(), kPlanned);
}

TEST_F(Guard, a_path_that_was_full_before_the_first_look_counts_by_what_the_kernel_knows) {
  least_ = kEmptyLine;
  start();
  run();
  save(1);
  look_for_copy();

  send_for(seconds(3), kFullLine);

  EXPECT_EQ(rate(), kPlanned / 64);
}

}  // namespace
}  // namespace rn::agent
