// SPDX-License-Identifier: Apache-2.0
#include "base/crypto.h"

#include <algorithm>
#include <array>
#include <map>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>

#include "base/assert.h"
#include "base/freed_by.h"

namespace rn::crypto {

namespace {

using CipherContext = std::unique_ptr<EVP_CIPHER_CTX, FreedBy<EVP_CIPHER_CTX_free>>;
using KeyHandle = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, FreedBy<EVP_MD_CTX_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, FreedBy<EVP_PKEY_CTX_free>>;

/// Fetched once: OpenSSL 3 looks algorithms up by name on every EVP_sha256() use otherwise.
const EVP_MD* sha256_algorithm() {
  static const EVP_MD* const kAlgorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return kAlgorithm;
}

const EVP_CIPHER* aes_algorithm() {
  static const EVP_CIPHER* const kAlgorithm = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  return kAlgorithm;
}

KeyHandle raw_private(int type, const Key256& secret) {
  return KeyHandle(EVP_PKEY_new_raw_private_key(type, nullptr, secret.data(), secret.size()));
}

KeyHandle raw_public(int type, const PublicKey& key) {
  return KeyHandle(EVP_PKEY_new_raw_public_key(type, nullptr, key.data(), key.size()));
}

/// To load a key takes OpenSSL as long as to sign with it: those that this thread has used stay
/// loaded. `keys`: of one kind, a thread's own. nullptr if it is no key.
template <auto Load>
EVP_PKEY* kept(std::map<Key256, KeyHandle>& keys, const Key256& raw) {
  constexpr std::size_t kMost = 128;
  const auto found = keys.find(raw);
  if (found != keys.end()) return found->second.get();
  KeyHandle loaded = Load(EVP_PKEY_ED25519, raw);
  if (!loaded) return nullptr;
  if (keys.size() >= kMost) keys.clear();
  return keys.emplace(raw, std::move(loaded)).first->second.get();
}

PublicKey public_part(const KeyHandle& key) {
  PublicKey out{};
  std::size_t length = out.size();
  RN_ASSERT(
      EVP_PKEY_get_raw_public_key(key.get(), out.data(), &length) == 1,
      "a private key has a public part"
  );
  return out;
}

Result<Key256> agree(const Key256& secret, const PublicKey& peer) {
  const KeyHandle mine = raw_private(EVP_PKEY_X25519, secret);
  const KeyHandle theirs = raw_public(EVP_PKEY_X25519, peer);
  const KeyContext context(EVP_PKEY_CTX_new(mine.get(), nullptr));
  Key256 shared{};
  std::size_t length = shared.size();
  if (EVP_PKEY_derive_init(context.get()) != 1 ||
      EVP_PKEY_derive_set_peer(context.get(), theirs.get()) != 1 ||
      EVP_PKEY_derive(context.get(), shared.data(), &length) != 1) {
    return fail(ErrorCode::kCorrupt, "key agreement failed: not a valid public key");
  }
  return shared;
}

int as_int(std::size_t length) {
  RN_ASSERT(length <= 0x7fffffff, "OpenSSL takes lengths as int");
  return static_cast<int>(length);
}

}  // namespace

Digest sha256(BlobView bytes) {
  Digest out{};
  RN_ASSERT(
      EVP_Digest(bytes.data(), bytes.size(), out.data(), nullptr, sha256_algorithm(), nullptr) == 1,
      "SHA-256"
  );
  return out;
}

Digest hmac_sha256(BlobView key, BlobView bytes) {
  Digest out{};
  unsigned length = 0;
  HMAC(
      sha256_algorithm(),
      key.data(),
      as_int(key.size()),
      bytes.data(),
      bytes.size(),
      out.data(),
      &length
  );
  RN_ASSERT(length == out.size(), "HMAC-SHA-256 is 32 bytes");
  return out;
}

bool equal_in_constant_time(BlobView a, BlobView b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

struct Sha256::State {
  DigestContext context{EVP_MD_CTX_new()};
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  EVP_DigestInit_ex(state_->context.get(), sha256_algorithm(), nullptr);
}

Sha256::~Sha256() = default;

void Sha256::update(BlobView bytes) {
  EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size());
}

Digest Sha256::finish() {
  Digest out{};
  EVP_DigestFinal_ex(state_->context.get(), out.data(), nullptr);
  return out;
}

Key256 random_key(Rng& rng) {
  Key256 key{};
  rng.fill(key);
  return key;
}

Blob seal(const Key256& key, BlobView plaintext, BlobView associated, Rng& rng) {
  Blob out;
  seal_onto(out, key, plaintext, associated, rng);
  return out;
}

void seal_onto(Blob& out, const Key256& key, BlobView plaintext, BlobView associated, Rng& rng) {
  out.reserve(out.size() + kNonceBytes + plaintext.size() + kTagBytes);
  std::array<std::uint8_t, kNonceBytes> nonce;
  rng.fill(nonce);
  out.insert(out.end(), nonce.begin(), nonce.end());
  const CipherContext context(EVP_CIPHER_CTX_new());
  int length = 0;
  bool ok =
      EVP_EncryptInit_ex(context.get(), aes_algorithm(), nullptr, key.data(), nonce.data()) == 1;
  if (!associated.empty()) {
    ok = ok && EVP_EncryptUpdate(
                   context.get(), nullptr, &length, associated.data(), as_int(associated.size())
               ) == 1;
  }
  // By way of a piece that stays in the cache: what a vector grows by would be zeroed first,
  // megabytes of it.
  std::array<std::uint8_t, std::size_t{16} << 10> piece;
  while (ok && !plaintext.empty()) {
    const BlobView part = plaintext.first(std::min(plaintext.size(), piece.size()));
    plaintext = plaintext.subspan(part.size());
    ok =
        EVP_EncryptUpdate(context.get(), piece.data(), &length, part.data(), as_int(part.size())) ==
        1;
    out.insert(out.end(), piece.begin(), piece.begin() + length);
  }
  ok = ok && EVP_EncryptFinal_ex(context.get(), piece.data(), &length) == 1;
  std::array<std::uint8_t, kTagBytes> tag;
  ok = ok &&
       EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, as_int(kTagBytes), tag.data()) == 1;
  out.insert(out.end(), tag.begin(), tag.end());
  RN_ASSERT(ok, "AES-256-GCM encryption does not fail on valid input");
}

