// SPDX-License-Identifier: Apache-2.0
#include "reclaim/checkpoint_clock.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/assert.h"

namespace rn::reclaim {

void CheckpointClock::advance(double seconds, double interval_s) {
  if (!(seconds > 0) || !(interval_s > 0) || std::isinf(interval_s)) return;
  phase = std::min(1.0, phase + seconds / interval_s);
}

void ExposedWork::snapshot_taken(std::uint64_t id, Instant at, std::uint64_t bytes) {
  const Instant newest = pending_.empty() ? saved_at_ : pending_.back().at;
  RN_ASSERT(at >= newest, "snapshots come in order");
  pending_.push_back({.id = id, .at = at, .missing_bytes = bytes});
  if (bytes == 0) settle(pending_.size() - 1);
}

void ExposedWork::became_durable(std::uint64_t id, std::uint64_t bytes) {
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (pending_[i].id != id) continue;
    pending_[i].missing_bytes -= std::min(bytes, pending_[i].missing_bytes);
    if (pending_[i].missing_bytes == 0) settle(i);
    return;
  }
}

void ExposedWork::dropped(std::uint64_t id) {
  std::erase_if(pending_, [id](const Pending& one) { return one.id == id; });
}

nanoseconds ExposedWork::gain(std::uint64_t id) const {
  for (const Pending& one : pending_) {
    if (one.id == id) return one.at - saved_at_;
  }
  return nanoseconds(0);
}

/// Older snapshots are worth nothing once a newer one is durable.
void ExposedWork::settle(std::size_t index) {
  saved_at_ = pending_[index].at;
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(index) + 1);
}

std::string_view to_string(SnapshotAnswer answer) {
  switch (answer) {
    case SnapshotAnswer::kTake:
      return "take";
    case SnapshotAnswer::kNotDue:
      return "not due";
    case SnapshotAnswer::kInFlight:
      return "the last one is not durable yet";
    case SnapshotAnswer::kNothingNew:
      return "nothing was written since";
    case SnapshotAnswer::kTooLate:
      return "the node leaves before it could be durable";
    case SnapshotAnswer::kLinkBusy:
      return "the link is busy until the next one is due";
    case SnapshotAnswer::kLowRisk:
      return "costs more than it is expected to save";
  }
  return "";
}

SnapshotAnswer judge_snapshot(const SnapshotQuestion& question) {
  if (!question.is_due) return SnapshotAnswer::kNotDue;
  if (question.is_in_flight) return SnapshotAnswer::kInFlight;
  if (question.dirty_bytes <= 0) return SnapshotAnswer::kNothingNew;
  const double durable_in_s = question.wait_s + question.upload_s;
  if (question.leaves_in_s && *question.leaves_in_s < durable_in_s) {
    return SnapshotAnswer::kTooLate;
  }
  if (question.exposed_s >= question.max_interval_s) return SnapshotAnswer::kTake;
  if (question.wait_s > question.interval_s) return SnapshotAnswer::kLinkBusy;
  const double averted_s = question.hazard * question.exposed_s * question.interval_s;
  if (averted_s < question.cost_s) return SnapshotAnswer::kLowRisk;
  return SnapshotAnswer::kTake;
}

double upload_index(const PendingUpload& upload, double bytes_per_s) {
  if (upload.remaining_bytes <= 0) return std::numeric_limits<double>::infinity();
  return upload.weight * upload.hazard * upload.gain_s * bytes_per_s / upload.remaining_bytes;
}

std::optional<std::size_t> next_upload(
    std::span<const PendingUpload> uploads,
    double bytes_per_s,
    std::optional<std::size_t> current,
    bool is_at_chunk_boundary
) {
  if (current && *current < uploads.size() && !is_at_chunk_boundary) return current;
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < uploads.size(); ++i) {
    if (!best ||
        upload_index(uploads[i], bytes_per_s) > upload_index(uploads[*best], bytes_per_s)) {
      best = i;
    }
  }
  return best;
}

}  // namespace rn::reclaim
