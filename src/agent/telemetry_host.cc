// SPDX-License-Identifier: Apache-2.0
#include "agent/telemetry_host.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/telemetry_logins.h"
#include "io/read_text.h"

namespace rn::agent {

namespace {

constexpr std::uint64_t kNobodySeen = 365ULL * 24 * 3600;

std::uint64_t field_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  std::string key;
  std::uint64_t value = 0;
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    if (words >> key >> value && key == name) return value;
  }
  return 0;
}

/// What a group's memory.stat says of its own memory and of what lies in memory for good
/// (/dev/shm), with all below it. Of v1 the names are others.
std::uint64_t held_bytes(const std::string& stat) {
  const std::uint64_t own = field_of(stat, "anon");
  return own > 0 ? own + field_of(stat, "shmem")
                 : field_of(stat, "total_rss") + field_of(stat, "total_shmem");
}

/// Of v2 cpu.stat says it in microseconds, of v1 cpuacct.usage in nanoseconds.
std::uint64_t used_cpu_ms(const std::filesystem::path& group) {
  const std::string stat = io::read_text((group / "cpu.stat").string());
  if (const std::uint64_t us = field_of(stat, "usage_usec"); us > 0) return us / 1000;
  std::istringstream text(io::read_text((group / "cpuacct.usage").string()));
  std::uint64_t ns = 0;
  return text >> ns ? ns / 1'000'000 : 0;
}

/// Calls `look` with each group in those below `top` whose names begin with `guest_group`.
template <class Look>
void each_group_in(const std::string& top, const std::string& guest_group, Look look) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator lab(top, error), end; !error && lab != end; lab.increment(error)) {
    if (!lab->path().filename().string().starts_with(guest_group)) continue;
    std::error_code gone;
    for (fs::directory_iterator guest(lab->path(), gone), last; !gone && guest != last;
         guest.increment(gone))
      look(guest->path());
  }
}

}  // namespace

Result<std::string> HostSampler::read(const std::string& path) const {
  std::ifstream file(root_ + path);
  if (!file) return fail(ErrorCode::kNotFound, "cannot read " + root_ + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Status HostSampler::sample(NodeTelemetry& out) {
  RN_TRY(const std::string stat, read("/proc/stat"));
  RN_TRY(const std::string memory, read("/proc/meminfo"));
  std::istringstream words(stat);
  std::string name;
  words >> name;
  if (name != "cpu") return fail(ErrorCode::kInvalid, "/proc/stat does not begin with cpu");
  // user nice system idle iowait irq softirq steal; guest time is inside user already.
  std::uint64_t total = 0;
  std::uint64_t idle = 0;
  for (int i = 0; i < 8; ++i) {
    std::uint64_t value = 0;
    if (!(words >> value)) break;
    total += value;
    if (i == 3 || i == 4) idle += value;
  }
  const std::uint64_t busy = total - idle;
  if (total_ != 0 && total > total_)
    out.cpu_percent = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(100, (busy - std::min(busy, busy_)) * 100 / (total - total_))
    );
  busy_ = busy;
  total_ = total;
  const std::uint64_t all = field_of(memory, "MemTotal:");
  const std::uint64_t available = field_of(memory, "MemAvailable:");
  out.memory_used_mib = (all - std::min(all, available)) / 1024;
  out.logins = count_logins(root_);
  return {};
}

std::uint64_t HostSampler::idle_s(WallTime now) {
  std::int64_t youngest_s = 0;
  const auto look = [&](const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0)
      youngest_s = std::max<std::int64_t>(youngest_s, info.st_atime);
  };
  const std::string terminals = root_ + "/dev/pts";
  if (DIR* const folder = ::opendir(terminals.c_str())) {
    while (const dirent* const entry = ::readdir(folder)) {
      const std::string name = entry->d_name;
      if (!name.empty() && name.front() >= '0' && name.front() <= '9') look(terminals + "/" + name);
    }
    ::closedir(folder);
  }
  for (int i = 1; i <= 6; ++i) look(root_ + "/dev/tty" + std::to_string(i));
  // Mice and keyboards: their interrupts count up while somebody moves them.
  if (const auto text = read("/proc/interrupts")) {
    std::uint64_t sum = 0;
    std::istringstream lines(*text);
    std::string line;
    while (std::getline(lines, line)) {
      if (line.find("i8042") == std::string::npos && line.find("hid") == std::string::npos)
        continue;
      std::istringstream words(line);
      std::string skip;
      words >> skip;
      std::uint64_t value = 0;
      while (words >> value) sum += value;
    }
    if (interrupts_ != 0 && sum != interrupts_) input_at_ = now;
    interrupts_ = sum;
  }
  if (input_at_) youngest_s = std::max(youngest_s, to_ms(*input_at_) / 1000);
  if (youngest_s == 0) return kNobodySeen;
  const std::int64_t now_s = to_ms(now) / 1000;
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, now_s - youngest_s));
}

