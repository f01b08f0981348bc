// SPDX-License-Identifier: Apache-2.0
#include "io/http_server.h"

#include <cerrno>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "io/http_server_internal.h"
#include "io/net.h"

namespace rn::io {
namespace {

constexpr int kAcceptsPerTurn = 32;
constexpr std::size_t kRefusingConnections = 64;  ///< beyond the bound, to answer 503 properly
constexpr milliseconds kRetryAccept(100);         ///< pause when the process has no descriptor left

}  // namespace

struct HttpServer::State {
  std::shared_ptr<HttpServerCore> core;
  Fd listener;
  std::optional<WatchId> watch;
  TimerId retry;

  Status listen() {
    RN_TRY(const WatchId id, core->loop.watch_readable(listener.get(), [this] { accept_some(); }));
    watch = id;
    return {};
  }

  void accept_some() {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd) {
        serve(std::move(fd));
        continue;
      }
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause();
      return;
    }
  }

  /// The waiting connection would wake the loop again and again.
  void pause() {
    log::warning("http.no_descriptors", {{"connections", std::uint64_t{core->connections.size()}}});
    core->loop.unwatch(*watch);
    watch.reset();
    retry = core->loop.run_after(kRetryAccept, [this] {
      const Status again = listen();
      if (!again) log::error("http.listener_lost", {{"why", again.error().describe()}});
    });
  }

  void serve(Fd fd) {
    const std::size_t count = core->count();
    if (count >= core->config.max_connections + kRefusingConnections) return;
    if (core->config.unix_path.empty()) (void)tune_tcp(fd.get(), 0);
    auto channel = core->tls ? Channel::tls_server(fd.get(), core->tls)
                             : Result<Channel>(Channel::plain(fd.get()));
    if (!channel) return;
    const std::uint64_t id = core->next_id++;
    const bool is_refusing = count >= core->config.max_connections;
    auto connection =
        make_http_connection(core, id, std::move(fd), std::move(*channel), is_refusing);
    core->connections[id] = connection;
    connection->start();
  }
};

HttpServer::HttpServer(std::shared_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::start(
    Loop& loop, HttpServerConfig config, HttpHandler handler
) {
  auto state = std::make_shared<State>();
  SslContext tls;
  if (config.tls) {
    RN_TRY(tls, make_server_context(*config.tls));
  }
  if (config.unix_path.empty()) {
    RN_TRY(state->listener, listen_tcp(config.address, config.port));
  } else {
    RN_TRY(state->listener, listen_unix(config.unix_path, config.unix_mode));
  }
  state->core = std::make_shared<HttpServerCore>(loop, std::move(config), std::move(handler));
  state->core->tls = std::move(tls);
  RN_CHECK(state->listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::~HttpServer() {
  HttpServerCore& core = *state_->core;
  core.is_stopped = true;
  if (state_->watch) core.loop.unwatch(*state_->watch);
  core.loop.cancel(state_->retry);
  while (!core.connections.empty()) {
    const auto connection = core.connections.begin()->second;
    connection->close();
  }
  for (const auto& [id, websocket] : core.websockets) {
    if (const auto alive = websocket.lock()) alive->close_at_once();
  }
  const auto given_away = core.given_away;  // each leaves the map as it is closed
  for (const auto& [id, one] : given_away) {
    if (const auto alive = one.lock()) alive->close();
  }
  if (!core.config.unix_path.empty()) (void)unlink(core.config.unix_path.c_str());
}

void HttpServer::serve_websocket(
    const std::string& path,
    std::function<Status(const HttpRequest&)> admit,
    std::function<void(const HttpRequest&, std::shared_ptr<WebSocket>)> opened
) {
  state_->core->routes[path] = HttpServerCore::Route{std::move(admit), std::move(opened)};
}

void HttpServer::give_away(
    std::function<bool(const HttpRequest&)> wants,
    std::function<void(HttpRequest, std::shared_ptr<TakenConnection>)> taken
) {
  state_->core->wants = std::move(wants);
  state_->core->taken = std::move(taken);
}

Status HttpServer::reload_tls(const TlsConfig& tls) {
  RN_TRY(SslContext context, make_server_context(tls));
  state_->core->tls = std::move(context);
  return {};
}

std::uint16_t HttpServer::port() const {
  return port_of(state_->listener.get());
}

std::size_t HttpServer::connections() const {
  return state_->core->count();
}

}  // namespace rn::io
