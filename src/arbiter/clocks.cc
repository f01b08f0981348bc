// SPDX-License-Identifier: Apache-2.0
#include "arbiter/clocks.h"

#include <algorithm>

namespace rn::arbiter {

namespace {

/// "5 h 3 min"; beyond two days only these.
std::string span_words(std::int64_t ms) {
  const std::int64_t minutes = ms / 60'000 + (ms % 60'000 >= 30'000 ? 1 : 0);
  if (minutes < 60) return std::to_string(minutes) + " min";
  if (minutes >= 48 * 60) return std::to_string(minutes / (24 * 60)) + " days";
  const std::string hours = std::to_string(minutes / 60) + " h";
  return minutes % 60 == 0 ? hours : hours + " " + std::to_string(minutes % 60) + " min";
}

bool has_hours(const Contract& contract) {
  return contract.lends && (!contract.windows.empty() || !contract.gpu_windows.empty());
}

/// A node may say of its clock what no clock shows.
std::int64_t size_of(std::int64_t ms) {
  return ms < 0 ? -std::max(ms, -INT64_MAX) : ms;
}

}  // namespace

bool are_clocks_apart(std::int64_t site_ahead_ms) {
  return size_of(site_ahead_ms) >= milliseconds(kClocksApart).count();
}

std::string clocks_words(const Contract& contract, std::int64_t site_ahead_ms) {
  if (!are_clocks_apart(site_ahead_ms)) return "";
  const bool is_ahead = site_ahead_ms < 0;
  const std::string span = span_words(size_of(site_ahead_ms));
  std::string words =
      "its clock is " + span + (is_ahead ? " ahead of" : " behind") + " the coordinator's";
  if (!has_hours(contract)) return words + "; no hours of its contract hang on that";
  return words + ": the hours of its contract are counted by its own clock, and by the " +
         "coordinator's guests leave and come " + span + (is_ahead ? " too early" : " too late");
}

}  // namespace rn::arbiter
