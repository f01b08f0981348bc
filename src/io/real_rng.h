// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/rng.h"

namespace rn::io {

/// getrandom(2): fit for keys and tokens. Thread-safe. Aborts if the kernel gives none, since going
/// on would be unsafe.
class RealRng final : public Rng {
 public:
  void fill(std::span<std::uint8_t> out) override;
};

}  // namespace rn::io
