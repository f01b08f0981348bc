// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/scratch_folder.h"
#include "warden/disk.h"
#include "warden/engine.h"
#include "warden/guest_net.h"
#include "warden/journal_file.h"
#include "warden/kill_service.h"
#include "warden/leave.h"
#include "warden/private_engine.h"

namespace rn::warden {
namespace {

TEST(Emergencies, are_over_behind_an_open_gate_and_the_last_may_not_be_behind_a_shut_one) {
  EXPECT_EQ(emergencies_over(5, true), 5U);
  EXPECT_EQ(emergencies_over(5, false), 4U);
  EXPECT_EQ(emergencies_over(0, false), 0U);
}

// ---- engine

TEST(EngineFloor, compares_numbers_and_not_letters) {
  EXPECT_TRUE(is_below("1.1.5+ds1", "1.2.8"));
  EXPECT_TRUE(is_below("1.2.7", "1.2.8"));
  EXPECT_FALSE(is_below("1.2.8", "1.2.8"));
  EXPECT_FALSE(is_below("1.10.0", "1.2.8"));
  EXPECT_FALSE(is_below("20.10.24+dfsg1", "20.10.24"));
  EXPECT_TRUE(is_below("", "1.0"));
}

TEST(EngineError, says_what_may_be_asked_again) {
  const char* const kDialing =
      R"({"message": "connection error: desc = \"dial unix containerd.sock\": unavailable"})";

  EXPECT_EQ(engine_error(500, kDialing).code, ErrorCode::kUnavailable);
  EXPECT_EQ(
      engine_error(500, R"({"message": "transport is closing: unavailable"})").message,
      "engine: transport is closing: unavailable"
  );
  EXPECT_EQ(engine_error(503, "").code, ErrorCode::kUnavailable);
  EXPECT_EQ(engine_error(500, R"({"message": "runc failed"})").code, ErrorCode::kInternal);
  EXPECT_EQ(engine_error(409, "").code, ErrorCode::kConflict);
}

/// Whatever an engine that was away makes up (137: containerd, 255: Docker, 0: Docker before 23).
TEST(EngineContainer, one_whose_init_left_no_code_has_vanished_and_neither_failed_nor_succeeded) {
  for (const std::int32_t code : {137, 255, 0}) {
    EngineContainer container;
    container.exit_code = code;
    EXPECT_TRUE(has_vanished(false, container)) << code;
    EXPECT_FALSE(has_vanished(true, container)) << code;
    container.is_oom_killed = true;
    EXPECT_FALSE(has_vanished(false, container)) << code;
  }
  EngineContainer failed;
  failed.exit_code = 3;
  EXPECT_FALSE(has_vanished(false, failed)) << "only the init knows such a code";
}

TEST(PrivateEngine, is_asked_for_without_any_networking_and_with_user_namespaces) {
  PrivateEngineConfig config;
  config.folder = "/s/engine";
  config.run = "/r/engine";
  config.cgroup_parent = "/reclaim-lab-a";

  const auto arguments = engine_arguments(config);

  for (const char* wanted :
       {"--bridge=none",
        "--iptables=false",
        "--ip-masq=false",
        "--userns-remap=reclaimnet",
        "--live-restore",
        "--cgroup-parent=/reclaim-lab-a",
        "--config-file=/s/engine/daemon.json",
        "--host=unix:///r/engine/docker.sock"})
    EXPECT_NE(std::find(arguments.begin(), arguments.end(), wanted), arguments.end()) << wanted;
}

TEST(PrivateEngine, adds_its_user_once) {
  const std::string once = with_remap_user("root:x:0:0::/root:/bin/sh", false);

  EXPECT_EQ(
      once, "root:x:0:0::/root:/bin/sh\nreclaimnet:x:64990:64990::/nonexistent:/usr/sbin/nologin\n"
  );
  EXPECT_EQ(with_remap_user(once, false), once);
  EXPECT_EQ(with_remap_user("", true), "reclaimnet:x:64990:\n");
}

// ---- disks

