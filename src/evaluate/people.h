// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "evaluate/campus.h"

// Owners of the project's own making: people with office hours, projects, deadlines, meetings and
// holidays, who need their lab's machines for what they do. There is no rate and no distribution of
// spells in here: when a machine is needed follows from what its lab's people are at. Shares no
// code with reclaim/hazard.h.
namespace rn::evaluate {

/// The owner needs the whole machine for so long.
struct OwnerUse {
  double from_s = 0;
  double to_s = 0;

  friend bool operator==(const OwnerUse&, const OwnerUse&) = default;
};

/// Per node, ascending, disjoint.
using OwnerUses = std::vector<std::vector<OwnerUse>>;

struct PeopleOptions {
  double days = 56;              ///< from a Monday, 00:00, on
  double people_per_node = 1.2;  ///< in each lab, at least two
};

/// The same for the same seed. A lab whose machines are all needed makes its people wait, or give
/// up after two hours. Pure.
OwnerUses make_owner_uses(const Campus& campus, const PeopleOptions& options, std::uint64_t seed);

}  // namespace rn::evaluate
