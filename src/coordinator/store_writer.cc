// SPDX-License-Identifier: Apache-2.0
#include "coordinator/store_writer.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace rn::coordinator {

StoreWriter::StoreWriter(Store& store, Committed committed)
    : store_(store), committed_(std::move(committed)), thread_([this] { run(); }) {}

StoreWriter::~StoreWriter() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

std::uint64_t StoreWriter::submit(std::vector<Write> writes) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(writes));
    number = ++submitted_;
  }
  wake_.notify_one();
  return number;
}

void StoreWriter::check(std::function<void(Status)> done) {
  {
    const std::lock_guard lock(mutex_);
    checks_.push_back(std::move(done));
  }
  wake_.notify_one();
}

StoreWriter::Counts StoreWriter::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::size_t StoreWriter::waiting() const {
  const std::lock_guard lock(mutex_);
  return submitted_ - durable_;
}

Status StoreWriter::commit(std::vector<Write> writes) {
  const auto begin = std::chrono::steady_clock::now();
  const Status status = store_.apply(writes);
  const auto took = static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count()
  );
  const std::lock_guard lock(mutex_);
  ++counts_.commits;
  counts_.writes += writes.size();
  counts_.commit_ns += took;
  counts_.commit_ns_max = std::max(counts_.commit_ns_max, took);
  return status;
}

void StoreWriter::run() {
  while (true) {
    std::vector<Write> writes;
    std::vector<std::function<void(Status)>> checks;
    std::uint64_t through = 0;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return is_stopping_ || !queue_.empty() || !checks_.empty(); });
      if (queue_.empty() && checks_.empty()) return;
      for (auto& batch : queue_) std::move(batch.begin(), batch.end(), std::back_inserter(writes));
      queue_.clear();
      checks.swap(checks_);
      through = submitted_;
    }
    if (!writes.empty()) {
      const Status status = commit(std::move(writes));
      if (!status) {
        committed_(0, status);
        return;
      }
    }
    bool has_news = false;
    {
      const std::lock_guard lock(mutex_);
      has_news = through != durable_;
      durable_ = through;
    }
    if (has_news) committed_(through, {});
    if (!checks.empty()) {
      const Status writable = store_.check_writable();
      for (const auto& done : checks) done(writable);
    }
  }
}

}  // namespace rn::coordinator
