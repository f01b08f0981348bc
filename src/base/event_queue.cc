// SPDX-License-Identifier: Apache-2.0
#include "base/event_queue.h"

#include <algorithm>

namespace rn {

EventQueue::Handle EventQueue::at(nanoseconds when, Action action) {
  const Handle handle{std::max(when, now_).count(), next_++};
  events_.emplace(handle, std::move(action));
  return handle;
}

bool EventQueue::step() {
  if (events_.empty()) return false;
  auto node = events_.extract(events_.begin());
  now_ = nanoseconds(node.key().first);
  ++executed_;
  node.mapped()();
  return true;
}

bool EventQueue::step(nanoseconds until) {
  if (!events_.empty() && nanoseconds(events_.begin()->first.first) < until) return step();
  now_ = until;
  return false;
}

}  // namespace rn
