// SPDX-License-Identifier: Apache-2.0
#include "warden/profile.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/places_fixture.h"

namespace rn::warden {
namespace {

using nlohmann::json;
using warden_wire::StartGuest;

StartGuest a_start() {
  StartGuest start;
  start.guest = {JobId("j-0011223344556677"), LeaseEpoch{3, 7}};
  start.image_digest = "sha256:aa";
  start.command = {"python3", "train.py", "--epochs", "3"};
  start.env = {{"RECLAIM_ATTEMPT", "7"}, {"SEED", "1"}};
  start.cpu_milli = 1500;
  start.memory_mib = 1024;
  start.max_pids = 128;
  start.data = {"digits"};
  return start;
}

ContainerSetting a_place() {
  ContainerSetting place;
  place.lab = "lab-a";
  place.image_id = "sha256:0123";
  place.work_source = "/var/lib/reclaimnet/warden/attempts/j-0011223344556677-3.7/disk/work";
  place.reclaim_source = "/var/lib/reclaimnet/warden/attempts/j-0011223344556677-3.7/disk/reclaim";
  place.data_source = "/var/lib/reclaimnet/warden/data/guests/j-0011223344556677-3.7";
  place.init_path = "/var/lib/reclaimnet/warden/bin/reclaim-init";
  place.cgroup_parent = "/reclaim-lab-a";
  place.slot = 4;
  place.go_ticket = "00112233445566778899aabbccddeeff";
  return place;
}

json request_of(const StartGuest& start, const ContainerSetting& place = a_place()) {
  return json::parse(make_create_request(start, place).value());
}

bool is_refused(const StartGuest& start) {
  const Status status = check_start(start);
  return !status && status.error().code == ErrorCode::kInvalid;
}

TEST(Profile, the_create_request_is_the_golden_one) {
  const std::string path = std::string(places::kGolden) + "/create_request.json";
  const std::string made = make_create_request(a_start(), a_place()).value();
  if (std::getenv("RN_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << made;

  std::ifstream file(path);
  const std::string golden((std::istreambuf_iterator<char>(file)), {});

  EXPECT_EQ(made, golden) << "if this is meant, rerun with RN_UPDATE_GOLDEN=1 and read the diff";
}

TEST(Profile, what_a_guest_is_told_by_is_for_its_first_process_and_comes_before_its_command) {
  const auto entry_of = [](const StartGuest& start) { return request_of(start)["Entrypoint"]; };
  StartGuest start = a_start();
  const json plain = entry_of(start);
  ASSERT_EQ(plain.size(), 4U);

  start.tell_hook = "python3 save.py \"$RECLAIM_REASON\"";
  const json hook = entry_of(start);
  ASSERT_EQ(hook.size(), 6U);
  EXPECT_EQ(hook[1], "--tell-hook");
  EXPECT_EQ(hook[2], start.tell_hook);
  EXPECT_EQ(hook[5], plain[3]);
  EXPECT_EQ(request_of(start)["Cmd"], json(start.command));

  start.tell_api = true;
  EXPECT_TRUE(is_refused(start)) << "it is told in one way";
  start.tell_hook.clear();
  EXPECT_EQ(entry_of(start)[1], "--tell-api");
  EXPECT_EQ(entry_of(start).size(), 5U);

  start = a_start();
  start.tell_hook = std::string(4097, 'x');
  EXPECT_TRUE(is_refused(start));
  start.tell_hook = std::string("a\0b", 3);
  EXPECT_TRUE(is_refused(start));
}

TEST(Profile, a_guest_that_is_told_of_slurm_finds_its_first_process_as_slurms_commands) {
  StartGuest start = a_start();
  start.data.clear();
  EXPECT_EQ(request_of(start)["HostConfig"]["Mounts"].size(), 3U);

  start.env["SLURM_JOB_NAME"] = "resnet";
  const json request = request_of(start);
  const json& mounts = request["HostConfig"]["Mounts"];

  EXPECT_EQ(request["Entrypoint"][1], "--slurm");
  std::string found;
  for (std::size_t i = 3; i < mounts.size(); ++i) {
    found += mounts[i]["Target"].get<std::string>() + " ";
    EXPECT_EQ(mounts[i]["Source"], a_place().init_path);
    EXPECT_EQ(mounts[i]["ReadOnly"], true);
  }
  EXPECT_EQ(
      found,
      "/reclaim-slurm/sacct /reclaim-slurm/sbatch /reclaim-slurm/scancel /reclaim-slurm/scontrol "
      "/reclaim-slurm/squeue /reclaim-slurm/srun "
  );
}

TEST(Profile, a_member_of_a_gang_has_its_name_the_others_names_and_a_first_process_that_knows) {
  StartGuest start = a_start();
  start.data.clear();
  start.gang = warden_wire::GangMember{2, 4};
  ContainerSetting place = a_place();
  place.hosts_path = "/state/bin/members";

  const json request = request_of(start, place);

  EXPECT_EQ(request["Hostname"], "member-2");
  EXPECT_EQ(request["Entrypoint"][1], "--member");
  EXPECT_EQ(request["Entrypoint"][2], "2");
  const json& hosts = request["HostConfig"]["Mounts"][3];
  EXPECT_EQ(hosts["Source"], place.hosts_path);
  EXPECT_EQ(hosts["Target"], "/etc/hosts");
  EXPECT_EQ(hosts["ReadOnly"], true);
  EXPECT_EQ(request["NetworkDisabled"], true) << "it gets no wire for it";

  using warden_wire::GangMember;
  for (const GangMember& none :
       {GangMember{4, 4}, GangMember{0, 1}, GangMember{0, 0}, GangMember{0, 33}}) {
    start.gang = none;
    EXPECT_TRUE(is_refused(start)) << none.rank << " of " << none.size;
  }
}

/// Loaders of data hand batches to their guest over /dev/shm.
TEST(Profile, tmp_and_shm_grow_with_the_guests_memory_to_which_they_are_charged) {
  StartGuest start = a_start();
  start.memory_mib = 16'384;
  const json large = request_of(start)["HostConfig"];
  EXPECT_EQ(large["ShmSize"], std::uint64_t{8192} << 20);
  for (const char* folder : {"/dev/shm", "/tmp"})
    EXPECT_TRUE(large["Tmpfs"][folder].get<std::string>().ends_with(",size=8192m")) << folder;

  start.memory_mib = 16;
  EXPECT_TRUE(request_of(start)["HostConfig"]["Tmpfs"]["/tmp"].get<std::string>().ends_with("=64m")
  );
}

TEST(Profile, a_guests_gpus_are_in_a_label_and_can_be_read_back) {
  StartGuest start = a_start();
  start.gpus = {0, 3, 63};

  EXPECT_EQ(request_of(start)["Labels"][kGpusLabel], "0,3,63");
  EXPECT_EQ(gpus_in("0,3,63"), start.gpus);
  for (const char* none : {"", "x", "64", "-1", "1,,2", "1;2", "99999999999"})
    EXPECT_TRUE(gpus_in(none).empty()) << none;
}

TEST(Profile, no_host_namespace_privilege_capability_or_device_is_ever_asked_for) {
  StartGuest start = a_start();
  start.gpus = {0, 1};
  const json host = request_of(start)["HostConfig"];

  EXPECT_EQ(host["Privileged"], false);
  EXPECT_EQ(host["CapDrop"], json::array({"ALL"}));
  EXPECT_TRUE(host["CapAdd"].empty());
  EXPECT_EQ(host["UsernsMode"], "");  // "host" would switch user namespaces off
  EXPECT_EQ(host["PidMode"], "");
  EXPECT_EQ(host["NetworkMode"], "none");
  EXPECT_EQ(host["IpcMode"], "private");
  ASSERT_EQ(host["SecurityOpt"].size(), 2U);
  EXPECT_EQ(host["SecurityOpt"][0], "no-new-privileges");
  EXPECT_TRUE(host["Devices"].empty());
  EXPECT_FALSE(host.contains("Binds"));
  for (const char* masked :
       {"/proc/kcore", "/proc/keys", "/sys/firmware", "/sys/devices/virtual/block"})
    EXPECT_NE(std::ranges::find(host["MaskedPaths"], masked), host["MaskedPaths"].end()) << masked;
  EXPECT_FALSE(host.contains("ReadonlyPaths"));
  EXPECT_EQ(host["Memory"], host["MemorySwap"]);
  ASSERT_EQ(host["Mounts"].size(), 4U);
  EXPECT_EQ(host["Mounts"][2]["ReadOnly"], true);
  EXPECT_EQ(host["Mounts"][3]["ReadOnly"], true);
}

TEST(Profile, a_data_set_is_named_and_never_a_path_and_lies_in_nobodys_way) {
  StartGuest start = a_start();
  for (const char* bad : {"", "..", "a/b", "/etc", "a b"}) {
    start.data = {bad};
    EXPECT_TRUE(is_refused(start)) << bad;
  }
  start.data = {"a", "a"};
  EXPECT_TRUE(is_refused(start));
  start.data = {"a"};
  for (const char* over : {"/data", "/data/a", "/data/b"}) {
    start.work_dir = over;
    EXPECT_TRUE(is_refused(start)) << over;
  }
  start.work_dir = "/database";
  EXPECT_TRUE(check_start(start));
  start.data.clear();
  start.work_dir = "/data";  // as before there were data sets
  EXPECT_TRUE(check_start(start));
  EXPECT_EQ(request_of(start)["HostConfig"]["Mounts"].size(), 3U);
}

TEST(Profile, system_calls_are_denied_unless_listed_and_none_that_leads_out_is_listed) {
  const std::string option = request_of(a_start())["HostConfig"]["SecurityOpt"][1];
  ASSERT_TRUE(option.starts_with("seccomp={"));
  const json profile = json::parse(option.substr(8));

  EXPECT_EQ(profile["defaultAction"], "SCMP_ACT_ERRNO");
  for (const json& rule : profile["syscalls"]) {
    if (rule["action"] != "SCMP_ACT_ALLOW") continue;
    for (const json& name : rule["names"]) {
      for (const char* way_out :
           {"bpf",
            "io_uring_setup",
            "keyctl",
            "mount",
            "perf_event_open",
            "ptrace",
            "setns",
            "unshare",
            "userfaultfd",
            "kexec_load",
            "init_module",
            "open_by_handle_at"})
        EXPECT_NE(name, way_out);
      // Both are allowed by argument only: no new namespace, no exotic address family.
      if (name == "clone" || name == "socket") {
        EXPECT_EQ(rule["args"].size(), 1U) << rule;
      }
    }
  }
}

TEST(Profile, gpus_come_by_index_and_only_where_devices_exist) {
  StartGuest start = a_start();
  start.gpus = {2, 5};
  ContainerSetting place = a_place();

  EXPECT_TRUE(request_of(start, place)["HostConfig"]["DeviceRequests"].empty());

  place.gpu_access = GpuAccess::kDeviceRequests;
  const json by_hook = request_of(start, place)["HostConfig"]["DeviceRequests"];
  EXPECT_EQ(by_hook[0]["DeviceIDs"], json::array({"2", "5"}));
  EXPECT_EQ(by_hook[0]["Driver"], "nvidia");

  place.gpu_access = GpuAccess::kCdi;
  const json by_cdi = request_of(start, place)["HostConfig"]["DeviceRequests"];
  EXPECT_EQ(by_cdi[0]["DeviceIDs"], json::array({"nvidia.com/gpu=2", "nvidia.com/gpu=5"}));

  place.gpu_access = GpuAccess::kDriver;
  place.gpu_driver = {
      {"/dev/nvidia1"}, {{"/usr/lib/libcuda.so.580", "/usr/local/nvidia/lib64/libcuda.so.1"}}};
  const json by_name = request_of(start, place);
  EXPECT_TRUE(by_name["HostConfig"]["DeviceRequests"].empty());
  ASSERT_EQ(by_name["HostConfig"]["Devices"].size(), 1U);
  EXPECT_EQ(by_name["HostConfig"]["Devices"][0]["PathOnHost"], "/dev/nvidia1");
  EXPECT_EQ(by_name["HostConfig"]["Devices"][0]["CgroupPermissions"], "rw")
      << "no node may be made";
  const json mount = by_name["HostConfig"]["Mounts"].back();
  EXPECT_EQ(mount["Target"], "/usr/local/nvidia/lib64/libcuda.so.1");
  EXPECT_EQ(mount["ReadOnly"], true);
  const json variables = by_name["Env"];
  EXPECT_EQ(
      std::count(
          variables.begin(), variables.end(), json("LD_LIBRARY_PATH=/usr/local/nvidia/lib64")
      ),
      1
  );
}

TEST(Profile, as_many_variables_as_a_job_may_have_go_with_those_of_the_platform) {
  StartGuest start = a_start();
  for (int i = 0; i < 512 + 32; ++i) start.env["V" + std::to_string(i)] = "x";
  EXPECT_FALSE(is_refused(start));

  for (int i = 0; i < 100; ++i) start.env["W" + std::to_string(i)] = "x";
  EXPECT_TRUE(is_refused(start));
}

TEST(Profile, the_images_own_path_stays_unless_the_job_has_another) {
  const auto is_path = [](const json& variable) {
    return variable.get<std::string>().starts_with("PATH=");
  };
  StartGuest start = a_start();
  const json without = request_of(start)["Env"];
  EXPECT_TRUE(std::none_of(without.begin(), without.end(), is_path)) << without;

  start.env["PATH"] = "/opt/mine/bin:/bin";
  const json with = request_of(start)["Env"];
  EXPECT_EQ(std::count_if(with.begin(), with.end(), is_path), 1) << with;
  EXPECT_EQ(std::count(with.begin(), with.end(), json("PATH=/opt/mine/bin:/bin")), 1) << with;
}

TEST(Profile, variables_that_steer_the_runtime_are_refused) {
  for (const char* name :
       {"NVIDIA_VISIBLE_DEVICES",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "DOCKER_HOST",
        "GLIBC_TUNABLES",
        "",
        "A=B",
        "1A",
        "A B",
        "A\n"}) {
    StartGuest start = a_start();
    start.env[name] = "x";
    EXPECT_TRUE(is_refused(start)) << name;
  }
  StartGuest nul = a_start();
  nul.env["A"] = std::string("x\0y", 3);
  EXPECT_TRUE(is_refused(nul));
}

TEST(Profile, a_work_folder_over_the_system_is_refused) {
  for (const char* folder :
       {"",
        "/",
        "work",
        "/etc",
        "/etc/x",
        "/usr/local/work",
        "/proc/self",
        "/reclaim",
        "/tmp",
        "/reclaim-init",
        "/reclaim-slurm",
        "/data/",
        "/data/..",
        "/data/../etc",
        "//data",
        "/data//a",
        "/./etc",
        "/a b",
        "/a:b",
        "/a,b",
        "/a\n",
        "/var/run"}) {
    StartGuest start = a_start();
    start.work_dir = folder;
    EXPECT_TRUE(is_refused(start)) << folder;
  }
  for (const char* folder : {"/work", "/home/user/project", "/data", "/etcetera"}) {
    StartGuest start = a_start();
    start.data.clear();
    start.work_dir = folder;
    EXPECT_TRUE(check_start(start)) << folder;
  }
}

TEST(Profile, names_that_are_not_a_job_and_an_epoch_are_refused) {
  for (const char* job : {"", "../x", "j/1", "J-1", "-j", "j-", "j.1", "j 1"}) {
    StartGuest start = a_start();
    start.guest.job = JobId(job);
    EXPECT_TRUE(is_refused(start)) << job;
  }
  StartGuest no_epoch = a_start();
  no_epoch.guest.epoch = {};
  EXPECT_TRUE(is_refused(no_epoch));
  StartGuest too_long = a_start();
  too_long.guest.job = JobId(std::string(65, 'a'));
  EXPECT_TRUE(is_refused(too_long));
}

TEST(Profile, commands_and_resources_out_of_bounds_are_refused) {
  const auto with = [](auto change) {
    StartGuest start = a_start();
    change(start);
    return is_refused(start);
  };

  EXPECT_TRUE(with([](StartGuest& s) { s.command.clear(); }));
  EXPECT_TRUE(with([](StartGuest& s) { s.command = {""}; }));
  EXPECT_TRUE(with([](StartGuest& s) { s.command = {"a", std::string("b\0", 2)}; }));
  EXPECT_TRUE(with([](StartGuest& s) { s.command.assign(1025, "x"); }));
  EXPECT_TRUE(with([](StartGuest& s) { s.command = {"x", std::string(128 << 10, 'x')}; }));
  EXPECT_TRUE(with([](StartGuest& s) { s.cpu_milli = 0; }));
  EXPECT_TRUE(with([](StartGuest& s) { s.memory_mib = 0; }));
  EXPECT_TRUE(with([](StartGuest& s) { s.memory_mib = ~std::uint64_t{0}; }));
  EXPECT_TRUE(with([](StartGuest& s) { s.max_pids = 0; }));
  EXPECT_TRUE(with([](StartGuest& s) { s.max_pids = 65'537; }));
  EXPECT_TRUE(with([](StartGuest& s) { s.gpus = {1, 1}; }));
  EXPECT_TRUE(with([](StartGuest& s) { s.gpus = {64}; }));
}

}  // namespace
}  // namespace rn::warden
