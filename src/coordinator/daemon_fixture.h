// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: a real coordinator in its own thread, and calls to it.

#include <atomic>
#include <fstream>
#include <functional>
#include <future>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/crypto.h"
#include "coordinator/daemon.h"
#include "coordinator/store_fixture.h"
#include "io/http_client.h"

namespace rn::coordinator {

/// A real coordinator on loopback with its own folder, and calls to it.
class LiveSite {
 public:
  explicit LiveSite(
      const std::string& state = {},
      std::uint32_t finished_jobs_kept = 100,
      reclaim::Topology topology = {},
      std::span<const DashboardFile> dashboard = {},
      NotifyConfig notify = {},
      std::function<void(DaemonConfig&)> adjusts = {}
  )
      : state_(state.empty() ? folder_.path() + "/state" : state),
        finished_jobs_kept_(finished_jobs_kept),
        topology_(std::move(topology)),
        dashboard_(dashboard),
        notify_(std::move(notify)),
        adjusts_(std::move(adjusts)) {
    start();
  }

  ~LiveSite() { stop(); }

  LiveSite(const LiveSite&) = delete;
  LiveSite& operator=(const LiveSite&) = delete;

  void start() {
    DaemonConfig config;
    config.state = state_;
    config.listen_address = "127.0.0.1";
    config.port = 0;
    config.notebooks = ListenPlace{"127.0.0.1", 0};
    config.disk_reserve_bytes = 0;
    config.core.heartbeat_ms = 1000;  // a busy machine's agents are not lost for being slow
    config.core.lost_after = 3;
    config.core.max_finished_jobs_kept = finished_jobs_kept_;
    config.core.topology = topology_;
    config.dashboard = dashboard_;
    config.notify = notify_;
    config.utc_offset_s = [this] {
      ++clock_looks_;
      return 0;
    };
    if (adjusts_) adjusts_(config);
    ASSERT_TRUE(finish_config(config).has_value());
    std::promise<void> is_up;
    thread_ = std::thread([this, config, &is_up] {
      io::Loop loop;
      Daemon::Events events;
      events.fatal = [](const Error& error) { ADD_FAILURE() << error.describe(); };
      auto daemon = Daemon::start(loop, config, events);
      if (!daemon) ADD_FAILURE() << daemon.error().describe();
      if (daemon) url_ = "https://127.0.0.1:" + std::to_string((*daemon)->port());
      if (daemon) fingerprint_ = (*daemon)->ca_fingerprint();
      if (daemon)
        drain_ = [&loop, &daemon] {
          loop.post([&loop, &daemon] { (*daemon)->drain([&loop] { loop.stop(); }); });
        };
      is_up.set_value();
      if (daemon) loop.run();
    });
    is_up.get_future().wait();
    // The first admin token is written once its row is durable.
    for (int i = 0; i < 500 && admin_.empty(); ++i) {
      std::ifstream(state_ + "/admin.token") >> admin_;
      if (admin_.empty()) std::this_thread::sleep_for(milliseconds(10));  // between two looks
    }
  }

  /// How often it has asked for the campus's time zone.
  std::uint32_t clock_looks() const { return clock_looks_; }

  void stop() {
    if (drain_) drain_();
    drain_ = nullptr;
    if (thread_.joinable()) thread_.join();
  }

  /// A call that knows the site and its caller.
  io::HttpCall prepared(
      const std::string& method, const std::string& path, const std::string& token = "admin"
  ) const {
    io::HttpCall one;
    one.method = method;
    one.url = url_ + path;
    one.tls = io::TlsConfig{};
    one.tls->ca_fingerprint = fingerprint_;
    one.tls->expected_peer = "spiffe://reclaimnet/coordinator";
    if (!token.empty())
      one.headers = {{"Authorization", "Bearer " + (token == "admin" ? admin_ : token)}};
    return one;
  }

  io::HttpReply call(
      const std::string& method,
      const std::string& path,
      const std::string& body = {},
      const std::string& token = "admin"
  ) const {
    io::HttpCall one = prepared(method, path, token);
    one.body = body;
    if (!key_.empty()) one.headers.emplace_back("Idempotency-Key", key_);
    auto reply = io::perform_blocking(one);
    EXPECT_TRUE(reply.has_value()) << reply.error().describe();
    return reply ? *reply : io::HttpReply{};
  }

  std::string make_token(const std::string& body) const {
    const auto reply = call("POST", "/v1/tokens", body);
    EXPECT_EQ(reply.status, 201) << reply.body;
    return nlohmann::json::parse(reply.body)["token"];
  }

  /// Uploads a blob and answers its name.
  std::string put(const std::string& bytes) const {
    const std::string name = to_hex(crypto::sha256(as_bytes(bytes)));
    EXPECT_EQ(call("PUT", "/v1/blobs/" + name, bytes).status, 204);
    return name;
  }

  std::string add_base_image() const {
    const std::string archive = "\x1f\x8b, an archive";
    const std::string piece = put(archive);
    const nlohmann::json body = {
        {"name", "base"},
        {"digest", "sha256:" + piece},
        {"bytes", archive.size()},
        {"blobs", {piece}}};
    EXPECT_EQ(call("POST", "/v1/images", body.dump()).status, 201);
    return "sha256:" + piece;
  }

  /// Job 1 once it is so. A failure of the test if it does not come to that.
  nlohmann::json job_when(const std::function<bool(const nlohmann::json&)>& is_so) const {
    nlohmann::json job;
    for (int i = 0; i < 2000; ++i) {
      job = nlohmann::json::parse(call("GET", "/v1/jobs/1").body);
      if (is_so(job)) return job;
      std::this_thread::sleep_for(milliseconds(10));  // between two looks
    }
    ADD_FAILURE() << "it did not come to that: " << job;
    return job;
  }

  nlohmann::json job_when(const std::string& state) const {
    return job_when([&state](const nlohmann::json& job) { return job["state"] == state; });
  }

  void use_key(const std::string& key) { key_ = key; }

  const std::string& url() const { return url_; }

  const std::string& admin() const { return admin_; }

  std::string agent_url() const { return "wss" + url_.substr(5) + "/v1/agent"; }

  const std::string& state() const { return state_; }

 private:
  ScratchFolder folder_;
  std::string state_;
  std::uint32_t finished_jobs_kept_;
  reclaim::Topology topology_;
  std::span<const DashboardFile> dashboard_;
  NotifyConfig notify_;
  std::function<void(DaemonConfig&)> adjusts_;  ///< at each start, before it is finished
  std::atomic<std::uint32_t> clock_looks_ = 0;
  std::string url_;
  std::string fingerprint_;
  std::string admin_;
  std::string key_;
  std::function<void()> drain_;
  std::thread thread_;
};

}  // namespace rn::coordinator
