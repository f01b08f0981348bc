// SPDX-License-Identifier: Apache-2.0
#include "coordinator/id_token.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/crypto.h"
#include "base/web_signatures.h"
#include "coordinator/oidc_fixture.h"

namespace rn::coordinator {
namespace {

using nlohmann::json;

constexpr std::int64_t kNowS = 1'700'000'000;

const TestSigner& rsa_signer() {
  static const TestSigner kSigner(ProviderKey::Kind::kRsa, "rsa-1");
  return kSigner;
}

const TestSigner& ec_signer() {
  static const TestSigner kSigner(ProviderKey::Kind::kP256, "ec-1");
  return kSigner;
}

std::vector<ProviderKey> both_keys() {
  return *parse_key_set(key_set_of({&rsa_signer(), &ec_signer()}));
}

IdTokenRules usual_rules() {
  IdTokenRules rules;
  rules.issuer = "https://login.example.org";
  rules.client = "reclaimnet";
  rules.nonce = "n-1";
  rules.now_s = kNowS;
  return rules;
}

json usual_claims() {
  return {
      {"iss", "https://login.example.org"},
      {"aud", "reclaimnet"},
      {"sub", "ann"},
      {"nonce", "n-1"},
      {"iat", kNowS - 10},
      {"exp", kNowS + 300}};
}

/// Why it is refused; empty: it is not.
std::string token_refusal(const std::string& token) {
  const auto claims = verify_id_token(token, both_keys(), usual_rules());
  return claims ? "" : claims.error().message;
}

std::string signed_with(const json& claims) {
  return rsa_signer().token(claims);
}

TEST(IdToken, a_published_signature_is_verified_and_a_changed_one_is_not) {
  // RFC 7515, A.3.
  const Blob x = *from_base64url("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU");
  const Blob y = *from_base64url("x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0");
  const std::string covered =
      "eyJhbGciOiJFUzI1NiJ9."
      "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVl"
      "fQ";
  Blob signature = *from_base64url(
      "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
  );

  EXPECT_TRUE(crypto::verify_es256(x, y, as_bytes(covered), signature));
  EXPECT_FALSE(crypto::verify_es256(y, x, as_bytes(covered), signature)) << "not on the curve";
  EXPECT_FALSE(crypto::verify_es256(x, y, as_bytes(covered + "a"), signature));
  signature[5] ^= 1;
  EXPECT_FALSE(crypto::verify_es256(x, y, as_bytes(covered), signature));
  EXPECT_FALSE(crypto::verify_es256(x, y, as_bytes(covered), Blob(64))) << "zeros sign nothing";
}

TEST(IdToken, a_sound_one_says_who_it_is_by_either_algorithm) {
  json claims = usual_claims();
  claims["email"] = "ann@example.org";
  claims["email_verified"] = true;
  claims["groups"] = {"lab-x", 7, "lab-y"};
  IdTokenRules rules = usual_rules();
  rules.groups_claim = "groups";
  for (const TestSigner* signer : {&rsa_signer(), &ec_signer()}) {
    const auto found = verify_id_token(signer->token(claims), both_keys(), rules);
    ASSERT_TRUE(found.has_value()) << signer->algorithm() << found.error().describe();
    EXPECT_EQ(found->subject, "ann");
    EXPECT_EQ(found->email, "ann@example.org");
    EXPECT_TRUE(found->is_email_verified);
    EXPECT_EQ(found->groups, (std::vector<std::string>{"lab-x", "lab-y"}));
  }
}

TEST(IdToken, what_it_says_is_taken_only_for_this_site_and_this_moment) {
  struct Case {
    const char* name;
    json change;  ///< null removes the claim
    const char* words;
  };

  const std::vector<Case> cases = {
      {"another issuer", {{"iss", "https://login.example.org/"}}, "of another provider"},
      {"no issuer", {{"iss", nullptr}}, "of another provider"},
      {"another audience", {{"aud", "other"}}, "for another program"},
      {"no audience", {{"aud", nullptr}}, "for another program"},
      {"an audience that is no text", {{"aud", {1, 2}}}, "for another program"},
      {"several and no party", {{"aud", {"other", "reclaimnet"}}}, "given to another program"},
      {"given to another", {{"azp", "other"}}, "given to another program"},
      {"an empty party", {{"azp", ""}}, "given to another program"},
      {"over", {{"exp", kNowS - 121}}, "has expired"},
      {"over for long", {{"exp", 0}}, "has expired"},
      {"without an end", {{"exp", nullptr}}, "how long it counts"},
      {"an end that is no number", {{"exp", "tomorrow"}}, "how long it counts"},
      {"an end in a million years", {{"exp", 1e300}}, "how long it counts"},
      {"without a beginning", {{"iat", nullptr}}, "how long it counts"},
      {"of tomorrow", {{"iat", kNowS + 86'400}}, "from the future"},
      {"not yet", {{"nbf", kNowS + 121}}, "does not count yet"},
      {"not yet, in words", {{"nbf", "now"}}, "does not count yet"},
      {"another nonce", {{"nonce", "n-2"}}, "of another sign-in"},
      {"no nonce", {{"nonce", nullptr}}, "of another sign-in"},
      {"nobody", {{"sub", ""}}, "names nobody"},
      {"a number", {{"sub", 7}}, "names nobody"},
      {"a long name", {{"sub", std::string(256, 'a')}}, "names nobody"},
  };
  for (const Case& one : cases) {
    json claims = usual_claims();
    for (const auto& [name, value] : one.change.items()) {
      if (value.is_null()) {
        claims.erase(name);
      } else {
        claims[name] = value;
      }
    }
    EXPECT_NE(token_refusal(signed_with(claims)).find(one.words), std::string::npos) << one.name;
  }
}

TEST(IdToken, clocks_may_differ_by_two_minutes_and_several_audiences_name_their_party) {
  json claims = usual_claims();
  claims["exp"] = kNowS - 119;
  claims["iat"] = kNowS + 119;
  claims["nbf"] = kNowS + 119;
  EXPECT_EQ(token_refusal(signed_with(claims)), "");

  claims = usual_claims();
  claims["aud"] = {"other", "reclaimnet"};
  claims["azp"] = "reclaimnet";
  EXPECT_EQ(token_refusal(signed_with(claims)), "");
}

TEST(IdToken, only_true_itself_verifies_an_address) {
  for (const json& word : {json("true"), json(1), json(false), json(nullptr)}) {
    json claims = usual_claims();
    claims["email"] = "ann@example.org";
    claims["email_verified"] = word;
    const auto found = verify_id_token(signed_with(claims), both_keys(), usual_rules());
    ASSERT_TRUE(found.has_value()) << found.error().describe();
    EXPECT_FALSE(found->is_email_verified) << word;
  }
}

TEST(IdToken, the_algorithm_is_ours_to_choose) {
  const std::string claims = usual_claims().dump();
  const std::string body = "." + to_base64url(as_bytes(claims));
  for (const char* name : {"none", "None", "NONE", "", "HS256", "HS512", "RS1", "PS256", "ES384"}) {
    const std::string head =
        to_base64url(as_bytes(json{{"alg", name}, {"kid", "rsa-1"}}.dump())) + body;
    // With the public key as the shared secret, as those had it who took HS256 for RS256.
    const ProviderKey key = both_keys().front();
    const std::string by_secret = to_base64url(crypto::hmac_sha256(key.first, as_bytes(head)));
    for (const std::string& signature : {std::string(), std::string("AA"), by_secret})
      EXPECT_NE(token_refusal(head + "." + signature), "") << name;
  }
  // A key signs by its own algorithm alone.
  const std::string crossed =
      ec_signer().token_of(json{{"alg", "RS256"}, {"kid", "ec-1"}}.dump(), claims);
  EXPECT_NE(token_refusal(crossed), "");
}

TEST(IdToken, a_header_that_asks_for_more_is_refused) {
  const std::string claims = usual_claims().dump();
  for (const json& more :
       {json{{"crit", {"b64"}}, {"b64", false}},
        json{{"typ", "at+jwt"}},
        json{{"kid", ""}},
        json{{"kid", 7}},
        json{{"kid", std::string(300, 'k')}}}) {
    json header = rsa_signer().header();
    header.update(more);
    EXPECT_NE(token_refusal(rsa_signer().token_of(header.dump(), claims)), "") << more;
  }
  // Keys that it brings itself are not looked at.
  const TestSigner stranger(ProviderKey::Kind::kP256, "ec-1");
  json header = stranger.header();
  header["jwk"] = stranger.jwk();
  header["jku"] = "https://evil.example.org/keys";
  EXPECT_NE(
      token_refusal(stranger.token_of(header.dump(), claims)).find("is false"), std::string::npos
  );
}

TEST(IdToken, an_unknown_key_is_told_apart_so_that_the_set_is_read_again) {
  const TestSigner newer(ProviderKey::Kind::kP256, "ec-2");
  const auto claims = verify_id_token(newer.token(usual_claims()), both_keys(), usual_rules());

  ASSERT_FALSE(claims.has_value());
  EXPECT_EQ(claims.error().code, ErrorCode::kNotFound);
}

TEST(IdToken, one_without_a_key_id_is_of_the_only_key_of_its_kind) {
  const std::string token =
      rsa_signer().token_of(json{{"alg", "RS256"}}.dump(), usual_claims().dump());
  EXPECT_EQ(token_refusal(token), "");

  const TestSigner second(ProviderKey::Kind::kRsa, "rsa-2");
  const auto keys = *parse_key_set(key_set_of({&rsa_signer(), &second}));
  EXPECT_FALSE(verify_id_token(token, keys, usual_rules()).has_value());
}

TEST(IdToken, bytes_that_are_none_are_refused) {
  const std::string good = signed_with(usual_claims());
  ASSERT_EQ(token_refusal(good), "");
  const std::size_t first = good.find('.');
  const std::size_t second = good.rfind('.');
  const std::string nested = std::string(5000, '[') + std::string(5000, ']');
  const std::string twice = usual_claims().dump().insert(1, R"("sub":"root",)");
  const std::vector<std::string> bad = {
      "",
      ".",
      "..",
      "...",
      good.substr(0, second),
      good.substr(0, second + 1),
      good.substr(0, good.size() - 1),
      good.substr(0, good.size() - 8),
      good + "A",
      good + "=",
      good + ".",
      " " + good,
      good + "\n",
      good.substr(0, first) + good.substr(second) + good.substr(second),
      good.substr(0, first + 1) + to_base64url(as_bytes("{}")) + good.substr(second),
      std::string(kMaxIdTokenBytes + 1, 'A'),
      std::string(kMaxIdTokenBytes, '.'),
      rsa_signer().token_of(rsa_signer().header().dump(), twice),
      rsa_signer().token_of(R"({"alg":"none","alg":"RS256","kid":"rsa-1"})", usual_claims().dump()),
      rsa_signer().token_of(rsa_signer().header().dump(), "[]"),
      rsa_signer().token_of(rsa_signer().header().dump(), "null"),
      rsa_signer().token_of(rsa_signer().header().dump(), R"({"a":)" + nested + "}"),
      rsa_signer().token_of(rsa_signer().header().dump(), "{\"sub\":\"\xff\"}"),
      rsa_signer().token_of(rsa_signer().header().dump(), usual_claims().dump() + "x"),
  };
  for (const std::string& token : bad) EXPECT_NE(token_refusal(token), "") << token.substr(0, 80);
  for (std::size_t at = 0; at < good.size(); at += 7) {
    std::string changed = good;
    changed[at] = changed[at] == 'A' ? 'B' : 'A';
    EXPECT_NE(token_refusal(changed), "") << at;
  }
}

TEST(KeySet, keys_that_do_not_sign_so_are_left_out) {
  json set = {{"keys", json::array()}};
  const auto add = [&](const json& change) {
    json key = rsa_signer().jwk();
    key.update(change);
    set["keys"].push_back(key);
  };
  add({{"use", "enc"}});
  add({{"alg", "RS512"}});
  add({{"key_ops", json::array({"encrypt"})}});
  add({{"kty", "oct"}, {"k", "AAAA"}});
  add({{"n", "not base64url!"}});
  add({{"e", ""}});
  set["keys"].push_back({{"kty", "EC"}, {"crv", "P-384"}, {"x", "AA"}, {"y", "AA"}});
  set["keys"].push_back("a text");
  ASSERT_EQ(parse_key_set(set.dump())->size(), 0u);

  add({{"key_ops", json::array({"verify"})}, {"alg", "RS256"}});
  EXPECT_EQ(parse_key_set(set.dump())->size(), 1u);
}

TEST(KeySet, what_is_none_is_refused) {
  json many = {{"keys", json::array()}};
  for (int i = 0; i < 65; ++i) many["keys"].push_back(json::object());
  for (const std::string& text :
       {std::string(),
        std::string("[]"),
        std::string("{}"),
        std::string(R"({"keys": {}})"),
        std::string(R"({"keys": [], "keys": []})"),
        many.dump(),
        std::string(kMaxKeySetBytes + 1, ' ')})
    EXPECT_FALSE(parse_key_set(text).has_value()) << text.substr(0, 60);
}

TEST(KeySet, a_short_key_signs_nothing) {
  const TestSigner weak(ProviderKey::Kind::kRsa, "weak", 1024);
  const auto keys = *parse_key_set(key_set_of({&weak}));
  ASSERT_EQ(keys.size(), 1u);

  EXPECT_FALSE(verify_id_token(weak.token(usual_claims()), keys, usual_rules()).has_value());
}

}  // namespace
}  // namespace rn::coordinator
