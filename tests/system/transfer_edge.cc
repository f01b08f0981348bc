// SPDX-License-Identifier: Apache-2.0
//
// The agent's transfers at the uplink, on real sockets between two network namespaces: who keeps to
// a grant loses nothing, who ignores it gets no more, and one map write cuts them all while
// heartbeats and the owner's own connections go on. Then the same by a real warden.
// bench/bench_edge measures at more rates and for longer.

#include <atomic>
#include <functional>
#include <iostream>
#include <optional>
#include <thread>

#include "edge_site.h"
#include "warden_node_fake.h"
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <time.h>
#include <unistd.h>

#include "base/scratch_folder.h"
#include "traffic/bpffs.h"

namespace rn::edge_site {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kGrant = 12'500'000;  ///< 100 Mbit/s
/// A packet that had passed the hook is at the peer long before that, on a busy machine too.
constexpr std::int64_t kUnderWay = 100'000'000;

std::int64_t realtime_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * kSecond + now.tv_nsec;
}

/// Does something beside a flood.
class Flood {
 public:
  explicit Flood(const Sender& sender, std::uint64_t udp_bytes_s = 0, std::int64_t limit_s = 20)
      : thread_([this, &sender, udp_bytes_s, limit_s] {
          const std::int64_t end = now_ns() + limit_s * kSecond;
          while (!is_over_ && now_ns() < end)
            sender.flood_until(now_ns() + kSecond / 20, udp_bytes_s);
        }) {}

  ~Flood() { stop(); }

  void stop() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

class TransferEdge : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) {
      std::cerr << "\n*** NOT RUN: transfer_edge needs root (namespaces, BPF) ***\n\n";
      GTEST_SKIP() << "not root";
    }
    site_.emplace();
    sink_.emplace(*site_);
    auto edge = traffic::TransferEdge::open(gates(), kEdgeAgentUid);
    ASSERT_TRUE(edge) << edge.error().describe();
    edge_.emplace(std::move(*edge));
    ASSERT_TRUE(edge_->set_classes(traffic::unbounded_rates()));
    ASSERT_TRUE(edge_->set_control({{kControlPort, IPPROTO_TCP, 0}}));
    ASSERT_TRUE(edge_->gate().uncut());
    ASSERT_TRUE(edge_->guard({"up0"}).empty());
  }

  void TearDown() override {
    if (!edge_) return;
    EXPECT_TRUE(edge_->leave());
    EXPECT_TRUE(traffic::release_bpffs(gates()));
  }

  std::string gates() const { return folder_.path() + "/gates"; }

  traffic::EdgeCounters counters(std::uint64_t id) {
    const auto all = edge_->claim_counters().value();
    for (const auto& one : all) {
      if (one.id == id) return one.counters;
    }
    ADD_FAILURE() << "no transfer " << id;
    return {};
  }

  /// What the edge refused of three seconds at the grant. Retransmits are told, not judged: who
  /// gets no processor is late, and sends again what was not lost.
  std::uint64_t refused_at_the_grant(bool is_in_bursts) {
    const Sender sender({.pace_bytes_s = kGrant, .is_in_bursts = is_in_bursts});
    EXPECT_TRUE(edge_->set_claims({sender.claim(1, kGrant)}));
    sink_->forget();
    const std::int64_t begin = now_ns();

    sender.flood_until(begin + 3 * kSecond);

    const std::uint64_t got = sink_->bytes_between(begin + kSecond, begin + 3 * kSecond);
    const std::uint64_t refused = counters(1).dropped_packets;
    EXPECT_GT(counters(1).passed_bytes, kGrant) << "of three seconds' worth, on a busy machine";
    std::cout << (is_in_bursts ? "in bursts: " : "as TCP likes: ") << got << " bytes of "
              << 2 * kGrant << ", refused " << refused << ", retransmits " << sender.retransmits()
              << " (needless " << sender.needless_retransmits() << ")\n";
    return refused;
  }

  /// False, and said, where the kernel has no fq.
  bool has_fq(const std::string& settings = "") {
    if (warden::run_shell("tc qdisc replace dev up0 root fq " + settings + " 2>/dev/null"))
      return true;
    std::cerr << "\n*** NOT RUN: this kernel has no fq; tests/vm/edge_with_fq.sh has one ***\n\n";
    return false;
  }

  void bound_unclaimed() {
    traffic::ClassRates rates = traffic::unbounded_rates();
    rates[RN_EDGE_UNCLAIMED] = kGrant;
    ASSERT_TRUE(edge_->set_classes(rates));
    sink_->forget();
  }

  void flood_past_the_grant(bool is_udp) {
    const Sender sender({.is_udp = is_udp});
    ASSERT_NO_FATAL_FAILURE(bound_unclaimed());
    Flood flood(sender, 2 * kGrant);
    const std::int64_t begin = now_ns() + kSecond / 2;  // after the burst
    ASSERT_TRUE(warden::eventually([&] { return now_ns() > begin + 3 * kSecond; }));
    flood.stop();

    const std::uint64_t got = sink_->bytes_between(begin, begin + 3 * kSecond);

    EXPECT_LT(got, 3 * kGrant * 105 / 100) << (is_udp ? "UDP" : "TCP");
    // TCP that does not pace itself falls far below: a bucket drops what a queue would hold.
    if (is_udp) {
      EXPECT_GT(got, kGrant) << "of three seconds' worth, on a busy machine";
    }
    EXPECT_GT(edge_->class_counters(RN_EDGE_UNCLAIMED)->dropped_packets, 0u);
  }

  void cut_one_transfer();

  const ScratchFolder folder_;
  std::optional<Site> site_;
  std::optional<Sink> sink_;
  std::optional<traffic::TransferEdge> edge_;
};

