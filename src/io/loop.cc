// SPDX-License-Identifier: Apache-2.0
#include "io/loop.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include "base/assert.h"
#include "io/errno_error.h"
#include "io/real_clock.h"

namespace rn::io {

namespace asio = boost::asio;
using Descriptor = asio::posix::stream_descriptor;

struct Loop::State {
  struct Timer {
    std::uint64_t id = 0;
    nanoseconds period{0};  ///< zero: once
    std::function<void()> fn;
  };

  struct Watch {
    Descriptor descriptor;
    std::function<void()> fn;
    bool is_active = true;
  };

  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{context.get_executor()};
  RealClock clock;
  std::atomic<std::thread::id> thread;

  std::multimap<Instant, Timer> timers;  ///< equal instants fire in the order of their making
  std::map<std::uint64_t, std::multimap<Instant, Timer>::iterator> timer_names;
  std::uint64_t next_name = 1;
  std::uint64_t firing =
      0;  ///< name of the repeating timer whose function runs now; 0: none or cancelled
  Descriptor timer_fd{context};
  Instant armed_for{Instant::max()};

  std::optional<asio::signal_set> signals;
  std::function<void(int)> on_signal;
  // Shared with the pending wait, which outlives an unwatch by one turn.
  std::map<std::uint64_t, std::shared_ptr<Watch>> watches;

  void check_thread() const {
    const std::thread::id running = thread.load(std::memory_order_relaxed);
    RN_ASSERT(
        running == std::thread::id() || running == std::this_thread::get_id(),
        "a loop's members are for its own thread; use post()"
    );
  }

  void arm() {
    const Instant next = timers.empty() ? Instant::max() : timers.begin()->first;
    if (next == armed_for) return;
    armed_for = next;
    itimerspec when{};
    if (next != Instant::max()) {
      // Relative: what sets other clocks for a process (libfaketime) moves absolute times too.
      const std::int64_t ns = std::max<std::int64_t>(to_ns(next) - to_ns(clock.now().boot), 1);
      when.it_value.tv_sec = ns / 1'000'000'000;
      when.it_value.tv_nsec = ns % 1'000'000'000;
    }
    RN_ASSERT(
        timerfd_settime(timer_fd.native_handle(), 0, &when, nullptr) == 0, "a timer can be set"
    );
  }

  void add_timer(Instant at, Timer timer) {
    const std::uint64_t id = timer.id;
    timer_names[id] = timers.emplace(at, std::move(timer));
  }

  void await_timers() {
    timer_fd.async_wait(Descriptor::wait_read, [this](const boost::system::error_code& error) {
      if (error) return;
      std::uint64_t expirations = 0;
      (void)!read(timer_fd.native_handle(), &expirations, sizeof(expirations));
      armed_for = Instant::max();
      fire(clock.now().boot);
      arm();
      await_timers();
    });
  }

  void fire(Instant now) {
    // Timers made meanwhile wait for the next turn, even if they are due: descriptors get their
    // share.
    const std::uint64_t made_before = next_name;
    auto at = timers.begin();
    while (at != timers.end() && at->first <= now) {
      if (at->second.id >= made_before) {
        ++at;
        continue;
      }
      Timer timer = std::move(at->second);
      timers.erase(at);
      timer_names.erase(timer.id);
      if (timer.period > nanoseconds(0)) firing = timer.id;
      timer.fn();
      if (timer.period > nanoseconds(0) && firing == timer.id) {
        const Instant next = clock.now().boot + timer.period;
        add_timer(next, std::move(timer));
      }
      firing = 0;
      at = timers.begin();  // the function may have changed the list
    }
  }

  void await_watch(const std::shared_ptr<Watch>& watch) {
    watch->descriptor.async_wait(
        Descriptor::wait_read,
        [this, watch](const boost::system::error_code& error) {
          if (error || !watch->is_active) return;
          watch->fn();
          if (watch->is_active) await_watch(watch);
        }
    );
  }

