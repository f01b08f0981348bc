// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/time.h"
#include "model/checkpoint.h"

// From a capture that is under way to those who send its chunks on before its manifest exists.

namespace rn::checkpoint {

/// A chunk that a capture has just made.
struct FreshChunk {
  Digest cipher{};
  std::shared_ptr<const Blob> stored;  ///< several senders may read it
};

/// What waits for one sender. Thread-safe: `mutex_` guards everything and is never held for long.
class ChunkTap {
 public:
  /// More than so many bytes are not kept: what does not fit is missed, and sent with the rest when
  /// the manifest is there. Enough for the line to stay busy.
  static constexpr std::uint64_t kWaitingBytesMax = 32ULL << 20;

  /// The capture's side. False if there is no room, or if it is closed.
  bool offer(const FreshChunk& chunk);
  /// The generation is whole and may be told: nothing more is offered.
  void release(const GenerationRef& generation);

  /// The sender's side: the next chunk; nullopt if none came within `patience`, or at once if
  /// none will come. Blocking.
  std::optional<FreshChunk> take(milliseconds patience);
  /// Waits for the first chunk or the release; true if there is one. Keeps what it is. Blocking.
  bool wait(milliseconds patience);
  std::optional<GenerationRef> released() const;
  /// Drops what waits and takes nothing more.
  void close();

 private:
  bool has_news() const { return !waiting_.empty() || released_.has_value(); }

  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<FreshChunk> waiting_;
  std::uint64_t waiting_bytes_ = 0;
  bool is_closed_ = false;
  std::optional<GenerationRef> released_;
};

/// One guest's captures, and whoever listens to them. Thread-safe: `mutex_` guards the list; a
/// tap's own lock is taken under it.
class ChunkFeed {
 public:
  /// The tap gets what is offered from now on, as long as somebody else holds it.
  void connect(const std::shared_ptr<ChunkTap>& tap);
  /// Never waits for a sender.
  void offer(const FreshChunk& chunk);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<ChunkTap>> taps_;
};

}  // namespace rn::checkpoint
