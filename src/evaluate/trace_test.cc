// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include "base/scratch_folder.h"
#include "evaluate/job_trace.h"
#include "evaluate/owner_trace.h"
#include "evaluate/spot_trace.h"
#include "evaluate/trace_fixture.h"
#include "evaluate/trace_rows.h"

namespace rn::evaluate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Files of a test, removed at its end.
class TraceFiles : public testing::Test {
 protected:
  std::string plain(const std::string& name, const std::string& text) {
    const std::string path = path_of(name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::string packed(const std::string& name, const std::string& text) {
    const std::string path = path_of(name);
    gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), text.size());
    gzclose(file);
    return path;
  }

  /// A packed file of which the last bytes never arrived.
  std::string torn(const std::string& name, const std::string& text) {
    const std::string path = packed(name, text);
    EXPECT_EQ(truncate(path.c_str(), 30), 0);
    return path;
  }

  std::string path_of(const std::string& name) const { return folder_.path() + "/" + name; }

  const ScratchFolder folder_;
};

Result<LabTrace> owners(const std::string& text, OwnerTraceRule rule = {}) {
  return parse_owner_trace(text, "lab.csv", "lab", rule);
}

std::string why(const Result<LabTrace>& result) {
  return result ? "no error" : result.error().message;
}

// ---- owners

TEST(OwnerTrace, a_node_is_lent_after_ten_free_minutes_and_reclaimed_the_minute_it_is_not_free) {
  const auto lab = owners(MinutesOf(8).idle(0, 5).idle(8, 30).idle(7).text());
  ASSERT_TRUE(lab) << lab.error().describe();
  EXPECT_EQ(lab->nodes, 1u);
  EXPECT_THAT(
      lab->spells,
      ElementsAre(LentSpell{0, 0, kMay1 + 15 * kMinuteMs, kMay1 + 35 * kMinuteMs, true})
  );
}

TEST(OwnerTrace, the_last_node_to_become_free_is_the_first_to_be_reclaimed) {
  const auto lab = owners(MinutesOf(16).idle(16, 20).idle(9, 20).idle(0).text());
  ASSERT_TRUE(lab) << lab.error().describe();
  ASSERT_EQ(lab->spells.size(), 2u);
  EXPECT_EQ(lab->spells[0].node, 0u);
  EXPECT_EQ(lab->spells[0].to_ms, kMay1 + 40 * kMinuteMs);
  EXPECT_EQ(lab->spells[1].node, 1u);
  EXPECT_EQ(lab->spells[1].to_ms, kMay1 + 20 * kMinuteMs);
}

TEST(OwnerTrace, a_lab_with_fewer_than_eight_gpus_is_one_node_of_them) {
  const auto lab = owners(MinutesOf(3).idle(3, 12).text());
  ASSERT_TRUE(lab) << lab.error().describe();
  EXPECT_EQ(lab->gpus_per_node, 3u);
  EXPECT_EQ(lab->spells.size(), 1u);
  EXPECT_FALSE(lab->spells[0].is_reclaimed) << "the trace ends, nobody came";
}

TEST(OwnerTrace, missing_minutes_are_refused_with_their_number_and_the_first_of_them) {
  const auto lab = owners(MinutesOf(8).idle(8, 20).missing(7).idle(8, 20).text());
  EXPECT_EQ(why(lab), "lab.csv:22: 7 minutes are missing, from 2020-05-01 00:20:00 on");
  EXPECT_EQ(lab.error().hint, "fill them in, or let nothing be lent there (--gaps-end)");
}

TEST(OwnerTrace, nothing_is_lent_over_a_gap_where_gaps_end_spells) {
  const auto lab = owners(
      MinutesOf(8).idle(8, 20).missing(7).idle(8, 20).text(), {.gaps = TraceGaps::kEndSpells}
  );
  ASSERT_TRUE(lab) << lab.error().describe();
  EXPECT_EQ(lab->gaps, 1u);
  ASSERT_EQ(lab->spells.size(), 2u);
  EXPECT_EQ(lab->spells[0].to_ms, kMay1 + 20 * kMinuteMs);
  EXPECT_FALSE(lab->spells[0].is_reclaimed);
  EXPECT_EQ(lab->spells[1].from_ms, kMay1 + 37 * kMinuteMs) << "free for ten minutes once more";
}

