// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"
#include "agent/told_reports.h"

namespace rn::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A node with two GPUs and a guest, and an owner who is somewhere else.
class CoreOrders : public CoreTest {
 protected:
  void SetUp() override {
    contract.notice_s = 90;
    for (const std::uint32_t index : {0u, 1u}) {
      Gpu gpu;
      gpu.index = index;
      facts.gpus.push_back(gpu);
    }
    start();
    run();
    log_is_empty();
    asks.clear();
  }

  /// As a coordinator does that has the newest heartbeat.
  wire::TakeBack an_order(ReclaimKind kind, const std::string& id = "order-0001") {
    wire::TakeBack order;
    order.order = id;
    order.kind = kind;
    order.beat = sent<wire::Heartbeat>().back().seq;
    order.valid_ms = 15'000;
    return order;
  }

  wire::TakenBack answer_to_order() const {
    const auto answers = sent<wire::TakenBack>();
    EXPECT_FALSE(answers.empty()) << "nothing was said of it";
    return answers.empty() ? wire::TakenBack{} : answers.back();
  }

  bool is_nothing_done() const {
    return kills.empty() && !has_asked<warden_wire::DeclareReclaim>();
  }

  void is_declared(const std::string& id) {
    answer<warden_wire::DeclareReclaim>([&](warden_wire::Answer& a) {
      a.reclaim.id = ReclaimId(id);
    });
  }

  void is_refused(ErrorCode code, const std::string& message) {
    answer<warden_wire::DeclareReclaim>([&](warden_wire::Answer& a) {
      a.code = to_string(code);
      a.message = message;
    });
  }
};

TEST_F(CoreOrders, a_notice_is_declared_at_the_warden_with_the_contracts_time) {
  wire::TakeBack order = an_order(ReclaimKind::kNotice);
  order.gpus = {1};
  tell(order);
  const auto declared = asked<warden_wire::DeclareReclaim>();
  ASSERT_THAT(declared, SizeIs(1));
  EXPECT_EQ(declared[0].kind, ReclaimKind::kNotice);
  EXPECT_EQ(declared[0].notice_s, 90u);
  EXPECT_THAT(declared[0].gpus, ElementsAre(1u));
  EXPECT_THAT(sent<wire::TakenBack>(), IsEmpty()) << "the warden has not said so";

  is_declared("r-7");
  EXPECT_EQ(
      answer_to_order(), (wire::TakenBack{"order-0001", OrderOutcome::kTaken, ReclaimId("r-7"), ""})
  );
}

TEST_F(CoreOrders, an_announced_one_is_declared_for_its_time) {
  wire::TakeBack order = an_order(ReclaimKind::kAnnounced);
  order.in_s = 300;
  tell(order);

  ASSERT_TRUE(has_asked<warden_wire::DeclareReclaim>());
  EXPECT_EQ(asked<warden_wire::DeclareReclaim>().back().kind, ReclaimKind::kAnnounced);
  EXPECT_EQ(asked<warden_wire::DeclareReclaim>().back().in_s, 300u);
}

TEST_F(CoreOrders, now_goes_to_the_kill_socket_and_is_said_when_the_wardens_record_is_there) {
  wire::TakeBack order = an_order(ReclaimKind::kEmergency);
  order.gpus = {1};
  tell(order);
  ASSERT_THAT(kills, SizeIs(1));
  EXPECT_EQ(kills[0].gpu_mask, 2u);
  EXPECT_FALSE(has_asked<warden_wire::DeclareReclaim>());

  ReclaimRecord record = a_reclaim(ReclaimKind::kEmergency);
  record.gpus = {0};
  warden.reclaims = {record};
  push_state();
  EXPECT_THAT(sent<wire::TakenBack>(), IsEmpty()) << "another GPU's";
  record.id = ReclaimId("r-2");
  record.gpus = {1};
  warden.reclaims.push_back(record);
  push_state();
  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kTaken);
  EXPECT_EQ(answer_to_order().reclaim, ReclaimId("r-2"));
  feed(KilledNow{"order-0001", std::nullopt});
  EXPECT_THAT(sent<wire::TakenBack>(), SizeIs(1)) << "said once";
}

TEST_F(CoreOrders, now_needs_no_word_of_the_wardens_loop) {
  feed(WardenDisconnected{});
  tell(an_order(ReclaimKind::kEmergency));
  ASSERT_THAT(kills, SizeIs(1));
  EXPECT_EQ(kills[0].gpu_mask, 0u);

  feed(KilledNow{"order-0001", std::nullopt});
  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kTaken);
}

