// SPDX-License-Identifier: Apache-2.0
//
// What others on a line notice of a copy over it: the round trips of small datagrams through a
// switch that sends at 40 Mbit/s and holds 50 ms, which nobody declared, beside a copy that is
// granted ten times as much. The copy makes way by the production's rule (reclaim::LatencyGuard) as
// agent/core_guard.cc follows it: a look at the connection's round trip four times a second, and a
// pace for its socket. Less than a minute. Root.
//
//   latency_guard [CONGESTION=cubic] [LINE=40]   of copies and others' bulk; Mbit/s

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench_report.h"
#include "edge_site.h"
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "reclaim/deadline_rates.h"

namespace rn::bench {
namespace {

using edge_site::now_ns;
using edge_site::Sender;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kLook = kSecond / 4;
constexpr std::int64_t kBetweenPings = kSecond / 100;
constexpr std::int64_t kWarmUp = 3 * kSecond;  ///< the guard has found its level, TCP its window
constexpr std::uint64_t kGrantOfLine = 10;     ///< what the copy is granted, in lines
constexpr double kLeastBytes_s = 125'000;      ///< as core_guard.cc: 1 Mbit/s
constexpr std::uint16_t kEchoPort = 7;

sockaddr_in echo_address() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kEchoPort);
  (void)inet_pton(AF_INET, edge_site::kFar, &address.sin_addr);
  return address;
}

int datagram_socket() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd >= 0) return fd;
  std::perror("a socket for small datagrams");
  std::exit(1);
}

/// Sends a small datagram every 10 ms, which the peer sends back, and keeps how long each took.
class Pings {
 public:
  explicit Pings(const edge_site::Site& site) : fd_(datagram_socket()) {
    std::atomic<bool> is_ready{false};
    echo_ = std::thread([this, &site, &is_ready] { echo(site, is_ready); });
    while (!is_ready) usleep(1000);  // two looks; one that fails ends the program
    hear_ = std::thread([this] { hear(); });
  }

  ~Pings() {
    is_over_ = true;
    echo_.join();
    hear_.join();
    close(fd_);
  }

  Pings(const Pings&) = delete;
  Pings& operator=(const Pings&) = delete;

  struct Heard {
    std::size_t sent = 0;
    std::vector<double> ms;  ///< of those that came back within a second
  };

