// SPDX-License-Identifier: Apache-2.0
#include "cut_site.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "wire_capture.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/time.h>

namespace rn::cut_site {
namespace {

using traffic::GuestPolicy;
using traffic::Opener;
using traffic::parse_prefix;
using traffic::Protocol;

/// What joins a guest's or the peer's namespace to the machine that lends.
struct Link {
  const std::string& netns;
  const char* interface;  ///< the machine's end
  const char* v4;
  const char* gateway4;
  const char* v6;
  const char* gateway6;
};

void join(const std::string& host, const Link& link) {
  const std::string end = std::string(" dev ") + link.interface;
  must_run_in(
      host,
      std::string("ip link add ") + link.interface + " type veth peer name eth0 netns " + link.netns
  );
  must_run_in(host, std::string("ip addr add ") + link.gateway4 + "/24" + end);
  must_run_in(host, std::string("ip addr add ") + link.gateway6 + "/64" + end + " nodad");
  must_run_in(link.netns, std::string("ip addr add ") + link.v4 + "/24 dev eth0");
  must_run_in(link.netns, std::string("ip addr add ") + link.v6 + "/64 dev eth0 nodad");
  must_run_in(link.netns, "ip link set eth0 up");
  must_run_in(link.netns, "ip link set lo up");
}

void route(const Link& link) {
  must_run_in(link.netns, std::string("ip route add default via ") + link.gateway4);
  must_run_in(link.netns, std::string("ip route add default via ") + link.gateway6);
}

void bound_waits(int fd) {
  const timeval limit{0, 50'000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

GuestPolicy policy_of(const char* v4, const char* gateway4, const char* v6, const char* gateway6) {
  GuestPolicy policy{v4, gateway4, v6, gateway6, {}, {}};
  for (const char* peer : {kPeer4, kPeer6}) {
    policy.allow.push_back({parse_prefix(peer).value(), Protocol::kUdp, kUdpPort, 0, Opener::kBoth}
    );
  }
  policy.allow.push_back({parse_prefix(kPeer4).value(), Protocol::kTcp, kTcpPort, 0, Opener::kGuest}
  );
  return policy;
}

Link guests_link(const Topology& net) {
  return {net.guest, "g0", kGuest4, "192.0.2.1", kGuest6, "2001:db8:1::1"};
}

Link neighbours_link(const Topology& net) {
  return {net.neighbour, "g1", kNeighbour4, "192.0.3.1", kNeighbour6, "2001:db8:2::1"};
}

Link peers_link(const Topology& net) {
  return {net.peer, "p0", kPeer4, "198.51.100.1", kPeer6, "2001:db8:9::1"};
}

}  // namespace

void must_run_in(const std::string& netns, const std::string& command) {
  wire::must_run("ip netns exec " + netns + " " + command);
}

Topology::Topology(Guests guests) : names_{host, guest, peer} {
  if (guests == kTwoGuests) names_.push_back(neighbour);
  for (const std::string& name : names_) wire::must_run("ip netns add " + name);
  must_run_in(host, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
  join(host, guests_link(*this));
  if (guests == kTwoGuests) join(host, neighbours_link(*this));
  join(host, peers_link(*this));
  must_run_in(host, "ip link set p0 up");
  route(peers_link(*this));
}

Topology::~Topology() {
  for (const std::string& name : names_) wire::must_run("ip netns del " + name);
}

void Topology::connect_guest() const {
  must_run_in(host, "ip link set g0 up");
  route(guests_link(*this));
  if (names_.size() < 4) return;
  must_run_in(host, "ip link set g1 up");
  route(neighbours_link(*this));
}

sockaddr_storage address_of(const char* text, std::uint16_t port, socklen_t& size) {
  sockaddr_storage storage{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    size = sizeof(*v4);
  } else {
    inet_pton(AF_INET6, text, &v6->sin6_addr);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    size = sizeof(*v6);
  }
  return storage;
}

template <class Work>
void Floods::start(const std::string& netns, Work work) {
  threads_.emplace_back([netns, work] {
    wire::enter_netns(netns);
    work();
  });
}

Floods::Floods(const Topology& net, Flow flow) {
  start(net.peer, [this] { sink_tcp(); });
  start(net.guest, [this] { flood_tcp(); });
  if (flow == kTcpFromGuest) return;
  start(net.guest, [this] { flood_udp(kPeer4); });
  start(net.guest, [this] { flood_udp(kPeer6); });
  if (flow == kFromGuest) return;
  start(net.peer, [this] { flood_udp(kGuest4); });
  start(net.peer, [this] { flood_udp(kGuest6); });
}

Floods::~Floods() {
  is_stopping_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void Floods::add_neighbour(const Topology& net) {
  start(net.neighbour, [this] { flood_udp(kPeer4); });
  start(net.neighbour, [this] { flood_udp(kPeer6); });
}

void Floods::flood_udp(const char* to) const {
  socklen_t size = 0;
  const sockaddr_storage target = address_of(to, kUdpPort, size);
  const int fd = socket(target.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (target.ss_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  socklen_t own_size = 0;
  const sockaddr_storage own =
      address_of(target.ss_family == AF_INET ? "0.0.0.0" : "::", kUdpPort, own_size);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&own), own_size) != 0) std::abort();
  const std::array<char, 1000> payload{};
  while (!is_stopping_) {
    for (int i = 0; i < 16; ++i) {
      // An error (no neighbour while cut, full queue) is part of the flood.
      [[maybe_unused]] const auto sent = sendto(
          fd,
          payload.data(),
          payload.size(),
          MSG_DONTWAIT,
          reinterpret_cast<const sockaddr*>(&target),
          size
      );
    }
    usleep(100);  // the flood's rate: ten thousand bursts a second
  }
  close(fd);
}

void Floods::sink_tcp() {
  socklen_t size = 0;
  const sockaddr_storage own = address_of("0.0.0.0", kTcpPort, size);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bound_waits(listener);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&own), size) != 0 ||
      listen(listener, 8) != 0)
    std::abort();
  std::vector<char> buffer(1 << 16);
  while (!is_stopping_) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) continue;
    bound_waits(fd);
    for (ssize_t got = 1; !is_stopping_ && got != 0;) {
      got = recv(fd, buffer.data(), buffer.size(), 0);
      if (got > 0) tcp_bytes_ += static_cast<std::uint64_t>(got);
    }
    close(fd);
  }
  close(listener);
}

