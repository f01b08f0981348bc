// SPDX-License-Identifier: Apache-2.0
// What nodes fetch from their peers when they start a job, planned beside the copies.
#include "coordinator/core_fetches_fixture.h"

namespace rn::coordinator {
namespace {

TEST_F(Restoring, who_serves_a_restore_is_told_its_rate_and_that_a_start_waits_for_it) {
  build();

  restores(500 * kMB);
  pass(250);

  EXPECT_EQ(told("holder").id, 900u);
  EXPECT_NEAR(rate("holder"), 95, 0.1);
  EXPECT_TRUE(told("holder").is_awaited);
  EXPECT_FALSE(told("holder").is_promised);
  EXPECT_EQ(core->metrics().fetches_awaited, 1u);
  EXPECT_EQ(core->metrics().transfers, 0u);
  const std::string why = core->why(restoring_, clock.now()).value();
  EXPECT_NE(
      why.find("its files come from lab-holder/holder, 500 MB left at 95 Mbit/s"), std::string::npos
  ) << why;
}

TEST_F(Restoring, a_checkpoint_goes_by_what_the_restore_leaves) {
  build();

  copies(job_a_, 500 * kMB);
  restores(500 * kMB);
  pass(250);
  EXPECT_NEAR(rate("holder"), 95, 0.1);
  EXPECT_LT(rate("a"), 0.1);

  copies(job_a_, 500 * kMB);
  fetches("holder", {});
  pass(250);
  EXPECT_NEAR(rate("a"), 95, 0.1);
}

TEST_F(Restoring, a_promised_evacuation_arrives_in_time_beside_a_restore_that_has_its_share) {
  build();
  notice(job_b_);
  double evacuated = 100e6;
  double restored = 400e6;
  double at_s = 0;
  double least = 1e9;
  for (; evacuated > 0 && at_s < 25; at_s += 0.25) {
    restores(static_cast<std::uint64_t>(restored));
    copies(
        job_b_,
        static_cast<std::uint64_t>(evacuated),
        static_cast<std::uint32_t>(25'000 - at_s * 1000)
    );
    copies(job_a_, 500 * kMB);
    pass(250);
    ASSERT_TRUE(told("b").is_promised) << at_s;
    EXPECT_LE(rate("holder") + rate("b") + rate("a"), 95.1) << at_s;
    if (evacuated > 30e6) least = std::min(least, rate("holder"));
    evacuated -= rate("b") * 1e6 / 8 * 0.25;
    restored -= rate("holder") * 1e6 / 8 * 0.25;
  }

  EXPECT_LE(at_s, 0.95 * 25);
  EXPECT_GT(least, 20) << "a quarter of the line: it has time";
  EXPECT_EQ(count_events("evacuation.refused"), 0u);
}

TEST_F(
    Restoring, a_restore_is_neither_promised_room_nor_does_it_keep_an_evacuation_from_a_promise
) {
  build();
  restores(500 * kMB);
  pass(250);
  notice(job_b_);

  copies(job_b_, 100 * kMB, 10'000);  // 84 of the 95 Mbit/s until it is due
  restores(500 * kMB);
  pass(250);

  EXPECT_TRUE(told("b").is_promised);
  EXPECT_GE(rate("b"), 84);
  EXPECT_LT(rate("holder"), 11);
}

TEST_F(Restoring, what_the_owner_of_the_holder_grants_bounds_the_restore) {
  build();
  node("holder").hello.facts.transfers_bps = 40'000'000;
  node("holder").hello.contract.uplink_bps_normal = 20'000'000;
  node("holder").hello.contract.uplink_bps_evacuation = 200'000'000;
  update(node("holder"));

  restores(500 * kMB);
  pass(250);

  EXPECT_NEAR(rate("holder"), 19, 0.1);
}

TEST_F(Restoring, a_node_that_does_not_hold_the_job_is_not_believed) {
  build();

  fetches("store", {a_fetch(500 * kMB)});
  copies(job_a_, 500 * kMB);
  pass(250);

  EXPECT_FALSE(has_heard_rates("store"));
  EXPECT_NEAR(rate("a"), 95, 0.1) << "I15";
}

TEST_F(Restoring, a_restore_for_an_attempt_that_is_not_there_or_not_current_is_not_believed) {
  build();
  wire::FetchReport elsewhere = a_fetch(500 * kMB);
  elsewhere.peer = node("a").id;
  wire::FetchReport old = a_fetch(500 * kMB);
  old.epoch.attempt += 1;
  wire::FetchReport itself = a_fetch(500 * kMB);
  itself.peer = node("holder").id;
  wire::FetchReport nobody = a_fetch(500 * kMB);
  nobody.peer = NodeId("n-nobody");

  fetches("holder", {elsewhere, old, itself, nobody});
  pass(500);

  EXPECT_FALSE(has_heard_rates("holder"));
  EXPECT_EQ(core->metrics().fetches_awaited, 0u);
}

TEST_F(Restoring, what_is_fetched_when_the_guest_runs_already_goes_behind_the_checkpoints) {
  build();
  say(node("c"), restoring_, job(restoring_).epoch, AttemptState::kRunning);

  restores(500 * kMB);
  copies(job_a_, 500 * kMB);
  pass(250);

  EXPECT_FALSE(told("holder").is_awaited);
  EXPECT_LT(rate("holder"), 0.1);
  EXPECT_NEAR(rate("a"), 95, 0.1);
  EXPECT_EQ(core->metrics().fetches_others, 1u);
}

TEST_F(Restoring, pieces_of_an_image_count_as_a_restore_while_the_start_waits_for_them) {
  build();
  wire::FetchReport image = a_fetch(~std::uint64_t{0});
  image.image = job(restoring_).image_digest;
  fetches("holder", {image});
  pass(250);
  EXPECT_FALSE(has_heard_rates("holder")) << "it does not say that it has the image";

  node("holder").hello.facts.images = {image.image};
  update(node("holder"));
  fetches("holder", {image});
  pass(250);
  EXPECT_TRUE(told("holder").is_awaited);
  const std::string why = core->why(restoring_, clock.now()).value();
  EXPECT_NE(why.find("its image comes from lab-holder/holder, 0.0 MB left"), std::string::npos)
      << "no more than the image has: " << why;

  say(node("c"), restoring_, job(restoring_).epoch, AttemptState::kRunning);
  fetches("holder", {image});
  pass(250);
  EXPECT_FALSE(told("holder").is_awaited);
}

TEST_F(Restoring, a_receiver_that_does_not_read_gives_its_line_to_others) {
  build();

  for (int i = 0; i < 8; ++i) {
    restores(500 * kMB);
    copies(job_a_, 500 * kMB);
    pass(250);
  }

  EXPECT_LE(rate("holder"), 1.1);
  EXPECT_GT(rate("a"), 93);
}

TEST_F(Restoring, a_restore_of_which_nothing_is_heard_is_over) {
  build();
  restores(500 * kMB);
  pass(250);
  ASSERT_EQ(core->metrics().fetches_awaited, 1u);

  pass(2500);

  EXPECT_EQ(core->metrics().fetches_awaited, 0u);
}

TEST_F(Restoring, more_fetches_than_there_can_be_are_not_looked_at) {
  build();

  fetches("holder", std::vector<wire::FetchReport>(wire::kMaxTransfers + 1, a_fetch(kMB)));
  pass(500);

  EXPECT_FALSE(has_heard_rates("holder"));
}

}  // namespace
}  // namespace rn::coordinator
