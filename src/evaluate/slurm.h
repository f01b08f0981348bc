// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "evaluate/requeue.h"

namespace rn::evaluate {

/// Slurm's preempt-and-requeue: guests in a partition of low priority with PreemptMode=REQUEUE, an
/// owner's job preempts them. From SchedMD's own pages (preempt, slurm.conf, sbatch;
/// version 22.05):
///
///   - a preempted job that may be requeued is killed and queued again with its own number; its
///     script starts from the beginning, so what it has not saved itself is gone;
///   - GraceTime (0 by default) is what the partition gives: SIGTERM at once, SIGKILL at its end.
///     Here it is the owner's notice, which is more than a site's fixed one could be;
///   - a node that does not answer is DOWN after SlurmdTimeout, 300 s by default.
///
/// S0 saves nothing. S1 saves to the site's file server every so many seconds, by the application
/// itself, asynchronously. S2 is S1 whose guests catch SIGTERM, save once more, leave when that has
/// arrived, and are killed at the deadline otherwise. Stronger here than there: it is scheduled by
/// events and three seconds instead of by a backfill cycle of 30, best fit, no fair share, no
/// reservation that keeps places empty.
class Slurm final : public Requeue {
 public:
  struct Options {
    std::optional<double> interval_s;  ///< between saves; none: S0
    bool catches_sigterm = false;      ///< S2
  };

  explicit Slurm(Options options) : Requeue({}), options_(options) {}

  std::string name() const override;

 protected:
  std::optional<double> interval_s(JobNumber) override { return options_.interval_s; }

  bool saves_at_notice() const override { return options_.catches_sigterm; }

 private:
  Options options_;
};

}  // namespace rn::evaluate
