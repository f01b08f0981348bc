// SPDX-License-Identifier: Apache-2.0
#include "io/loop.h"

#include <array>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "io/fd.h"
#include "io/workers.h"

namespace rn::io {
namespace {

struct Pipe {
  Fd read;
  Fd write;

  Pipe() {
    std::array<int, 2> raw{};
    EXPECT_EQ(::pipe(raw.data()), 0);
    read.reset(raw[0]);
    write.reset(raw[1]);
  }
};

TEST(Loop, runs_posted_functions_in_order_and_stops) {
  Loop loop;
  std::string seen;
  loop.post([&] { seen += "a"; });
  loop.post([&] { seen += loop.is_loop_thread() ? "b" : "?"; });
  loop.post([&] { loop.stop(); });

  loop.run();

  EXPECT_EQ(seen, "ab");
  EXPECT_FALSE(loop.is_loop_thread());
}

TEST(Loop, takes_posts_from_other_threads) {
  Loop loop;
  int count = 0;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) loop.post([&] { ++count; });
    loop.post([&] { loop.stop(); });
  });

  loop.run();

  other.join();
  EXPECT_EQ(count, 1000);
}

TEST(Loop, fires_timers_by_time_and_equal_ones_by_age) {
  Loop loop;
  std::string seen;
  loop.run_after(milliseconds(20), [&] {
    seen += "c";
    loop.stop();
  });
  loop.run_after(milliseconds(0), [&] { seen += "a"; });
  loop.run_after(milliseconds(5), [&] { seen += "b"; });

  loop.run();

  EXPECT_EQ(seen, "abc");
}

TEST(Loop, never_runs_a_cancelled_timer) {
  Loop loop;
  bool ran = false;
  const TimerId timer = loop.run_after(milliseconds(1), [&] { ran = true; });
  loop.run_after(milliseconds(10), [&] { loop.stop(); });

  loop.cancel(timer);
  loop.cancel(timer);
  loop.cancel(TimerId{});
  loop.run();

  EXPECT_FALSE(ran);
}

TEST(Loop, repeats_a_periodic_timer_until_it_cancels_itself) {
  Loop loop;
  int count = 0;
  TimerId timer;
  timer = loop.run_every(milliseconds(1), [&] {
    if (++count < 3) return;
    loop.cancel(timer);
    loop.run_after(milliseconds(5), [&] { loop.stop(); });
  });

  loop.run();

  EXPECT_EQ(count, 3);
}

TEST(Loop, a_timer_may_make_the_next_one_forever_without_starving_posts) {
  Loop loop;
  int turns = 0;
  std::function<void()> again = [&] {
    ++turns;
    loop.run_after(milliseconds(0), again);
  };
  again();
  loop.run_after(milliseconds(2), [&] { loop.post([&] { loop.stop(); }); });

  loop.run();

  EXPECT_GT(turns, 1);
}

TEST(Loop, calls_a_watch_as_long_as_data_is_left) {
  Loop loop;
  Pipe pipe;
  ASSERT_EQ(write(pipe.write.get(), "abc", 3), 3);
  std::string seen;
  Result<WatchId> watch = loop.watch_readable(pipe.read.get(), [&] {
    char byte = 0;
    ASSERT_EQ(read(pipe.read.get(), &byte, 1), 1);
    seen += byte;
    if (seen.size() == 3) loop.stop();
  });
  ASSERT_TRUE(watch);

  loop.run();

  EXPECT_EQ(seen, "abc");
  loop.unwatch(*watch);
  EXPECT_EQ(write(pipe.write.get(), "d", 1), 1);  // the descriptor is still ours and open
}

TEST(Loop, a_watch_may_end_itself_and_watch_anew) {
  Loop loop;
  Pipe pipe;
  ASSERT_EQ(write(pipe.write.get(), "x", 1), 1);
  Result<WatchId> first;
  first = loop.watch_readable(pipe.read.get(), [&] {
    loop.unwatch(*first);
    ASSERT_TRUE(loop.watch_readable(pipe.read.get(), [&] { loop.stop(); }));
  });
  ASSERT_TRUE(first);

  loop.run();
}

TEST(Loop, refuses_to_watch_a_regular_file) {
  Loop loop;
  const Fd file(dup(fileno(std::tmpfile())));

  const auto watch = loop.watch_readable(file.get(), [] {});

  ASSERT_FALSE(watch);
  EXPECT_EQ(watch.error().code, ErrorCode::kUnsupported);
}

TEST(Loop, reports_a_signal_on_the_loop) {
  Loop loop;
  int seen = 0;
  ASSERT_TRUE(loop.on_signal({SIGUSR1, SIGUSR2}, [&](int number) {
    seen = number;
    loop.stop();
  }));
  loop.post([] { raise(SIGUSR2); });

  loop.run();

  EXPECT_EQ(seen, SIGUSR2);
}

/// Keeps worker threads busy until opened.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
  }

  void await_waiting(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }

  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool is_open_ = false;
};

TEST(Workers, do_the_work_elsewhere_and_the_rest_on_the_loop) {
  Loop loop;
  Workers workers(loop, 2, 10);
  std::thread::id worked_on;
  std::string answer;

  ASSERT_TRUE(workers.submit_for(
      [&] {
        worked_on = std::this_thread::get_id();
        return std::string("done");
      },
      [&](std::string text) {
        EXPECT_TRUE(loop.is_loop_thread());
        answer = std::move(text);
        loop.stop();
      }
  ));
  loop.run();

  EXPECT_EQ(answer, "done");
  EXPECT_NE(worked_on, std::this_thread::get_id());
}

TEST(Workers, refuse_at_once_what_is_over_the_bound) {
  Loop loop;
  Gate gate;
  Workers workers(loop, 1, 2);
  ASSERT_TRUE(workers.submit([&] { gate.wait(); }));
  gate.await_waiting(1);
  ASSERT_TRUE(workers.submit([] {}));
  ASSERT_TRUE(workers.submit([] {}));

  const Status refused = workers.submit([] { ADD_FAILURE() << "refused work was done"; });

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(workers.queued(), 2U);
  EXPECT_EQ(workers.running(), 1U);
  gate.open();
}

TEST(Workers, drop_waiting_work_when_they_end) {
  Loop loop;
  Gate gate;
  bool second_ran = false;
  {
    Workers workers(loop, 1, 2);
    ASSERT_TRUE(workers.submit([&] { gate.wait(); }));
    gate.await_waiting(1);
    // The one thread stays blocked until the destructor has begun, since only then does the queue
    // become empty.
    ASSERT_TRUE(workers.submit([&] { second_ran = true; }));
    std::thread opener([&] {
      while (workers.queued() != 0) std::this_thread::yield();
      gate.open();
    });
    opener.detach();
  }
  EXPECT_FALSE(second_ran);
}

}  // namespace
}  // namespace rn::io