std::map<std::string, std::uint64_t> HostSampler::guest_memory_mib(const std::string& guest_group
) const {
  std::map<std::string, std::uint64_t> found;
  for (const char* top : {"/sys/fs/cgroup", "/sys/fs/cgroup/memory"}) {
    each_group_in(root_ + top, guest_group, [&found](const std::filesystem::path& guest) {
      const std::string stat = io::read_text((guest / "memory.stat").string());
      if (const std::uint64_t bytes = held_bytes(stat); bytes > 0)
        found[guest.filename().string()] = (bytes + (1U << 20) - 1) >> 20;
    });
  }
  return found;
}

std::map<std::string, std::uint64_t> HostSampler::guest_cpu_ms(const std::string& guest_group
) const {
  std::map<std::string, std::uint64_t> found;
  for (const char* top : {"/sys/fs/cgroup", "/sys/fs/cgroup/cpuacct"}) {
    each_group_in(root_ + top, guest_group, [&found](const std::filesystem::path& guest) {
      if (const std::uint64_t ms = used_cpu_ms(guest); ms > 0)
        found[guest.filename().string()] = ms;
    });
  }
  return found;
}

Result<std::uint32_t> HostSampler::cpu_milli() const {
  RN_TRY(const std::string stat, read("/proc/stat"));
  std::istringstream lines(stat);
  std::string line;
  std::uint32_t cores = 0;
  while (std::getline(lines, line)) {
    if (line.size() > 3 && line.starts_with("cpu") && line[3] >= '0' && line[3] <= '9') ++cores;
  }
  if (cores == 0) return fail(ErrorCode::kInvalid, "/proc/stat names no cores");
  return cores * 1000;
}

Result<std::uint64_t> HostSampler::memory_mib() const {
  RN_TRY(const std::string memory, read("/proc/meminfo"));
  return field_of(memory, "MemTotal:") / 1024;
}

std::string HostSampler::kernel() const {
  std::string text = read("/proc/sys/kernel/osrelease").value_or("");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string HostSampler::cgroup_version() const {
  const auto exists = [&](const std::string& path) {
    struct stat info {};
    return ::stat((root_ + path).c_str(), &info) == 0;
  };
  if (exists("/sys/fs/cgroup/cgroup.controllers")) return "v2";
  return exists("/sys/fs/cgroup/unified/cgroup.controllers") ? "hybrid" : "v1";
}

bool HostSampler::lacks_apparmor_parser() const {
  const std::string enabled = read("/sys/module/apparmor/parameters/enabled").value_or("");
  if (!enabled.starts_with('Y')) return false;
  const std::array folders{"/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"};
  return std::none_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    return ::access((root_ + folder + "/apparmor_parser").c_str(), X_OK) == 0;
  });
}

bool HostSampler::has_user_namespaces() const {
  const auto limit = read("/proc/sys/user/max_user_namespaces");
  return limit && std::atoll(limit->c_str()) > 0;
}

}  // namespace rn::agent
