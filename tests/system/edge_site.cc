// SPDX-License-Identifier: Apache-2.0
#include "edge_site.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/net_tstamp.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

namespace rn::edge_site {

namespace {

constexpr std::array<std::uint16_t, 3> kPorts = {kDataPort, kControlPort, kOwnerPort};
constexpr std::int64_t kMs = 1'000'000;
constexpr std::size_t kChunk = 256 << 10;
constexpr std::size_t kDatagram = 1448;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::abort();
}

int must(int result, const char* what) {
  if (result < 0) give_up(what);
  return result;
}

void must_do(const std::string& command) {
  if (std::system(command.c_str()) == 0) return;
  std::fprintf(stderr, "failed: %s\n", command.c_str());
  std::abort();
}

sockaddr_in6 address_of(const char* text, std::uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  if (inet_pton(AF_INET6, text, &address.sin6_addr) != 1) std::abort();
  return address;
}

/// Both families by one kind of socket: IPv4 is mapped, and IPv4 on the wire.
std::string mapped(const char* address, bool is_v6) {
  return is_v6 ? address : std::string("::ffff:") + address;
}

traffic::EdgeEnd end_of_socket(const sockaddr_in6& address) {
  traffic::EdgeEnd end;
  std::memcpy(end.address.data(), &address.sin6_addr, 16);
  end.port = ntohs(address.sin6_port);
  return end;
}

/// Where the calling thread is from now on.
int enter_new_namespace(const char* whose) {
  must(unshare(CLONE_NEWNET), whose);
  return must(open("/proc/thread-self/ns/net", O_RDONLY), whose);
}

std::string run_in(int space) {
  return "nsenter --net=/proc/self/fd/" + std::to_string(space) + " ";
}

/// As scripts/testbed makes its lines.
std::string shaper(const std::string& device, std::uint64_t line_bps) {
  const std::uint64_t queue = std::max<std::uint64_t>(line_bps / 8 / 20, 128 << 10);
  const std::string burst = std::to_string(std::max<std::uint64_t>(line_bps / 8 / 400, 32 << 10));
  return "tc qdisc add dev " + device + " root handle 1: htb default 10 && tc class add dev " +
         device + " parent 1: classid 1:10 htb rate " + std::to_string(line_bps) + "bit burst " +
         burst + " cburst " + burst + " quantum 60000 && tc qdisc add dev " + device +
         " parent 1:10 handle 10: bfifo limit " + std::to_string(queue);
}

tcp_info look_at(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  must(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), "TCP_INFO");
  return info;
}

}  // namespace

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Site::Site(std::uint64_t line_bps) {
  const int here = enter_new_namespace("this machine's namespace");
  far_ = enter_new_namespace("the peer's");
  if (line_bps != 0) line_ = enter_new_namespace("the line's");
  must(setns(here, CLONE_NEWNET), "coming back");
  close(here);
  const std::string up0 = "peer name up0 netns " + std::to_string(getpid());
  const std::string in_far = run_in(far_);
  if (line_ < 0) {
    must_do(in_far + "ip link add far0 type veth " + up0);
  } else {
    const std::string far0 = "peer name far0 netns /proc/self/fd/" + std::to_string(far_);
    must_do(
        run_in(line_) + "sh -c 'ip link add br0 type bridge forward_delay 0 mcast_snooping 0" +
        " && ip link add near1 type veth " + up0 + " && ip link add far1 type veth " + far0 +
        " && ip link set near1 master br0 up && ip link set far1 master br0 up" +
        " && ip link set br0 up && " + shaper("far1", line_bps) + "'"
    );
  }
  must_do(
      "ip addr add 10.77.0.1/24 dev up0 && ip addr add fd77::1/64 dev up0 nodad && "
      "ip link set lo up && ip link set up0 up && " +
      in_far + "ip addr add 10.77.0.2/24 dev far0 && " + in_far +
      "ip addr add fd77::2/64 dev far0 nodad && " + in_far + "ip link set far0 up"
  );
  for (const int space : {far_, line_}) {
    if (space >= 0) fcntl(space, F_SETFD, FD_CLOEXEC);
  }
}

