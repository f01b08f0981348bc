// SPDX-License-Identifier: Apache-2.0
// How fast pieces of an image come over HTTPS, as an agent brings one from the coordinator: 4 MiB
// a piece, TLS 1.3 with both certificates, over loopback; server and clients are one process, so
// that both ends share the machine. MB/s of a new connection for each piece, of a kept one, and of
// several kept ones at once; each row with and without hashing what came.
//   bench_blobs [pieces, default 64]

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench_report.h"

#include "base/assert.h"
#include "base/crypto.h"
#include "io/http_client.h"
#include "io/http_server.h"
#include "io/real_clock.h"
#include "io/tls_fixture.h"

namespace rn::io {
namespace {

constexpr std::size_t kPieceBytes = 4 << 20;

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

double ms_since(Instant start) {
  return std::chrono::duration<double, std::milli>(RealClock().now().boot - start).count();
}

using Get = std::function<Result<HttpReply>(const HttpCall&)>;

/// `pieces` calls by `sessions` threads, each with a Get of its own.
void measure(
    const char* what,
    int sessions,
    int pieces,
    bool is_hashed,
    const HttpCall& call,
    const std::function<Get()>& make_get
) {
  std::vector<std::vector<double>> took_ms(static_cast<std::size_t>(sessions));
  std::atomic<int> next = 0;
  const Instant start = RealClock().now().boot;
  const double cpu = cpu_seconds();
  std::vector<std::thread> threads;
  for (auto& mine : took_ms) {
    threads.emplace_back([&] {
      const Get get = make_get();
      while (next++ < pieces) {
        const Instant begun = RealClock().now().boot;
        const auto reply = get(call);
        RN_ASSERT(reply && reply->body.size() == kPieceBytes, "every piece comes whole");
        if (is_hashed) (void)crypto::sha256(as_bytes(reply->body));
        mine.push_back(ms_since(begun));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const double megabytes = static_cast<double>(kPieceBytes) * pieces / 1e6;
  const double seconds = ms_since(start) / 1000;
  std::vector<double> all;
  for (const auto& mine : took_ms) all.insert(all.end(), mine.begin(), mine.end());
  std::printf(
      "%-32s%-9s n=%d, %4.0f MB/s, %4.0f MB per CPU second of both ends, each p50 %.1f ms, p99 "
      "%.1f ms\n",
      what,
      is_hashed ? "hashed" : "",
      pieces,
      megabytes / seconds,
      megabytes / (cpu_seconds() - cpu),
      bench::quantile(all, 0.5),
      bench::quantile(all, 0.99)
  );
}

void bench(int pieces) {
  const Site site;
  Loop loop;
  HttpServerConfig config;
  config.tls = site.server();
  const std::string piece(kPieceBytes, 'x');
  auto server =
      *HttpServer::start(loop, config, [&](const HttpRequest&, const Responder& responder) {
        HttpResponse response;
        response.body = piece;
        responder.send(std::move(response));
      });
  std::thread serving([&] { loop.run(); });
  HttpCall call;
  call.url = "https://127.0.0.1:" + std::to_string(server->port()) + "/";
  call.tls = site.client();
  for (const bool is_hashed : {false}) {
    measure("a new connection for each", 1, pieces, is_hashed, call, [] {
      return Get(perform_blocking);
    });
    const auto kept = [] {
      return Get([session = std::make_shared<HttpSession>()](const HttpCall& one) {
        return session->perform(one);
      });
    };
    measure("one kept connection", 1, pieces, is_hashed, call, kept);
    measure("two kept connections at once", 2, pieces, is_hashed, call, kept);
    measure("three kept connections at once", 3, pieces, is_hashed, call, kept);
  }
  loop.stop();
  serving.join();
  server.reset();
}

}  // namespace
}  // namespace rn::io

int main(int argc, char** argv) {
  rn::bench::print_machine("blobs over HTTPS");
  rn::io::bench(argc > 1 ? std::atoi(argv[1]) : 64);
}
