// SPDX-License-Identifier: Apache-2.0
#include "model/yaml.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace rn {
namespace {

TEST(Yaml, plain_scalars_get_their_type_and_quoted_ones_are_strings) {
  const auto document =
      parse_yaml("a: 7\nb: -2\nc: 0.5\nd: true\ne: '7'\nf: ~\ng: 12:30\nh: 7.0.1\n");

  ASSERT_TRUE(document.has_value());
  EXPECT_EQ(
      document->dump(),
      R"({"a":7,"b":-2,"c":0.5,"d":true,"e":"7","f":null,"g":"12:30","h":"7.0.1"})"
  );
}

TEST(Yaml, a_zero_in_front_makes_a_word_and_no_octal_number) {
  EXPECT_EQ(
      parse_yaml("{a: 010, b: -07, c: 0, d: 0.5, e: 00}")->dump(),
      R"({"a":"010","b":"-07","c":0,"d":0.5,"e":"00"})"
  );
}

TEST(Yaml, lists_and_maps_nest) {
  EXPECT_EQ(parse_yaml("a:\n  - b: 1\n  - [x, y]\n")->dump(), R"({"a":[{"b":1},["x","y"]]})");
}

TEST(Yaml, an_empty_file_is_an_empty_object) {
  EXPECT_EQ(parse_yaml("# nothing\n")->dump(), "{}");
}

TEST(Yaml, bad_syntax_names_line_and_column) {
  const auto document = parse_yaml("a: 1\nb: [1, 2\nc: }\n");

  ASSERT_FALSE(document.has_value());
  EXPECT_EQ(document.error().code, ErrorCode::kInvalid);
  EXPECT_NE(document.error().message.find("line 3"), std::string::npos);
}

TEST(Yaml, a_key_used_twice_is_refused) {
  EXPECT_EQ(parse_yaml("a: 1\na: 2\n").error().message, "line 2, column 1: 'a' is there twice");
}

TEST(Yaml, aliases_that_multiply_are_bounded) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 8; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    std::string list = before;
    for (int k = 0; k < 9; ++k) list += ", " + before;
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + list + "]\n";
  }

  EXPECT_EQ(parse_yaml(bomb).error().code, ErrorCode::kExhausted);
}

TEST(Yaml, a_second_document_is_not_dropped_in_silence) {
  for (const char* two : {"a: 1\n---\nb: 2\n", "---\na: 1\n--- \nb: 2", "a: 1\n...\nb: 2\n"})
    EXPECT_EQ(
        parse_yaml(two).error().message,
        "there is more than one document in it, separated by --- or ..."
    ) << two;
  EXPECT_EQ(parse_yaml("# x\n--- # y\na: |\n  text\n  ---\n")->dump(), R"({"a":"text\n---\n"})");
  EXPECT_FALSE(parse_yaml("a: 1\n---\n,"));
  EXPECT_EQ(parse_yaml(",")->dump(), "{}") << "the library would load documents from it for ever";
  EXPECT_EQ(parse_yaml("---\na: 1\n")->dump(), R"({"a":1})");
  EXPECT_EQ(parse_yaml("a: 1\n...\n")->dump(), R"({"a":1})");
}

TEST(Yaml, deep_nesting_is_bounded) {
  EXPECT_EQ(
      parse_yaml(std::string(40, '[') + std::string(40, ']')).error().code, ErrorCode::kInvalid
  );
  const Error deeper = parse_yaml(std::string(5000, '[') + std::string(5000, ']')).error();
  EXPECT_TRUE(deeper.message.ends_with(": nested deeper than 32 levels")) << deeper.message;
}

}  // namespace
}  // namespace rn
