// SPDX-License-Identifier: Apache-2.0
#include "io/local_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/scratch_folder.h"
#include "io/fd.h"
#include "io/loop_fixture.h"

namespace rn::io {
namespace {

/// A packet socket as a guest's PID 1 has it.
Fd listen_packets(const std::string& path) {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  EXPECT_LT(path.size(), sizeof where.sun_path);
  std::copy(path.begin(), path.end(), std::begin(where.sun_path));
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where), 0);
  EXPECT_EQ(listen(fd.get(), 4), 0);
  return fd;
}

/// A blocking TCP connection to this machine.
Fd connect_tcp_to(std::uint16_t port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where), 0);
  return fd;
}

using LocalPtr = std::unique_ptr<LocalSocket>;

class LocalSockets : public testing::Test {
 protected:
  ~LocalSockets() override {
    thread_.call([&] {
      socket_.reset();
      listener_.reset();
    });
  }

  /// A TCP connection: the test's end is answered, the other one is socket_.
  Fd open() {
    const Told<bool> is_there;
    thread_.call([&] {
      auto started = LocalListener::start(thread_.loop(), 0, [this, is_there](LocalPtr socket) {
        socket_ = std::move(socket);
        is_there.tell(true);
      });
      ASSERT_TRUE(started) << started.error().describe();
      listener_ = *std::move(started);
    });
    Fd fd = connect_tcp_to(listener_->port());
    is_there.wait();
    return fd;
  }

  void wait_readable() {
    const Told<bool> readable;
    thread_.call([&] { socket_->when_readable([readable] { readable.tell(true); }); });
    readable.wait();
  }

  Result<SocketRead> read() {
    return thread_.call([&] { return socket_->read(buffer_); });
  }

  Status connect_packets(const std::string& folder, const std::string& name = "s") {
    return thread_.call([&]() -> Status {
      RN_TRY(socket_, LocalSocket::connect_packets(thread_.loop(), folder, name));
      return {};
    });
  }

  LoopThread thread_;
  std::unique_ptr<LocalListener> listener_;
  LocalPtr socket_;
  std::array<std::uint8_t, 64> buffer_{};
};

TEST_F(LocalSockets, bytes_and_their_end_come_one_after_the_other) {
  const Fd peer = open();
  const auto nothing = read();
  ASSERT_TRUE(nothing);
  EXPECT_EQ(nothing->bytes, 0u);
  EXPECT_FALSE(nothing->is_end);

  ASSERT_EQ(send(peer.get(), "abc", 3, 0), 3);
  ASSERT_EQ(shutdown(peer.get(), SHUT_WR), 0);

  wait_readable();
  const auto some = read();
  ASSERT_TRUE(some) << some.error().describe();
  EXPECT_EQ(some->bytes, 3u);
  wait_readable();
  const auto end = read();
  ASSERT_TRUE(end) << end.error().describe();
  EXPECT_TRUE(end->is_end);
}

TEST_F(LocalSockets, one_side_may_end_and_still_read) {
  const Fd peer = open();
  thread_.call([&] {
    EXPECT_EQ(*socket_->write(as_bytes("hello")), 5u);
    socket_->end_writing();
  });
  std::array<char, 16> got{};
  EXPECT_EQ(recv(peer.get(), got.data(), got.size(), MSG_WAITALL), 5);

  ASSERT_EQ(send(peer.get(), "x", 1, 0), 1);

  wait_readable();
  EXPECT_EQ(read()->bytes, 1u);
}

TEST_F(LocalSockets, what_is_full_takes_nothing_until_the_other_side_reads) {
  const Fd peer = open();
  const Blob much(1 << 20, 5);
  std::size_t written = 0;
  const Told<bool> writable;
  thread_.call([&] {
    for (std::size_t put = 1; put > 0; written += put) put = *socket_->write(much);
    socket_->when_writable([writable] { writable.tell(true); });
  });

  Blob got(written);
  EXPECT_EQ(recv(peer.get(), got.data(), got.size(), MSG_WAITALL), ssize_t(written));

  EXPECT_TRUE(writable.wait());
}

TEST_F(LocalSockets, a_reset_is_seen_as_one) {
  const Fd peer = open();

  thread_.call([&] {
    socket_->reset();
    socket_.reset();
  });

  char byte = 0;
  EXPECT_EQ(recv(peer.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST_F(LocalSockets, a_port_that_is_taken_is_a_conflict) {
  (void)open();

  const auto second = thread_.call([&] {
    return LocalListener::start(thread_.loop(), listener_->port(), [](const LocalPtr&) {});
  });

  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kConflict);
}

TEST_F(LocalSockets, packets_stay_packets_and_one_that_is_too_long_is_refused) {
  const ScratchFolder folder;
  const Fd listener = listen_packets(folder.path() + "/s");
  ASSERT_TRUE(connect_packets(folder.path()));
  const Fd peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_EQ(send(peer.get(), "one", 3, 0), 3);
  ASSERT_EQ(send(peer.get(), "four", 4, 0), 4);
  const Blob long_one(buffer_.size() + 1, 7);
  ASSERT_EQ(send(peer.get(), long_one.data(), long_one.size(), 0), ssize_t(long_one.size()));

  EXPECT_EQ(read()->bytes, 3u);
  EXPECT_EQ(read()->bytes, 4u);
  const auto refused = read();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
}

TEST_F(LocalSockets, what_a_guest_puts_in_the_sockets_place_is_not_followed) {
  const ScratchFolder folder;
  const ScratchFolder owners;
  const Fd listener = listen_packets(owners.path() + "/s");
  std::filesystem::create_symlink(owners.path() + "/s", folder.path() + "/s");
  std::filesystem::create_directory(folder.path() + "/f");
  std::filesystem::create_directory_symlink(owners.path(), folder.path() + "/d");

  EXPECT_EQ(connect_packets(folder.path(), "s").error().code, ErrorCode::kDenied);
  EXPECT_EQ(connect_packets(folder.path(), "f").error().code, ErrorCode::kDenied);
  EXPECT_EQ(connect_packets(folder.path() + "/d", "s").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(connect_packets(folder.path(), "none").error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(connect_packets(owners.path(), "s"));
}

TEST_F(LocalSockets, nobody_who_listens_is_not_waited_for) {
  const ScratchFolder folder;
  listen_packets(folder.path() + "/s").reset();

  EXPECT_EQ(connect_packets(folder.path()).error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace rn::io
