// SPDX-License-Identifier: Apache-2.0
#include "warden/kill_path.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/read_text.h"
#include "io/real_clock.h"
#include "traffic/guest_cut.h"
#include "warden/cgroup_fixture.h"
#include "warden/gpu_processes_fake.h"
#include "warden/herd_fixture.h"
#include "warden/kill_journal.h"
#include "warden/kill_service.h"

#if defined(__SANITIZE_ADDRESS__)
#define RN_SANITIZER_ALLOCATES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RN_SANITIZER_ALLOCATES 1
#endif
#endif

namespace {
std::atomic<std::uint64_t> allocations{0};  ///< of every thread
}  // namespace

// Every allocation of this program, operator new's included, comes through here.
#ifdef RN_SANITIZER_ALLOCATES
#include <sanitizer/allocator_interface.h>

namespace {
void count(const volatile void*, std::size_t) {
  ++allocations;
}

void ignore(const volatile void*) {}  // the hooks come only as a pair

const bool is_counting = __sanitizer_install_malloc_and_free_hooks(&count, &ignore) != 0;
}  // namespace
#else
extern "C" {
void* __libc_malloc(std::size_t size);                       // NOLINT
void* __libc_calloc(std::size_t count, std::size_t size);    // NOLINT
void* __libc_realloc(void* old, std::size_t size);           // NOLINT
void* __libc_memalign(std::size_t align, std::size_t size);  // NOLINT

void* malloc(std::size_t size) {
  ++allocations;
  return __libc_malloc(size);
}

void* calloc(std::size_t count, std::size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}

void* realloc(void* old, std::size_t size) {
  ++allocations;
  return __libc_realloc(old, size);
}

void* aligned_alloc(std::size_t align, std::size_t size) {
  ++allocations;
  return __libc_memalign(align, size);
}
}
#endif

namespace rn::warden {
namespace {

using test::Herd;
using test::sleep_forever;

void spin_forever() {
  volatile unsigned turns = 0;
  for (;;) {
    turns = turns + 1;
  }
}

/// A lab of its own with real cgroups and real gates.
class Kill : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) {
      std::cerr << "\n*** NOT RUN: the kill path's tests need root (cgroups, BPF) ***\n\n";
      GTEST_SKIP() << "not root";
    }
    ASSERT_EQ(unshare(CLONE_NEWNET), 0);
    roots_ = probe_cgroups().value();
    auto cut = traffic::GuestCut::open(folder_.path() + "/bpf");
    ASSERT_TRUE(cut) << cut.error().describe();
    cut_.emplace(std::move(*cut));
    ASSERT_TRUE(cut_->uncut_node());
    ASSERT_TRUE(cut_->uncut(kSlot));
    ASSERT_TRUE(make_cgroup(roots_, lab_ + "/guest-1"));
    ASSERT_TRUE(make_cgroup(roots_, lab_ + "/guest-2"));
    config_.journal = folder_.path() + "/kill.journal";
    config_.bpffs = folder_.path() + "/bpf";
    config_.cgroup_parent = lab_;
    config_.attempts_folder = folder_.path() + "/attempts";
    config_.journal_limit =
        seconds(30);  // the tests' disk may be slow, and is_journaled is asserted
  }

  void TearDown() override {
    if (!cut_) return;
    EXPECT_TRUE(cut_->leave());
    EXPECT_TRUE(remove_cgroup(roots_, lab_)) << "processes were left";
  }

  void open_path() {
    auto path = KillPath::open(config_, clock_, gpus_);
    ASSERT_TRUE(path) << path.error().describe();
    path_ = std::move(*path);
    ASSERT_TRUE(path_->guest_started(
        kSlot, {.cgroup = lab_ + "/guest-1", .folder = "", .netns = "", .ifindex = 0}
    ));
    ASSERT_TRUE(path_->guest_started(
        kSlot + 1, {.cgroup = lab_ + "/guest-2", .folder = "", .netns = "", .ifindex = 0}
    ));
  }

  static constexpr traffic::Slot kSlot = 5;
  const std::string lab_ = "rn-test-kill-" + std::to_string(getpid());
  const test::Folder folder_{test::Tree{{"attempts", test::Tree{}}}};
  const io::RealClock clock_{};
  CgroupRoots roots_;
  std::optional<traffic::GuestCut> cut_;
  KillPathConfig config_;
  GpuProcesses* gpus_ = nullptr;
  std::unique_ptr<KillPath> path_;
};

