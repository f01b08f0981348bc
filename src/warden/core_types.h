// SPDX-License-Identifier: Apache-2.0
#pragma once

// What goes into the warden's core and what comes out of it. See core.h.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "model/warden.h"

namespace rn {

/// A guest's life as the warden drives it.
enum class GuestPhase : std::uint8_t {
  kPreparing,  ///< its disk is being made
  kReady,      ///< disk, no container (not yet, or no longer)
  kStarting,   ///< its container is being made; the command has no go-ahead yet
  kRunning,
  kExited,     ///< the container is still known to the engine
  kRemoving,   ///< the container is being forgotten
  kReleasing,  ///< the disk is being deleted
};
RN_ENUM(GuestPhase, "preparing", "ready", "starting", "running", "exited", "removing", "releasing")

}  // namespace rn

namespace rn::warden {

using warden_wire::GuestName;

inline constexpr std::uint32_t kNoSlot = 0xffffffff;
inline constexpr std::uint32_t kSlots = 256;  ///< RN_CUT_SLOTS
inline constexpr std::size_t kMaxGuests = 128;
inline constexpr std::size_t kMaxImages = 256;
inline constexpr seconds kMaxAnnounced{7 * 86400};
inline constexpr std::size_t kMaxMessageBytes = 1024;
inline constexpr std::size_t kKeptTroubles = 8;
inline constexpr std::size_t kKeptReclaims = 16;  ///< returned ones that are still reported

/// What is known of one guest. Journalled.
struct GuestRecord {
  GuestName guest;
  GuestPhase phase = GuestPhase::kPreparing;
  std::uint64_t disk_mib = 0;
  std::string disk;              ///< its mounted folder
  std::uint32_t slot = kNoSlot;  ///< of the gates; from StartGuest until RemoveGuest
  std::string container;         ///< the engine's id
  std::int32_t pid = 0;          ///< of the container's first process; this boot only
  std::int64_t started_boot_ns = 0;
  std::vector<std::uint32_t> gpus;
  bool is_adopted = false;    ///< work/ belongs to the guest
  bool is_condemned = false;  ///< told to die: never started again, killed when found
  bool was_started = false;   ///< a guest runs at most once per epoch
  std::int32_t exit_code = 0;
  bool is_oom_killed = false;
  bool is_vanished = false;  ///< nobody saw its end

  RN_FIELDS(
      GuestRecord,
      guest,
      phase,
      disk_mib,
      disk,
      slot,
      container,
      pid,
      started_boot_ns,
      gpus,
      is_adopted,
      is_condemned,
      was_started,
      exit_code,
      is_oom_killed,
      is_vanished
  )
};

struct ImageRecord {
  std::string digest;  ///< of the archive
  std::string id;      ///< the engine's

  RN_FIELDS(ImageRecord, digest, id)
};

/// All that the core must find again after a crash: the intent journal's content.
struct Journal {
  std::string boot_id;
  std::vector<GuestRecord> guests;
  std::vector<ReclaimRecord> reclaims;
  std::vector<ImageRecord> images;
  bool is_paused = false;
  std::int64_t paused_until_boot_ns = 0;            ///< 0 = until Resume; this boot only
  std::int64_t paused_until_wall_ms = 0;            ///< the same for people and after a reboot
  std::vector<warden_wire::PausedGpu> paused_gpus;  ///< beside the node; each once
  std::uint64_t emergencies_seen = 0;               ///< kill-socket records taken into `reclaims`
  std::uint64_t hand_emergencies_seen = 0;          ///< the same of `reclaim-warden kill`
  warden_wire::Announced announced;                 ///< by the agent, of the contract
  std::vector<warden_wire::AnnouncedGpu> announced_gpus;  ///< the same, of single GPUs

