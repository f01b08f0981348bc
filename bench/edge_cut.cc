// SPDX-License-Identifier: Apache-2.0
//
// The last byte of a transfer at the peer after the cut of that transfer, and of all: two of the
// agent's connections between two network namespaces, paced as copies are, behind no shaper, HTB or
// TBF of 100 Mbit/s. What the kernel has queued in the shaper at that moment leaves all the same:
// the first rows keep their grants within the line, so that little is there; the last ones, a fifth
// of the rounds, do not, and fill the queue. Root. A round takes some 0.3 s.
//
//   edge_cut [ROUNDS=1000] [none,htb,tbf] [PROGRAM]   with PROGRAM (reclaim-kill) all transfers are
//                                                     cut by it besides, with no warden there

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench_report.h"
#include "edge_site.h"
#include <fcntl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/scratch_folder.h"
#include "traffic/bpffs.h"

namespace rn::bench {
namespace {

using edge_site::now_ns;
using edge_site::Sender;
using edge_site::Sniffer;
using traffic::TransferEdge;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kQuiet = 60 * kMs;  ///< a full queue of the shapers' drains without a pause
constexpr std::int64_t kPatience = 20 * kSecond;
constexpr std::uint64_t kMbit = 125'000;                     ///< bytes a second
constexpr std::uint64_t kGranted = 90 * kMbit;               ///< to all, of a line of 100: payload
constexpr std::uint64_t kPlanned = kGranted / 100 * 95 / 2;  ///< of each of two, as the agent plans

std::int64_t realtime_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * kSecond + now.tv_nsec;
}

std::string mounted_gates;  ///< taken away whichever way the program ends

void unmount_gates() {
  if (!mounted_gates.empty()) (void)traffic::release_bpffs(mounted_gates);
}

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "edge_cut: %s\n", what);
  std::exit(1);
}

void must_run(const std::string& command) {
  if (std::system(command.c_str()) != 0) give_up(command.c_str());
}

void shape(const std::string& shaper) {
  must_run("tc qdisc del dev up0 root 2>/dev/null || true");  // none at first
  if (shaper == "htb")
    must_run(
        "tc qdisc add dev up0 root handle 7: htb default 1 && tc class add dev up0 parent 7: "
        "classid 7:1 htb rate 100mbit && tc qdisc add dev up0 parent 7:1 handle 8: pfifo limit 1000"
    );
  if (shaper == "tbf")
    must_run("tc qdisc add dev up0 root handle 7: tbf burst 128k limit 1500000 rate 100mbit");
}

/// One of the two connections, which sends until the object goes, and who sees it at the peer.
class Copy {
 public:
  Copy(const edge_site::Site& site, const Sender::Kind& kind, std::uint64_t id, std::uint64_t rate)
      : sender_(kind),
        claim_(sender_.claim(id, rate)),
        at_peer_(site, claim_.local.port),
        thread_([this] {
          while (!is_over_) sender_.flood_until(now_ns() + kSecond / 20);
        }) {}

  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  ~Copy() {
    is_over_ = true;
    thread_.join();
  }

  const traffic::TransferClaim& claim() const { return claim_; }

  const Sniffer& at_peer() const { return at_peer_; }

  void wait_until_flowing() const {
    const std::uint64_t before = at_peer_.data_packets();
    const std::int64_t end = now_ns() + kPatience;
    while (at_peer_.data_packets() < before + 10) {
      if (now_ns() > end) give_up("nothing flows, so that no cut would be seen");
      usleep(1000);  // between two looks
    }
  }

  void wait_until_quiet() const {
    const std::int64_t begin = realtime_ns();
    for (;;) {
      at_peer_.drain();
      const std::int64_t now = realtime_ns();
      if (now - std::max(begin, at_peer_.last_data_realtime_ns()) > kQuiet) return;
      if (now > begin + kPatience) give_up("packets do not end");
      usleep(5000);  // that nothing comes can only be seen by waiting
    }
  }

