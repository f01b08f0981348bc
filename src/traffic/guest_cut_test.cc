// SPDX-License-Identifier: Apache-2.0
#include "traffic/guest_cut.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "traffic/packet_builder_fake.h"

namespace rn::traffic {
namespace {

using packet::Frame;

constexpr Instant kForever = instant_from_ns(INT64_MAX);
constexpr Instant kLongAgo = instant_from_ns(1);
constexpr Slot kSlot = 3;
constexpr std::uint32_t kLoopback = 1;  ///< BPF_PROG_TEST_RUN lends its context the loopback device

constexpr int kSyn = 0x02, kSynAck = 0x12, kAck = 0x10;

/// One guest, 192.0.2.2 and 2001:db8:1::2, that may talk with 198.51.100.0/24 by TCP 443, UDP 9000
/// and ping, with the notebook tunnel at its gateway, and with one peer by IPv6. (Documentation
/// addresses: no host owns them.)
GuestPolicy a_policy() {
  GuestPolicy policy;
  policy.guest_v4 = "192.0.2.2";
  policy.gateway_v4 = "192.0.2.1";
  policy.guest_v6 = "2001:db8:1::2";
  policy.gateway_v6 = "2001:db8:1::1";
  const auto peers = parse_prefix("198.51.100.0/24").value();
  const auto peer_v6 = parse_prefix("2001:db8:9::7").value();
  policy.allow = {
      {peers, Protocol::kTcp, 443, 0, Opener::kGuest},
      {peers, Protocol::kUdp, 9000, 0, Opener::kBoth},
      {peers, Protocol::kIcmp, 0, 0, Opener::kBoth},
      {parse_prefix("192.0.2.1").value(), Protocol::kTcp, 0, 8888, Opener::kRemote},
      {peer_v6, Protocol::kTcp, 443, 0, Opener::kGuest},
      {peer_v6, Protocol::kUdp, 9000, 0, Opener::kBoth},
      {peer_v6, Protocol::kIcmpV6, 0, 0, Opener::kBoth},
  };
  policy.deny = {parse_prefix("198.51.100.66").value()};
  return policy;
}

/// A private bpffs and a loaded program. Fails, not skips, when root cannot: then the kernel lacks
/// what we need.
class Cut : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) {
      std::cerr << "\n*** NOT RUN: the traffic program's packet tables need root (CAP_BPF, "
                   "CAP_NET_ADMIN) ***\n\n";
      GTEST_SKIP() << "not root";
    }
    // A namespace of its own: whatever a broken loader does to interfaces, it does not do to the
    // host's.
    ASSERT_EQ(unshare(CLONE_NEWNET), 0);
    char name[] = "/tmp/rn_guest_cut_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = std::string(name) + "/bpf";
    auto opened = GuestCut::open(folder_);
    ASSERT_TRUE(opened) << opened.error().describe();
    cut_.emplace(std::move(*opened));
  }

  void TearDown() override {
    if (!cut_) return;
    const Status left = cut_->leave();
    EXPECT_TRUE(left) << left.error().describe();
    EXPECT_FALSE(std::filesystem::exists(folder_)) << "the bpffs must be gone";
    std::filesystem::remove(std::filesystem::path(folder_).parent_path());
  }

  void open_for_business() {
    ASSERT_TRUE(cut_->bind(kLoopback, kSlot, a_policy()));
    ASSERT_TRUE(cut_->uncut(kSlot));
    ASSERT_TRUE(cut_->uncut_node());
    ASSERT_TRUE(cut_->arm_lease(kForever));
  }

  /// The program's verdict: the reason whose counter moved.
  rn_cut_reason judge(rn_cut_direction direction, const Frame& frame) {
    const DirectionCounters before = read(direction);
    const int action = run(direction, frame);
    const DirectionCounters after = read(direction);
    if (after.passed_packets == before.passed_packets + 1) {
      EXPECT_EQ(action, 0) << "TC_ACT_OK";
      EXPECT_EQ(after.passed_bytes, before.passed_bytes + frame.size());
      return RN_CUT_PASS;
    }
    EXPECT_EQ(action, 2) << "TC_ACT_SHOT";
    for (int i = 0; i < RN_CUT_REASONS; ++i) {
      const auto index = static_cast<std::size_t>(i);
      if (after.dropped[index] == before.dropped[index] + 1) return static_cast<rn_cut_reason>(i);
    }
    ADD_FAILURE() << "no counter moved";
    return RN_CUT_REASONS;
  }

  rn_cut_reason from_guest(const Frame& frame) { return judge(RN_CUT_FROM_GUEST, frame); }

  rn_cut_reason to_guest(const Frame& frame) { return judge(RN_CUT_TO_GUEST, frame); }

  int run(rn_cut_direction direction, const Frame& frame) {
    LIBBPF_OPTS(bpf_test_run_opts, options);
    options.data_in = frame.data();
    options.data_size_in = static_cast<std::uint32_t>(frame.size());
    options.repeat = 1;
    EXPECT_EQ(bpf_prog_test_run_opts(cut_->program_fd(direction), &options), 0)
        << "BPF_PROG_TEST_RUN";
    return static_cast<int>(options.retval);
  }

  DirectionCounters read(rn_cut_direction direction) {
    const auto both = cut_->counters(kSlot).value();
    return direction == RN_CUT_FROM_GUEST ? both.from_guest : both.to_guest;
  }

  std::string folder_;
  std::optional<GuestCut> cut_;
};

