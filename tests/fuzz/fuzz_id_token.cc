// SPDX-License-Identifier: Apache-2.0
// What an identity provider sends: a set of keys, and a token. The first line is the set, the rest
// the token; nothing that is made up is ever believed.

#include <cstdint>
#include <string_view>

#include "base/assert.h"
#include "base/bytes.h"
#include "coordinator/id_token.h"

namespace {

/// The corpus holds no private key, and nothing else signs for this one.
const std::vector<rn::coordinator::ProviderKey>& known_keys() {
  static const auto kKeys =
      *rn::coordinator::parse_key_set(R"({"keys": [{"kty": "EC", "crv": "P-256", "kid": "k",)"
                                      R"( "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",)"
                                      R"( "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]})");
  return kKeys;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t line = text.find('\n');
  const std::string_view first = text.substr(0, line);
  const std::string_view rest =
      line == std::string_view::npos ? std::string_view() : text.substr(line + 1);
  rn::coordinator::IdTokenRules rules;
  rules.issuer = "https://login.example.org";
  rules.client = "reclaimnet";
  rules.groups_claim = "groups";
  rules.now_s = 1'700'000'000;
  const auto claims = rn::coordinator::verify_id_token(rest, known_keys(), rules);
  RN_ASSERT(!claims.has_value(), "what nobody signed is not believed");
  RN_ASSERT(!claims.error().message.empty(), "a refusal says why");
  if (const auto keys = rn::coordinator::parse_key_set(first))
    (void)rn::coordinator::verify_id_token(rest, *keys, rules);
  return 0;
}
