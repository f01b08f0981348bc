// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "coordinator/blobs.h"
#include "coordinator/blobs_log.h"
#include "coordinator/store.h"
#include "model/job.h"

namespace rn::coordinator {

struct CollectRequest {
  std::vector<Image> images;  ///< the allow list now
  std::int64_t now_wall_ms = 0;
  std::int64_t keep_ms = 0;  ///< what belongs to a job stays so long after its end
  /// The same for a job whose outputs its owner has not fetched; at least keep_ms.
  std::int64_t keep_outputs_ms = 0;
};

struct CollectReport {
  BlobStore::Collected blobs;
  std::uint64_t logs_of_jobs = 0;  ///< whose logs were removed
  std::vector<Job> to_warn;        ///< their owners are to be told; then AttemptLogs::mark_warned
  std::vector<Job> unfetched;      ///< went in this round although nobody had fetched them
};

enum class Keep : std::uint8_t {
  kKept,
  kToWarn,  ///< kept; its owner is to be told that it will go
  kOver,    ///< nothing refers to the job's files any more
};

/// kOver: it ended `keep_ms` ago and its outputs, if it has any, were fetched by their owner; or it
/// ended `keep_outputs_ms` ago and its owner was warned at least warning_ms() ago.
Keep judge(const Job& job, const AttemptLogs& logs, const CollectRequest& request);

/// "2026-11-21 19:05 UTC", for people.
std::string utc_text(std::int64_t wall_ms);

/// How long before unfetched outputs go their owner is told: a quarter of the time, at most a week.
std::int64_t warning_ms(const CollectRequest& request);

/// One round: removes the logs of jobs that are over for good, and the blobs that no image and no
/// other job refers to (see BlobStore::collect: in the second round that finds them so). Blocking.
///
/// The rows stay: they are the history, and what is durable in them decides. A job counts as over
/// only by its committed row, so no crash can bring it back unfinished with its files gone; and
/// files go after the row, never before it. A crash in a round leaves files behind, which the next
/// round finds, as each removal may be repeated. Any error ends the round with less removed: a
/// listing that cannot be read protects everything.
Result<CollectReport> collect_once(
    Store& store, BlobStore& blobs, AttemptLogs& logs, const CollectRequest& request
);

}  // namespace rn::coordinator
