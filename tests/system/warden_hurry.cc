// SPDX-License-Identifier: Apache-2.0
//
// The owner's kill by hand: what is cut before `reclaim-warden kill` is loaded or has read
// anything, and what reclaim-kill becomes.

#include <filesystem>
#include <fstream>

#include "warden_suite_fake.h"
#include <sys/stat.h>

#include "traffic/cut_switch.h"

namespace rn::warden {
namespace {

/// The installed program, with a large `reclaim-warden` that only writes its words down: what is
/// cut then, nobody else has cut.
class Hurry {
 public:
  explicit Hurry(const WardenNode& node) : node_(node) {
    std::filesystem::create_directories(bin_);
    std::filesystem::create_directories(lib_);
    std::filesystem::copy_file(
        RN_KILL, bin_ + "/reclaim-kill", std::filesystem::copy_options::overwrite_existing
    );
    std::ofstream(warden()) << "#!/bin/sh\necho \"$@\" > " << words_ << "\n";
    chmod(warden().c_str(), 0755);
  }

  std::string places() const {
    return " --state " + node_.folder + "/state --run " + node_.folder + "/run";
  }

  /// What `reclaim-warden` was called with; "not called" when it was not.
  std::string hands_on(const std::string& words, const std::string& as = "") const {
    std::ofstream(words_) << "not called\n";
    chmod(words_.c_str(), 0666);
    run_shell(as + program() + words + " > " + out_ + " 2>&1");
    return text_of(words_);
  }

  std::string warden() const { return lib_ + "/reclaim-warden"; }

  std::string program() const { return bin_ + "/reclaim-kill"; }

  std::string said() const { return text_of(out_); }

  const std::string& out() const { return out_; }

  bool is_node_open() const {
    const auto gates = traffic::CutSwitch::open_pinned(node_.folder + "/run/gates");
    return gates && gates->state()->is_node_open;
  }

  /// With a guest that runs.
  bool opens() const {
    return eventually([&] { return is_node_open(); });
  }

 private:
  const WardenNode& node_;
  const std::string bin_ = node_.folder + "/bin";
  const std::string lib_ = node_.folder + "/lib/reclaimnet";
  const std::string words_ = bin_ + "/words";
  const std::string out_ = node_.folder + "/hurry.out";
};

TEST_F(Warden, the_hurried_kill_shuts_the_gate_by_itself_and_hands_its_words_on) {
  Hurry hurry(*node);
  const auto name = name_of(51);
  ASSERT_EQ(node->run(name, "sleep 100").code, "");
  ASSERT_TRUE(hurry.opens());
  node->kill_daemon();

  for (const std::string& less :
       {" --gpu 0" + hurry.places(), hurry.places() + " --lab mistyped"}) {
    EXPECT_EQ(hurry.hands_on(less), "kill" + less + "\n");
    EXPECT_TRUE(hurry.is_node_open()) << less;
  }
  const std::string unserved = " --state " + node->folder + "/none --run " + node->folder + "/run";
  hurry.hands_on(unserved + " --lab mistyped");
  EXPECT_TRUE(hurry.is_node_open()) << "nothing says which lab was served";
  hurry.hands_on(unserved);
  EXPECT_FALSE(hurry.is_node_open()) << "no settings keep the owner from cutting";
  ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");
  EXPECT_EQ(node->ask(warden_wire::Release{}).code, "");
  ASSERT_TRUE(hurry.opens());
  node->kill_daemon();
  const std::string whole = hurry.places() + " --cut-only";
  EXPECT_EQ(hurry.hands_on(whole), "kill" + whole + "\n");
  EXPECT_FALSE(hurry.is_node_open());
  EXPECT_NE(hurry.said().find("the guests' packets are cut"), std::string::npos) << hurry.said();

  ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");
  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  EXPECT_EQ(node->ask(warden_wire::Release{}).code, "");
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, that_lives_knows_of_a_hurried_cut_before_it_is_asked_for_the_rest) {
  Hurry hurry(*node);
  const auto name = name_of(52);
  ASSERT_EQ(node->run(name, "sleep 100").code, "");
  ASSERT_TRUE(hurry.opens());

  EXPECT_EQ(hurry.hands_on(hurry.places()), "kill" + hurry.places() + "\n");

  EXPECT_TRUE(eventually([&] { return node->guest(name).is_cut; }));
  EXPECT_FALSE(hurry.is_node_open());
  EXPECT_EQ(node->guest(name).state, GuestState::kRunning) << "no more than cut";
  EXPECT_EQ(node->ask(warden_wire::Release{}).code, "");
  EXPECT_TRUE(hurry.opens());
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, a_stranger_in_a_hurry_cuts_nothing_and_is_told_so) {
  Hurry hurry(*node);
  const auto name = name_of(53);
  ASSERT_EQ(node->run(name, "sleep 100").code, "");
  ASSERT_TRUE(hurry.opens());

  hurry.hands_on(hurry.places(), "setpriv --reuid 12345 --regid 12345 --clear-groups ");

  EXPECT_NE(hurry.said().find("run it as root"), std::string::npos) << hurry.said();
  EXPECT_TRUE(hurry.is_node_open());
  EXPECT_FALSE(node->guest(name).is_cut);
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, a_hurried_kill_says_what_is_left_to_do_where_no_warden_is_installed) {
  Hurry hurry(*node);
  const auto name = name_of(54);
  ASSERT_EQ(node->run(name, "sleep 100").code, "");
  ASSERT_TRUE(hurry.opens());
  ASSERT_TRUE(run_shell("rm " + hurry.warden()));

  const std::string command = hurry.program() + hurry.places() + " > " + hurry.out() + " 2>&1";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 3);

