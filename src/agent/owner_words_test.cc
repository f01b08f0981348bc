// SPDX-License-Identifier: Apache-2.0
#include "agent/owner_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rn::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Contract with_notice(std::uint32_t seconds) {
  Contract contract;
  contract.notice_s = seconds;
  return contract;
}

Result<Contract> nobody() {
  return fail(ErrorCode::kUnavailable, "nobody answers");
}

TEST(OwnerWords, the_notice_is_the_contracts_file) {
  const auto notice = notice_of(with_notice(120), nobody);

  EXPECT_EQ(notice.seconds, 120U);
  EXPECT_EQ(notice.doubt, "");
}

TEST(OwnerWords, who_may_not_read_the_contract_hears_it_from_the_agent) {
  const auto notice = notice_of(fail(ErrorCode::kDenied, "permission denied"), [] {
    return Result<Contract>(with_notice(300));
  });

  EXPECT_EQ(notice.seconds, 300U);
  EXPECT_EQ(notice.doubt, "");
}

TEST(OwnerWords, a_notice_that_nobody_knows_is_the_usual_one_and_said) {
  const auto notice = notice_of(fail(ErrorCode::kDenied, "permission denied"), nobody);

  EXPECT_EQ(notice.seconds, Contract{}.notice_s);
  EXPECT_THAT(notice.doubt, HasSubstr("permission denied"));
  EXPECT_THAT(notice.doubt, HasSubstr("nobody answers"));
}

TEST(OwnerWords, a_machine_without_a_contract_gives_the_usual_notice_and_nobody_is_asked) {
  const auto notice = notice_of(fail(ErrorCode::kNotFound, "no file"), [] {
    ADD_FAILURE() << "asked";
    return nobody();
  });

  EXPECT_EQ(notice.seconds, Contract{}.notice_s);
  EXPECT_EQ(notice.doubt, "");
}

NodeView with_gpus(const std::vector<std::uint32_t>& gpus) {
  NodeView view;
  for (const std::uint32_t index : gpus) {
    Gpu gpu;
    gpu.index = index;
    view.facts.gpus.push_back(gpu);
  }
  return view;
}

bool no_device(std::uint32_t) {
  return false;
}

TEST(OwnerWords, a_gpu_that_nobody_has_seen_is_not_there) {
  EXPECT_THAT(gpus_not_there({1, 5}, with_gpus({0, 1}), no_device), ElementsAre(5));
  EXPECT_THAT(gpus_not_there({3}, with_gpus({}), no_device), ElementsAre(3));
  EXPECT_THAT(gpus_not_there({}, with_gpus({0}), no_device), IsEmpty());
}

TEST(OwnerWords, a_doubt_keeps_no_owner_from_their_gpu) {
  EXPECT_THAT(gpus_not_there({5}, std::nullopt, no_device), IsEmpty()) << "the agent is away";
  EXPECT_THAT(
      gpus_not_there({5}, with_gpus({0}), [](std::uint32_t gpu) { return gpu == 5; }), IsEmpty()
  ) << "the driver has lost it, and the system has it";
  NodeView taken = with_gpus({0});
  ReclaimRecord reclaim;
  reclaim.gpus = {5};
  reclaim.phase = ReclaimPhase::kCleared;
  taken.reclaims = {reclaim};
  EXPECT_THAT(gpus_not_there({5}, taken, no_device), IsEmpty()) << "taken, it can be released";
  taken.reclaims[0].phase = ReclaimPhase::kReturned;
  EXPECT_THAT(gpus_not_there({5}, taken, no_device), ElementsAre(5));
}

TEST(OwnerWords, what_is_not_there_is_said_with_what_is) {
  const Error some = no_such_gpus({3, 5}, with_gpus({1, 0}));
  EXPECT_EQ(some.message, "this machine has no GPUs 3, 5; it has GPUs 0, 1");
  EXPECT_NE(some.hint, "");
  EXPECT_EQ(no_such_gpus({3}, with_gpus({})).message, "this machine has no GPU 3; it has none");
}

class ReclaimWords : public testing::Test {
 protected:
  ReclaimWords() {
    record.id = ReclaimId("r-1");
    record.phase = ReclaimPhase::kEvacuating;
    record.declared_ns = to_ns(at(100));
    record.deadline_ns = to_ns(at(160));
  }

  static Instant at(int s) { return Instant(seconds(s)); }

  std::string words(int asked_s, int now_s) const {
    return reclaim_words({}, record, at(asked_s), Now{at(now_s), {}});
  }

  ReclaimRecord record;
};

TEST_F(ReclaimWords, a_new_one_says_how_long_guests_have) {
  EXPECT_EQ(
      words(100, 100), "the whole node: reclaim r-1 declared; guests save and leave within 60 s"
  );
}

TEST_F(ReclaimWords, an_announced_one_says_who_stays) {
  record.kind = ReclaimKind::kAnnounced;
  record.deadline_ns = to_ns(at(400));
  EXPECT_EQ(
      words(100, 100),
      "the whole node: reclaim r-1 declared; guests save and leave within 300 s; who nobody can "
      "take stays until the last save is due"
  );
  record.deadline_ns = to_ns(at(160));
  EXPECT_EQ(
      words(100, 100), "the whole node: reclaim r-1 declared; guests save and leave within 60 s"
  );
}