TEST(AttemptFolder, its_name_reads_back) {
  const warden_wire::GuestName guest{JobId("j-00ff"), LeaseEpoch{3, 7}};

  EXPECT_EQ(attempt_folder_name(guest), "j-00ff-3.7");
  EXPECT_EQ(guest_of_folder("j-00ff-3.7").value(), guest);
  for (const char* other : {"", "lost+found", "j-00ff", "j-00ff-", "-3.7", "../x-3.7", "j-1-3.7x"})
    EXPECT_FALSE(guest_of_folder(other)) << other;
}

// ---- wires

TEST(GuestWire, every_slot_has_its_own_four_addresses) {
  EXPECT_EQ(addresses_of("100.64.0.0", 0)->gateway, "100.64.0.1");
  EXPECT_EQ(addresses_of("100.64.0.0", 0)->guest, "100.64.0.2");
  EXPECT_EQ(addresses_of("100.64.0.0", 255)->guest, "100.64.3.254");
  EXPECT_FALSE(addresses_of("100.64.0.4", 0));
  EXPECT_FALSE(addresses_of("fd00::", 0));
  EXPECT_FALSE(addresses_of("100.64.0.0", 256));
}

TEST(GuestWire, its_name_fits_and_tells_labs_apart) {
  EXPECT_LE(interface_name("a-very-long-laboratory-name", 255).size(), 15U);
  EXPECT_NE(interface_name("lab-a", 1), interface_name("lab-b", 1));
  EXPECT_EQ(interface_name("lab-a", 12).substr(6), "g12");
}

