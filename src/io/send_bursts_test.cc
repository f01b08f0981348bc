// SPDX-License-Identifier: Apache-2.0
#include "io/send_bursts.h"

#include <array>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "io/channel.h"
#include "io/net.h"
#include "io/tls_fixture.h"

namespace rn::io {
namespace {

constexpr std::uint32_t kSegment = 1448;
constexpr std::uint64_t k20Mbit = 2'500'000;

SendBursts bursts_at(std::uint64_t bytes_per_second, std::uint32_t segment = kSegment) {
  SendBursts bursts;
  bursts.set(bytes_per_second, segment);
  return bursts;
}

std::size_t burst_at(std::uint64_t bytes_per_second, std::uint32_t segment = kSegment) {
  return bursts_at(bytes_per_second, segment).next(1 << 20).bytes;
}

TEST(SendBursts, without_a_pace_all_is_given_at_once_and_nothing_ends) {
  const auto piece = bursts_at(0).next(1 << 20);

  EXPECT_EQ(piece.bytes, std::size_t{1} << 20);
  EXPECT_EQ(piece.flags, 0);
}

TEST(SendBursts, a_burst_is_what_two_milliseconds_carry_in_whole_packets) {
  EXPECT_EQ(burst_at(k20Mbit), 3u * kSegment);
  EXPECT_EQ(burst_at(5 * k20Mbit), 17u * kSegment);
  EXPECT_EQ(burst_at(k20Mbit / 20), 1u * kSegment) << "one packet at least";
  EXPECT_EQ(burst_at(k20Mbit, 8948), 5000u) << "a packet that is longer is not waited for";
  EXPECT_EQ(burst_at(k20Mbit, 0), 5000u);
}

TEST(SendBursts, at_high_rates_it_is_left_to_tcp) {
  EXPECT_EQ(bursts_at(125'000'000).next(1 << 20).flags, 0);
}

TEST(SendBursts, records_of_any_size_fill_a_burst_whose_last_byte_ends_it) {
  SendBursts bursts = bursts_at(5 * k20Mbit);
  const std::size_t burst = 17u * kSegment;

  const auto first = bursts.next(16'000);
  EXPECT_EQ(first.bytes, 16'000u);
  EXPECT_EQ(first.flags, 0);
  bursts.sent(16'000);

  const auto rest = bursts.next(16'000);
  EXPECT_EQ(rest.bytes, burst - 16'000);
  EXPECT_EQ(rest.flags, MSG_EOR);
  bursts.sent(100);  // more did not fit
  EXPECT_EQ(bursts.next(16'000).bytes, burst - 16'100);
  bursts.sent(burst - 16'100);
  EXPECT_EQ(bursts.next(1 << 20).bytes, burst);
}

TEST(SendBursts, another_rate_counts_from_the_next_piece_on) {
  SendBursts bursts = bursts_at(5 * k20Mbit);
  bursts.sent(20'000);

  bursts.set(k20Mbit, kSegment);

  EXPECT_EQ(bursts.next(1 << 20).bytes, 3u * kSegment);
}

/// Two ends of a connection of this machine, whose packets carry up to 64 KiB.
struct Ends {
  Fd out, in;

  Ends() {
    const Fd listener = listen_tcp("127.0.0.1", 0).value();
    out = connect_tcp("127.0.0.1", port_of(listener.get()), Deadline(seconds(5)), 0).value();
    EXPECT_TRUE(wait_for(listener.get(), POLLIN, Deadline(seconds(5))));
    in = Fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  }

  std::uint32_t packets_sent() const {
    constexpr std::size_t kDataSegmentsOut = 39;  // of <linux/tcp.h>, in words
    std::array<std::uint32_t, kDataSegmentsOut + 1> info{};
    socklen_t size = sizeof info;
    EXPECT_EQ(getsockopt(out.get(), IPPROTO_TCP, TCP_INFO, info.data(), &size), 0);
    return info[kDataSegmentsOut];
  }
};

constexpr std::size_t kMuch = 200'000;

/// Until the other end has all.
void send_much(Channel& from, Channel& to) {
  const Blob bytes(kMuch);
  Blob buffer(kMuch);
  BlobView left(bytes);
  const Deadline deadline(seconds(20));
  for (std::size_t got = 0; got < kMuch && !deadline.is_over();) {
    if (!left.empty()) left = left.subspan(from.write(left).bytes);
    got += to.read(buffer).bytes;
  }
  EXPECT_FALSE(deadline.is_over());
}

std::uint32_t packets_of_plain(std::uint64_t pace) {
  const Ends ends;
  Channel from = Channel::plain(ends.out.get()), to = Channel::plain(ends.in.get());
  EXPECT_TRUE(from.pace(pace));
  send_much(from, to);
  return ends.packets_sent();
}

std::uint32_t packets_of_tls(std::uint64_t pace) {
  const Site site;
  const Ends ends;
  const SslContext client = make_client_context(site.client(), "127.0.0.1").value();
  const SslContext server = make_server_context(site.server()).value();
  Channel from = Channel::tls_client(ends.out.get(), client, "127.0.0.1").value();
  Channel to = Channel::tls_server(ends.in.get(), server).value();
  const Deadline deadline(seconds(20));
  const auto is_done = [](Channel& one) { return one.handshake().want == Channel::Want::kDone; };
  for (bool is_client = false, is_server = false; !(is_client && is_server);) {
    is_client = is_client || is_done(from);
    is_server = is_server || is_done(to);
    RN_ASSERT(!deadline.is_over(), "two ends of one machine shake hands");
  }
  EXPECT_TRUE(from.pace(pace));
  send_much(from, to);
  return ends.packets_sent();
}

TEST(PacedChannel, sends_in_bursts_of_two_milliseconds) {
  EXPECT_GE(packets_of_plain(k20Mbit), kMuch / 5000);
  EXPECT_GE(packets_of_tls(k20Mbit), kMuch / 5000);
}

TEST(PacedChannel, sends_as_tcp_likes_without_a_pace) {
  EXPECT_LT(packets_of_plain(0), kMuch / 5000);
  EXPECT_LT(packets_of_tls(0), kMuch / 5000);
}

}  // namespace
}  // namespace rn::io