  Heard until(std::int64_t end_ns) {
    {
      const std::lock_guard lock(mutex_);
      ms_.clear();
    }
    Heard heard;
    const sockaddr_in to = echo_address();
    for (std::int64_t due = now_ns(); due < end_ns; due += kBetweenPings) {
      while (now_ns() < due) usleep(200);
      const std::int64_t at = now_ns();
      (void)!sendto(fd_, &at, sizeof at, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
      ++heard.sent;
    }
    usleep(200'000);  // four times what the queue holds
    const std::lock_guard lock(mutex_);
    heard.ms = ms_;
    return heard;
  }

 private:
  void echo(const edge_site::Site& site, std::atomic<bool>& is_ready) const {
    site.enter_far();
    const int fd = datagram_socket();
    const sockaddr_in here = echo_address();
    if (bind(fd, reinterpret_cast<const sockaddr*>(&here), sizeof here) != 0) {
      std::perror("the peer's echo");
      std::exit(1);
    }
    is_ready = true;
    while (!is_over_) {
      pollfd ready{fd, POLLIN, 0};
      if (poll(&ready, 1, 50) != 1) continue;
      std::int64_t at = 0;
      sockaddr_in from{};
      socklen_t size = sizeof from;
      auto* const sender = reinterpret_cast<sockaddr*>(&from);
      if (recvfrom(fd, &at, sizeof at, 0, sender, &size) == sizeof at)
        (void)!sendto(fd, &at, sizeof at, 0, sender, size);
    }
    close(fd);
  }

  void hear() {
    while (!is_over_) {
      pollfd ready{fd_, POLLIN, 0};
      if (poll(&ready, 1, 50) != 1) continue;
      std::int64_t at = 0;
      if (recv(fd_, &at, sizeof at, 0) != sizeof at) continue;
      const double ms = static_cast<double>(now_ns() - at) / 1e6;
      const std::lock_guard lock(mutex_);
      ms_.push_back(ms);
    }
  }

  const int fd_;
  std::atomic<bool> is_over_{false};
  std::mutex mutex_;  ///< guards ms_
  std::vector<double> ms_;
  std::thread echo_, hear_;
};

/// Sends for as long as it lives; a copy also makes way, if it is guarded.
class Flow {
 public:
  Flow(const Sender::Kind& kind, bool is_guarded)
      : sender_(kind), grant_(static_cast<double>(kind.pace_bytes_s)) {
    threads_.emplace_back([this] {
      while (!is_over_) sender_.flood_until(now_ns() + kSecond / 20);
    });
    if (is_guarded) threads_.emplace_back([this] { make_way(); });
  }

  ~Flow() {
    is_over_ = true;
    for (std::thread& one : threads_) one.join();
  }

  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  std::uint64_t bytes() const { return sender_.path().acknowledged_bytes; }

 private:
  void make_way() {
    reclaim::LatencyGuard guard;
    std::uint64_t before = 0;
    for (std::int64_t due = now_ns() + kLook; !is_over_; usleep(2000)) {
      if (now_ns() < due) continue;
      due += kLook;
      const Sender::Path path = sender_.path();
      if (path.acknowledged_bytes == before) continue;  // no witness
      before = path.acknowledged_bytes;
      guard.observe(static_cast<double>(now_ns()) / 1e9, path.round_trip_s, path.least_s);
      sender_.pace(static_cast<std::uint64_t>(std::max(kLeastBytes_s, grant_ * guard.share())));
    }
  }

  const Sender sender_;
  const double grant_;
  std::atomic<bool> is_over_{false};
  std::vector<std::thread> threads_;
};

struct Case {
  const char* name;
  bool has_bulk, has_copy, is_guarded;
  int seconds;
};

void play(const Case& one, Pings& pings, const std::string& congestion, std::uint64_t line_bytes) {
  std::optional<Flow> bulk, copy;
  if (one.has_bulk)
    bulk.emplace(
        Sender::Kind{.uid = 0, .port = edge_site::kOwnerPort, .congestion = congestion}, false
    );
  if (one.has_copy)
    copy.emplace(
        Sender::Kind{
            .congestion = congestion,
            .pace_bytes_s = kGrantOfLine * line_bytes,
            .is_in_bursts = true,
        },
        one.is_guarded
    );
  const auto bytes_of = [](const std::optional<Flow>& flow) { return flow ? flow->bytes() : 0; };
  if (bulk || copy) (void)pings.until(now_ns() + kWarmUp);
  const std::uint64_t bulk_before = bytes_of(bulk), copy_before = bytes_of(copy);
  const std::int64_t begin = now_ns();
  const Pings::Heard heard = pings.until(begin + one.seconds * kSecond);
  const double per_mbit = static_cast<double>(now_ns() - begin) / 1e9 * 125'000;
  const auto mbit = [&](std::uint64_t bytes) { return static_cast<double>(bytes) / per_mbit; };
  if (heard.ms.empty()) {
    std::printf("%-36s none of %zu came back\n", one.name, heard.sent);
    return;
  }
  std::printf(
      "%-36s n=%zu of %zu: median %.2f, p99 %.2f, max %.2f ms; copy %.1f, bulk %.1f Mbit/s\n",
      one.name,
      heard.ms.size(),
      heard.sent,
      quantile(heard.ms, 0.5),
      quantile(heard.ms, 0.99),
      quantile(heard.ms, 1.0),
      mbit(bytes_of(copy) - copy_before),
      mbit(bytes_of(bulk) - bulk_before)
  );
  std::fflush(stdout);
}

int run(const std::string& congestion, std::uint64_t line_mbit) {
  print_machine("the latency guard: small datagrams' round trips beside a copy");
  std::printf(
      "line: %llu Mbit/s, 50 ms of queue; %s; the copy is granted %llu Mbit/s\n",
      static_cast<unsigned long long>(line_mbit),
      congestion.c_str(),
      static_cast<unsigned long long>(line_mbit * kGrantOfLine)
  );
  const edge_site::Site site(line_mbit * 1'000'000);
  const edge_site::Sink sink(site);
  Pings pings(site);
  constexpr Case kCases[] = {
      {"nobody sends", false, false, false, 3},
      {"a copy, not guarded", false, true, false, 6},
      {"a copy, guarded", false, true, true, 10},
      {"somebody's bulk", true, false, false, 4},
      {"somebody's bulk, a copy, not guarded", true, true, false, 6},
      {"somebody's bulk, a copy, guarded", true, true, true, 10},
  };
  for (const Case& one : kCases) play(one, pings, congestion, line_mbit * 125'000);
  return 0;
}

}  // namespace
}  // namespace rn::bench

int main(int argc, char** argv) {
  const std::string congestion = argc > 1 ? argv[1] : "cubic";
  const int line = argc > 2 ? std::atoi(argv[2]) : 40;
  if (argc > 3 || line < 1 || line > 1000) {
    std::fprintf(stderr, "latency_guard [CONGESTION=cubic] [LINE=40 Mbit/s, 1 to 1000]\n");
    return 2;
  }
  return rn::bench::run(congestion, static_cast<std::uint64_t>(line));
}
