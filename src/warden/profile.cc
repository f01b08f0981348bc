// SPDX-License-Identifier: Apache-2.0
#include "warden/profile.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/data_sets.h"
#include "model/gang_link.h"
#include "model/slurm_name.h"
#include "warden/guest_gang.h"
#include "warden/seccomp_profile.h"

namespace rn::warden {

namespace {

using nlohmann::json;
using warden_wire::GuestName;
using warden_wire::StartGuest;

constexpr std::size_t kMaxArguments = 1024;
constexpr std::size_t kMaxCommandBytes = 128 << 10;
constexpr std::size_t kMaxVariables = 640;  ///< the coordinator lets a job have 512
constexpr std::size_t kMaxEnvironmentBytes = 128 << 10;

constexpr std::uint64_t kTmpfsMiB = 64;     ///< at least, of /tmp and of /dev/shm
constexpr std::uint64_t kTmpFiles = 16384;  ///< inodes are kernel memory
constexpr int kOomScoreAdj = 800;           ///< before anything of the owner's
constexpr int kOpenFiles = 8192;
/// Counted per uid, over all guests on kernels before 5.14: a coarse net. The bound is PidsLimit.
constexpr int kProcessesOfUid = 65'536;
// The kernel charges both to root as well, who made the guest's user namespace.
constexpr int kQueuedSignals = 1024;
constexpr int kMessageQueueBytes = 128 << 10;  ///< one queue of the usual size

/// The engine's own list, of its newest version, and the loop devices: their files are named by
/// other guests' jobs.
constexpr const char* kMasked[] = {
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/block",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
};

/// What its PID 1 can be called by, and where it finds it (apps/reclaim-init/slurm.h).
constexpr const char* kSlurmFolder = "/reclaim-slurm/";
constexpr const char* kSlurmCommands[] = {
    "sacct", "sbatch", "scancel", "scontrol", "squeue", "srun"};

bool finds_slurm(const StartGuest& start) {
  return start.env.contains(kSlurmJobName);
}

bool is_lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool is_variable_name(std::string_view name) {
  if (name.empty() || name.size() > warden_wire::kVariableNameMax) return false;
  if (name.front() >= '0' && name.front() <= '9') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

bool has_nul(std::string_view text) {
  return text.find('\0') != std::string_view::npos;
}

Status check_command(const StartGuest& start) {
  if (start.command.empty() || start.command.front().empty())
    return fail(ErrorCode::kInvalid, "the command is empty", "give the job a command");
  std::size_t bytes = 0;
  for (const std::string& argument : start.command) {
    if (has_nul(argument)) return fail(ErrorCode::kInvalid, "an argument has a NUL byte");
    bytes += argument.size() + 1;
  }
  if (start.command.size() > kMaxArguments || bytes > kMaxCommandBytes)
    return fail(ErrorCode::kInvalid, "the command is longer than 1,024 arguments or 128 KiB");
  return {};
}

Status check_environment(const StartGuest& start) {
  std::size_t bytes = 0;
  for (const auto& [name, value] : start.env) {
    if (!is_variable_name(name))
      return fail(ErrorCode::kInvalid, "\"" + name + "\" is no name of an environment variable");
    if (warden_wire::steers_runtime(name)) {
      return fail(
          ErrorCode::kInvalid,
          "variable " + name + " steers the container runtime and is set by the node alone",
          "remove it from the job's environment"
      );
    }
    if (has_nul(value)) return fail(ErrorCode::kInvalid, "variable " + name + " has a NUL byte");
    bytes += name.size() + value.size() + 2;
  }
  if (start.env.size() > kMaxVariables || bytes > kMaxEnvironmentBytes)
    return fail(ErrorCode::kInvalid, "the environment is larger than 640 variables or 128 KiB");
  return {};
}

Status check_telling(const StartGuest& start) {
  if (start.tell_hook.size() > warden_wire::kTellHookMax || has_nul(start.tell_hook))
    return fail(ErrorCode::kInvalid, "the hook is longer than 4 KiB or has a NUL byte");
  if (!start.tell_hook.empty() && start.tell_api)
    return fail(ErrorCode::kInvalid, "the guest is told both by a hook and by the API");
  return {};
}

Status check_member(const StartGuest& start) {
  if (!start.gang) return {};
  const auto [rank, size] = std::pair(start.gang->rank, start.gang->size);
  if (size >= 2 && size <= gang_link::kRanks && rank < size) return {};
  return fail(
      ErrorCode::kInvalid,
      "rank " + std::to_string(rank) + " of " + std::to_string(size) + " is no member of a gang"
  );
}

Status check_work_folder(const std::string& folder) {
  const std::string_view why = warden_wire::why_no_work_folder(folder);
  if (why.empty()) return {};
  return fail(
      ErrorCode::kInvalid,
      "work folder \"" + folder + "\" " + std::string(why),
      "use a folder such as /work"
  );
}

Status check_data(const StartGuest& start) {
  RN_CHECK(check_data_sets(start.data, kMaxDataSetsOfJob, "data"));
  if (start.data.empty() || !is_in_data_folder(start.work_dir)) return {};
  return fail(
      ErrorCode::kInvalid,
      "work folder \"" + start.work_dir + "\" lies where the data sets are",
      "use a folder such as /work"
  );
}

Status check_resources(const StartGuest& start) {
  if (start.cpu_milli < 10 || start.cpu_milli > 1'024'000)
    return fail(ErrorCode::kInvalid, "cpu_milli must be 10 to 1,024,000");
  if (start.memory_mib < 16 || start.memory_mib > (std::uint64_t{64} << 20))
    return fail(ErrorCode::kInvalid, "memory_mib must be 16 to 67,108,864");
  if (start.max_pids < 4 || start.max_pids > 65'536)
    return fail(ErrorCode::kInvalid, "max_pids must be 4 to 65,536");
  if (start.log_limit_bytes > (std::uint64_t{1} << 32))
    return fail(ErrorCode::kInvalid, "log_limit_bytes must be at most 4 GiB");
  RN_CHECK(warden_wire::check_gpus(start.gpus));
  auto gpus = start.gpus;
  std::sort(gpus.begin(), gpus.end());
  if (std::adjacent_find(gpus.begin(), gpus.end()) != gpus.end())
    return fail(ErrorCode::kInvalid, "a GPU is named twice");
  return {};
}

json environment_of(const StartGuest& start, const ContainerSetting& place) {
  json list = json::array();
  // No PATH: the image's own stays, and the engine gives its usual one to an image without any.
  if (!start.env.contains("HOME")) list.push_back("HOME=" + start.work_dir);
  for (const auto& [name, value] : start.env) list.push_back(name + "=" + value);
  if (!start.gpus.empty()) list.push_back("NVIDIA_DRIVER_CAPABILITIES=compute,utility");
  // The image's list of libraries knows nothing of them.
  if (!place.gpu_driver.is_empty())
    list.push_back(std::string("LD_LIBRARY_PATH=") + kGpuDriverFolder);
  return list;
}

/// Half of the guest's memory, to which it is charged: workers that load data hand batches over
/// there.
std::uint64_t tmpfs_mib(const StartGuest& start) {
  return std::max(kTmpfsMiB, start.memory_mib / 2);
}

/// NOTE: the engine's own /dev/shm bounds bytes only; a guest filled it with 300,000 empty files.
std::string bounded_tmpfs(std::uint64_t mib) {
  return "rw,noexec,nosuid,nodev,mode=1777,nr_inodes=" + std::to_string(kTmpFiles) +
         ",size=" + std::to_string(mib) + "m";
}

json bind_mount(const std::string& source, const std::string& target, bool is_read_only) {
  // Type bind with rprivate: neither side's later mounts reach the other.
  return {
      {"Type", "bind"},
      {"Source", source},
      {"Target", target},
      {"ReadOnly", is_read_only},
      {"BindOptions", {{"Propagation", "rprivate"}}}};
}

json mounts(const StartGuest& start, const ContainerSetting& place) {
  json list = json::array(
      {bind_mount(place.work_source, start.work_dir, false),
       bind_mount(place.reclaim_source, "/reclaim", false),
       bind_mount(place.init_path, "/reclaim-init", true)}
  );
  // NOTE(Docker): a container without a network has the image's own.
  if (start.gang) list.push_back(bind_mount(place.hosts_path, "/etc/hosts", true));
  for (const std::string& name : start.data) {
    const std::string below = "/" + name;
    list.push_back(bind_mount(place.data_source + below, kDataFolder + below, true));
  }
  for (const auto& [file, target] : place.gpu_driver.libraries)
    list.push_back(bind_mount(file, target, true));
  if (!finds_slurm(start)) return list;
  for (const char* command : kSlurmCommands)
    list.push_back(bind_mount(place.init_path, std::string(kSlurmFolder) + command, true));
  return list;
}

json devices(const GpuDriver& driver) {
  json list = json::array();
  for (const std::string& device : driver.devices)
    list.push_back(
        {{"PathOnHost", device}, {"PathInContainer", device}, {"CgroupPermissions", "rw"}}
    );
  return list;
}

json device_requests(const StartGuest& start, GpuAccess access) {
  json list = json::array();
  const bool is_asked = access == GpuAccess::kDeviceRequests || access == GpuAccess::kCdi;
  if (start.gpus.empty() || !is_asked) return list;
  json ids = json::array();
  for (const std::uint32_t gpu : start.gpus) {
    const std::string index = std::to_string(gpu);
    ids.push_back(access == GpuAccess::kCdi ? "nvidia.com/gpu=" + index : index);
  }
  if (access == GpuAccess::kCdi) {
    list.push_back({{"Driver", "cdi"}, {"DeviceIDs", ids}});
  } else {
    list.push_back(
        {{"Driver", "nvidia"},
         {"DeviceIDs", ids},
         {"Capabilities", json::array({json::array({"gpu", "compute", "utility"})})}}
    );
  }
  return list;
}

json limit(const char* name, int value) {
  return {{"Name", name}, {"Soft", value}, {"Hard", value}};
}

/// Stricter than the engine's own, which in 20.10 allows io_uring, AF_VSOCK and 32-bit calls.
std::string seccomp_option() {
  return "seccomp=" + json::parse(kSeccompProfile).dump();
}

json host_config(const StartGuest& start, const ContainerSetting& place) {
  const std::uint64_t memory = start.memory_mib << 20;
  const std::string tmpfs = bounded_tmpfs(tmpfs_mib(start));
  return {
      {"Privileged", false},
      {"CapAdd", json::array()},
      {"CapDrop", json::array({"ALL"})},
      {"SecurityOpt", json::array({"no-new-privileges", seccomp_option()})},
      {"MaskedPaths", json(kMasked)},
      {"ReadonlyRootfs", true},
      {"UsernsMode", ""},
      {"PidMode", ""},
      {"UTSMode", ""},
      {"CgroupnsMode", "private"},
      {"IpcMode", "private"},
      {"ShmSize", tmpfs_mib(start) << 20},
      {"NetworkMode", "none"},
      {"PublishAllPorts", false},
      {"Tmpfs", {{"/dev/shm", tmpfs}, {"/tmp", tmpfs}}},
      {"Mounts", mounts(start, place)},
      {"Memory", memory},
      {"MemorySwap", memory},
      {"NanoCpus", std::uint64_t{start.cpu_milli} * 1'000'000},
      {"PidsLimit", start.max_pids},
      {"OomScoreAdj", kOomScoreAdj},
      {"OomKillDisable", false},
      {"Ulimits",
       json::array(
           {limit("core", 0),
            limit("msgqueue", kMessageQueueBytes),
            limit("nofile", kOpenFiles),
            limit("nproc", kProcessesOfUid),
            limit("sigpending", kQueuedSignals)}
       )},
      {"Devices", devices(place.gpu_driver)},
      {"DeviceRequests", device_requests(start, place.gpu_access)},
      {"CgroupParent", place.cgroup_parent},
      {"LogConfig", {{"Type", "none"}, {"Config", json::object()}}},
      {"RestartPolicy", {{"Name", "no"}, {"MaximumRetryCount", 0}}},
      {"AutoRemove", false}};
}

}  // namespace

std::string gpus_text(const std::vector<std::uint32_t>& gpus) {
  std::string text;
  for (const std::uint32_t gpu : gpus) text += (text.empty() ? "" : ",") + std::to_string(gpu);
  return text;
}

std::vector<std::uint32_t> gpus_in(const std::string& text) {
  std::vector<std::uint32_t> gpus;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    std::uint32_t gpu = 0;
    const auto [behind, error] = std::from_chars(at, end, gpu);
    if (error != std::errc() || gpu >= kMaxGpus || (behind != end && *behind != ',')) return {};
    gpus.push_back(gpu);
    at = behind + (behind != end);
  }
  return gpus;
}

std::string container_name(const std::string& lab, const GuestName& guest) {
  return "rn-" + lab + "-" + guest.job.str() + "-" + to_string(guest.epoch);
}

Status check_guest_name(const GuestName& guest) {
  const std::string& id = guest.job.str();
  const bool is_plain =
      !id.empty() && id.size() <= 64 && is_lower_or_digit(id.front()) &&
      is_lower_or_digit(id.back()) &&
      std::all_of(id.begin(), id.end(), [](char c) { return is_lower_or_digit(c) || c == '-'; });
  if (!is_plain) return fail(ErrorCode::kInvalid, "\"" + id + "\" is no job id");
  if (guest.epoch.is_none()) return fail(ErrorCode::kInvalid, "job " + id + " has no epoch");
  return {};
}

Status check_start(const StartGuest& start) {
  RN_CHECK(check_guest_name(start.guest));
  RN_CHECK(check_command(start));
  RN_CHECK(check_environment(start));
  RN_CHECK(check_telling(start));
  RN_CHECK(check_member(start));
  RN_CHECK(check_work_folder(start.work_dir));
  RN_CHECK(check_data(start));
  return check_resources(start);
}

Result<std::string> make_create_request(const StartGuest& start, const ContainerSetting& place) {
  RN_CHECK(check_start(start));
  json entry = json::array({"/reclaim-init"});
  if (finds_slurm(start)) entry.push_back("--slurm");
  if (start.gang) {
    entry.push_back("--member");
    entry.push_back(std::to_string(start.gang->rank));
  }
  if (!start.tell_hook.empty()) {
    entry.push_back("--tell-hook");
    entry.push_back(start.tell_hook);
  }
  if (start.tell_api) entry.push_back("--tell-api");
  entry.push_back(std::to_string(start.log_limit_bytes));
  entry.push_back(std::to_string(place.go_wait_s));
  entry.push_back(place.go_ticket);
  const std::string user = std::to_string(kGuestUid) + ":" + std::to_string(kGuestUid);
  const json request = {
      {"Image", place.image_id},
      {"Hostname", start.gang ? member_name(start.gang->rank) : "guest"},
      {"User", user},
      {"WorkingDir", start.work_dir},
      {"Entrypoint", entry},
      {"Cmd", start.command},
      {"Env", environment_of(start, place)},
      {"Tty", false},
      {"OpenStdin", false},
      {"AttachStdin", false},
      {"AttachStdout", false},
      {"AttachStderr", false},
      {"NetworkDisabled", true},
      {"StopSignal", "SIGKILL"},
      {"Labels",
       {{kJobLabel, start.guest.job.str()},
        {kEpochLabel, to_string(start.guest.epoch)},
        {kLabLabel, place.lab},
        {kSlotLabel, std::to_string(place.slot)},
        {kGpusLabel, gpus_text(start.gpus)},
        {kGoLabel, place.go_ticket}}},
      {"HostConfig", host_config(start, place)}};
  return request.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace rn::warden
