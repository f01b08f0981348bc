// SPDX-License-Identifier: Apache-2.0
#include "io/pki.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>
#include <utility>

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "base/bytes.h"
#include "io/openssl_error.h"

namespace rn::io {

Error openssl_error(ErrorCode code, std::string_view what) {
  std::string text(what);
  const unsigned long number = ERR_get_error();
  if (number != 0) {
    std::array<char, 256> reason{};
    ERR_error_string_n(number, reason.data(), reason.size());
    text += ": ";
    text += reason.data();
  }
  ERR_clear_error();
  return Error{code, std::move(text), {}};
}

namespace {

constexpr std::size_t kMaxNameBytes = 255;

using GeneralNamesPtr = std::unique_ptr<GENERAL_NAMES, FreedBy<GENERAL_NAMES_free>>;

tl::unexpected<Error> broken(std::string_view what) {
  return fail(openssl_error(ErrorCode::kInternal, what));
}

BioPtr reader(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  return {data, static_cast<std::size_t>(size)};
}

int no_password(char*, int, int, void*) {
  return -1;
}

Result<std::string> to_pem(X509* certificate) {
  const BioPtr out(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(out.get(), certificate) != 1) return broken("writing a certificate");
  return text_of(out.get());
}

Result<std::string> public_to_pem(EVP_PKEY* key) {
  const BioPtr out(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PUBKEY(out.get(), key) != 1) return broken("writing a public key");
  return text_of(out.get());
}

/// Ed25519 signs without a separate digest.
const EVP_MD* digest_for(const EVP_PKEY* key) {
  return EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519 ? nullptr : EVP_sha256();
}

Status check_key_kind(const EVP_PKEY* key) {
  const int kind = EVP_PKEY_get_base_id(key);
  if (kind == EVP_PKEY_ED25519) return {};
  if (kind == EVP_PKEY_EC && EVP_PKEY_get_bits(key) == 256) return {};
  return fail(ErrorCode::kInvalid, "only P-256 and Ed25519 keys are accepted");
}

Status set_common_name(X509_NAME* name, const std::string& text) {
  if (text.size() > 64) return fail(ErrorCode::kInvalid, "a common name has at most 64 bytes");
  if (text.empty()) return {};
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const int size = static_cast<int>(text.size());
  if (X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, bytes, size, -1, 0) != 1)
    return fail(openssl_error(ErrorCode::kInvalid, "setting the common name"));
  return {};
}

Status check_name(const std::string& name) {
  const bool is_printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (name.empty() || name.size() > kMaxNameBytes || !is_printable)
    return fail(ErrorCode::kInvalid, "'" + name + "' cannot be a name in a certificate");
  return {};
}

Status add_general_name(GENERAL_NAMES* names, int kind, const std::string& text) {
  RN_CHECK(check_name(text));
  ASN1_STRING* value = kind == GEN_IPADD ? a2i_IPADDRESS(text.c_str()) : ASN1_IA5STRING_new();
  if (value == nullptr)
    return fail(openssl_error(ErrorCode::kInvalid, "'" + text + "' is no address"));
  if (kind != GEN_IPADD) ASN1_STRING_set(value, text.data(), static_cast<int>(text.size()));
  GENERAL_NAME* name = GENERAL_NAME_new();
  GENERAL_NAME_set0_value(name, kind, value);
  sk_GENERAL_NAME_push(names, name);
  return {};
}

Status add_names(X509* certificate, const CertificateSpec& spec) {
  const GeneralNamesPtr names(GENERAL_NAMES_new());
  for (const auto& uri : spec.uris) RN_CHECK(add_general_name(names.get(), GEN_URI, uri));
  for (const auto& dns : spec.dns_names) RN_CHECK(add_general_name(names.get(), GEN_DNS, dns));
  for (const auto& ip : spec.ip_addresses) RN_CHECK(add_general_name(names.get(), GEN_IPADD, ip));
  if (sk_GENERAL_NAME_num(names.get()) == 0)
    return fail(ErrorCode::kInvalid, "a certificate needs at least one name");
  if (X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) != 1)
    return broken("adding names");
  return {};
}

