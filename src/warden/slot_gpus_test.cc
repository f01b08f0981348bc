// SPDX-License-Identifier: Apache-2.0
#include "warden/slot_gpus.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/scratch_folder.h"
#include "traffic/shut_gate.h"

namespace rn::warden {
namespace {

class SlotGpusOnDisk : public ::testing::Test {
 protected:
  /// How many slots an order by hand for these GPUs would shut.
  int meant_by(std::uint64_t gpus) const {
    return traffic::shut_slots_of_gpus("/nowhere", path_.c_str(), gpus).count;
  }

  ScratchFolder folder_;
  std::string path_ = folder_.path() + "/" RN_CUT_SLOT_GPUS_FILE;
};

TEST_F(SlotGpusOnDisk, an_order_by_hand_finds_the_slots_of_a_gpu) {
  SlotGpusFile file(path_);
  file.masks()[0] = 0b01;
  file.masks()[7] = 0b10;
  file.masks()[kSlots - 1] = 0b11;

  EXPECT_EQ(meant_by(0b01), 2);
  EXPECT_EQ(meant_by(0b10), 2);
  EXPECT_EQ(meant_by(0b11), 3);
  EXPECT_EQ(meant_by(0b100), 0);
}

TEST_F(SlotGpusOnDisk, they_are_known_while_the_warden_is_dead_and_forgotten_when_it_begins_again) {
  { SlotGpusFile(path_).masks()[3] = 1; }
  EXPECT_EQ(meant_by(1), 1);

  const SlotGpusFile again(path_);

  EXPECT_EQ(meant_by(1), 0);
}

TEST_F(SlotGpusOnDisk, a_file_that_is_not_whole_or_not_there_means_nobody) {
  EXPECT_EQ(meant_by(1), 0);

  std::ofstream(path_) << std::string(sizeof(SlotGpus) - 1, '\xff');

  EXPECT_EQ(meant_by(1), 0);
}

TEST_F(SlotGpusOnDisk, where_no_file_can_be_had_the_masks_are_the_processs_own) {
  SlotGpusFile file(folder_.path() + "/no/such/folder");
  file.masks()[0] = 1;

  EXPECT_EQ(file.masks()[0], 1U);
}

TEST_F(SlotGpusOnDisk, nobody_else_may_read_or_write_it) {
  const SlotGpusFile file(path_);

  struct stat seen {};

  ASSERT_EQ(stat(path_.c_str(), &seen), 0);

  EXPECT_EQ(seen.st_mode & 07777, 0600U);
}

TEST_F(SlotGpusOnDisk, slots_without_a_gate_are_said_to_be_open) {
  SlotGpusFile file(path_);
  file.masks()[0] = 1;

  EXPECT_LT(traffic::shut_slots_of_gpus("/nowhere", path_.c_str(), 1).result, 0);
}

}  // namespace
}  // namespace rn::warden
