// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/gpu_health.h"
#include "base/time.h"
#include "model/warden.h"

// What the core remembers of the contract's hours and of single GPUs, beside its rows.
namespace rn::agent {

/// Why lending ends by the calendar: nobody waits for the node before that minute.
inline constexpr const char* kWindowEnds = "the lending window ends";
inline constexpr const char* kGpuWindowEnds = "the lending window of this GPU ends";

/// Of one GPU: whether its owner computes on it or it is sick, and what the warden was told of it.
struct GpuWatch {
  std::optional<Instant> used_since;
  std::optional<Instant> free_since;
  GpuSigns signs;  ///< the newest
  std::optional<Instant> hot_since;
  std::optional<Instant> cool_since;
  bool is_hot = false;
  std::string sickness;  ///< empty: it is well
  warden_wire::AnnounceGpu told;
  std::optional<Instant> told_at;  ///< none: nothing is under way
};

/// The contract's calendar, looked at once instead of at every event.
struct Calendar {
  WallTime seen;
  std::int32_t utc_offset_s = 0;
  bool is_inside = false;
  std::optional<WallTime> change;  ///< none = not within eight days
};

}  // namespace rn::agent