TEST_F(TransferEdge, a_sender_that_paces_itself_at_its_grant_loses_nothing) {
  EXPECT_EQ(refused_at_the_grant(true), 0u);
}

TEST_F(TransferEdge, a_sender_that_fq_paces_at_its_grant_loses_nothing) {
  if (!has_fq()) GTEST_SKIP() << "no fq";

  EXPECT_EQ(refused_at_the_grant(true), 0u);
  // Packets of 64 KiB leave no room for a machine that stands still in between.
  bool is_whole = false;
  for (int i = 0; i < 3 && !is_whole; ++i) is_whole = refused_at_the_grant(false) == 0;
  EXPECT_TRUE(is_whole) << "three times";

  EXPECT_TRUE(warden::run_shell("tc -s qdisc show dev up0 | grep -q 'throttled [1-9]'"))
      << "it was not fq that held packets back";
}

TEST_F(TransferEdge, a_sender_that_ignores_its_grant_gets_no_more) {
  for (const bool is_udp : {false, true}) flood_past_the_grant(is_udp);
}

TEST_F(TransferEdge, a_sender_that_ignores_its_grant_gets_no_more_behind_fq) {
  if (!has_fq()) GTEST_SKIP() << "no fq";

  for (const bool is_udp : {false, true}) flood_past_the_grant(is_udp);
}

TEST_F(TransferEdge, nothing_is_heaped_up_in_fq_to_leave_all_at_once) {
  // One socket fills what many would.
  if (!has_fq("limit 40000 flow_limit 40000")) GTEST_SKIP() << "no fq";
  ASSERT_NO_FATAL_FAILURE(bound_unclaimed());
  // The owner's are held back, which is the owner's affair; the agent's leave when counted.
  for (const std::uint32_t uid : {0U, kEdgeAgentUid}) {
    sink_->forget();
    const std::int64_t begin = now_ns();
    const std::int64_t due = begin + 2 * kSecond;
    const Sender sender({.uid = uid, .is_udp = true, .held_until_ns = due});

    sender.flood_until(due - kSecond / 4, kGrant);
    ASSERT_TRUE(warden::eventually([&] { return now_ns() > due + kSecond / 2; }));

    const std::uint64_t before = sink_->bytes_between(begin, due - kSecond / 8);
    const std::uint64_t after = sink_->bytes_between(due - kSecond / 8, due + kSecond / 2);
    EXPECT_GT(uid == 0 ? after : before, kGrant / 100) << uid;
    EXPECT_LT(uid == 0 ? before : after, kGrant / 2) << uid;
    std::cout << "user " << uid << ": " << before << " bytes, then " << after << "\n";
  }
}

