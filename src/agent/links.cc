// SPDX-License-Identifier: Apache-2.0
#include "agent/links.h"

#include <algorithm>

#include <unistd.h>

#include "base/log.h"

namespace rn::agent {

namespace {

constexpr milliseconds kBackoffMin{250};
constexpr milliseconds kBackoffMax{5000};
constexpr seconds kWardenRetry{1};

}  // namespace

CoordinatorLink::CoordinatorLink(
    io::Loop& loop, Rng& rng, std::string url, io::TlsConfig tls, Callbacks callbacks
)
    : loop_(loop),
      rng_(rng),
      url_(std::move(url)),
      tls_(std::move(tls)),
      callbacks_(std::move(callbacks)) {}

CoordinatorLink::~CoordinatorLink() {
  *is_alive_ = false;
  if (connecting_) connecting_->cancel();
  loop_.cancel(timer_);
  if (socket_) socket_->close("agent stops");
}

void CoordinatorLink::start() {
  connect();
}

void CoordinatorLink::set_tls(io::TlsConfig tls) {
  tls_ = std::move(tls);
}

void CoordinatorLink::connect() {
  if (is_given_up_ || socket_) return;
  io::WebSocketClientConfig config;
  config.url = url_;
  config.tls = tls_;
  config.connect_timeout = seconds(5);
  config.limits.max_message_bytes = wire::kMaxMessageBytes;
  config.limits.max_queued_bytes = 4 * wire::kMaxMessageBytes;
  connecting_ = io::WebSocketConnect::start(
      loop_,
      std::move(config),
      [this, alive = is_alive_](Result<std::shared_ptr<io::WebSocket>> socket) {
        if (*alive) opened(std::move(socket));
      }
  );
}

void CoordinatorLink::opened(Result<std::shared_ptr<io::WebSocket>> socket) {
  connecting_.reset();
  if (!socket) {
    const std::string why = socket.error().describe();
    if (why != last_error_)
      log::warning("coordinator.unreachable", {{"url", url_}, {"error", why}});
    last_error_ = why;
    ++failures_;
    schedule(std::nullopt);
    return;
  }
  socket_ = *socket;
  last_error_.clear();
  log::info("coordinator.connected", {{"url", url_}});
  const std::weak_ptr<io::WebSocket> weak = socket_;
  socket_->on_message([this, alive = is_alive_, weak](Blob bytes) {
    if (!*alive || weak.lock() != socket_) return;
    auto message = wire::decode(bytes);
    if (message) {
      failures_ = 0;
      callbacks_.message(*std::move(message));
    } else if (message.error().code != ErrorCode::kUnsupported) {
      log::warning("coordinator.bad_message", {{"error", message.error().describe()}});
    }
  });
  socket_->on_close([this, alive = is_alive_, weak](const Error& error) {
    if (!*alive || weak.lock() != socket_) return;
    lost(error.describe());
    schedule(std::nullopt);
  });
  callbacks_.connected();
}

void CoordinatorLink::lost(const std::string& reason) {
  if (!socket_) return;
  socket_.reset();
  ++failures_;
  last_error_ = reason;
  log::warning("coordinator.disconnected", {{"reason", reason}});
  callbacks_.disconnected(reason);
}

void CoordinatorLink::schedule(std::optional<milliseconds> after) {
  if (is_given_up_) return;
  if (!after) {
    const std::uint32_t doublings = std::min(failures_, 6u);
    const milliseconds full = std::min(kBackoffMax, kBackoffMin * (1 << doublings));
    after = full / 2 + milliseconds(rng_.below(static_cast<std::uint64_t>(full.count() / 2) + 1));
  }
  loop_.cancel(timer_);
  timer_ = loop_.run_after(*after, [this] { connect(); });
}

void CoordinatorLink::send(const wire::Message& message) {
  if (!socket_) return;
  const Status sent = socket_->send(wire::encode(message));
  if (!sent)
    log::warning(
        "coordinator.send_failed",
        {{"message", std::string(wire::name_of(message))}, {"error", sent.error().describe()}}
    );
}

void CoordinatorLink::close(const std::string& reason, std::optional<milliseconds> retry) {
  const std::shared_ptr<io::WebSocket> socket = socket_;
  if (socket) {
    lost(reason);
    socket->close(reason.substr(0, 120));
  }
  schedule(retry);
}

void CoordinatorLink::give_up() {
  is_given_up_ = true;
  loop_.cancel(timer_);
  const std::shared_ptr<io::WebSocket> socket = socket_;
  if (!socket) return;
  lost("given up");
  socket->close("given up");
}

WardenLink::WardenLink(
    io::Loop& loop, std::string path, std::uint32_t warden_uid, Callbacks callbacks
)
    : loop_(loop),
      path_(std::move(path)),
      warden_uid_(warden_uid),
      callbacks_(std::move(callbacks)) {}

WardenLink::~WardenLink() {
  loop_.cancel(timer_);
  if (client_) loop_.unwatch(watch_);
}

void WardenLink::start() {
  connect();
  timer_ = loop_.run_every(kWardenRetry, [this] { connect(); });
}

void WardenLink::connect() {
  if (client_) return;
  auto client = io::FramedUnixClient::connect(path_, warden_wire::kMaxFrameBytes);
  if (client && (*client)->peer().uid != warden_uid_)
    client = fail(
        ErrorCode::kDenied,
        "the process behind " + path_ + " runs as uid " + std::to_string((*client)->peer().uid) +
            ", not as the warden's " + std::to_string(warden_uid_)
    );
  if (!client) {
    const std::string why = client.error().describe();
    if (why != last_error_) log::warning("warden.unreachable", {{"socket", path_}, {"error", why}});
    last_error_ = why;
    return;
  }
  auto watch = loop_.watch_readable((*client)->fd(), [this] { read(); });
  if (!watch) {
    last_error_ = watch.error().describe();
    return;
  }
  last_error_.clear();
  client_ = *std::move(client);
  watch_ = *watch;
  log::info("warden.connected", {{"socket", path_}});
  callbacks_.connected();
}

void WardenLink::read() {
  while (client_) {
    auto frame = client_->receive(milliseconds(0));
    if (!frame) {
      if (frame.error().code != ErrorCode::kTimeout) lost(frame.error().describe());
      return;
    }
    auto reply = warden_wire::decode_reply(frame->body);
    if (reply) {
      callbacks_.reply(*std::move(reply));
    } else if (reply.error().code != ErrorCode::kUnsupported) {
      lost(reply.error().describe());
    }
  }
}

void WardenLink::lost(const std::string& why) {
  if (!client_) return;
  loop_.unwatch(watch_);
  client_.reset();
  log::warning("warden.disconnected", {{"error", why}});
  callbacks_.disconnected();
}

void WardenLink::send(const warden_wire::NumberedRequest& request) {
  if (!client_) return;
  const Status sent = client_->send(kWardenFrame, warden_wire::encode(request));
  if (!sent) lost(sent.error().describe());
}

}  // namespace rn::agent