TEST_F(Kill, clearing_the_node_cuts_kills_and_verifies_in_that_order) {
  open_path();
  const Herd first(roots_, lab_ + "/guest-1", 3, sleep_forever);
  const Herd second(roots_, lab_ + "/guest-2", 2, spin_forever);

  const KillReport& report = path_->clear({});

  EXPECT_TRUE(report.is_cleared()) << testing::PrintToString(report.remains.describe());
  EXPECT_TRUE(report.is_journaled);
  EXPECT_EQ(report.cut_error, 0);
  EXPECT_EQ(report.processes, 5u);
  EXPECT_LE(report.declared, report.cut);
  EXPECT_LE(report.cut, report.killed);
  EXPECT_LE(report.cut, report.journaled) << "the cut does not wait for the disk";
  EXPECT_LE(report.journaled, report.cleared) << "but the order does";
  EXPECT_LE(report.killed, report.cleared);
  EXPECT_FALSE(cut_->gates().state()->is_node_open);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FALSE(first.is_alive(i));
}

TEST_F(Kill, the_disk_can_be_made_to_come_first) {
  config_.cuts_before_journaled = false;
  open_path();
  const Herd guests(roots_, lab_ + "/guest-1", 1, sleep_forever);

  const KillReport& report = path_->clear({});

  EXPECT_TRUE(report.is_cleared());
  EXPECT_TRUE(report.is_journaled);
  EXPECT_LE(report.journaled, report.cut);
}

TEST_F(Kill, one_guest_is_killed_and_its_neighbour_lives_on) {
  open_path();
  const Herd first(roots_, lab_ + "/guest-1", 2, sleep_forever);
  const Herd second(roots_, lab_ + "/guest-2", 1, sleep_forever);

  const KillReport& report = path_->clear({.scope = KillScope::guest(kSlot)});

  EXPECT_TRUE(report.is_cleared()) << testing::PrintToString(report.remains.describe());
  EXPECT_EQ(report.processes, 2u);
  EXPECT_FALSE(first.is_alive(0));
  EXPECT_TRUE(second.is_alive(0));
  EXPECT_TRUE(cut_->gates().state()->is_node_open);
  EXPECT_FALSE(cut_->gates().is_open(kSlot).value());
}

/// A container that the engine is just starting joins after the kill.
TEST_F(Kill, what_joins_after_the_kill_cannot_fork_until_births_are_allowed) {
  const auto pids = std::find_if(roots_.others.begin(), roots_.others.end(), [](const auto& one) {
    return one.ends_with("/pids");
  });
  if (pids == roots_.others.end()) GTEST_SKIP() << "no pids controller of its own";
  const std::string folder = *pids + "/" + lab_;
  const auto fails_to_fork = [&] {
    const pid_t joining = fork();
    if (joining == 0) {
      std::ofstream(folder + "/cgroup.procs") << getpid() << std::flush;
      const pid_t born = fork();
      if (born == 0) _exit(0);
      const bool is_refused = born < 0 && errno == EAGAIN;
      if (born > 0) waitpid(born, nullptr, 0);
      _exit(is_refused ? 1 : 0);
    }
    int status = 0;
    waitpid(joining, &status, 0);
    return WEXITSTATUS(status) == 1;
  };
  open_path();
  KillOrder one_guest;
  one_guest.scope.is_node = false;
  one_guest.scope.slots.set(kSlot);
  ASSERT_TRUE(path_->clear(one_guest).is_cleared());
  std::filesystem::create_directory(folder);
  EXPECT_FALSE(fails_to_fork()) << "others live on";

  ASSERT_TRUE(path_->clear({}).is_cleared());

  EXPECT_TRUE(fails_to_fork());
  const auto killer = CgroupKiller::open(roots_, clock_);
  ASSERT_TRUE(killer);
  killer->allow_births(make_cgroup_name(lab_).value(), true);
  EXPECT_FALSE(fails_to_fork());
}

