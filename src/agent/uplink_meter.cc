// SPDX-License-Identifier: Apache-2.0
#include "agent/uplink_meter.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace rn::agent {

namespace {

constexpr double kForeignMemory_s = 1;
/// Headers of Ethernet, IP, TCP and TLS beside what a transfer counts: 66 bytes for each 1448.
constexpr double kHeaderShare = 0.05;
constexpr int kSentColumn = 8;  ///< of /proc/net/dev, behind the name

}  // namespace

std::optional<std::uint64_t> UplinkMeter::counter_of(const std::string& interface) const {
  std::ifstream file(root_ + "/proc/net/dev");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(' ');
    if (line.substr(begin, colon - begin) != interface) continue;
    std::istringstream columns(line.substr(colon + 1));
    std::uint64_t value = 0;
    for (int column = 0; column <= kSentColumn; ++column) {
      if (!(columns >> value)) return std::nullopt;
    }
    return value;
  }
  return std::nullopt;
}

void UplinkMeter::reset() {
  interface_.clear();
  foreign_bps_ = 0;
}

std::uint64_t UplinkMeter::measure(
    const std::string& interface, std::uint64_t own_bytes, Instant now
) {
  const auto sent = counter_of(interface);
  if (!sent) {
    reset();
    return 0;
  }
  const bool is_known = interface == interface_ && *sent >= sent_ && own_bytes >= own_bytes_;
  const double span_s = std::chrono::duration<double>(now - seen_at_).count();
  if (is_known && span_s > 0) {
    const double own = static_cast<double>(own_bytes - own_bytes_) * (1 + kHeaderShare);
    const double foreign = std::max(static_cast<double>(*sent - sent_) - own, 0.0) * 8 / span_s;
    foreign_bps_ += (foreign - foreign_bps_) * (1 - std::exp(-span_s / kForeignMemory_s));
  } else if (!is_known) {
    foreign_bps_ = 0;
  }
  interface_ = interface;
  sent_ = *sent;
  own_bytes_ = own_bytes;
  seen_at_ = now;
  return static_cast<std::uint64_t>(std::llround(foreign_bps_));
}

}  // namespace rn::agent
