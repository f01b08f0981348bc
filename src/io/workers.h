// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "io/loop.h"

namespace rn::io {

/// A fixed set of threads for blocking work, with a bounded queue. Policy when full: submit()
/// refuses at once with kExhausted, and the caller decides whether to wait, shed or retry.
class Workers {
 public:
  /// `threads` ≥ 1; at most `max_queued` pieces of work wait. Borrows `loop`, which must outlive
  /// this.
  Workers(Loop& loop, std::size_t threads, std::size_t max_queued);
  /// Waits for the work that is running; drops the waiting work and its `done`.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Runs `work` on a worker thread, then `done` on the loop. Any thread. kExhausted when the queue
  /// is full, kUnavailable during destruction; then neither is run.
  Status submit(std::function<void()> work, std::function<void()> done = {});

  /// The same for work with an answer: `work()` on a worker, then `done(answer)` on the loop.
  template <class Work, class Done>
  Status submit_for(Work work, Done done) {
    using Answer = std::invoke_result_t<Work&>;
    // Shared by the worker and the loop thread; the post between them orders the accesses.
    auto answer = std::make_shared<std::optional<Answer>>();
    return submit(
        [answer, work = std::move(work)]() mutable { answer->emplace(work()); },
        [answer, done = std::move(done)]() mutable { done(std::move(**answer)); }
    );
  }

  std::size_t queued() const;   ///< waiting for a thread
  std::size_t running() const;  ///< on a thread now

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rn::io
