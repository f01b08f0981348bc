// SPDX-License-Identifier: Apache-2.0
#include "warden/cgroup.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/read_text.h"

namespace rn::warden {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> hierarchies(const CgroupRoots& roots) {
  std::vector<std::string> found;
  if (!roots.unified.empty()) found.push_back(roots.unified);
  if (!roots.freezer.empty()) found.push_back(roots.freezer);
  return found;
}

/// The v1 hierarchies that hold no guest of their own accord, sorted; links to them ("cpu,cpuacct")
/// left out.
std::vector<std::string> other_hierarchies(const std::string& root) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    std::error_code ignored;
    if (it->is_symlink(ignored) || name == "unified" || name == "freezer") continue;
    if (fs::exists(it->path() / "cgroup.procs", ignored)) found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

tl::unexpected<Error> system_error(const std::string& what, int error) {
  const ErrorCode code =
      error == EPERM || error == EACCES ? ErrorCode::kDenied : ErrorCode::kInternal;
  return fail(code, what + ": " + std::strerror(error));
}

/// One that cannot be looked at may be there.
bool may_exist(const std::string& path) {
  std::error_code unknown;
  return fs::exists(path, unknown) || unknown;
}

/// The folder and all below it, parents first. Folders that vanish meanwhile are left out.
std::vector<std::string> folders_below(const std::string& top) {
  std::vector<std::string> folders{top};
  std::error_code error;
  for (fs::recursive_directory_iterator it(top, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_directory(error)) folders.push_back(it->path());
  }
  return folders;
}

/// False when the file is not there (the cgroup has just gone).
Result<bool> write_control(const std::string& path, const char* word) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT || errno == ENODEV) return false;
    return system_error("opening " + path, errno);
  }
  const ssize_t written = write(fd, word, std::strlen(word));
  const int error = errno;
  close(fd);
  if (written < 0 && error != ENODEV) return system_error("writing " + path, error);
  return true;
}

using io::read_text;

std::string value_of(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string word, value; lines >> word >> value;) {
    if (word == key) return value;
  }
  return {};
}

bool is_in_cgroup(const std::string& proc, pid_t pid, const std::string& name) {
  std::istringstream lines(read_text(proc + "/" + std::to_string(pid) + "/cgroup"));
  const std::string path = "/" + name;
  for (std::string line; std::getline(lines, line);) {
    const auto last_colon = line.find(':', line.find(':') + 1);
    if (last_colon == std::string::npos) continue;
    const std::string_view own = std::string_view(line).substr(last_colon + 1);
    if (own == path || own.starts_with(path + "/")) return true;
  }
  return false;
}

/// The words of a process's command line.
std::vector<std::string> words_of(const std::string& proc, pid_t pid) {
  std::istringstream text(read_text(proc + "/" + std::to_string(pid) + "/cmdline"));
  std::vector<std::string> words;
  for (std::string word; std::getline(text, word, '\0');) words.push_back(word);
  return words;
}

/// Programs that start the workers of a training. A signal makes them end their workers after a
/// time of their own, long before a deadline, or is passed on, so that those hear it twice; they
/// have nothing to save.
bool is_launcher(const std::vector<std::string>& words) {
  static const std::set<std::string> kPrograms = {
      "torchrun",
      "accelerate",
      "deepspeed",
      "mpirun",
      "mpiexec",
      "orterun",
      "orted",
      "prterun",
      "prted"};
  static const std::set<std::string> kModules = {
      "torch.distributed.run",
      "torch.distributed.launch",
      "accelerate.commands.launch",
      "deepspeed.launcher.launch",
      "deepspeed.launcher.runner"};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(words[i].rfind('/') + 1);
    if (i > 0 && words[i - 1] == "-m") return kModules.contains(name);
    if (kPrograms.contains(name)) return true;
    // The interpreter's own options may stand before it, and two of them have a word of their own.
    const bool is_value = i > 1 && (words[i - 1] == "-W" || words[i - 1] == "-X");
    if (i > 0 && !words[i].starts_with("-") && !is_value) return false;
  }
  return false;
}

bool catches(std::uint64_t caught, int signal) {
  return ((caught >> (signal - 1)) & 1) != 0;
}

/// Nearly all, also those by which no script is ever told anything.
bool catches_all(std::uint64_t caught) {
  return catches(caught, SIGTRAP) && catches(caught, SIGXFSZ) && catches(caught, SIGSYS);
}

