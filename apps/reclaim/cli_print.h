// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace rn::cli {

/// Columns as wide as their widest cell, which is made printable; the last one is not padded.
std::string table(
    const std::vector<std::string>& heads, const std::vector<std::vector<std::string>>& rows
);

/// The text, or "-" for none.
std::string dash(const std::string& text);
/// "a,b"
std::string listed(const std::vector<std::string>& names);
/// At most so many columns, with "..." for what is left out. Printable, because what is cut must
/// not be within a character.
std::string shorten(const std::string& text, std::size_t columns);
/// "12 s", "5 min", "3.5 h", "2.0 d"
std::string duration_words(double seconds);
/// Of a share from 0 to 1: "97 %"
std::string percent_words(double share);
/// "3 min ago", "in 2 h"; "-" for 0.
std::string relative_time(std::int64_t wall_ms, std::int64_t now_wall_ms);
/// RFC 3339 in UTC; "-" for 0.
std::string absolute_time(std::int64_t wall_ms);
std::int64_t wall_now_ms();
/// "1.5 GiB"
std::string human_bytes(std::uint64_t bytes);

/// JSON of the coordinator, meaning the same and safe to show.
void print_json(const std::string& text);

/// Exit status after Ctrl-C, as a shell shows it.
inline constexpr int kInterruptedStatus = 130;

/// The exit status after standard output failed so: without a word when its reader has gone.
int end_of_output(const Error& error);

/// "reclaim: MESSAGE" and "  next: HINT" on stderr; answers the exit code of the error.
int complain(const Error& error);

/// One line on stderr: redrawn on a terminal, every ten seconds otherwise.
class Progress {
 public:
  Progress(std::string what, std::uint64_t total_bytes);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::uint64_t bytes);

 private:
  void draw();

  std::string what_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  bool is_terminal_;
  std::chrono::steady_clock::time_point begun_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace rn::cli
