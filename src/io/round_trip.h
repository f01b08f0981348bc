// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace rn::io {

/// What TCP has measured of a connection; zero = not known.
struct RoundTrip {
  std::chrono::microseconds now{0};    ///< smoothed, of what was acknowledged last
  std::chrono::microseconds least{0};  ///< of the last five minutes (tcp_min_rtt_wlen)
};

}  // namespace rn::io
