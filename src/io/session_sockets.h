// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/round_trip.h"

namespace rn::io {

/// The connections of one HttpSession, one after another, between the thread that performs its
/// calls and whoever says how fast they send. Thread-safe; never blocks.
class SessionSockets {
 public:
  /// Paces what the kernel sends (SO_MAX_PACING_RATE), by the connection that there is and by those
  /// that come later. 0: no limit.
  Status set_pacing_rate(std::uint64_t bytes_per_second);
  /// Given to the kernel by all of them, as TCP's payload; less what one that is gone had not
  /// brought to the peer.
  std::uint64_t bytes_sent() const;
  /// Of these, what the peer has not acknowledged.
  std::uint64_t unacknowledged_bytes() const;
  /// "192.0.2.1:4711" of the connection that there is; empty while there is none.
  std::string local() const;
  std::string remote() const;
  /// Without the time for which pacing holds bytes back.
  RoundTrip round_trip() const;

  /// For HttpSession: it begins to connect by this socket, which stays its own.
  void opened(int fd);

 private:
  struct One {
    int fd = -1;
    std::uint64_t cookie = 0;
    std::uint64_t acknowledged = 0;  ///< when it was looked at last
  };

  /// Looks at all, and forgets those that are closed: their numbers may be others' by now.
  void refresh() const;
  int connected() const;

  mutable std::mutex mutex_;  ///< guards all below
  mutable std::vector<One> open_;
  mutable std::uint64_t acknowledged_before_ = 0;  ///< by connections that are gone
  std::uint64_t rate_ = 0;
};

}  // namespace rn::io