Status add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context{};
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  if (extension == nullptr) return broken("making a certificate's extension");
  const int added = X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
  if (added != 1) return broken("adding a certificate's extension");
  return {};
}

Status set_random_serial(X509* certificate) {
  std::array<unsigned char, 16> raw{};
  if (RAND_bytes(raw.data(), static_cast<int>(raw.size())) != 1) return broken("making a serial");
  raw[0] = static_cast<unsigned char>((raw[0] & 0x7f) | 0x40);  // positive, always 16 bytes
  BIGNUM* number = BN_bin2bn(raw.data(), static_cast<int>(raw.size()), nullptr);
  const auto* set = BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
  BN_free(number);
  if (set == nullptr) return broken("setting a serial");
  return {};
}

Status set_validity(X509* certificate, WallTime from, WallTime to) {
  // NOTE: rounds down to whole seconds, which is all that X.509 has.
  if (ASN1_TIME_set(X509_getm_notBefore(certificate), to_ms(from) / 1000) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate), to_ms(to) / 1000) == nullptr)
    return broken("setting a certificate's times");
  return {};
}

WallTime wall_time_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return WallTime();
  return wall_from_ms(std::int64_t{timegm(&parts)} * 1000);
}

Result<CertPtr> new_certificate(EVP_PKEY* key, const std::string& common_name) {
  CertPtr certificate(X509_new());
  if (!certificate || X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      X509_set_pubkey(certificate.get(), key) != 1)
    return broken("making a certificate");
  RN_CHECK(set_random_serial(certificate.get()));
  RN_CHECK(set_common_name(X509_get_subject_name(certificate.get()), common_name));
  return certificate;
}

std::string textual_address(const ASN1_OCTET_STRING* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = ASN1_STRING_length(address) == 4 ? AF_INET : AF_INET6;
  if (family == AF_INET6 && ASN1_STRING_length(address) != 16) return {};
  if (inet_ntop(family, ASN1_STRING_get0_data(address), text.data(), text.size()) == nullptr)
    return {};
  return text.data();
}

std::string text_of_string(const ASN1_STRING* string) {
  const auto* data = reinterpret_cast<const char*>(ASN1_STRING_get0_data(string));
  return {data, static_cast<std::size_t>(ASN1_STRING_length(string))};
}

GeneralNamesPtr names_of(const X509* certificate) {
  return GeneralNamesPtr(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)
  ));
}

void read_names(const X509* certificate, CertificateInfo& info) {
  const GeneralNamesPtr names = names_of(certificate);
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_URI)
      info.uris.push_back(text_of_string(name->d.uniformResourceIdentifier));
    if (name->type == GEN_DNS) info.dns_names.push_back(text_of_string(name->d.dNSName));
    if (name->type == GEN_IPADD) info.ip_addresses.push_back(textual_address(name->d.iPAddress));
  }
}

std::string serial_of(const X509* certificate) {
  const ASN1_INTEGER* serial = X509_get0_serialNumber(certificate);
  const auto size = static_cast<std::size_t>(ASN1_STRING_length(serial));
  return to_hex(BlobView(ASN1_STRING_get0_data(serial), size));
}

