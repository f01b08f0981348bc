// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace rn {
namespace {

TEST(Printable, words_of_every_language_stay_as_they_are) {
  const std::string words = "naïve Größe — 模型 модель 🙂 \xd9\x85\xd9\x8f\xd8\xb1";

  EXPECT_EQ(printable(words), words);
  EXPECT_EQ(printable_lines("two\n\tlines"), "two\n\tlines");
}

TEST(Printable, what_a_terminal_would_obey_is_shown_and_not_sent) {
  EXPECT_EQ(printable("\x1b[2Jgone"), "\\x1b[2Jgone");
  EXPECT_EQ(printable("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(printable("a\nforged line\r\t"), "a\\nforged line\\r\\t");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
  EXPECT_EQ(
      printable("\xc2\x9b"
                "31m"),
      "\\u009b31m"
  ) << "the one-character form of ESC [";
  EXPECT_EQ(printable_lines("a\x1b[1A\r\n"), "a\\x1b[1A\\r\n");
}

TEST(Printable, what_turns_or_hides_text_is_shown) {
  EXPECT_EQ(
      printable("gpj.\xe2\x80\xae"
                "exe"),
      "gpj.\\u202eexe"
  );
  EXPECT_EQ(printable("\xe2\x81\xa6"), "\\u2066");
  EXPECT_EQ(printable("lab\xe2\x80\x8b-a"), "lab\\u200b-a");
  EXPECT_EQ(printable("\xef\xbb\xbfx"), "\\ufeffx");
  EXPECT_EQ(printable("\xf3\xa0\x81\x81"), "\\U000e0041") << "a tag character";
}

TEST(Printable, bytes_that_are_no_text_are_shown_one_by_one) {
  EXPECT_EQ(
      printable("a\xff"
                "b"),
      "a\\xffb"
  );
  EXPECT_EQ(printable("\xc0\x80"), "\\xc0\\x80") << "an overlong zero";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a surrogate pair";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above the last character";
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82") << "cut off";
}

TEST(Printable, json_keeps_its_meaning) {
  EXPECT_EQ(printable_json("{\"a\":\n \"x\xc2\x9by\"}"), "{\"a\":\n \"x\\u009by\"}");
  EXPECT_EQ(printable_json("\"\xe2\x80\xae\xf3\xa0\x81\x81\""), "\"\\u202e\\udb40\\udc41\"");
  EXPECT_EQ(printable_json("\"\xff\""), "\"\\ufffd\"");
  EXPECT_EQ(printable_json("\"\\u001b é\""), "\"\\u001b é\"");
}

TEST(Printable, columns_are_those_of_characters) {
  EXPECT_EQ(columns_of("Größe"), 5u);
  EXPECT_EQ(columns_of(""), 0u);
}

TEST(PrintableStream, a_character_that_comes_in_two_pieces_is_whole) {
  PrintableStream stream;

  EXPECT_EQ(stream.take("a\xe2\x82"), "a");
  EXPECT_EQ(
      stream.take("\xac"
                  "b"),
      "€b"
  );
  EXPECT_EQ(stream.take("\xe2\x80"), "");
  EXPECT_EQ(stream.take("\xae"), "\\u202e");
  EXPECT_EQ(stream.take("c\xf0\x9f\x99"), "c");
  EXPECT_EQ(stream.finish(), "\\xf0\\x9f\\x99");
  EXPECT_EQ(stream.finish(), "");
}

TEST(PrintableStream, a_carriage_return_begins_a_line_and_writes_over_nothing) {
  PrintableStream stream;

  EXPECT_EQ(stream.take("10%\r20%\r"), "10%\n20%");
  EXPECT_EQ(stream.take("\ndone\r\n"), "\ndone\n");
  EXPECT_EQ(stream.take("50%\r"), "50%");
  EXPECT_EQ(stream.finish(), "\n");
}

TEST(Utf8, well_formed_text_is_told_from_bytes) {
  EXPECT_TRUE(is_utf8("Größe 模 🙂"));
  EXPECT_FALSE(is_utf8("\xe2\x82"));
  EXPECT_FALSE(is_utf8("\x80"));
  EXPECT_FALSE(is_utf8("\xe0\x9f\xbf"));
}

}  // namespace
}  // namespace rn
