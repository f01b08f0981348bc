// SPDX-License-Identifier: Apache-2.0
#include "cli_contract.h"

#include <gtest/gtest.h>

namespace rn::cli {
namespace {

std::string end_words(EditState state) {
  ContractEdit edit;
  edit.state = state;
  edit.message = "what became of it";
  const auto end = end_of_edit(edit);
  if (!end) return "goes on";
  if (*end) return "good";
  EXPECT_EQ(end->error().message, "what became of it");
  EXPECT_FALSE(end->error().hint.empty());
  return std::string(to_string(end->error().code));
}

TEST(Contract, ends_well_only_where_it_is_in_force_or_waits) {
  EXPECT_EQ(end_words(EditState::kSent), "goes on");
  EXPECT_EQ(end_words(EditState::kInForce), "good");
  EXPECT_EQ(end_words(EditState::kPending), "good");
  EXPECT_EQ(end_words(EditState::kConflict), "conflict");
  EXPECT_EQ(end_words(EditState::kRefused), "conflict");
  EXPECT_EQ(end_words(EditState::kRejected), "conflict");
  EXPECT_EQ(end_words(EditState::kLate), "unavailable");
  EXPECT_EQ(end_words(EditState::kUnanswered), "timeout");
}

TEST(Contract, says_what_an_edit_would_mean_a_line_each) {
  api::ContractPreview preview;
  preview.changes = {"notice_s: 120, and it was 60"};
  preview.widens = {"notice_s: 120 is more than 60"};
  preview.lent_minutes_before = 10'080;
  preview.lent_minutes_after = 5'880;
  api::ContractGuest guest;
  guest.message = "job 7 of ann has to leave in 2 h";
  preview.guests = {guest};

  const std::vector<std::string> waits = {
      "  notice_s: 120, and it was 60",
      "it lends 98 h of the week, and 168 h now",
      "job 7 of ann has to leave in 2 h",
      "it waits until somebody at the machine says reclaim-agent contract accept:",
      "  notice_s: 120 is more than 60"};
  EXPECT_EQ(preview_lines(preview), waits);
  preview.narrows = true;
  EXPECT_EQ(preview_lines(preview).back(), "it takes effect at once");
  preview.problems = {"notice_s: is more than 900 (15 minutes)"};
  EXPECT_EQ(
      preview_lines(preview),
      std::vector<std::string>{"not possible: notice_s: is more than 900 (15 minutes)"}
  );
}

}  // namespace
}  // namespace rn::cli
