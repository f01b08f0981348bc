// SPDX-License-Identifier: Apache-2.0
// What a connection of io costs: memory of a server with many idle WebSockets, CPU of their
// heartbeats, time of an HTTPS call on a kept connection, and bytes per second of framed TLS. All
// over loopback, TLS 1.3 with both certificates; clients are in a process of their own.
//   bench_io [websockets, default 1000]

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench_report.h"
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "io/framed.h"
#include "io/http_client.h"
#include "io/http_server.h"
#include "io/real_clock.h"
#include "io/tls_fixture.h"
#include "io/websocket_client.h"

namespace rn::io {
namespace {

constexpr std::size_t kHeartbeatBytes = 300;
constexpr int kHeartbeatRounds = 10;
constexpr int kCalls = 2000;
constexpr std::size_t kFrameBytes = 4 << 20;
constexpr int kFrames = 256;

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) /
         (1 << 20);
}

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

double seconds_since(Instant start) {
  return std::chrono::duration<double>(RealClock().now().boot - start).count();
}

/// The clients' process: connects `count` times, few at a time, and sends a heartbeat whenever the
/// server says a byte.
class Agents {
 public:
  Agents(const TlsConfig& tls, std::uint16_t port, int count) : count_(count) {
    config_.url = "wss://127.0.0.1:" + std::to_string(port) + "/ws";
    config_.tls = tls;
    config_.connect_timeout = seconds(60);
    config_.limits.idle_timeout = seconds(300);
  }

  void run() {
    for (int i = 0; i < 20; ++i) connect_next();
    loop_.run();
  }

 private:
  void connect_next() {
    if (begun_ == count_) return;
    ++begun_;
    WebSocketConnect::start(loop_, config_, [this](Result<std::shared_ptr<WebSocket>> socket) {
      RN_ASSERT(socket.has_value(), "every agent connects");
      (*socket)->on_message([raw = socket->get()](const Blob&) {
        (void)raw->send(Blob(kHeartbeatBytes));
      });
      (*socket)->on_close([this](const Error&) { loop_.stop(); });
      sockets_.push_back(*socket);
      connect_next();
    });
  }

  Loop loop_;
  WebSocketClientConfig config_;
  const int count_;
  int begun_ = 0;
  std::vector<std::shared_ptr<WebSocket>> sockets_;
};

class WebSocketBench {
 public:
  WebSocketBench(Loop& loop, HttpServer& server, int count) : loop_(loop), count_(count) {
    server
        .serve_websocket("/ws", {}, [this](const HttpRequest&, std::shared_ptr<WebSocket> socket) {
          socket->on_message([this](const Blob&) { on_heartbeat(); });
          sockets_.push_back(std::move(socket));
          if (sockets_.size() == static_cast<std::size_t>(count_)) on_all_connected();
        });
    before_ = resident_mib();
    started_ = RealClock().now().boot;
    cpu_before_ = cpu_seconds();
  }

 private:
  void on_all_connected() {
    // Given a moment, the handshakes' garbage is gone.
    loop_.run_after(seconds(1), [this] {
      const double used = resident_mib() - before_;
      std::printf(
          "websockets: n=%d, server grew by %.1f MiB (%.1f KiB each), accepted in %.2f s, %.2f ms "
          "CPU each\n",
          count_,
          used,
          used * 1024 / count_,
          seconds_since(started_) - 1,
          (cpu_seconds() - cpu_before_) * 1000 / count_
      );
      cpu_before_ = cpu_seconds();
      ask_all();
    });
  }

  void ask_all() {
    answered_ = 0;
    for (const auto& socket : sockets_) (void)socket->send(Blob{1});
  }

  void on_heartbeat() {
    if (++answered_ < count_) return;
    if (++rounds_ < kHeartbeatRounds) return ask_all();
    const double each = (cpu_seconds() - cpu_before_) / (count_ * kHeartbeatRounds);
    std::printf(
        "heartbeats: n=%d of %zu bytes with answer, %.1f us CPU each, so %d nodes each second take "
        "%.1f %% of a core\n",
        count_ * kHeartbeatRounds,
        kHeartbeatBytes,
        each * 1e6,
        count_,
        each * count_ * 100
    );
    std::printf("memory: server after the heartbeats %.1f MiB resident in all\n", resident_mib());
    loop_.stop();
  }

