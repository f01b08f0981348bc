// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

#include "base/bytes.h"
#include "base/error.h"

namespace rn::io {

/// A connection that a server has given away after a request's head (HttpServer::give_away): plain
/// bytes in both directions from there on, whatever is below them (TCP, TLS). Loop thread only. Who
/// got it closes it; it also ends with its server. After close() no callback is called any more.
class TakenConnection {
 public:
  virtual ~TakenConnection() = default;

  /// Reads once, at most `most` > 0 bytes. `done` gets them, or nothing at the peer's end, or
  /// kUnavailable when the connection is lost. One at a time; `done` is never called within this.
  virtual void read(std::size_t most, std::function<void(Result<Blob>)> done) = 0;
  /// Writes all of it, at least one byte. `done` gets kUnavailable when the connection is lost, and
  /// kTimeout when the peer takes nothing for the server's write_timeout. One at a time; `done` is
  /// never called within this.
  virtual void write(Blob bytes, std::function<void(Status)> done) = 0;
  /// Closes in order: what was written reaches the peer, which has a second to go. Nothing is read
  /// or written any more, and no callback called.
  virtual void finish() = 0;
  /// Closes at once, so that the peer sees that it broke. Repeatable.
  virtual void close() = 0;
  virtual bool is_open() const = 0;
};

}  // namespace rn::io
