// SPDX-License-Identifier: Apache-2.0
// Nodes without machines, for benches that want a full site: they join a running coordinator, take
// what they are asked to take, and send heartbeats until this program is ended (SIGTERM, SIGINT).
//   RECLAIM_TOKEN=… played_nodes URL NODES LABS GUESTS DIGEST
// The token is an administrator's. Node i is of lab-(i mod LABS), takes up to GUESTS guests and has
// the image DIGEST. Prints `ready` when all of them are connected.

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include "coordinator/daemon_light_agent.h"

namespace rn::coordinator {
namespace {

constexpr std::size_t kJoinersAtOnce = 4;
constexpr std::size_t kConnectingAtOnce = 16;
constexpr std::size_t kNodesMost = 10'000;
constexpr int kTries = 50;

struct PlayedSite {
  std::string url;
  std::string token;
  std::size_t nodes = 0;
  std::size_t labs = 0;
  std::uint32_t guests = 0;
  std::string digest;
};

Result<LightIdentity> join_once(const PlayedSite& site, std::size_t number) {
  io::HttpCall call;
  call.method = "POST";
  call.url = site.url + "/v1/tokens";
  call.body = R"({"kind": "join", "lab": "lab-)" + std::to_string(number % site.labs) + R"("})";
  call.headers = {{"Authorization", "Bearer " + site.token}};
  call.tls = io::TlsConfig{};
  call.tls->ca_fingerprint = site.token.substr(site.token.rfind('.') + 1);
  call.tls->expected_peer = "spiffe://reclaimnet/coordinator";
  RN_TRY(const auto reply, io::succeed(io::perform_blocking(call)));
  RN_TRY(const auto made, from_json<api::TokenAnswer>(reply.body, Unknown::kLenient));
  return join_light_agent(site.url, made.token, "m" + std::to_string(number));
}

/// A coordinator that is busy with all the others says to come again.
Result<LightIdentity> join_played(const PlayedSite& site, std::size_t number) {
  auto identity = join_once(site, number);
  for (int i = 0; i < kTries && !identity && is_retryable(identity.error().code); ++i) {
    std::this_thread::sleep_for(milliseconds(200));
    identity = join_once(site, number);
  }
  return identity;
}

/// Some at once; empty if one of them could not, with the reason on standard error.
std::vector<LightIdentity> join_nodes(const PlayedSite& site) {
  std::vector<LightIdentity> all;
  std::mutex mutex;  // guards the three around it
  std::size_t next = 0;
  bool has_failed = false;
  const auto work = [&] {
    while (true) {
      std::size_t number = 0;
      {
        const std::lock_guard lock(mutex);
        if (next == site.nodes || has_failed) return;
        number = next++;
      }
      auto identity = join_played(site, number);
      const std::lock_guard lock(mutex);
      if (identity) {
        all.push_back(*std::move(identity));
        continue;
      }
      std::fprintf(stderr, "join: %s\n", identity.error().describe().c_str());
      has_failed = true;
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kJoinersAtOnce; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (has_failed) all.clear();
  return all;
}

/// All of them on one loop.
class PlayedNodes {
 public:
  PlayedNodes(const PlayedSite& site, std::vector<LightIdentity> identities)
      : site_(site), waiting_(std::move(identities)) {}

  /// Until a signal; false: one could not be waited for.
  bool run() {
    if (!loop_.on_signal({SIGTERM, SIGINT}, [this](int) { loop_.stop(); })) return false;
    for (std::size_t i = 0; i < kConnectingAtOnce; ++i) connect_next();
    loop_.run();
    agents_.clear();
    loop_.poll();
    return true;
  }

 private:
  void connect_next() {
    if (waiting_.empty()) return;
    LightAgent::Behaviour behaviour;
    behaviour.image_digest = site_.digest;
    behaviour.max_guests = site_.guests;
    behaviour.on_welcome = [this] {
      connect_next();
      if (++connected_ < site_.nodes) return;
      std::printf("ready\n");
      std::fflush(stdout);
    };
    behaviour.tell_troubles();
    agents_.push_back(
        std::make_unique<LightAgent>(loop_, std::move(waiting_.back()), std::move(behaviour))
    );
    waiting_.pop_back();
    agents_.back()->connect("wss" + site_.url.substr(5) + "/v1/agent");
  }

  const PlayedSite& site_;
  io::Loop loop_;
  std::vector<LightIdentity> waiting_;
  std::vector<std::unique_ptr<LightAgent>> agents_;
  std::size_t connected_ = 0;
};

int play(const PlayedSite& site) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  auto identities = join_nodes(site);
  if (identities.empty()) return 1;
  return PlayedNodes(site, std::move(identities)).run() ? 0 : 1;
}

int complain_of_use() {
  std::fprintf(
      stderr,
      "RECLAIM_TOKEN=rnu1… played_nodes https://HOST:PORT NODES LABS GUESTS sha256:DIGEST\n"
      "1 to %zu nodes, at least one lab and one guest\n",
      kNodesMost
  );
  return 2;
}

}  // namespace
}  // namespace rn::coordinator

int main(int argc, char** argv) {
  const char* token = std::getenv("RECLAIM_TOKEN");
  if (argc != 6 || token == nullptr) return rn::coordinator::complain_of_use();
  rn::coordinator::PlayedSite site;
  site.url = argv[1];
  site.token = token;
  site.nodes = std::strtoul(argv[2], nullptr, 10);
  site.labs = std::strtoul(argv[3], nullptr, 10);
  site.guests = static_cast<std::uint32_t>(std::strtoul(argv[4], nullptr, 10));
  site.digest = argv[5];
  const bool is_good = site.url.starts_with("https://") && site.nodes >= 1 &&
                       site.nodes <= rn::coordinator::kNodesMost && site.labs >= 1 &&
                       site.guests >= 1;
  return is_good ? rn::coordinator::play(site) : rn::coordinator::complain_of_use();
}
