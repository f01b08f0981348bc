// SPDX-License-Identifier: Apache-2.0
#include "coordinator/notify_outbox.h"

#include <gtest/gtest.h>

#include "coordinator/notifier.h"
#include "coordinator/sqlite_store.h"
#include "coordinator/store_fixture.h"

namespace rn::coordinator {
namespace {

/// Notes what it is given; answers what it was told to, else that it was taken.
class FakeSender final : public NotifySender {
 public:
  io::Delivery send(const OutboxMessage& message, const std::function<bool()>&) override {
    seen.push_back(message.notification.id);
    subjects.push_back(message.notification.subject);
    const auto own = answers.find(message.rule.id);
    if (own != answers.end()) return own->second;
    return {io::DeliveryEnd::kTaken, {}};
  }

  std::vector<std::string> seen;
  std::vector<std::string> subjects;
  std::map<std::string, io::Delivery> answers;  ///< by rule
};

/// A store with events, an outbox, and the notifier's steps one by one on a clock of the test's.
class NotifySite : public ::testing::Test {
 protected:
  explicit NotifySite(const NotifyLimits& limits = {}) : limits_(limits) {
    store_ = SqliteStore::open(folder_.path()).value();
    restart();
  }

  /// What a crash leaves.
  void restart() {
    notifier_.reset();
    outbox_.reset();
    outbox_ = Outbox::open(folder_.path() + "/notify.db", limits_).value();
    notifier_ = std::make_unique<Notifier>(Notifier::Deps{*outbox_, *store_, sender_, clock_});
  }

  std::int64_t now_ms() const { return to_ms(clock_.now().wall); }

  std::string add(const std::string& user = "ann", std::string hook = {}) {
    NotifyRow row;
    row.id = "w-" + std::to_string(++rules_);
    row.user = UserId(user);
    row.lab = LabId("lab-a");
    row.mail = hook.empty() ? user + "@example.org" : "";
    row.webhook = std::move(hook);
    row.on = usual_words();
    row.is_confirmed = true;
    row.created_wall_ms = row.heard_from_wall_ms = now_ms();
    EXPECT_TRUE(outbox_->add(row, head_, now_ms()).has_value());
    return row.id;
  }

  void happen(const std::string& kind, const std::string& user = "ann") {
    EventRow event = an_event(kind, "j-1");
    event.user = UserId(user);
    event.at_wall_ms = now_ms();
    const std::vector<Write> writes = {AppendEvent{event}};
    ASSERT_TRUE(store_->apply(writes).has_value());
    ++head_;
  }

  void look() {
    NotifyStanding standing;
    for (const char* user : {"ann", "bob"}) standing.users.insert(UserId(user));
    notifier_->look(standing);
    notifier_->take_events();
  }

  std::size_t deliver() {
    std::size_t count = 0;
    while (notifier_->deliver_one()) ++count;
    return count;
  }