  EXPECT_NE(hurry.said().find("the guests' packets stay cut"), std::string::npos) << hurry.said();
  EXPECT_NE(hurry.said().find("no process was killed"), std::string::npos) << hurry.said();
  const std::string help = hurry.program() + " --help > " + hurry.out() + " 2>&1";
  EXPECT_EQ(WEXITSTATUS(std::system(help.c_str())), 1);
  EXPECT_NE(hurry.said().find("install the whole package"), std::string::npos) << hurry.said();
  EXPECT_EQ(hurry.said().find("killed"), std::string::npos) << hurry.said();
  EXPECT_FALSE(hurry.is_node_open());
  EXPECT_EQ(node->ask(warden_wire::Release{}).code, "");
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, a_hurried_kill_that_fails_behind_its_cut_says_what_stays_cut_and_what_lifts_it) {
  const Hurry hurry(*node);
  const auto name = name_of(56);
  ASSERT_EQ(node->run(name, "sleep 100").code, "");
  ASSERT_TRUE(hurry.opens());
  const std::string other = "/sys/fs/cgroup/reclaim-" + node->lab + "-other";  // which is meant?
  ASSERT_TRUE(std::filesystem::create_directory(other));

  const std::string places = " --state " + node->folder + "/none --run " + node->folder + "/run";
  const std::string command = RN_KILL + places + " > " + hurry.out() + " 2>&1";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  std::filesystem::remove(other);

  EXPECT_FALSE(hurry.is_node_open());
  const std::string last =
      "reclaim-warden: the guests' packets stay cut\n"
      "  next: reclaim-agent release lets them pass again\n";
  EXPECT_TRUE(hurry.said().ends_with(last)) << hurry.said();
  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  EXPECT_EQ(node->ask(warden_wire::Release{}).code, "");
  EXPECT_TRUE(hurry.opens());
  EXPECT_TRUE(node->finish(name));
}

/// Its settings are on a disk that hangs: a pipe that nobody writes.
TEST_F(Warden, kill_cuts_before_it_reads_a_file_and_hangs_on_no_disk) {
  const Hurry hurry(*node);
  const auto name = name_of(57);
  ASSERT_EQ(node->run(name, "sleep 100").code, "");
  ASSERT_TRUE(hurry.opens());
  node->kill_daemon();
  const std::string state = node->folder + "/hung";
  std::filesystem::create_directories(state + "/warden");
  ASSERT_EQ(mkfifo((state + "/warden/settings").c_str(), 0600), 0);
  const auto hangs = [&](const std::string& words, const char* limit_s = "1 ") {
    const std::string command = std::string("timeout -s KILL ") + limit_s + RN_WARDEN + " " +
                                words + " --state " + state + " --run " + node->folder + "/run";
    return WEXITSTATUS(std::system((command + " > " + hurry.out() + " 2>&1").c_str())) == 137;
  };

  for (const char* less : {"verify", "kill --gpu 0", "kill --lab mistyped"}) {
    EXPECT_TRUE(hangs(less)) << hurry.said();
    EXPECT_TRUE(hurry.is_node_open()) << less;
  }
  EXPECT_TRUE(hangs("kill --cut-only", "5 ")) << hurry.said();
  EXPECT_FALSE(hurry.is_node_open());

  ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");
  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  EXPECT_EQ(node->ask(warden_wire::Release{}).code, "");
  EXPECT_TRUE(hurry.opens());
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, a_hurried_kill_clears_the_machine_with_the_warden_dead) {
  const Hurry hurry(*node);
  const auto name = name_of(55);
  ASSERT_EQ(node->run(name, "sleep 100 & sleep 100").code, "");
  node->kill_daemon();

  EXPECT_TRUE(run_shell(RN_KILL + hurry.places() + " > " + hurry.out() + " 2>&1")) << hurry.said();

  EXPECT_NE(hurry.said().find("cleared (by hand)"), std::string::npos) << hurry.said();
  ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");
  EXPECT_TRUE(has_exited(name));
  EXPECT_EQ(node->state().reclaims.back().kind, ReclaimKind::kEmergency);
  EXPECT_EQ(node->ask(warden_wire::Release{}).code, "");
  EXPECT_TRUE(eventually([&] { return node->finish(name); }));
}

}  // namespace
}  // namespace rn::warden
