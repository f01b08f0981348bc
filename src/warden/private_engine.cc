// SPDX-License-Identifier: Apache-2.0
#include "warden/private_engine.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <iterator>

#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "io/read_text.h"
#include "io/real_fs.h"
#include "io/subprocess.h"
#include "warden/engine.h"
#include "warden/guest_ids.h"
#include "warden/mount_point.h"
#include "warden/posix.h"

namespace rn::warden {

namespace {

constexpr const char* kRemapUser = "reclaimnet";
constexpr const char* kMadeContainerdFolder = "/made-run-containerd";
constexpr milliseconds kPingLimit = seconds(2);
constexpr milliseconds kEngineStartLimit = seconds(20);
constexpr milliseconds kEngineStep{20};

using io::read_text;

std::string last_lines(const std::string& text, std::size_t bytes) {
  return text.size() <= bytes ? text : text.substr(text.size() - bytes);
}

/// The line of subuid and of subgid.
std::string subordinate_ids(std::uint32_t uid_base) {
  return std::string(kRemapUser) + ":" + std::to_string(uid_base) + ":" +
         std::to_string(kIdsPerLab) + "\n";
}

/// A zombie is no process: nobody may ever reap it in a container without an init.
bool is_alive(pid_t pid) {
  const std::string stat = read_text("/proc/" + std::to_string(pid) + "/stat");
  const auto end = stat.rfind(')');
  return end != std::string::npos && end + 2 < stat.size() && stat[end + 2] != 'Z' &&
         stat[end + 2] != 'X';
}

/// All processes whose command line names `needle` as an argument or a part of one.
std::vector<pid_t> processes_naming(const std::string& needle) {
  std::vector<pid_t> found;
  for (const pid_t pid : io::all_pids()) {
    if (pid == getpid()) continue;
    const std::string line = read_text("/proc/" + std::to_string(pid) + "/cmdline");
    if (line.find(needle) != std::string::npos && is_alive(pid)) found.push_back(pid);
  }
  return found;
}

std::string words_of(const std::vector<pid_t>& pids) {
  std::string text;
  for (const pid_t pid : pids) text += (text.empty() ? "" : ", ") + std::to_string(pid);
  return text;
}

/// A new dockerd takes the containerd of this pid file for alive as long as the pid exists, and
/// then waits for it for ever: a zombie that nobody reaps, or the pid's next owner. The old one
/// dies with its dockerd, a moment later.
void forget_dead_containerd(const std::string& pid_file) {
  const std::string text = read_text(pid_file);
  pid_t pid = 0;
  std::from_chars(text.data(), text.data() + text.size(), pid);
  if (pid <= 1) return;
  const auto is_containerd = [&] {
    return is_alive(pid) &&
           read_text("/proc/" + std::to_string(pid) + "/cmdline").find("containerd") !=
               std::string::npos;
  };
  for (int i = 0; i < 50 && is_containerd(); ++i) pause_for(kEngineStep);
  if (!is_containerd()) unlink(pid_file.c_str());
}

}  // namespace

std::vector<std::string> engine_arguments(const PrivateEngineConfig& config) {
  return {
      config.dockerd,
      "--host=unix://" + config.run + "/docker.sock",
      "--data-root=" + config.folder + "/data",
      "--exec-root=" + config.run + "/exec",
      "--pidfile=" + config.run + "/docker.pid",
      "--config-file=" + config.folder + "/daemon.json",
      "--bridge=none",
      "--iptables=false",
      "--ip6tables=false",
      "--ip-masq=false",
      "--ip-forward=false",
      "--cgroup-parent=" + config.cgroup_parent,
      "--exec-opt=native.cgroupdriver=cgroupfs",
      std::string("--userns-remap=") + kRemapUser,
      "--no-new-privileges",
      "--live-restore",
      "--log-driver=none",
      "--log-level=warn"};
}

std::string with_remap_user(const std::string& text, bool is_group) {
  const std::string begin = std::string(kRemapUser) + ":";
  if (text.starts_with(begin) || text.find("\n" + begin) != std::string::npos) return text;
  std::string out = text;
  if (!out.empty() && out.back() != '\n') out += '\n';
  out += begin + (is_group ? "x:64990:\n" : "x:64990:64990::/nonexistent:/usr/sbin/nologin\n");
  return out;
}

Status PrivateEngine::prepare() const {
  io::RealFileSystem fs;
  const std::string etc = config_.folder + "/etc";
  for (const std::string& folder : {config_.folder, etc, config_.run, config_.run + "/containerd"})
    RN_CHECK(make_folders(fs, folder, 0711));
  RN_CHECK(make_mount_point(kContainerdFolder, config_.run + kMadeContainerdFolder));
  const std::string range = subordinate_ids(config_.uid_base);
  const auto write = [&](const char* name, const std::string& text) {
    return write_durably(fs, etc + "/" + name, as_bytes(text), 0644);
  };
  RN_CHECK(write("passwd", with_remap_user(read_text("/etc/passwd"), false)));
  RN_CHECK(write("group", with_remap_user(read_text("/etc/group"), true)));
  RN_CHECK(write("subuid", range));
  RN_CHECK(write("subgid", range));
  // An empty configuration file keeps the owner's /etc/docker/daemon.json out.
  return write_durably(fs, config_.folder + "/daemon.json", as_bytes("{}\n"), 0600);
}

Status PrivateEngine::remove_of_other_ids() {
  const std::string range = read_text(config_.folder + "/etc/subuid");
  if (range.empty() || range == subordinate_ids(config_.uid_base)) return {};
  log::info("engine.of_other_ids", {{"uid_base", static_cast<std::int64_t>(config_.uid_base)}});
  return remove();
}

std::optional<pid_t> PrivateEngine::find() const {
  const std::string text = read_text(config_.run + "/docker.pid");
  pid_t pid = 0;
  std::from_chars(text.data(), text.data() + text.size(), pid);
  if (pid <= 1 || !is_alive(pid)) return std::nullopt;
  // A recycled pid is somebody else: ours names our data root.
  const std::string line = read_text("/proc/" + std::to_string(pid) + "/cmdline");
  if (line.find("--data-root=" + config_.folder + "/data") == std::string::npos)
    return std::nullopt;
  return pid;
}

Result<pid_t> PrivateEngine::ensure(Instant now, nanoseconds patience) {
  const auto pid = find();
  if (!pid) {
    silent_since_.reset();
    return start();
  }
  const Status answered = Engine(socket(), {}).ping(kPingLimit);
  if (answered) {
    silent_since_.reset();
    return *pid;
  }
  if (!silent_since_) silent_since_ = now;
  if (now - *silent_since_ > patience) {
    log::warning("engine.hangs", {{"pid", static_cast<std::int64_t>(*pid)}});
    kill(*pid, SIGKILL);  // its guests live on, and the next call starts a new one
    silent_since_.reset();
  }
  return fail(ErrorCode::kUnavailable, "the container engine hangs: " + answered.error().message);
}

Result<pid_t> PrivateEngine::start() {
  RN_CHECK(prepare().map_error([](const Error& e) { return e.with("preparing the engine"); }));
  unlink((config_.run + "/docker.pid").c_str());
  forget_dead_containerd(config_.run + "/exec/containerd/containerd.pid");
  io::SpawnOptions options;
  options.argv = {
      config_.self,
      "engine-exec",
      "--etc",
      config_.folder + "/etc",
      "--containerd",
      config_.run + "/containerd",
      "--log",
      config_.folder + "/log",
      "--"};
  const auto arguments = engine_arguments(config_);
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  RN_TRY(const io::RunOutput output, io::run_process(options, seconds(10)));
  if (!output.status.is_success())
    return fail(ErrorCode::kInternal, "the container engine cannot be started: " + output.err);
  const Engine engine(socket(), {});
  for (milliseconds waited{0}; waited < kEngineStartLimit; waited += kEngineStep) {
    const auto pid = find();
    if (pid && engine.ping(seconds(1))) {
      log::info("engine.started", {{"pid", static_cast<std::int64_t>(*pid)}});
      return *pid;
    }
    pause_for(kEngineStep);
  }
  return fail(
      ErrorCode::kInternal,
      "the container engine does not come up: " +
          last_lines(read_text(config_.folder + "/log"), 600),
      "see " + config_.folder + "/log"
  );
}

Status PrivateEngine::stop() {
  const auto pid = find();
  if (pid) {
    // A stopped engine takes TERM only when it goes on.
    kill(*pid, SIGCONT);
    kill(*pid, SIGTERM);
    for (int i = 0; i < 500 && is_alive(*pid); ++i) pause_for(kEngineStep);
    if (is_alive(*pid)) kill(*pid, SIGKILL);
    for (int i = 0; i < 100 && is_alive(*pid); ++i) pause_for(kEngineStep);
    if (is_alive(*pid)) return fail(ErrorCode::kInternal, "the container engine does not die");
  }
  // containerd goes with it; shims of live-restored guests do not. A busy machine takes its time to
  // end what was killed, and a folder in which somebody still writes cannot be removed.
  for (int i = 0; i < 500; ++i) {
    const auto left = processes_naming(config_.run + "/exec");
    if (left.empty()) break;
    if (i + 1 == 500)
      return fail(ErrorCode::kTimeout, "processes of the engine do not die: " + words_of(left));
    if (i > 25) {
      for (const pid_t one : left) kill(one, SIGKILL);
    }
    pause_for(kEngineStep);
  }
  remove_mount_point(kContainerdFolder, config_.run + kMadeContainerdFolder);
  io::RealFileSystem fs;
  return remove_tree(fs, config_.run);
}

Status PrivateEngine::remove() {
  RN_CHECK(stop());
  io::RealFileSystem fs;
  return remove_tree(fs, config_.folder);
}

}  // namespace rn::warden
