// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "command_line.h"
#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/printable.h"
#include "io/real_fs.h"
#include "warden/guest_ids.h"
#include "warden/guest_uplink.h"

namespace rn::warden_cli {

using warden::MachineConfig;

namespace {

std::string own_path() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

/// Beside this program when installed, or beside what is called; else in the build tree.
std::string find_program(const std::string& self, const std::string& name) {
  const std::string folder = parent_folder(self);
  const std::string above = parent_folder(parent_folder(folder));
  for (const std::string& path :
       {folder + "/" + name,
        above + "/bin/" + name,
        above + "/" + name + "/" + name,
        "/usr/lib/reclaimnet/" + name}) {
    std::error_code ignored;  // nobody but root may be let in here
    if (std::filesystem::is_regular_file(path, ignored)) return path;
  }
  return {};
}

std::string folder_name(const std::string& text) {
  return text.empty() ? "names no folder; give its path, or leave the flag out" : "";
}
}  // namespace

int complain(const Error& error) {
  std::fprintf(stderr, "reclaim-warden: %s\n", printable_lines(error.message).c_str());
  const std::string hint = error.hint.empty() ? "see 'reclaim-warden --help'" : error.hint;
  std::fprintf(stderr, "  next: %s\n", printable_lines(hint).c_str());
  return kFailed;
}

std::string settings_path(const Options& options) {
  return options.state + "/warden/settings";
}

std::string recall_settings(Options& options) {
  std::ifstream file(settings_path(options));
  std::string lab, engine, address;
  file >> lab >> engine >> address;
  if (options.lab.empty()) options.lab = lab;
  if (options.engine.empty()) options.engine = engine;
  if (options.first_address.empty()) options.first_address = address;
  return lab;
}

MachineConfig machine_of(const Options& options) {
  MachineConfig machine;
  machine.lab = options.lab;
  machine.state = options.state + "/warden";
  machine.run = options.run;
  machine.agent_state = options.state + "/agent";
  machine.self = own_path();
  machine.init = options.init.empty() ? find_program(machine.self, "reclaim-init") : options.init;
  machine.engine = options.engine.empty() ? "private" : options.engine;
  machine.first_guest_id = warden::recorded_guest_ids(machine.state).value_or(0);
  machine.agent_uid = options.agent_uid;
  const passwd* agent = getpwuid(options.agent_uid);
  machine.agent_gid = agent != nullptr ? agent->pw_gid : options.agent_uid;
  machine.reserve_mib = options.reserve_mib;
  if (options.gpus == "nvidia") machine.gpu_access = warden::GpuAccess::kDeviceRequests;
  if (options.gpus == "cdi") machine.gpu_access = warden::GpuAccess::kCdi;
  if (options.gpus == "driver") machine.gpu_access = warden::GpuAccess::kDriver;
  if (options.gpu_scrub == "try") machine.gpu_scrub = warden::GpuScrub::kTry;
  if (options.gpu_scrub == "must") machine.gpu_scrub = warden::GpuScrub::kMust;
  machine.scrub =
      options.scrub.empty() ? find_program(machine.self, "reclaim-scrub") : options.scrub;
  if (!options.first_address.empty()) machine.first_address = options.first_address;
  machine.guest_uplink_bps = options.guest_uplink_bps;
  if (const auto grant = warden::parse_uplink(options.uplink)) machine.granted_bps = grant->bps;
  if (const auto transfers = warden::parse_transfers(options.transfers))
    machine.transfers = *transfers;
  for (const std::string& set : options.data_sets) {
    const auto equals = set.find('=');  // there: check_flags
    if (equals == std::string::npos) continue;
    std::string path = set.substr(equals + 1);
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    machine.data_sets[set.substr(0, equals)] = path;
  }
  return machine;
}

std::string pid_path(const Options& options) {
  return options.run + "/warden.pid";
}

Result<int> lock_pid_file(const Options& options) {
  io::RealFileSystem fs;
  RN_CHECK(make_folders(fs, options.run, 0711).map_error([](const Error& e) {
    return e.with("--run").hinting("name a folder of its own");
  }));
  const int fd = open(pid_path(options).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return fail(ErrorCode::kDenied, pid_path(options) + " cannot be opened");
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return fail(ErrorCode::kConflict, "a warden runs already", "stop it first");
  }
  return fd;
}

void add_places(CLI::App& command, Options& options) {
  command.add_option("--state", options.state, "state folder")
      ->check(folder_name)
      ->capture_default_str();
  command.add_option("--run", options.run, "folder of the sockets")
      ->check(folder_name)
      ->capture_default_str();
  command.add_option("--lab", options.lab, "the lab's short name");
  command.add_option("--engine", options.engine, "private, or the socket of an engine");
  command.add_option(
      "--guest-addresses", options.first_address, "first address of the guests' /22"
  );
}
}  // namespace rn::warden_cli
