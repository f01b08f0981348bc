// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core.h"
#include "sim/memory_store.h"
#include "sim/world.h"

namespace rn::sim {

/// The coordinator's process around its production core: commits writes with a delay, then carries
/// out the effects; may die at any of its crash points and start again from what is durable.
class CoordinatorHost {
 public:
  static constexpr auto kName = "coordinator";

  CoordinatorHost(World& world, coordinator::Config config);
  ~CoordinatorHost();

  void start();
  void crash(nanoseconds restart_after);

  /// Copies the database, as an operator does every night.
  void back_up() { backup_ = store_; }

  /// The process dies, and what starts again finds the newest backup instead of its database.
  void restore_backup(nanoseconds restart_after);
  /// It starts again, and finds that the node's owner came back so often.
  void rewrite_history(const NodeId& node, const NodeHistory& history);

  Process& process() { return process_; }

  HostClock& clock() { return clock_; }

  /// A node's WebSocket arrives (after TLS): what the network calls to accept it.
  Network::Endpoint accept(
      Network::ConnectionId connection,
      const NodeId& node,
      const Digest& public_key,
      const std::string& host
  );

  /// Sends a command as an API client would: no answer at all if the process dies first.
  void command(
      coordinator::Caller caller,
      coordinator::Command command,
      std::function<void(Result<coordinator::Answer>)> on_answer
  );

  /// A node that fetches so many bytes looks what has come: what is left, by the rate that the core
  /// tells and what the line has. The first look begins it. kUnavailable while the process is down.
  Result<double> serve(
      const NodeId& node, const std::string& host, const Digest& blob, double bytes
  );

  /// What survives the process.
  MemoryStore& store() { return store_; }

  std::map<Digest, Blob>& blobs() { return blobs_; }

  const std::map<std::pair<JobId, LeaseEpoch>, Blob>& logs() const { return logs_; }

  coordinator::Core* core() { return core_.get(); }

  const crypto::PublicKey& ticket_key() const { return keys_.ticket_key.public_key; }

  /// From now on no commit succeeds: the process ends at the first one, as its shell does.
  void fill_disk(bool is_full) { is_disk_full_ = is_full; }

  /// Called for every effect just before it leaves the process, for the checkers: with the node at
  /// the other end, and the length of the log that a LogAck is about.
  std::function<void(const coordinator::Effect&, const NodeId&, std::uint64_t log_bytes)> on_effect;
  std::function<void(const JobId&, LeaseEpoch, BlobView log)> on_log;

 private:
  /// An image on its way to a node.
  struct Served {
    Digest blob{};
    double left = 0;
    double sent = 0;
    TrueTime at{0};
    Lines::Sender sender = 0;
  };

  void feed(const coordinator::Event& event);
  void obey(coordinator::Output output);
  void begin_commit();
  void finish_commit(std::vector<coordinator::Output> batch);
  bool commit(const std::vector<coordinator::Output>& batch);
  bool carry_out(const std::vector<coordinator::Output>& batch);
  void carry_out_one(const coordinator::Effect& effect);
  void show(const coordinator::Effect& effect);
  void append_log(const coordinator::AppendLog& append);
  void check_outputs(const coordinator::CheckOutputs& check);
  void tick();
  void look_at_served();
  void forget_served(const NodeId& node);
  bool dies_at(std::string_view point);

  World& world_;
  coordinator::Config config_;
  coordinator::SiteKeys keys_;
  Process process_;
  HostClock clock_;
  MemoryStore store_;
  std::optional<MemoryStore> backup_;
  bool is_disk_full_ = false;
  std::map<Digest, Blob> blobs_;
  std::map<std::pair<JobId, LeaseEpoch>, Blob> logs_;

  // One life:
  std::unique_ptr<SeededRng> rng_;
  std::unique_ptr<coordinator::Core> core_;
  std::vector<coordinator::Output> pending_;
  bool is_committing_ = false;
  std::map<Network::ConnectionId, NodeId> connections_;
  std::map<NodeId, Served> served_;
  bool is_looking_ = false;  ///< at what is served, some time later
  std::map<coordinator::RequestId, std::function<void(Result<coordinator::Answer>)>> requests_;
  coordinator::RequestId next_request_ = 1;
};

}  // namespace rn::sim
