// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utmpx.h>

#include "agent/config.h"
#include "agent/contract_file.h"
#include "agent/identity.h"
#include "agent/kill_client.h"
#include "agent/peers.h"
#include "agent/telemetry_host.h"
#include "agent/telemetry_logins.h"
#include "agent/telemetry_nvml.h"
#include "base/places_fixture.h"
#include "base/scratch_folder.h"
#include "io/real_fs.h"
#include "io/real_rng.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;

class FolderTest : public testing::Test {
 private:
  ScratchFolder scratch_;

 protected:
  const std::string folder = scratch_.path();

  void put(const std::string& path, const std::string& text) {
    const std::string full = folder + "/" + path;
    ASSERT_TRUE(make_folders(fs, parent_folder(full), 0755));
    std::ofstream(full) << text;
  }

  io::RealFileSystem fs;
};

// ---- configuration

TEST(AgentConfigFile, fields_are_strict_and_static_gpus_are_named_as_such) {
  const auto config = parse_config("state: /s\ngpus: [{index: 0, model: T4, memory_mib: 16000}]\n");
  ASSERT_TRUE(config) << config.error().describe();
  EXPECT_EQ(config->state, "/s");
  ASSERT_EQ(config->gpus.size(), 1u);
  EXPECT_TRUE(config->gpus.front().is_static);
  EXPECT_EQ(config->warden_path(), "/run/reclaimnet/warden.sock");

  const auto misspelt = parse_config("stat: /s\n");
  ASSERT_FALSE(misspelt);
  EXPECT_THAT(misspelt.error().hint, HasSubstr("state"));
}

TEST(AgentConfigFile, gpus_are_numbered_from_0_to_63_and_each_once) {
  const auto high = parse_config("gpus: [{index: 64, model: T4}]\n");
  ASSERT_FALSE(high);
  EXPECT_EQ(high.error().message, "gpus: index 64 is above 63");

  const auto twice = parse_config("gpus: [{index: 1, model: T4}, {index: 1, model: T4}]\n");
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message, "gpus: index 1 is there twice");
}

TEST(AgentConfigFile, a_line_that_nobody_has_is_refused_and_0_is_not_known) {
  for (const char* bps : {"1", "999999", "1000000000001", "18446744073709551615"}) {
    const auto config = parse_config(std::string("uplink_bps: ") + bps + "\n");

    ASSERT_FALSE(config) << bps;
    EXPECT_THAT(
        config.error().message,
        HasSubstr(std::string("uplink_bps: ") + bps + " bits a second is no line's speed")
    );
    EXPECT_THAT(config.error().hint, HasSubstr("leave the line out if it is not known"));
  }
  EXPECT_FALSE(parse_config("uplink_bps: -1\n"));
  EXPECT_FALSE(parse_config("uplink_bps: 18446744073709551616\n")) << "one above what 64 bits hold";
  EXPECT_FALSE(parse_config("uplink_bps: 1e9\n")) << "no whole number";
  for (const char* bps : {"0", "1000000", "1000000000000"})
    EXPECT_TRUE(parse_config(std::string("uplink_bps: ") + bps + "\n")) << bps;
}

TEST(AgentConfigFile, the_time_after_which_who_saves_nothing_is_told_is_from_a_second_to_a_week) {
  EXPECT_EQ(parse_config("{}\n")->no_save_after_s, 600u);
  EXPECT_EQ(parse_config("no_save_after_s: 1\n")->no_save_after_s, 1u);
  EXPECT_TRUE(parse_config("no_save_after_s: 604800\n"));
  for (const char* text : {"0", "604801"}) {
    const auto config = parse_config(std::string("no_save_after_s: ") + text + "\n");

    ASSERT_FALSE(config) << text;
    EXPECT_EQ(
        config.error().message,
        std::string("no_save_after_s: ") + text + " is not from 1 to 604800 (a week)"
    );
    EXPECT_EQ(config.error().hint, "write seconds; leave the line out for 600");
  }
}

/// Leaving would remove /agent.
TEST(AgentConfigFile, an_empty_folder_is_no_folder) {
  for (const char* text : {"state: ''\n", "run: ''\n"}) {
    const auto config = parse_config(text);

    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr("is empty"));
  }
}

TEST(AgentConfigFile, a_machine_without_gpus_may_say_so_and_is_not_looked_at_for_any) {
  const auto none = parse_config("gpus: 0\n");

  ASSERT_TRUE(none) << none.error().describe();
  EXPECT_TRUE(none->gpus.empty());
  EXPECT_EQ(none->nvml_library, "");
  EXPECT_FALSE(parse_config("gpus: 2\n"));
}