/// Whose handlers count.
enum class Handlers : std::uint8_t { kAnybodys, kOwn, kCatchAlls };

bool is_among(Handlers handlers, std::uint64_t caught) {
  return handlers == Handlers::kAnybodys ||
         catches_all(caught) == (handlers == Handlers::kCatchAlls);
}

/// A process that was only forked, as Python's and PyTorch's workers are: its handlers are not the
/// script's own word. PyTorch gives each worker of a DataLoader one for SIGTERM, by which it dies,
/// and the training with it.
bool is_worker(
    const std::string& proc,
    const std::vector<std::string>& words,
    const std::string& status,
    const std::vector<pid_t>& guest
) {
  if (std::find(words.begin(), words.end(), "--multiprocessing-fork") != words.end()) return true;
  constexpr std::string_view kKey = "\nPPid:\t";
  const std::size_t at = status.find(kKey);
  pid_t parent = 0;
  if (at != std::string::npos)
    std::from_chars(status.data() + at + kKey.size(), status.data() + status.size(), parent);
  return std::binary_search(guest.begin(), guest.end(), parent) && words == words_of(proc, parent);
}

/// Its pidfd, if the signal is for it; else -1.
int open_catcher(
    const std::string& proc,
    pid_t pid,
    const std::string& name,
    int signal,
    Handlers handlers,
    const std::vector<pid_t>& guest
) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return -1;
  if (is_in_cgroup(proc, pid, name)) {
    const std::string status = read_text(proc + "/" + std::to_string(pid) + "/status");
    const auto caught = caught_signals(status);
    const std::vector<std::string> words = words_of(proc, pid);
    const bool is_own_word = caught && catches(*caught, signal) && is_among(handlers, *caught) &&
                             !is_launcher(words) && !is_worker(proc, words, status, guest);
    if (is_own_word) return fd;
  }
  close(fd);
  return -1;
}

/// Answers those that it has signalled, of `guest`.
std::vector<pid_t> signal_those(
    const std::string& proc,
    const std::vector<pid_t>& guest,
    const std::string& name,
    int signal,
    Handlers handlers
) {
  // All are chosen before the first one hears of it: who ends at once leaves workers that look like
  // programs of their own.
  std::vector<std::pair<pid_t, int>> chosen;
  for (const pid_t pid : guest) {
    if (const int fd = open_catcher(proc, pid, name, signal, handlers, guest); fd >= 0)
      chosen.emplace_back(pid, fd);
  }
  std::vector<pid_t> signalled;
  for (const auto& [pid, fd] : chosen) {
    if (syscall(SYS_pidfd_send_signal, fd, signal, nullptr, 0) == 0) signalled.push_back(pid);
    close(fd);
  }
  return signalled;
}

}  // namespace

Result<CgroupRoots> probe_cgroups(const std::string& root) {
  const bool has_freezer = exists(root + "/freezer/cgroup.procs");
  if (exists(root + "/cgroup.controllers")) return CgroupRoots{CgroupFlavour::kV2, root, "", {}};
  if (exists(root + "/unified/cgroup.controllers")) {
    return CgroupRoots{
        CgroupFlavour::kHybrid,
        root + "/unified",
        has_freezer ? root + "/freezer" : "",
        other_hierarchies(root)};
  }
  if (has_freezer)
    return CgroupRoots{CgroupFlavour::kV1, "", root + "/freezer", other_hierarchies(root)};
  return fail(
      ErrorCode::kUnsupported,
      "no cgroup v2 hierarchy and no v1 freezer below " + root,
      "mount cgroup2 on /sys/fs/cgroup, or the freezer controller"
  );
}

Status make_cgroup(const CgroupRoots& roots, const std::string& name) {
  for (const std::string& hierarchy : hierarchies(roots)) {
    std::error_code error;
    fs::create_directories(hierarchy + "/" + name, error);
    if (!error) continue;
    const auto failed = system_error("making cgroup " + name + " in " + hierarchy, error.value());
    return fail(failed.value().hinting(
        "guests need control groups that root may make: in a container give it its rights to them "
        "(mount | grep cgroup must say rw), or serve on the machine itself"
    ));
  }
  return {};
}

