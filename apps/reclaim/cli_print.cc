// SPDX-License-Identifier: Apache-2.0
#include "cli_print.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "cli_client.h"
#include <unistd.h>

#include "base/error_words.h"
#include "base/printable.h"
#include "io/standard_output.h"

namespace rn::cli {

std::string table(
    const std::vector<std::string>& heads, const std::vector<std::vector<std::string>>& rows
) {
  std::vector<std::vector<std::string>> shown = rows;
  std::vector<std::size_t> widths;
  for (const std::string& head : heads) widths.push_back(head.size());
  for (auto& row : shown) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = printable(row[i]);
      widths[i] = std::max(widths[i], columns_of(row[i]));
    }
  }
  std::string text;
  const auto put = [&](const std::vector<std::string>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text += std::string(widths[i] - columns_of(row[i]) + 2, ' ');
    }
    text += '\n';
  };
  put(heads);
  for (const auto& row : shown) put(row);
  return text;
}

std::string dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

std::string shorten(const std::string& text, std::size_t columns) {
  std::string shown = printable(text);
  if (columns_of(shown) <= columns) return shown;
  while (columns_of(shown) > columns - 3) {
    while ((static_cast<unsigned char>(shown.back()) & 0xc0) == 0x80) shown.pop_back();
    shown.pop_back();
  }
  return shown + "...";
}

std::string duration_words(double seconds) {
  char text[48];
  if (seconds < 120) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else if (seconds < 7200) {
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  } else if (seconds < 172'800) {
    std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
  } else {
    std::snprintf(text, sizeof text, "%.1f d", seconds / 86'400);
  }
  return text;
}

std::string percent_words(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
  return text;
}

std::string relative_time(std::int64_t wall_ms, std::int64_t now_wall_ms) {
  if (wall_ms == 0) return "-";
  const std::int64_t away_s = std::abs(now_wall_ms - wall_ms) / 1000;
  std::string text;
  if (away_s < 120) {
    text = std::to_string(away_s) + " s";
  } else if (away_s < 7200) {
    text = std::to_string(away_s / 60) + " min";
  } else if (away_s < 172'800) {
    text = std::to_string(away_s / 3600) + " h";
  } else {
    text = std::to_string(away_s / 86'400) + " d";
  }
  return wall_ms > now_wall_ms ? "in " + text : text + " ago";
}

std::string absolute_time(std::int64_t wall_ms) {
  if (wall_ms == 0) return "-";
  const std::time_t seconds_part = wall_ms / 1000;
  std::tm utc{};
  ::gmtime_r(&seconds_part, &utc);
  char text[40];
  const std::size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  char rest[16];
  std::snprintf(rest, sizeof(rest), ".%03dZ", static_cast<int>(wall_ms % 1000));
  return std::string(text, length) + rest;
}

std::int64_t wall_now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

std::string human_bytes(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

void print_json(const std::string& text) {
  std::printf("%s\n", printable_json(text).c_str());
}

int end_of_output(const Error& error) {
  return error.code == ErrorCode::kUnavailable ? io::kReaderGone : complain(error);
}

int complain(const Error& error) {
  std::fprintf(stderr, "reclaim: %s\n", printable_lines(error.message).c_str());
  const std::string hint = error.hint.empty() ? "see 'reclaim --help'" : error.hint;
  std::fprintf(stderr, "  next: %s\n", printable_lines(hint).c_str());
  return exit_code_of(error.code);
}

Progress::Progress(std::string what, std::uint64_t total_bytes)
    : what_(std::move(what)),
      total_(total_bytes),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      begun_(std::chrono::steady_clock::now()),
      drawn_(begun_) {}

Progress::~Progress() {
  if (is_terminal_ && drawn_ != begun_) std::fprintf(stderr, "\r\033[K");
}

void Progress::advance(std::uint64_t bytes) {
  done_ += bytes;
  const auto now = std::chrono::steady_clock::now();
  const auto period =
      is_terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(10'000);
  if (now - drawn_ < period) return;
  drawn_ = now;
  draw();
}

void Progress::draw() {
  const std::string text =
      printable(what_) + ": " + human_bytes(done_) + " of " + human_bytes(total_);
  std::fprintf(stderr, is_terminal_ ? "\r\033[K%s" : "%s\n", text.c_str());
  std::fflush(stderr);
}

}  // namespace rn::cli
