// SPDX-License-Identifier: Apache-2.0
#include "io/net.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "io/errno_error.h"
#include "io/real_clock.h"

namespace rn::io {
namespace {

constexpr int kBacklog = 512;

/// The beginning of the kernel's struct tcp_info. The C library's ends before the least round trip,
/// and <linux/tcp.h> cannot be included beside <netinet/tcp.h>.
struct TcpInfoHead {
  std::array<std::uint32_t, 17> before_rtt;
  std::uint32_t rtt_us;
  std::array<std::uint32_t, 12> before_acked;
  std::uint64_t bytes_acked;
  std::array<std::uint32_t, 5> before_min_rtt;
  std::uint32_t min_rtt_us;
};

static_assert(offsetof(TcpInfoHead, rtt_us) == offsetof(tcp_info, tcpi_rtt));
static_assert(offsetof(TcpInfoHead, bytes_acked) == 120);
static_assert(offsetof(TcpInfoHead, min_rtt_us) == 148);

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Result<Address> tcp_address(const std::string& text, std::uint16_t port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.size = sizeof(sockaddr_in);
    return address;
  }
  if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.size = sizeof(sockaddr_in6);
    return address;
  }
  return fail(ErrorCode::kInvalid, "'" + text + "' is not an IP address");
}

Result<Address> unix_address(const std::string& path) {
  Address address;
  auto* local = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (path.empty() || path.size() >= sizeof(local->sun_path)) {
    return fail(
        ErrorCode::kInvalid,
        "the socket path '" + path + "' is empty or too long",
        "use a path of at most 107 bytes"
    );
  }
  local->sun_family = AF_UNIX;
  std::memcpy(local->sun_path, path.c_str(), path.size() + 1);
  address.size = sizeof(sockaddr_un);
  return address;
}

/// Makes way for a new socket file at `path`.
Status remove_stale_socket(const std::string& path, const Address& address) {
  struct stat there {};

  if (lstat(path.c_str(), &there) != 0) return {};
  if (!S_ISSOCK(there.st_mode))
    return fail(ErrorCode::kConflict, path + " exists and is not a socket");
  const Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(probe.get(), address.raw(), address.size) == 0 || errno == EAGAIN)
    return fail(ErrorCode::kConflict, "another process is listening on " + path);
  if (unlink(path.c_str()) != 0) return fail(error_from_errno(errno, "removing the old " + path));
  return {};
}

/// A descriptor that names the socket file itself, whatever its owner puts in its place meanwhile.
Result<Fd> name_socket(const std::string& folder, const std::string& name) {
  const Fd above(open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!above) return fail(error_from_errno(errno, folder));
  Fd found(openat(above.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!found) return fail(error_from_errno(errno, folder + "/" + name));

  struct stat around {};

  struct stat about {};

  if (fstat(above.get(), &around) != 0 || fstat(found.get(), &about) != 0)
    return fail(error_from_errno(errno, folder + "/" + name));
  if (!S_ISSOCK(about.st_mode) || about.st_dev != around.st_dev)
    return fail(ErrorCode::kDenied, folder + "/" + name + " is no socket of the guest's");
  return found;
}

}  // namespace

Deadline::Deadline(milliseconds timeout) : at_(RealClock().now().boot + timeout) {}

int Deadline::remaining_ms() const {
  const nanoseconds left = at_ - RealClock().now().boot;
  const auto rounded = std::chrono::ceil<milliseconds>(left).count();
  return static_cast<int>(std::clamp<std::int64_t>(rounded, 0, 1'000'000'000));
}

bool Deadline::is_over() const {
  return RealClock().now().boot >= at_;
}

Result<Fd> listen_tcp(const std::string& address, std::uint16_t port) {
  RN_TRY(const Address where, tcp_address(address, port));
  Fd fd(socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail(error_from_errno(errno, "making a socket"));
  const int on = 1;
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const std::string what = "listening on " + address + ":" + std::to_string(port);
  if (bind(fd.get(), where.raw(), where.size) != 0 || listen(fd.get(), kBacklog) != 0)
    return fail(error_from_errno(errno, what).hinting("choose another address or port"));
  return fd;
}

Result<Fd> listen_unix(const std::string& path, std::uint32_t mode) {
  RN_TRY(const Address where, unix_address(path));
  RN_CHECK(remove_stale_socket(path, where));
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail(error_from_errno(errno, "making a socket"));
  // NOTE(kernel): the file takes the socket's mode less umask, so it is never wider than `mode`.
  (void)fchmod(fd.get(), static_cast<mode_t>(mode));
  if (bind(fd.get(), where.raw(), where.size) != 0 ||
      chmod(path.c_str(), static_cast<mode_t>(mode)) != 0 || listen(fd.get(), kBacklog) != 0)
    return fail(error_from_errno(errno, "listening on " + path));
  return fd;
}

std::string address_text(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (address->sa_family == AF_UNIX) return "unix";
  if (getnameinfo(
          address,
          size,
          host.data(),
          host.size(),
          port.data(),
          port.size(),
          NI_NUMERICHOST | NI_NUMERICSERV
      ) != 0)
    return "unknown";
  const std::string name = host.data();
  const bool is_v6 = address->sa_family == AF_INET6;
  return (is_v6 ? "[" + name + "]" : name) + ":" + port.data();
}

std::string remote_of(int fd) {
  Address address;
  address.size = sizeof(address.storage);
  if (getpeername(fd, address.raw(), &address.size) != 0) return "unknown";
  return address_text(address.raw(), address.size);
}

std::string local_of(int fd) {
  Address address;
  address.size = sizeof(address.storage);
  if (getsockname(fd, address.raw(), &address.size) != 0) return "unknown";
  return address_text(address.raw(), address.size);
}

std::uint16_t port_of(int fd) {
  Address address;
  address.size = sizeof(address.storage);
  if (getsockname(fd, address.raw(), &address.size) != 0) return 0;
  if (address.storage.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
  if (address.storage.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
  return 0;
}

Status tune_tcp(int fd, std::uint32_t mark) {
  const int on = 1;
  const int idle_s = 30;
  const int interval_s = 10;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
  if (mark != 0 && setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)) != 0)
    return fail(error_from_errno(errno, "marking a socket"));
  return {};
}

Status pace(int fd, std::uint64_t bytes_per_second) {
  const std::uint64_t rate = bytes_per_second == 0 ? ~std::uint64_t{0} : bytes_per_second;
  if (setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate)) != 0)
    return fail(error_from_errno(errno, "pacing a connection"));
  return {};
}

std::uint32_t segment_of(int fd) {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  if (getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &bytes, &size) != 0) return 0;
  return static_cast<std::uint32_t>(std::max(bytes, 0));
}

