// SPDX-License-Identifier: Apache-2.0
#include "io/session_sockets.h"

#include <algorithm>

#include "io/net.h"

namespace rn::io {

namespace {

/// A connection that was fast and is slow now must not keep its writer waiting for long.
constexpr std::uint32_t kSessionUnsentBytes = 256 << 10;

}  // namespace

void SessionSockets::opened(int fd) {
  const std::lock_guard lock(mutex_);
  bound_unsent(fd, kSessionUnsentBytes);
  if (rate_ != 0) (void)pace(fd, rate_);
  if (const std::uint64_t cookie = cookie_of(fd); cookie != 0) open_.push_back({fd, cookie, 0});
}

void SessionSockets::refresh() const {
  std::erase_if(open_, [this](One& one) {
    const bool is_gone = cookie_of(one.fd) != one.cookie;
    if (is_gone)
      acknowledged_before_ += one.acknowledged;
    else
      one.acknowledged = std::max(one.acknowledged, look_at_tcp(one.fd).bytes_acknowledged);
    return is_gone;
  });
}

Status SessionSockets::set_pacing_rate(std::uint64_t bytes_per_second) {
  const std::lock_guard lock(mutex_);
  rate_ = bytes_per_second;
  refresh();
  for (const One& one : open_) RN_CHECK(pace(one.fd, rate_));
  return {};
}

std::uint64_t SessionSockets::bytes_sent() const {
  const std::lock_guard lock(mutex_);
  refresh();
  std::uint64_t bytes = acknowledged_before_;
  for (const One& one : open_) bytes += one.acknowledged + io::unacknowledged_bytes(one.fd);
  return bytes;
}

std::uint64_t SessionSockets::unacknowledged_bytes() const {
  const std::lock_guard lock(mutex_);
  refresh();
  std::uint64_t bytes = 0;
  for (const One& one : open_) bytes += io::unacknowledged_bytes(one.fd);
  return bytes;
}

/// Of several, which curl tries for a name with several addresses, the one that got through.
int SessionSockets::connected() const {
  refresh();
  for (auto one = open_.rbegin(); one != open_.rend(); ++one) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    if (getpeername(one->fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0) return one->fd;
  }
  return -1;
}

std::string SessionSockets::local() const {
  const std::lock_guard lock(mutex_);
  const int fd = connected();
  return fd < 0 ? std::string() : local_of(fd);
}

std::string SessionSockets::remote() const {
  const std::lock_guard lock(mutex_);
  const int fd = connected();
  return fd < 0 ? std::string() : remote_of(fd);
}

RoundTrip SessionSockets::round_trip() const {
  const std::lock_guard lock(mutex_);
  const int fd = connected();
  return fd < 0 ? RoundTrip{} : look_at_tcp(fd).round_trip;
}

}  // namespace rn::io
