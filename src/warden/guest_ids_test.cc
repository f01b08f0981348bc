// SPDX-License-Identifier: Apache-2.0
#include "warden/guest_ids.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/fenced_fs_fixture.h"
#include "base/scratch_folder.h"
#include "io/read_text.h"
#include "io/real_fs.h"

namespace rn::warden {
namespace {

/// A machine with an /etc, labs' states and control groups of its own, and no processes.
class GuestIdsOfLabs : public testing::Test {
 protected:
  GuestIdsOfLabs() {
    for (const char* folder : {"/etc", "/proc", "/cgroup"})
      std::filesystem::create_directories(root_.path() + folder);
    places_.list = root_.path() + "/guest-ids";
    places_.etc = root_.path() + "/etc";
    places_.proc = root_.path() + "/proc";
    places_.cgroups = root_.path() + "/cgroup";
  }

  std::string state_of(const std::string& lab) const { return root_.path() + "/state/" + lab; }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + path).parent_path());
    std::ofstream(root_.path() + path) << text;
  }

  Result<GuestIds> claim(const std::string& lab, bool has_guests = false) {
    std::filesystem::create_directories(state_of(lab));
    return claim_guest_ids(disk_, places_, {lab, state_of(lab), has_guests});
  }

  /// As a lab that served before there was a list.
  void has_served(const std::string& lab) const {
    std::filesystem::create_directories(state_of(lab) + "/engine");
  }

  std::string list() const { return io::read_text(places_.list); }

  // Their names suggest the same range.
  const std::string one_ = "lab-208";
  const std::string other_ = "lab-312";

  ScratchFolder root_;
  io::RealFileSystem real_;
  FencedFileSystem disk_{real_, root_.path()};
  GuestIdPlaces places_;
};

TEST_F(GuestIdsOfLabs, are_those_that_the_name_suggests_where_nobody_has_them) {
  const auto ids = claim("lab-a");

  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_EQ(ids->first, uid_base_of("lab-a"));
  EXPECT_TRUE(ids->is_new);
  EXPECT_EQ(ids->shared_with, "");
  EXPECT_EQ(recorded_guest_ids(state_of("lab-a")), uid_base_of("lab-a"));
  EXPECT_EQ(list(), std::to_string(ids->first) + " lab-a " + state_of("lab-a") + "\n");
}

