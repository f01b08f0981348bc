// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "warden/core_types.h"

namespace rn::warden {

struct CoreConfig {
  std::string boot_id;
  bool is_journal_damaged = false;  ///< it was put aside, and the one given is empty
  bool is_journal_lost = false;     ///< it was removed; the one given is the copy of owners_part()
  bool is_kill_journal_damaged = false;      ///< the kill socket's: it will begin anew
  bool is_hand_journal_damaged = false;      ///< the same of `reclaim-warden kill`
  SetGates found;                            ///< the gates as they were before this start
  nanoseconds retry_clear_min = seconds(2);  ///< of a wedged reclaim, doubled up to the maximum
  nanoseconds retry_clear_max = seconds(60);
  nanoseconds clear_limit = seconds(30);  ///< a Clear without answer for so long is repeated
};

/// The warden's decisions: guests from disk to removal, and reclaims from declaration to return.
/// A state machine without I/O: every event is answered by an Output at once, and any event may
/// come again or late. Owns the deadlines: at a deadline it cuts and clears without asking.
///
/// One thread. Time comes with the events and must not go back.
class WardenCore {
 public:
  /// `journal` is the last one made durable, empty on a new node. `rng` is borrowed.
  WardenCore(CoreConfig config, Journal journal, Rng& rng);

  /// To be carried out before anything is asked: the gates are shut, and what open reclaims of the
  /// journal had begun is done again.
  Output start(Now now);
  Output handle(const Event& event, Now now);

  /// The instant of the next Tick that has something to do; none = no timer.
  std::optional<Instant> wake_at() const;
  /// The answer to Query, except `gpus`, which the shell's telemetry fills in.
  warden_wire::WardenState state() const;

  const Journal& journal() const { return journal_; }

  bool is_reconciled() const { return is_reconciled_; }

  /// When the owner gave the whole node to guests again, the last time since the start.
  Instant released_at() const { return released_at_; }

  /// Guests that were let start and have not been seen to end: those that have a slot.
  std::vector<GuestRecord> live_guests() const;

 private:
  enum class Kind : std::uint8_t {
    kMakeDisk,
    kAdopt,
    kDrop,
    kStart,
    kGo,
    kSignal,
    kKill,
    kNotify,
    kForget,
    kImport
  };

  /// An effect that has not been answered yet.
  struct Operation {
    Kind kind = Kind::kMakeDisk;
    GuestName guest;
    std::string digest;           ///< of kImport
    std::vector<Caller> callers;  ///< answered when it ends
  };

  struct Clearing {
    bool is_running = false;
    Instant repeat_at;    ///< when an unanswered or failed Clear is tried again
    nanoseconds pause{};  ///< the last wait after a failure
  };

  void on(const Asked& event);
  void on(const DiskMade& event);
  void on(const Finished& event);
  void on(const Started& event);
  void on(const Signalled& event);
  void on(const Imported& event);
  void on(const Exited& event);
  void on(const WasCut& event);
  void on(const WasCleared& event);
  void on(const EmergencyDone& event);
  void on(const EmergencyBegun& event);
  void on(const EngineChanged& event);
  void on(const Reconciled& event);
  void on(const FilterLost& event);
  void on(const FilterFound& event);
  void on(const Noticed& event);
  void on(const HandJournalDamaged& event);
  void on(const Tick& event);

  void ask(const Caller& caller, const warden_wire::PrepareDisk& request);
  void ask(const Caller& caller, const warden_wire::AdoptDisk& request);
  void ask(const Caller& caller, const warden_wire::ReleaseDisk& request);
  void ask(const Caller& caller, const warden_wire::StartGuest& request);
  void ask(const Caller& caller, const warden_wire::SignalGuest& request);
  void ask(const Caller& caller, const warden_wire::KillGuest& request);
  void ask(const Caller& caller, const warden_wire::WriteNotice& request);
  void ask(const Caller& caller, const warden_wire::RemoveGuest& request);
  void ask(const Caller& caller, const warden_wire::LoadImage& request);
  void ask(const Caller& caller, const warden_wire::Query& request);
  void ask(const Caller& caller, const warden_wire::EvacuationDone& request);
  void ask(const Caller& caller, const warden_wire::DeclareReclaim& request);
  void ask(const Caller& caller, const warden_wire::Release& request);
  void ask(const Caller& caller, const warden_wire::Pause& request);
  void pause_gpus(const warden_wire::Pause& request);
  void ask(const Caller& caller, const warden_wire::Resume& request);
  void ask(const Caller& caller, const warden_wire::Announce& request);
  void ask(const Caller& caller, const warden_wire::AnnounceGpu& request);
  void ask(const Caller& caller, const warden_wire::SetTransfers& request);
  void ask(const Caller& caller, const warden_wire::TellGuest& request);