  RN_FIELDS(
      Journal,
      boot_id,
      guests,
      reclaims,
      images,
      is_paused,
      paused_until_boot_ns,
      paused_until_wall_ms,
      paused_gpus,
      emergencies_seen,
      hand_emergencies_seen,
      announced,
      announced_gpus
  )
};

using OpId = std::uint64_t;  ///< joins an effect with the event that answers it

/// Who asked: names a session of the server and its request number.
struct Caller {
  std::uint64_t session = 0;
  std::uint64_t number = 0;
  bool is_owner = false;
};

/// What killing and looking afterwards came to. Times are boot-time nanoseconds.
struct ClearReport {
  std::int64_t killed_ns = 0;
  std::int64_t cleared_ns = 0;  ///< meaningful when nothing remains
  std::uint32_t processes = 0;
  std::vector<std::string> remains;  ///< what was still seen; empty = cleared
};

/// A container as the engine lists it by label, with what a look at the machine adds.
struct FoundContainer {
  GuestName guest;
  std::string container;
  std::uint32_t slot = kNoSlot;
  bool is_running = false;
  std::int32_t pid = 0;
  std::int32_t exit_code = 0;
  bool is_oom_killed = false;
  std::int64_t started_boot_ns = 0;
  bool has_go_ahead = false;  ///< its command was let run; without it, it is a half-made start
  bool is_vanished = false;   ///< as in Exited
  bool has_own_end = false;   ///< its command's exit code was written down
  std::vector<std::uint32_t> gpus;
};

struct FoundDisk {
  GuestName guest;
  std::string disk;  ///< mounted again by the search
  std::uint64_t disk_mib = 0;
};

/// The gates as they shall be now; slots that are not named keep theirs.
struct SetGates {
  bool is_node_open = false;
  std::vector<std::uint32_t> open_slots;  ///< of guests that run and are not cut
};

// ---- events

struct Asked {
  Caller caller;
  warden_wire::Request request;
};

struct DiskMade {
  OpId op = 0;
  Result<std::string> folder;
};

/// Answers AdoptDisk, DropDisk, Go, Notify, Forget and Kill.
struct Finished {
  OpId op = 0;
  Status status;
};

struct StartedGuest {
  std::string container;
  std::int32_t pid = 0;
  std::int64_t started_boot_ns = 0;
};

struct Started {
  OpId op = 0;
  Result<StartedGuest> result;
};

struct Signalled {
  OpId op = 0;
  Result<std::uint32_t> count;
};

struct Imported {
  OpId op = 0;
  Result<std::string> id;
};

struct Exited {
  GuestName guest;
  std::string container;  ///< an old container's end must not end a new one
  std::int32_t exit_code = 0;
  bool is_oom_killed = false;
  bool is_vanished = false;  ///< killed from outside together with its init: no end of its own
};

/// No packet passes any more.
struct WasCut {
  ReclaimId reclaim;
  std::int64_t cut_ns = 0;
};

struct WasCleared {
  ReclaimId reclaim;
  ClearReport report;
};

/// The kill socket, or `reclaim-warden kill` without a daemon, has acted by itself; `sequence` is
/// its intent record's in its own journal.
struct EmergencyDone {
  std::uint64_t sequence = 0;
  bool is_by_hand = false;
  std::uint64_t gpu_mask = 0;  ///< 0 = the whole node
  bool is_cut_only = false;
  std::int64_t ordered_ns = 0;  ///< when the owner said it; 0 = at declared_ns
  std::int64_t declared_ns = 0;
  std::int64_t cut_ns = 0;
  ClearReport report;
};

/// The kill socket is carrying an order to clear out, which takes as long as something of a guest
/// remains. EmergencyDone follows.
struct EmergencyBegun {
  std::uint64_t gpu_mask = 0;  ///< 0 = the whole node
  std::int64_t declared_ns = 0;
};

struct EngineChanged {
  bool is_up = false;
  std::string version;
  std::string refusal = {};  ///< why it is not used although it answers; empty = it is, or is away
};

/// What a search of engine and disks found. Before it, nothing is started and the gate stays shut.
struct Reconciled {
  std::vector<FoundContainer> containers;
  std::vector<FoundDisk> disks;
  std::vector<ImageRecord> images;  ///< those of the journal that the engine still has
};

/// A guest's interface was found without our filter: somebody else removed it.
struct FilterLost {
  std::uint32_t slot = kNoSlot;
  std::string interface;
  std::string why;  ///< it could not be put back, and the interface is down; empty: it is back
};

/// Somebody else's filter stands before ours at a guest's interface.
struct FilterFound {
  std::uint32_t slot = kNoSlot;
  std::string interface;
  std::string what;
  std::string remove;  ///< the command that takes it away; empty = none is known
};

/// Something for the owner's eyes that changes no state of the core's.
struct Noticed {
  std::string what;
};

/// What `reclaim-warden kill` did while this process hung cannot be read.
struct HandJournalDamaged {
  SetGates found;  ///< the gates as they are
};

struct Tick {};

using Event = std::variant<
    Asked,
    DiskMade,
    Finished,
    Started,
    Signalled,
    Imported,
    Exited,
    WasCut,
    WasCleared,
    EmergencyDone,
    EmergencyBegun,
    EngineChanged,
    Reconciled,
    FilterLost,
    FilterFound,
    Noticed,
    HandJournalDamaged,
    Tick>;

// ---- effects

struct SendAnswer {
  Caller caller;
  warden_wire::Answer answer;
};

struct MakeDisk {
  OpId op = 0;
  GuestName guest;
  std::uint64_t disk_mib = 0;
};

struct AdoptDisk {
  OpId op = 0;
  GuestName guest;
};

struct DropDisk {
  OpId op = 0;
  GuestName guest;
};

/// Container and network, up to the go-ahead: on error nothing of it is left. The gate stays shut.
struct Start {
  OpId op = 0;
  GuestRecord record;
  warden_wire::StartGuest start;
  std::string image_id;
};

/// Opens the guest's gate and lets its command run.
struct Go {
  OpId op = 0;
  GuestRecord record;
};

/// Tells a guest to save, by a signal or, where that is set, by a file. Answered by Signalled.
struct Signal {
  OpId op = 0;
  GuestRecord record;
  SaveSignal signal = SaveSignal::kAuto;
  std::optional<warden_wire::TellGuest> file = {};
};

/// Without the engine: gate shut, then the guest's processes by cgroup, then a look.
struct Kill {
  OpId op = 0;
  GuestRecord record;
};

struct Notify {
  OpId op = 0;
  warden_wire::WriteNotice notice;
};

/// Removes the container, running or not, and frees its slot's gate.
struct Forget {
  OpId op = 0;
  GuestRecord record;
};

/// A labelled container that no record wants: removed without telling anybody.
struct RemoveStray {
  FoundContainer container;
};

struct Import {
  OpId op = 0;
  warden_wire::LoadImage image;
};

/// Cut, kill, look. Answered by WasCut and then WasCleared. With `is_whole_node` all guests there
/// are, known or not.
struct Clear {
  ReclaimId reclaim;
  bool is_whole_node = false;
  std::vector<GuestRecord> guests;
  std::vector<std::uint32_t> gpus;  ///< that must be free afterwards; empty with the whole node
};

/// A running guest was found: watch its end again.
struct Watch {
  GuestRecord record;
};

using Effect = std::variant<
    SendAnswer,
    MakeDisk,
    AdoptDisk,
    DropDisk,
    Start,
    Go,
    Signal,
    Kill,
    Notify,
    Forget,
    RemoveStray,
    Import,
    Clear,
    SetGates,
    Watch>;

/// The shell makes `journal` durable, then carries out the effects in order; the owner's Clear is
/// carried out even when the journal cannot be written.
struct Output {
  std::optional<Journal> journal;
  std::vector<Effect> effects;
  bool is_state_changed = false;  ///< push StateChanged to the agent
};

}  // namespace rn::warden
