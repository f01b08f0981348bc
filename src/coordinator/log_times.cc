// SPDX-License-Identifier: Apache-2.0
#include "coordinator/log_times.h"

#include <algorithm>
#include <charconv>

namespace rn::coordinator {

namespace {

constexpr std::uint64_t kLineMost = 64u << 10;  // beyond it a cut is made inside of a line
constexpr std::uint64_t kTailMost = 16u << 20;  // looked through for the last lines
constexpr std::size_t kTimesAtOnce = 4096;

/// Where the line begins that the byte before `at` is in; `at` if that is too far away.
Result<std::uint64_t> line_begin(std::uint64_t at, const LogReadAt& read) {
  const std::uint64_t from = at - std::min(at, kLineMost);
  if (from == at) return at;
  RN_TRY(const Blob bytes, read(from, at - from));
  const auto newline = as_text(bytes).rfind('\n');
  if (newline != std::string_view::npos) return from + newline + 1;
  return from == 0 ? 0 : at;
}

/// Behind the line that the byte before `at` is in; `at` if that is too far away.
Result<std::uint64_t> line_end(std::uint64_t at, std::uint64_t size, const LogReadAt& read) {
  if (at == 0 || at >= size) return std::min(at, size);
  RN_TRY(const Blob bytes, read(at - 1, std::min(kLineMost, size - at + 1)));
  const auto newline = as_text(bytes).find('\n');
  if (newline != std::string_view::npos) return at + newline;
  return at - 1 + bytes.size() == size ? size : at;
}

/// Where the last `lines` of [begin, end) begin.
Result<std::uint64_t> tail_begin(
    std::uint64_t begin, std::uint64_t end, std::uint64_t lines, const LogReadAt& read
) {
  const std::uint64_t least = std::max(begin, end - std::min(end, kTailMost));
  std::uint64_t seen = 0;
  std::uint64_t at = end;
  while (at > least) {
    const std::uint64_t from = at - std::min(at - least, kLineMost);
    RN_TRY(const Blob bytes, read(from, at - from));
    const std::string_view text = as_text(bytes);
    for (std::size_t i = text.size(); i > 0; --i) {
      const std::uint64_t behind = from + i;  // of the byte that is looked at
      if (text[i - 1] != '\n' || behind == end) continue;
      if (++seen == lines) return behind;
    }
    at = from;
  }
  return least;
}

}  // namespace

std::string log_time_record(const api::LogTime& time) {
  return "\n" + std::to_string(time.offset) + " " + std::to_string(time.wall_ms) + ";";
}

std::vector<api::LogTime> parse_log_times(std::string_view text) {
  std::vector<api::LogTime> times;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.ends_with(';')) continue;
    api::LogTime time;
    const char* const last = line.data() + line.size() - 1;
    const auto first = std::from_chars(line.data(), last, time.offset);
    if (first.ec != std::errc() || first.ptr == last || *first.ptr != ' ') continue;
    const auto second = std::from_chars(first.ptr + 1, last, time.wall_ms);
    if (second.ec != std::errc() || second.ptr != last) continue;
    if (!times.empty() && time.offset <= times.back().offset) continue;
    times.push_back(time);
  }
  return times;
}

Result<api::LogRange> find_log_range(
    const LogWanted& wanted,
    std::uint64_t size,
    const std::vector<api::LogTime>& times,
    const LogReadAt& read
) {
  const bool asks_for_times = wanted.since_ms || wanted.until_ms;
  if (asks_for_times && times.empty() && size > 0)
    return fail(
        ErrorCode::kUnsupported,
        "when the lines of this log came was not kept",
        "it is of an older coordinator: ask for it without times"
    );
  const auto first_at = [&](auto&& is_meant) {
    const auto found = std::find_if(times.begin(), times.end(), is_meant);
    return found == times.end() ? size : std::min(found->offset, size);
  };
  api::LogRange range;
  range.size = size;
  range.begin = 0;
  range.end = size;
  if (wanted.since_ms) {
    const std::uint64_t at =
        first_at([&](const api::LogTime& one) { return one.wall_ms >= *wanted.since_ms; });
    range.begin = size;
    if (at < size) {
      RN_TRY(range.begin, line_begin(at, read));
    }
  }
  if (wanted.until_ms) {
    const std::uint64_t at =
        first_at([&](const api::LogTime& one) { return one.wall_ms > *wanted.until_ms; });
    RN_TRY(range.end, line_end(at, size, read));
  }
  range.begin = std::max(range.begin, wanted.offset);
  range.begin = std::min(range.begin, range.end);
  if (wanted.tail > 0) {
    RN_TRY(range.begin, tail_begin(range.begin, range.end, wanted.tail, read));
  }
  range.times_until = range.end;
  for (std::size_t i = 0; i < times.size() && times[i].offset < range.end; ++i) {
    const bool is_over = i + 1 < times.size() && times[i + 1].offset <= range.begin;
    if (is_over) continue;
    if (range.times.size() == kTimesAtOnce) {
      range.times_until = times[i].offset;
      break;
    }
    range.times.push_back(times[i]);
  }
  return range;
}

}  // namespace rn::coordinator