  Loop& loop_;
  const int count_;
  std::vector<std::shared_ptr<WebSocket>> sockets_;
  double before_ = 0;
  double cpu_before_ = 0;
  Instant started_;
  int answered_ = 0;
  int rounds_ = 0;
};

void bench_websockets(const Site& site, int count) {
  const TlsConfig agent = site.client();
  Loop loop;
  HttpServerConfig config;
  config.tls = site.server();
  config.websocket.idle_timeout = seconds(300);
  auto server =
      *HttpServer::start(loop, config, [](const HttpRequest&, const Responder& responder) {
        responder.send(HttpResponse{});
      });
  const pid_t child = fork();
  if (child == 0) {
    const std::uint16_t port = server->port();
    Agents(agent, port, count).run();
    _exit(0);
  }
  const WebSocketBench bench(loop, *server, count);
  loop.run();
  server.reset();
  loop.poll();
  (void)kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

void bench_calls(const Site& site) {
  Loop loop;
  HttpServerConfig config;
  config.tls = site.server();
  const auto server =
      *HttpServer::start(loop, config, [](const HttpRequest&, const Responder& responder) {
        responder.send(json_response(200, "{}"));
      });
  std::thread serving([&] { loop.run(); });
  Loop client_loop;
  HttpClient client(client_loop);
  std::vector<double> took_us;
  const TlsConfig tls = site.client();
  std::function<void()> next = [&] {
    HttpCall call;
    call.url = "https://127.0.0.1:" + std::to_string(server->port()) + "/";
    call.tls = tls;
    client.perform(call, [&, start = RealClock().now().boot](const Result<HttpReply>& reply) {
      RN_ASSERT(reply && reply->is_success(), "every call succeeds");
      took_us.push_back(seconds_since(start) * 1e6);
      took_us.size() < kCalls ? next() : client_loop.stop();
    });
  };
  next();
  client_loop.run();
  loop.stop();
  serving.join();
  std::printf(
      "https call on a kept connection: n=%d, p50 %.0f us, p99 %.0f us\n",
      kCalls,
      bench::quantile(took_us, 0.5),
      bench::quantile(took_us, 0.99)
  );
}

void bench_frames(const Site& site) {
  FramedServerConfig config;
  config.tls = site.server();
  const auto server = *FramedServer::start(config, [](FramedConnection& connection) {
    for (int i = 0; i < kFrames; ++i) {
      if (!connection.receive(seconds(60))) return;
    }
    (void)connection.send(1, {});
  });
  FramedClientConfig client;
  client.host = "127.0.0.1";
  client.port = server->port();
  client.tls = site.client();
  const auto connection = *FramedConnection::connect(client);
  const Blob body(kFrameBytes, 7);
  const Instant start = RealClock().now().boot;
  const double cpu = cpu_seconds();
  for (int i = 0; i < kFrames; ++i)
    RN_ASSERT(connection->send(1, body).has_value(), "frames are sent");
  RN_ASSERT(connection->receive(seconds(60)).has_value(), "the end is told");
  const double megabytes = static_cast<double>(kFrameBytes) * kFrames / 1e6;
  std::printf(
      "framed TLS: n=%d frames of 4 MiB, %.0f MB/s, %.0f MB per CPU second of both ends\n",
      kFrames,
      megabytes / seconds_since(start),
      megabytes / (cpu_seconds() - cpu)
  );
}

}  // namespace
}  // namespace rn::io

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 1000;
  rlimit files{};
  (void)getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &files);
  rn::bench::print_machine("io");
  (void)std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const rn::io::Site site;
  rn::io::bench_websockets(site, count);
  rn::io::bench_calls(site);
  rn::io::bench_frames(site);
}
