// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.h"

namespace rn::agent {

/// What others than the own transfers send by the interface that these leave by: its byte counter
/// less what the transfers sent, as a moving average over about a second. Reads procfs below a root
/// folder ("" = the machine; a fixture in tests). Not thread-safe.
class UplinkMeter {
 public:
  explicit UplinkMeter(std::string root) : root_(std::move(root)) {}

  /// Bits per second. `own_bytes`: sent by transfers in all, growing. 0 at the first look, after
  /// another interface, and where there is no counter of this name.
  std::uint64_t measure(const std::string& interface, std::uint64_t own_bytes, Instant now);

  /// Forgets what was seen: nothing is measured for a while.
  void reset();

 private:
  std::optional<std::uint64_t> counter_of(const std::string& interface) const;

  std::string root_;
  std::string interface_;
  std::uint64_t sent_ = 0;
  std::uint64_t own_bytes_ = 0;
  Instant seen_at_{};
  double foreign_bps_ = 0;
};

}  // namespace rn::agent
