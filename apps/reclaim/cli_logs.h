// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli_client.h"

#include "base/bytes.h"
#include "base/error.h"
#include "model/api.h"

namespace rn::cli {

struct LogsOptions {
  std::string job;
  bool follows = false;
  std::uint32_t attempt = 0;
  std::string since;  ///< as parse_log_time; empty: from the begin
  std::string until;
  std::uint32_t tail = 0;   ///< the last so many lines; 0 = all
  bool is_stamped = false;  ///< each line begins with when it came
};

/// Prints it, and answers the exit code.
int logs(const Client& client, const LogsOptions& options);

/// "90s", "2h" or "7d" before now, or a time of RFC 3339 (or a day of it, from its midnight in
/// UTC), as Unix milliseconds. kInvalid.
Result<std::int64_t> parse_log_time(const std::string& text, std::int64_t now_wall_ms);

/// "2026-11-26T17:45:47.123Z"
std::string log_stamp(std::int64_t wall_ms);

/// Puts before each line of a log when it came. Its bytes come in pieces, and so do the times.
class LineStamps {
 public:
  explicit LineStamps(std::uint64_t begin) : offset_(begin) {}

  /// Of what comes next. The first one is that of the next byte, or before it.
  void set_times(std::vector<api::LogTime> times);
  std::string take(BlobView bytes);

 private:
  std::vector<api::LogTime> times_;
  std::size_t next_ = 0;  ///< of times_, behind that of offset_
  std::uint64_t offset_ = 0;
  bool is_begin_ = true;  ///< of a line
};

}  // namespace rn::cli
