// SPDX-License-Identifier: Apache-2.0
#include "evaluate/owner_trace.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/core.h>

#include "evaluate/trace_rows.h"

namespace rn::evaluate {
namespace {

constexpr int kGpusPerNode = 8;
constexpr std::int64_t kMostGpusOfLab = 100'000;

struct Minute {
  std::int64_t at_ms = 0;
  int total = 0;
  int idle = 0;
};

Result<std::vector<Minute>> parse_minutes(
    std::string_view text, const std::string& file, TraceGaps gaps
) {
  constexpr std::size_t kTime = 0;
  constexpr std::size_t kTotal = 1;
  constexpr std::size_t kIdle = 2;
  RN_TRY(TraceRows rows, TraceRows::open(text, file, {"time", "total_gpus", "idle_gpus"}));
  std::vector<Minute> minutes;
  while (true) {
    RN_TRY(const bool is_row, rows.next());
    if (!is_row) break;
    Minute minute;
    RN_TRY(minute.at_ms, rows.local_time_ms(kTime));
    RN_TRY(const std::int64_t total, rows.integer(kTotal, 1, kMostGpusOfLab));
    RN_TRY(const std::int64_t idle, rows.integer(kIdle, 0, total));
    minute.total = static_cast<int>(total);
    minute.idle = static_cast<int>(idle);
    if (minute.at_ms % kMinuteMs != 0) return rows.fail_here("time is no whole minute");
    const std::optional<std::int64_t> before =
        minutes.empty() ? std::nullopt : std::optional(minutes.back().at_ms);
    if (before && minute.at_ms <= *before)
      return rows.fail_here(
          "time does not ascend: " + local_time_words(*before) + " stands before it",
          "sort the rows by time, and leave each minute in once"
      );
    if (before && minute.at_ms > *before + kMinuteMs && gaps == TraceGaps::kRefused)
      return rows.fail_here(
          fmt::format(
              "{} minutes are missing, from {} on",
              (minute.at_ms - *before) / kMinuteMs - 1,
              local_time_words(*before + kMinuteMs)
          ),
          "fill them in, or let nothing be lent there (--gaps-end)"
      );
    minutes.push_back(minute);
  }
  if (minutes.empty()) return rows.fail_here("there are no rows");
  return minutes;
}

/// The spells of one node.
void add_spells(
    const std::vector<Minute>& minutes,
    int threshold,
    int idle_minutes,
    LentSpell node,
    std::vector<LentSpell>& out
) {
  std::int64_t free_since_ms = -1;
  const auto end = [&](std::int64_t at_ms, bool is_reclaimed) {
    const std::int64_t lent_ms = free_since_ms + idle_minutes * kMinuteMs;
    if (free_since_ms >= 0 && at_ms > lent_ms) {
      node.from_ms = lent_ms;
      node.to_ms = at_ms;
      node.is_reclaimed = is_reclaimed;
      out.push_back(node);
    }
    free_since_ms = -1;
  };
  for (std::size_t i = 0; i < minutes.size(); ++i) {
    if (i > 0 && minutes[i].at_ms > minutes[i - 1].at_ms + kMinuteMs)
      end(minutes[i - 1].at_ms + kMinuteMs, false);
    const bool is_free = minutes[i].idle >= threshold;
    if (is_free && free_since_ms < 0) free_since_ms = minutes[i].at_ms;
    if (!is_free) end(minutes[i].at_ms, true);
  }
  end(minutes.back().at_ms + kMinuteMs, false);
}

LabTrace lab_trace(const std::string& name, const std::vector<Minute>& minutes, int idle_minutes) {
  int total = 0;
  for (const Minute& minute : minutes) total = std::max(total, minute.total);
  const int size = std::min(total, kGpusPerNode);
  LabTrace lab{
      .name = name,
      .nodes = static_cast<std::size_t>(total / size),
      .gpus_per_node = static_cast<std::size_t>(size),
      .begins_ms = minutes.front().at_ms,
      .ends_ms = minutes.back().at_ms + kMinuteMs};
  for (std::size_t i = 1; i < minutes.size(); ++i) {
    if (minutes[i].at_ms > minutes[i - 1].at_ms + kMinuteMs) ++lab.gaps;
  }
  for (std::size_t k = 0; k < lab.nodes; ++k) {
    const int threshold = size * (static_cast<int>(k) + 1);
    add_spells(minutes, threshold, idle_minutes, {.node = k}, lab.spells);
  }
  return lab;
}

}  // namespace

Result<LabTrace> parse_owner_trace(
    std::string_view text,
    const std::string& file,
    const std::string& lab,
    const OwnerTraceRule& rule
) {
  RN_TRY(const std::vector<Minute> minutes, parse_minutes(text, file, rule.gaps));
  return lab_trace(lab, minutes, rule.idle_minutes);
}

Result<LabTrace> read_owner_trace(const std::string& path, const OwnerTraceRule& rule) {
  RN_TRY(const std::string text, read_trace_text(path));
  const std::string name = std::filesystem::path(path).filename().string();
  return parse_owner_trace(text, path, name.substr(0, name.find('.')), rule);
}

Result<std::vector<LabTrace>> read_owner_traces(
    const std::string& folder, const OwnerTraceRule& rule
) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().string().ends_with(".csv.gz")) files.push_back(entry.path());
  }
  if (error || files.empty()) return fail(ErrorCode::kNotFound, folder + ": no LAB.csv.gz there");
  std::sort(files.begin(), files.end());
  std::vector<LabTrace> labs;
  for (const auto& file : files) {
    RN_TRY(LabTrace lab, read_owner_trace(file.string(), rule));
    for (LentSpell& spell : lab.spells) spell.lab = labs.size();
    labs.push_back(std::move(lab));
  }
  return labs;
}

}  // namespace rn::evaluate
