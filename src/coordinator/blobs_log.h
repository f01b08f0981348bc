// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/ids.h"
#include "model/api.h"

namespace rn::coordinator {

/// One log per attempt, as a file ROOT/JOB/GENERATION.ATTEMPT.log. Appends are done by an own
/// thread: all that wait are written, each file is fsynced once, then they are acknowledged. The
/// caller fences: bytes of a stale epoch must not get here. Borrows `fs`.
class AttemptLogs {
 public:
  /// Every byte below `next_offset` is durable; or the error that condemned the append. Called on
  /// the writer's thread.
  using Appended = std::function<void(Result<std::uint64_t> next_offset)>;

  AttemptLogs(FileSystem& fs, std::string root, std::uint64_t max_bytes_per_attempt = 256u << 20);
  ~AttemptLogs();  ///< finishes what was queued
  AttemptLogs(const AttemptLogs&) = delete;
  AttemptLogs& operator=(const AttemptLogs&) = delete;

  /// `now_wall_ms` is when they came, kept to a second beside the log, and not waited for as they
  /// are; 0: it is not kept. Bytes that are already there are skipped, so a repeated append is
  /// harmless; a gap is answered with the offset that is missing. kExhausted when `kMaxQueuedBytes`
  /// wait (nothing queued: the sender repeats); above the attempt's bound the bytes are dropped and
  /// counted as written.
  Status append(
      const JobId& job,
      LeaseEpoch epoch,
      std::uint64_t offset,
      Blob bytes,
      Appended done,
      std::int64_t now_wall_ms = 0
  );

  /// At most `max` bytes from `offset`. Empty at the end, or if there is no log yet. Blocking.
  Result<Blob> read(const JobId& job, LeaseEpoch epoch, std::uint64_t offset, std::uint64_t max);
  Result<std::uint64_t> size(const JobId& job, LeaseEpoch epoch);
  /// When what is in it came, in order; empty: that was not kept. Blocking.
  Result<std::vector<api::LogTime>> times(const JobId& job, LeaseEpoch epoch) const;

  /// The jobs of which something is kept here. Blocking.
  Result<std::set<JobId>> jobs() const;
  /// Removes the logs of a job that is over (nothing is appended to it any more). Idempotent; what
  /// a crash leaves goes with the next call. When it was, and that its outputs were fetched, stays
  /// known. False: there were none. Blocking.
  Result<bool> remove(const JobId& job, std::int64_t now_wall_ms);
  /// When remove() took the logs of this job away; nullopt: it did not. Blocking.
  std::optional<std::int64_t> removed_wall_ms(const JobId& job) const;
  /// Its owner was told that its outputs will go: durable on return. Blocking, idempotent (the
  /// first time counts).
  Status mark_warned(const JobId& job, std::int64_t now_wall_ms);
  std::optional<std::int64_t> warned_wall_ms(const JobId& job) const;
  /// Its outputs went although nobody had fetched them: durable on return. False: it is marked
  /// already. Blocking.
  Result<bool> mark_outputs_removed(const JobId& job, std::int64_t now_wall_ms);
  /// The owner has fetched the outputs: durable on return. Blocking, idempotent.
  Status mark_fetched(const JobId& job);
  bool is_fetched(const JobId& job) const;

  static constexpr std::size_t kMaxQueuedBytes = 64u << 20;

 private:
  struct Append {
    std::string path;
    std::uint64_t offset = 0;
    Blob bytes;
    Appended done;
    std::int64_t now_wall_ms = 0;
  };

  struct Open {
    std::unique_ptr<File> file;
    std::uint64_t size = 0;
  };

  std::string path_of(const JobId& job, LeaseEpoch epoch) const;
  Status mark(const JobId& job, const char* name, const std::string& text);
  std::optional<std::int64_t> marked_wall_ms(const JobId& job, const char* name) const;
  void run();
  void write_batch(std::vector<Append>& batch);
  Result<std::uint64_t> write_one(const Append& append, Open& open);
  Result<Open> open_for_append(const std::string& path);
  void note_time(const Append& append, std::uint64_t begin);

  FileSystem& fs_;
  const std::string root_;
  const std::uint64_t max_bytes_;

  std::mutex mutex_;  ///< guards the four below
  std::condition_variable wake_;
  std::vector<Append> queue_;
  std::size_t queued_bytes_ = 0;
  bool is_stopping_ = false;

  std::map<std::string, std::int64_t> noted_ms_;  ///< the writer's: of each log's newest record

  std::thread thread_;
};

}  // namespace rn::coordinator
