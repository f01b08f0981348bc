// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_gang_fixture.h"

namespace rn::coordinator {
namespace {

class GangSets : public GangSite {
 protected:
  /// All leave, as told, and begin again.
  void move_on(const GangId& id) {
    take_back(id, 0, ReclaimKind::kNotice, 30);
    rest_ends(id);
    begin(id, 20'000);
  }

  std::uint32_t resumed(const GangId& id, std::uint32_t rank) {
    return told<wire::Commit>(id, rank).back().resume.generation;
  }

  wire::CollectGarbage kept(const char* holder, const JobId& job_id) {
    wire::CollectGarbage last;
    for (const auto& message : node(holder).received<wire::CollectGarbage>())
      if (message.job == job_id) last = message;
    return last;
  }
};

TEST_F(GangSets, a_set_is_complete_when_all_have_saved_the_same_step) {
  const GangId id = running_gang();
  saved(id, 0, 1, 100);
  saved(id, 2, 1, 100);
  EXPECT_EQ(gang(id).set.number, 0U);
  saved(id, 1, 1, 100);

  EXPECT_EQ(gang(id).set.number, 1U);
  EXPECT_EQ(gang(id).set.mark, 100);
  EXPECT_EQ(gang(id).set.epoch, gang(id).epoch);
  ASSERT_EQ(gang(id).set.refs.size(), 3U);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(gang(id).set.refs[rank].job, member(id, rank));
    EXPECT_EQ(gang(id).set.refs[rank].generation, 1U);
  }
}

TEST_F(GangSets, marks_may_be_skipped_and_never_go_back) {
  const GangId id = running_gang(a_gang(2));
  saved(id, 0, 1, 100);
  saved(id, 0, 2, 200);
  saved(id, 1, 1, 200);
  EXPECT_EQ(gang(id).set.mark, 200);
  // What is behind it makes none.
  saved(id, 0, 3, 150);
  saved(id, 1, 2, 150);
  EXPECT_EQ(gang(id).set.mark, 200);
  saved(id, 1, 3, 400);
  saved(id, 0, 4, 300);
  saved(id, 1, 4, 300);
  EXPECT_EQ(gang(id).set.mark, 300);
  EXPECT_EQ(gang(id).previous.mark, 200);
  EXPECT_EQ(gang(id).set.refs[0].generation, 4U);
}

TEST_F(GangSets, saves_without_a_step_are_in_no_set_and_the_author_is_told) {
  const GangId id = running_gang(a_gang(2));
  for (std::uint32_t number = 1; number <= 3; ++number) {
    saved(id, 0, number, -1);
    saved(id, 1, number, -1);
  }
  EXPECT_EQ(count_events("gang.no_set"), 0U);
  saved(id, 0, 4, -1);
  saved(id, 1, 4, -1);
  EXPECT_EQ(count_events("gang.no_set"), 1U);
  EXPECT_NE(last_event("gang.no_set").message.find("ckpt-{step}.pt"), std::string::npos);
  EXPECT_EQ(gang(id).set.number, 0U);
}

TEST_F(GangSets, members_go_on_from_the_set_and_not_from_what_they_have_alone) {
  const GangId id = running_gang();
  for (std::uint32_t rank = 0; rank < 3; ++rank) saved(id, rank, 1, 100);
  saved(id, 0, 2, 200);  // the others have not saved it
  move_on(id);

  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(resumed(id, rank), 1U);
    EXPECT_EQ(told<wire::Commit>(id, rank).back().resume_previous.generation, 0U);
  }
  EXPECT_EQ(job(member(id, 0)).durable.generation, 2U) << "its own";
}

TEST_F(GangSets, what_was_saved_in_two_epochs_makes_no_set) {
  const GangId id = running_gang(a_gang(2));
  for (std::uint32_t rank = 0; rank < 2; ++rank) saved(id, rank, 1, 100);
  saved(id, 0, 2, 200);
  move_on(id);
  saved(id, 1, 2, 200);
  EXPECT_EQ(gang(id).set.mark, 100);
  // The number that its older epoch has used counts anew.
  saved(id, 0, 2, 200);
  EXPECT_EQ(gang(id).set.mark, 200);
  EXPECT_EQ(gang(id).set.epoch, gang(id).epoch);
}

TEST_F(GangSets, with_saves_first_what_rank_0_saves_is_the_set) {
  const GangId id = running_gang(a_gang(3, GangSaves::kFirst));
  saved(id, 1, 1, 100);
  EXPECT_EQ(gang(id).set.number, 0U);
  saved(id, 0, 1, -1);
  EXPECT_EQ(gang(id).set.number, 1U);
  EXPECT_EQ(gang(id).set.refs[0].generation, 1U);
  EXPECT_EQ(gang(id).set.refs[1].generation, 0U);
  move_on(id);

  EXPECT_EQ(resumed(id, 0), 1U);
  EXPECT_EQ(resumed(id, 1), 0U);
}

TEST_F(GangSets, with_auto_rank_0_alone_makes_a_set_once_the_others_are_known_to_have_none) {
  const GangId id = running_gang(a_gang(3, GangSaves::kAuto));
  saved(id, 0, 1, 100);
  EXPECT_EQ(gang(id).set.number, 0U);
  pass(3 * config.heartbeat_ms + 1000);

  EXPECT_EQ(gang(id).set.number, 1U);
  EXPECT_FALSE(gang(id).all_save);
}

TEST_F(GangSets, with_auto_a_checkpoint_of_another_rank_means_that_all_save) {
  const GangId id = running_gang(a_gang(2, GangSaves::kAuto));
  saved(id, 0, 1, 100);
  host(id, 1).attempts.at({member(id, 1), gang(id).epoch}).checkpoints_found = 1;
  pass(3 * config.heartbeat_ms + 1000);
  EXPECT_TRUE(gang(id).all_save);
  EXPECT_EQ(gang(id).set.number, 0U);
  saved(id, 1, 1, 100);

  EXPECT_EQ(gang(id).set.number, 1U);
  EXPECT_EQ(gang(id).set.refs[1].generation, 1U);
}

TEST_F(GangSets, with_auto_who_is_lost_is_not_taken_for_one_who_saves_nothing) {
  const GangId id = running_gang(a_gang(2, GangSaves::kAuto));
  host(id, 1).beats = false;
  pass(config.heartbeat_ms);
  saved(id, 0, 1, 100);
  pass(config.lost_after * config.heartbeat_ms + config.heartbeat_ms);

  EXPECT_EQ(gang(id).set.number, 0U);
}

TEST_F(GangSets, a_set_that_is_crashed_from_at_once_is_condemned_once) {
  const GangId id = running_gang(a_gang(2));
  for (std::uint32_t rank = 0; rank < 2; ++rank) saved(id, rank, 1, 100);
  for (std::uint32_t rank = 0; rank < 2; ++rank) saved(id, rank, 2, 200);
  move_on(id);
  tell_end(id, 1, AttemptEnd::kCrashed, 1);
  rest_ends(id);
  pass(2 * config.heartbeat_ms);
  EXPECT_EQ(count_events("gang.condemned"), 1U);
  EXPECT_EQ(gang(id).set.mark, 100);
  EXPECT_EQ(gang(id).previous.number, 0U);
  for (const JobId& m : gang(id).members) EXPECT_EQ(job(m).restarts, 1U);
  begin(id, 20'000);
  EXPECT_EQ(resumed(id, 0), 1U);
  EXPECT_EQ(resumed(id, 1), 1U);

  tell_end(id, 1, AttemptEnd::kCrashed, 1);
  rest_ends(id);
  pass(2 * config.heartbeat_ms);
  EXPECT_EQ(gang(id).state, GangState::kOver);
  EXPECT_TRUE(are_all(id, JobState::kFailed));
}

TEST_F(GangSets, a_set_is_not_condemned_where_machines_have_broken_links) {
  const GangId id = running_gang(a_gang(2));
  for (std::uint32_t rank = 0; rank < 2; ++rank) saved(id, rank, 1, 100);
  for (std::uint32_t rank = 0; rank < 2; ++rank) saved(id, rank, 2, 200);
  move_on(id);
  host(id, 0).attempts.at({member(id, 0), gang(id).epoch}).links_broken = 1;
  tell_end(id, 1, AttemptEnd::kCrashed, 1);
  pass(2 * config.heartbeat_ms);
  rest_ends(id);

  EXPECT_EQ(count_events("gang.restart"), 1U);
  EXPECT_EQ(count_events("gang.condemned"), 0U);
  EXPECT_EQ(gang(id).set.mark, 200);
}

TEST_F(GangSets, a_set_that_two_nodes_cannot_put_back_is_condemned) {
  const GangId id = running_gang(a_gang(2));
  for (std::uint32_t rank = 0; rank < 2; ++rank) saved(id, rank, 1, 100);
  for (std::uint32_t rank = 0; rank < 2; ++rank) saved(id, rank, 2, 200);
  take_back(id, 0, ReclaimKind::kNotice, 30);
  rest_ends(id);
  for (int tries = 0; tries < 2; ++tries) {
    EXPECT_EQ(gang(id).set.mark, 200);
    prepare(id, 20'000);
    tell_end(id, 1, AttemptEnd::kRefused);
    rest_ends(id);
  }
  EXPECT_EQ(gang(id).set.mark, 100);
  EXPECT_EQ(job(member(id, 1)).restarts, 0U);
}

TEST_F(GangSets, holders_keep_the_two_newest_sets_and_what_may_become_one) {
  const GangId id = running_gang(a_gang(2));
  const JobId first = member(id, 0);
  for (std::uint32_t number = 1; number <= 3; ++number)
    for (std::uint32_t rank = 0; rank < 2; ++rank) saved(id, rank, number, number * 100);
  EXPECT_EQ(kept("store", first).keep_from, 3U);
  EXPECT_EQ(kept("store", first).also_keep, (std::vector<std::uint32_t>{2}));
  // Rank 1 falls behind: of what waits for it the oldest and the newest four are kept.
  for (std::uint32_t number = 4; number <= 13; ++number) saved(id, 0, number, number * 100);
  connect(node("store"));
  EXPECT_EQ(kept("store", first).keep_from, 10U);
  EXPECT_EQ(kept("store", first).also_keep, (std::vector<std::uint32_t>{2, 3, 4, 5, 6, 7}));
  // What was given up makes no set.
  saved(id, 1, 4, 800);
  EXPECT_EQ(gang(id).set.mark, 300);
  saved(id, 1, 5, 1000);
  EXPECT_EQ(gang(id).set.mark, 1000);
}

TEST_F(GangSets, a_number_that_an_older_epoch_has_used_is_kept_before_it_is_durable) {
  const GangId id = running_gang(a_gang(2));
  for (std::uint32_t rank = 0; rank < 2; ++rank) saved(id, rank, 1, 100);
  for (std::uint32_t number = 2; number <= 4; ++number) saved(id, 0, number, number * 100);
  move_on(id);
  saved(id, 0, 2, 150);
  connect(node("store"));

  EXPECT_EQ(kept("store", member(id, 0)).keep_from, 3U) << "3 may be on its way";
}

TEST_F(GangSets, only_who_knows_what_sets_need_holds_copies_of_members) {
  node("archive").hello.facts.features.clear();
  connect(node("archive"));
  const GangId id = running_gang(a_gang(2));
  const auto copies = told<wire::Commit>(id, 0).back().plan.copies;
  ASSERT_FALSE(copies.empty());
  for (const PeerGrant& copy : copies) EXPECT_NE(copy.node, node("archive").id);
}

TEST_F(GangSets, after_a_restart_with_auto_who_has_ended_without_saves_is_waited_for_no_more) {
  const GangId id = running_gang(a_gang(2, GangSaves::kAuto));
  tell_end(id, 1, AttemptEnd::kSucceeded);
  restart();
  for (auto& [node_id, agent] : agents) connect(agent);
  settle();
  saved(id, 0, 1, 100);

  EXPECT_EQ(gang(id).set.number, 1U);
}

TEST_F(GangSets, after_a_restart_the_set_is_what_members_go_on_from) {
  const GangId id = running_gang(a_gang(2));
  for (std::uint32_t rank = 0; rank < 2; ++rank) saved(id, rank, 1, 100);
  saved(id, 0, 2, 200);
  restart();
  for (auto& [node_id, agent] : agents) connect(agent);
  settle();
  saved(id, 1, 2, 200);
  EXPECT_EQ(gang(id).set.mark, 200) << "candidates are found from the rows";
  saved(id, 0, 3, 300);
  move_on(id);
  EXPECT_EQ(resumed(id, 0), 2U);
  EXPECT_EQ(resumed(id, 1), 2U);
}

TEST_F(GangSets, the_last_saves_of_a_gang_that_stops_make_a_set) {
  const GangId id = running_gang(a_gang(2));
  take_back(id, 0, ReclaimKind::kNotice, 60);
  all_tell_phase(id, AttemptState::kDraining);
  saved(id, 1, 1, 100);
  tell_end(id, 1, AttemptEnd::kMigrated);
  saved(id, 0, 1, 100);
  tell_end(id, 0, AttemptEnd::kReclaimed);

  EXPECT_EQ(gang(id).set.mark, 100);
  EXPECT_EQ(last_event("gang.waiting").data.at("mark"), "100");
}

}  // namespace
}  // namespace rn::coordinator
