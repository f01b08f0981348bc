// SPDX-License-Identifier: Apache-2.0
#include "io/pki.h"

#include <gtest/gtest.h>

#include "io/tls_fixture.h"

namespace rn::io {
namespace {

constexpr WallTime kNow = wall_from_ms(1'700'000'000'000);

CertificateSpec spec_for(const std::string& uri) {
  CertificateSpec spec;
  spec.common_name = "node one";
  spec.uris = {uri};
  return spec;
}

CertificateAuthority authority(KeyKind kind = KeyKind::kP256) {
  return *CertificateAuthority::create("campus", kNow, kind);
}

TEST(Pki, issues_what_the_specification_says) {
  const auto ca = authority();
  CertificateSpec spec = spec_for("spiffe://campus/node/n-1");
  spec.dns_names = {"gpu1.lab"};
  spec.ip_addresses = {"10.1.2.3", "2001:db8::1"};
  const std::string key = *make_private_key(KeyKind::kEd25519);

  const auto info = read_certificate(*ca.issue(*public_key_of(key), spec, kNow));

  ASSERT_TRUE(info);
  EXPECT_EQ(info->common_name, "node one");
  EXPECT_EQ(info->uris, std::vector<std::string>{"spiffe://campus/node/n-1"});
  EXPECT_EQ(info->dns_names, std::vector<std::string>{"gpu1.lab"});
  EXPECT_EQ(info->ip_addresses, (std::vector<std::string>{"10.1.2.3", "2001:db8::1"}));
  EXPECT_EQ(info->not_before, kNow - std::chrono::hours(1));
  EXPECT_EQ(info->not_after, kNow + std::chrono::hours(7 * 24));
  EXPECT_EQ(info->public_key_pem, *public_key_of(key));
  EXPECT_FALSE(info->is_authority);
  EXPECT_EQ(info->serial.size(), 32U);
}

TEST(Pki, an_authority_survives_saving_and_loading) {
  for (const KeyKind kind : {KeyKind::kP256, KeyKind::kEd25519}) {
    const auto ca = authority(kind);

    const auto again = CertificateAuthority::load(ca.certificate_pem(), ca.private_key_pem());

    ASSERT_TRUE(again);
    EXPECT_EQ(again->fingerprint(), ca.fingerprint());
    EXPECT_EQ(again->fingerprint(), *certificate_fingerprint(ca.certificate_pem()));
    EXPECT_EQ(again->fingerprint().size(), 64U);
    EXPECT_TRUE(read_certificate(ca.certificate_pem())->is_authority);
  }
}

TEST(Pki, refuses_an_authority_with_a_foreign_key_or_without_the_right) {
  const auto ca = authority();
  const std::string key = *make_private_key(KeyKind::kP256);
  const auto leaf = ca.issue(*public_key_of(key), spec_for("spiffe://campus/x"), kNow);

  EXPECT_EQ(
      CertificateAuthority::load(ca.certificate_pem(), key).error().code, ErrorCode::kInvalid
  );
  EXPECT_EQ(CertificateAuthority::load(*leaf, key).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(CertificateAuthority::load("nonsense", key).error().code, ErrorCode::kInvalid);
}

TEST(Pki, takes_the_key_of_a_request_but_never_its_names) {
  const auto ca = authority();
  const std::string key = *make_private_key(KeyKind::kEd25519);
  const std::string request = *make_signing_request(key, "i am the coordinator");

  const auto issued = ca.issue_for_request(request, spec_for("spiffe://campus/node/n-2"), kNow);

  const auto info = read_certificate(*issued);
  EXPECT_EQ(info->common_name, "node one");
  EXPECT_EQ(info->uris, std::vector<std::string>{"spiffe://campus/node/n-2"});
  EXPECT_EQ(info->public_key_pem, *public_key_of(key));
}

TEST(Pki, refuses_a_request_that_was_changed) {
  const auto ca = authority();
  const std::string key = *make_private_key(KeyKind::kP256);
  std::string request = *make_signing_request(key, "node");
  const std::size_t end = request.find("-----END");
  request[end - 20] = request[end - 20] == 'A' ? 'B' : 'A';  // inside the signature

  const auto issued = ca.issue_for_request(request, spec_for("spiffe://campus/x"), kNow);

  ASSERT_FALSE(issued);
  EXPECT_TRUE(
      issued.error().code == ErrorCode::kDenied || issued.error().code == ErrorCode::kInvalid
  );
}

TEST(Pki, refuses_names_and_keys_that_it_should_not_sign) {
  const auto ca = authority();
  const std::string key = *public_key_of(*make_private_key(KeyKind::kP256));

  EXPECT_EQ(ca.issue(key, CertificateSpec{}, kNow).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(ca.issue(key, spec_for("has blank"), kNow).error().code, ErrorCode::kInvalid);
  CertificateSpec spec = spec_for("spiffe://campus/x");
  spec.ip_addresses = {"10.1.2"};
  EXPECT_EQ(ca.issue(key, spec, kNow).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(ca.issue("no key", spec_for("spiffe://x/y"), kNow).error().code, ErrorCode::kInvalid);
}

TEST(Pki, a_certificate_never_outlives_its_authority) {
  const auto ca = authority();
  const std::string key = *public_key_of(*make_private_key(KeyKind::kP256));
  const WallTime ca_end = read_certificate(ca.certificate_pem())->not_after;

  const auto late = ca.issue(key, spec_for("spiffe://x/y"), ca_end - std::chrono::hours(1));

  EXPECT_EQ(read_certificate(*late)->not_after, ca_end);
  EXPECT_EQ(
      ca.issue(key, spec_for("spiffe://x/y"), ca_end + std::chrono::hours(2)).error().code,
      ErrorCode::kUnavailable
  );
}

}  // namespace
}  // namespace rn::io
