// SPDX-License-Identifier: Apache-2.0
#include "base/rng.h"

#include <bit>

#include "base/assert.h"

namespace rn {

std::uint64_t Rng::next() {
  std::array<std::uint8_t, 8> raw{};
  fill(raw);
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < raw.size(); ++i) value |= std::uint64_t{raw[i]} << (8 * i);
  return value;
}

std::uint64_t Rng::below(std::uint64_t bound) {
  RN_ASSERT(bound > 0, "an empty range has no element");
  const std::uint64_t reject_under = (0 - bound) % bound;  // rejection keeps the result uniform
  for (;;) {
    const std::uint64_t value = next();
    if (value >= reject_under) return value % bound;
  }
}

double Rng::unit() {
  return static_cast<double>(next() >> 11) * 0x1.0p-53;
}

std::string Rng::hex(std::size_t bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    std::uint8_t byte = 0;
    fill({&byte, 1});
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

SeededRng::SeededRng(std::uint64_t seed) {
  for (auto& word : state_) {
    seed += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    word = z ^ (z >> 31);
  }
}

std::uint64_t SeededRng::step() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

void SeededRng::fill(std::span<std::uint8_t> out) {
  std::size_t i = 0;
  while (i < out.size()) {
    std::uint64_t word = step();
    for (int k = 0; k < 8 && i < out.size(); ++k, ++i) {
      out[i] = static_cast<std::uint8_t>(word);
      word >>= 8;
    }
  }
}

}  // namespace rn
