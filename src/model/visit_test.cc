// SPDX-License-Identifier: Apache-2.0
#include "model/visit.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace rn::visit {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes frame_of(Frame frame, const std::string& body) {
  Bytes bytes(kHeadBytes);
  write_head(bytes.data(), frame, body.size());
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

Cutting cut_of(const Bytes& bytes, Cut& out) {
  return cut(bytes.data(), bytes.size(), out);
}

bool is_run(const std::string& body, Run& out) {
  return read_run(reinterpret_cast<const std::uint8_t*>(body.data()), body.size(), out);
}

/// Flags, a size of 24 by 80, and the words.
std::string run_body(char flags, const std::string& words) {
  return std::string(1, flags) + std::string("\0\x18\0\x50", 4) + words;
}

TEST(VisitFrames, are_cut_where_they_end_and_not_before_they_are_whole) {
  Bytes bytes = frame_of(Frame::kOutput, "abc");
  const Bytes second = frame_of(Frame::kOver, std::string(1, '\x07'));
  bytes.insert(bytes.end(), second.begin(), second.end());
  Cut one{};
  for (std::size_t size = 0; size < kHeadBytes + 3; ++size)
    EXPECT_EQ(cut(bytes.data(), size, one), Cutting::kMore) << size;

  ASSERT_EQ(cut_of(bytes, one), Cutting::kWhole);
  EXPECT_EQ(one.frame, Frame::kOutput);
  EXPECT_EQ(std::string(one.body, one.body + one.size), "abc");
  ASSERT_EQ(cut(bytes.data() + one.used, bytes.size() - one.used, one), Cutting::kWhole);
  EXPECT_EQ(one.frame, Frame::kOver);
  EXPECT_EQ(one.body[0], 7);
}

TEST(VisitFrames, longer_ones_than_a_packet_has_room_for_are_refused_at_their_head) {
  Cut one{};
  EXPECT_EQ(cut_of(frame_of(Frame::kInput, std::string(kBodyMax, 'x')), one), Cutting::kWhole);
  Bytes head(kHeadBytes);
  write_head(head.data(), Frame::kInput, kBodyMax + 1);
  EXPECT_EQ(cut_of(head, one), Cutting::kBad);
}

TEST(VisitRun, has_a_terminal_and_words_as_they_were_given) {
  const std::string body = run_body(3, std::string("xterm\0ls\0-l\0\0", 13));  // words lie in it
  visit::Run run{};
  ASSERT_TRUE(is_run(body, run));

  EXPECT_TRUE(run.has_terminal);
  EXPECT_TRUE(run.has_input);
  EXPECT_EQ(run.rows, 24);
  EXPECT_EQ(run.columns, 80);
  EXPECT_STREQ(run.terminal, "xterm");
  EXPECT_STREQ(run.words[0], "ls");
  EXPECT_STREQ(run.words[1], "-l");
  EXPECT_STREQ(run.words[2], "") << "an empty word is one";
  EXPECT_EQ(run.words[3], nullptr);
}

TEST(VisitRun, what_is_no_command_is_refused) {
  visit::Run run{};
  std::string many("\0", 1);
  for (int i = 0; i <= kWordsMax; ++i) many += std::string("x\0", 2);
  for (const std::string& body :
       {std::string(),
        std::string("\0\0\0\0\0", 5),
        run_body(0, std::string("\0", 1)),      // no word
        run_body(0, std::string("\0\0", 2)),    // an empty one
        run_body(0, std::string("\0ls", 3)),    // without its end
        run_body(4, std::string("\0ls\0", 4)),  // flags of another time
        run_body(0, many)})
    EXPECT_FALSE(is_run(body, run)) << body.size();
}

TEST(VisitPath, is_text_of_a_length_that_a_path_may_have) {
  char path[kPathMax + 1];
  const auto is_path = [&](const std::string& text) {
    return read_path(reinterpret_cast<const std::uint8_t*>(text.data()), text.size(), path);
  };
  EXPECT_TRUE(is_path("../x y"));
  EXPECT_STREQ(path, "../x y");
  EXPECT_TRUE(is_path(std::string(kPathMax, 'a')));
  EXPECT_FALSE(is_path(""));
  EXPECT_FALSE(is_path(std::string("a\0b", 3)));
  EXPECT_FALSE(is_path(std::string(kPathMax + 1, 'a')));
}

}  // namespace
}  // namespace rn::visit
