// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: a light agent in a thread of its own, that a test can start and stop in one line.

#include <string>
#include <thread>
#include <utility>

#include "coordinator/daemon_fixture.h"
#include "coordinator/daemon_light_agent.h"

namespace rn::coordinator {

/// A light agent that joins `lab` as `machine` and lives until stop() (or its end). Its behaviour's
/// callbacks run on its own thread.
class LiveAgent {
 public:
  /// The site outlives it. Not joined: the test fails.
  LiveAgent(
      const LiveSite& site,
      const std::string& lab,
      const std::string& machine,
      LightAgent::Behaviour behaviour
  ) {
    auto identity = join_light_agent(
        site.url(), site.make_token(R"({"kind": "join", "lab": ")" + lab + "\"}"), machine
    );
    if (!identity) {
      ADD_FAILURE() << identity.error().describe();
      return;
    }
    node_ = identity->node;
    thread_ = std::thread([this,
                           identity = *std::move(identity),
                           behaviour = std::move(behaviour),
                           url = site.agent_url()] {
      LightAgent agent(loop_, identity, behaviour);
      agent.connect(url);
      loop_.run();
      agent.stop();
      loop_.poll();
    });
  }

  ~LiveAgent() { stop(); }

  LiveAgent(const LiveAgent&) = delete;
  LiveAgent& operator=(const LiveAgent&) = delete;

  const NodeId& node() const { return node_; }

  void stop() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  io::Loop loop_;
  NodeId node_;
  std::thread thread_;
};

}  // namespace rn::coordinator
