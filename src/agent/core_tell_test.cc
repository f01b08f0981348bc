// SPDX-License-Identifier: Apache-2.0
#include "agent/core_uplink_fixture.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class CoreTold : public CoreUplink {
 protected:
  void SetUp() override {
    spec.checkpoint.signal = SaveSignal::kUsr1;
    spec.checkpoint.is_told = true;
    CoreUplink::SetUp();
    run();
  }

  std::size_t tells() const { return asked<warden_wire::SignalGuest>().size(); }

  /// How long until it is told.
  minutes tell_comes_after() {
    const Instant began = clock.now().boot;
    while (tells() == 0 && clock.now().boot - began < minutes(150)) advance(seconds(10));
    return std::chrono::floor<minutes>(clock.now().boot - began);
  }

  void heard(std::uint32_t processes) {
    answer<warden_wire::SignalGuest>([&](warden_wire::Answer& a) { a.signalled = processes; });
  }

  /// A second after it is told; copies cost next to nothing.
  void save_when_told() {
    for (int i = 0; tells() == 0 && i < 600; ++i) advance(seconds(1));
    heard(1);
    advance(seconds(1));
    a_copy_takes = milliseconds(20);
    safe(1);
    durable(1);
  }
};

TEST_F(CoreTold, it_is_told_when_a_save_is_due_and_not_before) {
  expect_owner(2);
  advance(seconds(20));
  EXPECT_EQ(tells(), 0u) << "it has hardly begun";
  advance(seconds(20));
  ASSERT_EQ(tells(), 1u);
  EXPECT_EQ(asked<warden_wire::SignalGuest>().front().signal, SaveSignal::kUsr1);
  heard(1);
  advance(seconds(2));
  safe(1);
  durable(1);
  EXPECT_EQ(state(), AttemptState::kRunning);

  advance(seconds(50));
  EXPECT_EQ(tells(), 0u) << "too soon for what a save costs";
  EXPECT_LT(tell_comes_after(), minutes(20));
  heard(1);
  EXPECT_THAT(trouble(), IsEmpty());
}

TEST_F(CoreTold, it_is_told_also_where_nobody_knows_the_owner) {
  advance(seconds(35));
  ASSERT_EQ(tells(), 1u);
  heard(1);
  safe(1);
  durable(1);
  advance(minutes(1));
  EXPECT_EQ(tells(), 0u);
  EXPECT_LT(tell_comes_after(), minutes(60));
}

TEST_F(CoreTold, who_saves_because_it_is_told_to_pays_for_the_generation_as_well) {
  expect_owner(2);
  advance(seconds(40));
  heard(1);
  advance(seconds(2));
  taking_takes = seconds(200);
  safe(1);
  durable(1);
  EXPECT_GT(tell_comes_after(), minutes(20)) << "as for any other, and fifty seconds of four cores";
}

TEST_F(CoreTold, its_first_save_says_how_long_one_takes_and_no_guess_is_left_in_it) {
  expect_owner(2);
  save_when_told();
  EXPECT_LE(tell_comes_after(), minutes(2)) << "a second, and not three";
}

TEST_F(CoreTold, an_owner_of_whom_little_is_known_is_reckoned_with_by_that_little) {
  expect_owner(2, 4.3);
  save_when_told();
  EXPECT_LT(tell_comes_after(), minutes(5)) << "they do not come once in 35 hours";
}

TEST_F(CoreTold, at_a_notice_it_does_not_compute_what_is_lost_while_its_save_is_taken) {
  warden.reclaims = {a_reclaim(ReclaimKind::kNotice)};
  push_state();
  heard(1);
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  ASSERT_TRUE(has_work<TakeSnapshot>());
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>()) << "its files are about to be opened";

  advance(seconds(1));
  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
  EXPECT_TRUE(has_work<TakeSnapshot>());
}

