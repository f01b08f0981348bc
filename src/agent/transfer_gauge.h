// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "io/framed.h"
#include "io/session_sockets.h"

namespace rn::agent {

/// What the node knows of one copy's socket, for whoever paces or polices it.
struct TransferSocket {
  std::string local;           ///< "192.0.2.1:4711"; empty while it is not connected
  std::string remote;          ///< the peer's data port, in the same way
  std::uint64_t rate_bps = 0;  ///< 0 = no limit
};

/// One copy under way, or outputs on their way to the coordinator, between the worker that sends it
/// and the loop that says how fast. Thread-safe: `mutex_` guards everything, and is never held
/// while something blocks.
class TransferGauge {
 public:
  /// `rate_bps` 0 = no limit.
  explicit TransferGauge(std::uint64_t rate_bps) : rate_bps_(rate_bps) {}

  // The worker's side. What was attached is detached before it is destroyed.
  void attach(io::FramedConnection& connection);
  void attach(io::SessionSockets& sockets);
  void detach();
  /// What is not handed to the connection yet; nullopt: not known.
  void set_left(std::optional<std::uint64_t> bytes);

  // The loop's side.
  /// Paces the connection at once, and those that are attached later. 0 = no limit.
  void set_rate(std::uint64_t rate_bps);

  struct Seen {
    std::optional<std::uint64_t> bytes_left;  ///< that the peer has not acknowledged
    std::uint64_t bytes_sent = 0;             ///< that it has, over all connections
    TransferSocket socket;
    io::RoundTrip round_trip;  ///< of the connection that there is now
  };

  Seen look() const;

 private:
  /// Whatever sends.
  class Sender {
   public:
    virtual ~Sender() = default;
    virtual Status set_pacing_rate(std::uint64_t bytes_per_second) = 0;
    virtual std::uint64_t bytes_sent() const = 0;
    virtual std::uint64_t unacknowledged_bytes() const = 0;
    virtual std::string local() const = 0;
    virtual std::string remote() const = 0;
    virtual io::RoundTrip round_trip() const = 0;
  };

  template <class Socket>
  class SenderBy;

  void attach(std::unique_ptr<Sender> sender);
  void pace();
  std::uint64_t acknowledged() const;

  mutable std::mutex mutex_;
  std::unique_ptr<Sender> sender_;
  std::uint64_t rate_bps_;
  std::uint64_t sent_before_ = 0;  ///< by connections that are gone
  std::optional<std::uint64_t> left_;
  std::uint64_t sent_when_told_ = 0;  ///< by the connection, when `left_` was told
};

}  // namespace rn::agent
