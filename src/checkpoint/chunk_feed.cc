// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/chunk_feed.h"

#include <algorithm>

namespace rn::checkpoint {

bool ChunkTap::offer(const FreshChunk& chunk) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_ || released_ || waiting_bytes_ + chunk.stored->size() > kWaitingBytesMax)
      return false;
    waiting_.push_back(chunk);
    waiting_bytes_ += chunk.stored->size();
  }
  news_.notify_all();
  return true;
}

void ChunkTap::release(const GenerationRef& generation) {
  {
    const std::lock_guard lock(mutex_);
    released_ = generation;
  }
  news_.notify_all();
}

bool ChunkTap::wait(milliseconds patience) {
  std::unique_lock lock(mutex_);
  return news_.wait_for(lock, patience, [this] { return has_news(); });
}

std::optional<FreshChunk> ChunkTap::take(milliseconds patience) {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, patience, [this] { return has_news(); });
  if (waiting_.empty()) return std::nullopt;
  FreshChunk chunk = std::move(waiting_.front());
  waiting_.pop_front();
  waiting_bytes_ -= chunk.stored->size();
  return chunk;
}

std::optional<GenerationRef> ChunkTap::released() const {
  const std::lock_guard lock(mutex_);
  return released_;
}

void ChunkTap::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  waiting_.clear();
  waiting_bytes_ = 0;
}

void ChunkFeed::connect(const std::shared_ptr<ChunkTap>& tap) {
  const std::lock_guard lock(mutex_);
  std::erase_if(taps_, [](const auto& one) { return one.expired(); });
  taps_.push_back(tap);
}

void ChunkFeed::offer(const FreshChunk& chunk) {
  const std::lock_guard lock(mutex_);
  for (const auto& one : taps_) {
    if (const auto tap = one.lock()) (void)tap->offer(chunk);
  }
}

}  // namespace rn::checkpoint
