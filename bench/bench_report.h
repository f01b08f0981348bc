// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/utsname.h>

/// What every figure is printed with: machine, commit, n, median, p99 and maximum.
namespace rn::bench {

inline std::string first_line_of(const char* command) {
  std::array<char, 256> line{};
  FILE* pipe = popen(command, "r");
  if (pipe == nullptr) return {};
  if (std::fgets(line.data(), line.size(), pipe) == nullptr) line[0] = '\0';
  pclose(pipe);
  std::string text(line.data());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

inline std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

inline void print_machine(const char* what) {
  utsname kernel{};
  uname(&kernel);
  const std::string commit =
      first_line_of("git -C " RN_SOURCE_DIR " describe --always --dirty --abbrev=10 2>/dev/null");
  std::printf(
      "%s\nmachine: %u x %s, %s %s\ncommit: %s\n",
      what,
      std::thread::hardware_concurrency(),
      cpu_model().c_str(),
      kernel.sysname,
      kernel.release,
      commit.empty() ? "unknown" : commit.c_str()
  );
}

/// Nearest-rank quantile; `samples` need not be sorted and must not be empty.
inline double quantile(std::vector<double> samples, double q) {
  std::sort(samples.begin(), samples.end());
  const double rank = q * static_cast<double>(samples.size() - 1) + 0.5;
  return samples[std::min(samples.size() - 1, static_cast<std::size_t>(rank))];
}

}  // namespace rn::bench
