// SPDX-License-Identifier: Apache-2.0
#include "evaluate/agenda.h"

#include <algorithm>

namespace rn::evaluate {

Agenda::Entry Agenda::at(Moment when, Action action) {
  const Entry entry{std::max(when, now_).count(), next_++};
  entries_.emplace_hint(entries_.end(), entry, std::move(action));
  return entry;
}

bool Agenda::step(Moment until) {
  if (entries_.empty() || Moment(entries_.begin()->first.first) >= until) {
    now_ = until;
    return false;
  }
  auto next = entries_.extract(entries_.begin());
  now_ = Moment(next.key().first);
  ++happened_;
  next.mapped()();
  return true;
}

}  // namespace rn::evaluate
