// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/warden.h"
#include "sim/machine.h"
#include "sim/world.h"
#include "warden/core_types.h"

namespace rn::sim {

class WardenHost;

/// I9 as the owner of each machine sees it: from the orders that were given and answered and from
/// what runs on the machine, not from the warden's own opinion.
///
///   - After an emergency nothing runs, and nothing starts, until the owner gives the machine back.
///   - After a declared reclaim nothing new starts; a little after its deadline nothing runs (while
///     the warden is dead or stopped it cannot: the dead man's switch that then cuts is no part of
///     the simulation).
///   - A little after the end of a lending window nothing runs, also when the agent has died or was
///     stopped since it told the warden.
///   - What was created before the owner's word and never ran is gone by then, too.
///   - Who still computes when the deadline comes was told before, where agent and warden were
///   there
///     to do it.
///   - "Cleared" is said only of a machine on which nothing runs, and after the cut.
///   - Of a GPU that is taken all of this holds for the guests that have it. The others are cleared
///     by no order: the machine is only when its owner, or its contract, wants all of it.
///   - What was ordered from afar is begun while it counts, and not later (ADR 0017).
class OwnerWatch {
 public:
  explicit OwnerWatch(World& world) : world_(world) {}

  /// A machine, or one of its GPUs.
  struct Place {
    std::string node;
    std::optional<std::uint32_t> gpu;

    friend auto operator<=>(const Place&, const Place&) = default;
  };

  /// The owner's word, whether the warden hears it or not.
  void on_wanted(const Place& place) { wanted_[place] = world_.now(); }

  /// The same by the coordinator, of the whole machine: it counts for some seconds.
  void on_ordered(const std::string& node);
  /// An agent takes its machine back at once, by such an order.
  void on_carried_out(const std::string& node);

  /// It is out of the site for good: from now on all of it may be cleared at any time.
  void on_leave(const std::string& node) { with_an_end_.insert({node, {}}); }

  void on_emergency(const Place& place);
  /// The warden has accepted a reclaim: in `left` nothing may run there any more.
  void on_accepted(const Place& place, nanoseconds left);
  /// The contract lends the machine, or the GPU, until `end` and again from `until`. What counts is
  /// what the warden holds of it on its disk when the end comes: an agent that was dead all the
  /// time could not tell it.
  void on_window(const Place& place, TrueTime end, TrueTime until);
  /// The owner asks for the release of the machine with all its GPUs, or of one of them, of a
  /// warden that may hear it or die before: it is the owner's until the warden has written down
  /// that all is returned.
  void on_release(const Place& place);
  /// The machine's calendar is another one now: its windows end by its own wall clock.
  void on_clock_jump(const std::string& node);

  void on_journal(Machine& machine, const warden::Journal& journal);
  /// The warden orders so, and its engine has not done it yet.
  void on_clear(Machine& machine, const warden::Clear& order);
  void on_create(const Machine& machine, const Machine::Container& container);
  /// `warden_alive`, `agent_alive`: for how long they have been up and not stopped.
  void on_step(
      const Machine& machine,
      const Machine::Container& container,
      nanoseconds warden_alive,
      nanoseconds agent_alive
  );

  /// From time to time: of what the owner has taken nothing is left, running or not yet.
  void check_taken(const Machine& machine, nanoseconds warden_alive);

  std::uint64_t checks() const { return checks_; }

  /// Nothing may start on the whole machine now.
  bool is_taken(const std::string& node) const { return taken_.contains({node, {}}); }

 private:
  struct Taking {
    TrueTime accepted{0};
    TrueTime deadline{0};
    bool is_at_once = false;
    bool is_release_asked = false;
    TrueTime released{0};  ///< when that was asked
  };

  struct Window {
    TrueTime end{0};
    TrueTime until{0};
    bool is_told = false;
  };

  /// Of the machine, and of the guest's GPUs.
  std::vector<const Taking*> takings_of(const Machine& machine, const Machine::Container& container)
      const;
  void note_told(Machine& machine, const warden::Journal& journal);
  void check_cleared(const Machine& machine, const ReclaimRecord& record);
  void check_told(
      const Machine& machine,
      const Machine::Container& container,
      const Taking& taking,
      nanoseconds both_alive
  );
  void violate(const Machine& machine, const Machine::Container& container, const char* what);

  World& world_;
  std::map<Place, Taking> taken_;
  std::map<Place, TrueTime> wanted_;         ///< when last; what is not taken may be in it, too
  std::map<std::string, TrueTime> ordered_;  ///< by machine, when last
  std::set<Place> with_an_end_;              ///< which the contract takes back by itself
  std::map<Place, Window> windows_;
  std::uint64_t checks_ = 0;
};

}  // namespace rn::sim
