// SPDX-License-Identifier: Apache-2.0
#include "io/local_socket.h"

#include <cerrno>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <sys/socket.h>

#include "io/errno_error.h"
#include "io/fd.h"
#include "io/net.h"

namespace rn::io {

namespace {

/// For an accept that failed for want of descriptors.
constexpr milliseconds kAcceptAgain{100};
constexpr int kAcceptedAtOnce = 16;

bool is_not_now(int number) {
  return number == EAGAIN || number == EWOULDBLOCK || number == EINTR;
}

}  // namespace

struct LocalSocket::State : std::enable_shared_from_this<LocalSocket::State> {
  using Descriptor = boost::asio::posix::stream_descriptor;

  State(Loop& loop, Fd fd, bool is_of_packets)
      : descriptor(loop.context(), fd.release()), has_packets(is_of_packets) {}

  void wait(Descriptor::wait_type what, std::function<void()>& fn, bool& is_waiting) {
    if (is_waiting) return;
    is_waiting = true;
    descriptor.async_wait(
        what,
        [self = shared_from_this(), &fn, &is_waiting](const boost::system::error_code&) {
          is_waiting = false;
          const auto callback = std::exchange(fn, nullptr);
          if (callback && !self->is_closed) callback();
        }
    );
  }

  int fd() { return descriptor.native_handle(); }

  void close() {
    is_closed = true;
    readable = writable = nullptr;
    boost::system::error_code ignored;
    descriptor.close(ignored);
  }

  Descriptor descriptor;
  const bool has_packets;
  bool is_closed = false;
  bool awaits_reading = false;
  bool awaits_writing = false;
  std::function<void()> readable;
  std::function<void()> writable;
};

LocalSocket::LocalSocket(std::shared_ptr<State> state) : state_(std::move(state)) {}

LocalSocket::~LocalSocket() {
  state_->close();
}

Result<std::unique_ptr<LocalSocket>> LocalSocket::connect_packets(
    Loop& loop, const std::string& folder, const std::string& name
) {
  RN_TRY(Fd fd, connect_packet_socket(folder, name));
  auto state = std::make_shared<State>(loop, std::move(fd), true);
  return std::unique_ptr<LocalSocket>(new LocalSocket(std::move(state)));
}

Result<SocketRead> LocalSocket::read(std::span<std::uint8_t> out) {
  // NOTE(kernel): of a packet MSG_TRUNC asks for its whole size; of TCP it would drop the bytes.
  const int flags = MSG_DONTWAIT | (state_->has_packets ? MSG_TRUNC : 0);
  const ssize_t got = recv(state_->fd(), out.data(), out.size(), flags);
  if (got < 0 && is_not_now(errno)) return SocketRead{};
  if (got < 0) return fail(error_from_errno(errno, "reading a local connection"));
  if (got == 0) return SocketRead{0, !out.empty()};
  if (static_cast<std::size_t>(got) > out.size())
    return fail(ErrorCode::kInvalid, "a packet of " + std::to_string(got) + " bytes is too long");
  return SocketRead{static_cast<std::size_t>(got), false};
}

Result<std::size_t> LocalSocket::write(BlobView bytes) {
  const ssize_t put = send(state_->fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (put >= 0) return static_cast<std::size_t>(put);
  if (is_not_now(errno)) return std::size_t{0};
  return fail(error_from_errno(errno, "writing to a local connection"));
}

void LocalSocket::when_readable(std::function<void()> fn) {
  state_->readable = std::move(fn);
  state_->wait(State::Descriptor::wait_read, state_->readable, state_->awaits_reading);
}

void LocalSocket::when_writable(std::function<void()> fn) {
  state_->writable = std::move(fn);
  state_->wait(State::Descriptor::wait_write, state_->writable, state_->awaits_writing);
}

void LocalSocket::end_writing() {
  (void)::shutdown(state_->fd(), SHUT_WR);
}

void LocalSocket::reset() {
  const linger now{1, 0};
  (void)setsockopt(state_->fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

struct LocalListener::State {
  State(Loop& owner, Fd fd, Accepted callback)
      : loop(owner), listener(std::move(fd)), accepted(std::move(callback)) {}

  ~State() {
    if (watch) loop.unwatch(*watch);
    loop.cancel(retry);
  }

  Status listen() {
    RN_TRY(watch, loop.watch_readable(listener.get(), [this] { accept_some(); }));
    return {};
  }

  void accept_some() {
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
      Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd) return is_not_now(errno) || errno == ECONNABORTED ? void() : rest();
      (void)tune_tcp(fd.get(), 0);
      auto state = std::make_shared<LocalSocket::State>(loop, std::move(fd), false);
      accepted(std::unique_ptr<LocalSocket>(new LocalSocket(std::move(state))));
    }
  }

  /// The listener stays readable: without a pause it would be asked for ever.
  void rest() {
    if (watch) loop.unwatch(*watch);
    watch.reset();
    retry = loop.run_after(kAcceptAgain, [this] { (void)listen(); });
  }

  Loop& loop;
  Fd listener;
  Accepted accepted;
  std::optional<WatchId> watch;
  TimerId retry;
};

LocalListener::LocalListener(std::unique_ptr<State> state) : state_(std::move(state)) {}

LocalListener::~LocalListener() = default;

Result<std::unique_ptr<LocalListener>> LocalListener::start(
    Loop& loop, std::uint16_t port, Accepted accepted
) {
  RN_TRY(Fd fd, listen_tcp("127.0.0.1", port));
  auto state = std::make_unique<State>(loop, std::move(fd), std::move(accepted));
  RN_CHECK(state->listen());
  return std::unique_ptr<LocalListener>(new LocalListener(std::move(state)));
}

std::uint16_t LocalListener::port() const {
  return port_of(state_->listener.get());
}

}  // namespace rn::io
