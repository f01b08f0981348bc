// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include "base/error.h"
#include "base/freed_by.h"

// Private to io: OpenSSL objects with owners, and its error queue as text.
namespace rn::io {

using KeyPtr = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;
using CertPtr = std::unique_ptr<X509, FreedBy<X509_free>>;
using BioPtr = std::unique_ptr<BIO, FreedBy<BIO_free_all>>;
using RequestPtr = std::unique_ptr<X509_REQ, FreedBy<X509_REQ_free>>;

/// "`what`: reason" with the oldest entry of this thread's queue, which is emptied.
Error openssl_error(ErrorCode code, std::string_view what);

/// kInvalid if the text is not what it should be. Only unencrypted keys are read.
Result<KeyPtr> parse_private_key(const std::string& pem);
Result<CertPtr> parse_certificate(const std::string& pem);
std::string fingerprint_of(const X509* certificate);  ///< SHA-256 of the DER form, hex
/// First URI SAN, or empty.
std::string first_uri_of(const X509* certificate);

}  // namespace rn::io
