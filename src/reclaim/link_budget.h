// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"

// What guests may send over a link, now and as far as it is known beforehand. Pure. Bytes and bytes
// per second throughout; a link is one direction of one cable. spec-reclaim.md 5.2 ("guard").
namespace rn::reclaim {

using LinkIndex = std::uint32_t;          ///< into a list of links
using LinkPath = std::vector<LinkIndex>;  ///< the links that a transfer crosses, each once

inline constexpr double kMaxBytesPerS = 1e12;  ///< 8 Tbit/s: more is a wrong unit, not a link
inline constexpr std::size_t kMaxLinks = 1024;
inline constexpr std::size_t kMaxPathLinks = 8;
inline constexpr std::size_t kMaxCapacitySteps = 16;

struct CapacityStep {
  Instant from;
  double bytes_per_s = 0;
};

struct LinkState {
  std::string name;  ///< unique among the links of a call; what is remembered of it hangs on it
  std::vector<CapacityStep>
      capacity;                       ///< ascending; the first also holds before, the last for ever
  double background_bytes_per_s = 0;  ///< ĝ: what others send, smoothed; taken as lasting
  double guard_bytes_per_s = 0;       ///< ε: kept free beside it
  double evacuation_share = 0.9;      ///< φ: of the capacity, during an evacuation
  seconds evacuation_limit{60};       ///< for so long after an evacuation began, then not again
                                      ///< until there was none for as long
  double probe_rtt_s = 0;             ///< newest probe; 0: none
  double least_rtt_s = 0;             ///< least seen: the path without queues
};

/// kInvalid, naming the link, for a capacity that is missing, unordered, negative, not finite or
/// absurd, and for shares outside [0, 1].
Status check_link(const LinkState& link);

double capacity_at(const LinkState& link, Instant at);

/// C − ĝ − ε, at least 0: what all guests together may send outside an evacuation.
double steady_budget(const LinkState& link, double capacity);

/// The greater of C·φ and the steady budget.
double evacuation_budget(const LinkState& link, double capacity);

/// A budget over time: constant between its steps, the last one for ever. Times are seconds after
/// "now" of the call that made it.
class BudgetCurve {
 public:
  struct Step {
    double from_s = 0;
    double bytes_per_s = 0;
  };

  explicit BudgetCurve(double bytes_per_s) : steps_{{0, bytes_per_s}} {}

  /// `from_s` must be later than the last step's.
  void add(double from_s, double bytes_per_s);

  double at(double t_s) const;
  /// ∫ from 0 to `t_s`; 0 for a time in the past.
  double bytes_until(double t_s) const;

  const std::vector<Step>& steps() const { return steps_; }

 private:
  std::vector<Step> steps_;
};

/// What evacuations may send: evacuation_budget until `share_until`, steady_budget from then on.
BudgetCurve evacuation_curve(const LinkState& link, Instant now, Instant share_until);

/// Later minus earlier, in seconds; may be negative.
double seconds_between(Instant earlier, Instant later);

}  // namespace rn::reclaim
