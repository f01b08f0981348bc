// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "io/precedence.h"
#include "traffic/guest_cut.h"
#include "warden/cgroup_kill.h"
#include "warden/core_types.h"
#include "warden/data_mounts.h"
#include "warden/disk.h"
#include "warden/engine.h"
#include "warden/gpu_processes.h"
#include "warden/gpu_scrub.h"
#include "warden/guest_net.h"
#include "warden/kill_path.h"
#include "warden/private_engine.h"
#include "warden/profile.h"
#include "warden/slot_gpus.h"
#include "warden/transfer_bounds.h"

namespace rn::warden {

struct MachineConfig {
  std::string lab;
  std::string state;                 ///< STATE/warden
  std::string run;                   ///< RUN
  std::string agent_state;           ///< archives of images must lie in it
  std::string self;                  ///< this program
  std::string init;                  ///< the built reclaim-init; copied into `state`
  std::string engine = "private";    ///< or the socket of an engine that is there
  std::uint32_t first_guest_id = 0;  ///< of a private engine's; 0: as the lab's name suggests
  std::uint32_t agent_uid = 0;
  std::uint32_t agent_gid = 0;
  std::uint64_t reserve_mib = 2048;
  GpuAccess gpu_access = GpuAccess::kStatic;
  GpuScrub gpu_scrub = GpuScrub::kOff;
  std::string scrub;  ///< the built reclaim-scrub; needed where memory is overwritten
  std::string first_address = "100.64.0.0";
  std::uint64_t guest_uplink_bps = 0;
  std::uint64_t granted_bps = 0;                 ///< of all guests together
  std::optional<TransfersGrant> transfers;       ///< none: the agent's transfers are not bounded
  std::map<std::string, std::string> data_sets;  ///< name: the owner's folder
};

/// What open() of a DataMounts needs of it. Pure.
DataConfig data_config(const MachineConfig& config);

/// Of the guests of a private engine. Pure.
std::uint32_t first_guest_id(const MachineConfig& config);

/// Where everything of a configuration lies. Pure.
struct MachinePaths {
  explicit MachinePaths(const MachineConfig& config);

  std::string attempts, data, init, hosts, scrub, engine, engine_run, gates, journal, sysctls;
  std::string kill_journal;     ///< of the kill socket
  std::string hand_journal;     ///< of `reclaim-warden kill` without a daemon
  std::string ordered_journal;  ///< of clearings that the core ordered
  std::string transfers_cut;    ///< there while the owner has cut the agent's transfers
  std::string cgroup;           ///< relative: "reclaim-LAB"
};

/// A kill path with its lock: registrations come from workers while an order may be running.
class SharedKillPath {
 public:
  explicit SharedKillPath(std::unique_ptr<KillPath> path) : path_(std::move(path)) {}

  template <class Use>
  auto use(Use&& use) {
    const std::lock_guard lock(mutex_);
    return use(*path_);
  }

 private:
  io::InheritingMutex mutex_;  ///< an order does not wait for a worker that waits for a processor
  std::unique_ptr<KillPath> path_;  ///< guarded by mutex_
};

/// Emergencies that the kill socket has begun, and those that the core has taken in. While they
/// differ no gate is opened: what the core knows is older than what the owner has ordered.
struct EmergencyCount {
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> taken{0};
  // Of the last one begun, written before it is counted.
  std::atomic<bool> is_cut_only{false};
  std::atomic<std::uint64_t> gpu_mask{0};
  std::atomic<std::int64_t> declared_ns{0};

  bool is_pending() const { return begun.load() != taken.load(); }
};

/// What a look at the guests' interfaces found.
struct FilterLook {
  std::vector<traffic::FilterLoss> lost;      ///< what is missing of ours
  std::vector<traffic::FilterBefore> before;  ///< what somebody has put before it
};

/// Carries out the core's effects on the real machine. Every call blocks and is for a worker;
/// thread-safe for different guests.
class Machine {
 public:
  /// Makes folders, gates and kill path. `clock` outlives it.
  static Result<std::unique_ptr<Machine>> open(const MachineConfig& config, const Clock& clock);

  /// The kill path's settings for this machine, with the journal to write.
  static KillPathConfig kill_config(const MachineConfig& config, const std::string& journal);

