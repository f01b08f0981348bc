// SPDX-License-Identifier: Apache-2.0
#include "coordinator/states.h"

#include <gtest/gtest.h>

namespace rn::coordinator {
namespace {

using ToldStates = std::map<std::string, std::string>;

PutJob put(const char* id, JobState state) {
  JobRow row;
  row.job.id = JobId(id);
  row.job.state = state;
  return {row};
}

AppendEvent event(const char* kind, const char* job) {
  EventRow row;
  row.kind = kind;
  row.job = JobId(job);
  return {row};
}

States replayed(const std::vector<Write>& writes) {
  States states;
  for (const Write& write : writes) {
    if (const auto* one = std::get_if<AppendEvent>(&write)) replay(one->row, states);
  }
  return states;
}

TEST(States, a_change_stands_in_the_event_about_its_job) {
  std::vector<Write> writes{
      put("j-1", JobState::kQueued), event("job.submitted", "j-2"), event("job.submitted", "j-1")};
  States told;
  record_states(writes, told, 5);
  ASSERT_EQ(writes.size(), 3u);
  EXPECT_TRUE(std::get<AppendEvent>(writes[1]).row.states.empty());
  EXPECT_EQ(std::get<AppendEvent>(writes[2]).row.states, (ToldStates{{"job j-1", "queued"}}));
}

TEST(States, a_change_that_nothing_tells_gets_an_event_of_its_own) {
  std::vector<Write> writes{put("j-1", JobState::kQueued)};
  States told;
  record_states(writes, told, 5);
  ASSERT_EQ(writes.size(), 2u);
  EXPECT_EQ(std::get<AppendEvent>(writes[1]).row.kind, "job.state");
  EXPECT_EQ(std::get<AppendEvent>(writes[1]).row.at_wall_ms, 5);
}

TEST(States, what_has_not_changed_is_not_told_again) {
  std::vector<Write> writes{put("j-1", JobState::kRunning)};
  States told{{"job j-1", "running"}};
  record_states(writes, told, 5);
  EXPECT_EQ(writes.size(), 1u);
}

TEST(States, two_changes_of_one_job_are_told_in_their_order) {
  std::vector<Write> writes{
      event("job.displaced", "j-1"),
      put("j-1", JobState::kDraining),
      put("j-1", JobState::kQueued)};
  States told{{"job j-1", "running"}};
  record_states(writes, told, 5);
  EXPECT_EQ(replayed(writes), (States{{"job j-1", "queued"}}));
  EXPECT_EQ(std::get<AppendEvent>(writes[0]).row.states.at("job j-1"), "draining");
}

TEST(States, a_gangs_change_stands_in_the_event_about_its_first_member) {
  const GangRow row{
      .id = GangId("g-1"), .members = {JobId("j-1"), JobId("j-2")}, .state = GangState::kPreparing};
  std::vector<Write> writes{PutGang{row}, event("gang.preparing", "j-1")};
  States told;
  record_states(writes, told, 5);
  ASSERT_EQ(writes.size(), 2u);
  EXPECT_EQ(std::get<AppendEvent>(writes[1]).row.states, (ToldStates{{"gang g-1", "preparing"}}));
  Snapshot snapshot;
  snapshot.gangs = {row};
  EXPECT_EQ(states_of(snapshot), replayed(writes));
}

}  // namespace
}  // namespace rn::coordinator
