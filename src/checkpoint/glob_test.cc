// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/glob.h"

#include <gtest/gtest.h>

namespace rn::checkpoint {
namespace {

TEST(Glob, a_pattern_without_a_slash_matches_the_last_component_anywhere) {
  EXPECT_TRUE(matches_glob("*.tmp", "a.tmp"));
  EXPECT_TRUE(matches_glob("*.tmp", "deep/down/a.tmp"));
  EXPECT_FALSE(matches_glob("*.tmp", "a.tmp.pt"));
  EXPECT_FALSE(matches_glob("*.tmp", "a.tmp/b"));
}

TEST(Glob, a_star_does_not_cross_folders_and_two_stars_do) {
  EXPECT_TRUE(matches_glob("cache/*", "cache/x"));
  EXPECT_FALSE(matches_glob("cache/*", "cache/x/y"));
  EXPECT_TRUE(matches_glob("cache/**", "cache/x/y"));
  EXPECT_TRUE(matches_glob("a/**/b", "a/b"));
  EXPECT_TRUE(matches_glob("a/**/b", "a/1/2/3/b"));
  EXPECT_FALSE(matches_glob("a/**/b", "c/a/1/b"));
  EXPECT_TRUE(matches_glob("**/node_modules/**", "x/node_modules/y/z"));
}

TEST(Glob, folders_classes_anchors_and_quotes) {
  EXPECT_TRUE(matches_glob("checkpoint*/", "checkpoint-500/model.bin"));
  EXPECT_TRUE(matches_glob("checkpoint*/", "out/checkpoint-500/rank/0.pt"));
  EXPECT_FALSE(matches_glob("checkpoint*/", "checkpoint.pt"));
  EXPECT_TRUE(matches_glob("/top.pt", "top.pt"));
  EXPECT_FALSE(matches_glob("/top.pt", "a/top.pt"));
  EXPECT_TRUE(matches_glob("step[0-9].pt", "step7.pt"));
  EXPECT_FALSE(matches_glob("step[!0-9].pt", "step7.pt"));
  EXPECT_TRUE(matches_glob("a\\*b", "a*b"));
  EXPECT_FALSE(matches_glob("a\\*b", "axb"));
  EXPECT_TRUE(matches_glob("[", "["));
  EXPECT_TRUE(matches_glob("a?c", "abc"));
  EXPECT_FALSE(matches_glob("a?c", "a/c"));
  EXPECT_FALSE(matches_glob("", "a"));
}

TEST(Glob, a_hostile_pattern_ends_in_time) {
  std::string pattern;
  for (int i = 0; i < 2000; ++i) pattern += "*a";
  EXPECT_FALSE(matches_glob(pattern, std::string(4000, 'b')));
  std::string folders;
  for (int i = 0; i < 1000; ++i) folders += "**/a/";
  std::string path = "b";
  for (int i = 0; i < 1500; ++i) path += "/a";
  (void)matches_glob(folders + "c", path);
}

}  // namespace
}  // namespace rn::checkpoint
