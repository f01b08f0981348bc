// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"
#include "agent/pacing.h"

namespace rn::agent {
namespace {

using warden_wire::SetTransfers;

constexpr const char* kHere = "192.0.2.1:40001";
constexpr const char* kThere = "192.0.2.2:7445";

/// A node whose warden bounds transfers at the uplink. Warden and tests answer by hand.
class Claims : public CoreTest {
 protected:
  Claims() { warden.transfers.is_there = true; }

  /// The first claims, of a node that sends nothing, are taken; then a guest runs, has saved once,
  /// and the copy of that to n-2 is under way.
  void start_copying() {
    start();
    if (warden.transfers.is_there) take();
    run();
    save(1);
    id_ = std::find_if(works.begin(), works.end(), [](const Work& w) {
            return std::holds_alternative<CopyGeneration>(w.body);
          })->id;
  }

  void measure(const std::string& local = kHere) {
    clock.advance(milliseconds(100));
    feed(TransfersMeasured{{{id_, 8'000'000, 0, local, local.empty() ? "" : kThere}}, 0});
  }

  void grant(std::uint64_t bps) {
    wire::TransferRates told;
    told.rates = {{id_, bps, true}};
    told.valid_ms = 5000;
    tell(told);
  }

  /// The warden takes what it was told.
  SetTransfers take(const warden_wire::TransferCounts& counts = {}) {
    const auto all = asked<SetTransfers>();
    EXPECT_FALSE(all.empty()) << "nothing was claimed";
    if (all.empty()) return {};
    answer<SetTransfers>([&](warden_wire::Answer& a) { a.transfers = counts; });
    return all.front();
  }

  void refuse(ErrorCode code, const std::string& message) {
    answer<SetTransfers>([&](warden_wire::Answer& a) {
      a.code = to_string(code);
      a.message = message;
    });
  }

  std::uint64_t rate() const { return rates.empty() ? 0 : rates.back().rate_bps; }

  std::string copies() const { return core->view(clock.now()).copies; }

