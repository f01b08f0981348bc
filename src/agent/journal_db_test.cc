// SPDX-License-Identifier: Apache-2.0
#include "agent/journal_db.h"

#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
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

TEST_F(JournalDbTest, what_still_waits_is_written_before_it_closes) {
  {
    auto journal = JournalDb::open(path_);
    ASSERT_TRUE(journal) << journal.error().describe();
    for (int row = 0; row < 500; ++row)
      (*journal)->write({JournalWrite{"row", std::to_string(row)}}, {});
  }

  auto again = JournalDb::open(path_);

  ASSERT_TRUE(again);
  EXPECT_EQ(rows(**again), "row=499;");
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

/// On a file system of 128 MiB that only the test's own thread and what it starts can see.
class JournalDbOnAFullDisk : public JournalDbTest {
 protected:
  void on_a_small_disk(const std::function<void()>& body) const {
    std::string skipped;
    std::thread([&] {
      const bool has_own = unshare(CLONE_NEWNS) == 0 &&
                           mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                           mount("none", folder_.path().c_str(), "tmpfs", 0, "size=128m") == 0;
      if (!has_own)
        skipped = std::string("needs root for a mount of its own: ") + std::strerror(errno);
      else
        body();
    }).join();
    if (!skipped.empty()) GTEST_SKIP() << skipped;
  }

  void fill() const {
    std::ofstream filler(folder_.path() + "/filler");
    const std::string block(4096, 'x');
    while (filler.write(block.data(), 4096).flush()) continue;
  }

  struct Seen {
    std::mutex mutex;
    std::condition_variable wake;
    std::vector<std::string> events;

    void add(std::string event) {
      const std::lock_guard lock(mutex);
      events.push_back(std::move(event));
      wake.notify_all();
    }

    bool comes(std::size_t count, milliseconds patience) {
      std::unique_lock lock(mutex);
      return wake.wait_for(lock, patience, [&] { return events.size() >= count; });
    }
  };
};

constexpr int kRows = 32;

TEST_F(JournalDbOnAFullDisk, it_waits_says_why_once_and_loses_nothing) {
  on_a_small_disk([this] {
    Seen seen;
    auto journal = JournalDb::open(path_, [&](const Status& short_of) {
      seen.add(short_of ? "room" : "short: " + short_of.error().describe());
    });
    ASSERT_TRUE(journal) << journal.error().describe();
    fill();
    // More than its reserve, which is 8 MiB in the database and as much in its log.
    for (int row = 0; row < kRows; ++row)
      (*journal)->write(
          {JournalWrite{std::to_string(row), std::string(1 << 20, 'x')}},
          [&, row](const Status& written) {
            seen.add(written ? "row " + std::to_string(row) : written.error().describe());
          }
      );
    ASSERT_TRUE(seen.comes(1, seconds(10)));
    EXPECT_FALSE(seen.comes(kRows + 1, milliseconds(700))) << "32 MiB went where 16 are";
    std::size_t told = 0;
    {
      const std::lock_guard lock(seen.mutex);
      for (const std::string& event : seen.events) told += event.starts_with("short: ") ? 1 : 0;
      EXPECT_THAT(seen.events.back(), HasSubstr("free space on the disk"));
    }
    EXPECT_EQ(told, 1u);

    ASSERT_TRUE(fs_.remove(folder_.path() + "/filler"));

    ASSERT_TRUE(seen.comes(kRows + 2, seconds(10)));
    journal->reset();
    std::erase_if(seen.events, [](const std::string& e) { return e.starts_with("short: "); });
    std::vector<std::string> expected;
    for (int row = 0; row < kRows; ++row) expected.push_back("row " + std::to_string(row));
    EXPECT_EQ(std::erase(seen.events, "room"), 1U);
    EXPECT_EQ(seen.events, expected);
    EXPECT_THAT((*JournalDb::open(path_))->load().value(), testing::SizeIs(kRows));
  });
}

TEST_F(JournalDbOnAFullDisk, it_can_be_ended_while_it_waits) {
  on_a_small_disk([this] {
    Seen seen;
    auto journal =
        JournalDb::open(path_, [&](const Status& short_of) { seen.add(short_of ? "room" : "no"); });
    ASSERT_TRUE(journal);
    fill();
    (*journal)->write({{"big", std::string(14 << 20, 'x')}}, [&](const Status& written) {
      seen.add(written ? "written" : "given up");
    });
    ASSERT_TRUE(seen.comes(1, seconds(10)));

    journal->reset();

    EXPECT_EQ(seen.events, (std::vector<std::string>{"no", "given up"}));
  });
}

/// Files of this process may not grow beyond it: a write fails, and not for want of room.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    before_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was_);
    const rlimit small{bytes, was_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }

  ~SmallFiles() {
    setrlimit(RLIMIT_FSIZE, &was_);
    (void)std::signal(SIGXFSZ, before_);
  }

 private:
  rlimit was_{};
  void (*before_)(int) = nullptr;
};

TEST_F(JournalDbTest, once_broken_it_takes_no_row_after_the_lost_one) {
  auto journal = JournalDb::open(path_);
  ASSERT_TRUE(journal) << journal.error().describe();
  ASSERT_TRUE(write(**journal, {{"before", "1"}}));
  {
    const SmallFiles limit(12u << 20);
    ASSERT_FALSE(write(**journal, {{"small", "1"}, {"big", std::string(40u << 20, 'x')}}));
  }

  EXPECT_FALSE(write(**journal, {{"after", "2"}}));

  EXPECT_EQ(rows(**journal), "before=1;");
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