  Result<std::string> make_disk(const MakeDisk& order);
  Status adopt_disk(const AdoptDisk& order);
  Status drop_disk(const DropDisk& order);
  Result<StartedGuest> start(const Start& order);
  Status go(const Go& order);
  Result<std::uint32_t> signal(const Signal& order);
  Result<std::uint32_t> tell(const warden_wire::TellGuest& order);
  Status kill(const Kill& order);
  Status notify(const Notify& order);
  Status forget(const Forget& order);
  Status remove_stray(const FoundContainer& container);
  Result<std::string> import(const Import& order);
  /// Calls `cut` as soon as no packet passes any more.
  ClearReport clear(const Clear& order, const std::function<void(Instant)>& cut);
  Status set_gates(const SetGates& order);

  /// How a guest whose first process has ended, ended.
  Exited look_at_end(const GuestRecord& record);
  std::optional<std::int32_t> own_exit_code(const GuestName& guest) const;
  /// Brings the engine up, or finds it up.
  Result<EngineFacts> ensure_engine(Instant now);
  /// What there is: for the core's Reconciled. Detaches gates that no live guest has.
  Result<Reconciled> search(const std::vector<GuestRecord>& live);

  /// Registers what the emergency path must know of a guest, or forgets it.
  void register_guest(const GuestRecord& record, std::uint32_t ifindex);

  void share_with(SharedKillPath& emergency, SlotGpus& gpus, EmergencyCount& count) {
    emergency_ = &emergency;
    slot_gpus_ = &gpus;
    emergencies_ = &count;
  }

  /// For the lease, on the loop's thread: it makes no system call but the one.
  traffic::CutSwitch& gates() { return *gates_; }

  /// Puts back what is missing, and tells the kill paths which guests' gates are passed by.
  FilterLook look_at_filters();

  /// The bounds of the agent's transfers; null where there are none.
  TransferBounds* transfers() { return transfers_.get(); }

  /// Why there are none although the owner wants them; empty otherwise.
  const std::string& transfers_refusal() const { return transfers_refusal_; }

  /// Names of the owner's data sets that are there now. Blocks for as long as his disk does.
  std::vector<std::string> data_sets() const { return data_->there(); }

  /// WardenState::features, as they were found when it was opened.
  const std::vector<std::string>& features() const { return features_; }

  std::uint32_t pids_of(const GuestRecord& record) const;

  const MachinePaths& paths() const { return paths_; }

 private:
  Machine(const MachineConfig& config, const Clock& clock);
  Status open_parts();
  Status open_transfers();
  void unregister(traffic::Slot slot);
  bool is_emergency_pending() const;
  std::string cgroup_of(const std::string& container) const;
  Result<StartedGuest> start_container(const Start& order);
  Status check_gpus_are_free(const std::vector<std::uint32_t>& gpus);
  Status scrub_gpus(const GuestRecord& guest);
  Result<std::string> scrub_one(const GuestRecord& guest, std::uint32_t gpu);
  Result<GpuDriver> driver_for(const std::vector<std::uint32_t>& gpus);
  Status check_nobody_computes(std::uint32_t gpu, pid_t but);
  Result<std::string> create(const Start& order, const std::string& go_ticket);
  /// Engine-independent. An error names how many processes are left.
  Status kill_container(const std::string& container);

  MachineConfig config_;
  MachinePaths paths_;
  const Clock& clock_;
  std::optional<AttemptDisks> disks_;
  std::optional<DataMounts> data_;
  std::optional<PrivateEngine> private_engine_;  ///< used by ensure_engine() alone

  struct KnownEngine {
    pid_t pid = 0;  ///< 0: an engine that is not ours
    Instant asked;
    EngineFacts facts;
  };

  std::optional<KnownEngine> known_engine_;  ///< used by ensure_engine() alone
  std::optional<Engine> engine_;
  std::optional<traffic::GuestCut> cut_;  ///< used by net_ alone, under its lock
  std::optional<traffic::CutSwitch> gates_;
  std::unique_ptr<GuestNet> net_;
  std::unique_ptr<TransferBounds> transfers_;
  std::string transfers_refusal_;
  std::vector<std::string> features_;
  std::unique_ptr<GpuProcesses> gpus_;
  std::mutex scrub_mutex_;  ///< one scrub at a time
  std::unique_ptr<GpuProcesses>
      scrubbed_gpus_;  ///< guarded by it: an order's looks wait behind none
  CgroupRoots roots_;
  std::optional<CgroupKiller> killer_;
  std::unique_ptr<SharedKillPath> ordered_;
  SharedKillPath* emergency_ = nullptr;
  SlotGpus* slot_gpus_ = nullptr;
  std::mutex go_tickets_mutex_;
  std::map<traffic::Slot, std::string> go_tickets_;  ///< of guests between start and go
  EmergencyCount* emergencies_ = nullptr;
};

}  // namespace rn::warden
