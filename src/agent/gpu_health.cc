// SPDX-License-Identifier: Apache-2.0
#include "agent/gpu_health.h"

#include <algorithm>
#include <array>

namespace rn::agent {

namespace {

constexpr std::size_t kXidsKept = 8;

/// As NVIDIA's list of Xid errors has them. Those of programs (13, 31, 43, 45 …) a guest brings
/// about as it likes.
constexpr std::array<std::uint32_t, 11> kHardwareXids = {
    48,   // an error of two bits in memory
    63,   // a page or row is retired
    64,   // and could not be
    74,   // NVLink
    79,   // fallen off the bus
    92,   // many errors of one bit
    94,   // an uncorrected error, contained
    95,   // and not contained
    119,  // its own processor does not answer
    120,  // its own processor has failed
    140,  // an unrecovered error of memory
};

constexpr const char* kResetHelp = "reset it (nvidia-smi --gpu-reset) or restart the machine";

}  // namespace

bool is_of_hardware(std::uint32_t xid) {
  return std::find(kHardwareXids.begin(), kHardwareXids.end(), xid) != kHardwareXids.end();
}

bool note_signs(GpuHealth& health, const GpuSigns& signs) {
  const GpuHealth before = health;
  for (const std::uint32_t xid : signs.xids) {
    const bool is_known =
        std::find(health.xids.begin(), health.xids.end(), xid) != health.xids.end();
    if (is_of_hardware(xid) && !is_known && health.xids.size() < kXidsKept)
      health.xids.push_back(xid);
  }
  if (signs.is_lost) return health != before;                    // it says nothing of the rest
  if (signs.uncorrected < health.accepted) health.accepted = 0;  // counted anew
  if (!signs.is_remap_failed) health.is_remap_accepted = false;
  if (!signs.needs_reset) health.is_reset_accepted = false;
  return health != before;
}

void accept_signs(GpuHealth& health, const GpuSigns& signs) {
  health.xids.clear();
  if (signs.is_lost) return;
  health.accepted = signs.uncorrected;
  health.is_remap_accepted = signs.is_remap_failed;
  health.is_reset_accepted = signs.needs_reset;
}

std::string sickness_of(const GpuHealth& health, const GpuSigns& signs, bool is_hot) {
  if (signs.is_lost)
    return "it has fallen off the bus; next: restart the machine, and look at its power and slot";
  if (signs.is_remap_failed && !health.is_remap_accepted)
    return "a broken row of its memory could not be replaced; next: have the card replaced";
  if (!health.xids.empty()) {
    std::string numbers;
    for (const std::uint32_t xid : health.xids)
      numbers += (numbers.empty() ? "" : ", ") + std::to_string(xid);
    return std::string("its driver tells of the hardware (Xid ") + numbers +
           "); next: look at dmesg, and " + kResetHelp;
  }
  if (signs.needs_reset && !health.is_reset_accepted)
    return std::string("a broken page of its memory waits to be replaced; next: ") + kResetHelp;
  if (signs.uncorrected > health.accepted)
    return std::to_string(signs.uncorrected - health.accepted) +
           " errors of its memory could not be corrected; next: " + kResetHelp;
  if (is_hot) return "it has been slowed by heat; next: look at its fans and the room";
  return "";
}

}  // namespace rn::agent
