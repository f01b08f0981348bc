// SPDX-License-Identifier: Apache-2.0
#include "cli_logs.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string_view>

#include "cli_follow.h"
#include "cli_job_file.h"
#include "cli_log_output.h"
#include "cli_print.h"

#include "io/url.h"

namespace rn::cli {

namespace {

/// What is left of a time that is being read.
class TimeText {
 public:
  explicit TimeText(std::string_view text) : rest_(text) {}

  /// Exactly so many digits, up to `most`.
  bool number(std::size_t digits, int most, int& out) {
    if (rest_.size() < digits) return false;
    out = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      if (rest_[i] < '0' || rest_[i] > '9') return false;
      out = out * 10 + (rest_[i] - '0');
    }
    rest_.remove_prefix(digits);
    return out <= most;
  }

  bool one_of(std::string_view chars) {
    if (rest_.empty() || chars.find(rest_.front()) == std::string_view::npos) return false;
    taken_ = rest_.front();
    rest_.remove_prefix(1);
    return true;
  }

  /// Behind a point: of a second, in ms.
  bool fraction(int& ms) {
    int weight = 100;
    bool has_any = false;
    while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
      ms += weight * (rest_.front() - '0');
      weight /= 10;
      rest_.remove_prefix(1);
      has_any = true;
    }
    return has_any;
  }

  char taken() const { return taken_; }

  bool is_over() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  char taken_ = 0;
};

/// "Z", "+01:00": minutes east of UTC.
bool read_zone(TimeText& text, int& minutes) {
  if (text.one_of("Zz")) return true;
  if (!text.one_of("+-")) return false;
  const int sign = text.taken() == '-' ? -1 : 1;
  int hours = 0;
  int rest = 0;
  if (!text.number(2, 23, hours) || !text.one_of(":") || !text.number(2, 59, rest)) return false;
  minutes = sign * (hours * 60 + rest);
  return true;
}

bool read_time_of_day(TimeText& text, std::int64_t& of_day_ms) {
  int hour = 0;
  int minute = 0;
  int second = 0;
  int ms = 0;
  int zone_minutes = 0;
  if (!text.number(2, 23, hour) || !text.one_of(":") || !text.number(2, 59, minute)) return false;
  if (text.one_of(":") && !text.number(2, 59, second)) return false;
  if (text.one_of(".") && !text.fraction(ms)) return false;
  if (!read_zone(text, zone_minutes)) return false;
  of_day_ms = ((std::int64_t{hour} * 60 + minute - zone_minutes) * 60 + second) * 1000 + ms;
  return true;
}

bool read_moment(std::string_view from, std::int64_t& wall_ms) {
  TimeText text(from);
  int year = 0;
  int month = 0;
  int day = 0;
  if (!text.number(4, 9999, year) || !text.one_of("-") || !text.number(2, 12, month) ||
      !text.one_of("-") || !text.number(2, 31, day))
    return false;
  const std::chrono::year_month_day date{
      std::chrono::year(year),
      std::chrono::month(static_cast<unsigned>(month)),
      std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return false;
  std::int64_t of_day_ms = 0;
  if (text.one_of("Tt ") && !read_time_of_day(text, of_day_ms)) return false;
  constexpr std::int64_t kDayMs = 86'400'000;
  wall_ms =
      std::int64_t{std::chrono::sys_days(date).time_since_epoch().count()} * kDayMs + of_day_ms;
  return text.is_over() && wall_ms >= 0;
}

struct LogBounds {
  std::int64_t since_ms = -1;  ///< -1: none
  std::int64_t until_ms = -1;
};

Result<LogBounds> bounds_of(const LogsOptions& options) {
  LogBounds bounds;
  const std::int64_t now = wall_now_ms();
  const auto read = [&](const char* flag, const std::string& text, std::int64_t& out) -> Status {
    if (text.empty()) return {};
    const auto at = parse_log_time(text, now);
    if (!at) return fail(at.error().with(flag));
    out = *at;
    return {};
  };
  RN_CHECK(read("--since", options.since, bounds.since_ms));
  RN_CHECK(read("--until", options.until, bounds.until_ms));
  if (bounds.until_ms >= 0 && bounds.until_ms < bounds.since_ms)
    return fail(
        ErrorCode::kInvalid, "--until is before --since", "of both the earlier one is --since"
    );
  return bounds;
}

std::string logs_path(const JobId& job, const std::string& rest) {
  return "/v1/jobs/" + io::percent_encode(job.str()) + "/logs" + rest;
}

/// Of the attempt (0: the newest), behind `offset`.
Result<api::LogRange> ask_range(
    const Client& client,
    const JobId& job,
    std::uint32_t attempt,
    const LogBounds& bounds,
    std::uint32_t tail,
    std::uint64_t offset
) {
  std::string query = "/range?offset=" + std::to_string(offset);
  if (attempt != 0) query += "&attempt=" + std::to_string(attempt);
  if (bounds.since_ms >= 0) query += "&since_ms=" + std::to_string(bounds.since_ms);
  if (bounds.until_ms >= 0) query += "&until_ms=" + std::to_string(bounds.until_ms);
  if (tail > 0) query += "&tail=" + std::to_string(tail);
  return client.get_as<api::LogRange>(logs_path(job, query));
}

/// Its bytes from `begin` until before `end`, as they come.
Status read_log_part(
    const Client& client,
    const JobId& job,
    std::uint32_t attempt,
    std::uint64_t begin,
    std::uint64_t end,
    const std::function<Status(BlobView)>& take
) {
  if (begin >= end) return {};
  io::HttpCall call = client.call(
      "GET",
      logs_path(
          job,
          "?attempt=" + std::to_string(attempt) + "&offset=" + std::to_string(begin) +
              "&end=" + std::to_string(end)
      )
  );
  call.timeout = seconds(600);
  call.on_data = take;
  const auto reply = io::succeed(io::perform_blocking(call));
  if (!reply) return fail(with_next_step(reply.error(), client.login().url));
  return {};
}

Status print_part(
    const Client& client, const JobId& job, const LogsOptions& options, LogOutput& output
) {
  RN_TRY(const LogBounds bounds, bounds_of(options));
  RN_TRY(api::LogRange range, ask_range(client, job, options.attempt, bounds, options.tail, 0));
  if (!options.is_stamped)
    return read_log_part(client, job, range.attempt, range.begin, range.end, [&](BlobView bytes) {
      return output.write(bytes);
    });
  const std::uint64_t end = range.end;
  LineStamps stamps(range.begin);
  for (;;) {
    if (range.times.empty() && range.begin < end)
      return fail(
          ErrorCode::kUnsupported,
          "when the lines of this log came was not kept",
          "it is of an older coordinator; leave --timestamps out"
      );
    const std::uint64_t stop = std::min(range.times_until, end);
    const bool is_last = stop >= end || stop <= range.begin;
    stamps.set_times(std::move(range.times));
    RN_CHECK(read_log_part(client, job, range.attempt, range.begin, stop, [&](BlobView bytes) {
      return output.write(as_bytes(stamps.take(bytes)));
    }));
    if (is_last) return {};
    RN_TRY(range, ask_range(client, job, range.attempt, {}, 0, stop));
  }
}

int follow_log(const Client& client, const Job& job, const LogsOptions& options) {
  FollowOptions follow;
  follow.job = job.id;
  follow.attempt = options.attempt;
  if (!options.since.empty() || options.tail > 0) {
    const auto bounds = bounds_of(options);
    if (!bounds) return complain(bounds.error());
    const auto range = ask_range(client, job.id, options.attempt, *bounds, options.tail, 0);
    // Nothing has run yet: all that comes is wanted.
    const bool is_early = !range && job.epoch.is_none();
    if (!range && !is_early) return complain(range.error());
    if (range) {
      follow.from_attempt = range->attempt;
      follow.from_offset = range->begin;
    }
  }
  const auto followed = follow_job(client, follow);
  if (!followed) return complain(followed.error());
  if (!followed->output) return end_of_output(followed->output.error());
  return followed->was_interrupted ? kInterruptedStatus : 0;
}

}  // namespace

