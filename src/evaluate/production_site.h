// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/crypto.h"
#include "base/rng.h"
#include "coordinator/core.h"
#include "evaluate/production.h"

// What the parts of the production policy share. Not for others.
namespace rn::evaluate {

class CoordinatorSeat;
class NodeSeat;

/// A job's saved states, wherever copies of them lie.
struct SavedState {
  JobNumber job = 0;
  double progress_s = 0;
};

struct ProductionSite {
  World* world = nullptr;
  Cadence cadence;
  std::function<void(const coordinator::EventRow&)> on_event;
  reclaim::RateRule rates = reclaim::RateRule::kDeadlines;
  bool plans_saves_together = true;
  MachineTimes machine;
  OwnGuests* guests = nullptr;
  std::function<void(const Happening&)> on_happened;
  SeededRng rng{0};
  crypto::SigningKey ticket_key;
  std::unique_ptr<CoordinatorSeat> coordinator;
  std::vector<std::unique_ptr<NodeSeat>> nodes;
  std::map<NodeId, NodeNumber> by_id;
  std::map<JobId, JobNumber> jobs;
  JobNumber submitted = 0;               ///< the newest, which may not have its id yet
  std::map<RunNumber, NodeNumber> runs;  ///< where they are
  std::vector<SavedState> states;        ///< by the number in a manifest's digest, less one
  Production::Counts counts;

  Agenda& agenda() const { return world->agenda(); }

  Moment message_takes() const { return moment_of(machine.message_s); }

  void tell(Happening happening) const {
    if (!on_happened) return;
    happening.at = world->now();
    on_happened(happening);
  }

  /// Of the clocks of all machines: they agree, and none is ever set.
  Now now() const;

  /// A new one; its digest names it.
  Digest add_state(SavedState state);
  const SavedState& state_of(const Digest& manifest) const;
};

/// The one image of a setting, which every node has already.
inline constexpr auto kImage =
    "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Ticks that become rarer while nothing happens; at a constant pace where they are to be. No
/// longer used once the agenda is gone; may outlive it.
class Pulse {
 public:
  Pulse(Agenda& agenda, bool is_constant, Moment shortest, std::function<void()> beat)
      : agenda_(agenda), is_constant_(is_constant), shortest_(shortest), beat_(std::move(beat)) {}

  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  /// Something happened: the next beats come soon.
  void quicken();
  /// After a beat: the next one, no later than `longest` from now.
  void rest(Moment longest);
  /// A beat no later than this.
  void no_later_than(Moment when);
  void stop();

 private:
  void arrange(Moment when);

  Agenda& agenda_;
  bool is_constant_;
  Moment shortest_;
  std::function<void()> beat_;
  Moment pause_{0};
  Moment due_{0};
  std::optional<Agenda::Handle> entry_;
};

/// The coordinator's process around its core: no disk, no sockets.
class CoordinatorSeat {
 public:
  CoordinatorSeat(ProductionSite& site, const coordinator::Config& config);

  void begin(coordinator::Snapshot snapshot);
  void feed(const coordinator::Event& event);
  void submit(JobNumber job);
  /// A new connection of this node.
  coordinator::ConnectionId connect(NodeNumber node);
  /// The agent has closed it, or its machine is new.
  void disconnect(coordinator::ConnectionId connection);

  coordinator::Metrics metrics() const { return core_.metrics(); }

  const coordinator::Core& core() const { return core_; }

 private:
  void obey(coordinator::Output output);
  void carry_out(coordinator::Effect& effect);

  ProductionSite& site_;
  coordinator::Config config_;
  SeededRng rng_;
  coordinator::Core core_;
  Pulse pulse_;
  std::map<coordinator::ConnectionId, NodeNumber> connections_;
  std::map<coordinator::RequestId, JobNumber> requests_;
  coordinator::ConnectionId next_connection_ = 1;
  coordinator::RequestId next_request_ = 1;
};

}  // namespace rn::evaluate