TEST(OwnerTrace, columns_are_found_by_name_in_any_order_and_others_are_not_looked_at) {
  const auto lab = owners(
      "note,idle_gpus,time,total_gpus\nx,8,2020-05-01 00:00:00,8\ny,8,2020-05-01 00:01:00,8\n",
      {.idle_minutes = 1}
  );
  ASSERT_TRUE(lab) << lab.error().describe();
  EXPECT_EQ(lab->spells.size(), 1u);
}

struct Wrong {
  const char* text;
  const char* says;
};

class WrongOwners : public testing::TestWithParam<Wrong> {};

TEST_P(WrongOwners, are_refused_with_file_line_and_what_is_wrong) {
  const auto lab = owners(GetParam().text);
  ASSERT_FALSE(lab);
  EXPECT_EQ(lab.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(lab.error().message, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Owners,
    WrongOwners,
    testing::Values(
        Wrong{"", "lab.csv:1: the file is empty"},
        Wrong{"time,total_gpus\n", "lab.csv:1: has no column idle_gpus, but time,total_gpus"},
        Wrong{"time,total_gpus,idle_gpus,time\n", "lab.csv:1: has column time twice"},
        Wrong{"time,total_gpus,idle_gpus\n", "there are no rows"},
        Wrong{
            "time,total_gpus,idle_gpus\n2020-05-01 00:00:00,8\n",
            "lab.csv:2: has 2 fields where the first line names 3"},
        Wrong{"time,total_gpus,idle_gpus\n\n", "lab.csv:2: has 1 fields"},
        Wrong{
            "time,total_gpus,idle_gpus\n2020-05-01 00:00:00,8,eight\n",
            "lab.csv:2: idle_gpus is \"eight\", which is no whole number"},
        Wrong{"time,total_gpus,idle_gpus\n2020-05-01 00:00:00,8,1.5\n", "which is no whole number"},
        Wrong{
            "time,total_gpus,idle_gpus\n2020-05-01 00:00:00,8,9\n",
            "idle_gpus is \"9\", not in 0 to 8"},
        Wrong{
            "time,total_gpus,idle_gpus\n2020-05-01 00:00:00,0,0\n",
            "total_gpus is \"0\", not in 1"},
        Wrong{
            "time,total_gpus,idle_gpus\n2020-02-30 00:00:00,8,8\n",
            "time is \"2020-02-30 00:00:00\", which is no time"},
        Wrong{"time,total_gpus,idle_gpus\n2020-05-01T00:00:00,8,8\n", "which is no time"},
        Wrong{"time,total_gpus,idle_gpus\n2020-05-01 24:00:00,8,8\n", "which is no time"},
        Wrong{"time,total_gpus,idle_gpus\n2020-05-01 0a:00:00,8,8\n", "which is no time"},
        Wrong{"time,total_gpus,idle_gpus\n2020-05-01 00:00:30,8,8\n", "time is no whole minute"},
        Wrong{
            "time,total_gpus,idle_gpus\n2020-05-01 00:01:00,8,8\n2020-05-01 00:00:00,8,8\n",
            "lab.csv:3: time does not ascend: 2020-05-01 00:01:00 stands before it"},
        Wrong{
            "time,total_gpus,idle_gpus\n2020-05-01 00:01:00,8,8\n2020-05-01 00:01:00,8,8\n",
            "time does not ascend"}
    )
);

TEST(OwnerTrace, what_a_bad_field_holds_is_repeated_in_printable_characters_and_not_at_length) {
  const auto lab = owners(
      "time,total_gpus,idle_gpus\n2020-05-01 00:00:00,8,\x1b[31m" + std::string(500, 'x') + "\n"
  );
  ASSERT_FALSE(lab);
  EXPECT_THAT(lab.error().message, HasSubstr("\"?[31mxx"));
  EXPECT_LT(lab.error().message.size(), 200u);
}

// ---- jobs

TEST(JobTrace, rows_become_jobs_in_their_order) {
  const auto jobs = parse_job_trace(
      "submit_time,duration_s,gpus\n2017-09-24 14:01:56,79.5,1\n2017-09-24 14:01:56,3,8\n", "j"
  );
  ASSERT_TRUE(jobs) << jobs.error().describe();
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ((*jobs)[0].duration_s, 79.5);
  EXPECT_EQ((*jobs)[1].gpus, 8u);
  EXPECT_EQ(local_time_words((*jobs)[1].submitted_ms), "2017-09-24 14:01:56");
}

TEST(JobTrace, what_is_no_job_is_refused_with_its_line) {
  const std::string head = "submit_time,duration_s,gpus\n2017-09-24 14:01:56,79,1\n";
  const auto says = [&](const std::string& row) {
    const auto jobs = parse_job_trace(head + row, "j.csv");
    return jobs ? std::string("no error") : jobs.error().message;
  };
  EXPECT_THAT(says("2017-09-24 14:01:55,79,1\n"), HasSubstr("j.csv:3: submit_time goes back"));
  EXPECT_THAT(says("2017-09-24 14:02:00,nan,1\n"), HasSubstr("which is no number"));
  EXPECT_THAT(says("2017-09-24 14:02:00,-1,1\n"), HasSubstr("duration_s is \"-1\", not in"));
  EXPECT_THAT(says("2017-09-24 14:02:00,1,0\n"), HasSubstr("gpus is \"0\", not in 1"));
  EXPECT_THAT(says("2017-09-24 14:02:00,1 ,1\n"), HasSubstr("which is no number"));
  EXPECT_THAT(
      parse_job_trace("submit_time,gpus\n", "j.csv").error().message,
      HasSubstr("has no column duration_s")
  );
}

// ---- spot machines

TEST(SpotTrace, a_machine_is_there_from_its_add_to_its_remove) {
  const auto trace =
      parse_spot_trace("ms,event,node\n0,add,b\n0,add,a\n60,remove,b\n90,add,b\n", "s");
  ASSERT_TRUE(trace) << trace.error().describe();
  EXPECT_EQ(trace->most_at_once, 2u);
  EXPECT_THAT(
      trace->spells,
      ElementsAre(
          SpotSpell{"a", 0, 90, false}, SpotSpell{"b", 0, 60, true}, SpotSpell{"b", 90, 90, false}
      )
  );
}

TEST(SpotTrace, what_cannot_happen_is_refused_with_its_line) {
  const auto says = [](const std::string& rows) {
    const auto trace = parse_spot_trace("ms,event,node\n" + rows, "s.csv");
    return trace ? std::string("no error") : trace.error().message;
  };
  EXPECT_EQ(says("0,add,a\n1,add,a\n"), "s.csv:3: a node is added that is there already");
  EXPECT_EQ(says("0,remove,a\n"), "s.csv:2: a node is removed that is not there");
  EXPECT_EQ(says("5,add,a\n4,add,b\n"), "s.csv:3: ms goes back: 5 stands before it");
  EXPECT_EQ(says("0,moved,a\n"), "s.csv:2: event is neither add nor remove");
  EXPECT_THAT(says("0,add,\n"), HasSubstr("has no name"));
  EXPECT_THAT(says("-1,add,a\n"), HasSubstr("ms is \"-1\", not in"));
  EXPECT_THAT(says(""), HasSubstr("there are no rows"));
}

// ---- files

TEST_F(TraceFiles, are_read_packed_or_plain) {
  const std::string text = MinutesOf(8).idle(8, 12).text();
  const auto from_packed = read_owner_trace(packed("vcA.csv.gz", text), {});
  const auto from_plain = read_owner_trace(plain("vcB.csv", text), {});
  ASSERT_TRUE(from_packed) << from_packed.error().describe();
  ASSERT_TRUE(from_plain) << from_plain.error().describe();
  EXPECT_EQ(from_packed->name, "vcA");
  EXPECT_EQ(from_packed->spells, from_plain->spells);
}

TEST_F(TraceFiles, that_end_in_the_middle_are_refused) {
  const auto lab = read_owner_trace(torn("vcA.csv.gz", MinutesOf(8).idle(8, 500).text()), {});
  ASSERT_FALSE(lab);
  EXPECT_EQ(lab.error().code, ErrorCode::kCorrupt) << lab.error().describe();
}

TEST_F(TraceFiles, that_are_not_there_are_not_found) {
  EXPECT_EQ(read_owner_trace(path_of("none.csv.gz"), {}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read_owner_traces(folder_.path(), {}).error().code, ErrorCode::kNotFound);
}

TEST_F(TraceFiles, of_a_folder_are_labs_in_the_order_of_their_names) {
  packed("b.csv.gz", MinutesOf(8).idle(8, 12).text());
  packed("a.csv.gz", MinutesOf(8).idle(0, 12).text());
  const auto labs = read_owner_traces(folder_.path(), {});
  ASSERT_TRUE(labs) << labs.error().describe();
  ASSERT_EQ(labs->size(), 2u);
  EXPECT_EQ((*labs)[0].name, "a");
  EXPECT_THAT((*labs)[0].spells, IsEmpty());
  ASSERT_EQ((*labs)[1].spells.size(), 1u);
  EXPECT_EQ((*labs)[1].spells[0].lab, 1u);
}

}  // namespace
}  // namespace rn::evaluate
