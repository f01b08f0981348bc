// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli_client.h"

#include "base/error.h"
#include "model/reclaim.h"
#include "model/reclaim_order.h"

namespace rn::cli {

/// An order to take a node back, and what its machine did of it, as far as is heard.
struct Taking {
  ReclaimOrder order;
  std::optional<ReclaimRecord> reclaim;
  bool is_cleared = false;  ///< nothing of a guest is left there, as the machine found by looking

  RN_FIELDS(Taking, order, reclaim, is_cleared)
};

/// What the order has become: by the reclaim's id; where nobody knows that, the newest of its kind
/// and GPUs that holds or that was declared since. `clock_offset_ms`: coordinator minus node.
std::optional<ReclaimRecord> reclaim_of(
    const ReclaimOrder& order,
    const std::vector<ReclaimRecord>& reclaims,
    std::int64_t clock_offset_ms
);

/// How it ended, nullopt while it goes on. Good: cleared, or begun if that `is_enough`. Errors have
/// what to do: kUnavailable (not reached, nothing was done), kConflict (refused, or given back
/// before it was cleared), kTimeout (told, and what it did is not known), kInternal (something of a
/// guest is left).
std::optional<Status> end_of_taking(const Taking& taking, bool is_enough);

/// What the machine has said of the reclaim, one line for each step, in their order.
std::vector<std::string> steps_of(const ReclaimRecord& reclaim);

struct TakeOptions {
  std::string node;  ///< id or hostname
  std::vector<std::uint32_t> gpus;
  bool is_now = false;
  std::string in;  ///< "10m": at that time; empty: with the contract's notice, or now
  bool is_detached = false;
  bool is_json = false;
};

/// Orders the node back and watches until it is cleared; answers the exit status.
int take(const Client& client, const TakeOptions& options);

}  // namespace rn::cli
