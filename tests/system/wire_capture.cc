// SPDX-License-Identifier: Apache-2.0
#include "wire_capture.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

namespace rn::wire {
namespace {

[[noreturn]] void give_up(const std::string& what) {
  std::perror(what.c_str());
  std::abort();
}

}  // namespace

void must_run(const std::string& command) {
  if (std::system(command.c_str()) != 0) give_up("failed: " + command);
}

void enter_netns(const std::string& name) {
  const int fd = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) give_up("entering " + name);
  close(fd);
}

std::int64_t realtime_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

Capture::Capture(
    const std::string& netns,
    const std::string& source_v4,
    const std::string& source_v6,
    std::vector<std::uint16_t> ports
)
    : ports_(std::move(ports)) {
  inet_pton(AF_INET, source_v4.c_str(), source_v4_.data());
  inet_pton(AF_INET6, source_v6.c_str(), source_v6_.data());
  std::thread opener([&] {
    enter_netns(netns);
    fd_ = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(if_nametoindex("eth0"));
    const int on = 1;
    const int buffer = 64 << 20;
    if (fd_ < 0 || bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        setsockopt(fd_, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) != 0 ||
        setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)) != 0) {
      give_up("capturing in " + netns);
    }
  });
  opener.join();
  thread_ = std::thread([this] { run(); });
}

Capture::~Capture() {
  is_stopping_ = true;
  thread_.join();
  close(fd_);
}

void Capture::run() {
  std::array<std::uint8_t, 64> frame{};
  alignas(cmsghdr) std::array<char, 256> control{};
  while (!is_stopping_) {
    sockaddr_ll from{};
    iovec part{frame.data(), frame.size()};
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof(from);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(fd_, &message, MSG_DONTWAIT);
    if (got < 0) {
      ++idle_turns_;
      pollfd wait{fd_, POLLIN, 0};
      poll(&wait, 1, 2);
      continue;
    }
    if (from.sll_pkttype == PACKET_OUTGOING) continue;
    for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr;
         item = CMSG_NXTHDR(&message, item)) {
      if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SO_TIMESTAMPNS) continue;
      timespec at{};
      std::memcpy(&at, CMSG_DATA(item), sizeof(at));
      note(
          frame.data(),
          static_cast<std::size_t>(got),
          static_cast<std::int64_t>(at.tv_sec) * 1'000'000'000 + at.tv_nsec
      );
    }
  }
}

bool Capture::is_meant(const std::uint8_t* frame, std::size_t size) const {
  if (ports_.empty()) return true;
  const std::size_t at = 14 + std::size_t{4} * (frame[14] & 15U) + 2;  // the destination's port
  if (size < at + 2) return false;
  const auto port = static_cast<std::uint16_t>(frame[at] << 8 | frame[at + 1]);
  return std::find(ports_.begin(), ports_.end(), port) != ports_.end();
}

void Capture::note(const std::uint8_t* frame, std::size_t size, std::int64_t at_ns) {
  const unsigned type = size >= 14 ? static_cast<unsigned>(frame[12] << 8 | frame[13]) : 0;
  Kind kind = Kind::kKinds;
  if (type == ETHERTYPE_IP && size >= 34 && std::memcmp(frame + 26, source_v4_.data(), 4) == 0) {
    if (!is_meant(frame, size)) return;
    kind = frame[23] == IPPROTO_TCP ? Kind::kTcp4 : Kind::kUdp4;
  } else if (type == ETHERTYPE_IPV6 && size >= 54 && std::memcmp(frame + 22, source_v6_.data(), 16) == 0) {
    kind = Kind::kUdp6;
  } else {
    return;
  }
  ++packets_[static_cast<std::size_t>(kind)];
  std::atomic<std::int64_t>& last = last_of_[static_cast<std::size_t>(kind)];
  if (at_ns > last) last = at_ns;
  if (at_ns > last_ns_) last_ns_ = at_ns;
}

void Capture::drain() const {
  const std::uint64_t seen = idle_turns_;
  while (idle_turns_ < seen + 2) usleep(500);  // between two looks
}

std::uint64_t Capture::lost() const {
  tpacket_stats stats{};
  socklen_t size = sizeof(stats);
  if (getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0) lost_ += stats.tp_drops;
  return lost_;
}

}  // namespace rn::wire
