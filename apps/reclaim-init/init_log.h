// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <ctime>

#include <unistd.h>

namespace rn::init {

inline std::int64_t now_ms() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1000 + t.tv_nsec / 1'000'000;
}

/// What the guest prints, up to a limit, and our own words.
struct Log {
  static constexpr char kLimitReached[] =
      "\n[reclaimnet] log limit reached; further output is dropped\n";

  int fd = -1;
  std::uint64_t left = 0;
  bool is_full = false;

  void put(const char* bytes, std::size_t size) {
    while (size > 0) {
      const ssize_t wrote = write(fd, bytes, size);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return;  // a full disk loses log bytes, never the guest
      bytes += wrote;
      size -= static_cast<std::size_t>(wrote);
    }
  }

  void take(const char* bytes, std::size_t size) {
    if (is_full) return;
    const bool fits = size <= left;
    put(bytes, fits ? size : static_cast<std::size_t>(left));
    left -= fits ? size : left;
    if (fits) return;
    is_full = true;
    put(kLimitReached, sizeof kLimitReached - 1);
  }

  /// One line; it counts as the guest's own.
  void say(const char* text, const char* detail) {
    char line[512];
    const int size = snprintf(line, sizeof line, "[reclaimnet] %s: %s\n", text, detail);
    if (size <= 0) return;
    const auto length = static_cast<std::size_t>(size);
    take(line, length < sizeof line ? length : sizeof line - 1);
  }
};

}  // namespace rn::init
