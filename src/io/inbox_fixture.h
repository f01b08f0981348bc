// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/time.h"

// Test helper: what a loop hears, one after the other, for the test's thread.
namespace rn::io {

/// A copyable handle, so that what the loop still holds at a test's end does no harm.
class Inbox {
 public:
  void put(Blob message) const {
    const std::lock_guard lock(state_->mutex);
    state_->messages.push_back(std::move(message));
    state_->came.notify_all();
  }

  /// The next one; empty, and a failure of the test, if none comes in time.
  Blob take() const {
    std::unique_lock lock(state_->mutex);
    const auto has_some = [this] { return !state_->messages.empty(); };
    const bool has_come = state_->came.wait_for(lock, std::chrono::seconds(20), has_some);
    EXPECT_TRUE(has_come) << "nothing came in 20 seconds";
    if (!has_come) return {};
    Blob message = std::move(state_->messages.front());
    state_->messages.pop_front();
    return message;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable came;
    std::deque<Blob> messages;
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace rn::io