TEST(GuestWire, any_opens_tcp_udp_and_ping) {
  const auto all = allow_rules({{"10.0.0.0/8", 0, "any"}});
  const auto web = allow_rules({{"10.0.0.1/32", 443, "any"}});

  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 3U);
  ASSERT_TRUE(web);
  ASSERT_EQ(web->size(), 2U) << "a port says nothing to ICMP";
  EXPECT_EQ((*web)[0].remote_port, 443U);
  EXPECT_EQ((*web)[0].opener, traffic::Opener::kGuest);
  EXPECT_FALSE(allow_rules({{"10.0.0.1/8", 0, "any"}}));
  EXPECT_FALSE(allow_rules({{"10.0.0.0/8", 70'000, "tcp"}}));
  EXPECT_FALSE(allow_rules({{"10.0.0.0/8", 1, "sctp"}}));
}

TEST(GuestWire, translation_is_for_the_guests_range_and_not_between_guests) {
  const std::string rules = nat_rules({"lab-a", "100.64.4.0", 0, 0, ""});

  EXPECT_NE(rules.find("ip saddr 100.64.4.0/22 oifname != \"rn"), std::string::npos) << rules;
  EXPECT_NE(rules.find("table inet reclaimnet"), std::string::npos);
  EXPECT_NE(rules.find("ip saddr 100.64.4.0/22 ct state new"), std::string::npos) << rules;
}

// ---- the intent journal

class JournalOnDisk : public testing::Test {
 protected:
  static Journal of_boot(const std::string& boot) {
    Journal journal;
    journal.boot_id = boot;
    journal.guests.push_back({{JobId("j-1"), LeaseEpoch{1, 1}}, GuestPhase::kRunning});
    journal.reclaims.emplace_back().id = ReclaimId("r-1");
    return journal;
  }

  void damage(off_t at) const {
    const int fd = open(path_.c_str(), O_RDWR);
    const char flipped = '\x5a';
    ASSERT_EQ(pwrite(fd, &flipped, 1, at), 1);
    close(fd);
  }

  ScratchFolder folder_;
  const std::string path_ = folder_.path() + "/journal";
};

TEST_F(JournalOnDisk, a_new_one_is_empty_and_the_newest_is_read_back) {
  {
    auto file = JournalFile::open(path_);
    ASSERT_TRUE(file);
    EXPECT_EQ(file->read().value(), Journal{});
    for (const char* boot : {"a", "b", "c"}) ASSERT_TRUE(file->write(of_boot(boot)));
  }

  auto file = JournalFile::open(path_);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->read().value(), of_boot("c"));
  ASSERT_TRUE(file->write(of_boot("d")));
  EXPECT_EQ(file->read().value(), of_boot("d"));
}

TEST_F(JournalOnDisk, a_torn_write_leaves_the_one_before) {
  {
    auto file = JournalFile::open(path_);
    ASSERT_TRUE(file->read());
    ASSERT_TRUE(file->write(of_boot("a")));  // sequence 1: the second slot
    ASSERT_TRUE(file->write(of_boot("b")));  // sequence 2: the first
  }
  damage(80);

  auto file = JournalFile::open(path_);
  EXPECT_EQ(file->read().value(), of_boot("a"));
}

TEST_F(JournalOnDisk, two_damaged_slots_are_said_and_not_taken_for_a_new_node) {
  {
    auto file = JournalFile::open(path_);
    ASSERT_TRUE(file->read());
    ASSERT_TRUE(file->write(of_boot("a")));
    ASSERT_TRUE(file->write(of_boot("b")));
  }
  damage(80);
  damage(static_cast<off_t>(JournalFile::kSlotBytes) + 80);

  auto file = JournalFile::open(path_);
  const auto read = file->read();
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
}

TEST_F(JournalOnDisk, a_damaged_one_is_replaced_by_one_that_says_what_it_begins_with) {
  std::ofstream(path_) << std::string(JournalFile::kSlotBytes * 2, 'x');
  Journal first;
  first.is_paused = true;

  ASSERT_TRUE(JournalFile::replace(path_, path_ + ".damaged", first));

  EXPECT_EQ(JournalFile::look(path_).value(), first);
  EXPECT_EQ(JournalFile::look(path_ + ".damaged").error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(JournalOnDisk, a_damaged_one_stays_when_there_is_no_place_for_another) {
  std::ofstream(path_) << std::string(JournalFile::kSlotBytes * 2, 'x');
  std::filesystem::create_directories(path_ + ".new/in-the-way");

  EXPECT_FALSE(JournalFile::replace(path_, path_ + ".damaged", Journal{}));

  EXPECT_EQ(JournalFile::look(path_).error().code, ErrorCode::kCorrupt);
}

TEST_F(JournalOnDisk, to_look_makes_none) {
  EXPECT_EQ(JournalFile::look(path_).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(JournalOnDisk, its_space_is_taken_beforehand) {
  auto file = JournalFile::open(path_);

  EXPECT_EQ(std::filesystem::file_size(path_), 2 * JournalFile::kSlotBytes);
}

// ---- the kill journal, as the core wants it

KillRecord record(KillStep step, std::int64_t at, const char* boot = "b1") {
  KillRecord one;
  one.step = step;
  one.declared_boot_ns = at;
  std::snprintf(one.boot_id.data(), one.boot_id.size(), "%s", boot);
  return one;
}

TEST(KillJournalRecovery, pairs_intents_with_what_came_of_them) {
  KillRecord done = record(KillStep::kDone, 10);
  done.cleared_boot_ns = 12;
  done.processes = 3;

  const auto events = emergencies_of(
      {record(KillStep::kIntentKill, 10), done, record(KillStep::kIntentKill, 20)},
      "b1",
      Instant(seconds(1))
  );

  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].sequence, 1U);
  EXPECT_EQ(events[0].report.cleared_ns, 12);
  EXPECT_EQ(events[0].report.processes, 3U);
  EXPECT_EQ(events[1].sequence, 2U);
  EXPECT_EQ(events[1].report.killed_ns, 0) << "unknown: the core does it again";
}

TEST(KillJournalRecovery, each_outcome_belongs_to_its_own_order) {
  KillRecord done = record(KillStep::kDone, 20);
  done.processes = 3;  // and not cleared

  const auto events = emergencies_of(
      {record(KillStep::kIntentKill, 10), record(KillStep::kIntentKill, 20), done},
      "b1",
      Instant(seconds(1))
  );

  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].report.processes, 0U);
  EXPECT_EQ(events[1].report.processes, 3U);
  EXPECT_EQ(events[1].report.cleared_ns, 0);
  EXPECT_EQ(events[1].report.killed_ns, 0) << "something was left: the core does it again";
  const auto later =
      emergencies_of({record(KillStep::kIntentKill, 20), done}, "b2", Instant{seconds(1)});
  EXPECT_EQ(later.at(0).report.killed_ns, 0) << "in another boot, too";
}

TEST(KillJournalRecovery, times_of_another_boot_are_now) {
  const auto events =
      emergencies_of({record(KillStep::kIntentKill, 10, "b0")}, "b1", Instant(nanoseconds(77)));

  EXPECT_EQ(events.at(0).declared_ns, 77);
}

TEST(KillJournalRecovery, the_gpus_that_an_order_named_are_taken_and_no_others) {
  KillRecord intent = record(KillStep::kIntentKill, 10);
  intent.is_node = 0;
  intent.gpus = 0b10;

  EXPECT_EQ(emergencies_of({intent}, "b1", Instant{}).at(0).gpu_mask, 0b10U) << "idle ones as well";
}

TEST(KillJournalRecovery, of_an_older_record_that_named_guests_the_whole_node_is_taken) {
  KillRecord intent = record(KillStep::kIntentKill, 10);
  intent.version = 1;
  intent.is_node = 0;
  intent.gpus = 0b10;

  EXPECT_EQ(emergencies_of({intent}, "b1", Instant{}).at(0).gpu_mask, 0U);
}

Result<Journal> with_guest_on(std::vector<std::uint32_t> gpus) {
  Journal journal;
  journal.boot_id = "b1";
  GuestRecord guest;
  guest.slot = 3;
  guest.gpus = std::move(gpus);
  guest.container = "c-1";
  journal.guests.push_back(guest);
  return journal;
}

TEST(ByHand, the_journal_says_which_guest_has_which_gpu) {
  const ByHand order = by_hand(0b10, with_guest_on({1}));

  EXPECT_EQ(order.gpu_mask, 0b10U);
  EXPECT_THAT(order.widened, testing::IsEmpty());
  ASSERT_EQ(order.guests.size(), 1U);
  EXPECT_EQ(order.guests[0].slot, 3U);
}

TEST(ByHand, a_start_that_made_no_container_is_no_guest) {
  Result<Journal> journal = with_guest_on({1});
  journal->guests[0].container.clear();

  EXPECT_THAT(by_hand(0b10, journal).guests, testing::IsEmpty());
}

TEST(ByHand, where_no_journal_says_it_all_guests_go_and_the_owner_is_told_why) {
  const ByHand missing = by_hand(0b10, fail(ErrorCode::kNotFound, "journal does not exist"));
  EXPECT_EQ(missing.gpu_mask, 0U);
  EXPECT_THAT(missing.widened, testing::HasSubstr("does not exist"));

  EXPECT_EQ(by_hand(0b10, Journal{}).gpu_mask, 0U) << "one that was made anew";
}

TEST(WardenLeaves, a_control_group_with_processes_stays_and_is_named_with_them) {
  const ScratchFolder root;
  const auto path = [&](const std::string& name) { return root.path() + "/" + name; };
  std::filesystem::create_directories(path("pids/reclaim-a/guest"));
  std::filesystem::create_directories(path("cpu/reclaim-a/guest"));
  std::filesystem::create_directories(path("cpu/reclaim-b"));
  std::ofstream(path("pids/reclaim-a/guest/cgroup.procs")) << "17\n18\n";

  const LeaveReport report = remove_cgroups(root.path(), "reclaim-a", milliseconds(0));

  EXPECT_EQ(report.removed, std::vector<std::string>{"cgroup " + path("cpu/reclaim-a")});
  EXPECT_EQ(
      report.stays,
      std::vector<std::string>{"cgroup " + path("pids/reclaim-a") + ": processes in it: 17 18"}
  );
  EXPECT_TRUE(std::filesystem::exists(path("cpu/reclaim-b")));
}

TEST(WardenLeaves, of_a_lab_that_never_was_nothing_is_here_and_nothing_is_made) {
  const ScratchFolder root;
  const std::string groups = root.path() + "/cgroup";
  std::filesystem::create_directories(groups + "/cpu/reclaim-a");
  MachineConfig config;
  config.state = root.path() + "/state/warden";
  config.run = root.path() + "/run";
  config.engine = "private";
  config.lab = "typo";

  EXPECT_FALSE(may_have_served(config, groups));
  EXPECT_FALSE(std::filesystem::exists(groups + "/cpu/reclaim-typo"));
  config.lab = "a";
  EXPECT_TRUE(may_have_served(config, groups)) << "its control group is here";
  config.lab = "typo";
  std::filesystem::create_directories(config.run + "/gates");
  EXPECT_TRUE(may_have_served(config, groups)) << "gates";
}

}  // namespace
}  // namespace rn::warden
