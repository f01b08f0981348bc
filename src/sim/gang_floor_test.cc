// SPDX-License-Identifier: Apache-2.0
#include "sim/gang_floor.h"

#include <memory>

#include <gtest/gtest.h>

#include "sim/machine.h"

namespace rn::sim {
namespace {

constexpr LeaseEpoch kFirst{1, 1};

Training a_member(std::uint32_t rank, std::uint32_t size = 2, bool all_save = true) {
  Training training;
  training.gang = "g-1";
  training.rank = rank;
  training.size = size;
  training.all_save = all_save;
  training.steps = 30;
  training.save_every = 10;
  return training;
}

/// Two machines, and a guest of one gang on each.
struct TwoMachines {
  TwoMachines() {
    for (const char* name : {"a", "b"}) {
      machines.push_back(std::make_unique<Machine>(world, name, 1, nanoseconds(0)));
      machines.back()->add_image("sha256:img");
      machines.back()->join(floor);
    }
  }

  static std::string work() { return "/attempts/one/work"; }

  static GuestName guest(std::uint32_t rank) {
    return {JobId("j-" + std::to_string(rank)), kFirst};
  }

  void begin(std::uint32_t rank, const Training& training) {
    Machine& machine = *machines[rank];
    ASSERT_TRUE(make_folders(machine.disk(), work(), 0755));
    ASSERT_TRUE(make_folders(machine.disk(), parent_folder(work()) + "/reclaim", 0755));
    warden_wire::StartGuest start;
    start.image_digest = "sha256:img";
    start.cpu_milli = 1000;
    start.env = training.spec().env;
    start.env["RECLAIM_GANG"] = training.gang;
    start.env["RECLAIM_NODE_RANK"] = std::to_string(training.rank);
    start.env["RECLAIM_NODES_NUM"] = std::to_string(training.size);
    ASSERT_TRUE(machine.create(guest(rank), start, 0, work()));
    ASSERT_TRUE(machine.go(guest(rank)));
  }

  void run_for(nanoseconds length) {
    const TrueTime until = world.now() + length;
    while (world.now() < until && world.queue().step()) continue;
  }

  const Machine::Container& container(std::uint32_t rank) {
    return *machines[rank]->find(guest(rank));
  }

