// SPDX-License-Identifier: Apache-2.0
#include "io/tls.h"

#include <array>
#include <utility>

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/crypto.h"
#include "io/errno_error.h"

namespace rn::io {
namespace {

using StackPtr = std::unique_ptr<STACK_OF(X509), decltype([](STACK_OF(X509) * stack) {
                                   sk_X509_pop_free(stack, X509_free);
                                 })>;

/// What a client demands of the server's chain. Owned by the SSL_CTX (as its ex_data).
struct ServerPolicy {
  StackPtr anchors;         ///< trusted CAs; empty when only the fingerprint is known
  std::string fingerprint;  ///< of the CA in the presented chain
  std::string expected_peer;
  std::string host;
};

void free_policy(void*, void* policy, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<ServerPolicy*>(policy);
}

int policy_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, free_policy);
  return index;
}

bool is_address(const std::string& host) {
  std::array<unsigned char, 16> raw{};
  return inet_pton(AF_INET, host.c_str(), raw.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), raw.data()) == 1;
}

bool has_expected_name(X509* leaf, const ServerPolicy& policy) {
  if (policy.expected_peer.empty()) {
    return is_address(policy.host)
               ? X509_check_ip_asc(leaf, policy.host.c_str(), 0) == 1
               : X509_check_host(leaf, policy.host.data(), policy.host.size(), 0, nullptr) == 1;
  }
  return first_uri_of(leaf) == policy.expected_peer;
}

/// The presented CA certificate with the pinned fingerprint, if there is one.
X509* find_pinned(STACK_OF(X509) * presented, const std::string& fingerprint) {
  for (int i = 0; i < sk_X509_num(presented); ++i) {
    X509* candidate = sk_X509_value(presented, i);
    if (X509_check_ca(candidate) == 1 && fingerprint_of(candidate) == fingerprint) return candidate;
  }
  return nullptr;
}

int verify_server(X509_STORE_CTX* store, void* argument) {
  const auto& policy = *static_cast<ServerPolicy*>(argument);
  StackPtr pinned;
  STACK_OF(X509)* anchors = policy.anchors.get();
  if (anchors == nullptr) {
    X509* ca = find_pinned(X509_STORE_CTX_get0_untrusted(store), policy.fingerprint);
    if (ca == nullptr) {
      X509_STORE_CTX_set_error(store, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN);
      return 0;
    }
    X509_up_ref(ca);
    pinned.reset(sk_X509_new_null());
    sk_X509_push(pinned.get(), ca);
    anchors = pinned.get();
  }
  X509_STORE_CTX_set0_trusted_stack(store, anchors);
  if (X509_verify_cert(store) != 1) return 0;
  if (has_expected_name(X509_STORE_CTX_get0_cert(store), policy)) return 1;
  X509_STORE_CTX_set_error(store, X509_V_ERR_HOSTNAME_MISMATCH);
  return 0;
}

Result<StackPtr> parse_certificates(const std::string& pem) {
  const BioPtr in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  StackPtr stack(sk_X509_new_null());
  while (X509* one = PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr))
    sk_X509_push(stack.get(), one);
  ERR_clear_error();  // the end of the text is an error to OpenSSL
  if (sk_X509_num(stack.get()) == 0)
    return fail(ErrorCode::kInvalid, "the CA is not a certificate in PEM form");
  return stack;
}

Status use_certificate(SSL_CTX* context, const TlsConfig& config) {
  RN_TRY(const CertPtr certificate, parse_certificate(config.cert_pem));
  RN_TRY(const KeyPtr key, parse_private_key(config.key_pem));
  if (SSL_CTX_use_certificate(context, certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1)
    return fail(openssl_error(ErrorCode::kInvalid, "the key does not belong to the certificate"));
  return {};
}

Status set_common_options(SSL_CTX* context) {
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1)
    return fail(openssl_error(ErrorCode::kUnsupported, "this OpenSSL has no TLS 1.3"));
  SSL_CTX_set_mode(
      context,
      SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
          SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY
  );
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  return {};
}

SslContext own(SSL_CTX* context) {
  return {context, [](SSL_CTX* dead) { SSL_CTX_free(dead); }};
}

/// Alerts by which a peer says that it does not accept our certificate or that it wants one.
bool is_refusal_alert(int reason) {
  switch (reason) {
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return true;
    default:
      return false;
  }
}

Error verification_failure(long result) {
  Error error{ErrorCode::kDenied, "the peer's certificate is not accepted: ", {}};
  error.message += X509_verify_cert_error_string(result);
  if (result == X509_V_ERR_CERT_NOT_YET_VALID || result == X509_V_ERR_CERT_HAS_EXPIRED)
    error.hint = "check the clocks of both machines, then whether the certificate was renewed";
  if (result == X509_V_ERR_HOSTNAME_MISMATCH)
    error.hint = "the peer is somebody else than expected: check the address";
  return error;
}

}  // namespace

