// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <openssl/ssl.h>

#include "base/bytes.h"
#include "base/error.h"
#include "io/openssl_error.h"
#include "io/pki.h"

// Private to io: TlsConfig made into OpenSSL contexts.
namespace rn::io {

using SslPtr = std::unique_ptr<SSL, FreedBy<SSL_free>>;
using SslContext = std::shared_ptr<SSL_CTX>;  ///< shared by the connections made from it

/// kInvalid if the certificate, key or CA cannot be used.
Result<SslContext> make_server_context(const TlsConfig& config);
/// For connections to `host` only, because the name that is checked belongs to the context.
Result<SslContext> make_client_context(const TlsConfig& config, const std::string& host);
/// Makes somebody else's fresh context (curl's) check the server as TlsConfig says.
Status configure_client_context(SSL_CTX* context, const TlsConfig& config, const std::string& host);

/// First URI SAN of the peer's certificate, if it has presented one. After the handshake.
std::optional<std::string> peer_identity_of(SSL* ssl);
/// SHA-256 of the SubjectPublicKeyInfo (DER) of the peer's verified certificate. After the
/// handshake.
std::optional<Digest> peer_key_of(SSL* ssl);

/// What a failed SSL call means: `ssl_error` from SSL_get_error, `number` the errno right after the
/// call. Empties the thread's error queue.
Error tls_failure(SSL* ssl, int ssl_error, int number);

}  // namespace rn::io