TEST_F(CoreTold, who_was_writing_at_a_notice_is_told_again_once_that_save_is_there) {
  warden.reclaims = {a_reclaim(ReclaimKind::kNotice)};
  push_state();
  heard(1);
  advance(seconds(1));
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}, clock.now().boot - seconds(2)});
  advance(seconds(1));
  ASSERT_EQ(tells(), 1u);
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>()) << "that save is not its last";
  heard(1);

  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}, clock.now().boot});
  advance(seconds(1));
  EXPECT_EQ(tells(), 0u);
}

TEST_F(CoreTold, who_does_not_listen_is_told_ever_more_seldom_and_its_author_hears_of_it) {
  expect_owner(2);
  std::size_t told = 0;
  for (int i = 0; i < 60 * 4; ++i) {
    advance(seconds(15));
    if (tells() == 0) continue;
    ++told;
    heard(1);
  }
  EXPECT_GE(told, 4u);
  EXPECT_LE(told, 8u);
  EXPECT_THAT(trouble(), HasSubstr("times to save (usr1), and saved nothing; next: let it save"));
}

TEST_F(CoreTold, a_signal_that_nobody_catches_is_said) {
  expect_owner(2);
  advance(minutes(1));
  heard(0);
  EXPECT_THAT(trouble(), HasSubstr("no process of it catches usr1"));
}

TEST_F(CoreTold, one_that_was_told_and_ends_well_has_succeeded) {
  expect_owner(2);
  advance(minutes(1));
  heard(1);
  set_guest(GuestState::kExited, 0);
  push_state();
  EXPECT_EQ(phase(), "publishing");
}

class CoreToldByFile : public CoreUplink {
 protected:
  void SetUp() override {
    spec.checkpoint.tell_file = "ctl/SAVE";
    CoreUplink::SetUp();
    run();
  }

  std::vector<warden_wire::TellGuest> tells() const { return asked<warden_wire::TellGuest>(); }

  /// The warden's answer: it made the file, or there is one.
  void told(bool is_new = true) {
    answer<warden_wire::TellGuest>([&](warden_wire::Answer& a) { a.signalled = is_new ? 1 : 0; });
  }

  void cannot_tell(ErrorCode code, const std::string& why) {
    answer<warden_wire::TellGuest>([&](warden_wire::Answer& a) {
      a.code = to_string(code);
      a.message = why;
    });
  }

  void wait_for_a_tell() {
    const Instant began = clock.now().boot;
    while (tells().empty() && clock.now().boot - began < minutes(150)) advance(seconds(5));
    ASSERT_THAT(tells(), SizeIs(1));
  }

  void declare() {
    warden.reclaims = {a_reclaim(ReclaimKind::kNotice)};
    warden.reclaims.front().message = "an exam at noon";
    push_state();
  }
};

TEST_F(CoreToldByFile, it_is_told_by_its_file_when_a_save_is_due_and_by_no_signal) {
  expect_owner(2);
  advance(seconds(20));
  EXPECT_THAT(tells(), IsEmpty()) << "it has hardly begun";
  advance(seconds(20));
  ASSERT_THAT(tells(), SizeIs(1));
  EXPECT_EQ(tells().front().guest, (GuestName{JobId("j-1"), kEpoch}));
  EXPECT_EQ(tells().front().file, "ctl/SAVE");
  EXPECT_EQ(tells().front().reason, "a save is due");
  EXPECT_EQ(tells().front().deadline_wall_ms, 0);
  told();
  advance(seconds(2));
  safe(1);
  durable(1);

  advance(seconds(50));
  EXPECT_THAT(tells(), IsEmpty()) << "too soon for what a save costs";
  wait_for_a_tell();
  EXPECT_THAT(trouble(), IsEmpty());
  EXPECT_FALSE(has_asked<warden_wire::SignalGuest>());
}

TEST_F(CoreToldByFile, one_who_never_deletes_it_is_asked_ever_more_seldom_and_its_author_hears) {
  expect_owner(2);
  std::size_t times = 0;
  for (int i = 0; i < 60 * 4; ++i) {
    advance(seconds(15));
    if (tells().empty()) continue;
    told(++times == 1);
  }
  EXPECT_GE(times, 4u);
  EXPECT_LE(times, 8u);
  EXPECT_THAT(
      trouble(),
      HasSubstr("(the file ctl/SAVE, which still lies there), and saved nothing; next: let it save "
                "when the file appears, delete the file and go on")
  );
}

