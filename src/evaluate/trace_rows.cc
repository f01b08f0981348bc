// SPDX-License-Identifier: Apache-2.0
#include "evaluate/trace_rows.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <memory>

#include <fmt/core.h>
#include <zlib.h>

namespace rn::evaluate {

namespace {

constexpr std::int64_t kMsOfDay = 86'400'000;
constexpr std::size_t kShown = 60;  ///< characters of a bad field that are repeated

std::string shown(std::string_view text) {
  std::string out(text.substr(0, kShown));
  for (char& c : out) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return text.size() > kShown ? out + "..." : out;
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const std::size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos || fields.size() > kMaxTraceColumns) return fields;
    line.remove_prefix(comma + 1);
  }
}

template <class T>
bool parse_whole(std::string_view text, T& out) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

/// Digits only, so many.
bool parse_digits(std::string_view text, std::size_t from, std::size_t count, int& out) {
  const std::string_view part = text.substr(from, count);
  const bool are_digits =
      std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
  return part.size() == count && are_digits && parse_whole(part, out);
}

}  // namespace

Result<std::string> read_trace_text(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) return fail(ErrorCode::kNotFound, path + ": cannot be opened", "name a trace file");
  std::string text;
  std::vector<char> piece(1u << 16);
  while (true) {
    const int got = gzread(file.get(), piece.data(), static_cast<unsigned>(piece.size()));
    if (got < 0)
      return fail(ErrorCode::kCorrupt, path + ": does not unpack", "fetch or convert it again");
    if (got == 0) break;
    text.append(piece.data(), static_cast<std::size_t>(got));
    if (text.size() > kMaxTraceBytes)
      return fail(
          ErrorCode::kExhausted, path + ": is larger than 256 MiB", "give a shorter stretch of time"
      );
  }
  int status = Z_OK;
  gzerror(file.get(), &status);
  if (status != Z_OK && status != Z_STREAM_END)
    return fail(ErrorCode::kCorrupt, path + ": ends in the middle", "fetch or convert it again");
  return text;
}

bool TraceRows::next_line(std::string_view& line) {
  if (rest_.empty()) return false;
  const std::size_t end = rest_.find('\n');
  line = rest_.substr(0, end);
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  ++line_;
  return true;
}

Result<TraceRows> TraceRows::open(
    std::string_view text, std::string file, std::initializer_list<std::string_view> columns
) {
  TraceRows rows;
  rows.rest_ = text;
  rows.file_ = std::move(file);
  std::string wanted;
  for (const std::string_view name : columns) {
    rows.names_.emplace_back(name);
    wanted += (wanted.empty() ? "" : ",") + std::string(name);
  }
  const std::string hint = "its first line names the columns " + wanted;
  std::string_view line;
  rows.line_ = 0;
  if (!rows.next_line(line)) {
    rows.line_ = 1;
    return rows.fail_here("the file is empty", hint);
  }
  const std::vector<std::string_view> found = split(line);
  if (found.size() > kMaxTraceColumns) return rows.fail_here("has too many columns", hint);
  for (const std::string& name : rows.names_) {
    const auto at = std::find(found.begin(), found.end(), name);
    if (at == found.end())
      return rows.fail_here("has no column " + name + ", but " + shown(line), hint);
    if (std::find(std::next(at), found.end(), name) != found.end())
      return rows.fail_here("has column " + name + " twice", hint);
    rows.places_.push_back(static_cast<std::size_t>(at - found.begin()));
  }
  rows.width_ = found.size();
  return rows;
}

Result<bool> TraceRows::next() {
  std::string_view line;
  if (!next_line(line)) return false;
  fields_ = split(line);
  if (fields_.size() != width_)
    return fail_here(fmt::format(
        "has {} fields where the first line names {}: {}", fields_.size(), width_, shown(line)
    ));
  return true;
}

std::string TraceRows::column_words(std::size_t column) const {
  return names_[column] + " is \"" + shown(field(column)) + "\"";
}

Result<std::int64_t> TraceRows::integer(std::size_t column, std::int64_t low, std::int64_t high)
    const {
  std::int64_t value = 0;
  if (!parse_whole(field(column), value))
    return fail_here(column_words(column) + ", which is no whole number");
  if (value < low || value > high)
    return fail_here(fmt::format("{}, not in {} to {}", column_words(column), low, high));
  return value;
}

Result<double> TraceRows::number(std::size_t column, double low, double high) const {
  double value = 0;
  if (!parse_whole(field(column), value) || !std::isfinite(value))
    return fail_here(column_words(column) + ", which is no number");
  if (value < low || value > high)
    return fail_here(fmt::format("{}, not in {} to {}", column_words(column), low, high));
  return value;
}

Result<std::int64_t> TraceRows::local_time_ms(std::size_t column) const {
  const std::string_view text = field(column);
  std::array<int, 6> part{};
  constexpr std::array<std::size_t, 6> kFrom = {0, 5, 8, 11, 14, 17};
  bool is_time = text.size() == 19 && text[4] == '-' && text[7] == '-' && text[10] == ' ' &&
                 text[13] == ':' && text[16] == ':';
  for (std::size_t i = 0; is_time && i < part.size(); ++i)
    is_time = parse_digits(text, kFrom[i], i == 0 ? 4 : 2, part[i]);
  const std::chrono::year_month_day date{
      std::chrono::year(part[0]),
      std::chrono::month(static_cast<unsigned>(part[1])),
      std::chrono::day(static_cast<unsigned>(part[2]))};
  is_time = is_time && date.ok() && part[3] < 24 && part[4] < 60 && part[5] < 60;
  if (!is_time)
    return fail_here(column_words(column) + ", which is no time", "write it 2020-05-01 00:00:00");
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return days * kMsOfDay + ((part[3] * 60 + part[4]) * 60 + part[5]) * std::int64_t{1000};
}

tl::unexpected<Error> TraceRows::fail_here(std::string_view what, std::string hint) const {
  return fail(ErrorCode::kInvalid, fmt::format("{}:{}: {}", file_, line_, what), std::move(hint));
}

std::string local_time_words(std::int64_t at_ms) {
  using std::chrono::days;
  const std::chrono::sys_time<std::chrono::milliseconds> at{std::chrono::milliseconds(at_ms)};
  const auto day = std::chrono::floor<days>(at);
  const std::chrono::year_month_day date(day);
  const std::int64_t s = std::chrono::floor<std::chrono::seconds>(at - day).count();
  return fmt::format(
      "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
      static_cast<int>(date.year()),
      static_cast<unsigned>(date.month()),
      static_cast<unsigned>(date.day()),
      s / 3600,
      s / 60 % 60,
      s % 60
  );
}

}  // namespace rn::evaluate
