// SPDX-License-Identifier: Apache-2.0
// Outputs on their way to the coordinator: told, paced and claimed as copies are.
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

using warden_wire::SetTransfers;

constexpr const char* kOwnEnd = "192.0.2.1:40001";
constexpr const char* kCoordinatorEnd = "192.0.2.9:7443";
constexpr std::uint64_t kFirst = 20'000'000;

class GoingHome : public CoreTest {
 protected:
  /// The guest has ended well; its outputs are on their way.
  void start_upload() {
    start();
    if (warden.transfers.is_there) answer<SetTransfers>([](warden_wire::Answer&) {});
    run();
    set_guest(GuestState::kExited, 0);
    push_state();
    ASSERT_TRUE(has_work<UploadOutputs>());
    id_ = upload().id;
  }

  const Work& upload() const {
    return *std::find_if(works.begin(), works.end(), [](const Work& w) {
      return std::holds_alternative<UploadOutputs>(w.body);
    });
  }

  void measure(
      std::uint64_t left,
      std::uint64_t sent,
      nanoseconds round_trip = milliseconds(2),
      nanoseconds after = milliseconds(100)
  ) {
    clock.advance(after);
    TransferProgress seen{id_, left, sent, kOwnEnd, kCoordinatorEnd};
    seen.round_trip = round_trip;
    feed(TransfersMeasured{{seen}, 0});
  }

  void grant(std::uint64_t bps) {
    wire::TransferRates told;
    told.rates = {{id_, bps}};
    told.valid_ms = 2000;
    tell(told);
  }

  /// What the newest heartbeat says of the guest. Its outputs are tried again meanwhile.
  std::string told_trouble() {
    advance(seconds(5));
    const auto beats = sent<wire::Heartbeat>();
    if (beats.empty() || beats.back().attempts.empty()) return "no heartbeat";
    return beats.back().attempts.front().save_trouble;
  }

  std::uint64_t rate() const { return rates.empty() ? 0 : rates.back().rate_bps; }

  WorkId id_ = 0;
};

TEST_F(GoingHome, what_is_left_is_told_with_the_coordinator_as_the_peer) {
  start_upload();

  measure(80'000'000, 0);
  measure(79'000'000, 1'000'000);
  advance(milliseconds(300));

  const auto told = sent<wire::Transfers>();
  ASSERT_GE(told.size(), 2u);
  ASSERT_EQ(told.back().transfers.size(), 1u);
  const wire::TransferReport& report = told.back().transfers[0];
  EXPECT_EQ(report.id, id_);
  EXPECT_EQ(report.job, JobId("j-1"));
  EXPECT_EQ(report.epoch, kEpoch);
  EXPECT_EQ(report.peer, NodeId());
  EXPECT_EQ(report.kind, TransferKind::kCheckpoint);
  EXPECT_EQ(report.bytes_left, 79'000'000u);
  EXPECT_TRUE(report.is_size_known);
  EXPECT_EQ(report.deadline_ms, 0u);
  EXPECT_GT(report.sent_bps, 10'000'000u);
}

TEST_F(GoingHome, the_end_of_them_is_told_once) {
  start_upload();
  measure(80'000'000, 0);

  finish<UploadOutputs>(OutputsUploaded{});
  advance(seconds(5));

  const auto told = sent<wire::Transfers>();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_TRUE(told[1].transfers.empty());
}

TEST_F(GoingHome, that_they_find_no_room_is_told_until_they_are_home) {
  start_upload();
  finish<UploadOutputs>(Error{
      ErrorCode::kExhausted,
      "the coordinator's disk is full: 258 MiB are free",
      "ask the operator to make room"});
  EXPECT_EQ(
      told_trouble(),
      "it has ended well, and its outputs wait to come home: the coordinator's disk is full: 258 "
      "MiB are free; next: ask the operator to make room"
  );

  finish<UploadOutputs>(Error{
      ErrorCode::kExhausted, "the coordinator's disk is full: 257 MiB are free", ""});
  EXPECT_THAT(told_trouble(), testing::HasSubstr("258 MiB"))
      << "the same trouble in the same words";

  finish<UploadOutputs>(OutputsUploaded{});
  EXPECT_THAT(told_trouble(), testing::Not(testing::HasSubstr("wait to come home")));
}

TEST_F(GoingHome, a_coordinator_that_is_away_for_a_moment_is_no_trouble) {
  const Error away{ErrorCode::kUnavailable, "connecting: no answer", ""};
  start_upload();
  finish<UploadOutputs>(away);
  EXPECT_EQ(told_trouble(), "");

  for (int i = 0; i < 3; ++i) {
    finish<UploadOutputs>(away);
    advance(seconds(5));
  }

  EXPECT_THAT(
      told_trouble(),
      testing::AllOf(
          testing::HasSubstr("connecting: no answer"), testing::HasSubstr("`reclaim-agent doctor`")
      )
  );
}

