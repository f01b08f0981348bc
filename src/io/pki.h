// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"

// A small certificate authority, and the description of one end of a TLS connection. TLS 1.3 only.
// Identities are URI SANs such as "spiffe://site/node/n-0123456789abcdef". Keys are PKCS#8 PEM,
// certificates X.509 PEM.
namespace rn::io {

enum class KeyKind : std::uint8_t { kP256, kEd25519 };

inline constexpr milliseconds kCertificateValidity = std::chrono::hours(24 * 7);
inline constexpr milliseconds kCertificateBackdating =
    std::chrono::hours(1);  ///< allows for slow clocks
inline constexpr milliseconds kAuthorityValidity = std::chrono::hours(24 * 365 * 10);

/// A fresh private key from OpenSSL's generator, PEM. Not encrypted: write it with mode 0600.
Result<std::string> make_private_key(KeyKind kind);
/// The public half (SubjectPublicKeyInfo PEM) of a private key.
Result<std::string> public_key_of(const std::string& private_key_pem);
/// A signing request (CSR, PEM) that proves possession of the key. `common_name` is for people; ≤
/// 64 bytes.
Result<std::string> make_signing_request(
    const std::string& private_key_pem, const std::string& common_name
);

/// What the authority says about a key. At least one of the names must be there.
struct CertificateSpec {
  std::string common_name;        ///< for people only; ≤ 64 bytes
  std::vector<std::string> uris;  ///< identities
  std::vector<std::string> dns_names;
  std::vector<std::string> ip_addresses;  ///< textual, IPv4 or IPv6
  milliseconds validity = kCertificateValidity;
  milliseconds backdating = kCertificateBackdating;
};

/// A certificate as far as this project reads it.
struct CertificateInfo {
  std::string common_name;
  std::vector<std::string> uris;
  std::vector<std::string> dns_names;
  std::vector<std::string> ip_addresses;
  std::string serial;       ///< hex
  std::string fingerprint;  ///< SHA-256 of the DER form, 64 lower-case hex digits
  std::string public_key_pem;
  WallTime not_before;
  WallTime not_after;
  bool is_authority = false;
};

/// kInvalid if `pem` does not begin with a certificate. Reads the first one only.
Result<CertificateInfo> read_certificate(const std::string& pem);
/// SHA-256 (64 hex digits) of the first certificate's DER form: what a join token carries for the
/// CA.
Result<std::string> certificate_fingerprint(const std::string& pem);

/// The site's own authority. Copyable value; not thread-safe while being assigned.
class CertificateAuthority {
 public:
  /// A new self-signed CA. `name` becomes its common name.
  static Result<CertificateAuthority> create(
      const std::string& name, WallTime now, KeyKind kind = KeyKind::kP256
  );
  /// kInvalid if the two do not belong together or the certificate is no CA.
  static Result<CertificateAuthority> load(
      const std::string& certificate_pem, const std::string& private_key_pem
  );

  /// A leaf for client and server use, valid from now − backdating to now + validity (never beyond
  /// the CA itself).
  Result<std::string> issue(
      const std::string& public_key_pem, const CertificateSpec& spec, WallTime now
  ) const;
  /// The same for a CSR, whose signature is checked (kDenied). Only its key is used: names come
  /// from `spec` alone.
  Result<std::string> issue_for_request(
      const std::string& csr_pem, const CertificateSpec& spec, WallTime now
  ) const;

  const std::string& certificate_pem() const { return certificate_pem_; }

  const std::string& private_key_pem() const { return private_key_pem_; }

  const std::string& fingerprint() const { return fingerprint_; }

 private:
  CertificateAuthority(
      std::string certificate_pem, std::string private_key_pem, std::string fingerprint
  );
  std::string certificate_pem_;
  std::string private_key_pem_;
  std::string fingerprint_;
};

/// One end of a TLS 1.3 connection.
///
/// A client checks the server's chain against `ca_pem`, or, when that is empty, against the CA in
/// the presented chain whose SHA-256 is `ca_fingerprint` (joining). Then it checks the name: the
/// URI SAN `expected_peer` when that is set, otherwise the host that it connects to, as DNS or IP
/// SAN. Nothing is sent before both hold. A server presents its certificate and its CA's, and
/// checks a client's certificate, if there is one, against `ca_pem`.
struct TlsConfig {
  std::string ca_pem;
  std::string cert_pem;  ///< own certificate; a client may have none
  std::string key_pem;
  bool require_peer_certificate =
      true;  ///< server only: refuse clients without a certificate at the handshake
  std::string ca_fingerprint;  ///< client only
  std::string expected_peer;   ///< client only
};

}  // namespace rn::io
