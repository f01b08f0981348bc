// SPDX-License-Identifier: Apache-2.0
#include "agent/leaving.h"

#include <csignal>
#include <cstring>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/identity.h"
#include "base/fenced_fs_fixture.h"
#include "base/fs_crash.h"
#include "base/scratch_folder.h"

namespace rn::agent {
namespace {

NodeView a_connected_node() {
  NodeView view;
  view.is_coordinator_connected = view.is_warden_connected = true;
  return view;
}

TEST(Leaving, says_which_guests_are_still_here_and_who_does_not_answer) {
  NodeView view = a_connected_node();
  view.attempts.emplace_back();
  view.attempts[0].report.job = JobId("j-1");
  view.attempts[0].phase = "saving";
  EXPECT_EQ(leaving_waits_for(view), "guest j-1 (saving)");

  view.engine = "docker 27.0";
  view.engine_gone_s = 31;
  view.is_coordinator_connected = false;
  EXPECT_EQ(
      leaving_waits_for(view),
      "guest j-1 (saving); the container engine has not answered for 31 s; the coordinator, which "
      "must be told, is away"
  );
}

TEST(EngineTrouble, one_that_was_never_seen_has_not_answered_yet) {
  NodeView view;
  view.engine_gone_s = 0;
  EXPECT_EQ(engine_trouble(view), "has not answered yet");
  view.engine_gone_s = 12;
  EXPECT_EQ(engine_trouble(view), "has not answered yet, 12 s after the start");
  view.engine = "docker 27.0";
  EXPECT_EQ(engine_trouble(view), "has not answered for 12 s");
}

TEST(Leaving, without_guests_it_waits_for_the_coordinator) {
  EXPECT_EQ(leaving_waits_for(a_connected_node()), "the coordinator's word that it knows");
}

/// A disk on which one folder is a mount of its own, as a guest's view of its owner's files is.
class MountedDisk final : public FencedFileSystem {
 public:
  MountedDisk(FileSystem& disk, std::string point)
      : FencedFileSystem(disk, "/state"), point_(std::move(point)) {}

  Result<std::uint64_t> mount_of(const std::string& path) override {
    RN_CHECK(FencedFileSystem::mount_of(path).map([](std::uint64_t) {}));
    return std::uint64_t{path == point_ || path.starts_with(point_ + "/") ? 2U : 1U};
  }

 private:
  std::string point_;
};

class Purge : public testing::Test {
 protected:
  Purge() {
    config_.state = "/state";
    for (const char* const file :
         {"/state/agent/identity/identity.json",
          "/state/agent/views/photos/one",
          "/state/warden/data/photos/one"}) {
      EXPECT_TRUE(make_folders(disk_, parent_folder(file), 0755));
      EXPECT_TRUE(write_durably(disk_, file, as_bytes("kept"), 0644));
    }
  }

  bool is_there(const std::string& path) { return disk_.stat(path).has_value(); }

  ManualClock clock_;
  CrashFs disk_{clock_, 1};
  AgentConfig config_;
};

TEST_F(Purge, removes_nothing_at_all_where_something_is_mounted_and_says_what_to_do) {
  const std::string point = "/state/agent/views/photos";
  MountedDisk fs(disk_, point);

  const Status purged = purge(fs, config_);

  ASSERT_FALSE(purged);
  EXPECT_EQ(purged.error().code, ErrorCode::kConflict);
  EXPECT_EQ(purged.error().message, point + " is mounted: nothing was removed");
  EXPECT_NE(purged.error().hint.find("reclaim-warden leave"), std::string::npos);
  EXPECT_TRUE(is_there("/state/agent/identity/identity.json"));
  EXPECT_TRUE(is_there(point + "/one"));
  EXPECT_TRUE(fs.refused().empty());
}

TEST_F(Purge, removes_the_agents_files_and_leaves_the_wardens_for_it) {
  MountedDisk fs(disk_, "/state/warden/data/photos");

  ASSERT_TRUE(purge(fs, config_));

  EXPECT_FALSE(is_there("/state/agent"));
  EXPECT_TRUE(is_there("/state/warden/data/photos/one"));
  EXPECT_TRUE(purge(fs, config_)) << "again, with nothing there";
}

class WhatIsHeld : public testing::Test {
 protected:
  WhatIsHeld() { config_.state = "/state"; }

  void put(const std::string& path, std::size_t bytes) {
    const std::string whole = "/state/agent/chunks/" + path;
    ASSERT_TRUE(make_folders(disk_, parent_folder(whole), 0700));
    ASSERT_TRUE(write_durably(disk_, whole, as_bytes(std::string(bytes, 'x')), 0600));
  }

