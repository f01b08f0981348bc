// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/rows.h"

namespace rn::coordinator {

/// What users and laboratories used of GPUs, by model and hour of the wall clock, for as long as a
/// quota may look back. Rows are the caller's to write.
class GpuHours {
 public:
  void add(
      const UserId& user,
      const LabId& lab,
      const std::string& gpu_model,
      std::int64_t wall_ms,
      double gpu_s
  );
  void restore(const GpuHourRow& row);

  /// GPU-hours of a subject ("user:anna", "lab:vision") in the `window_s` before now, on models
  /// with `pattern` in their name. Of the hour in which that begins the share that is in it.
  double used(
      const std::string& subject,
      std::string_view pattern,
      std::int64_t wall_ms,
      std::uint32_t window_s
  ) const;

  /// Rows that have changed since the last call.
  std::vector<GpuHourRow> take_changed();
  /// Forgets what no quota looks back to: all of before the hour that is answered; nothing: there
  /// was nothing.
  std::optional<std::int64_t> forget_old(std::int64_t wall_ms);
  /// Whoever has used any.
  std::set<std::string> subjects() const;

 private:
  using Hours = std::map<std::int64_t, double>;  ///< GPU-seconds
  using Key = std::tuple<UserId, LabId, std::string>;

  void count(const Key& key, std::int64_t hour, double gpu_s);

  std::map<Key, Hours> rows_;
  std::map<std::string, std::map<std::string, Hours>> by_subject_;  ///< then by model
  std::set<std::pair<Key, std::int64_t>> changed_;
};

/// The models of a guest's GPUs on a node: of those that the node said, and of what it has not said
/// yet the first one that it lends.
std::vector<std::string> gpu_models_of(
    const NodeRow& node, const std::vector<std::uint32_t>& known, std::uint32_t gpus
);

/// "user:anna"
std::string quota_subject(const UserId& user);
/// "lab:vision"
std::string quota_subject(const LabId& lab);

}  // namespace rn::coordinator
