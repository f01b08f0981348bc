// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/core.h"
#include "agent/told_reports.h"
#include "base/crypto.h"
#include "checkpoint/transfer.h"
#include "sim/coordinator_host.h"
#include "sim/machine.h"
#include "sim/warden_host.h"
#include "sim/world.h"

namespace rn::sim {

class AgentHost;

class Checkers;
class GangChecks;

/// What a simulated agent can reach: the coordinator and the other agents, by node.
struct Site {
  CoordinatorHost* coordinator = nullptr;
  std::map<NodeId, AgentHost*> agents;
  Checkers* checkers = nullptr;
  GangChecks* gangs = nullptr;
  double output_bytes = 0;  ///< that a guest brings home; 0: it takes no time
  double image_bytes = 0;   ///< that a node fetches from the coordinator; 0: it takes no time
  std::set<NodeId> liars;   ///< nodes that serve changed chunks and forge messages

  std::set<NodeId> garblers;  ///< nodes that send other chunks than they name to who keeps copies

  std::set<NodeId> hollow;  ///< nodes that sign for what they are given, and throw it away

  bool is_liar(const NodeId& node) const { return liars.contains(node); }

  bool is_garbler(const NodeId& node) const { return garblers.contains(node); }

  bool is_hollow(const NodeId& node) const { return hollow.contains(node); }
};

/// The blocking work of an agent, done with the production checkpoint code on the machine's
/// simulated disk. Answers what the core is told and how long it took.
class AgentWork;
class PeerPort;
class ProcessFs;

/// The agent's process around its production core.
class AgentHost {
 public:
  struct Identity {
    NodeId node;
    LabId lab;
    std::string machine_id;
    crypto::SigningKey verify_key;
    crypto::BoxKey box_key;
    Digest certificate{};  ///< stands for the certificate's public key
  };

  AgentHost(
      World& world,
      Site& site,
      Machine& machine,
      WardenHost& warden,
      Identity identity,
      NodeFacts facts,
      Contract contract
  );
  ~AgentHost();

  void start();
  void crash(nanoseconds restart_after);

  void stop_for_good() { is_wanted_ = false; }

  Process& process() { return process_; }

  const Identity& identity() const { return identity_; }

  Machine& machine() { return machine_; }

  const Contract& contract() const { return contract_; }

  // What one life of the process has; only while process().is_up().
  AgentWork& work();
  PeerPort& peers();
  ProcessFs& fs();

  agent::Core* core() { return core_.get(); }

  /// The serving end of a connection that another agent's certificate opened. `on_fetch` as in
  /// PeerServerDeps.
  std::shared_ptr<checkpoint::PeerEnd> serve(
      const AgentHost& client, std::function<void(const Ticket&)> on_fetch
  );
  /// What is sent to peers, as the daemon looks at it several times a second.
  void measure();
  /// A liar serves changed bytes; a garbler sends changed chunks where it copies to.
  void spoil(checkpoint::PeerFrame& frame, bool is_served);
  /// Says to the coordinator, on the agent's own connection, what the core did not say. False if
  /// there is no connection.
  bool forge(const wire::Message& message);
  /// True if the process has died at this crash point: nothing of its life may be touched.
  bool dies_at(std::string_view point);
  /// The same for the crash points inside its disk's calls, looked at after code that used it.
  bool dies_if_disk_did();

  World& world() { return world_; }

  Site& site() { return site_; }

  /// Its store has all of the generation, every byte as its hash says. Only looks, and condemns
  /// nothing; false while the process is down.
  bool has_whole(const JobId& job, const Digest& manifest);
  /// One byte of what it keeps of the generation, in a chunk or in the manifest, is another one
  /// now, on the medium and in the cache. False if there is no such byte.
  bool rot(const JobId& job, const Digest& manifest, Rng& rng);

  void owner_leaves();
  /// The owner puts another contract in force: on the disk, and told if the agent is up.
  void owner_writes(Contract contract);
  /// From the next sample on the machine is seen with a process of the owner's on that GPU, or
  /// without one.
  void owner_computes(std::uint32_t gpu, bool is_computing);

  void owner_rests() { owners_gpus_.clear(); }

  /// The owner at the machine accepts or rejects the contract that waits there. False: none does.
  bool owner_settles(bool is_accepted);

  /// Called when it carries out an order of the owner's to take the machine back now.
  std::function<void()> on_kill;

 private:
  /// Everything that ends with the process. Kept until the stack is unwound.
  struct Life;

  void feed(const agent::Event& event);
  void obey(agent::Output output);
  void commit();
  void finish(agent::Output output);
  bool has_room(const agent::Output& output);
  void carry_out(const agent::Effect& effect);
  void connect();
  void connect_later(nanoseconds delay);
  void attach_to_warden();
  void start_work(const agent::Work& work);
  void finish_work(agent::WorkId id, agent::WorkResult result);
  void watch_file(const GuestName& guest, const std::string& path, bool is_rename);
  void kill_now(const agent::KillNow& kill);
  void use_contract(const agent::UseContract& use);
  void tick();
  void sample();
  nanoseconds some_time(std::int64_t low_ms, std::uint64_t span_ms);

  World& world_;
  Site& site_;
  Machine& machine_;
  WardenHost& warden_;
  Identity identity_;
  NodeFacts facts_;
  Contract contract_;
  std::set<std::uint32_t> owners_gpus_;  ///< on which the owner computes
  Process process_;
  std::map<std::string, std::string> journal_;  ///< durable
  bool is_wanted_ = true;

  std::unique_ptr<SeededRng> rng_;
  std::unique_ptr<agent::Core> core_;
  std::shared_ptr<Life> life_;
  std::vector<agent::Output> waiting_;
  bool is_committing_ = false;
  bool is_short_ = false;  ///< its journal waits for room
  agent::ToldReports told_;
  Network::ConnectionId connection_ = 0;
  bool is_open_ = false;
  bool is_final_ = false;
  std::uint64_t warden_session_ = 0;
  std::set<agent::WorkId> cancelled_;
  std::set<GuestName> watched_;
  bool were_fetches_told_ = false;  ///< the core knows of some
};

}  // namespace rn::sim