Site::~Site() {
  for (const int space : {far_, line_}) {
    if (space >= 0) close(space);
  }
}

void Site::enter_far() const {
  must(setns(far_, CLONE_NEWNET), "entering the peer's namespace");
}

// ---- sink

Sink::Sink(const Site& site) : bins_(kBins) {
  forget();
  thread_ = std::thread([this, &site] { run(site); });
  while (!is_ready_) usleep(1000);
}

Sink::~Sink() {
  is_stopping_ = true;
  thread_.join();
}

void Sink::forget() {
  begin_ns_ = now_ns();
  for (auto& bin : bins_) bin = 0;
}

std::uint64_t Sink::bytes(std::uint16_t port) const {
  const auto at = std::find(kPorts.begin(), kPorts.end(), port) - kPorts.begin();
  return total_.at(static_cast<std::size_t>(at));
}

std::uint64_t Sink::bytes_between(std::int64_t from_ns, std::int64_t to_ns) const {
  std::uint64_t sum = 0;
  const std::int64_t begin = begin_ns_;
  const auto first = static_cast<std::size_t>(std::max<std::int64_t>(0, (from_ns - begin) / kMs));
  const auto last = static_cast<std::size_t>(std::max<std::int64_t>(0, (to_ns - begin) / kMs));
  for (std::size_t i = first; i < std::min(last, kBins); ++i) sum += bins_[i];
  return sum;
}

void Sink::run(const Site& site) {
  site.enter_far();

  struct One {
    int fd;
    std::size_t port;
    bool is_listener;
  };

  std::vector<One> all;
  for (std::size_t i = 0; i < kPorts.size(); ++i) {
    const sockaddr_in6 address = address_of("::", kPorts[i]);
    for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
      const int fd = must(socket(AF_INET6, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "a socket");
      const int big = 8 << 20;
      setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &big, sizeof big);
      must(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
      if (type == SOCK_STREAM) must(listen(fd, 64), "listen");
      all.push_back({fd, i, type == SOCK_STREAM});
    }
  }
  is_ready_ = true;
  std::vector<char> buffer(kChunk);
  while (!is_stopping_) {
    std::vector<pollfd> ready;
    for (const One& one : all) ready.push_back({one.fd, POLLIN, 0});
    if (poll(ready.data(), ready.size(), 20) <= 0) continue;
    for (std::size_t i = 0; i < ready.size(); ++i) {
      if (ready[i].revents == 0) continue;
      if (all[i].is_listener) {
        const int fd = accept4(all[i].fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) all.push_back({fd, all[i].port, false});
        continue;
      }
      const ssize_t got = recv(all[i].fd, buffer.data(), buffer.size(), 0);
      if (got <= 0) {
        if (got == 0 || errno != EAGAIN) {
          close(all[i].fd);
          all[i].fd = -1;
        }
        continue;
      }
      total_[all[i].port] += static_cast<std::uint64_t>(got);
      if (kPorts[all[i].port] != kDataPort) continue;
      const auto bin = static_cast<std::size_t>((now_ns() - begin_ns_) / kMs);
      if (bin < kBins) bins_[bin] += static_cast<std::uint32_t>(got);
    }
    std::erase_if(all, [](const One& one) { return one.fd < 0; });
  }
  for (const One& one : all) close(one.fd);
}

// ---- sniffer

Sniffer::Sniffer(const Site& site, std::uint16_t from_port) : from_port_(from_port) {
  std::atomic<bool> is_open{false};
  thread_ = std::thread([this, &site, &is_open] {
    site.enter_far();
    fd_ = must(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_ALL)), "a packet socket");
    const int big = 64 << 20, on = 1;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &big, sizeof big);
    must(setsockopt(fd_, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on), "time stamps");
    is_open = true;
    run(site);
  });
  while (!is_open) usleep(1000);
}

Sniffer::~Sniffer() {
  is_stopping_ = true;
  thread_.join();
  close(fd_);
}

