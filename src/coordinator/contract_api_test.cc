// SPDX-License-Identifier: Apache-2.0
// The contract's routes on a coordinator that runs; the node that they are about has joined and is
// away.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/places_fixture.h"
#include "coordinator/daemon_fixture.h"
#include "coordinator/daemon_light_agent.h"

namespace rn::coordinator {
namespace {

class ContractApi : public testing::Test {
 protected:
  void SetUp() override {
    const std::string join = site_.make_token(R"({"kind": "join", "lab": "lab-a"})");
    const auto node = join_light_agent(site_.url(), join, "machine-1");
    ASSERT_TRUE(node.has_value()) << node.error().describe();
    path_ = "/v1/nodes/" + node->node.str();
  }

  std::string token(const char* lab, const char* role) {
    return site_.make_token(nlohmann::json{
        {"kind", "user"},
        {"user", std::string("u-") + lab + role},
        {"lab", lab},
        {"role", role}}.dump());
  }

  io::HttpReply check(const nlohmann::json& contract, const std::string& who) {
    const nlohmann::json body = {{"contract", contract}};
    return site_.call("POST", path_ + "/contract/check", body.dump(), who);
  }

  io::HttpReply edit(const std::string& body, const std::string& who) {
    return site_.call("POST", path_ + "/contract", body, who);
  }

  static std::string message(const io::HttpReply& reply) {
    return nlohmann::json::parse(reply.body)["error"]["message"];
  }

  LiveSite site_;
  std::string path_;
};

TEST_F(ContractApi, is_for_the_owners_of_the_nodes_own_lab_alone) {
  const std::vector<std::pair<const char*, const char*>> strangers = {
      {"lab-a", "viewer"}, {"lab-a", "user"}, {"lab-b", "owner"}, {"it", "admin"}};
  for (const auto& [lab, role] : strangers) {
    const std::string who = token(lab, role);
    EXPECT_EQ(edit(R"({"edit": "edit-0001"})", who).status, 403) << lab << " " << role;
    EXPECT_EQ(check(nlohmann::json::object(), who).status, 403) << lab << " " << role;
  }
  EXPECT_EQ(edit(R"({"edit": "edit-0001"})", "admin").status, 403)
      << "the first administrator owns no machine";
  EXPECT_EQ(check(nlohmann::json::object(), token("lab-a", "owner")).status, 200);
}

TEST_F(ContractApi, a_node_that_is_away_is_told_nothing) {
  const io::HttpReply reply = edit(R"({"edit": "edit-0001"})", token("lab-a", "owner"));

  EXPECT_EQ(reply.status, 503);
  EXPECT_NE(message(reply).find("nothing was done"), std::string::npos) << reply.body;
}

TEST_F(ContractApi, what_is_no_contract_names_its_field) {
  const std::string owner = token("lab-a", "owner");
  EXPECT_EQ(
      message(edit(R"({"edit": "edit-0001", "contract": {"notice": 60}})", owner)),
      "contract.notice: no such field"
  );
  EXPECT_EQ(
      message(edit(R"({"edit": "edit-0001", "contract": {"lends": 1}})", owner)),
      message(check(nlohmann::json::parse(R"({"lends": 1})"), owner))
  );
  EXPECT_NE(
      message(edit(R"({"edit": "edit-0001", "contract": {"notice_s": 901}})", owner))
          .find("notice_s: is more than 900"),
      std::string::npos
  );
  EXPECT_EQ(edit(R"({"edit": "short"})", owner).status, 400);
  EXPECT_EQ(edit(std::string(300'000, ' '), owner).status, 413);
}

TEST_F(ContractApi, a_check_says_what_an_edit_would_do_and_keeps_nothing) {
  const std::string owner = token("lab-a", "owner");
  const auto nights = nlohmann::json::parse(R"({"windows": [{"from": "18:00", "to": "08:00"}]})");
  const auto less = nlohmann::json::parse(check(nights, owner).body);
  EXPECT_EQ(less["lent_minutes_before"], 10080);
  EXPECT_EQ(less["lent_minutes_after"], 7 * 14 * 60);
  EXPECT_EQ(less["narrows"], true) << less;
  EXPECT_EQ(less["changes"][0], "windows: every day 18:00 to 08:00, and it was at any time");

  const auto more =
      nlohmann::json::parse(check(nlohmann::json::parse(R"({"notice_s": 120})"), owner).body);
  EXPECT_EQ(more["narrows"], false);
  EXPECT_EQ(more["widens"][0], "notice_s: 120 is more than 60");
  const auto bad =
      nlohmann::json::parse(check(nlohmann::json::parse(R"({"notice_s": 901})"), owner).body);
  EXPECT_EQ(bad["problems"].size(), 1u) << bad;
  const auto node = nlohmann::json::parse(site_.call("GET", path_, "", owner).body);
  EXPECT_TRUE(node["edits"].empty());
  EXPECT_TRUE(node["proposal"].is_null());
}

}  // namespace
}  // namespace rn::coordinator
