// SPDX-License-Identifier: Apache-2.0
// The agents of a gang's nodes without all else of theirs: their links alone, over TLS on loopback.
// The guests are somebody else's.
//
//   gang_pair FOLDER...                  of each member's guest, by rank: what holds its /reclaim.
//                                        Prints "ready"; ends when its input does, and prints what
//                                        was sent and how much processor that took
//   gang_pair --network RANK IP NFT      writes the warden's commands of that member's network

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "agent/gang_links.h"
#include "base/rng.h"
#include "checkpoint/manifest.h"
#include "checkpoint/peer_link.h"
#include "io/real_clock.h"
#include "io/tls_fixture.h"
#include "warden/guest_gang.h"

namespace {

using rn::agent::GangLinks;
using rn::agent::LinkedGuest;

constexpr rn::LeaseEpoch kEpoch{1, 1};
constexpr rn::milliseconds kLook{100};
constexpr rn::milliseconds kFirstFrame{10'000};

std::string number(std::size_t rank) {
  return std::to_string(rank);
}

std::string identity(const rn::NodeId& node) {
  return "spiffe://site/node/" + node.str();
}

/// One node's: its links, and the peer port by which others come.
class Agent {
 public:
  Agent(const rn::io::Site& site, const rn::crypto::SigningKey& coordinator, std::size_t rank)
      : node_("n-" + number(rank)), tls_(site.end(identity(node_))) {
    rn::agent::LinkTicketRules rules;
    rules.self = node_;
    rules.ticket_key = coordinator.public_key;
    rules.now = rn::io::RealClock().now().wall;
    GangLinks::Deps deps;
    deps.dial = [this](const rn::wire::GangPeer& peer) {
      rn::io::FramedClientConfig client;
      client.host = "127.0.0.1";
      client.port = static_cast<std::uint16_t>(std::stoi(peer.address));
      client.tls = tls_;
      client.tls.expected_peer = identity(peer.node);
      return rn::io::FramedConnection::connect(client);
    };
    deps.rules = [rules] { return rules; };
    links_ = std::make_unique<GangLinks>(std::move(deps));
    rn::io::FramedServerConfig server;
    server.tls = tls_;
    server.max_connections = 600;
    server_ = rn::io::FramedServer::start(server, [this](rn::io::FramedConnection& connection) {
                const auto first = connection.receive(kFirstFrame);
                const rn::NodeId peer =
                    rn::checkpoint::node_of_identity(connection.peer_identity().value_or(""));
                if (first) links_->serve(connection, peer, first->body);
              }).value();
  }

  ~Agent() {
    links_->stop();
    server_.reset();
  }

  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  const rn::NodeId& node() const { return node_; }

  std::string port() const { return std::to_string(server_->port()); }

  GangLinks& links() { return *links_; }

 private:
  rn::NodeId node_;
  rn::io::TlsConfig tls_;
  std::unique_ptr<GangLinks> links_;
  std::unique_ptr<rn::io::FramedServer> server_;
};

using Agents = std::vector<std::unique_ptr<Agent>>;

LinkedGuest guest_of(
    const Agents& agents,
    const rn::crypto::SigningKey& coordinator,
    std::size_t rank,
    const std::string& folder
) {
  LinkedGuest guest;
  guest.name = {rn::JobId("j-" + number(rank)), kEpoch};
  guest.place.gang = rn::GangId("g-1");
  guest.place.rank = static_cast<std::uint32_t>(rank);
  guest.place.size = static_cast<std::uint32_t>(agents.size());
  guest.disk = folder;
  for (std::size_t other = 0; other < agents.size(); ++other) {
    rn::Ticket ticket;
    ticket.job = rn::JobId("j-" + number(other));
    ticket.epoch = kEpoch;
    ticket.from = agents[rank]->node();
    ticket.to = agents[other]->node();
    ticket.action = rn::TicketAction::kLink;
    ticket.expiry_wall_ms = to_ms(rn::io::RealClock().now().wall) + 3'600'000;
    guest.members.push_back(
        {static_cast<std::uint32_t>(other),
         ticket.job,
         ticket.to,
         agents[other]->port(),
         rn::checkpoint::sign_ticket(ticket, coordinator)}
    );
  }
  return guest;
}

void write_network(std::uint32_t rank, const char* ip, const char* nft) {
  std::ofstream(ip) << rn::warden::member_addresses(rank);
  std::ofstream(nft) << rn::warden::member_rules(rank);
}

void print_outcome(const Agents& agents) {
  std::uint64_t sent = 0;
  std::uint64_t opened = 0;
  for (const auto& agent : agents) {
    sent += agent->links().look().bytes_sent;
    opened += agent->links().look().opened;
  }
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto s = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  std::printf(
      "{\"bytes_sent\": %llu, \"opened\": %llu, \"cpu_s\": %.3f}\n",
      static_cast<unsigned long long>(sent),
      static_cast<unsigned long long>(opened),
      s(used.ru_utime) + s(used.ru_stime)
  );
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 4 && words[0] == "--network") {
    write_network(static_cast<std::uint32_t>(std::atoi(argv[2])), argv[3], argv[4]);
    return 0;
  }
  if (words.size() < 2) return 2;
  rn::SeededRng rng(1);
  const rn::crypto::SigningKey coordinator = rn::crypto::make_signing_key(rng);
  const rn::io::Site site;
  Agents agents;
  for (std::size_t rank = 0; rank < words.size(); ++rank)
    agents.push_back(std::make_unique<Agent>(site, coordinator, rank));
  std::vector<LinkedGuest> guests;
  for (std::size_t rank = 0; rank < words.size(); ++rank)
    guests.push_back(guest_of(agents, coordinator, rank, words[rank]));
  std::atomic<bool> is_over{false};
  std::thread looker([&] {
    while (!is_over) {
      for (std::size_t rank = 0; rank < agents.size(); ++rank)
        agents[rank]->links().set({guests[rank]});
      std::this_thread::sleep_for(kLook);
    }
  });
  std::puts("ready");
  std::fflush(stdout);
  char drop = 0;
  while (read(STDIN_FILENO, &drop, 1) > 0) {
  }
  is_over = true;
  looker.join();
  print_outcome(agents);
  return 0;
}
