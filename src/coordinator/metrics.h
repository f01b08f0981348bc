// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/rows.h"

namespace rn::coordinator {

class Outbox;
class Shell;

/// Cumulative counts below fixed bounds, in seconds.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void observe(double value);
  /// Lines in Prometheus' text format; `labels` is "" or "kind=\"notice\"".
  std::string render(std::string_view name, const std::string& labels) const;

  std::uint64_t count() const { return total_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;  ///< by bucket, not cumulative
  std::uint64_t total_ = 0;
  double sum_ = 0;
};

/// What /metrics shows beside the core's own counters: it watches rows pass by. Loop thread.
class MetricsRecorder {
 public:
  MetricsRecorder();

  /// Rows of before the start, so that their past is not counted again.
  void prime(const Snapshot& snapshot);
  /// One row on its way to the store.
  void see(const Write& write);

  void count_request(std::string_view operation) { ++requests_[std::string(operation)]; }

  void count_blob_refused() { ++blobs_refused_; }

  /// The whole page. `notify`: none while notifications are off.
  std::string render(const Shell& shell, const Outbox* notify = nullptr) const;

 private:
  struct ReclaimSeen {
    bool is_cut = false;
    bool is_cleared = false;
  };

  void see_job(const JobRow& row, bool counts);
  void see_attempt(const AttemptRow& row, bool counts);
  void see_reclaim(const ReclaimRow& row, bool counts);

  struct JobSeen {
    std::int64_t queued_wall_ms = 0;
    bool has_started = false;
  };

  std::map<JobId, JobSeen> jobs_;  ///< unfinished ones
  std::set<std::pair<JobId, LeaseEpoch>> placed_;
  std::map<std::pair<NodeId, ReclaimId>, ReclaimSeen> reclaims_;
  Histogram submit_to_start_;
  Histogram placement_;
  std::array<Histogram, 4> reclaim_to_cut_;      ///< by ReclaimKind
  std::array<Histogram, 4> reclaim_to_cleared_;  ///< by ReclaimKind
  std::array<std::uint64_t, 4> reclaims_by_kind_{};
  std::map<std::string, std::uint64_t> requests_;
  std::uint64_t blobs_refused_ = 0;
};

}  // namespace rn::coordinator