void Floods::flood_tcp() const {
  socklen_t size = 0;
  const sockaddr_storage target = address_of(kPeer4, kTcpPort, size);
  const std::vector<char> payload(1 << 15);
  while (!is_stopping_) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bound_waits(fd);
    bool is_alive = connect(fd, reinterpret_cast<const sockaddr*>(&target), size) == 0;
    while (is_alive && !is_stopping_) {
      is_alive = send(fd, payload.data(), payload.size(), MSG_NOSIGNAL) > 0 || errno == EAGAIN;
      usleep(200);  // as above: five thousand writes a second
    }
    close(fd);
  }
}

GuestPolicy a_policy() {
  return policy_of(kGuest4, "192.0.2.1", kGuest6, "2001:db8:1::1");
}

GuestPolicy the_neighbours_policy() {
  return policy_of(kNeighbour4, "192.0.3.1", kNeighbour6, "2001:db8:2::1");
}

int rounds(int unless_told) {
  const char* text = std::getenv("RN_ROUNDS");
  return text != nullptr ? std::max(1, std::atoi(text)) : unless_told;
}

std::int64_t quantile(std::vector<std::int64_t> samples, double q) {
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<std::size_t>(q * static_cast<double>(samples.size() - 1) + 0.5)];
}

void print(const char* what, const std::vector<std::int64_t>& ns) {
  std::printf(
      "%-44s n %zu  p50 %.1f us  p99 %.1f us  max %.1f us\n",
      what,
      ns.size(),
      static_cast<double>(quantile(ns, 0.5)) / 1e3,
      static_cast<double>(quantile(ns, 0.99)) / 1e3,
      static_cast<double>(quantile(ns, 1.0)) / 1e3
  );
}

}  // namespace rn::cut_site
