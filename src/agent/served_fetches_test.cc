// SPDX-License-Identifier: Apache-2.0
#include "agent/served_fetches.h"

#include <gtest/gtest.h>

#include "io/tls_fixture.h"

namespace rn::agent {
namespace {

constexpr milliseconds kFetchedSoon{20'000};

TEST(ServedFetches, what_peers_fetch_at_a_rate_is_planned_as_long_as_it_is_served) {
  const io::Site site;
  ServedFetches fetches;
  io::FramedServerConfig config;
  config.tls = site.end("spiffe://site/node/n-1");
  auto server = io::FramedServer::start(config, [&fetches](io::FramedConnection& connection) {
    ServedFetches::Session session(fetches, connection);
    session.begin(Ticket{});
    (void)connection.send(99, as_bytes("begun"));
    (void)connection.receive(kFetchedSoon);
  });
  ASSERT_TRUE(server) << server.error().describe();
  io::FramedClientConfig client;
  client.host = "127.0.0.1";
  client.port = (*server)->port();
  client.tls = site.end("spiffe://site/node/n-2");
  client.tls.expected_peer = "spiffe://site/node/n-1";
  auto peer = io::FramedConnection::connect(client).value();
  ASSERT_TRUE(peer->receive(kFetchedSoon));

  EXPECT_EQ(fetches.planned_bps(), 0u) << "nobody has said how fast";
  fetches.set_rate(kFirstFetch, 40'000'000);
  EXPECT_EQ(fetches.planned_bps(), 40'000'000u);
  peer.reset();
  server->reset();

  EXPECT_EQ(fetches.planned_bps(), 0u);
}

}  // namespace
}  // namespace rn::agent
