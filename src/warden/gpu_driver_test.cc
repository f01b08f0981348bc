// SPDX-License-Identifier: Apache-2.0
#include "warden/gpu_driver.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace rn::warden {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

/// A machine with two cards whose devices are numbered the other way round.
class GpuDriverFiles : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("rn-gpu-driver-" + std::to_string(getpid()));
    write("/proc/driver/nvidia/gpus/0000:01:00.0/information", about("GPU-first", "1"));
    write("/proc/driver/nvidia/gpus/0000:02:00.0/information", about("GPU-second", "0"));
    for (const char* device : {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"})
      write("/dev/" + std::string(device), "");
    write("/usr/lib/x86_64-linux-gnu/libcuda.so.580.1", "a library");
    fs::create_symlink("libcuda.so.580.1", root_ + "/usr/lib/x86_64-linux-gnu/libcuda.so.1");
    write("/usr/lib64/libnvidia-ml.so.1", "a library");
  }

  void TearDown() override { fs::remove_all(root_); }

  static std::string about(const std::string& uuid, const std::string& minor) {
    return "Model: \t\t NVIDIA card\nIRQ:   \t\t 0\nGPU UUID: \t " + uuid +
           "\nVideo BIOS: \t 96\nDevice Minor: \t " + minor + "\nGPU Excluded:\t No\n";
  }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(GpuDriverFiles, a_guest_is_given_its_cards_devices_and_the_drivers_libraries) {
  const auto found = find_gpu_driver({"GPU-first"}, root_);

  ASSERT_TRUE(found) << found.error().describe();
  EXPECT_THAT(found->devices, ElementsAre("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"));
  EXPECT_THAT(
      found->libraries,
      ElementsAre(
          Pair(
              "/usr/lib/x86_64-linux-gnu/libcuda.so.580.1", "/usr/local/nvidia/lib64/libcuda.so.1"
          ),
          Pair("/usr/lib64/libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1")
      )
  );
}

TEST_F(GpuDriverFiles, two_cards_are_two_devices_and_none_is_nothing) {
  const auto both = find_gpu_driver({"GPU-second", "GPU-first"}, root_);
  ASSERT_TRUE(both) << both.error().describe();
  EXPECT_EQ(both->devices.size(), 4U);
  EXPECT_EQ(both->devices[0], "/dev/nvidia0");

  EXPECT_TRUE(find_gpu_driver({}, root_ + "/nowhere")->is_empty());
}

TEST_F(GpuDriverFiles, what_is_missing_is_named_with_what_to_do) {
  const auto other = find_gpu_driver({"GPU-third"}, root_);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(other.error().describe(), HasSubstr("shows no GPU GPU-third"));

  fs::remove(root_ + "/dev/nvidia-uvm");
  EXPECT_THAT(
      find_gpu_driver({"GPU-first"}, root_).error().describe(),
      HasSubstr("there is no /dev/nvidia-uvm")
  );
  write("/dev/nvidia-uvm", "");
  fs::remove(root_ + "/usr/lib64/libnvidia-ml.so.1");
  EXPECT_THAT(
      find_gpu_driver({"GPU-first"}, root_).error().describe(),
      HasSubstr("libnvidia-ml.so.1 is in no folder of libraries")
  );
}

}  // namespace
}  // namespace rn::warden
