// SPDX-License-Identifier: Apache-2.0
#include "base/sha256_lanes.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.h"
#include "base/crypto.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace rn::crypto {

namespace {

constexpr std::size_t kBlockBytes = 64;
constexpr std::size_t kLanes = 8;

using State = std::array<std::uint32_t, 8>;
/// As the vectors hold them: word by word, each with all lanes.
using LaneStates = std::array<std::array<std::uint32_t, kLanes>, 8>;
using LaneBlocks = std::array<const std::uint8_t*, kLanes>;

constexpr State kInitial = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

alignas(64) constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#if defined(__x86_64__)

// The rounds are the same for both widths of instructions; only rotating and the three-input
// functions differ. FIPS 180-4, section 6.2.2. Each lane's pointer is advanced past its block.

#define RN_SHA256_ROUNDS(ROTATE, CHOOSE, MAJORITY, XOR3)                                          \
  _Pragma("GCC unroll 64") for (std::size_t t = 0; t < 64; ++t) {                                 \
    __m256i& word = w[t % 16];                                                                    \
    if (t >= 16) {                                                                                \
      const __m256i w1 = w[(t + 1) % 16];                                                         \
      const __m256i w14 = w[(t + 14) % 16];                                                       \
      const __m256i s0 = XOR3(ROTATE(w1, 7), ROTATE(w1, 18), _mm256_srli_epi32(w1, 3));           \
      const __m256i s1 = XOR3(ROTATE(w14, 17), ROTATE(w14, 19), _mm256_srli_epi32(w14, 10));      \
      word = _mm256_add_epi32(_mm256_add_epi32(word, s0), _mm256_add_epi32(w[(t + 9) % 16], s1)); \
    }                                                                                             \
    const __m256i e = s[4];                                                                       \
    const __m256i a = s[0];                                                                       \
    const __m256i sum1 = XOR3(ROTATE(e, 6), ROTATE(e, 11), ROTATE(e, 25));                        \
    const __m256i sum0 = XOR3(ROTATE(a, 2), ROTATE(a, 13), ROTATE(a, 22));                        \
    const __m256i k = _mm256_set1_epi32(static_cast<int>(kRound[t]));                             \
    const __m256i t1 = _mm256_add_epi32(                                                          \
        _mm256_add_epi32(_mm256_add_epi32(s[7], sum1), CHOOSE(e, s[5], s[6])),                    \
        _mm256_add_epi32(k, word)                                                                 \
    );                                                                                            \
    const __m256i t2 = _mm256_add_epi32(sum0, MAJORITY(a, s[1], s[2]));                           \
    s[7] = s[6];                                                                                  \
    s[6] = s[5];                                                                                  \
    s[5] = e;                                                                                     \
    s[4] = _mm256_add_epi32(s[3], t1);                                                            \
    s[3] = s[2];                                                                                  \
    s[2] = s[1];                                                                                  \
    s[1] = a;                                                                                     \
    s[0] = _mm256_add_epi32(t1, t2);                                                              \
  }

/// 16 words of 8 lanes, big-endian in the message: two 8 by 8 transpositions.
__attribute__((target("avx2"))) inline void load_block(
    const LaneBlocks& at, std::size_t half, __m256i* w
) {
  const __m256i swap = _mm256_set_epi8(
      12,
      13,
      14,
      15,
      8,
      9,
      10,
      11,
      4,
      5,
      6,
      7,
      0,
      1,
      2,
      3,  //
      12,
      13,
      14,
      15,
      8,
      9,
      10,
      11,
      4,
      5,
      6,
      7,
      0,
      1,
      2,
      3
  );
  __m256i r[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    const auto* from = reinterpret_cast<const __m256i*>(at[i] + half * 32);
    r[i] = _mm256_shuffle_epi8(_mm256_loadu_si256(from), swap);
  }
  __m256i u[kLanes];
  for (std::size_t i = 0; i < kLanes; i += 2) {
    u[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    u[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
  __m256i v[kLanes];
  for (std::size_t i = 0; i < kLanes; i += 4) {
    v[i] = _mm256_unpacklo_epi64(u[i], u[i + 2]);
    v[i + 1] = _mm256_unpackhi_epi64(u[i], u[i + 2]);
    v[i + 2] = _mm256_unpacklo_epi64(u[i + 1], u[i + 3]);
    v[i + 3] = _mm256_unpackhi_epi64(u[i + 1], u[i + 3]);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    w[half * 8 + i] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x20);
    w[half * 8 + i + 4] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x31);
  }
}

#define RN_SHA256_BLOCKS(ROTATE, CHOOSE, MAJORITY, XOR3)                           \
  __m256i s[8];                                                                    \
  for (std::size_t i = 0; i < 8; ++i)                                              \
    s[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(states[i].data())); \
  for (; blocks > 0; --blocks) {                                                   \
    __m256i w[16];                                                                 \
    load_block(at, 0, w);                                                          \
    load_block(at, 1, w);                                                          \
    __m256i before[8];                                                             \
    for (std::size_t i = 0; i < 8; ++i) before[i] = s[i];                          \
    RN_SHA256_ROUNDS(ROTATE, CHOOSE, MAJORITY, XOR3)                               \
    for (std::size_t i = 0; i < 8; ++i) s[i] = _mm256_add_epi32(s[i], before[i]);  \
    for (const std::uint8_t*& lane : at) lane += kBlockBytes;                      \
  }                                                                                \
  for (std::size_t i = 0; i < 8; ++i)                                              \
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(states[i].data()), s[i]);

#define RN_ROTATE(x, n) _mm256_or_si256(_mm256_srli_epi32(x, n), _mm256_slli_epi32(x, 32 - (n)))
#define RN_CHOOSE(x, y, z) _mm256_xor_si256(z, _mm256_and_si256(x, _mm256_xor_si256(y, z)))
#define RN_MAJORITY(x, y, z) \
  _mm256_or_si256(_mm256_and_si256(x, y), _mm256_and_si256(z, _mm256_or_si256(x, y)))
#define RN_XOR3(x, y, z) _mm256_xor_si256(_mm256_xor_si256(x, y), z)

__attribute__((target("avx2"))) void hash_blocks_avx2(
    LaneStates& states, LaneBlocks& at, std::size_t blocks
) {
  RN_SHA256_BLOCKS(RN_ROTATE, RN_CHOOSE, RN_MAJORITY, RN_XOR3)
}

#undef RN_ROTATE
#undef RN_CHOOSE
#undef RN_MAJORITY
#undef RN_XOR3
#define RN_ROTATE(x, n) _mm256_ror_epi32(x, n)
#define RN_CHOOSE(x, y, z) _mm256_ternarylogic_epi32(x, y, z, 0xca)
#define RN_MAJORITY(x, y, z) _mm256_ternarylogic_epi32(x, y, z, 0xe8)
#define RN_XOR3(x, y, z) _mm256_ternarylogic_epi32(x, y, z, 0x96)

__attribute__((target("avx2,avx512f,avx512vl"))) void hash_blocks_avx512(
    LaneStates& states, LaneBlocks& at, std::size_t blocks
) {
  RN_SHA256_BLOCKS(RN_ROTATE, RN_CHOOSE, RN_MAJORITY, RN_XOR3)
}

#undef RN_ROTATE
#undef RN_CHOOSE
#undef RN_MAJORITY
#undef RN_XOR3
#undef RN_SHA256_BLOCKS
#undef RN_SHA256_ROUNDS

bool has_sha_instructions() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & (1U << 29)) != 0;
}

