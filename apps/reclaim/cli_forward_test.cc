// SPDX-License-Identifier: Apache-2.0
#include "cli_forward.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "cli_site_fixture.h"
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "coordinator/daemon_fixture.h"
#include "coordinator/daemon_played_node.h"
#include "io/fd.h"
#include "io/loop_fixture.h"
#include "model/tunnel.h"

namespace rn::cli {
namespace {

using coordinator::say_as_guest;
using PacketKind = tunnel::Kind;

constexpr std::uint16_t kEcho = 8888;
constexpr std::uint16_t kNobody = 7;

/// The guests of a node: what comes to a port goes back, but at one where nobody listens.
class EchoGuests {
 public:
  void hear(const std::shared_ptr<io::WebSocket>& link, const Blob& message) {
    ASSERT_GT(message.size(), 4u);
    const std::uint32_t id = tunnel::read_u32(message.data());
    const BlobView packet = BlobView(message).subspan(4);
    if (packet[0] == static_cast<std::uint8_t>(PacketKind::kOpen)) {
      const int port = packet[1] << 8 | packet[2];
      if (port == kNobody)
        return say_as_guest(link, id, PacketKind::kRefused, as_bytes("nothing listens"));
      ends_[id] = std::make_unique<End>();
      ends_[id]->begin(tunnel::kWindowToUser);
      return say_as_guest(link, id, PacketKind::kOpened, {});
    }
    const auto found = ends_.find(id);
    if (found == ends_.end()) return;
    if (found->second->hear(packet.data(), packet.size()) == End::Heard::kFine)
      echo(link, id, *found->second);
    else
      ends_.erase(found);
  }

 private:
  using End = tunnel::End<tunnel::kWindowToGuest>;

  static void echo(const std::shared_ptr<io::WebSocket>& link, std::uint32_t id, End& end) {
    while (end.waiting_bytes() > 0 && end.may_send() > 0) {
      const std::size_t size = std::min(end.waiting_bytes(), end.may_send());
      say_as_guest(link, id, PacketKind::kData, BlobView(end.waiting(), size));
      end.sent(size);
      end.wrote(size);
    }
    std::uint8_t credit[End::kCreditPacket];
    if (end.credit_packet(credit) > 0) {
      say_as_guest(link, id, PacketKind::kCredit, BlobView(credit).subspan(1));
      end.gave_credit();
    }
    if (!end.must_shut()) return;
    end.shut();
    say_as_guest(link, id, PacketKind::kEnd, {});
    end.sent_end();
  }

  std::map<std::uint32_t, std::unique_ptr<End>> ends_;
};

io::Fd dial(std::uint16_t port) {
  io::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where), 0);
  const timeval limit{20, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return fd;
}

class CliForward : public testing::Test {
 protected:
  CliForward() {
    node_.play_guests([this](const auto& link, const Blob& message) { guests_.hear(link, message); }
    );
    EXPECT_EQ(site_.call("POST", "/v1/jobs", R"({"command": ["sleep", "1000"]})").status, 201);
    site_.job_when("running");
  }

  ~CliForward() override { end(); }

  Client client() const { return client_of(site_, site_.admin()); }

  /// Begins to forward; the port that it listens on.
  std::uint16_t begin(std::uint16_t remote) {
    const io::Told<std::uint16_t> listening;
    ForwardOptions options;
    options.job = "1";
    options.ports = "0:" + std::to_string(remote);
    options.listening = [this, listening](std::uint16_t port, std::function<void()> stop) {
      stop_ = std::move(stop);
      listening.tell(port);
    };
    running_ = std::thread([this, options] { code_ = forward(client(), options); });
    return listening.wait();
  }

  int end() {
    if (stop_) stop_();
    stop_ = nullptr;
    return join();
  }

  int join() {
    if (running_.joinable()) running_.join();
    return code_;
  }