TEST_F(TransferEdge, one_write_cuts_all_transfers_and_neither_heartbeats_nor_the_owner) {
  const Sender v4({});
  const Sender v6({.is_v6 = true});
  const Sender beats({.port = kControlPort});
  const Sender owner({.uid = 0, .port = kOwnerPort, .pace_bytes_s = kGrant});
  const Sender owners_data({.uid = 0});
  ASSERT_TRUE(edge_->set_claims({v4.claim(1, kGrant), v6.claim(2, kGrant)}));
  const Sniffer sniffer(*site_);
  Flood one(v4), two(v6), owners(owner);
  ASSERT_TRUE(warden::eventually([&] { return sniffer.data_packets() > 100; }));

  ASSERT_TRUE(edge_->gate().cut());
  const std::int64_t cut_at = realtime_ns();
  const std::uint64_t owners_before = sink_->bytes(kOwnerPort);
  const std::uint64_t beats_before = sink_->bytes(kControlPort);
  ASSERT_TRUE(warden::eventually([&] { return counters(1).cut_packets > 2; }));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(beats.say());

  EXPECT_TRUE(warden::eventually([&] { return sink_->bytes(kControlPort) == beats_before + 40; }));
  EXPECT_TRUE(warden::eventually([&] {
    return sink_->bytes(kOwnerPort) > owners_before + kGrant / 2;
  }));
  sniffer.drain();
  EXPECT_LT(sniffer.last_data_realtime_ns(), cut_at + kUnderWay);
  const std::uint64_t seen = sniffer.data_packets();
  ASSERT_TRUE(owners_data.say()) << "the owner's own connection to such a port";
  EXPECT_TRUE(warden::eventually([&] { return sniffer.data_packets() == seen + 1; }));
  // Told, not judged: who gets no processor for 200 ms sends again what was not lost.
  std::cout << "beside the cut: retransmits of the owner " << owner.retransmits()
            << ", of heartbeats " << beats.retransmits() << "\n";
  EXPECT_EQ(sniffer.lost(), 0u);

  ASSERT_TRUE(edge_->gate().uncut());
  EXPECT_TRUE(warden::eventually([&] { return sniffer.data_packets() > seen + 100; }));
}

void TransferEdge::cut_one_transfer() {
  const Sender cut({.pace_bytes_s = kGrant});
  const Sender other({.is_v6 = true, .pace_bytes_s = kGrant});
  const auto claims = {cut.claim(1, kGrant), other.claim(2, kGrant)};
  ASSERT_TRUE(edge_->set_claims(claims));
  const Sniffer of_cut(*site_, claims.begin()[0].local.port);
  const Sniffer of_other(*site_, claims.begin()[1].local.port);
  Flood one(cut, 0, 60), two(other, 0, 60);
  ASSERT_TRUE(warden::eventually([&] {
    return of_cut.data_packets() > 100 && of_other.data_packets() > 100;
  }));

  ASSERT_TRUE(edge_->set_gate(1, false));
  const std::int64_t cut_at = realtime_ns();
  ASSERT_TRUE(warden::eventually([&] { return counters(1).cut_packets > 0; }));
  const std::uint64_t others_before = of_other.data_packets();

  EXPECT_TRUE(warden::eventually([&] { return of_other.data_packets() > others_before + 100; }));
  of_cut.drain();
  EXPECT_LT(of_cut.last_data_realtime_ns(), cut_at + kUnderWay);
  EXPECT_EQ(counters(2).cut_packets, 0u);
  EXPECT_EQ(of_cut.lost(), 0u);
  const std::uint64_t seen = of_cut.data_packets();

  ASSERT_TRUE(edge_->set_gate(1, true));
  EXPECT_TRUE(warden::eventually([&] { return of_cut.data_packets() > seen + 100; }));
}

TEST_F(TransferEdge, one_write_cuts_one_transfer_and_no_other) {
  cut_one_transfer();
}

TEST_F(TransferEdge, one_write_cuts_one_transfer_and_no_other_behind_fq) {
  if (!has_fq()) GTEST_SKIP() << "no fq";

  cut_one_transfer();
}

