// SPDX-License-Identifier: Apache-2.0
#include "coordinator/store.h"

#include <filesystem>
#include <functional>
#include <memory>

#include <gtest/gtest.h>

#include "coordinator/sqlite_store.h"
#include "coordinator/store_fixture.h"

namespace rn::coordinator {
namespace {

/// The conformance suite: what every Store must do. A new engine adds itself at the end of the
/// file.
struct Engine {
  const char* name;
  /// Opens the store of a folder; called again for the same folder it finds what was written.
  std::function<Result<std::unique_ptr<Store>>(const std::string& folder)> open;
};

GangRow a_gang(const char* id, std::vector<const char*> jobs, GangState state) {
  GangRow row{.id = GangId(id), .owner = UserId("ann"), .lab = LabId("lab-a")};
  for (const char* job : jobs) row.members.emplace_back(job);
  row.size = static_cast<std::uint32_t>(jobs.size());
  row.state = state;
  row.epoch = {1, 2};
  row.set = {.number = 3, .mark = 400, .epoch = {1, 1}};
  row.set.refs.resize(jobs.size());
  return row;
}

class StoreConformance : public testing::TestWithParam<Engine> {
 protected:
  void SetUp() override { reopen(); }

  void reopen() {
    store_.reset();
    auto opened = GetParam().open(folder_.path());
    ASSERT_TRUE(opened.has_value()) << opened.error().describe();
    store_ = *std::move(opened);
  }

  Status apply(std::vector<Write> writes) { return store_->apply(writes); }

