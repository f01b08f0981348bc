// SPDX-License-Identifier: Apache-2.0
#include "coordinator/contract_preview.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rn::coordinator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// Monday, 2026-12-21, at an hour of UTC.
WallTime monday_at(int hour) {
  constexpr std::int64_t kMonday = 20'808;  // days since 1970-01-01
  return wall_from_ms((kMonday * 24 + hour) * 3'600'000);
}

PreviewInput an_input() {
  PreviewInput input;
  input.from.windows = {{{}, "18:00", "08:00"}};
  input.to = input.from;
  input.facts.cpu_milli = 8000;
  input.facts.memory_mib = 16'000;
  input.facts.disk_mib = 100'000;
  Gpu gpu;
  input.facts.gpus = {gpu};
  api::GuestInfo guest;
  guest.job_number = 7;
  guest.user = UserId("ann");
  guest.lab = LabId("lab-x");
  input.guests = {guest};
  input.node_wall = monday_at(20);
  input.from_offset_s = input.to_offset_s = 0;
  return input;
}

TEST(ContractPreview, a_guest_hears_when_it_would_have_to_leave_and_when_it_has_to_now) {
  PreviewInput input = an_input();
  input.to.windows[0].to = "06:30";
  const auto seen = preview_of(input);

  EXPECT_TRUE(seen.narrows);
  EXPECT_EQ(seen.lent_minutes_before, 7u * 14 * 60);
  EXPECT_EQ(seen.lent_minutes_after, 7u * (12 * 60 + 30));
  ASSERT_THAT(seen.guests, SizeIs(1));
  EXPECT_EQ(seen.guests[0].leaves_in_s_before, 12 * 3600);
  EXPECT_EQ(seen.guests[0].leaves_in_s_after, 10 * 3600 + 1800);
  EXPECT_EQ(seen.guests[0].notice_s, 60u);
  EXPECT_EQ(
      seen.guests[0].message,
      "job 7 of ann has to leave in 10 h 30 min instead of 12 h; it is told 60 s before"
  );
  EXPECT_THAT(seen.notes, IsEmpty());
}

TEST(ContractPreview, hours_of_a_single_gpu_are_said_of_who_has_it) {
  PreviewInput input = an_input();
  input.to.gpu_windows = {{0, {{{}, "18:00", "22:00"}}, {}}};
  const auto seen = preview_of(input);

  EXPECT_TRUE(seen.narrows);
  EXPECT_EQ(seen.guests[0].leaves_in_s_after, 12 * 3600) << "without a GPU nothing has changed";
  EXPECT_THAT(seen.notes, ElementsAre("a guest that has GPU 0 has to leave in 2 h"));
}

TEST(ContractPreview, a_contract_that_lends_nothing_any_more_gives_the_notice_alone) {
  PreviewInput input = an_input();
  input.to.lends = false;
  const auto seen = preview_of(input);

  EXPECT_TRUE(seen.narrows);
  EXPECT_EQ(seen.lent_minutes_after, 0u);
  EXPECT_EQ(seen.guests[0].leaves_in_s_after, 60);
  input.to = input.from;
  input.to.windows = {{{}, "22:00", "08:00"}};
  EXPECT_EQ(preview_of(input).guests[0].leaves_in_s_after, 60) << "at 20:00 it is outside";
}

TEST(ContractPreview, the_clock_of_the_zone_decides) {
  PreviewInput input = an_input();
  input.from_offset_s = 3600;
  input.to_offset_s = 3600;
  EXPECT_EQ(preview_of(input).guests[0].leaves_in_s_before, 11 * 3600);

  input.to_offset_s.reset();
  input.to.time_zone = "Mars/Olympus";
  const auto seen = preview_of(input);
  EXPECT_EQ(seen.guests[0].leaves_in_s_after, -1);
  EXPECT_THAT(seen.notes, ElementsAre(HasSubstr("does not know the time zone Mars/Olympus")));
}

TEST(ContractPreview, who_stays_whatever_the_new_contract_says_is_named) {
  PreviewInput input = an_input();
  input.to.lends_gpus = false;
  input.to.allow_labs = {"lab-a"};
  input.to.max_guests = 2;

  EXPECT_THAT(
      preview_of(input).notes,
      ElementsAre(
          HasSubstr("has GPU 0 keeps it until it ends"),
          HasSubstr("job 7 of ann runs on, and is the last"),
          HasSubstr("limits count for guests that come")
      )
  );
}

TEST(ContractPreview, what_lends_more_says_so_and_what_is_no_contract_says_no_more) {
  PreviewInput input = an_input();
  input.to.windows.clear();
  EXPECT_FALSE(preview_of(input).narrows);
  EXPECT_THAT(preview_of(input).widens, ElementsAre(HasSubstr("windows: ")));
  EXPECT_EQ(preview_of(input).guests[0].leaves_in_s_after, -1);
  EXPECT_THAT(preview_of(input).guests[0].message, HasSubstr("may stay, and had to leave in 12 h"));

  input.to.windows = {{{"someday"}, "18:00", "18:00"}};
  const auto bad = preview_of(input);
  EXPECT_THAT(bad.problems, SizeIs(2));
  EXPECT_FALSE(bad.narrows);
  EXPECT_THAT(bad.guests, IsEmpty());
  input.to.windows.resize(1000);
  EXPECT_THAT(preview_of(input).problems, ElementsAre(HasSubstr("windows: 1000")));
}

}  // namespace
}  // namespace rn::coordinator