Result<Blob> unseal(const Key256& key, BlobView sealed, BlobView associated) {
  if (sealed.size() < kNonceBytes + kTagBytes)
    return fail(ErrorCode::kCorrupt, "sealed bytes are too short");
  const BlobView nonce = sealed.first(kNonceBytes);
  const BlobView body = sealed.subspan(kNonceBytes, sealed.size() - kNonceBytes - kTagBytes);
  Blob tag(sealed.end() - kTagBytes, sealed.end());
  Blob out(body.size());
  const CipherContext context(EVP_CIPHER_CTX_new());
  int length = 0;
  bool ok =
      EVP_DecryptInit_ex(context.get(), aes_algorithm(), nullptr, key.data(), nonce.data()) == 1;
  if (!associated.empty()) {
    ok = ok && EVP_DecryptUpdate(
                   context.get(), nullptr, &length, associated.data(), as_int(associated.size())
               ) == 1;
  }
  ok = ok &&
       EVP_DecryptUpdate(context.get(), out.data(), &length, body.data(), as_int(body.size())) == 1;
  ok = ok &&
       EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, as_int(kTagBytes), tag.data()) == 1;
  ok = ok && EVP_DecryptFinal_ex(context.get(), out.data() + length, &length) == 1;
  if (!ok) return fail(ErrorCode::kCorrupt, "authentication failed: changed bytes or another key");
  return out;
}

SigningKey signing_key_from_seed(const Key256& seed) {
  return {seed, public_part(raw_private(EVP_PKEY_ED25519, seed))};
}