  ScratchFolder folder_;
  std::unique_ptr<Store> store_;
};

TEST_P(StoreConformance, an_empty_store_loads_as_nothing) {
  const auto snapshot = store_->load();

  ASSERT_TRUE(snapshot.has_value()) << snapshot.error().describe();
  EXPECT_TRUE(snapshot->jobs.empty());
  EXPECT_TRUE(snapshot->nodes.empty());
  EXPECT_TRUE(snapshot->tokens.empty());
}

TEST_P(StoreConformance, every_kind_of_row_comes_back_after_reopening) {
  const JobRow job = a_job("j-1", 1);
  AttemptRow attempt;
  attempt.attempt = {.job = job.job.id, .epoch = {1, 1}, .node = NodeId("n-1")};
  NodeRow node{.node = NodeId("n-1"), .lab = LabId("lab-a"), .machine_id = "m"};
  ReclaimRow reclaim;
  reclaim.record.id = ReclaimId("r-1");
  reclaim.record.node = NodeId("n-1");
  const Image image{.name = "base", .digest = "sha256:aa"};
  const TokenRow token{.id = "t-1", .secret_hash = {7}, .lab = LabId("lab-a")};
  const UserRow user{.user = UserId("ann"), .lab = LabId("lab-a")};
  const UsageRow usage{.user = UserId("ann"), .lab = LabId("lab-a"), .used_gpu_s = 1.5};
  const UsageRow lent{.user = UserId(""), .lab = LabId("lab-a"), .lent_gpu_s = 2.5};
  GenerationRow generation;
  generation.generation = {.job = job.job.id, .epoch = {1, 1}, .generation = 3};
  const reclaim::CampusHazard campus{.reference_ms = 7, .base = {.events = 0.1, .exposure_s = 1e9}};
  const reclaim::LabHazard lab{.lab = LabId("lab-a"), .rate = {.events = 2}};
  const reclaim::NodeHazard owner{.node = NodeId("n-1"), .lab = LabId("lab-a"), .is_lent = true};
  const Quota quota{.subject = "user:ann", .gpus = 4, .gpu_hours = 1.5};
  const Quota of_model{.subject = "user:ann", .gpu_model = "H100", .gpus = 1};
  const GpuHourRow hour{.user = UserId("ann"), .lab = LabId("lab-a"), .hour = 7, .gpu_s = 3600};
  const GangRow gang = a_gang("g-1", {"j-1", "j-2"}, GangState::kPreparing);
  ASSERT_TRUE(apply({PutQuota{quota}, PutQuota{of_model}, PutGpuHour{hour}, PutGang{gang}}));
  ASSERT_TRUE(apply({PutCampusHazard{}, PutLabHazard{lab}, PutNodeHazard{owner}}));
  ASSERT_TRUE(apply({PutCampusHazard{campus}}));

  ASSERT_TRUE(apply({SetMeta{"generation", "1"}, PutJob{job}, PutAttempt{attempt}, PutNode{node}}));
  ASSERT_TRUE(apply({PutReclaim{reclaim}, PutImage{image}, PutToken{token}, PutUser{user}}));
  ASSERT_TRUE(apply({PutUsage{usage}, PutUsage{lent}, PutGeneration{generation, {1, 1}}}));
  reopen();
  const Snapshot snapshot = store_->load().value();

  EXPECT_EQ(snapshot.meta.at("generation"), "1");
  EXPECT_EQ(snapshot.jobs, std::vector{job});
  EXPECT_EQ(snapshot.attempts, std::vector{attempt});
  EXPECT_EQ(snapshot.nodes, std::vector{node});
  EXPECT_EQ(snapshot.reclaims, std::vector{reclaim});
  EXPECT_EQ(snapshot.images, std::vector{image});
  EXPECT_EQ(snapshot.tokens, std::vector{token});
  EXPECT_EQ(snapshot.users, std::vector{user});
  EXPECT_EQ(snapshot.usage, (std::vector{lent, usage}));
  EXPECT_EQ(snapshot.generations, std::vector{generation});
  EXPECT_EQ(snapshot.campus_hazard, campus);
  EXPECT_EQ(snapshot.lab_hazards, std::vector{lab});
  EXPECT_EQ(snapshot.node_hazards, std::vector{owner});
  EXPECT_EQ(snapshot.quotas, (std::vector{quota, of_model}));
  EXPECT_EQ(snapshot.gpu_hours, std::vector{hour});
  EXPECT_EQ(snapshot.gangs, std::vector{gang});
}

TEST_P(StoreConformance, a_gang_that_is_over_is_loaded_with_its_first_job_and_not_without) {
  JobRow finished = a_job("j-1", 1);
  finished.job.state = JobState::kSucceeded;
  const GangRow over = a_gang("g-1", {"j-1", "j-2"}, GangState::kOver);
  const GangRow forgotten = a_gang("g-2", {"j-8", "j-9"}, GangState::kOver);
  const GangRow waiting = a_gang("g-3", {"j-3", "j-4"}, GangState::kWaiting);

  ASSERT_TRUE(apply({PutJob{finished}, PutGang{over}, PutGang{forgotten}, PutGang{waiting}}));

  EXPECT_EQ(store_->load()->gangs, (std::vector{over, waiting}));
}

TEST_P(StoreConformance, a_quota_is_removed_alone_and_hours_are_dropped_up_to_one) {
  const Quota quota{.subject = "user:ann", .gpus = 4};
  const Quota of_model{.subject = "user:ann", .gpu_model = "H100", .gpus = 1};
  const GpuHourRow early{.user = UserId("ann"), .hour = 7, .gpu_s = 1};
  const GpuHourRow late{.user = UserId("ann"), .hour = 8, .gpu_s = 2};
  ASSERT_TRUE(apply({PutQuota{quota}, PutQuota{of_model}, PutGpuHour{early}, PutGpuHour{late}}));

  ASSERT_TRUE(apply({DeleteQuota{"user:ann", "H100"}, DropGpuHours{8}}));

  EXPECT_EQ(store_->load()->quotas, std::vector{quota});
  EXPECT_EQ(store_->load()->gpu_hours, std::vector{late});
}

TEST_P(StoreConformance, a_put_replaces_the_row_of_the_same_key) {
  JobRow job = a_job("j-1", 1);
  ASSERT_TRUE(apply({PutJob{job}}));
  job.job.state = JobState::kRunning;
  job.wrapped_key = {9, 9};

  ASSERT_TRUE(apply({PutJob{job}}));

  EXPECT_EQ(store_->load()->jobs, std::vector{job});
}

TEST_P(StoreConformance, a_generation_of_a_stale_epoch_is_refused_and_its_whole_batch_with_it) {
  JobRow job = a_job("j-1", 1);
  job.job.epoch = {1, 2};
  ASSERT_TRUE(apply({PutJob{job}}));
  GenerationRow generation;
  generation.generation = {.job = job.job.id, .epoch = {1, 1}, .generation = 3};

  const Status status =
      apply({PutUser{UserRow{.user = UserId("ann")}}, PutGeneration{generation, {1, 1}}});

  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kConflict);
  EXPECT_TRUE(store_->load()->generations.empty());
  EXPECT_TRUE(store_->load()->users.empty());
}

TEST_P(StoreConformance, outputs_of_a_stale_epoch_are_refused) {
  JobRow job = a_job("j-1", 1);
  job.job.epoch = {1, 2};
  ASSERT_TRUE(apply({PutJob{job}}));

  const OutputsRow stale{.job = job.job.id, .epoch = {1, 1}};
  const OutputsRow current{.job = job.job.id, .epoch = {1, 2}};

  EXPECT_EQ(apply({PutOutputs{stale}}).error().code, ErrorCode::kConflict);
  EXPECT_TRUE(apply({PutOutputs{current}}).has_value());
}

TEST_P(StoreConformance, a_condition_sees_the_earlier_writes_of_its_batch) {
  JobRow job = a_job("j-1", 1);
  ASSERT_TRUE(apply({PutJob{job}}));
  job.job.epoch = {1, 5};
  GenerationRow generation;
  generation.generation = {.job = job.job.id, .epoch = {1, 5}, .generation = 1};

  EXPECT_TRUE(apply({PutJob{job}, PutGeneration{generation, {1, 5}}}).has_value());
}

TEST_P(StoreConformance, two_jobs_cannot_have_one_number) {
  ASSERT_TRUE(apply({PutJob{a_job("j-1", 1)}}));

  EXPECT_EQ(apply({PutJob{a_job("j-2", 1)}}).error().code, ErrorCode::kConflict);
}

TEST_P(StoreConformance, events_are_numbered_from_one_without_holes_and_chained) {
  ASSERT_TRUE(apply({AppendEvent{an_event("job.submitted", "j-1")}}));
  reopen();
  ASSERT_TRUE(apply(
      {AppendEvent{an_event("job.started", "j-1")}, AppendEvent{an_event("node.lost", "j-2")}}
  ));

  const auto events = store_->events({}).value();
  const auto report = store_->verify_chain().value();

  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].seq, 1u);
  EXPECT_EQ(events[2].seq, 3u);
  EXPECT_EQ(events[2].row.kind, "node.lost");
  EXPECT_EQ(report.events, 3u);
  EXPECT_EQ(report.first_bad_seq, 0u);
  EXPECT_EQ(report.head, events[2].hash);
  EXPECT_FALSE(report.missing_to.has_value());
}