std::string common_name_of(const X509* certificate) {
  const X509_NAME* subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return {};
  return text_of_string(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

struct Signer {
  CertPtr certificate;
  KeyPtr key;
};

Result<Signer> load_signer(const std::string& certificate_pem, const std::string& key_pem) {
  RN_TRY(CertPtr certificate, parse_certificate(certificate_pem));
  RN_TRY(KeyPtr key, parse_private_key(key_pem));
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return fail(ErrorCode::kInvalid, "the key does not belong to the certificate");
  }
  if (X509_check_ca(certificate.get()) != 1)
    return fail(ErrorCode::kInvalid, "the certificate is not one of an authority");
  return Signer{std::move(certificate), std::move(key)};
}

Result<std::string> issue_for_key(
    const Signer& signer, EVP_PKEY* key, const CertificateSpec& spec, WallTime now
) {
  RN_CHECK(check_key_kind(key));
  if (spec.validity <= milliseconds(0) || spec.backdating < milliseconds(0))
    return fail(ErrorCode::kInvalid, "a certificate must be valid for some time");
  RN_TRY(const CertPtr leaf, new_certificate(key, spec.common_name));
  X509* issuer = signer.certificate.get();
  if (X509_set_issuer_name(leaf.get(), X509_get_subject_name(issuer)) != 1)
    return broken("setting the issuer");
  const WallTime ca_from = wall_time_of(X509_get0_notBefore(issuer));
  const WallTime ca_to = wall_time_of(X509_get0_notAfter(issuer));
  const WallTime from = std::max(now - spec.backdating, ca_from);
  const WallTime to = std::min(now + spec.validity, ca_to);
  if (to <= from) {
    return fail(
        ErrorCode::kUnavailable,
        "the certificate authority has expired",
        "check the clock; otherwise make a new authority and join the nodes again"
    );
  }
  RN_CHECK(set_validity(leaf.get(), from, to));
  RN_CHECK(add_extension(leaf.get(), issuer, NID_basic_constraints, "critical,CA:FALSE"));
  RN_CHECK(add_extension(leaf.get(), issuer, NID_key_usage, "critical,digitalSignature"));
  RN_CHECK(add_extension(leaf.get(), issuer, NID_ext_key_usage, "serverAuth,clientAuth"));
  RN_CHECK(add_extension(leaf.get(), issuer, NID_authority_key_identifier, "keyid"));
  RN_CHECK(add_names(leaf.get(), spec));
  if (X509_sign(leaf.get(), signer.key.get(), digest_for(signer.key.get())) == 0)
    return broken("signing a certificate");
  return to_pem(leaf.get());
}

}  // namespace

Result<KeyPtr> parse_private_key(const std::string& pem) {
  KeyPtr key(PEM_read_bio_PrivateKey(reader(pem).get(), nullptr, no_password, nullptr));
  if (!key) return fail(openssl_error(ErrorCode::kInvalid, "not a private key in PEM form"));
  return key;
}

Result<CertPtr> parse_certificate(const std::string& pem) {
  CertPtr certificate(PEM_read_bio_X509(reader(pem).get(), nullptr, no_password, nullptr));
  if (!certificate)
    return fail(openssl_error(ErrorCode::kInvalid, "not a certificate in PEM form"));
  return certificate;
}

std::string fingerprint_of(const X509* certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (X509_digest(certificate, EVP_sha256(), digest.data(), &size) != 1) return {};
  return to_hex(BlobView(digest.data(), size));
}

std::string first_uri_of(const X509* certificate) {
  CertificateInfo info;
  read_names(certificate, info);
  return info.uris.empty() ? std::string() : info.uris.front();
}

Result<std::string> make_private_key(KeyKind kind) {
  const KeyPtr key(
      kind == KeyKind::kP256 ? EVP_EC_gen("P-256") : EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")
  );
  if (!key) return broken("making a key");
  const BioPtr out(BIO_new(BIO_s_secmem()));
  if (PEM_write_bio_PKCS8PrivateKey(out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) !=
      1)
    return broken("writing a key");
  return text_of(out.get());
}

Result<std::string> public_key_of(const std::string& private_key_pem) {
  RN_TRY(const KeyPtr key, parse_private_key(private_key_pem));
  return public_to_pem(key.get());
}

Result<std::string> make_signing_request(
    const std::string& private_key_pem, const std::string& common_name
) {
  RN_TRY(const KeyPtr key, parse_private_key(private_key_pem));
  const RequestPtr request(X509_REQ_new());
  if (!request || X509_REQ_set_pubkey(request.get(), key.get()) != 1)
    return broken("making a signing request");
  RN_CHECK(set_common_name(X509_REQ_get_subject_name(request.get()), common_name));
  if (X509_REQ_sign(request.get(), key.get(), digest_for(key.get())) == 0)
    return broken("signing a request");
  const BioPtr out(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509_REQ(out.get(), request.get()) != 1) return broken("writing a request");
  return text_of(out.get());
}