std::uint64_t Sniffer::lost() const {
  tpacket_stats stats{};
  socklen_t size = sizeof stats;
  if (getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0) lost_ += stats.tp_drops;
  return lost_;
}

std::uint64_t Sniffer::bytes_between(std::int64_t from_ns, std::int64_t to_ns) const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (auto one = arrivals_.rbegin(); one != arrivals_.rend() && one->at_ns >= from_ns; ++one)
    if (one->at_ns < to_ns) sum += one->bytes;
  return sum;
}

void Sniffer::drain() const {
  const std::uint64_t turns = idle_turns_;
  while (idle_turns_ < turns + 2) usleep(500);
}

void Sniffer::run(const Site&) {
  std::array<std::uint8_t, 128> packet{};
  std::array<char, 128> control{};
  while (!is_stopping_) {
    sockaddr_ll from{};
    iovec part{packet.data(), packet.size()};
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(fd_, &message, MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0) {
      ++idle_turns_;
      pollfd ready{fd_, POLLIN, 0};
      poll(&ready, 1, 1);
      continue;
    }
    if (from.sll_pkttype == PACKET_OUTGOING) continue;
    std::int64_t at_ns = 0;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_type != SCM_TIMESTAMPNS) continue;
      timespec stamp{};
      std::memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
      at_ns = std::int64_t{stamp.tv_sec} * 1'000'000'000 + stamp.tv_nsec;
    }
    note(packet.data(), static_cast<std::size_t>(got), at_ns);
  }
}

/// An IP packet; `size` is its true one.
void Sniffer::note(const std::uint8_t* packet, std::size_t size, std::int64_t at_ns) {
  const bool is_v4 = packet[0] >> 4 == 4;
  const std::size_t header = is_v4 ? (packet[0] & 15U) * 4U : 40U;
  const int protocol = is_v4 ? packet[9] : packet[6];
  if (size < header + 8 || (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)) return;
  const std::size_t transport =
      protocol == IPPROTO_UDP ? 8U : static_cast<std::size_t>(packet[header + 12] >> 4) * 4U;
  const auto port = static_cast<std::uint16_t>(packet[header + 2] << 8 | packet[header + 3]);
  if (size <= header + transport) return;
  if (port == kControlPort) ++control_packets_;
  const auto from = static_cast<std::uint16_t>(packet[header] << 8 | packet[header + 1]);
  if (port != kDataPort || (from_port_ != 0 && from != from_port_)) return;
  ++data_packets_;
  last_data_ns_ = at_ns;
  const std::lock_guard lock(mutex_);
  arrivals_.push_back({at_ns, size - header - transport});
  if (arrivals_.size() > kKept) arrivals_.pop_front();
}

// ---- sender

Sender::Sender(const Kind& kind) : kind_(kind) {
  const std::string here = mapped(kind.is_v6 ? kHere6 : kHere, kind.is_v6);
  const std::string far = mapped(kind.is_v6 ? kFar6 : kFar, kind.is_v6);
  const sockaddr_in6 from = address_of(here.c_str(), 0);
  const sockaddr_in6 to = address_of(far.c_str(), kind.port);
  setfsuid(kind.uid);  // the user that a socket belongs to
  fd_ = socket(AF_INET6, (kind.is_udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);
  setfsuid(0);
  must(fd_, "a socket");
  if (!kind.congestion.empty())
    must(
        setsockopt(
            fd_,
            IPPROTO_TCP,
            TCP_CONGESTION,
            kind.congestion.data(),
            static_cast<socklen_t>(kind.congestion.size())
        ),
        kind.congestion.c_str()
    );
  must(bind(fd_, reinterpret_cast<const sockaddr*>(&from), sizeof from), "bind");
  must(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), "connect");
  if (kind.pace_bytes_s != 0) pace(kind.pace_bytes_s);
  if (kind.held_until_ns != 0) {
    const sock_txtime clock{CLOCK_MONOTONIC, 0};
    must(setsockopt(fd_, SOL_SOCKET, SO_TXTIME, &clock, sizeof clock), "SO_TXTIME");
    const int big = 128 << 20;  // what is held back counts as not sent
    must(setsockopt(fd_, SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof big), "SO_SNDBUFFORCE");
  }
  must(fcntl(fd_, F_SETFL, O_NONBLOCK), "non-blocking");
}

