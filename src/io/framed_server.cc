// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/log.h"
#include "io/errno_error.h"
#include "io/framed_internal.h"
#include "io/net.h"

namespace rn::io {
namespace {

constexpr int kRetryAcceptMs = 100;  ///< pause when the process has no descriptor left

}  // namespace

struct FramedServer::State {
  /// One connection and its thread. `fd` is a duplicate of its descriptor, for shutting it down
  /// from outside; -1 when over.
  struct Slot {
    std::thread thread;
    int fd = -1;
    bool is_stranger = true;  ///< its handshake goes on
    bool is_done = false;
  };

  FramedServerConfig config;
  Handler handler;
  Fd listener;
  Fd wake;
  std::atomic<bool> is_stopping{false};
  std::atomic<std::uint64_t> refused{0};
  mutable std::mutex mutex;  ///< guards what follows
  SslContext context;
  std::list<Slot> slots;
  std::thread acceptor;  ///< set once, joined by the destructor

  void join_finished() {
    std::list<Slot> finished;
    {
      const std::lock_guard lock(mutex);
      for (auto at = slots.begin(); at != slots.end();) {
        const auto next = std::next(at);
        if (at->is_done) finished.splice(finished.end(), slots, at);
        at = next;
      }
    }
    for (Slot& slot : finished) slot.thread.join();
  }

  Result<std::unique_ptr<FramedConnection>> begin(Fd fd) {
    SslContext current;
    {
      const std::lock_guard lock(mutex);
      current = context;
    }
    RN_CHECK(tune_tcp(fd.get(), 0));
    RN_TRY(Channel channel, Channel::tls_server(fd.get(), current));
    const Deadline deadline(config.handshake_timeout);
    return finish_handshake(std::move(fd), std::move(channel), deadline, config.max_frame_bytes);
  }

  /// Runs on the slot's thread. `guard` owns slot.fd.
  void serve(Slot& slot, Fd fd, Fd guard) {
    auto connection = begin(std::move(fd));
    if (connection) {
      {
        const std::lock_guard lock(mutex);
        slot.is_stranger = false;
      }
      handler(**connection);
      connection->reset();
    } else {
      ++refused;
      log::debug("framed.refused", {{"why", connection.error().describe()}});
    }
    const std::lock_guard lock(mutex);
    slot.fd = -1;
    guard.reset();
    slot.is_done = true;
  }

  /// Under `mutex`.
  void make_room_for_a_stranger() {
    const auto is_stranger = [](const Slot& slot) { return slot.is_stranger && !slot.is_done; };
    const auto strangers = std::count_if(slots.begin(), slots.end(), is_stranger);
    if (static_cast<std::size_t>(strangers) < config.max_handshakes) return;
    const auto oldest = std::find_if(slots.begin(), slots.end(), is_stranger);
    if (oldest == slots.end()) return;
    oldest->is_stranger = false;
    (void)shutdown(oldest->fd, SHUT_RDWR);
  }

  void accept_one() {
    Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        pollfd one{wake.get(), POLLIN, 0};
        (void)poll(&one, 1, kRetryAcceptMs);
      }
      return;
    }
    join_finished();
    Fd guard(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    const std::lock_guard lock(mutex);
    if (is_stopping || !guard || slots.size() >= config.max_connections) {
      ++refused;
      return;
    }
    make_room_for_a_stranger();
    Slot& slot = slots.emplace_back();
    slot.fd = guard.get();
    try {
      slot.thread = std::thread([this, &slot, owned = std::move(fd), kept = std::move(guard)](
                                ) mutable { serve(slot, std::move(owned), std::move(kept)); });
    } catch (const std::system_error& error) {
      slots.pop_back();
      ++refused;
      log::warning("framed.no_thread", {{"why", error.what()}});
    }
  }

  void accept_all() {
    while (!is_stopping) {
      pollfd both[2] = {{listener.get(), POLLIN, 0}, {wake.get(), POLLIN, 0}};
      if (poll(both, 2, -1) < 0 && errno != EINTR) return;
      if (is_stopping) return;
      if ((both[0].revents & POLLIN) != 0) accept_one();
    }
  }
};

FramedServer::FramedServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<FramedServer>> FramedServer::start(
    FramedServerConfig config, Handler handler
) {
  (void)std::signal(SIGPIPE, SIG_IGN);  // NOLINT(concurrency-mt-unsafe): idempotent
  auto state = std::make_unique<State>();
  config.tls.require_peer_certificate = true;
  RN_TRY(state->context, make_server_context(config.tls));
  RN_TRY(state->listener, listen_tcp(config.address, config.port));
  state->wake = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state->wake) return fail(error_from_errno(errno, "making an event descriptor"));
  state->config = std::move(config);
  state->handler = std::move(handler);
  state->acceptor = std::thread([raw = state.get()] { raw->accept_all(); });
  return std::unique_ptr<FramedServer>(new FramedServer(std::move(state)));
}

FramedServer::~FramedServer() {
  state_->is_stopping = true;
  const std::uint64_t one = 1;
  (void)!write(state_->wake.get(), &one, sizeof(one));
  state_->acceptor.join();
  {
    const std::lock_guard lock(state_->mutex);
    for (const State::Slot& slot : state_->slots) {
      if (slot.fd >= 0) (void)shutdown(slot.fd, SHUT_RDWR);
    }
  }
  for (State::Slot& slot : state_->slots) slot.thread.join();  // nobody changes the list any more
}

Status FramedServer::reload_tls(const TlsConfig& tls) {
  TlsConfig strict = tls;
  strict.require_peer_certificate = true;
  RN_TRY(SslContext context, make_server_context(strict));
  const std::lock_guard lock(state_->mutex);
  state_->context = std::move(context);
  return {};
}

std::uint16_t FramedServer::port() const {
  return port_of(state_->listener.get());
}

std::size_t FramedServer::connections() const {
  const std::lock_guard lock(state_->mutex);
  std::size_t alive = 0;
  for (const State::Slot& slot : state_->slots) alive += slot.is_done ? 0 : 1;
  return alive;
}

std::uint64_t FramedServer::refused() const {
  return state_->refused;
}

}  // namespace rn::io
