// SPDX-License-Identifier: Apache-2.0
#include "warden/leave.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include <unistd.h>

#include "io/patiently.h"
#include "io/read_text.h"
#include "io/real_fs.h"
#include "warden/guest_ids.h"

namespace rn::warden {

namespace {

namespace files = std::filesystem;

constexpr milliseconds kGuestsLimit = seconds(30);  ///< a full machine takes its time to end them
constexpr const char* kCgroupRoot = "/sys/fs/cgroup";
constexpr milliseconds kStepLimit = seconds(10);  ///< for what the dying still hold

using Says = std::function<void(const std::string& step)>;

/// One that cannot be looked at may be there: what is done about it says so.
bool may_exist_still(const files::path& path) {
  std::error_code unknown;
  return files::exists(path, unknown) || unknown;
}

/// The group in every hierarchy that has it.
std::vector<files::path> groups_named(const std::string& root, const std::string& name) {
  std::vector<files::path> groups;
  std::vector<files::path> tops = {root};
  std::error_code ignored;
  // Cgroups vanish while they are walked: an iterator that meets that ends and does not throw.
  for (files::directory_iterator it(root, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    if (it->is_directory(ignored) && !it->is_symlink(ignored)) tops.push_back(it->path());
  }
  for (const files::path& top : tops) {
    if (files::is_directory(top / name, ignored)) groups.push_back(top / name);
  }
  return groups;
}

class Leaving {
 public:
  Leaving(const MachineConfig& config, const Clock& clock, const Says& says)
      : config_(config), paths_(config), clock_(clock), says_(says) {}

  LeaveReport run() {
    const std::vector<files::path> groups = groups_named(kCgroupRoot, paths_.cgroup);
    kill_guests();
    remove_containers();
    remove_engine();
    remove_traffic();
    remove_data();
    remove_disks();
    begin("removing the guests' control groups", kStepLimit);
    LeaveReport removed = remove_cgroups(kCgroupRoot, paths_.cgroup, kStepLimit);
    // The kill path makes what it works on: that is not said to have been here.
    if (groups.empty()) removed.removed.clear();
    add(removed);
    remove_folders();
    return std::move(report_);
  }

 private:
  void begin(const std::string& step, milliseconds limit) {
    says_(step + ", " + std::to_string(limit.count() / 1000) + " s at most");
  }

  void note(const Status& status, const std::string& what) {
    if (status) {
      report_.removed.push_back(what);
    } else {
      report_.stays.push_back(what + ": " + status.error().describe());
    }
  }

  void add(const LeaveReport& part) {
    report_.removed.insert(report_.removed.end(), part.removed.begin(), part.removed.end());
    report_.stays.insert(report_.stays.end(), part.stays.begin(), part.stays.end());
  }

  void kill_guests() {
    KillPathConfig kill = Machine::kill_config(config_, paths_.hand_journal);
    kill.is_emergency = true;
    begin("ending the guests and looking whether any is left", kGuestsLimit);
    auto path = KillPath::open(kill, clock_, nullptr);
    if (!path) return note(fail(path.error()), "guests");
    KillOrder order;
    order.limit = kGuestsLimit;
    const KillReport& report = (*path)->clear(order);
    if (report.processes > 0)
      report_.removed.push_back(std::to_string(report.processes) + " guest processes");
    for (const std::string& left : report.remains.describe()) report_.stays.push_back(left);
  }

  void remove_containers() {
    const bool is_private = config_.engine == "private";
    const std::string socket = is_private ? paths_.engine_run + "/docker.sock" : config_.engine;
    const Engine engine(socket, config_.lab);
    if (!engine.ping(seconds(2))) {
      if (!is_private) report_.stays.push_back("containers: the engine does not answer");
      return;  // a private one is removed as a whole
    }
    // What a private engine did not do in time goes with it, or is named when it stays.
    const auto note_here = [&](const Status& status, const std::string& what) {
      if (status || !is_private) note(status, what);
    };
    const auto containers = engine.list(kLabLabel, config_.lab);
    if (!containers) return note_here(fail(containers.error()), "containers");
    for (const EngineContainer& container : *containers)
      note_here(engine.remove(container.id), "container " + container.id.substr(0, 12));
    const auto images = engine.images();
    if (is_private || !images) return;
    for (const EngineImage& image : *images)
      note(engine.remove_image(image.digest), "image " + image.digest);
    // Another lab's guest may still run from one: it is no longer ours to answer for.
    if (const auto old = engine.remove_old_names())
      report_.removed.insert(report_.removed.end(), old->removed.begin(), old->removed.end());
  }

  void remove_engine() {
    if (config_.engine != "private") return;
    PrivateEngineConfig engine;
    engine.folder = paths_.engine;
    engine.run = paths_.engine_run;
    const bool was_there = may_exist_still(paths_.engine);
    if (was_there) begin("removing the private engine", kStepLimit);
    const Status removed =
        io::patiently(kStepLimit, [&] { return PrivateEngine(engine).remove(); });
    if (was_there || !removed) note(removed, "private engine with its images");
  }

  void remove_traffic() {
    if (!may_exist_still(paths_.gates)) return;
    begin("removing interfaces and gates", kStepLimit);
    auto cut = traffic::GuestCut::open(paths_.gates);
    if (!cut) return note(fail(cut.error()), "gates");
    if (traffic::has_pinned_edge(paths_.gates)) {
      note(traffic::TransferEdge::leave_pinned(paths_.gates), "filters of the agent's transfers");
    }
    GuestNet net({config_.lab, config_.first_address, 0, 0, paths_.sysctls}, *cut);
    add(net.leave());
    note(
        io::patiently(kStepLimit, [&] { return cut->leave(); }), "gates pinned in " + paths_.gates
    );
  }

  void remove_data() {
    if (!may_exist_still(paths_.data)) return;
    begin("removing the views of data sets", kStepLimit);
    DataConfig config = data_config(config_);
    config.sets.clear();
    auto data = DataMounts::open(config);
    if (!data) return note(fail(data.error()), "views of data sets");
    add(data->leave(kStepLimit));
  }

  void remove_disks() {
    if (!may_exist_still(paths_.attempts)) return;
    begin("removing the attempts' disks", kStepLimit);
    DiskConfig disks;
    disks.folder = paths_.attempts;
    disks.agent_gid = config_.agent_gid;
    auto attempts = AttemptDisks::open(disks);
    if (!attempts) return note(fail(attempts.error()), "attempts' disks");
    add(attempts->leave(kStepLimit));
  }

  void remove_folders() {
    io::RealFileSystem fs;
    for (const char* name : {"warden.sock", "kill.sock", "warden.pid", RN_CUT_SLOT_GPUS_FILE})
      unlink((config_.run + "/" + name).c_str());
    const auto remove = [&](const std::string& folder) {
      note(io::patiently(kStepLimit, [&] { return remove_tree(fs, folder); }), folder);
    };
    if (may_exist_still(paths_.gates)) remove(paths_.gates);
    // Else its settings are needed once more.
    if (report_.stays.empty() && may_exist_still(config_.state)) remove(config_.state);
    // What stays may be owned by these ids, which are nobody else's then.
    if (report_.stays.empty()) release_ids(fs);
    rmdir(config_.run.c_str());  // the agent's own files may still be in it
  }

  void release_ids(FileSystem& fs) {
    const auto released = release_guest_ids(fs, {}, config_.state);
    if (!released) return note(fail(released.error()), "the guests' user ids");
    if (*released) report_.removed.push_back("the guests' user ids from the machine's list");
  }

  const MachineConfig& config_;
  const MachinePaths paths_;
  const Clock& clock_;
  const Says& says_;
  LeaveReport report_;
};

}  // namespace

namespace {

/// The group and all below it, deeper ones first.
std::vector<files::path> with_descendants(const files::path& group) {
  std::vector<files::path> folders = {group};
  std::error_code error;
  std::error_code ignored;
  for (files::recursive_directory_iterator it(group, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_directory(ignored)) folders.push_back(it->path());
  }
  std::sort(folders.rbegin(), folders.rend());
  return folders;
}

std::string processes_in(const files::path& group) {
  std::string list;
  for (const files::path& folder : with_descendants(group)) {
    std::istringstream pids(io::read_text(folder / "cgroup.procs"));
    for (std::string pid; pids >> pid;) list += (list.empty() ? "" : " ") + pid;
  }
  return list.empty() ? "no process is in it" : "processes in it: " + list;
}

}  // namespace

LeaveReport remove_cgroups(
    const std::string& root, const std::string& name, milliseconds patience
) {
  LeaveReport report;
  for (const files::path& group : groups_named(root, name)) {
    const Status removed = io::patiently(patience, [&]() -> Status {
      for (const files::path& folder : with_descendants(group)) rmdir(folder.c_str());
      if (!may_exist_still(group)) return {};
      return fail(ErrorCode::kConflict, "cgroup " + group.string());
    });
    if (removed) {
      report.removed.push_back("cgroup " + group.string());
    } else {
      report.stays.push_back("cgroup " + group.string() + ": " + processes_in(group));
    }
  }
  return report;
}

bool may_have_served(const MachineConfig& config, const std::string& cgroup_root) {
  const MachinePaths paths(config);
  return config.engine != "private" || may_exist_still(config.state) ||
         may_exist_still(paths.gates) || !groups_named(cgroup_root, paths.cgroup).empty();
}

LeaveReport leave(const MachineConfig& config, const Clock& clock, const Says& says) {
  return Leaving(config, clock, says).run();
}

}  // namespace rn::warden
