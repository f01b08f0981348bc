// SPDX-License-Identifier: Apache-2.0
#include "coordinator/collector.h"

#include <algorithm>
#include <ctime>

#include "model/codec.h"

namespace rn::coordinator {

namespace {

constexpr std::uint32_t kJobsAtOnce = 500;
constexpr std::int64_t kWarningMax = std::int64_t{7} * 24 * 3600 * 1000;

/// The listing and all it names. One that is gone has nothing left to protect.
Status refer(const BlobStore& blobs, const Digest& listing, std::set<Digest>& live) {
  if (listing == Digest{} || live.contains(listing)) return {};
  const auto bytes = blobs.get(listing);
  if (!bytes && bytes.error().code == ErrorCode::kNotFound) return {};
  if (!bytes) return fail(bytes.error().with("listing " + to_hex(listing)));
  const auto parsed = from_cbor<Listing>(*bytes);
  if (!parsed) return fail(parsed.error().with("listing " + to_hex(listing)));
  live.insert(listing);
  for (const ListedFile& file : parsed->files) live.insert(file.blobs.begin(), file.blobs.end());
  return {};
}

}  // namespace

std::string utc_text(std::int64_t wall_ms) {
  const std::time_t whole = wall_ms / 1000;
  std::tm parts{};
  gmtime_r(&whole, &parts);
  char text[32];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return {text, length};
}

std::int64_t warning_ms(const CollectRequest& request) {
  return std::min(kWarningMax, request.keep_outputs_ms / 4);
}

Keep judge(const Job& job, const AttemptLogs& logs, const CollectRequest& request) {
  if (!is_terminal(job.state) || job.finished_wall_ms == 0) return Keep::kKept;
  const std::int64_t age = request.now_wall_ms - job.finished_wall_ms;
  if (age < request.keep_ms) return Keep::kKept;
  if (job.outputs == Digest{} || logs.is_fetched(job.id)) return Keep::kOver;
  const std::int64_t ahead = warning_ms(request);
  if (age < request.keep_outputs_ms - ahead) return Keep::kKept;
  const auto warned = logs.warned_wall_ms(job.id);
  if (!warned) return Keep::kToWarn;
  const bool is_long_ago = request.now_wall_ms - *warned >= ahead;
  return is_long_ago && age >= request.keep_outputs_ms ? Keep::kOver : Keep::kKept;
}

Result<CollectReport> collect_once(
    Store& store, BlobStore& blobs, AttemptLogs& logs, const CollectRequest& request
) {
  CollectReport report;
  std::set<Digest> live;
  for (const Image& image : request.images) live.insert(image.blobs.begin(), image.blobs.end());
  RN_TRY(const std::set<JobId> with_logs, logs.jobs());
  std::vector<Job> over;
  JobFilter filter;
  filter.with_finished = true;
  filter.limit = kJobsAtOnce;
  for (;;) {
    RN_TRY(const std::vector<Job> jobs, store.jobs(filter));
    for (const Job& job : jobs) {
      const Keep keep = judge(job, logs, request);
      if (keep == Keep::kOver) {
        if (with_logs.contains(job.id)) over.push_back(job);
        continue;
      }
      if (keep == Keep::kToWarn) report.to_warn.push_back(job);
      RN_CHECK(refer(blobs, job.spec.workspace, live));
      RN_CHECK(refer(blobs, job.outputs, live));
    }
    if (jobs.empty()) break;
    filter.before_number = jobs.back().number;
    if (filter.before_number <= 1) break;
  }
  for (const Job& job : over) {
    RN_TRY(const bool had_logs, logs.remove(job.id, request.now_wall_ms));
    if (had_logs) ++report.logs_of_jobs;
    if (job.outputs == Digest{} || logs.is_fetched(job.id)) continue;
    RN_TRY(const bool is_new, logs.mark_outputs_removed(job.id, request.now_wall_ms));
    if (is_new) report.unfetched.push_back(job);
  }
  RN_TRY(report.blobs, blobs.collect(live));
  return report;
}

}  // namespace rn::coordinator
