// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <sys/socket.h>

#include "base/error.h"
#include "base/time.h"
#include "io/fd.h"
#include "io/round_trip.h"

// Private to io: sockets made and named. All descriptors are O_CLOEXEC and O_NONBLOCK.
namespace rn::io {

/// Blocking calls' common deadline.
class Deadline {
 public:
  explicit Deadline(milliseconds timeout);
  int remaining_ms() const;  ///< ≥ 0, rounded up; what poll(2) takes
  bool is_over() const;

 private:
  Instant at_;
};

/// kInvalid for a bad address, kConflict if it is taken. Port 0: the kernel chooses.
Result<Fd> listen_tcp(const std::string& address, std::uint16_t port);
/// Replaces a stale socket file. kConflict if somebody listens there or the file is something else.
Result<Fd> listen_unix(const std::string& path, std::uint32_t mode);
std::uint16_t port_of(int fd);  ///< own port, 0 for Unix sockets
std::string remote_of(int fd);  ///< "192.0.2.1:4711", "[2001:db8::1]:4711" or "unix"
std::string local_of(int fd);   ///< the own end, in the same way
std::string address_text(const sockaddr* address, socklen_t size);
/// TCP_NODELAY and keepalive; SO_MARK when `mark` is not 0 (kDenied without CAP_NET_ADMIN).
Status tune_tcp(int fd, std::uint32_t mark);

/// SO_MAX_PACING_RATE: fq, or TCP's own pacing. 0: no limit. At once, also for what is queued.
Status pace(int fd, std::uint64_t bytes_per_second);
/// TCP_MAXSEG: payload of its packets; 0 if unknown.
std::uint32_t segment_of(int fd);
/// TCP_NOTSENT_LOWAT: it takes more only while less than that waits in the kernel to be sent.
void bound_unsent(int fd, std::uint32_t bytes);
/// In the socket's send queue, and not acknowledged by the peer; 0 if unknown.
std::uint64_t unacknowledged_bytes(int fd);

struct TcpSeen {
  RoundTrip round_trip;
  std::uint64_t bytes_acknowledged = 0;  ///< payload that the peer has, since the connection began
};

/// Zeros where the kernel does not know, or the descriptor is none of TCP.
TcpSeen look_at_tcp(int fd);
/// The kernel's own number of the socket, which no other ever has; 0 if it is none.
std::uint64_t cookie_of(int fd);

/// Begins to connect. The connection is there when the descriptor is writable and connect_result()
/// has no error.
Result<Fd> begin_connect(const sockaddr* address, socklen_t size, std::uint32_t mark);
Status connect_result(int fd);
/// Name lookup and connection, blocking. kUnavailable, kTimeout. NOTE: the lookup has libc's own
/// timeout.
Result<Fd> connect_tcp(
    const std::string& host, std::uint16_t port, const Deadline& deadline, std::uint32_t mark
);
/// kNotFound: no such file; kUnavailable: nobody listens.
Result<Fd> connect_unix(const std::string& path);
/// To the packet socket `name` in `folder`, whose owner is not trusted: no link is followed, and
/// what is no socket of that folder's file system is refused. kNotFound: there is none;
/// kUnavailable: nobody listens; kExhausted: too many wait; kDenied: it is something else.
Result<Fd> connect_packet_socket(const std::string& folder, const std::string& name);
/// poll(2) for POLLIN or POLLOUT. False: the deadline is over.
bool wait_for(int fd, short events, const Deadline& deadline);

}  // namespace rn::io