TEST(AgentConfigFile, data_sets_are_names_and_no_paths) {
  EXPECT_EQ(
      parse_config("data_sets: [imagenet, digits]\n")->data_sets,
      (std::vector<std::string>{"imagenet", "digits"})
  );
  for (const char* text : {"data_sets: [/srv/imagenet]\n", "data_sets: [a, a]\n"}) {
    const auto config = parse_config(text);

    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr("data_sets: "));
  }
}

// ---- contract

TEST(ContractFile, a_contract_written_is_read_back_equal) {
  Contract contract;
  contract.windows = {{{"sat", "sun"}, "00:00", "24:00"}};
  contract.time_zone = "UTC";
  contract.network = {{"10.0.0.0/8", 0, "udp"}};
  contract.gpus = {0, 2};
  contract.gpu_windows = {{2, {{{"sat"}, "09:00", "24:00"}}, {"2026-12-24"}}};

  const auto read = parse_contract(to_yaml(contract), {}, kZoneFolder);

  ASSERT_TRUE(read) << read.error().describe();
  EXPECT_EQ(*read, contract);
}

/// Where there is none the default holds, which lends everything at all times.
TEST_F(FolderTest, a_contract_with_an_unknown_time_zone_is_not_taken_for_none) {
  const std::string path = folder + "/contract.yaml";
  EXPECT_EQ(load_contract(fs, path, {}, kZoneFolder).error().code, ErrorCode::kNotFound);
  put("contract.yaml", "lends: false\ntime_zone: Mars/Olympus\n");

  const auto read = load_contract(fs, path, {}, kZoneFolder);

  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kInvalid) << read.error().describe();
}

TEST(ContractFile, an_empty_list_of_windows_is_neither_always_nor_never) {
  const Error error = parse_contract("windows: []\n", {}, kZoneFolder).error();

  EXPECT_TRUE(error.message.starts_with("contract: windows: the list is empty")) << error.message;
  EXPECT_EQ(error.hint, "leave the line out to lend at any time, or write `lends: false`");
  EXPECT_EQ(to_yaml(Contract{}).find("\nwindows:"), std::string::npos);
  const std::string written_before =
      "# Contract of this node. A field without a line of its own has its default. reclaim-agent "
      "contract set FILE puts a changed one in force.\nwindows: []\n";
  EXPECT_TRUE(parse_contract(written_before, {}, kZoneFolder)) << "there it stood for always";
}

TEST(ContractFile, an_empty_list_of_gpus_lends_none_and_no_line_lends_all) {
  const auto none = parse_contract("gpus: []\n", {}, kZoneFolder);
  ASSERT_TRUE(none) << none.error().describe();
  EXPECT_FALSE(is_gpu_lent(*none, 0));
  const auto again = parse_contract(to_yaml(*none), {}, kZoneFolder);
  ASSERT_TRUE(again) << again.error().describe();
  EXPECT_EQ(*again, *none);

  for (const std::string& text : {std::string("notice_s: 60\n"), to_yaml(Contract{})}) {
    const auto all = parse_contract(text, {}, kZoneFolder);
    ASSERT_TRUE(all) << all.error().describe();
    EXPECT_TRUE(is_gpu_lent(*all, 5)) << text;
  }
  const auto one = parse_contract("gpus: [1]\n", {}, kZoneFolder);
  EXPECT_TRUE(is_gpu_lent(one.value(), 1));
  EXPECT_FALSE(is_gpu_lent(one.value(), 0));
  EXPECT_FALSE(parse_contract("lends_gpus: false\n", {}, kZoneFolder)) << "one way to say it";
}

TEST(ContractFile, single_gpus_have_hours_of_their_own) {
  const auto read = parse_contract(
      "gpu_windows:\n- {gpu: 1, windows: [{from: \"20:00\", to: \"08:00\"}]}\n", {}, kZoneFolder
  );
  ASSERT_TRUE(read) << read.error().describe();
  const std::vector<GpuWindows> expected = {{1, {{{}, "20:00", "08:00"}}, {}}};
  EXPECT_EQ(read->gpu_windows, expected);
  EXPECT_EQ(to_yaml(Contract{}).find("gpu_windows"), std::string::npos);
  EXPECT_FALSE(parse_contract("gpu_windows: [{gpu: 1}]\n", {}, kZoneFolder)) << "when, it says not";
}

