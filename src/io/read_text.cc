// SPDX-License-Identifier: Apache-2.0
#include "io/read_text.h"

#include <array>
#include <charconv>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

namespace rn::io {
namespace {

constexpr std::size_t kMaxBytes = 16 << 20;

}  // namespace

// NOTE(libstdc++): a stream buffer throws where read(2) fails, whatever its stream's exception
// mask.
std::string read_text(const std::string& path) {
  std::string text;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  std::array<char, 8192> part{};
  for (ssize_t got = 0; text.size() < kMaxBytes && (got = read(fd, part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(got));
  close(fd);
  return text;
}

std::vector<pid_t> all_pids() {
  std::vector<pid_t> pids;
  DIR* const folder = opendir("/proc");
  if (folder == nullptr) return pids;
  while (const dirent* const entry = readdir(folder)) {
    const char* const end = entry->d_name + std::strlen(entry->d_name);
    pid_t pid = 0;
    const auto [stop, error] = std::from_chars(entry->d_name, end, pid);
    if (error == std::errc() && stop == end) pids.push_back(pid);
  }
  closedir(folder);
  return pids;
}

}  // namespace rn::io
