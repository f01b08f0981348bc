// SPDX-License-Identifier: Apache-2.0
#include "agent/journal_db.h"

#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/scratch_folder.h"
#include "io/real_fs.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;

class JournalDbTest : public testing::Test {
 protected:
  /// Writes and waits until it is durable.
  static Status write(JournalDb& journal, std::vector<JournalWrite> writes) {
    std::mutex mutex;
    std::condition_variable wake;
    std::optional<Status> outcome;
    journal.write(std::move(writes), [&](Status status) {
      const std::lock_guard lock(mutex);
      outcome = std::move(status);
      wake.notify_one();
    });
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] { return outcome.has_value(); });
    return *outcome;
  }

  static std::string rows(JournalDb& journal) {
    std::string out;
    const std::vector<JournalRow> all = journal.load().value();
    for (const JournalRow& row : all) out += row.key + "=" + row.value + ";";
    return out;
  }

  io::RealFileSystem fs_;
  ScratchFolder folder_;
  const std::string path_ = folder_.path() + "/journal.db";
};

TEST_F(JournalDbTest, what_was_written_is_there_after_reopening) {
  {
    auto journal = JournalDb::open(path_);
    ASSERT_TRUE(journal) << journal.error().describe();
    ASSERT_TRUE(write(**journal, {{"b", "2"}, {"a", "1"}}));
    ASSERT_TRUE(write(**journal, {{"a", "3"}, {"b", std::nullopt}, {"c", "with 'quotes'"}}));
  }

  auto again = JournalDb::open(path_);

  ASSERT_TRUE(again);
  EXPECT_EQ(rows(**again), "a=3;c=with 'quotes';");
}

TEST_F(JournalDbTest, rows_need_no_more_of_the_disk_for_a_while) {
  const auto bytes = [&] {
    std::uint64_t sum = 0;
    const std::vector<std::string> names = fs_.list(folder_.path()).value();
    for (const std::string& name : names) sum += fs_.stat(join_path(folder_.path(), name))->size;
    return sum;
  };
  for (int opened = 0; opened < 2; ++opened) {
    auto journal = JournalDb::open(path_);
    ASSERT_TRUE(journal) << journal.error().describe();
    const std::uint64_t before = bytes();
    ASSERT_GT(before, 16u << 20) << "the rows' place and the log's";

    for (int row = 0; row < 20; ++row)
      ASSERT_TRUE(write(**journal, {JournalWrite{std::to_string(row), std::string(100'000, 'x')}}));

    EXPECT_EQ(bytes(), before);
  }
}

TEST_F(JournalDbTest, callbacks_come_in_the_order_of_the_writes_even_without_rows) {
  auto journal = JournalDb::open(path_);
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    std::vector<JournalWrite> writes;
    if (i % 3 == 0) writes.push_back({"k" + std::to_string(i), "v"});
    (*journal)->write(std::move(writes), [&, i](const Status&) {
      const std::lock_guard lock(mutex);
      order.push_back(i);
      wake.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  wake.wait(lock, [&] { return order.size() == 100; });

  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(JournalDbTest, a_second_agent_on_the_same_folder_is_refused) {
  const auto first = JournalDb::open(path_);
  ASSERT_TRUE(first);

  const auto second = JournalDb::open(path_);

  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kConflict);
  EXPECT_THAT(second.error().hint, HasSubstr("another agent"));
}

TEST_F(JournalDbTest, a_file_that_is_no_journal_is_named_and_kept) {
  ASSERT_TRUE(write_durably(fs_, path_, as_bytes(std::string(4096, 'x')), 0600));

  const auto opened = JournalDb::open(path_);

  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(opened.error().message, HasSubstr("journal.db"));
  EXPECT_TRUE(fs_.stat(path_));
}

TEST_F(JournalDbTest, a_folder_that_is_not_there_says_so) {
  const auto opened = JournalDb::open(folder_.path() + "/none/journal.db");

  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kDenied);
  EXPECT_FALSE(opened.error().hint.empty());
}

}  // namespace
}  // namespace rn::agent
