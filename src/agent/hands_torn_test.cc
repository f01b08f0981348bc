// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <filesystem>

#include <gmock/gmock.h>

#include "agent/hands_fixture.h"
#include "checkpoint/unit_check.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;

/// A guest that is killed, or looked at, while it writes.
class HandsTorn : public HandsTest {
 protected:
  HandsTorn() { EXPECT_TRUE(std::holds_alternative<WorkPrepared>(run(a_start("disk")))); }

  /// A safetensors file without tensors, of so many blanks.
  static std::string whole(std::uint8_t blanks) {
    std::string text(8, '\0');
    text[0] = static_cast<char>(2 + blanks);
    return text + "{" + std::string(blanks, ' ') + "}";
  }

  static std::string torn() { return whole(100).substr(0, 20); }

  void write(const std::string& file, const std::string& text) { put(in_work("disk", file), text); }

  void make_older(const std::string& file, seconds by) {
    const std::filesystem::path path = folder + "/" + in_work("disk", file);
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - by);
  }

  TakeSnapshot next(bool is_final = true) {
    TakeSnapshot w = a_snapshot(newest_.generation + 1, is_final);
    w.spec.paths = {"*.safetensors", "*.bin"};
    w.parent = newest_;
    return w;
  }

  /// The guest was killed just now.
  TakeSnapshot after_the_kill() {
    TakeSnapshot w = next();
    w.torn_after_ns = to_ms(clock.now().wall - seconds(3)) * 1'000'000;
    return w;
  }

  bool is_taken(const TakeSnapshot& w) {
    const WorkResult result = run(w);
    if (const auto* taken = std::get_if<SnapshotTaken>(&result)) newest_ = taken->generation;
    return std::holds_alternative<SnapshotTaken>(result);
  }

  GenerationRef newest_;
};

TEST_F(HandsTorn, a_file_cut_off_beside_a_whole_one_makes_no_generation) {
  write("model.safetensors", whole(1));
  write("optimizer.safetensors", whole(2));
  ASSERT_TRUE(is_taken(next()));
  std::this_thread::sleep_for(milliseconds(5));

  write("model.safetensors", whole(30));
  write("optimizer.safetensors", torn());
  EXPECT_FALSE(is_taken(after_the_kill()));

  write("optimizer.safetensors", whole(40));
  EXPECT_TRUE(is_taken(after_the_kill()));
}

TEST_F(HandsTorn, a_file_without_a_known_end_that_was_written_at_the_kill_makes_no_generation) {
  write("weights.bin", "all of it");
  ASSERT_TRUE(is_taken(next()));
  std::this_thread::sleep_for(milliseconds(5));
  write("weights.bin", "half");

  EXPECT_FALSE(is_taken(after_the_kill()));
  EXPECT_TRUE(is_taken(next())) << "its writer left by itself";
}

TEST_F(HandsTorn, one_that_held_still_before_the_kill_is_taken) {
  write("weights.bin", "all of it");
  make_older("weights.bin", seconds(10));
  EXPECT_TRUE(is_taken(after_the_kill()));
}

TEST_F(HandsTorn, a_torn_file_that_nobody_has_touched_for_long_stands_in_nobodys_way) {
  write("junk.safetensors", torn());
  make_older("junk.safetensors", seconds(3600));
  write("model.safetensors", whole(1));
  EXPECT_TRUE(is_taken(after_the_kill()));
}

TEST_F(HandsTorn, a_whole_file_waits_for_the_one_that_is_being_written_beside_it_but_not_for_ever) {
  write("model.safetensors", whole(1));
  write("optimizer.safetensors", torn());
  const auto ready_since = [&](Instant since) {
    guests->entry(guest)->ready =
        checkpoint::GenerationReady{{"model.safetensors", false}, false, false, since, since, {}};
  };
  ready_since(clock.now().boot);
  const WorkResult result = run(next(false));
  ASSERT_TRUE(std::holds_alternative<Error>(result));
  EXPECT_EQ(std::get<Error>(result).code, ErrorCode::kConflict);
  EXPECT_THAT(std::get<Error>(result).message, HasSubstr("optimizer.safetensors"));

  ready_since(clock.now().boot - seconds(31));
  EXPECT_TRUE(is_taken(next(false)));
}

TEST_F(HandsTorn, a_file_that_is_being_rewritten_since_the_watchs_last_look_is_not_taken) {
  const auto find_whole = [&] {
    const auto work = fs.open_folder(folder + "/disk/work");
    ASSERT_TRUE(work);
    const checkpoint::Unit unit{"weights.bin", false};
    const auto seen = checkpoint::look_at(**work, unit, watch_rules(next().spec));
    ASSERT_TRUE(seen);
    const Instant at = clock.now().boot;
    guests->entry(guest)->ready = checkpoint::GenerationReady{unit, false, false, at, at, *seen};
  };
  write("weights.bin", "all of it");
  find_whole();
  std::this_thread::sleep_for(milliseconds(20));  // the kernel's tick
  write("weights.bin", "ha");                     // and the guest's share of the processor is over

  const WorkResult result = run(next(false));

  ASSERT_TRUE(std::holds_alternative<Error>(result));
  EXPECT_EQ(std::get<Error>(result).code, ErrorCode::kUnavailable);
  EXPECT_EQ(unstable, std::vector{guest}) << "the watch must look again, if no event comes";
  find_whole();
  EXPECT_TRUE(is_taken(next(false)));
}

TEST_F(HandsTorn, what_a_guest_that_has_left_wrote_last_is_taken_whatever_the_watch_saw_before) {
  write("weights.bin", "step 1");
  const Instant at = clock.now().boot;
  const checkpoint::SeenFiles older{{"weights.bin", {}}};
  guests->entry(guest)->ready =
      checkpoint::GenerationReady{{"weights.bin", false}, false, false, at, at, older};

  EXPECT_FALSE(is_taken(next(false)));
  EXPECT_TRUE(is_taken(next(true)));
}

}  // namespace
}  // namespace rn::agent
