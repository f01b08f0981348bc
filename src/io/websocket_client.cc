// SPDX-License-Identifier: Apache-2.0
#include "io/websocket_client.h"

#include <optional>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "io/net.h"
#include "io/socket_stream.h"
#include "io/tls.h"
#include "io/url.h"
#include "io/websocket_session.h"

namespace rn::io {

using boost::asio::ip::tcp;
using error_code = boost::system::error_code;

/// From name lookup to the accepted upgrade. Kept alive by the operation that is under way.
struct WebSocketConnect::State : std::enable_shared_from_this<WebSocketConnect::State> {
  State(Loop& owner, WebSocketClientConfig settings, Opened callback)
      : loop(owner),
        config(std::move(settings)),
        opened(std::move(callback)),
        resolver(owner.context()) {}

  Loop& loop;
  WebSocketClientConfig config;
  Opened opened;  ///< empty once it was called or cancelled
  Url url;
  SslContext tls;
  tcp::resolver resolver;
  tcp::resolver::results_type addresses;
  tcp::resolver::results_type::iterator next;
  Error last{ErrorCode::kUnavailable, "no address", {}};
  std::optional<SocketStream> stream;
  std::shared_ptr<WebSocketSession> session;  ///< while it is opening
  TimerId deadline;

  void begin() {
    deadline = loop.run_after(config.connect_timeout, [self = shared_from_this()] {
      self->finish(fail(ErrorCode::kTimeout, self->config.url + " did not answer in time"));
    });
    const Status prepared = prepare();
    if (!prepared) {
      loop.post([self = shared_from_this(), error = prepared.error()] { self->finish(fail(error)); }
      );
      return;
    }
    resolver.async_resolve(
        url.host,
        std::to_string(url.port),
        [self = shared_from_this()](error_code error, tcp::resolver::results_type found) {
          if (!self->opened) return;
          if (error) {
            return self->finish(fail(
                ErrorCode::kUnavailable,
                "looking up " + self->url.host + ": " + error.message(),
                "check the address"
            ));
          }
          self->addresses = std::move(found);
          self->next = self->addresses.begin();
          self->try_next();
        }
    );
  }

  Status prepare() {
    RN_TRY(url, parse_url(config.url));
    if (url.scheme == "wss") {
      RN_TRY(tls, make_client_context(config.tls, url.host));
      return {};
    }
    if (url.scheme == "ws") return {};
    return fail(ErrorCode::kInvalid, "'" + config.url + "' is neither wss nor ws");
  }

  void try_next() {
    while (next != addresses.end()) {
      const tcp::endpoint endpoint = (next++)->endpoint();
      auto connecting = open(endpoint);
      if (connecting) {
        stream = std::move(*connecting);
        await_connection();
        return;
      }
      last = connecting.error();
    }
    finish(fail(last.with(config.url)));
  }

  Result<SocketStream> open(const tcp::endpoint& endpoint) {
    RN_TRY(
        Fd fd,
        begin_connect(endpoint.data(), static_cast<socklen_t>(endpoint.size()), config.socket_mark)
    );
    const int raw = fd.get();
    if (!tls) return SocketStream(loop.context(), std::move(fd), Channel::plain(raw));
    RN_TRY(Channel channel, Channel::tls_client(raw, tls, url.host));
    return SocketStream(loop.context(), std::move(fd), std::move(channel));
  }

  void await_connection() {
    stream->async_wait_writable([self = shared_from_this()](error_code) {
      if (!self->opened || !self->stream) return;
      const Status connected = connect_result(self->stream->fd());
      if (connected) return self->shake_hands();
      self->last = connected.error();
      self->try_next();
    });
  }

  void shake_hands() {
    stream->async_handshake([self = shared_from_this()](error_code error, std::size_t) {
      if (!self->opened || !self->stream) return;
      if (error) return self->finish(fail(self->stream->channel().error().with(self->config.url)));
      self->upgrade();
    });
  }

  void upgrade() {
    WebSocketPeer peer{stream->channel().peer_identity(), remote_of(stream->fd())};
    session = request_websocket(
        loop,
        *std::exchange(stream, std::nullopt),
        url.authority,
        url.target,
        config.headers,
        config.limits,
        std::move(peer),
        [self = shared_from_this()](Result<std::shared_ptr<WebSocketSession>> ready) {
          self->session.reset();
          if (!self->opened) return ready ? (*ready)->close_at_once() : void();
          if (ready) return self->finish(std::static_pointer_cast<WebSocket>(*ready));
          self->finish(fail(ready.error().with(self->config.url)));
        }
    );
  }

  void finish(Result<std::shared_ptr<WebSocket>> result) {
    const Opened callback = std::exchange(opened, nullptr);
    stop();
    if (callback) callback(std::move(result));
  }

  void stop() {
    opened = nullptr;
    loop.cancel(deadline);
    resolver.cancel();
    if (stream) stream->close_now();
    if (const auto opening = std::exchange(session, nullptr)) opening->close_at_once();
  }
};

WebSocketConnect WebSocketConnect::start(Loop& loop, WebSocketClientConfig config, Opened opened) {
  auto state = std::make_shared<State>(loop, std::move(config), std::move(opened));
  state->begin();
  return WebSocketConnect(std::move(state));
}

void WebSocketConnect::cancel() {
  state_->stop();
}

}  // namespace rn::io