TEST_F(Kill, what_comes_to_life_after_the_kill_dies_until_the_gate_is_open) {
  open_path();
  ASSERT_TRUE(path_->clear({}).is_cleared());
  ASSERT_TRUE(make_cgroup(roots_, lab_ + "/guest-2"));
  const Herd late(roots_, lab_ + "/guest-2", 1, sleep_forever);
  ASSERT_TRUE(late.is_alive(0));

  EXPECT_TRUE(path_->kill_latecomers());

  for (int i = 0; i < 1000 && late.is_alive(0); ++i) usleep(1000);
  EXPECT_FALSE(late.is_alive(0));

  ASSERT_TRUE(cut_->uncut_node());
  const Herd guests(roots_, lab_ + "/guest-2", 1, sleep_forever);
  EXPECT_FALSE(path_->kill_latecomers());
  usleep(20'000);
  EXPECT_TRUE(guests.is_alive(0)) << "the owner has given the machine back";
}

TEST_F(Kill, nothing_is_allocated_from_the_order_to_cleared) {
  open_path();
  const Herd guests(roots_, lab_ + "/guest-1", 20, sleep_forever);
  std::uint64_t before = allocations;
  const std::string proof_that_it_counts(1000, 'x');
  ASSERT_GT(allocations, before);

  before = allocations;
  const KillReport& report = path_->clear({});
  const std::uint64_t after = allocations;

  EXPECT_TRUE(report.is_cleared());
  EXPECT_EQ(after - before, 0u);
}

TEST_F(Kill, cutting_alone_leaves_the_guests_alive) {
  open_path();
  const Herd guests(roots_, lab_ + "/guest-1", 1, sleep_forever);

  const KillReport& report = path_->cut({.scope = KillScope::guest(kSlot)});

  EXPECT_TRUE(report.is_cut());
  EXPECT_TRUE(report.is_journaled);
  EXPECT_FALSE(report.is_killed());
  EXPECT_TRUE(guests.is_alive(0));
  EXPECT_FALSE(cut_->gates().is_open(kSlot).value());
  path_.reset();
  const auto records = read_kill_journal(config_.journal).value();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].step, KillStep::kIntentCut);
}

TEST_F(Kill, an_order_was_given_when_it_was_read) {
  open_path();
  const Instant read = clock_.now().boot - seconds(1);

  EXPECT_EQ(path_->clear({.declared = read}).declared, read);
}

TEST_F(Kill, a_slot_whose_guest_has_ended_has_nobody_to_kill) {
  open_path();
  path_->guest_ended(kSlot);
  const Herd other(roots_, lab_ + "/guest-1", 1, sleep_forever);

  const KillReport& report = path_->clear({.scope = KillScope::guest(kSlot)});

  EXPECT_TRUE(report.is_cleared());
  EXPECT_EQ(report.processes, 0u);
  EXPECT_TRUE(other.is_alive(0));
}

TEST_F(Kill, gates_that_something_passes_by_are_shut_and_no_cut_until_the_guest_is_gone) {
  open_path();
  const Herd guests(roots_, lab_ + "/guest-1", 1, sleep_forever);
  path_->note_filters_before(KillScope::guest(kSlot).slots);

  EXPECT_FALSE(path_->cut({}).is_cut());
  EXPECT_FALSE(cut_->gates().state()->is_node_open);
  EXPECT_TRUE(path_->cut({.scope = KillScope::guest(kSlot + 1)}).is_cut()) << "not its own";
  warden_wire::KillFrame frame;
  frame.verb = warden_wire::KillFrame::kCutOnly;
  EmergencyDone done;
  ASSERT_TRUE(carry_out(*path_, SlotGpus{}, clock_, frame, done));
  EXPECT_NE(frame.status, 0u);
  EXPECT_EQ(frame.cut_ns, 0);
  EXPECT_GT(done.cut_ns, 0) << "or the core would open the gates again";

  const KillReport& report = path_->clear({});
  EXPECT_TRUE(report.is_cleared()) << "whose packets would it let pass?";
  EXPECT_FALSE(guests.is_alive(0));
  path_->note_filters_before({});
  EXPECT_TRUE(path_->cut({}).is_cut());
}

