// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"
#include "agent/core_state.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class CoreSchedule : public CoreTest {
 protected:
  void SetUp() override {
    spec.orphan_limit_s = contract.orphan_limit_s = 100'000;
    start();
    run();
  }

  /// Of eight quarters of an hour, as the coordinator sends it.
  static wire::HazardForecast returns_every(double hours, double high = 1.5) {
    wire::HazardForecast told{.step_s = 900, .low = 0.6, .high = high};
    told.per_day.assign(8, 24 / hours);
    return told;
  }

  void expect_owner(const wire::HazardForecast& told) {
    tell(wire::HeartbeatAck{.seq = 1, .hazard = told});
  }

  std::string trouble() {
    EXPECT_EQ(state(), AttemptState::kRunning);
    return core->reports(clock.now()).front().save_trouble;
  }

  /// Generation `number` is safe since now.
  void safe(std::uint32_t number) {
    feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
    GenerationRef ref = a_generation(number);
    ref.bytes = ref.new_bytes = 100'000'000;
    finish<TakeSnapshot>(SnapshotTaken{ref});
  }
};

TEST_F(CoreSchedule, a_checkpoint_too_old_for_its_owners_habits_is_told_once_and_again_when_twice) {
  safe(1);
  expect_owner(returns_every(2));
  advance(std::chrono::minutes(29));
  EXPECT_THAT(trouble(), IsEmpty());

  advance(std::chrono::minutes(2));
  const std::string told = trouble();
  EXPECT_EQ(
      told,
      "its last checkpoint is more than 30 min old on a node whose owner comes back every 2 h on "
      "average; next: let it save more often"
  );
  advance(std::chrono::minutes(28));
  EXPECT_EQ(trouble(), told) << "not at each look";
  advance(std::chrono::minutes(2));
  EXPECT_THAT(trouble(), HasSubstr("more than 60 min old"));

  safe(2);
  EXPECT_THAT(trouble(), IsEmpty());
}

TEST(ToldDuration, says_seconds_below_a_minute_and_never_more_than_it_is) {
  EXPECT_EQ(told_duration(0.2), "1 s");
  EXPECT_EQ(told_duration(59.9), "59 s");
  EXPECT_EQ(told_duration(60), "1 min");
  EXPECT_EQ(told_duration(3 * 3600), "3 h");
}

TEST_F(CoreSchedule, who_is_seldom_back_or_hardly_known_is_no_reason_to_warn) {
  safe(1);
  expect_owner(returns_every(500));
  advance(std::chrono::minutes(40));
  EXPECT_THAT(trouble(), IsEmpty());

  expect_owner(returns_every(2, 5.5));
  advance(std::chrono::minutes(1));
  EXPECT_THAT(trouble(), IsEmpty());
}

TEST_F(CoreSchedule, a_forecast_ends_with_its_last_step_and_one_that_cannot_be_is_not_taken) {
  safe(1);
  wire::HazardForecast minutes = returns_every(2);
  minutes.step_s = 60;  // over after eight, long before the half hour after which it would be told
  expect_owner(minutes);
  wire::HazardForecast wrong = returns_every(2);
  wrong.step_s = 0;
  expect_owner(wrong);
  wrong = returns_every(2);
  wrong.per_day.back() = -1;
  expect_owner(wrong);
  advance(std::chrono::minutes(40));
  EXPECT_THAT(trouble(), IsEmpty());

  expect_owner(returns_every(2));
  advance(std::chrono::minutes(1));
  EXPECT_THAT(trouble(), HasSubstr("every 2 h"));
}

}  // namespace
}  // namespace rn::agent
