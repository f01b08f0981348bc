// SPDX-License-Identifier: Apache-2.0
#include "warden/verify.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <iostream>
#include <thread>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "warden/cgroup_fixture.h"
#include "warden/gpu_processes_fake.h"

namespace rn::warden {
namespace {

using test::Tree;

bool is_root_or_says_so(const char* what) {
  if (geteuid() == 0) return true;
  std::cerr << "\n*** NOT RUN: " << what << " needs root ***\n\n";
  return false;
}

constexpr const char* kMountinfo =
    "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
    "40 22 7:1 / /var/lib/reclaimnet/attempts/j-1 rw,nosuid shared:3 - ext4 /dev/loop1 rw\n"
    "41 40 7:2 / /var/lib/reclaimnet/attempts/j-1/my\\040data rw - tmpfs tmpfs rw\n"
    "42 22 7:3 / /var/lib/reclaimnet/attempts-of-the-owner rw - tmpfs tmpfs rw\n";

TEST(VerifyLab, a_lab_that_was_never_served_is_an_error_and_not_clear) {
  EXPECT_TRUE(check_served("", "lab-a", "/state"));
  EXPECT_TRUE(check_served("lab-a", "lab-a", "/state"));

  const Status mistyped = check_served("lab-b", "lab-a", "/state");
  ASSERT_FALSE(mistyped);
  EXPECT_EQ(mistyped.error().code, ErrorCode::kNotFound);
  EXPECT_NE(mistyped.error().message.find("lab-b"), std::string::npos);
  EXPECT_NE(mistyped.error().hint.find("--lab"), std::string::npos);
  for (const char* asked : {"", "lab-a"}) {
    const Status nobody = check_served(asked, "", "/state");
    ASSERT_FALSE(nobody);
    EXPECT_NE(nobody.error().message.find("/state"), std::string::npos);
    EXPECT_NE(nobody.error().hint.find("--state"), std::string::npos);
  }
}

TEST(KillLab, is_the_one_that_served_or_without_settings_one_that_has_a_control_group) {
  EXPECT_EQ(lab_to_kill("", "lab-a", {}, "/state").value(), "lab-a");
  EXPECT_EQ(lab_to_kill("lab-a", "lab-a", {}, "/state").value(), "lab-a");
  EXPECT_EQ(lab_to_kill("lab-b", "", {"lab-a", "lab-b"}, "/state").value(), "lab-b");
  EXPECT_EQ(lab_to_kill("", "", {"lab-a"}, "/state").value(), "lab-a");
  EXPECT_FALSE(lab_to_kill("", "", {"lab-a", "lab-b"}, "/state")) << "which of them?";
}

TEST(KillLab, a_mistyped_one_is_an_error_that_names_the_labs_there_are) {
  const auto mistyped = lab_to_kill("lab-b", "lab-a", {"lab-a", "lab-c"}, "/state");
  ASSERT_FALSE(mistyped);
  EXPECT_EQ(mistyped.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(
      mistyped.error().message,
      "lab \"lab-b\" was not served from /state: there it is lab \"lab-a\"; here are \"lab-a\", "
      "\"lab-c\""
  );
  EXPECT_FALSE(lab_to_kill("lab-c", "lab-a", {"lab-a", "lab-c"}, "/state")) << "by other folders";
  EXPECT_EQ(
      lab_to_kill("lab-b", "", {"lab-a"}, "/state").error().message,
      "no warden has served lab \"lab-b\" from /state; here are \"lab-a\""
  );
  EXPECT_EQ(
      lab_to_kill("", "", {}, "/state").error().message,
      "no warden has served from /state; no lab has guests on this machine"
  );
}

TEST(KillLab, labs_are_found_in_every_hierarchy) {
  const Tree group{{"cgroup.procs", ""}};
  const test::Folder folder(Tree{
      {"reclaim-lab-a", group},
      {"reclaim-warden.service", group},
      {"reclaim-run.scope", group},
      {"freezer",
       Tree{
           {"reclaim-lab-a", group},
           {"reclaim-lab-b", group},
           {"reclaim-agent.service", group},
           {"reclaim-all.slice", group},
           {"docker", Tree{{"reclaim-of-another", group}}}}},
      {"reclaim-file", ""}});

  EXPECT_EQ(labs_here(folder.path()), (std::vector<std::string>{"lab-a", "lab-b"}));
  EXPECT_TRUE(labs_here(folder.path() + "/none").empty());
}

TEST(VerifyMounts, finds_mounts_at_and_below_the_folder_only) {
  const test::Folder folder(Tree{{"mountinfo", kMountinfo}});
  Remains remains;

  look_at_mounts("/var/lib/reclaimnet/attempts", remains, (folder.path() + "/mountinfo").c_str());

  EXPECT_EQ(
      remains.describe(),
      (std::vector<std::string>{
          "mount: /var/lib/reclaimnet/attempts/j-1",
          "mount: /var/lib/reclaimnet/attempts/j-1/my data"})
  );
}

TEST(VerifyMounts, a_look_that_cannot_be_made_does_not_pass_for_clean) {
  Remains remains;

  look_at_mounts("/var/lib/reclaimnet", remains, "/proc/self/rn-no-such-file");

  ASSERT_EQ(remains.total(), 1u);
  EXPECT_EQ(remains.items()[0].kind, RemainderKind::kUnverified);
  EXPECT_EQ(remains.items()[0].id, ENOENT);
}

TEST(VerifyUids, finds_living_processes_with_a_guests_uid_even_as_effective_uid) {
  const test::Folder proc(Tree{
      {"1", Tree{{"status", "Name:\tinit\nState:\tS (sleeping)\nUid:\t0\t0\t0\t0\n"}}},
      {"20",
       Tree{
           {"status",
            "Name:\tguest\nState:\tR (running)\nUid:\t1010001\t1010001\t1010001\t1010001\n"}}},
      {"21",
       Tree{
           {"status",
            "Name:\tzombie\nState:\tZ (zombie)\nUid:\t1010001\t1010001\t1010001\t1010001\n"}}},
      {"22", Tree{{"status", "Name:\tsetuid\nState:\tS (sleeping)\nUid:\t0\t1000000\t0\t0\n"}}},
      {"23",
       Tree{{"status", "Name:\tabove\nState:\tS (sleeping)\nUid:\t1065536\t1065536\t0\t0\n"}}},
      {"self", Tree{{"status", "Uid:\t1010001\t1010001\t0\t0\n"}}},
  });
  const CgroupName own = make_cgroup_name("reclaim-lab-a").value();
  Remains remains;

  look_at_uids(1'000'000, 65'536, own, remains, proc.path().c_str());

  ASSERT_EQ(remains.total(), 2u);
  std::vector<std::int64_t> pids{remains.items()[0].id, remains.items()[1].id};
  std::sort(pids.begin(), pids.end());
  EXPECT_EQ(pids, (std::vector<std::int64_t>{20, 22}));
}

TEST(VerifyUids, a_process_that_cannot_be_read_does_not_pass_for_the_owners) {
  const test::Folder proc(Tree{{"20", Tree{{"status", Tree{}}}}, {"21", Tree{}}});
  const CgroupName own = make_cgroup_name("reclaim-lab-a").value();
  Remains remains;

  look_at_uids(1'000'000, 65'536, own, remains, proc.path().c_str());

  ASSERT_EQ(remains.total(), 1u) << "process 21 has just ended";
  EXPECT_EQ(remains.items()[0].kind, RemainderKind::kUnverified);
}

/// One process with a guest's uid, in these control groups.
Tree guest_in(const char* cgroups) {
  return {
      {"status", "Name:\tguest\nState:\tR (running)\nUid:\t1010001\t1010001\t0\t0\n"},
      {"cgroup", cgroups}};
}

TEST(VerifyUids, what_is_in_another_labs_guests_cgroup_is_that_labs) {
  const test::Folder proc(Tree{
      {"20", guest_in("9:pids:/reclaim-lab-b/c1\n0::/reclaim-lab-b/c1\n")},
      {"21", guest_in("9:pids:/\n0::/reclaim-lab-b\n")},
      {"22", guest_in("9:pids:/reclaim-lab-a/c1\n0::/reclaim-lab-a/c1\n")},
      {"23", guest_in("9:pids:/\n0::/user.slice/reclaim-lab-b\n")},
      {"24", guest_in("0::/reclaim-agent.service\n")},
      {"25", guest_in("")},
      {"26", guest_in("reclaim-lab-b\n:\n9:pids\n")},
  });
  const CgroupName own = make_cgroup_name("reclaim-lab-a").value();
  Remains remains;

  look_at_uids(1'000'000, 65'536, own, remains, proc.path().c_str());

  std::vector<std::int64_t> pids;
  for (const Remainder& one : remains.items()) pids.push_back(one.id);
  std::sort(pids.begin(), pids.end());
  EXPECT_EQ(pids, (std::vector<std::int64_t>{22, 23, 24, 25, 26}));
}

TEST(VerifyUids, no_range_means_no_look) {
  Remains remains;
  look_at_uids(0, 0, CgroupName{}, remains, "/nowhere");
  EXPECT_TRUE(remains.is_empty());
}

TEST(VerifyGpus, counts_the_guests_own_pids_and_not_the_owners) {
  FakeGpuProcesses gpus;
  gpus.processes = {{0, 4711, 1 << 30}, {0, getpid(), 1 << 20}};
  PidSet guests;
  guests.add(4711);
  Remains remains;

  look_at_gpus(gpus, guests, 0, milliseconds(10), remains);

  EXPECT_EQ(remains.describe(), (std::vector<std::string>{"GPU context of process 4711: GPU 0"}));
}

TEST(VerifyGpus, a_context_of_a_process_that_is_gone_counts_on_the_gpus_that_were_asked_about) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  ASSERT_EQ(waitpid(gone, nullptr, 0), gone);
  FakeGpuProcesses gpus;
  gpus.processes = {{0, gone, 0}, {1, gone, 0}, {1, getpid(), 0}, {1, 0, 4096}};
  Remains none, one;

  look_at_gpus(gpus, {}, 0, milliseconds(10), none);
  look_at_gpus(gpus, {}, 0b10, milliseconds(10), one);

  EXPECT_TRUE(none.is_empty());
  EXPECT_EQ(
      one.describe(),
      (std::vector<std::string>{"GPU context of process " + std::to_string(gone) + ": GPU 1"})
  );
}

TEST(VerifyGpus, a_gpu_goes_to_nobody_while_a_guest_or_one_that_is_gone_holds_it) {
  FakeGpuProcesses gpus;
  gpus.processes = {{0, getpid(), 1}, {1, getppid(), 1}};
  PidSet guests;
  guests.add(getpid());
  Remains taken, owners, free;

  look_at_gpus(gpus, std::vector<std::uint32_t>{0}, guests, milliseconds(10), taken);
  look_at_gpus(gpus, std::vector<std::uint32_t>{1}, guests, milliseconds(10), owners);
  look_at_gpus(gpus, std::vector<std::uint32_t>{2}, guests, milliseconds(10), free);

  EXPECT_EQ(taken.total(), 1U);
  EXPECT_TRUE(owners.is_empty());
  EXPECT_TRUE(free.is_empty());
}

TEST(VerifyGpus, a_driver_that_hangs_is_not_clean) {
  FakeGpuProcesses gpus;
  gpus.is_hanging = true;
  Remains remains;

  look_at_gpus(gpus, {}, 0, milliseconds(10), remains);

  ASSERT_EQ(remains.total(), 1u);
  EXPECT_EQ(remains.items()[0].kind, RemainderKind::kUnverified);
}

TEST(Remains, counts_beyond_what_it_keeps) {
  Remains remains;
  for (int pid = 1; pid <= 40; ++pid)
    remains.add(RemainderKind::kProcess, pid, std::string(500, 'x'));

  EXPECT_EQ(remains.total(), 40u);
  EXPECT_EQ(remains.items().size(), 32u);
  EXPECT_EQ(remains.describe().back(), "and 8 more");
}

/// Runs `work` on a thread with own network and mount namespaces, so that nothing of it touches the
/// machine.
template <class Work>
void in_own_namespaces(Work work) {
  std::thread([&] {
    ASSERT_EQ(unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_FS), 0);
    ASSERT_EQ(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    work();
  }).join();
}

TEST(VerifyPorts, finds_listening_tcp_and_bound_udp_in_the_named_namespace_and_comes_back) {
  if (!is_root_or_says_so("looking into a network namespace")) GTEST_SKIP();
  in_own_namespaces([] {
    const int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int udp = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in any{AF_INET, htons(8888), {}, {}};
    sockaddr_in6 any6{AF_INET6, htons(9999), 0, {}, 0};
    ASSERT_EQ(bind(tcp, reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
    ASSERT_EQ(listen(tcp, 1), 0);
    ASSERT_EQ(bind(udp, reinterpret_cast<sockaddr*>(&any6), sizeof(any6)), 0);
    const std::string there = "/proc/" + std::to_string(gettid()) + "/ns/net";
    Remains seen_from_outside;
    std::thread([&] {
      ASSERT_EQ(unshare(CLONE_NEWNET), 0);
      look_at_ports(there.c_str(), seen_from_outside);
      Remains at_home;
      look_at_ports("/proc/thread-self/ns/net", at_home);
      EXPECT_TRUE(at_home.is_empty()) << "came back to a namespace without sockets";
    }).join();
    close(tcp);
    close(udp);

    EXPECT_EQ(
        seen_from_outside.describe(),
        (std::vector<std::string>{"listening port 8888: tcp", "listening port 9999: udp6"})
    );
  });
}

TEST(VerifyPorts, of_a_process_that_has_ended_the_path_may_be_anothers_by_now) {
  if (!is_root_or_says_so("looking into a network namespace")) GTEST_SKIP();
  in_own_namespaces([] {
    const int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in any{AF_INET, htons(7777), {}, {}};
    ASSERT_EQ(bind(udp, reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
    const pid_t guest = fork();
    if (guest == 0) {
      pause();
      _exit(0);
    }
    const int whose = static_cast<int>(syscall(SYS_pidfd_open, guest, 0));
    ASSERT_GE(whose, 0);
    Remains living;
    look_at_ports("/proc/thread-self/ns/net", living, whose);
    ::kill(guest, SIGKILL);
    ASSERT_EQ(waitpid(guest, nullptr, 0), guest);
    Remains ended;
    look_at_ports("/proc/thread-self/ns/net", ended, whose);
    close(whose);
    close(udp);

    EXPECT_EQ(living.describe(), (std::vector<std::string>{"listening port 7777: udp"}));
    EXPECT_TRUE(ended.is_empty()) << ended.describe().front();
  });
}

TEST(VerifyPorts, a_namespace_that_has_gone_is_clean) {
  Remains remains;
  look_at_ports("/proc/self/rn-no-such-namespace", remains);
  EXPECT_TRUE(remains.is_empty());
}

TEST(VerifyInterfaces, an_interface_is_seen_until_it_is_deleted) {
  if (!is_root_or_says_so("making an interface")) GTEST_SKIP();
  in_own_namespaces([] {
    // The loopback of a fresh namespace cannot be deleted; a look at it must say so after the
    // attempt.
    Remains loopback;
    delete_interfaces(std::array{1u});
    look_at_interface(1, loopback);
    EXPECT_EQ(loopback.describe(), (std::vector<std::string>{"interface 1: lo"}));

    ASSERT_EQ(system("ip link add rn-guest type veth peer name rn-peer"), 0);
    ASSERT_EQ(system("ip link add rn-second type veth peer name rn-other"), 0);
    ASSERT_EQ(system("ip link add rn-owner type veth peer name rn-mine"), 0);
    const std::array guests{if_nametoindex("rn-guest"), 999'999u, if_nametoindex("rn-second")};
    Remains before;
    for (const std::uint32_t one : guests) look_at_interface(one, before);
    delete_interfaces(guests);
    Remains after;
    for (const std::uint32_t one : guests) look_at_interface(one, after);

    EXPECT_EQ(before.total(), 2u);
    EXPECT_TRUE(after.is_empty());
    EXPECT_NE(if_nametoindex("rn-owner"), 0u) << "the owner's interface went with the guests'";

    // One that cannot be deleted does not save the others.
    ASSERT_EQ(system("ip link add rn-third type veth peer name rn-peer"), 0);
    const std::array mixed{1u, if_nametoindex("rn-third")};
    delete_interfaces(mixed);
    Remains third;
    look_at_interface(mixed[1], third);
    EXPECT_TRUE(third.is_empty());
  });
}

TEST(DetachMounts, takes_off_stacked_and_nested_mounts_and_leaves_the_neighbours) {
  if (!is_root_or_says_so("mounting")) GTEST_SKIP();
  const test::Folder folder(Tree{{"attempts", Tree{{"j 1", Tree{}}}}, {"owner", Tree{}}});
  in_own_namespaces([&] {
    const std::string attempts = folder.path() + "/attempts";
    const std::string guest = attempts + "/j 1";
    ASSERT_EQ(mount("tmpfs", guest.c_str(), "tmpfs", 0, nullptr), 0);
    ASSERT_EQ(mount("tmpfs", guest.c_str(), "tmpfs", 0, nullptr), 0);
    ASSERT_EQ(mkdir((guest + "/below").c_str(), 0700), 0);
    ASSERT_EQ(mount("tmpfs", (guest + "/below").c_str(), "tmpfs", 0, nullptr), 0);
    ASSERT_EQ(mount("tmpfs", (folder.path() + "/owner").c_str(), "tmpfs", 0, nullptr), 0);

    const char* const own_mounts = "/proc/thread-self/mountinfo";
    EXPECT_EQ(detach_mounts(attempts.c_str(), own_mounts), 3u);

    Remains guests;
    Remains owners;
    look_at_mounts(attempts.c_str(), guests, own_mounts);
    look_at_mounts((folder.path() + "/owner").c_str(), owners, own_mounts);
    EXPECT_TRUE(guests.is_empty());
    EXPECT_EQ(owners.total(), 1u);
  });
}

}  // namespace
}  // namespace rn::warden
