// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "reclaim/admission_price.h"
#include "reclaim/transfer.h"

// Which transfers are promised to arrive before their deadlines, and how fast each may send. Pure.
// The demand bound of earliest deadline first, extended from one uplink to transfers that cross
// several links. Seconds from now, bytes, bytes per second.
namespace rn::reclaim {

/// How links are shared. A site has deadlines; the others are of a study, to compare with.
enum class RateRule : std::uint8_t {
  kDeadlines,
  kFairShare,       ///< nobody is bounded, as TCP shares; all that has a deadline is let begin
  kStrictPriority,  ///< the same, but nothing else sends over a link while something with one does
  kByValue,         ///< whole links to what is worth most, one after the other
  kByDeadline,      ///< EDF without admission: what we use of links, to the earliest, then the next
};

struct RatePlan {
  std::vector<double> rates;      ///< per transfer, for the next `tick_s`
  std::vector<bool> is_admitted;  ///< per transfer; only evacuations are ever admitted
  /// Per transfer: not admitted for its value alone, whether it fits or not. Empty: none.
  std::vector<bool> is_outbid;
  double admitted_value = 0;
};

/// Admits evacuations, and gives every transfer its rate until the next plan.
///
/// What is admitted has room booked on all its links, in stretches of constant rate between
/// deadlines, and keeps it: so it arrives as long as capacities hold. A set is admitted if it fits
/// when each transfer, in the order of deadlines, takes the earliest room on all its links at once,
/// either anew for all or beside what is booked already. With one link that is the EDF demand
/// bound, which no schedule can beat; with several it is sufficient. If not all fit, the most
/// valuable set that three greedy orders and a bounded local search find is admitted; what was
/// admitted before comes before all others, and is dropped only when capacities have fallen. What
/// is not admitted is the caller's to degrade (delta only, nearer destination, last durable
/// generation); offered again, it costs a search again. Where more evacuations come than the links
/// carry, what is not worth its room is not admitted although it fits (admission_price.h).
///
/// Rates: what is booked for the next `tick_s`; then restores take their share of their links,
/// by value per byte; then the earliest deadline takes what is left of its links, because finishing
/// early is insurance; then, within the guard, restores, then checkpoints by value per byte, then
/// prefetches, then evacuations that were not admitted. The rates over a link never add up to more
/// than burst_rate(), and without an evacuation to more than guarded_rate().
///
/// The share of restores is set aside before the admitted set is booked, and only as far as that
/// would be there `kRestoreCare_s` and a tenth of its time before it is due: so no restore makes
/// late what is promised, and none waits for a whole evacuation whose deadline is far.
///
/// By another rule than deadlines nothing is booked or refused: "admitted" is whatever has a
/// deadline. By fair share and strict priority a rate is infinite or 0. By value and by deadline
/// one after the other takes what those before it leave of its links: of all of them by value,
/// which guards nobody; by deadline of as much as promised evacuations may have. What has no
/// deadline gets nothing but what give_spare() finds.
class RatePlanner {
 public:
  explicit RatePlanner(const LinkGuard& guard, RateRule rule = RateRule::kDeadlines)
      : guard_(guard), rule_(rule) {}

  /// `now_s` never goes back from plan to plan. `transfers` have different ids, and name links by
  /// index into `links` only (asserted). Bytes, values and capacities that cannot be (negative, not
  /// a number) count as 0; a transfer without bytes is admitted and gets nothing. One trial is
  /// O(n²·k) for n evacuations over k links; there are at most 4·n + `kAdmissionTrials` of them,
  /// and one if all fit.
  RatePlan plan(
      double now_s, std::span<const Transfer> transfers, std::span<const Link> links, double tick_s
  );

  /// Room of one transfer, absolute times.
  struct Stretch {
    double from_s = 0;
    double to_s = 0;
    double rate = 0;
  };

  struct Booking {
    double due_s = 0;
    std::vector<Stretch> stretches;  ///< ascending
  };

 private:
  LinkGuard guard_;
  RateRule rule_;
  std::map<std::uint64_t, Booking> booked_;  ///< of what is admitted
  AdmissionPrices prices_;
};

/// An evacuation that is sent a little slower than planned must not lose its promise to a restore:
/// of the time until it is due so much, less so much.
inline constexpr double kRestoreCareShare = 0.9;
inline constexpr double kRestoreCare_s = 1;

/// What a node sends home (a job's outputs) goes with the checkpoints. With a deadline, or after so
/// long, it goes with the restores: before all checkpoints, and never at a promise's cost. So who
/// saves all the time on the same line cannot hold it up for ever.
inline constexpr double kUploadPatience_s = 600;

constexpr TransferClass class_of_upload(double waited_s, bool has_deadline) {
  return has_deadline || waited_s >= kUploadPatience_s ? TransferClass::kRestore
                                                       : TransferClass::kCheckpoint;
}

/// Feasibility tests that one plan may make while it looks for a better set.
inline constexpr int kAdmissionTrials = 400;

/// Cuts the traffic without deadlines when it makes others wait: half at each look while the round
/// trip is longer than its minimum by more than `target_s`; otherwise a 64th more per quarter of a
/// second, also of the time in which nobody looked. The minimum is that of the last ten minutes, so
/// that another route does not count as waiting for ever. After LEDBAT (RFC 6817), which measures
/// one way.
class LatencyGuard {
 public:
  explicit LatencyGuard(double target_s = 0.025) : target_s_(target_s) {}

  /// One look, at a time that never goes back: the round trip, and the least that is known of the
  /// same path. Ignored unless the first is positive; the second counts if it is.
  void observe(double now_s, double rtt_s, double least_s = 0);

  /// Factor for the rates of checkpoints and prefetches, in [1/64, 1].
  double share() const { return share_; }

  /// By how much the newest round trip was longer than the minimum.
  double waits_s() const { return waits_s_; }

 private:
  struct Minute {
    double number = 0;
    double least_s = 0;
  };

  double target_s_;
  std::deque<Minute> minutes_;  ///< ascending; of the last ten
  double seen_s_ = 0;
  double waits_s_ = 0;
  double share_ = 1;
};

}  // namespace rn::reclaim
