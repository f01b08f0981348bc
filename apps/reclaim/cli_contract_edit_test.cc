// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "cli_contract.h"
#include "cli_site_fixture.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/scratch_folder.h"
#include "coordinator/daemon_fixture.h"
#include "coordinator/daemon_live_agent.h"

namespace rn::cli {
namespace {

/// A node of lab-a that takes edits, and an editor that changes nothing and leaves a file where it
/// was opened.
class CliContractEdit : public testing::Test {
 protected:
  void SetUp() override {
    coordinator::LightAgent::Behaviour behaviour;
    behaviour.contract_version = "v1";
    agent_.emplace(site_, "lab-a", "machine-1", behaviour);
    const std::string path = "/v1/nodes/" + agent_->node().str();
    std::string version;
    for (int i = 0; i < 1000 && version.empty(); ++i) {
      const auto node = nlohmann::json::parse(site_.call("GET", path).body);
      version = node.value("contract_version", "");
      if (version.empty()) std::this_thread::sleep_for(milliseconds(10));  // between two looks
    }
    ASSERT_EQ(version, "v1");
    ::setenv("VISUAL", ("touch " + mark()).c_str(), 1);
  }

  void TearDown() override { ::unsetenv("VISUAL"); }

  /// Of `reclaim contract edit` by who holds the token.
  int edit(const std::string& token) {
    ContractOptions options;
    options.node = agent_->node().str();
    testing::internal::CaptureStderr();
    const int code = contract_edit(client_of(site_, token), options);
    said_ = testing::internal::GetCapturedStderr();
    return code;
  }

  std::string mark() const { return folder_.path() + "/opened"; }

  bool has_opened() const { return std::filesystem::exists(mark()); }

  coordinator::LiveSite site_;
  ScratchFolder folder_;
  std::optional<coordinator::LiveAgent> agent_;
  std::string said_;
};

TEST_F(CliContractEdit, an_owner_gets_an_editor) {
  const std::string owner =
      site_.make_token(R"({"kind": "user", "user": "oli", "lab": "lab-a", "role": "owner"})");

  EXPECT_EQ(edit(owner), 0) << said_;

  EXPECT_TRUE(has_opened());
  EXPECT_NE(said_.find("nothing is changed"), said_.npos) << said_;
}

TEST_F(CliContractEdit, who_may_not_edit_hears_it_before_an_editor_is_opened) {
  EXPECT_EQ(edit(site_.admin()), 4) << "the first administrator owns no machine";
  EXPECT_NE(said_.find("is edited by the owners of lab lab-a alone"), said_.npos) << said_;
  EXPECT_EQ(
      edit(site_.make_token(R"({"kind": "user", "user": "ann", "lab": "lab-a", "role": "user"})")),
      4
  );

  EXPECT_FALSE(has_opened());
}

}  // namespace
}  // namespace rn::cli
