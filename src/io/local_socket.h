// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "io/loop.h"

// Sockets on this machine whose owner decides when they are read and written: the two ends of a
// tunnel. Nothing is kept here, so nothing can gather.
namespace rn::io {

/// What one read found; neither bytes nor the end: nothing is there now.
struct SocketRead {
  std::size_t bytes = 0;
  bool is_end = false;  ///< the other side sends no more
};

/// A connected socket that never blocks: a stream, or packets (each read and write is one). Loop
/// thread.
class LocalSocket {
 public:
  /// Connects to the packet socket `name` in `folder`, whose owner is not trusted: no link is
  /// followed, and what is no socket of that folder's file system is refused. No descriptor is
  /// sent or taken. kNotFound: there is none; kUnavailable: nobody listens; kExhausted: too many
  /// wait; kDenied: it is something else.
  static Result<std::unique_ptr<LocalSocket>> connect_packets(
      Loop& loop, const std::string& folder, const std::string& name
  );
  ~LocalSocket();  ///< closes; what waits is not called
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;

  /// kUnavailable: it broke. kInvalid: a packet was longer than `out`.
  Result<SocketRead> read(std::span<std::uint8_t> out);
  /// How many of `bytes` it took, 0 = it is full. Of packets all or none. kUnavailable: it broke.
  Result<std::size_t> write(BlobView bytes);
  /// Calls `fn` once, in a later turn, when a read or a write finds something. A second call
  /// replaces the first. `fn` may destroy this.
  void when_readable(std::function<void()> fn);
  void when_writable(std::function<void()> fn);
  void end_writing();  ///< the other side reads the end behind what was written
  void reset();  ///< TCP: the other side sees that it broke, also when this is destroyed later

 private:
  friend class LocalListener;
  struct State;
  explicit LocalSocket(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// Takes TCP connections of this machine's own programs.
class LocalListener {
 public:
  using Accepted = std::function<void(std::unique_ptr<LocalSocket>)>;

  /// On 127.0.0.1; port 0: the kernel chooses. kConflict if it is taken, kDenied if it may not be
  /// had.
  static Result<std::unique_ptr<LocalListener>> start(
      Loop& loop, std::uint16_t port, Accepted accepted
  );
  ~LocalListener();
  LocalListener(const LocalListener&) = delete;
  LocalListener& operator=(const LocalListener&) = delete;

  std::uint16_t port() const;

 private:
  struct State;
  explicit LocalListener(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace rn::io
