// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "coordinator/store.h"

namespace rn::coordinator {

/// The one thread that writes to the store. Group commit: all batches that wait when it comes back
/// from a commit go into the next transaction. Batches become durable in the order given.
class StoreWriter {
 public:
  /// Called on the writing thread: every batch up to number `through` is durable; or the error that
  /// ends the process (nothing further is applied).
  using Committed = std::function<void(std::uint64_t through, const Status& status)>;

  /// Borrows `store`, which nobody else writes to.
  StoreWriter(Store& store, Committed committed);
  ~StoreWriter();  ///< commits what waits
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  /// Answers the batch's number, counting from 1. Never blocks on the disk. Unbounded here: the
  /// caller looks at waiting() before it takes new work.
  std::uint64_t submit(std::vector<Write> writes);
  /// Runs `probe` (Store::check_writable) between two commits; `done` on the writing thread.
  void check(std::function<void(Status)> done);

  struct Counts {
    std::uint64_t commits = 0;
    std::uint64_t writes = 0;
    std::uint64_t commit_ns = 0;      ///< time spent in transactions
    std::uint64_t commit_ns_max = 0;  ///< of the slowest one
  };

  Counts counts() const;
  std::size_t waiting() const;  ///< batches not yet durable

 private:
  void run();
  Status commit(std::vector<Write> writes);

  Store& store_;
  const Committed committed_;

  mutable std::mutex mutex_;  ///< guards all below up to the thread
  std::condition_variable wake_;
  std::vector<std::vector<Write>> queue_;
  std::vector<std::function<void(Status)>> checks_;
  std::uint64_t submitted_ = 0;
  std::uint64_t durable_ = 0;
  Counts counts_;
  bool is_stopping_ = false;

  std::thread thread_;
};

}  // namespace rn::coordinator