TEST_F(Kill, guests_frozen_by_the_engine_die_all_the_same) {
  if (roots_.freezer.empty()) GTEST_SKIP() << "no v1 freezer on this machine";
  open_path();
  const Herd guests(roots_, lab_ + "/guest-1", 4, spin_forever);
  std::ofstream(roots_.freezer + "/" + lab_ + "/guest-1/freezer.state") << "FROZEN" << std::flush;

  const KillReport& report = path_->clear({});

  EXPECT_TRUE(report.is_cleared()) << testing::PrintToString(report.remains.describe());
}

TEST_F(Kill, without_a_unified_hierarchy_the_v1_freezer_and_sigkill_do_it) {
  if (roots_.freezer.empty()) GTEST_SKIP() << "no v1 freezer on this machine";
  // A machine with v1 alone: the same freezer, seen through a folder without "unified".
  const test::Folder v1(test::Tree{});
  std::filesystem::create_directory_symlink(roots_.freezer, v1.path() + "/freezer");
  config_.cgroup_root = v1.path();
  open_path();
  const Herd guests(roots_, lab_ + "/guest-1", 50, spin_forever);

  const KillReport& report = path_->clear({});

  EXPECT_TRUE(report.is_cleared()) << testing::PrintToString(report.remains.describe());
  EXPECT_EQ(report.processes, 50u);
}

TEST_F(Kill, intent_and_outcome_are_in_the_journal) {
  open_path();
  const Herd guests(roots_, lab_ + "/guest-1", 1, sleep_forever);
  KillScope scope = KillScope::guest(kSlot);
  scope.gpus = 0b100;
  const Instant declared = path_->clear({.scope = scope}).declared;
  path_.reset();

  const auto records = read_kill_journal(config_.journal).value();

  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].step, KillStep::kIntentKill);
  EXPECT_EQ(records[0].is_node, 0);
  EXPECT_EQ(records[0].gpus, 0b100u);
  EXPECT_EQ(records[0].declared_boot_ns, to_ns(declared));
  EXPECT_EQ(records[1].step, KillStep::kDone);
  EXPECT_EQ(records[1].declared_boot_ns, to_ns(declared));
  EXPECT_GT(records[1].cleared_boot_ns, to_ns(declared));
  EXPECT_EQ(records[1].processes, 1u);
}

TEST_F(Kill, a_disk_that_takes_no_record_does_not_hold_the_cut) {
  std::filesystem::create_symlink("/dev/full", config_.journal);
  open_path();
  const Herd guests(roots_, lab_ + "/guest-1", 1, sleep_forever);

  const KillReport& report = path_->clear({});

  EXPECT_FALSE(report.is_journaled);
  EXPECT_TRUE(report.is_cleared());
}

TEST_F(Kill, a_gpu_context_that_stays_is_not_cleared_and_the_owners_does_not_count) {
  FakeGpuProcesses gpus;
  gpus_ = &gpus;
  open_path();
  const Herd guests(roots_, lab_ + "/guest-1", 1, sleep_forever);
  gpus.processes = {{0, guests.pids()[0], 1 << 20}, {0, getpid(), 1 << 20}};

  const KillReport& wedged = path_->clear({.limit = milliseconds(100)});

  EXPECT_TRUE(wedged.is_killed());
  EXPECT_FALSE(wedged.is_cleared());
  ASSERT_EQ(wedged.remains.total(), 1u);
  EXPECT_EQ(wedged.remains.items()[0].kind, RemainderKind::kGpuContext);
  EXPECT_EQ(wedged.remains.items()[0].id, guests.pids()[0]);
}

TEST_F(Kill, a_gpu_context_that_outlives_its_guest_is_not_cleared_by_a_second_look) {
  FakeGpuProcesses gpus;
  gpus_ = &gpus;
  open_path();
  pid_t guest = 0;
  {
    const Herd guests(roots_, lab_ + "/guest-1", 1, sleep_forever);
    guest = guests.pids()[0];
    gpus.processes = {{0, guest, 1 << 20}};
    EXPECT_FALSE(path_->clear({.limit = milliseconds(50)}).is_cleared());
  }  // and is waited for

  const KillReport& again = path_->clear({.limit = milliseconds(50)});
  EXPECT_FALSE(again.is_cleared());
  ASSERT_EQ(again.remains.total(), 1u);
  EXPECT_EQ(again.remains.items()[0].id, guest);
  const Remains other = path_->look({false, {}, 0b10}, milliseconds(10));
  EXPECT_TRUE(other.is_empty()) << "of GPU 1 alone";
  gpus.processes.clear();
  EXPECT_TRUE(path_->clear({}).is_cleared());
}