bool has_vectors(LaneWay way) {
  if (way == LaneWay::kAvx2) return __builtin_cpu_supports("avx2") != 0;
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}

void hash_blocks(LaneWay way, LaneStates& states, LaneBlocks& at, std::size_t blocks) {
  if (way == LaneWay::kAvx512) return hash_blocks_avx512(states, at, blocks);
  hash_blocks_avx2(states, at, blocks);
}

#else

bool has_sha_instructions() {
  return false;
}

bool has_vectors(LaneWay) {
  return false;
}

void hash_blocks(LaneWay, LaneStates&, LaneBlocks&, std::size_t) {}

#endif

LaneWay best_way() {
  static const LaneWay best = has_sha_instructions()      ? LaneWay::kOneByOne
                              : has_way(LaneWay::kAvx512) ? LaneWay::kAvx512
                              : has_way(LaneWay::kAvx2)   ? LaneWay::kAvx2
                                                          : LaneWay::kOneByOne;
  return best;
}

/// One message on its way through a lane: its whole blocks, then the padding.
struct Lane {
  BlobView left;  ///< whole blocks only
  std::array<std::uint8_t, 2 * kBlockBytes> tail{};
  std::size_t tail_at = 0;
  std::size_t tail_bytes = 0;

  /// `before`: bytes that the lane's first state stands for.
  Lane(BlobView message, std::uint64_t before) {
    const std::size_t whole = message.size() / kBlockBytes * kBlockBytes;
    left = message.first(whole);
    const BlobView rest = message.subspan(whole);
    std::copy(rest.begin(), rest.end(), tail.begin());
    tail[rest.size()] = 0x80;
    tail_bytes = rest.size() + 9 <= kBlockBytes ? kBlockBytes : 2 * kBlockBytes;
    const std::uint64_t bits = (before + message.size()) * 8;
    for (std::size_t i = 0; i < 8; ++i)
      tail[tail_bytes - 1 - i] = static_cast<std::uint8_t>(bits >> (8 * i));
  }

