// SPDX-License-Identifier: Apache-2.0
#include "warden/kill_journal.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "warden/cgroup_fixture.h"

namespace rn::warden {
namespace {

KillRecord an_intent(std::int64_t declared_ns) {
  KillRecord record;
  record.step = KillStep::kIntentKill;
  record.declared_boot_ns = declared_ns;
  return record;
}

class KillJournalOnDisk : public testing::Test {
 protected:
  const test::Folder folder_{test::Tree{}};
  const std::string path_ = folder_.path() + "/kill.journal";
};

TEST_F(KillJournalOnDisk, what_was_waited_for_is_read_back) {
  auto journal = KillJournal::open(path_);
  ASSERT_TRUE(journal);

  ASSERT_TRUE((*journal)->post(an_intent(7)));
  ASSERT_TRUE((*journal)->wait(seconds(30)));
  ASSERT_TRUE((*journal)->post(an_intent(8)));
  ASSERT_TRUE((*journal)->wait(seconds(30)));

  const auto records = read_kill_journal(path_);
  ASSERT_TRUE(records);
  ASSERT_EQ(records->size(), 2u);
  EXPECT_EQ((*records)[0].declared_boot_ns, 7);
  EXPECT_EQ((*records)[1].declared_boot_ns, 8);
}

TEST_F(KillJournalOnDisk, closing_it_writes_what_was_posted) {
  auto journal = KillJournal::open(path_);
  ASSERT_TRUE((*journal)->post(an_intent(7)));
  journal->reset();

  EXPECT_EQ(read_kill_journal(path_)->size(), 1u);
}

TEST_F(KillJournalOnDisk, a_torn_last_record_is_cut_off_and_the_next_one_follows_the_whole_ones) {
  {
    auto journal = KillJournal::open(path_);
    ASSERT_TRUE((*journal)->post(an_intent(7)));
  }
  std::ofstream(path_, std::ios::app | std::ios::binary) << "half a record";
  EXPECT_EQ(read_kill_journal(path_)->size(), 1u);

  {
    auto journal = KillJournal::open(path_);
    ASSERT_TRUE((*journal)->post(an_intent(8)));
  }

  const auto records = read_kill_journal(path_);
  ASSERT_EQ(records->size(), 2u);
  EXPECT_EQ((*records)[1].declared_boot_ns, 8);
}

TEST_F(KillJournalOnDisk, a_damaged_last_record_is_left_out_and_a_damaged_inner_one_is_corrupt) {
  {
    auto journal = KillJournal::open(path_);
    ASSERT_TRUE((*journal)->post(an_intent(7)));
    ASSERT_TRUE((*journal)->wait(seconds(30)));
    ASSERT_TRUE((*journal)->post(an_intent(8)));
  }
  const auto flip = [&](std::streamoff at) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put('\x7f');
  };

  flip(sizeof(KillRecord) + 20);
  EXPECT_EQ(read_kill_journal(path_)->size(), 1u);
  flip(20);
  std::ofstream(path_, std::ios::app | std::ios::binary) << std::string(sizeof(KillRecord), '\0');
  EXPECT_EQ(read_kill_journal(path_).error().code, ErrorCode::kCorrupt);
}

TEST_F(KillJournalOnDisk, a_damaged_last_record_does_not_become_one_inside_by_the_next_order) {
  {
    auto journal = KillJournal::open(path_);
    ASSERT_TRUE((*journal)->post(an_intent(7)));
  }
  std::ofstream(path_, std::ios::app | std::ios::binary) << std::string(sizeof(KillRecord), '\0');

  {
    auto journal = KillJournal::open(path_);
    ASSERT_TRUE((*journal)->post(an_intent(8)));
  }

  const auto records = read_kill_journal(path_);
  ASSERT_TRUE(records) << records.error().describe();
  ASSERT_EQ(records->size(), 2u);
  EXPECT_EQ((*records)[1].declared_boot_ns, 8);
}

TEST_F(KillJournalOnDisk, one_that_was_put_aside_is_kept_and_a_new_one_begins) {
  std::ofstream(path_, std::ios::binary) << std::string(2 * sizeof(KillRecord), 'x');
  std::ofstream(damaged_kill_journal(path_)) << "an older one";
  ASSERT_EQ(read_kill_journal(path_).error().code, ErrorCode::kCorrupt);

  const Status aside = put_kill_journal_aside(path_);

  ASSERT_TRUE(aside) << aside.error().describe();
  EXPECT_EQ(std::filesystem::file_size(damaged_kill_journal(path_)), 2 * sizeof(KillRecord));
  EXPECT_TRUE(read_kill_journal(path_)->empty());
  {
    auto journal = KillJournal::open(path_);
    ASSERT_TRUE((*journal)->post(an_intent(7)));
  }
  EXPECT_EQ(read_kill_journal(path_)->size(), 1u);
}

TEST_F(KillJournalOnDisk, one_that_cannot_be_read_has_not_no_records_and_can_be_put_aside) {
  std::filesystem::create_directory(path_);

  EXPECT_EQ(read_kill_journal(path_).error().code, ErrorCode::kCorrupt);
  ASSERT_TRUE(put_kill_journal_aside(path_));

  EXPECT_TRUE(read_kill_journal(path_)->empty());
  EXPECT_FALSE(put_kill_journal_aside(path_)) << "nothing is there";
}

TEST_F(KillJournalOnDisk, a_failed_write_condemns_it) {
  // /dev/full answers every write with ENOSPC.
  std::filesystem::create_symlink("/dev/full", path_);
  auto journal = KillJournal::open(path_);
  ASSERT_TRUE(journal) << journal.error().describe();

  ASSERT_TRUE((*journal)->post(an_intent(7)));

  EXPECT_FALSE((*journal)->wait(seconds(30)));
  EXPECT_TRUE((*journal)->is_condemned());
  EXPECT_FALSE((*journal)->post(an_intent(8)));
}

TEST_F(KillJournalOnDisk, a_missing_file_has_no_records_and_a_missing_folder_cannot_be_opened) {
  EXPECT_TRUE(read_kill_journal(path_)->empty());
  EXPECT_FALSE(KillJournal::open(folder_.path() + "/none/kill.journal"));
}

}  // namespace
}  // namespace rn::warden
