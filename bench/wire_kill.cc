// SPDX-License-Identifier: Apache-2.0
//
// The owner's command, seen on the wire: the meter of bench/kill_on_the_wire.py, which makes the
// site and breaks it. One guest floods a peer by UDP and TCP; a sniffer at the peer notes the
// kernel's time stamp of each packet; the command is given through the warden's kill socket or as
// the program `reclaim-kill`, and the gates are opened again by their pinned map. Runs in
// the network namespace of the machine that is taken back.
//
//   wire_kill wire KEY=VALUE…     rounds= guest=PID peer=NETNS source=ADDRESS to=ADDRESS
//   gates=FOLDER
//                                 by=socket|hand socket=PATH hand=COMMAND [lease=1] [journal=PATH]
//                                 [before=COMMAND]: every other round by it, so that two versions
//                                 of a program are measured side by side
//                                 [gpu=INDEX neighbour=PID]: only the guest with that GPU is cut,
//                                 and the other one floods on
//   wire_kill deadman KEY=VALUE…  guest= peer= source= to= gates= warden=PID; prints one number, ms
//   wire_kill kill KEY=VALUE…     rounds= processes=N group=CGROUP by=… socket= hand=

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bench_report.h"
#include "wire_capture.h"
#include "wire_flood.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/read_text.h"
#include "io/real_clock.h"
#include "traffic/pinned_cut.h"
#include "warden/cgroup.h"
#include "warden/kill_journal.h"
#include "warden/kill_service.h"