 private:
  const Sender sender_;
  const traffic::TransferClaim claim_;
  const Sniffer at_peer_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

/// How transfers are cut and let go on.
struct Cut {
  const char* what;
  bool is_of_all;
  std::function<bool()> cut;
  std::function<bool()> uncut;
};

void print_row(const char* what, const std::vector<double>& values, const char* unit) {
  std::printf(
      "    %-42s n %5zu  p50 %9.3f  p99 %9.3f  max %9.3f %s\n",
      what,
      values.size(),
      quantile(values, 0.5),
      quantile(values, 0.99),
      quantile(values, 1.0),
      unit
  );
}

bool run_rounds(const Cut& order, const Copy& first, const Copy& second, int rounds) {
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): only so that rounds differ in phase
  std::vector<double> last, behind, kilobytes, words;
  std::size_t silenced = 0;  ///< rounds in which the other transfer was heard no more, either
  for (int round = 0; round < rounds; ++round) {
    first.wait_until_flowing();
    second.wait_until_flowing();
    usleep(static_cast<useconds_t>(random() % 10'000));
    const std::int64_t at = realtime_ns();
    if (!order.cut()) give_up("the cut failed");
    const std::int64_t returned = realtime_ns();
    const std::uint64_t beside = second.at_peer().data_packets();
    first.wait_until_quiet();
    if (order.is_of_all) second.wait_until_quiet();
    if (!order.is_of_all && second.at_peer().data_packets() < beside + 10) ++silenced;
    std::int64_t newest = first.at_peer().last_data_realtime_ns();
    std::uint64_t bytes = first.at_peer().bytes_between(returned, returned + kPatience);
    if (order.is_of_all) {
      newest = std::max(newest, second.at_peer().last_data_realtime_ns());
      bytes += second.at_peer().bytes_between(returned, returned + kPatience);
    }
    const auto after = [](std::int64_t then, std::int64_t from) {
      return static_cast<double>(std::max<std::int64_t>(0, then - from)) / 1e6;
    };
    last.push_back(after(newest, at));
    behind.push_back(after(newest, returned));
    kilobytes.push_back(static_cast<double>(bytes) / 1e3);
    words.push_back(after(returned, at));
    if (!order.uncut()) give_up("it could not be let go on");
  }
  std::printf("  %s\n", order.what);
  print_row("last byte at the peer after the order", last, "ms");
  print_row("last byte after the order was done", behind, "ms");
  print_row("bytes that came after it was done", kilobytes, "kB");
  print_row("the order itself", words, "ms");
  const std::uint64_t lost = first.at_peer().lost() + second.at_peer().lost();
  if (!order.is_of_all)
    std::printf("    the other transfer was heard on in all but %zu rounds\n", silenced);
  if (lost != 0) std::printf("    WORTHLESS: the sniffers lost %lu packets\n", lost);
  return lost == 0 && silenced == 0;
}

/// `reclaim-kill --transfers` on these gates, its words thrown away.
bool cut_by(const std::string& program, const std::string& folder) {
  const pid_t pid = vfork();
  if (pid == 0) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, 1);
    dup2(nowhere, 2);
    execl(
        program.c_str(),
        program.c_str(),
        "--transfers",
        "--state",
        folder.c_str(),
        "--run",
        folder.c_str(),
        static_cast<char*>(nullptr)
    );
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// Grants within the line, sent as copies are; or beyond it, sent as TCP likes.
bool run_grants(
    const edge_site::Site& site,
    TransferEdge& edge,
    bool is_within,
    const std::vector<Cut>& orders,
    int rounds
) {
  traffic::ClassRates rates = traffic::unbounded_rates();
  if (is_within) rates[RN_EDGE_ALL] = kGranted;
  const Sender::Kind kind = is_within ? Sender::Kind{.pace_bytes_s = kPlanned, .is_in_bursts = true}
                                      : Sender::Kind{.congestion = "cubic"};
  const std::uint64_t rate = is_within ? kPlanned : RN_EDGE_UNBOUNDED;
  if (!edge.set_classes(rates)) give_up("the edge takes no rates");
  const Copy first(site, kind, 1, rate);
  const Copy second(site, kind, 2, rate);
  if (!edge.set_claims({first.claim(), second.claim()})) give_up("the edge takes no claims");
  bool is_good = true;
  for (const Cut& order : orders) is_good = run_rounds(order, first, second, rounds) && is_good;
  return is_good;
}

int run(int rounds, const std::vector<std::string>& shapers, const std::string& program) {
  print_machine("the cut of transfers: veth between two network namespaces, two of 100 Mbit/s");
  const ScratchFolder folder;
  const edge_site::Site site;
  const edge_site::Sink sink(site);
  // After a cut TCP tries again soon, so that a thousand rounds do not take an hour.
  must_run("ip route change 10.77.0.0/24 dev up0 src 10.77.0.1 rto_min 10ms");
  mounted_gates = folder.path() + "/gates";
  std::atexit(unmount_gates);
  auto edge = TransferEdge::open(mounted_gates, edge_site::kEdgeAgentUid);
  if (!edge || !edge->gate().uncut() || !edge->guard({"up0"}).empty()) give_up("there is no edge");
  const auto uncut_all = [&] { return edge->gate().uncut().has_value(); };
  std::vector<Cut> orders = {
      {"one transfer, by its gate",
       false,
       [&] { return edge->set_gate(1, false).has_value(); },
       [&] { return edge->set_gate(1, true).has_value(); }},
      {"all, by their gate", true, [&] { return edge->gate().cut().has_value(); }, uncut_all}};
  if (!program.empty())
    orders.push_back(
        {"all, by the program", true, [&] { return cut_by(program, folder.path()); }, uncut_all}
    );
  bool is_good = true;
  for (const std::string& shaper : shapers) {
    shape(shaper);
    std::printf("%s: granted 2 x 42.75 of 100 Mbit/s, paced\n", shaper.c_str());
    is_good = run_grants(site, *edge, true, orders, rounds) && is_good;
    if (shaper == "none") continue;
    std::printf("%s: more than the line, without bounds\n", shaper.c_str());
    is_good = run_grants(site, *edge, false, orders, std::max(1, rounds / 5)) && is_good;
  }
  const bool is_gone = edge->leave().has_value();
  unmount_gates();
  return is_gone && is_good ? 0 : 1;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t from = 0; from <= text.size();) {
    const auto comma = std::min(text.find(',', from), text.size());
    parts.push_back(text.substr(from, comma - from));
    from = comma + 1;
  }
  return parts;
}

}  // namespace
}  // namespace rn::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1000;
  const auto shapers = rn::bench::split(argc > 2 ? argv[2] : "none,htb,tbf");
  bool is_good = rounds > 0;
  for (const std::string& one : shapers)
    is_good = is_good && (one == "none" || one == "htb" || one == "tbf");
  if (!is_good) {
    std::fprintf(stderr, "edge_cut [ROUNDS] [none,htb,tbf] [reclaim-kill]\n");
    return 2;
  }
  setvbuf(stdout, nullptr, _IOLBF, 0);
  return rn::bench::run(rounds, shapers, argc > 3 ? argv[3] : "");
}
