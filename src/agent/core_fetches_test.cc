// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"
#include "agent/pacing.h"

namespace rn::agent {
namespace {

using warden_wire::SetTransfers;

constexpr const char* kServingEnd = "192.0.2.1:7445";

/// A node from which n-5 restores a generation for its attempt of job 9.
class Fetches : public CoreTest {
 protected:
  static FetchProgress a_fetch(WorkId number, const std::string& peer = "n-5") {
    FetchProgress fetch;
    fetch.progress.id = kFirstFetch + number;
    fetch.progress.bytes_left = 80'000'000;
    fetch.progress.local = kServingEnd;
    fetch.progress.remote = "192.0.2.5:" + std::to_string(40'000 + number);
    fetch.job = JobId("j-9");
    fetch.epoch = {1, 3};
    fetch.peer = NodeId(peer);
    return fetch;
  }

  static FetchProgress an_image(WorkId number) {
    FetchProgress fetch = a_fetch(number, "n-6");
    fetch.image = "sha256:img";
    return fetch;
  }

  /// A guest of the node's own has saved; the copy of that is under way.
  void start_copying() {
    start();
    run();
    save(1);
    copy_ = std::find_if(works.begin(), works.end(), [](const Work& w) {
              return std::holds_alternative<CopyGeneration>(w.body);
            })->id;
  }

  void measure(std::vector<FetchProgress> fetches, nanoseconds after = milliseconds(100)) {
    clock.advance(after);
    TransfersMeasured seen;
    if (copy_ != 0) seen.transfers = {{copy_, 80'000'000, 0}};
    seen.fetches = std::move(fetches);
    feed(seen);
  }

  void grant(WorkId id, std::uint64_t bps, bool is_awaited = true, std::uint32_t valid_ms = 2000) {
    wire::TransferRates told;
    told.rates = {{id, bps, false, is_awaited}};
    told.valid_ms = valid_ms;
    tell(told);
  }

  /// As its socket is paced; 0 = no limit, or it never was.
  std::uint64_t rate_of(WorkId id) const {
    for (auto at = rates.rbegin(); at != rates.rend(); ++at)
      if (at->id == id) return at->rate_bps;
    return 0;
  }

  WorkId copy_ = 0;
};

constexpr WorkId kFirstOne = kFirstFetch + 1;
constexpr WorkId kSecondOne = kFirstFetch + 2;

TEST_F(Fetches, what_a_peer_fetches_is_told_by_its_ticket_with_what_was_asked_and_is_not_sent) {
  start();

  measure({a_fetch(1)});

  const auto told = sent<wire::Transfers>();
  ASSERT_EQ(told.size(), 1u) << "at once";
  EXPECT_TRUE(told[0].transfers.empty());
  ASSERT_EQ(told[0].fetches.size(), 1u);
  const wire::FetchReport& report = told[0].fetches[0];
  EXPECT_EQ(report.id, kFirstOne);
  EXPECT_EQ(report.job, JobId("j-9"));
  EXPECT_EQ(report.epoch, (LeaseEpoch{1, 3}));
  EXPECT_EQ(report.peer, NodeId("n-5"));
  EXPECT_EQ(report.image, "");
  EXPECT_EQ(report.bytes_left, 80'000'000u);
  EXPECT_TRUE(report.is_size_known);
}

TEST_F(Fetches, the_end_of_the_last_one_is_told_once) {
  start();
  measure({a_fetch(1)});

  measure({});
  advance(seconds(5));

  const auto told = sent<wire::Transfers>();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_TRUE(told[1].fetches.empty());
}

TEST_F(Fetches, a_restore_obeys_the_rate_that_the_coordinator_tells) {
  start();
  measure({a_fetch(1)});

  grant(kFirstOne, 40'000'000);

  EXPECT_EQ(rate_of(kFirstOne), 40'000'000u);
}

TEST_F(
    Fetches, a_restore_has_no_more_than_the_contracts_share_in_normal_times_and_never_stands_still
) {
  contract.uplink_bps_normal = 5'000'000;
  contract.uplink_bps_evacuation = 20'000'000;
  start();
  measure({a_fetch(1)});

  grant(kFirstOne, 40'000'000);
  EXPECT_EQ(rate_of(kFirstOne), 5'000'000u);
  grant(kFirstOne, 1);
  EXPECT_EQ(rate_of(kFirstOne), 1'000'000u);
}

TEST_F(Fetches, several_connections_of_one_ticket_are_told_as_one_and_share_its_rate) {
  start();

  measure({a_fetch(1), a_fetch(2)});
  grant(kFirstOne, 40'000'000);

  const auto told = sent<wire::Transfers>();
  ASSERT_EQ(told.back().fetches.size(), 1u);
  EXPECT_EQ(told.back().fetches[0].bytes_left, 160'000'000u);
  EXPECT_EQ(rate_of(kFirstOne), 20'000'000u);
  EXPECT_EQ(rate_of(kSecondOne), 20'000'000u);
}

TEST_F(Fetches, a_coordinator_that_dies_in_a_restore_leaves_the_node_to_plan_by_itself) {
  facts.uplink_bps = 100'000'000;
  start();
  measure({a_fetch(1)});
  grant(kFirstOne, 10'000'000);
  ASSERT_EQ(rate_of(kFirstOne), 10'000'000u);

  feed(CoordinatorDisconnected{"gone"});
  measure({a_fetch(1)});

  EXPECT_NEAR(static_cast<double>(rate_of(kFirstOne)), 95e6, 1e6);
}

TEST_F(Fetches, a_coordinator_that_does_not_know_fetches_leaves_them_to_the_node) {
  facts.uplink_bps = 100'000'000;
  start_copying();
  measure({a_fetch(1)});

  grant(copy_, 30'000'000);
  measure({a_fetch(1)});

  EXPECT_EQ(rate_of(copy_), 30'000'000u);
  EXPECT_GT(rate_of(kFirstOne), 50'000'000u);
}

TEST_F(Fetches, alone_a_restore_goes_before_the_checkpoints) {
  facts.uplink_bps = 100'000'000;
  start_copying();
  feed(CoordinatorDisconnected{"gone"});

  measure({a_fetch(1)});

  EXPECT_NEAR(static_cast<double>(rate_of(kFirstOne)), 95e6, 1e6);
  EXPECT_EQ(rate_of(copy_), 1'000'000u) << "it does not stand still";
}

TEST_F(Fetches, alone_a_restore_has_its_share_beside_an_evacuation_with_time) {
  facts.uplink_bps = 100'000'000;
  start_copying();
  feed(CoordinatorDisconnected{"gone"});
  warden.reclaims = {a_reclaim(ReclaimKind::kNotice, seconds(60))};
  push_state();

  measure({a_fetch(1)});

  EXPECT_NEAR(static_cast<double>(rate_of(kFirstOne)), 95e6 / 4, 1e6);
  EXPECT_NEAR(static_cast<double>(rate_of(copy_)), 95e6 * 3 / 4, 2e6);
}

TEST_F(Fetches, alone_a_restore_that_asks_and_does_not_read_gives_the_line_back) {
  facts.uplink_bps = 100'000'000;
  start_copying();
  feed(CoordinatorDisconnected{"gone"});

  for (int i = 0; i < 30; ++i) measure({a_fetch(1)});  // three seconds without a byte

  EXPECT_LE(rate_of(kFirstOne), 2'000'000u);
  EXPECT_GT(rate_of(copy_), 90'000'000u);
}

TEST_F(Fetches, an_image_that_no_start_waits_for_goes_after_the_checkpoints) {
  facts.uplink_bps = 100'000'000;
  start_copying();
  measure({an_image(1)});
  grant(kFirstOne, 50'000'000, false);

  feed(CoordinatorDisconnected{"gone"});
  measure({an_image(1)});

  EXPECT_EQ(rate_of(kFirstOne), 1'000'000u);
  EXPECT_GT(rate_of(copy_), 90'000'000u);
}

TEST_F(Fetches, who_waits_behind_it_slows_an_image_that_no_start_waits_for_and_no_restore) {
  start();
  const auto look = [&](std::uint64_t sent, milliseconds round_trip) {
    std::vector<FetchProgress> seen = {a_fetch(1), an_image(2)};
    for (FetchProgress& one : seen) {
      one.progress.bytes_sent = sent;
      one.progress.round_trip = round_trip;
      one.progress.least_round_trip = milliseconds(1);
    }
    measure(seen, milliseconds(250));
    grant(kFirstOne, 40'000'000);
    grant(kSecondOne, 40'000'000, false);
  };
  look(0, milliseconds(1));
  look(1'000'000, milliseconds(1));
  ASSERT_EQ(rate_of(kSecondOne), 40'000'000u);

  for (std::uint64_t i = 2; i < 6; ++i) look(i * 1'000'000, milliseconds(100));

  EXPECT_EQ(rate_of(kFirstOne), 40'000'000u);
  EXPECT_LT(rate_of(kSecondOne), 10'000'000u);
}

TEST_F(Fetches, where_the_owner_bounds_transfers_a_restore_is_claimed_and_not_left_unclaimed) {
  warden.transfers.is_there = true;
  warden.transfers.bytes_per_s = 12'500'000;
  start();
  answer<SetTransfers>();
  measure({a_fetch(1), an_image(2)});
  grant(kFirstOne, 40'000'000);

  std::vector<warden_wire::Transfer> claimed;
  while (has_asked<SetTransfers>()) {
    claimed = asked<SetTransfers>().front().transfers;
    answer<SetTransfers>();
    advance(milliseconds(1));
  }

  ASSERT_EQ(claimed.size(), 2u);
  EXPECT_EQ(claimed[0].id, kFirstOne);
  EXPECT_EQ(claimed[0].local, kServingEnd);
  EXPECT_EQ(claimed[0].remote, "192.0.2.5:40001");
  EXPECT_EQ(claimed[0].purpose, TransferPurpose::kCheckpoint)
      << "one part of the contract for both";
  EXPECT_EQ(claimed[0].bytes_per_s, pacing_bytes_per_s(rate_of(kFirstOne)));
  EXPECT_LE(rate_of(kFirstOne) + rate_of(kSecondOne), 95'000'100u)
      << "within the grant, all together";
  const std::string words = core->view(clock.now()).copies;
  EXPECT_NE(words.find("restore "), std::string::npos) << words;
  EXPECT_NE(words.find("image "), std::string::npos) << words;
}

TEST_F(Fetches, a_fetch_that_is_over_is_claimed_no_more) {
  warden.transfers.is_there = true;
  start();
  answer<SetTransfers>();
  measure({a_fetch(1)});
  answer<SetTransfers>();

  measure({});

  ASSERT_TRUE(has_asked<SetTransfers>());
  EXPECT_TRUE(asked<SetTransfers>().front().transfers.empty());
}

}  // namespace
}  // namespace rn::agent
