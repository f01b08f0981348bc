// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

/// A node of lab-a with two GPUs, whose owner is somewhere else.
class Orders : public CoreSite {
 protected:
  void SetUp() override {
    start();
    FakeAgent& a = add_node("a", "lab-a");
    a.hello.facts.gpus = {{.index = 0}, {.index = 1}};
    connect(a);
    add_node("b", "lab-b");
    pass(config.heartbeat_ms);
  }

  static Caller owner(const char* lab = "lab-a", Role role = Role::kOwner) {
    return {UserId("olga"), LabId(lab), role};
  }

  OrderReclaim an_order(const std::string& id = "order-0001") {
    return {.node = node("a").id, .order = id, .kind = ReclaimKind::kEmergency};
  }

  /// Gives it as the owner; what is known of it then.
  ReclaimOrder give(const OrderReclaim& order) {
    const auto answer = run(owner(), order);
    EXPECT_TRUE(answer) << answer.error().describe();
    return answer ? std::get<ReclaimOrdered>(*answer).order : ReclaimOrder{};
  }

  ErrorCode refusal(const Caller& caller, const OrderReclaim& order) {
    const auto answer = run(caller, order);
    return answer ? ErrorCode::kInternal : answer.error().code;
  }

  ReclaimOrder newest() {
    const auto all = core->orders(node("a").id);
    return all.empty() ? ReclaimOrder{} : all.front();
  }

  std::vector<wire::TakeBack> told(const char* name = "a") {
    return node(name).received<wire::TakeBack>();
  }

  void answer(OrderOutcome outcome, std::string message = "", const char* who = "a") {
    tell(node(who), wire::TakenBack{"order-0001", outcome, ReclaimId("r-1"), std::move(message)});
  }
};