const char* const kGuest = "192.0.2.2";
const char* const kPeer = "198.51.100.7";
const char* const kGuest6 = "2001:db8:1::2";
const char* const kPeer6 = "2001:db8:9::7";

Frame allowed_udp() {
  return packet::v4({kGuest, kPeer}, packet::udp(5000, 9000));
}

Frame allowed_udp_back() {
  return packet::v4({kPeer, kGuest}, packet::udp(9000, 5000));
}

TEST_F(Cut, allowed_udp_and_tcp_pass_both_ways_on_ipv4) {
  open_for_business();

  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_PASS);
  EXPECT_EQ(to_guest(allowed_udp_back()), RN_CUT_PASS);
  EXPECT_EQ(from_guest(packet::v4({kGuest, kPeer, 6}, packet::tcp(5000, 443, kSyn))), RN_CUT_PASS);
  EXPECT_EQ(to_guest(packet::v4({kPeer, kGuest, 6}, packet::tcp(443, 5000, kSynAck))), RN_CUT_PASS);
  EXPECT_EQ(from_guest(packet::v4({kGuest, kPeer, 1}, packet::icmp(8))), RN_CUT_PASS);
}

TEST_F(Cut, allowed_udp_tcp_and_ping_pass_both_ways_on_ipv6) {
  open_for_business();

  EXPECT_EQ(from_guest(packet::v6({kGuest6, kPeer6}, packet::udp(5000, 9000))), RN_CUT_PASS);
  EXPECT_EQ(to_guest(packet::v6({kPeer6, kGuest6}, packet::udp(9000, 5000))), RN_CUT_PASS);
  EXPECT_EQ(
      from_guest(packet::v6({kGuest6, kPeer6, 6}, packet::tcp(5000, 443, kSyn))), RN_CUT_PASS
  );
  EXPECT_EQ(to_guest(packet::v6({kPeer6, kGuest6, 6}, packet::tcp(443, 5000, kAck))), RN_CUT_PASS);
  EXPECT_EQ(from_guest(packet::v6({kGuest6, kPeer6, 58}, packet::icmp(128))), RN_CUT_PASS);
}

