// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "evaluate/requeue.h"

namespace rn::evaluate {

/// Knows when each machine is taken back, and how wireless lines change: what no system can, and so
/// what none can do better than by much. The interruptions come by its constructor; the world
/// tells it nothing more than others.
///
/// A job goes where nobody comes for the longest time, and nowhere where it could not be saved
/// again before somebody does. Nothing is saved but once before each taking-back, of whatever kind,
/// early enough for a line that carries a third of what it should; with that save the guest stands
/// still, and it leaves when the save has arrived. So no work is lost unless that does not arrive,
/// and what is left is downtime: the way to the file server, a place, and the way back. Not the
/// least downtime that could be, since states do not go straight from machine to machine.
class Oracle final : public Requeue {
 public:
  explicit Oracle(const std::vector<Interruption>& interruptions);

  std::string name() const override { return "oracle"; }

  void begin(World& world) override;
  void on_lent(NodeNumber node) override;

 protected:
  std::optional<double> interval_s(JobNumber) override { return std::nullopt; }

  std::optional<Rank> rank(JobNumber job, NodeNumber node) const override;

 private:
  struct Rate {
    double from_s = 0;
    double bytes_per_s = 0;
  };

  const Interruption* next(NodeNumber node) const;
  double bytes_at(NodeNumber node) const;
  double lead_s(NodeNumber node, double bytes, double until_s) const;
  void look(NodeNumber node, std::size_t spell);

  std::vector<std::vector<Interruption>> coming_;  ///< by node, in order
  std::vector<std::vector<Rate>> rates_;           ///< of each node's line
  std::vector<std::size_t> spells_;                ///< so many times each was lent
};

}  // namespace rn::evaluate