TEST_F(Orders, go_to_their_node_at_once_with_the_heartbeat_that_says_how_old_they_are) {
  clock.advance(milliseconds(1200));
  OrderReclaim order = an_order();
  order.gpus = {1, 0, 1};
  EXPECT_EQ(give(order).state, OrderState::kSent);

  ASSERT_EQ(told().size(), 1U);
  EXPECT_EQ(told()[0].order, "order-0001");
  EXPECT_EQ(told()[0].kind, ReclaimKind::kEmergency);
  EXPECT_EQ(told()[0].gpus, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(told()[0].beat, node("a").beat);
  EXPECT_EQ(told()[0].valid_ms, config.order_valid_ms + 1200);
  EXPECT_TRUE(told("b").empty());
  EXPECT_EQ(last_event("reclaim.ordered").node, node("a").id);
  EXPECT_EQ(last_event("reclaim.ordered").data.at("user"), "olga");
}

TEST_F(Orders, a_connection_without_a_heartbeat_is_told_after_the_first_one) {
  connect(node("a"));
  EXPECT_EQ(give(an_order()).state, OrderState::kWaiting);
  EXPECT_TRUE(told().empty()) << "the node could not know how old it is";

  beat(node("a"));
  EXPECT_EQ(told().size(), 1U);
}

TEST_F(Orders, what_the_node_says_is_what_became_of_it) {
  for (const auto& [outcome, state] :
       {std::pair(OrderOutcome::kTaken, OrderState::kTaken),
        std::pair(OrderOutcome::kRefused, OrderState::kRefused),
        std::pair(OrderOutcome::kLate, OrderState::kExpired),
        std::pair(OrderOutcome::kUnclear, OrderState::kUnanswered)}) {
    restart();
    connect(node("a"));
    beat(node("a"));
    const std::string id = "order-000" + std::to_string(static_cast<int>(outcome));
    OrderReclaim order = an_order(id);
    give(order);
    tell(node("a"), wire::TakenBack{id, outcome, ReclaimId("r-1"), "its warden is away"});

    EXPECT_EQ(newest().state, state);
    const bool is_taken = outcome == OrderOutcome::kTaken;
    EXPECT_EQ(newest().reclaim, ReclaimId(is_taken ? "r-1" : ""));
    EXPECT_EQ(newest().message.find("reclaim-agent reclaim --now") == std::string::npos, is_taken)
        << newest().message;
    EXPECT_EQ(count_events("reclaim.order_" + std::string(to_string(state))), 1U);
  }
}

TEST_F(Orders, are_counted_by_what_became_of_them) {
  const auto ended = [&](OrderState state) {
    return core->metrics().orders_ended.at(static_cast<std::size_t>(state));
  };
  give(an_order());
  give(an_order());
  EXPECT_EQ(core->metrics().orders_given, 1U) << "said again it is the same";
  pass(config.order_valid_ms + 11'000);
  EXPECT_EQ(ended(OrderState::kUnanswered), 1U);
  answer(OrderOutcome::kTaken);
  EXPECT_EQ(ended(OrderState::kTaken), 1U);
  disconnect(node("a"));
  give(an_order("order-0002"));
  pass(config.order_valid_ms + 1000);

  EXPECT_EQ(core->metrics().orders_given, 2U);
  EXPECT_EQ(ended(OrderState::kExpired), 1U);
  EXPECT_EQ(ended(OrderState::kRefused), 0U);
}

TEST_F(Orders, the_same_order_again_is_the_same_order) {
  give(an_order());
  answer(OrderOutcome::kTaken);
  const std::uint64_t before = writes;
  EXPECT_EQ(give(an_order()).state, OrderState::kTaken);
  EXPECT_EQ(writes, before) << "nothing was written for a repetition";
  EXPECT_EQ(told().size(), 1U);
  EXPECT_EQ(count_events("reclaim.ordered"), 1U);

  OrderReclaim other = an_order();
  other.gpus = {0};
  EXPECT_EQ(refusal(owner(), other), ErrorCode::kConflict);
}

TEST_F(Orders, an_order_goes_out_once_also_over_another_connection_and_another_coordinator) {
  give(an_order());
  connect(node("a"));
  beat(node("a"));
  EXPECT_EQ(told().size(), 1U);
  restart();
  connect(node("a"));
  beat(node("a"));

  EXPECT_EQ(told().size(), 1U);
  EXPECT_EQ(newest().state, OrderState::kUnanswered);
  EXPECT_EQ(give(an_order()).state, OrderState::kUnanswered) << "the same name, the same order";
  answer(OrderOutcome::kTaken);
  EXPECT_EQ(newest().state, OrderState::kTaken) << "the node knows better";
}

TEST_F(Orders, a_node_that_is_away_is_told_when_it_is_back_in_time) {
  disconnect(node("a"));
  const ReclaimOrder given = give(an_order());
  EXPECT_EQ(given.state, OrderState::kWaiting);
  EXPECT_NE(given.message.find("lab-a/a does not answer now"), std::string::npos) << given.message;
  EXPECT_NE(
      given.message.find("on the machine itself: reclaim-agent reclaim --now"), std::string::npos
  ) << given.message;
  pass(config.order_valid_ms - 1000);
  connect(node("a"));
  beat(node("a"));

  ASSERT_EQ(told().size(), 1U);
  EXPECT_EQ(told()[0].valid_ms, 1000U);
}

TEST_F(Orders, a_node_that_comes_back_too_late_is_told_nothing) {
  disconnect(node("a"));
  give(an_order());
  pass(config.order_valid_ms);
  EXPECT_EQ(newest().state, OrderState::kExpired);
  EXPECT_NE(newest().message.find("nothing was done"), std::string::npos) << newest().message;
  connect(node("a"));
  beat(node("a"));

  EXPECT_TRUE(told().empty());
  answer(OrderOutcome::kTaken);
  EXPECT_EQ(newest().state, OrderState::kExpired) << "it was never told of it";
}

TEST_F(Orders, a_node_that_was_told_and_says_nothing_is_no_success) {
  give(an_order());
  pass(config.order_valid_ms + 9'000);
  EXPECT_EQ(newest().state, OrderState::kSent) << "a clearing may take so long";
  pass(2'000);

  EXPECT_EQ(newest().state, OrderState::kUnanswered);
  EXPECT_EQ(count_events("reclaim.order_unanswered"), 1U);
}

TEST_F(Orders, what_waited_when_the_coordinator_died_is_told_to_nobody) {
  disconnect(node("a"));
  give(an_order());
  restart();
  connect(node("a"));
  beat(node("a"));

  EXPECT_TRUE(told().empty());
  EXPECT_EQ(newest().state, OrderState::kExpired);
}

TEST_F(Orders, a_node_answers_for_itself_alone) {
  give(an_order());
  answer(OrderOutcome::kTaken, "", "b");

  EXPECT_EQ(newest().state, OrderState::kSent);
}

/// Every role, of the node's lab, of another and of none: whose machine it is decides.
TEST_F(Orders, are_given_by_the_owners_of_the_nodes_lab_and_by_nobody_else) {
  for (const Role role : {Role::kViewer, Role::kUser, Role::kOwner, Role::kAdmin}) {
    for (const char* lab : {"lab-a", "lab-b", "it", ""}) {
      const bool may = role >= Role::kOwner && lab == std::string("lab-a");
      const std::string what = std::string(to_string(role)) + " of '" + lab + "'";
      const std::string id = std::string("order-") + std::to_string(static_cast<int>(role)) + lab;
      const auto answered = run(owner(lab, role), an_order(id));
      ASSERT_EQ(answered.has_value(), may) << what;
      if (may) continue;
      EXPECT_EQ(answered.error().code, ErrorCode::kDenied) << what;
    }
  }
  EXPECT_EQ(refusal(Core::system_caller(), an_order("order-sys")), ErrorCode::kDenied);
  EXPECT_EQ(told().size(), 2U) << "the owner's and the lab's own administrator's";
}

TEST_F(Orders, a_foreign_order_cannot_be_looked_at_by_its_name) {
  give(an_order());

  EXPECT_EQ(refusal(owner("lab-b"), an_order()), ErrorCode::kDenied);
}

TEST_F(Orders, what_makes_no_sense_is_refused_before_anybody_is_told) {
  OrderReclaim order = an_order();
  order.node = NodeId("n-nobody");
  EXPECT_EQ(refusal(owner(), order), ErrorCode::kNotFound);
  order = an_order("short");
  EXPECT_EQ(refusal(owner(), order), ErrorCode::kInvalid);
  order = an_order("no spaces please");
  EXPECT_EQ(refusal(owner(), order), ErrorCode::kInvalid);
  order = an_order();
  order.kind = ReclaimKind::kLost;
  EXPECT_EQ(refusal(owner(), order), ErrorCode::kInvalid);
  order.kind = ReclaimKind::kAnnounced;
  EXPECT_EQ(refusal(owner(), order), ErrorCode::kInvalid) << "when?";
  order.in_s = 8 * 86'400;
  EXPECT_EQ(refusal(owner(), order), ErrorCode::kInvalid);
  order.kind = ReclaimKind::kNotice;
  order.in_s = 60;
  EXPECT_EQ(refusal(owner(), order), ErrorCode::kInvalid) << "the notice is the contract's";
  order = an_order();
  order.gpus = {0, 7};
  const auto no_gpu = run(owner(), order);
  ASSERT_FALSE(no_gpu);
  EXPECT_EQ(no_gpu.error().message, "lab-a/a has no GPU 7");

  EXPECT_TRUE(told().empty());
  EXPECT_EQ(count_events("reclaim.ordered"), 0U);
}

TEST_F(Orders, a_node_that_has_left_is_not_ordered_about) {
  tell(node("a"), wire::Leave{"moving house"});

  EXPECT_EQ(refusal(owner(), an_order()), ErrorCode::kConflict);
}

TEST_F(Orders, are_bounded_for_a_node_and_forgotten_after_a_while) {
  disconnect(node("a"));
  for (int i = 0; i < 4; ++i) give(an_order("order-000" + std::to_string(i)));
  EXPECT_EQ(refusal(owner(), an_order("order-0009")), ErrorCode::kExhausted);
  const Caller other{UserId("otto"), LabId("lab-b"), Role::kOwner};
  OrderReclaim theirs = an_order("order-0010");
  theirs.node = node("b").id;
  EXPECT_TRUE(run(other, theirs)) << "one lab's orders keep no other from giving theirs";
  pass(config.order_valid_ms);
  EXPECT_TRUE(run(owner(), an_order("order-0011")));
  EXPECT_EQ(core->orders(node("a").id).size(), 5U);
  pass(11 * 60'000);

  EXPECT_TRUE(core->orders(node("a").id).empty());
}

}  // namespace
}  // namespace rn::coordinator
