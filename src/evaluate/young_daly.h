// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "evaluate/requeue.h"

namespace rn::evaluate {

/// Saves at the interval of Young (1974) and Daly (2006) for one mean time between failures that
/// holds everywhere and always: sqrt(2·c·(R + M)). M is what the site has seen so far, its lent
/// time over what was taken back or lost, with the 35 hours of one interruption beforehand; c is
/// the time that writing a whole state takes, the stop and the way to the file server by the
/// node's line; R is loading it again. Catches SIGTERM as Slurm's S2 does, and is queued as there:
/// the difference is the interval alone.
class YoungDaly final : public Requeue {
 public:
  YoungDaly() : Requeue({}) {}

  std::string name() const override { return "young-daly"; }

  void begin(World& world) override;
  void on_lent(NodeNumber node) override;

  /// sqrt(2·c·(R + M)), seconds.
  static double interval(double cost_s, double restart_s, double mtbf_s);

 protected:
  std::optional<double> interval_s(JobNumber job) override;

  bool saves_at_notice() const override { return true; }

  void hear_of_loss(NodeNumber node) override;

 private:
  double mtbf_s();

  std::vector<std::optional<Moment>> lent_since_;
  double lent_s_ = 0;  ///< of spells that are over
  double losses_ = 0;
};

}  // namespace rn::evaluate
