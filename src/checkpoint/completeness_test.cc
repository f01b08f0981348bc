// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/completeness.h"

#include <gtest/gtest.h>

#include "base/fs_crash.h"
#include "base/rng.h"
#include "checkpoint/unit_check.h"
#include "checkpoint/zip_builder_fake.h"

namespace rn::checkpoint {
namespace {

class CompletenessTest : public ::testing::Test {
 protected:
  CompletenessTest() : fs_(clock_, 1) {}

  StructuralVerdict look(const std::string& name, BlobView bytes) {
    fs_.overwrite("/" + name, bytes);
    const auto file = fs_.open("/" + name);
    const auto verdict = check_completeness(**file, name);
    EXPECT_TRUE(verdict) << verdict.error().describe();
    return *verdict;
  }

  Completeness kind(const std::string& name, BlobView bytes) {
    return look(name, bytes).completeness;
  }

  ManualClock clock_;
  CrashFs fs_;
};

std::string safetensors(const std::string& header, std::size_t data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(header.size() >> (8 * i)));
  return out + header + std::string(data, 't');
}

TEST_F(CompletenessTest, a_whole_torch_zip_is_complete_with_and_without_zip64) {
  EXPECT_EQ(kind("a.pt", torch_like_zip(false)), Completeness::kComplete);
  EXPECT_EQ(kind("a.ckpt", torch_like_zip(true)), Completeness::kComplete);
  EXPECT_EQ(kind("A.PTH", torch_like_zip(false)), Completeness::kComplete);
}

TEST_F(CompletenessTest, a_checkpoint_of_few_bytes_is_judged_by_what_it_begins_like) {
  EXPECT_EQ(kind("step.ckpt", as_bytes("7")), Completeness::kUnknownKind);
  EXPECT_EQ(kind("step.ckpt", as_bytes("12\n")), Completeness::kUnknownKind);
  EXPECT_EQ(kind("step.ckpt", as_bytes("PK")), Completeness::kIncomplete);
  EXPECT_EQ(kind("step.ckpt", Blob{0, 0}), Completeness::kIncomplete);
  EXPECT_EQ(kind("step.ckpt", Blob{}), Completeness::kIncomplete);
}

TEST_F(CompletenessTest, a_zip_cut_at_any_length_is_never_complete) {
  for (const bool with_zip64 : {false, true}) {
    const Blob whole = torch_like_zip(with_zip64, 300);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      ASSERT_EQ(kind("a.pt", BlobView(whole).first(length)), Completeness::kIncomplete)
          << "length " << length;
    }
  }
}

TEST_F(CompletenessTest, a_cut_zip_that_holds_a_whole_zip_inside_is_never_complete) {
  const Blob inner = torch_like_zip(false, 50);
  ZipBuilder outer;
  outer.add("archive/inner.pt", std::string(as_text(inner)));
  outer.add("archive/version", "3\n");
  const Blob whole = outer.finish(false);

  EXPECT_EQ(kind("a.pt", whole), Completeness::kComplete);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    ASSERT_EQ(kind("a.pt", BlobView(whole).first(length)), Completeness::kIncomplete)
        << "length " << length;
  }
}

TEST_F(CompletenessTest, a_zip_with_zeroed_headers_is_incomplete_and_with_appended_bytes_too) {
  Blob whole = torch_like_zip();
  Blob longer = whole;
  longer.push_back(0);
  EXPECT_EQ(kind("a.pt", longer), Completeness::kIncomplete);

  std::fill_n(whole.begin() + 51, 4, std::uint8_t{0});  // second entry's local header
  EXPECT_EQ(kind("a.pt", whole), Completeness::kIncomplete);

  Blob hole = torch_like_zip();
  std::fill_n(hole.begin(), 16, std::uint8_t{0});
  EXPECT_EQ(kind("a.pt", hole), Completeness::kIncomplete);
}