TEST_F(Kill, the_emergency_tool_kills_without_gates_and_without_a_journal_and_says_so) {
  config_.is_emergency = true;
  config_.bpffs = "/proc/self/rn-none";
  config_.journal = "/proc/self/rn-none/journal";
  auto path = KillPath::open(config_, clock_, nullptr);
  ASSERT_TRUE(path);
  const Herd guests(roots_, lab_ + "/guest-1", 2, sleep_forever);

  const KillReport& report = (*path)->clear({});

  EXPECT_EQ((*path)->missing().size(), 2u);
  EXPECT_TRUE(report.is_killed());
  EXPECT_EQ(report.cut_error, ENOENT);
  EXPECT_FALSE(report.is_cleared()) << "a node whose cut failed is not cleared";
}

TEST_F(Kill, a_daemon_does_not_start_without_its_gates) {
  config_.bpffs = "/proc/self/rn-none";

  const auto path = KillPath::open(config_, clock_, nullptr);

  ASSERT_FALSE(path);
  EXPECT_EQ(path.error().code, ErrorCode::kUnavailable);
}

TEST_F(Kill, a_guest_outside_the_labs_cgroup_is_refused) {
  open_path();

  const Status started = path_->guest_started(
      kSlot, {.cgroup = "owner/thing", .folder = "", .netns = "", .ifindex = 0}
  );

  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::kInvalid);
}

void ignore_signal(int) {}

void catch_usr1_and_sleep() {
  signal(SIGUSR1, ignore_signal);
  sleep_forever();
}

bool catches_usr1(pid_t pid) {
  const std::string text = io::read_text("/proc/" + std::to_string(pid) + "/status");
  return ((caught_signals(text).value_or(0) >> (SIGUSR1 - 1)) & 1) != 0;
}

/// A worker with a handler of its own, of a program that has none.
void fork_a_catcher_and_sleep() {
  signal(SIGCHLD, SIG_IGN);  // it is gone when it has died
  if (fork() == 0) catch_usr1_and_sleep();
  sleep_forever();
}

/// A worker that inherited its program's handler.
void catch_usr1_fork_and_sleep() {
  signal(SIGCHLD, SIG_IGN);
  signal(SIGUSR1, ignore_signal);
  [[maybe_unused]] const pid_t worker = fork();
  sleep_forever();
}

void launch_as_torchrun() {
  execl("/bin/sh", "torchrun", "-c", "trap : USR1; kill -STOP $$", nullptr);
  _exit(127);
}

TEST_F(Kill, signals_go_to_a_programs_own_handlers_not_to_its_workers_or_launcher) {
  const std::string guest = lab_ + "/guest-1";
  const Herd silent(roots_, guest, 1, fork_a_catcher_and_sleep);
  const Herd saving(roots_, guest, 1, catch_usr1_fork_and_sleep);
  const Herd launcher(roots_, guest, 1, launch_as_torchrun);
  constexpr std::size_t kAll = 5;
  constexpr std::ptrdiff_t kCatch = 4;
  const auto are_ready = [&] {
    const auto pids = pids_in_cgroup(roots_, guest).value();
    return pids.size() == kAll && std::count_if(pids.begin(), pids.end(), catches_usr1) == kCatch;
  };
  // The children come on their own time; the deadline is the test's.
  while (!are_ready()) sched_yield();

  EXPECT_EQ(signal_catchers(roots_, lab_, SIGUSR1).value(), saving.pids());

  // The herds' own end waits for their processes, not for these processes' children.
  const std::vector<pid_t> all = pids_in_cgroup(roots_, guest).value();
  for (const pid_t pid : all) {
    const bool is_worker =
        pid != silent.pids()[0] && pid != saving.pids()[0] && pid != launcher.pids()[0];
    if (is_worker) ::kill(pid, SIGKILL);
  }
  while (pids_in_cgroup(roots_, guest).value().size() > 3) sched_yield();
}