TEST_F(CoreOrders, a_kill_socket_that_fails_is_said_with_what_to_do) {
  tell(an_order(ReclaimKind::kEmergency));
  feed(KilledNow{"order-0001", Error{ErrorCode::kTimeout, "it hangs", "reclaim-kill"}});
  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kUnclear);
  tell(an_order(ReclaimKind::kEmergency, "order-0002"));
  feed(KilledNow{"order-0002", Error{ErrorCode::kUnavailable, "nobody is there", "reclaim-kill"}});

  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kRefused);
  EXPECT_EQ(answer_to_order().message, "nobody is there (reclaim-kill)");
}

TEST_F(CoreOrders, one_that_comes_too_late_is_dropped_and_nothing_else_happens) {
  const wire::TakeBack order = an_order(ReclaimKind::kEmergency);
  advance(seconds(15));
  tell(order);

  EXPECT_TRUE(is_nothing_done());
  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kLate);
}

TEST_F(CoreOrders, one_in_the_last_moment_is_carried_out) {
  const wire::TakeBack order = an_order(ReclaimKind::kEmergency);
  advance(seconds(14));
  tell(order);

  EXPECT_THAT(kills, SizeIs(1));
}

TEST_F(CoreOrders, one_of_another_connection_or_another_life_is_too_late) {
  const wire::TakeBack order = an_order(ReclaimKind::kEmergency);
  feed(CoordinatorDisconnected{"reset"});
  connect();
  messages.clear();
  tell(order);
  EXPECT_TRUE(is_nothing_done());
  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kLate);

  crash_and_restart();
  feed(CoordinatorConnected{});
  tell(wire::Welcome{});
  wire::TakeBack again = order;
  again.order = "order-0002";
  again.beat += 100;
  tell(again);
  EXPECT_TRUE(is_nothing_done());
}

/// Whatever the clocks of people say.
TEST_F(CoreOrders, a_wall_clock_that_jumps_makes_no_order_late_or_timely) {
  const wire::TakeBack first = an_order(ReclaimKind::kNotice);
  clock.set_wall(clock.now().wall + std::chrono::hours(100));
  tell(first);
  EXPECT_TRUE(has_asked<warden_wire::DeclareReclaim>());
  asks.clear();
  const wire::TakeBack second = an_order(ReclaimKind::kNotice, "order-0002");
  advance(seconds(20));
  clock.set_wall(clock.now().wall - std::chrono::hours(200));
  tell(second);

  EXPECT_TRUE(is_nothing_done());
}

TEST_F(CoreOrders, the_same_one_twice_is_done_once_and_answered_twice) {
  const wire::TakeBack order = an_order(ReclaimKind::kNotice);
  tell(order);
  tell(order);
  ASSERT_THAT(asked<warden_wire::DeclareReclaim>(), SizeIs(1));
  is_declared("r-7");
  tell(order);

  EXPECT_FALSE(has_asked<warden_wire::DeclareReclaim>());
  EXPECT_THAT(sent<wire::TakenBack>(), SizeIs(2));
  EXPECT_EQ(sent<wire::TakenBack>()[0], sent<wire::TakenBack>()[1]);
}

TEST_F(CoreOrders, the_owner_who_lends_again_meanwhile_is_not_overruled_by_a_repetition) {
  const wire::TakeBack order = an_order(ReclaimKind::kNotice);
  tell(order);
  is_declared("r-1");
  warden.reclaims = {a_reclaim(ReclaimKind::kNotice)};
  push_state();
  warden.reclaims[0].phase = ReclaimPhase::kReturned;
  warden.reclaims[0].returned_ns = to_ns(clock.now().boot);
  push_state();
  tell(order);

  EXPECT_TRUE(is_nothing_done());
}

TEST_F(CoreOrders, a_gpu_that_is_not_there_is_refused_by_its_name) {
  wire::TakeBack order = an_order(ReclaimKind::kEmergency);
  order.gpus = {7};
  tell(order);
  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kRefused);
  EXPECT_THAT(answer_to_order().message, HasSubstr("no GPU 7"));
  order.order = "order-0002";
  order.gpus = {64};
  tell(order);

  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kRefused);
  EXPECT_TRUE(is_nothing_done()) << "no bit stands for 64, and no bit is the whole node";
}

