// SPDX-License-Identifier: Apache-2.0
#include "evaluate/job_trace.h"

#include "evaluate/trace_rows.h"

namespace rn::evaluate {

namespace {
constexpr double kShortest_s = 1e-3;
constexpr double kLongest_s = 366 * 86'400.0;
constexpr std::int64_t kMostGpusOfJob = 10'000;
}  // namespace

Result<std::vector<RecordedJob>> parse_job_trace(std::string_view text, const std::string& file) {
  constexpr std::size_t kTime = 0;
  constexpr std::size_t kDuration = 1;
  constexpr std::size_t kGpus = 2;
  RN_TRY(TraceRows rows, TraceRows::open(text, file, {"submit_time", "duration_s", "gpus"}));
  std::vector<RecordedJob> jobs;
  while (true) {
    RN_TRY(const bool is_row, rows.next());
    if (!is_row) break;
    RecordedJob job;
    RN_TRY(job.submitted_ms, rows.local_time_ms(kTime));
    RN_TRY(job.duration_s, rows.number(kDuration, kShortest_s, kLongest_s));
    RN_TRY(const std::int64_t gpus, rows.integer(kGpus, 1, kMostGpusOfJob));
    job.gpus = static_cast<std::uint32_t>(gpus);
    if (!jobs.empty() && job.submitted_ms < jobs.back().submitted_ms)
      return rows.fail_here(
          "submit_time goes back: " + local_time_words(jobs.back().submitted_ms) +
              " stands before it",
          "sort the rows by submit_time"
      );
    jobs.push_back(job);
  }
  if (jobs.empty()) return rows.fail_here("there are no rows");
  return jobs;
}

Result<std::vector<RecordedJob>> read_job_trace(const std::string& path) {
  RN_TRY(const std::string text, read_trace_text(path));
  return parse_job_trace(text, path);
}

}  // namespace rn::evaluate
