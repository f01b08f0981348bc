// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "agent/config.h"
#include "base/error.h"
#include "io/loop.h"

namespace rn::agent {

/// The agent's shell: journal, links, workers, servers and telemetry around the core. One loop
/// thread owns the core; writes are durable before effects are carried out (ADR 0001).
class Daemon {
 public:
  /// Opens the state, recovers the core and starts everything. kNotFound: not joined; kConflict:
  /// another agent uses the state folder, or an address is taken. Blocking.
  static Result<std::unique_ptr<Daemon>> start(AgentConfig config);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// Until a signal (TERM, INT), until the node has left for good, or until the journal fails (the
  /// error).
  Status run();
  void stop();       ///< any thread
  io::Loop& loop();  ///< the daemon's own; before run()

  std::uint16_t peer_port() const;
  std::uint16_t api_port() const;

  class State;
  explicit Daemon(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

}  // namespace rn::agent
