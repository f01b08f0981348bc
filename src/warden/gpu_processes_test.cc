// SPDX-License-Identifier: Apache-2.0
#include "warden/gpu_processes.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "base/places_fixture.h"

namespace rn::warden {
namespace {

TEST(GpuProcesses, a_machine_without_the_driver_has_no_library) {
  const auto opened = open_nvml("librn-no-such-nvml.so.1");

  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
}

TEST(GpuProcesses, compute_and_graphics_contexts_are_listed_once_per_gpu_and_pid) {
  unsetenv("RN_FAKE_NVML");
  const auto nvml = open_nvml(places::kWardenFakeNvml);
  ASSERT_TRUE(nvml) << nvml.error().describe();

  const auto processes = (*nvml)->list(seconds(30));

  ASSERT_TRUE(processes);
  EXPECT_EQ(
      *processes, (std::vector<GpuProcess>{{0, 4711, 0}, {0, 5000, 1'073'741'824}, {1, 6000, 4096}})
  );
}

TEST(GpuProcesses, each_gpu_has_a_name_that_no_other_card_has) {
  unsetenv("RN_FAKE_NVML");
  const auto nvml = nvml_when_asked(places::kWardenFakeNvml);

  EXPECT_EQ(nvml->uuid(1, seconds(30)), "GPU-recorded-1");
  const auto none = nvml->uuid(2, seconds(30));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(nvml_when_asked("librn-no-such-nvml.so.1")->uuid(0, seconds(30)));
}

TEST(GpuProcesses, a_driver_that_does_not_start_is_unavailable) {
  setenv("RN_FAKE_NVML", "refuse", 1);
  const auto opened = open_nvml(places::kWardenFakeNvml);
  unsetenv("RN_FAKE_NVML");

  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kNotFound) << "9: not loaded";
}

TEST(GpuProcesses, what_starts_by_itself_lists_the_same) {
  unsetenv("RN_FAKE_NVML");

  const auto processes = nvml_when_asked(places::kWardenFakeNvml)->list(seconds(30));

  ASSERT_TRUE(processes);
  EXPECT_EQ(processes->size(), 3U);
}

TEST(GpuProcesses, without_a_driver_nobody_holds_anything_and_one_that_refuses_is_an_error) {
  EXPECT_TRUE(nvml_when_asked("librn-no-such-nvml.so.1")->list(seconds(30))->empty());
  setenv("RN_FAKE_NVML", "refuse", 1);
  EXPECT_TRUE(nvml_when_asked(places::kWardenFakeNvml)->list(seconds(30))->empty()) << "not loaded";
  setenv("RN_FAKE_NVML", "differ", 1);
  const auto processes = nvml_when_asked(places::kWardenFakeNvml)->list(seconds(30));
  unsetenv("RN_FAKE_NVML");

  ASSERT_FALSE(processes);
  EXPECT_EQ(processes.error().code, ErrorCode::kUnavailable);
}

TEST(GpuProcesses, a_driver_that_hangs_at_its_start_keeps_nobody_waiting) {
  setenv("RN_FAKE_NVML", "hang-at-start", 1);
  const auto nvml = nvml_when_asked(places::kWardenFakeNvml);

  const auto processes = nvml->list(milliseconds(20));
  unsetenv("RN_FAKE_NVML");

  ASSERT_FALSE(processes);
  EXPECT_EQ(processes.error().code, ErrorCode::kTimeout);
}

TEST(GpuProcesses, a_driver_that_hangs_is_left_behind_after_the_limit) {
  const auto nvml = open_nvml(places::kWardenFakeNvml);
  ASSERT_TRUE(nvml);
  setenv("RN_FAKE_NVML", "hang", 1);

  const auto first = (*nvml)->list(milliseconds(20));
  const auto second = (*nvml)->list(seconds(3600));
  unsetenv("RN_FAKE_NVML");

  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code, ErrorCode::kTimeout);
  ASSERT_FALSE(second) << "answers at once while the driver hangs";
  EXPECT_EQ(second.error().code, ErrorCode::kTimeout);
}

TEST(GpuProcesses, a_node_without_gpus_lists_none) {
  EXPECT_TRUE(no_gpus()->list(milliseconds(1))->empty());
}

}  // namespace
}  // namespace rn::warden