Status remove_cgroup(const CgroupRoots& roots, const std::string& name) {
  std::vector<std::string> everywhere = hierarchies(roots);
  everywhere.insert(everywhere.end(), roots.others.begin(), roots.others.end());
  for (const std::string& hierarchy : everywhere) {
    const std::string top = hierarchy + "/" + name;
    if (!may_exist(top)) continue;
    const std::vector<std::string> folders = folders_below(top);
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
      if (rmdir(folder->c_str()) == 0 || errno == ENOENT) continue;
      if (errno == EBUSY)
        return fail(ErrorCode::kUnavailable, "processes are still in cgroup " + name);
      return system_error("removing cgroup " + *folder, errno);
    }
  }
  return {};
}

Result<std::vector<pid_t>> pids_in_cgroup(const CgroupRoots& roots, const std::string& name) {
  std::vector<pid_t> pids;
  for (const std::string& hierarchy : hierarchies(roots)) {
    const std::string top = hierarchy + "/" + name;
    if (!may_exist(top)) continue;
    for (const std::string& folder : folders_below(top)) {
      std::ifstream file(folder + "/cgroup.procs");
      for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
    }
  }
  std::sort(pids.begin(), pids.end());
  pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
  return pids;
}

Status freeze_cgroup(const CgroupRoots& roots, const std::string& name) {
  if (!roots.unified.empty()) {
    RN_TRY(const bool is_there, write_control(roots.unified + "/" + name + "/cgroup.freeze", "1"));
    if (is_there) return {};
  }
  if (!roots.freezer.empty()) {
    RN_TRY(
        const bool is_there, write_control(roots.freezer + "/" + name + "/freezer.state", "FROZEN")
    );
    if (is_there) return {};
  }
  return fail(ErrorCode::kNotFound, "no cgroup " + name);
}

Status thaw_cgroup(const CgroupRoots& roots, const std::string& name) {
  for (const std::string& hierarchy : hierarchies(roots)) {
    const bool is_unified = hierarchy == roots.unified;
    const std::string top = hierarchy + "/" + name;
    if (!may_exist(top)) continue;
    for (const std::string& folder : folders_below(top)) {
      const std::string control = folder + (is_unified ? "/cgroup.freeze" : "/freezer.state");
      RN_TRY(
          [[maybe_unused]] const bool is_there, write_control(control, is_unified ? "0" : "THAWED")
      );
    }
  }
  return {};
}

Result<bool> is_cgroup_frozen(const CgroupRoots& roots, const std::string& name) {
  if (!roots.unified.empty()) {
    const std::string frozen =
        value_of(read_text(roots.unified + "/" + name + "/cgroup.events"), "frozen");
    if (frozen == "1") return true;
  }
  if (!roots.freezer.empty()) {
    return read_text(roots.freezer + "/" + name + "/freezer.state").starts_with("FROZEN");
  }
  return false;
}

Result<std::uint64_t> caught_signals(const std::string& status_text) {
  std::istringstream lines(status_text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("SigCgt:")) continue;
    const std::size_t digit = line.find_first_of("0123456789abcdef", 7);
    std::uint64_t mask = 0;
    if (digit == std::string::npos) break;
    const char* end = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + digit, end, mask, 16);
    if (error != std::errc() || stop != end) break;
    return mask;
  }
  return fail(ErrorCode::kCorrupt, "no readable SigCgt line in a process's status");
}

Result<std::vector<pid_t>> signal_catchers(
    const CgroupRoots& roots, const std::string& name, int signal, const std::string& proc
) {
  RN_TRY(const std::vector<pid_t> pids, pids_in_cgroup(roots, name));
  return signal_those(proc, pids, name, signal, Handlers::kAnybodys);
}

Result<ToldToSave> tell_to_save(
    const CgroupRoots& roots, const std::string& name, const std::string& proc
) {
  constexpr std::pair<int, Handlers> kTries[] = {
      {SIGUSR1, Handlers::kOwn},
      {SIGUSR2, Handlers::kOwn},
      {SIGTERM, Handlers::kOwn},
      {SIGTERM, Handlers::kCatchAlls}};
  RN_TRY(const std::vector<pid_t> pids, pids_in_cgroup(roots, name));
  for (const auto& [signal, handlers] : kTries) {
    ToldToSave told{signal, signal_those(proc, pids, name, signal, handlers)};
    if (!told.pids.empty()) return told;
  }
  return ToldToSave{};
}

}  // namespace rn::warden