Result<std::int64_t> parse_log_time(const std::string& text, std::int64_t now_wall_ms) {
  std::int64_t wall_ms = 0;
  if (read_moment(text, wall_ms)) return wall_ms;
  const auto ago_s = parse_duration_s(text);
  if (ago_s) return std::max<std::int64_t>(0, now_wall_ms - std::int64_t{*ago_s} * 1000);
  return fail(
      ErrorCode::kInvalid,
      "'" + text + "' is neither a duration nor a time",
      "for example 90s, 2h or 7d, or 2026-11-26T17:30:00Z, 2026-11-26T18:30+01:00, 2026-11-26"
  );
}

std::string log_stamp(std::int64_t wall_ms) {
  const std::time_t whole = wall_ms / 1000;
  std::tm parts{};
  gmtime_r(&whole, &parts);
  char text[40];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  char rest[8];
  std::snprintf(rest, sizeof rest, ".%03dZ", static_cast<int>(wall_ms % 1000));
  return std::string(text, length) + rest;
}

void LineStamps::set_times(std::vector<api::LogTime> times) {
  times_ = std::move(times);
  next_ = 0;
}

std::string LineStamps::take(BlobView bytes) {
  std::string out;
  std::string_view text = as_text(bytes);
  while (!text.empty()) {
    while (next_ < times_.size() && times_[next_].offset <= offset_) ++next_;
    if (is_begin_) out += (next_ == 0 ? "-" : log_stamp(times_[next_ - 1].wall_ms)) + " ";
    const auto newline = text.find('\n');
    const std::size_t length = newline == std::string_view::npos ? text.size() : newline + 1;
    out += text.substr(0, length);
    text.remove_prefix(length);
    offset_ += length;
    is_begin_ = newline != std::string_view::npos;
  }
  return out;
}

int logs(const Client& client, const LogsOptions& options) {
  const auto job = client.get_as<Job>("/v1/jobs/" + io::percent_encode(options.job));
  if (!job) return complain(job.error());
  if (options.follows) return follow_log(client, *job, options);
  const bool is_whole =
      options.since.empty() && options.until.empty() && options.tail == 0 && !options.is_stamped;
  LogOutput output;
  Status read;
  if (is_whole) {
    std::string query;
    if (options.attempt != 0) query = "?attempt=" + std::to_string(options.attempt);
    io::HttpCall call = client.call("GET", logs_path(job->id, query));
    call.timeout = seconds(600);
    call.on_data = [&](BlobView bytes) { return output.write(bytes); };
    const auto reply = io::succeed(io::perform_blocking(call));
    if (!reply) read = fail(with_next_step(reply.error(), client.login().url));
  } else {
    read = print_part(client, job->id, options, output);
  }
  const Status finished = output.finish();
  if (!finished) return end_of_output(finished.error());
  return read ? 0 : complain(read.error());
}

}  // namespace rn::cli
