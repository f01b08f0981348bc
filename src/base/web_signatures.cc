// SPDX-License-Identifier: Apache-2.0
#include "base/web_signatures.h"

#include <algorithm>
#include <array>
#include <memory>

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

#include "base/freed_by.h"

namespace rn::crypto {

namespace {

constexpr std::size_t kCoordinateBytes = 32;
constexpr int kMinModulusBits = 2048;
constexpr int kMaxModulusBits = 8192;

using WebKey = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;
using WebKeyContext = std::unique_ptr<EVP_PKEY_CTX, FreedBy<EVP_PKEY_CTX_free>>;
using WebDigest = std::unique_ptr<EVP_MD_CTX, FreedBy<EVP_MD_CTX_free>>;
using WebNumber = std::unique_ptr<BIGNUM, FreedBy<BN_free>>;
using WebBuilder = std::unique_ptr<OSSL_PARAM_BLD, FreedBy<OSSL_PARAM_BLD_free>>;
using WebParameters = std::unique_ptr<OSSL_PARAM, FreedBy<OSSL_PARAM_free>>;
using WebPair = std::unique_ptr<ECDSA_SIG, FreedBy<ECDSA_SIG_free>>;

/// nullptr if it is no key: of a point, that it is on the curve is looked at, too.
WebKey web_key(const char* type, OSSL_PARAM_BLD* builder) {
  const WebParameters parameters(OSSL_PARAM_BLD_to_param(builder));
  const WebKeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  if (!parameters || !context || EVP_PKEY_fromdata_init(context.get()) <= 0) return nullptr;
  EVP_PKEY* key = nullptr;
  if (EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, parameters.get()) <= 0)
    return nullptr;
  return WebKey(key);
}

WebNumber web_number(BlobView bytes) {
  return WebNumber(BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr));
}

bool has_signed(EVP_PKEY* key, BlobView message, BlobView signature) {
  const WebDigest digest(EVP_MD_CTX_new());
  const int set_up = digest == nullptr
                         ? 0
                         : EVP_DigestVerifyInit_ex(
                               digest.get(), nullptr, "SHA256", nullptr, nullptr, key, nullptr
                           );
  return set_up == 1 &&
         EVP_DigestVerify(
             digest.get(), signature.data(), signature.size(), message.data(), message.size()
         ) == 1;
}

/// What OpenSSL notes of a failure would else be read as one of this thread's next TLS call.
bool without_notes(bool answer) {
  ERR_clear_error();
  return answer;
}

bool verify_rsa(BlobView modulus, BlobView exponent, BlobView message, BlobView signature) {
  const WebNumber n = web_number(modulus);
  const WebNumber e = web_number(exponent);
  if (!n || !e) return false;
  const int bits = BN_num_bits(n.get());
  const bool is_sound = bits >= kMinModulusBits && bits <= kMaxModulusBits &&
                        BN_is_odd(n.get()) == 1 && BN_is_odd(e.get()) == 1 &&
                        BN_num_bits(e.get()) >= 2 && BN_num_bits(e.get()) <= 32;
  const WebBuilder builder(OSSL_PARAM_BLD_new());
  if (!is_sound || !builder ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) != 1 ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) != 1)
    return false;
  const WebKey key = web_key("RSA", builder.get());
  return key != nullptr && has_signed(key.get(), message, signature);
}

bool verify_p256(BlobView x, BlobView y, BlobView message, BlobView signature) {
  std::array<std::uint8_t, 1 + 2 * kCoordinateBytes> point{4};  // both coordinates follow
  std::copy(x.begin(), x.end(), point.begin() + 1);
  std::copy(y.begin(), y.end(), point.begin() + 1 + kCoordinateBytes);
  const WebBuilder builder(OSSL_PARAM_BLD_new());
  if (!builder ||
      OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) !=
          1 ||
      OSSL_PARAM_BLD_push_octet_string(
          builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(), point.size()
      ) != 1)
    return false;
  const WebKey key = web_key("EC", builder.get());
  const WebPair pair(ECDSA_SIG_new());
  WebNumber r = web_number(signature.first(kCoordinateBytes));
  WebNumber s = web_number(signature.last(kCoordinateBytes));
  if (!key || !pair || !r || !s || ECDSA_SIG_set0(pair.get(), r.get(), s.get()) != 1) return false;
  (void)r.release();  // the pair's now
  (void)s.release();
  std::array<std::uint8_t, 80> der{};  // 72 at most
  unsigned char* end = der.data();
  const int length = i2d_ECDSA_SIG(pair.get(), nullptr);
  if (length <= 0 || static_cast<std::size_t>(length) > der.size() ||
      i2d_ECDSA_SIG(pair.get(), &end) != length)
    return false;
  return has_signed(key.get(), message, BlobView(der.data(), static_cast<std::size_t>(length)));
}

}  // namespace

bool verify_rs256(BlobView modulus, BlobView exponent, BlobView message, BlobView signature) {
  constexpr std::size_t kMaxBytes = kMaxModulusBits / 8;
  if (modulus.size() > kMaxBytes || exponent.size() > 8 || signature.size() > kMaxBytes)
    return false;
  return without_notes(verify_rsa(modulus, exponent, message, signature));
}

bool verify_es256(BlobView x, BlobView y, BlobView message, BlobView signature) {
  if (x.size() != kCoordinateBytes || y.size() != kCoordinateBytes ||
      signature.size() != 2 * kCoordinateBytes)
    return false;
  return without_notes(verify_p256(x, y, message, signature));
}

}  // namespace rn::crypto
