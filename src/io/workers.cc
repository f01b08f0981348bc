// SPDX-License-Identifier: Apache-2.0
#include "io/workers.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/assert.h"

namespace rn::io {

struct Workers::State {
  struct Job {
    std::function<void()> work;
    std::function<void()> done;
  };

  explicit State(Loop& owner) : loop(owner) {}

  Loop& loop;
  std::size_t max_queued = 0;
  mutable std::mutex mutex;  ///< guards what follows
  std::condition_variable wake;
  std::deque<Job> queue;
  std::size_t running = 0;
  bool is_stopping = false;
  std::vector<std::thread> threads;

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [this] { return is_stopping || !queue.empty(); });
      if (is_stopping) return;
      Job job = std::move(queue.front());
      queue.pop_front();
      ++running;
      lock.unlock();
      job.work();
      job.work = nullptr;  // what it holds dies here, not on the loop
      if (job.done) loop.post(std::move(job.done));
      lock.lock();
      --running;
    }
  }
};

Workers::Workers(Loop& loop, std::size_t threads, std::size_t max_queued)
    : state_(std::make_unique<State>(loop)) {
  RN_ASSERT(threads >= 1, "work needs a thread");
  state_->max_queued = max_queued;
  for (std::size_t i = 0; i < threads; ++i)
    state_->threads.emplace_back([state = state_.get()] { state->serve(); });
}

Workers::~Workers() {
  std::deque<State::Job> dropped;
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_stopping = true;
    dropped.swap(state_->queue);
  }
  state_->wake.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

Status Workers::submit(std::function<void()> work, std::function<void()> done) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->is_stopping) return fail(ErrorCode::kUnavailable, "the workers are stopping");
    // Idle threads count as room: with max_queued 0 work is taken only when a thread is free.
    const std::size_t idle = state_->threads.size() - state_->running;
    if (state_->queue.size() >= state_->max_queued + idle)
      return fail(ErrorCode::kExhausted, "too much work is waiting", "try again in a moment");
    state_->queue.push_back(State::Job{std::move(work), std::move(done)});
  }
  state_->wake.notify_one();
  return {};
}

std::size_t Workers::queued() const {
  const std::lock_guard lock(state_->mutex);
  return state_->queue.size();
}

std::size_t Workers::running() const {
  const std::lock_guard lock(state_->mutex);
  return state_->running;
}

}  // namespace rn::io
