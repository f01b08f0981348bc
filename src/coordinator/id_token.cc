// SPDX-License-Identifier: Apache-2.0
#include "coordinator/id_token.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/web_signatures.h"
#include "coordinator/strict_json.h"

namespace rn::coordinator {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxProviderKeys = 64;
constexpr std::size_t kMaxKeyIdBytes = 256;
constexpr std::size_t kMaxSubjectBytes = 255;  // OpenID Connect Core, 2
constexpr std::size_t kMaxEmailBytes = 254;
constexpr std::size_t kMaxGroups = 1000;
constexpr std::size_t kMaxAudiences = 100;

tl::unexpected<Error> untrusted(const std::string& what) {
  return fail(
      ErrorCode::kDenied,
      "the identity provider's answer cannot be trusted: " + what,
      "sign in again; if it stays so, tell the operator of this site"
  );
}

// ---- keys

/// A member that limits what a key is for: absent, or as it has to be.
bool says_nothing_else(const json& key, const char* name, const char* wanted) {
  return !key.contains(name) || text_member(key, name) == wanted;
}

bool may_verify(const json& key) {
  const auto uses = key.find("key_ops");
  if (uses == key.end()) return true;
  return uses->is_array() && std::any_of(uses->begin(), uses->end(), [](const json& use) {
           return use.is_string() && use.get<std::string>() == "verify";
         });
}

std::optional<ProviderKey> provider_key(const json& key) {
  if (!key.is_object() || !says_nothing_else(key, "use", "sig") || !may_verify(key))
    return std::nullopt;
  ProviderKey made;
  made.id = text_member(key, "kid");
  if (made.id.size() > kMaxKeyIdBytes) return std::nullopt;
  const std::string type = text_member(key, "kty");
  const bool is_rsa = type == "RSA" && says_nothing_else(key, "alg", "RS256");
  const bool is_p256 =
      type == "EC" && text_member(key, "crv") == "P-256" && says_nothing_else(key, "alg", "ES256");
  if (!is_rsa && !is_p256) return std::nullopt;
  made.kind = is_rsa ? ProviderKey::Kind::kRsa : ProviderKey::Kind::kP256;
  auto first = from_base64url(text_member(key, is_rsa ? "n" : "x"));
  auto second = from_base64url(text_member(key, is_rsa ? "e" : "y"));
  if (!first || !second || first->empty() || second->empty()) return std::nullopt;
  made.first = *std::move(first);
  made.second = *std::move(second);
  return made;
}

// ---- the token's outside

struct TokenHead {
  ProviderKey::Kind kind = ProviderKey::Kind::kRsa;
  std::string key;
};

Result<TokenHead> token_head(std::string_view encoded) {
  const auto bytes = from_base64url(encoded);
  const auto head = bytes ? strict_object(as_text(*bytes)) : std::nullopt;
  if (!head) return untrusted("its token has no header");
  // Which algorithms are taken is ours to say, and "none" and those with a shared secret never are.
  const std::string algorithm = text_member(*head, "alg");
  if (algorithm != "RS256" && algorithm != "ES256")
    return untrusted("its token is not signed by RS256 or ES256");
  if (head->contains("crit")) return untrusted("its token asks for an extension");
  if (head->contains("typ") && text_member(*head, "typ") != "JWT")
    return untrusted("its token is of another kind");
  TokenHead made;
  made.kind = algorithm == "RS256" ? ProviderKey::Kind::kRsa : ProviderKey::Kind::kP256;
  made.key = text_member(*head, "kid");
  if (head->contains("kid") && (made.key.empty() || made.key.size() > kMaxKeyIdBytes))
    return untrusted("its token names no key");
  return made;
}

/// A token that names no key can be of the only one of its kind.
Result<const ProviderKey*> key_for(const TokenHead& head, const std::vector<ProviderKey>& keys) {
  const ProviderKey* found = nullptr;
  std::size_t fitting = 0;
  for (const ProviderKey& key : keys) {
    if (key.kind != head.kind || (!head.key.empty() && key.id != head.key)) continue;
    ++fitting;
    found = &key;
  }
  if (fitting == 1) return found;
  if (fitting > 1) return untrusted("its token does not say which key signed it");
  return fail(
      ErrorCode::kNotFound,
      "the identity provider's token is signed by a key that it does not publish",
      "sign in again in a minute; if it stays so, tell the operator of this site"
  );
}

bool is_signed_by(const ProviderKey& key, std::string_view text, BlobView signature) {
  return key.kind == ProviderKey::Kind::kRsa
             ? crypto::verify_rs256(key.first, key.second, as_bytes(text), signature)
             : crypto::verify_es256(key.first, key.second, as_bytes(text), signature);
}

// ---- what it says

/// Seconds of Unix time; nullopt if it is missing or no time.
std::optional<double> time_of(const json& claims, const char* name) {
  const auto found = claims.find(name);
  if (found == claims.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  const bool is_time = std::isfinite(value) && value >= 0 && value < 1e12;
  return is_time ? std::optional(value) : std::nullopt;
}

Status check_audience(const json& claims, const IdTokenRules& rules) {
  const auto found = claims.find("aud");
  std::vector<std::string> audiences;
  if (found != claims.end() && found->is_string()) audiences.push_back(found->get<std::string>());
  if (found != claims.end() && found->is_array() && found->size() <= kMaxAudiences)
    for (const json& one : *found)
      audiences.push_back(one.is_string() ? one.get<std::string>() : std::string());
  if (std::find(audiences.begin(), audiences.end(), rules.client) == audiences.end())
    return untrusted("its token is for another program");
  const bool has_party = claims.contains("azp");
  if ((has_party || audiences.size() > 1) && text_member(claims, "azp") != rules.client)
    return untrusted("its token was given to another program");
  return {};
}

Status check_times(const json& claims, const IdTokenRules& rules) {
  const auto now = static_cast<double>(rules.now_s);
  const auto skew = static_cast<double>(rules.skew_s);
  const auto end = time_of(claims, "exp");
  const auto made = time_of(claims, "iat");
  if (!end || !made) return untrusted("its token does not say how long it counts");
  if (now >= *end + skew) return untrusted("its token has expired; compare both clocks");
  if (*made > now + skew) return untrusted("its token is from the future; compare both clocks");
  if (!claims.contains("nbf")) return {};
  const auto begin = time_of(claims, "nbf");
  if (!begin || *begin > now + skew)
    return untrusted("its token does not count yet; compare both clocks");
  return {};
}

std::vector<std::string> groups_of(const json& claims, const std::string& name) {
  std::vector<std::string> groups;
  const auto found = name.empty() ? claims.end() : claims.find(name);
  if (found == claims.end()) return groups;
  if (found->is_string()) groups.push_back(found->get<std::string>());
  if (!found->is_array()) return groups;
  for (const json& one : *found)
    if (one.is_string() && groups.size() < kMaxGroups) groups.push_back(one.get<std::string>());
  return groups;
}

Result<IdClaims> read_claims(const json& claims, const IdTokenRules& rules) {
  if (text_member(claims, "iss") != rules.issuer)
    return untrusted("its token is of another provider");
  RN_CHECK(check_audience(claims, rules));
  RN_CHECK(check_times(claims, rules));
  if (!rules.nonce.empty() && text_member(claims, "nonce") != rules.nonce)
    return untrusted("its token is of another sign-in");
  IdClaims made;
  made.subject = text_member(claims, "sub");
  if (made.subject.empty() || made.subject.size() > kMaxSubjectBytes)
    return untrusted("its token names nobody");
  made.email = text_member(claims, "email");
  if (made.email.size() > kMaxEmailBytes) made.email.clear();
  // The word "true" in quotes, as some write it, is not taken for it.
  const auto verified = claims.find("email_verified");
  made.is_email_verified =
      verified != claims.end() && verified->is_boolean() && verified->get<bool>();
  made.groups = groups_of(claims, rules.groups_claim);
  return made;
}

/// "a.b.c"; nullopt for another number of parts.
std::optional<std::array<std::string_view, 3>> three_parts(std::string_view token) {
  const std::size_t first = token.find('.');
  const std::size_t second = first == std::string_view::npos ? first : token.find('.', first + 1);
  if (second == std::string_view::npos || token.find('.', second + 1) != std::string_view::npos)
    return std::nullopt;
  return std::array<std::string_view, 3>{
      token.substr(0, first),
      token.substr(first + 1, second - first - 1),
      token.substr(second + 1)};
}

}  // namespace

Result<std::vector<ProviderKey>> parse_key_set(std::string_view text) {
  const auto document = text.size() > kMaxKeySetBytes ? std::nullopt : strict_object(text);
  const auto set = document ? document->find("keys") : json::const_iterator();
  if (!document || set == document->end() || !set->is_array() || set->size() > kMaxProviderKeys)
    return fail(ErrorCode::kInvalid, "the identity provider's keys are no set of keys");
  std::vector<ProviderKey> keys;
  for (const json& one : *set)
    if (auto key = provider_key(one)) keys.push_back(*std::move(key));
  return keys;
}

Result<IdClaims> verify_id_token(
    std::string_view token, const std::vector<ProviderKey>& keys, const IdTokenRules& rules
) {
  if (token.size() > kMaxIdTokenBytes) return untrusted("its token is too long");
  const auto parts = three_parts(token);
  if (!parts) return untrusted("it gave no token");
  RN_TRY(const TokenHead head, token_head((*parts)[0]));
  const auto signature = from_base64url((*parts)[2]);
  if (!signature || signature->empty()) return untrusted("its token is not signed");
  RN_TRY(const ProviderKey* key, key_for(head, keys));
  const std::string_view covered = token.substr(0, (*parts)[0].size() + 1 + (*parts)[1].size());
  // Who changes keys may go on calling them the same, or nothing: the set may be old here, too.
  if (!is_signed_by(*key, covered, *signature))
    return fail(
        ErrorCode::kNotFound,
        "the identity provider's answer cannot be trusted: its token's signature is false",
        "sign in again in a minute; if it stays so, tell the operator of this site"
    );
  const auto body = from_base64url((*parts)[1]);
  const auto claims = body ? strict_object(as_text(*body)) : std::nullopt;
  if (!claims) return untrusted("its token says nothing that can be read");
  return read_claims(*claims, rules);
}

}  // namespace rn::coordinator