  WorkId id_ = 0;
};

TEST_F(Claims, bits_become_bytes_of_payload_and_no_rate_becomes_no_bound) {
  EXPECT_EQ(pacing_bytes_per_s(0), 0u);
  EXPECT_EQ(pacing_bytes_per_s(100'000'000), 12'500'000u);
  EXPECT_EQ(pacing_bytes_per_s(7), 1u) << "0 would be no bound at all";
}

TEST_F(Claims, a_copy_is_claimed_by_its_connection_when_it_has_one_with_the_rate_of_its_socket) {
  contract.uplink_bps_normal = 40'000'000;
  contract.uplink_bps_evacuation = 80'000'000;
  config.coordinator_port = 8443;
  config.rest_port = 8444;
  make_core();
  start_copying();
  measure("");
  EXPECT_FALSE(has_asked<SetTransfers>());

  measure();

  const SetTransfers told = take();
  ASSERT_EQ(told.transfers.size(), 1u);
  EXPECT_EQ(told.transfers[0].id, id_);
  EXPECT_EQ(told.transfers[0].local, kHere);
  EXPECT_EQ(told.transfers[0].remote, kThere);
  EXPECT_EQ(told.transfers[0].purpose, TransferPurpose::kCheckpoint);
  EXPECT_EQ(told.transfers[0].bytes_per_s, pacing_bytes_per_s(rate()));
  EXPECT_GT(told.transfers[0].bytes_per_s, 0u);
  EXPECT_FALSE(told.transfers[0].is_cut);
  EXPECT_EQ(told.checkpoint_bytes_per_s, 5'000'000u);
  EXPECT_EQ(told.evacuation_bytes_per_s, 10'000'000u);
  EXPECT_EQ(told.coordinator_port, 8443u);
  EXPECT_EQ(told.rest_port, 8444u);
}

TEST_F(Claims, of_a_copy_that_is_over_or_has_lost_its_connection_go) {
  start_copying();
  measure();
  EXPECT_EQ(take().transfers.size(), 1u);

  measure("");
  EXPECT_TRUE(take().transfers.empty());
  measure("192.0.2.1:40002");
  EXPECT_EQ(take().transfers.at(0).local, "192.0.2.1:40002");
  copied("n-2", 1);
  EXPECT_TRUE(take().transfers.empty());
}

TEST_F(Claims, a_connection_that_the_warden_would_not_know_stays_unclaimed) {
  start_copying();

  for (const char* local : {"unknown", "[fe80::1%eth0]:40001"}) {
    measure(local);
    EXPECT_FALSE(has_asked<SetTransfers>()) << local;
  }
}

TEST_F(Claims, an_evacuation_is_claimed_as_one_from_the_notice_on) {
  start_copying();
  measure();
  take();

  warden.reclaims = {a_reclaim(ReclaimKind::kNotice, seconds(30))};
  push_state();

  EXPECT_EQ(take().transfers.at(0).purpose, TransferPurpose::kEvacuation);
}

TEST_F(Claims, one_request_is_under_way_and_the_newest_goes_with_the_next) {
  start_copying();
  measure();
  for (const std::uint64_t mbit : {50U, 40U, 30U, 20U}) grant(mbit * 1'000'000);

  EXPECT_EQ(asked<SetTransfers>().size(), 1u);
  take();
  EXPECT_EQ(take().transfers.at(0).bytes_per_s, 2'500'000u);
  EXPECT_FALSE(has_asked<SetTransfers>());
}

TEST_F(Claims, who_slows_down_does_so_at_once_and_who_goes_faster_waits_for_its_claim) {
  start_copying();
  measure();
  grant(20'000'000);
  while (has_asked<SetTransfers>()) take();
  ASSERT_EQ(rate(), 20'000'000u);

  grant(60'000'000);
  EXPECT_EQ(rate(), 20'000'000u);
  EXPECT_EQ(take().transfers.at(0).bytes_per_s, 7'500'000u);
  EXPECT_EQ(rate(), 60'000'000u);

  grant(30'000'000);
  EXPECT_EQ(rate(), 30'000'000u);
  EXPECT_EQ(take().transfers.at(0).bytes_per_s, 3'750'000u);
}

TEST_F(Claims, a_warden_that_does_not_answer_holds_no_copy_back) {
  start_copying();
  measure();
  grant(20'000'000);
  while (has_asked<SetTransfers>()) take();

  grant(60'000'000);
  for (int i = 0; i < 8; ++i) measure();
  EXPECT_EQ(rate(), 20'000'000u);
  for (int i = 0; i < 3; ++i) measure();

  EXPECT_EQ(rate(), 60'000'000u);
}

TEST_F(Claims, copies_together_keep_below_what_the_owner_grants) {
  warden.transfers.bytes_per_s = 10'000'000;
  start_copying();
  measure();

  grant(400'000'000);
  while (has_asked<SetTransfers>()) take();

  EXPECT_EQ(rate(), 76'000'000u) << "80 Mbit/s less the margin";
}

TEST_F(Claims, a_warden_that_bounds_nothing_is_told_nothing) {
  warden.transfers.is_there = false;
  start_copying();
  measure();
  grant(60'000'000);

  EXPECT_FALSE(has_asked<SetTransfers>());
  EXPECT_EQ(rate(), 60'000'000u);
  EXPECT_NE(copies().find("without --transfers"), std::string::npos) << copies();
  EXPECT_FALSE(core->view(clock.now()).are_copies_bounded);
}

TEST_F(Claims, a_warden_that_takes_none_is_asked_once_until_it_is_another) {
  start_copying();
  measure();
  refuse(ErrorCode::kUnsupported, "this warden does not bound transfers");

  for (int i = 0; i < 100; ++i) measure();
  EXPECT_FALSE(has_asked<SetTransfers>());
  EXPECT_NE(copies().find("does not bound"), std::string::npos) << copies();

  feed(WardenDisconnected{});
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  EXPECT_EQ(take().transfers.size(), 1u);
}

TEST_F(Claims, what_was_refused_is_tried_again_after_a_while) {
  start_copying();
  measure();
  refuse(ErrorCode::kInternal, "writing a transfer's rate: No space");

  measure();
  EXPECT_FALSE(has_asked<SetTransfers>());
  EXPECT_NE(copies().find("No space"), std::string::npos) << copies();
  advance(config.repeat);
  EXPECT_EQ(take().transfers.size(), 1u);
  EXPECT_EQ(copies().find("No space"), std::string::npos) << copies();
}

TEST_F(Claims, after_a_restart_of_either_the_warden_is_told_anew) {
  start_copying();
  measure();
  take();

  feed(WardenDisconnected{});
  feed(WardenConnected{});
  EXPECT_FALSE(has_asked<SetTransfers>()) << "whether it bounds them is not known yet";
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  EXPECT_EQ(take().transfers.size(), 1u);

  crash_and_restart();
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  EXPECT_TRUE(take().transfers.empty()) << "connections of an earlier life are claimed no more";
}

TEST_F(Claims, what_holds_is_told_again_with_its_counters_while_something_is_sent) {
  warden.transfers.bytes_per_s = 12'500'000;
  start_copying();
  measure();
  take();

  advance(seconds(3));
  warden_wire::TransferCounts counts;
  counts.transfers = {{id_, 1'000'000, 0, 3, 0}};
  take(counts);

  EXPECT_NE(copies().find("default routes' uplinks within 100.0 Mbit/s"), std::string::npos);
  EXPECT_NE(copies().find("1 claimed: checkpoint"), std::string::npos) << copies();
  EXPECT_NE(copies().find("3 packets refused"), std::string::npos) << copies();
  copied("n-2", 1);
  committed(1);
  take();
  advance(seconds(60));
  EXPECT_FALSE(has_asked<SetTransfers>()) << "of nothing nothing is said again";
}

TEST_F(Claims, the_campus_is_told_what_the_owner_grants_and_when_that_changes) {
  warden.transfers.bytes_per_s = 11'250'000;
  start();
  EXPECT_EQ(sent<wire::Hello>().back().facts.transfers_bps, 90'000'000u);
  EXPECT_FALSE(sent<wire::Hello>().back().facts.are_transfers_cut);
  push_state();
  EXPECT_TRUE(sent<wire::NodeUpdate>().empty()) << "nothing is new";

  warden.transfers.bytes_per_s = 1'250'000;
  push_state();
  EXPECT_EQ(sent<wire::NodeUpdate>().back().facts.transfers_bps, 10'000'000u);
  feed(FactsChanged{facts});
  EXPECT_EQ(sent<wire::NodeUpdate>().back().facts.transfers_bps, 10'000'000u);
  warden.transfers.is_cut = true;
  push_state();
  EXPECT_TRUE(sent<wire::NodeUpdate>().back().facts.are_transfers_cut);

  warden.transfers = {};
  push_state();
  EXPECT_EQ(sent<wire::NodeUpdate>().back().facts.transfers_bps, 0u);
  EXPECT_FALSE(sent<wire::NodeUpdate>().back().facts.are_transfers_cut);
}

TEST_F(Claims, a_grant_that_no_line_carries_is_told_as_the_most_that_one_does) {
  warden.transfers.bytes_per_s = ~std::uint64_t{0};
  start();

  EXPECT_EQ(sent<wire::Hello>().back().facts.transfers_bps, kMostGranted_bps);
}

TEST_F(Claims, that_the_owner_has_cut_them_is_said) {
  start_copying();
  EXPECT_EQ(copies().find("CUT"), std::string::npos) << copies();

  warden.transfers.is_cut = true;
  push_state();

  EXPECT_NE(copies().find("CUT by the owner"), std::string::npos) << copies();
}

}  // namespace
}  // namespace rn::agent
