// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/log.h"
#include "warden/core.h"
#include "warden/profile.h"

// What a search of the machine found, against what the journal says. The machine wins about facts
// (what runs), the journal about intents (what shall run).
namespace rn::warden {

namespace {

constexpr std::int32_t kLostCode = 137;

bool is_live(const GuestRecord& guest) {
  return guest.phase == GuestPhase::kStarting || guest.phase == GuestPhase::kRunning;
}

}  // namespace

void WardenCore::on(const Reconciled& event) {
  for (const FoundDisk& disk : event.disks) take_disk(disk);
  for (const FoundContainer& container : event.containers) take_container(container);
  // settle() may make a record useless: go on by name.
  std::vector<GuestName> names;
  for (const GuestRecord& guest : journal_.guests) names.push_back(guest.guest);
  for (const GuestName& name : names) settle(*find(name), event);
  std::erase_if(journal_.guests, [&](const GuestRecord& guest) {
    const bool has_disk = std::any_of(event.disks.begin(), event.disks.end(), [&](const auto& d) {
      return d.guest == guest.guest;
    });
    const bool is_waiting = std::any_of(operations_.begin(), operations_.end(), [&](const auto& o) {
      return o.second.guest == guest.guest;
    });
    const bool needs_disk =
        guest.phase == GuestPhase::kReady || guest.phase == GuestPhase::kPreparing;
    return needs_disk && !has_disk && !is_waiting;
  });
  // A name alone proves nothing: a loaded archive may bring one. The id was verified.
  std::erase_if(journal_.images, [&](const ImageRecord& known) {
    return std::none_of(event.images.begin(), event.images.end(), [&](const ImageRecord& found) {
      return found.digest == known.digest && found.id == known.id;
    });
  });
  is_reconciled_ = true;
  is_journal_new_ = false;
  changed();
  set_gates();
  for (const GuestRecord& guest : journal_.guests) {
    if (guest.phase == GuestPhase::kRunning) effect(Watch{guest});
  }
  advance_all();
}

void WardenCore::take_disk(const FoundDisk& found) {
  if (GuestRecord* guest = find(found.guest)) {
    const bool is_being_made =
        std::any_of(operations_.begin(), operations_.end(), [&](const auto& o) {
          return o.second.kind == Kind::kMakeDisk && o.second.guest == found.guest;
        });
    if (is_being_made) return;
    guest->disk = found.disk;
    if (guest->phase == GuestPhase::kPreparing) guest->phase = GuestPhase::kReady;
    return;
  }
  GuestRecord guest;
  guest.guest = found.guest;
  guest.phase = GuestPhase::kReady;
  guest.disk = found.disk;
  guest.disk_mib = found.disk_mib;
  // Whether it ran is not known, so it must not run again under this epoch.
  guest.was_started = guest.is_adopted = true;
  journal_.guests.push_back(guest);
  log::warning("recovery.unknown_disk", {{"job", found.guest.job.str()}});
}

/// The journal was lost, and the disk with it: what runs is kept all the same.
GuestRecord* WardenCore::take_unknown(const FoundContainer& found) {
  if (!is_journal_new_ || !found.is_running || !found.has_go_ahead) return nullptr;
  if (!check_guest_name(found.guest) || journal_.guests.size() >= kMaxGuests) return nullptr;
  GuestRecord guest;
  guest.guest = found.guest;
  guest.phase = GuestPhase::kReady;
  guest.was_started = guest.is_adopted = true;
  journal_.guests.push_back(guest);
  log::warning("recovery.unknown_guest", {{"job", found.guest.job.str()}});
  return &journal_.guests.back();
}

void WardenCore::take_container(const FoundContainer& found) {
  GuestRecord* guest = find(found.guest);
  if (guest == nullptr) guest = take_unknown(found);
  const bool is_slot_taken =
      std::any_of(journal_.guests.begin(), journal_.guests.end(), [&](const GuestRecord& other) {
        return other.slot != kNoSlot && other.slot == found.slot && other.guest != found.guest;
      });
  if (guest == nullptr || is_slot_taken || found.slot >= kSlots) {
    effect(RemoveStray{found});
    return;
  }
  if (is_journal_new_ && found.is_running)
    note_trouble("the warden's journal was lost: guests that run were found by their labels");
  const bool is_ours = guest->container == found.container;
  if (guest->phase == GuestPhase::kExited || guest->phase == GuestPhase::kRemoving) {
    if (!is_ours && !guest->container.empty()) effect(RemoveStray{found});
    guest->container = found.container;
    return;
  }
  if (!is_live(*guest)) {
    // The journal was lost or is older than the container: a guest that runs by the go-ahead of
    // somebody is taken over; anything else is a half-made start.
    if (!found.has_go_ahead || !guest->was_started || !guest->container.empty()) {
      effect(RemoveStray{found});
      return;
    }
  }
  const bool is_starting_now =
      std::any_of(operations_.begin(), operations_.end(), [&](const auto& o) {
        return (o.second.kind == Kind::kStart || o.second.kind == Kind::kGo) &&
               o.second.guest == found.guest;
      });
  if (is_starting_now) return;
  if (!found.has_go_ahead) {
    effect(RemoveStray{found});
    return give_up_start(*guest);
  }
  guest->phase = GuestPhase::kRunning;
  guest->was_started = true;
  guest->slot = found.slot;
  guest->container = found.container;
  guest->pid = found.pid;
  if (guest->gpus.empty()) guest->gpus = found.gpus;
  if (guest->started_boot_ns == 0) guest->started_boot_ns = found.started_boot_ns;
  // An engine that finds a container dead after a reboot invents an exit code for it. Whether this
  // is another boot is not known without a journal: then the code that init wrote down must do.
  const bool is_invented = is_journal_new_ ? !found.has_own_end : is_restarted_;
  guest->is_vanished = !found.is_running && (is_invented || found.is_vanished);
  if (!found.is_running) return set_exited(*guest, found.exit_code, found.is_oom_killed);
  if (guest->is_condemned || is_cleared_away(*guest)) kill(*guest, {});
}

/// Covered by a reclaim that has begun to kill. One that only cuts lets its guests live.
bool WardenCore::is_cleared_away(const GuestRecord& guest) const {
  const auto& all = journal_.reclaims;
  return std::any_of(all.begin(), all.end(), [&](const ReclaimRecord& reclaim) {
    const bool is_cut_only =
        reclaim.phase == ReclaimPhase::kEvacuating && !clearings_.contains(reclaim.id);
    return is_shut(reclaim) && !is_cut_only && covers(reclaim, guest.gpus);
  });
}

void WardenCore::settle(GuestRecord& guest, const Reconciled& found) {
  const bool has_operation =
      std::any_of(operations_.begin(), operations_.end(), [&](const auto& o) {
        return o.second.guest == guest.guest;
      });
  if (has_operation) return;
  const bool has_container =
      std::any_of(found.containers.begin(), found.containers.end(), [&](const auto& c) {
        return c.guest == guest.guest;
      });
  switch (guest.phase) {
    case GuestPhase::kStarting:
      if (!has_container) give_up_start(guest);
      return;
    case GuestPhase::kRunning:
      if (has_container) return;
      guest.is_vanished = true;
      set_exited(guest, kLostCode, false);
      return;
    case GuestPhase::kRemoving:
      effect(Forget{begin(Kind::kForget, guest.guest, {}), guest});
      return;
    case GuestPhase::kReleasing:
      effect(DropDisk{begin(Kind::kDrop, guest.guest, {}), guest.guest});
      return;
    case GuestPhase::kPreparing:
    case GuestPhase::kReady:
    case GuestPhase::kExited:
      return;
  }
}

/// Every order of the owner shuts its gates first, so those that are shut although nothing here
/// says so are an order's that is not known.
bool WardenCore::is_shut_by_unknown(const SetGates& found) const {
  const bool is_node_shut = std::any_of(
      journal_.reclaims.begin(),
      journal_.reclaims.end(),
      [&](const ReclaimRecord& reclaim) { return reclaim.gpus.empty() && is_shut(reclaim); }
  );
  if (is_node_shut) return false;
  if (!found.is_node_open) return true;
  const auto& open = found.open_slots;
  return std::any_of(journal_.guests.begin(), journal_.guests.end(), [&](const GuestRecord& guest) {
    return guest.phase == GuestPhase::kRunning && !guest.is_condemned && !is_cut(guest) &&
           std::find(open.begin(), open.end(), guest.slot) == open.end();
  });
}

/// A kill journal was damaged, and with it what the owner took back by it: nothing new starts until
/// they say so, also when they had paused for a time only, and what is cut stays cut.
void WardenCore::heed_lost_orders(bool is_cut) {
  journal_.is_paused = true;
  journal_.paused_until_boot_ns = journal_.paused_until_wall_ms = 0;
  changed();
  const std::string lost =
      "the journal of your kills was damaged, so what you took back by them is not known: ";
  if (!is_cut) {
    return note_trouble(
        lost + "guests that run are kept, and new ones wait; next: reclaim-agent resume"
    );
  }
  take_for_owner(0, to_ns(now_.boot), to_ns(now_.boot));
  note_trouble(
      lost +
      "the gates were found shut and stay so, and new guests wait; next: reclaim-agent "
      "release, then reclaim-agent resume"
  );
}

void WardenCore::on(const HandJournalDamaged& event) {
  const bool is_cut = is_shut_by_unknown(event.found);
  heed_lost_orders(is_cut);
  if (is_cut) set_gates();
}

void WardenCore::note_trouble(std::string what) {
  const auto known = std::find_if(troubles_.begin(), troubles_.end(), [&](const auto& trouble) {
    return trouble.what == what;
  });
  if (known != troubles_.end()) {
    known->wall_ms = to_ms(now_.wall);  // every second, perhaps: no news
    return;
  }
  log::warning("guest.trouble", {{"what", what}});
  troubles_.push_back({to_ms(now_.wall), std::move(what)});
  if (troubles_.size() > kKeptTroubles) troubles_.erase(troubles_.begin());
  out_.is_state_changed = true;
}

/// Without a filter neither gate nor lease holds a guest's packets back. One that cannot be
/// filtered again is cut by its interface and may not live: the owner's word would not reach its
/// packets.
void WardenCore::on(const FilterLost& event) {
  const auto guest =
      std::find_if(journal_.guests.begin(), journal_.guests.end(), [&](const GuestRecord& record) {
        return record.slot != kNoSlot && record.slot == event.slot;
      });
  const bool is_known = guest != journal_.guests.end() && is_live(*guest);
  const std::string whose = event.interface + (is_known ? ", job " + guest->guest.job.str() : "");
  const std::string lost = "somebody removed the traffic filter of " + whose;
  if (event.why.empty()) return note_trouble(lost + "; it is back");
  if (!is_known) return note_trouble(lost + "; its interface is down now: " + event.why);
  if (!guest->is_condemned) {
    note_trouble(
        lost + "; it cannot be put back, so its interface is down and it is killed: " + event.why
    );
    guest->is_condemned = true;
    severed_.insert(guest->guest);
    changed();
  }
  if (!guest->container.empty()) kill(*guest, {});  // else when its start answers
}

/// It may be harmless, and it may let pass what is cut: its owner knows. Told and left alone.
void WardenCore::on(const FilterFound& event) {
  const auto guest =
      std::find_if(journal_.guests.begin(), journal_.guests.end(), [&](const GuestRecord& record) {
        return record.slot != kNoSlot && record.slot == event.slot;
      });
  const bool is_known = guest != journal_.guests.end() && is_live(*guest);
  note_trouble(
      event.what + " of somebody else stands before the traffic filter of " + event.interface +
      (is_known ? ", job " + guest->guest.job.str() : "") +
      ": it may let pass what you cut, so closed gates are no cut while the guest lives" +
      (event.remove.empty() ? "" : "; next: " + event.remove)
  );
}

void WardenCore::on(const Noticed& event) {
  note_trouble(event.what);
}

}  // namespace rn::warden