TEST_F(Cut, what_the_allow_list_does_not_name_is_dropped) {
  open_for_business();

  EXPECT_EQ(from_guest(packet::v4({kGuest, kPeer}, packet::udp(5000, 9001))), RN_CUT_NOT_ALLOWED);
  EXPECT_EQ(
      from_guest(packet::v4({kGuest, kPeer, 6}, packet::tcp(5000, 80, kSyn))), RN_CUT_NOT_ALLOWED
  );
  EXPECT_EQ(
      from_guest(packet::v4({kGuest, "203.0.113.5"}, packet::udp(5000, 9000))), RN_CUT_NOT_ALLOWED
  );
  EXPECT_EQ(
      to_guest(packet::v4({"203.0.113.5", kGuest}, packet::udp(9000, 5000))), RN_CUT_NOT_ALLOWED
  );
  EXPECT_EQ(
      from_guest(packet::v4({kGuest, kPeer, 47}, packet::udp(5000, 9000))), RN_CUT_NOT_ALLOWED
  ) << "GRE";
  EXPECT_EQ(
      from_guest(packet::v6({kGuest6, "2001:db8:9::8"}, packet::udp(5000, 9000))),
      RN_CUT_NOT_ALLOWED
  );
  EXPECT_EQ(from_guest(packet::v4({kGuest, kPeer, 1}, packet::icmp(5))), RN_CUT_NOT_ALLOWED)
      << "ICMP redirect";
}

TEST_F(Cut, the_longest_prefix_decides_alone) {
  open_for_business();

  EXPECT_EQ(
      from_guest(packet::v4({kGuest, "198.51.100.66"}, packet::udp(5000, 9000))), RN_CUT_NOT_ALLOWED
  );
  EXPECT_EQ(
      from_guest(packet::v4({kGuest, "198.51.100.65"}, packet::udp(5000, 9000))), RN_CUT_PASS
  );
}

TEST_F(Cut, lan_and_host_stay_closed_under_a_rule_for_everything) {
  GuestPolicy policy = a_policy();
  policy.allow = {
      {parse_prefix("0.0.0.0/0").value(), Protocol::kTcp, 443, 0, Opener::kGuest},
      {parse_prefix("::/0").value(), Protocol::kTcp, 443, 0, Opener::kGuest},
  };
  policy.deny = {parse_prefix("192.0.2.1").value()};
  ASSERT_TRUE(cut_->bind(kLoopback, kSlot, policy));
  ASSERT_TRUE(cut_->uncut(kSlot));
  ASSERT_TRUE(cut_->uncut_node());
  ASSERT_TRUE(cut_->arm_lease(kForever));

  const auto https_to = [](const char* remote) {
    return packet::v4({kGuest, remote, 6}, packet::tcp(5000, 443, kSyn));
  };
  EXPECT_EQ(from_guest(https_to("203.0.113.5")), RN_CUT_PASS);
  EXPECT_EQ(from_guest(https_to("192.168.1.1")), RN_CUT_NOT_ALLOWED);
  EXPECT_EQ(from_guest(https_to("10.1.2.3")), RN_CUT_NOT_ALLOWED);
  EXPECT_EQ(from_guest(https_to("172.31.0.1")), RN_CUT_NOT_ALLOWED);
  EXPECT_EQ(from_guest(https_to("192.0.2.1")), RN_CUT_NOT_ALLOWED) << "the gateway is the host";
  EXPECT_EQ(
      from_guest(packet::v6({kGuest6, "fd12::1", 6}, packet::tcp(5000, 443, kSyn))),
      RN_CUT_NOT_ALLOWED
  );
  EXPECT_EQ(
      from_guest(packet::v6({kGuest6, "2001:db8:77::1", 6}, packet::tcp(5000, 443, kSyn))),
      RN_CUT_PASS
  );
}

