// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "agent/core_state.h"
#include "base/log.h"
#include "base/planted.h"
#include "reclaim/last_moment.h"

// A reclaim that is announced for later: a guest that nobody can take computes on until its last
// save is due. Whether anybody can is the coordinator's word; without it the guest leaves at once.
namespace rn::agent {

namespace {

constexpr int kWordsMissed = 2;          // times the heartbeats that make a node lost
constexpr seconds kWordPatience{2};      // of who is asked whether anybody takes a guest
constexpr double kUnknownState = 256e6;  // bytes of a guest that has saved nothing yet
constexpr double kTakenPerS = 50e6;      // bytes made a generation of, on a busy machine

nanoseconds from_s(double value) {
  constexpr double kMost_s = 1e9;
  return std::chrono::duration_cast<nanoseconds>(
      std::chrono::duration<double>(std::min(value, kMost_s))
  );
}

/// Of one that has saved nothing yet, in bytes.
double unknown_state(const Attempt& a) {
  const std::uint64_t disk_mib = a.commit.spec.resources.disk_mib;
  return disk_mib == 0 ? kUnknownState
                       : std::min(kUnknownState, static_cast<double>(disk_mib) * 1048576);
}

}  // namespace

/// The owner is not waiting: they come at the deadline, as they have said, or as the calendar says.
bool Core::State::is_for_later(const ReclaimRecord& record) const {
  if (record.kind != ReclaimKind::kAnnounced) return false;
  const auto row = reclaims_.find(record.id);
  return row == reclaims_.end() || !row->second.is_own || record.message == kWindowEnds ||
         record.message == kGpuWindowEnds;
}

/// What copies of it will take, with what waits to be copied.
double Core::State::bytes_of_leaving(const Attempt& a) const {
  if (a.commit.spec.checkpoint.is_stateless) return 0;
  const std::uint32_t wanted = std::max(a.row.plan.wanted, 1u);
  if (a.row.generations.empty()) return unknown_state(a) * wanted;
  const GenerationRef& last = a.row.generations.back().ref;
  const double gap_s = a.schedule.gap_s;
  double bytes =
      std::max(static_cast<double>(last.new_bytes), a.schedule.dirty.curve().bytes(gap_s));
  std::set<NodeId> holders;
  for (const GenerationRow& row : a.row.generations) {
    if (row.is_refused) continue;
    if (!row.is_committed) bytes += static_cast<double>(row.ref.new_bytes);
    for (const Receipt& receipt : row.receipts) holders.insert(receipt.holder);
  }
  const auto& peers = a.row.plan.copies;
  const auto used = static_cast<std::ptrdiff_t>(std::min<std::size_t>(wanted, peers.size()));
  const bool has_base =
      used > 0 && std::all_of(peers.begin(), peers.begin() + used, [&](const PeerGrant& peer) {
        return holders.contains(peer.node);
      });
  if (!has_base) bytes += static_cast<double>(last.bytes);
  return bytes * wanted;
}

/// Of the uplink, in bytes a second, as it was measured and as far as the owner grants it.
double Core::State::leaving_rate() const {
  double rate = uplink_rate();
  for (const std::uint64_t bps :
       {facts_.uplink_bps, contract_.uplink_bps_evacuation, granted_bps()}) {
    if (bps > 0) rate = std::min(rate, static_cast<double>(bps) / 8);
  }
  return facts_.are_transfers_cut ? 0 : rate;
}

/// All that stay send theirs at the same time in the end.
reclaim::LastMoments Core::State::last_moments_of(const Attempt& a) const {
  const SaveSchedule& s = a.schedule;
  reclaim::LeavingCosts costs;
  costs.has_nothing_to_save = a.commit.spec.checkpoint.is_stateless;
  costs.saves_when_told = saves_when_told(a.commit.spec.checkpoint);
  costs.save_s = std::max(costs.save_s, 2 * s.pause_s);
  costs.asked_s = a.commit.spec.notice_s;
  costs.gap_s = s.gap_s;
  const double whole = a.row.generations.empty()
                           ? unknown_state(a)
                           : static_cast<double>(a.row.generations.back().ref.bytes);
  costs.take_s = std::max(2 * s.taking_s, whole / kTakenPerS);
  costs.bytes_per_s = leaving_rate();
  for (const auto& [name, other] : attempts_) {
    if (name == a.name || other.put_off) costs.bytes += bytes_of_leaving(other);
  }
  return reclaim::last_moments(costs);
}

/// True if it need not leave yet: what becomes of it is decided from moment to moment.
bool Core::State::puts_off(Attempt& a, const ReclaimRecord& record, const StopOrder& order) {
  const bool is_computing = a.row.phase == Phase::kRunning && !a.row.is_fenced &&
                            a.row.stop.end == AttemptEnd::kNone && a.row.started_ns != 0;
  if (!is_computing || !is_for_later(record)) return false;
  if (a.put_off && a.put_off->order.reclaim != order.reclaim &&
      a.put_off->order.deadline_ns <= order.deadline_ns)
    return true;
  if (a.put_off && a.put_off->order.reclaim == order.reclaim) {
    a.put_off->order = order;
    return true;
  }
  const nanoseconds left(order.deadline_ns - to_ns(now_.boot));
  if (left < from_s(last_moments_of(a).tell_s + reclaim::kLeastStay_s)) return false;
  a.put_off = PutOff{order, now_.boot, false};
  return true;
}

/// A notice that takes its node back. One that it had put off counts with it.
void Core::State::leave_by(Attempt& a, const ReclaimRecord& record) {
  StopOrder order = stop_order(record);
  if (!puts_off(a, record, order)) order_stop(a, std::move(order));
}

/// Nobody can take it, and its last moment has not come. Who has not been told yet waits for the
/// word a little, also after its own start.
bool Core::State::stays(const Attempt& a) const {
  const PutOff& off = *a.put_off;
  const nanoseconds left(off.order.deadline_ns - to_ns(now_.boot));
  const bool is_due = off.is_saved || left <= from_s(last_moments_of(a).tell_s);
  if (is_due && !planted("agent.stays_past_its_last_moment")) return false;
  if (a.commit.gang) return true;  // nobody can take one member: all stop together, and late
  const nanoseconds patience = kWordsMissed * heartbeat_every_ * lost_after_;
  const bool is_told = a.departure_at && *a.departure_at >= off.since;
  if (is_told && now_.boot - *a.departure_at < patience) return a.departure == Departure::kStays;
  if (is_told) return false;
  if (!is_welcome_) return now_.boot - started_at_ < patience;
  return now_.boot - std::max(off.since, welcomed_at_) < kWordPatience;
}

void Core::State::step_stay(Attempt& a) {
  if (!a.put_off || stays(a)) return;
  const PutOff off = *a.put_off;
  order_stop(a, off.order);
  a.is_saved_in_time = off.is_saved;
}

/// A generation of it is safe: if no other is sure to follow in time, it leaves with this one.
void Core::State::note_save_in_stay(Attempt& a) {
  if (!a.put_off || a.row.phase != Phase::kRunning) return;
  const nanoseconds left(a.put_off->order.deadline_ns - to_ns(now_.boot));
  if (left <= from_s(last_moments_of(a).save_s)) a.put_off->is_saved = true;
}

void Core::State::hear_departure(Attempt& a, Departure departure) {
  if (departure == Departure::kUntold) return;
  if (a.put_off && departure != a.departure)
    log::info(
        "attempt.departure",
        {{"job", a.name.job.str()}, {"word", std::string(to_string(departure))}}
    );
  a.departure = departure;
  a.departure_at = now_.boot;
}

/// Until it has to be told to leave; none if it does not stay.
std::optional<nanoseconds> Core::State::stay_left(const Attempt& a, Instant now) const {
  if (!a.put_off || a.row.phase != Phase::kRunning) return std::nullopt;
  const nanoseconds left(a.put_off->order.deadline_ns - to_ns(now));
  return std::max(left - from_s(last_moments_of(a).tell_s), nanoseconds(0));
}

/// For `reclaim why`; empty if it does not stay.
std::string Core::State::stay_words(const Attempt& a) const {
  if (!a.put_off || a.departure != Departure::kStays) return "";
  const auto left = stay_left(a, now_.boot);
  if (!left) return "";
  return "its node is taken back later and nobody can take it: it computes on there until its last "
         "save is due, in " +
         rough_duration(std::chrono::duration<double>(*left).count());
}

}  // namespace rn::agent
