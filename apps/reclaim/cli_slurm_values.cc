// SPDX-License-Identifier: Apache-2.0
#include "cli_slurm_values.h"

#include <array>
#include <cctype>
#include <charconv>
#include <map>

namespace rn::cli {

SlurmParts slurm_parts(const std::string& text, char at) {
  SlurmParts parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::optional<std::uint64_t> slurm_digits(const std::string& text, std::uint64_t most) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [last, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || last != end || value > most) return std::nullopt;
  return value;
}

std::string slurm_upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::optional<std::uint64_t> slurm_seconds(const std::string& text) {
  const std::string word = slurm_upper(text);
  if (word == "UNLIMITED" || word == "INFINITE") return 0;
  const auto dash = text.find('-');
  const bool has_days = dash != std::string::npos;
  const SlurmParts parts = slurm_parts(has_days ? text.substr(dash + 1) : text, ':');
  if (parts.size() > 3) return std::nullopt;
  // What the first part counts: hours behind days; alone, minutes.
  constexpr std::array<std::uint64_t, 3> kUnits = {3600, 60, 1};
  const std::size_t first = has_days || parts.size() == 3 ? 0 : 1;
  std::uint64_t total = 0;
  if (has_days) {
    const auto days = slurm_digits(text.substr(0, dash), kSlurmSecondsMax);
    if (!days) return std::nullopt;
    total = *days * 86'400;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto value = slurm_digits(parts[i], kSlurmSecondsMax);
    if (!value) return std::nullopt;
    total += *value * kUnits[first + i];
  }
  if (total > kSlurmSecondsMax) return std::nullopt;
  return total;
}

std::optional<std::uint64_t> slurm_mib(const std::string& text) {
  std::string word = slurm_upper(text);
  if (word.ends_with("IB")) {
    word.resize(word.size() - 2);
  } else if (word.ends_with('B')) {
    word.pop_back();
  }
  const char unit = word.empty() ? '\0' : word.back();
  if (std::isalpha(static_cast<unsigned char>(unit)) != 0) word.pop_back();
  const auto number = slurm_digits(word, kSlurmMibMax * 1024);
  if (!number) return std::nullopt;
  std::uint64_t mib = *number;
  if (unit == 'K') {
    mib = (*number + 1023) / 1024;
  } else if (unit == 'G') {
    mib = *number * 1024;
  } else if (unit == 'T') {
    mib = *number * 1024 * 1024;
  } else if (unit != 'M' && std::isalpha(static_cast<unsigned char>(unit)) != 0) {
    return std::nullopt;
  }
  if (mib > kSlurmMibMax) return std::nullopt;
  return mib;
}

std::optional<SaveSignal> save_signal_named(std::string name) {
  static const std::map<std::string, SaveSignal> kSignals = {
      {"USR1", SaveSignal::kUsr1},
      {"10", SaveSignal::kUsr1},
      {"USR2", SaveSignal::kUsr2},
      {"12", SaveSignal::kUsr2},
      {"TERM", SaveSignal::kTerm},
      {"15", SaveSignal::kTerm}};
  if (name.starts_with("SIG")) name.erase(0, 3);
  const auto found = kSignals.find(name);
  if (found == kSignals.end()) return std::nullopt;
  return found->second;
}

}  // namespace rn::cli
