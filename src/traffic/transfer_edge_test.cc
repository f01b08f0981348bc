// SPDX-License-Identifier: Apache-2.0
#include "traffic/transfer_edge.h"

#include <filesystem>
#include <iostream>
#include <optional>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "traffic/bpffs.h"
#include "traffic/guest_filter.h"
#include "traffic/packet_builder_fake.h"

namespace rn::traffic {
namespace {

using packet::Frame;

constexpr std::uint32_t kAgent = 4242;
constexpr int kUntouched = -1, kShot = 2;  ///< TC_ACT_UNSPEC, TC_ACT_SHOT
constexpr int kEdgeSyn = 0x02, kEdgeAck = 0x10;
const char* const kHere = "192.0.2.2";
const char* const kThere = "198.51.100.7";
const char* const kHere6 = "2001:db8:1::2";
const char* const kThere6 = "2001:db8:9::7";

/// Bytes after the transport's header.
Frame with(Frame head, std::size_t payload) {
  head.resize(head.size() + payload, 'x');
  return head;
}

Frame data_v4(std::size_t payload = 1000, unsigned local = 5000, unsigned remote = 7445) {
  return packet::v4({kHere, kThere, 6}, with(packet::tcp(local, remote, kEdgeAck), payload));
}

Frame data_v6(std::size_t payload = 1000) {
  return packet::v6({kHere6, kThere6, 6}, with(packet::tcp(5000, 7445, kEdgeAck), payload));
}

Frame answer_v4() {
  return packet::v4({kThere, kHere, 6}, with(packet::tcp(7445, 5000, kEdgeAck), 10));
}

/// "Not ECN-capable" as built; 2 is ECT(0), 3 is CE.
Frame with_ecn(Frame frame, int ecn) {
  frame[15] = static_cast<std::uint8_t>(ecn);
  return frame;
}

TransferClaim claim(std::uint64_t id, std::uint64_t bytes_per_s, bool is_v6 = false) {
  TransferClaim one;
  one.id = id;
  one.local = parse_end(is_v6 ? kHere6 : kHere, 5000).value();
  one.remote = parse_end(is_v6 ? kThere6 : kThere, 7445).value();
  one.purpose = RN_EDGE_CHECKPOINT;
  one.bytes_per_s = bytes_per_s;
  return one;
}

/// BPF_PROG_TEST_RUN gives its packets a socket of user 0: as_agent() makes these the agent's.
class Edge : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) {
      std::cerr << "\n*** NOT RUN: the transfer program's packet tables need root (CAP_BPF, "
                   "CAP_NET_ADMIN) ***\n\n";
      GTEST_SKIP() << "not root";
    }
    ASSERT_EQ(unshare(CLONE_NEWNET), 0);
    char name[] = "/tmp/rn_transfer_edge_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = std::string(name) + "/bpf";
    ASSERT_NO_FATAL_FAILURE(open());
    ASSERT_TRUE(edge_->set_classes(unbounded_rates()));
    ASSERT_TRUE(edge_->gate().uncut());
  }

  void TearDown() override {
    if (!edge_) return;
    const Status left = edge_->leave();
    EXPECT_TRUE(left) << left.error().describe();
    EXPECT_FALSE(has_pinned_edge(folder_));
    EXPECT_TRUE(release_bpffs(folder_));
    std::filesystem::remove(std::filesystem::path(folder_).parent_path());
  }

  void open() {
    edge_.reset();
    auto opened = TransferEdge::open(folder_, kAgent);
    ASSERT_TRUE(opened) << opened.error().describe();
    edge_.emplace(std::move(*opened));
  }

  void as_agent() {
    const std::uint32_t key = 0;
    rn_edge_settings settings{};
    ASSERT_EQ(bpf_map_lookup_elem(edge_->settings_fd(), &key, &settings), 0);
    settings.agent_uid = 0;
    ASSERT_EQ(bpf_map_update_elem(edge_->settings_fd(), &key, &settings, BPF_ANY), 0);
  }

  int run(int program, const Frame& frame, std::uint32_t segments = 0) {
    left_.resize(frame.size() + 256);
    __sk_buff context{};
    context.gso_segs = segments;
    context.gso_size = segments == 0 ? 0 : 1448;
    context.tstamp = due_ns_;
    LIBBPF_OPTS(bpf_test_run_opts, options);
    options.data_in = frame.data();
    options.data_size_in = static_cast<std::uint32_t>(frame.size());
    options.data_out = left_.data();
    options.data_size_out = static_cast<std::uint32_t>(left_.size());
    options.ctx_in = &context;
    options.ctx_size_in = sizeof context;
    options.ctx_out = &context;
    options.ctx_size_out = sizeof context;
    options.repeat = 1;
    EXPECT_EQ(bpf_prog_test_run_opts(program, &options), 0) << "BPF_PROG_TEST_RUN";
    due_ns_ = context.tstamp;
    return static_cast<int>(options.retval);
  }

  int out(const Frame& frame, std::uint32_t segments = 0) {
    return run(edge_->egress_fd(), frame, segments);
  }

  int in(const Frame& frame) { return run(edge_->ingress_fd(), frame); }

  EdgeCounters of_class(rn_edge_class purpose) { return edge_->class_counters(purpose).value(); }

  EdgeCounters of_claim(std::uint64_t id) {
    const auto all = edge_->claim_counters().value();
    for (const ClaimCounters& one : all) {
      if (one.id == id) return one.counters;
    }
    ADD_FAILURE() << "no counters of " << id;
    return {};
  }

  std::string folder_;
  std::optional<TransferEdge> edge_;
  Frame left_;                ///< the packet as the program left it
  std::uint64_t due_ns_ = 0;  ///< when a queue is to send it: before the program, and after
};

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