Result<CertificateInfo> read_certificate(const std::string& pem) {
  RN_TRY(const CertPtr certificate, parse_certificate(pem));
  CertificateInfo info;
  info.common_name = common_name_of(certificate.get());
  info.serial = serial_of(certificate.get());
  info.fingerprint = fingerprint_of(certificate.get());
  info.not_before = wall_time_of(X509_get0_notBefore(certificate.get()));
  info.not_after = wall_time_of(X509_get0_notAfter(certificate.get()));
  info.is_authority = X509_check_ca(certificate.get()) == 1;
  read_names(certificate.get(), info);
  RN_TRY(info.public_key_pem, public_to_pem(X509_get0_pubkey(certificate.get())));
  return info;
}

Result<std::string> certificate_fingerprint(const std::string& pem) {
  RN_TRY(const CertPtr certificate, parse_certificate(pem));
  return fingerprint_of(certificate.get());
}

CertificateAuthority::CertificateAuthority(
    std::string certificate_pem, std::string private_key_pem, std::string fingerprint
)
    : certificate_pem_(std::move(certificate_pem)),
      private_key_pem_(std::move(private_key_pem)),
      fingerprint_(std::move(fingerprint)) {}

Result<CertificateAuthority> CertificateAuthority::create(
    const std::string& name, WallTime now, KeyKind kind
) {
  if (name.empty()) return fail(ErrorCode::kInvalid, "an authority needs a name");
  RN_TRY(std::string key_pem, make_private_key(kind));
  RN_TRY(const KeyPtr key, parse_private_key(key_pem));
  RN_TRY(const CertPtr root, new_certificate(key.get(), name));
  X509* self = root.get();
  if (X509_set_issuer_name(self, X509_get_subject_name(self)) != 1)
    return broken("setting the issuer");
  // A week, as long as a leaf lives: a node whose clock is behind by days can still join a new
  // site.
  RN_CHECK(set_validity(self, now - kCertificateValidity, now + kAuthorityValidity));
  RN_CHECK(add_extension(self, self, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  RN_CHECK(add_extension(self, self, NID_key_usage, "critical,keyCertSign,cRLSign"));
  RN_CHECK(add_extension(self, self, NID_subject_key_identifier, "hash"));
  if (X509_sign(self, key.get(), digest_for(key.get())) == 0)
    return broken("signing the authority");
  RN_TRY(std::string pem, to_pem(self));
  return CertificateAuthority(std::move(pem), std::move(key_pem), fingerprint_of(self));
}

Result<CertificateAuthority> CertificateAuthority::load(
    const std::string& certificate_pem, const std::string& private_key_pem
) {
  RN_TRY(const Signer signer, load_signer(certificate_pem, private_key_pem));
  return CertificateAuthority(
      certificate_pem, private_key_pem, fingerprint_of(signer.certificate.get())
  );
}

Result<std::string> CertificateAuthority::issue(
    const std::string& public_key_pem, const CertificateSpec& spec, WallTime now
) const {
  RN_TRY(const Signer signer, load_signer(certificate_pem_, private_key_pem_));
  const KeyPtr key(PEM_read_bio_PUBKEY(reader(public_key_pem).get(), nullptr, no_password, nullptr)
  );
  if (!key) return fail(openssl_error(ErrorCode::kInvalid, "not a public key in PEM form"));
  return issue_for_key(signer, key.get(), spec, now);
}

Result<std::string> CertificateAuthority::issue_for_request(
    const std::string& csr_pem, const CertificateSpec& spec, WallTime now
) const {
  RN_TRY(const Signer signer, load_signer(certificate_pem_, private_key_pem_));
  const RequestPtr request(
      PEM_read_bio_X509_REQ(reader(csr_pem).get(), nullptr, no_password, nullptr)
  );
  if (!request)
    return fail(openssl_error(ErrorCode::kInvalid, "not a signing request in PEM form"));
  EVP_PKEY* key = X509_REQ_get0_pubkey(request.get());
  if (key == nullptr || X509_REQ_verify(request.get(), key) != 1)
    return fail(openssl_error(ErrorCode::kDenied, "the request is not signed by its own key"));
  return issue_for_key(signer, key, spec, now);
}

}  // namespace rn::io
