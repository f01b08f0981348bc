// SPDX-License-Identifier: Apache-2.0
#include "agent/core_uplink_fixture.h"

namespace rn::agent {
namespace {

class Transfers : public CoreTest {
 protected:
  /// A guest that has saved once; the copy of that to n-2 is under way.
  void start_copying() {
    start();
    run();
    save(1);
    id_ = copy().id;
  }

  const Work& copy() const {
    return *std::find_if(works.begin(), works.end(), [](const Work& w) {
      return std::holds_alternative<CopyGeneration>(w.body);
    });
  }

  void measure(std::uint64_t left, std::uint64_t sent) {
    clock.advance(milliseconds(100));
    feed(TransfersMeasured{{{id_, left, sent}}, 3'000'000});
  }

  void grant(std::uint64_t bps, std::uint32_t valid_ms = 2000) {
    wire::TransferRates told;
    told.rates = {{id_, bps, true}};
    told.valid_ms = valid_ms;
    tell(told);
  }

  std::uint64_t rate() const { return rates.empty() ? 0 : rates.back().rate_bps; }

  WorkId id_ = 0;
};

TEST_F(Transfers, what_is_sent_is_told_with_what_is_left_and_how_fast_it_goes) {
  start_copying();

  measure(8'000'000, 0);
  measure(7'000'000, 1'000'000);
  advance(milliseconds(300));

  const auto told = sent<wire::Transfers>();
  ASSERT_GE(told.size(), 2u);
  ASSERT_EQ(told.back().transfers.size(), 1u);
  const wire::TransferReport& report = told.back().transfers[0];
  EXPECT_EQ(report.id, id_);
  EXPECT_EQ(report.job, JobId("j-1"));
  EXPECT_EQ(report.peer, NodeId("n-2"));
  EXPECT_EQ(report.kind, TransferKind::kCheckpoint);
  EXPECT_EQ(report.bytes_left, 7'000'000u);
  EXPECT_EQ(report.deadline_ms, 0u);
  EXPECT_GT(report.sent_bps, 10'000'000u);
  EXPECT_EQ(told.back().foreign_bps, 3'000'000u);
}

TEST_F(Transfers, a_node_that_sends_nothing_says_nothing) {
  start();
  run();

  advance(seconds(60));

  EXPECT_TRUE(sent<wire::Transfers>().empty());
}

TEST_F(Transfers, the_end_of_the_last_one_is_told_once) {
  start_copying();
  measure(8'000'000, 0);
  copied("n-2", 1);
  committed(1);

  advance(seconds(10));

  const auto told = sent<wire::Transfers>();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].transfers.size(), 1u);
  EXPECT_TRUE(told[1].transfers.empty());
}

TEST_F(Transfers, it_is_told_four_times_a_second_and_no_oftener) {
  start_copying();
  measure(8'000'000, 0);
  const std::size_t before = sent<wire::Transfers>().size();

  for (int i = 0; i < 20; ++i) measure(7'000'000, 1'000'000);  // two seconds

  const std::size_t more = sent<wire::Transfers>().size() - before;
  EXPECT_GE(more, 6u);
  EXPECT_LE(more, 8u);
}