namespace rn::bench {
namespace {

using warden_wire::KillFrame;
using wire::Capture;
using wire::Kind;
using Options = std::map<std::string, std::string>;

constexpr std::int64_t kQuietNs = 40'000'000;  ///< a shaper never pauses for so long
constexpr std::int64_t kPatienceNs = 20'000'000'000;
constexpr std::uint64_t kHeard = 10;  ///< packets while the cut one is waited for

double ms_of(std::int64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "wire_kill: %s\n", what.c_str());
  std::exit(1);
}

void print_row(const char* what, const std::vector<double>& ms) {
  if (ms.empty()) return;
  std::printf(
      "  %-34s n %5zu  p50 %9.3f  p99 %9.3f  max %9.3f ms\n",
      what,
      ms.size(),
      quantile(ms, 0.5),
      quantile(ms, 0.99),
      quantile(ms, 1.0)
  );
}

/// What an order answered.
struct Answered {
  bool is_good = false;
  double killed_ms = 0;  ///< after the order, by the stamps of who carried it out; 0 = not
  double cleared_ms = 0;
  unsigned processes = 0;
  std::string words;
};

Answered by_socket(const Options& options, KillFrame::Verb verb) {
  KillFrame frame;
  frame.verb = verb;
  if (options.contains("gpu"))
    frame.gpu_mask =
        warden_wire::mask_of({static_cast<std::uint32_t>(std::stoul(options.at("gpu")))});
  Answered done;
  const auto answer = warden::ask_kill_socket(options.at("socket"), frame, seconds(15));
  if (!answer) {
    done.words = answer.error().message;
    return done;
  }
  done.is_good = answer->status == 0;
  if (answer->killed_ns != 0) done.killed_ms = ms_of(answer->killed_ns - answer->declared_ns);
  if (answer->cleared_ns != 0) done.cleared_ms = ms_of(answer->cleared_ns - answer->declared_ns);
  done.processes = answer->processes;
  done.words = "status " + std::to_string(answer->status);
  return done;
}

/// The number before " ms" behind `word`; 0 when it is not there.
double ms_behind(const std::string& text, const std::string& word) {
  const auto at = text.find(word);
  return at == std::string::npos ? 0 : std::atof(text.c_str() + at + word.size());
}

/// The program itself, without a shell, its words in a pipe.
Answered by_hand(const Options& options, const std::string& command, bool is_cut_only) {
  std::vector<std::string> words;
  for (std::size_t from = 0; from < command.size();) {
    const auto blank = std::min(command.find(' ', from), command.size());
    words.push_back(command.substr(from, blank - from));
    from = blank + 1;
  }
  if (is_cut_only) words.emplace_back("--cut-only");
  if (options.contains("gpu")) words.push_back("--gpu=" + options.at("gpu"));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) give_up("no pipe");
  const pid_t pid = vfork();
  if (pid == 0) {
    dup2(out[1], 1);
    dup2(out[1], 2);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  Answered done;
  std::array<char, 4096> part{};
  for (ssize_t got = 1; got > 0;) {
    got = read(out[0], part.data(), part.size());
    if (got > 0) done.words.append(part.data(), static_cast<std::size_t>(got));
  }
  close(out[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  done.is_good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  done.killed_ms = ms_behind(done.words, "killed after ");
  done.cleared_ms = ms_behind(done.words, "cleared after ");
  const auto comma = done.words.rfind(", ");
  if (comma != std::string::npos)
    done.processes = static_cast<unsigned>(std::atoi(done.words.c_str() + comma + 2));
  return done;
}

/// When the program had been loaded and had read the order, by its own journal; 0: not known.
std::int64_t read_at(const Options& options) {
  if (!options.contains("journal")) return 0;
  const auto records = warden::read_kill_journal(options.at("journal"));
  if (!records || records->empty()) return 0;
  timespec boot{};
  clock_gettime(CLOCK_BOOTTIME, &boot);
  const std::int64_t now_boot = std::int64_t{boot.tv_sec} * 1'000'000'000 + boot.tv_nsec;
  return wire::realtime_ns() - (now_boot - records->back().declared_boot_ns);
}

Answered give_order(const Options& options, bool is_cut_only, const char* hand = "hand") {
  if (options.at("by") == "hand") return by_hand(options, options.at(hand), is_cut_only);
  return by_socket(options, is_cut_only ? KillFrame::kCutOnly : KillFrame::kCutAndClear);
}

/// Guest, peer, gates and sniffer of one run.
class Wire {
 public:
  explicit Wire(const Options& options)
      : options_(options),
        at_peer_(options.at("peer"), options.at("source"), "::", {kFloodUdpPort, kFloodTcpPort}) {
    if (rn_pinned_cut_open(options.at("gates").c_str(), &gates_) != 0) give_up("no pinned gates");
    flood_.emplace(std::atoi(options.at("guest").c_str()), options.at("peer"), options.at("to"));
  }

  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  ~Wire() { rn_pinned_cut_close(&gates_); }

  /// As a release does it, without the daemon, which may be dead. The lease, too, where nobody
  /// renews it.
  void open_gates() {
    if (options_.contains("lease")) {
      const Instant until = clock_.now().boot + std::chrono::hours(1);
      rn_pinned_write_lease(&gates_, static_cast<std::uint64_t>(to_ns(until)));
    }
    rn_pinned_uncut_node(&gates_);
    if (!options_.contains("gpu")) return;
    std::uint32_t slot = 0;
    std::uint32_t ifindex = 0;
    const std::uint32_t* last = nullptr;
    while (rn_pinned_next_guest(&gates_, last, &ifindex, &slot) == 0) {
      rn_pinned_uncut_slot(&gates_, slot);
      last = &ifindex;
    }
  }

  /// Until both kinds come through again.
  void wait_until_flowing(bool opens) {
    std::int64_t now = wire::realtime_ns();
    const std::int64_t end = now + kPatienceNs;
    std::int64_t again = now;
    const std::uint64_t udp = at_peer_.packets(Kind::kUdp4);
    const std::uint64_t tcp = at_peer_.packets(Kind::kTcp4);
    while (at_peer_.packets(Kind::kUdp4) < udp + 20 || at_peer_.packets(Kind::kTcp4) < tcp + 20) {
      if (now >= end) give_up("nothing flows, so that no cut would be seen");
      // Anew now and then: the daemon takes what was ordered into its books after its answer, and
      // shuts the gate once more then.
      if (opens && now >= again) {
        open_gates();
        flood_->begin_anew();
        again = now + 150'000'000;
      }
      usleep(1000);  // between two looks
      now = wire::realtime_ns();
    }
  }

  /// The newest packet, once nothing has come for a while.
  void wait_until_quiet(std::int64_t since) const {
    const std::int64_t end = since + kPatienceNs;
    for (;;) {
      at_peer_.drain();
      const std::int64_t now = wire::realtime_ns();
      if (now - std::max(since, at_peer_.last_ns()) > kQuietNs) return;
      if (now > end) give_up("packets do not end");
      usleep(5000);  // that nothing comes can only be seen by waiting
    }
  }

  const Capture& at_peer() const { return at_peer_; }

 private:
  const Options& options_;
  const io::RealClock clock_{};
  rn_pinned_cut gates_{-1, -1, -1, -1};
  Capture at_peer_;
  std::optional<GuestFlood> flood_;
};

/// The guest beside it, which is not meant.
class Neighbour {
 public:
  explicit Neighbour(const Options& options)
      : at_peer_(options.at("peer"), options.at("source"), "::", {kPorts.udp, kPorts.tcp}),
        flood_(
            std::atoi(options.at("neighbour").c_str()), options.at("peer"), options.at("to"), kPorts
        ) {}

  void wait_until_flowing() const {
    const std::int64_t end = wire::realtime_ns() + kPatienceNs;
    while (at_peer_.packets(Kind::kUdp4) < 20 || at_peer_.packets(Kind::kTcp4) < 20) {
      if (wire::realtime_ns() > end) give_up("the neighbour sends nothing");
      usleep(1000);  // between two looks
    }
  }

  std::uint64_t packets() const {
    return at_peer_.packets(Kind::kUdp4) + at_peer_.packets(Kind::kTcp4);
  }

 private:
  static constexpr FloodPorts kPorts{kNeighbourUdpPort, kNeighbourTcpPort};
  Capture at_peer_;
  GuestFlood flood_;
};

/// The flood does not end by itself: how long it pauses when nobody commands anything.
double pause_without_command(const Wire& wire) {
  const std::int64_t start = wire::realtime_ns();
  usleep(static_cast<useconds_t>(kQuietNs / 1000));
  wire.at_peer().drain();
  const std::int64_t last = wire.at_peer().last_ns();
  return ms_of(std::max<std::int64_t>(0, start + kQuietNs - last));
}

/// What rounds of one command came to, in milliseconds after it.
struct Rounds {
  std::vector<double> udp, tcp, call, behind, loaded, behind_read;

  void add(const Options& options, const Capture& at_peer, std::int64_t start, std::int64_t end) {
    const auto after = [](std::int64_t at, std::int64_t from) {
      return ms_of(std::max<std::int64_t>(0, at - from));
    };
    const std::int64_t last_udp = at_peer.last_ns(Kind::kUdp4);
    const std::int64_t last_tcp = at_peer.last_ns(Kind::kTcp4);
    udp.push_back(after(last_udp, start));
    tcp.push_back(after(last_tcp, start));
    call.push_back(after(end, start));
    if (const std::int64_t at = read_at(options); at > start) {
      loaded.push_back(ms_of(at - start));
      behind_read.push_back(after(std::max(last_udp, last_tcp), at));
    }
    behind.push_back(after(std::max(last_udp, last_tcp), end));
  }

  void print() const {
    print_row("last UDP byte after the command", udp);
    print_row("last TCP byte after the command", tcp);
    print_row("the program's start, to the order", loaded);
    print_row("last byte after the order was read", behind_read);
    print_row("last byte after the answer", behind);
    print_row("the command to its answer", call);
  }
};

void print_ratio(const char* what, const std::vector<double>& now, const std::vector<double>& old) {
  std::printf("  %-34s", what);
  for (const double q : {0.5, 0.99}) {
    if (quantile(old, q) > 0)
      std::printf("  p%-2.0f %9.3f", q * 100, quantile(now, q) / quantile(old, q));
  }
  std::printf("\n");
}

int run_wire(const Options& options) {
  const auto rounds = static_cast<std::size_t>(std::atoi(options.at("rounds").c_str()));
  Wire wire(options);
  std::optional<Neighbour> neighbour;
  if (options.contains("neighbour")) {
    wire.open_gates();  // the lease has lapsed where the warden is dead
    neighbour.emplace(options).wait_until_flowing();
  }
  OwnerStream owner(options.at("peer"), options.at("to"));
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): only so that rounds differ in phase
  Rounds now;
  Rounds before;
  std::vector<double> pauses;
  std::size_t spoiled = 0;
  std::size_t failed = 0;
  std::size_t silenced = 0;  ///< rounds in which the neighbour was heard no more, either
  const bool is_compared = options.contains("before");
  while (now.udp.size() < rounds || (is_compared && before.udp.size() < rounds)) {
    wire.wait_until_flowing(true);
    if (pauses.size() * 10 <= now.udp.size()) pauses.push_back(pause_without_command(wire));
    usleep(static_cast<useconds_t>(random() % 10'000));
    const std::uint64_t lost_before = wire.at_peer().lost();
    const bool is_before = is_compared && before.udp.size() < now.udp.size();

    const std::int64_t start = wire::realtime_ns();
    const Answered answer = give_order(options, true, is_before ? "before" : "hand");
    const std::int64_t returned = wire::realtime_ns();
    const std::uint64_t beside = neighbour ? neighbour->packets() : 0;
    wire.wait_until_quiet(returned);
    if (neighbour && neighbour->packets() < beside + kHeard) ++silenced;

    if (!answer.is_good) std::printf("  NOT CUT: %s\n", answer.words.c_str());
    if (!answer.is_good) ++failed;
    if (failed > 20) give_up("the command fails again and again");
    if (wire.at_peer().lost() != lost_before) {  // proves nothing: the sniffer came too late
      if (++spoiled > rounds + 20) give_up("the sniffer loses packets in each second round");
      continue;
    }
    (is_before ? before : now).add(options, wire.at_peer(), start, returned);
  }
  owner.stop();
  now.print();
  if (is_compared) {
    std::printf("  before: %s\n", options.at("before").c_str());
    before.print();
    print_ratio("now over before: last UDP byte", now.udp, before.udp);
    print_ratio("now over before: last TCP byte", now.tcp, before.tcp);
  }
  print_row("no command: the flood's pause", pauses);
  const std::size_t done = now.udp.size() + before.udp.size();
  std::printf(
      "  cut in %zu of %zu; rounds again for a sniffer's loss %zu; the owner's: %lu sent, %lu "
      "lost\n",
      done - std::min(failed, done),
      done,
      spoiled,
      owner.sent(),
      owner.lost()
  );
  if (neighbour)
    std::printf("  the other GPU's guest was heard on in all but %zu rounds\n", silenced);
  return failed == 0 && silenced == 0 ? 0 : 1;
}

int run_deadman(const Options& options) {
  Wire wire(options);
  wire.wait_until_flowing(false);
  const std::uint64_t lost_before = wire.at_peer().lost();
  const std::int64_t start = wire::realtime_ns();
  kill(std::atoi(options.at("warden").c_str()), SIGKILL);
  // The lease is of 2 s; what comes after 3 s would be told as a packet that does not end.
  while (wire::realtime_ns() < start + 1'000'000'000) usleep(20'000);
  wire.wait_until_quiet(start);
  if (wire.at_peer().lost() != lost_before) give_up("the sniffer lost packets");
  std::printf("%.3f\n", ms_of(wire.at_peer().last_ns() - start));
  return 0;
}

std::vector<pid_t> start_processes(const std::vector<std::string>& groups, int count) {
  std::vector<pid_t> pids;
  for (int i = 0; i < count; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      for (const std::string& file : groups) std::ofstream(file) << getpid() << std::flush;
      for (;;) pause();
    }
    pids.push_back(pid);
  }
  return pids;
}

/// A taken machine stands guard for a while: whatever comes up in a guest's control group is killed
/// at once, so that nothing would be left for the order that is measured. A gate that is open, as
/// after a release, ends that; the daemon takes what was ordered into its books after its answer,
/// and shuts it once more then.
void end_guard(const rn_pinned_cut& gates) {
  for (int turn = 0; turn < 12; ++turn) {
    rn_pinned_uncut_node(&gates);
    usleep(5000);  // of a guard's step of 10 ms
  }
}

int run_kill(const Options& options) {
  rn_pinned_cut gates{-1, -1, -1, -1};
  if (rn_pinned_cut_open(options.at("gates").c_str(), &gates) != 0) give_up("no pinned gates");
  const int rounds = std::atoi(options.at("rounds").c_str());
  const int processes = std::atoi(options.at("processes").c_str());
  const auto roots = warden::probe_cgroups().value();
  const std::string guest = options.at("group") + "/bench";
  if (!warden::make_cgroup(roots, guest)) give_up("no cgroup " + guest);
  std::vector<std::string> groups;
  for (const std::string& top : {roots.unified, roots.freezer}) {
    if (!top.empty()) groups.push_back(top + "/" + guest + "/cgroup.procs");
  }
  std::vector<double> killed, cleared, call;
  int failed = 0;
  for (int round = 0; round < rounds; ++round) {
    end_guard(gates);
    const std::vector<pid_t> pids = start_processes(groups, processes);
    while (warden::pids_in_cgroup(roots, guest).value().size() < pids.size()) usleep(1000);
    const std::int64_t start = wire::realtime_ns();
    const Answered answer = give_order(options, false);
    call.push_back(ms_of(wire::realtime_ns() - start));
    if (!answer.is_good || answer.processes != pids.size()) {
      ++failed;
      std::printf("  NOT CLEARED: %s\n", answer.words.c_str());
      for (const pid_t pid : pids) kill(pid, SIGKILL);
    }
    for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
    if (answer.is_good) killed.push_back(answer.killed_ms);
    if (answer.is_good) cleared.push_back(answer.cleared_ms);
  }
  std::printf("  %d processes\n", processes);
  print_row("stopped after the order", killed);
  print_row("cleared after the order", cleared);
  print_row("the command to its answer", call);
  std::printf("  cleared in %d of %d\n", rounds - failed, rounds);
  rn_pinned_cut_close(&gates);
  if (!warden::remove_cgroup(roots, guest)) give_up("the cgroup stays");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rn::bench

int main(int argc, char** argv) {
  rn::bench::Options options;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const auto equals = std::min(word.find('='), word.size());
    options[word.substr(0, equals)] = equals == word.size() ? "" : word.substr(equals + 1);
  }
  const std::string mode = argc > 1 ? argv[1] : "";
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (mode == "wire") return rn::bench::run_wire(options);
  if (mode == "deadman") return rn::bench::run_deadman(options);
  if (mode == "kill") return rn::bench::run_kill(options);
  std::fputs("wire_kill is the meter of bench/kill_on_the_wire.py; see there\n", stderr);
  return 2;
}