TEST_P(StoreConformance, a_refused_batch_leaves_no_hole_in_the_chain) {
  ASSERT_TRUE(apply({AppendEvent{an_event("a", "j-1")}}));
  const GenerationRow orphan{.generation = {.job = JobId("j-none")}};
  ASSERT_FALSE(apply({AppendEvent{an_event("b", "j-1")}, PutGeneration{orphan, {1, 1}}}));

  ASSERT_TRUE(apply({AppendEvent{an_event("c", "j-1")}}));

  EXPECT_EQ(store_->events({}).value().back().seq, 2u);
  EXPECT_EQ(store_->verify_chain()->first_bad_seq, 0u);
}

TEST_P(StoreConformance, events_are_found_by_job_kind_and_place) {
  ASSERT_TRUE(apply(
      {AppendEvent{an_event("job.submitted", "j-1")},
       AppendEvent{an_event("job.started", "j-1")},
       AppendEvent{an_event("job.submitted", "j-2")}}
  ));

  EXPECT_EQ(store_->events({.job = JobId("j-1")})->size(), 2u);
  EXPECT_EQ(store_->events({.kind_prefix = "job.s"})->size(), 3u);
  EXPECT_EQ(store_->events({.kind_prefix = "job.submitted"})->size(), 2u);
  EXPECT_EQ(store_->events({.after = 2})->front().row.job, JobId("j-2"));
  EXPECT_EQ(store_->events({.is_newest_first = true, .limit = 1})->front().seq, 3u);
}

TEST_P(StoreConformance, jobs_are_found_by_id_number_and_owner) {
  JobRow done = a_job("j-1", 1);
  done.job.state = JobState::kSucceeded;
  JobRow other = a_job("j-2", 2);
  other.job.owner = UserId("bob");
  ASSERT_TRUE(apply({PutJob{done}, PutJob{other}}));

  EXPECT_EQ(store_->find_job(JobId("j-1")).value(), done.job);
  EXPECT_EQ(store_->find_job(2).value(), other.job);
  EXPECT_EQ(store_->find_job(3).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store_->jobs({}).value(), std::vector{other.job});
  EXPECT_EQ(store_->jobs({.with_finished = true}).value(), (std::vector{other.job, done.job}));
  EXPECT_EQ(
      store_->jobs({.owner = UserId("ann"), .with_finished = true}).value(), std::vector{done.job}
  );
}

TEST_P(StoreConformance, rollups_are_found_by_node_and_time) {
  RollupRow early{.node = NodeId("n-1"), .bucket_wall_ms = 1000, .samples = 3};
  early.gpus.push_back({.index = 1, .utilisation_percent = 55.5});
  const RollupRow late{.node = NodeId("n-1"), .bucket_wall_ms = 2000};
  const RollupRow other{.node = NodeId("n-2"), .bucket_wall_ms = 1000};
  ASSERT_TRUE(apply({PutRollup{early}, PutRollup{late}, PutRollup{other}}));

  EXPECT_EQ(
      store_->rollups({.node = NodeId("n-1"), .to_wall_ms = 2000}).value(), std::vector{early}
  );
}

TEST_P(StoreConformance, a_store_says_that_it_takes_writes) {
  EXPECT_TRUE(store_->check_writable().has_value());
}

INSTANTIATE_TEST_SUITE_P(
    Engines,
    StoreConformance,
    testing::Values(Engine{
        "sqlite",
        [](const std::string& folder) -> Result<std::unique_ptr<Store>> {
          RN_TRY(auto store, SqliteStore::open(folder));
          return std::unique_ptr<Store>(std::move(store));
        }}),
    [](const auto& engine) { return std::string(engine.param.name); }
);

}  // namespace
}  // namespace rn::coordinator
