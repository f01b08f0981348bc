// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <iterator>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <sys/resource.h>
#include <unistd.h>

namespace rn::agent {

/// This thread from now on yields to whoever else wants to compute: what a guest's links cost is
/// the agent's, and not in the guest's own share. Where it may not, it goes on as it was.
inline void be_nice() {
  constexpr int kNice = 10;
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
}

/// Threads, all of them nice, that end by themselves, joined at the latest when this is destroyed.
/// Thread-safe; its own threads may start others.
class LinkThreads {
 public:
  ~LinkThreads() { join_all(); }

  /// False: the machine has no thread to give.
  bool start(std::function<void()> fn) {
    join_finished();
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_.emplace_back();
    try {
      slot.thread = std::thread([this, &slot, run = std::move(fn)] {
        be_nice();
        run();
        const std::lock_guard done(mutex_);
        slot.is_done = true;
      });
    } catch (const std::system_error&) {
      slots_.pop_back();
      return false;
    }
    return true;
  }

  void join_all() {
    // Those that run may start others until all of them know that it is over.
    for (;;) {
      std::list<Slot> all;
      {
        const std::lock_guard lock(mutex_);
        if (slots_.empty()) return;
        all.splice(all.end(), slots_, slots_.begin());
      }
      all.front().thread.join();
    }
  }

 private:
  struct Slot {
    std::thread thread;
    bool is_done = false;
  };

  void join_finished() {
    std::list<Slot> finished;
    {
      const std::lock_guard lock(mutex_);
      for (auto at = slots_.begin(); at != slots_.end();) {
        const auto next = std::next(at);
        if (at->is_done) finished.splice(finished.end(), slots_, at);
        at = next;
      }
    }
    for (Slot& slot : finished) slot.thread.join();
  }

  std::mutex mutex_;
  std::list<Slot> slots_;
};

}  // namespace rn::agent
