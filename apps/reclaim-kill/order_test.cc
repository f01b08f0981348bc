// SPDX-License-Identifier: Apache-2.0
#include "order.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace rn {
namespace {

using Cut = EarlyOrder::Cut;

EarlyOrder read(const std::vector<const char*>& words) {
  return read_early_order(static_cast<int>(words.size()), words.data());
}

TEST(EarlyOrder, of_the_whole_machine_cuts_its_guests_where_it_was_served) {
  EXPECT_EQ(read({}).cut, Cut::kGuests);
  EXPECT_EQ(read({}).run, std::string("/run/reclaimnet"));

  const EarlyOrder order =
      read({"--cut-only", "--state", "/a", "--run=/b", "--lab", "c", "--engine=/d"});
  EXPECT_EQ(order.cut, Cut::kGuests);
  EXPECT_EQ(order.state, std::string("/a"));
  EXPECT_EQ(order.run, std::string("/b"));
  EXPECT_EQ(order.lab, std::string("c"));
}

TEST(EarlyOrder, for_transfers_cuts_no_guest) {
  EXPECT_EQ(read({"--transfers"}).cut, Cut::kTransfers);
  EXPECT_EQ(read({"--run", "/b", "--transfers"}).cut, Cut::kTransfers);
}

TEST(EarlyOrder, for_single_gpus_cuts_their_guests) {
  EXPECT_EQ(read({"--gpu", "0"}).cut, Cut::kGuestsOfGpus);
  EXPECT_EQ(read({"--gpu", "0"}).gpus, 1U);
  EXPECT_EQ(read({"--cut-only", "--gpu=1"}).gpus, 2U);
  EXPECT_EQ(read({"--gpu", "0", "--gpu=63", "--gpu", "0"}).gpus, (std::uint64_t{1} << 63) | 1);
  EXPECT_EQ(read({}).gpus, 0U);
}

TEST(EarlyOrder, that_is_for_less_or_is_not_understood_cuts_nothing) {
  const std::vector<std::vector<const char*>> orders = {
      {"--gpu", "64"},
      {"--gpu=100"},
      {"--gpu", "0x1"},
      {"--gpu", "0,1"},
      {"--gpu", "0", "1"},
      {"--gpu", "0", "--gpu", "64"},
      {"--gpu", "0", "--transfers"},
      {"--transfers", "--gpu", "0"},
      {"--gpu", "0", "--allow-transfers"},
      {"--allow-transfers"},
      {"--transfers", "--cut-only"},
      {"--cut-only", "--transfers"},
      {"--help"},
      {"-h"},
      {"now"},
      {"--run"},
      {"--run="},
      {"--run", ""},
      {"--run", "--cut-only"},
      {"--runs", "/b"},
      {"--cut"},
      {"--lab", "lab-a", "--lab=lab-b"},
      {""},
  };
  for (const auto& words : orders) EXPECT_EQ(read(words).cut, Cut::kNothing) << words.front();
}

TEST(EarlyOrder, is_meant_by_words_that_are_understood_also_where_it_cuts_nothing) {
  const std::vector<std::vector<const char*>> orders = {
      {},
      {"--transfers"},
      {"--gpu", "0", "--gpu=1"},
      {"--allow-transfers", "--lab", "lab-a"},
  };
  for (const auto& words : orders) EXPECT_TRUE(read(words).is_understood) << words.size();
  for (const char* const word : {"--help", "-h", "--version", "--frob", "now", "--gpu"})
    EXPECT_FALSE(read({word}).is_understood) << word;
}

TEST(ServedLab, is_the_first_word_of_the_settings_and_no_named_one_where_there_are_none) {
  EXPECT_TRUE(is_served_lab("", "lab-a\nprivate\n"));
  EXPECT_TRUE(is_served_lab("lab-a", "lab-a\nprivate\n"));
  EXPECT_TRUE(is_served_lab("", ""));
  EXPECT_FALSE(is_served_lab("lab-b", ""));
  EXPECT_FALSE(is_served_lab("lab", "lab-a\nprivate\n"));
  EXPECT_FALSE(is_served_lab("lab-a2", "lab-a\nprivate\n"));
}

}  // namespace
}  // namespace rn