  coordinator::LiveSite site_;
  EchoGuests guests_;
  coordinator::PlayedNode node_{site_};
  std::function<void()> stop_;
  std::thread running_;
  int code_ = -1;
};

TEST_F(CliForward, bytes_go_there_and_come_back_and_both_ends_are_kept) {
  const std::uint16_t port = begin(kEcho);
  std::string sent;
  for (std::size_t i = 0; i < (3u << 20); ++i) sent += static_cast<char>(i * 7 % 251);

  const io::Fd program = dial(port);
  std::thread sender([&] {
    for (std::size_t at = 0; at < sent.size();) {
      const ssize_t put = send(program.get(), sent.data() + at, sent.size() - at, MSG_NOSIGNAL);
      if (put <= 0) return;
      at += static_cast<std::size_t>(put);
    }
    shutdown(program.get(), SHUT_WR);
  });
  std::string came;
  char buffer[65536];
  ssize_t got = 0;
  while ((got = recv(program.get(), buffer, sizeof buffer, 0)) > 0)
    came.append(buffer, static_cast<std::size_t>(got));
  sender.join();

  EXPECT_EQ(got, 0) << "it ended, and did not break";
  EXPECT_TRUE(came == sent) << came.size() << " of " << sent.size() << " bytes came back";
  EXPECT_EQ(end(), 0);
}

TEST_F(CliForward, a_port_where_nobody_listens_is_a_reset_with_a_line_that_says_why) {
  testing::internal::CaptureStderr();
  const std::uint16_t port = begin(kNobody);

  for (int i = 0; i < 2; ++i) {
    const io::Fd program = dial(port);
    char byte = 0;
    EXPECT_EQ(recv(program.get(), &byte, 1, 0), -1);
    EXPECT_EQ(errno, ECONNRESET);
  }

  end();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("connection reset: nothing listens\n"), said.npos) << said;
  EXPECT_EQ(said.find("connection reset"), said.rfind("connection reset")) << "once: " << said;
}

TEST_F(CliForward, when_the_node_is_lost_what_is_open_breaks_and_the_port_stays) {
  testing::internal::CaptureStderr();
  const std::uint16_t port = begin(kEcho);
  const io::Fd program = dial(port);
  char byte = 'x';
  ASSERT_EQ(send(program.get(), &byte, 1, 0), 1);
  ASSERT_EQ(recv(program.get(), &byte, 1, 0), 1);

  node_.thread().call([&] { node_.link()->close("gone"); });

  EXPECT_EQ(recv(program.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
  const io::Fd next = dial(port);
  EXPECT_EQ(recv(next.get(), &byte, 1, 0), -1);
  end();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the connection to the node is lost"), said.npos) << said;
  EXPECT_NE(said.find("offers no way into its guests now; next: "), said.npos) << said;
}

TEST_F(CliForward, it_ends_with_the_job_and_does_not_begin_with_one_that_is_over) {
  testing::internal::CaptureStderr();
  begin(kEcho);
  stop_ = nullptr;

  ASSERT_EQ(site_.call("POST", "/v1/jobs/1/stop", "{}").status, 200);

  EXPECT_EQ(join(), 0);
  ForwardOptions options;
  options.job = "1";
  options.ports = "0:80";
  EXPECT_EQ(forward(client(), options), 5);
  options.job = "99";
  EXPECT_EQ(forward(client(), options), 3);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("job 1 is over: cancelled\n"), said.npos) << said;
}

TEST_F(CliForward, a_local_port_that_is_taken_is_said_with_what_to_do) {
  const std::uint16_t port = begin(kEcho);
  ForwardOptions options;
  options.job = "1";
  options.ports = std::to_string(port) + ":80";

  testing::internal::CaptureStderr();
  EXPECT_EQ(forward(client(), options), 5);

  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("next: choose another one: reclaim forward 1 LOCAL:80"), said.npos) << said;
}

TEST(CliForwardPorts, are_one_or_two_numbers) {
  EXPECT_EQ(parse_ports("8888")->local, 8888);
  EXPECT_EQ(parse_ports("8888")->remote, 8888);
  EXPECT_EQ(parse_ports("9000:80")->local, 9000);
  EXPECT_EQ(parse_ports("9000:80")->remote, 80);
  EXPECT_EQ(parse_ports("0:80")->local, 0);
  for (const char* bad :
       {"",
        "0",
        ":",
        "80:",
        ":80",
        "80:0",
        "65536",
        "1:65536",
        "1:2:3",
        "-1",
        "http",
        "080",
        " 80"}) {
    const auto ports = parse_ports(bad);
    ASSERT_FALSE(ports) << bad;
    EXPECT_EQ(ports.error().code, ErrorCode::kInvalid);
    EXPECT_FALSE(ports.error().hint.empty()) << bad;
  }
}

}  // namespace
}  // namespace rn::cli
