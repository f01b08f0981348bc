// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "coordinator/daemon_config.h"
#include "io/loop.h"

namespace rn::coordinator {

/// The whole coordinator on one loop: store, blobs, keys, core, REST and the agents' WebSockets.
class Daemon {
 public:
  struct Events {
    /// The first admin token of a new site (also in STATE/admin.token, mode 0600).
    std::function<void(const std::string& token)> admin_token;
    /// The process must end: its memory is ahead of the disk.
    std::function<void(const Error&)> fatal;
  };

  /// Opens the state folder and listens. Blocking; before the loop runs. Errors say what to do
  /// next: kCorrupt for a used folder without its database or keys; see SqliteStore::open,
  /// SitePki::open_or_create, io::HttpServer::start.
  static Result<std::unique_ptr<Daemon>> start(
      io::Loop& loop, const DaemonConfig& config, Events events
  );
  ~Daemon();  ///< after the loop has stopped, or on its thread
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// Takes nothing new, waits until everything taken is durable and answered, then calls `done`.
  void drain(std::function<void()> done);

  std::uint16_t port() const;
  std::string ca_fingerprint() const;

 private:
  struct State;
  explicit Daemon(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace rn::coordinator
