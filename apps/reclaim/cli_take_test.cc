// SPDX-License-Identifier: Apache-2.0
#include "cli_take.h"

#include <gtest/gtest.h>

namespace rn::cli {
namespace {

Taking a_taking(OrderState state) {
  Taking taking;
  taking.order.id = "order-0001";
  taking.order.node = NodeId("n-a");
  taking.order.kind = ReclaimKind::kEmergency;
  taking.order.state = state;
  taking.order.message = "what became of it";
  taking.order.ordered_wall_ms = 100'000;
  return taking;
}

ReclaimRecord a_reclaim(const char* id, std::int64_t declared_wall_ms, ReclaimPhase phase) {
  ReclaimRecord reclaim;
  reclaim.id = ReclaimId(id);
  reclaim.node = NodeId("n-a");
  reclaim.kind = ReclaimKind::kEmergency;
  reclaim.phase = phase;
  reclaim.declared_ns = 1'000'000'000;
  reclaim.declared_wall_ms = declared_wall_ms;
  return reclaim;
}

/// The code of its error, or how it stands.
std::string end_words(const Taking& taking, bool is_enough = false) {
  const auto end = end_of_taking(taking, is_enough);
  if (!end) return "goes on";
  return *end ? "good" : std::string(to_string(end->error().code));
}

TEST(Take, ends_well_only_where_the_machine_says_that_it_is_cleared) {
  Taking taking = a_taking(OrderState::kTaken);
  EXPECT_EQ(end_words(taking), "goes on");
  taking.reclaim = a_reclaim("r-1", 100'000, ReclaimPhase::kCut);
  EXPECT_EQ(end_words(taking), "goes on");
  taking.reclaim->phase = ReclaimPhase::kCleared;
  taking.reclaim->cleared_ns = 1'035'000'000;
  EXPECT_EQ(end_words(taking), "good");
  taking.reclaim->phase = ReclaimPhase::kReturned;
  EXPECT_EQ(end_words(taking), "good") << "it was, before it was lent again";
  taking.reclaim->cleared_ns = 0;
  EXPECT_EQ(end_words(taking), "conflict");
  taking.reclaim->phase = ReclaimPhase::kWedged;
  taking.reclaim->remains = {"process 7"};
  EXPECT_EQ(end_words(taking), "internal");
  EXPECT_NE(end_of_taking(taking, false)->error().message.find("process 7"), std::string::npos);
}

TEST(Take, says_what_became_of_an_order_that_nobody_carried_out) {
  for (const bool is_enough : {false, true}) {
    EXPECT_EQ(end_words(a_taking(OrderState::kWaiting), is_enough), "goes on");
    EXPECT_EQ(end_words(a_taking(OrderState::kSent), is_enough), "goes on");
    EXPECT_EQ(end_words(a_taking(OrderState::kExpired), is_enough), "unavailable");
    EXPECT_EQ(end_words(a_taking(OrderState::kRefused), is_enough), "conflict");
    EXPECT_EQ(end_words(a_taking(OrderState::kUnanswered), is_enough), "timeout");
  }
  EXPECT_EQ(end_words(a_taking(OrderState::kTaken), true), "good") << "who does not want to wait";
  const Error error = end_of_taking(a_taking(OrderState::kExpired), false)->error();
  EXPECT_EQ(error.message, "what became of it");
  EXPECT_NE(error.hint.find("reclaim-agent reclaim --now"), std::string::npos);
}

TEST(Take, finds_the_reclaim_that_its_order_became) {
  ReclaimOrder order = a_taking(OrderState::kTaken).order;
  const auto older = a_reclaim("r-1", 40'000, ReclaimPhase::kReturned);
  auto other = a_reclaim("r-2", 101'000, ReclaimPhase::kCut);
  other.node = NodeId("n-b");
  auto notice = a_reclaim("r-3", 101'000, ReclaimPhase::kEvacuating);
  notice.kind = ReclaimKind::kNotice;
  auto gpu = a_reclaim("r-4", 101'000, ReclaimPhase::kCut);
  gpu.gpus = {1};
  const std::vector<ReclaimRecord> others = {older, other, notice, gpu};
  EXPECT_FALSE(reclaim_of(order, others, 0));

  const auto own = a_reclaim("r-5", 99'000, ReclaimPhase::kCut);
  EXPECT_EQ(reclaim_of(order, {older, other, own}, 0)->id, ReclaimId("r-5"));
  order.reclaim = ReclaimId("r-3");
  EXPECT_EQ(reclaim_of(order, others, 0)->id, ReclaimId("r-3")) << "where its machine named it";
  order.reclaim = ReclaimId("r-9");
  EXPECT_FALSE(reclaim_of(order, {own}, 0));
  order.reclaim = ReclaimId();
  const auto quick = a_reclaim("r-6", 40'500, ReclaimPhase::kReturned);
  EXPECT_EQ(reclaim_of(order, {quick}, 60'000)->id, ReclaimId("r-6")) << "its clock is behind";
  EXPECT_FALSE(reclaim_of(order, {quick}, 0));
  order.gpus = {1};
  EXPECT_EQ(reclaim_of(order, others, 0)->id, ReclaimId("r-4"));
}

TEST(Take, tells_the_machines_steps_with_its_own_times) {
  ReclaimRecord reclaim = a_reclaim("r-1", 0, ReclaimPhase::kCleared);
  EXPECT_TRUE(steps_of(reclaim).empty());
  reclaim.cut_ns = 1'001'240'000;
  reclaim.killed_ns = 1'009'000'000;
  reclaim.cleared_ns = 13'500'000'000;

  const std::vector<std::string> expected = {
      "network cut after 1.2 ms", "guests ended after 9.0 ms", "cleared after 12.5 s"};
  EXPECT_EQ(steps_of(reclaim), expected);
}

TEST(Take, a_time_that_is_none_is_said_before_anybody_is_asked) {
  const Client nobody(Login{"https://127.0.0.1:1", "secret", std::string(64, 'a')});
  TakeOptions options;
  options.node = "n-a";
  options.in = "soon";
  testing::internal::CaptureStderr();
  EXPECT_EQ(take(nobody, options), 2);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("--in"), std::string::npos) << said;
}

}  // namespace
}  // namespace rn::cli
