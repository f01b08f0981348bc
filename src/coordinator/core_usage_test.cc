// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

class Usages : public CoreSite {
 protected:
  void SetUp() override {
    start();
    add_node("a", "lab-a").hello.facts.images = {a_image("base").digest};
    connect(node("a"));
    settle();
  }

  /// Two cores: a tenth of a GPU.
  static JobSpec a_tenth() {
    JobSpec spec = a_spec();
    spec.resources.cpu_milli = 2000;
    return spec;
  }

  UsageRow of_ann() { return tables.usage.at({UserId("ann"), LabId("lab-x")}); }
};

TEST_F(Usages, usage_is_charged_to_the_user_and_credited_to_the_lab_that_lends) {
  running(a_tenth());
  pass(310'000);

  // It is written when the first second is charged, and then every ten: at 301 of 310 seconds. A
  // half-life of a week takes 0.005 of 30.1.
  EXPECT_NEAR(of_ann().used_gpu_s, 30.095, 0.02);
  EXPECT_NEAR(tables.usage.at({UserId(), LabId("lab-x")}).used_gpu_s, of_ann().used_gpu_s, 1e-9);
  EXPECT_NEAR(tables.usage.at({UserId(), LabId("lab-a")}).lent_gpu_s, of_ann().used_gpu_s, 1e-9);
}

TEST_F(Usages, a_crash_forgives_a_user_ten_seconds_at_most) {
  running(a_tenth());
  pass(60'000);
  EXPECT_GE(of_ann().used_gpu_s, 4.99);
  pass(9'500);
  EXPECT_GE(of_ann().used_gpu_s, 5.94);
  restart();
  connect(node("a"));
  pass(12'000);

  EXPECT_GE(of_ann().used_gpu_s, 6.9) << "a restart goes on with what was used before";
}

TEST_F(Usages, nothing_is_written_while_nobody_uses_anything) {
  const JobId id = running(a_tenth());
  pass(15'000);
  say(node("a"), id, job(id).epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);
  pass(10'000);
  const UsageRow last = of_ann();
  EXPECT_GE(last.used_gpu_s, 1.49) << "the last seconds too";
  pass(60'000);

  EXPECT_EQ(of_ann().as_of_wall_ms, last.as_of_wall_ms);
}

class Turns : public Usages {
 protected:
  Turns() { config.strategy = sched::Strategy::kRoundRobin; }
};

TEST_F(Turns, who_was_served_longer_ago_is_next_after_a_restart_too) {
  const JobId first = running(a_spec(), user("ann"));
  node("a").lending = LendingState::kReclaimed;
  pass(6000);
  const JobId ann = submit(a_spec(), user("ann"));
  pass(1000);
  const JobId bob = submit(a_spec(), user("bob"));
  say(node("a"), first, job(first).epoch, AttemptState::kEnded, AttemptEnd::kSucceeded);
  EXPECT_EQ(core->queue_position(bob, clock.now()), 1U);
  EXPECT_EQ(core->queue_position(ann, clock.now()), 2U);
  restart();

  EXPECT_EQ(core->queue_position(bob, clock.now()), 1U);
  EXPECT_EQ(core->queue_position(ann, clock.now()), 2U);
}

}  // namespace
}  // namespace rn::coordinator
