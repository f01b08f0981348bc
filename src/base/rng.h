// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace rn {

/// Source of randomness. The real one is io/real_rng.h; tests and the simulator use SeededRng.
class Rng {
 public:
  virtual ~Rng() = default;
  virtual void fill(std::span<std::uint8_t> out) = 0;

  std::uint64_t next();                      ///< 64 uniform bits
  std::uint64_t below(std::uint64_t bound);  ///< uniform in [0, bound); bound > 0
  double unit();                             ///< uniform in [0, 1)
  std::string hex(std::size_t bytes);        ///< 2·bytes lower-case hex digits
};

/// xoshiro256** seeded by splitmix64 (Blackman and Vigna, 2018). Same seed, same sequence, on every
/// machine. Not secret.
class SeededRng final : public Rng {
 public:
  explicit SeededRng(std::uint64_t seed);
  void fill(std::span<std::uint8_t> out) override;

 private:
  std::uint64_t step();
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace rn