  std::size_t blocks_in_a_row() const {
    return (left.empty() ? tail_bytes - tail_at : left.size()) / kBlockBytes;
  }

  const std::uint8_t* next() const { return left.empty() ? tail.data() + tail_at : left.data(); }

  void advance(std::size_t blocks) {
    if (left.empty()) {
      tail_at += blocks * kBlockBytes;
    } else {
      left = left.subspan(blocks * kBlockBytes);
    }
  }

  bool is_done() const { return left.empty() && tail_at == tail_bytes; }
};

/// Up to kLanes messages from one state. A lane that is done goes on over bytes that do not matter.
std::vector<State> run_lanes(
    LaneWay way, std::span<const BlobView> messages, const State& from, std::uint64_t before
) {
  LaneStates states;
  for (std::size_t word = 0; word < 8; ++word) states[word].fill(from[word]);
  std::vector<Lane> lanes;
  for (const BlobView& message : messages) lanes.emplace_back(message, before);
  std::vector<State> out(messages.size());
  std::size_t done = 0;
  while (done < lanes.size()) {
    std::size_t blocks = ~std::size_t{0};
    LaneBlocks at{};
    const std::uint8_t* any = nullptr;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      if (lanes[i].is_done()) continue;
      blocks = std::min(blocks, lanes[i].blocks_in_a_row());
      at[i] = lanes[i].next();
      any = at[i];
    }
    for (const std::uint8_t*& lane : at) lane = lane == nullptr ? any : lane;
    hash_blocks(way, states, at, blocks);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      if (lanes[i].is_done()) continue;
      lanes[i].advance(blocks);
      if (!lanes[i].is_done()) continue;
      for (std::size_t word = 0; word < 8; ++word) out[i][word] = states[word][i];
      ++done;
    }
  }
  return out;
}

Digest to_digest(const State& state) {
  Digest out{};
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

std::vector<Digest> each(
    LaneWay way, std::span<const BlobView> messages, const State& from, std::uint64_t before
) {
  std::vector<Digest> out;
  for (std::size_t at = 0; at < messages.size(); at += kLanes) {
    const auto some = messages.subspan(at, std::min(kLanes, messages.size() - at));
    for (const State& state : run_lanes(way, some, from, before)) out.push_back(to_digest(state));
  }
  return out;
}

using Pad = std::array<std::uint8_t, kBlockBytes>;

/// The state after a block of the key: RFC 2104.
State keyed(LaneWay way, BlobView key, std::uint8_t value) {
  Pad pad{};
  std::copy(key.begin(), key.end(), pad.begin());
  for (std::uint8_t& byte : pad) byte ^= value;
  LaneStates states;
  for (std::size_t word = 0; word < 8; ++word) states[word].fill(kInitial[word]);
  LaneBlocks at;
  at.fill(pad.data());
  hash_blocks(way, states, at, 1);
  State out{};
  for (std::size_t word = 0; word < 8; ++word) out[word] = states[word][0];
  return out;
}

}  // namespace

bool has_way(LaneWay way) {
  return way == LaneWay::kOneByOne || has_vectors(way);
}

std::size_t sha256_lanes() {
  return best_way() == LaneWay::kOneByOne ? 1 : kLanes;
}

std::vector<Digest> sha256_each(std::span<const BlobView> messages, LaneWay way) {
  RN_ASSERT(has_way(way), "asked before");
  if (way != LaneWay::kOneByOne) return each(way, messages, kInitial, 0);
  std::vector<Digest> out;
  for (const BlobView& message : messages) out.push_back(sha256(message));
  return out;
}

std::vector<Digest> sha256_each(std::span<const BlobView> messages) {
  return sha256_each(messages, messages.size() < 2 ? LaneWay::kOneByOne : best_way());
}

std::vector<Digest> hmac_sha256_each(BlobView key, std::span<const BlobView> messages) {
  const LaneWay way = best_way();
  if (messages.size() < 2 || way == LaneWay::kOneByOne || key.size() > kBlockBytes) {
    std::vector<Digest> out;
    for (const BlobView& message : messages) out.push_back(hmac_sha256(key, message));
    return out;
  }
  const std::vector<Digest> inner = each(way, messages, keyed(way, key, 0x36), kBlockBytes);
  std::vector<BlobView> outer(inner.begin(), inner.end());
  return each(way, outer, keyed(way, key, 0x5c), kBlockBytes);
}

}  // namespace rn::crypto