void bound_unsent(int fd, std::uint32_t bytes) {
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes));
}

std::uint64_t unacknowledged_bytes(int fd) {
  int bytes = 0;
  if (ioctl(fd, SIOCOUTQ, &bytes) != 0) return 0;
  return static_cast<std::uint64_t>(std::max(bytes, 0));
}

TcpSeen look_at_tcp(int fd) {
  TcpInfoHead info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < sizeof(info)) return {};
  TcpSeen seen;
  seen.round_trip.now = std::chrono::microseconds(info.rtt_us);
  if (info.min_rtt_us != ~std::uint32_t{0})
    seen.round_trip.least = std::chrono::microseconds(info.min_rtt_us);
  seen.bytes_acknowledged = info.bytes_acked;
  return seen;
}

std::uint64_t cookie_of(int fd) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

Result<Fd> begin_connect(const sockaddr* address, socklen_t size, std::uint32_t mark) {
  Fd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail(error_from_errno(errno, "making a socket"));
  if (address->sa_family != AF_UNIX) RN_CHECK(tune_tcp(fd.get(), mark));
  if (connect(fd.get(), address, size) != 0 && errno != EINPROGRESS)
    return fail(error_from_errno(errno, "connecting to " + address_text(address, size)));
  return fd;
}

Status connect_result(int fd) {
  int number = 0;
  socklen_t size = sizeof(number);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size) != 0) number = errno;
  if (number == 0) return {};
  Error error = error_from_errno(number, "connecting");
  // Whatever the network said: the peer cannot be reached now.
  if (error.code != ErrorCode::kTimeout) error.code = ErrorCode::kUnavailable;
  return fail(error);
}

Result<Fd> connect_tcp(
    const std::string& host, std::uint16_t port, const Deadline& deadline, std::uint32_t mark
) {
  const std::string what = "connecting to " + host + ":" + std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int looked_up = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (looked_up != 0)
    return fail(ErrorCode::kUnavailable, what + ": " + gai_strerror(looked_up), "check the name");
  const std::unique_ptr<addrinfo, decltype([](addrinfo* list) { freeaddrinfo(list); })> list(found);
  Error last{ErrorCode::kUnavailable, "no address", {}};
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    auto fd = begin_connect(at->ai_addr, at->ai_addrlen, mark);
    if (!fd) {
      last = fd.error();
      continue;
    }
    if (!wait_for(fd->get(), POLLOUT, deadline))
      return fail(ErrorCode::kTimeout, what + ": no answer in time");
    const Status connected = connect_result(fd->get());
    if (connected) return std::move(*fd);
    last = connected.error();
  }
  return fail(last.with(what));
}

Result<Fd> connect_unix(const std::string& path) {
  RN_TRY(const Address where, unix_address(path));
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail(error_from_errno(errno, "making a socket"));
  if (connect(fd.get(), where.raw(), where.size) == 0) return fd;
  Error error = error_from_errno(errno, "connecting to " + path);
  if (errno == EAGAIN) error.code = ErrorCode::kUnavailable;  // its backlog is full
  return fail(error);
}

Result<Fd> connect_packet_socket(const std::string& folder, const std::string& name) {
  RN_TRY(const Fd file, name_socket(folder, name));
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail(error_from_errno(errno, "making a socket"));
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  // Of digits: it fits.
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  std::copy(path.begin(), path.end(), std::begin(where.sun_path));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
    return fail(error_from_errno(errno, folder + "/" + name));
  return fd;
}

bool wait_for(int fd, short events, const Deadline& deadline) {
  pollfd one{fd, events, 0};
  for (;;) {
    const int ready = poll(&one, 1, deadline.remaining_ms());
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return true;  // let the next call on the descriptor tell what is wrong
  }
}

}  // namespace rn::io
