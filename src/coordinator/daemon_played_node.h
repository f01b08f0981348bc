// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: a node whose guests, and the way into them (ADR 0019), are the test's to play.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "coordinator/daemon_fixture.h"
#include "coordinator/daemon_light_agent.h"
#include "io/loop_fixture.h"
#include "io/websocket_client.h"
#include "model/tunnel.h"

namespace rn::coordinator {

/// A light agent of lab-n, on a loop of its own, that has joined and takes jobs which want the
/// site's base image. The test's thread calls it, but where something else is said.
class PlayedNode {
 public:
  using Link = std::shared_ptr<io::WebSocket>;
  using Hear = std::function<void(const Link& link, const Blob& message)>;

  /// The site outlives it. Not joined: the test fails.
  explicit PlayedNode(const LiveSite& site) : agent_url_(site.agent_url()) {
    auto identity = join_light_agent(
        site.url(), site.make_token(R"({"kind": "join", "lab": "lab-n"})"), "machine-1"
    );
    if (!identity) {
      ADD_FAILURE() << identity.error().describe();
      return;
    }
    identity_ = *std::move(identity);
    LightAgent::Behaviour behaviour;
    behaviour.image_digest = site.add_base_image();
    thread_.call([&] {
      agent_ = std::make_unique<LightAgent>(thread_.loop(), identity_, behaviour);
      agent_->connect(agent_url_);
    });
  }

  ~PlayedNode() {
    thread_.call([&] {
      if (link_) link_->close("end of test");
      link_.reset();
      agent_.reset();
    });
  }

  PlayedNode(const PlayedNode&) = delete;
  PlayedNode& operator=(const PlayedNode&) = delete;

  /// What opens its way into its guests.
  io::WebSocketClientConfig way_in() const {
    io::WebSocketClientConfig config;
    config.url = agent_url_ + "/tunnels";
    config.tls = identity_.tls;
    return config;
  }

  /// Opens it. What comes to its guests is told to `hear`, on the loop; what that needs outlives
  /// the node.
  void play_guests(Hear hear) {
    const io::Told<bool> connected;
    thread_.call([&] {
      io::WebSocketConnect::start(
          thread_.loop(),
          way_in(),
          [this, connected, hear = std::move(hear)](Result<Link> socket) {
            if (socket) {
              link_ = *std::move(socket);
              link_->on_message([this, hear](const Blob& message) { hear(link_, message); });
            } else {
              ADD_FAILURE() << socket.error().describe();
            }
            connected.tell(socket.has_value());
          }
      );
    });
    connected.wait();
  }

  io::LoopThread& thread() { return thread_; }

  /// On the loop.
  LightAgent& agent() { return *agent_; }

  /// Null without play_guests(). On the loop.
  const Link& link() const { return link_; }

 private:
  std::string agent_url_;
  io::LoopThread thread_;
  LightIdentity identity_;
  std::unique_ptr<LightAgent> agent_;
  Link link_;
};

/// A guest says of the tunnel `id` a packet of that kind with `rest` behind it. On the loop.
inline void say_as_guest(
    const PlayedNode::Link& link, std::uint32_t id, tunnel::Kind kind, BlobView rest
) {
  Blob message(4);
  tunnel::write_u32(message.data(), id);
  message.push_back(static_cast<std::uint8_t>(kind));
  message.insert(message.end(), rest.begin(), rest.end());
  EXPECT_TRUE(link->send(std::move(message)));
}

}  // namespace rn::coordinator
