// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "reclaim/link_budget.h"

// Which links lie between two nodes: nodes' uplinks, switches, building links, as a tree. Pure.
namespace rn::reclaim {

/// A node, switch or building. All but the root hang on their parent by one full-duplex link.
struct TopologyPoint {
  std::string name;             ///< a node's id, or the own name of a switch or building
  std::string parent;           ///< empty: the root, which has no link
  double up_bytes_per_s = 0;    ///< towards the parent
  double down_bytes_per_s = 0;  ///< from the parent
};

/// A declared network that holds together. Links are numbered in the order of the points: "NAME
/// up" is 2i, "NAME down" is 2i + 1, where i counts the points that are not the root.
class LinkTopology {
 public:
  /// kInvalid, naming the point, for a loop, a parent that is not there, a name that is empty or
  /// used twice, no root or several, more than kMaxPathLinks / 2 levels, a link of 0 or less, or
  /// an absurd one. kExhausted for more links than kMaxLinks.
  static Result<LinkTopology> from_tree(const std::vector<TopologyPoint>& points);

  /// Up from `from` to the first common point, then down to `to`. kNotFound for a name that is not
  /// there; kInvalid for a path from a node to itself.
  Result<LinkPath> path(const std::string& from, const std::string& to) const;

  /// All links with their declared capacity and a LinkState's defaults; measurements go over it.
  const std::vector<LinkState>& links() const { return links_; }

 private:
  struct Place {
    std::string parent;
    LinkIndex up = 0;  ///< down is the next one; the root has none
  };

  std::vector<std::string> way_to_root(const std::string& name) const;

  std::map<std::string, Place> places_;
  std::vector<LinkState> links_;
};

}  // namespace rn::reclaim
