// SPDX-License-Identifier: Apache-2.0
#include "coordinator/collector.h"

#include <future>

#include <gtest/gtest.h>

#include "base/crypto.h"
#include "coordinator/sqlite_store.h"
#include "coordinator/store_fixture.h"
#include "io/real_fs.h"
#include "model/codec.h"

namespace rn::coordinator {
namespace {

constexpr std::int64_t kNowMs = 1'800'000'000'000;
constexpr std::int64_t kKeepMs = 1'000'000;
constexpr std::int64_t kKeepOutputsMs = 8'000'000;
constexpr std::int64_t kWarningMs = kKeepOutputsMs / 4;
constexpr LeaseEpoch kEpoch{1, 1};

/// A coordinator's folder on a real disk, and no coordinator.
class Collector : public testing::Test {
 protected:
  Collector() {
    EXPECT_TRUE(make_folders(fs, folder.path() + "/blobs", 0700));
    EXPECT_TRUE(make_folders(fs, folder.path() + "/logs", 0700));
    store = SqliteStore::open(folder.path()).value();
    blobs.emplace(BlobStore::open(fs, folder.path() + "/blobs").value());
    blobs->set_reserve(0);
    logs = std::make_unique<AttemptLogs>(fs, folder.path() + "/logs");
    request = {{}, kNowMs, kKeepMs, kKeepOutputsMs};
  }

  Digest put(std::string_view text) {
    const Digest name = crypto::sha256(as_bytes(text));
    EXPECT_TRUE(blobs->put(name, as_bytes(text)));
    return name;
  }

  /// A listing of one file with one blob; the listing's name.
  Digest put_listing(const std::string& text) {
    ListedFile file;
    file.path = "file";
    file.bytes = text.size();
    file.blobs = {put(text)};
    const Blob bytes = to_cbor(Listing{{file}});
    const Digest name = crypto::sha256(bytes);
    EXPECT_TRUE(blobs->put(name, bytes));
    return name;
  }

  void save(const JobRow& row) {
    const std::vector<Write> writes = {PutJob{row}};
    EXPECT_TRUE(store->apply(writes));
  }

  void write_log(const std::string& job) {
    std::promise<void> written;
    const BlobView text = as_bytes("a line\n");
    EXPECT_TRUE(logs->append(
        JobId(job),
        kEpoch,
        0,
        Blob(text.begin(), text.end()),
        [&](const Result<std::uint64_t>&) { written.set_value(); }
    ));
    written.get_future().wait();
  }

  JobRow ended(const std::string& id, std::uint64_t number, std::int64_t ago_ms) {
    JobRow row = a_job(id, number);
    row.job.state = JobState::kSucceeded;
    row.job.finished_wall_ms = kNowMs - ago_ms;
    return row;
  }

  CollectReport round() { return collect_once(*store, *blobs, *logs, request).value(); }

  std::uint64_t log_bytes(const std::string& job) {
    return logs->size(JobId(job), kEpoch).value_or(0);
  }

