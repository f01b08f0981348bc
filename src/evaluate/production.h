// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "coordinator/core_types.h"
#include "evaluate/world.h"

namespace rn::evaluate {

/// How often the daemons' cores are looked into while nothing happens.
struct Cadence {
  bool is_ticking =
      false;  ///< every tick of the daemons; else ticks become rarer until something happens
  std::uint32_t heartbeat_ms = 5000;
  std::uint32_t lost_after = 3;
  Moment tick = milliseconds(250);  ///< the shortest
  Moment idle_tick =
      milliseconds(250);  ///< the longest, of nodes without guests and of the coordinator
  Moment guests_tick = milliseconds(250);      ///< of nodes with guests
  Moment evacuation_tick = milliseconds(250);  ///< of nodes that are being taken back
  Moment sample = seconds(5);                  ///< between measurements of the machine
  Moment measure = milliseconds(250);          ///< between looks at copies under way
  /// Also of nodes that nobody takes back. Else these plan their copies alone, as they do while the
  /// coordinator is away (ADR 0008).
  bool measures_always = true;
  /// Agents on which nothing happens are not looked into (agent::Core::rests). It comes to exactly
  /// the same.
  bool lets_rest = false;

  /// As the daemons run.
  static Cadence daemons();
  /// For eight weeks: heartbeats a minute apart, ticks as rare as nothing depends on them. A lost
  /// node is found after three and a half minutes instead of 18 s.
  static Cadence skipping();
};

/// The product: one coordinator core, and an agent core and a warden core for each node, as the
/// daemons run them, with nothing but their shells replaced (ADR 0014). Ablations change the cores'
/// own configuration and nothing else.
class Production final : public Policy {
 public:
  struct Options {
    Cadence cadence = Cadence::skipping();
    std::uint64_t seed = 1;
    bool migrates_back = true;
    bool copies_ahead = true;  ///< pre-copies to where a job would go next
    bool knows_topology = true;
    coordinator::Study study = {};     ///< also the rule of the agents' rates
    bool plans_saves_together = true;  ///< agent::CoreConfig
    std::string name = "reclaimnet";
    /// Hears the coordinator's history while it is written; none: nobody does.
    std::function<void(const coordinator::EventRow&)> on_event = {};
  };

  /// What the cores said and did, beside the figures of the world.
  struct Counts {
    coordinator::Metrics metrics;
    std::uint64_t coordinator_events = 0;
    std::uint64_t agent_events = 0;
    std::uint64_t warden_events = 0;
    std::uint64_t generations = 0;
    std::uint64_t copies = 0;
    double copied_bytes = 0;
    double restored_bytes = 0;
  };

  explicit Production(Options options);
  ~Production() override;

  std::string name() const override;
  void begin(World& world) override;
  void on_submit(JobNumber job) override;
  void on_lent(NodeNumber node) override;
  void on_declared(NodeNumber node, ReclaimKind kind, Moment deadline) override;
  void on_taken(NodeNumber node, ReclaimKind kind) override;
  void on_gone(NodeNumber node) override;
  void on_finished(RunNumber run) override;

  Counts counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rn::evaluate
