// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/time.h"
#include "reclaim/link_budget.h"
#include "reclaim/transfer_admission.h"

// How fast each transfer of guests' state may send, and which evacuations are begun at all. Pure:
// state is a value, time is passed in. One call sees all transfers and all links that they share.
// spec-reclaim.md 5.2 and 8.3.
namespace rn::reclaim {

inline constexpr std::size_t kMaxTransfers = 4096;

enum class TransferClass : std::uint8_t {
  kEvacuation,  ///< has a deadline; everything that must be elsewhere before one is this
  kCheckpoint,
  kPrefetch,
};

/// What else could be moved for an evacuation that does not fit.
struct Alternative {
  std::uint64_t bytes = 0;
  LinkPath path;
  double value = 0;  ///< expected loss averted if it arrives
};

struct LocalSpill {
  std::uint64_t bytes = 0;
  double disk_bytes_per_s = 0;
  double value = 0;  ///< expected loss averted if it lies on the node's own disk at the deadline
};

struct DeadlineTransfer {
  TransferId id;
  TransferClass kind = TransferClass::kEvacuation;
  std::uint64_t bytes_left = 0;
  LinkPath path;
  double cap_bytes_per_s = 0;  ///< the sender's own; 0: none
  double value = 0;            ///< expected loss averted, any one unit, e.g. GPU-seconds

  // Evacuations.
  Instant begun;         ///< when the deadline became known
  Instant deadline;      ///< nothing leaves the source after it
  double restore_s = 0;  ///< what must still happen between the last byte and the deadline
  double rtt_s = 0;
  bool destination_is_leaving = false;  ///< it is being reclaimed itself
  std::optional<Alternative> delta;     ///< only what the destination's newest copy lacks
  std::optional<Alternative> nearest;   ///< to another destination, whatever is least there
  std::optional<LocalSpill> spill;      ///< only where the owner's contract permits it

  double index = 0;  ///< checkpoints: I = w·h·a / L, expected loss averted per link-second
};

/// In this order each dropped evacuation is offered less.
enum class TransferOutcome : std::uint8_t {
  kDone,     ///< no bytes left
  kSends,    ///< an evacuation in full; another class with a rate
  kWaits,    ///< a checkpoint or prefetch without a rate now
  kDelta,    ///< the delta alone, at the rate given
  kNearest,  ///< to the nearest destination, at the rate given
  kSpill,    ///< onto the node's own disk; uploaded later under the owner's cap
  kAccept,   ///< the last durable generation is where the job resumes; count on nothing newer
};

enum class DropReason : std::uint8_t {
  kNone,
  kDeadlinePassed,
  kDestinationLeaving,
  kNoCapacity,  ///< its path has no budget before the deadline
  kTooLarge,    ///< more than its path carries until the deadline, even alone
  kRivals,      ///< together with the others it does not fit, and they are worth more
};

struct TransferGrant {
  TransferId id;
  TransferOutcome outcome = TransferOutcome::kWaits;
  DropReason reason = DropReason::kNone;  ///< why not in full
  std::uint64_t rate_bytes_per_s = 0;     ///< until the next plan
  std::uint64_t minimum_bytes_per_s = 0;  ///< of it, what the due time needs from now on
  std::uint64_t bytes = 0;                ///< that this outcome moves
  double window_s = 0;                    ///< evacuations: until the last byte is due
  double possible_bytes = 0;  ///< evacuations: what the whole path carries until then, alone
  double kept_value = 0;
  double lost_value = 0;
  std::string sentence;  ///< for what was dropped; empty otherwise
};

struct RatePolicy {
  double slack_share = 0.05;  ///< of the window from `begun` to `deadline`
  double slack_rtts = 3;
  double keep_admitted = 1.5;       ///< a newcomer must be worth so many times what it displaces
  double keep_index = 1.1;          ///< so much higher an index takes the link from a checkpoint
  double keep_rate = 0.02;          ///< a rate rises only by more than this share
  double latency_target_s = 0.050;  ///< of probe − least round trip (RFC 6817: at most 0.1)
  milliseconds period_least{100};
  milliseconds period_most{250};
  AdmissionLimits admission;
};

/// What one plan must know of the one before. A value: copy, compare, store it. Integers only, so
/// that nothing drifts.
struct RateMemory {
  struct Sent {
    std::uint64_t rate_bytes_per_s = 0;
    bool is_admitted = false;  ///< an evacuation that was told to send

    friend bool operator==(const Sent&, const Sent&) = default;
  };

  struct Link {
    std::optional<Instant> share_since;   ///< since then evacuations may take their larger share
    Instant evacuated_at;                 ///< an evacuation crossed it then
    std::uint32_t lower_permille = 1000;  ///< of the budget left to checkpoints and prefetch
    Instant eased_at;
    std::optional<Instant> cut_at;

    friend bool operator==(const Link&, const Link&) = default;
  };

  std::map<TransferId, Sent> transfers;
  std::map<std::string, Link> links;

  friend bool operator==(const RateMemory&, const RateMemory&) = default;
};

struct RatePlan {
  std::vector<TransferGrant> grants;  ///< in the order of the transfers
  Instant next_at;        ///< recompute then, or at once when a transfer begins, ends or fails
                          ///< or a link changes
  double kept_value = 0;  ///< of evacuations
  double lost_value = 0;
  bool was_cut_short = false;  ///< admission ended for its bound of work, not by itself
};

/// Rates for all transfers until `next_at`, and what becomes of each evacuation.
///
/// An evacuation is due at deadline − restore − max(slack_rtts · RTT, slack_share · window). One
/// that was admitted before and cannot keep that any more may use the slack up to deadline −
/// restore; it is given up only when that fails too, or for what is worth keep_admitted times as
/// much. Evacuations share the links by the policy of FluidPlay under evacuation_curve. Then what
/// was dropped without a delta or another destination, and could still arrive by deadline −
/// restore, sends with what is left, highest value per byte first; nothing is promised. Then
/// checkpoints, highest index first, each as fast as its path lets it (so one at a time on a link),
/// then prefetch, highest value per byte first; all three only within steady_budget less what
/// evacuations send, the last two cut to a half, at most once per 250 ms, while a link's probe
/// exceeds the latency target (after LEDBAT, RFC 6817), rising again by a tenth of the budget per
/// second.
///
/// The sum of rates on a link never exceeds its budget of now. Same arguments, same plan; `memory`
/// becomes what the next call needs and is untouched on error. A caller that follows kDelta or
/// kNearest sends next time what it now moves, under the same id.
///
/// kInvalid, naming the transfer or link: check_link; an id that is empty or used twice; a path
/// that is empty, too long, crosses a link twice or one that is not there; numbers that are
/// negative, not finite or absurd; an evacuation whose deadline is before its beginning.
/// kExhausted: more than kMaxTransfers or kMaxLinks.
Result<RatePlan> plan_rates(
    const std::vector<LinkState>& links,
    const std::vector<DeadlineTransfer>& transfers,
    const RatePolicy& policy,
    RateMemory& memory,
    Instant now
);

/// Why an evacuation does not go in full, and what becomes of it, for people: "5.00 GB in 27.0 s do
/// not fit beside others that are worth more; only the delta of 400.0 MB goes". Empty if it goes.
std::string sentence_of(const TransferGrant& grant, std::uint64_t bytes_left);

/// The checks of plan_rates alone.
Status check_rate_input(
    const std::vector<LinkState>& links, const std::vector<DeadlineTransfer>& transfers
);

}  // namespace rn::reclaim