Status configure_client_context(
    SSL_CTX* context, const TlsConfig& config, const std::string& host
) {
  RN_CHECK(set_common_options(context));
  auto policy = std::make_unique<ServerPolicy>();
  policy->fingerprint = config.ca_fingerprint;
  policy->expected_peer = config.expected_peer;
  policy->host = host;
  if (!config.ca_pem.empty()) {
    RN_TRY(policy->anchors, parse_certificates(config.ca_pem));
  } else if (!digest_from_hex(config.ca_fingerprint)) {
    return fail(ErrorCode::kInvalid, "neither a CA nor its fingerprint was given");
  }
  if (!config.cert_pem.empty()) RN_CHECK(use_certificate(context, config));
  ServerPolicy* raw = policy.release();
  if (SSL_CTX_set_ex_data(context, policy_index(), raw) != 1) {
    delete raw;
    return fail(openssl_error(ErrorCode::kInternal, "preparing TLS"));
  }
  SSL_CTX_set_cert_verify_callback(context, verify_server, raw);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  return {};
}

Result<SslContext> make_client_context(const TlsConfig& config, const std::string& host) {
  const SslContext context = own(SSL_CTX_new(TLS_client_method()));
  if (!context) return fail(openssl_error(ErrorCode::kInternal, "preparing TLS"));
  RN_CHECK(configure_client_context(context.get(), config, host));
  return context;
}

Result<SslContext> make_server_context(const TlsConfig& config) {
  const SslContext context = own(SSL_CTX_new(TLS_server_method()));
  if (!context) return fail(openssl_error(ErrorCode::kInternal, "preparing TLS"));
  RN_CHECK(set_common_options(context.get()));
  SSL_CTX_set_num_tickets(context.get(), 0);
  RN_CHECK(use_certificate(context.get(), config));
  RN_TRY(const StackPtr authorities, parse_certificates(config.ca_pem));
  X509_STORE* store = SSL_CTX_get_cert_store(context.get());
  for (int i = 0; i < sk_X509_num(authorities.get()); ++i) {
    X509* authority = sk_X509_value(authorities.get(), i);
    // The chain carries the CA so that a joining client can compare its fingerprint.
    if (X509_STORE_add_cert(store, authority) != 1 ||
        SSL_CTX_add1_chain_cert(context.get(), authority) != 1 ||
        SSL_CTX_add_client_CA(context.get(), authority) != 1)
      return fail(openssl_error(ErrorCode::kInvalid, "using the CA"));
  }
  int mode = SSL_VERIFY_PEER;
  if (config.require_peer_certificate) mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  SSL_CTX_set_verify(context.get(), mode, nullptr);
  return context;
}

std::optional<std::string> peer_identity_of(SSL* ssl) {
  const X509* certificate = SSL_get0_peer_certificate(ssl);
  if (certificate == nullptr || SSL_get_verify_result(ssl) != X509_V_OK) return std::nullopt;
  std::string uri = first_uri_of(certificate);
  if (uri.empty()) return std::nullopt;
  return uri;
}

std::optional<Digest> peer_key_of(SSL* ssl) {
  X509* certificate = SSL_get0_peer_certificate(ssl);
  if (certificate == nullptr || SSL_get_verify_result(ssl) != X509_V_OK) return std::nullopt;
  unsigned char* der = nullptr;
  const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &der);
  if (size <= 0) return std::nullopt;
  const Digest digest = crypto::sha256(BlobView(der, static_cast<std::size_t>(size)));
  OPENSSL_free(der);
  return digest;
}

Error tls_failure(SSL* ssl, int ssl_error, int number) {
  const unsigned long code = ERR_peek_error();
  const long verified = SSL_get_verify_result(ssl);
  if (ssl_error == SSL_ERROR_SYSCALL && code == 0) {
    if (number != 0) return error_from_errno(number, "connection lost");
    return Error{ErrorCode::kUnavailable, "the peer closed the connection", {}};
  }
  const int reason = ERR_GET_REASON(code);
  if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    ERR_clear_error();
    return Error{ErrorCode::kUnavailable, "the peer closed the connection", {}};
  }
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED && verified != X509_V_OK) {
    ERR_clear_error();
    return verification_failure(verified);
  }
  if (is_refusal_alert(reason)) {
    Error error = openssl_error(ErrorCode::kDenied, "a certificate was refused");
    error.hint = "use a certificate of this site's authority; check both clocks";
    return error;
  }
  return openssl_error(ErrorCode::kUnavailable, "TLS failed");
}

}  // namespace rn::io
