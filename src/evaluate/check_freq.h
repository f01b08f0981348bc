// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "evaluate/requeue.h"

namespace rn::evaluate {

/// CheckFreq (Mohan, Phanishayee, Chidambaram, FAST'21; repository msr-fiddle/CheckFreq): as often
/// as a bound on its cost allows, and never two at a time. A save is a snapshot, during which the
/// guest stands still here, and persisting, beside which it goes on. Between the begins of two lie
/// at least
///
///   - the whole time that the last one took, snapshot and persisting, so that one is over before
///     the next begins: measured again at each, because lines are shared (the paper profiles, and
///     tunes while it runs);
///   - the snapshot's time over the bound, 3.5 % (the paper's);
///
/// rounded up to whole steps of one second. Persisted is to the site's file server, since what lies
/// on a machine's own disk (the paper's case) is gone with it. Is queued, and catches SIGTERM, as
/// Slurm's S2: the difference is the interval alone. The paper knows no notices; without that it
/// would only be weaker.
class CheckFreq final : public Requeue {
 public:
  CheckFreq() : Requeue({}) {}

  std::string name() const override { return "checkfreq"; }

  static constexpr double kBound = 0.035;  ///< of its time a guest stands still at most
  static constexpr double kStep_s = 1;

  /// Seconds between the begins of saves that stop the guest for `pause_s` and take `whole_s`.
  static double interval(double pause_s, double whole_s);

 protected:
  std::optional<double> interval_s(JobNumber job) override;

  bool saves_at_notice() const override { return true; }

  void hear_of_save(JobNumber job, double took_s) override { took_s_[job] = took_s; }

 private:
  std::map<JobNumber, double> took_s_;  ///< the newest save of each, until it had arrived
};

}  // namespace rn::evaluate
