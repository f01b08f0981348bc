// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/core_state.h"

// Who has to leave goes on from what it saved last. What it saved before that is worth the line
// only as long as the last is not there, or would come too late.
namespace rn::agent {

namespace {

constexpr double kSureTimes = 1.5;   ///< what a copy is expected to take, when it must be in time
constexpr double kSureMargin_s = 1;  ///< and from its last byte to the row
constexpr double kLateSave = 1.5;    ///< of a guest's usual gap: then no save is expected of it
constexpr double kMostRewritten = 0.5;  ///< new in a save: then the next has little of it left
/// Of the newer one's bytes: then it goes to its end, in case the newer one does not get there. The
/// newer one pays for that out of what it has to spare.
constexpr double kNearlyThere = 0.25;
static_assert(1 + kNearlyThere < kSureTimes);
/// Since the notice: what a copy got before, it got while it made way for others.
constexpr seconds kShowsItsRate{1};

/// New in the save that is being taken, by the guest's habits; it does not change faster than in
/// the save before. 0 where nothing is known.
double expected_of_next(const Attempt& a) {
  const auto& rows = a.row.generations;
  const GenerationRef& last = rows.empty() ? a.row.restored : rows.back().ref;
  const auto before = static_cast<double>(last.new_bytes);
  const SaveSchedule& s = a.schedule;
  const bool is_learnt = !rows.empty() && s.gap_s > 0 && last.snapshot_boot_ns > 0;
  if (!is_learnt || !a.snapshot_at) return before;
  const double gap_s = in_s(*a.snapshot_at - instant_from_ns(last.snapshot_boot_ns));
  const double changed = s.dirty.curve().bytes(std::max(gap_s, 0.0));
  return std::min(changed, before * std::max(gap_s / s.gap_s, 1.0));
}

}  // namespace

/// Of the uplink, in bytes a second, for each guest that leaves now.
double Core::State::leaving_share() const {
  const auto leaves = [](const auto& one) {
    const Phase phase = one.second.row.phase;
    return phase >= Phase::kNoticed && phase <= Phase::kDraining && !one.second.row.is_fenced;
  };
  const auto count = std::count_if(attempts_.begin(), attempts_.end(), leaves);
  return leaving_rate() / static_cast<double>(std::max<std::ptrdiff_t>(count, 1));
}

/// What a peer that has the newest durable generation lacks of this one, at most.
double Core::State::missing_bytes(const Attempt& a, const GenerationRow& row) const {
  double bytes = 0;
  for (const GenerationRow& one : a.row.generations) {
    if (one.ref.generation > row.ref.generation || one.is_committed) continue;
    bytes += static_cast<double>(one.ref.new_bytes);
  }
  return std::min(bytes, std::max(static_cast<double>(row.ref.bytes), 1.0));
}

/// What the peer lacks of that generation, by what it has signed for and what is durable; of one
/// that is still being made, by what is expected of it.
double Core::State::lacking_bytes(const Attempt& a, const NodeId& peer, std::uint32_t generation)
    const {
  double bytes = 0;
  double whole = 0;
  for (const GenerationRow& one : a.row.generations) {
    const std::uint32_t number = one.ref.generation;
    if (number > generation) break;
    const bool is_signed = std::any_of(
        one.receipts.begin(), one.receipts.end(), [&](const Receipt& r) { return r.holder == peer; }
    );
    const bool has_it = is_signed || (one.is_committed && number < generation);
    bytes = has_it ? 0 : bytes + static_cast<double>(one.ref.new_bytes);
    whole = static_cast<double>(one.ref.bytes);
  }
  const bool is_made =
      !a.row.generations.empty() && a.row.generations.back().ref.generation >= generation;
  const double next = is_made ? 0 : expected_of_next(a);
  return std::min(bytes + next, std::max({whole, next, 1.0}));
}

/// So little of it is left that a newer one can pay for it, and it goes as fast as that supposes.
bool Core::State::is_nearly_there(
    const Attempt& a, const PendingWork& pending, const GenerationRow& newer
) const {
  const double spare = kNearlyThere * missing_bytes(a, newer);
  const auto left = static_cast<double>(estimate(a, pending));
  const TransferState& transfer = pending.transfer;
  const bool has_shown = now_.boot - a.noticed_at >= kShowsItsRate &&
                         transfer.measured_at - a.noticed_at >= kShowsItsRate;
  const double share = leaving_share();
  const double rate = has_shown ? std::min(transfer.sent_bps / 8, share) : share;
  return left < spare && left * share <= spare * rate;
}

/// Copies of what was saved before `row` end where it can be there before the deadline too. What
/// has arrived of them stays with the peer, for what the newer one shares with it.
void Core::State::leave_older(Attempt& a, const GenerationRow& row) {
  if (a.row.phase < Phase::kNoticed || row.is_committed || row.is_refused) return;
  const double rate = std::max(leaving_share(), 1.0);
  const double newer_s = missing_bytes(a, row) / rate * kSureTimes + kSureMargin_s;
  const auto left = evacuation_left(a);
  std::erase_if(a.copies, [&](const auto& copy) {
    const PendingWork& pending = works_.at(copy.second);
    if (pending.generation >= row.ref.generation) return false;
    const auto older = static_cast<double>(estimate(a, pending));
    if (is_nearly_there(a, pending, row)) return false;
    const bool is_late = left && in_s(*left) < newer_s;
    if (is_late && in_s(*left) > older / rate) return false;
    cancel_work(copy.second);
    return true;
  });
}

/// In so many seconds the guest will have saved again, as far as its habits say; none if that is
/// not to be counted on.
std::optional<double> Core::State::next_save_s(const Attempt& a) const {
  const GenerationRow& last = a.row.generations.back();
  const double gap_s = a.schedule.gap_s;
  if (a.row.signalled > 0) {
    const double passed_s = in_s(now_.boot - a.noticed_at);
    const double expected_s = std::max(2 * a.schedule.pause_s, kSureMargin_s);
    if (passed_s < expected_s) return expected_s - passed_s;
  }
  if (!(gap_s > 0) || a.row.generations.size() < 2) return std::nullopt;
  const double age_s = in_s(now_.boot - instant_from_ns(last.ref.snapshot_boot_ns));
  if (age_s < 0 || age_s > kLateSave * gap_s) return std::nullopt;
  return std::max(gap_s - age_s, kSureMargin_s);
}

/// A guest that leaves is about to save again, over most of what it saved last, and there is time
/// for the next save and, should it not come, for this one.
bool Core::State::waits_for_next_save(const Attempt& a) const {
  if (a.row.phase != Phase::kNoticed || a.is_safe_after_notice || a.row.is_fenced) return false;
  const auto left = evacuation_left(a);
  if (!left || a.row.generations.empty()) return false;
  const GenerationRow& last = a.row.generations.back();
  const bool is_open = !last.is_committed && !last.is_refused && last.receipts.empty();
  if (!is_open || !a.copies.empty()) return false;
  const auto next_s = next_save_s(a);
  if (!next_s) return false;
  const double fresh = std::max(static_cast<double>(last.ref.new_bytes), 1.0);
  if (fresh < kMostRewritten * static_cast<double>(last.ref.bytes)) return false;
  const double bytes =
      std::min(missing_bytes(a, last) + fresh, static_cast<double>(last.ref.bytes));
  const double copy_s = bytes / std::max(leaving_share(), 1.0) * kSureTimes + kSureMargin_s;
  return in_s(*left) > kLateSave * *next_s + copy_s;
}

}  // namespace rn::agent
