// SPDX-License-Identifier: Apache-2.0
#include "wire_flood.h"

#include <array>
#include <cstdio>
#include <cstdlib>

#include "wire_capture.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rn::bench {
namespace {

constexpr int kPatienceMs = 400;  ///< of a connection that gets nowhere

void enter_netns_of(int pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/net";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
    std::perror(path.c_str());
    std::abort();
  }
  close(fd);
}

sockaddr_in address_of(const std::string& v4, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, v4.c_str(), &address.sin_addr);
  return address;
}

int bound(int type, std::uint16_t port) {
  const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const timeval limit{0, 50'000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  const sockaddr_in own = address_of("0.0.0.0", port);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0) {
    std::perror("bind");
    std::abort();
  }
  return fd;
}

}  // namespace

GuestFlood::GuestFlood(
    int guest, const std::string& peer, const std::string& peer_v4, FloodPorts ports
)
    : ports_(ports) {
  threads_.emplace_back([this, peer] {
    wire::enter_netns(peer);
    sink_tcp();
  });
  threads_.emplace_back([this, guest, peer_v4] {
    enter_netns_of(guest);
    flood_udp(peer_v4);
  });
  threads_.emplace_back([this, guest, peer_v4] {
    enter_netns_of(guest);
    flood_tcp(peer_v4);
  });
}

GuestFlood::~GuestFlood() {
  is_stopping_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void GuestFlood::flood_udp(const std::string& peer_v4) {
  const sockaddr_in to = address_of(peer_v4, ports_.udp);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const std::array<char, 1000> payload{};
  while (!is_stopping_) {
    for (int i = 0; i < 16; ++i) {
      // An error (a full queue, nobody there) is part of the flood.
      [[maybe_unused]] const auto sent = sendto(
          fd,
          payload.data(),
          payload.size(),
          MSG_DONTWAIT,
          reinterpret_cast<const sockaddr*>(&to),
          sizeof(to)
      );
    }
    usleep(200);  // the flood's rate: five thousand bursts a second
  }
  close(fd);
}

void GuestFlood::flood_tcp(const std::string& peer_v4) {
  while (!is_stopping_) one_connection(peer_v4, turn_);
}

/// Until the way was opened anew, or it has got nowhere for a while.
void GuestFlood::one_connection(const std::string& peer_v4, std::uint64_t turn) {
  const sockaddr_in to = address_of(peer_v4, ports_.tcp);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const linger at_once{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  [[maybe_unused]] const int begun =
      connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  const std::vector<char> payload(1 << 15);
  for (int idle_ms = 0; idle_ms < kPatienceMs && turn == turn_ && !is_stopping_;) {
    pollfd ready{fd, POLLOUT, 0};
    if (poll(&ready, 1, 2) != 1) {
      idle_ms += 2;
      continue;
    }
    if (send(fd, payload.data(), payload.size(), MSG_NOSIGNAL) < 0) break;
    idle_ms = 0;
    usleep(200);  // five thousand writes a second
  }
  close(fd);
}

void GuestFlood::sink_tcp() {
  const int listener = bound(SOCK_STREAM, ports_.tcp);
  if (listen(listener, 64) != 0) std::abort();
  std::vector<pollfd> open{{listener, POLLIN, 0}};
  std::vector<char> buffer(1 << 16);
  while (!is_stopping_) {
    if (poll(open.data(), open.size(), 50) <= 0) continue;
    if (open[0].revents != 0) {
      const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      // The oldest ones are those whose guest was cut, and will never speak again.
      if (fd >= 0) open.push_back({fd, POLLIN, 0});
      if (open.size() > 32) {
        close(open[1].fd);
        open.erase(open.begin() + 1);
        continue;
      }
    }
    for (std::size_t i = open.size() - 1; i > 0; --i) {
      if (open[i].revents == 0 || recv(open[i].fd, buffer.data(), buffer.size(), 0) > 0) continue;
      close(open[i].fd);
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  for (const pollfd& one : open) close(one.fd);
}

OwnerStream::OwnerStream(const std::string& peer, const std::string& peer_v4) {
  sink_ = std::thread([this, peer] {
    wire::enter_netns(peer);
    sink();
  });
  while (!is_bound_) usleep(1000);  // until the sink may be sent to
  source_ = std::thread([this, peer_v4] { send_paced(peer_v4); });
}

void OwnerStream::stop() {
  if (!source_.joinable()) return;
  is_stopping_ = true;
  source_.join();
  usleep(300'000);  // longer than the longest queue
  is_over_ = true;
  sink_.join();
}

void OwnerStream::sink() {
  const int fd = bound(SOCK_DGRAM, kOwnerPort);
  is_bound_ = true;
  std::array<char, 256> buffer{};
  while (!is_over_) {
    if (recv(fd, buffer.data(), buffer.size(), 0) > 0) ++came_;
  }
  close(fd);
}

void OwnerStream::send_paced(const std::string& peer_v4) {
  const sockaddr_in to = address_of(peer_v4, kOwnerPort);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const std::array<char, 200> payload{};
  while (!is_stopping_) {
    // One that the queue refuses (ENOBUFS) is one that never came.
    [[maybe_unused]] const auto sent = sendto(
        fd, payload.data(), payload.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)
    );
    ++sent_;
    usleep(1000);  // the owner's rate
  }
  close(fd);
}

}  // namespace rn::bench