SigningKey make_signing_key(Rng& rng) {
  return signing_key_from_seed(random_key(rng));
}

Signature sign(const SigningKey& key, BlobView message) {
  thread_local std::map<Key256, KeyHandle> keys;
  EVP_PKEY* const loaded = kept<raw_private>(keys, key.seed);
  const DigestContext context(EVP_MD_CTX_new());
  Signature out{};
  std::size_t length = out.size();
  const bool ok =
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, loaded) == 1 &&
      EVP_DigestSign(context.get(), out.data(), &length, message.data(), message.size()) == 1;
  RN_ASSERT(ok, "Ed25519 signing does not fail on valid input");
  return out;
}

bool verify(const PublicKey& key, BlobView message, const Signature& signature) {
  thread_local std::map<PublicKey, KeyHandle> keys;
  EVP_PKEY* const loaded = kept<raw_public>(keys, key);
  const DigestContext context(EVP_MD_CTX_new());
  return loaded != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, loaded) == 1 &&
         EVP_DigestVerify(
             context.get(), signature.data(), signature.size(), message.data(), message.size()
         ) == 1;
}

Key256 derive_key(BlobView secret, std::string_view purpose) {
  const KeyContext context(EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr));
  Key256 out{};
  std::size_t length = out.size();
  const auto* info = reinterpret_cast<const unsigned char*>(purpose.data());
  const bool ok =
      EVP_PKEY_derive_init(context.get()) == 1 &&
      EVP_PKEY_CTX_set_hkdf_md(context.get(), sha256_algorithm()) == 1 &&
      EVP_PKEY_CTX_set1_hkdf_key(context.get(), secret.data(), as_int(secret.size())) == 1 &&
      EVP_PKEY_CTX_add1_hkdf_info(context.get(), info, as_int(purpose.size())) == 1 &&
      EVP_PKEY_derive(context.get(), out.data(), &length) == 1;
  RN_ASSERT(ok, "HKDF does not fail on valid input");
  return out;
}

BoxKey box_key_from_secret(const Key256& secret) {
  return {secret, public_part(raw_private(EVP_PKEY_X25519, secret))};
}

BoxKey make_box_key(Rng& rng) {
  return box_key_from_secret(random_key(rng));
}

namespace {

/// The key of one box: bound to both public keys, so that a box cannot be passed on under another.
Key256 box_key(const Key256& shared, const PublicKey& ephemeral, const PublicKey& recipient) {
  std::array<std::uint8_t, 3 * std::tuple_size_v<Key256>> secret{};
  auto* at = std::copy(shared.begin(), shared.end(), secret.data());
  at = std::copy(ephemeral.begin(), ephemeral.end(), at);
  std::copy(recipient.begin(), recipient.end(), at);
  return derive_key(secret, "reclaimnet box v1");
}

}  // namespace

Blob seal_for(const PublicKey& recipient, BlobView plaintext, BlobView associated, Rng& rng) {
  const BoxKey ephemeral = make_box_key(rng);
  const auto shared = agree(ephemeral.secret, recipient);
  RN_ASSERT(shared.has_value(), "the recipient's public key was checked when it was registered");
  const Key256 key = box_key(*shared, ephemeral.public_key, recipient);
  Blob out = seal(key, plaintext, associated, rng);
  out.insert(out.begin(), ephemeral.public_key.begin(), ephemeral.public_key.end());
  return out;
}

Result<Blob> open_sealed(const BoxKey& recipient, BlobView sealed, BlobView associated) {
  PublicKey ephemeral{};
  if (sealed.size() < ephemeral.size()) return fail(ErrorCode::kCorrupt, "sealed box is too short");
  std::copy_n(sealed.begin(), ephemeral.size(), ephemeral.begin());
  RN_TRY(const Key256 shared, agree(recipient.secret, ephemeral));
  const Key256 key = box_key(shared, ephemeral, recipient.public_key);
  return unseal(key, sealed.subspan(ephemeral.size()), associated);
}

}  // namespace rn::crypto
