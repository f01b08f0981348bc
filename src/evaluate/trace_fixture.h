// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "evaluate/owner_trace.h"
#include "evaluate/trace_rows.h"

namespace rn::evaluate {

inline constexpr std::int64_t kMay1 = 18383 * kDayMs;  ///< 2020-05-01 00:00

/// A lab's minutes from 2020-05-01 00:00 on: how many of its GPUs are idle in each.
class MinutesOf {
 public:
  explicit MinutesOf(int total) : total_(total) {}

  MinutesOf& idle(int gpus, int minutes = 1) {
    for (int i = 0; i < minutes; ++i) {
      text_ += local_time_words(at_ms_) + "," + std::to_string(total_) + "," +
               std::to_string(gpus) + ",0,0\n";
      at_ms_ += kMinuteMs;
    }
    return *this;
  }

  MinutesOf& missing(int minutes) {
    at_ms_ += minutes * kMinuteMs;
    return *this;
  }

  std::string text() const {
    return "time,total_gpus,idle_gpus,running_jobs,pending_gpus\n" + text_;
  }

 private:
  int total_;
  std::int64_t at_ms_ = kMay1;
  std::string text_;
};

}  // namespace rn::evaluate
