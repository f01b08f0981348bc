// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/assert.h"
#include "io/pki.h"
#include "io/real_clock.h"

// Test helper: a site with an authority, a server and clients.
namespace rn::io {

inline constexpr const char* kServerIdentity = "spiffe://site/coordinator";
inline constexpr const char* kClientIdentity = "spiffe://site/node/n-0000000000000001";

struct Site {
  CertificateAuthority authority = *CertificateAuthority::create(
      "test site", RealClock().now().wall - std::chrono::hours(24 * 90)
  );  // old enough for expired ones

  /// One end with a certificate for `identity`, and for localhost and 127.0.0.1 too.
  TlsConfig end(
      const std::string& identity,
      WallTime issued_at = RealClock().now().wall,
      KeyKind kind = KeyKind::kP256
  ) const {
    TlsConfig config;
    config.ca_pem = authority.certificate_pem();
    config.key_pem = *make_private_key(kind);
    CertificateSpec spec;
    spec.uris = {identity};
    spec.dns_names = {"localhost"};
    spec.ip_addresses = {"127.0.0.1"};
    const auto certificate = authority.issue(*public_key_of(config.key_pem), spec, issued_at);
    RN_ASSERT(certificate.has_value(), "the test's authority issues");
    config.cert_pem = *certificate;
    return config;
  }

  TlsConfig server() const { return end(kServerIdentity); }

  TlsConfig client() const { return end(kClientIdentity); }
};

}  // namespace rn::io