/// The warden itself, in this process's namespace.
class TransferWarden : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "not root";
    site_.emplace();
    sink_.emplace(*site_);
    node_ = std::make_unique<warden::WardenNode>("edge");
    node_->agent_uid = kEdgeAgentUid;
    node_->flags = {"--transfers", "up0:100mbit"};
    ASSERT_TRUE(node_->serve()) << warden::text_of(node_->folder + "/log");
  }

  static constexpr std::uint64_t kTransfer = 7;

  warden_wire::SetTransfers claim_of(const Sender& sender, std::uint64_t bytes_per_s) const {
    return {.transfers = {transfer_of(kTransfer, sender, bytes_per_s)}};
  }

  static warden_wire::Transfer transfer_of(
      std::uint64_t id, const Sender& sender, std::uint64_t bytes_per_s
  ) {
    const auto claim = sender.claim(id, bytes_per_s);
    return {
        id,
        std::string(kHere) + ":" + std::to_string(claim.local.port),
        std::string(kFar) + ":" + std::to_string(claim.remote.port),
        TransferPurpose::kEvacuation,
        bytes_per_s,
        false};
  }

  std::uint64_t passed(const warden_wire::SetTransfers& wanted, std::uint64_t id) {
    const auto answer = node_->ask(wanted);
    EXPECT_EQ(answer.code, "") << answer.message;
    for (const auto& one : answer.transfers.transfers) {
      if (one.id == id) return one.passed_bytes;
    }
    return 0;
  }

  /// True when the transfer sends on, false when it stands still, for a while.
  bool is_sending(const warden_wire::SetTransfers& wanted, std::uint64_t id = kTransfer) {
    const std::uint64_t before = passed(wanted, id);
    return warden::eventually([&] { return passed(wanted, id) > before + 100'000; }, 2);
  }

  std::string told() const { return warden::text_of(node_->folder + "/told"); }

  bool order(const std::string& flag) {
    return warden::run_shell(
        node_->command("kill") + " " + flag + " > " + node_->folder + "/told 2>&1"
    );
  }

  std::optional<Site> site_;
  std::optional<Sink> sink_;
  std::unique_ptr<warden::WardenNode> node_;
};

TEST_F(TransferWarden, bounds_cuts_and_lets_go_on_with_and_without_the_daemon) {
  const Sender sender({});
  const warden_wire::SetTransfers wanted = claim_of(sender, kGrant / 2);
  Flood flood(sender, 0, 60);
  ASSERT_TRUE(is_sending(wanted));
  auto bad = wanted;
  bad.transfers[0].local = "nowhere";
  EXPECT_EQ(node_->ask(bad).code, "invalid");

  ASSERT_TRUE(order("--transfers")) << told();
  EXPECT_NE(told().find("transfers cut after"), std::string::npos) << told();
  EXPECT_FALSE(is_sending(wanted));
  EXPECT_TRUE(node_->ask(wanted).transfers.is_cut);
  EXPECT_FALSE(node_->state().troubles.empty());

  node_->kill_daemon();
  ASSERT_TRUE(node_->serve());
  EXPECT_FALSE(is_sending(wanted)) << "a restart is no release";
  EXPECT_EQ(node_->ask(warden_wire::Release{}).code, "");
  EXPECT_TRUE(is_sending(wanted));

  node_->kill_daemon();
  ASSERT_TRUE(order("--transfers")) << told();
  EXPECT_NE(told().find("(by hand)"), std::string::npos) << told();
  ASSERT_TRUE(node_->serve());
  EXPECT_FALSE(is_sending(wanted));
  ASSERT_TRUE(order("--allow-transfers")) << told();
  EXPECT_TRUE(is_sending(wanted));
}

TEST_F(TransferWarden, cuts_one_transfer_by_the_agents_word_and_no_other) {
  const Sender sender({});
  const Sender other({});
  warden_wire::SetTransfers wanted = claim_of(sender, kGrant / 3);
  wanted.transfers.push_back(transfer_of(kTransfer + 1, other, kGrant / 3));
  Flood one(sender, 0, 60), two(other, 0, 60);
  ASSERT_TRUE(is_sending(wanted));
  ASSERT_TRUE(is_sending(wanted, kTransfer + 1));

  wanted.transfers[0].is_cut = true;
  EXPECT_FALSE(is_sending(wanted));
  EXPECT_TRUE(is_sending(wanted, kTransfer + 1));

  wanted.transfers[0].is_cut = false;
  EXPECT_TRUE(is_sending(wanted));
}

TEST_F(TransferWarden, a_filter_that_somebody_removes_is_back_and_leave_takes_it_away) {
  ASSERT_TRUE(warden::eventually([] {
    return warden::run_shell("tc filter show dev up0 egress | grep -q rn_edge_out");
  }));

  ASSERT_TRUE(warden::run_shell("tc qdisc del dev up0 clsact"));

  EXPECT_TRUE(warden::eventually([] {
    return warden::run_shell("tc filter show dev up0 egress | grep -q rn_edge_out");
  }));
  EXPECT_TRUE(warden::eventually([&] {
    const auto state = node_->state();
    for (const auto& trouble : state.troubles) {
      if (trouble.what.find("the transfers' filter of up0; it is back") != std::string::npos)
        return true;
    }
    return false;
  }));
  EXPECT_TRUE(warden::run_shell(node_->command("leave") + " > " + node_->folder + "/told 2>&1"))
      << told();
  EXPECT_NE(told().find("removed filters of the agent's transfers"), std::string::npos) << told();
  EXPECT_FALSE(warden::run_shell("tc qdisc show dev up0 | grep -q clsact"));
}

}  // namespace
}  // namespace rn::edge_site

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
