// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "evaluate/owner_trace.h"
#include "evaluate/people.h"
#include "evaluate/spot_trace.h"
#include "model/reclaim.h"

// When nodes are taken back, with which notice, and when they come back: what all policies of one
// comparison face alike, and none knows beforehand.
namespace rn::evaluate {

/// One taking-back. declared ≤ deadline < returns.
struct Interruption {
  std::size_t node = 0;
  ReclaimKind kind = ReclaimKind::kNotice;
  double declared_s = 0;  ///< from here on the policy knows of it, but for a lost node's
  double deadline_s = 0;  ///< from here on the machine is its owner's, or gone
  double returns_s = 0;   ///< from here on it is lent again

  friend bool operator==(const Interruption&, const Interruption&) = default;
};

/// Shares and lengths of notices, drawn evenly between the two. What is left of the shares are
/// emergencies.
struct DeclaredNotices {
  std::string name;
  double announced = 0;
  double announced_min_s = 60;
  double announced_max_s = 600;
  double noticed = 0;
  double notice_min_s = 30;
  double notice_max_s = 30;
};

/// "emergency-heavy", "mixed" (the one of the traces' description) and "generous"; kInvalid lists
/// them.
Result<DeclaredNotices> find_notices(std::string_view name);

inline constexpr double kLentAfterIdle_s = 600;  ///< unless swept

/// Uses become interruptions. A node is lent when it has been free for `idle_s`; uses that leave
/// less between them are one. A notice is given before the owner comes, as long as the node was
/// lent by then: the deadline is the moment of the use in every mix. By node, then time. The draw
/// of the i-th interruption of a node is the same in every mix. Pure.
std::vector<Interruption> interruptions_of(
    const OwnerUses& uses,
    const DeclaredNotices& notices,
    std::uint64_t seed,
    double idle_s = kLentAfterIdle_s
);

/// GPUnion's setting (arXiv 2507.18928): half an interruption to 3.2 a day and node. A third each
/// is scheduled (announced 10 minutes ahead, back after 1 to 6 hours), an emergency (back after
/// half an hour to 4 hours) and temporary (gone without a word, back after 3 to 30 minutes): the
/// paper gives the range and the kinds, shares and lengths are ours. Pure.
std::vector<Interruption> gpunion_interruptions(std::size_t nodes, double days, std::uint64_t seed);

/// Node n of the site behaves as one of the traces' nodes, chosen by the seed, over and over again
/// from the trace's first midnight on. kInvalid if there are no nodes in the traces. Pure.
Result<OwnerUses> uses_of(
    const std::vector<LabTrace>& labs, std::size_t nodes, double days, std::uint64_t seed
);

/// Spot machines take the site's nodes one after the other as they come; those for which there is
/// no node are left out. All go without a notice. Pure.
std::vector<Interruption> interruptions_of(const SpotTrace& trace, std::size_t nodes);

/// Of all: sorted by declaration, then node.
std::vector<Interruption> by_time(std::vector<Interruption> interruptions);

}  // namespace rn::evaluate
