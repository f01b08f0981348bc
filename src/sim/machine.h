// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fs_crash.h"
#include "model/warden.h"
#include "sim/gang_floor.h"
#include "sim/guest.h"
#include "sim/world.h"

namespace rn::sim {

using warden_wire::GuestName;

/// The record is of the whole machine (no `gpu`), or of that GPU of it.
bool is_of(const ReclaimRecord& record, std::optional<std::uint32_t> gpu);

/// The hardware, the kernel and the container engine of one node: what goes on while agent and
/// warden are dead, and what a power loss takes away. Guests are trainings.
class Machine {
 public:
  enum class ContainerState : std::uint8_t { kCreated, kRunning, kExited };

  struct Container {
    std::string id;
    GuestName guest;
    ContainerState state = ContainerState::kCreated;
    Training training;
    TrainingState progress;
    std::optional<std::uint64_t>
        step_beside;   ///< what a file beside its checkpoint said at the start
    std::string work;  ///< folder on the disk
    std::uint32_t slot = 0;
    std::uint32_t cpu_milli = 1000;
    std::vector<std::uint32_t> gpus;
    std::vector<std::string> data;  ///< names of data sets that it sees
    std::int32_t exit_code = 0;
    bool has_own_end = false;  ///< its command ended, and its init has written down how
    std::int64_t started_boot_ns = 0;
    TrueTime started{0};
    TrueTime ended{0};
    TrueTime step_began{0};  ///< of the step that is under way
    std::uint64_t run = 0;   ///< voids events of an earlier life
    bool is_told = false;    ///< a notice of its owner's lies in it
    bool has_term = false;   ///< a SIGTERM waits to be handled at the end of the step
    std::size_t turns = 0;   ///< words that it has said to its gang
    GangChains chains;       ///< of a member: all members', after its newest step
  };

  Machine(World& world, std::string name, std::uint64_t seed, nanoseconds wall_error);

  const std::string& name() const { return name_; }

  HostClock& clock() { return clock_; }

  CrashFs& disk() { return disk_; }

  /// Nothing more can be written, neither to files nor to the daemons' journals.
  void fill_disk(bool is_full);

  bool is_disk_full() const { return is_disk_full_; }

  std::string boot_id() const { return name_ + "-boot-" + std::to_string(boots_); }

  /// Everything volatile is gone; unsynced data too. Nothing starts until the power is back.
  void lose_power();

  void switch_on() { is_on_ = true; }

  bool is_on() const { return is_on_; }

  /// Where its guests meet the other members of their gangs.
  void join(GangFloor& floor) { floor_ = &floor; }

  // The engine.
  Result<std::string> create(
      const GuestName& guest,
      const warden_wire::StartGuest& start,
      std::uint32_t slot,
      const std::string& work
  );
  Status go(const GuestName& guest);
  /// Together with its init, which writes nothing down. False if it was not running.
  bool kill(const GuestName& guest);
  std::uint32_t kill_all();
  std::uint32_t kill_on(std::uint32_t gpu);
  void remove(const GuestName& guest);
  /// Its notice file is written, or withdrawn.
  void notify(const GuestName& guest, bool is_told);
  std::uint32_t signal_term(const GuestName& guest);  ///< processes that catch it
  Container* find(const GuestName& guest);
  static bool has_gpu(const Container& container, std::uint32_t gpu);

  const std::map<GuestName, Container>& containers() const { return containers_; }

  void add_image(const std::string& id) { images_.push_back(id); }

  const std::vector<std::string>& images() const { return images_; }

  /// A folder of the owner's with data comes, or goes: a disk of his that is mounted or not.
  void set_data(const std::string& name, bool is_there);

  const std::set<std::string>& data_sets() const { return data_sets_; }

  std::function<void()> on_data;  ///< the data sets have changed

  struct Emergency {
    std::int64_t declared_ns = 0;
    std::optional<std::uint32_t> gpu;  ///< none: the whole machine
  };

  /// The kill path's own records, durable, by their sequence.
  std::vector<Emergency>& emergencies() { return emergencies_; }

  std::function<void(const Container&)> on_exit;
  /// The same for the checkers, who are there when no warden is.
  std::function<void(const Container&)> on_end;
  std::function<void(const Container&)> on_create;
  /// The guest wrote a line to its log; `is_whole`: all of it reached the disk.
  std::function<void(const Container&, const std::string& line, bool is_whole)> on_log;
  std::function<void(const Container&)> on_start;  ///< the guest has read its checkpoint
  /// The guest closed or renamed a file below its work folder (what inotify would tell).
  std::function<void(const GuestName&, const std::string& path, bool is_rename)> on_file;
  /// A guest did a step (true time): for the checkers of exclusion and of the kill switch.
  std::function<void(const Container&)> on_step;

 private:
  void schedule_step(Container& container);
  void finish_step(const GuestName& guest, std::uint64_t run);
  /// The step of a gang's member, and whether somebody of it was told to save. Nothing while it
  /// waits for the others; after a while its program gives up.
  std::optional<bool> step_together(Container& container);
  void save(Container& container, bool is_whole);
  void save_beside(const Container& container);
  std::optional<std::uint64_t> step_beside(const std::string& work);
  void say(const Container& container, const std::string& line);
  void end(Container& container, std::int32_t exit_code, bool is_own);
  std::uint32_t kill_those(const std::function<bool(const Container&)>& is_meant);

  World& world_;
  std::string name_;
  HostClock clock_;
  CrashFs disk_;
  std::map<GuestName, Container> containers_;
  std::vector<std::string> images_;
  std::set<std::string> data_sets_;
  std::vector<Emergency> emergencies_;
  GangFloor* floor_ = nullptr;
  bool is_on_ = true;
  bool is_disk_full_ = false;
  std::uint64_t boots_ = 1;
  std::uint64_t next_id_ = 1;
};

}  // namespace rn::sim
