// SPDX-License-Identifier: Apache-2.0
#include "io/framed_unix.h"

#include <cstdlib>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/scratch_folder.h"
#include "io/loop_fixture.h"

namespace rn::io {
namespace {

class FramedUnix : public ::testing::Test {
 protected:
  FramedUnix() { config_.path = folder_.path() + "/socket"; }

  ~FramedUnix() override { stop(); }

  Status start(FramedUnixServer::Opened opened) {
    return thread_.call([&]() -> Status {
      RN_TRY(server_, FramedUnixServer::start(thread_.loop(), config_, std::move(opened)));
      return {};
    });
  }

  static void echo(const std::shared_ptr<FramedUnixSession>& session) {
    session->on_frame([weak = std::weak_ptr(session)](const Frame& frame) {
      if (const auto alive = weak.lock()) (void)alive->send(frame.type, frame.body);
    });
  }

  void stop() {
    thread_.call([&] { server_.reset(); });
  }

  LoopThread thread_;
  ScratchFolder folder_;
  FramedUnixServerConfig config_;
  std::unique_ptr<FramedUnixServer> server_;
};

TEST_F(FramedUnix, answers_frames_and_names_the_peer) {
  const Told<UnixPeer> seen;
  ASSERT_TRUE(start([&](const std::shared_ptr<FramedUnixSession>& session) {
    seen.tell(session->peer());
    echo(session);
  }));
  auto client = FramedUnixClient::connect(config_.path);
  ASSERT_TRUE(client) << client.error().describe();

  ASSERT_TRUE((*client)->send(4, as_bytes("ping")));
  ASSERT_TRUE((*client)->send(5, Blob(300'000, 9)));
  const auto first = (*client)->receive(kLimit);
  const auto second = (*client)->receive(kLimit);

  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->type, 4);
  EXPECT_EQ(as_text(first->body), "ping");
  EXPECT_EQ(second->body.size(), 300'000U);
  EXPECT_EQ(seen.wait().pid, getpid());
  EXPECT_EQ((*client)->peer().uid, geteuid());
  EXPECT_EQ((*client)->receive(milliseconds(5)).error().code, ErrorCode::kTimeout);
}

TEST_F(FramedUnix, turns_away_users_that_are_not_allowed) {
  config_.allowed_uids = {geteuid() + 1};
  ASSERT_TRUE(start([](const auto&) { ADD_FAILURE() << "a stranger was served"; }));
  auto client = FramedUnixClient::connect(config_.path);
  ASSERT_TRUE(client);

  EXPECT_EQ((*client)->receive(kLimit).error().code, ErrorCode::kUnavailable);
}

TEST_F(FramedUnix, closes_on_an_oversize_frame_and_over_the_bound_of_connections) {
  config_.max_frame_bytes = 100;
  config_.max_connections = 1;
  const Told<bool> closed;
  ASSERT_TRUE(start([&](const std::shared_ptr<FramedUnixSession>& session) {
    session->on_close([&] { closed.tell(true); });
  }));
  auto first = FramedUnixClient::connect(config_.path);
  auto second = FramedUnixClient::connect(config_.path);
  ASSERT_TRUE(first && second);

  EXPECT_EQ((*second)->receive(kLimit).error().code, ErrorCode::kUnavailable);
  ASSERT_TRUE((*first)->send(1, Blob(101)));
  EXPECT_EQ((*first)->receive(kLimit).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(closed.wait());
}

TEST_F(FramedUnix, closes_a_client_that_does_not_read) {
  config_.max_queued_bytes = 2 << 20;
  const Told<ErrorCode> refused;
  ASSERT_TRUE(start([&](const std::shared_ptr<FramedUnixSession>& session) {
    for (;;) {
      const Status sent = session->send(1, Blob(100'000));
      if (sent) continue;
      refused.tell(sent.error().code);
      return;
    }
  }));
  auto client = FramedUnixClient::connect(config_.path);
  ASSERT_TRUE(client);

  EXPECT_EQ(refused.wait(), ErrorCode::kExhausted);
}

TEST_F(FramedUnix, replaces_a_stale_socket_but_not_a_live_one) {
  config_.mode = 0600;
  ASSERT_TRUE(start([](const auto&) {}));

  struct stat raw {};

  ASSERT_EQ(stat(config_.path.c_str(), &raw), 0);
  EXPECT_EQ(raw.st_mode & 0777, 0600U);

  const ErrorCode second = thread_.call([&] {
    const auto other = FramedUnixServer::start(thread_.loop(), config_, [](const auto&) {});
    return other ? ErrorCode::kInternal : other.error().code;
  });
  EXPECT_EQ(second, ErrorCode::kConflict);

  stop();
  EXPECT_EQ(FramedUnixClient::connect(config_.path).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(start([](const auto&) {}));
}

}  // namespace
}  // namespace rn::io
