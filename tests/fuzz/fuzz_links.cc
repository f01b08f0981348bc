// SPDX-License-Identifier: Apache-2.0
// Whatever an agent says to PID 1 of a gang's member on its links, and whatever the guest's
// programs do meanwhile: what it says is a packet of its own, bytes stay in order on each link, and
// of ended links nothing is left. The guest's own network, which the warden makes, is played.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "init_log.h"
#include "links.h"
#include "listener.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"

namespace played {

constexpr std::uint32_t kOwnRank = 1;
constexpr std::uint32_t kOther = 2;

/// Programs' ends of what PID 1 has accepted, and of what it has connected to.
std::vector<int> accepted;
std::vector<int> reached;
int connecting = 0;  ///< programs that wait at the listener
bool refuses = false;

int stream_to(std::vector<int>& programs) {
  int both[2];
  const int made = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both);
  RN_ASSERT(made == 0, "there are descriptors");
  programs.push_back(both[0]);
  return both[1];
}

int listener(const void*) {
  return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int accept_at(int) {
  if (connecting > 0) {
    --connecting;
    return stream_to(accepted);
  }
  errno = EAGAIN;
  return -1;
}

int bind_to(const void*) {
  return 0;
}

int connect_to(const void*) {
  if (!refuses) return 0;
  errno = ECONNREFUSED;
  return -1;
}

int option(int fd, int level, int name, void* value, socklen_t* size) {
  if (level != IPPROTO_IP) return getsockopt(fd, level, name, value, size);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(29'500);
  to.sin_addr.s_addr = htonl(rn::gang_link::address_of(kOther));
  std::memcpy(value, &to, sizeof to);
  return 0;
}

}  // namespace played

// PID 1's own file, with these in the places of the kernel's.
#define listen_at(name, size, type, places) played::listener(name)
#define accept4(fd, name, size, flags) played::accept_at(fd)
#define getsockopt(fd, level, name, value, size) played::option(fd, level, name, value, size)
#define socket(family, type, protocol) played::stream_to(played::reached)
#define bind(fd, name, size) played::bind_to(name)
#define connect(fd, name, size) played::connect_to(name)
#include "links.cc"  // NOLINT(bugprone-suspicious-include): with what is played
#undef listen_at
#undef accept4
#undef getsockopt
#undef socket
#undef bind
#undef connect

namespace {

using rn::gang_link::kDataMax;
using rn::init::Links;
using rn::tunnel::Kind;

/// With the steps, so that descriptors suffice: whoever is refused makes a new one at each.
constexpr std::size_t kAgentsMax = 8;
constexpr int kStepsMax = 60;

/// One connection of the agent's, and the program at its other side, if it is known.
struct Way {
  int agent = -1;
  int program = -1;
  std::string said;    ///< by the agent
  std::string wrote;   ///< by the program
  std::size_t in = 0;  ///< of `said`, that the program has
  std::size_t out = 0;
};

class Talk {
 public:
  Talk() {
    if (!links.is_on()) RN_ASSERT(links.begin(played::kOwnRank), "it listens");
  }

  ~Talk() {
    for (Way& way : ways_) {
      hang_up(way);
      way.program = -1;
    }
    close_programs();
    played::connecting = 0;
    played::refuses = false;
    for (int i = 0; i < 4; ++i) step(200'000);
    close_programs();
    std::array<pollfd, Links::kPolled> left{};
    links.fill(left.data());
    for (const pollfd& one : left) RN_ASSERT(one.fd < 0, "nothing is left of what has ended");
    RN_ASSERT(links.wakes_at() == -1, "and nothing is waited for");
  }

  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  void begin(std::uint32_t rank, bool is_offer) {
    if (ways_.size() >= kAgentsMax) return;
    int both[2];
    const int made = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, both);
    RN_ASSERT(made == 0, "there are descriptors");
    Way& way = ways_.emplace_back();
    way.agent = both[0];
    const std::size_t before = played::reached.size();
    if (is_offer) return links.offer(both[1]);
    links.open(both[1], rn::gang_link::asked_of(rank, 80), now_);
    const bool is_reached = played::reached.size() > before && !played::refuses;
    if (is_reached) way.program = played::reached.back();
  }

  Way* at(std::size_t number) { return ways_.empty() ? nullptr : &ways_[number % ways_.size()]; }

  static void say(Way& way, const std::uint8_t* packet, std::size_t size) {
    if (way.agent < 0 || size == 0) return;
    const ssize_t put = send(way.agent, packet, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    const bool is_data = packet[0] == static_cast<std::uint8_t>(Kind::kData);
    if (put > 0 && is_data) way.said.append(packet + 1, packet + size);
  }

  static void write(Way& way, const std::uint8_t* bytes, std::size_t size) {
    if (way.program < 0) return;
    const ssize_t put = send(way.program, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) way.wrote.append(bytes, bytes + put);
  }

  static void hang_up(Way& way) {
    if (way.agent >= 0) close(way.agent);
    way.agent = -1;
  }

  void step(std::int64_t ms) {
    now_ += ms;
    std::array<pollfd, Links::kPolled> ready{};
    links.fill(ready.data());
    poll(ready.data(), ready.size(), 0);
    // /dev/null is always readable: the listener is what is played.
    if (ready[0].fd >= 0) ready[0].revents = played::connecting > 0 ? POLLIN : 0;
    links.step(ready.data(), now_);
    for (Way& way : ways_) look(way);
  }

 private:
  static void close_programs() {
    for (std::vector<int>* const programs : {&played::accepted, &played::reached}) {
      for (const int fd : *programs) close(fd);
      programs->clear();
    }
  }

  static void look(Way& way) {
    std::array<std::uint8_t, rn::tunnel::kPacketMax + 1> bytes{};
    while (way.agent >= 0) {
      const ssize_t got = recv(way.agent, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got <= 0) break;
      heard(way, bytes.data(), static_cast<std::size_t>(got));
    }
    while (way.program >= 0) {
      const ssize_t got = recv(way.program, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got <= 0) break;
      const std::string piece(bytes.data(), bytes.data() + got);
      RN_ASSERT(way.said.compare(way.in, piece.size(), piece) == 0, "bytes stay in order");
      way.in += piece.size();
    }
  }

  static void heard(Way& way, const std::uint8_t* packet, std::size_t size) {
    const auto kind = static_cast<Kind>(packet[0]);
    if (kind == Kind::kDial) {
      const rn::gang_link::Asked asked = rn::gang_link::read_dial(packet, size);
      RN_ASSERT(asked.rank == played::kOther && asked.port == 29'500, "it is another member's");
      way.program = played::accepted.back();
    } else if (kind == Kind::kData) {
      RN_ASSERT(size > 1 && size <= kDataMax + 1, "a packet of data is bounded");
      const std::string piece(packet + 1, packet + size);
      RN_ASSERT(way.wrote.compare(way.out, piece.size(), piece) == 0, "bytes stay in order");
      way.out += piece.size();
    } else if (kind == Kind::kRefused) {
      RN_ASSERT(size <= 1 + rn::tunnel::kWordsMax, "words are bounded");
    } else {
      RN_ASSERT((kind == Kind::kOpened || kind == Kind::kEnd) && size == 1, "a packet is known");
    }
  }

  // What it keeps is static, as PID 1 has one.
  static inline Links links;

  std::vector<Way> ways_;
  std::int64_t now_ = 1000;
};

}  // namespace

/// Steps: what is done, by whom, and so many bytes, which follow where they are said or written.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Talk talk;
  int steps = 0;
  while (size >= 4 && ++steps <= kStepsMax) {
    const std::uint8_t what = data[0] % 8;
    Way* const way = talk.at(data[1]);
    const std::size_t asked = std::size_t{data[2]} << 8 | data[3];
    data += 4;
    size -= 4;
    const std::size_t length = std::min(asked, size);
    const bool has_bytes = what == 2 || what == 3;
    if (what == 0) talk.begin(0, true);
    if (what == 1) {
      played::refuses = asked % 4 == 0;
      talk.begin(static_cast<std::uint32_t>(asked >> 8) % 40, false);
    }
    if (what == 2 && way != nullptr) Talk::say(*way, data, length);
    if (what == 3 && way != nullptr) Talk::write(*way, data, length);
    if (what == 4 && way != nullptr && way->program >= 0) shutdown(way->program, SHUT_WR);
    if (what == 5) played::connecting = 1;
    if (what == 7 && way != nullptr) Talk::hang_up(*way);
    if (has_bytes) {
      data += length;
      size -= length;
    }
    talk.step(what == 6 ? static_cast<std::int64_t>(asked) : 1);
  }
  return 0;
}
