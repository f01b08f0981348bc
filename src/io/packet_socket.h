// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/time.h"

namespace rn::io {

/// A connection to a packet socket of this machine, for threads that are not the loop
/// (local_socket.h is for that). Blocking. One thread may read while another one writes, and any
/// may shut it down, which ends the others' waits with kUnavailable.
class PacketSocket {
 public:
  /// To `name` in `folder`, whose owner is not trusted: no link is followed, and what is no socket
  /// of that folder's file system is refused. kNotFound: there is none; kUnavailable: nobody
  /// listens; kExhausted: too many wait; kDenied: it is something else.
  static Result<std::unique_ptr<PacketSocket>> connect(
      const std::string& folder, const std::string& name
  );
  ~PacketSocket();
  PacketSocket(const PacketSocket&) = delete;
  PacketSocket& operator=(const PacketSocket&) = delete;

  /// Bytes of the next packet, 0 = the other side has closed it. kTimeout; kInvalid for a packet
  /// that is longer than `out`; kUnavailable: it broke.
  Result<std::size_t> read(std::span<std::uint8_t> out, milliseconds timeout);
  /// The whole packet, when there is room for it. kTimeout; kUnavailable: it broke.
  Status write(BlobView packet, milliseconds timeout);
  /// Ends it in both directions at once. Any thread, repeatable.
  void shut_down();

 private:
  struct State;
  explicit PacketSocket(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace rn::io
