// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/time.h"

// When a job's next snapshot is due, what counts as saved, and whose upload goes first. Pure: time
// is passed in.
namespace rn::reclaim {

/// Φ ← Φ + dt/τ; a snapshot is due at Φ ≥ 1 and puts it back to 0. With a constant interval this is
/// a period of τ; with a hazard and a cost that change it keeps the density √(h/2c) (Ling, Mi and
/// Lin, 2001).
struct CheckpointClock {
  double phase = 0;

  /// `interval_s` as planned now; infinite or not positive: nothing is added. The phase stops at 1,
  /// so that a snapshot that had to wait is not made up for twice.
  void advance(double seconds, double interval_s);

  bool is_due() const { return phase >= 1; }

  void snapshot_taken() { phase = 0; }
};

/// What of a job's work would be lost now. Work counts as saved from the *instant of the snapshot*
/// whose last byte is durable: bytes on their way, and all that was done since, do not count.
class ExposedWork {
 public:
  /// The state in which the job starts is elsewhere already.
  explicit ExposedWork(Instant started) : saved_at_(started) {}

  /// A snapshot of `bytes` that still have to become durable (0: it is durable at once). Snapshots
  /// come in order of time; `at` before the newest one is an error of the caller (assert).
  void snapshot_taken(std::uint64_t id, Instant at, std::uint64_t bytes);
  /// Some of its bytes were read back elsewhere. Unknown ids are ignored: they were overtaken.
  void became_durable(std::uint64_t id, std::uint64_t bytes);
  /// It was given up, or its upload failed: it never counts.
  void dropped(std::uint64_t id);

  /// Age of the work that a departure at `now` would cost.
  nanoseconds exposed(Instant now) const { return now - saved_at_; }

  /// Work that becomes safe when this snapshot is durable; zero for unknown ids.
  nanoseconds gain(std::uint64_t id) const;

  Instant saved_at() const { return saved_at_; }

  bool has_pending() const { return !pending_.empty(); }

 private:
  struct Pending {
    std::uint64_t id = 0;
    Instant at;
    std::uint64_t missing_bytes = 0;
  };

  void settle(std::size_t index);

  Instant saved_at_;
  std::vector<Pending> pending_;  ///< oldest first
};

// ---- to take it or to skip it

enum class SnapshotAnswer : std::uint8_t {
  kTake,
  kNotDue,
  kInFlight,    ///< the last one is not durable yet
  kNothingNew,  ///< nothing was written since
  kTooLate,     ///< the node leaves before it could be durable
  kLinkBusy,    ///< it would still wait when the next one is due
  kLowRisk,     ///< costs more than it is expected to save until the next one is due
};

std::string_view to_string(SnapshotAnswer answer);

struct SnapshotQuestion {
  bool is_due = false;
  bool is_in_flight = false;
  double hazard = 0;     ///< effective, now
  double exposed_s = 0;  ///< since the last durable snapshot
  double interval_s = 0;
  double max_interval_s = 7200;  ///< work this old is never skipped for low risk or a busy link
  double cost_s = 0;             ///< pause and slowdown
  double dirty_bytes = 0;
  double wait_s = 0;  ///< uploads before it
  double upload_s = 0;
  std::optional<double> leaves_in_s;  ///< announced departure
};

/// A skipped snapshot stays due: ask again at the next tick. kLowRisk is h · exposed · τ < c
/// (Oliner et al., cooperative checkpointing): at the constant optimum the left side is 2c, so only
/// a hazard that fell since by more than half skips.
SnapshotAnswer judge_snapshot(const SnapshotQuestion& question);

// ---- whose upload goes first

struct PendingUpload {
  double weight = 1;
  double hazard = 0;  ///< effective, now, 1/s
  double gain_s = 0;  ///< ExposedWork::gain: work that becomes safe
  double remaining_bytes = 0;
};

/// Expected loss averted per second of the link: w·h·a / (remaining / rate) (Smith's rule).
/// Infinite once nothing remains.
double upload_index(const PendingUpload& upload, double bytes_per_s);

/// Which upload has the whole link now: the highest index, the earlier one of equals. `current`
/// keeps it until a chunk boundary, and what it has sent stays sent. nullopt if there is none.
std::optional<std::size_t> next_upload(
    std::span<const PendingUpload> uploads,
    double bytes_per_s,
    std::optional<std::size_t> current,
    bool is_at_chunk_boundary
);

}  // namespace rn::reclaim