  // Guests: core_guests.cc
  GuestRecord* find(const GuestName& guest);
  Status unknown(const GuestName& guest) const;
  Status gone() const;
  Status may_take_guests(const std::vector<std::uint32_t>& gpus) const;
  Status may_start(const warden_wire::StartGuest& request, const GuestRecord* guest) const;
  std::optional<std::uint32_t> free_slot() const;
  const ImageRecord* image(const std::string& digest) const;
  bool join(const Caller& caller, Kind kind, const GuestName& guest);
  OpId begin(Kind kind, const GuestName& guest, std::vector<Caller> callers);
  std::optional<Operation> end(OpId op);
  void kill(GuestRecord& guest, std::vector<Caller> callers);
  void finish_start(const Operation& operation, const Status& status);
  void give_up_start(GuestRecord& guest);
  void set_exited(GuestRecord& guest, std::int32_t exit_code, bool is_oom_killed);
  void note_trouble(std::string what);
  void finish_kill(const Operation& operation, const Status& status);

  bool may_be_unknown() const { return is_journal_new_ && !is_reconciled_; }

  GuestRecord* take_unknown(const FoundContainer& found);
  void take_container(const FoundContainer& found);
  void take_disk(const FoundDisk& found);
  void settle(GuestRecord& guest, const Reconciled& found);
  bool is_cleared_away(const GuestRecord& guest) const;
  bool is_shut_by_unknown(const SetGates& found) const;
  void heed_lost_orders(bool is_cut);

  // Reclaims: core_reclaims.cc
  ReclaimRecord* find(const ReclaimId& id);
  /// The open reclaim that already says all that an order for these GPUs (none = the node) by this
  /// deadline would.
  ReclaimRecord* open_reclaim_of(const std::vector<std::uint32_t>& gpus, std::int64_t deadline_ns);
  ReclaimRecord& declare(ReclaimKind kind, std::vector<std::uint32_t> gpus, Instant deadline);
  bool is_shut(const ReclaimRecord& reclaim) const;
  bool is_cut(const GuestRecord& guest) const;
  bool is_evacuated(const ReclaimRecord& reclaim) const;
  void move_to(ReclaimRecord& reclaim, ReclaimPhase phase);
  void clear(ReclaimRecord& reclaim);
  void advance(ReclaimRecord& reclaim);
  void look_again();
  void advance_all();
  void finish_clear(ReclaimRecord& reclaim, const ClearReport& report);
  ReclaimRecord& take_for_owner(
      std::uint64_t gpu_mask, std::int64_t declared_ns, std::int64_t cut_ns
  );
  void condemn_at_once(ReclaimRecord& reclaim, std::int64_t declared_ns);
  void give_back(ReclaimRecord& reclaim);
  void give_back_if_clean(const Caller& caller, ReclaimRecord& reclaim);
  void set_gates();
  void drop_old_reclaims();

  // The contract's own reclaims: core_announced.cc
  void withdraw_announced(const Caller& caller);
  bool is_due() const;
  void fall_due();
  bool is_gpu_due(const warden_wire::AnnouncedGpu& ahead) const;
  void gpus_fall_due();
  void keep_ahead(const warden_wire::AnnounceGpu& request);
  bool is_taken_by(std::uint32_t gpu, std::int64_t deadline_ns) const;
  void withdraw_gpu(const Caller& caller, std::uint32_t gpu);
  void hand_to_owner(const ReclaimRecord& reclaim);

  // core.cc
  void answer(const std::vector<Caller>& callers, const Status& status);
  void answer(const Caller& caller, const Status& status);
  void answer(const Caller& caller, warden_wire::Answer reply);

  void effect(Effect effect) { out_.effects.push_back(std::move(effect)); }

  void changed();  ///< the journal and what the agent sees are no longer what they were
  Output take();

  CoreConfig config_;
  Journal journal_;
  Rng& rng_;
  bool is_reconciled_ = false;
  Instant released_at_{};
  Instant emergency_until_{};  ///< the kill socket's order is being carried out, or is given up
  bool is_engine_up_ = false;
  /// Nothing is remembered: a new node, or a journal that was lost while guests ran.
  bool is_journal_new_ = false;
  bool is_restarted_ = false;  ///< the journal is of an earlier boot
  std::string engine_version_;
  std::string engine_refusal_;
  OpId next_op_ = 1;
  std::map<OpId, Operation> operations_;
  std::map<ReclaimId, Clearing> clearings_;
  std::map<ReclaimId, std::vector<GuestName>> evacuated_;
  std::map<GuestName, std::vector<Caller>> kills_waiting_;  ///< for a start that is on its way
  std::set<GuestName> severed_;  ///< killed because nothing could cut them any more
  std::vector<warden_wire::Trouble> troubles_;

  Now now_{};
  Output out_;
  bool is_changed_ = false;
};

/// True if the reclaim takes this guest's place away. Pure.
bool covers(const ReclaimRecord& reclaim, const std::vector<std::uint32_t>& guest_gpus);
/// True from the declaration until the owner's Release.
bool is_open(const ReclaimRecord& reclaim);
/// The refusal of what cannot be given back now.
Status being_cleared();

}  // namespace rn::warden
