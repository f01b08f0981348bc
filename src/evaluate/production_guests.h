// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "evaluate/production_site.h"
#include "warden/core.h"

// A node's warden around its core, and the guests that it starts and ends. Not for others.
namespace rn::evaluate {

using warden_wire::GuestName;

class WardenSeat {
 public:
  WardenSeat(ProductionSite& site, NodeNumber node);

  /// The machine has power (again): a new life, on the journal of the one before.
  void power_on(const std::string& boot_id);
  /// Nothing of this life happens any more.
  void power_off();

  // ---- the owner

  void declare(ReclaimKind kind, Moment deadline);
  /// Their guests were ended, by the kill path that asks nobody.
  void emergency();
  void release();

  // ---- the agent

  void ask(const warden_wire::NumberedRequest& request);
  std::function<void(const warden_wire::Reply&)> on_reply;
  /// A guest has written a whole save, begun then.
  std::function<void(const GuestName&, Moment began)> on_saved;

  /// The state that the guest goes on from, once it is started.
  void prepare(const GuestName& guest, double progress_s) { prepared_[guest] = progress_s; }

  /// Of the newest whole save on the guest's disk; nullopt if there is none.
  std::optional<double> saved_s(const GuestName& guest) const;

  // ---- the world

  void on_finished(RunNumber run);

 private:
  struct Guest {
    JobNumber job = 0;
    std::string container;
    std::optional<RunNumber> run;
    std::optional<double> saved_s;
    std::optional<Moment> saves_since;  ///< while it saves
  };

  void later(Moment delay, std::function<void()> action);
  void feed(const warden::Event& event);
  void obey(const warden::Output& output);
  void carry_out(const warden::Effect& effect);
  void answer_later(Moment delay, warden::Event event);
  Status go(const GuestName& guest);
  void arm_save(const GuestName& guest);
  void saved(const GuestName& guest, Moment began, double progress_s);
  std::uint32_t tell(const GuestName& guest);
  void tell_ended(JobNumber job) const;
  void kill(const GuestName& guest);
  void kill_all();
  std::uint32_t signal(const GuestName& guest);
  void told_exit(const GuestName& guest, std::int32_t exit_code, bool is_vanished);
  void clear(const warden::Clear& clear);
  void arm_timer();
  void push_state();

  ProductionSite& site_;
  NodeNumber node_;
  SeededRng rng_;
  std::uint64_t life_ = 0;
  bool is_on_ = false;
  warden::Journal journal_;
  std::optional<warden::WardenCore> core_;
  std::map<GuestName, Guest> guests_;
  std::map<GuestName, double> prepared_;
  std::optional<Agenda::Handle> timer_;
  std::optional<ReclaimKind> declared_;  ///< what ends guests now
  std::uint64_t next_container_ = 1;
  std::uint64_t emergencies_ = 0;
  std::uint64_t owner_requests_ = 0;
  std::uint64_t release_request_ = 0;
};

}  // namespace rn::evaluate
