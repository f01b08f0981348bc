// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/sanitizers.h"
#include "coordinator/sqlite_store.h"
#include "coordinator/store_fixture.h"
#include "coordinator/store_writer.h"

namespace rn::coordinator {
namespace {

/// The parent waits for 12 acknowledgements of up to 9 batches each: the child is killed in the
/// middle of writing.
constexpr std::uint64_t kBatchesAtMost = 300;

/// The child writes batches as fast as it can and says each number that was acknowledged.
[[noreturn]] void write_until_killed(const std::string& folder, std::uint64_t first, int out) {
  auto store = SqliteStore::open(folder);
  if (!store) ::_exit(3);
  std::atomic<std::uint64_t> acknowledged{0};
  StoreWriter writer(**store, [&](std::uint64_t through, const Status& status) {
    if (!status) ::_exit(4);
    const std::uint64_t number = first + through - 1;
    if (::write(out, &number, sizeof(number)) != sizeof(number)) ::_exit(5);
    acknowledged = through;
  });
  for (std::uint64_t n = first; n < first + kBatchesAtMost; ++n) {
    JobRow job = a_job("j-" + std::to_string(n), n);
    EventRow event = an_event("job.submitted", job.job.id.str());
    const std::uint64_t number =
        writer.submit({PutJob{job}, AppendEvent{event}, SetMeta{"last", std::to_string(n)}});
    while (number > acknowledged + 8) std::this_thread::yield();
  }
  for (;;) ::pause();
}

std::uint64_t last_number(const ScratchFolder& folder) {
  const auto store = SqliteStore::open(folder.path());
  EXPECT_TRUE(store.has_value()) << store.error().describe();
  const auto snapshot = (*store)->load();
  const auto report = (*store)->verify_chain();
  EXPECT_EQ(report->first_bad_seq, 0u) << report->complaint;
  EXPECT_FALSE(report->missing_to.has_value());
  const std::uint64_t last =
      snapshot->meta.contains("last") ? std::stoull(snapshot->meta.at("last")) : 0;
  // Whole batches: the job, its event and the number belong together.
  EXPECT_EQ(report->events, last);
  EXPECT_EQ(snapshot->jobs.size(), last);
  return last;
}

/// Kills a writer in the middle of its batches; how many are there afterwards.
void kill_a_writer(
    const ScratchFolder& folder, std::uint64_t acknowledgements, std::uint64_t& found
) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  // The writer is some hundred acknowledgements ahead of its reader, not eight thousand.
  ASSERT_GE(::fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::close(ends[0]);
    write_until_killed(folder.path(), found + 1, ends[1]);
  }
  ::close(ends[1]);

  std::uint64_t acknowledged = found;
  std::uint64_t number = 0;
  for (std::uint64_t i = 0; i < acknowledgements; ++i) {
    ASSERT_EQ(::read(ends[0], &number, sizeof(number)), ssize_t(sizeof(number)));
    acknowledged = number;
  }
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  while (::read(ends[0], &number, sizeof(number)) == ssize_t(sizeof(number))) acknowledged = number;
  ::close(ends[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << WEXITSTATUS(status);

  found = last_number(folder);
  EXPECT_GE(found, acknowledged) << "seed 20261121";
}

/// Each look reads all that was ever written, so a new store is begun after five kills.
TEST(StoreCrash, a_killed_writer_loses_nothing_acknowledged_and_leaves_no_half_batch) {
  SeededRng rng(20'261'121);
  for (int store = 0; store < (kIsSanitized ? 2 : 4); ++store) {
    const ScratchFolder folder;
    std::uint64_t found = 0;
    for (int round = 0; round < 5; ++round) {
      SCOPED_TRACE("store " + std::to_string(store) + ", round " + std::to_string(round));
      ASSERT_NO_FATAL_FAILURE(kill_a_writer(folder, 1 + rng.below(12), found));
    }
    EXPECT_GT(found, 5u);
  }
}

}  // namespace
}  // namespace rn::coordinator