Sender::~Sender() {
  const linger at_once{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(fd_);
}

traffic::TransferClaim Sender::claim(std::uint64_t id, std::uint64_t bytes_per_s) const {
  traffic::TransferClaim claim;
  sockaddr_in6 end{};
  socklen_t size = sizeof end;
  must(getsockname(fd_, reinterpret_cast<sockaddr*>(&end), &size), "the own end");
  claim.local = end_of_socket(end);
  size = sizeof end;
  must(getpeername(fd_, reinterpret_cast<sockaddr*>(&end), &size), "the other end");
  claim.remote = end_of_socket(end);
  claim.id = id;
  claim.bytes_per_s = bytes_per_s;
  return claim;
}

void Sender::pace(std::uint64_t bytes_s) const {
  must(
      setsockopt(fd_, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_s, sizeof bytes_s),
      "SO_MAX_PACING_RATE"
  );
  if (!kind_.is_in_bursts) return;
  int segment = 0;
  socklen_t size = sizeof segment;
  must(getsockopt(fd_, IPPROTO_TCP, TCP_MAXSEG, &segment, &size), "TCP_MAXSEG");
  const std::lock_guard lock(mutex_);
  bursts_.set(bytes_s, static_cast<std::uint32_t>(segment));
}

/// The hook's refusal comes back as ENOBUFS.
void Sender::send_datagram(const char* bytes) const {
  iovec part{const_cast<char*>(bytes), kDatagram};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::uint64_t))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (kind_.held_until_ns != 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const time = CMSG_FIRSTHDR(&message);
    time->cmsg_level = SOL_SOCKET;
    time->cmsg_type = SCM_TXTIME;
    time->cmsg_len = CMSG_LEN(sizeof kind_.held_until_ns);
    std::memcpy(CMSG_DATA(time), &kind_.held_until_ns, sizeof kind_.held_until_ns);
  }
  (void)!sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Sender::flood_until(std::int64_t end_ns, std::uint64_t udp_bytes_s) const {
  static const std::vector<char> bytes(kChunk, 'x');
  const std::int64_t begin_ns = now_ns();
  std::uint64_t offered = 0;
  for (std::int64_t now = begin_ns; now < end_ns; now = now_ns()) {
    if (kind_.is_udp) {
      const double due =
          static_cast<double>(now - begin_ns) / 1e9 * static_cast<double>(udp_bytes_s);
      while (static_cast<double>(offered) < due) {
        send_datagram(bytes.data());
        offered += kDatagram;
      }
      usleep(200);
      continue;
    }
    pollfd ready{fd_, POLLOUT, 0};
    if (poll(&ready, 1, 20) != 1) continue;
    const std::lock_guard lock(mutex_);
    const io::SendBursts::Piece piece = bursts_.next(bytes.size());
    const ssize_t sent = send(fd_, bytes.data(), piece.bytes, MSG_NOSIGNAL | piece.flags);
    if (sent > 0) bursts_.sent(static_cast<std::size_t>(sent));
  }
}

bool Sender::say() const {
  return send(fd_, "beat", 4, MSG_NOSIGNAL) == 4;
}

std::uint64_t Sender::retransmits() const {
  return look_at(fd_).tcpi_total_retrans;
}

std::uint64_t Sender::needless_retransmits() const {
  return look_at(fd_).tcpi_dsack_dups;
}

Sender::Path Sender::path() const {
  const tcp_info info = look_at(fd_);
  const bool is_measured = info.tcpi_min_rtt != ~std::uint32_t{0};
  return {info.tcpi_rtt / 1e6, is_measured ? info.tcpi_min_rtt / 1e6 : 0, info.tcpi_bytes_acked};
}

}  // namespace rn::edge_site