  World world{1};
  GangFloor floor{world};
  std::vector<std::unique_ptr<Machine>> machines;
};

TEST(GangFloor, members_compute_in_lockstep_what_the_site_expects_of_them) {
  TwoMachines site;
  for (std::uint32_t rank : {0U, 1U}) site.begin(rank, a_member(rank));
  site.run_for(std::chrono::minutes(2));
  for (std::uint32_t rank : {0U, 1U}) {
    EXPECT_EQ(site.container(rank).state, Machine::ContainerState::kExited);
    EXPECT_EQ(site.container(rank).exit_code, 0);
    EXPECT_EQ(site.container(rank).progress.chain, state_after(30, rank, 2).chain);
  }
}

TEST(GangFloor, who_began_from_another_step_gets_a_state_that_no_step_has) {
  TwoMachines site;
  const Training ahead = a_member(1);
  ASSERT_TRUE(make_folders(site.machines[1]->disk(), TwoMachines::work(), 0755));
  const GangChains chains{state_after(10, 0, 2).chain, state_after(10, 1, 2).chain};
  site.machines[1]->disk().overwrite(
      TwoMachines::work() + "/" + ahead.checkpoint_name(), gang_checkpoint_of(ahead, 10, chains)
  );
  for (std::uint32_t rank : {0U, 1U}) site.begin(rank, a_member(rank));
  EXPECT_EQ(site.container(1).progress.step, 10U);
  site.run_for(seconds(8));
  const TrainingState& mixed = site.container(0).progress;
  ASSERT_GT(mixed.step, 2U);
  EXPECT_NE(mixed.chain, state_after(mixed.step, 0, 2).chain);
}

TEST(GangFloor, a_member_crashes_soon_after_another_is_gone) {
  TwoMachines site;
  for (std::uint32_t rank : {0U, 1U}) site.begin(rank, a_member(rank));
  site.run_for(seconds(5));
  site.machines[1]->kill(TwoMachines::guest(1));
  site.run_for(seconds(5));
  EXPECT_EQ(site.container(0).state, Machine::ContainerState::kRunning);
  site.run_for(seconds(20));
  EXPECT_EQ(site.container(0).state, Machine::ContainerState::kExited);
  EXPECT_EQ(site.container(0).exit_code, 1);
}

TEST(GangFloor, a_member_waits_longer_for_who_has_not_begun) {
  TwoMachines site;
  site.begin(0, a_member(0));
  site.run_for(std::chrono::minutes(2));
  EXPECT_EQ(site.container(0).state, Machine::ContainerState::kRunning);
  site.begin(1, a_member(1));
  site.run_for(std::chrono::minutes(2));
  EXPECT_EQ(site.container(0).exit_code, 0);
  EXPECT_EQ(site.container(0).state, Machine::ContainerState::kExited);
}

TEST(GangFloor, all_save_after_the_same_step_if_one_is_told) {
  TwoMachines site;
  for (std::uint32_t rank : {0U, 1U}) {
    Training member = a_member(rank);
    member.handles_term = true;
    member.save_every = 1000;
    site.begin(rank, member);
  }
  site.run_for(seconds(5));
  EXPECT_EQ(site.machines[1]->signal_term(TwoMachines::guest(1)), 1U);
  site.run_for(seconds(3));
  std::vector<std::uint64_t> steps;
  for (std::uint32_t rank : {0U, 1U}) {
    const Training member = a_member(rank);
    const auto saved = read_gang_checkpoint(
        site.machines[rank]->disk(), TwoMachines::work() + "/" + member.checkpoint_name(), member
    );
    steps.push_back(saved.step);
    EXPECT_EQ(saved.chain, state_after(saved.step, rank, 2).chain);
  }
  EXPECT_GT(steps[0], 0U);
  EXPECT_EQ(steps[0], steps[1]);
}

TEST(GangFloor, a_word_of_another_epoch_is_not_heard) {
  World world(1);
  GangFloor floor(world);
  floor.say(a_member(0), kFirst, "a", {1, false});
  floor.say(a_member(1), {1, 2}, "b", {2, false});
  EXPECT_FALSE(floor.hear(a_member(0), kFirst, "a", 0));
  EXPECT_FALSE(floor.hear(a_member(1), {1, 2}, "b", 0));
}

TEST(GangFloor, a_word_over_a_cut_line_is_not_heard) {
  World world(1);
  GangFloor floor(world);
  floor.say(a_member(0), kFirst, "a", {1, false});
  floor.say(a_member(1), kFirst, "b", {2, false});
  EXPECT_TRUE(floor.hear(a_member(0), kFirst, "a", 0));
  world.network().cut("b", "a");
  EXPECT_FALSE(floor.hear(a_member(0), kFirst, "a", 0));
}

TEST(GangCheckpoint, of_rank_0_that_saves_for_all_each_rank_reads_its_own) {
  World world(1);
  Machine machine(world, "a", 1, nanoseconds(0));
  const Training writer = a_member(0, 3, false);
  GangChains chains;
  for (std::uint32_t rank = 0; rank < 3; ++rank) chains.push_back(state_after(7, rank, 3).chain);
  machine.disk().overwrite("/model.safetensors", gang_checkpoint_of(writer, 7, chains));
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const Training reader = a_member(rank, 3, false);
    EXPECT_EQ(reader.checkpoint_name(), "model.safetensors");
    const auto state = read_gang_checkpoint(machine.disk(), "/model.safetensors", reader);
    EXPECT_EQ(state.step, 7U);
    EXPECT_EQ(state.chain, chains[rank]);
  }
}

TEST(GangCheckpoint, of_another_rank_or_of_another_size_is_none) {
  World world(1);
  Machine machine(world, "a", 1, nanoseconds(0));
  const GangChains chains{state_after(7, 0, 2).chain, state_after(7, 1, 2).chain};
  machine.disk().overwrite("/m", gang_checkpoint_of(a_member(1), 7, chains));
  EXPECT_EQ(read_gang_checkpoint(machine.disk(), "/m", a_member(1)).step, 7U);
  EXPECT_EQ(read_gang_checkpoint(machine.disk(), "/m", a_member(0)).step, 0U);
  EXPECT_EQ(read_gang_checkpoint(machine.disk(), "/m", a_member(1, 3)).step, 0U);
}

}  // namespace
}  // namespace rn::sim
