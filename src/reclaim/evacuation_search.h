// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "reclaim/evacuation_ledger.h"

// The joint choice of direct destinations (reclaim/evacuation.h). Pure.
namespace rn::reclaim {

using Where = std::optional<std::size_t>;  ///< a node of the site

/// The best node for a job beside what is booked, and by how much the second best is worse.
struct Preference {
  Where best;
  Where second;
  double utility = 0;
  double regret = 0;
};

Preference preference_of(
    const Ledger& ledger, std::size_t job, std::size_t nodes, Where except = std::nullopt
);

/// A destination for each job that can be reached in time, nullopt for the others. `ledger` is
/// without bookings before, and has those of the result afterwards. Greedy by regret, then moves
/// and chains of two, other orders, branch and bound, within the policy's bounds.
std::vector<Where> search_destinations(
    const EvacuationSite& site,
    const std::vector<EvacuatingJob>& jobs,
    const EvacuationPolicy& policy,
    Ledger& ledger
);

}  // namespace rn::reclaim