TEST_F(Cut, link_local_metadata_loopback_and_multicast_never_pass_even_if_allowed) {
  GuestPolicy policy = a_policy();
  policy.allow = {
      {parse_prefix("0.0.0.0/0").value(), Protocol::kUdp, 0, 0, Opener::kBoth},
      {parse_prefix("169.254.169.254").value(), Protocol::kUdp, 0, 0, Opener::kBoth},
      {parse_prefix("::/0").value(), Protocol::kUdp, 0, 0, Opener::kBoth},
  };
  ASSERT_TRUE(cut_->bind(kLoopback, kSlot, policy));
  ASSERT_TRUE(cut_->uncut(kSlot));
  ASSERT_TRUE(cut_->uncut_node());
  ASSERT_TRUE(cut_->arm_lease(kForever));

  for (const char* remote :
       {"169.254.169.254",
        "169.254.1.1",
        "127.0.0.1",
        "0.0.0.0",
        "224.0.0.251",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255"}) {
    EXPECT_EQ(from_guest(packet::v4({kGuest, remote}, packet::udp(5000, 53))), RN_CUT_FORBIDDEN)
        << remote;
    EXPECT_EQ(to_guest(packet::v4({remote, kGuest}, packet::udp(53, 5000))), RN_CUT_FORBIDDEN)
        << remote;
  }
  for (const char* remote :
       {"fe80::1",
        "fec0::1",
        "ff02::fb",
        "ff0e::1",
        "::1",
        "::",
        "::ffff:10.0.0.1",
        "2002:a00:1::1",
        "64:ff9b::a00:1",
        "64:ff9b:1::a00:1"}) {
    EXPECT_EQ(from_guest(packet::v6({kGuest6, remote}, packet::udp(5000, 53))), RN_CUT_FORBIDDEN)
        << remote;
    EXPECT_EQ(to_guest(packet::v6({remote, kGuest6}, packet::udp(53, 5000))), RN_CUT_FORBIDDEN)
        << remote;
  }
}

TEST_F(Cut, the_guests_end_must_be_the_guest) {
  open_for_business();

  EXPECT_EQ(from_guest(packet::v4({"192.0.2.9", kPeer}, packet::udp(5000, 9000))), RN_CUT_SPOOFED);
  EXPECT_EQ(to_guest(packet::v4({kPeer, "192.0.2.255"}, packet::udp(9000, 5000))), RN_CUT_SPOOFED);
  EXPECT_EQ(
      from_guest(packet::v6({"2001:db8:1::9", kPeer6}, packet::udp(5000, 9000))), RN_CUT_SPOOFED
  );
}

TEST_F(Cut, frames_that_are_not_ip_are_dropped) {
  open_for_business();

  Frame lldp = packet::ethernet(0x88cc);
  lldp.resize(64);
  EXPECT_EQ(from_guest(lldp), RN_CUT_NOT_IP);
  Frame ours = packet::ethernet(0x88b5);  // local experimental ethertype
  ours.resize(64);
  EXPECT_EQ(to_guest(ours), RN_CUT_NOT_IP);
}

TEST_F(Cut, tagged_frames_are_dropped_whatever_they_carry) {
  open_for_business();

  for (const unsigned type : {0x8100u, 0x88a8u}) {
    Frame tagged = packet::ethernet(type);
    packet::put(tagged, {0, 5, 0x08, 0x00});
    const Frame inner = allowed_udp();
    tagged.insert(tagged.end(), inner.begin() + 14, inner.end());
    EXPECT_EQ(from_guest(tagged), RN_CUT_VLAN);
    EXPECT_EQ(to_guest(tagged), RN_CUT_VLAN);
  }
}

TEST_F(Cut, fragments_are_dropped_first_or_later) {
  open_for_business();

  EXPECT_EQ(
      from_guest(packet::v4({kGuest, kPeer, 17, 0x2000}, packet::udp(5000, 9000))), RN_CUT_FRAGMENT
  );
  EXPECT_EQ(
      from_guest(packet::v4({kGuest, kPeer, 17, 0x00b9}, packet::udp(5000, 9000))), RN_CUT_FRAGMENT
  );
  EXPECT_EQ(
      from_guest(packet::v6({kGuest6, kPeer6, 44}, packet::udp(5000, 9000))), RN_CUT_FRAGMENT
  );
}

TEST_F(Cut, truncated_and_odd_headers_are_dropped_at_every_length) {
  open_for_business();
  const Frame v4 = packet::v4({kGuest, kPeer, 6}, packet::tcp(5000, 443, kSyn));
  const Frame v6 = packet::v6({kGuest6, kPeer6, 6}, packet::tcp(5000, 443, kSyn));

  // BPF_PROG_TEST_RUN refuses frames that end inside the IP header (kernel 6.18), so these begin
  // behind it.
  for (std::size_t size = 14 + 20; size < 14 + 20 + 14; ++size) {
    EXPECT_EQ(from_guest(packet::cut_to(v4, size)), RN_CUT_MALFORMED) << size;
  }
  for (std::size_t size = 14 + 40; size < 14 + 40 + 14; ++size) {
    EXPECT_EQ(from_guest(packet::cut_to(v6, size)), RN_CUT_MALFORMED) << size;
  }
  const Frame arp = packet::arp(1, kGuest, "192.0.2.1");
  for (std::size_t size = 14; size < arp.size(); ++size) {
    EXPECT_EQ(from_guest(packet::cut_to(arp, size)), RN_CUT_MALFORMED) << size;
  }
  EXPECT_EQ(
      from_guest(packet::v4({kGuest, kPeer, 17, 0x4000, 0x46}, packet::udp(5000, 9000))),
      RN_CUT_MALFORMED
  ) << "IP options";
  EXPECT_EQ(
      from_guest(packet::v4({kGuest, kPeer, 17, 0x4000, 0x65}, packet::udp(5000, 9000))),
      RN_CUT_MALFORMED
  ) << "version";
  EXPECT_EQ(
      from_guest(packet::v6({kGuest6, kPeer6, 43}, packet::udp(5000, 9000))), RN_CUT_MALFORMED
  ) << "routing";
  EXPECT_EQ(from_guest(packet::v6({kGuest6, kPeer6, 0}, packet::udp(5000, 9000))), RN_CUT_MALFORMED)
      << "hop-by-hop";
}

TEST_F(Cut, only_the_named_end_opens_a_tcp_connection) {
  open_for_business();

  EXPECT_EQ(
      to_guest(packet::v4({kPeer, kGuest, 6}, packet::tcp(443, 22, kSyn))), RN_CUT_WRONG_OPENER
  );
  // The notebook's tunnel: the host opens, the guest answers, and cannot use the hole to open
  // towards the host.
  EXPECT_EQ(
      to_guest(packet::v4({"192.0.2.1", kGuest, 6}, packet::tcp(40000, 8888, kSyn))), RN_CUT_PASS
  );
  EXPECT_EQ(
      from_guest(packet::v4({kGuest, "192.0.2.1", 6}, packet::tcp(8888, 40000, kSynAck))),
      RN_CUT_PASS
  );
  EXPECT_EQ(
      from_guest(packet::v4({kGuest, "192.0.2.1", 6}, packet::tcp(8888, 22, kSyn))),
      RN_CUT_WRONG_OPENER
  );
  EXPECT_EQ(
      from_guest(packet::v4({kGuest, "192.0.2.1", 6}, packet::tcp(5000, 22, kSyn))),
      RN_CUT_NOT_ALLOWED
  );
}

TEST_F(Cut, arp_and_neighbour_discovery_pass_between_guest_and_gateway_only) {
  open_for_business();

  EXPECT_EQ(from_guest(packet::arp(1, kGuest, "192.0.2.1")), RN_CUT_PASS);
  EXPECT_EQ(to_guest(packet::arp(2, "192.0.2.1", kGuest)), RN_CUT_PASS);
  EXPECT_EQ(from_guest(packet::arp(2, "192.0.2.9", "192.0.2.1")), RN_CUT_NEIGHBOUR)
      << "claims another address";
  EXPECT_EQ(from_guest(packet::arp(1, kGuest, "192.0.2.77")), RN_CUT_NEIGHBOUR) << "scans the link";
  EXPECT_EQ(
      from_guest(
          packet::v6({kGuest6, "ff02::1:ff00:1", 58, 255}, packet::neighbour(135, "2001:db8:1::1"))
      ),
      RN_CUT_PASS
  );
  EXPECT_EQ(
      to_guest(packet::v6({"fe80::1", "ff02::1:ff00:2", 58, 255}, packet::neighbour(135, kGuest6))),
      RN_CUT_PASS
  );
  EXPECT_EQ(
      from_guest(packet::v6({kGuest6, "fe80::1", 58, 255}, packet::neighbour(136, kGuest6))),
      RN_CUT_PASS
  );
  EXPECT_EQ(
      from_guest(packet::v6({kGuest6, "fe80::1", 58, 255}, packet::neighbour(136, "2001:db8:1::1"))
      ),
      RN_CUT_NEIGHBOUR
  ) << "claims the gateway's address";
  EXPECT_EQ(
      from_guest(
          packet::v6({kGuest6, "ff02::1:ff00:1", 58, 64}, packet::neighbour(135, "2001:db8:1::1"))
      ),
      RN_CUT_NEIGHBOUR
  ) << "hop limit";
  EXPECT_EQ(
      from_guest(packet::v6({kGuest6, "ff02::2", 58, 255}, packet::icmp(133))), RN_CUT_FORBIDDEN
  ) << "router solicitation";
  EXPECT_EQ(from_guest(packet::v6({kGuest6, kPeer6, 58, 255}, packet::icmp(134))), RN_CUT_NEIGHBOUR)
      << "router advertisement";
}

TEST_F(Cut, one_write_cuts_the_node_in_both_directions) {
  open_for_business();
  ASSERT_EQ(from_guest(allowed_udp()), RN_CUT_PASS);

  ASSERT_TRUE(cut_->cut_node());

  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_NODE_GATE);
  EXPECT_EQ(to_guest(allowed_udp_back()), RN_CUT_NODE_GATE);
  EXPECT_EQ(from_guest(packet::arp(1, kGuest, "192.0.2.1")), RN_CUT_NODE_GATE) << "not even ARP";
  ASSERT_TRUE(cut_->uncut_node());
  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_PASS);
}