TEST_F(CoreToldByFile, one_who_saves_and_leaves_it_there_is_not_told_again_and_its_author_hears) {
  expect_owner(2);
  wait_for_a_tell();
  told();
  advance(seconds(2));
  safe(1);
  durable(1);
  wait_for_a_tell();
  told(false);

  EXPECT_THAT(trouble(), HasSubstr("the file ctl/SAVE still lies there after it has saved"));
  EXPECT_THAT(trouble(), HasSubstr("; next: let it delete the file after each save"));
}

TEST_F(
    CoreToldByFile, one_that_lay_there_from_the_beginning_says_nothing_of_how_long_a_save_takes
) {
  expect_owner(2);
  wait_for_a_tell();
  told(false);
  EXPECT_THAT(trouble(), IsEmpty());
  advance(seconds(2));
  safe(1);
  durable(1);

  const Instant began = clock.now().boot;
  wait_for_a_tell();
  EXPECT_LT(clock.now().boot - began, minutes(20)) << "as soon as if it had been told";
}

TEST_F(CoreToldByFile, a_file_that_cannot_be_made_is_said_and_a_warden_that_is_busy_is_not) {
  expect_owner(2);
  wait_for_a_tell();
  cannot_tell(ErrorCode::kUnavailable, "the warden is still recovering");
  EXPECT_THAT(trouble(), IsEmpty());

  wait_for_a_tell();
  cannot_tell(ErrorCode::kNotFound, "ctl: No such file or directory");
  EXPECT_THAT(
      trouble(),
      HasSubstr("it cannot be told to save: ctl: No such file or directory; next: let it make the "
                "folder in which ctl/SAVE is to lie")
  );
}

