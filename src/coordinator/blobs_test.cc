// SPDX-License-Identifier: Apache-2.0
#include "coordinator/blobs.h"

#include <future>
#include <optional>

#include <gtest/gtest.h>

#include "base/crypto.h"
#include "base/fs_crash.h"
#include "base/rng.h"
#include "coordinator/blobs_log.h"

namespace rn::coordinator {
namespace {

Blob bytes_of(std::string_view text) {
  const BlobView view = as_bytes(text);
  return Blob(view.begin(), view.end());
}

BlobStore open_blobs(FileSystem& fs) {
  EXPECT_TRUE(make_folders(fs, "/state/blobs", 0700).has_value());
  EXPECT_TRUE(fs.sync_folder("/").has_value());
  auto blobs = BlobStore::open(fs, "/state/blobs");
  EXPECT_TRUE(blobs.has_value());
  blobs->set_reserve(0);
  return *std::move(blobs);
}

TEST(BlobStore, a_blob_comes_back_by_its_digest) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  BlobStore blobs = open_blobs(fs);
  const Blob content = bytes_of("weights");
  const Digest name = crypto::sha256(content);

  ASSERT_TRUE(blobs.put(name, content).has_value());

  EXPECT_TRUE(blobs.has(name));
  EXPECT_EQ(blobs.size(name).value(), 7u);
  EXPECT_EQ(blobs.get(name).value(), content);
}

TEST(BlobStore, bytes_that_are_not_what_they_claim_are_refused_and_not_kept) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  BlobStore blobs = open_blobs(fs);
  const Digest name = crypto::sha256(bytes_of("weights"));

  const Status status = blobs.put(name, bytes_of("other"));

  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(
      status.error().message,
      "the bytes have SHA-256 d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa, "
      "not " +
          to_hex(name)
  );
  EXPECT_FALSE(blobs.has(name));
}

TEST(BlobStore, a_blob_above_the_limit_is_refused) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  BlobStore blobs = open_blobs(fs);
  const Blob big(kMaxBlobBytes + 1);

  EXPECT_EQ(blobs.put(crypto::sha256(big), big).error().code, ErrorCode::kExhausted);
}

TEST(BlobStore, a_damaged_blob_is_not_handed_out) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  BlobStore blobs = open_blobs(fs);
  const Blob content = bytes_of("weights");
  const Digest name = crypto::sha256(content);
  ASSERT_TRUE(blobs.put(name, content).has_value());
  const std::string hex = to_hex(name);

  ASSERT_TRUE(fs.flip("/state/blobs/" + hex.substr(0, 2) + "/" + hex.substr(2), 3, 0x10));

  EXPECT_EQ(blobs.get(name).error().code, ErrorCode::kCorrupt);
}

TEST(BlobStore, a_full_disk_is_said_before_anything_is_written) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  BlobStore blobs = open_blobs(fs);
  fs.set_capacity(1 << 20);
  blobs.set_reserve(2 << 20);
  const Blob content = bytes_of("weights");

  const Status status = blobs.put(crypto::sha256(content), content);

  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kExhausted);
  EXPECT_NE(status.error().message.find("disk is full"), std::string::npos);
  EXPECT_FALSE(status.error().hint.empty());
}

TEST(BlobStore, an_acknowledged_blob_survives_a_power_cut_at_every_operation_of_the_next_put) {
  const Blob first = bytes_of("first");
  const Blob second = bytes_of("second");
  for (std::uint64_t operation = 0; operation < 8; ++operation) {
    ManualClock clock;
    CrashFs fs(clock, 7 + operation);
    {
      BlobStore blobs = open_blobs(fs);
      ASSERT_TRUE(blobs.put(crypto::sha256(first), first).has_value());
      fs.crash_at(operation);
      const bool is_acknowledged = blobs.put(crypto::sha256(second), second).has_value();
      fs.restart();
      BlobStore after = open_blobs(fs);
      EXPECT_EQ(after.get(crypto::sha256(first)).value(), first) << "operation " << operation;
      if (is_acknowledged) {
        EXPECT_TRUE(after.has(crypto::sha256(second)));
      }
      // Whatever is there under the name is whole.
      if (after.has(crypto::sha256(second))) {
        EXPECT_EQ(after.get(crypto::sha256(second)).value(), second);
      }
    }
  }
}

/// Appends and waits for the acknowledgement.
Result<std::uint64_t> append(
    AttemptLogs& logs, std::uint64_t offset, std::string_view text, LeaseEpoch epoch = {1, 1}
) {
  std::promise<Result<std::uint64_t>> answer;
  auto done = [&](Result<std::uint64_t> next) { answer.set_value(std::move(next)); };
  const Status queued = logs.append(JobId("j-1"), epoch, offset, bytes_of(text), done);
  if (!queued) return fail(queued.error());
  return answer.get_future().get();
}

std::string whole(AttemptLogs& logs) {
  return std::string(as_text(logs.read(JobId("j-1"), {1, 1}, 0, 1000).value()));
}

