// SPDX-License-Identifier: Apache-2.0
#include "io/channel.h"

#include <array>
#include <cerrno>

#include <arpa/inet.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include "io/errno_error.h"

namespace rn::io {

Channel Channel::plain(int fd) {
  return Channel(fd);
}

Result<Channel> Channel::make_tls(int fd, const SslContext& context) {
  Channel channel(fd);
  channel.ssl_.reset(SSL_new(context.get()));
  if (!channel.ssl_ || SSL_set_fd(channel.ssl_.get(), fd) != 1)
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
  for (;;) {
    const ssize_t put = send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put >= 0) return Step{Want::kDone, static_cast<std::size_t>(put)};
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Step{Want::kWritable, 0};
    error_ = error_from_errno(errno, "sending");
    return Step{Want::kFailed, 0};
  }
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
