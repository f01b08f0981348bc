// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <sys/types.h>

#include "base/bytes.h"
#include "base/error.h"
#include "io/send_bursts.h"
#include "io/tls.h"

// Private to io: one non-blocking byte stream, plain or TLS, on a descriptor that somebody else
// owns and waits on.
namespace rn::io {

class Channel {
 public:
  /// What a step achieved or waits for.
  enum class Want : std::uint8_t { kDone, kReadable, kWritable, kEnd, kFailed };

  struct Step {
    Want want = Want::kDone;
    std::size_t bytes = 0;  ///< moved, for kDone
  };

  static Channel plain(int fd);
  /// The handshake must be stepped to kDone before reading or writing.
  static Result<Channel> tls_client(int fd, const SslContext& context, const std::string& host);
  static Result<Channel> tls_server(int fd, const SslContext& context);

  Step handshake();
  Step read(std::span<std::uint8_t> out);  ///< `out` is not empty
  Step write(BlobView bytes);              ///< `bytes` is not empty; may take a part
  /// SO_MAX_PACING_RATE, and short bursts of what is written from now on. 0: no limit.
  Status pace(std::uint64_t bytes_per_second);
  /// Drops raw bytes until the peer's end; nothing can be read afterwards.
  Step discard();
  void end_writing();  ///< tells the peer that nothing follows; best effort

  const Error& error() const { return error_; }  ///< of the last kFailed

  std::optional<std::string> peer_identity() const;
  std::optional<Digest> peer_key() const;

  bool is_tls() const { return ssl_ != nullptr; }

 private:
  /// Where bytes leave, plain or made by OpenSSL.
  struct Way {
    int fd = -1;
    SendBursts bursts;

    ssize_t send(const void* bytes, std::size_t size);  ///< as send(2), never interrupted
  };

  explicit Channel(int fd) : fd_(fd), way_(std::make_unique<Way>(Way{fd, {}})) {}

  static Result<Channel> make_tls(int fd, const SslContext& context);
  Step after_ssl(int result, std::size_t bytes);
  static BIO* make_bio(Way* way);

  int fd_;
  std::unique_ptr<Way> way_;  ///< ssl_ knows where it lies
  SslPtr ssl_;
  Error error_;
};

}  // namespace rn::io
