// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

#include "base/time.h"
#include "checkpoint/transfer_messages.h"
#include "io/framed.h"

namespace rn::agent {

/// One of so many places, as long as this lives. Thread-safe.
class HeldPlace {
 public:
  HeldPlace(std::atomic<std::size_t>& taken, std::size_t most)
      : taken_(taken), is_held_(++taken <= most) {}

  ~HeldPlace() { --taken_; }

  HeldPlace(const HeldPlace&) = delete;
  HeldPlace& operator=(const HeldPlace&) = delete;

  explicit operator bool() const { return is_held_; }

 private:
  std::atomic<std::size_t>& taken_;
  const bool is_held_;
};

/// Serves a peer's connection if fewer than `most` are served so; else the peer is told that it may
/// come again, as any other refusal is told. Blocking, as `serve` is.
template <class Serve>
void serve_within(
    std::atomic<std::size_t>& served,
    std::size_t most,
    io::FramedConnection& connection,
    Serve&& serve
) {
  const HeldPlace place(served, most);
  if (place) return std::forward<Serve>(serve)();
  const checkpoint::PeerFrame words = checkpoint::encode_refusal(
      {ErrorCode::kExhausted, "this node serves as many transfers as it may", "try again later"}
  );
  (void)connection.send(static_cast<std::uint8_t>(words.type), words.body, seconds(10));
}

}  // namespace rn::agent
