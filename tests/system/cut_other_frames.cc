// SPDX-License-Identifier: Apache-2.0
//
// The cut at its edges, seen on the wire: one guest of two is cut, and frames that are no IP. For
// the frames the machine is a bridge, which would hand on whatever the guest sends: without the
// filter all of it is seen at the peer.
//
//   RN_ROUNDS=1000 cut_on_the_wire --gtest_filter='CutOf*'

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "cut_site.h"
#include "wire_capture.h"
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/real_clock.h"
#include "traffic/guest_cut.h"

namespace rn::cut_site {
namespace {

using traffic::CutSwitch;
using traffic::GuestCut;
using wire::Capture;
using wire::Kind;

constexpr std::uint16_t kExperimental = 0x88b5;  ///< IEEE's for local experiments
/// In a frame with a VLAN's tag, which the receiving kernel takes off before a sniffer sees it.
constexpr std::uint16_t kTagged = 0x88b6;
constexpr std::array<std::uint16_t, 3> kTypes = {ETHERTYPE_ARP, kExperimental, kTagged};

class Site : public testing::Test {
 protected:
  void make(Topology::Guests guests) {
    if (geteuid() != 0) {
      std::cerr << "\n*** NOT RUN: cut_on_the_wire needs root (namespaces, BPF, AF_PACKET) ***\n\n";
      GTEST_SKIP() << "not root";
    }
    char name[] = "/tmp/rn_edges_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    net_.emplace(guests);
    wire::enter_netns(net_->host);
  }

  void open_cut() {
    auto cut = GuestCut::open(folder_ + "/bpf");
    ASSERT_TRUE(cut) << cut.error().describe();
    cut_.emplace(std::move(*cut));
    ASSERT_TRUE(cut_->attach("g0", kSlot, a_policy()));
    ASSERT_TRUE(cut_->uncut(kSlot));
    ASSERT_TRUE(cut_->uncut_node());
    ASSERT_TRUE(cut_->arm_lease(clock_.now().boot + std::chrono::hours(1)));
  }

  void TearDown() override {
    if (cut_) {
      EXPECT_TRUE(cut_->leave());
    }
    cut_.reset();
    net_.reset();
    if (!folder_.empty()) std::filesystem::remove(folder_);
  }

  template <class Predicate>
  bool eventually(Predicate is_so) const {
    const Instant deadline = clock_.now().boot + seconds(20);
    while (!is_so()) {
      if (clock_.now().boot > deadline) return false;
      usleep(1000);  // between two looks
    }
    return true;
  }

