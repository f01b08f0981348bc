// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "model/api.h"

namespace rn::coordinator {

/// What is known of a node when its owner thinks of another contract.
struct PreviewInput {
  Contract from;  ///< in force
  Contract to;
  NodeFacts facts;
  std::vector<api::GuestInfo> guests;
  WallTime node_wall;  ///< its clock now
  /// Offsets of the contracts' time zones; none: the zone is not known here, and the node looks.
  std::optional<std::int32_t> from_offset_s;
  std::optional<std::int32_t> to_offset_s;
};

/// The calendar and the order of contracts are those by which the node itself decides (arbiter/).
/// Pure; `version` is left empty.
api::ContractPreview preview_of(const PreviewInput& input);

}  // namespace rn::coordinator
