// SPDX-License-Identifier: Apache-2.0
#include "io/packet_socket.h"

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "io/errno_error.h"
#include "io/fd.h"
#include "io/net.h"

namespace rn::io {

namespace {

bool is_not_yet(int number) {
  return number == EAGAIN || number == EWOULDBLOCK || number == EINTR;
}

}  // namespace

struct PacketSocket::State {
  explicit State(Fd socket) : fd(std::move(socket)) {}

  Error broken(const char* what) const {
    if (is_shut) return Error{ErrorCode::kUnavailable, "the connection was shut down", ""};
    Error error = error_from_errno(errno, what);
    error.code = ErrorCode::kUnavailable;
    return error;
  }

  const Fd fd;  ///< does not block
  std::atomic<bool> is_shut{false};
};

PacketSocket::PacketSocket(std::unique_ptr<State> state) : state_(std::move(state)) {}

PacketSocket::~PacketSocket() = default;

Result<std::unique_ptr<PacketSocket>> PacketSocket::connect(
    const std::string& folder, const std::string& name
) {
  RN_TRY(Fd fd, connect_packet_socket(folder, name));
  return std::unique_ptr<PacketSocket>(new PacketSocket(std::make_unique<State>(std::move(fd))));
}

Result<std::size_t> PacketSocket::read(std::span<std::uint8_t> out, milliseconds timeout) {
  const Deadline deadline(timeout);
  bool was_reset = false;
  for (;;) {
    // NOTE(kernel): MSG_TRUNC asks for the packet's whole size.
    const ssize_t got = recv(state_->fd.get(), out.data(), out.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (got > static_cast<ssize_t>(out.size()))
      return fail(ErrorCode::kInvalid, "a packet of " + std::to_string(got) + " bytes is too long");
    if (got == 0 && state_->is_shut) return fail(state_->broken("reading packets"));
    if (got >= 0) return static_cast<std::size_t>(got);
    // NOTE(kernel): said once, and before what waits, if the other side has closed it with
    // something unread. What it has said before that is there all the same.
    if (errno == ECONNRESET && !was_reset) {
      was_reset = true;
      continue;
    }
    if (!is_not_yet(errno)) return fail(state_->broken("reading packets"));
    if (!wait_for(state_->fd.get(), POLLIN, deadline))
      return fail(ErrorCode::kTimeout, "no packet came in time");
  }
}

Status PacketSocket::write(BlobView packet, milliseconds timeout) {
  const Deadline deadline(timeout);
  for (;;) {
    const ssize_t put =
        send(state_->fd.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put >= 0) return {};
    if (!is_not_yet(errno)) return fail(state_->broken("writing packets"));
    if (!wait_for(state_->fd.get(), POLLOUT, deadline))
      return fail(ErrorCode::kTimeout, "nobody took a packet in time");
  }
}

void PacketSocket::shut_down() {
  if (state_->is_shut.exchange(true)) return;
  (void)shutdown(state_->fd.get(), SHUT_RDWR);
}

}  // namespace rn::io