TEST_F(Cut, a_slots_cut_leaves_other_slots_open) {
  open_for_business();

  ASSERT_TRUE(cut_->cut(kSlot + 1));
  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_PASS);
  ASSERT_TRUE(cut_->cut(kSlot));

  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_SLOT_GATE);
  EXPECT_EQ(to_guest(allowed_udp_back()), RN_CUT_SLOT_GATE);
}

TEST_F(Cut, everything_is_closed_until_it_is_opened) {
  ASSERT_TRUE(cut_->bind(kLoopback, kSlot, a_policy()));

  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_NODE_GATE);
  ASSERT_TRUE(cut_->uncut_node());
  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_SLOT_GATE);
  ASSERT_TRUE(cut_->uncut(kSlot));
  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_LEASE) << "never armed";
  ASSERT_TRUE(cut_->arm_lease(kForever));
  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_PASS);
}

TEST_F(Cut, an_interface_without_a_guest_passes_nothing) {
  ASSERT_TRUE(cut_->uncut_node());
  ASSERT_TRUE(cut_->arm_lease(kForever));

  EXPECT_EQ(run(RN_CUT_FROM_GUEST, allowed_udp()), 2);
  EXPECT_EQ(run(RN_CUT_TO_GUEST, allowed_udp_back()), 2);
}

