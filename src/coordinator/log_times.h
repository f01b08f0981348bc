// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "model/api.h"

// When the bytes of a log arrived, to a second, and which of them somebody asks for. Pure.
namespace rn::coordinator {

/// One record of the file beside a log.
std::string log_time_record(const api::LogTime& time);
/// In order. What is torn, damaged or out of order is left out.
std::vector<api::LogTime> parse_log_times(std::string_view text);

struct LogWanted {
  std::optional<std::int64_t> since_ms;  ///< lines that arrived then or later
  std::optional<std::int64_t> until_ms;  ///< lines that arrived until then
  std::uint64_t tail = 0;                ///< the last so many lines of these; 0 = all
  std::uint64_t offset = 0;              ///< nothing before it
};

/// At most so many bytes at `offset`; fewer at the end alone.
using LogReadAt = std::function<Result<Blob>(std::uint64_t offset, std::uint64_t max)>;

/// `end` is behind the last byte; begin and end are those of lines, of lines up to 64 KiB. At most
/// 4,096 times: they are complete up to `times_until`. kUnsupported: times are asked for, and none
/// were kept. Errors of `read`.
Result<api::LogRange> find_log_range(
    const LogWanted& wanted,
    std::uint64_t size,
    const std::vector<api::LogTime>& times,
    const LogReadAt& read
);

}  // namespace rn::coordinator