TEST_F(Edge, what_another_user_sends_is_never_touched) {
  ASSERT_TRUE(edge_->set_claims({claim(1, 0)}));
  ASSERT_TRUE(edge_->set_gate(1, false));
  ASSERT_TRUE(edge_->gate().cut());

  EXPECT_EQ(out(data_v4()), kUntouched);
  EXPECT_EQ(out(data_v6()), kUntouched);
  EXPECT_EQ(out(packet::arp(1, kHere, kThere)), kUntouched);
  EXPECT_EQ(in(answer_v4()), kUntouched) << "the agent has not been seen to send by it";
  EXPECT_EQ(of_claim(1).cut_packets, 0u);
}

TEST_F(Edge, a_claimed_transfer_passes_and_is_counted_by_its_payload) {
  as_agent();
  ASSERT_TRUE(edge_->set_claims({claim(1, RN_EDGE_UNBOUNDED), claim(2, RN_EDGE_UNBOUNDED, true)}));

  EXPECT_EQ(out(data_v4(1000)), kUntouched);
  EXPECT_EQ(out(data_v6(700)), kUntouched);

  EXPECT_EQ(of_claim(1).passed_packets, 1u);
  EXPECT_EQ(of_claim(1).passed_bytes, 1000u);
  EXPECT_NE(of_claim(1).last_passed, Instant{});
  EXPECT_EQ(of_claim(2).passed_bytes, 700u);
  EXPECT_EQ(of_class(RN_EDGE_CHECKPOINT).passed_bytes, 1700u);
  EXPECT_EQ(of_class(RN_EDGE_UNCLAIMED).passed_packets, 0u);
}

