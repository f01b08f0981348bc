// SPDX-License-Identifier: Apache-2.0
#include "coordinator/collector.h"

#include "model/codec.h"

namespace rn::coordinator {

namespace {

constexpr std::uint32_t kJobsAtOnce = 500;

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

bool is_over_for_good(const Job& job, const AttemptLogs& logs, const CollectRequest& request) {
  if (!is_terminal(job.state) || job.finished_wall_ms == 0) return false;
  if (request.now_wall_ms - job.finished_wall_ms < request.keep_ms) return false;
  return job.outputs == Digest{} || logs.is_fetched(job.id);
}

Result<CollectReport> collect_once(
    Store& store, BlobStore& blobs, AttemptLogs& logs, const CollectRequest& request
) {
  CollectReport report;
  std::set<Digest> live;
  for (const Image& image : request.images) live.insert(image.blobs.begin(), image.blobs.end());
  RN_TRY(const std::set<JobId> with_logs, logs.jobs());
  std::vector<JobId> over;
  JobFilter filter;
  filter.with_finished = true;
  filter.limit = kJobsAtOnce;
  for (;;) {
    RN_TRY(const std::vector<Job> jobs, store.jobs(filter));
    for (const Job& job : jobs) {
      if (is_over_for_good(job, logs, request)) {
        if (with_logs.contains(job.id)) over.push_back(job.id);
        continue;
      }
      RN_CHECK(refer(blobs, job.spec.workspace, live));
      RN_CHECK(refer(blobs, job.outputs, live));
    }
    if (jobs.empty()) break;
    filter.before_number = jobs.back().number;
    if (filter.before_number <= 1) break;
  }
  for (const JobId& job : over) {
    RN_TRY(const bool had_logs, logs.remove(job));
    if (had_logs) ++report.logs_of_jobs;
  }
  RN_TRY(report.blobs, blobs.collect(live));
  return report;
}

}  // namespace rn::coordinator
