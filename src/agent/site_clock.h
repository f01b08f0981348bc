// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <optional>

#include "base/time.h"

namespace rn::agent {

/// The coordinator's wall clock, as far as this node knows it: as it was told last, plus what the
/// boot clock has counted since. Tickets expire by it, because the coordinator has dated them: a
/// node whose own clock is hours off (or is set in between) would else refuse every copy, and the
/// work of others with it. Until the coordinator has told its time the own wall clock stands in.
/// Thread-safe.
class SiteClock final : public Clock {
 public:
  explicit SiteClock(const Clock& own) : own_(own) {}

  /// The coordinator's clock is `offset_ms` ahead of this node's wall clock.
  void told(std::int64_t offset_ms);
  bool is_told() const;

  Now now() const override;

 private:
  const Clock& own_;
  mutable std::mutex mutex_;
  std::optional<Now> told_;  ///< the coordinator's wall clock, and when it was told
};

}  // namespace rn::agent