TEST_F(
    CoreToldByFile, at_a_notice_it_is_told_until_when_it_has_to_leave_and_runs_on_until_it_saved
) {
  declare();

  ASSERT_THAT(tells(), SizeIs(1));
  EXPECT_EQ(tells().front().reason, "an exam at noon");
  EXPECT_EQ(tells().front().deadline_wall_ms, to_ms(clock.now().wall) + 60'000);
  EXPECT_EQ(tells().front().grace_s, 60u);
  EXPECT_FALSE(has_asked<warden_wire::SignalGuest>());
  told();
  advance(seconds(5));
  EXPECT_THAT(tells(), IsEmpty()) << "once is enough";
  EXPECT_EQ(state(), AttemptState::kNoticed);

  safe(1);
  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreToldByFile, a_file_from_before_the_notice_is_made_anew_when_the_guest_has_deleted_it) {
  declare();
  told(false);
  EXPECT_THAT(tells(), IsEmpty());
  advance(seconds(2));
  ASSERT_THAT(tells(), SizeIs(1));
  EXPECT_EQ(tells().front().grace_s, 59u);
  told();
  advance(seconds(5));
  EXPECT_THAT(tells(), IsEmpty());
  EXPECT_EQ(state(), AttemptState::kNoticed);
}

TEST_F(CoreToldByFile, one_that_was_told_at_a_notice_and_leaves_goes_on_elsewhere) {
  declare();
  told();
  leaves_with_a_last_save();

  EXPECT_EQ(last_end(), AttemptEnd::kReclaimed);
}

/// By its PID 1: which of hook and API makes no difference to the core.
class CoreToldByHook : public CoreToldByFile {
 protected:
  void SetUp() override {
    spec.checkpoint.tell_hook = "sh save.sh";
    CoreUplink::SetUp();
    run();
  }

  /// Its PID 1 says how a run ended.
  void hook_ends(std::uint32_t run, std::int32_t code, bool is_late = false) {
    advance(seconds(2));
    ASSERT_TRUE(has_work<ReadLog>());
    EXPECT_TRUE(work_body<ReadLog>().has_hook);
    finish<ReadLog>(LogRead{0, {}, 0, false, HookEnd{run, code, is_late}});
  }
};

TEST_F(CoreToldByHook, it_is_told_by_a_word_to_its_first_process_and_by_no_file_or_signal) {
  expect_owner(2);
  wait_for_a_tell();
  EXPECT_TRUE(tells().front().is_for_init);
  EXPECT_EQ(tells().front().file, "");
  EXPECT_EQ(tells().front().reason, "a save is due");
  told();
  advance(seconds(2));
  safe(1);
  durable(1);

  wait_for_a_tell();
  told(false);
  EXPECT_THAT(trouble(), HasSubstr("its hook still runs after it has saved"));
  EXPECT_FALSE(has_asked<warden_wire::SignalGuest>());
}

TEST_F(CoreToldByHook, at_a_notice_it_is_told_as_soon_as_the_run_before_has_ended) {
  declare();
  ASSERT_THAT(tells(), SizeIs(1));
  EXPECT_TRUE(tells().front().is_for_init);
  EXPECT_EQ(tells().front().grace_s, 60u);
  told(false);
  advance(seconds(2));
  ASSERT_THAT(tells(), SizeIs(1));
  told();
  advance(seconds(5));
  EXPECT_THAT(tells(), IsEmpty());
  EXPECT_EQ(state(), AttemptState::kNoticed);

  safe(1);
  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreToldByHook, how_a_run_failed_is_said_until_one_ends_well) {
  hook_ends(1, 0);
  EXPECT_THAT(trouble(), IsEmpty());
  hook_ends(2, 3);
  EXPECT_THAT(trouble(), HasSubstr("its hook ended with exit code 3; next: see what it prints"));
  hook_ends(2, 3);
  safe(1);
  EXPECT_THAT(trouble(), HasSubstr("exit code 3")) << "saved or not";
  hook_ends(3, 0, true);
  EXPECT_THAT(trouble(), HasSubstr("its hook did not end in time and was ended"));
  EXPECT_THAT(trouble(), HasSubstr("; next: "));
  hook_ends(4, 0);
  EXPECT_THAT(trouble(), IsEmpty());
}

TEST_F(CoreToldByHook, a_warden_that_does_not_know_it_is_said) {
  expect_owner(2);
  wait_for_a_tell();
  cannot_tell(ErrorCode::kInvalid, "the file to tell it by is not inside its folder");
  EXPECT_THAT(trouble(), HasSubstr("a node of an older version does not know hooks"));
}

class CoreTellsInit : public CoreTest {};

TEST_F(CoreTellsInit, a_guests_first_process_hears_of_its_hook) {
  spec.checkpoint.tell_hook = "sh save.sh";
  start();
  prepare();
  const auto request = asked<warden_wire::StartGuest>().front();
  EXPECT_EQ(request.tell_hook, "sh save.sh");
  EXPECT_FALSE(request.tell_api);
  EXPECT_FALSE(request.env.contains("RECLAIM_API"));
}

TEST_F(CoreTellsInit, a_guest_that_asks_the_api_finds_its_socket) {
  spec.checkpoint.tell_api = true;
  start();
  prepare();
  const auto request = asked<warden_wire::StartGuest>().front();
  EXPECT_TRUE(request.tell_api);
  EXPECT_EQ(request.env.at("RECLAIM_API"), "/reclaim/api.sock");
}

class CoreToldByApi : public CoreToldByFile {
 protected:
  void SetUp() override {
    spec.checkpoint.tell_api = true;
    CoreUplink::SetUp();
    run();
  }
};

TEST_F(CoreToldByApi, one_who_never_says_that_it_has_saved_hears_what_to_say) {
  expect_owner(2);
  std::size_t times = 0;
  for (int i = 0; i < 60 * 4; ++i) {
    advance(seconds(15));
    if (tells().empty()) continue;
    EXPECT_TRUE(tells().front().is_for_init);
    told(++times == 1);
  }
  EXPECT_GE(times, 4u);
  EXPECT_LE(times, 8u);
  EXPECT_THAT(trouble(), HasSubstr("(the API, where it has not said that it has saved)"));
  EXPECT_THAT(trouble(), HasSubstr("POST /v1/saved"));
}

}  // namespace
}  // namespace rn::agent
