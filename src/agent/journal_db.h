// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/core_types.h"
#include "base/error.h"

namespace rn::agent {

/// The agent's journal: one table of rows in SQLite (WAL, synchronous=FULL, STRICT). A writer
/// thread commits whatever has gathered in one transaction, in order. It has 8 MiB of room before
/// it needs more of the disk; when that is full it waits until there is room again, and whoever
/// writes is told, who bounds what gathers meanwhile.
class JournalDb {
 public:
  /// Called on the writer thread: with the reason (kExhausted) when it begins to wait for room,
  /// with nothing when it has written what waited (after the `done` of each).
  using OnRoom = std::function<void(const Status&)>;

  /// Creates the file if it is missing, and takes its reserve. kConflict if another process has it
  /// open, kCorrupt if it is no journal or fails SQLite's check, kDenied if it cannot be written.
  /// Blocking.
  static Result<std::unique_ptr<JournalDb>> open(const std::string& path, OnRoom on_room = {});
  /// Commits what is queued, then stops; on a full disk without it.
  ~JournalDb();
  JournalDb(const JournalDb&) = delete;
  JournalDb& operator=(const JournalDb&) = delete;

  /// All rows, sorted by key. Before the first write.
  Result<std::vector<JournalRow>> load();

  /// Queues the writes; `done` is called on the writer thread after they, and all earlier ones, are
  /// durable. After a failed commit `done` gets the error, and so does every later one: the process
  /// must end. Any thread.
  void write(std::vector<JournalWrite> writes, std::function<void(Status)> done);

  struct State;
  explicit JournalDb(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

}  // namespace rn::agent
