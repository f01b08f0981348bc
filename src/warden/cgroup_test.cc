// SPDX-License-Identifier: Apache-2.0
#include "warden/cgroup.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "warden/cgroup_fixture.h"
#include "warden/cgroup_kill.h"
#include "warden/verify.h"

namespace rn::warden {
namespace {

using test::Tree;
using testing::Test;

TEST(CgroupProbe, a_pure_v2_machine_has_one_hierarchy) {
  const test::Folder root(Tree{{"cgroup.controllers", "cpu memory\n"}, {"cgroup.procs", ""}});

  const auto roots = probe_cgroups(root.path());

  ASSERT_TRUE(roots);
  EXPECT_EQ(roots->flavour, CgroupFlavour::kV2);
  EXPECT_EQ(roots->unified, root.path());
  EXPECT_EQ(roots->freezer, "");
}

TEST(CgroupProbe, a_hybrid_machine_has_the_v1_freezer_beside_the_unified_hierarchy) {
  const test::Folder root(Tree{
      {"freezer", Tree{{"cgroup.procs", ""}}},
      {"unified", Tree{{"cgroup.controllers", ""}, {"cgroup.procs", ""}}},
  });

  const auto roots = probe_cgroups(root.path());

  ASSERT_TRUE(roots);
  EXPECT_EQ(roots->flavour, CgroupFlavour::kHybrid);
  EXPECT_EQ(roots->unified, root.path() + "/unified");
  EXPECT_EQ(roots->freezer, root.path() + "/freezer");
}

TEST(CgroupProbe, a_v1_machine_has_the_freezer_alone_and_no_hierarchy_at_all_is_unsupported) {
  const test::Folder v1(Tree{{"freezer", Tree{{"cgroup.procs", ""}}}, {"memory", Tree{}}});
  const test::Folder none(Tree{{"memory", Tree{}}});

  EXPECT_EQ(probe_cgroups(v1.path())->flavour, CgroupFlavour::kV1);
  ASSERT_FALSE(probe_cgroups(none.path()));
  EXPECT_EQ(probe_cgroups(none.path()).error().code, ErrorCode::kUnsupported);
}

/// A pure v2 machine with a lab of two guests, one of which has a nested cgroup.
Tree a_v2_machine() {
  return {
      {"cgroup.controllers", "cpu memory\n"},
      {"reclaim-lab-a",
       Tree{
           {"cgroup.procs", ""},
           {"cgroup.kill", ""},
           {"cgroup.freeze", "0\n"},
           {"cgroup.events", "populated 1\nfrozen 0\n"},
           {"guest-1",
            Tree{
                {"cgroup.procs", "301\n302\n"},
                {"cgroup.freeze", "0\n"},
                {"cgroup.kill", ""},
                {"nested", Tree{{"cgroup.procs", "303\n"}, {"cgroup.freeze", "0\n"}}}}},
           {"guest-2", Tree{{"cgroup.procs", "401\n"}, {"cgroup.freeze", "0\n"}}},
       }},
      {"owner", Tree{{"cgroup.procs", "999\n"}}},
  };
}

TEST(CgroupV2, all_pids_of_a_lab_are_found_and_the_owners_are_not) {
  const test::Folder root(a_v2_machine());
  const CgroupRoots roots = probe_cgroups(root.path()).value();

  EXPECT_EQ(
      pids_in_cgroup(roots, "reclaim-lab-a").value(), (std::vector<pid_t>{301, 302, 303, 401})
  );
  EXPECT_EQ(pids_in_cgroup(roots, "reclaim-lab-a/guest-2").value(), (std::vector<pid_t>{401}));
  EXPECT_TRUE(pids_in_cgroup(roots, "reclaim-lab-b").value().empty());
}

TEST(CgroupV2, freezing_and_thawing_write_the_unified_controls) {
  const test::Folder root(a_v2_machine());
  const CgroupRoots roots = probe_cgroups(root.path()).value();

  ASSERT_TRUE(freeze_cgroup(roots, "reclaim-lab-a"));
  EXPECT_EQ(root.read("reclaim-lab-a/cgroup.freeze"), "1\n");
  EXPECT_FALSE(is_cgroup_frozen(roots, "reclaim-lab-a").value());
  root.write("reclaim-lab-a/cgroup.events", "populated 1\nfrozen 1\n");
  EXPECT_TRUE(is_cgroup_frozen(roots, "reclaim-lab-a").value());
  root.write("reclaim-lab-a/guest-1/nested/cgroup.freeze", "1\n");
  ASSERT_TRUE(thaw_cgroup(roots, "reclaim-lab-a"));

  EXPECT_EQ(root.read("reclaim-lab-a/cgroup.freeze"), "0\n");
  EXPECT_EQ(root.read("reclaim-lab-a/guest-1/nested/cgroup.freeze"), "0\n");
  EXPECT_EQ(freeze_cgroup(roots, "reclaim-lab-b").error().code, ErrorCode::kNotFound);
}

TEST(CgroupV2, a_strike_writes_cgroup_kill_of_the_lab_and_nothing_elsewhere) {
  const test::Folder root(a_v2_machine());
  const ManualClock clock{};
  const auto killer = CgroupKiller::open(probe_cgroups(root.path()).value(), clock);
  ASSERT_TRUE(killer);

  killer->strike(make_cgroup_name("reclaim-lab-a").value());

  EXPECT_EQ(root.read("reclaim-lab-a/cgroup.kill"), "1");
  EXPECT_EQ(root.read("reclaim-lab-a/guest-1/cgroup.kill"), "");
}

TEST(CgroupV2, the_killer_sees_every_process_once) {
  const test::Folder root(a_v2_machine());
  const ManualClock clock{};
  const auto killer = CgroupKiller::open(probe_cgroups(root.path()).value(), clock);
  PidSet pids;

  killer->collect(make_cgroup_name("reclaim-lab-a").value(), pids);

  EXPECT_EQ(pids.total, 4u);
  EXPECT_TRUE(pids.contains(303));
  EXPECT_FALSE(pids.contains(999));
  EXPECT_TRUE(killer->is_empty(make_cgroup_name("reclaim-lab-b").value()));
}

TEST(CgroupV2, one_that_cannot_be_looked_at_is_not_empty) {
  const test::Folder root(a_v2_machine());
  const CgroupRoots roots = probe_cgroups(root.path()).value();
  const ManualClock clock{};
  const auto killer = CgroupKiller::open(roots, clock);
  const auto may_be_there = [&](const char* name) {
    Remains remains;
    look_at_cgroup(*killer, make_cgroup_name(name).value(), remains);
    const bool is_told =
        !remains.is_empty() && remains.items()[0].kind == RemainderKind::kUnverified;
    EXPECT_EQ(is_told, !killer->is_empty(make_cgroup_name(name).value())) << name;
    return is_told;
  };
  const std::filesystem::path top = root.path();
  std::filesystem::create_directories(top / "no-list/cgroup.procs");  // reading it: EISDIR
  std::filesystem::create_directories(top / "above/no-list/cgroup.procs");
  std::filesystem::create_directories(top / "bare");
  std::filesystem::create_symlink("loop", top / "loop");

  EXPECT_TRUE(may_be_there("no-list"));
  EXPECT_TRUE(may_be_there("above"));
  EXPECT_TRUE(may_be_there("loop")) << "ELOOP";
  EXPECT_FALSE(may_be_there("bare")) << "a cgroup without its list has just gone";
  EXPECT_FALSE(may_be_there("none"));
  EXPECT_TRUE(pids_in_cgroup(roots, "loop")->empty()) << "and nothing is thrown";
}

TEST(CgroupHybrid, a_strike_thaws_every_v1_freezer_below) {
  const test::Folder root(Tree{
      {"unified",
       Tree{
           {"cgroup.controllers", ""},
           {"lab", Tree{{"cgroup.procs", "7\n"}, {"cgroup.kill", ""}}}}},
      {"freezer",
       Tree{
           {"cgroup.procs", ""},
           {"lab",
            Tree{
                {"cgroup.procs", "7\n"},
                {"freezer.state", "THAWED\n"},
                {"guest", Tree{{"cgroup.procs", "8\n"}, {"freezer.state", "FROZEN\n"}}}}}}},
  });
  const ManualClock clock{};
  const auto killer = CgroupKiller::open(probe_cgroups(root.path()).value(), clock);
  ASSERT_TRUE(killer);
  PidSet pids;

  killer->strike(make_cgroup_name("lab").value());
  killer->collect(make_cgroup_name("lab").value(), pids);

  EXPECT_EQ(root.read("unified/lab/cgroup.kill"), "1");
  EXPECT_EQ(root.read("freezer/lab/guest/freezer.state").substr(0, 6), "THAWED");
  EXPECT_EQ(pids.total, 2u) << "7 is in both hierarchies";
}

TEST(CgroupHybrid, dying_guests_lose_their_processor_limits_and_the_labs_own_come_back) {
  const Tree limited{
      {"cgroup.procs", ""}, {"cpu.cfs_quota_us", "10000\n"}, {"cpu.shares", "200\n"}};
  Tree lab = limited;
  lab.emplace_back("guest", limited);
  const test::Folder root(Tree{
      {"unified", Tree{{"cgroup.controllers", ""}, {"lab", Tree{}}}},
      {"cpu", Tree{{"cgroup.procs", ""}, {"lab", lab}, {"owner", limited}}},
  });
  const auto word = [&](const char* file) {
    const std::string text = root.read(file);
    return text.substr(0, text.find('\n'));
  };
  const ManualClock clock{};
  const auto killer = CgroupKiller::open(probe_cgroups(root.path()).value(), clock);
  ASSERT_TRUE(killer);
  const CgroupName name = make_cgroup_name("lab").value();

  const CpuLimits before = killer->hurry(name, false);
  EXPECT_EQ(word("cpu/lab/cpu.shares"), "262144");
  EXPECT_EQ(word("cpu/lab/guest/cpu.shares"), "200") << "a neighbour that lives on";
  killer->restore(name, before);
  EXPECT_EQ(word("cpu/lab/cpu.shares"), "200");

  killer->hurry(name, true);
  EXPECT_EQ(word("cpu/lab/guest/cpu.shares"), "262144");
  EXPECT_EQ(root.read("cpu/lab/guest/cpu.cfs_quota_us").substr(0, 2), "-1");
  EXPECT_EQ(word("cpu/owner/cpu.shares"), "200");
}

TEST(CgroupHybrid, removal_reaches_the_hierarchies_that_only_the_engine_uses) {
  const test::Folder root(Tree{
      {"unified", Tree{{"cgroup.controllers", ""}, {"lab", Tree{}}}},
      {"freezer", Tree{{"cgroup.procs", ""}, {"lab", Tree{}}}},
      {"memory", Tree{{"cgroup.procs", ""}, {"lab", Tree{{"guest", Tree{}}}}, {"owner", Tree{}}}},
      {"no-hierarchy", Tree{{"lab", Tree{}}}},
  });
  const CgroupRoots roots = probe_cgroups(root.path()).value();

  ASSERT_TRUE(remove_cgroup(roots, "lab"));

  EXPECT_FALSE(std::filesystem::exists(root.path() + "/memory/lab"));
  EXPECT_FALSE(std::filesystem::exists(root.path() + "/unified/lab"));
  EXPECT_TRUE(std::filesystem::exists(root.path() + "/memory/owner"));
  EXPECT_TRUE(std::filesystem::exists(root.path() + "/no-hierarchy/lab"));
  EXPECT_TRUE(remove_cgroup(roots, "lab")) << "twice is fine";
}

TEST(CgroupName, that_cannot_be_made_is_said_with_its_place_and_a_next_step) {
  const test::Folder root(Tree{{"cgroup.controllers", ""}, {"cgroup.procs", ""}, {"lab", "a file"}}
  );

  const Status made = make_cgroup(probe_cgroups(root.path()).value(), "lab/guest");

  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("lab/guest in " + root.path()), std::string::npos);
  EXPECT_NE(made.error().hint.find("mount | grep cgroup"), std::string::npos);
}

TEST(CgroupName, only_relative_names_that_do_not_climb_are_names) {
  EXPECT_TRUE(make_cgroup_name("reclaim-lab-a/0123"));
  for (const char* bad : {"", "/reclaim-lab-a", "..", "../owner", "lab/../owner", "lab/.."}) {
    EXPECT_FALSE(make_cgroup_name(bad)) << bad;
  }
  EXPECT_FALSE(make_cgroup_name(std::string(256, 'a')));
}

TEST(SigCgt, the_mask_is_read_from_a_processs_status) {
  const auto mask =
      caught_signals("Name:\tpython3\nSigIgn:\t0000000001001000\nSigCgt:\t0000000000004202\n");

  ASSERT_TRUE(mask);
  EXPECT_EQ(*mask, 0x4202u);
  EXPECT_TRUE((*mask >> (SIGTERM - 1)) & 1);
  EXPECT_TRUE((*mask >> (SIGUSR1 - 1)) & 1) << "bit 9";
  EXPECT_FALSE((*mask >> (SIGUSR2 - 1)) & 1);
}

TEST(SigCgt, a_status_without_the_line_is_corrupt) {
  EXPECT_EQ(caught_signals("Name:\tpython3\n").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(caught_signals("SigCgt:\tnot hex\n").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(caught_signals("SigCgt:\n").error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace rn::warden
