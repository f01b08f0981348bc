// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/time.h"
#include "io/framed.h"
#include "io/loop.h"

// The frames of framed.h over a Unix socket: the warden's side on its loop, the agent's and owner's
// side blocking. No descriptors are passed; any that a peer sends are discarded by the kernel.
namespace rn::io {

struct FramedUnixServerConfig {
  std::string path;  ///< a stale socket file is replaced; a live one is kConflict
  std::uint32_t mode = 0660;
  std::vector<std::uint32_t> allowed_uids;  ///< by SO_PEERCRED; empty: root and the own uid
  std::size_t max_connections = 32;         ///< further ones are closed at once
  std::size_t max_frame_bytes = 1 << 20;
  std::size_t max_queued_bytes =
      4 << 20;  ///< of answers not read yet; beyond it the connection is closed
};

struct UnixPeer {
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

/// One client of the server. Loop thread only. Alive until on_close was called.
class FramedUnixSession {
 public:
  virtual ~FramedUnixSession() = default;
  /// kUnavailable when closed; kExhausted when the queue is full, and the connection is then
  /// closed.
  virtual Status send(std::uint8_t type, BlobView body) = 0;
  virtual void close() = 0;
  virtual void on_frame(std::function<void(Frame)> fn) = 0;
  virtual void on_close(std::function<void()> fn) = 0;  ///< once, whoever closed
  virtual const UnixPeer& peer() const = 0;
};

class FramedUnixServer {
 public:
  using Opened = std::function<void(std::shared_ptr<FramedUnixSession>)>;
  static Result<std::unique_ptr<FramedUnixServer>> start(
      Loop& loop, FramedUnixServerConfig config, Opened opened
  );
  ~FramedUnixServer();  ///< closes all sessions and removes the socket file
  FramedUnixServer(const FramedUnixServer&) = delete;
  FramedUnixServer& operator=(const FramedUnixServer&) = delete;
  std::size_t connections() const;

 private:
  struct State;
  explicit FramedUnixServer(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// Blocking client. One thread at a time.
class FramedUnixClient {
 public:
  /// kNotFound: no socket file; kUnavailable: nobody listens; kDenied: file mode.
  static Result<std::unique_ptr<FramedUnixClient>> connect(
      const std::string& path, std::size_t max_frame_bytes = 1 << 20
  );
  ~FramedUnixClient();
  FramedUnixClient(const FramedUnixClient&) = delete;
  FramedUnixClient& operator=(const FramedUnixClient&) = delete;

  Status send(std::uint8_t type, BlobView body, milliseconds timeout = seconds(10));
  /// kTimeout leaves the connection good; kUnavailable: closed by the server (also when our uid is
  /// not allowed).
  Result<Frame> receive(milliseconds timeout);
  UnixPeer peer(
  ) const;  ///< the server's process, so that a client can tell a real warden from a squatter
  int fd() const;  ///< readable when receive() has something; for watch_readable

 private:
  struct State;
  explicit FramedUnixClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace rn::io