TEST(ContractFile, it_says_what_the_owners_processes_on_a_gpu_mean) {
  EXPECT_EQ(Contract{}.idle.owner_processes, OwnerProcesses::kEvict);
  const auto waits = parse_contract("idle: {owner_processes: wait}\n", {}, kZoneFolder);
  ASSERT_TRUE(waits) << waits.error().describe();
  EXPECT_EQ(waits->idle.owner_processes, OwnerProcesses::kWait);
  EXPECT_EQ(parse_contract(to_yaml(*waits), {}, kZoneFolder).value(), *waits);
  const auto odd = parse_contract("idle: {owner_processes: sometimes}\n", {}, kZoneFolder);
  ASSERT_FALSE(odd);
  EXPECT_NE(odd.error().message.find("owner_processes"), std::string::npos) << odd.error().message;
}

TEST(ContractFile, an_amount_of_0_is_refused_for_it_would_not_lend_all) {
  for (const std::string name : {"guest_cpu_milli", "guest_cpu_each_milli", "guest_memory_mib"}) {
    const auto read = parse_contract(name + ": 0\n", {}, kZoneFolder);
    ASSERT_FALSE(read) << name;
    EXPECT_THAT(read.error().message, HasSubstr(name + ": 0 lends no "));
    EXPECT_THAT(read.error().hint, HasSubstr("leave the line out"));
  }
}

/// Such a file lies in the state folder of every node that served before.
TEST(ContractFile, of_an_agent_that_wrote_every_field_means_what_it_meant) {
  const auto read = parse_contract(
      "# Contract of this node. reclaim-agent contract set FILE puts a changed one in force.\n"
      "gpus: []\nguest_cpu_each_milli: 0\nguest_cpu_milli: 0\nguest_memory_mib: 0\n",
      {},
      kZoneFolder
  );

  ASSERT_TRUE(read) << read.error().describe();
  EXPECT_EQ(*read, Contract{});
}

TEST(ContractFile, unknown_fields_contradictions_and_zones_that_are_not_there_are_refused) {
  const auto unknown = parse_contract("notice: 60\n", {}, kZoneFolder);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("notice"));

  const auto contradiction = parse_contract("max_guests: 0\n", {}, kZoneFolder);
  ASSERT_FALSE(contradiction);
  EXPECT_THAT(contradiction.error().message, HasSubstr("max_guests"));

  const auto zone = parse_contract("time_zone: Mars/Olympus\n", {}, kZoneFolder);
  ASSERT_FALSE(zone);
  EXPECT_THAT(zone.error().message, HasSubstr("Mars/Olympus"));

  const auto escape = parse_contract("time_zone: ../../etc/passwd\n", {}, kZoneFolder);
  ASSERT_FALSE(escape);
  EXPECT_FALSE(parse_contract("lends: [\n", {}, kZoneFolder));
}

