// SPDX-License-Identifier: Apache-2.0
//
// The transfers' edge on the wire between two network namespaces: what a sender loses that paces
// itself at its grant, what one gets that ignores it, how soon another rate is on the wire, and
// what a packet costs. Root.
//
//   bench_edge [SECONDS=10] [CHANGES=100] [MOST=1000]   grants of up to MOST Mbit/s

#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "bench_report.h"
#include "edge_site.h"
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <time.h>
#include <unistd.h>

#include "base/scratch_folder.h"
#include "traffic/bpffs.h"
#include "traffic/packet_builder_fake.h"

namespace rn::bench {
namespace {

using edge_site::now_ns;
using edge_site::Sender;
using traffic::TransferEdge;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kMs = 1'000'000;
constexpr std::uint64_t kMbit = 125'000;  ///< bytes a second

std::int64_t realtime_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * kSecond + now.tv_nsec;
}

struct Bench {
  const edge_site::Site& site;
  edge_site::Sink& sink;
  TransferEdge& edge;
};

/// From the first second on, per second: least, median and most, as parts of the grant.
void print_windows(
    const char* who, const char* how, Bench& b, std::uint64_t grant, std::int64_t begin, int seconds
) {
  std::vector<double> parts;
  for (int i = 1; i < seconds; ++i)
    parts.push_back(
        static_cast<double>(b.sink.bytes_between(begin + i * kSecond, begin + (i + 1) * kSecond)) /
        static_cast<double>(grant)
    );
  std::printf(
      "%s %s at %llu Mbit/s: bytes of each second after the first against the grant, n=%zu: "
      "median %.3f, least %.3f, most %.3f",
      how,
      who,
      static_cast<unsigned long long>(grant / kMbit),
      parts.size(),
      quantile(parts, 0.5),
      quantile(parts, 0.0),
      quantile(parts, 1.0)
  );
}

/// Of this thread's network namespace.
void set_ipv4(const char* name, const char* value) {
  std::FILE* file = std::fopen((std::string("/proc/sys/net/ipv4/") + name).c_str(), "w");
  if (file == nullptr || std::fputs(value, file) < 0 || std::fclose(file) != 0)
    std::printf("(%s could not be set: the next rows are without it)\n", name);
}

void run_tcp(
    Bench& b,
    std::uint64_t grant,
    const std::string& congestion,
    bool paces,
    int seconds,
    const char* how
) {
  const Sender sender(
      {.congestion = congestion, .pace_bytes_s = paces ? grant : 0, .is_in_bursts = paces}
  );
  (void)b.edge.set_claims({sender.claim(1, grant)});
  b.sink.forget();
  const std::int64_t begin = now_ns();
  sender.flood_until(begin + seconds * kSecond);
  const auto counters = b.edge.claim_counters().value().at(0).counters;
  print_windows(congestion.c_str(), how, b, grant, begin, seconds);
  std::printf(
      "; marked %llu, dropped %llu of %llu packets, %llu retransmits\n",
      static_cast<unsigned long long>(counters.marked_packets),
      static_cast<unsigned long long>(counters.dropped_packets),
      static_cast<unsigned long long>(counters.dropped_packets + counters.passed_packets),
      static_cast<unsigned long long>(sender.retransmits())
  );
}

void set_unclaimed(Bench& b, std::uint64_t rate) {
  traffic::ClassRates rates = traffic::unbounded_rates();
  rates[RN_EDGE_UNCLAIMED] = rate;
  (void)b.edge.set_classes(rates);
}

void run_udp(Bench& b, std::uint64_t grant, int seconds) {
  const Sender sender({.is_udp = true});
  set_unclaimed(b, grant);
  b.sink.forget();
  const std::int64_t begin = now_ns();
  sender.flood_until(begin + seconds * kSecond, grant + grant / 2);
  print_windows("UDP at 1.5 times, unclaimed", "flooding", b, grant, begin, seconds);
  std::printf("\n");
  set_unclaimed(b, RN_EDGE_UNBOUNDED);
}

void print_times(const std::string& what, const std::vector<double>& values, const char* unit) {
  std::printf(
      "%s, n=%zu: median %.1f, p99 %.1f, max %.1f %s\n",
      what.c_str(),
      values.size(),
      quantile(values, 0.5),
      quantile(values, 0.99),
      quantile(values, 1.0),
      unit
  );
}

/// Who is told another rate, and how.
struct Told {
  std::string by;  ///< "map write", …
  const Sender& sender;
  std::function<void(std::uint64_t)> rate;
  double slack;  ///< of the bytes in 10 ms: what one packet more or less makes
};

/// What would send 150 Mbit/s or more, granted 20 and 100 by turns. From the word to the first
/// window of 10 ms, in steps of 0.1 ms, whose bytes in the peer's capture are as many as the new
/// rate lets pass, give or take the slack; 200 ms where there is none.
bool run_changes(Bench& b, const Told& told, int changes) {
  constexpr std::uint64_t kLow = 20 * kMbit, kHigh = 100 * kMbit, kOffered = 150 * kMbit;
  constexpr std::int64_t kWindow = 10 * kMs, kStep = kMs / 10;
  const edge_site::Sniffer sniffer(b.site);
  told.rate(kHigh);
  std::atomic<bool> is_over{false};
  std::thread flood([&] {
    while (!is_over) told.sender.flood_until(now_ns() + kSecond, kOffered);
  });
  usleep(500'000);
  std::vector<double> up, down, words;
  for (int i = 0; i < changes; ++i) {
    const bool goes_up = i % 2 == 1;
    const std::int64_t at = realtime_ns();
    told.rate(goes_up ? kHigh : kLow);
    words.push_back(static_cast<double>(realtime_ns() - at) / 1e3);
    usleep(250'000);
    sniffer.drain();
    const double due =
        static_cast<double>(goes_up ? kHigh : kLow) * static_cast<double>(kWindow) / 1e9;
    std::int64_t after = 0;
    for (; after < 200 * kMs; after += kStep) {
      const auto got = static_cast<double>(sniffer.bytes_between(at + after, at + after + kWindow));
      if (got > (1 - told.slack) * due && got < (1 + told.slack) * due) break;
    }
    (goes_up ? up : down).push_back(static_cast<double>(after) / 1e6);
  }
  is_over = true;
  flood.join();
  print_times(told.by + " to the lower rate in the peer's capture (20 of 100 Mbit/s)", down, "ms");
  print_times(told.by + " to the higher rate in the peer's capture", up, "ms");
  print_times("each " + told.by + " itself", words, "us");
  std::printf(
      "packets that the capture lost: %llu\n", static_cast<unsigned long long>(sniffer.lost())
  );
  return sniffer.lost() == 0;
}

/// Datagrams that ignore their bucket, and a TCP connection that is paced by its socket as copies
/// are, behind no bucket: given to the kernel as they are, and without the bursts' ends, where TCP
/// sends 64 KiB at a time on a path as short as this (26 ms of 20 Mbit/s), and looks at its rate as
/// seldom.
bool run_all_changes(Bench& b, int changes) {
  (void)b.edge.set_claims({});
  bool is_whole = true;
  {
    const Sender sender({.is_udp = true});
    const auto rate = [&](std::uint64_t bytes_s) { set_unclaimed(b, bytes_s); };
    is_whole = run_changes(b, {"map write", sender, rate, 0.1}, changes);
    set_unclaimed(b, RN_EDGE_UNBOUNDED);
  }
  for (const bool is_in_bursts : {true, false}) {
    for (const char* congestion : {"reno", "cubic", "bbr"}) {
      const Sender sender(
          {.congestion = congestion, .pace_bytes_s = 100 * kMbit, .is_in_bursts = is_in_bursts}
      );
      const auto rate = [&](std::uint64_t bytes_s) { sender.pace(bytes_s); };
      const std::string by = std::string(congestion) + "'s SO_MAX_PACING_RATE" +
                             (is_in_bursts ? ", in bursts" : ", as TCP likes");
      is_whole = run_changes(b, {by, sender, rate, 0.15}, changes) && is_whole;
    }
  }
  return is_whole;
}

traffic::packet::Frame data_frame(std::size_t payload) {
  auto head = traffic::packet::tcp(5000, 7445, 0x10);
  head.resize(head.size() + payload, 'x');
  return traffic::packet::v4({"192.0.2.2", "198.51.100.7", 6}, head);
}

void run_costs(Bench& b) {
  const auto cost = [&](const char* what, int program, std::size_t payload) {
    const auto frame = data_frame(payload);
    std::vector<double> ns;
    for (int i = 0; i < 100; ++i) {
      LIBBPF_OPTS(bpf_test_run_opts, options);
      options.data_in = frame.data();
      options.data_size_in = static_cast<std::uint32_t>(frame.size());
      options.repeat = 10'000;
      if (bpf_prog_test_run_opts(program, &options) != 0) return;
      ns.push_back(options.duration);
    }
    std::printf(
        "%s, n=100 x 10,000 packets: median %.0f, p99 %.0f ns a packet\n",
        what,
        quantile(ns, 0.5),
        quantile(ns, 0.99)
    );
  };
  const auto set_user = [&](std::uint32_t uid) {
    const std::uint32_t key = 0;
    rn_edge_settings settings{};
    bpf_map_lookup_elem(b.edge.settings_fd(), &key, &settings);
    settings.agent_uid = uid;
    bpf_map_update_elem(b.edge.settings_fd(), &key, &settings, BPF_ANY);
  };
  traffic::TransferClaim claim;
  claim.id = 1;
  claim.local = traffic::parse_end("192.0.2.2", 5000).value();
  claim.remote = traffic::parse_end("198.51.100.7", 7445).value();
  claim.bytes_per_s = 1'000'000 * kMbit;
  cost("egress, of another user", b.edge.egress_fd(), 1400);
  cost("ingress, of no transfer", b.edge.ingress_fd(), 1400);
  set_user(0);  // as which BPF_PROG_TEST_RUN sends
  traffic::ClassRates rates;
  rates.fill(1'000'000 * kMbit);
  (void)b.edge.set_classes(rates);
  cost("egress, unclaimed, two buckets", b.edge.egress_fd(), 1400);
  (void)b.edge.set_claims({claim});
  cost("egress, claimed, three buckets", b.edge.egress_fd(), 1400);
  (void)b.edge.gate().cut();
  cost("egress, cut", b.edge.egress_fd(), 1400);
  set_user(edge_site::kEdgeAgentUid);
}

int run(int seconds, int changes, std::uint64_t most_mbit) {
  print_machine("the transfers' edge: veth between two network namespaces, no qdisc behind it");
  const ScratchFolder folder;
  const edge_site::Site site;
  edge_site::Sink sink(site);
  auto edge = TransferEdge::open(folder.path() + "/gates", edge_site::kEdgeAgentUid);
  if (!edge) {
    std::printf("%s\n", edge.error().describe().c_str());
    return 1;
  }
  (void)edge->set_classes(traffic::unbounded_rates());
  (void)edge->gate().uncut();
  (void)edge->guard({"up0"});
  Bench b{site, sink, *edge};
  for (const std::uint64_t mbit : {10U, 100U, 1000U}) {
    if (mbit > most_mbit) continue;
    for (const char* congestion : {"reno", "cubic", "bbr"}) {
      run_tcp(b, mbit * kMbit, congestion, true, seconds, "paced");
      run_tcp(b, mbit * kMbit, congestion, false, seconds, "unpaced");
    }
    set_ipv4("tcp_ecn", "1");
    for (const char* congestion : {"reno", "cubic"})
      run_tcp(b, mbit * kMbit, congestion, false, seconds, "unpaced, with ECN,");
    set_ipv4("tcp_ecn", "2");
    run_udp(b, mbit * kMbit, seconds);
  }
  const bool is_whole = run_all_changes(b, changes);
  run_costs(b);
  const bool is_gone = edge->leave().has_value();
  return traffic::release_bpffs(folder.path() + "/gates") && is_gone && is_whole ? 0 : 1;
}

}  // namespace
}  // namespace rn::bench

int main(int argc, char** argv) {
  const int seconds = argc > 1 ? std::atoi(argv[1]) : 10;
  const int changes = argc > 2 ? std::atoi(argv[2]) : 100;
  const int most = argc > 3 ? std::atoi(argv[3]) : 1000;
  if (seconds < 2 || seconds > 100 || changes < 2 || most < 10) {
    std::fprintf(stderr, "bench_edge [SECONDS, 2 to 100] [CHANGES, at least 2] [MOST Mbit/s]\n");
    return 2;
  }
  return rn::bench::run(seconds, changes, static_cast<std::uint64_t>(most));
}
