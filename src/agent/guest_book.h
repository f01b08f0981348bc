// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "agent/core_types.h"
#include "base/fs.h"
#include "checkpoint/chunk_feed.h"
#include "checkpoint/snapshot_cache.h"
#include "checkpoint/watch.h"
#include "model/job.h"

namespace rn::agent {

/// What snapshots of one guest need to know. `work` serialises whoever reads or writes its files;
/// `mutex` guards the small fields and is never held during I/O.
struct GuestEntry {
  std::mutex work;
  Listing base;                     ///< the submitted workspace; under `work`
  bool is_base_known = false;       ///< under `work`
  checkpoint::SnapshotCache cache;  ///< under `work`
  std::string taken;                ///< signature of the unit in the newest snapshot; under `work`

  std::mutex mutex;
  std::optional<checkpoint::GenerationReady> ready;  ///< newest report of the watch

  checkpoint::ChunkFeed feed;  ///< of its snapshots; has a lock of its own
};

/// Guests by name; files below FOLDER/JOB-EPOCH/. Thread-safe.
class GuestBook {
 public:
  GuestBook(FileSystem& fs, std::string folder) : fs_(fs), folder_(std::move(folder)) {}

  std::shared_ptr<GuestEntry> entry(const GuestName& name);
  std::string folder(const GuestName& name) const;
  /// Forgets memory and files.
  void forget(const GuestName& name);

 private:
  FileSystem& fs_;
  std::string folder_;
  std::mutex mutex_;  ///< guards entries_
  std::map<GuestName, std::shared_ptr<GuestEntry>> entries_;
};

/// What is left out of generations and outputs: what the job calls temporary, and the file by which
/// it is told to save.
std::vector<std::string> temporary_globs(const CheckpointSpec& spec);
checkpoint::WatchRules watch_rules(const CheckpointSpec& spec);

}  // namespace rn::agent
