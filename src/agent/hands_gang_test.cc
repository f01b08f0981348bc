// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "agent/hands_fixture.h"
#include "agent/local_work.h"
#include "checkpoint/manifest.h"

namespace rn::agent {
namespace {

/// What rank 0 of a gang saved lies here; rank 1 is to begin.
class HandsOfAGang : public HandsTest {
 protected:
  HandsOfAGang() {
    run(a_start("disk"));
    put(in_work("disk", "shard-0.bin"), "of rank 0");
    put(in_work("disk", "both.bin"), "as rank 0 has it");
    put(in_work("disk", "notes.txt"), "rank 0 was here");
    TakeSnapshot w = a_snapshot(1);
    w.spec.paths = {"*.bin"};
    const WorkResult taken = run(w);
    EXPECT_TRUE(std::holds_alternative<SnapshotTaken>(taken));
    if (const auto* made = std::get_if<SnapshotTaken>(&taken)) of_rank_0 = made->generation;
    guest.job = JobId("j-fedcba9876543210");
    sealed = crypto::seal_for(identity.box.public_key, job_key, as_bytes(guest.job.str()), rng);
  }

  PrepareWork a_start_of_rank_1() {
    PrepareWork w = a_start("other");
    w.shares = {{0, of_rank_0, {}}};
    w.checkpoint_paths = {"*.bin"};
    return w;
  }

  TakeSnapshot a_save_of_rank_1() {
    TakeSnapshot w = a_snapshot(1);
    w.disk = folder + "/other";
    w.spec.paths = {"shard-1.bin"};
    std::this_thread::sleep_for(milliseconds(20));
    w.guest_since_ns = guest_since_ns;
    return w;
  }

  /// Files carry the kernel's tick: what was laid out lies before the guest's begin.
  void guest_begins() {
    std::this_thread::sleep_for(milliseconds(20));
    guest_since_ns = (to_ms(clock.now().wall) + 1) * 1'000'000;
    std::this_thread::sleep_for(milliseconds(20));
  }

  std::vector<std::string> files_of(const WorkResult& result) {
    std::vector<std::string> out;
    const auto* const taken = std::get_if<SnapshotTaken>(&result);
    EXPECT_NE(taken, nullptr);
    if (taken == nullptr) return out;
    const auto sealed_manifest = store->load_manifest(guest.job, taken->generation.manifest);
    EXPECT_TRUE(sealed_manifest);
    if (!sealed_manifest) return out;
    const auto manifest = checkpoint::parse_manifest(sealed_manifest->body);
    EXPECT_TRUE(manifest);
    if (!manifest) return out;
    for (const FileEntry& file : manifest->files) out.push_back(file.path);
    return out;
  }

  GenerationRef of_rank_0;
  std::int64_t guest_since_ns = 0;
};

TEST_F(HandsOfAGang, a_member_finds_the_checkpoints_of_the_others_and_nothing_else_of_theirs) {
  ASSERT_TRUE(std::holds_alternative<WorkPrepared>(run(a_start_of_rank_1())));
  EXPECT_EQ(text_of(in_work("other", "shard-0.bin")), "of rank 0");
  EXPECT_EQ(text_of(in_work("other", "both.bin")), "as rank 0 has it");
  EXPECT_FALSE(fs.stat(folder + "/" + in_work("other", "notes.txt")));
}

TEST_F(HandsOfAGang, what_lies_behind_a_link_of_the_members_own_is_not_asked_after) {
  const std::string work = folder + "/linked";
  ASSERT_TRUE(make_folders(fs, work, 0755));
  ASSERT_TRUE(make_folders(fs, folder + "/outside", 0755));
  ASSERT_TRUE(fs.make_symlink(folder + "/outside", work + "/saves"));
  Manifest manifest;
  for (const char* const path : {"saves/a.bin", "b.bin"}) {
    FileEntry file;
    file.path = path;
    file.kind = FileKind::kRegular;
    manifest.files.push_back(file);
  }

  EXPECT_EQ(missing_of(fs, work, {"*.bin", "saves"}, manifest), std::set<std::string>{"b.bin"})
      << "whether there is an a.bin outside must make no difference";
}

TEST_F(HandsOfAGang, its_own_save_wins) {
  ASSERT_TRUE(std::holds_alternative<WorkPrepared>(run(a_start("other"))));
  put(in_work("other", "shard-1.bin"), "of rank 1");
  put(in_work("other", "both.bin"), "as rank 1 has it");
  TakeSnapshot save = a_save_of_rank_1();
  save.guest_since_ns = 0;
  const WorkResult own = run(save);
  ASSERT_TRUE(std::holds_alternative<SnapshotTaken>(own));
  PrepareWork again = a_start_of_rank_1();
  again.resume = std::get<SnapshotTaken>(own).generation;
  ASSERT_TRUE(std::holds_alternative<WorkPrepared>(run(again)));
  EXPECT_EQ(text_of(in_work("other", "both.bin")), "as rank 1 has it");
  EXPECT_EQ(text_of(in_work("other", "shard-1.bin")), "of rank 1");
  EXPECT_EQ(text_of(in_work("other", "shard-0.bin")), "of rank 0");
}

TEST_F(HandsOfAGang, what_came_from_the_others_is_no_part_of_its_own_generation) {
  ASSERT_TRUE(std::holds_alternative<WorkPrepared>(run(a_start_of_rank_1())));
  guest_begins();
  put(in_work("other", "shard-1.bin"), "of rank 1");
  const auto files = files_of(run(a_save_of_rank_1()));
  EXPECT_EQ(files, (std::vector<std::string>{"shard-1.bin"}));
}

TEST_F(HandsOfAGang, what_it_has_changed_is_its_own) {
  ASSERT_TRUE(std::holds_alternative<WorkPrepared>(run(a_start_of_rank_1())));
  guest_begins();
  put(in_work("other", "both.bin"), "changed here");
  put(in_work("other", "shard-1.bin"), "of rank 1");
  const auto files = files_of(run(a_save_of_rank_1()));
  EXPECT_EQ(files, (std::vector<std::string>{"both.bin", "shard-1.bin"}));
}

TEST_F(HandsOfAGang, a_checkpoint_of_another_member_that_nobody_has_ends_the_start) {
  PrepareWork w = a_start_of_rank_1();
  w.shares.front().generation.manifest[0] ^= 1;
  const WorkResult result = run(w);
  ASSERT_TRUE(std::holds_alternative<Error>(result));
  EXPECT_NE(std::get<Error>(result).message.find("rank 0"), std::string::npos);
}

}  // namespace
}  // namespace rn::agent
