// SPDX-License-Identifier: Apache-2.0
#include "model/tunnel.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/gang_link.h"

namespace rn::tunnel {
namespace {

using UserEnd = End<kWindowToUser>;
using GuestEnd = End<kWindowToGuest>;
using Heard = GuestEnd::Heard;
using Packet = std::vector<std::uint8_t>;

Packet data(std::size_t bytes, std::uint8_t value = 7) {
  Packet packet(bytes + 1, value);
  packet[0] = static_cast<std::uint8_t>(Kind::kData);
  return packet;
}

Packet of(Kind kind) {
  return {static_cast<std::uint8_t>(kind)};
}

Packet credit(std::uint32_t value) {
  Packet packet(GuestEnd::kCreditPacket, static_cast<std::uint8_t>(Kind::kCredit));
  write_u32(packet.data() + 1, value);
  return packet;
}

class TunnelEnd : public testing::Test {
 protected:
  TunnelEnd() { end_->begin(kWindowToUser); }

  Heard hear(const Packet& packet) { return end_->hear(packet.data(), packet.size()); }

  std::unique_ptr<GuestEnd> end_ = std::make_unique<GuestEnd>();
};

TEST_F(TunnelEnd, takes_as_much_as_it_has_granted_and_no_packet_more) {
  const std::size_t packets = kWindowToGuest / cost_of(kDataMax);
  for (std::size_t i = 0; i < packets; ++i) ASSERT_EQ(hear(data(kDataMax)), Heard::kFine) << i;

  EXPECT_EQ(hear(data(kDataMax)), Heard::kBroken);
  EXPECT_EQ(end_->waiting_bytes(), packets * kDataMax);
}

TEST_F(TunnelEnd, packets_of_one_byte_are_bounded_by_what_each_costs) {
  std::size_t taken = 0;
  while (hear(data(1)) == Heard::kFine) ++taken;

  EXPECT_EQ(taken, kWindowToGuest / (kPacketCost + 1));
}

TEST_F(TunnelEnd, gives_credit_back_for_what_was_written_and_not_for_what_waits) {
  std::uint8_t packet[GuestEnd::kCreditPacket];
  for (int i = 0; i < 3; ++i) ASSERT_EQ(hear(data(kDataMax)), Heard::kFine);
  EXPECT_EQ(end_->credit_packet(packet), 0u) << "only the packets are gone";

  end_->wrote(2 * kDataMax);
  ASSERT_EQ(end_->credit_packet(packet), GuestEnd::kCreditPacket);
  EXPECT_EQ(read_u32(packet + 1), 2 * kDataMax + 3 * kPacketCost);
  EXPECT_EQ(end_->credit_packet(packet), GuestEnd::kCreditPacket) << "it did not go";
  end_->gave_credit();

  EXPECT_EQ(end_->credit_packet(packet), 0u);
  EXPECT_EQ(end_->waiting_bytes(), kDataMax);
}

TEST_F(TunnelEnd, sends_until_its_credit_is_used_and_goes_on_when_some_comes) {
  std::size_t sent = 0;
  while (const std::size_t most = end_->may_send()) {
    end_->sent(most);
    sent += most;
  }
  EXPECT_GT(sent, kWindowToUser - kWindowToUser / 8);
  EXPECT_LT(sent, kWindowToUser);

  ASSERT_EQ(hear(credit(kPacketCost + 100)), Heard::kFine);

  EXPECT_GE(end_->may_send(), 100u);
  EXPECT_LT(end_->may_send(), kDataMax);
}

TEST_F(TunnelEnd, takes_no_more_credit_than_a_window) {
  EXPECT_EQ(hear(credit(1)), Heard::kBroken);
  EXPECT_EQ(hear(credit(0xffffffff)), Heard::kBroken);
}

TEST_F(TunnelEnd, one_direction_ends_without_the_other) {
  ASSERT_EQ(hear(data(3)), Heard::kFine);
  ASSERT_EQ(hear(of(Kind::kEnd)), Heard::kFine);
  EXPECT_FALSE(end_->must_shut()) << "three bytes are not written yet";
  end_->wrote(3);
  ASSERT_TRUE(end_->must_shut());
  end_->shut();
  EXPECT_FALSE(end_->must_shut());
  EXPECT_FALSE(end_->is_over());
  EXPECT_GT(end_->may_send(), 0u);

  end_->sent_end();

  EXPECT_TRUE(end_->is_over());
  EXPECT_EQ(end_->may_send(), 0u);
}

TEST_F(TunnelEnd, nothing_comes_after_the_end_but_a_reset) {
  ASSERT_EQ(hear(of(Kind::kEnd)), Heard::kFine);

  EXPECT_EQ(hear(data(1)), Heard::kBroken);
  EXPECT_EQ(hear(of(Kind::kEnd)), Heard::kBroken);
  EXPECT_EQ(hear(of(Kind::kReset)), Heard::kReset);
}

TEST_F(TunnelEnd, what_is_no_packet_of_an_open_tunnel_breaks_it) {
  for (const Packet& packet :
       {Packet{},
        of(Kind::kOpen),
        of(Kind::kOpened),
        of(Kind::kRefused),
        of(Kind::kEnter),
        of(Kind::kAccept),
        of(Kind::kDial),
        of(Kind::kFrom),
        of(Kind::kData),
        of(Kind::kCredit),
        Packet{0},
        Packet{200, 1},
        data(kDataMax + 1)})
    EXPECT_EQ(hear(packet), Heard::kBroken);
}

TEST_F(TunnelEnd, keeps_bytes_in_order_however_they_are_written) {
  std::string in;
  std::string out;
  std::uint8_t next = 0;
  std::uint8_t packet[GuestEnd::kCreditPacket];
  for (int round = 0; round < 200; ++round) {
    Packet one = data(1 + static_cast<std::size_t>(round) * 97 % 9000);
    for (std::size_t i = 1; i < one.size(); ++i) one[i] = next++;
    ASSERT_EQ(hear(one), Heard::kFine) << round;
    in.append(one.begin() + 1, one.end());
    while (end_->waiting_bytes() > 20'000) {
      const std::size_t part = end_->waiting_bytes() / 3 + 1;
      out.append(reinterpret_cast<const char*>(end_->waiting()), part);
      end_->wrote(part);
    }
    if (end_->credit_packet(packet) > 0) end_->gave_credit();
  }
  out.append(reinterpret_cast<const char*>(end_->waiting()), end_->waiting_bytes());

  EXPECT_EQ(in, out);
}

TEST(TunnelEnds, two_of_them_pass_a_stream_on_whatever_its_size) {
  const auto user = std::make_unique<UserEnd>();
  const auto guest = std::make_unique<GuestEnd>();
  user->begin(kWindowToGuest);
  guest->begin(kWindowToUser);
  std::size_t left = 3u << 20;
  std::size_t came = 0;
  while (left > 0) {
    while (guest->may_send() > 0 && left > 0) {
      const std::size_t size = std::min(guest->may_send(), left);
      const Packet packet = data(size);
      guest->sent(size);
      left -= size;
      ASSERT_EQ(user->hear(packet.data(), packet.size()), UserEnd::Heard::kFine);
    }
    came += user->waiting_bytes();
    user->wrote(user->waiting_bytes());
    std::uint8_t packet[UserEnd::kCreditPacket];
    if (user->credit_packet(packet) == 0) continue;
    user->gave_credit();
    ASSERT_EQ(guest->hear(packet, sizeof packet), GuestEnd::Heard::kFine);
  }

  EXPECT_EQ(came, 3u << 20);
}

TEST(GangLink, what_is_asked_for_is_read_as_it_was_written) {
  std::uint8_t dial[gang_link::kDialBytes];
  std::uint8_t from[gang_link::kFromBytes];
  gang_link::write_dial(dial, {31, 29'500});
  gang_link::write_from(from, {2, 65'535});

  EXPECT_EQ(gang_link::read_dial(dial, sizeof dial).rank, 31u);
  EXPECT_EQ(gang_link::read_dial(dial, sizeof dial).port, 29'500);
  EXPECT_EQ(gang_link::read_from(from, sizeof from).rank, 2u);
  EXPECT_EQ(gang_link::read_from(from, sizeof from).port, 65'535);
}

TEST(GangLink, other_packets_and_ranks_that_no_gang_has_ask_for_nothing) {
  std::uint8_t packet[gang_link::kDialBytes];
  gang_link::write_dial(packet, {32, 80});
  EXPECT_EQ(gang_link::read_dial(packet, sizeof packet).rank, gang_link::kRanks);
  gang_link::write_dial(packet, {1, 0});
  EXPECT_EQ(gang_link::read_dial(packet, sizeof packet).rank, gang_link::kRanks) << "port 0";
  gang_link::write_dial(packet, {1, 80});
  EXPECT_EQ(gang_link::read_dial(packet, sizeof packet - 1).rank, gang_link::kRanks);
  EXPECT_EQ(gang_link::read_from(packet, sizeof packet).rank, gang_link::kRanks);
}

}  // namespace
}  // namespace rn::tunnel
