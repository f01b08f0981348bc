// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/step_name.h"

#include <string>

#include <gtest/gtest.h>

namespace rn::checkpoint {
namespace {

TEST(StepName, is_the_number_behind_the_word_that_frameworks_write) {
  EXPECT_EQ(step_in_path("checkpoint-500"), 500);                        // Hugging Face
  EXPECT_EQ(step_in_path("epoch=3-step=1200.ckpt"), 1200);               // Lightning
  EXPECT_EQ(step_in_path("epoch=3-step=1200-v1.ckpt"), 1200);            // and its second file
  EXPECT_EQ(step_in_path("global_step1000/mp_rank_00_model.pt"), 1000);  // DeepSpeed
  EXPECT_EQ(step_in_path("iter_0000500/model.pt"), 500);                 // Megatron
  EXPECT_EQ(step_in_path("out/Iteration.40.pth"), 40);
  EXPECT_EQ(step_in_path("model_steps_7.pt"), 7);
  EXPECT_EQ(step_in_path("ckpt.0005.pt"), 5);
  EXPECT_EQ(step_in_path("CKPT_0.pt"), 0);
}

TEST(StepName, says_nothing_where_the_number_counts_something_else) {
  for (const char* path :
       {"",
        "/",
        "checkpoint.pt",
        "last.ckpt",
        "resnet50.pt",
        "vit_b_16.pth",
        "netG_epoch_3.pth",
        "ckpt-0.87.pt",
        "step-10k.pt",
        "ckpt_3_100.pt",
        "checkpoint-2024-01-02.pt",
        "footstep12.pt",
        "hpc_ckpt_3.ckpt",
        "step-.pt",
        "step--5.pt"})
    EXPECT_EQ(step_in_path(path), -1) << path;
}

TEST(StepName, of_a_step_is_believed_before_other_counts_and_whatever_follows_it) {
  EXPECT_EQ(step_in_path("ckpt_12_step_300.pt"), 300);
  EXPECT_EQ(step_in_path("step_300_ckpt_12.pt"), 300);
  EXPECT_EQ(step_in_path("step_300_0.pt"), 300);
  EXPECT_EQ(step_in_path("step_one_step_2.pt"), 2);
}

TEST(StepName, is_looked_for_from_the_last_part_of_the_path) {
  EXPECT_EQ(step_in_path("step-5/step-6/model.pt"), 6);
  EXPECT_EQ(step_in_path("step-5/checkpoint-7"), 7);
  EXPECT_EQ(step_in_path("step-5//model.pt"), 5);
}

TEST(StepName, of_more_digits_than_fit_is_none) {
  EXPECT_EQ(step_in_path("step-" + std::string(18, '9')), 999'999'999'999'999'999);
  EXPECT_EQ(step_in_path("step-" + std::string(19, '9')), -1);
  EXPECT_EQ(step_in_path("step-" + std::string(100'000, '0')), -1);
}

TEST(StepName, of_a_save_is_its_units_else_the_newest_beside_it) {
  const SeenFiles beside{{"run/step-40.pt", {}}, {"run/step-60.pt", {}}, {"run/notes", {}}};
  EXPECT_EQ(step_of_save({"step-50.pt", false}, beside), 50);
  EXPECT_EQ(step_of_save({"last.ckpt", false}, beside), 60);
  EXPECT_EQ(step_of_save({"last.ckpt", false}, {}), -1);
  EXPECT_EQ(step_of_save({"", true}, {}), -1);
}

}  // namespace
}  // namespace rn::checkpoint