  NotifyLimits limits_;
  ScratchFolder folder_;
  ManualClock clock_;
  FakeSender sender_;
  std::unique_ptr<SqliteStore> store_;
  std::unique_ptr<Outbox> outbox_;
  std::unique_ptr<Notifier> notifier_;
  std::uint64_t head_ = 0;
  int rules_ = 0;
};

TEST_F(NotifySite, each_event_is_told_once_by_each_rule_that_wants_it) {
  add();
  add("bob");
  happen("job.succeeded");
  happen("job.placed");
  look();
  look();

  EXPECT_EQ(deliver(), 1u);
  EXPECT_EQ(sender_.seen, std::vector<std::string>{"1.w-1"});
  look();
  EXPECT_EQ(deliver(), 0u);
}

TEST_F(NotifySite, what_happens_to_a_gang_is_told_once_and_what_happens_to_a_member_by_itself) {
  JobRow row = a_job("j-1", 7);
  row.job.gang = GangPlace{.gang = GangId("g-1"), .rank = 1, .size = 2, .first_number = 6};
  const std::vector<Write> writes = {PutJob{row}};
  ASSERT_TRUE(store_->apply(writes).has_value());
  add();
  happen("job.succeeded");
  happen("outputs.expire");
  look();
  EXPECT_EQ(deliver(), 1u) << "rank 0's job tells the end";
  EXPECT_EQ(
      sender_.subjects, std::vector<std::string>{"ReclaimNet: outputs of job 7 will be removed"}
  );

  row.job.gang->rank = 0;
  const std::vector<Write> first = {PutJob{row}};
  ASSERT_TRUE(store_->apply(first).has_value());
  happen("job.succeeded");
  happen("gang.displaced");
  happen("gang.gathered_in_vain");
  look();
  EXPECT_EQ(deliver(), 3u);
  EXPECT_EQ(sender_.subjects.back(), "ReclaimNet: job 7 waits for all of its machines at once");
}

TEST_F(NotifySite, what_happened_before_the_first_rule_is_not_told) {
  happen("job.succeeded");
  clock_.advance(seconds(1));
  add();
  look();

  EXPECT_EQ(deliver(), 0u);
}

TEST_F(NotifySite, a_crash_between_sending_and_noting_it_sends_it_once_more_with_the_same_name) {
  add();
  happen("job.failed");
  look();
  const auto message = outbox_->next({}, now_ms());
  ASSERT_TRUE(message.has_value() && message->has_value());
  (void)sender_.send(**message, {});

  restart();
  look();

  EXPECT_EQ(deliver(), 1u);
  EXPECT_EQ(sender_.seen, (std::vector<std::string>{"1.w-1", "1.w-1"}));
}

TEST_F(NotifySite, a_crash_before_events_were_read_loses_none_and_one_after_it_doubles_none) {
  add();
  happen("job.failed");
  restart();
  look();
  restart();
  look();

  EXPECT_EQ(deliver(), 1u);
  EXPECT_EQ(outbox_->counts().waiting, 0u);
}

TEST_F(NotifySite, a_dead_receiver_rests_longer_each_time_and_holds_up_nobody_else) {
  const std::string dead = add("ann", "https://dead.example.org/hook");
  const std::string other = add("ann");
  sender_.answers[dead] = {io::DeliveryEnd::kDown, "connection refused"};
  happen("job.failed");
  happen("job.succeeded");
  look();

  EXPECT_EQ(deliver(), 3u) << "the dead one is tried once, the other is told of both";
  EXPECT_EQ(outbox_->find(dead)->last_error, "connection refused");
  clock_.advance(seconds(4));
  EXPECT_EQ(deliver(), 0u);
  clock_.advance(seconds(1));
  EXPECT_EQ(deliver(), 1u);
  clock_.advance(seconds(9));
  EXPECT_EQ(deliver(), 0u);
  clock_.advance(seconds(1));
  sender_.answers.clear();
  EXPECT_EQ(deliver(), 2u) << "it is back, and gets what waited";
  EXPECT_EQ(outbox_->find(dead)->sent, 2u);
  EXPECT_EQ(outbox_->find(dead)->last_error, "");
  EXPECT_EQ(outbox_->find(other)->sent, 2u);
}

TEST_F(NotifySite, one_message_that_is_not_taken_now_waits_alone) {
  const std::string full = add("ann");
  add("bob");
  sender_.answers[full] = {io::DeliveryEnd::kLater, "452 mailbox full"};
  happen("job.failed");
  happen("job.failed", "bob");
  look();

  EXPECT_EQ(deliver(), 2u) << "both go to the same server";
  EXPECT_EQ(outbox_->counts().sent, 1u);
  clock_.advance(seconds(29));
  EXPECT_EQ(deliver(), 0u);
  clock_.advance(seconds(1));
  EXPECT_EQ(deliver(), 1u);
  clock_.advance(seconds(59));
  EXPECT_EQ(deliver(), 0u);
  clock_.advance(seconds(1));
  EXPECT_EQ(deliver(), 1u);
}

TEST_F(NotifySite, a_receiver_that_stays_dead_is_given_up_after_a_day) {
  const std::string dead = add();
  sender_.answers[dead] = {io::DeliveryEnd::kDown, "no route"};
  happen("job.failed");
  look();
  deliver();

  clock_.advance(std::chrono::hours(24));
  look();

  EXPECT_EQ(outbox_->counts().waiting, 0u);
  EXPECT_EQ(outbox_->counts().dropped, 1u);
  EXPECT_EQ(deliver(), 0u);
}

TEST_F(NotifySite, what_is_refused_for_good_is_not_tried_again) {
  const std::string gone = add();
  sender_.answers[gone] = {io::DeliveryEnd::kRefused, "550 no such user"};
  happen("job.failed");
  look();

  EXPECT_EQ(deliver(), 1u);
  clock_.advance(std::chrono::hours(2));
  EXPECT_EQ(deliver(), 0u);
  EXPECT_EQ(outbox_->find(gone)->last_error, "550 no such user");
  EXPECT_EQ(outbox_->counts().dropped, 1u);
}

TEST_F(NotifySite, a_rule_that_is_removed_takes_what_waits_with_it) {
  const std::string rule = add();
  happen("job.failed");
  look();

  ASSERT_TRUE(outbox_->remove(rule).has_value());

  EXPECT_EQ(deliver(), 0u);
  EXPECT_EQ(outbox_->counts().waiting, 0u);
  EXPECT_EQ(outbox_->remove(rule).error().code, ErrorCode::kNotFound);
}

class NotifyFlood : public NotifySite {
 protected:
  NotifyFlood() : NotifySite(few()) {}

