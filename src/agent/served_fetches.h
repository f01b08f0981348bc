// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "agent/core_types.h"
#include "agent/transfer_gauge.h"
#include "io/framed.h"
#include "model/checkpoint.h"

namespace rn::agent {

/// The connections by which peers fetch here, between the server's threads, which send, and the
/// loop, which says how fast. Thread-safe.
class ServedFetches {
 public:
  /// `on_begun` is called on the thread of a session whose ticket was just accepted; empty: nobody
  /// is told.
  explicit ServedFetches(std::function<void()> on_begun = {}) : on_begun_(std::move(on_begun)) {}

  /// Of one accepted connection, as long as it is served: a fetch from begin() on. For one thread.
  class Session {
   public:
    /// Both outlive it.
    Session(ServedFetches& all, io::FramedConnection& connection)
        : all_(all), connection_(connection) {}

    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// PeerServerDeps::on_fetch.
    void begin(const Ticket& ticket);
    /// DriveOptions::on_progress.
    void set_left(std::optional<std::uint64_t> bytes);

   private:
    ServedFetches& all_;
    io::FramedConnection& connection_;
    WorkId id_ = 0;
    std::shared_ptr<TransferGauge> gauge_;
  };

  /// What those that begin may send until they have a rate of their own; 0 = no limit.
  void set_first_rate(std::uint64_t rate_bps);
  /// Nothing if there is no such one any more. 0 = no limit.
  void set_rate(WorkId id, std::uint64_t rate_bps);

  std::vector<FetchProgress> look() const;
  /// That peers have acknowledged, over all there were.
  std::uint64_t bytes_sent() const;
  /// The rates of those that have one, together; 0 = none has.
  std::uint64_t planned_bps() const;

 private:
  struct One {
    Ticket ticket;
    std::shared_ptr<TransferGauge> gauge;
  };

  std::function<void()> on_begun_;
  mutable std::mutex mutex_;  ///< guards all below; a gauge's own is taken inside of it
  std::map<WorkId, One> all_;
  WorkId next_ = kFirstFetch;
  std::uint64_t first_rate_bps_ = 0;
  std::uint64_t sent_before_ = 0;  ///< by those that are over
};

}  // namespace rn::agent