TEST_F(GuestIdsOfLabs, differ_also_where_the_names_suggest_the_same) {
  ASSERT_EQ(uid_base_of(one_), uid_base_of(other_));

  const auto one = claim(one_);
  const auto other = claim(other_);

  ASSERT_TRUE(one && other);
  EXPECT_EQ(one->first, uid_base_of(one_));
  EXPECT_EQ(other->first, uid_base_of(one_) + 65'536);
}

TEST_F(GuestIdsOfLabs, are_kept_from_one_start_to_the_next) {
  ASSERT_TRUE(claim(one_));
  const auto first = claim(other_);

  const auto again = claim(other_);

  ASSERT_TRUE(first && again);
  EXPECT_EQ(again->first, first->first);
  EXPECT_FALSE(again->is_new);
}

TEST_F(GuestIdsOfLabs, are_kept_when_the_machines_list_was_lost) {
  ASSERT_TRUE(claim(one_));
  const auto first = claim(other_);
  std::filesystem::remove(places_.list);

  const auto again = claim(other_);

  ASSERT_TRUE(first && again);
  EXPECT_EQ(again->first, first->first);
}

TEST_F(GuestIdsOfLabs, of_a_start_that_was_broken_off_are_what_the_list_says) {
  ASSERT_TRUE(claim(one_));
  const auto first = claim(other_);
  std::filesystem::remove(state_of(other_) + "/guest-ids");

  const auto again = claim(other_);

  ASSERT_TRUE(first && again);
  EXPECT_EQ(again->first, first->first);
}

TEST_F(GuestIdsOfLabs, of_a_lab_that_served_before_there_was_a_list_stay_those_of_its_name) {
  has_served("lab-a");
  write("/etc/subuid", "anna:" + std::to_string(uid_base_of("lab-a")) + ":65536\n");

  const auto ids = claim("lab-a");

  ASSERT_TRUE(ids);
  EXPECT_EQ(ids->first, uid_base_of("lab-a"));
  EXPECT_FALSE(ids->is_new);
  EXPECT_EQ(ids->shared_with, places_.etc + "/subuid (anna)");
}

TEST_F(GuestIdsOfLabs, that_two_labs_had_move_for_the_second_once_it_has_no_guest) {
  has_served(one_);
  has_served(other_);
  ASSERT_TRUE(claim(one_));

  const auto with_guests = claim(other_, true);
  const auto without = claim(other_);

  ASSERT_TRUE(with_guests && without);
  EXPECT_EQ(with_guests->first, uid_base_of(one_));
  EXPECT_EQ(with_guests->shared_with, "lab " + one_ + " (" + state_of(one_) + ")");
  EXPECT_EQ(without->first, uid_base_of(one_) + 65'536);
  EXPECT_TRUE(without->is_new);
  EXPECT_EQ(claim(one_)->first, uid_base_of(one_)) << "the first keeps what it has";
}

TEST_F(GuestIdsOfLabs, are_none_that_people_groups_or_their_containers_have) {
  const std::uint32_t first = uid_base_of("lab-a");
  write("/etc/passwd", "root:x:0:0::/root:/bin/sh\nanna:x:" + std::to_string(first) + ":100::/:\n");
  write("/etc/group", "wheel:x:" + std::to_string(first + 65'536 + 7) + ":\n");
  // Begins before the third range and ends in it, as useradd's sixteenth would.
  write("/etc/subuid", "# by hand\nbob:" + std::to_string(first + 2 * 65'536 - 1) + ":2\nbroken\n");
  write("/etc/subgid", "carl:" + std::to_string(first + 4 * 65'536 - 1) + ":65536\n");

  const auto ids = claim("lab-a");

  ASSERT_TRUE(ids);
  EXPECT_EQ(ids->first, first + 5 * 65'536);
}

TEST_F(GuestIdsOfLabs, are_none_with_which_a_process_runs) {
  const std::uint32_t first = uid_base_of("lab-a");
  write(
      "/proc/" + std::to_string(getpid()) + "/status",
      "Name:\tldap-user\nUid:\t" + std::to_string(first + 3) + "\t0\t0\t0\nGid:\t0\t0\t0\t0\n"
  );

  const auto ids = claim("lab-a");

  ASSERT_TRUE(ids);
  EXPECT_EQ(ids->first, first + 65'536);
}

TEST_F(GuestIdsOfLabs, are_free_again_when_the_lab_has_left) {
  ASSERT_TRUE(claim(one_));
  ASSERT_TRUE(claim("lab-a"));
  std::filesystem::remove_all(state_of(one_));
  ASSERT_TRUE(release_guest_ids(disk_, places_, state_of(one_)).value_or(false));

  EXPECT_EQ(claim(other_)->first, uid_base_of(one_));

  for (const std::string& lab : {other_, std::string("lab-a")}) {
    std::filesystem::remove_all(state_of(lab));
    EXPECT_TRUE(release_guest_ids(disk_, places_, state_of(lab)).value_or(false)) << lab;
  }
  EXPECT_FALSE(std::filesystem::exists(places_.list)) << "the last one takes the list with it";
  EXPECT_FALSE(release_guest_ids(disk_, places_, state_of(one_)).value_or(true));
}

TEST_F(GuestIdsOfLabs, of_a_lab_whose_state_is_gone_are_free_unless_it_has_guests_here) {
  ASSERT_TRUE(claim(one_));
  std::filesystem::remove_all(state_of(one_));
  std::filesystem::create_directories(places_.cgroups + "/pids/reclaim-" + one_);

  EXPECT_EQ(claim(other_)->first, uid_base_of(one_) + 65'536);
  std::filesystem::remove_all(places_.cgroups + "/pids");
  EXPECT_EQ(claim("lab-a")->first, uid_base_of("lab-a"));

  EXPECT_EQ(list().find(" " + one_ + " "), std::string::npos);
}

TEST_F(GuestIdsOfLabs, are_refused_with_a_next_step_when_none_is_free) {
  write("/etc/subuid", "all:0:4294967295\n");

  const auto ids = claim("lab-a");

  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, ErrorCode::kExhausted);
  EXPECT_NE(ids.error().message.find("/etc/subuid (all)"), std::string::npos);
  EXPECT_NE(ids.error().hint.find("/etc/subgid"), std::string::npos);
  EXPECT_EQ(list(), "");
}

TEST_F(GuestIdsOfLabs, are_not_read_from_what_is_no_list) {
  write(
      "/guest-ids",
      "\n \nx lab-b /s\n7 lab-b /s\n" + std::to_string(uid_base_of("lab-a")) + "\n" +
          std::to_string(uid_base_of("lab-a")) + " lab-b \n"
  );
  write("/state/lab-c/guest-ids", "1048577\n");

  EXPECT_EQ(claim("lab-a")->first, uid_base_of("lab-a"));
  EXPECT_FALSE(recorded_guest_ids(state_of("lab-c")));
}

}  // namespace
}  // namespace rn::warden
