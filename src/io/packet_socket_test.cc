// SPDX-License-Identifier: Apache-2.0
#include "io/packet_socket.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/scratch_folder.h"
#include "io/fd.h"

namespace rn::io {
namespace {

constexpr milliseconds kSoon{20'000};

class APacketSocket : public testing::Test {
 protected:
  APacketSocket() {
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    const std::string path = folder_.path() + "/packets";
    std::copy(path.begin(), path.end(), std::begin(where.sun_path));
    listener_ = Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where), 0);
    EXPECT_EQ(listen(listener_.get(), 4), 0);
    here_ = PacketSocket::connect(folder_.path(), "packets").value();
    there_ = Fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  ScratchFolder folder_;
  Fd listener_;
  std::unique_ptr<PacketSocket> here_;
  Fd there_;
  std::array<std::uint8_t, 16> bytes_{};
};

TEST_F(APacketSocket, packets_stay_whole_in_both_directions) {
  ASSERT_TRUE(here_->write(as_bytes("to there"), kSoon));
  EXPECT_EQ(recv(there_.get(), bytes_.data(), bytes_.size(), 0), 8);
  ASSERT_EQ(send(there_.get(), "one", 3, 0), 3);
  ASSERT_EQ(send(there_.get(), "four", 4, 0), 4);

  EXPECT_EQ(here_->read(bytes_, kSoon).value(), 3u);
  EXPECT_EQ(here_->read(bytes_, kSoon).value(), 4u);
}

TEST_F(APacketSocket, says_when_nothing_comes_and_when_the_other_side_is_gone) {
  EXPECT_EQ(here_->read(bytes_, milliseconds(1)).error().code, ErrorCode::kTimeout);

  there_.reset();

  EXPECT_EQ(here_->read(bytes_, kSoon).value(), 0u);
  EXPECT_EQ(here_->write(as_bytes("x"), kSoon).error().code, ErrorCode::kUnavailable);
}

TEST_F(APacketSocket, what_was_said_before_it_closed_is_read_though_it_has_not_read_all_itself) {
  ASSERT_TRUE(here_->write(as_bytes("unread"), kSoon));
  ASSERT_EQ(send(there_.get(), "last words", 10, 0), 10);

  there_.reset();

  EXPECT_EQ(here_->read(bytes_, kSoon).value(), 10u);
  EXPECT_EQ(here_->read(bytes_, kSoon).value(), 0u);
}

TEST_F(APacketSocket, a_packet_that_is_too_long_is_no_shorter_one) {
  ASSERT_EQ(send(there_.get(), "seventeen bytes !", 17, 0), 17);

  EXPECT_EQ(here_->read(bytes_, kSoon).error().code, ErrorCode::kInvalid);
}

TEST_F(APacketSocket, who_does_not_read_stops_the_writer_and_shutting_it_down_ends_the_wait) {
  while (here_->write(as_bytes("0123456789abcdef"), milliseconds(1))) {
  }
  std::thread other([this] {
    std::this_thread::sleep_for(milliseconds(20));
    here_->shut_down();
  });

  EXPECT_EQ(here_->write(as_bytes("x"), kSoon).error().code, ErrorCode::kUnavailable);
  other.join();
  EXPECT_EQ(here_->read(bytes_, kSoon).error().code, ErrorCode::kUnavailable);
}

TEST_F(APacketSocket, a_link_in_the_sockets_place_is_not_followed) {
  ASSERT_EQ(symlink("packets", (folder_.path() + "/link").c_str()), 0);

  EXPECT_FALSE(PacketSocket::connect(folder_.path(), "link"));
  EXPECT_EQ(PacketSocket::connect(folder_.path(), "none").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace rn::io
