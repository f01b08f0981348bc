// SPDX-License-Identifier: Apache-2.0
//
// What a warden does about journals of its own that are gone or damaged.

#include <algorithm>
#include <filesystem>

#include "warden_suite_fake.h"

#include "warden/core.h"
#include "warden/guest_ids.h"
#include "warden/kill_service.h"

namespace rn::warden {
namespace {

TEST_F(Warden, a_guest_survives_the_loss_of_the_journal_and_an_emergency_that_is_over) {
  const std::string journal = node->folder + "/state/warden/journal";
  ASSERT_EQ(node->run(name_of(21), "sleep 100").code, "");
  ASSERT_TRUE(run_shell(node->command("kill") + " >/dev/null"));
  ASSERT_TRUE(node->finish(name_of(21)));
  ASSERT_EQ(node->ask(warden_wire::Release{}).code, "");
  const auto name = name_of(22);
  ASSERT_EQ(node->run(name, "sleep 3; exit 6", [](auto& s) { s.gpus = {2}; }).code, "");

  node->kill_daemon();
  ASSERT_TRUE(run_shell("rm " + journal));
  ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");

  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  EXPECT_EQ(node->guest(name).gpus, std::vector<std::uint32_t>{2});
  for (const auto& reclaim : node->state().reclaims)
    EXPECT_FALSE(is_open(reclaim)) << "it was released";
  EXPECT_EQ(node->load_image(), "") << "what was verified is not known any more";
  expect_end(name, 6);
}

TEST_F(Warden, what_the_owner_said_survives_the_removal_of_the_journal) {
  const std::string journal = node->folder + "/state/warden/journal";
  const auto name = name_of(36);
  ASSERT_EQ(node->run(name, "sleep 100", [](auto& s) { s.gpus = {2}; }).code, "");
  warden_wire::DeclareReclaim gpu;
  gpu.kind = ReclaimKind::kEmergency;
  gpu.gpus = {5};
  ASSERT_EQ(node->ask(gpu).code, "");
  ASSERT_TRUE(eventually([&] {
    return node->state().reclaims.back().phase == ReclaimPhase::kCleared;
  }));
  warden_wire::DeclareReclaim notice;
  notice.kind = ReclaimKind::kNotice;
  notice.notice_s = 800;
  ASSERT_EQ(node->ask(notice).code, "");
  ASSERT_EQ(node->ask(warden_wire::Pause{}).code, "");
  const auto said = node->state();

  node->kill_daemon();
  ASSERT_TRUE(run_shell("rm " + journal));
  ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");

  const auto after = node->state();
  EXPECT_TRUE(after.reclaims == said.reclaims);
  EXPECT_EQ(after.reclaims.back().phase, ReclaimPhase::kEvacuating);
  EXPECT_TRUE(after.is_paused);
  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  ASSERT_FALSE(after.troubles.empty());
  EXPECT_NE(after.troubles[0].what.find("is known from its copy"), std::string::npos);
  EXPECT_EQ(node->ask(warden_wire::Release{}).code, "");
  EXPECT_EQ(node->ask(warden_wire::Resume{}).code, "");
  EXPECT_EQ(node->load_image(), "");
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, a_guest_survives_a_damaged_journal_and_no_new_one_starts_until_the_owner_says_so) {
  const std::string journal = node->folder + "/state/warden/journal";
  const auto name = name_of(23);
  ASSERT_EQ(node->run(name, "sleep 100").code, "");

  node->kill_daemon();
  for (const char* slot : {"64", "524352"}) {
    ASSERT_TRUE(run_shell(
        "printf XXXXXXXX | dd of=" + journal + " bs=1 seek=" + slot + " conv=notrunc 2>/dev/null"
    ));
  }
  ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");

  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  EXPECT_TRUE(node->state().is_paused);
  EXPECT_TRUE(std::filesystem::exists(journal + ".damaged"));
  EXPECT_EQ(node->ask(warden_wire::PrepareDisk{name_of(24), 32}).code, "unavailable");
  EXPECT_EQ(node->ask(warden_wire::Resume{}).code, "");
  EXPECT_EQ(node->load_image(), "");
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, an_order_by_hand_in_a_short_hang_is_over_with_the_release) {
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(node->daemon().signal(SIGSTOP));
    ASSERT_TRUE(run_shell(node->command("kill") + " >/dev/null 2>&1"));
    ASSERT_TRUE(node->daemon().signal(SIGCONT));
    ASSERT_TRUE(eventually([&] {
      const auto reclaims = node->state().reclaims;
      return !reclaims.empty() && is_open(reclaims.back());
    }));
    // The order lies in the socket of the daemon, too, which may be at it just now.
    ASSERT_TRUE(eventually([&] { return node->ask(warden_wire::Release{}).code.empty(); }));
    const auto name = name_of(31 + round);
    const auto answer = node->run(name, "sleep 100");
    ASSERT_EQ(answer.code, "") << answer.message;

    node->kill_daemon();
    ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");

    EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
    for (const auto& reclaim : node->state().reclaims) EXPECT_FALSE(is_open(reclaim));
    EXPECT_TRUE(node->finish(name));
  }
}

TEST_F(Warden, an_order_that_something_holds_up_is_told_before_it_is_done) {
  const auto name = name_of(34);
  ASSERT_EQ(node->run(name, "sleep 100").code, "");
  // With a guest's user id, outside of every guest: it is named, and never touched.
  const std::string uid =
      std::to_string(recorded_guest_ids(node->folder + "/state/warden").value_or(0) + 5);
  const std::string pid = node->folder + "/held-up-by";
  ASSERT_TRUE(run_shell(
      "setpriv --reuid " + uid + " --clear-groups sh -c 'echo $$; exec sleep 100' > " + pid + " &"
  ));
  ASSERT_TRUE(eventually([&] { return text_of(pid).ends_with("\n"); }));
  warden_wire::KillFrame frame;
  frame.verb = warden_wire::KillFrame::kCutAndClear;
  std::thread order([&] {
    const auto done = ask_kill_socket(node->folder + "/run/kill.sock", frame, seconds(15));
    EXPECT_TRUE(done && done->status == 0);
  });

  EXPECT_TRUE(eventually([&] {
    const auto state = node->state();
    return !state.reclaims.empty() && state.reclaims.back().kind == ReclaimKind::kEmergency &&
           is_open(state.reclaims.back());
  }));
  EXPECT_NE(node->state().reclaims.back().phase, ReclaimPhase::kCleared);
  EXPECT_EQ(node->ask(warden_wire::PrepareDisk{name_of(35), 32}).code, "unavailable");
  EXPECT_TRUE(run_shell("kill -9 " + text_of(pid)));
  order.join();
  EXPECT_TRUE(eventually([&] {
    return node->state().reclaims.back().phase == ReclaimPhase::kCleared;
  }));
  const auto all = node->state().reclaims;
  EXPECT_EQ(std::count_if(all.begin(), all.end(), is_open), 1) << "one order is one reclaim";
  EXPECT_EQ(node->ask(warden_wire::Release{}).code, "");
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, a_damaged_journal_of_kills_keeps_no_warden_from_starting_and_lends_nothing) {
  const auto name = name_of(27);
  ASSERT_EQ(node->run(name, "sleep 100").code, "");
  const std::string by_hand = node->folder + "/state/warden/kill-by-hand.journal";

  node->kill_daemon();
  ASSERT_TRUE(run_shell("head -c 360 /dev/zero > " + by_hand));
  ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");

  EXPECT_EQ(std::filesystem::file_size(by_hand + ".damaged"), 360U);
  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  EXPECT_FALSE(node->guest(name).is_cut);
  EXPECT_TRUE(node->state().is_paused);
  EXPECT_EQ(node->ask(warden_wire::PrepareDisk{name_of(28), 32}).code, "unavailable");

  node->kill_daemon();
  ASSERT_TRUE(run_shell(node->command("kill --cut-only") + " >/dev/null"));
  ASSERT_TRUE(run_shell("head -c 360 /dev/zero > " + by_hand));
  ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");

  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  EXPECT_TRUE(node->guest(name).is_cut) << "what the owner cut stays cut";
  ASSERT_EQ(node->state().troubles.size(), 1U);
  EXPECT_NE(node->state().troubles[0].what.find("journal of your kills"), std::string::npos);
  EXPECT_EQ(node->ask(warden_wire::Release{}).code, "");
  EXPECT_EQ(node->ask(warden_wire::Resume{}).code, "");
  EXPECT_FALSE(node->guest(name).is_cut);

  node->kill_daemon();
  ASSERT_TRUE(run_shell(node->command("kill") + " >/dev/null"));
  ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");

  const auto reclaims = node->state().reclaims;
  ASSERT_FALSE(reclaims.empty());
  EXPECT_TRUE(is_open(reclaims.back())) << "the new file's first order is heeded";
  EXPECT_TRUE(node->finish(name));
  EXPECT_EQ(node->ask(warden_wire::Release{}).code, "");
}

}  // namespace
}  // namespace rn::warden
