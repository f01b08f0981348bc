// SPDX-License-Identifier: Apache-2.0
#include "agent/uplink_meter.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace rn::agent {
namespace {

class Uplink : public testing::Test {
 protected:
  Uplink() { std::filesystem::create_directories(root_ + "/proc/net"); }

  ~Uplink() override { std::filesystem::remove_all(root_); }

  /// After so many bytes more by the interface, of which the transfers sent `own`.
  std::uint64_t look(std::uint64_t bytes, std::uint64_t own, const char* interface = "eth0") {
    sent_ += bytes;
    own_ += own;
    now_ += milliseconds(250);
    std::ofstream file(root_ + "/proc/net/dev");
    file << "Inter-|   Receive  |  Transmit\n"
         << " face |bytes    packets errs drop fifo frame compressed multicast|bytes\n"
         << "    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n"
         << "  eth0: 1 2 0 0 0 0 0 0 " << sent_ << " 7 0 0 0 0 0 0\n";
    file.close();
    return meter_.measure(interface, own_, now_);
  }

  std::string root_ =
      (std::filesystem::temp_directory_path() / ("rn-uplink-" + std::to_string(getpid()))).string();
  UplinkMeter meter_{root_};
  std::uint64_t sent_ = 1'000'000;
  std::uint64_t own_ = 0;
  Instant now_{};
};

TEST_F(Uplink, what_others_send_is_seen_within_seconds) {
  look(0, 0);

  std::uint64_t seen = 0;
  for (int i = 0; i < 20; ++i) seen = look(1'250'000, 0);  // 40 Mbit/s

  EXPECT_NEAR(static_cast<double>(seen), 40e6, 1e6);
}

TEST_F(Uplink, own_transfers_with_their_headers_are_not_foreign) {
  look(0, 0);

  std::uint64_t seen = 0;
  for (int i = 0; i < 20; ++i) seen = look(1'050'000, 1'000'000);

  EXPECT_EQ(seen, 0u);
}

TEST_F(Uplink, an_interface_that_is_not_there_counts_for_nothing) {
  look(0, 0);
  look(1'250'000, 0);

  EXPECT_EQ(look(1'250'000, 0, "eth1"), 0u);
  EXPECT_EQ(look(1'250'000, 0), 0u) << "nothing is known of the time in between";
}

}  // namespace
}  // namespace rn::agent
