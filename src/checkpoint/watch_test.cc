// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/watch.h"

#include <gtest/gtest.h>

#include "base/fs_crash.h"
#include "checkpoint/scan.h"

namespace rn::checkpoint {
namespace {

const StructuralVerdict kWhole{Completeness::kComplete, {}};
const StructuralVerdict kTorn{Completeness::kIncomplete, {}};
const StructuralVerdict kUnknown{Completeness::kUnknownKind, {}};

Instant at_ms(int ms) {
  return Instant(milliseconds(ms));
}

SeenFiles seen_at(const std::string& path, std::int64_t changed_ns) {
  return {{path, FileState{1, 10, changed_ns, changed_ns}}};
}

class DetectorTest : public ::testing::Test {
 protected:
  /// What is ready after the checks due at `ms` all answer `verdict`.
  std::vector<GenerationReady> check(int ms, const StructuralVerdict& verdict) {
    std::vector<GenerationReady> ready;
    for (const DueCheck& due : detector_.due(at_ms(ms))) {
      if (const auto one = detector_.on_checked(due, verdict, at_ms(ms))) ready.push_back(*one);
    }
    return ready;
  }

  GenerationDetector detector_{WatchRules{}};
};

TEST_F(DetectorTest, what_is_ready_says_in_which_state_each_file_of_the_save_was_seen) {
  const auto save = [&](int ms) {
    std::optional<GenerationReady> ready;
    for (const std::string path : {"model.pt", "optimizer.pt"}) {
      detector_.on_event({path, FileEventKind::kCloseWrite}, at_ms(ms));
      ms += 1000;
      for (const DueCheck& due : detector_.due(at_ms(ms)))
        ready = detector_.on_checked(due, kWhole, at_ms(ms), seen_at(due.unit.path, ms));
    }
    return ready;
  };
  save(0);
  save(60'000);

  const auto ready = save(120'000);

  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->unit.path, "optimizer.pt");
  SeenFiles both = seen_at("model.pt", 121'000);
  both.merge(seen_at("optimizer.pt", 122'000));
  EXPECT_EQ(ready->seen, both);
}

TEST(Settling, a_file_that_the_kernel_says_has_changed_just_now_is_being_written) {
  const WallTime now = wall_from_ms(100'000);
  const auto is_settling_since = [&](std::int64_t ms) {
    return is_settling(seen_at("a.bin", ms * 1'000'000), now, milliseconds(3000));
  };
  EXPECT_TRUE(is_settling_since(99'990));
  EXPECT_FALSE(is_settling_since(97'000));
  EXPECT_FALSE(is_settling_since(97'001)) << "clocks are slewed";
  EXPECT_FALSE(is_settling_since(200'000)) << "the clock was set back";
  EXPECT_FALSE(is_settling({}, now, milliseconds(3000)));
}

TEST_F(DetectorTest, a_renamed_file_is_ready_at_once_if_its_structure_is_whole) {
  detector_.on_event({"checkpoint.pt.tmp", FileEventKind::kCloseWrite}, at_ms(0));
  detector_.on_event({"checkpoint.pt", FileEventKind::kMovedTo}, at_ms(1));

  const auto ready = check(1, kWhole);

  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(ready[0].unit, (Unit{"checkpoint.pt", false}));
  EXPECT_TRUE(ready[0].is_renamed);
  EXPECT_FALSE(detector_.next_check());
}

TEST_F(
    DetectorTest, a_closed_file_of_known_kind_waits_the_short_time_and_of_unknown_kind_the_long_one
) {
  detector_.on_event({"a.pt", FileEventKind::kCloseWrite}, at_ms(0));
  EXPECT_TRUE(check(199, kWhole).empty());
  EXPECT_EQ(check(200, kWhole).size(), 1U);

  detector_.on_event({"b.ckpt", FileEventKind::kCloseWrite}, at_ms(1000));
  EXPECT_TRUE(check(1200, kUnknown).empty());
  EXPECT_EQ(detector_.next_check(), at_ms(4000));
  EXPECT_EQ(check(4000, kUnknown).size(), 1U);
}

TEST(UnitOf, without_a_word_from_the_submitter_the_usual_names_count_in_every_folder) {
  for (const char* path :
       {"model.pt",
        "checkpoint.pth.tar",
        "model_best.pth.tar",
        "out/netG_epoch_3.pth",
        "a/b.ckpt",
        "logs/17_submitted.pkl"})
    EXPECT_EQ(unit_of({}, path, false), (Unit{path, false})) << path;
  for (const char* path : {"images.tar", "out/fake_samples_epoch_003.png", "log.txt", "model.py"})
    EXPECT_EQ(unit_of({}, path, false), std::nullopt) << path;
}

/// A script that trains for 4 s, then writes model.pt, and 1 s later optimizer.pt.
class CompanionTest : public DetectorTest {
 protected:
  std::vector<std::string> saved(const std::string& path, int ms) {
    detector_.on_event({path, FileEventKind::kCloseWrite}, at_ms(ms));
    return names(check(ms + 200, kWhole));
  }

  static std::vector<std::string> names(const std::vector<GenerationReady>& ready) {
    std::vector<std::string> out;
    for (const auto& one : ready) out.push_back(one.unit.path);
    return out;
  }

  using Names = std::vector<std::string>;
};

TEST_F(CompanionTest, a_file_waits_for_the_one_that_follows_it_once_the_rhythm_is_known) {
  EXPECT_EQ(saved("model.pt", 4000), Names{"model.pt"});
  EXPECT_EQ(saved("optimizer.pt", 5000), Names{"optimizer.pt"});

  EXPECT_EQ(saved("model.pt", 9000), Names{});
  detector_.on_event({"optimizer.pt", FileEventKind::kCloseWrite}, at_ms(10'000));
  const auto ready = check(10'200, kWhole);
  ASSERT_EQ(names(ready), Names{"optimizer.pt"});
  EXPECT_EQ(ready[0].began_at, at_ms(9000)) << "both are one save";
  EXPECT_FALSE(detector_.next_check());
}

TEST_F(CompanionTest, one_that_takes_long_to_write_is_waited_for) {
  saved("model.pt", 40'000);
  saved("optimizer.pt", 41'000);
  EXPECT_EQ(saved("model.pt", 80'000), Names{});
  for (int ms = 81'000; ms < 100'000; ms += 1000) {
    detector_.on_event({"optimizer.pt", FileEventKind::kModified}, at_ms(ms));
    EXPECT_EQ(names(check(ms, kTorn)), Names{}) << ms;
  }
  EXPECT_EQ(saved("optimizer.pt", 100'000), Names{"optimizer.pt"});
}

TEST_F(CompanionTest, one_that_does_not_come_is_not_waited_for_much_longer_than_it_took_before) {
  for (int round = 0; round < 3; ++round) {
    saved("checkpoint.pth.tar", 60'000 * round);
    saved("model_best.pth.tar", 60'000 * round + 500);
  }
  EXPECT_EQ(saved("checkpoint.pth.tar", 180'000), Names{});
  EXPECT_EQ(names(check(182'000, kWhole)), Names{});
  EXPECT_EQ(names(check(182'300, kWhole)), Names{"checkpoint.pth.tar"});

  EXPECT_EQ(saved("checkpoint.pth.tar", 240'000), Names{"checkpoint.pth.tar"}) << "alone since";
}

TEST_F(CompanionTest, files_that_are_written_all_the_time_wait_for_none) {
  for (int round = 0; round < 4; ++round) {
    EXPECT_EQ(saved("a.pt", 4000 * round), Names{"a.pt"});
    EXPECT_EQ(saved("b.pt", 4000 * round + 2000), Names{"b.pt"});
  }
}

TEST_F(CompanionTest, three_files_are_one_save) {
  for (int round = 0; round < 2; ++round) {
    saved("a.pt", 30'000 * round);
    saved("b.pt", 30'000 * round + 1000);
    saved("c.pt", 30'000 * round + 3000);
  }
  EXPECT_EQ(saved("a.pt", 60'000), Names{});
  EXPECT_EQ(saved("b.pt", 61'000), Names{});
  EXPECT_EQ(saved("c.pt", 63'000), Names{"c.pt"});
}

TEST_F(CompanionTest, the_first_round_of_an_attempt_is_one_save_like_those_of_the_attempt_before) {
  const auto was = [](int ms) { return WallTime(milliseconds(1'700'000'000'000 + ms)); };
  detector_.expect(
      {{"old.pt", was(0)}, {"a.pt", was(60'000)}, {"b.pt", was(61'000)}, {"c.pt", was(63'000)}}
  );

  EXPECT_EQ(saved("a.pt", 5000), Names{});
  EXPECT_EQ(saved("b.pt", 6000), Names{});
  EXPECT_EQ(saved("c.pt", 8000), Names{"c.pt"});
}

TEST_F(CompanionTest, what_lies_there_from_before_holds_a_file_up_once_at_most) {
  const auto was = [](int ms) { return WallTime(milliseconds(1'700'000'000'000 + ms)); };
  detector_.expect({{"a.pt", was(0)}, {"data.pt", was(0)}});

  EXPECT_EQ(saved("a.pt", 5000), Names{});
  EXPECT_EQ(names(check(6300, kWhole)), Names{"a.pt"});
  EXPECT_EQ(saved("a.pt", 10'000), Names{"a.pt"});
}

TEST_F(DetectorTest, a_save_began_with_its_first_change_since_it_was_taken) {
  detector_.on_event({"a.pt", FileEventKind::kModified}, at_ms(100));
  detector_.on_event({"a.pt", FileEventKind::kModified}, at_ms(900));
  detector_.on_event({"a.pt", FileEventKind::kCloseWrite}, at_ms(1000));

  const auto ready = check(1200, kWhole);

  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(ready[0].began_at, at_ms(100));
  EXPECT_EQ(ready[0].changed_at, at_ms(1000));
}

TEST_F(DetectorTest, a_file_that_changes_during_its_check_is_looked_at_again) {
  detector_.on_event({"a.pt", FileEventKind::kMovedTo}, at_ms(0));
  const auto due = detector_.due(at_ms(0));
  ASSERT_EQ(due.size(), 1U);
  detector_.on_event({"a.pt", FileEventKind::kModified}, at_ms(1));

  EXPECT_FALSE(detector_.on_checked(due[0], kWhole, at_ms(2)));
  EXPECT_TRUE(check(3000, kWhole).empty());
  EXPECT_EQ(check(3001, kWhole).size(), 1U);
}

TEST_F(DetectorTest, a_file_that_changes_all_the_time_is_told_once_and_taken_when_it_holds_still) {
  int told = 0;
  for (int ms = 0; ms < 300'000; ms += 1000) {
    detector_.on_event({"model.ckpt", FileEventKind::kModified}, at_ms(ms));
    EXPECT_TRUE(check(ms, kUnknown).empty());
    for (const GivenUp& one : detector_.take_given_up()) {
      ++told;
      EXPECT_EQ(one.unit.path, "model.ckpt");
      EXPECT_TRUE(one.is_restless);
      EXPECT_GE(ms, 120'000);
    }
  }

  EXPECT_EQ(told, 1);
  EXPECT_EQ(check(302'000, kUnknown).size(), 1U);
}

TEST_F(DetectorTest, a_file_that_is_slow_to_become_whole_is_not_restless) {
  detector_.on_event({"a.pt", FileEventKind::kModified}, at_ms(0));
  for (int ms = 0; ms < 200'000; ms += 1000) {
    EXPECT_TRUE(check(ms, kTorn).empty());
    EXPECT_TRUE(detector_.take_given_up().empty()) << ms;
  }
}

TEST_F(DetectorTest, an_incomplete_file_is_asked_again_less_and_less_often_and_then_forgotten) {
  detector_.on_event({"a.pt", FileEventKind::kMovedTo}, at_ms(0));
  int asked = 0;
  int last_gap = 0;
  int previous = 0;
  while (const auto next = detector_.next_check()) {
    const int ms = static_cast<int>(next->time_since_epoch() / milliseconds(1));
    EXPECT_TRUE(check(ms, kTorn).empty());
    EXPECT_GE(ms - previous, last_gap);
    last_gap = ms - previous;
    previous = ms;
    ++asked;
  }
  EXPECT_EQ(asked, 1 + static_cast<int>(GenerationDetector::kRecheckMax));
  EXPECT_EQ(detector_.pending(), 0U);
  const auto given_up = detector_.take_given_up();
  ASSERT_EQ(given_up.size(), 1U);
  EXPECT_EQ(given_up[0].unit, (Unit{"a.pt", false}));
  EXPECT_EQ(given_up[0].reason, kTorn.reason);
  EXPECT_TRUE(detector_.take_given_up().empty());
}

TEST_F(DetectorTest, the_files_of_a_checkpoint_folder_are_one_generation) {
  detector_.on_event({"out/checkpoint-5/model.safetensors", FileEventKind::kMovedTo}, at_ms(0));
  detector_.on_event(
      {"out/checkpoint-5/trainer_state.json", FileEventKind::kCloseWrite}, at_ms(500)
  );

  EXPECT_TRUE(check(3499, kWhole).empty());
  const auto ready = check(3500, kWhole);
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(ready[0].unit, (Unit{"out/checkpoint-5", true}));
}

TEST_F(DetectorTest, a_folder_renamed_into_place_and_a_marker_are_ready_at_once) {
  detector_.on_event({"checkpoint-9", FileEventKind::kMovedTo, true}, at_ms(0));
  EXPECT_EQ(check(0, kUnknown).size(), 1U);

  detector_.on_event({"state/weights.xyz", FileEventKind::kCloseWrite}, at_ms(10));
  EXPECT_EQ(detector_.pending(), 0U);  // no checkpoint's name
  detector_.on_event({"state/.complete", FileEventKind::kCloseWrite}, at_ms(20));
  const auto ready = check(20, kWhole);
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(ready[0].unit, (Unit{"state", true}));
}

TEST_F(DetectorTest, deleting_forgets_and_temporary_files_are_never_looked_at) {
  detector_.on_event({"a.pt", FileEventKind::kCloseWrite}, at_ms(0));
  detector_.on_event({"a.pt", FileEventKind::kDeleted}, at_ms(1));
  EXPECT_EQ(detector_.pending(), 0U);

  GenerationDetector strict(WatchRules{
      {}, {"*.tmp.pt", "cache/**"}, "", seconds(3), milliseconds(200)});
  strict.on_event({"x.tmp.pt", FileEventKind::kCloseWrite}, at_ms(0));
  strict.on_event({"cache/a.pt", FileEventKind::kCloseWrite}, at_ms(0));
  EXPECT_EQ(strict.pending(), 0U);
}

TEST_F(DetectorTest, an_unstable_snapshot_is_tried_again) {
  detector_.on_unstable({"a.pt", false}, at_ms(0));
  EXPECT_TRUE(check(100, kWhole).empty());
  EXPECT_EQ(check(200, kWhole).size(), 1U);
}

TEST_F(DetectorTest, the_number_of_followed_units_is_bounded) {
  for (int i = 0; i < 5000; ++i)
    detector_.on_event({std::to_string(i) + ".pt", FileEventKind::kCloseWrite}, at_ms(i));
  EXPECT_EQ(detector_.pending(), GenerationDetector::kUnitsMax);
}

TEST(Scan, what_changed_between_two_looks_becomes_events) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  ASSERT_TRUE(make_folders(fs, "/w/deep/er", 0755));
  fs.overwrite("/w/a.pt", as_bytes("1"));
  fs.overwrite("/w/deep/er/b.pt", as_bytes("1"));
  ASSERT_TRUE(fs.make_symlink("/etc", "/w/link"));
  const auto folder = fs.open_folder("/w").value();
  const Scan before = scan_folder(*folder).value();
  EXPECT_EQ(before.size(), 5U);

  clock.advance(seconds(1));
  fs.overwrite("/w/a.pt", as_bytes("2"));
  fs.overwrite("/w/c.pt", as_bytes("1"));
  ASSERT_TRUE(fs.remove("/w/deep/er/b.pt"));
  const auto events = compare_scans(before, scan_folder(*folder).value());

  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].path, "a.pt");
  EXPECT_EQ(events[0].kind, FileEventKind::kModified);
  EXPECT_EQ(events[1].path, "c.pt");
  EXPECT_EQ(events[2].path, "deep/er/b.pt");
  EXPECT_EQ(events[2].kind, FileEventKind::kDeleted);
}

TEST(Scan, refuses_a_tree_that_is_too_large_or_too_deep) {
  ManualClock clock;
  CrashFs fs(clock, 1);
  ASSERT_TRUE(make_folders(fs, "/w/1/2/3/4", 0755));
  const auto folder = fs.open_folder("/w").value();

  EXPECT_EQ(scan_folder(*folder, {3, 100, {}}).error().code, ErrorCode::kExhausted);
  EXPECT_EQ(scan_folder(*folder, {100, 3, {}}).error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(scan_folder(*folder, {4, 4, {}}));
}

}  // namespace
}  // namespace rn::checkpoint
