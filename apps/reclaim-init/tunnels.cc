// SPDX-License-Identifier: Apache-2.0
#include "tunnels.h"

#include <cerrno>
#include <cstring>

#include "listener.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rn::init {

namespace {

using tunnel::Kind;

constexpr char kPath[] = "/reclaim/tunnel.sock";
constexpr std::int64_t kAskMs = 5000;
constexpr std::int64_t kConnectMs = 10'000;
/// For what came when the user's side is gone in order.
constexpr std::int64_t kFlushMs = 60'000;
constexpr int kTakenAtOnce = 8;
constexpr int kHeardAtOnce = 16;
constexpr int kReadAtOnce = 4;

constexpr char kBusy[] = "\x03thirty-two connections into the guest are open already";
static_assert(static_cast<char>(Kind::kRefused) == kBusy[0] && Tunnels::kOpenAtOnce == 32);

bool is_not_now() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

Tunnels::Place Tunnels::places_[kPlaces];

bool Tunnels::begin(Visits& visits, Links& links) {
  const int fd = listen_at_path(kPath, SOCK_SEQPACKET, kPlaces);
  if (fd < 0) return false;
  // The agent is another user, outside; who else is in the guest may connect to its ports anyway.
  if (chmod(kPath, 0666) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return false;
  }
  visits_ = &visits;
  links_ = &links;
  listener_ = fd;
  return true;
}

/// Of a descriptor without events to wait for, -1: its errors would wake us for ever.
void Tunnels::fill(pollfd* out) const {
  out[0] = {listener_, POLLIN, 0};
  for (int i = 0; i < kPlaces; ++i) {
    const Place& one = places_[i];
    pollfd& packets = out[1 + 2 * i];
    pollfd& stream = out[2 + 2 * i];
    packets = {-1, 0, 0};
    stream = {-1, 0, 0};
    if (one.phase == Phase::kFree) continue;
    if (!one.is_agent_gone) {
      std::uint8_t credit[End::kCreditPacket];
      const bool is_open = one.phase == Phase::kOpen;
      const bool has_word = one.held > 0 ||
                            (is_open && one.has_read_end && !one.end.has_sent_end()) ||
                            (is_open && one.end.credit_packet(credit) > 0);
      packets = {one.packets, static_cast<short>(has_word ? POLLIN | POLLOUT : POLLIN), 0};
    }
    short events = 0;
    if (one.phase == Phase::kConnecting) events = POLLOUT;
    if (one.phase == Phase::kOpen) {
      const bool reads = one.held == 0 && !one.has_read_end && !one.is_agent_gone;
      if (reads && one.end.may_send() > 0) events |= POLLIN;
      if (one.end.waiting_bytes() > 0) events |= POLLOUT;
    }
    if (events != 0) stream = {one.stream, events, 0};
  }
}

void Tunnels::step(const pollfd* ready, std::int64_t now) {
  if (listener_ < 0) return;
  for (int i = 0; i < kPlaces; ++i)
    serve(places_[i], ready[1 + 2 * i].revents != 0, ready[2 + 2 * i].revents != 0, now);
  if (ready[0].revents != 0) accept_some(now);
}

std::int64_t Tunnels::wakes_at() const {
  std::int64_t first = -1;
  for (const Place& one : places_) {
    if (one.phase != Phase::kFree && one.until != 0 && (first < 0 || one.until < first))
      first = one.until;
  }
  return first;
}

void Tunnels::accept_some(std::int64_t now) {
  for (int round = 0; round < kTakenAtOnce; ++round) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    Place* place = nullptr;
    for (Place& one : places_) {
      if (one.phase == Phase::kFree) place = &one;
    }
    if (place == nullptr) {
      // NOTE(kernel): closed with something unread it would take our words away with it.
      std::uint8_t drop[4];
      (void)!recv(fd, drop, sizeof drop, MSG_DONTWAIT);
      send(fd, kBusy, sizeof kBusy - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      close(fd);
      continue;
    }
    place->phase = Phase::kAsked;
    place->packets = fd;
    place->stream = -1;
    place->is_agent_gone = place->has_read_end = false;
    place->held = 0;
    place->until = now + kAskMs;
  }
}

void Tunnels::serve(Place& one, bool is_heard, bool is_streaming, std::int64_t now) {
  if (one.phase == Phase::kFree) return;
  if (is_heard && !one.is_agent_gone && !hear(one, now)) return;
  if (one.phase == Phase::kConnecting && is_streaming) look_if_connected(one);
  if (one.phase == Phase::kOpen && (is_heard || is_streaming) && !pump(one)) return end(one, true);
  const bool is_flushed = one.is_agent_gone && one.end.waiting_bytes() == 0;
  if (one.phase == Phase::kOpen && (one.end.is_over() || is_flushed))
    return end(one, !one.end.is_over());
  if (one.phase == Phase::kFree || one.until == 0 || now < one.until) return;
  if (one.phase == Phase::kConnecting) return refuse(one, "it does not take the connection");
  end(one, true);
}

/// False once the place is free.
bool Tunnels::hear(Place& one, std::int64_t now) {
  static std::uint8_t packet[tunnel::kPacketMax + 1];
  for (int round = 0; round < kHeardAtOnce; ++round) {
    const ssize_t got = recv(one.packets, packet, sizeof packet, MSG_DONTWAIT);
    if (got < 0 && is_not_now()) return true;
    if (got <= 0) {
      const bool is_in_order = one.phase == Phase::kOpen && one.end.has_heard_end();
      if (!is_in_order) {
        end(one, true);
        return false;
      }
      close(one.packets);
      one.is_agent_gone = true;
      one.until = now + kFlushMs;
      return true;
    }
    if (!hear_one(one, packet, static_cast<std::size_t>(got), now)) return false;
  }
  return true;
}

/// False once the place is free.
bool Tunnels::hear_one(Place& one, const std::uint8_t* packet, std::size_t size, std::int64_t now) {
  if (one.phase == Phase::kOpen) {
    if (one.end.hear(packet, size) == End::Heard::kFine) return true;
    end(one, true);
    return false;
  }
  if (one.phase == Phase::kAsked && hand_over(one, packet, size, now)) return false;
  const bool asks = one.phase == Phase::kAsked && size == 3 &&
                    packet[0] == static_cast<std::uint8_t>(Kind::kOpen);
  if (!asks) {
    end(one, true);
    return false;
  }
  if (has_room())
    connect_to(one, static_cast<std::uint16_t>(packet[1] << 8 | packet[2]), now);
  else
    refuse(one, kBusy + 1);
  return one.phase != Phase::kFree;
}

/// What is no tunnel. True: its connection is somebody else's now, and the place is free.
bool Tunnels::hand_over(
    Place& one, const std::uint8_t* packet, std::size_t size, std::int64_t now
) {
  const auto kind = static_cast<Kind>(packet[0]);
  const gang_link::Asked asked = gang_link::read_from(packet, size);
  if (kind == Kind::kEnter && size == 1)
    visits_->take(one.packets, now);
  else if (kind == Kind::kAccept && size == gang_link::kAcceptBytes)
    links_->offer(one.packets);
  else if (asked.rank < gang_link::kRanks)
    links_->open(one.packets, asked, now);
  else
    return false;
  one.phase = Phase::kFree;
  return true;
}

/// For one that asks: those that only may ask yet take none from it.
bool Tunnels::has_room() {
  int taken = 0;
  for (const Place& one : places_)
    taken += one.phase == Phase::kConnecting || one.phase == Phase::kOpen ? 1 : 0;
  return taken < kOpenAtOnce;
}

void Tunnels::connect_to(Place& one, std::uint16_t port, std::int64_t now) {
  one.stream = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (one.stream < 0) return refuse(one, strerror(errno));
  const int on = 1;
  setsockopt(one.stream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  one.phase = Phase::kConnecting;
  one.until = now + kConnectMs;
  if (connect(one.stream, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 ||
      errno != EINPROGRESS)
    look_if_connected(one);
}

void Tunnels::look_if_connected(Place& one) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(one.stream, SOL_SOCKET, SO_ERROR, &error, &size);
  sockaddr_in peer{};
  socklen_t peer_size = sizeof peer;
  const bool is_there =
      error == 0 && getpeername(one.stream, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0;
  if (!is_there) {
    const bool is_refused = error == 0 || error == ECONNREFUSED;
    return refuse(one, is_refused ? "nothing listens there on 127.0.0.1" : strerror(error));
  }
  const auto word = static_cast<std::uint8_t>(Kind::kOpened);
  bool is_full = false;
  if (!say(one, &word, 1, is_full) || is_full) return end(one, true);
  one.phase = Phase::kOpen;
  one.until = 0;
  one.end.begin(tunnel::kWindowToUser);
}

/// Whatever can be done now in both directions. False: it broke.
bool Tunnels::pump(Place& one) {
  if (!write_stream(one)) return false;
  if (one.is_agent_gone) return true;
  bool is_full = false;
  std::uint8_t credit[End::kCreditPacket];
  if (const std::size_t size = one.end.credit_packet(credit); size > 0) {
    if (!say(one, credit, size, is_full)) return false;
    if (!is_full) one.end.gave_credit();
  }
  return read_stream(one);
}

bool Tunnels::write_stream(Place& one) {
  while (one.end.waiting_bytes() > 0) {
    const ssize_t put =
        send(one.stream, one.end.waiting(), one.end.waiting_bytes(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0) return is_not_now();
    one.end.wrote(static_cast<std::size_t>(put));
  }
  if (one.end.must_shut()) {
    shutdown(one.stream, SHUT_WR);
    one.end.shut();
  }
  return true;
}

/// From the guest's server to the agent: what waits first, then what is there now.
bool Tunnels::read_stream(Place& one) {
  for (int round = 0; round < kReadAtOnce; ++round) {
    bool is_full = false;
    if (one.held > 0) {
      if (!say(one, one.packet, one.held, is_full)) return false;
      if (is_full) return true;
      one.held = 0;
    }
    if (one.has_read_end) {
      const auto word = static_cast<std::uint8_t>(Kind::kEnd);
      if (one.end.has_sent_end()) return true;
      if (!say(one, &word, 1, is_full)) return false;
      if (!is_full) one.end.sent_end();
      return true;
    }
    const std::size_t most = one.end.may_send();
    if (most == 0) return true;
    const ssize_t got = recv(one.stream, one.packet + 1, most, MSG_DONTWAIT);
    if (got < 0) return is_not_now();
    if (got == 0) {
      one.has_read_end = true;
      continue;
    }
    one.packet[0] = static_cast<std::uint8_t>(Kind::kData);
    one.held = static_cast<std::size_t>(got) + 1;
    one.end.sent(static_cast<std::size_t>(got));
  }
  return true;
}

/// False: the agent is gone. Full: it was not said, and may be said later.
bool Tunnels::say(Place& one, const std::uint8_t* packet, std::size_t size, bool& is_full) {
  const ssize_t put = send(one.packets, packet, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  is_full = put < 0 && is_not_now();
  return put >= 0 || is_full;
}

void Tunnels::refuse(Place& one, const char* words) {
  char packet[1 + tunnel::kWordsMax];
  packet[0] = static_cast<char>(Kind::kRefused);
  const std::size_t size = strnlen(words, tunnel::kWordsMax);
  memcpy(packet + 1, words, size);
  bool is_full = false;
  say(one, reinterpret_cast<const std::uint8_t*>(packet), 1 + size, is_full);
  end(one, false);
}

void Tunnels::end(Place& one, bool is_broken) {
  if (one.stream >= 0) {
    const linger now{is_broken ? 1 : 0, 0};  // who is connected sees a break, and no end
    if (is_broken) setsockopt(one.stream, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(one.stream);
  }
  if (!one.is_agent_gone) close(one.packets);
  one.stream = -1;
  one.phase = Phase::kFree;
}

}  // namespace rn::init
