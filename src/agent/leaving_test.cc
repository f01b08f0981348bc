// SPDX-License-Identifier: Apache-2.0
#include "agent/leaving.h"

#include <csignal>
#include <cstring>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

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

  view.engine_gone_s = 31;
  view.is_coordinator_connected = false;
  EXPECT_EQ(
      leaving_waits_for(view),
      "guest j-1 (saving); the container engine has not answered for 31 s; the coordinator, which "
      "must be told, is away"
  );
}

TEST(Leaving, without_guests_it_waits_for_the_coordinator) {
  EXPECT_EQ(leaving_waits_for(a_connected_node()), "the coordinator's word that it knows");
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
