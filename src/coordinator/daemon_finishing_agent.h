// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: a light agent that a test can start and stop in one line.

#include <string>
#include <thread>

#include "coordinator/daemon_fixture.h"
#include "coordinator/daemon_light_agent.h"
#include "model/job.h"

namespace rn::coordinator {

/// One light agent in an own thread, of lab-a, that runs what it gets and ends it with `outputs`.
class FinishingAgent {
 public:
  /// The site outlives it. Not joined: the test fails.
  FinishingAgent(const LiveSite& site, const std::string& image, const Listing& outputs) {
    const Blob listing = to_cbor(outputs);
    site.put(std::string(as_text(listing)));
    auto identity = join_light_agent(
        site.url(), site.make_token(R"({"kind": "join", "lab": "lab-a"})"), "machine-1"
    );
    if (!identity) {
      ADD_FAILURE() << identity.error().describe();
      return;
    }
    LightAgent::Behaviour behaviour;
    behaviour.image_digest = image;
    behaviour.finishes = true;
    behaviour.outputs = crypto::sha256(listing);
    thread_ = std::thread([this, identity = *identity, behaviour, url = site.agent_url()] {
      LightAgent agent(loop_, identity, behaviour);
      agent.connect(url);
      loop_.run();
      agent.stop();
      loop_.poll();
    });
  }

  ~FinishingAgent() { stop(); }

  FinishingAgent(const FinishingAgent&) = delete;
  FinishingAgent& operator=(const FinishingAgent&) = delete;

  void stop() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  io::Loop loop_;
  std::thread thread_;
};

}  // namespace rn::coordinator