TEST_F(FolderTest, a_zone_has_its_offset_in_summer_and_in_winter) {
  // A TZif file by hand: two types (+1 h, +2 h), transitions at 1000 and 2000 s.
  const auto be = [](std::uint32_t v) {
    std::string out;
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(v >> shift);
    return out;
  };
  std::string file = "TZif";
  file += '\0';
  file += std::string(15, '\0');
  file += be(0) + be(0) + be(0) + be(2) + be(2) + be(4);
  file += be(1000) + be(2000);
  file += std::string("\1\0", 2);
  file += be(3600) + std::string("\0\0", 2) + be(7200) + std::string("\1\0", 2);
  file += std::string("AB\0\0", 4);
  put("Test/Zone", file);
  put("Test/Torn", file.substr(0, 60));

  EXPECT_EQ(utc_offset_s(fs, "Test/Zone", wall_from_ms(500'000), folder).value(), 3600);
  EXPECT_EQ(utc_offset_s(fs, "Test/Zone", wall_from_ms(1'500'000), folder).value(), 7200);
  EXPECT_EQ(utc_offset_s(fs, "Test/Zone", wall_from_ms(2'500'000), folder).value(), 3600);
  EXPECT_EQ(
      utc_offset_s(fs, "Test/Torn", wall_from_ms(0), folder).error().code, ErrorCode::kCorrupt
  );
  EXPECT_EQ(utc_offset_s(fs, "UTC", wall_from_ms(0), folder).value(), 0);
}

// ---- joining

TEST(JoinToken, is_taken_apart_or_refused_with_what_to_do) {
  const std::string fingerprint(64, 'a');
  const auto token = parse_join_token("rn1.id.secret." + fingerprint);
  ASSERT_TRUE(token);
  EXPECT_EQ(token->ca_fingerprint, fingerprint);

  for (const std::string& bad :
       {std::string(""),
        std::string("rn1.id.secret"),
        "rn2.id.secret." + fingerprint,
        "rn1..secret." + fingerprint,
        std::string("rn1.id.secret.xyz"),
        "rnu1.id.secret." + fingerprint}) {
    const auto refused = parse_join_token(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
    EXPECT_FALSE(refused.error().hint.empty());
  }
}

TEST_F(FolderTest, a_machine_that_has_not_joined_is_told_how) {
  const auto identity = load_identity(fs, folder, "m");

  ASSERT_FALSE(identity);
  EXPECT_EQ(identity.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(identity.error().hint, HasSubstr("join"));
}

TEST_F(FolderTest, an_identity_copied_to_another_machine_is_refused) {
  put("identity.json", R"({"node_id":"n-1","lab":"a","machine_id":"first"})");

  const auto identity = load_identity(fs, folder, "second");

  ASSERT_FALSE(identity);
  EXPECT_EQ(identity.error().code, ErrorCode::kConflict);
  EXPECT_THAT(identity.error().message, HasSubstr("another machine"));
}

const WallTime kJoined = wall_from_ms(1'800'000'000'000);

/// A machine that joined then and got a certificate for a week.
class JoinedMachine : public FolderTest {
 protected:
  JoinedMachine() : site(io::CertificateAuthority::create("a site", kJoined).value()) {
    const std::string key = io::make_private_key(io::KeyKind::kP256).value();
    io::CertificateSpec spec;
    spec.uris = {identity_of(NodeId("n-1"))};
    put("node.key", key);
    put("node.pem", site.issue(*io::public_key_of(key), spec, kJoined).value());
    put("ca.pem", site.certificate_pem());
    put("sign.key", std::string(64, '1'));
    put("box.key", std::string(64, '2'));
    put("identity.json",
        R"({"node_id":"n-1","lab":"a","machine_id":"m","coordinator_url":"https://127.0.0.1:1"})");
    options.folder = folder;
    options.machine_id = "m";
    options.url = "https://127.0.0.1:1";  // nobody is there
    options.now = kJoined;
    options.token = "rn1.a.b." + site.fingerprint();
  }

  Error refusal() {
    const auto joined = join(fs, rng, options);
    EXPECT_FALSE(joined);
    return joined ? Error{} : joined.error();
  }

  io::CertificateAuthority site;
  io::RealRng rng;
  JoinOptions options;
};

TEST_F(JoinedMachine, keeps_the_name_that_its_owner_chose) {
  EXPECT_EQ(load_identity(fs, folder, "m")->shown_as, "") << "an identity of before has none";
  put("identity.json",
      R"({"node_id":"n-1","lab":"a","machine_id":"m","coordinator_url":"https://127.0.0.1:1",
          "shown_as":"printer-room"})");
  EXPECT_EQ(load_identity(fs, folder, "m")->shown_as, "printer-room");
}

TEST_F(JoinedMachine, joining_twice_is_refused_before_the_token_is_spent) {
  EXPECT_EQ(refusal().code, ErrorCode::kConflict);
  EXPECT_THAT(refusal().hint, HasSubstr("--again"));
}

TEST_F(JoinedMachine, an_expired_certificate_or_the_owners_wish_is_a_reason_to_join_again) {
  options.is_again = true;
  EXPECT_THAT(refusal().message, HasSubstr("joining https://127.0.0.1:1"));
  options.is_again = false;
  options.now = kJoined + std::chrono::hours(24 * 10);
  EXPECT_THAT(refusal().message, HasSubstr("joining https://127.0.0.1:1"));

  const Identity kept = load_identity(fs, folder, "m").value();
  EXPECT_EQ(kept.node, NodeId("n-1"));
  EXPECT_THAT(expiry_of(kept, options.now), HasSubstr("expired 3 days ago"));
  EXPECT_THAT(rejoin_help(kept), HasSubstr("reclaim-agent join https://127.0.0.1:1 --token"));
  EXPECT_EQ(expiry_of(kept, kJoined), "");
}

TEST_F(JoinedMachine, a_token_of_another_site_is_refused_and_nothing_is_forgotten) {
  options.is_again = true;
  options.token = "rn1.a.b." + std::string(64, 'a');

  EXPECT_EQ(refusal().code, ErrorCode::kConflict);
  EXPECT_THAT(refusal().message, HasSubstr("another site"));
  EXPECT_TRUE(load_identity(fs, folder, "m"));
}

TEST_F(JoinedMachine, a_copied_identity_does_not_join_again) {
  options.is_again = true;
  options.machine_id = "another";

  EXPECT_EQ(refusal().code, ErrorCode::kConflict);
}

/// First cells of the table below a heading of docs/lending.md.
std::set<std::string> documented_fields(const std::string& heading) {
  std::ifstream in(std::string(places::kDocs) + "/lending.md");
  std::set<std::string> fields;
  std::string line;
  while (std::getline(in, line) && line != heading) {
  }
  while (std::getline(in, line) && !line.starts_with("#"))
    if (line.starts_with("| `")) fields.insert(line.substr(3, line.find('`', 3) - 3));
  return fields;
}

TEST(AgentConfig, its_fields_are_those_of_the_documentation) {
  std::set<std::string> fields;
  AgentConfig::with_fields([&](const auto&... field) {
    (fields.insert(std::string(field.name)), ...);
  });

  EXPECT_EQ(documented_fields("### agent.yaml"), fields);
}

TEST(AgentConfig, the_contracts_fields_are_those_of_the_documentation) {
  std::set<std::string> fields;
  Contract::with_fields([&](const auto&... field) { (fields.insert(std::string(field.name)), ...); }
  );
  fields.erase("lends_gpus");  // a file says it with `gpus: []`

  EXPECT_EQ(documented_fields("### The contract"), fields);
}

TEST(AgentConfig, addresses_are_checked_before_anything_starts) {
  const auto refusal = [](const std::string& text) {
    const auto config = parse_config(text);
    return config ? "" : config.error().message;
  };
  EXPECT_EQ(refusal("listen_peer: '[::]:7445'\nadvertise_peer: node1.example.org:7445\n"), "");
  EXPECT_EQ(refusal("listen_api: ''\n"), "");
  EXPECT_EQ(
      refusal("listen_peer: localhost:7445\n"),
      "listen_peer: \"localhost\" is no address of this machine"
  );
  EXPECT_EQ(
      refusal("advertise_peer: https://node1:7445\n"),
      "advertise_peer: \"https://node1:7445\" is not HOST:PORT"
  );
  EXPECT_EQ(refusal("advertise_api: node1:0\n"), "advertise_api: nobody can dial port 0");
}

TEST_F(FolderTest, the_machine_identifier_is_hashed_and_a_missing_one_is_named) {
  put("machine-id", "0123456789abcdef0123456789abcdef\n");

  EXPECT_EQ(machine_id(fs, folder + "/machine-id").value().size(), 64u);
  EXPECT_THAT(machine_id(fs, folder + "/none").error().hint, HasSubstr("machine-id"));
}

TEST(NodeIdentity, names_nodes_and_nothing_else) {
  EXPECT_EQ(node_of(identity_of(NodeId("n-1"))), NodeId("n-1"));
  EXPECT_TRUE(node_of("spiffe://reclaimnet/coordinator").empty());
}

TEST(HostAndPort, are_taken_apart) {
  EXPECT_EQ(parse_host_port("[fd00::1]:7445")->host, "fd00::1");
  EXPECT_EQ(parse_host_port("lab-a:7445")->port, 7445);
  EXPECT_FALSE(parse_host_port("lab-a"));
  EXPECT_FALSE(parse_host_port("lab-a:"));
  EXPECT_FALSE(parse_host_port("lab-a:70000"));
  EXPECT_FALSE(parse_host_port("fd00::1:7445"));
  EXPECT_FALSE(parse_host_port(":1"));
}

TEST_F(FolderTest, a_missing_warden_is_answered_with_what_works_without_it) {
  const auto killed = send_kill(folder + "/kill.sock", 0, seconds(1));

  ASSERT_FALSE(killed);
  EXPECT_EQ(killed.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(killed.error().hint, HasSubstr("reclaim-kill"));
}

// ---- telemetry

TEST_F(FolderTest, host_telemetry_is_read_below_a_root_folder) {
  put("proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 5\n");
  put("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 6291456 kB\n");
  put("proc/sys/kernel/osrelease", "6.1.0-test\n");
  HostSampler host(folder);
  NodeTelemetry out;
  ASSERT_TRUE(host.sample(out));
  put("proc/stat", "cpu  150 0 150 900 0 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 5\n");
  ASSERT_TRUE(host.sample(out));

  EXPECT_EQ(out.cpu_percent, 50u);
  EXPECT_EQ(out.memory_used_mib, 2048u);
  EXPECT_EQ(host.cpu_milli().value(), 2000u);
  EXPECT_EQ(host.memory_mib().value(), 8192u);
  EXPECT_EQ(host.kernel(), "6.1.0-test");
  EXPECT_EQ(host.cgroup_version(), "v1");
}

TEST_F(FolderTest, what_guests_hold_of_memory_is_read_by_their_containers) {
  const HostSampler host(folder);
  EXPECT_TRUE(host.guest_memory_mib("reclaim-").empty()) << "a kernel without such groups";
  put("sys/fs/cgroup/reclaim-lab-a/c1/memory.stat",
      "anon 3145728\nfile 900000000\nshmem 1048577\n");
  put("sys/fs/cgroup/reclaim-lab-a/gone/cgroup.procs", "");
  put("sys/fs/cgroup/system.slice/other/memory.stat", "anon 3145728\n");
  put("sys/fs/cgroup/memory/reclaim-lab-a/c2/memory.stat",
      "cache 900000000\nrss 1\ntotal_rss 2097152\ntotal_shmem 0\n");

  const std::map<std::string, std::uint64_t> expected = {{"c1", 5}, {"c2", 2}};
  EXPECT_EQ(host.guest_memory_mib("reclaim-"), expected);
}

TEST_F(FolderTest, the_processor_time_of_guests_is_read_by_their_containers) {
  const HostSampler host(folder);
  EXPECT_TRUE(host.guest_cpu_ms("reclaim-").empty()) << "a kernel without such groups";
  put("sys/fs/cgroup/reclaim-lab-a/c1/cpu.stat", "usage_usec 2500999\nuser_usec 1\n");
  put("sys/fs/cgroup/reclaim-lab-a/gone/cgroup.procs", "");
  put("sys/fs/cgroup/system.slice/other/cpu.stat", "usage_usec 9000000\n");
  put("sys/fs/cgroup/cpuacct/reclaim-lab-a/c2/cpuacct.usage", "7000000000\n");

  const std::map<std::string, std::uint64_t> expected = {{"c1", 2500}, {"c2", 7000}};
  EXPECT_EQ(host.guest_cpu_ms("reclaim-"), expected);
}

TEST_F(FolderTest, a_kernel_with_apparmor_needs_its_parser) {
  const HostSampler host(folder);
  EXPECT_FALSE(host.lacks_apparmor_parser()) << "a kernel without it";
  put("sys/module/apparmor/parameters/enabled", "N\n");
  EXPECT_FALSE(host.lacks_apparmor_parser());
  put("sys/module/apparmor/parameters/enabled", "Y\n");
  EXPECT_TRUE(host.lacks_apparmor_parser());
  put("usr/sbin/apparmor_parser", "");
  ASSERT_EQ(::chmod((folder + "/usr/sbin/apparmor_parser").c_str(), 0755), 0);
  EXPECT_FALSE(host.lacks_apparmor_parser());
}

TEST_F(FolderTest, input_interrupts_end_the_idle_time) {
  put("proc/interrupts", "  1: 10 i8042\n 12: 5 nvme\n");
  HostSampler host(folder);
  EXPECT_GT(host.idle_s(wall_from_ms(1'000'000)), 1'000'000u);
  put("proc/interrupts", "  1: 11 i8042\n 12: 50 nvme\n");

  EXPECT_EQ(host.idle_s(wall_from_ms(2'000'000)), 0u);
  EXPECT_EQ(host.idle_s(wall_from_ms(2'060'000)), 60u);
}

/// A record as login and sshd write it.
std::string utmp_record(short kind, int pid, const std::string& user) {
  utmpx record{};
  record.ut_type = kind;
  record.ut_pid = pid;
  user.copy(record.ut_user, sizeof(record.ut_user));
  return {reinterpret_cast<const char*>(&record), sizeof(record)};
}

TEST_F(FolderTest, people_are_those_of_open_sessions_each_once) {
  EXPECT_EQ(count_logins(folder), 0u) << "no such files";
  put("run/systemd/sessions/1", "UID=1000\nUSER=ada\nACTIVE=1\nSTATE=active\nCLASS=user\n");
  put("run/systemd/sessions/4", "UID=1000\nUSER=ada\nSTATE=online\nCLASS=user\nREMOTE=1\n");
  put("run/systemd/sessions/5", "UID=1001\nUSER=bob\nSTATE=online\nCLASS=user-early\n");
  EXPECT_EQ(count_logins(folder), 2u);

  put("run/systemd/sessions/c1", "UID=110\nUSER=gdm\nSTATE=active\nCLASS=greeter\n");
  put("run/systemd/sessions/6", "UID=1002\nUSER=cron\nSTATE=active\nCLASS=background\n");
  put("run/systemd/sessions/7", "UID=1003\nUSER=carl\nSTATE=closing\nCLASS=user\n");
  put("run/systemd/sessions/8", "\x00\xff garbage");
  EXPECT_EQ(count_logins(folder), 2u);
}

TEST_F(FolderTest, a_record_of_utmp_counts_as_long_as_its_process_lives) {
  put("proc/70/stat", "");
  put("proc/72/stat", "");
  put("run/utmp",
      utmp_record(BOOT_TIME, 70, "reboot") + utmp_record(USER_PROCESS, 70, "ada") +
          utmp_record(USER_PROCESS, 71, "bob") + utmp_record(DEAD_PROCESS, 72, "carl") +
          utmp_record(LOGIN_PROCESS, 72, "LOGIN") + "torn");
  EXPECT_EQ(count_logins(folder), 1u);

  put("run/systemd/sessions/1", "USER=ada\nSTATE=active\nCLASS=user\n");
  EXPECT_EQ(count_logins(folder), 1u) << "the same login in both";
  put("proc/71/stat", "");
  EXPECT_EQ(count_logins(folder), 2u);
}

TEST_F(FolderTest, records_are_looked_for_where_older_systems_have_them) {
  put("proc/70/stat", "");
  put("var/run/utmp", utmp_record(USER_PROCESS, 70, "ada"));
  EXPECT_EQ(count_logins(folder), 1u);
}

class Nvml : public FolderTest {
 protected:
  void record(const std::string& text) {
    put("recording", text);
    setenv("RN_FAKE_NVML", (folder + "/recording").c_str(), 1);
  }
};

TEST_F(Nvml, replays_a_recording_and_tells_guests_from_foreign_processes) {
  record(
      "RTX3090 GPU-aaa 8 6 24576 2048 37 61 215000 100:1500 200:512\n"
      "T4 GPU-bbb 7 5 16384 0 0 35 9000\n"
  );
  auto nvml = NvmlSampler::open(places::kAgentFakeNvml);
  ASSERT_TRUE(nvml) << nvml.error().describe();

  const auto gpus = (*nvml)->gpus();
  const auto sample = (*nvml)->sample([](pid_t pid) { return pid == 100; });

  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].model, "RTX3090");
  EXPECT_EQ(gpus[0].uuid, "GPU-aaa");
  EXPECT_EQ(gpus[0].compute_capability, "8.6");
  EXPECT_EQ(gpus[0].memory_mib, 24576u);
  EXPECT_FALSE(gpus[0].is_static);
  EXPECT_EQ(sample[0].utilisation_percent, 37u);
  EXPECT_EQ(sample[0].memory_used_mib, 2048u);
  EXPECT_EQ(sample[0].temperature_c, 61);
  EXPECT_EQ(sample[0].power_mw, 215000u);
  EXPECT_EQ(sample[0].foreign_processes, 1u);
  EXPECT_EQ(sample[1].foreign_processes, 0u);
  EXPECT_EQ(sample[0].foreign_vram_mib, 512u);
  EXPECT_EQ(sample[1].foreign_vram_mib, 0u);
}

TEST_F(Nvml, what_the_driver_keeps_for_itself_is_not_in_use_where_the_device_can_tell) {
  record(
      "H100 GPU-aaa 9 0 81559 771 15 39 125909 100:762 reserved:480\n"
      "T4 GPU-bbb 7 5 16384 0 0 35 9000 reserved:256 older\n"
  );
  auto nvml = NvmlSampler::open(places::kAgentFakeNvml);
  ASSERT_TRUE(nvml) << nvml.error().describe();

  const auto sample = (*nvml)->sample([](pid_t) { return true; });

  EXPECT_EQ(sample[0].memory_used_mib, 771u) << "as nvidia-smi says it";
  EXPECT_EQ(sample[0].memory_reserved_mib, 480u);
  EXPECT_EQ(sample[1].memory_used_mib, 256u) << "counted as used, as ever";
  EXPECT_EQ(sample[1].memory_reserved_mib, 0u);
  EXPECT_EQ((*nvml)->gpus()[0].memory_mib, 81'559u);
  EXPECT_EQ((*nvml)->gpus()[1].memory_mib, 16'384u);
}

TEST_F(Nvml, a_gpu_that_fell_off_the_bus_is_wedged) {
  record("RTX3090 GPU-aaa 8 6 24576 2048 37 61 215000\n");
  auto nvml = NvmlSampler::open(places::kAgentFakeNvml);
  ASSERT_TRUE(nvml);
  record("gone GPU-aaa 8 6 24576 2048 37 61 215000\n");

  EXPECT_TRUE((*nvml)->sample([](pid_t) { return false; })[0].is_wedged);
}

TEST_F(Nvml, what_tells_of_a_gpus_health_is_read) {
  record(
      "H100 GPU-aaa 9 0 81559 0 0 39 125909\n"
      "H100 GPU-bbb 9 0 81559 0 0 39 125909 ecc:2 remap_failed remap_pending hot xid:31 xid:79\n"
      "A100 GPU-ccc 8 0 81559 0 0 39 125909 page_pending\n"
  );
  auto nvml = NvmlSampler::open(places::kAgentFakeNvml);
  ASSERT_TRUE(nvml) << nvml.error().describe();

  const auto signs = (*nvml)->signs();

  ASSERT_EQ(signs.size(), 3U);
  GpuHealth well;
  EXPECT_FALSE(note_signs(well, signs[0]));
  EXPECT_EQ(sickness_of(well, signs[0], false), "");
  EXPECT_FALSE(signs[0].is_slowed_by_heat) << "by its power alone";
  EXPECT_EQ(signs[1].index, 1U);
  EXPECT_EQ(signs[1].uncorrected, 2U);
  EXPECT_TRUE(signs[1].is_remap_failed);
  EXPECT_TRUE(signs[1].needs_reset);
  EXPECT_TRUE(signs[1].is_slowed_by_heat);
  EXPECT_EQ(signs[1].xids, (std::vector<std::uint32_t>{31, 79}));
  EXPECT_TRUE(signs[2].needs_reset);
  EXPECT_TRUE((*nvml)->signs()[1].xids.empty()) << "each number is told once";
  record("gone GPU-aaa 9 0 81559 0 0 39 125909\n");
  EXPECT_TRUE((*nvml)->signs()[0].is_lost);
}

TEST_F(Nvml, no_driver_and_a_driver_that_refuses_are_two_things) {
  EXPECT_EQ(NvmlSampler::open("libnone-ml.so.1").error().code, ErrorCode::kNotFound);
  const auto named = NvmlSampler::open("/nowhere/libnone-ml.so.1");
  EXPECT_EQ(named.error().code, ErrorCode::kInvalid) << "somebody has named it";
  EXPECT_NE(named.error().message.find("nvml_library: /nowhere/libnone-ml.so.1"), std::string::npos)
      << named.error().message;
  unsetenv("RN_FAKE_NVML");
  EXPECT_EQ(NvmlSampler::open(places::kAgentFakeNvml).error().code, ErrorCode::kUnavailable);
}

TEST(DialledAddress, listening_everywhere_is_the_address_on_the_way_to_the_coordinator) {
  Identity identity;
  identity.coordinator_url = "https://127.0.0.1:7443";

  EXPECT_EQ(dialled_address("", "0.0.0.0", 7445, identity, "box"), "127.0.0.1:7445");
  EXPECT_EQ(dialled_address("", "::", 7445, identity, "box"), "127.0.0.1:7445");
  EXPECT_EQ(dialled_address("", "10.1.2.3", 7445, identity, "box"), "10.1.2.3:7445");
  EXPECT_EQ(dialled_address("", "2001:db8::1", 7445, identity, "box"), "[2001:db8::1]:7445");
  EXPECT_EQ(dialled_address("nat:1", "0.0.0.0", 7445, identity, "box"), "nat:1");
  identity.coordinator_url = "https://255.255.255.255:7443";  // no way leads there
  EXPECT_EQ(dialled_address("", "0.0.0.0", 7445, identity, "box"), "box:7445");
}

TEST_F(FolderTest, guests_are_known_by_their_control_group) {
  put("proc/7/cgroup", "0::/reclaim-lab-a/abc\n");
  put("proc/8/cgroup", "0::/user.slice/reclaimer\n");

  EXPECT_TRUE(is_in_group(folder, 7, "reclaim-"));
  EXPECT_FALSE(is_in_group(folder, 8, "reclaim-"));
  EXPECT_FALSE(is_in_group(folder, 9, "reclaim-"));
}

}  // namespace
}  // namespace rn::agent