TEST_F(CompletenessTest, a_comment_that_looks_like_an_end_record_does_not_confuse) {
  ZipBuilder zip;
  zip.add("a", "b");
  EXPECT_EQ(
      kind("a.pt", zip.finish(false, "PK\x05\x06 this is a comment of some length")),
      Completeness::kComplete
  );
}

TEST_F(CompletenessTest, any_flipped_byte_of_a_zips_structure_is_handled_without_a_crash) {
  const Blob whole = torch_like_zip(true, 100);
  SeededRng rng(3);
  for (int round = 0; round < 20'000; ++round) {
    Blob bytes = whole;
    for (std::uint64_t i = 0; i <= rng.below(4); ++i)
      bytes[rng.below(bytes.size())] = static_cast<std::uint8_t>(rng.next());
    (void)kind("a.pt", bytes);
  }
}

TEST_F(CompletenessTest, legacy_pickles_and_other_bytes_are_of_unknown_kind) {
  EXPECT_EQ(kind("a.pt", as_bytes("\x80\x02\x8a\nl\xfc")), Completeness::kUnknownKind);
  EXPECT_EQ(kind("a.ckpt", as_bytes("some other framework's format")), Completeness::kUnknownKind);
  EXPECT_EQ(kind("model.bin", as_bytes("x")), Completeness::kUnknownKind);
}

TEST_F(
    CompletenessTest,
    what_torch_wrote_is_checked_also_if_it_is_called_pth_tar_and_a_tape_archive_is_not
) {
  const Blob whole = torch_like_zip(true, 300);
  const Blob cut(whole.begin(), whole.end() - 30);
  for (const char* name : {"checkpoint.pth.tar", "model_best.PTH.tar", "a.pt.tar"}) {
    EXPECT_EQ(kind(name, whole), Completeness::kComplete) << name;
    EXPECT_EQ(kind(name, cut), Completeness::kIncomplete) << name;
    EXPECT_EQ(kind(name, as_bytes("file.txt and its bytes")), Completeness::kUnknownKind) << name;
  }
  EXPECT_EQ(kind("images.tar", whole), Completeness::kUnknownKind);
}

TEST_F(CompletenessTest, safetensors_must_end_where_its_header_says) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})";
  const std::string whole = safetensors(header, 12);

  EXPECT_EQ(kind("m.safetensors", as_bytes(whole)), Completeness::kComplete);
  EXPECT_EQ(kind("m.safetensors", as_bytes(whole + "x")), Completeness::kIncomplete);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    ASSERT_EQ(kind("m.safetensors", as_bytes(whole.substr(0, length))), Completeness::kIncomplete)
        << length;
  }
}

