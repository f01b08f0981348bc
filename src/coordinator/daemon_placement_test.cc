// SPDX-License-Identifier: Apache-2.0
// Probe, hold and commit over real sockets, certificates and a real store: a site of two light
// agents of which the better one misbehaves. core_placement_test.cc plays the same on the core
// alone, with every interleaving in the test's hand.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "coordinator/daemon_live_agent.h"

namespace rn::coordinator {
namespace {

using nlohmann::json;

/// Much later than the first answer, however busy the machine is: the coordinator waits for the
/// others for some 20 ms only.
constexpr milliseconds kLate{2000};

/// What a node was told; filled on the agents' threads.
struct Told {
  std::atomic<int> commits{0};
  std::atomic<int> cancels{0};
};

class OverTheWire : public testing::Test {
 protected:
  /// One that the coordinator ranks first, and one with half of what the job wants. `first`: who
  /// answers probes at once while the other one takes its time (kLate).
  enum class First { kBest, kOther };

  void start(First first, LightAgent::Behaviour best_behaviour) {
    image_ = site_.add_base_image();
    LightAgent::Behaviour other_behaviour;
    other_behaviour.image_digest = image_;
    other_behaviour.cpu_milli = 16'000;
    (first == First::kBest ? other_behaviour : best_behaviour).answers_after = kLate;
    other_ = join("machine-2", std::move(other_behaviour), told_other_);
    best_behaviour.image_digest = image_;
    best_behaviour.cpu_milli = 32'000;
    best_ = join("machine-1", std::move(best_behaviour), told_best_);
    wait("both nodes", [this] { return nodes_up() == 2; });
  }

  std::unique_ptr<LiveAgent> join(
      const std::string& machine, LightAgent::Behaviour behaviour, Told& told
  ) {
    behaviour.on_commit = [&told](const wire::Commit&) { ++told.commits; };
    behaviour.on_cancel = [&told](const wire::CancelHold&) { ++told.cancels; };
    return std::make_unique<LiveAgent>(site_, "lab-" + machine, machine, std::move(behaviour));
  }

  int nodes_up() const {
    int count = 0;
    const json list = json::parse(site_.call("GET", "/v1/nodes").body);
    for (const json& node : list["nodes"]) count += node["is_connected"].get<bool>() ? 1 : 0;
    return count;
  }

  void submit() const {
    const json spec = {
        {"command", {"true"}},
        {"checkpoint", {{"is_stateless", true}}},
        {"resources", {{"cpu_milli", 32'000}, {"cpu_milli_min", 1000}}}};
    ASSERT_EQ(site_.call("POST", "/v1/jobs", spec.dump()).status, 201);
  }

  json job() const { return json::parse(site_.call("GET", "/v1/jobs/1").body); }

  json attempts() const {
    return json::parse(site_.call("GET", "/v1/jobs/1/attempts").body)["attempts"];
  }

  bool runs_on(const LiveAgent& agent) const {
    const json now = job();
    return now["state"] == "running" && now["node"] == agent.node().str();
  }

  void wait(const std::string& what, const std::function<bool()>& is_so) const {
    for (int i = 0; i < 1000; ++i) {
      if (is_so()) return;
      std::this_thread::sleep_for(milliseconds(20));  // between two looks
    }
    FAIL() << what << " did not come: " << site_.call("GET", "/v1/jobs/1").body << attempts();
  }

  LiveSite site_;
  std::string image_;
  Told told_best_;
  Told told_other_;
  std::unique_ptr<LiveAgent> best_;
  std::unique_ptr<LiveAgent> other_;
};

TEST_F(OverTheWire, the_best_node_gets_the_job_and_the_others_hold_is_cancelled) {
  start(First::kBest, {});
  submit();

  wait("the job on the best node", [this] { return runs_on(*best_); });
  wait("the other one's release", [this] { return told_other_.cancels == 1; });
  EXPECT_EQ(told_other_.commits, 0);
}

TEST_F(OverTheWire, when_the_best_refuses_the_other_one_gets_it) {
  start(First::kOther, {.refuses = "the owner is at the machine"});
  submit();

  wait("the job on the other node", [this] { return runs_on(*other_); });
  EXPECT_EQ(told_best_.commits, 0);
  EXPECT_EQ(attempts().size(), 1u);
}

TEST_F(OverTheWire, an_answer_that_comes_too_late_holds_nothing) {
  start(First::kOther, {});
  submit();

  wait("the job on the other node", [this] { return runs_on(*other_); });
  wait("the late hold's release", [this] { return told_best_.cancels == 1; });
  EXPECT_EQ(told_best_.commits, 0);
  EXPECT_EQ(attempts().size(), 1u);
}

TEST_F(OverTheWire, an_answer_that_comes_twice_and_a_second_hold_place_the_job_once) {
  start(First::kBest, {.answers_twice = true});
  submit();

  wait("the job on the best node", [this] { return runs_on(*best_); });
  wait("the second hold's release", [this] { return told_best_.cancels == 1; });
  EXPECT_EQ(told_best_.commits, 1);
  EXPECT_EQ(attempts().size(), 1u);
}

TEST_F(OverTheWire, when_the_best_vanishes_after_the_commit_its_epoch_is_burnt) {
  start(First::kBest, {.vanishes = true});
  submit();

  wait("the job on the other node", [this] { return runs_on(*other_); });
  EXPECT_EQ(told_best_.commits, 1);
  const json all = attempts();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["node"], best_->node().str());
  EXPECT_EQ(all[0]["end"], "lost");
  EXPECT_NE(all[0]["epoch"], all[1]["epoch"]);
}

TEST_F(OverTheWire, an_agent_of_another_version_is_told_which_side_to_upgrade) {
  image_ = site_.add_base_image();
  std::mutex mutex;
  std::vector<wire::Refused> refusals;
  LightAgent::Behaviour newer;
  newer.protocol = wire::kProtocol + 7;
  newer.on_refused = [&](const wire::Refused& refused) {
    const std::lock_guard lock(mutex);
    refusals.push_back(refused);
  };
  LiveAgent agent(site_, "lab-a", "machine-1", newer);
  const auto refused = [&] {
    const std::lock_guard lock(mutex);
    return !refusals.empty();
  };
  wait("the refusal", refused);
  agent.stop();

  EXPECT_EQ(refusals.front().code, "unsupported");
  EXPECT_NE(refusals.front().message.find("protocol"), std::string::npos);
  EXPECT_NE(refusals.front().hint.find("upgrade"), std::string::npos) << refusals.front().hint;
  EXPECT_EQ(nodes_up(), 0);
}

}  // namespace
}  // namespace rn::coordinator