TEST_F(Kill, signals_reach_exactly_those_that_catch_them) {
  const Herd catchers(roots_, lab_ + "/guest-1", 2, catch_usr1_and_sleep);
  const Herd others(roots_, lab_ + "/guest-1", 2, sleep_forever);
  // The children install their handler on their own time; the deadline is the test's.
  for (const pid_t pid : catchers.pids()) {
    while (!catches_usr1(pid)) sched_yield();
  }

  auto signalled = signal_catchers(roots_, lab_, SIGUSR1).value();

  std::vector<pid_t> expected = catchers.pids();
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(signalled, expected);
  EXPECT_TRUE(others.is_alive(0)) << "USR1 would have killed it";
}

/// The owner's socket, served by a thread of its own.
class ServedKill : public Kill {
 protected:
  using Frame = warden_wire::KillFrame;
  static constexpr std::uint32_t kCleared = 0;
  static constexpr std::uint32_t kRefused = 3;
  static constexpr uid_t kOwner = 4711;
  static constexpr uid_t kStranger = 4712;

  void serve() {
    open_path();
    ASSERT_EQ(chmod(folder_.path().c_str(), 0711), 0);
    auto service = KillService::start(
        socket_,
        {kOwner},
        std::move(path_),
        7,
        clock_,
        [this](EmergencyDone done) {
          const std::lock_guard lock(mutex_);
          told_.push_back(std::move(done));
        }
    );
    ASSERT_TRUE(service) << service.error().describe();
    service_ = std::move(*service);
  }

  void TearDown() override {
    service_.reset();
    Kill::TearDown();
  }

  /// What that user is answered. Only the calling thread of a process has the user's id.
  Frame asks(uid_t uid, const Frame& order) const {
    Frame answer;
    answer.status = UINT32_MAX;
    std::thread([&] {
      if (syscall(SYS_setresuid, uid, uid, uid) != 0) return;
      if (const auto got = ask_kill_socket(socket_, order, seconds(30))) answer = *got;
    }).join();
    return answer;
  }

  static Frame order(Frame::Verb verb, std::uint64_t gpu_mask = 0) {
    Frame frame;
    frame.verb = verb;
    frame.gpu_mask = gpu_mask;
    return frame;
  }

  std::vector<EmergencyDone> told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }

  /// The core is told before the answer leaves: who asks it next learns what was done.
  EmergencyDone only_word() {
    const auto all = told();
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? EmergencyDone{} : all.front();
  }

  static bool dies(const Herd& herd) {
    for (int i = 0; i < 2000 && herd.is_alive(0); ++i) usleep(1000);
    return !herd.is_alive(0);
  }

  const std::string socket_ = folder_.path() + "/kill.sock";
  std::unique_ptr<KillService> service_;
  std::mutex mutex_;
  std::vector<EmergencyDone> told_;  ///< guarded by mutex_
};

TEST_F(ServedKill, the_owners_order_ends_every_guest_and_the_core_is_told) {
  serve();
  const Herd guests(roots_, lab_ + "/guest-1", 2, sleep_forever);

  const Frame answer = asks(kOwner, order(Frame::kCutAndClear));

  EXPECT_EQ(answer.status, kCleared);
  EXPECT_EQ(answer.processes, 2U);
  EXPECT_FALSE(guests.is_alive(0));
  const EmergencyDone word = only_word();
  EXPECT_EQ(word.sequence, 8U);
  EXPECT_FALSE(word.is_cut_only);
  EXPECT_EQ(word.gpu_mask, 0U);
  EXPECT_EQ(word.declared_ns, answer.declared_ns);
  EXPECT_EQ(word.report.cleared_ns, answer.cleared_ns);
  EXPECT_EQ(word.report.processes, 2U);
  EXPECT_TRUE(word.report.remains.empty());
  EXPECT_TRUE(service_->count().is_pending()) << "until the core has taken it in";
}

