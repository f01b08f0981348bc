// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "traffic/cut_switch.h"
#include "warden/gpu_processes.h"
#include "warden/verify.h"

/// The owner's way to have the machine back: intent journaled → gates closed → cgroup.kill → empty
/// → verified.
///
/// It needs no agent, coordinator, network or container engine (all may hang), waits for nothing
/// without a deadline, and allocates nothing once it is open: descriptors, buffers and the guests'
/// places are made in advance. A failing step is reported and the next one goes on.
///
///   auto path = KillPath::open({.journal = ..., .bpffs = ..., .cgroup_parent = "reclaim-lab-a"},
///   clock, gpus); path->guest_started(slot, {.cgroup = "reclaim-lab-a/" + id, .ifindex = ...});
///   const KillReport& report = path->clear({.scope = KillScope::node()});
namespace rn::warden {

struct KillPathConfig {
  std::string journal;  ///< file of kill_journal.h; its folder must exist
  std::string bpffs;    ///< folder in which GuestCut pinned its maps
  std::string cgroup_root = "/sys/fs/cgroup";
  std::string cgroup_parent;    ///< relative, e.g. "reclaim-lab-a": all guests live below it
  std::string attempts_folder;  ///< every mount at or below it is a guest's; empty: no such look
  std::uint32_t uid_first = 0;  ///< the guests' uids, if no other process of the machine has them
  std::uint32_t uid_count = 0;  ///< 0: no such look
  /// How long a hanging disk may hold an order up. Then it goes on and the report says is_journaled
  /// = false.
  milliseconds journal_limit{20};
  /// Gates and cgroup.kill beside the journal's fdatasync, which is awaited before the order
  /// returns (ADR 0004). A crash in between leaves neither record nor answer, as if the order had
  /// never been read. False: the disk first.
  bool cuts_before_journaled = true;
  /// For the tool that is run by hand with the warden dead: what cannot be opened is left out and
  /// named by missing().
  bool is_emergency = false;
};

/// Where a guest is, for killing it and for looking whether it has gone.
struct GuestPlace {
  std::string cgroup;         ///< relative, below the parent
  std::string folder;         ///< its attempt's folder; empty: none
  std::string netns;          ///< path of its network namespace; empty: none
  std::uint32_t ifindex = 0;  ///< of its host-side interface; 0: none
  pid_t netns_pid = 0;        ///< whose `netns` is and ends with; 0: nobody's
};

struct KillScope {
  bool is_node = true;
  std::bitset<RN_CUT_SLOTS> slots;  ///< when not the whole node
  std::uint64_t gpus = 0;           ///< for which they are meant, bit by index; for the journal

  static KillScope node() { return {}; }

  static KillScope guest(traffic::Slot slot) {
    KillScope scope{false, {}, 0};
    scope.slots.set(slot);
    return scope;
  }
};

struct KillOrder {
  KillScope scope;
  Instant declared{};          ///< when the owner's command was read; epoch (0) = now
  milliseconds limit{10'000};  ///< for everything after the cut
};

/// Times are boot-time; epoch (0) = not reached.
struct KillReport {
  Instant declared;
  Instant journaled;
  Instant cut;      ///< the gates' writes returned
  Instant killed;   ///< no guest process in any cgroup of the scope
  Instant cleared;  ///< every look came out clean
  bool is_journaled = false;
  bool is_passed_by = false;    ///< of cut(): something stands before the gates (filters_before)
  int cut_error = 0;            ///< errno of the gates' write; 0 = cut
  std::uint32_t processes = 0;  ///< seen before the kill
  Remains remains;              ///< what the last look saw

  bool is_cut() const { return cut != Instant{} && !is_passed_by; }

  bool is_killed() const { return killed != Instant{}; }

  /// Otherwise the owner must be told, and the GPU is wedged.
  bool is_cleared() const { return cleared != Instant{}; }
};

class KillPath {
 public:
  /// Makes the parent cgroup, opens everything. `clock` and `gpus` (may be null: no GPU look)
  /// outlive the object. kUnavailable, naming it, when gates, cgroups or journal cannot be opened
  /// (never with is_emergency); kInvalid for a cgroup_parent that is no relative path.
  static Result<std::unique_ptr<KillPath>> open(
      const KillPathConfig& config, const Clock& clock, GpuProcesses* gpus
  );
  ~KillPath();
  KillPath(const KillPath&) = delete;
  KillPath& operator=(const KillPath&) = delete;

  /// Registers a guest before it starts, replacing what the slot had. kInvalid: slot, cgroup not
  /// below the parent, or a path beyond 255 bytes.
  Status guest_started(traffic::Slot slot, const GuestPlace& place);
  void guest_ended(traffic::Slot slot);

  /// Slots whose packets something sees before the gates do, as it was found last: while their
  /// guests live, closed gates are no cut. The look is another's, since it may have to wait.
  void note_filters_before(const std::bitset<RN_CUT_SLOTS>& slots);

  /// One call at a time; the reference is valid until the next. None of them allocates, clear()
  /// with GPUs excepted.
  ///
  /// cut: closes the gates, and journals the intent.
  const KillReport& cut(const KillOrder& order);
  /// kill: cut, then SIGKILL to everything, engine or not, until no process is left or the limit
  /// has passed.
  const KillReport& kill(const KillOrder& order);
  /// clear: kill, then detaches the guests' mounts, deletes their interfaces, and looks at
  /// everything. Idempotent.
  const KillReport& clear(const KillOrder& order);
  /// Kills what has come to life since the whole node was cleared: the engine may have been
  /// starting a container just then. False, and nothing is done, once the node's gate is open
  /// again.
  bool kill_latecomers();
  /// Only looks, at the whole node or some guests; changes nothing.
  const Remains& look(const KillScope& scope, milliseconds limit);

  const std::vector<std::string>& missing() const;

 private:
  struct State;
  explicit KillPath(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace rn::warden
