// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace rn::evaluate {

/// One job as its cluster recorded it.
struct RecordedJob {
  std::int64_t submitted_ms = 0;  ///< local time as if it were UTC
  double duration_s = 0;          ///< on its own GPUs, undisturbed
  std::uint32_t gpus = 0;

  friend bool operator==(const RecordedJob&, const RecordedJob&) = default;
};

/// The table submit_time,duration_s,gpus, ordered by time. Jobs without a GPU or without a duration
/// are refused. kInvalid with file and line, as parse_owner_trace. Pure.
Result<std::vector<RecordedJob>> parse_job_trace(std::string_view text, const std::string& file);
/// Reads a file, blocks.
Result<std::vector<RecordedJob>> read_job_trace(const std::string& path);

}  // namespace rn::evaluate
