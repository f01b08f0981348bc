// SPDX-License-Identifier: Apache-2.0
#include "arbiter/calendar.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace rn::arbiter {

namespace {

constexpr std::int64_t kMinutesPerDay = 24 * 60;
constexpr std::array<std::string_view, 7> kDays = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

/// All digits, or -1.
int number(std::string_view text) {
  int value = 0;
  if (text.empty()) return -1;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  return value;
}

bool names_day(const LendingWindow& window, std::uint32_t weekday) {
  if (window.days.empty()) return true;
  return std::find(window.days.begin(), window.days.end(), kDays[weekday]) != window.days.end();
}

bool covers(const LendingWindow& window, const LocalTime& at) {
  const auto from = parse_minute(window.from);
  const auto to = parse_minute(window.to);
  if (!from || !to) return false;
  const std::uint32_t yesterday = (at.weekday + 6) % 7;
  if (*from < *to) return names_day(window, at.weekday) && at.minute >= *from && at.minute < *to;
  return (names_day(window, at.weekday) && at.minute >= *from) ||
         (names_day(window, yesterday) && at.minute < *to);
}

}  // namespace

LocalTime local_time(WallTime wall, std::int32_t utc_offset_s) {
  const std::int64_t minutes = floor_div(floor_div(to_ms(wall), 1000) + utc_offset_s, 60);
  LocalTime out;
  out.day = floor_div(minutes, kMinutesPerDay);
  out.minute = static_cast<std::uint32_t>(minutes - out.day * kMinutesPerDay);
  out.weekday = static_cast<std::uint32_t>(((out.day + 3) % 7 + 7) % 7);  // 1970-01-01: a Thursday
  return out;
}

std::optional<std::uint32_t> parse_minute(std::string_view text) {
  if (text.size() != 5 || text[2] != ':') return std::nullopt;
  const int hour = number(text.substr(0, 2));
  const int minute = number(text.substr(3, 2));
  if (hour < 0 || minute < 0 || minute > 59 || hour > 24 || (hour == 24 && minute != 0))
    return std::nullopt;
  return static_cast<std::uint32_t>(hour * 60 + minute);
}

std::optional<std::uint32_t> parse_weekday(std::string_view text) {
  const auto* const found = std::find(kDays.begin(), kDays.end(), text);
  if (found == kDays.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - kDays.begin());
}

std::optional<std::int64_t> parse_date(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  const int y = number(text.substr(0, 4));
  const int m = number(text.substr(5, 2));
  const int d = number(text.substr(8, 2));
  if (y < 0 || m < 0 || d < 0) return std::nullopt;
  const std::chrono::year_month_day date{
      std::chrono::year(y),
      std::chrono::month(static_cast<unsigned>(m)),
      std::chrono::day(static_cast<unsigned>(d))};
  if (!date.ok()) return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch().count();
}

bool is_inside_windows(const Contract& contract, const LocalTime& at) {
  if (contract.windows.empty()) return true;
  for (const std::string& holiday : contract.holidays) {
    if (parse_date(holiday) == at.day) return true;
  }
  return std::any_of(
      contract.windows.begin(),
      contract.windows.end(),
      [&](const LendingWindow& window) { return covers(window, at); }
  );
}

std::optional<seconds> time_to_change(
    const Contract& contract, WallTime wall, std::int32_t utc_offset_s
) {
  if (contract.windows.empty()) return std::nullopt;
  const bool now_inside = is_inside_windows(contract, local_time(wall, utc_offset_s));
  const std::int64_t second = floor_div(to_ms(wall), 1000) + utc_offset_s;
  std::int64_t ahead_s = 60 - (second - floor_div(second, 60) * 60);
  for (int i = 0; i < 8 * kMinutesPerDay; ++i, ahead_s += 60) {
    const LocalTime then = local_time(wall + seconds(ahead_s), utc_offset_s);
    if (is_inside_windows(contract, then) != now_inside) return seconds(ahead_s);
  }
  return std::nullopt;
}

Contract calendar_of_gpu(const Contract& contract, std::uint32_t gpu) {
  Contract out;
  out.time_zone = contract.time_zone;
  for (const GpuWindows& own : contract.gpu_windows) {
    if (own.gpu != gpu) continue;
    out.windows = own.windows;
    out.holidays = own.holidays;
  }
  return out;
}

std::string describe(const LocalTime& at) {
  char text[16];
  std::snprintf(
      text, sizeof text, "%s %02u:%02u", kDays[at.weekday].data(), at.minute / 60, at.minute % 60
  );
  return text;
}

}  // namespace rn::arbiter
