// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "agent/core_state.h"
#include "base/log.h"
#include "base/planted.h"

// A member of a gang is an attempt like any other, but for three things (ADR 0027): filled, it
// waits until all others are; told to save, it stays until all that save have; and what it cannot
// resume from it does not replace by anything else.
namespace rn::agent {

/// A word that comes before the attempt has said that it is ready is not this barrier's: it comes
/// again. Afterwards it renews what the first one said.
void Core::State::on_message(const wire::GangGo& m) {
  Attempt* const a = find(m.job, m.epoch);
  const bool is_meant = a != nullptr && !a->row.is_fenced && a->commit.gang;
  if (!is_meant || a->row.phase < Phase::kReady || a->row.phase == Phase::kEnded) {
    log::info("gang.go_is_void", {{"job", m.job.str()}, {"epoch", to_string(m.epoch)}});
    return;
  }
  if (a->row.gang_go == m) return;
  a->row.gang_go = m;
  a->is_dirty = true;
}

/// Of the notice that its guest has now; after one that was withdrawn it says nothing.
void Core::State::on_message(const wire::GangSaved& m) {
  Attempt* const a = find(m.job, m.epoch);
  if (a == nullptr || a->row.is_fenced || !a->commit.gang) return;
  if (a->row.phase == Phase::kNoticed) a->is_gang_saved = true;
}

void Core::State::on_adopted(Attempt& a) {
  if (!a.commit.gang || planted("agent.starts_before_go")) return begin_starting(a);
  set_phase(a, Phase::kReady);
}

/// With the notice that the contract says, as the coordinator would have it: also while that is
/// away. One that was given stays, whatever the contract says later.
void Core::State::leave_where_unwanted(Attempt& a) {
  if (!a.commit.gang || contract_.gangs || a.row.is_fenced) return;
  StopOrder order;
  order.end = AttemptEnd::kReclaimed;
  order.deadline_ns = to_ns(now_.boot + seconds(std::max(contract_.notice_s, 1u)));
  order.reason = "the contract admits no members of gangs any more";
  order_stop(a, std::move(order));
}

/// So the coordinator learns who saves, where nobody has said it (GangSaves::kAuto).
void Core::State::count_checkpoint(Attempt& a, std::uint32_t at_least) {
  if (!a.commit.gang || a.row.checkpoints_found >= at_least) return;
  a.row.checkpoints_found = at_least;
  a.is_dirty = true;
}

}  // namespace rn::agent
