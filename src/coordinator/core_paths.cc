// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_paths.h"

#include <algorithm>

namespace rn::coordinator {

void PathRates::add(
    const NodeId& from, const NodeId& to, double bytes, double seconds, Instant at
) {
  if (!(bytes >= kLeastBytes) || !(seconds > 0)) return;
  const auto key = std::make_pair(from, to);
  if (!paths_.contains(key) && paths_.size() >= kPaths) forget_oldest();
  Path& path = paths_[key];
  path.rates[path.count % kSamples] = bytes / seconds;
  ++path.count;
  path.heard = at;
}

std::optional<reclaim::Bandwidth> PathRates::quantiles(const Path& path) {
  if (path.count < kNeeded) return std::nullopt;
  std::array<double, kSamples> sorted = path.rates;
  const std::size_t n = std::min(path.count, kSamples);
  std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(n));
  return reclaim::Bandwidth{.q10 = sorted[n / 10], .median = sorted[n / 2]};
}

std::optional<reclaim::Bandwidth> PathRates::find(const NodeId& from, const NodeId& to) const {
  const auto found = paths_.find({from, to});
  return found == paths_.end() ? std::nullopt : quantiles(found->second);
}

std::map<NodeId, double> PathRates::best() const {
  std::map<NodeId, double> result;
  for (const auto& [ends, path] : paths_) {
    const auto known = quantiles(path);
    if (!known) continue;
    for (const NodeId& end : {ends.first, ends.second}) {
      double& best = result[end];
      best = std::max(best, known->median);
    }
  }
  return result;
}

void PathRates::forget_oldest() {
  const auto oldest =
      std::min_element(paths_.begin(), paths_.end(), [](const auto& a, const auto& b) {
        return a.second.heard < b.second.heard;
      });
  if (oldest != paths_.end()) paths_.erase(oldest);
}

}  // namespace rn::coordinator
