// SPDX-License-Identifier: Apache-2.0
#include "reclaim/topology.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/assert.h"

namespace rn::reclaim {

namespace {

using SwitchNames = std::map<std::string, std::uint32_t>;

tl::unexpected<Error> bad_topology(std::string what, std::string next) {
  return fail(ErrorCode::kInvalid, std::move(what), std::move(next));
}

std::string quoted(const std::string& name) {
  return "'" + name + "'";
}

/// Negative, absurd and not a number alike.
bool is_line_rate(double rate) {
  return rate >= kLeastLineRate && rate <= kMostLineRate;
}

Status check_line(const std::string& who, const TopologyLine& line) {
  if (!is_line_rate(line.up) || !is_line_rate(line.down))
    return bad_topology(
        who + ": its line has no possible rate",
        "write 1kbit to 1000gbit, for example `rate: 1gbit`"
    );
  if (!(line.latency_s >= 0 && line.latency_s <= kMostLineLatency_s))
    return bad_topology(who + ": its latency_ms is not within 0 and 10000", "correct it");
  if (!(line.background >= 0 && line.background < std::min(line.up, line.down)))
    return bad_topology(
        who + ": its background is not less than its rate",
        "write what other people usually send over it, for example `background: 100mbit`"
    );
  return {};
}

Status check_sizes(const TopologyDeclaration& declared) {
  if (declared.switches.size() > kMaxSwitches)
    return fail(
        ErrorCode::kExhausted,
        "more than " + std::to_string(kMaxSwitches) + " links",
        "leave out switches that are never the bottleneck"
    );
  if (declared.nodes.size() > kMaxTopologyNodes)
    return fail(
        ErrorCode::kExhausted,
        "more than " + std::to_string(kMaxTopologyNodes) + " nodes",
        "leave out those whose line to the root is never the bottleneck"
    );
  if (declared.nodes.empty())
    return bad_topology("it names no node", "add `nodes:` with name, at and rate of each");
  return {};
}

Result<SwitchNames> name_switches(const TopologyDeclaration& declared) {
  SwitchNames names;
  for (std::uint32_t i = 0; i < declared.switches.size(); ++i) {
    const std::string& name = declared.switches[i].name;
    if (name.empty()) return bad_topology("a link has no name", "give each a `name:`");
    if (!names.emplace(name, i).second)
      return bad_topology(
          "links: " + quoted(name) + " is declared twice", "remove or rename one of them"
      );
  }
  return names;
}

/// Of each switch; the root's is itself.
Result<std::vector<std::uint32_t>> find_parents(
    const TopologyDeclaration& declared, const SwitchNames& names
) {
  std::vector<std::uint32_t> parents;
  std::optional<std::uint32_t> root;
  for (std::uint32_t i = 0; i < declared.switches.size(); ++i) {
    const TopologySwitch& one = declared.switches[i];
    if (!one.parent.empty()) {
      if (one.parent == one.name)
        return bad_topology(
            "links: a loop: " + one.name + " → " + one.name, "write another `parent:`"
        );
      const auto found = names.find(one.parent);
      if (found == names.end())
        return bad_topology(
            "links: the parent " + quoted(one.parent) + " of " + quoted(one.name) +
                " is not declared",
            "add it to `links:`, or correct the name"
        );
      RN_CHECK(check_line("links: " + quoted(one.name), one.line));
      parents.push_back(found->second);
      continue;
    }
    if (root)
      return bad_topology(
          "links: " + quoted(declared.switches[*root].name) + " and " + quoted(one.name) +
              " both have no parent",
          "a site is one tree: give one of them `parent:` and `rate:`"
      );
    root = i;
    parents.push_back(i);
  }
  if (parents.empty())
    return bad_topology("it declares no links", "add at least one root: `links: [{name: campus}]`");
  // Without a root every switch has a parent, and so some of them form a loop.
  return parents;
}

Result<std::vector<std::uint32_t>> find_depths(
    const TopologyDeclaration& declared, const std::vector<std::uint32_t>& parents
) {
  std::vector<std::uint32_t> depths(parents.size());
  for (std::uint32_t i = 0; i < parents.size(); ++i) {
    std::vector<std::uint32_t> way = {i};
    while (parents[way.back()] != way.back()) {
      const std::uint32_t next = parents[way.back()];
      const auto seen = std::find(way.begin(), way.end(), next);
      if (seen == way.end()) {
        way.push_back(next);
        if (way.size() <= parents.size()) continue;
      }
      std::string loop;
      for (auto one = seen; one != way.end(); ++one) loop += declared.switches[*one].name + " → ";
      return bad_topology(
          "links: a loop: " + loop + declared.switches[next].name,
          "one of them must be the root, without `parent:`"
      );
    }
    depths[i] = static_cast<std::uint32_t>(way.size() - 1);
    if (way.size() > kMaxTopologyDepth)
      return fail(
          ErrorCode::kExhausted,
          "links: " + quoted(declared.switches[i].name) + " hangs more than " +
              std::to_string(kMaxTopologyDepth) + " levels deep",
          "leave out switches that are never the bottleneck"
      );
  }
  return depths;
}

}  // namespace

Result<Topology> Topology::make(const TopologyDeclaration& declared) {
  RN_CHECK(check_sizes(declared));
  RN_TRY(const SwitchNames names, name_switches(declared));
  Topology out;
  RN_TRY(out.parent_, find_parents(declared, names));
  RN_TRY(out.depth_, find_depths(declared, out.parent_));
  const auto add = [&](const std::string& name, const TopologyLine& line) {
    out.links_.push_back({name + " up", line.up, line.latency_s, line.background});
    out.links_.push_back({name + " down", line.down, line.latency_s, line.background});
  };
  for (std::uint32_t i = 0; i < declared.switches.size(); ++i) {
    if (out.parent_[i] == i) out.root_ = i;
    out.switches_.push_back(declared.switches[i].name);
    add(declared.switches[i].name, declared.switches[i].line);
  }
  for (const TopologyNode& node : declared.nodes) {
    if (node.name.empty())
      return bad_topology("a node has no name", "give each a `name:`, its id or its hostname");
    const std::string who = "nodes: " + quoted(node.name);
    const auto at = names.find(node.at);
    if (at == names.end())
      return bad_topology(
          who + " hangs at " + quoted(node.at) + ", which is no link",
          "write the name of one of `links:` as `at:`"
      );
    RN_CHECK(check_line(who, node.line));
    if (!out.by_name_.emplace(node.name, static_cast<Place>(out.nodes_.size())).second)
      return bad_topology(who + " is declared twice", "remove one of them");
    if (names.contains(node.name))
      return bad_topology(who + " has the name of a link", "rename the link");
    out.nodes_.push_back(node.name);
    out.at_.push_back(at->second);
    add(node.name, node.line);
  }
  return out;
}

std::optional<Topology::Place> Topology::find(std::string_view id, std::string_view hostname)
    const {
  for (const std::string_view name : {id, hostname}) {
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return found->second;
  }
  return std::nullopt;
}

std::vector<std::string> Topology::switches_above(Place place) const {
  RN_ASSERT(place < nodes_.size(), "a place of another topology");
  std::vector<std::string> out;
  for (std::uint32_t at = at_[place]; at != root_; at = parent_[at]) out.push_back(switches_[at]);
  return out;
}

double Topology::shared_switches(Place a, Place b) const {
  RN_ASSERT(a < nodes_.size() && b < nodes_.size(), "a place of another topology");
  std::uint32_t here = at_[a];
  std::uint32_t there = at_[b];
  const std::uint32_t above = depth_[here];
  while (here != there) {
    if (depth_[here] >= depth_[there]) {
      here = parent_[here];
    } else {
      there = parent_[there];
    }
  }
  return above == 0 ? 0 : static_cast<double>(depth_[here]) / above;
}

Topology::Path Topology::path(std::optional<Place> from, std::optional<Place> to) const {
  Path out;
  out.rate = std::numeric_limits<double>::infinity();
  if (from == to || parent_.empty()) return out;
  RN_ASSERT(!from || *from < nodes_.size(), "a place of another topology");
  RN_ASSERT(!to || *to < nodes_.size(), "a place of another topology");
  const auto first = static_cast<std::uint32_t>(2 * parent_.size());
  std::uint32_t here = from ? at_[*from] : root_;
  std::uint32_t there = to ? at_[*to] : root_;
  std::vector<std::uint32_t> way_down;
  if (from) out.links.push_back(first + 2 * *from);
  if (to) way_down.push_back(first + 2 * *to + 1);
  while (here != there) {
    if (depth_[here] >= depth_[there]) {
      out.links.push_back(2 * here);
      here = parent_[here];
    } else {
      way_down.push_back(2 * there + 1);
      there = parent_[there];
    }
  }
  out.links.insert(out.links.end(), way_down.rbegin(), way_down.rend());
  for (const std::uint32_t link : out.links) {
    out.rate = std::min(out.rate, links_[link].rate - links_[link].background);
    out.latency_s += links_[link].latency_s;
  }
  return out;
}

}  // namespace rn::reclaim