TEST_F(ReclaimWords, what_is_released_was_taken_back_or_was_not) {
  record.gpus = {0, 2};
  EXPECT_TRUE(is_taken_back({}, {record}));
  EXPECT_TRUE(is_taken_back({2, 5}, {record}));
  EXPECT_FALSE(is_taken_back({1}, {record}));
  record.gpus.clear();
  EXPECT_TRUE(is_taken_back({1}, {record})) << "the whole node";
  record.phase = ReclaimPhase::kReturned;
  EXPECT_FALSE(is_taken_back({}, {record}));
}

TEST_F(ReclaimWords, one_that_holds_already_keeps_its_own_time) {
  EXPECT_EQ(
      words(130, 130),
      "the whole node: reclaim r-1 (the whole node), declared 30 s ago, holds already; guests save "
      "and leave within 30 s"
  );
}

TEST_F(ReclaimWords, what_is_yours_already_is_not_announced_again) {
  record.phase = ReclaimPhase::kCleared;
  record.cut_ns = to_ns(at(160));
  record.cleared_ns = to_ns(at(161));
  EXPECT_EQ(
      words(400, 400),
      "the whole node: reclaim r-1 (the whole node), declared 5 min ago, holds already; yours "
      "for 3 min"
  );
}

TEST(EmergencyAtWork, is_one_for_these_gpus_whose_guests_have_all_ended) {
  warden_wire::WardenState state;
  EXPECT_FALSE(emergency_at_work(state, {})) << "none is known: the warden may hang";
  ReclaimRecord record;
  record.kind = ReclaimKind::kEmergency;
  record.phase = ReclaimPhase::kEvacuating;
  record.gpus = {1};
  state.reclaims = {record};
  warden_wire::GuestReport other;
  other.state = GuestState::kRunning;
  other.gpus = {0};
  state.guests = {other};
  EXPECT_TRUE(emergency_at_work(state, {1}));
  EXPECT_FALSE(emergency_at_work(state, {})) << "the whole node was asked for";
  EXPECT_FALSE(emergency_at_work(state, {0, 1}));

  state.reclaims[0].gpus = {};
  EXPECT_FALSE(emergency_at_work(state, {1})) << "a guest runs";
  state.guests[0].state = GuestState::kExited;
  EXPECT_TRUE(emergency_at_work(state, {1}));
  EXPECT_TRUE(emergency_at_work(state, {}));

  state.reclaims[0].kind = ReclaimKind::kNotice;
  EXPECT_FALSE(emergency_at_work(state, {}));
  state.reclaims[0].kind = ReclaimKind::kEmergency;
  state.reclaims[0].phase = ReclaimPhase::kReturned;
  EXPECT_FALSE(emergency_at_work(state, {})) << "an older one is over";
}

TEST_F(ReclaimWords, one_that_is_wedged_is_not_called_yours) {
  record.phase = ReclaimPhase::kWedged;
  record.cut_ns = to_ns(at(160));
  EXPECT_THAT(words(400, 400), HasSubstr("something of a guest remains (wedged)"));
}

/// At 14:00 of a clock that is two hours ahead of UTC.
class TakingWords : public testing::Test {
 protected:
  TakingWords() {
    now.boot = Instant(seconds(1000));
    now.wall = WallTime(std::chrono::hours(12) + std::chrono::hours(24 * 4));
    record.phase = ReclaimPhase::kEvacuating;
    record.kind = ReclaimKind::kAnnounced;
    record.deadline_ns = to_ns(now.boot + seconds(580));
  }

  static AttemptView guest(std::int64_t stays_s, std::vector<std::uint32_t> gpus = {}) {
    AttemptView out;
    out.phase = "running";
    out.stays_ms = stays_s < 0 ? -1 : stays_s * 1000;
    out.gpus = std::move(gpus);
    return out;
  }

  std::string words(const std::vector<AttemptView>& guests) const {
    return taking_words({record}, guests, now, 7200);
  }

  ReclaimRecord record;
  Now now;
};

TEST_F(TakingWords, say_when_and_what_becomes_of_the_guests) {
  EXPECT_EQ(words({}), "the owner takes the node back at 14:09 (in 9 min 40 s); no guest is there");
  EXPECT_EQ(
      words({guest(-1)}),
      "the owner takes the node back at 14:09 (in 9 min 40 s); 1 guest is leaving"
  );
  EXPECT_EQ(
      words({guest(-1), guest(500), guest(510), guest(-1)}),
      "the owner takes the node back at 14:09 (in 9 min 40 s); 2 guests are leaving, 2 guests stay "
      "until 14:08, as nobody can take them now"
  );
}

TEST_F(TakingWords, of_a_gpu_count_those_that_have_it) {
  record.gpus = {1};
  EXPECT_EQ(
      words({guest(500, {0}), guest(-1, {1})}),
      "the owner takes GPU 1 back at 14:09 (in 9 min 40 s); 1 guest is leaving"
  );
}

TEST_F(TakingWords, of_another_day_name_it) {
  record.deadline_ns = to_ns(now.boot + std::chrono::hours(20));
  EXPECT_THAT(words({}), HasSubstr("back at tue 10:00 (in 20 h)"));
}

TEST_F(TakingWords, say_nothing_of_what_is_over_or_has_come) {
  record.phase = ReclaimPhase::kReturned;
  EXPECT_EQ(words({}), "");
  record.phase = ReclaimPhase::kCut;
  EXPECT_EQ(words({}), "");
  record.phase = ReclaimPhase::kEvacuating;
  record.kind = ReclaimKind::kEmergency;
  EXPECT_EQ(words({}), "");
  record.kind = ReclaimKind::kNotice;
  record.deadline_ns = to_ns(now.boot) - 1;
  EXPECT_EQ(words({}), "");
}

}  // namespace
}  // namespace rn::agent
