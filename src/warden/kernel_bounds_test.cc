// SPDX-License-Identifier: Apache-2.0
#include "warden/kernel_bounds.h"

#include <csignal>
#include <string>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/fd.h"
#include "io/read_text.h"

namespace rn::warden {
namespace {

constexpr int kTries = 4096;

struct Pipe {
  io::Fd out;
  io::Fd in;

  static Pipe make() {
    int ends[2];
    if (pipe(ends) != 0) return {};
    return {io::Fd(ends[0]), io::Fd(ends[1])};
  }
};

/// A process in a user namespace of its own, as a container has one. Once told, it opens inotify
/// instances until it is refused, says how many it got, and ends.
class Greedy {
 public:
  Greedy() {
    pid_ = fork();
    if (pid_ != 0) return;
    std::int32_t count = unshare(CLONE_NEWUSER) == 0 ? 0 : -1;
    tell(said_, count);
    char go = 0;
    if (count == 0 && read(told_.out.get(), &go, 1) == 1) {
      while (count < kTries && inotify_init1(IN_CLOEXEC) >= 0) ++count;
      tell(said_, count);
    }
    _exit(0);
  }

  Greedy(const Greedy&) = delete;
  Greedy& operator=(const Greedy&) = delete;

  ~Greedy() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }

  /// 0 once it is in its namespace.
  std::int32_t ready() { return hear(); }

  std::int32_t instances() {
    EXPECT_EQ(write(told_.in.get(), "g", 1), 1);
    return hear();
  }

 private:
  static void tell(const Pipe& pipe, std::int32_t number) {
    if (write(pipe.in.get(), &number, sizeof number) != sizeof number) _exit(1);
  }

  std::int32_t hear() {
    std::int32_t number = -1;
    return read(said_.out.get(), &number, sizeof number) == sizeof number ? number : -1;
  }

  Pipe told_ = Pipe::make();
  Pipe said_ = Pipe::make();
  pid_t pid_ = -1;
};

std::uint64_t instances_of_the_machine() {
  return std::stoull(io::read_text("/proc/sys/fs/inotify/max_user_instances"));
}

TEST(KernelBounds, a_guest_gets_a_sixteenth_of_the_inotify_instances_that_root_has) {
  const std::uint64_t before = instances_of_the_machine();
  Greedy guest;
  if (guest.ready() != 0) GTEST_SKIP() << "needs the right to make a user namespace";

  const Status bound = bound_kernel_objects(guest.pid());

  ASSERT_TRUE(bound) << bound.error().describe();
  EXPECT_EQ(guest.instances(), std::max<std::uint64_t>(1, before / kGuestsPartOfRoot));
  EXPECT_EQ(instances_of_the_machine(), before) << "the machine's own bound was changed";
}

TEST(KernelBounds, a_process_in_the_machines_own_namespace_is_charged_to_its_user_alone) {
  const std::uint64_t before = instances_of_the_machine();

  EXPECT_TRUE(bound_kernel_objects(getpid()));

  EXPECT_EQ(instances_of_the_machine(), before);
}

TEST(KernelBounds, a_process_that_is_gone_is_an_error) {
  EXPECT_FALSE(bound_kernel_objects(0x3fffffff));
}

}  // namespace
}  // namespace rn::warden