TEST_F(CoreOrders, what_the_warden_refuses_is_said_in_its_words) {
  tell(an_order(ReclaimKind::kNotice));
  is_refused(ErrorCode::kInvalid, "notice is at most 15 minutes");
  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kRefused);
  EXPECT_EQ(answer_to_order().message, "notice is at most 15 minutes");
  tell(an_order(ReclaimKind::kNotice, "order-0002"));
  is_refused(ErrorCode::kDenied, "only the owner may do this");

  EXPECT_THAT(answer_to_order().message, HasSubstr("older than its agent"));
}

TEST_F(CoreOrders, a_warden_that_is_away_or_hangs_or_goes_is_no_success) {
  tell(an_order(ReclaimKind::kNotice));
  advance(seconds(11));
  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kUnclear) << "it hangs";
  is_declared("r-7");
  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kTaken) << "it only was slow";
  tell(an_order(ReclaimKind::kNotice, "order-0002"));
  feed(WardenDisconnected{});
  EXPECT_EQ(answer_to_order().order, "order-0002");
  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kUnclear) << "it went";
  tell(an_order(ReclaimKind::kNotice, "order-0003"));

  EXPECT_EQ(answer_to_order().order, "order-0003");
  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kRefused) << "it is away";
}

TEST_F(CoreOrders, an_answer_that_a_broken_connection_may_have_lost_is_said_again) {
  tell(an_order(ReclaimKind::kNotice));
  feed(CoordinatorDisconnected{"reset"});
  is_declared("r-7");
  EXPECT_THAT(sent<wire::TakenBack>(), IsEmpty());
  connect();

  EXPECT_EQ(answer_to_order().reclaim, ReclaimId("r-7"));
}

TEST_F(CoreOrders, a_full_disk_keeps_nobody_from_taking_back) {
  ToldReports told;
  for (const wire::Message& message : messages) told.on_sent(message);
  feed(JournalWaits{"database or disk is full", told.reports()});
  tell(an_order(ReclaimKind::kNotice));
  is_declared("r-7");
  EXPECT_EQ(answer_to_order().reclaim, ReclaimId("r-7"));
  tell(an_order(ReclaimKind::kEmergency, "order-0002"));
  EXPECT_THAT(kills, SizeIs(1));
  feed(KilledNow{"order-0002", std::nullopt});

  EXPECT_EQ(answer_to_order().order, "order-0002");
}

TEST_F(CoreOrders, a_kill_that_could_not_go_out_in_time_is_late) {
  const wire::TakeBack order = an_order(ReclaimKind::kEmergency);
  tell(order);
  ASSERT_THAT(kills, SizeIs(1));
  EXPECT_EQ(kills[0].until, clock.now().boot + seconds(15)) << "since the heartbeat, just now";
  feed(KilledNow{"order-0001", std::nullopt, true});

  EXPECT_EQ(answer_to_order().outcome, OrderOutcome::kLate);
}

TEST_F(CoreOrders, an_order_waits_for_no_journal_that_is_slow) {
  const wire::TakeBack order = an_order(ReclaimKind::kEmergency);
  clock.advance(seconds(6));  // a heartbeat and more are due
  const Output now = core->handle(CoordinatorMessage{order}, clock.now());

  EXPECT_TRUE(now.overtakes);
  EXPECT_THAT(now.writes, IsEmpty());
  EXPECT_THAT(now.effects, SizeIs(1));
}

/// One of each message that there is, also of those that no honest coordinator sends.
template <std::size_t... I>
std::vector<wire::Message> one_of_each(std::index_sequence<I...>) {
  return {wire::Message(std::in_place_index<I>)...};
}

TEST_F(CoreOrders, a_coordinator_that_says_anything_can_at_worst_take_back) {
  warden.reclaims = {a_reclaim(ReclaimKind::kNotice)};
  warden.is_paused = true;
  push_state();
  asks.clear();
  for (const wire::Message& message :
       one_of_each(std::make_index_sequence<std::variant_size_v<wire::Message>>())) {
    feed(CoordinatorDisconnected{"reset"});
    connect();
    tell(message);
    advance(seconds(1));
  }

  EXPECT_FALSE(has_asked<warden_wire::Release>());
  EXPECT_FALSE(has_asked<warden_wire::Resume>());
  EXPECT_FALSE(has_asked<warden_wire::Pause>());
  EXPECT_NE(core->view(clock.now()).lending, LendingState::kOpen);
}

}  // namespace
}  // namespace rn::agent
