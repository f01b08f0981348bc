// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

// The site's network as its administrator declares it: a tree of switches with nodes at them, and
// what a transfer from one node to another crosses. Pure. Bytes per second, seconds.
namespace rn::reclaim {

/// The line of a switch or node to what it hangs at. Each direction is a link of its own.
struct TopologyLine {
  double up = 0;         ///< away from it, towards the root
  double down = 0;       ///< towards it
  double latency_s = 0;  ///< one way
  /// What other people send over it, each way, which copies are to leave free.
  double background = 0;
};

struct TopologySwitch {
  std::string name;
  std::string parent;  ///< empty: the root, which has no line
  TopologyLine line;
};

struct TopologyNode {
  std::string name;  ///< the node's id or its hostname
  std::string at;    ///< the switch
  TopologyLine line;
};

/// What a file says, in its order.
struct TopologyDeclaration {
  std::vector<TopologySwitch> switches;
  std::vector<TopologyNode> nodes;
};

inline constexpr std::size_t kMaxSwitches = 4096;
inline constexpr std::size_t kMaxTopologyNodes = 16'384;
inline constexpr std::size_t kMaxTopologyDepth = 16;  ///< switches from the root to a node
inline constexpr double kLeastLineRate = 1e3 / 8;     ///< 1 kbit/s
inline constexpr double kMostLineRate = 1e12 / 8;     ///< 1 Tbit/s
inline constexpr double kMostLineLatency_s = 10;

class Topology {
 public:
  struct Link {
    std::string name;  ///< "building-a up"
    double rate = 0;
    double latency_s = 0;
    double background = 0;  ///< declared: of others; less than the rate
  };

  /// Where something hangs: an index of a node that the topology names.
  using Place = std::uint32_t;

  struct Path {
    std::vector<std::uint32_t> links;  ///< in the order in which bytes cross them, each once
    double rate = 0;       ///< the least that a line has beside its background; infinite
                           ///< for a path of no links
    double latency_s = 0;  ///< one way
  };

  /// Of a site that declares none: no links, nobody has a place.
  Topology() = default;

  /// kInvalid names what is wrong and what to do: no nodes, no or two roots, a loop, an unknown
  /// parent or switch, a name used twice, a rate outside [kLeastLineRate, kMostLineRate], a
  /// background that fills its line.
  /// kExhausted above the bounds.
  static Result<Topology> make(const TopologyDeclaration& declared);

  const std::vector<Link>& links() const { return links_; }

  std::size_t switches() const { return parent_.size(); }

  /// Names of the declared nodes, by place.
  const std::vector<std::string>& nodes() const { return nodes_; }

  /// By its id; where that is not declared, by its hostname.
  std::optional<Place> find(std::string_view id, std::string_view hostname) const;

  /// Names of the switches between a place and the root (which everybody has in common), nearest
  /// first: what fails or is taken back together.
  std::vector<std::string> switches_above(Place place) const;

  /// The share of the switches above `a` that `b` hangs at, too; 0 if `a` hangs at the root.
  double shared_switches(Place a, Place b) const;

  /// The sender's line up, the switches' lines up to the lowest common ancestor, down, the
  /// receiver's line down. One without a place is taken to hang at the root by a line that this
  /// topology does not know. Empty from a place to itself.
  Path path(std::optional<Place> from, std::optional<Place> to) const;

 private:
  std::uint32_t root_ = 0;
  std::vector<std::string> switches_;  ///< their names
  std::vector<std::uint32_t> parent_;  ///< of switches; the root's is itself
  std::vector<std::uint32_t> depth_;
  std::vector<std::string> nodes_;
  std::vector<std::uint32_t> at_;  ///< of nodes: their switch
  std::map<std::string, Place, std::less<>> by_name_;
  /// Of switch i: 2i up, 2i + 1 down (the root's lead nowhere); then the nodes' in the same way.
  std::vector<Link> links_;
};

}  // namespace rn::reclaim
