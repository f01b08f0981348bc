// SPDX-License-Identifier: Apache-2.0
#include "agent/tunnels.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/scratch_folder.h"
#include "io/http_server.h"
#include "io/inbox_fixture.h"
#include "io/loop_fixture.h"
#include "io/real_rng.h"
#include "model/tunnel.h"

namespace rn::agent {
namespace {

using PacketKind = tunnel::Kind;

constexpr const char* kGuest = "j-1 1.1";

Blob packet_of(PacketKind kind, const std::string& rest = {}) {
  Blob packet{static_cast<std::uint8_t>(kind)};
  packet.insert(packet.end(), rest.begin(), rest.end());
  return packet;
}

Blob asks_for(const std::string& guest, std::uint16_t port = 8888) {
  Blob packet = packet_of(PacketKind::kOpen);
  packet.push_back(static_cast<std::uint8_t>(port >> 8));
  packet.push_back(static_cast<std::uint8_t>(port & 255));
  packet.insert(packet.end(), guest.begin(), guest.end());
  return packet;
}

/// A guest's PID 1, played with blocking sockets.
class PacketSocket {
 public:
  explicit PacketSocket(int fd) : fd_(fd) {
    const timeval limit{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  ~PacketSocket() { close(); }

  PacketSocket(const PacketSocket&) = delete;
  PacketSocket& operator=(const PacketSocket&) = delete;

  static int listen_at(const std::string& path) {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), std::begin(where.sun_path));
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where), 0);
    EXPECT_EQ(listen(fd, 4), 0);
    return fd;
  }

  int accept_one() const { return accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); }

  /// Empty: the agent has closed it.
  Blob take() const {
    Blob packet(tunnel::kPacketMax);
    const ssize_t got = recv(fd_, packet.data(), packet.size(), 0);
    packet.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return packet;
  }

  void put(const Blob& packet) const {
    EXPECT_EQ(send(fd_, packet.data(), packet.size(), MSG_NOSIGNAL), ssize_t(packet.size()));
  }

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

/// An agent's ways into its guests, with a coordinator and a guest played.
class WaysIn : public testing::Test {
 protected:
  WaysIn() {
    std::filesystem::create_directory(disk_.path() + "/reclaim");
    thread_.call([&] { start(); });
    connected_.wait();
  }

  ~WaysIn() override {
    thread_.call([&] {
      tunnels_.reset();
      link_.reset();
      server_.reset();
    });
  }

  void start() {
    auto server = io::HttpServer::start(
        thread_.loop(), {}, [](const io::HttpRequest&, const io::Responder&) {}
    );
    ASSERT_TRUE(server) << server.error().describe();
    server_ = *std::move(server);
    server_->serve_websocket(
        "/tunnels",
        {},
        [this](const io::HttpRequest&, std::shared_ptr<io::WebSocket> socket) {
          link_ = std::move(socket);
          link_->on_message([inbox = inbox_](Blob message) { inbox.put(std::move(message)); });
          connected_.tell(true);
        }
    );
    Tunnels::Deps deps{
        thread_.loop(),
        rng_,
        "ws://127.0.0.1:" + std::to_string(server_->port()) + "/tunnels",
        [] { return io::TlsConfig{}; },
        [] { return true; },
        [this](const std::string& guest) -> Result<std::string> {
          if (guest == kGuest && runs_) return disk_.path();
          return fail(ErrorCode::kUnavailable, "the guest does not run now: stopping");
        },
        [this] { return rate_bps_; }};
    tunnels_ = std::make_unique<Tunnels>(std::move(deps));
  }

  void listen() {
    guest_ = std::make_unique<PacketSocket>(
        PacketSocket::listen_at(disk_.path() + "/reclaim/tunnel.sock")
    );
  }

  /// The coordinator says it.
  void say(std::uint32_t id, const Blob& packet) {
    Blob message(4);
    tunnel::write_u32(message.data(), id);
    message.insert(message.end(), packet.begin(), packet.end());
    thread_.call([&] { EXPECT_TRUE(link_->send(message)); });
  }

  /// What the coordinator hears, of this tunnel.
  Blob hear(std::uint32_t id) {
    const Blob message = inbox_.take();
    if (message.size() < 5) return {};
    EXPECT_EQ(tunnel::read_u32(message.data()), id);
    return {message.begin() + 4, message.end()};
  }

  /// A tunnel, open as far as the agent knows; the guest's end of it.
  std::unique_ptr<PacketSocket> open(std::uint32_t id) {
    if (!guest_) listen();
    say(id, asks_for(kGuest));
    auto end = std::make_unique<PacketSocket>(guest_->accept_one());
    EXPECT_EQ(end->take(), (Blob{1, 8888 >> 8, 8888 & 255}));
    return end;
  }

  ScratchFolder disk_;
  io::LoopThread thread_;
  io::RealRng rng_;
  io::Told<bool> connected_;
  io::Inbox inbox_;
  bool runs_ = true;
  std::uint64_t rate_bps_ = 0;
  std::unique_ptr<io::HttpServer> server_;
  std::shared_ptr<io::WebSocket> link_;
  std::unique_ptr<Tunnels> tunnels_;
  std::unique_ptr<PacketSocket> guest_;
};

