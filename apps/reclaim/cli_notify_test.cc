// SPDX-License-Identifier: Apache-2.0
#include "cli_notify.h"

#include "cli_job_file.h"
#include <gtest/gtest.h>

namespace rn::cli {
namespace {

TEST(Notify, a_receiver_is_an_address_or_a_url) {
  EXPECT_EQ(notify_request("ann@example.org")->mail, "ann@example.org");
  EXPECT_EQ(notify_request("https://chat.example.org/x")->webhook, "https://chat.example.org/x");
  EXPECT_EQ(notify_request("https://ann@chat.example.org/x")->mail, "") << "the site refuses it";
  EXPECT_FALSE(notify_request("ann").has_value());
}

TEST(Notify, the_list_says_what_became_of_each_rule) {
  api::NotifyList list;
  api::NotifyRule rule;
  rule.id = "w-1";
  rule.user = UserId("ann");
  rule.mail = "ann@example.org";
  rule.on = {NotifyWord::kFinished, NotifyWord::kFailed};
  rule.is_confirmed = true;
  rule.sent = 3;
  rule.waiting = 2;
  rule.last_error = "connection refused";
  rule.last_sent_wall_ms = 1'000'000;
  list.rules.push_back(rule);
  rule.id = "w-2";
  rule.is_confirmed = false;
  rule.job_number = 12;
  list.rules.push_back(rule);

  const std::string table = table_of_rules(list, 1'060'000);

  EXPECT_NE(table.find("2 waiting, connection refused"), std::string::npos) << table;
  EXPECT_NE(table.find("finished,failed"), std::string::npos) << table;
  EXPECT_NE(table.find("not confirmed"), std::string::npos) << table;
}

TEST(JobFile, says_who_is_told) {
  const auto one = parse_job_file("run: python3 train.py\nnotify: ann@example.org\n");
  const auto two = parse_job_file(
      "run: python3 train.py\nnotify: [ann@example.org, 'https://chat.example.org/x']\n"
  );

  EXPECT_EQ(one->notify, std::vector<std::string>{"ann@example.org"});
  EXPECT_EQ(two->notify.size(), 2u);
}

}  // namespace
}  // namespace rn::cli