  ScratchFolder folder;
  io::RealFileSystem fs;
  std::unique_ptr<SqliteStore> store;
  std::optional<BlobStore> blobs;
  std::unique_ptr<AttemptLogs> logs;
  CollectRequest request;
};

TEST_F(Collector, files_of_a_job_go_when_it_ended_long_ago_and_its_outputs_were_fetched) {
  JobRow row = ended("j-1", 1, kKeepMs);
  row.job.spec.workspace = put_listing("workspace");
  row.job.outputs = put_listing("outputs");
  save(row);
  write_log("j-1");
  ASSERT_TRUE(logs->mark_fetched(JobId("j-1")));

  EXPECT_EQ(round().blobs.suspects, 4u);
  EXPECT_EQ(log_bytes("j-1"), 0u);
  EXPECT_EQ(round().blobs.blobs, 4u);

  EXPECT_FALSE(blobs->has(row.job.outputs));
  EXPECT_FALSE(blobs->has(row.job.spec.workspace));
  EXPECT_EQ(round().blobs.suspects, 0u) << "that they were fetched is not forgotten";
}

TEST_F(Collector, nothing_of_a_job_goes_that_runs_or_ended_lately_or_was_not_fetched) {
  JobRow running = a_job("j-1", 1);
  running.job.state = JobState::kRunning;
  running.job.spec.workspace = put_listing("one");
  JobRow recent = ended("j-2", 2, kKeepMs - 1);
  recent.job.spec.workspace = put_listing("two");
  JobRow unfetched = ended("j-3", 3, kKeepOutputsMs - kWarningMs - 1);
  unfetched.job.spec.workspace = put_listing("three");
  unfetched.job.outputs = put_listing("four");
  for (const JobRow* row : {&running, &recent, &unfetched}) {
    save(*row);
    write_log(row->job.id.str());
  }

  for (int i = 0; i < 3; ++i) {
    const CollectReport report = round();
    EXPECT_EQ(report.blobs.blobs + report.blobs.suspects + report.logs_of_jobs, 0u);
  }

  for (const char* job : {"j-1", "j-2", "j-3"}) EXPECT_GT(log_bytes(job), 0u) << job;
}

TEST_F(Collector, when_the_logs_of_a_job_were_removed_stays_known) {
  save(ended("j-1", 1, kKeepMs));
  save(ended("j-2", 2, kKeepMs));
  write_log("j-1");
  EXPECT_EQ(logs->removed_wall_ms(JobId("j-1")), std::nullopt);

  EXPECT_EQ(round().logs_of_jobs, 1u);
  request.now_wall_ms += 5000;
  EXPECT_EQ(round().logs_of_jobs, 0u);

  EXPECT_EQ(logs->removed_wall_ms(JobId("j-1")), kNowMs);
  EXPECT_EQ(logs->removed_wall_ms(JobId("j-2")), std::nullopt) << "it had none";
}

TEST_F(Collector, outputs_that_nobody_fetches_go_after_a_warning) {
  JobRow row = ended("j-1", 1, kKeepOutputsMs - kWarningMs);
  row.job.outputs = put_listing("outputs");
  save(row);
  write_log("j-1");

  ASSERT_EQ(round().to_warn.size(), 1u);
  ASSERT_EQ(round().to_warn.size(), 1u) << "until the warning is in the history";
  ASSERT_TRUE(logs->mark_warned(row.job.id, request.now_wall_ms));
  EXPECT_TRUE(round().to_warn.empty());
  EXPECT_GT(log_bytes("j-1"), 0u);
  request.now_wall_ms += kWarningMs - 1;
  EXPECT_TRUE(round().unfetched.empty());
  request.now_wall_ms += 1;

  const CollectReport last = round();
  ASSERT_EQ(last.unfetched.size(), 1u);
  EXPECT_EQ(last.unfetched[0].number, 1u);
  EXPECT_EQ(log_bytes("j-1"), 0u);
  const CollectReport after = round();
  EXPECT_EQ(after.blobs.blobs, 2u);
  EXPECT_TRUE(after.unfetched.empty()) << "told once";
  EXPECT_FALSE(blobs->has(row.job.outputs));
}

TEST_F(Collector, outputs_of_a_job_that_wrote_no_log_go_with_a_word_too) {
  JobRow row = ended("j-1", 1, kKeepOutputsMs - kWarningMs);
  row.job.outputs = put_listing("outputs");
  save(row);
  ASSERT_TRUE(logs->mark_warned(row.job.id, request.now_wall_ms));
  request.now_wall_ms += kWarningMs;

  EXPECT_EQ(round().unfetched.size(), 1u);
  EXPECT_TRUE(round().unfetched.empty()) << "told once";
}

TEST_F(Collector, a_coordinator_that_was_away_for_long_warns_before_it_removes) {
  JobRow row = ended("j-1", 1, kKeepOutputsMs * 10);
  row.job.outputs = put_listing("outputs");
  save(row);
  ASSERT_EQ(round().to_warn.size(), 1u);
  ASSERT_TRUE(logs->mark_warned(row.job.id, request.now_wall_ms));
  request.now_wall_ms += kWarningMs - 1;
  round();
  EXPECT_EQ(round().blobs.blobs, 0u);
  EXPECT_TRUE(blobs->has(row.job.outputs));
}

TEST_F(Collector, outputs_that_are_fetched_after_the_warning_count_as_fetched) {
  JobRow row = ended("j-1", 1, kKeepOutputsMs);
  row.job.outputs = put_listing("outputs");
  save(row);
  ASSERT_TRUE(logs->mark_warned(row.job.id, request.now_wall_ms));
  ASSERT_TRUE(logs->mark_fetched(row.job.id));
  EXPECT_TRUE(round().unfetched.empty());
  EXPECT_EQ(round().blobs.blobs, 2u);
}

TEST_F(Collector, a_blob_that_two_jobs_or_an_image_share_stays_for_the_other) {
  JobRow over = ended("j-1", 1, kKeepMs);
  over.job.spec.workspace = put_listing("shared");
  JobRow waiting = a_job("j-2", 2);
  waiting.job.spec.workspace = over.job.spec.workspace;
  save(over);
  save(waiting);
  Image image;
  image.blobs = {put("a piece of an archive")};
  request.images = {image};

  round();

  EXPECT_EQ(round().blobs.blobs, 0u);
  EXPECT_TRUE(blobs->has(image.blobs.front()));
  request.images.clear();
  round();
  EXPECT_EQ(round().blobs.blobs, 1u);
}

TEST_F(Collector, an_upload_has_a_round_to_become_a_job_and_being_asked_for_renews_it) {
  const Digest late = put("uploaded before its job was submitted");
  EXPECT_EQ(round().blobs.suspects, 1u);
  EXPECT_TRUE(blobs->has(late)) << "the next student need not upload it";

  EXPECT_EQ(round().blobs.blobs, 0u);
  EXPECT_EQ(round().blobs.blobs, 1u);
}

TEST_F(Collector, a_restart_between_rounds_only_delays) {
  put("nobody's");
  EXPECT_EQ(round().blobs.suspects, 1u);
  blobs.emplace(BlobStore::open(fs, folder.path() + "/blobs").value());

  EXPECT_EQ(round().blobs.blobs, 0u);
  EXPECT_EQ(round().blobs.blobs, 1u);
}

TEST_F(Collector, a_listing_that_cannot_be_read_protects_everything) {
  JobRow row = a_job("j-1", 1);
  row.job.spec.workspace = put("this is no listing");
  save(row);
  put("nobody's");

  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(collect_once(*store, *blobs, *logs, request).has_value());

  EXPECT_TRUE(blobs->has(crypto::sha256(as_bytes("nobody's"))));
}

TEST_F(Collector, more_jobs_than_one_page_are_all_looked_at) {
  std::vector<Write> writes;
  for (std::uint64_t n = 1; n <= 1100; ++n) {
    JobRow row = a_job("j-" + std::to_string(n), n);
    if (n == 1) row.job.spec.workspace = put_listing("the oldest job's");
    writes.push_back(PutJob{row});
  }
  ASSERT_TRUE(store->apply(writes));

  round();

  EXPECT_EQ(round().blobs.blobs, 0u);
}

}  // namespace
}  // namespace rn::coordinator
