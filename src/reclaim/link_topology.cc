// SPDX-License-Identifier: Apache-2.0
#include "reclaim/link_topology.h"

#include <algorithm>
#include <cmath>

namespace rn::reclaim {

namespace {

Status check_point(const TopologyPoint& point) {
  if (point.name.empty()) return fail(ErrorCode::kInvalid, "topology: a point has no name");
  if (point.parent.empty()) return {};
  for (const double rate : {point.up_bytes_per_s, point.down_bytes_per_s}) {
    if (!(std::isfinite(rate) && rate > 0 && rate <= kMaxBytesPerS))
      return fail(
          ErrorCode::kInvalid,
          "topology: " + point.name + " has a link of " + std::to_string(rate) +
              " bytes per second",
          "say what the link carries, in bytes per second, above 0 and up to 1e12"
      );
  }
  return {};
}

}  // namespace

Result<LinkTopology> LinkTopology::from_tree(const std::vector<TopologyPoint>& points) {
  if (2 * points.size() > kMaxLinks + 2)
    return fail(
        ErrorCode::kExhausted,
        "topology: " + std::to_string(points.size()) + " points, at most " +
            std::to_string(kMaxLinks / 2 + 1)
    );
  LinkTopology topology;
  std::string root;
  for (const TopologyPoint& point : points) {
    RN_CHECK(check_point(point));
    const auto up = static_cast<LinkIndex>(topology.links_.size());
    if (!topology.places_.emplace(point.name, Place{point.parent, up}).second)
      return fail(ErrorCode::kInvalid, "topology: " + point.name + " is named twice");
    if (point.parent.empty()) {
      if (!root.empty())
        return fail(
            ErrorCode::kInvalid, "topology: both " + root + " and " + point.name + " have no parent"
        );
      root = point.name;
      continue;
    }
    for (const auto& [suffix, rate] :
         {std::pair(" up", point.up_bytes_per_s), std::pair(" down", point.down_bytes_per_s)}) {
      LinkState link;
      link.name = point.name + suffix;
      link.capacity = {{Instant{}, rate}};
      topology.links_.push_back(std::move(link));
    }
  }
  for (const auto& [name, place] : topology.places_) {
    std::string at = name;
    for (std::size_t steps = 0; !topology.places_.at(at).parent.empty(); ++steps) {
      const std::string& parent = topology.places_.at(at).parent;
      if (!topology.places_.contains(parent))
        return fail(
            ErrorCode::kInvalid, "topology: " + at + " hangs on " + parent + ", which is not there"
        );
      if (steps > points.size())
        return fail(ErrorCode::kInvalid, "topology: a loop goes through " + at);
      at = parent;
    }
  }
  if (root.empty()) return fail(ErrorCode::kInvalid, "topology: no point is the root");
  for (const auto& [name, place] : topology.places_) {
    if (topology.way_to_root(name).size() > kMaxPathLinks / 2 + 1)
      return fail(
          ErrorCode::kInvalid,
          "topology: " + name + " is more than " + std::to_string(kMaxPathLinks / 2) +
              " links away from " + root
      );
  }
  return topology;
}

std::vector<std::string> LinkTopology::way_to_root(const std::string& name) const {
  std::vector<std::string> way = {name};
  while (!places_.at(way.back()).parent.empty()) way.push_back(places_.at(way.back()).parent);
  return way;
}

Result<LinkPath> LinkTopology::path(const std::string& from, const std::string& to) const {
  for (const std::string& name : {from, to}) {
    if (!places_.contains(name))
      return fail(ErrorCode::kNotFound, "topology: no point is named " + name);
  }
  if (from == to)
    return fail(ErrorCode::kInvalid, "topology: a path from " + from + " to itself has no links");
  std::vector<std::string> up = way_to_root(from);
  std::vector<std::string> down = way_to_root(to);
  while (!up.empty() && !down.empty() && up.back() == down.back()) {
    up.pop_back();
    down.pop_back();
  }
  LinkPath path;
  for (const std::string& name : up) path.push_back(places_.at(name).up);
  for (auto name = down.rbegin(); name != down.rend(); ++name)
    path.push_back(places_.at(*name).up + 1);
  return path;
}

}  // namespace rn::reclaim
