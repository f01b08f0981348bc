// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: an identity provider that signs as real ones do, without a network.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>

#include "base/bytes.h"
#include "coordinator/id_token.h"
#include "io/delivery.h"
#include "io/http.h"

namespace rn::coordinator {

/// A key of a provider's and what it signs.
class TestSigner {
 public:
  TestSigner(ProviderKey::Kind kind, std::string id, std::size_t bits = 2048)
      : kind_(kind),
        id_(std::move(id)),
        key_(
            kind == ProviderKey::Kind::kRsa ? EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", bits)
                                            : EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"),
            &EVP_PKEY_free
        ) {}

  const std::string& id() const { return id_; }

  const char* algorithm() const { return is_rsa() ? "RS256" : "ES256"; }

  nlohmann::json jwk() const {
    if (is_rsa())
      return {
          {"kty", "RSA"},
          {"kid", id_},
          {"use", "sig"},
          {"n", to_base64url(number(OSSL_PKEY_PARAM_RSA_N, 0))},
          {"e", to_base64url(number(OSSL_PKEY_PARAM_RSA_E, 0))}};
    return {
        {"kty", "EC"},
        {"crv", "P-256"},
        {"kid", id_},
        {"x", to_base64url(number(OSSL_PKEY_PARAM_EC_PUB_X, 32))},
        {"y", to_base64url(number(OSSL_PKEY_PARAM_EC_PUB_Y, 32))}};
  }

  nlohmann::json header() const { return {{"alg", algorithm()}, {"kid", id_}}; }

  /// "HEADER.CLAIMS.SIGNATURE"
  std::string token(const nlohmann::json& claims) const {
    return token_of(header().dump(), claims.dump());
  }

  std::string token_of(const std::string& header, const std::string& claims) const {
    const std::string covered =
        to_base64url(as_bytes(header)) + "." + to_base64url(as_bytes(claims));
    return covered + "." + to_base64url(signature(covered));
  }

  Blob signature(const std::string& covered) const {
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> digest(
        EVP_MD_CTX_new(), &EVP_MD_CTX_free
    );
    Blob made(1024);
    std::size_t length = made.size();
    const BlobView bytes = as_bytes(covered);
    EXPECT_EQ(
        EVP_DigestSignInit_ex(
            digest.get(), nullptr, "SHA256", nullptr, nullptr, key_.get(), nullptr
        ),
        1
    );
    EXPECT_EQ(EVP_DigestSign(digest.get(), made.data(), &length, bytes.data(), bytes.size()), 1);
    made.resize(length);
    return is_rsa() ? made : as_two_numbers(made);
  }

 private:
  bool is_rsa() const { return kind_ == ProviderKey::Kind::kRsa; }

  /// `width` 0: as long as it is.
  Blob number(const char* name, int width) const {
    BIGNUM* value = nullptr;
    EXPECT_EQ(EVP_PKEY_get_bn_param(key_.get(), name, &value), 1);
    Blob bytes(static_cast<std::size_t>(width == 0 ? BN_num_bytes(value) : width));
    EXPECT_GE(BN_bn2binpad(value, bytes.data(), static_cast<int>(bytes.size())), 0);
    BN_free(value);
    return bytes;
  }

  static Blob as_two_numbers(const Blob& der) {
    const unsigned char* at = der.data();
    ECDSA_SIG* const pair = d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(der.size()));
    EXPECT_NE(pair, nullptr);
    Blob both(64);
    EXPECT_EQ(BN_bn2binpad(ECDSA_SIG_get0_r(pair), both.data(), 32), 32);
    EXPECT_EQ(BN_bn2binpad(ECDSA_SIG_get0_s(pair), both.data() + 32, 32), 32);
    ECDSA_SIG_free(pair);
    return both;
  }

  ProviderKey::Kind kind_;
  std::string id_;
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key_;
};

inline std::string key_set_of(const std::vector<const TestSigner*>& signers) {
  nlohmann::json keys = nlohmann::json::array();
  for (const TestSigner* signer : signers) keys.push_back(signer->jwk());
  return nlohmann::json{{"keys", keys}}.dump();
}

/// Answers in place of io::ask(). Any thread.
class PlayedProvider {
 public:
  static constexpr const char* kIssuer = "https://login.example.org/realm";

  PlayedProvider() : signer_(ProviderKey::Kind::kP256, "ec-1") {
    documents_["/realm/.well-known/openid-configuration"] = discovery().dump();
    documents_["/realm/keys"] = key_set_of({&signer_});
  }

  static nlohmann::json discovery() {
    const std::string base = kIssuer;
    return {
        {"issuer", base},
        {"authorization_endpoint", base + "/auth"},
        {"token_endpoint", base + "/token"},
        {"jwks_uri", base + "/keys"},
        {"device_authorization_endpoint", base + "/device"}};
  }

  const TestSigner& signer() const { return signer_; }

  /// Of a document, or of what a POST gives; empty: the server is away.
  void answers(const std::string& path, const std::string& body, int status = 200) {
    const std::lock_guard lock(mutex_);
    documents_[path] = body;
    statuses_[path] = status;
  }

  /// What the next sign-in says of whom.
  void signs(const nlohmann::json& claims) {
    answers(
        "/realm/token",
        nlohmann::json{
            {"access_token", "x"}, {"token_type", "Bearer"}, {"id_token", signer_.token(claims)}}
            .dump()
    );
  }

  std::vector<io::AskCall> asked(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    const auto found = asked_.find(path);
    return found == asked_.end() ? std::vector<io::AskCall>{} : found->second;
  }

  Result<io::HttpReply> operator()(const io::AskCall& call) {
    const std::lock_guard lock(mutex_);
    const std::string host = "https://login.example.org";
    EXPECT_TRUE(call.url.starts_with(host + "/")) << call.url;
    const std::string path = call.url.substr(host.size());
    asked_[path].push_back(call);
    const auto found = documents_.find(path);
    if (found == documents_.end()) return io::HttpReply{404, {}, "{}"};
    if (found->second.empty()) return fail(ErrorCode::kUnavailable, "nobody is there");
    const auto status = statuses_.find(path);
    return io::HttpReply{status == statuses_.end() ? 200 : status->second, {}, found->second};
  }

 private:
  TestSigner signer_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> documents_;
  std::map<std::string, int> statuses_;
  std::map<std::string, std::vector<io::AskCall>> asked_;
};

}  // namespace rn::coordinator
