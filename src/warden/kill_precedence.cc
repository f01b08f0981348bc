// SPDX-License-Identifier: Apache-2.0
#include "warden/kill_precedence.h"

#include <algorithm>

#include <time.h>

namespace rn::warden {
namespace {

nanoseconds used_by_this_thread() {
  timespec used{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) != 0) return nanoseconds(0);
  return seconds(used.tv_sec) + nanoseconds(used.tv_nsec);
}

}  // namespace

bool PrecedenceBudget::allows(Instant now, nanoseconds used) {
  if (now >= until()) {
    begun_ = now;
    used_before_ = used;
    is_spent_ = false;
  }
  is_spent_ = is_spent_ || used - used_before_ > kShare;
  return !is_spent_;
}

StandingPrecedence::StandingPrecedence(const Clock& clock) : clock_(clock) {
  look();
}

void StandingPrecedence::look() {
  is_spent_ = !budget_.allows(clock_.now().boot, used_by_this_thread());
  if (is_spent_) {
    raised_.reset();
  } else if (!raised_) {
    raised_.emplace();
  }
}

int StandingPrecedence::wait_ms() const {
  if (!is_spent_) return -1;
  const nanoseconds left = budget_.until() - clock_.now().boot;
  const auto ms = std::chrono::duration_cast<milliseconds>(left).count() + 1;
  return static_cast<int>(std::clamp<std::int64_t>(ms, 1, PrecedenceBudget::kWindow.count()));
}

}  // namespace rn::warden
