// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "reclaim/evacuation.h"

// What is left of slots, room and links while destinations are chosen (reclaim/evacuation.h). Pure.
namespace rn::reclaim {

/// A stay curve with its integral, so that each question costs one exponential.
class StayTable {
 public:
  explicit StayTable(const StayCurve& curve);

  double log_survival(double at_s) const;
  /// ∫ of the survival over [from_s, to_s].
  double integral(double from_s, double to_s) const;

 private:
  struct Piece {
    double begin_s = 0;
    double log_begin = 0;
    double rate = 0;
    double until_here = 0;  ///< integral from 0
  };

  const Piece& piece_at(double at_s) const;
  double until(double at_s) const;

  std::vector<Piece> pieces_;
  double leaves_in_s_;
};

/// A copy of one job to one node, beside what is booked.
struct CopyOffer {
  bool is_in_time = false;
  double arrives_s = 0;
  double chance = 0;
  double rate = 0;
};

/// What a stranded job's state would take to a node.
struct Fetch {
  double takes_s = 0;
  double rate = std::numeric_limits<double>::infinity();
  std::optional<std::size_t> from;  ///< the nearest holder; none: nobody has anything of it
};

/// One job going on at one node after `start_s`.
struct RunOffer {
  bool fits = false;
  double speed = 0;
  double stay_s = 0;
  double group_risk = 0;
  double utility = 0;
};

class Ledger {
 public:
  /// Borrows all three, which must outlive it.
  Ledger(
      const EvacuationSite& site,
      const std::vector<EvacuatingJob>& jobs,
      const EvacuationPolicy& policy
  );

  CopyOffer assess_copy(std::size_t job, std::size_t node) const;
  RunOffer assess_run(std::size_t job, std::size_t node, double start_s) const;
  /// Straight to where it goes on: nullopt if it is late or does not fit. Useful seconds.
  std::optional<double> assess(std::size_t job, std::size_t node) const;

  /// Of a stranded job.
  const Fetch& fetch_of(std::size_t job, std::size_t node) const { return fetches_[job][node]; }

  /// Of leaving the job where it is: what is not durable is lost.
  double worth_of_nothing(std::size_t job) const;

  void send(std::size_t job, std::size_t node);
  void place(std::size_t job, std::size_t node);
  void unsend(std::size_t job, std::size_t node);
  void unplace(std::size_t job, std::size_t node);

  /// Seconds for `bytes` between two nodes at the 10 % quantile, without what is booked.
  double fetch_s(std::size_t from, std::size_t to, double bytes) const;

 private:
  struct Booking {
    std::size_t job = 0;
    double due_s = 0;
    double bytes = 0;
  };

  struct LinkState {
    Bandwidth bandwidth;
    double sure_rate = 0;  ///< reached with the chance that is asked for
    std::vector<Booking> booked;
  };

  using Links = std::vector<std::uint32_t>;

  double score_by_rule(std::size_t job, std::size_t node) const;
  void find_holders();
  std::uint32_t granted_at(std::size_t job, std::size_t node) const;
  double budget_s(const EvacuatingJob& job) const;
  /// `bytes` and what is due before or with them.
  static double ahead_on(const LinkState& link, double due_s, double bytes);
  std::optional<double> arrival_s(std::size_t job, std::size_t node) const;
  bool delays_nobody(const LinkState& link, double due_s, double bytes) const;
  void blend_forecasts();

  const EvacuationSite& site_;
  const std::vector<EvacuatingJob>& jobs_;
  const EvacuationPolicy& policy_;
  std::vector<StayTable> stays_;
  std::vector<std::vector<Links>> paths_;    ///< per job and node
  std::vector<std::vector<Fetch>> fetches_;  ///< per job and node; of stranded ones alone
  std::vector<Slots> free_;
  std::vector<std::uint32_t> granted_;  ///< milli-cores where a job is placed now
  std::vector<double> room_;
  std::vector<double> group_jobs_;
  std::vector<LinkState> links_;
};

/// evacuation_value(), beginning with a ledger in which nothing is booked yet.
std::optional<double> value_of(
    Ledger ledger,
    const std::vector<EvacuatingJob>& jobs,
    const std::vector<std::optional<std::size_t>>& destinations
);

}  // namespace rn::reclaim