TEST_F(GoingHome, until_the_coordinator_has_said_how_fast_they_go_slowly) {
  facts.uplink_bps = 1'000'000'000;
  start_upload();
  EXPECT_EQ(std::get<UploadOutputs>(upload().body).rate_bps, kFirst);
  measure(80'000'000, 0);
  EXPECT_TRUE(rates.empty()) << "it began so, and goes on so";

  grant(64'000'000);

  EXPECT_EQ(rate(), 64'000'000u);
}

TEST_F(GoingHome, a_coordinator_that_plans_no_outputs_leaves_them_to_the_node) {
  facts.uplink_bps = 1'000'000'000;
  start_upload();
  measure(800'000'000, 0);

  advance(seconds(3));
  measure(800'000'000, 100'000);

  EXPECT_NEAR(static_cast<double>(rate()), 950e6, 10e6) << "its own uplink, less the margin";
}

TEST_F(GoingHome, without_a_plan_they_make_way_when_others_wait) {
  facts.uplink_bps = 1'000'000'000;
  start_upload();
  std::uint64_t bytes = 0;
  for (int i = 0; i < 30; ++i) measure(800'000'000, bytes += 100'000);
  ASSERT_NEAR(static_cast<double>(rate()), 950e6, 10e6);

  for (int i = 0; i < 5; ++i) measure(800'000'000, bytes += 100'000, milliseconds(80));
  EXPECT_LE(rate(), 240'000'000u);
  EXPECT_NE(
      core->view(clock.now()).copies.find("what goes to the coordinator slowed to"),
      std::string::npos
  ) << core->view(clock.now()).copies;

  for (int i = 0; i < 200; ++i) measure(800'000'000, bytes += 100'000, milliseconds(80));
  EXPECT_GE(rate(), 1'000'000u) << "a job whose outputs stand still never ends";
}

TEST_F(GoingHome, they_never_stand_still_for_the_sake_of_others) {
  start_upload();
  measure(80'000'000, 0);

  grant(1);

  EXPECT_EQ(rate(), 1'000'000u);
}

TEST_F(GoingHome, they_have_the_contracts_share_of_normal_times) {
  contract.uplink_bps_normal = 5'000'000;
  contract.uplink_bps_evacuation = 50'000'000;
  start_upload();
  EXPECT_EQ(std::get<UploadOutputs>(upload().body).rate_bps, 5'000'000u);
  measure(80'000'000, 0);

  grant(40'000'000);

  EXPECT_EQ(rate(), 5'000'000u);
}

TEST_F(GoingHome, where_the_owner_bounds_transfers_they_are_claimed_and_are_no_control_traffic) {
  warden.transfers.is_there = true;
  warden.transfers.bytes_per_s = 11'250'000;
  start_upload();
  measure(80'000'000, 0);

  const auto claims = asked<SetTransfers>();
  ASSERT_FALSE(claims.empty());
  ASSERT_EQ(claims.back().transfers.size(), 1u);
  const warden_wire::Transfer& claim = claims.back().transfers[0];
  EXPECT_EQ(claim.local, kOwnEnd);
  EXPECT_EQ(claim.remote, kCoordinatorEnd);
  EXPECT_EQ(claim.purpose, TransferPurpose::kCheckpoint);
  EXPECT_EQ(claim.bytes_per_s, kFirst / 8);
  answer<SetTransfers>([](warden_wire::Answer&) {});
  EXPECT_NE(
      core->view(clock.now()).copies.find("1 claimed: outputs 20.0 Mbit/s"), std::string::npos
  ) << core->view(clock.now()).copies;
}

TEST_F(GoingHome, of_a_node_that_is_taken_back_they_have_its_deadline_and_do_not_make_way) {
  start_upload();
  warden.reclaims = {a_reclaim(ReclaimKind::kNotice, seconds(300))};
  push_state();
  std::uint64_t bytes = 0;
  measure(80'000'000, bytes += 100'000);
  grant(64'000'000);
  ASSERT_EQ(rate(), 64'000'000u);

  for (int i = 0; i < 10; ++i) {
    measure(80'000'000, bytes += 100'000, milliseconds(80));
    grant(64'000'000);
  }

  EXPECT_EQ(rate(), 64'000'000u);
  ASSERT_FALSE(sent<wire::Transfers>().empty());
  const wire::TransferReport report = sent<wire::Transfers>().back().transfers.at(0);
  EXPECT_EQ(report.kind, TransferKind::kCheckpoint) << "nothing is promised for it";
  EXPECT_NEAR(report.deadline_ms, 299'000, 1'000);
}

TEST_F(GoingHome, a_coordinator_that_goes_away_leaves_them_to_the_node) {
  facts.uplink_bps = 100'000'000;
  start_upload();
  feed(CoordinatorDisconnected{"gone"});

  measure(80'000'000, 100'000);

  EXPECT_NEAR(static_cast<double>(rate()), 95e6, 1e6) << "nobody else sends";
}

}  // namespace
}  // namespace rn::agent
