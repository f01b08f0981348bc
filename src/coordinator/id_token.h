// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

// What an identity provider says of a person: a signed token (OpenID Connect Core 1.0), and the
// keys by which it signs (RFC 7517). Nothing here asks anybody or looks at a clock. Whatever is odd
// is refused; messages never repeat what a token says.
namespace rn::coordinator {

/// One that is fit to verify with.
struct ProviderKey {
  enum class Kind : std::uint8_t { kRsa, kP256 };
  std::string id;  ///< "kid"; empty if it has none
  Kind kind = Kind::kRsa;
  Blob first;   ///< modulus, or x
  Blob second;  ///< exponent, or y
};

inline constexpr std::size_t kMaxIdTokenBytes = 32u << 10;
inline constexpr std::size_t kMaxKeySetBytes = 256u << 10;

/// The keys of a JWK set that sign by RS256 or ES256; others (other kinds, encryption) are left
/// out. kInvalid for what is no set or has more than 64 keys.
Result<std::vector<ProviderKey>> parse_key_set(std::string_view text);

/// What a token must say.
struct IdTokenRules {
  std::string issuer;         ///< exactly
  std::string client;         ///< of "aud"; and "azp", if it is there or "aud" names others, too
  std::string nonce;          ///< exactly; empty: none was sent
  std::string groups_claim;   ///< empty: groups are not read
  std::int64_t now_s = 0;     ///< seconds of Unix time
  std::int64_t skew_s = 120;  ///< by which the provider's clock may differ
};

/// Of a verified token.
struct IdClaims {
  std::string subject;
  std::string email;
  bool is_email_verified = false;
  std::vector<std::string> groups;
};

/// kNotFound: signed by a key that `keys` does not have, or not as it has it (the set may be old).
/// kDenied for all else: no token, no signature, or one by another algorithm than RS256 and ES256;
/// another issuer, audience or nonce; too early or too late.
Result<IdClaims> verify_id_token(
    std::string_view token, const std::vector<ProviderKey>& keys, const IdTokenRules& rules
);

}  // namespace rn::coordinator
