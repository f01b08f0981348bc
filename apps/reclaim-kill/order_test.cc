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

TEST(EarlyOrder, that_is_for_less_or_is_not_understood_cuts_nothing) {
  const std::vector<std::vector<const char*>> orders = {
      {"--gpu", "0"},
      {"--gpu=0"},
      {"--cut-only", "--gpu", "1"},
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
      {""},
  };
  for (const auto& words : orders) EXPECT_EQ(read(words).cut, Cut::kNothing) << words.front();
}

TEST(ServedLab, is_the_first_word_of_the_settings_and_any_where_there_are_none) {
  EXPECT_TRUE(is_served_lab("", "lab-a\nprivate\n"));
  EXPECT_TRUE(is_served_lab("lab-a", "lab-a\nprivate\n"));
  EXPECT_TRUE(is_served_lab("lab-b", ""));
  EXPECT_FALSE(is_served_lab("lab", "lab-a\nprivate\n"));
  EXPECT_FALSE(is_served_lab("lab-a2", "lab-a\nprivate\n"));
}

}  // namespace
}  // namespace rn
