// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rn::reclaim {

/// What sending generations takes of a processor, measured: a part once for each, and a
/// part for each byte. Pure. Newer ones count more, each older one 0.8 as much. Whatever is
/// measured, what comes out lies between the bounds.
class CopyCost {
 public:
  static constexpr double kAssumedOnce_s = 0.1;  ///< of a core: syncs, receipts, rows
  static constexpr double kLeastOnce_s = 0.02;   ///< holder and coordinator work for it, too
  static constexpr double kMostOnce_s = 1;
  static constexpr double kLeastByte_s = 0.2e-9;    ///< five gigabytes in a second of a core
  static constexpr double kMostByte_s = 200e-9;     ///< five megabytes
  static constexpr double kTellingBytes = 1 << 20;  ///< less says nothing of a byte's cost

  /// One that moved `bytes` took `cpu_s` seconds of a core. Ignored unless `cpu_s` is positive (no
  /// clock was read) and `bytes` is not negative.
  void observe(double bytes, double cpu_s);

  /// Large enough ones were seen for per_byte_s() to be measured.
  bool is_measured() const { return bytes_ > 0; }

  double once_s() const { return once_s_; }

  /// Of a core; 0 before anything was measured.
  double per_byte_s() const;

  /// Cores that are busy while bytes go at this rate; one before anything was measured.
  double busy_cores(double bytes_per_s) const;

 private:
  double once_s_ = kAssumedOnce_s;
  double cpu_s_ = 0;  ///< Σ, without what is spent once
  double bytes_ = 0;  ///< Σ
};

}  // namespace rn::reclaim
