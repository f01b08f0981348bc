// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/fields.h"
#include "model/reclaim.h"

namespace rn {

/// How far an order is. Open: waiting (its node has not been told yet) and sent. Expired: nothing
/// was done. Unanswered: the node was told, and what it did is known from its reclaims alone.
enum class OrderState : std::uint8_t { kWaiting, kSent, kTaken, kRefused, kExpired, kUnanswered };
RN_ENUM(OrderState, "waiting", "sent", "taken", "refused", "expired", "unanswered")

/// A reclaim that its owner asks for from afar, by the coordinator. It can only take back (ADR
/// 0017).
struct ReclaimOrder {
  std::string id;  ///< as who ordered it named it
  NodeId node;
  UserId user;  ///< who ordered it
  ReclaimKind kind = ReclaimKind::kNotice;
  std::vector<std::uint32_t> gpus;  ///< sorted; empty = the whole node
  std::uint32_t in_s = 0;           ///< of an announced one
  OrderState state = OrderState::kWaiting;
  std::string message;  ///< what became of it, and what to do
  ReclaimId reclaim;    ///< of one that was taken, as far as it is known
  std::int64_t ordered_wall_ms = 0;
  std::int64_t until_wall_ms = 0;  ///< it is not begun later

  RN_FIELDS(
      ReclaimOrder,
      id,
      node,
      user,
      kind,
      gpus,
      in_s,
      state,
      message,
      reclaim,
      ordered_wall_ms,
      until_wall_ms
  )
};

constexpr bool is_open(OrderState state) {
  return state == OrderState::kWaiting || state == OrderState::kSent;
}

}  // namespace rn
