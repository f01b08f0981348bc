// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "reclaim/evacuation.h"

// What transfers between two nodes reached lately. Part of the core; nothing of it goes to the
// disk.
namespace rn::coordinator {

/// The newest rates of one path, in bytes a second.
class PathRates {
 public:
  static constexpr std::size_t kSamples = 16;  ///< kept of each path
  static constexpr std::size_t kNeeded = 4;    ///< before they count
  static constexpr std::size_t kPaths =
      4096;                                   ///< the one that was heard of least lately goes first
  static constexpr double kLeastBytes = 4e6;  ///< below, a transfer's time is mostly latency

  /// Ignored if `bytes` are too few or `seconds` are not positive.
  void add(const NodeId& from, const NodeId& to, double bytes, double seconds, Instant at);
  /// 10 % quantile and median of a path that is known well enough.
  std::optional<reclaim::Bandwidth> find(const NodeId& from, const NodeId& to) const;
  /// Of each node the best median that it sent or received with. O(paths).
  std::map<NodeId, double> best() const;

  std::size_t size() const { return paths_.size(); }

 private:
  struct Path {
    std::array<double, kSamples> rates{};
    std::size_t count = 0;
    Instant heard;
  };

  static std::optional<reclaim::Bandwidth> quantiles(const Path& path);
  void forget_oldest();

  std::map<std::pair<NodeId, NodeId>, Path> paths_;
};

}  // namespace rn::coordinator
