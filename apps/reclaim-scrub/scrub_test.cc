// SPDX-License-Identifier: Apache-2.0
//
// reclaim-scrub on a false CUDA driver whose memory is a file.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;

const std::string kPattern = "this is the memory of the tenant before ";
constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Said {
  int code = -1;
  std::string out;
};

class Scrub : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::temp_directory_path() / ("rn-scrub-" + std::to_string(getpid()));
    card(71 * kMiB);  // a piece of 64 MiB, one of 4, one of 2, and a rest
  }

  void TearDown() override { fs::remove(path_); }

  /// A card of that size, full of what a tenant left.
  void card(std::size_t bytes) {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    std::string block;
    while (block.size() < kMiB) block += kPattern;
    block.resize(kMiB);
    for (std::size_t at = 0; at < bytes; at += kMiB) file << block;
  }

  /// Of one process, with what it says on both ways.
  Said run(const std::string& mode, const std::string& flags, const std::string& before = "") {
    const std::string command = before + "RN_FAKE_CUDA='" + mode + "' RN_FAKE_CUDA_MEMORY='" +
                                path_.string() + "' " RN_SCRUB_PROGRAM " " + flags + " 2>&1";
    Said said;
    FILE* const pipe = popen(("exec env " + command).c_str(), "r");
    std::array<char, 512> some{};
    while (pipe != nullptr && fgets(some.data(), some.size(), pipe) != nullptr)
      said.out += some.data();
    const int status = pipe == nullptr ? -1 : pclose(pipe);
    said.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return said;
  }

  Said scrub(const std::string& mode = "") {
    return run(mode, "--gpu GPU-of-the-test --library " RN_FAKE_CUDA_LIBRARY);
  }

  std::string memory(std::size_t bytes) {
    std::string all(bytes, '?');
    std::ifstream(path_, std::ios::binary).read(all.data(), static_cast<std::streamsize>(bytes));
    return all;
  }

  fs::path path_;
};

TEST_F(Scrub, nothing_of_the_tenant_before_is_left_but_in_what_is_too_small_for_a_piece) {
  const Said said = scrub();
  EXPECT_EQ(said.code, 0) << said.out;
  EXPECT_NE(
      said.out.find("\"overwritten_bytes\": 73400320, \"left_bytes\": 1048576"), std::string::npos
  ) << said.out;
  EXPECT_EQ(memory(70 * kMiB), std::string(70 * kMiB, '\0'));
  EXPECT_EQ(memory(71 * kMiB).substr(70 * kMiB, kPattern.size()), kPattern);
}

TEST_F(Scrub, a_card_that_does_not_hold_what_is_written_is_told) {
  for (const char* mode : {"zeros", "twice"}) {
    card(71 * kMiB);
    const Said said = scrub(mode);
    EXPECT_EQ(said.code, 1) << mode;
    EXPECT_NE(
        said.out.find("NOT scrubbed: memory does not hold what was written"), std::string::npos
    ) << said.out;
  }
}

TEST_F(Scrub, a_card_without_room_was_not_scrubbed) {
  const Said said = scrub("full");
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.out.find("no memory is free on it"), std::string::npos) << said.out;
}

TEST_F(Scrub, a_card_that_is_lost_in_the_middle_is_told_with_the_drivers_word) {
  const Said said = scrub("lost");
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.out.find("cuMemsetD32: CUDA_ERROR_ILLEGAL_STATE (401)"), std::string::npos)
      << said.out;
  EXPECT_NE(memory(kMiB).find(kPattern), std::string::npos);
}

TEST_F(Scrub, where_there_is_no_such_gpu_nothing_is_done) {
  EXPECT_EQ(scrub("none").code, 3);
  const Said other = run("", "--gpu GPU-another --library " RN_FAKE_CUDA_LIBRARY);
  EXPECT_EQ(other.code, 3);
  EXPECT_NE(other.out.find("shows 0 GPUs of that UUID"), std::string::npos) << other.out;
  EXPECT_NE(memory(kMiB).find(kPattern), std::string::npos);
}

TEST_F(Scrub, where_there_is_no_driver_that_is_said) {
  const Said said = run("", "--gpu GPU-of-the-test --library /nowhere/libcuda.so.1");
  EXPECT_EQ(said.code, 3);
  EXPECT_NE(said.out.find("no CUDA driver"), std::string::npos) << said.out;
}

TEST_F(Scrub, a_driver_that_hangs_is_ended_from_outside_and_nothing_was_said_to_be_done) {
  const Said said =
      run("hang",
          "--gpu GPU-of-the-test --library " RN_FAKE_CUDA_LIBRARY,
          "timeout --signal=KILL 0.3 env ");
  EXPECT_EQ(said.code, 137);
  EXPECT_EQ(said.out.find("overwritten"), std::string::npos) << said.out;
}

TEST_F(Scrub, one_gpu_is_named_by_its_whole_uuid) {
  for (const char* flags : {"", "--gpu", "--gpu 0", "--gpu GPU-a,GPU-b", "--gpus GPU-a"}) {
    const Said said = run("", flags);
    EXPECT_EQ(said.code, 2) << flags;
    EXPECT_NE(said.out.find("usage: reclaim-scrub --gpu UUID"), std::string::npos) << said.out;
  }
}

}  // namespace