TEST(AttemptLogs, appends_are_acknowledged_with_the_next_offset) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  ASSERT_TRUE(make_folders(fs, "/state/logs", 0700).has_value());
  AttemptLogs logs(fs, "/state/logs");

  EXPECT_EQ(append(logs, 0, "step 1\n").value(), 7u);
  EXPECT_EQ(append(logs, 7, "step 2\n").value(), 14u);

  EXPECT_EQ(whole(logs), "step 1\nstep 2\n");
  EXPECT_EQ(logs.size(JobId("j-1"), {1, 1}).value(), 14u);
}

TEST(AttemptLogs, a_repeated_append_changes_nothing_and_an_overlap_adds_its_news) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  ASSERT_TRUE(make_folders(fs, "/state/logs", 0700).has_value());
  AttemptLogs logs(fs, "/state/logs");
  ASSERT_EQ(append(logs, 0, "abc").value(), 3u);

  EXPECT_EQ(append(logs, 0, "abc").value(), 3u);
  EXPECT_EQ(append(logs, 1, "bcde").value(), 5u);

  EXPECT_EQ(whole(logs), "abcde");
}

TEST(AttemptLogs, a_gap_is_answered_with_the_offset_that_is_missing) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  ASSERT_TRUE(make_folders(fs, "/state/logs", 0700).has_value());
  AttemptLogs logs(fs, "/state/logs");
  ASSERT_EQ(append(logs, 0, "abc").value(), 3u);

  EXPECT_EQ(append(logs, 10, "xyz").value(), 3u);

  EXPECT_EQ(whole(logs), "abc");
}

TEST(AttemptLogs, attempts_have_their_own_logs) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  ASSERT_TRUE(make_folders(fs, "/state/logs", 0700).has_value());
  AttemptLogs logs(fs, "/state/logs");
  ASSERT_TRUE(append(logs, 0, "one").has_value());

  EXPECT_EQ(append(logs, 0, "second", {1, 2}).value(), 6u);
  EXPECT_EQ(whole(logs), "one");
}

TEST(AttemptLogs, when_bytes_came_is_kept_to_a_second_and_goes_with_the_log) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  ASSERT_TRUE(make_folders(fs, "/state/logs", 0700).has_value());
  AttemptLogs logs(fs, "/state/logs");
  std::uint64_t at = 0;
  for (const std::int64_t now_ms : {10'000, 10'900, 11'000, 15'000, 14'000}) {
    std::promise<Result<std::uint64_t>> answer;
    auto done = [&](Result<std::uint64_t> next) { answer.set_value(std::move(next)); };
    ASSERT_TRUE(logs.append(JobId("j-1"), {1, 1}, at, bytes_of("ab\n"), done, now_ms));
    at = answer.get_future().get().value();
  }

  EXPECT_EQ(
      logs.times(JobId("j-1"), {1, 1}).value(),
      (std::vector<api::LogTime>{{0, 10'000}, {6, 11'000}, {9, 15'000}, {12, 14'000}})
  );
  EXPECT_TRUE(logs.times(JobId("j-1"), {1, 2}).value().empty());
  EXPECT_TRUE(logs.remove(JobId("j-1"), 20'000).value());
  EXPECT_TRUE(logs.times(JobId("j-1"), {1, 1}).value().empty());
  EXPECT_FALSE(logs.remove(JobId("j-1"), 30'000).value());
}

TEST(AttemptLogs, a_failed_fsync_acknowledges_nothing) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  ASSERT_TRUE(make_folders(fs, "/state/logs", 0700).has_value());
  AttemptLogs logs(fs, "/state/logs");
  fs.fail_once(CrashFs::Operation::kSync, 0, ErrorCode::kInternal);

  EXPECT_EQ(append(logs, 0, "abc").error().code, ErrorCode::kInternal);
}

TEST(AttemptLogs, acknowledged_bytes_survive_a_power_cut) {
  ManualClock clock;
  CrashFs fs(clock, 5);
  ASSERT_TRUE(make_folders(fs, "/state/logs", 0700).has_value());
  ASSERT_TRUE(fs.sync_folder("/state").has_value());
  ASSERT_TRUE(fs.sync_folder("/").has_value());
  AttemptLogs logs(fs, "/state/logs");
  ASSERT_EQ(append(logs, 0, "abc").value(), 3u);

  fs.restart();

  EXPECT_EQ(whole(logs), "abc");
}

TEST(AttemptLogs, bytes_above_the_bound_are_dropped_and_still_acknowledged) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  ASSERT_TRUE(make_folders(fs, "/state/logs", 0700).has_value());
  AttemptLogs logs(fs, "/state/logs", 4);
  ASSERT_EQ(append(logs, 0, "abc").value(), 3u);

  EXPECT_EQ(append(logs, 3, "def").value(), 6u);
  EXPECT_EQ(append(logs, 6, "ghi").value(), 9u);

  EXPECT_EQ(whole(logs), "abc");
}

}  // namespace
}  // namespace rn::coordinator
