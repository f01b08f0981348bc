// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/bytes.h"

// Signatures that others make and we only verify, as JSON Web Signatures have them (RFC 7518). Keys
// come as numbers in big-endian bytes. Nothing here blocks; false for what is no key, no signature
// or not this message's.
namespace rn::crypto {

/// RS256: RSASSA-PKCS1-v1_5 with SHA-256. Moduli of 2048 to 8192 bits, odd exponents from 3 to
/// 2^32.
bool verify_rs256(BlobView modulus, BlobView exponent, BlobView message, BlobView signature);

/// ES256: ECDSA on P-256 with SHA-256. Coordinates are 32 bytes each, signatures r and s, 64 in
/// all.
bool verify_es256(BlobView x, BlobView y, BlobView message, BlobView signature);

}  // namespace rn::crypto
