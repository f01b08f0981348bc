// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/core_types.h"
#include "evaluate/world.h"
#include "model/fields.h"
#include "model/job.h"

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

/// What machines and the shells around the cores take for what the cores order. Measured
/// (docs/results.md), or fitted to a machine (docs/evaluation.md).
struct MachineTimes {
  double making_rate = 540e6;     ///< bytes/s: read, cut, hashed, compressed, encrypted
  double making_s = 0;            ///< beside that
  double sending_rate = 1e9;      ///< bytes/s of one copy
  double restoring_rate = 500e6;  ///< bytes/s: decrypted and written
  double copy_begins_s = 0.02;    ///< connection, ticket, what is there already
  double fetch_begins_s = 0;      ///< the same of a state that is fetched to go on with
  double receipt_s = 0.05;
  double preparing_s = 1;
  double container_s = 0.3;
  /// What waits in the queue of a line that is full, as who sends over it sees it; 0: nothing is
  /// seen of it, and nobody makes way.
  double queue_s = 0;
  double message_s = 0.001;  ///< from one process to another, with what is made durable before

  RN_FIELDS(
      MachineTimes,
      making_rate,
      making_s,
      sending_rate,
      restoring_rate,
      copy_begins_s,
      fetch_begins_s,
      receipt_s,
      preparing_s,
      container_s,
      queue_s,
      message_s
  )
};

/// Guests that save by themselves, as often as they like; without them all save when they are told,
/// and go on.
class OwnGuests {
 public:
  struct Save {
    Moment at{0};           ///< when it is whole
    Moment began{0};        ///< when the guest began to write it
    double progress_s = 0;  ///< what it holds
  };

  virtual ~OwnGuests() = default;
  virtual JobSpec spec(JobNumber job) const = 0;
  /// The job computes from now on.
  virtual void began(JobNumber job, NodeNumber node, double progress_s) = 0;
  /// The next one of its own that is not before `now`; nullopt if there is none.
  virtual std::optional<Save> next_save(JobNumber job, Moment now) = 0;
  /// The one that it makes because of a signal at `now`, after which it leaves; nullopt: it hears
  /// no signal.
  virtual std::optional<Save> told(JobNumber job, Moment now) = 0;
};

/// What a part of the product has done, for who looks at single migrations.
struct Happening {
  enum class What : std::uint8_t { kMade, kCopied, kDurable, kBegan, kEnded };

  What what = What::kMade;
  Moment at{0};
  JobNumber job = 0;
  NodeNumber node = 0;  ///< where it was made, from where it was copied, where it began or ended
  NodeNumber peer = 0;  ///< of a copy: to where
  std::uint32_t generation = 0;  ///< of a begin: the one from which it goes on; 0 = from nothing
  double bytes = 0;              ///< of a generation: new ones; of a copy: sent
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
    MachineTimes machine = {};
    OwnGuests* guests = nullptr;  ///< borrowed
    std::function<void(const Happening&)> on_happened = {};
    /// Where the job goes on next and who is to hold what it saves, as somebody else decided it;
    /// nullopt: as the product decides. Empty functions: always so.
    std::function<std::optional<NodeNumber>(JobNumber)> given_destination = {};
    std::function<std::optional<NodeNumber>(JobNumber)> given_holder = {};
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

  /// Bytes that copies of this node's guests have sent so far.
  double copied_from(NodeNumber node) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rn::evaluate