TEST_F(Cut, an_expired_lease_cuts_and_is_armed_again_only_explicitly) {
  open_for_business();
  ASSERT_TRUE(cut_->arm_lease(kLongAgo));

  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_LEASE);
  EXPECT_EQ(to_guest(allowed_udp_back()), RN_CUT_LEASE);
  const Status renewed = cut_->renew_lease(kLongAgo + seconds(5), kForever);
  ASSERT_FALSE(renewed);
  EXPECT_EQ(renewed.error().code, ErrorCode::kConflict);
  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_LEASE);
  ASSERT_TRUE(cut_->arm_lease(kForever));
  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_PASS);
}

TEST_F(Cut, a_live_lease_is_renewed) {
  open_for_business();
  ASSERT_TRUE(cut_->arm_lease(kLongAgo + seconds(10)));

  ASSERT_TRUE(cut_->renew_lease(kLongAgo, kForever));

  EXPECT_EQ(cut_->gates().state()->lease_until, kForever);
}

TEST_F(Cut, the_last_passed_packet_is_time_stamped_per_direction) {
  open_for_business();

  ASSERT_EQ(from_guest(allowed_udp()), RN_CUT_PASS);

  EXPECT_GT(to_ns(read(RN_CUT_FROM_GUEST).last_passed), 0);
  EXPECT_EQ(to_ns(read(RN_CUT_TO_GUEST).last_passed), 0);
}

TEST_F(Cut, a_second_process_cuts_through_the_pinned_maps) {
  open_for_business();

  rn_pinned_cut pinned{};
  ASSERT_EQ(rn_pinned_cut_open(folder_.c_str(), &pinned), 0);
  ASSERT_EQ(rn_pinned_cut_slot(&pinned, kSlot), 0);
  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_SLOT_GATE);
  ASSERT_EQ(rn_pinned_cut_node(&pinned), 0);
  rn_pinned_cut_close(&pinned);

  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_NODE_GATE);
}

