// SPDX-License-Identifier: Apache-2.0
// Two agents over loopback TLS, with the PID 1 of a guest played at each.
#include "agent/gang_links.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/gang_pace.h"
#include "agent/link_threads.h"
#include "base/rng.h"
#include "base/scratch_folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/peer_link.h"
#include "io/real_clock.h"
#include "io/tls_fixture.h"
#include "model/gang_link.h"

namespace rn::agent {
namespace {

using LinkPacket = tunnel::Kind;

constexpr milliseconds kSoonEnough{20'000};
const GangId kGang{"g-1"};

Blob link_packet(LinkPacket kind, const std::string& rest = {}) {
  Blob packet{static_cast<std::uint8_t>(kind)};
  packet.insert(packet.end(), rest.begin(), rest.end());
  return packet;
}

/// One connection of an agent's at a PID 1, played with blocking calls.
class InsideEnd {
 public:
  explicit InsideEnd(int fd) : fd_(fd) {
    const timeval limit{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }

  ~InsideEnd() { close(); }

  InsideEnd(const InsideEnd&) = delete;
  InsideEnd& operator=(const InsideEnd&) = delete;

  /// Empty: the agent has closed it, or nothing came in time.
  Blob take() const {
    Blob packet(tunnel::kPacketMax);
    const ssize_t got = recv(fd_, packet.data(), packet.size(), 0);
    packet.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return packet;
  }

  void put(const Blob& packet) const {
    EXPECT_EQ(send(fd_, packet.data(), packet.size(), MSG_NOSIGNAL), ssize_t(packet.size()));
  }

  /// How many of such packets are taken before nobody takes any more for a while.
  std::size_t flood(const Blob& packet) const {
    const timeval limit{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    std::size_t taken = 0;
    while (taken < 10'000 && send(fd_, packet.data(), packet.size(), MSG_NOSIGNAL) > 0) ++taken;
    return taken;
  }

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

using Inside = std::unique_ptr<InsideEnd>;

/// A node with its agent's links, and one guest.
class LinkedNode {
 public:
  LinkedNode(
      const io::Site& site,
      const crypto::SigningKey& coordinator,
      std::uint32_t rank,
      std::vector<std::uint16_t> control_ports = {}
  )
      : node_("n-" + std::to_string(rank)), tls_(site.end("spiffe://site/node/" + node_.str())) {
    std::filesystem::create_directory(disk_.path() + "/reclaim");
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    const std::string path = disk_.path() + "/reclaim/tunnel.sock";
    std::copy(path.begin(), path.end(), std::begin(where.sun_path));
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&where), sizeof where), 0);
    EXPECT_EQ(listen(listener_, 32), 0);
    const timeval limit{20, 0};
    setsockopt(listener_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    LinkTicketRules rules;
    rules.self = node_;
    rules.ticket_key = coordinator.public_key;
    rules.now = io::RealClock().now().wall;
    GangLinks::Deps deps;
    deps.dial = [this](const wire::GangPeer& peer) { return dial(peer); };
    deps.rules = [rules] { return rules; };
    deps.peer_patience = milliseconds(1500);
    deps.on_broken = [this](const GuestName&) { ++broken_; };
    deps.control_ports = std::move(control_ports);
    links_ = std::make_unique<GangLinks>(std::move(deps));
    io::FramedServerConfig config;
    config.tls = tls_;
    server_ = io::FramedServer::start(config, [this](io::FramedConnection& connection) {
                const auto frame = connection.receive(kSoonEnough);
                const NodeId peer =
                    checkpoint::node_of_identity(connection.peer_identity().value_or(""));
                if (frame) links_->serve(connection, peer, frame->body);
              }).value();
    port_ = server_->port();
  }

  ~LinkedNode() {
    links_->stop();
    server_.reset();
    links_.reset();
    ::close(listener_);
  }

  LinkedNode(const LinkedNode&) = delete;
  LinkedNode& operator=(const LinkedNode&) = delete;

  Result<std::unique_ptr<io::FramedConnection>> dial(const wire::GangPeer& peer) const {
    io::FramedClientConfig config;
    config.host = "127.0.0.1";
    config.port = static_cast<std::uint16_t>(std::stoi(peer.address));
    config.tls = tls_;
    config.tls.expected_peer = "spiffe://site/node/" + peer.node.str();
    return io::FramedConnection::connect(config);
  }

  const NodeId& node() const { return node_; }

  std::string disk() const { return disk_.path(); }

  std::string port() const { return std::to_string(port_); }

  GangLinks& links() { return *links_; }

  /// So often it was said that a link broke for what is no program's doing.
  int broken() const { return broken_; }

  /// Nobody answers at its port any more.
  void stop_serving() {
    links_->stop();
    server_.reset();
  }

  /// The next connection of the agent's at this guest, with its first packet.
  std::pair<Inside, Blob> next() const {
    auto end = std::make_unique<InsideEnd>(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
    Blob first = end->take();
    return {std::move(end), std::move(first)};
  }

 private:
  NodeId node_;
  io::TlsConfig tls_;
  ScratchFolder disk_;
  int listener_ = -1;
  std::atomic<int> broken_{0};
  std::unique_ptr<GangLinks> links_;
  std::unique_ptr<io::FramedServer> server_;
  std::uint16_t port_ = 0;
};

/// A gang of two, in its third epoch.
class Links : public testing::Test {
 protected:
  Ticket ticket(const LinkedNode& from, const LinkedNode& to, const std::string& job) {
    Ticket out;
    out.job = JobId(job);
    out.epoch = epoch_;
    out.from = from.node();
    out.to = to.node();
    out.action = TicketAction::kLink;
    out.expiry_wall_ms = to_ms(io::RealClock().now().wall) + 600'000;
    return checkpoint::sign_ticket(out, coordinator_);
  }

  LinkedGuest guest(std::uint32_t rank) {
    const LinkedNode& self = rank == 0 ? zero_ : one_;
    LinkedGuest out;
    out.name = {JobId("j-" + std::to_string(rank)), epoch_};
    out.place.gang = kGang;
    out.place.rank = rank;
    out.place.size = 2;
    out.disk = self.disk();
    out.members = {
        {0, JobId("j-0"), zero_.node(), zero_.port(), ticket(self, zero_, "j-0")},
        {1, JobId("j-1"), one_.node(), one_.port(), ticket(self, one_, "j-1")}};
    return out;
  }

  void both_run() {
    zero_.links().set({guest(0)});
    one_.links().set({guest(1)});
  }

  /// What waits at rank 0 for its programs.
  Inside offered() {
    auto [end, first] = zero_.next();
    EXPECT_EQ(first, link_packet(LinkPacket::kAccept));
    return std::move(end);
  }

  /// What comes to rank 1, behind what waits there for its own.
  std::pair<Inside, Blob> arrived() {
    for (;;) {
      auto next = one_.next();
      if (next.second != link_packet(LinkPacket::kAccept)) return next;
      waiting_.push_back(std::move(next.first));
    }
  }

  /// A link from rank 0 to port 29500 of rank 1.
  std::pair<Inside, Inside> linked() {
    Inside here = offered();
    here->put({10, 1, 29'500 >> 8, 29'500 & 255});
    auto [there, asks] = arrived();
    EXPECT_EQ(asks, (Blob{11, 29'500 >> 8, 29'500 & 255, 0}));
    there->put(link_packet(LinkPacket::kOpened));
    EXPECT_EQ(here->take(), link_packet(LinkPacket::kOpened));
    return {std::move(here), std::move(there)};
  }

  LeaseEpoch epoch_{1, 3};
  SeededRng rng_{9};
  crypto::SigningKey coordinator_ = crypto::make_signing_key(rng_);
  io::Site site_;
  LinkedNode zero_{site_, coordinator_, 0};
  LinkedNode one_{site_, coordinator_, 1};
  std::vector<Inside> waiting_;
};

TEST_F(Links, bytes_pass_both_ways_and_links_stay_apart) {
  both_run();
  const auto first = linked();
  const auto second = linked();

  first.first->put(link_packet(LinkPacket::kData, "to one"));
  second.second->put(link_packet(LinkPacket::kData, "to zero"));
  EXPECT_EQ(first.second->take(), link_packet(LinkPacket::kData, "to one"));
  EXPECT_EQ(second.first->take(), link_packet(LinkPacket::kData, "to zero"));
  EXPECT_EQ(zero_.links().look().open, 2u);
  EXPECT_EQ(one_.links().look().open, 2u);
}

TEST_F(Links, each_direction_ends_by_itself) {
  both_run();
  const auto link = linked();

  link.first->put(link_packet(LinkPacket::kEnd));
  EXPECT_EQ(link.second->take(), link_packet(LinkPacket::kEnd));
  link.second->put(link_packet(LinkPacket::kData, "still"));
  EXPECT_EQ(link.first->take(), link_packet(LinkPacket::kData, "still"));
  link.second->put(link_packet(LinkPacket::kEnd));

  EXPECT_EQ(link.first->take(), link_packet(LinkPacket::kEnd));
  EXPECT_EQ(link.first->take(), Blob()) << "it is closed when both have ended";
  EXPECT_EQ(link.second->take(), Blob());
}

TEST_F(Links, a_break_on_one_side_is_a_break_on_the_other_and_never_an_end) {
  both_run();
  const auto first = linked();
  const auto second = linked();
  const auto third = linked();

  first.first->close();
  second.second->put(link_packet(LinkPacket::kReset));
  third.first->put({5, 0, 0, 0, 1});  // credit, which a link does not have

  EXPECT_EQ(first.second->take(), Blob());
  EXPECT_EQ(second.first->take(), Blob());
  EXPECT_EQ(third.second->take(), Blob());
}

TEST_F(Links, who_does_not_read_stops_its_own_sender_alone) {
  both_run();
  const auto slow = linked();
  const auto other = linked();
  const std::string piece(gang_link::kDataMax, 'x');

  const std::size_t taken = slow.first->flood(link_packet(LinkPacket::kData, piece));

  EXPECT_GT(taken, 4u);
  EXPECT_LT(taken, 2000u) << "more than what sockets hold was kept";
  other.first->put(link_packet(LinkPacket::kData, "passes"));
  EXPECT_EQ(other.second->take(), link_packet(LinkPacket::kData, "passes"));
  for (std::size_t i = 0; i < taken; ++i) ASSERT_EQ(slow.second->take().size(), piece.size() + 1);
}

TEST_F(Links, when_a_guest_is_told_to_end_its_links_break_at_both_members) {
  both_run();
  const auto link = linked();

  one_.links().set({});

  EXPECT_EQ(link.second->take(), Blob());
  EXPECT_EQ(link.first->take(), Blob());
}

TEST_F(Links, a_member_that_has_not_begun_is_waited_for) {
  zero_.links().set({guest(0)});
  const Inside here = offered();
  here->put({10, 1, 0, 80});
  std::this_thread::sleep_for(milliseconds(100));

  one_.links().set({guest(1)});

  const auto there = arrived();
  EXPECT_EQ(there.second, (Blob{11, 0, 80, 0}));
  there.first->put(link_packet(LinkPacket::kOpened));
  EXPECT_EQ(here->take(), link_packet(LinkPacket::kOpened));
}

TEST_F(Links, a_member_that_does_not_come_is_refused_with_words) {
  zero_.links().set({guest(0)});
  const Inside here = offered();

  here->put({10, 1, 0, 80});

  const Blob words = here->take();
  ASSERT_FALSE(words.empty());
  EXPECT_EQ(words[0], static_cast<std::uint8_t>(LinkPacket::kRefused));
  EXPECT_NE(as_text(words).find("does not run here now"), std::string_view::npos) << as_text(words);
}

TEST_F(Links, what_the_other_first_process_refuses_is_heard_at_this_one) {
  both_run();
  const Inside here = offered();
  here->put({10, 1, 0, 80});
  const auto there = arrived();

  there.first->put(link_packet(LinkPacket::kRefused, "nothing listens there"));

  EXPECT_NE(as_text(here->take()).find("nothing listens there"), std::string_view::npos);
}

TEST_F(Links, an_older_epoch_and_a_member_that_there_is_not_are_refused_at_once) {
  zero_.links().set({guest(0)});
  epoch_ = {1, 4};
  one_.links().set({guest(1)});
  const Inside here = offered();
  const Inside again = offered();

  here->put({10, 1, 0, 80});
  again->put({10, 5, 0, 80});

  EXPECT_NE(as_text(here->take()).find("is not the one here"), std::string_view::npos);
  EXPECT_NE(as_text(again->take()).find("no other member 5"), std::string_view::npos);
}

TEST_F(Links, a_guest_that_says_something_else_gets_a_new_connection_and_no_link) {
  both_run();
  offered()->put(link_packet(LinkPacket::kData, "no dial"));
  std::this_thread::sleep_for(milliseconds(1100));

  zero_.links().set({guest(0)});

  linked();
  EXPECT_EQ(zero_.links().look().opened, 1u);
}

TEST_F(Links, what_all_of_them_send_is_held_to_a_rate) {
  both_run();
  const auto link = linked();
  zero_.links().set_rate(1'600'000);
  const Blob packet = link_packet(LinkPacket::kData, std::string(8000, 'x'));
  const auto began = std::chrono::steady_clock::now();

  for (int i = 0; i < 10; ++i) link.first->put(packet);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(link.second->take(), packet);

  EXPECT_GT(std::chrono::steady_clock::now() - began, milliseconds(200));
  EXPECT_GE(zero_.links().look().bytes_sent, 80'000u);
}

TEST_F(Links, an_agent_that_cannot_be_reached_broke_the_link_before_the_guest_hears_of_it) {
  both_run();
  one_.stop_serving();
  const Inside here = offered();

  here->put({10, 1, 0, 80});

  ASSERT_FALSE(here->take().empty());
  EXPECT_EQ(zero_.broken(), 1);
}

TEST_F(Links, a_member_that_never_begins_is_no_doing_of_the_program_that_asks_for_it) {
  zero_.links().set({guest(0)});
  const Inside here = offered();

  here->put({10, 1, 0, 80});

  ASSERT_FALSE(here->take().empty());
  EXPECT_EQ(zero_.broken(), 1);
}

TEST_F(Links, what_programs_do_to_each_other_was_broken_by_nobody_else) {
  both_run();
  const Inside nobody_listens = offered();
  nobody_listens->put({10, 1, 0, 80});
  arrived().first->put(link_packet(LinkPacket::kRefused, "nothing listens there"));
  ASSERT_FALSE(nobody_listens->take().empty());
  const Inside no_member = offered();
  no_member->put({10, 5, 0, 80});
  ASSERT_FALSE(no_member->take().empty());
  const auto link = linked();
  link.first->close();
  EXPECT_EQ(link.second->take(), Blob());
  const auto ended = linked();
  one_.links().set({});
  EXPECT_EQ(ended.first->take(), Blob());

  EXPECT_EQ(zero_.broken(), 0);
  EXPECT_EQ(one_.broken(), 0);
}

TEST_F(Links, no_link_ends_at_a_port_that_a_cut_lets_through) {
  LinkedNode careful(site_, coordinator_, 0, {static_cast<std::uint16_t>(std::stoi(one_.port()))});
  LinkedGuest about = guest(0);
  about.disk = careful.disk();
  careful.links().set({about});
  one_.links().set({guest(1)});
  auto [here, first] = careful.next();
  ASSERT_EQ(first, link_packet(LinkPacket::kAccept));

  here->put({10, 1, 0, 80});

  EXPECT_NE(as_text(here->take()).find("which a cut lets through"), std::string_view::npos);
  EXPECT_EQ(one_.links().look().refused, 0u) << "it was not even asked";
}

TEST_F(Links, nor_is_one_taken_that_comes_from_such_a_port) {
  std::vector<std::uint16_t> every_port(65'535);
  std::iota(every_port.begin(), every_port.end(), std::uint16_t{1});
  LinkedNode careful(site_, coordinator_, 1, std::move(every_port));
  LinkedGuest about = guest(0);
  about.members[1].address = careful.port();
  zero_.links().set({about});
  LinkedGuest there = guest(1);
  there.disk = careful.disk();
  careful.links().set({there});
  const Inside here = offered();

  here->put({10, 1, 0, 80});

  EXPECT_NE(as_text(here->take()).find("which a cut lets through"), std::string_view::npos);
}

TEST(LinksBudget, it_is_what_planned_copies_leave_and_a_twentieth_at_least) {
  EXPECT_EQ((LinksBudget{0, 0, 0}.rate_bps()), 0u);
  EXPECT_EQ((LinksBudget{100'000'000, 0, 0}.rate_bps()), 100'000'000u);
  EXPECT_EQ((LinksBudget{100'000'000, 0, 40'000'000}.rate_bps()), 60'000'000u);
  EXPECT_EQ((LinksBudget{100'000'000, 0, 99'000'000}.rate_bps()), 5'000'000u);
  EXPECT_EQ((LinksBudget{100'000'000, 50'000'000, 40'000'000}.rate_bps()), 10'000'000u);
}

TEST(LinksBudget, no_bound_by_the_contract_is_none_beside_an_evacuation) {
  EXPECT_EQ((LinksBudget{0, 200'000'000, 150'000'000}.rate_bps()), 50'000'000u);
  EXPECT_EQ((LinksBudget{0, 200'000'000, 200'000'000}.rate_bps()), 10'000'000u);
  EXPECT_EQ((LinksBudget{0, 0, 900'000'000}.rate_bps()), 100'000'000u) << "as if of 1 Gbit/s";
}

TEST(LinkThreads, they_yield_to_whoever_else_computes) {
  std::atomic<int> seen{-1};
  {
    LinkThreads threads;
    ASSERT_TRUE(threads.start([&seen] {
      seen = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
    }));
  }
  EXPECT_GE(seen, 10);
}

TEST_F(Links, it_stops_at_once_whatever_waits) {
  both_run();
  const auto link = linked();
  offered()->put({10, 1, 0, 81});
  const auto there = arrived();  // which answers nothing
  const auto began = std::chrono::steady_clock::now();

  zero_.links().stop();
  one_.links().stop();

  EXPECT_EQ(link.first->take(), Blob());
  EXPECT_EQ(there.first->take(), Blob());
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

}  // namespace
}  // namespace rn::agent
