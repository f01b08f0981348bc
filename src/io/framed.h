// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/time.h"
#include "io/pki.h"
#include "io/round_trip.h"

// Frames for the data plane: u32 little-endian length of the body, u8 type, body. Over TLS TCP
// between peers, blocking, for threads that are not the loop; see framed_unix.h for the local
// socket.
namespace rn::io {

inline constexpr std::size_t kFrameHeaderBytes = 5;
inline constexpr std::size_t kMaxFrameBytes = 8 << 20;  ///< default bound of a frame's body

struct Frame {
  std::uint8_t type = 0;
  Blob body;
};

/// Header of a frame whose body has `body_bytes` bytes.
std::array<std::uint8_t, kFrameHeaderBytes> encode_frame_header(
    std::uint8_t type, std::uint32_t body_bytes
);

/// Takes frames out of a byte stream that arrives in pieces. Holds at most one frame of
/// `max_frame_bytes`.
class FrameDecoder {
 public:
  explicit FrameDecoder(std::size_t max_frame_bytes = kMaxFrameBytes) : max_(max_frame_bytes) {}

  /// Consumes bytes from the front of `in` until one frame is complete or `in` is empty. kInvalid
  /// for a frame over the bound; the decoder must not be used afterwards.
  Result<std::optional<Frame>> take(BlobView& in);

  bool is_between_frames() const { return header_have_ == 0; }

 private:
  std::size_t max_;
  std::array<std::uint8_t, kFrameHeaderBytes> header_{};
  std::size_t header_have_ = 0;
  std::size_t body_need_ = 0;
  Frame frame_;
};

struct FramedClientConfig {
  std::string host;  ///< name or address
  std::uint16_t port = 0;
  TlsConfig tls;
  milliseconds connect_timeout = seconds(10);  ///< TCP and TLS
  std::size_t max_frame_bytes = kMaxFrameBytes;
  std::uint32_t socket_mark = 0;  ///< SO_MARK when not 0 (needs CAP_NET_ADMIN)
};

/// One TLS connection with frames. Blocking. Thread-safe: any number of threads may send (frames
/// stay whole), one may receive at the same time, and any may shut it down, which ends the others'
/// waits with kUnavailable. After any error from send, or a kInvalid/kUnavailable from receive, the
/// connection is useless: drop it.
class FramedConnection {
 public:
  /// kTimeout, kUnavailable (refused, no route, no such name), kDenied (certificate or identity not
  /// accepted, by us).
  static Result<std::unique_ptr<FramedConnection>> connect(const FramedClientConfig& config);
  ~FramedConnection();
  FramedConnection(const FramedConnection&) = delete;
  FramedConnection& operator=(const FramedConnection&) = delete;

  /// Returns when the frame is in the kernel's buffer. kTimeout if that takes longer than
  /// `timeout`; kInvalid for a body over the bound (then nothing was sent and the connection is
  /// still good).
  Status send(std::uint8_t type, BlobView body, milliseconds timeout = seconds(60));
  /// The next frame. kTimeout after `timeout` (the connection stays good: a begun frame goes on at
  /// the next call); kUnavailable at the end of the connection; kInvalid for a frame over the
  /// bound; kDenied when the peer refused our certificate (TLS 1.3 tells only then).
  Result<Frame> receive(milliseconds timeout);
  /// Ends the connection in both directions at once; what was given to the kernel still goes. Any
  /// thread, repeatable.
  void shut_down();
  /// The same, but what has not left is dropped, and the peer sees a reset. Also after shut_down().
  void abort();
  /// So much waits in the kernel to be sent at most, and what one send gives it.
  void bound_unsent(std::uint32_t bytes);

  /// Paces what the kernel sends (SO_MAX_PACING_RATE: fq, or TCP's own pacing), in bursts of two
  /// milliseconds (send_bursts.h). 0: no limit. Takes effect at once.
  Status set_pacing_rate(std::uint64_t bytes_per_second);
  std::uint64_t bytes_sent() const;  ///< into the kernel's buffer: frames with headers, before TLS
  std::uint64_t bytes_received() const;  ///< the same
  /// Bytes in the socket's send queue that the peer has not acknowledged; 0 if unknown.
  std::uint64_t unacknowledged_bytes() const;
  /// Without the time for which pacing holds bytes back; with that in any queue on the way.
  RoundTrip round_trip() const;
  const std::optional<std::string>& peer_identity(
  ) const;                            ///< first URI SAN of the verified certificate
  const std::string& remote() const;  ///< "192.0.2.1:4711"
  const std::string& local() const;   ///< the own end, in the same way

  struct State;
  explicit FramedConnection(std::unique_ptr<State> state);  ///< io only

 private:
  std::unique_ptr<State> state_;
};

struct FramedServerConfig {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;
  TlsConfig tls;                     ///< require_peer_certificate is taken as true
  std::size_t max_connections = 64;  ///< threads; further connections are closed at once
  /// Of strangers: who comes beyond it ends the oldest of them. So whoever opens connections and
  /// says nothing takes no descriptors but these, and keeps nobody out who can say who it is.
  std::size_t max_handshakes = 32;
  milliseconds handshake_timeout = seconds(10);
  std::size_t max_frame_bytes = kMaxFrameBytes;
};

/// Accepts connections, each served by `handler` on its own thread until it returns.
class FramedServer {
 public:
  using Handler = std::function<void(FramedConnection&)>;
  static Result<std::unique_ptr<FramedServer>> start(FramedServerConfig config, Handler handler);
  /// Shuts all connections down and waits for their handlers.
  ~FramedServer();
  FramedServer(const FramedServer&) = delete;
  FramedServer& operator=(const FramedServer&) = delete;

  Status reload_tls(const TlsConfig& tls);  ///< for new connections. Any thread.
  std::uint16_t port() const;
  std::size_t connections() const;
  std::uint64_t refused() const;  ///< connections over the bound, or whose handshake failed

 private:
  struct State;
  explicit FramedServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace rn::io
