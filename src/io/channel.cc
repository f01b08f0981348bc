// SPDX-License-Identifier: Apache-2.0
#include "io/channel.h"

#include <array>
#include <cerrno>

#include <arpa/inet.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "io/errno_error.h"
#include "io/net.h"

namespace rn::io {

ssize_t Channel::Way::send(const void* bytes, std::size_t size) {
  const SendBursts::Piece piece = bursts.next(size);
  for (;;) {
    const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | piece.flags;
    const ssize_t put = ::send(fd, bytes, piece.bytes, flags);
    if (put < 0 && errno == EINTR) continue;
    if (put > 0) bursts.sent(static_cast<std::size_t>(put));
    return put;
  }
}

/// What OpenSSL writes to. It takes a short write for one that goes on at once.
BIO* Channel::make_bio(Way* way) {
  static BIO_METHOD* const kMethod = [] {  // never freed: connections may outlive static objects
    BIO_METHOD* const method =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "paced socket");
    RN_ASSERT(method != nullptr, "OpenSSL has memory for its kinds of sinks");
    BIO_meth_set_write(method, [](BIO* bio, const char* bytes, int size) {
      BIO_clear_retry_flags(bio);
      const ssize_t put =
          static_cast<Way*>(BIO_get_data(bio))->send(bytes, static_cast<std::size_t>(size));
      if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_write(bio);
      return static_cast<int>(put);
    });
    BIO_meth_set_ctrl(method, [](BIO*, int what, long, void*) -> long {
      return what == BIO_CTRL_FLUSH ? 1 : 0;
    });
    return method;
  }();
  BIO* const bio = BIO_new(kMethod);
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, way);
  BIO_set_init(bio, 1);
  return bio;
}

Channel Channel::plain(int fd) {
  return Channel(fd);
}

Result<Channel> Channel::make_tls(int fd, const SslContext& context) {
  Channel channel(fd);
  channel.ssl_.reset(SSL_new(context.get()));
  BIO* const out = channel.ssl_ ? make_bio(channel.way_.get()) : nullptr;
  if (out != nullptr) SSL_set0_wbio(channel.ssl_.get(), out);
  if (out == nullptr || SSL_set_rfd(channel.ssl_.get(), fd) != 1)
    return fail(openssl_error(ErrorCode::kExhausted, "beginning TLS"));
  return channel;
}

Result<Channel> Channel::tls_client(int fd, const SslContext& context, const std::string& host) {
  RN_TRY(Channel channel, make_tls(fd, context));
  SSL_set_connect_state(channel.ssl_.get());
  // The server name extension must not carry an address (RFC 6066).
  std::array<unsigned char, 16> raw{};
  const bool is_address = inet_pton(AF_INET, host.c_str(), raw.data()) == 1 ||
                          inet_pton(AF_INET6, host.c_str(), raw.data()) == 1;
  if (!is_address) SSL_set_tlsext_host_name(channel.ssl_.get(), host.c_str());
  return channel;
}

Result<Channel> Channel::tls_server(int fd, const SslContext& context) {
  RN_TRY(Channel channel, make_tls(fd, context));
  SSL_set_accept_state(channel.ssl_.get());
  return channel;
}

Channel::Step Channel::after_ssl(int result, std::size_t bytes) {
  const int number = errno;
  if (result > 0) return Step{Want::kDone, bytes};
  const int ssl_error = SSL_get_error(ssl_.get(), result);
  if (ssl_error == SSL_ERROR_WANT_READ) return Step{Want::kReadable, 0};
  if (ssl_error == SSL_ERROR_WANT_WRITE) return Step{Want::kWritable, 0};
  if (ssl_error == SSL_ERROR_ZERO_RETURN) return Step{Want::kEnd, 0};
  error_ = tls_failure(ssl_.get(), ssl_error, number);
  return Step{Want::kFailed, 0};
}

Channel::Step Channel::handshake() {
  if (!ssl_) return Step{};
  ERR_clear_error();
  errno = 0;
  return after_ssl(SSL_do_handshake(ssl_.get()), 0);
}

Channel::Step Channel::read(std::span<std::uint8_t> out) {
  if (ssl_) {
    std::size_t bytes = 0;
    ERR_clear_error();
    errno = 0;
    const int result = SSL_read_ex(ssl_.get(), out.data(), out.size(), &bytes);
    return after_ssl(result, bytes);
  }
  for (;;) {
    const ssize_t got = recv(fd_, out.data(), out.size(), MSG_DONTWAIT);
    if (got > 0) return Step{Want::kDone, static_cast<std::size_t>(got)};
    if (got == 0) return Step{Want::kEnd, 0};
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Step{Want::kReadable, 0};
    error_ = error_from_errno(errno, "receiving");
    return Step{Want::kFailed, 0};
  }
}

Channel::Step Channel::write(BlobView bytes) {
  if (ssl_) {
    std::size_t written = 0;
    ERR_clear_error();
    errno = 0;
    const int result = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &written);
    return after_ssl(result, written);
  }
  const ssize_t put = way_->send(bytes.data(), bytes.size());
  if (put >= 0) return Step{Want::kDone, static_cast<std::size_t>(put)};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return Step{Want::kWritable, 0};
  error_ = error_from_errno(errno, "sending");
  return Step{Want::kFailed, 0};
}

Status Channel::pace(std::uint64_t bytes_per_second) {
  RN_CHECK(io::pace(fd_, bytes_per_second));
  way_->bursts.set(bytes_per_second, segment_of(fd_));
  return {};
}

Channel::Step Channel::discard() {
  std::array<std::uint8_t, 4096> dropped{};
  for (;;) {
    const ssize_t got = recv(fd_, dropped.data(), dropped.size(), MSG_DONTWAIT);
    if (got == 0) return Step{Want::kEnd, 0};
    if (got > 0 || errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Step{Want::kReadable, 0};
    error_ = error_from_errno(errno, "receiving");
    return Step{Want::kFailed, 0};
  }
}

void Channel::end_writing() {
  if (ssl_ && SSL_is_init_finished(ssl_.get())) {
    ERR_clear_error();
    (void)SSL_shutdown(ssl_.get());
    ERR_clear_error();
  }
  (void)shutdown(fd_, SHUT_WR);
}

std::optional<std::string> Channel::peer_identity() const {
  return ssl_ ? peer_identity_of(ssl_.get()) : std::nullopt;
}

std::optional<Digest> Channel::peer_key() const {
  return ssl_ ? peer_key_of(ssl_.get()) : std::nullopt;
}

}  // namespace rn::io