  static NotifyLimits few() {
    NotifyLimits limits;
    limits.messages_per_window = 3;
    limits.waiting_per_user = 5;
    limits.rules_per_user = 2;
    limits.confirmations_per_day = 2;
    return limits;
  }
};

TEST_F(NotifyFlood, what_is_too_much_in_an_hour_is_told_as_one_number_at_its_end) {
  add();
  for (int i = 0; i < 20; ++i) happen("job.succeeded");
  look();
  EXPECT_EQ(deliver(), 3u);
  EXPECT_EQ(outbox_->counts().held, 17u);
  restart();  // it is on the disk
  clock_.advance(std::chrono::minutes(59));
  look();
  EXPECT_EQ(deliver(), 0u);

  clock_.advance(std::chrono::minutes(1));
  look();

  EXPECT_EQ(deliver(), 1u);
  EXPECT_EQ(sender_.subjects.back(), "ReclaimNet: 17 more: 17 finished");
  look();
  EXPECT_EQ(deliver(), 0u);
}

TEST_F(NotifyFlood, one_users_flood_is_not_anothers_silence) {
  add();
  add("bob");
  for (int i = 0; i < 20; ++i) happen("job.succeeded");
  happen("job.failed", "bob");
  look();
  deliver();

  EXPECT_EQ(sender_.seen.back(), "21.w-2");
}

TEST_F(NotifyFlood, a_dead_receiver_fills_no_disk) {
  const std::string dead = add();
  sender_.answers[dead] = {io::DeliveryEnd::kDown, "no route"};
  for (int hour = 0; hour < 12; ++hour) {
    for (int i = 0; i < 10; ++i) happen("job.succeeded");
    look();
    deliver();
    clock_.advance(std::chrono::hours(1));
  }

  EXPECT_LE(outbox_->counts().waiting, 5u);
  EXPECT_EQ(outbox_->counts().waiting + held_back(*outbox_->find(dead)), 120u);
}

TEST_F(NotifyFlood, a_user_has_so_many_rules_and_so_many_codes_a_day) {
  NotifyRow row;
  row.user = UserId("ann");
  row.on = usual_words();
  row.created_wall_ms = row.heard_from_wall_ms = now_ms();
  row.tries_left = 5;
  std::vector<std::string> said;
  for (int i = 0; i < 3; ++i) {
    row.id = "w-mail-" + std::to_string(i);
    row.mail = "stranger-" + std::to_string(i) + "@example.org";
    const auto added = outbox_->add(row, 0, now_ms());
    said.push_back(added ? "added" : std::string(to_string(added.error().code)));
    if (added) {
      ASSERT_TRUE(outbox_->remove(row.id).has_value());
    }
  }
  EXPECT_EQ(said, (std::vector<std::string>{"added", "added", "exhausted"}));
  EXPECT_EQ(outbox_->counts().rules, 0u) << "the third is not there without its code";

  add();
  add();
  row.is_confirmed = true;
  EXPECT_EQ(outbox_->add(row, 0, now_ms()).error().code, ErrorCode::kExhausted);
}

TEST_F(NotifySite, a_code_confirms_its_address_and_cannot_be_guessed) {
  NotifyRow row;
  row.id = "w-a";
  row.user = UserId("ann");
  row.mail = "ann@example.org";
  row.code = "0badcafe";
  row.tries_left = 3;
  row.on = usual_words();
  row.created_wall_ms = row.heard_from_wall_ms = now_ms();
  ASSERT_TRUE(outbox_->add(row, 0, now_ms()).has_value());
  EXPECT_EQ(deliver(), 1u) << "the mail with the code";
  happen("job.failed");
  look();
  EXPECT_EQ(deliver(), 0u) << "and nothing else before it is confirmed";

  EXPECT_EQ(outbox_->confirm("w-a", "00000000", now_ms()).error().code, ErrorCode::kDenied);
  EXPECT_TRUE(outbox_->confirm("w-a", "0badcafe", now_ms()).has_value());
  EXPECT_TRUE(outbox_->has_confirmed(UserId("ann"), "ann@example.org"));
  EXPECT_FALSE(outbox_->has_confirmed(UserId("bob"), "ann@example.org"));
  happen("job.failed");
  look();
  EXPECT_EQ(deliver(), 1u);

  row.id = "w-b";
  row.mail = "eve@example.org";
  ASSERT_TRUE(outbox_->add(row, 0, now_ms()).has_value());
  for (int i = 0; i < 3; ++i) (void)outbox_->confirm("w-b", "00000000", now_ms());
  EXPECT_EQ(outbox_->confirm("w-b", "0badcafe", now_ms()).error().code, ErrorCode::kNotFound);
}

TEST_F(NotifySite, the_rule_of_one_job_goes_with_it) {
  NotifyRow row;
  row.id = "w-j";
  row.user = UserId("ann");
  row.mail = "ann@example.org";
  row.is_confirmed = true;
  row.on = {NotifyWord::kFailed};
  row.job = JobId("j-1");
  row.created_wall_ms = row.heard_from_wall_ms = now_ms();
  ASSERT_TRUE(outbox_->add(row, 0, now_ms()).has_value());
  happen("job.failed");
  look();
  EXPECT_TRUE(outbox_->find("w-j").has_value()) << "its message still waits";
  EXPECT_EQ(deliver(), 1u);
  look();

  EXPECT_FALSE(outbox_->find("w-j").has_value());
}

}  // namespace
}  // namespace rn::coordinator
