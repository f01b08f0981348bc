// SPDX-License-Identifier: Apache-2.0
#include "agent/kill_client.h"

#include <cerrno>
#include <cstring>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "io/precedence.h"
#include "io/real_clock.h"

namespace rn::agent {

namespace {

constexpr std::uint32_t kStillClearing = 1;
constexpr std::uint32_t kRefused = 3;
constexpr std::uint32_t kOver = 4;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}

  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }

  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int fd() const { return fd_; }

 private:
  int fd_;
};

tl::unexpected<Error> no_warden(const std::string& socket, int code) {
  return fail(
      code == EACCES ? ErrorCode::kDenied : ErrorCode::kUnavailable,
      "the warden does not answer on " + socket + ": " + std::strerror(code),
      code == EACCES ? "run it as root" : "as root: reclaim-kill (it needs no warden)"
  );
}

}  // namespace

Result<warden_wire::KillFrame> send_kill(
    const std::string& socket, std::uint64_t gpu_mask, milliseconds limit
) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.size() >= sizeof address.sun_path)
    return fail(ErrorCode::kInvalid, "the socket's path is too long");
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  const Socket connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (connect(connection.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return no_warden(socket, errno);
  const io::RealClock clock;
  const io::Precedence precedence;  // of root alone; it sleeps until the answer comes
  const Instant begin = clock.now().boot;
  warden_wire::KillFrame frame;
  frame.verb = warden_wire::KillFrame::kCutAndClear;
  frame.gpu_mask = gpu_mask;
  frame.declared_ns = to_ns(begin);
  if (send(connection.fd(), &frame, sizeof frame, MSG_NOSIGNAL) != sizeof frame)
    return no_warden(socket, errno);
  for (;;) {
    const auto left = limit - std::chrono::duration_cast<milliseconds>(clock.now().boot - begin);
    pollfd descriptor{connection.fd(), POLLIN, 0};
    const int ready = left.count() > 0 ? poll(&descriptor, 1, static_cast<int>(left.count())) : 0;
    if (ready == 0)
      return fail(
          ErrorCode::kTimeout,
          "the warden has not said that it is done; if it hangs, nothing is done yet",
          "as root: reclaim-kill (it needs no warden)"
      );
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t got = recv(connection.fd(), &frame, sizeof frame, 0);
    if (got == 0) return no_warden(socket, ECONNRESET);
    if (got < 0) return no_warden(socket, errno);
    if (got != sizeof frame || frame.magic != warden_wire::KillFrame::kMagic)
      return fail(ErrorCode::kInvalid, "the answer on " + socket + " is none of a warden's");
    if (frame.status == kStillClearing) continue;
    if (frame.status == kOver)
      return fail(
          ErrorCode::kConflict,
          "the whole machine was released after this order: nothing was done",
          "give the order again"
      );
    if (frame.status == kRefused)
      return fail(ErrorCode::kDenied, "the warden refused the command", "run it as root");
    return frame;
  }
}

std::string describe_kill(const warden_wire::KillFrame& frame) {
  const auto ms = [&](std::int64_t ns) -> nlohmann::json {
    if (ns == 0) return nullptr;
    return static_cast<double>(ns - frame.declared_ns) / 1e6;
  };
  return nlohmann::json{
      {"status", frame.status == 0 ? "cleared" : "wedged"},
      {"cut_ms", ms(frame.cut_ns)},
      {"killed_ms", ms(frame.killed_ns)},
      {"cleared_ms", ms(frame.cleared_ns)},
      {"processes", frame.processes}}
      .dump();
}

}  // namespace rn::agent
