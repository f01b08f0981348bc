// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/core.h"
#include "evaluate/production_guests.h"
#include "evaluate/production_site.h"
#include "evaluate/production_store.h"

// A node of the production policy: the agent around its core, its warden, and what it stores. Not
// for others.
namespace rn::evaluate {

class NodeSeat {
 public:
  NodeSeat(ProductionSite& site, NodeNumber node);

  const NodeId& id() const { return id_; }

  const Digest& certificate() const { return certificate_; }

  /// As it joined.
  coordinator::NodeRow row() const;

  void power_on();
  void power_off();

  bool is_on() const { return is_on_; }

  WardenSeat& warden() { return warden_; }

  StateStore& store() { return store_; }

  const crypto::SigningKey& signer() const { return verify_key_; }

  // ---- the coordinator

  void hear(coordinator::ConnectionId connection, wire::Message message);
  void hear_close(coordinator::ConnectionId connection);

  /// The owner is coming: until then it is looked at as often as the daemons do.
  void expect_owner(Moment until);

  /// By copies, so far.
  double copied_bytes() const;

  /// Copies to or from this node stop without a word.
  void peer_is_silent(NodeNumber peer);

 private:
  /// A copy or a fetch.
  struct UnderWay {
    agent::Work work;
    NodeNumber peer = 0;
    std::optional<Flows::Id> flow;
    GenerationRef ref;           ///< what is sent
    double bytes = 0;            ///< so many
    std::uint64_t rate_bps = 0;  ///< as the core paces it; 0 = as fast as it goes
    bool is_ahead = false;       ///< its generation is being made, and bounds it
    bool has_arrived = false;    ///< all of it, ahead of its generation
  };

  void later(Moment delay, std::function<void()> action);
  void feed(const agent::Event& event);
  void obey(agent::Output output);
  void carry_out(agent::Effect& effect);
  void beat();
  void rest();
  bool may_rest() const;
  bool is_sample_due() const;
  void sample();
  Moment longest_rest() const;
  void connect();

  // production_work.cc
  void start_work(const agent::Work& work);
  void finish(agent::WorkId id, Moment delay, agent::WorkResult result);
  void prepare(const agent::Work& work, const agent::PrepareWork& prepare);
  void fetch(agent::WorkId id);
  void restore(agent::WorkId id, const GenerationRef& ref, double bytes);
  void snapshot(const agent::Work& work, const agent::TakeSnapshot& take);
  void copy(agent::WorkId id, const GenerationRef& ref);
  double most_now(const UnderWay& way) const;
  void arrived(agent::WorkId id, const GenerationRef& ref);
  void cancel(agent::WorkId id);
  void release(agent::WorkId id, const GenerationRef& ref);
  void pace(agent::WorkId id, std::uint64_t rate_bps);
  void drop_flows();
  bool has_flows() const;
  void measure();

  ProductionSite& site_;
  NodeNumber node_;
  SeededRng rng_;
  NodeId id_;
  Digest certificate_{};
  crypto::SigningKey verify_key_;
  crypto::BoxKey box_key_;
  NodeFacts facts_;
  Contract contract_;
  WardenSeat warden_;
  StateStore store_;

  bool is_on_ = false;
  std::uint64_t life_ = 0;
  std::uint64_t boots_ = 0;
  std::map<std::string, std::string> journal_;
  std::unique_ptr<agent::Core> core_;
  coordinator::ConnectionId connection_ = 0;
  Pulse pulse_;
  Pulse measure_;
  std::optional<Moment> sampled_at_;
  Moment beat_at_{0};                             ///< of the newest heartbeat
  std::optional<agent::NothingHappened> untold_;  ///< in its rest, that the core does not know yet
  Moment expected_until_{0};
  std::map<agent::WorkId, UnderWay> works_;
  double copied_bytes_ = 0;                  ///< by those that are over
  std::set<GuestName> watched_;              ///< they run
  std::map<GuestName, GenerationRef> made_;  ///< what snapshots are being taken of
};

}  // namespace rn::evaluate