TEST_F(ServedKill, an_order_for_a_gpu_ends_the_guest_that_has_it_and_no_other) {
  serve();
  service_->gpus()[kSlot] = 0b10;
  service_->gpus()[kSlot + 1] = 0b100;
  const Herd first(roots_, lab_ + "/guest-1", 1, sleep_forever);
  const Herd second(roots_, lab_ + "/guest-2", 1, sleep_forever);

  const Frame answer = asks(kOwner, order(Frame::kCutAndClear, 0b10));

  EXPECT_EQ(answer.status, kCleared);
  EXPECT_FALSE(first.is_alive(0));
  EXPECT_TRUE(second.is_alive(0));
  EXPECT_TRUE(cut_->gates().state()->is_node_open);
  EXPECT_EQ(only_word().gpu_mask, 0b10U);
}

TEST_F(ServedKill, a_stranger_and_a_frame_that_is_none_are_refused_and_nothing_happens) {
  serve();
  const Herd guests(roots_, lab_ + "/guest-1", 1, sleep_forever);
  Frame garbage = order(Frame::kCutAndClear);
  garbage.magic = 0;

  EXPECT_EQ(asks(kStranger, order(Frame::kCutAndClear)).status, kRefused);
  EXPECT_EQ(asks(kOwner, garbage).status, kRefused);

  EXPECT_TRUE(guests.is_alive(0));
  EXPECT_TRUE(cut_->gates().state()->is_node_open);
  EXPECT_TRUE(told().empty());
  EXPECT_FALSE(service_->count().is_pending());
}

TEST_F(ServedKill, a_stranger_who_says_nothing_is_refused_soon) {
  serve();
  Frame answer;
  std::thread([&] {
    if (syscall(SYS_setresuid, kStranger, kStranger, kStranger) != 0) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_.copy(address.sun_path, sizeof address.sun_path - 1);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      if (recv(fd, &answer, sizeof answer, 0) != sizeof answer) answer.status = UINT32_MAX;
    }
    close(fd);
  }).join();

  EXPECT_EQ(answer.status, kRefused);
}

/// A container that the engine was starting when the node was cleared.
TEST_F(ServedKill, what_comes_to_life_after_the_order_dies_without_another_one) {
  serve();
  ASSERT_EQ(asks(kOwner, order(Frame::kCutAndClear)).status, kCleared);
  usleep(100'000);  // ten looks: the guard outlasts the first
  ASSERT_TRUE(make_cgroup(roots_, lab_ + "/guest-2"));
  const Herd late(roots_, lab_ + "/guest-2", 1, sleep_forever);
  EXPECT_TRUE(dies(late));

  ASSERT_TRUE(cut_->uncut_node());
  const Herd guests(roots_, lab_ + "/guest-2", 1, sleep_forever);
  usleep(100'000);
  EXPECT_TRUE(guests.is_alive(0)) << "the owner has given the machine back";
}

TEST_F(ServedKill, an_order_from_before_the_release_is_over) {
  serve();
  const Herd guests(roots_, lab_ + "/guest-1", 1, sleep_forever);
  const Instant now = clock_.now().boot;
  service_->note_release(now);
  Frame frame = order(Frame::kCutAndClear);

  frame.declared_ns = to_ns(now - seconds(1));
  EXPECT_EQ(asks(kOwner, frame).status, 4U);
  EXPECT_FALSE(service_->count().is_pending());
  EXPECT_TRUE(told().empty());
  EXPECT_TRUE(guests.is_alive(0));
  frame.declared_ns = to_ns(now + milliseconds(1));
  EXPECT_EQ(asks(kOwner, frame).status, kCleared);
  EXPECT_FALSE(guests.is_alive(0));
}

TEST_F(ServedKill, after_a_cut_alone_nobody_dies) {
  serve();
  const Herd guests(roots_, lab_ + "/guest-1", 1, sleep_forever);

  EXPECT_EQ(asks(kOwner, order(Frame::kCutOnly)).status, kCleared);
  usleep(100'000);

  EXPECT_TRUE(guests.is_alive(0));
  EXPECT_FALSE(cut_->gates().state()->is_node_open);
  EXPECT_TRUE(only_word().is_cut_only);
}

}  // namespace
}  // namespace rn::warden