TEST_F(CompletenessTest, hostile_safetensors_headers_are_refused) {
  EXPECT_EQ(
      kind("m.safetensors", as_bytes(std::string(8, '\xff') + "{}")), Completeness::kIncomplete
  );
  EXPECT_EQ(kind("m.safetensors", as_bytes(safetensors("[]", 0))), Completeness::kIncomplete);
  EXPECT_EQ(
      kind("m.safetensors", as_bytes(safetensors(R"({"a":{"data_offsets":[8,0]}})", 8))),
      Completeness::kIncomplete
  );
  EXPECT_EQ(
      kind("m.safetensors", as_bytes(safetensors(R"({"a":{"data_offsets":[-1,0]}})", 0))),
      Completeness::kIncomplete
  );
  EXPECT_EQ(
      kind("m.safetensors", as_bytes(safetensors(R"({"a":5})", 0))), Completeness::kIncomplete
  );
  EXPECT_EQ(
      kind("m.safetensors", as_bytes(safetensors(std::string(500'000, '['), 0))),
      Completeness::kIncomplete
  );
}

TEST_F(CompletenessTest, trainer_state_and_metadata_tell_when_they_are_whole) {
  EXPECT_EQ(kind("trainer_state.json", as_bytes(R"({"global_step": 5})")), Completeness::kComplete);
  EXPECT_EQ(kind("trainer_state.json", as_bytes(R"({"global_step": )")), Completeness::kIncomplete);
  EXPECT_EQ(kind("trainer_state.json", as_bytes("")), Completeness::kIncomplete);
  EXPECT_EQ(kind(".metadata", as_bytes("\x80\x04K\x01.")), Completeness::kComplete);
  EXPECT_EQ(kind(".metadata", as_bytes("\x80\x04K\x01")), Completeness::kIncomplete);
}

class UnitCheckTest : public CompletenessTest {
 protected:
  UnitCheckTest() {
    EXPECT_TRUE(fs_.make_folder("/w", 0755));
    EXPECT_TRUE(fs_.make_folder("/w/checkpoint-5", 0755));
  }

  void write(const std::string& name, const std::string& bytes) {
    fs_.overwrite("/w/checkpoint-5/" + name, as_bytes(bytes));
  }

  Completeness unit(const std::string& path = "checkpoint-5", const WatchRules& rules = {}) {
    const auto folder = fs_.open_folder("/w").value();
    return check_unit(*folder, Unit{path, true}, rules).value().completeness;
  }
};

TEST_F(UnitCheckTest, a_trainer_folder_is_complete_with_its_state_file_and_whole_files_only) {
  EXPECT_EQ(unit(), Completeness::kIncomplete);
  write("optimizer.pt", std::string(as_text(torch_like_zip())));
  EXPECT_EQ(unit(), Completeness::kIncomplete);
  write("trainer_state.json", "{\"global_step\": 5}");
  EXPECT_EQ(unit(), Completeness::kComplete);
  write("rng_state.pth", "PK\x03\x04 and then it stops");
  EXPECT_EQ(unit(), Completeness::kIncomplete);
}

TEST_F(UnitCheckTest, an_optimizer_in_a_folder_of_ones_own_makes_no_trainer_of_it) {
  const std::string whole(as_text(torch_like_zip()));
  for (const char* folder : {"/w/checkpoint", "/w/checkpoint-best"})
    ASSERT_TRUE(make_folders(fs_, folder, 0755));
  for (const char* file :
       {"checkpoint/model.pt", "checkpoint/optimizer.pt", "checkpoint-best/optimizer.pt"})
    fs_.overwrite(std::string("/w/") + file, as_bytes(whole));
  EXPECT_EQ(unit("checkpoint"), Completeness::kUnknownKind);
  EXPECT_EQ(unit("checkpoint-best"), Completeness::kUnknownKind);
}

TEST_F(UnitCheckTest, a_distributed_checkpoint_needs_its_metadata) {
  write("__0_0.distcp", "shard");
  EXPECT_EQ(unit(), Completeness::kIncomplete);
  write(".metadata", "\x80\x04K\x01.");
  EXPECT_EQ(unit(), Completeness::kComplete);
}

TEST_F(UnitCheckTest, a_marker_completes_a_folder_of_unknown_files) {
  write("weights.xyz", "w");
  EXPECT_EQ(unit(), Completeness::kUnknownKind);
  write(".complete", "");
  EXPECT_EQ(unit(), Completeness::kComplete);
  EXPECT_EQ(unit("gone"), Completeness::kIncomplete);
}

/// Not even the last snapshot of a guest that was ended takes what its author calls unfinished.
TEST_F(UnitCheckTest, a_folder_without_its_declared_marker_is_not_whole) {
  WatchRules rules;
  rules.complete_marker = "DONE";
  write("weights.xyz", "w");
  EXPECT_EQ(unit("checkpoint-5", rules), Completeness::kIncomplete);
  write("DONE", "");
  EXPECT_EQ(unit("checkpoint-5", rules), Completeness::kComplete);
}

}  // namespace
}  // namespace rn::checkpoint
