// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "sim/machine.h"
#include "sim/world.h"
#include "warden/core.h"

namespace rn::sim {

/// The warden's process around its production core, on a simulated machine.
class WardenHost {
 public:
  WardenHost(World& world, Machine& machine);
  ~WardenHost();

  void start();
  void crash(nanoseconds restart_after);
  void lose_journal();

  Process& process() { return process_; }

  /// The agent's socket. `on_reply` is called for answers and pushed states; the session ends with
  /// either process.
  std::uint64_t open_session(
      std::function<void(warden_wire::Reply)> on_reply, std::function<void()> on_close
  );
  void ask(std::uint64_t session, const warden_wire::NumberedRequest& request);
  void close_session(std::uint64_t session);

  using OwnerAnswer = std::function<void(const warden_wire::Answer&)>;

  /// The owner at the keyboard. Works only while the process is up (no answer if it dies first);
  /// the emergency works always.
  void owner_asks(const warden_wire::Request& request, OwnerAnswer on_answer = {});
  /// The kill socket, or the command by hand when the process is dead or stopped: cut and clear at
  /// once, the whole node or one GPU.
  void emergency(std::optional<std::uint32_t> gpu = {});

  /// What the engine is asked for within this time is done at once, and it says so at the end of
  /// it.
  void slow_engine(nanoseconds for_so_long);

  const warden::WardenCore* core() const { return core_.get(); }

  /// Called when the core orders a clearing, with the time that was left to the reclaim's deadline.
  std::function<void(const warden::Clear&, nanoseconds left)> on_clear;

  /// Called when a journal has become durable.
  std::function<void(const warden::Journal&)> on_journal;

  /// By the warden's own records: an emergency or a cleared reclaim of the whole node, or of that
  /// GPU, is open.
  bool is_taken(std::optional<std::uint32_t> gpu = {}) const;

 private:
  void feed(const warden::Event& event);
  void obey(warden::Output output);
  void finish(warden::Output output);
  void carry_out(const warden::Effect& effect);
  std::uint32_t signalled(const warden::Signal& signal);
  void claim(std::uint64_t session, std::uint64_t number, const warden_wire::SetTransfers& wanted);
  void clear(const warden::Clear& clear);
  void start_guest(const warden::Start& start);
  void make_disk(const warden::MakeDisk& make);
  void reconcile();
  void arm_timer();
  void report_emergencies();
  bool dies_at(std::string_view point);
  warden_wire::WardenState state() const;
  void push_state();
  void answer_later(nanoseconds delay, warden::Event event);
  nanoseconds engine_takes(nanoseconds usually) const;

  World& world_;
  Machine& machine_;
  Process process_;
  warden::Journal journal_;  ///< durable
  nanoseconds search_takes_ = milliseconds(60);
  TrueTime engine_slow_until_{0};

  std::unique_ptr<SeededRng> rng_;
  std::unique_ptr<warden::WardenCore> core_;
  std::vector<warden::Output> waiting_;
  bool is_committing_ = false;
  bool is_journal_lost_ = false;  ///< a write failed in this life: only what frees the machine goes

  struct Session {
    std::function<void(warden_wire::Reply)> on_reply;
    std::function<void()> on_close;
  };

  std::map<std::uint64_t, Session> sessions_;
  std::uint64_t next_session_ = 1;
  std::uint64_t owner_requests_ = 0;
  std::map<std::uint64_t, OwnerAnswer> owner_waits_;
};

}  // namespace rn::sim