TEST_F(Transfers, an_evacuation_is_told_with_the_time_that_is_left) {
  start_copying();
  measure(8'000'000, 0);

  warden.reclaims = {a_reclaim(ReclaimKind::kNotice, seconds(30))};
  push_state();

  const auto told = sent<wire::Transfers>();
  ASSERT_FALSE(told.empty());
  const wire::TransferReport& report = told.back().transfers.at(0);
  EXPECT_EQ(report.kind, TransferKind::kEvacuation) << "at once, not with the next report";
  EXPECT_GT(report.deadline_ms, 29'000u);
  EXPECT_LE(report.deadline_ms, 30'000u);
}

TEST_F(Transfers, a_granted_rate_is_applied_at_once) {
  start_copying();
  measure(8'000'000, 0);

  grant(40'000'000);

  EXPECT_EQ(rate(), 40'000'000u);
}

TEST_F(Transfers, a_granted_rate_never_exceeds_the_contract) {
  contract.uplink_bps_normal = 5'000'000;
  contract.uplink_bps_evacuation = 20'000'000;
  start_copying();
  EXPECT_EQ(work_body<CopyGeneration>().rate_bps, 5'000'000u);
  measure(8'000'000, 0);

  grant(40'000'000);
  EXPECT_LE(rate(), 5'000'000u);

  warden.reclaims = {a_reclaim(ReclaimKind::kNotice, seconds(30))};
  push_state();
  grant(40'000'000);
  EXPECT_EQ(rate(), 20'000'000u);
}

TEST_F(Transfers, no_copy_stands_still_for_the_sake_of_others) {
  start_copying();
  measure(8'000'000, 0);

  grant(1);

  EXPECT_EQ(rate(), 1'000'000u);
}

TEST_F(Transfers, with_the_coordinator_away_the_node_plans_over_its_own_uplink) {
  facts.uplink_bps = 100'000'000;
  start_copying();
  measure(80'000'000, 0);
  grant(10'000'000);
  ASSERT_EQ(rate(), 10'000'000u);

  feed(CoordinatorDisconnected{"gone"});
  measure(80'000'000, 0);

  EXPECT_NEAR(static_cast<double>(rate()), 92e6, 1e6) << "less the margin and the owner's own 3";
}

TEST_F(Transfers, rates_that_are_too_old_count_no_more) {
  facts.uplink_bps = 100'000'000;
  start_copying();
  measure(80'000'000, 0);
  grant(10'000'000, 1000);

  advance(seconds(2));

  EXPECT_GT(rate(), 50'000'000u);
}

TEST_F(Transfers, alone_the_evacuation_that_has_a_deadline_goes_before_the_others) {
  contract.uplink_bps_normal = contract.uplink_bps_evacuation = 10'000'000;
  config.copies_max = 4;
  start_copying();
  feed(CoordinatorDisconnected{"gone"});
  measure(4'000'000, 0);

  warden.reclaims = {a_reclaim(ReclaimKind::kNotice, seconds(30))};
  push_state();
  measure(4'000'000, 0);

  EXPECT_NEAR(static_cast<double>(rate()), 9.5e6, 0.6e6);
}

/// A copy that begins with the save, whose size its peer cannot say before that is whole.
class CopiesThatBeginWithTheSave : public CoreUplink {
 protected:
  static constexpr std::uint64_t kMb = 1'000'000;

  void begins_to_save() {
    feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
    if (!has_work<TakeSnapshot>()) advance(seconds(1));
  }

  void is_whole(std::uint32_t number, std::uint64_t fresh) {
    GenerationRef ref = a_generation(number);
    ref.bytes = 100 * kMb;
    ref.new_bytes = fresh;
    finish<TakeSnapshot>(SnapshotTaken{ref, nanoseconds(0)});
  }

  void has_saved(std::uint32_t number, std::uint64_t fresh) {
    begins_to_save();
    is_whole(number, fresh);
    durable(number);
    advance(seconds(10));
  }

  /// What the coordinator hears when so much of it was sent.
  wire::TransferReport told(std::uint64_t sent_bytes) {
    const auto copy = std::find_if(works.begin(), works.end(), [](const Work& w) {
      return std::holds_alternative<CopyGeneration>(w.body);
    });
    if (copy == works.end()) return {};
    TransferProgress progress;
    progress.id = copy->id;
    progress.bytes_sent = sent_bytes;
    feed(TransfersMeasured{{progress}, 0, {}});
    advance(milliseconds(300));
    const auto reports = sent<wire::Transfers>();
    return reports.empty() || reports.back().transfers.empty() ? wire::TransferReport{}
                                                               : reports.back().transfers[0];
  }
};

TEST_F(CopiesThatBeginWithTheSave, are_told_as_large_as_the_guests_habits_say) {
  run();
  has_saved(1, 100 * kMb);
  has_saved(2, 20 * kMb);
  begins_to_save();

  const auto at_first = told(0);
  EXPECT_FALSE(at_first.is_size_known);
  EXPECT_NEAR(static_cast<double>(at_first.bytes_left), 20e6, 3e6);
  EXPECT_EQ(told(5 * kMb).bytes_left, at_first.bytes_left - 5 * kMb);
}

TEST_F(CopiesThatBeginWithTheSave, have_their_true_size_as_soon_as_it_is_whole) {
  run();
  has_saved(1, 100 * kMb);
  has_saved(2, 20 * kMb);
  begins_to_save();
  ASSERT_FALSE(told(5 * kMb).is_size_known);
  is_whole(3, 35 * kMb);

  const auto report = told(6 * kMb);
  EXPECT_TRUE(report.is_size_known) << "what it gets shows what its line carries";
  EXPECT_EQ(report.bytes_left, 29 * kMb);
}

TEST_F(CopiesThatBeginWithTheSave, of_a_guest_that_went_on_elsewhere_are_as_large_as_its_last_one) {
  resume = a_generation(4);
  resume.bytes = 100 * kMb;
  resume.new_bytes = 14 * kMb;
  run();
  begins_to_save();

  EXPECT_EQ(told(0).bytes_left, 14 * kMb);
}

TEST_F(CopiesThatBeginWithTheSave, to_who_lacks_the_save_before_have_that_to_bring_too) {
  run();
  has_saved(1, 100 * kMb);
  begins_to_save();
  is_whole(2, 20 * kMb);
  ASSERT_TRUE(told(0).is_size_known);
  warden.reclaims = {a_reclaim(ReclaimKind::kNotice, seconds(60))};
  push_state();
  begins_to_save();
  is_whole(3, 15 * kMb);

  EXPECT_EQ(told(0).bytes_left, 35 * kMb);
}

}  // namespace
}  // namespace rn::agent