TEST_F(WaysIn, packets_pass_both_ways_and_tunnels_stay_apart) {
  const auto first = open(7);
  const auto second = open(9);

  first->put(packet_of(PacketKind::kOpened));
  EXPECT_EQ(hear(7), packet_of(PacketKind::kOpened));
  second->put(packet_of(PacketKind::kData, "from the guest"));
  EXPECT_EQ(hear(9), packet_of(PacketKind::kData, "from the guest"));
  say(7, packet_of(PacketKind::kData, "to the guest"));
  EXPECT_EQ(first->take(), packet_of(PacketKind::kData, "to the guest"));
}

TEST_F(WaysIn, a_visit_goes_to_the_guests_first_process_without_a_port) {
  listen();
  Blob asks = packet_of(PacketKind::kEnter);
  asks.insert(asks.end(), kGuest, kGuest + std::string(kGuest).size());

  say(5, asks);

  const PacketSocket end(guest_->accept_one());
  EXPECT_EQ(end.take(), packet_of(PacketKind::kEnter));
  end.put(packet_of(PacketKind::kOpened));
  EXPECT_EQ(hear(5), packet_of(PacketKind::kOpened));
}

TEST_F(WaysIn, a_guest_that_does_not_run_is_not_reached) {
  listen();

  say(1, asks_for("j-2 1.1"));
  EXPECT_EQ(hear(1), packet_of(PacketKind::kRefused, "the guest does not run now: stopping"));
}

TEST_F(WaysIn, a_guest_whose_first_process_has_no_such_socket_is_told_of) {
  say(1, asks_for(kGuest));

  const Blob words = hear(1);
  ASSERT_FALSE(words.empty());
  EXPECT_EQ(words[0], static_cast<std::uint8_t>(PacketKind::kRefused));
  EXPECT_NE(as_text(words).find("has no way in"), std::string_view::npos) << as_text(words);
}

TEST_F(WaysIn, a_guest_that_is_gone_in_the_middle_is_a_break) {
  const auto end = open(3);
  end->put(packet_of(PacketKind::kOpened));
  EXPECT_EQ(hear(3), packet_of(PacketKind::kOpened));

  end->close();

  EXPECT_EQ(hear(3), packet_of(PacketKind::kReset, "the guest has closed it"));
}

TEST_F(WaysIn, what_a_guest_said_before_it_closed_is_heard_although_nothing_can_be_sent_there) {
  const auto end = open(3);
  // Who reads owes the budget a packet, and so comes after who writes.
  thread_.call([&] { rate_bps_ = 8; });
  const Blob packet(8000, static_cast<std::uint8_t>(PacketKind::kData));
  end->put(packet);
  EXPECT_EQ(hear(3), packet);
  end->put(packet_of(PacketKind::kRefused, "all its places are taken"));
  end->close();

  say(3, packet_of(PacketKind::kData, "to the guest"));
  say(1, asks_for("j-2 1.1"));
  EXPECT_EQ(hear(1), packet_of(PacketKind::kRefused, "the guest does not run now: stopping"))
      << "nothing was said of the one whose packet could not be written";
  thread_.call([&] { rate_bps_ = 0; });

  EXPECT_EQ(hear(3), packet_of(PacketKind::kRefused, "all its places are taken"));
}

TEST_F(WaysIn, one_that_has_ended_in_both_directions_is_no_break) {
  const auto end = open(3);
  say(3, packet_of(PacketKind::kEnd));
  EXPECT_EQ(end->take(), packet_of(PacketKind::kEnd));
  end->put(packet_of(PacketKind::kEnd));
  EXPECT_EQ(hear(3), packet_of(PacketKind::kEnd));

  end->close();

  const auto other = open(4);
  other->put(packet_of(PacketKind::kOpened));
  EXPECT_EQ(hear(4), packet_of(PacketKind::kOpened)) << "nothing was said in between";
}

TEST_F(WaysIn, a_guest_that_is_told_to_end_is_cut_off_at_once) {
  const auto end = open(3);

  thread_.call([&] { runs_ = false; });

  EXPECT_EQ(hear(3), packet_of(PacketKind::kReset, "the guest does not run now: stopping"));
  EXPECT_EQ(end->take(), Blob());
}

TEST_F(WaysIn, when_the_coordinator_is_lost_the_guest_sees_that_it_broke) {
  const auto end = open(3);

  thread_.call([&] { link_->close("gone"); });

  EXPECT_EQ(end->take(), Blob());
}

TEST_F(WaysIn, a_user_who_breaks_off_is_a_break_for_the_guest) {
  const auto end = open(3);

  say(3, packet_of(PacketKind::kReset, "the user is gone"));

  EXPECT_EQ(end->take(), packet_of(PacketKind::kReset, "the user is gone"));
  EXPECT_EQ(end->take(), Blob());
}

TEST_F(WaysIn, what_a_guest_does_not_take_is_not_kept_without_bound) {
  const auto end = open(3);

  for (int i = 0; i < 64; ++i) say(3, Blob(tunnel::kPacketMax, 4));

  EXPECT_EQ(hear(3), packet_of(PacketKind::kReset, "more came than the guest takes"));
}

TEST_F(WaysIn, what_goes_out_is_held_to_the_contracts_rate) {
  const auto end = open(3);
  thread_.call([&] { rate_bps_ = 1'600'000; });
  const auto began = std::chrono::steady_clock::now();
  const Blob packet(8000, static_cast<std::uint8_t>(PacketKind::kData));

  for (int i = 0; i < 10; ++i) end->put(packet);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(hear(3), packet);

  EXPECT_GT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(200));
}

}  // namespace
}  // namespace rn::agent
