// SPDX-License-Identifier: Apache-2.0
#include "io/send_bursts.h"

#include <algorithm>

#include <sys/socket.h>

namespace rn::io {

namespace {

constexpr std::uint64_t kBurstsPerSecond = 500;
constexpr std::uint64_t kTcpsOwnBurst = 64 << 10;
constexpr std::uint64_t kLeastBurst = 1448;  ///< a packet of Ethernet

}  // namespace

void SendBursts::set(std::uint64_t bytes_per_second, std::uint32_t segment) {
  begun_ = 0;
  most_ = 0;
  const std::uint64_t burst = std::max(bytes_per_second / kBurstsPerSecond, kLeastBurst);
  if (bytes_per_second == 0 || burst >= kTcpsOwnBurst) return;
  // Whole packets, where one is not longer than the burst.
  const bool has_whole = segment != 0 && segment <= burst;
  most_ = static_cast<std::size_t>(has_whole ? burst - burst % segment : burst);
}

SendBursts::Piece SendBursts::next(std::size_t offered) const {
  if (most_ == 0 || offered < most_ - begun_) return {offered, 0};
  return {most_ - begun_, MSG_EOR};
}

void SendBursts::sent(std::size_t bytes) {
  if (most_ == 0) return;
  begun_ += bytes;
  if (begun_ >= most_) begun_ = 0;
}

}  // namespace rn::io
