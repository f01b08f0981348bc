// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/rng.h"

// Thin wrappers over OpenSSL 3. Randomness always arrives through Rng, so that a simulated run
// repeats byte by byte.
namespace rn::crypto {

Digest sha256(BlobView bytes);
Digest hmac_sha256(BlobView key, BlobView bytes);
bool equal_in_constant_time(BlobView a, BlobView b);

/// SHA-256 over pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(BlobView bytes);
  Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

using Key256 = std::array<std::uint8_t, 32>;
inline constexpr std::size_t kNonceBytes = 12;
inline constexpr std::size_t kTagBytes = 16;

Key256 random_key(Rng& rng);

/// AES-256-GCM: answers nonce ‖ ciphertext ‖ tag. `associated` is authenticated, not stored.
Blob seal(const Key256& key, BlobView plaintext, BlobView associated, Rng& rng);
/// The same, appended to `out`: bulk data is not copied twice.
void seal_onto(Blob& out, const Key256& key, BlobView plaintext, BlobView associated, Rng& rng);
/// Inverse of seal. kCorrupt if anything was changed or the key is another one.
Result<Blob> unseal(const Key256& key, BlobView sealed, BlobView associated);

/// Ed25519. Seeds and public keys are 32 bytes, signatures 64.
using PublicKey = std::array<std::uint8_t, 32>;
using Signature = std::array<std::uint8_t, 64>;

struct SigningKey {
  Key256 seed{};
  PublicKey public_key{};
};

SigningKey make_signing_key(Rng& rng);
SigningKey signing_key_from_seed(const Key256& seed);
Signature sign(const SigningKey& key, BlobView message);
bool verify(const PublicKey& key, BlobView message, const Signature& signature);

/// HKDF-SHA-256 with empty salt.
Key256 derive_key(BlobView secret, std::string_view purpose);

/// Sealed box for one recipient: X25519 with an ephemeral key, HKDF, AES-256-GCM.
/// Used for the job's key in an evacuation plan: whoever carries it cannot read it. Box keys are 32
/// bytes.
struct BoxKey {
  Key256 secret{};
  PublicKey public_key{};
};

BoxKey make_box_key(Rng& rng);
BoxKey box_key_from_secret(const Key256& secret);
Blob seal_for(const PublicKey& recipient, BlobView plaintext, BlobView associated, Rng& rng);
Result<Blob> open_sealed(const BoxKey& recipient, BlobView sealed, BlobView associated);

}  // namespace rn::crypto