TEST_F(Cut, a_restarted_loader_finds_gates_lease_and_guests_as_they_were) {
  open_for_business();
  ASSERT_TRUE(cut_->cut(kSlot));

  auto again = GuestCut::open(folder_);
  ASSERT_TRUE(again) << again.error().describe();
  *cut_ = std::move(*again);

  EXPECT_EQ(cut_->bound_slots()->size(), 1u);
  EXPECT_TRUE(cut_->gates().state()->is_node_open);
  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_SLOT_GATE) << "an owner's cut survives";
  ASSERT_TRUE(cut_->bind(kLoopback, kSlot, a_policy()));
  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_SLOT_GATE) << "binding it again does not open it";
}

TEST_F(Cut, a_new_policy_replaces_the_old_one) {
  open_for_business();
  GuestPolicy narrower = a_policy();
  narrower.allow.clear();

  ASSERT_TRUE(cut_->bind(kLoopback, kSlot, narrower));

  EXPECT_EQ(from_guest(allowed_udp()), RN_CUT_NOT_ALLOWED);
}

TEST_F(Cut, a_taken_slot_and_a_missing_interface_are_refused) {
  open_for_business();

  const Status other_slot = cut_->bind(kLoopback, kSlot + 1, a_policy());
  ASSERT_FALSE(other_slot);
  EXPECT_EQ(other_slot.error().code, ErrorCode::kConflict);
  const Status missing = cut_->attach("rn-no-such-if", kSlot + 1, a_policy());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

TEST_F(Cut, maps_of_another_layout_are_a_conflict_and_stay_as_they_are) {
  LIBBPF_OPTS(bpf_map_create_opts, options);
  const int other = bpf_map_create(BPF_MAP_TYPE_ARRAY, "rn_lease", 4, 64, 1, &options);
  ASSERT_GE(other, 0);
  ASSERT_EQ(unlink((folder_ + "/rn_lease").c_str()), 0);
  ASSERT_EQ(bpf_obj_pin(other, (folder_ + "/rn_lease").c_str()), 0);

  const auto again = GuestCut::open(folder_);

  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kConflict) << again.error().describe();
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/rn_node_gate"))
      << "an earlier loader's pins stay";
  close(other);
}

TEST_F(Cut, a_pin_that_cannot_be_looked_at_is_an_error_and_nothing_is_undone) {
  const std::string gate = folder_ + "/rn_node_gate";
  ASSERT_EQ(rename(gate.c_str(), (folder_ + "/aside").c_str()), 0);
  ASSERT_EQ(symlink("rn_node_gate", gate.c_str()), 0) << "ELOOP";

  EXPECT_FALSE(GuestCut::open(folder_));

  EXPECT_TRUE(std::filesystem::exists(folder_ + "/rn_slot_gate")) << "an earlier loader's";
  ASSERT_EQ(unlink(gate.c_str()), 0);
  ASSERT_EQ(rename((folder_ + "/aside").c_str(), gate.c_str()), 0);
  EXPECT_TRUE(GuestCut::open(folder_));
}

/// A guest's interface in the test's own namespace, and what others put on it.
class FilterOrder : public Cut {
 protected:
  void SetUp() override {
    Cut::SetUp();
    if (!cut_) return;
    ASSERT_TRUE(run_shell("ip link add rnt0 type veth peer name rnt1"));
    ifindex_ = if_nametoindex("rnt0");
  }

  static bool run_shell(const std::string& command) { return std::system(command.c_str()) == 0; }

