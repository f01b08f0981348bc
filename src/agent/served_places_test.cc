// SPDX-License-Identifier: Apache-2.0
#include "agent/served_places.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "io/tls_fixture.h"

namespace rn::agent {
namespace {

constexpr milliseconds kServedSoon{20'000};

TEST(ServedPlaces, who_comes_when_all_are_taken_is_told_so_and_who_leaves_makes_room) {
  const io::Site site;
  std::atomic<std::size_t> served{0};
  io::FramedServerConfig config;
  config.tls = site.end("spiffe://site/node/n-1");
  auto server = io::FramedServer::start(config, [&served](io::FramedConnection& connection) {
    serve_within(served, 1, connection, [&connection] {
      while (const auto frame = connection.receive(kServedSoon))
        (void)connection.send(99, frame->body);
    });
  });
  ASSERT_TRUE(server) << server.error().describe();
  const auto connect = [&] {
    io::FramedClientConfig client;
    client.host = "127.0.0.1";
    client.port = (*server)->port();
    client.tls = site.end("spiffe://site/node/n-2");
    client.tls.expected_peer = "spiffe://site/node/n-1";
    return io::FramedConnection::connect(client).value();
  };
  auto first = connect();
  ASSERT_TRUE(first->send(1, as_bytes("here")));
  ASSERT_EQ(first->receive(kServedSoon)->type, 99);

  const auto second = connect();
  const auto told = second->receive(kServedSoon);

  ASSERT_TRUE(told) << told.error().describe();
  ASSERT_EQ(told->type, static_cast<std::uint8_t>(checkpoint::PeerFrameType::kRefused));
  EXPECT_EQ(checkpoint::decode_refusal(told->body).code, ErrorCode::kExhausted);
  EXPECT_FALSE(second->receive(kServedSoon)) << "and it is over";
  first.reset();
  for (int look = 0; look < 400 && served != 0; ++look)
    std::this_thread::sleep_for(milliseconds(5));
  const auto third = connect();
  ASSERT_TRUE(third->send(1, as_bytes("here")));
  EXPECT_EQ(third->receive(kServedSoon)->type, 99);
}

}  // namespace
}  // namespace rn::agent
