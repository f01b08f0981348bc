// SPDX-License-Identifier: Apache-2.0
#include "base/ids.h"

#include <charconv>

namespace rn {

std::string to_string(LeaseEpoch epoch) {
  return std::to_string(epoch.generation) + "." + std::to_string(epoch.attempt);
}

LeaseEpoch parse_epoch(const std::string& text) {
  LeaseEpoch epoch;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, epoch.generation);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return {};
  const auto second = std::from_chars(first.ptr + 1, end, epoch.attempt);
  if (second.ec != std::errc() || second.ptr != end) return {};
  return epoch;
}

}  // namespace rn
