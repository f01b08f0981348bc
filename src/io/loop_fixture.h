// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "base/time.h"
#include "io/loop.h"

// Test helper: a loop on its own thread, so that tests can block.
namespace rn::io {

/// Of what a test waits for; reached only by a failure.
inline constexpr milliseconds kLimit = seconds(20);

class LoopThread {
 public:
  LoopThread() : thread_([this] { loop_.run(); }) {}

  ~LoopThread() {
    loop_.stop();
    thread_.join();
  }

  Loop& loop() { return loop_; }

  /// Runs `fn` on the loop and waits for it.
  template <class Fn>
  auto call(Fn fn) {
    using Answer = std::invoke_result_t<Fn&>;
    std::promise<Answer> promise;
    auto future = promise.get_future();
    loop_.post([&] {
      if constexpr (std::is_void_v<Answer>) {
        fn();
        promise.set_value();
      } else {
        promise.set_value(fn());
      }
    });
    return future.get();
  }

 private:
  Loop loop_;
  std::thread thread_;
};

/// Something that the loop tells the test's thread once. Copyable.
template <class Value>
class Told {
 public:
  void tell(Value value) const { state_->promise.set_value(std::move(value)); }

  Value wait() const {
    if (state_->future.wait_for(std::chrono::seconds(30)) != std::future_status::ready) {
      ADD_FAILURE() << "nothing was told in 30 seconds";
      std::abort();
    }
    return state_->future.get();
  }

  bool is_told() const {
    return state_->future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

 private:
  struct State {
    std::promise<Value> promise;
    std::future<Value> future = promise.get_future();
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace rn::io