  ManualClock clock_;
  CrashFs disk_{clock_, 1};
  FencedFileSystem fs_{disk_, "/state"};
  AgentConfig config_;
};

TEST_F(WhatIsHeld, is_counted_by_jobs_generations_and_bytes_and_nothing_is_touched) {
  put("manifests/j-1/0000000001.0000000001.0000000003-aa", 100);
  put("manifests/j-1/0000000001.0000000001.0000000004-bb", 100);
  put("manifests/j-2/0000000001.0000000001.0000000001-cc", 100);
  ASSERT_TRUE(make_folders(disk_, "/state/agent/chunks/manifests/j-over", 0700));
  put("chunks/ab/abcd", 1 << 20);
  put("chunks/cd/cdef", 1 << 20);

  const auto held = checkpoint::measure_store(fs_, config_.store_folder());

  ASSERT_TRUE(held) << held.error().describe();
  EXPECT_EQ(held->jobs, 2U);
  EXPECT_EQ(held->generations, 3U);
  EXPECT_EQ(held->bytes, (2U << 20) + 300);
  EXPECT_TRUE(disk_.stat("/state/agent/chunks/chunks/ab/abcd"));
}

TEST_F(WhatIsHeld, where_no_store_is_there_is_nothing_and_no_word_of_it) {
  const auto held = checkpoint::measure_store(fs_, config_.store_folder());

  ASSERT_TRUE(held) << held.error().describe();
  EXPECT_EQ(held->jobs, 0U);
  EXPECT_EQ(held_words(*held, true), "");
}

TEST_F(WhatIsHeld, is_said_before_it_goes_and_who_is_told) {
  const std::string purged = held_words({.jobs = 2, .generations = 3, .bytes = 5u << 19}, true);
  EXPECT_TRUE(purged.starts_with(
      "holds 3 generations of 2 jobs of others (2.5 MiB): they go with it; owners of jobs whose "
      "last copy that is are told"
  )) << purged;

  const std::string left = held_words({.jobs = 1, .generations = 1, .bytes = 1 << 20}, false);
  EXPECT_TRUE(left.starts_with(
      "holds 1 generation of 1 job of others (1.0 MiB): once it has left, nobody can fetch it"
  )) << left;
}

TEST(Leaving, what_was_not_there_is_not_called_removed) {
  EXPECT_EQ(purged_words("/state/agent", true, true), "/state/agent is removed");
  EXPECT_EQ(
      purged_words("/state/agent", true, false),
      "/state/agent is removed; this machine had joined no site"
  );
  EXPECT_EQ(
      purged_words("/state/agent", false, false), "nothing to remove: there is no /state/agent"
  );
}

TEST(Leaving, an_agent_that_ended_has_left_only_if_the_coordinator_said_so) {
  ManualClock clock;
  CrashFs disk(clock, 1);
  const std::string folder = "/state/agent/identity";
  ASSERT_TRUE(make_folders(disk, folder, 0700));
  EXPECT_EQ(leaving_end(has_left(disk, folder), true), LeavingEnd::kDied);
  EXPECT_EQ(leaving_end(has_left(disk, folder), false), LeavingEnd::kNoAgent);

  ASSERT_TRUE(note_left(disk, folder));
  disk.restart();  // a power cut

  EXPECT_EQ(leaving_end(has_left(disk, folder), true), LeavingEnd::kLeft);
  EXPECT_EQ(leaving_end(has_left(disk, folder), false), LeavingEnd::kLeft);
}

TEST(Leaving, of_an_agent_that_died_it_says_that_nothing_is_removed_and_how_it_goes_on) {
  const Error died = died_while_leaving();

  EXPECT_EQ(died.code, ErrorCode::kUnavailable);
  EXPECT_NE(died.message.find("nothing is removed"), std::string::npos);
  EXPECT_TRUE(died.hint.starts_with("start it again"));
}

/// Serves the socket until it reads a byte, closes it, and lives on.
[[noreturn]] void serve(const std::string& path, int ready, int order) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(socket, 4) != 0)
    _exit(1);
  char byte = 'x';
  if (write(ready, &byte, 1) != 1 || read(order, &byte, 1) != 1) _exit(1);
  close(socket);
  if (write(ready, &byte, 1) != 1) _exit(1);
  for (;;) pause();
}

TEST(Leaving, what_the_coordinator_was_not_told_and_what_follows_is_said) {
  const std::string words = untold_coordinator("https://campus:7443", NodeId("n-7"));

  EXPECT_TRUE(words.starts_with("the coordinator https://campus:7443 was not told that n-7 has left"
  ));
  EXPECT_TRUE(words.ends_with("reclaim nodes revoke n-7"));
}

TEST(Leaving, a_process_that_has_closed_its_socket_has_not_yet_ended) {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/socket";
  int ready[2];
  int order[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(order), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) serve(path, ready[1], order[0]);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);

  const auto process = ServingProcess::of(path);
  ASSERT_TRUE(process) << process.error().describe();
  ASSERT_EQ(write(order[1], "x", 1), 1);
  ASSERT_EQ(read(ready[0], &byte, 1), 1);

  EXPECT_EQ(ServingProcess::of(path).error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(process->ends_within(milliseconds(0)));
  kill(child, SIGKILL);
  EXPECT_TRUE(process->ends_within(seconds(30)));
  waitpid(child, nullptr, 0);
  for (const int fd : {ready[0], ready[1], order[0], order[1]}) close(fd);
}

}  // namespace
}  // namespace rn::agent
