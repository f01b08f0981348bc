// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rn {

/// What of `reclaim-warden kill` can be done before that program is loaded.
struct EarlyOrder {
  enum class Cut { kNothing, kGuests, kGuestsOfGpus, kTransfers };

  Cut cut = Cut::kGuests;
  std::uint64_t gpus = 0;     ///< bit per index; for kGuestsOfGpus
  bool is_understood = true;  ///< to the last word; --help orders nothing
  const char* state = "/var/lib/reclaimnet";
  const char* run = "/run/reclaimnet";
  const char* lab = "";  ///< empty: as served
};

/// The words after the program's name. An order that lets something go on, or that is not
/// understood to the last word (also by a flag that is given twice, but for --gpu), cuts nothing
/// here: `reclaim-warden kill` knows what to make of it.
/// The words must outlive the answer. Pure.
EarlyOrder read_early_order(int count, const char* const* words);

/// Whether the lab that was asked for is the one that `settings` (STATE/warden/settings, possibly
/// cut off or empty) says was served. Where nothing says so, a name may be mistyped and is not
/// believed; without a name it is always. Pure.
bool is_served_lab(const char* lab, const char* settings);

}  // namespace rn