TEST_F(Edge, an_exhausted_bucket_drops_until_it_fills_again) {
  as_agent();
  ASSERT_TRUE(edge_->set_claims({claim(1, 1)}));  // fills by one byte a second

  EXPECT_EQ(out(data_v4(1000)), kUntouched) << "below zero by one packet";
  EXPECT_EQ(out(data_v4(1000)), kShot);
  ASSERT_TRUE(edge_->set_rate(1, 1'000'000'000));
  usleep(2000);

  EXPECT_EQ(out(data_v4(1000)), kUntouched);
  EXPECT_EQ(of_claim(1).dropped_packets, 1u);
  EXPECT_EQ(of_claim(1).dropped_bytes, 1000u);
  EXPECT_EQ(of_claim(1).passed_bytes, 2000u);
}

TEST_F(Edge, tcps_own_times_stay_and_what_asks_to_be_held_back_leaves_at_once) {
  const Frame datagram = packet::v4({kHere, kThere}, with(packet::udp(5000, 7445), 100));
  const std::uint64_t soon = monotonic_ns() + RN_EDGE_HELD_NS / 2;
  const std::uint64_t late = monotonic_ns() + 5 * RN_EDGE_HELD_NS;
  due_ns_ = late;
  EXPECT_EQ(out(datagram), kUntouched);
  EXPECT_EQ(due_ns_, late) << "another user's";
  as_agent();

  EXPECT_EQ(out(datagram), kUntouched);
  EXPECT_EQ(due_ns_, 0u);
  due_ns_ = soon;
  EXPECT_EQ(out(packet::v6({kHere6, kThere6}, packet::udp(5000, 7445))), kUntouched);
  EXPECT_EQ(due_ns_, 0u);

  EXPECT_EQ(out(data_v4()), kUntouched);
  EXPECT_EQ(due_ns_, 0u) << "one without a time gets none";
  due_ns_ = soon;
  EXPECT_EQ(out(data_v4()), kUntouched);
  EXPECT_EQ(due_ns_, soon);
  due_ns_ = late;
  EXPECT_EQ(out(data_v6()), kUntouched);
  EXPECT_LT(due_ns_, monotonic_ns() + RN_EDGE_HELD_NS);
  EXPECT_GT(due_ns_, soon) << "the bound, not nothing";
}

TEST_F(Edge, three_packets_ahead_of_their_time_find_room) {
  as_agent();
  ASSERT_TRUE(edge_->set_claims({claim(1, 1'250'000)}));

  for (int i = 0; i < 3; ++i) EXPECT_EQ(out(data_v4(1000), 256), kUntouched) << "64 KiB, " << i;
  for (int i = 0; i < 3; ++i) (void)out(data_v4(1000), 256);

  EXPECT_GT(of_claim(1).dropped_packets, 0u) << "a bucket all the same";
}

TEST_F(Edge, a_rate_of_nothing_lets_no_payload_pass) {
  as_agent();
  ASSERT_TRUE(edge_->set_claims({claim(1, 0)}));

  EXPECT_EQ(out(data_v4(1)), kShot);
  EXPECT_EQ(out(data_v4(0)), kUntouched) << "an acknowledgement";
}

TEST_F(Edge, what_carries_ecn_is_marked_before_it_is_dropped) {
  as_agent();
  ASSERT_TRUE(edge_->set_claims({claim(1, 1)}));

  EXPECT_EQ(out(with_ecn(data_v4(1000), 2), 501), kUntouched);
  EXPECT_EQ(left_[15] & 3, 2) << "the bucket was not empty";
  EXPECT_EQ(out(with_ecn(data_v4(1000), 2)), kUntouched);
  EXPECT_EQ(left_[15] & 3, 3) << "CE";
  EXPECT_EQ(out(data_v4(1000)), kShot) << "without ECN there is no mark";
  EXPECT_EQ(out(with_ecn(data_v4(2800), 2)), kUntouched);
  EXPECT_EQ(out(with_ecn(data_v4(1000), 2)), kShot) << "as deep as marks reach";

  EXPECT_EQ(of_claim(1).marked_packets, 2u);
  EXPECT_EQ(of_claim(1).dropped_packets, 2u);
}

TEST_F(Edge, a_class_and_all_together_bound_transfers_that_have_more_each) {
  as_agent();
  ClassRates rates = unbounded_rates();
  rates[RN_EDGE_CHECKPOINT] = 1;
  ASSERT_TRUE(edge_->set_classes(rates));
  ASSERT_TRUE(edge_->set_claims({claim(1, RN_EDGE_UNBOUNDED), claim(2, RN_EDGE_UNBOUNDED, true)}));

  EXPECT_EQ(out(data_v4()), kUntouched);
  EXPECT_EQ(out(data_v6()), kShot) << "of the same class";
  EXPECT_EQ(of_claim(2).dropped_packets, 1u);

  rates = unbounded_rates();
  rates[RN_EDGE_ALL] = 1;
  ASSERT_TRUE(edge_->set_classes(rates));
  EXPECT_EQ(out(data_v6()), kUntouched);
  EXPECT_EQ(out(data_v4()), kShot);
}

TEST_F(Edge, what_all_refuse_is_not_charged_to_the_transfer) {
  as_agent();
  ClassRates rates = unbounded_rates();
  rates[RN_EDGE_ALL] = 0;
  ASSERT_TRUE(edge_->set_classes(rates));
  ASSERT_TRUE(edge_->set_claims({claim(1, 1)}));
  EXPECT_EQ(out(data_v4()), kShot);

  ASSERT_TRUE(edge_->set_classes(unbounded_rates()));

  EXPECT_EQ(out(data_v4()), kUntouched) << "its byte is still there";
}

TEST_F(Edge, the_agents_unclaimed_packets_share_one_bucket) {
  as_agent();
  ClassRates rates = unbounded_rates();
  rates[RN_EDGE_UNCLAIMED] = 1;
  ASSERT_TRUE(edge_->set_classes(rates));
  ASSERT_TRUE(edge_->set_claims({claim(1, RN_EDGE_UNBOUNDED)}));

  EXPECT_EQ(out(data_v4(1000, 5001, 7445)), kUntouched);
  EXPECT_EQ(out(data_v4(1000, 5002, 443)), kShot) << "another port is no way past it";
  EXPECT_EQ(out(packet::v4({kHere, kThere}, with(packet::udp(5000, 7445), 100))), kShot) << "UDP";
  EXPECT_EQ(out(packet::v4({kHere, kThere, 17, 0x0010}, with({}, 100))), kShot)
      << "a later fragment has no ports";
  EXPECT_EQ(out(packet::v4({kHere, kThere, 132}, with({}, 100))), kShot) << "SCTP";
  EXPECT_EQ(out(data_v4()), kUntouched) << "the claimed one";
  EXPECT_EQ(of_class(RN_EDGE_UNCLAIMED).dropped_packets, 4u);
}

TEST_F(Edge, headers_cannot_be_sent_past_the_bucket) {
  as_agent();
  ASSERT_TRUE(edge_->set_claims({claim(1, 1'000'000'000)}));
  std::uint64_t passed = 0;
  ASSERT_TRUE(edge_->set_rate(1, 300));  // one second's worth at most, when it starts
  for (int i = 0; i < 10; ++i) passed += out(data_v4(1)) == kUntouched ? 1 : 0;

  EXPECT_EQ(passed, 2u) << "256 bytes are charged for each";
}

TEST_F(Edge, a_packet_of_many_segments_is_charged_and_counted_as_these) {
  as_agent();
  ASSERT_TRUE(edge_->set_claims({claim(1, RN_EDGE_UNBOUNDED)}));

  EXPECT_EQ(out(data_v4(2800), 10), kUntouched);

  EXPECT_EQ(of_claim(1).passed_packets, 10u);
  EXPECT_EQ(of_claim(1).passed_bytes, 2800u);
}

TEST_F(Edge, one_write_cuts_one_transfer_both_ways_and_no_other) {
  as_agent();
  ASSERT_TRUE(edge_->set_claims({claim(1, RN_EDGE_UNBOUNDED), claim(2, RN_EDGE_UNBOUNDED, true)}));
  ASSERT_EQ(out(data_v4()), kUntouched);
  ASSERT_EQ(in(answer_v4()), kUntouched);

  ASSERT_TRUE(edge_->set_gate(1, false));

  EXPECT_EQ(out(data_v4()), kShot);
  EXPECT_EQ(out(data_v4(0)), kShot) << "acknowledgements too";
  EXPECT_EQ(in(answer_v4()), kShot);
  EXPECT_EQ(out(data_v6()), kUntouched);
  EXPECT_EQ(of_claim(1).cut_packets, 3u);
  ASSERT_TRUE(edge_->set_gate(1, true));
  EXPECT_EQ(out(data_v4()), kUntouched);
}

TEST_F(Edge, one_write_cuts_all_transfers_and_leaves_control_alone) {
  as_agent();
  ASSERT_TRUE(edge_->set_control(
      {{
           7443,
           IPPROTO_TCP,
           0,
       },
       {7444, IPPROTO_TCP, 1},
       {53, IPPROTO_UDP, 0}}
  ));
  ASSERT_TRUE(edge_->set_claims({claim(1, RN_EDGE_UNBOUNDED)}));
  ASSERT_EQ(out(data_v4()), kUntouched);

  ASSERT_TRUE(edge_->gate().cut());

  EXPECT_EQ(out(data_v4()), kShot);
  EXPECT_EQ(in(answer_v4()), kShot);
  EXPECT_EQ(out(data_v4(10, 7445, 5000)), kShot) << "unclaimed";
  EXPECT_EQ(out(data_v4(100, 5000, 7443)), kUntouched) << "heartbeats";
  EXPECT_EQ(out(data_v4(100, 7444, 5000)), kUntouched) << "the owner's REST";
  EXPECT_EQ(out(packet::v4({kHere, kThere}, packet::udp(5000, 53))), kUntouched) << "names";
  EXPECT_EQ(out(data_v4(100, 5000, 53)), kShot) << "the protocol belongs to the port";
  EXPECT_EQ(of_class(RN_EDGE_CONTROL).passed_packets, 3u);

  ASSERT_TRUE(edge_->gate().uncut());
  EXPECT_EQ(out(data_v4()), kUntouched);
}

TEST_F(Edge, control_is_bounded_too) {
  as_agent();
  ClassRates rates = unbounded_rates();
  rates[RN_EDGE_CONTROL] = 1;
  ASSERT_TRUE(edge_->set_classes(rates));
  ASSERT_TRUE(edge_->set_control({{7443, IPPROTO_TCP, 0}}));

  EXPECT_EQ(out(data_v4(100, 5000, 7443)), kUntouched);
  EXPECT_EQ(out(data_v4(100, 5000, 7443)), kShot);
}

TEST_F(Edge, a_fresh_edge_lets_no_transfer_pass) {
  ASSERT_TRUE(edge_->leave());
  ASSERT_NO_FATAL_FAILURE(open());
  as_agent();
  ASSERT_TRUE(edge_->set_classes(unbounded_rates()));

  EXPECT_EQ(out(data_v4()), kShot);
  EXPECT_EQ(out(packet::v4({kHere, kThere, 6}, packet::tcp(5000, 7445, kEdgeSyn))), kShot);
}

TEST_F(Edge, a_restarted_loader_finds_gates_grants_and_counters) {
  as_agent();
  ASSERT_TRUE(edge_->set_claims({claim(1, RN_EDGE_UNBOUNDED)}));
  ASSERT_EQ(out(data_v4(1000)), kUntouched);
  ASSERT_TRUE(edge_->gate().cut());

  ASSERT_NO_FATAL_FAILURE(open());
  as_agent();

  EXPECT_EQ(out(data_v4(1000)), kShot) << "the owner's cut outlives the process";
  EXPECT_EQ(of_claim(1).passed_bytes, 1000u);
  ASSERT_TRUE(edge_->gate().uncut());
  EXPECT_EQ(out(data_v4(1000)), kUntouched);
}

TEST_F(Edge, the_same_claims_again_change_nothing_and_others_take_their_place) {
  as_agent();
  ASSERT_TRUE(edge_->set_claims({claim(1, 1)}));
  ASSERT_EQ(out(data_v4()), kUntouched);

  ASSERT_TRUE(edge_->set_claims({claim(1, 1)}));
  EXPECT_EQ(out(data_v4()), kShot) << "its bucket is as empty as it was";
  EXPECT_EQ(of_claim(1).passed_packets, 1u);

  ASSERT_TRUE(edge_->set_claims({claim(2, 1)}));
  EXPECT_EQ(edge_->claim_counters()->size(), 1u);
  EXPECT_EQ(of_claim(2).passed_packets, 0u);
  ASSERT_TRUE(edge_->set_claims({}));
  EXPECT_TRUE(edge_->claim_counters()->empty());
  EXPECT_EQ(edge_->set_gate(2, false).error().code, ErrorCode::kNotFound);
}

TEST_F(Edge, claims_that_contradict_each_other_are_refused_whole) {
  ASSERT_TRUE(edge_->set_claims({claim(7, 1)}));
  TransferClaim no_port = claim(3, 1);
  no_port.remote.port = 0;
  TransferClaim no_class = claim(3, 1);
  no_class.purpose = RN_EDGE_CONTROL;
  std::vector<TransferClaim> many;
  for (std::uint64_t i = 0; i <= RN_EDGE_TRANSFERS; ++i) {
    many.push_back(claim(i, 1));
    many.back().local.port = static_cast<std::uint16_t>(10'000 + i);
  }

  EXPECT_EQ(edge_->set_claims({claim(1, 1), claim(2, 1)}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(edge_->set_claims({claim(1, 1), claim(1, 1, true)}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(edge_->set_claims({no_port}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(edge_->set_claims({no_class}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(edge_->set_claims(many).error().code, ErrorCode::kExhausted);
  EXPECT_EQ(edge_->claim_counters()->at(0).id, 7u) << "nothing was changed";

  many.pop_back();
  EXPECT_TRUE(edge_->set_claims(many));
  EXPECT_EQ(edge_->claim_counters()->size(), std::size_t{RN_EDGE_TRANSFERS});
}

TEST_F(Edge, filters_that_somebody_took_off_are_put_back_and_the_owners_stay) {
  ASSERT_EQ(std::system("ip link add up0 type veth peer name up0far && ip link set up0 up"), 0);
  ASSERT_TRUE(edge_->guard({"up0"}).empty()) << "the first time is no loss";
  const std::uint32_t up0 = if_nametoindex("up0");
  EXPECT_EQ(count_filters(up0, RN_CUT_TO_GUEST).value(), 1u);

  ASSERT_EQ(std::system("tc qdisc del dev up0 clsact"), 0);
  const auto losses = edge_->guard({"up0"});

  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].interface, "up0");
  EXPECT_TRUE(losses[0].repaired);
  EXPECT_EQ(count_filters(up0, RN_CUT_TO_GUEST).value(), 1u);
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_TRUE(edge_->guard({"up0"}).empty()) << "adopted";
  constexpr FilterPlace kOwners{50, "rn_edge_in", "rn_edge_out"};
  ASSERT_TRUE(put_filter(up0, RN_CUT_TO_GUEST, edge_->egress_fd(), kOwners));

  EXPECT_TRUE(edge_->guard({}).empty());
  EXPECT_EQ(count_filters(up0, RN_CUT_TO_GUEST).value(), 1u) << "the owner's, and its qdisc";
}

TEST_F(Edge, a_qdisc_that_was_there_before_stays) {
  ASSERT_EQ(
      std::system("ip link add up1 type veth peer name up1far && tc qdisc add dev up1 clsact"), 0
  );
  ASSERT_TRUE(edge_->guard({"up1"}).empty());

  ASSERT_TRUE(edge_->guard({}).empty());

  EXPECT_EQ(std::system("tc qdisc show dev up1 | grep -q clsact"), 0);
  ASSERT_EQ(std::system("ip link add up2 type veth peer name up2far"), 0);
  ASSERT_TRUE(edge_->guard({"up2"}).empty());
  ASSERT_TRUE(edge_->guard({}).empty());
  EXPECT_NE(std::system("tc qdisc show dev up2 | grep -q clsact"), 0) << "ours is gone";
}

TEST_F(Edge, root_is_no_agent) {
  const auto refused = TransferEdge::open(folder_, 0);

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
}

TEST(TransferBucket, holds_what_fq_gets_ahead_at_any_rate_and_some_milliseconds_at_high_ones) {
  EXPECT_EQ(transfer_bucket(1'250'000).burst_bytes, 262'144u) << "four packets";
  EXPECT_EQ(transfer_bucket(125'000'000).burst_bytes, 625'000u);
  EXPECT_EQ(transfer_bucket(RN_EDGE_UNBOUNDED).bytes_per_s, RN_EDGE_UNBOUNDED);
  EXPECT_EQ(class_bucket(1'250'000).burst_bytes, 262'144u);
}

}  // namespace
}  // namespace rn::traffic
