// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "evaluate/requeue.h"

namespace rn::evaluate {

/// HTCondor's vacate, with jobs that save themselves. From its manual (23.x: policy configuration,
/// self-checkpointing applications, user priorities and negotiation):
///
///   - a machine whose owner is coming vacates its jobs: SIGTERM at once, SIGKILL after
///     MachineMaxVacateTime, 600 s by default, or when the owner is there;
///   - what a job has saved by then survives if it has been handed over (ON_EXIT_OR_EVICT, or by
///     itself to shared storage), and the job, which stays in the queue, goes on from it elsewhere;
///   - a job saves by itself as well; the manual's hint is once an hour;
///   - free machines come first in the negotiator's order, then the job's own Rank: here how long
///     the owner has been away (KeyboardIdle), the one thing it knows that tells owners apart;
///   - a job waits for a silent machine as long as its lease: 40 minutes by default, and 5 here,
///     which a job may ask for.
///
/// Stronger here than there: placed by events and three seconds instead of negotiation cycles of 20
/// to 60, no fair share, machines are lent after 10 idle minutes and not 15.
class Condor final : public Requeue {
 public:
  static constexpr double kHourly_s = 3600;

  explicit Condor(double interval_s = kHourly_s) : Requeue({}), saved_every_s_(interval_s) {}

  std::string name() const override;

  void begin(World& world) override;
  void on_lent(NodeNumber node) override;

 protected:
  std::optional<double> interval_s(JobNumber) override { return saved_every_s_; }

  bool saves_at_notice() const override { return true; }

  std::optional<Moment> grace() const override { return seconds(600); }

  std::optional<Rank> rank(JobNumber job, NodeNumber node) const override;

 private:
  double saved_every_s_;
  std::vector<Moment> away_since_;  ///< of each node's owner
};

}  // namespace rn::evaluate
