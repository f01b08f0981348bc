// SPDX-License-Identifier: Apache-2.0
#include "links.h"

#include <cerrno>
#include <cstring>

#include "init_log.h"
#include "listener.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rn::init {

namespace {

using tunnel::Kind;

/// The agents wait for a member that has not begun, and for its program; both are in here.
constexpr std::int64_t kDialMs = 120'000;
constexpr std::int64_t kInsideMs = 10'000;
constexpr std::int64_t kAgainMs = 100;
constexpr std::int64_t kFlushMs = 5000;
constexpr int kBacklog = 128;
constexpr int kRounds = 8;
constexpr int kOriginalDestination = 80;  ///< SO_ORIGINAL_DST; its header is the kernel's

bool is_not_now() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

sockaddr_in address(std::uint32_t host, std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  out.sin_addr.s_addr = htonl(host);
  return out;
}

/// Whoever is connected sees a break, and no end.
void reset(int stream) {
  const linger now{1, 0};
  setsockopt(stream, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close(stream);
}

/// What the program wanted to connect to. kRanks: no member, or nobody redirected it here.
gang_link::Asked wanted_by(int stream) {
  sockaddr_in to{};
  socklen_t size = sizeof to;
  if (getsockopt(stream, IPPROTO_IP, kOriginalDestination, &to, &size) != 0) return {};
  return gang_link::asked_of(gang_link::rank_at(ntohl(to.sin_addr.s_addr)), ntohs(to.sin_port));
}

}  // namespace

Links::Place Links::places_[kPlaces];

bool Links::begin(std::uint32_t rank) {
  const sockaddr_in own = address(INADDR_LOOPBACK, gang_link::kListenPort);
  const int fd =
      listen_at(reinterpret_cast<const sockaddr*>(&own), sizeof own, SOCK_STREAM, kBacklog);
  if (fd < 0) return false;
  rank_ = rank;
  listener_ = fd;
  return true;
}

/// nullptr: all are taken, and the connection is closed.
Links::Place* Links::take(int packets, Phase phase) {
  for (Place& one : places_) {
    if (one.phase != Phase::kFree) continue;
    one.phase = phase;
    one.has_heard_end = one.has_read_end = one.has_said_end = false;
    one.packets = packets;
    one.stream = -1;
    one.until = one.again_at = 0;
    one.asked = {};
    one.in_from = one.in_to = one.held = 0;
    return &one;
  }
  close(packets);
  return nullptr;
}

void Links::offer(int packets) {
  if (!is_on()) return void(close(packets));
  (void)take(packets, Phase::kOffered);
}

void Links::open(int packets, gang_link::Asked asked, std::int64_t now) {
  const bool is_good = is_on() && asked.rank < gang_link::kRanks && asked.rank != rank_;
  if (!is_good) return void(close(packets));
  Place* const one = take(packets, Phase::kConnecting);
  if (one == nullptr) return;
  one->asked = asked;
  one->until = now + kInsideMs;
  connect_inside(*one, now);
}

/// Of a descriptor without events to wait for, -1: its errors would wake us for ever.
void Links::fill(pollfd* out) const {
  bool is_offered = false;
  for (int i = 0; i < kPlaces; ++i) {
    const Place& one = places_[i];
    pollfd& packets = out[1 + 2 * i];
    pollfd& stream = out[2 + 2 * i];
    packets = {-1, 0, 0};
    stream = {-1, 0, 0};
    if (one.phase == Phase::kFree) continue;
    if (one.phase == Phase::kOffered) is_offered = true;
    if (one.phase != Phase::kOpen) {
      packets = {one.packets, POLLIN, 0};
      if (one.phase == Phase::kConnecting) stream = {one.stream, POLLOUT, 0};
      continue;
    }
    const bool has_in = one.in_from < one.in_to;
    const bool has_word = one.held > 0 || (one.has_read_end && !one.has_said_end);
    const int said = (has_in ? 0 : POLLIN) | (has_word ? POLLOUT : 0);
    const bool reads = one.held == 0 && !one.has_read_end;
    const int streamed = (has_in ? POLLOUT : 0) | (reads ? POLLIN : 0);
    if (said != 0) packets = {one.packets, static_cast<short>(said), 0};
    if (streamed != 0) stream = {one.stream, static_cast<short>(streamed), 0};
  }
  // Who connects waits in the listener until the agent has a connection for it.
  out[0] = {is_offered ? listener_ : -1, POLLIN, 0};
}

void Links::step(const pollfd* ready, std::int64_t now) {
  if (!is_on()) return;
  for (int i = 0; i < kPlaces; ++i)
    serve(places_[i], ready[1 + 2 * i].revents != 0, ready[2 + 2 * i].revents != 0, now);
  if (ready[0].revents != 0) accept_some(now);
}

std::int64_t Links::wakes_at() const {
  std::int64_t first = -1;
  for (const Place& one : places_) {
    if (one.phase == Phase::kFree || one.until == 0) continue;
    const bool is_again = one.phase == Phase::kNobody && one.again_at < one.until;
    const std::int64_t at = is_again ? one.again_at : one.until;
    if (first < 0 || at < first) first = at;
  }
  return first;
}

bool Links::has_something_to_say() {
  for (const Place& one : places_) {
    const bool waits = one.phase == Phase::kOpen && !one.has_said_end;
    if (waits || one.phase == Phase::kDialling) return true;
  }
  return false;
}

void Links::flush() {
  static pollfd ready[kPolled];
  const std::int64_t until = now_ms() + kFlushMs;
  while (is_on() && has_something_to_say()) {
    const std::int64_t left = until - now_ms();
    if (left <= 0) return;
    fill(ready);
    ready[0].fd = -1;  // nobody is left who connects
    poll(ready, kPolled, static_cast<int>(left));
    step(ready, now_ms());
  }
}

Links::Place* Links::offered() {
  for (Place& one : places_) {
    if (one.phase == Phase::kOffered) return &one;
  }
  return nullptr;
}

void Links::accept_some(std::int64_t now) {
  while (Place* const one = offered()) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    const gang_link::Asked asked = wanted_by(fd);
    if (asked.rank == gang_link::kRanks || asked.rank == rank_) {
      reset(fd);
      continue;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::uint8_t packet[gang_link::kDialBytes];
    gang_link::write_dial(packet, asked);
    one->stream = fd;
    one->phase = Phase::kDialling;
    one->until = now + kDialMs;
    bool is_full = false;
    if (!say(*one, packet, sizeof packet, is_full) || is_full) end(*one, true);
  }
}

void Links::serve(Place& one, bool is_heard, bool is_streaming, std::int64_t now) {
  switch (one.phase) {
    case Phase::kFree:
      return;
    case Phase::kOffered:
      if (is_heard) end(one, true);  // nothing can be said on it before we have
      return;
    case Phase::kDialling:
      if (is_heard) on_answer(one);
      break;
    case Phase::kConnecting:
    case Phase::kNobody:
      if (is_heard && !is_agent_there(one)) return end(one, true);
      if (one.phase == Phase::kConnecting && is_streaming) look_if_connected(one, now);
      if (one.phase == Phase::kNobody && now >= one.again_at) connect_inside(one, now);
      break;
    case Phase::kOpen:
      if ((is_heard || is_streaming) && !pump(one)) return end(one, true);
      if (one.has_heard_end && one.has_said_end) return end(one, false);
      return;
  }
  const bool waits = one.phase != Phase::kFree && one.phase != Phase::kOpen;
  if (!waits || one.until == 0 || now < one.until) return;
  if (one.phase == Phase::kDialling) return end(one, true);
  refuse(one, one.phase == Phase::kNobody ? "nothing listens there" : "it takes no connection");
}

/// Before a link is open nothing comes but the agent's end.
bool Links::is_agent_there(const Place& one) {
  std::uint8_t drop[4];
  return recv(one.packets, drop, sizeof drop, MSG_DONTWAIT) < 0 && is_not_now();
}

/// To a kDial.
void Links::on_answer(Place& one) {
  std::uint8_t packet[1 + tunnel::kWordsMax];
  const ssize_t got = recv(one.packets, packet, sizeof packet, MSG_DONTWAIT);
  if (got < 0 && is_not_now()) return;
  if (got != 1 || packet[0] != static_cast<std::uint8_t>(Kind::kOpened)) return end(one, true);
  one.phase = Phase::kOpen;
  one.until = 0;
}

/// From the other member's address, so that the program sees who comes.
void Links::connect_inside(Place& one, std::int64_t now) {
  one.phase = Phase::kConnecting;
  one.stream = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (one.stream < 0) return refuse(one, strerror(errno));
  const int on = 1;
  setsockopt(one.stream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(one.stream, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  const sockaddr_in from = address(gang_link::address_of(one.asked.rank), 0);
  if (bind(one.stream, reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0)
    return refuse(one, strerror(errno));
  const sockaddr_in to = address(gang_link::address_of(rank_), one.asked.port);
  const int done = connect(one.stream, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  if (done != 0 && errno == ECONNREFUSED) {
    close(one.stream);
    one.stream = -1;
    one.phase = Phase::kNobody;
    one.again_at = now + kAgainMs;
    return;
  }
  if (done == 0 || errno != EINPROGRESS) look_if_connected(one, now);
}

void Links::look_if_connected(Place& one, std::int64_t now) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(one.stream, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == ECONNREFUSED) {
    close(one.stream);
    one.stream = -1;
    one.phase = Phase::kNobody;
    one.again_at = now + kAgainMs;
    return;
  }
  sockaddr_in peer{};
  socklen_t peer_size = sizeof peer;
  const bool is_there =
      error == 0 && getpeername(one.stream, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0;
  if (!is_there) return refuse(one, error == 0 ? "it takes no connection" : strerror(error));
  const auto word = static_cast<std::uint8_t>(Kind::kOpened);
  bool is_full = false;
  if (!say(one, &word, 1, is_full) || is_full) return end(one, true);
  one.phase = Phase::kOpen;
  one.until = 0;
}

/// Whatever can be done now in both directions. False: it broke.
bool Links::pump(Place& one) {
  return write_stream(one) && read_stream(one);
}

/// From the agent to the guest's program: one packet after the other, each when the one before is
/// written.
bool Links::write_stream(Place& one) {
  for (int round = 0; round < kRounds; ++round) {
    while (one.in_from < one.in_to) {
      const ssize_t put = send(
          one.stream, one.in + one.in_from, one.in_to - one.in_from, MSG_NOSIGNAL | MSG_DONTWAIT
      );
      if (put < 0) return is_not_now();
      one.in_from += static_cast<std::size_t>(put);
    }
    if (one.has_heard_end && one.has_said_end) return true;
    bool is_empty = false;
    if (!hear(one, is_empty)) return false;
    if (is_empty) return true;
  }
  return true;
}

/// The next packet of the agent's; nothing waits to be written. False: it broke.
bool Links::hear(Place& one, bool& is_empty) {
  static std::uint8_t packet[gang_link::kDataMax + 2];
  const ssize_t got = recv(one.packets, packet, sizeof packet, MSG_DONTWAIT);
  is_empty = got < 0 && is_not_now();
  if (is_empty) return true;
  if (got <= 0 || one.has_heard_end) return false;
  const auto size = static_cast<std::size_t>(got);
  if (packet[0] == static_cast<std::uint8_t>(Kind::kEnd) && size == 1) {
    // At once: nothing more comes that would wake us.
    shutdown(one.stream, SHUT_WR);
    one.has_heard_end = true;
    return true;
  }
  const bool is_data = packet[0] == static_cast<std::uint8_t>(Kind::kData) && size > 1 &&
                       size <= gang_link::kDataMax + 1;
  if (!is_data) return false;
  memcpy(one.in, packet + 1, size - 1);
  one.in_from = 0;
  one.in_to = size - 1;
  return true;
}

/// From the guest's program to the agent: what waits first, then what is there now.
bool Links::read_stream(Place& one) {
  for (int round = 0; round < kRounds; ++round) {
    bool is_full = false;
    if (one.held > 0) {
      if (!say(one, one.packet, one.held, is_full)) return false;
      if (is_full) return true;
      one.held = 0;
    }
    if (one.has_read_end) {
      const auto word = static_cast<std::uint8_t>(Kind::kEnd);
      if (one.has_said_end) return true;
      if (!say(one, &word, 1, is_full)) return false;
      one.has_said_end = !is_full;
      return true;
    }
    const ssize_t got = recv(one.stream, one.packet + 1, gang_link::kDataMax, MSG_DONTWAIT);
    if (got < 0) return is_not_now();
    if (got == 0) {
      one.has_read_end = true;
      continue;
    }
    one.packet[0] = static_cast<std::uint8_t>(Kind::kData);
    one.held = static_cast<std::size_t>(got) + 1;
  }
  return true;
}

/// False: the agent is gone. Full: it was not said, and may be said later.
bool Links::say(const Place& one, const std::uint8_t* packet, std::size_t size, bool& is_full) {
  const ssize_t put = send(one.packets, packet, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  is_full = put < 0 && is_not_now();
  return put >= 0 || is_full;
}

void Links::refuse(Place& one, const char* words) {
  char packet[1 + tunnel::kWordsMax];
  packet[0] = static_cast<char>(Kind::kRefused);
  const std::size_t size = strnlen(words, tunnel::kWordsMax);
  memcpy(packet + 1, words, size);
  bool is_full = false;
  say(one, reinterpret_cast<const std::uint8_t*>(packet), 1 + size, is_full);
  end(one, true);
}

void Links::end(Place& one, bool is_broken) {
  if (one.stream >= 0) {
    if (is_broken)
      reset(one.stream);
    else
      close(one.stream);
  }
  close(one.packets);
  one.stream = -1;
  one.phase = Phase::kFree;
}

}  // namespace rn::init
