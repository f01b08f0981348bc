// SPDX-License-Identifier: Apache-2.0
#include "agent/site_clock.h"

namespace rn::agent {

void SiteClock::told(std::int64_t offset_ms) {
  Now now = own_.now();
  now.wall += milliseconds(offset_ms);
  const std::lock_guard lock(mutex_);
  told_ = now;
}

bool SiteClock::is_told() const {
  const std::lock_guard lock(mutex_);
  return told_.has_value();
}

Now SiteClock::now() const {
  Now now = own_.now();
  const std::lock_guard lock(mutex_);
  if (told_)
    now.wall = told_->wall + std::chrono::duration_cast<milliseconds>(now.boot - told_->boot);
  return now;
}

}  // namespace rn::agent