  std::string folder_;
  const io::RealClock clock_{};
  std::optional<Topology> net_;
  std::optional<GuestCut> cut_;
};

class CutOfOneGuest : public Site {
 protected:
  void SetUp() override { make(Topology::kTwoGuests); }
};

std::uint64_t datagrams(const Capture& capture) {
  return capture.packets(Kind::kUdp4) + capture.packets(Kind::kUdp6);
}

TEST_F(CutOfOneGuest, stops_its_packets_and_none_of_its_neighbours) {
  ASSERT_NO_FATAL_FAILURE(open_cut());
  ASSERT_TRUE(cut_->attach("g1", kNeighbourSlot, the_neighbours_policy()));
  ASSERT_TRUE(cut_->uncut(kNeighbourSlot));
  net_->connect_guest();
  auto second = CutSwitch::open_pinned(folder_ + "/bpf");
  ASSERT_TRUE(second);
  const Capture cut(net_->peer, kGuest4, kGuest6);
  const Capture neighbour(net_->peer, kNeighbour4, kNeighbour6);
  Floods floods(*net_, Floods::kFromGuest);
  floods.add_neighbour(*net_);
  std::vector<std::int64_t> last_after;
  int spoiled = 0;
  while (last_after.size() < static_cast<std::size_t>(rounds(5))) {
    ASSERT_TRUE(cut_->uncut(kSlot));
    const std::uint64_t before = datagrams(cut);
    ASSERT_TRUE(eventually([&] { return datagrams(cut) > before + 20; })) << "nothing to cut";
    const std::uint64_t lost_before = cut.lost();

    const std::int64_t start = wire::realtime_ns();
    ASSERT_TRUE(second->cut(kSlot));
    const std::uint64_t others = datagrams(neighbour);
    ASSERT_TRUE(eventually([&] { return datagrams(neighbour) > others + 100; }))
        << "the neighbour was cut, too";
    usleep(60'000);  // that nothing comes can only be seen by waiting
    cut.drain();

    const std::int64_t last = std::max<std::int64_t>(0, cut.last_ns() - start);
    ASSERT_LT(last, kTooLateNs);
    if (cut.lost() != lost_before) {
      ASSERT_LT(++spoiled, rounds(5) + 20) << "the sniffers lost packets in each second round";
      continue;
    }
    last_after.push_back(last);
  }
  print("cut of one guest: its last packet at the peer", last_after);
}

/// Sends one frame of each type every millisecond, and counts what comes, by type.
class Frames {
 public:
  Frames(const std::string& from, const std::string& to) {
    std::thread([&] {
      wire::enter_netns(to);
      in_ = open_at(SOCK_NONBLOCK);
    }).join();
    sender_ = std::thread([this, from] {
      wire::enter_netns(from);
      send_until_stopped();
    });
  }

  Frames(const Frames&) = delete;
  Frames& operator=(const Frames&) = delete;

  ~Frames() {
    is_stopping_ = true;
    sender_.join();
    close(in_);
  }

  /// All that have come until now, by type; a frame that is not ours is passed over.
  const std::map<std::uint16_t, int>& come() {
    std::array<std::uint8_t, 128> frame{};
    sockaddr_ll from{};
    socklen_t size = sizeof from;
    for (;;) {
      const ssize_t got =
          recvfrom(in_, frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
      if (got < 0) return come_;
      if (from.sll_pkttype == PACKET_OUTGOING || got < 60) continue;
      if (std::memcmp(frame.data() + 48, kMark.data(), kMark.size()) != 0) continue;
      ++come_[static_cast<std::uint16_t>(frame[12] << 8 | frame[13])];
    }
  }

  bool has_each_of(
      const std::map<std::uint16_t, int>& before, const std::vector<std::uint16_t>& types
  ) {
    come();
    for (const std::uint16_t type : types) {
      const auto old = before.find(type);
      if (come_[type] <= (old == before.end() ? 0 : old->second) + 3) return false;
    }
    return true;
  }

 private:
  static constexpr std::array<std::uint8_t, 4> kMark = {'r', 'n', 'f', 'r'};

  static int open_at(int flags) {
    const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | flags, htons(ETH_P_ALL));
    sockaddr_ll at{};
    at.sll_family = AF_PACKET;
    at.sll_protocol = htons(ETH_P_ALL);
    at.sll_ifindex = static_cast<int>(if_nametoindex("eth0"));
    if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) std::abort();
    return fd;
  }

  /// Broadcast. An ARP request of the guest's for its gateway, which the filter lets pass when
  /// nothing is cut; of the others only the type counts. A mark behind the ARP's own bytes.
  static std::array<std::uint8_t, 64> frame_of(std::uint16_t type) {
    std::array<std::uint8_t, 64> frame{};
    std::memset(frame.data(), 0xff, 6);
    const std::array<std::uint8_t, 6> own = {2, 0, 0, 0, 0, 9};
    std::memcpy(frame.data() + 6, own.data(), own.size());
    const std::size_t tag = type == kTagged ? 4 : 0;
    if (type == kTagged) {
      const std::array<std::uint8_t, 4> vlan_1 = {0x81, 0, 0, 1};
      std::memcpy(frame.data() + 12, vlan_1.data(), vlan_1.size());
    }
    frame[12 + tag] = static_cast<std::uint8_t>(type >> 8);
    frame[13 + tag] = static_cast<std::uint8_t>(type & 255U);
    const std::array<std::uint8_t, 8> request = {0, 1, 8, 0, 6, 4, 0, 1};
    const std::array<std::uint8_t, 4> guest = {192, 0, 2, 2}, gateway = {192, 0, 2, 1};
    if (type == ETHERTYPE_ARP) {
      std::memcpy(frame.data() + 14, request.data(), request.size());
      std::memcpy(frame.data() + 22, own.data(), own.size());
      std::memcpy(frame.data() + 28, guest.data(), guest.size());
      std::memcpy(frame.data() + 38, gateway.data(), gateway.size());
    }
    std::memcpy(frame.data() + 48 + tag, kMark.data(), kMark.size());
    return frame;
  }

  void send_until_stopped() const {
    const int fd = open_at(0);
    while (!is_stopping_) {
      for (const std::uint16_t type : kTypes) {
        const auto frame = frame_of(type);
        // Refused while the link comes up: the next one is sent in a millisecond.
        [[maybe_unused]] const auto sent = send(fd, frame.data(), frame.size(), MSG_DONTWAIT);
      }
      usleep(1000);  // the frames' rate
    }
    close(fd);
  }

  int in_ = -1;
  std::map<std::uint16_t, int> come_;
  std::atomic<bool> is_stopping_{false};
  std::thread sender_;
};

class CutOfFrames : public Site {
 protected:
  /// The machine hands on between guest and peer whatever comes.
  void SetUp() override {
    make(Topology::kOneGuest);
    if (IsSkipped() || HasFatalFailure()) return;
    for (const char* end : {"g0", "p0"})
      must_run_in(net_->host, std::string("ip addr flush dev ") + end);
    must_run_in(net_->host, "ip link add br0 type bridge stp_state 0 mcast_snooping 0");
    for (const char* end : {"g0", "p0"}) {
      must_run_in(net_->host, std::string("ip link set ") + end + " master br0");
      must_run_in(net_->host, std::string("ip link set ") + end + " up");
    }
    must_run_in(net_->host, "ip link set br0 up");
  }

