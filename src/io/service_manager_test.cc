// SPDX-License-Identifier: Apache-2.0
#include "io/service_manager.h"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/scratch_folder.h"

namespace rn::io {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kVariables[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};

/// Both ends: a manager's socket in a folder of the test's own, and the environment that names it.
class ServiceManagerTest : public ::testing::Test {
 protected:
  ~ServiceManagerTest() override {
    for (const char* name : kVariables) ::unsetenv(name);
  }

  void listen_at(const std::string& path) {
    socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    ASSERT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  }

  /// All that has arrived.
  std::vector<std::string> heard() const {
    std::vector<std::string> words;
    std::array<char, 256> buffer{};
    for (;;) {
      const ssize_t size = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (size < 0) return words;
      words.emplace_back(buffer.data(), static_cast<std::size_t>(size));
    }
  }

  /// As systemd starts a service with `Type=notify`, and with WatchdogSec= for `watchdog_us` > "".
  void start_as_service(const std::string& watchdog_us, const std::string& watched) {
    const std::string path = folder_.path() + "/notify";
    listen_at(path);
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
    if (!watchdog_us.empty()) ::setenv("WATCHDOG_USEC", watchdog_us.c_str(), 1);
    if (!watched.empty()) ::setenv("WATCHDOG_PID", watched.c_str(), 1);
  }

  static void turn_for(Loop& loop, milliseconds time) {
    loop.run_after(time, [&] { loop.stop(); });
    loop.run();
  }

  ScratchFolder folder_;
  Fd socket_;
};

TEST_F(ServiceManagerTest, hears_once_that_a_daemon_is_ready_and_no_signs_that_nobody_asked_for) {
  start_as_service("", "");
  Loop loop;
  ServiceManager manager = ServiceManager::take();
  EXPECT_THAT(heard(), IsEmpty());

  manager.serving(loop);
  turn_for(loop, milliseconds(20));

  EXPECT_THAT(heard(), ElementsAre("READY=1"));
}

TEST_F(ServiceManagerTest, hears_signs_of_life_while_the_loop_turns) {
  start_as_service("3000", std::to_string(::getpid()));
  Loop loop;
  ServiceManager manager = ServiceManager::take();

  manager.serving(loop);
  std::vector<std::string> all = heard();
  const auto watch = loop.watch_readable(socket_.get(), [&] {
    for (const std::string& word : heard()) all.push_back(word);
    if (all.size() >= 3) loop.stop();
  });
  ASSERT_TRUE(watch);
  loop.run();
  loop.unwatch(*watch);

  all.resize(3);
  EXPECT_THAT(all, ElementsAre("READY=1", "WATCHDOG=1", "WATCHDOG=1"));
}

TEST_F(ServiceManagerTest, a_watchdog_of_another_process_is_not_answered) {
  start_as_service("3000", std::to_string(::getpid() + 1));
  Loop loop;
  ServiceManager manager = ServiceManager::take();

  manager.serving(loop);
  turn_for(loop, milliseconds(20));

  EXPECT_THAT(heard(), ElementsAre("READY=1"));
}

TEST_F(ServiceManagerTest, is_not_known_to_what_the_daemon_starts) {
  start_as_service("3000", std::to_string(::getpid()));

  ServiceManager manager = ServiceManager::take();

  for (const char* name : kVariables) EXPECT_EQ(std::getenv(name), nullptr) << name;
  manager.ready();
  EXPECT_THAT(heard(), ElementsAre("READY=1"));
}

TEST_F(ServiceManagerTest, may_have_an_abstract_address) {
  const std::string name = "reclaimnet-test-" + std::to_string(::getpid());
  listen_at('\0' + name);
  ::setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);

  ServiceManager::take().ready();

  EXPECT_THAT(heard(), ElementsAre("READY=1"));
}

TEST_F(ServiceManagerTest, that_is_gone_or_cannot_be_named_keeps_no_daemon_from_serving) {
  for (const std::string& address :
       {folder_.path() + "/gone", std::string("relative"), "/" + std::string(200, 'x')}) {
    ::setenv("NOTIFY_SOCKET", address.c_str(), 1);
    ::setenv("WATCHDOG_USEC", "3000", 1);
    Loop loop;
    ServiceManager manager = ServiceManager::take();
    bool has_turned = false;

    manager.serving(loop);
    loop.run_after(milliseconds(5), [&] {
      has_turned = true;
      loop.stop();
    });
    loop.run();

    EXPECT_TRUE(has_turned) << address;
  }
}

}  // namespace
}  // namespace rn::io
