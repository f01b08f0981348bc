// SPDX-License-Identifier: Apache-2.0
#include "owner_trace.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <fmt/core.h>
#include <zlib.h>

namespace rn::bench {
namespace {

constexpr int kGpusPerNode = 8;

struct Row {
  std::int64_t at_ms = 0;
  int total = 0;
  int idle = 0;
};

Result<Row> parse_row(const char* line, const std::string& where) {
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  int hour = 0;
  int minute = 0;
  int second = 0;
  Row row;
  const int read = std::sscanf(
      line,
      "%d-%u-%u %d:%d:%d,%d,%d",
      &year,
      &month,
      &day,
      &hour,
      &minute,
      &second,
      &row.total,
      &row.idle
  );
  const std::chrono::year_month_day date{
      std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)};
  if (read != 8 || !date.ok() || row.total <= 0 || row.idle < 0) {
    return fail(ErrorCode::kInvalid, where + ": expected time,total_gpus,idle_gpus");
  }
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  row.at_ms = days * kDayMs + ((hour * 60 + minute) * 60 + second) * std::int64_t{1000};
  return row;
}

Result<std::vector<Row>> read_rows(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) return fail(ErrorCode::kNotFound, path + ": cannot be opened");
  std::vector<Row> rows;
  std::array<char, 512> line{};
  for (std::size_t number = 1; gzgets(file.get(), line.data(), line.size()) != nullptr; ++number) {
    if (number == 1) continue;  // names of the columns
    RN_TRY(const Row row, parse_row(line.data(), fmt::format("{}:{}", path, number)));
    if (!rows.empty() && row.at_ms <= rows.back().at_ms) {
      return fail(ErrorCode::kInvalid, fmt::format("{}:{}: time goes backwards", path, number));
    }
    rows.push_back(row);
  }
  if (rows.empty()) return fail(ErrorCode::kInvalid, path + ": no rows");
  return rows;
}

/// The spells of one node.
void add_spells(
    const std::vector<Row>& rows,
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
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0 && rows[i].at_ms > rows[i - 1].at_ms + kMinuteMs) {
      end(rows[i - 1].at_ms + kMinuteMs, false);
    }
    const bool is_free = rows[i].idle >= threshold;
    if (is_free && free_since_ms < 0) free_since_ms = rows[i].at_ms;
    if (!is_free) end(rows[i].at_ms, true);
  }
  end(rows.back().at_ms + kMinuteMs, false);
}

LabTrace lab_trace(
    const std::string& name, std::size_t index, const std::vector<Row>& rows, int idle_minutes
) {
  int total = 0;
  for (const Row& row : rows) total = std::max(total, row.total);
  const int size = std::min(total, kGpusPerNode);
  LabTrace lab{
      .name = name,
      .nodes = static_cast<std::size_t>(total / size),
      .begins_ms = rows.front().at_ms,
      .ends_ms = rows.back().at_ms + kMinuteMs};
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].at_ms > rows[i - 1].at_ms + kMinuteMs) ++lab.gaps;
  }
  for (std::size_t k = 0; k < lab.nodes; ++k) {
    const int threshold = size * (static_cast<int>(k) + 1);
    add_spells(rows, threshold, idle_minutes, {.lab = index, .node = k}, lab.spells);
  }
  return lab;
}

}  // namespace

Result<std::vector<LabTrace>> read_owner_traces(const std::string& folder, int idle_minutes) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().string().ends_with(".csv.gz")) files.push_back(entry.path());
  }
  if (error || files.empty()) {
    return fail(ErrorCode::kNotFound, folder + ": no LAB.csv.gz there");
  }
  std::sort(files.begin(), files.end());
  std::vector<LabTrace> labs;
  for (const auto& file : files) {
    RN_TRY(const std::vector<Row> rows, read_rows(file.string()));
    const std::string name = file.filename().string();
    labs.push_back(lab_trace(name.substr(0, name.find('.')), labs.size(), rows, idle_minutes));
  }
  return labs;
}

}  // namespace rn::bench
