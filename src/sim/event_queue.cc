// SPDX-License-Identifier: Apache-2.0
#include "sim/event_queue.h"

#include <algorithm>

namespace rn::sim {

EventQueue::Handle EventQueue::at(TrueTime when, Action action) {
  const Handle handle{std::max(when, now_).count(), next_++};
  events_.emplace(handle, std::move(action));
  return handle;
}

bool EventQueue::step() {
  if (events_.empty()) return false;
  auto node = events_.extract(events_.begin());
  now_ = TrueTime(node.key().first);
  ++executed_;
  node.mapped()();
  return true;
}

}  // namespace rn::sim