  void await_signal() {
    signals->async_wait([this](const boost::system::error_code& error, int number) {
      if (error) return;
      on_signal(number);
      await_signal();
    });
  }
};

Loop::Loop() : state_(std::make_unique<State>()) {
  (void)std::signal(SIGPIPE, SIG_IGN);  // NOLINT(concurrency-mt-unsafe): idempotent
  const int fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  RN_ASSERT(fd >= 0, "a process has a descriptor left for its loop's timers");
  state_->timer_fd.assign(fd);
  state_->await_timers();
}

Loop::~Loop() {
  for (auto& [name, watch] : state_->watches) {
    watch->is_active = false;
    (void)watch->descriptor.release();
  }
}

void Loop::run() {
  state_->thread.store(std::this_thread::get_id(), std::memory_order_relaxed);
  state_->context.run();
  state_->thread.store(std::thread::id(), std::memory_order_relaxed);
  state_->context.restart();
}

void Loop::poll() {
  state_->thread.store(std::this_thread::get_id(), std::memory_order_relaxed);
  state_->context.poll();
  state_->thread.store(std::thread::id(), std::memory_order_relaxed);
  if (state_->context.stopped()) state_->context.restart();
}

void Loop::stop() {
  state_->context.stop();
}

void Loop::post(std::function<void()> fn) {
  asio::post(state_->context, std::move(fn));
}

TimerId Loop::run_after(nanoseconds delay, std::function<void()> fn) {
  state_->check_thread();
  const TimerId id{state_->next_name++};
  const Instant at = state_->clock.now().boot + std::max(delay, nanoseconds(0));
  state_->add_timer(at, State::Timer{id.value, nanoseconds(0), std::move(fn)});
  state_->arm();
  return id;
}

TimerId Loop::run_every(nanoseconds period, std::function<void()> fn) {
  state_->check_thread();
  RN_ASSERT(period > nanoseconds(0), "a repeating timer needs a period");
  const TimerId id{state_->next_name++};
  state_->add_timer(
      state_->clock.now().boot + period, State::Timer{id.value, period, std::move(fn)}
  );
  state_->arm();
  return id;
}

void Loop::cancel(TimerId timer) {
  state_->check_thread();
  if (timer.value != 0 && state_->firing == timer.value) state_->firing = 0;
  const auto found = state_->timer_names.find(timer.value);
  if (found == state_->timer_names.end()) return;
  // The function may own whoever is calling: it dies after the lists are right.
  const State::Timer dead = std::move(found->second->second);
  state_->timers.erase(found->second);
  state_->timer_names.erase(found);
  state_->arm();
}

Status Loop::on_signal(const std::vector<int>& signals, std::function<void(int)> fn) {
  state_->check_thread();
  state_->signals.emplace(state_->context);
  for (const int number : signals) {
    boost::system::error_code error;
    state_->signals->add(number, error);
    if (error) return fail(ErrorCode::kInvalid, "cannot handle signal " + std::to_string(number));
  }
  state_->on_signal = std::move(fn);
  state_->await_signal();
  return {};
}

Result<WatchId> Loop::watch_readable(int fd, std::function<void()> fn) {
  state_->check_thread();

  struct stat what {};

  if (fstat(fd, &what) != 0) return fail(error_from_errno(errno, "watching a descriptor"));
  if (S_ISREG(what.st_mode) || S_ISDIR(what.st_mode))
    return fail(ErrorCode::kUnsupported, "a file is always readable and cannot be watched");
  auto watch =
      std::make_shared<State::Watch>(State::Watch{Descriptor(state_->context), std::move(fn)});
  boost::system::error_code error;
  watch->descriptor.assign(fd, error);
  if (error) return fail(error_from_errno(error.value(), "watching a descriptor"));
  const WatchId id{state_->next_name++};
  state_->watches.emplace(id.value, watch);
  state_->await_watch(watch);
  return id;
}

void Loop::unwatch(WatchId watch) {
  state_->check_thread();
  const auto found = state_->watches.find(watch.value);
  if (found == state_->watches.end()) return;
  found->second->is_active = false;
  (void)found->second->descriptor.release();
  state_->watches.erase(found);
}

bool Loop::is_loop_thread() const {
  return state_->thread.load(std::memory_order_relaxed) == std::this_thread::get_id();
}

Now Loop::now() const {
  return state_->clock.now();
}

asio::io_context& Loop::context() {
  return state_->context;
}

}  // namespace rn::io