  /// As some other tool would, by libbpf: no module of the kernel is needed for it.
  void add_foreign(rn_cut_direction direction, std::uint32_t priority, std::uint32_t handle) {
    LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = static_cast<int>(ifindex_));
    hook.attach_point = direction == RN_CUT_FROM_GUEST ? BPF_TC_INGRESS : BPF_TC_EGRESS;
    (void)bpf_tc_hook_create(&hook);  // there already, mostly
    LIBBPF_OPTS(bpf_tc_opts, options, .handle = handle, .priority = priority);
    options.prog_fd = cut_->program_fd(direction);
    ASSERT_EQ(bpf_tc_attach(&hook, &options), 0);
  }

  /// What is told of the first thing found; empty for nothing.
  std::string found() {
    const auto before = filters_before(cut_->gates());
    if (before.empty()) return "";
    EXPECT_EQ(before[0].slot, kSlot);
    EXPECT_EQ(before[0].interface, "rnt0");
    return before[0].filter.what;
  }

  /// By the command that is told.
  void remove_found() {
    const auto before = filters_before(cut_->gates());
    ASSERT_EQ(before.size(), 1U);
    ASSERT_TRUE(run_shell(before[0].filter.remove)) << before[0].filter.remove;
  }

  std::uint32_t ifindex_ = 0;
};

TEST_F(FilterOrder, a_filter_before_ours_is_found_on_either_hook_and_one_behind_it_is_not) {
  ASSERT_TRUE(cut_->attach("rnt0", kSlot, a_policy()));
  EXPECT_EQ(found(), "");
  for (const rn_cut_direction direction : {RN_CUT_FROM_GUEST, RN_CUT_TO_GUEST}) {
    const std::string hook = direction == RN_CUT_FROM_GUEST ? "ingress" : "egress";
    add_foreign(direction, 0xc000, 1);  // what tc takes when nobody names one
    EXPECT_EQ(found(), "") << hook;

    add_foreign(direction, 10, 1);

    EXPECT_EQ(found(), "a tc filter on " + hook + " (bpf, pref 10)");
    remove_found();
    EXPECT_EQ(found(), "");
  }
  EXPECT_TRUE(cut_->repair().empty()) << "ours was never gone";
}

TEST_F(FilterOrder, of_the_same_priority_the_newer_one_comes_first) {
  add_foreign(RN_CUT_FROM_GUEST, 0x726e, 2);
  ASSERT_TRUE(cut_->attach("rnt0", kSlot, a_policy()));
  add_foreign(RN_CUT_TO_GUEST, 0x726e, 2);

  const auto before = filters_before(cut_->gates());

  ASSERT_EQ(before.size(), 1U);
  EXPECT_EQ(before[0].filter.what, "a tc filter on egress (bpf, pref 29294)");
}

TEST_F(FilterOrder, a_tcx_program_is_before_every_filter) {
  ASSERT_TRUE(cut_->attach("rnt0", kSlot, a_policy()));
  bpf_attr attributes{};
  attributes.target_fd = ifindex_;
  attributes.attach_bpf_fd = static_cast<std::uint32_t>(cut_->program_fd(RN_CUT_TO_GUEST));
  attributes.attach_type = 47;  // BPF_TCX_EGRESS
  if (syscall(SYS_bpf, BPF_PROG_ATTACH, &attributes, sizeof attributes) != 0)
    GTEST_SKIP() << "a kernel before 6.6 has no tcx";

  EXPECT_EQ(found(), "a tcx program on egress");
}

TEST_F(FilterOrder, an_xdp_program_is_before_every_filter) {
  ASSERT_TRUE(cut_->attach("rnt0", kSlot, a_policy()));
  const std::array<bpf_insn, 2> pass{
      bpf_insn{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, XDP_PASS},
      bpf_insn{BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  const int program =
      bpf_prog_load(BPF_PROG_TYPE_XDP, "passes", "GPL", pass.data(), pass.size(), nullptr);
  ASSERT_GE(program, 0);
  ASSERT_EQ(bpf_xdp_attach(static_cast<int>(ifindex_), program, 0, nullptr), 0);
  close(program);

  EXPECT_EQ(found(), "an XDP program");
  remove_found();
  EXPECT_EQ(found(), "");
}

TEST(PinnedCut, nothing_pinned_is_not_found) {
  rn_pinned_cut pinned{};
  EXPECT_EQ(rn_pinned_cut_open("/proc/self/rn-none", &pinned), -ENOENT);
  EXPECT_EQ(pinned.node_gate_fd, -1);
}

}  // namespace
}  // namespace rn::traffic