  /// None of any type, once those that were under way have come.
  void expect_none(Frames& frames) const {
    usleep(static_cast<useconds_t>(kTooLateNs / 1000));  // what was under way has come
    const auto before = frames.come();
    usleep(200'000);  // two hundred of each type are sent meanwhile
    EXPECT_EQ(frames.come(), before);
  }
};

TEST_F(CutOfFrames, frames_that_are_no_ip_pass_in_neither_direction) {
  const std::vector<std::uint16_t> all(kTypes.begin(), kTypes.end());
  Frames out(net_->guest, net_->peer);
  Frames in(net_->peer, net_->guest);
  // Without the filter everything is seen, or the rest would prove nothing.
  ASSERT_TRUE(eventually([&] { return out.has_each_of({}, all); }));
  ASSERT_TRUE(eventually([&] { return in.has_each_of({}, all); }));

  ASSERT_NO_FATAL_FAILURE(open_cut());
  usleep(static_cast<useconds_t>(kTooLateNs / 1000));  // what passed before the filter has come
  const auto filtered = out.come();
  ASSERT_TRUE(eventually([&] { return out.has_each_of(filtered, {ETHERTYPE_ARP}); }));
  auto after = out.come();
  EXPECT_EQ(after[kExperimental], filtered.at(kExperimental));
  EXPECT_EQ(after[kTagged], filtered.at(kTagged));

  ASSERT_TRUE(cut_->cut_node());
  expect_none(out);
  expect_none(in);

  ASSERT_TRUE(cut_->uncut_node());
  const auto cut = out.come();
  EXPECT_TRUE(eventually([&] { return out.has_each_of(cut, {ETHERTYPE_ARP}); }));
}

}  // namespace
}  // namespace rn::cut_site
