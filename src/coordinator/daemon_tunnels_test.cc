// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "coordinator/daemon_fixture.h"
#include "coordinator/daemon_played_node.h"
#include "coordinator/tunnels.h"
#include "io/inbox_fixture.h"
#include "io/loop_fixture.h"
#include "model/tunnel.h"

namespace rn::coordinator {
namespace {

using nlohmann::json;
using PacketKind = tunnel::Kind;

constexpr const char* kLongJob = R"({"command": ["sleep", "1000"]})";

Blob tunnel_words(PacketKind kind, const std::string& rest = {}) {
  Blob packet{static_cast<std::uint8_t>(kind)};
  packet.insert(packet.end(), rest.begin(), rest.end());
  return packet;
}

/// A user's or a node's end at the coordinator.
struct TunnelPeer {
  std::shared_ptr<io::WebSocket> socket;
  io::Inbox inbox;
};

/// A site with a node whose guests, and the way into them, are played.
class TunnelsSite : public testing::Test {
 protected:
  ~TunnelsSite() override {
    node_.thread().call([&] {
      for (const auto& socket : sockets_) socket->close("end of test");
    });
  }

  Result<TunnelPeer> open(io::WebSocketClientConfig config) {
    const io::Told<Result<std::shared_ptr<io::WebSocket>>> opened;
    TunnelPeer peer;
    node_.thread().call([&] {
      io::WebSocketConnect::start(
          node_.thread().loop(),
          std::move(config),
          [opened, inbox = peer.inbox](Result<std::shared_ptr<io::WebSocket>> socket) {
            if (socket)
              (*socket)->on_message([inbox](Blob message) { inbox.put(std::move(message)); });
            opened.tell(std::move(socket));
          }
      );
    });
    RN_TRY(peer.socket, opened.wait());
    sockets_.push_back(peer.socket);
    return peer;
  }

  Result<TunnelPeer> user(
      const std::string& query, const std::string& token, const std::string& path = "/v1/forward"
  ) {
    const io::HttpCall call = site_.prepared("GET", path + "?" + query, token);
    io::WebSocketClientConfig config;
    config.url = "wss" + call.url.substr(5);
    config.tls = *call.tls;
    config.headers = call.headers;
    return open(std::move(config));
  }

  TunnelPeer node() {
    auto peer = open(node_.way_in());
    EXPECT_TRUE(peer.has_value());
    return peer ? *peer : TunnelPeer{};
  }

  /// Number 1, when it runs.
  json running_job() {
    EXPECT_EQ(site_.call("POST", "/v1/jobs", kLongJob, ann_).status, 201);
    return site_.job_when("running");
  }

  void say(const TunnelPeer& peer, const Blob& packet) {
    node_.thread().call([&] { EXPECT_TRUE(peer.socket->send(packet)); });
  }

  /// The node says it of this tunnel.
  void say(const TunnelPeer& node, std::uint32_t id, const Blob& packet) {
    Blob message(4);
    tunnel::write_u32(message.data(), id);
    message.insert(message.end(), packet.begin(), packet.end());
    say(node, message);
  }

  /// What the node hears, without the tunnel's number, which goes to `id`.
  static Blob hear(const TunnelPeer& node, std::uint32_t& id) {
    const Blob message = node.inbox.take();
    if (message.size() < 5) return {};
    id = tunnel::read_u32(message.data());
    return {message.begin() + 4, message.end()};
  }

  /// A tunnel that both sides know to be open. Its number is the answer.
  std::uint32_t connect(const TunnelPeer& node, const TunnelPeer& user) {
    std::uint32_t id = 0;
    const Blob asked = hear(node, id);
    EXPECT_EQ(asked.empty() ? 0 : asked[0], static_cast<std::uint8_t>(PacketKind::kOpen));
    say(node, id, tunnel_words(PacketKind::kOpened));
    EXPECT_EQ(user.inbox.take(), tunnel_words(PacketKind::kOpened));
    return id;
  }

  std::string refusal(
      const std::string& query, const std::string& token, const std::string& path = "/v1/forward"
  ) {
    const auto opened = user(query, token, path);
    if (opened) return "none";
    const std::string words = opened.error().message;
    return std::string(to_string(opened.error().code)) + words.substr(words.find(": "));
  }

