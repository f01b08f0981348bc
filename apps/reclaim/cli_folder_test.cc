// SPDX-License-Identifier: Apache-2.0
#include "cli_folder.h"

#include <filesystem>
#include <fstream>

#include "cli_upload.h"
#include <gtest/gtest.h>

#include "base/scratch_folder.h"

namespace rn::cli {
namespace {

std::string said_of(const std::string& folder, const std::string& home) {
  const Status checked = check_upload_folder(folder, home);
  return checked ? "" : checked.error().message;
}

TEST(UploadFolder, the_whole_home_the_machine_and_what_is_above_the_home_are_refused) {
  const ScratchFolder scratch;
  const std::string home = std::filesystem::canonical(scratch.path()).string() + "/home/ann";
  std::filesystem::create_directories(home + "/thesis");
  std::filesystem::create_directories(home + "-2");
  std::filesystem::create_symlink("ann", scratch.path() + "/home/link");

  constexpr const char* kRest = ", and all of it would be uploaded: nothing was sent";
  EXPECT_EQ(said_of(home, home), home + " is your home folder" + kRest);
  EXPECT_EQ(said_of(home + "/thesis/..", home + "/"), home + " is your home folder" + kRest);
  EXPECT_EQ(said_of(scratch.path() + "/home/link", home), home + " is your home folder" + kRest);
  EXPECT_EQ(
      said_of(home + "/..", home),
      "your home folder is in " + home.substr(0, home.rfind('/')) + kRest
  );
  EXPECT_EQ(said_of("/", home), std::string("/ is the whole machine") + kRest);
  EXPECT_EQ(said_of("/", ""), std::string("/ is the whole machine") + kRest);

  const Error error = check_upload_folder(home, home).error();
  EXPECT_EQ(error.code, ErrorCode::kInvalid);
  for (const char* way : {"--folder", "workdir", "--no-upload", ".reclaimignore"})
    EXPECT_NE(error.hint.find(way), std::string::npos) << way;
}

TEST(UploadFolder, a_project_is_taken_and_so_is_a_home_that_says_what_stays_there) {
  const ScratchFolder scratch;
  const std::string home = scratch.path() + "/ann";
  std::filesystem::create_directories(home + "/thesis");
  std::filesystem::create_directories(home + "-2");

  EXPECT_EQ(said_of(home + "/thesis", home), "");
  EXPECT_EQ(said_of(home + "-2", home), "") << "it only begins like it";
  EXPECT_EQ(said_of(home, ""), "") << "nobody knows a home";
  EXPECT_EQ(said_of(home + "/gone", home), "") << "told elsewhere";
  std::ofstream(home + "/.reclaimignore") << "*\n!train.py\n";
  EXPECT_EQ(said_of(home, home), "");
}

TEST(UploadFolder, too_many_files_are_told_with_where_most_of_them_are) {
  Listing begun;
  for (int i = 0; i < 5; ++i) begun.files.push_back({.path = "data/" + std::to_string(i)});
  for (int i = 0; i < 2; ++i) begun.files.push_back({.path = "venv/lib/" + std::to_string(i)});
  begun.files.push_back({.path = "train.py"});

  const Error error = too_many_files(begun, 7);

  EXPECT_EQ(error.code, ErrorCode::kExhausted);
  EXPECT_EQ(
      error.message,
      "the folder has more than 7 files and folders; of those that were counted, most are in:\n"
      "  5  data/\n  2  venv/"
  );
  EXPECT_NE(error.hint.find(".reclaimignore"), std::string::npos);
}

TEST(UploadFolder, a_scan_ends_at_the_bound) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch.path() + "/many");
  for (const char* name : {"a", "b", "c"}) std::ofstream(scratch.path() + "/many/" + name) << name;

  EXPECT_TRUE(scan_folder(scratch.path(), 1u << 20, 4));
  const auto scan = scan_folder(scratch.path(), 1u << 20, 3);

  ASSERT_FALSE(scan);
  EXPECT_EQ(
      scan.error().message,
      "the folder has more than 3 files and folders; of those that were counted, most are in:\n"
      "  3  many/"
  );
}

TEST(UploadFolder, its_size_is_said_in_files_and_bytes) {
  Listing listing;
  listing.files.push_back({.path = "data", .kind = FileKind::kFolder});
  listing.files.push_back({.path = "data/a", .bytes = 1024});
  EXPECT_EQ(words_of_size(listing), "1 file, 1.0 KiB");
  listing.files.push_back({.path = "data/b", .bytes = 1024});
  EXPECT_EQ(words_of_size(listing), "2 files, 2.0 KiB");
}

}  // namespace
}  // namespace rn::cli
