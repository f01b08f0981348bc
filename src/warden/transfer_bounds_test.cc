// SPDX-License-Identifier: Apache-2.0
#include "warden/transfer_bounds.h"

#include <fstream>

#include <gtest/gtest.h>

#include "base/scratch_folder.h"

namespace rn::warden {
namespace {

using warden_wire::SetTransfers;

void write_lines(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

TEST(TransferBounds, a_grant_names_an_interface_or_the_default_route_and_a_rate_or_none) {
  EXPECT_EQ(*parse_transfers("eth0"), (TransfersGrant{"eth0", 0}));
  EXPECT_EQ(*parse_transfers("eth0:80mbit"), (TransfersGrant{"eth0", 10'000'000}));
  EXPECT_EQ(*parse_transfers("auto"), (TransfersGrant{"", 0}));
  EXPECT_EQ(*parse_transfers("auto:1gbit"), (TransfersGrant{"", 125'000'000}));
}

TEST(TransferBounds, what_is_no_grant_is_refused_with_examples) {
  for (const char* text :
       {"",
        ":90mbit",
        "eth0:",
        "eth0:90",
        "eth0:1kbit",
        "a/b",
        "eth0:-1mbit",
        "longer_than_fifteen"}) {
    const auto grant = parse_transfers(text);
    ASSERT_FALSE(grant) << text;
    EXPECT_EQ(grant.error().code, ErrorCode::kInvalid);
    EXPECT_NE(grant.error().hint.find("auto"), std::string::npos);
  }
}

TEST(TransferBounds, uplinks_are_those_of_the_default_routes_of_both_families) {
  const ScratchFolder proc;
  write_lines(
      proc.path() + "/route",
      "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
      "eth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n"
      "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
      "eth0\t00000000\t0200000A\t0003\t0\t0\t9\t00000000\t0\t0\t0\n"
  );
  const std::string zeros(32, '0');
  write_lines(
      proc.path() + "/ipv6_route",
      zeros + " 00 " + zeros +
          " 00 fe80000000000000 00000400 00000000 00000000 00000003    wan6\n" + zeros + " 00 " +
          zeros + " 00 " + zeros + " ffffffff 00000001 00000000 00200200       lo\n"
  );

  EXPECT_EQ(default_route_interfaces(proc.path()), (std::vector<std::string>{"eth0", "wan6"}));
  EXPECT_TRUE(default_route_interfaces(proc.path() + "/none").empty());
}

TEST(TransferBounds, a_transfer_is_claimed_by_its_connection) {
  SetTransfers wanted;
  wanted.transfers = {
      {7, "192.0.2.1:4711", "198.51.100.7:7445", TransferPurpose::kEvacuation, 1000, false},
      {8, "[2001:db8::1]:4711", "[2001:db8::7]:7445", TransferPurpose::kPrefetch, 0, true}};

  const auto claims = claims_of(wanted);

  ASSERT_TRUE(claims) << claims.error().describe();
  EXPECT_EQ(claims->at(0).id, 7u);
  EXPECT_EQ(claims->at(0).local, *traffic::parse_end("192.0.2.1", 4711));
  EXPECT_EQ(claims->at(0).purpose, RN_EDGE_EVACUATION);
  EXPECT_EQ(claims->at(0).bytes_per_s, 1000u);
  EXPECT_TRUE(claims->at(0).is_open);
  EXPECT_EQ(claims->at(1).remote, *traffic::parse_end("2001:db8::7", 7445));
  EXPECT_EQ(claims->at(1).bytes_per_s, RN_EDGE_UNBOUNDED);
  EXPECT_FALSE(claims->at(1).is_open);
}

TEST(TransferBounds, ends_that_are_none_and_too_many_transfers_are_refused_by_name) {
  for (const char* end :
       {"",
        ":1",
        "192.0.2.1",
        "192.0.2.1:0",
        "192.0.2.1:65536",
        "192.0.2.1:x",
        "host:1",
        "[::1:1"}) {
    SetTransfers wanted;
    wanted.transfers = {{7, end, "192.0.2.9:1", TransferPurpose::kCheckpoint, 0, false}};
    const auto claims = claims_of(wanted);
    ASSERT_FALSE(claims) << end;
    EXPECT_EQ(claims.error().code, ErrorCode::kInvalid);
    EXPECT_NE(claims.error().describe().find("transfer 7"), std::string::npos);
  }
  SetTransfers many;
  many.transfers.resize(warden_wire::kMaxTransfers + 1);
  EXPECT_EQ(claims_of(many).error().code, ErrorCode::kExhausted);
}

TEST(TransferBounds, the_agent_narrows_what_the_owner_granted_and_widens_nothing) {
  SetTransfers wanted;
  wanted.evacuation_bytes_per_s = 5000;
  wanted.unclaimed_bytes_per_s = 10;

  const auto rates = class_rates_of(wanted, {"eth0", 1000});

  EXPECT_EQ(rates[RN_EDGE_EVACUATION], 1000u);
  EXPECT_EQ(rates[RN_EDGE_CHECKPOINT], 1000u);
  EXPECT_EQ(rates[RN_EDGE_UNCLAIMED], 10u);
  EXPECT_EQ(rates[RN_EDGE_CONTROL], 1000u);
  EXPECT_EQ(rates[RN_EDGE_ALL], 1000u);
  EXPECT_EQ(class_rates_of({}, {"eth0", 0})[RN_EDGE_ALL], RN_EDGE_UNBOUNDED);
}

TEST(TransferBounds, names_the_coordinator_and_the_owners_rest_are_no_transfers) {
  SetTransfers wanted;
  wanted.coordinator_port = 8443;
  wanted.rest_port = 0;

  const auto ports = control_ports_of(wanted);

  ASSERT_EQ(ports.size(), 3u);
  EXPECT_EQ(ports[0].port, 53u);
  EXPECT_EQ(ports[2].port, 8443u);
  EXPECT_EQ(ports[2].is_local, 0u);
}

}  // namespace
}  // namespace rn::warden