  LiveSite site_;
  std::string ann_ = site_.make_token(R"({"kind":"user","user":"ann","lab":"lab-a"})");
  PlayedNode node_{site_};
  std::vector<std::shared_ptr<io::WebSocket>> sockets_;
};

TEST_F(TunnelsSite, a_users_connection_is_joined_with_the_guest_and_ends_in_order) {
  const json job = running_job();
  const TunnelPeer there = node();
  const auto here = user("job=1&port=8888", ann_);
  ASSERT_TRUE(here) << here.error().describe();

  std::uint32_t id = 0;
  Blob asked = tunnel_words(PacketKind::kOpen, std::string("\x22\xb8", 2));
  const std::string guest = job["id"].get<std::string>() + " " + job["epoch"].get<std::string>();
  asked.insert(asked.end(), guest.begin(), guest.end());
  EXPECT_EQ(hear(there, id), asked);
  say(there, id, tunnel_words(PacketKind::kOpened));
  EXPECT_EQ(here->inbox.take(), tunnel_words(PacketKind::kOpened));
  say(*here, tunnel_words(PacketKind::kData, "to the guest"));
  EXPECT_EQ(hear(there, id), tunnel_words(PacketKind::kData, "to the guest"));
  say(there, id, tunnel_words(PacketKind::kData, "to the user"));
  EXPECT_EQ(here->inbox.take(), tunnel_words(PacketKind::kData, "to the user"));
  say(*here, tunnel_words(PacketKind::kEnd));
  EXPECT_EQ(hear(there, id), tunnel_words(PacketKind::kEnd));
  say(there, id, tunnel_words(PacketKind::kEnd));
  EXPECT_EQ(here->inbox.take(), tunnel_words(PacketKind::kEnd));

  node_.thread().call([&] { here->socket->close("over"); });
  const auto next = user("job=1&port=1", ann_);
  ASSERT_TRUE(next);
  std::uint32_t next_id = 0;
  EXPECT_EQ(hear(there, next_id)[0], static_cast<std::uint8_t>(PacketKind::kOpen))
      << "of the first one nothing more was said";
  EXPECT_NE(next_id, id);
}

TEST_F(TunnelsSite, a_visit_asks_for_the_guest_and_no_port_and_its_packets_pass_as_all_others) {
  const json job = running_job();
  const TunnelPeer there = node();
  const auto here = user("job=1", ann_, "/v1/visit");
  ASSERT_TRUE(here) << here.error().describe();

  std::uint32_t id = 0;
  const std::string guest = job["id"].get<std::string>() + " " + job["epoch"].get<std::string>();
  EXPECT_EQ(hear(there, id), tunnel_words(PacketKind::kEnter, guest));
  say(there, id, tunnel_words(PacketKind::kOpened));
  EXPECT_EQ(here->inbox.take(), tunnel_words(PacketKind::kOpened));
  say(*here, tunnel_words(PacketKind::kData, "a frame"));
  EXPECT_EQ(hear(there, id), tunnel_words(PacketKind::kData, "a frame"));

  const std::string bob = site_.make_token(R"({"kind":"user","user":"bob","lab":"lab-a"})");
  const std::string viewer =
      site_.make_token(R"({"kind":"user","user":"ann","lab":"lab-a","role":"viewer"})");
  EXPECT_EQ(refusal("job=1", bob, "/v1/visit"), "not_found: no job 1");
  EXPECT_EQ(
      refusal("job=1", viewer, "/v1/visit"), "denied: this needs the role user, ann is viewer"
  );
  EXPECT_EQ(refusal("job=1&port=80", ann_, "/v1/visit"), "invalid: no such query parameter: port");
}

TEST_F(TunnelsSite, a_user_who_asks_for_a_guest_in_the_stream_is_broken_off) {
  running_job();
  const TunnelPeer there = node();
  const auto here = user("job=1&port=80", ann_);
  ASSERT_TRUE(here);
  connect(there, *here);

  say(*here, tunnel_words(PacketKind::kEnter, "j-2 1.1"));

  EXPECT_EQ(
      here->inbox.take(),
      tunnel_words(PacketKind::kReset, "the client does not keep to the protocol")
  );
}

TEST_F(TunnelsSite, a_jobs_user_and_admins_get_in_and_nobody_else) {
  running_job();
  const TunnelPeer there = node();
  const std::string bob = site_.make_token(R"({"kind":"user","user":"bob","lab":"lab-a"})");
  const std::string owner =
      site_.make_token(R"({"kind":"user","user":"oli","lab":"lab-a","role":"owner"})");
  const std::string viewer =
      site_.make_token(R"({"kind":"user","user":"ann","lab":"lab-a","role":"viewer"})");

  EXPECT_EQ(refusal("job=1&port=80", bob), "not_found: no job 1");
  EXPECT_EQ(refusal("job=1&port=80", owner), "not_found: no job 1") << "of the lab, not of the job";
  EXPECT_EQ(refusal("job=1&port=80", viewer), "denied: this needs the role user, ann is viewer");
  EXPECT_EQ(refusal("job=1&port=80", ""), "denied: no token given");
  EXPECT_EQ(refusal("job=1&port=80", "admin"), "none");
  EXPECT_EQ(refusal("job=1&port=80", ann_), "none");

  io::WebSocketClientConfig stranger;
  const io::HttpCall call = site_.prepared("GET", "/v1/agent/tunnels", "admin");
  stranger.url = "wss" + call.url.substr(5);
  stranger.tls = *call.tls;
  stranger.headers = call.headers;
  EXPECT_EQ(open(stranger).error().code, ErrorCode::kDenied) << "only nodes have guests";
}

TEST_F(TunnelsSite, what_cannot_be_reached_is_refused_with_why) {
  EXPECT_EQ(refusal("job=1&port=80", ann_), "not_found: no job 1");
  const json job = running_job();
  EXPECT_EQ(
      refusal("job=1&port=80", ann_),
      "unavailable: the node of job 1 offers no way into its guests now"
  );
  const TunnelPeer there = node();
  for (const char* port : {"", "&port=0", "&port=65536", "&port=http", "&port=-1"})
    EXPECT_EQ(refusal(std::string("job=1") + port, ann_).substr(0, 14), "invalid: port:") << port;
  EXPECT_EQ(refusal("job=1&port=80&host=x", ann_), "invalid: no such query parameter: host");
  EXPECT_EQ(refusal("job=" + job["id"].get<std::string>() + "&port=80", ann_), "none");

  ASSERT_EQ(site_.call("POST", "/v1/jobs/1/stop", "{}", ann_).status, 200);
  site_.job_when("cancelled");

  EXPECT_EQ(refusal("job=1&port=80", ann_), "conflict: job 1 is over: cancelled");
}

TEST_F(TunnelsSite, a_guest_that_refuses_says_why) {
  running_job();
  const TunnelPeer there = node();
  const auto here = user("job=1&port=80", ann_);
  ASSERT_TRUE(here);
  std::uint32_t id = 0;
  hear(there, id);

  say(there, id, tunnel_words(PacketKind::kRefused, "nothing listens there"));

  EXPECT_EQ(here->inbox.take(), tunnel_words(PacketKind::kRefused, "nothing listens there"));
}

TEST_F(TunnelsSite, a_job_has_thirty_two_and_room_again_when_one_is_gone) {
  running_job();
  const TunnelPeer there = node();
  std::vector<TunnelPeer> open_ones;
  for (std::size_t i = 0; i < Tunnels::kOfJob; ++i) {
    const auto one = user("job=1&port=80", ann_);
    ASSERT_TRUE(one) << one.error().describe();
    open_ones.push_back(*one);
    connect(there, *one);
  }
  EXPECT_EQ(refusal("job=1&port=80", ann_), "exhausted: too many connections into job 1 are open");

  node_.thread().call([&] { open_ones.back().socket->close("enough"); });
  std::uint32_t id = 0;
  EXPECT_EQ(hear(there, id), tunnel_words(PacketKind::kReset, "the user is gone"));

  EXPECT_EQ(refusal("job=1&port=80", ann_), "none");
}

TEST_F(TunnelsSite, a_job_that_moves_breaks_what_was_open_and_is_reached_where_it_is_then) {
  const json job = running_job();
  const TunnelPeer there = node();
  const auto here = user("job=1&port=80", ann_);
  ASSERT_TRUE(here);
  const std::uint32_t id = connect(there, *here);

  wire::AttemptEvent gone;
  gone.report.job = JobId(job["id"].get<std::string>());
  gone.report.epoch = parse_epoch(job["epoch"].get<std::string>());
  gone.report.state = AttemptState::kEnded;
  gone.report.end = AttemptEnd::kReclaimed;
  gone.seq = 2;
  node_.thread().call([&] { node_.agent().send(gone); });

  const std::string words = "job 1 runs there no more";
  EXPECT_EQ(here->inbox.take(), tunnel_words(PacketKind::kReset, words));
  std::uint32_t broken = 0;
  EXPECT_EQ(hear(there, broken), tunnel_words(PacketKind::kReset, words));
  EXPECT_EQ(broken, id);
  const json moved = site_.job_when([&](const json& now) {
    return now["state"] == "running" && now["epoch"] != job["epoch"];
  });
  const auto again = user("job=1&port=80", ann_);
  ASSERT_TRUE(again) << again.error().describe();
  std::uint32_t next = 0;
  const Blob asked = hear(there, next);
  EXPECT_TRUE(as_text(asked).ends_with(" " + moved["epoch"].get<std::string>())) << as_text(asked);
}

TEST_F(TunnelsSite, a_user_who_sends_without_credit_is_broken_off_and_no_other) {
  running_job();
  const TunnelPeer there = node();
  const auto greedy = user("job=1&port=80", ann_);
  const auto other = user("job=1&port=80", ann_);
  ASSERT_TRUE(greedy && other);
  const std::uint32_t id = connect(there, *greedy);
  const std::uint32_t other_id = connect(there, *other);

  const Blob packet(tunnel::kPacketMax, static_cast<std::uint8_t>(PacketKind::kData));
  for (int i = 0; i < 4; ++i) say(*greedy, packet);

  EXPECT_EQ(
      greedy->inbox.take(),
      tunnel_words(PacketKind::kReset, "the client does not keep to the protocol")
  );
  std::uint32_t heard = 0;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(hear(there, heard), packet);
  EXPECT_EQ(hear(there, heard)[0], static_cast<std::uint8_t>(PacketKind::kReset));
  EXPECT_EQ(heard, id);
  say(*other, tunnel_words(PacketKind::kData, "x"));
  EXPECT_EQ(hear(there, heard), tunnel_words(PacketKind::kData, "x"));
  EXPECT_EQ(heard, other_id);
}

TEST_F(TunnelsSite, a_guests_credit_lets_its_user_go_on_and_no_guest_gives_more_than_a_window) {
  running_job();
  const TunnelPeer there = node();
  const auto here = user("job=1&port=80", ann_);
  ASSERT_TRUE(here);
  const std::uint32_t id = connect(there, *here);
  const Blob packet(tunnel::kPacketMax, static_cast<std::uint8_t>(PacketKind::kData));
  std::uint32_t heard = 0;
  for (int i = 0; i < 3; ++i) say(*here, packet);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(hear(there, heard), packet);
  Blob credit = tunnel_words(PacketKind::kCredit, std::string(4, '\0'));
  tunnel::write_u32(credit.data() + 1, 3 * tunnel::cost_of(tunnel::kDataMax));

  say(there, id, credit);
  EXPECT_EQ(here->inbox.take(), credit);
  for (int i = 0; i < 3; ++i) say(*here, packet);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(hear(there, heard), packet);

  say(there, id, credit);
  say(there, id, credit);
  EXPECT_EQ(here->inbox.take(), credit);
  EXPECT_EQ(
      here->inbox.take(),
      tunnel_words(PacketKind::kReset, "the guest does not keep to the protocol")
  );
}

TEST_F(TunnelsSite, when_the_node_is_lost_its_users_see_that_it_broke) {
  running_job();
  const TunnelPeer there = node();
  const auto open_one = user("job=1&port=80", ann_);
  const auto asking = user("job=1&port=80", ann_);
  ASSERT_TRUE(open_one && asking);
  connect(there, *open_one);

  node_.thread().call([&] { there.socket->close("gone"); });

  const std::string words = "the connection to the node is lost";
  EXPECT_EQ(open_one->inbox.take(), tunnel_words(PacketKind::kReset, words));
  EXPECT_EQ(asking->inbox.take(), tunnel_words(PacketKind::kRefused, words));
}

}  // namespace
}  // namespace rn::coordinator
