// SPDX-License-Identifier: Apache-2.0
//
// A restore, an evacuation and a checkpoint leave one building by a thin line: planned by the
// coordinator's core, and paced on real TLS connections of the peers' data port, as the agents do
// it. Takes some ten seconds of real time.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <iostream>
#include <thread>

#include "agent/served_fetches.h"
#include "agent/transfer_gauge.h"
#include "base/fs_crash.h"
#include "checkpoint/generation_fake.h"
#include "checkpoint/manifest.h"
#include "checkpoint/peer_link.h"
#include "coordinator/core_fetches_fixture.h"
#include "io/tls_fixture.h"

namespace rn {
namespace {

using Steady = std::chrono::steady_clock;

constexpr double kLine = 5e6;                    ///< bytes/s
constexpr double kUsable = 0.95 * kLine;         ///< less the margin
constexpr std::uint64_t kFirst_bps = 8'000'000;  ///< until the first plan
constexpr std::uint64_t kFloor_bps = 1'000'000;  ///< as agents have it
constexpr std::size_t kFileBytes = 128 << 10;
constexpr auto kLook = milliseconds(250);

double seconds_since(Steady::time_point then) {
  return std::chrono::duration<double>(Steady::now() - then).count();
}

/// Two nodes with their stores, and a connection between them by which one generation goes: stored
/// by who has it at first, or fetched from it.
class Route {
 public:
  Route(const std::string& job, std::size_t files, TicketAction action)
      : is_fetch_(action == TicketAction::kFetch),
        gauge_(std::make_shared<agent::TransferGauge>(kFirst_bps)) {
    maker_.job = JobId(job);
    fetches_.set_first_rate(kFirst_bps);
    near_ = open(near_fs_);
    far_ = open(far_fs_);
    std::map<std::string, std::string> contents;
    for (std::size_t i = 0; i < files; ++i) {
      Blob bytes(kFileBytes);
      rng_.fill(bytes);
      contents["f" + std::to_string(i)] = std::string(as_text(bytes));
    }
    made_ = maker_.make(1, contents);
    EXPECT_TRUE(checkpoint::GenerationMaker::store(*near_, made_));
    checkpoint::ChunkStore& served = is_fetch_ ? *near_ : *far_;
    deps_.reset(new checkpoint::PeerServerDeps{
        served, nullptr, clock_, NodeId("n-2"), "room", holder_, coordinator_.public_key});
    io::FramedServerConfig config;
    config.tls = site_.end("spiffe://site/node/n-2");
    server_ =
        io::FramedServer::start(config, [this](io::FramedConnection& c) { serve(c); }).value();
    ticket_.job = maker_.job;
    ticket_.epoch = {1, 1};
    ticket_.from = NodeId("n-1");
    ticket_.to = NodeId("n-2");
    ticket_.action = action;
    ticket_.expiry_wall_ms = to_ms(clock_.now().wall) + 600'000;
    ticket_.max_bytes = 1u << 30;
    ticket_ = checkpoint::sign_ticket(ticket_, coordinator_);
  }

  Route(const Route&) = delete;
  Route& operator=(const Route&) = delete;

  ~Route() {
    is_over_ = true;
    if (result_.valid()) result_.wait();
  }

  void begin() {
    result_ = std::async(std::launch::async, [this] {
      const bool is_done = is_fetch_ ? fetch() : store();
      done_at_ = Steady::now();
      return is_done;
    });
  }

  bool is_under_way() const { return result_.wait_for(seconds(0)) != std::future_status::ready; }

  /// Only once it is not under way.
  bool has_arrived() { return result_.get(); }

  Steady::time_point done_at() const { return done_at_; }

  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const ChunkRef& chunk : made_.manifest.chunks) sum += chunk.cipher_bytes;
    return sum;
  }

  std::uint64_t sent() const {
    return is_fetch_ ? fetches_.bytes_sent() : gauge_->look().bytes_sent;
  }

  std::uint64_t left() const {
    if (!is_fetch_) return gauge_->look().bytes_left.value_or(bytes());
    const auto seen = fetches_.look();
    return seen.empty() ? bytes() : seen[0].progress.bytes_left.value_or(bytes());
  }

  void pace(double bytes_per_s) {
    const auto rate_bps = std::max(static_cast<std::uint64_t>(bytes_per_s * 8), kFloor_bps);
    if (!is_fetch_) return gauge_->set_rate(rate_bps);
    for (const auto& one : fetches_.look()) fetches_.set_rate(one.progress.id, rate_bps);
  }

 private:
  std::unique_ptr<checkpoint::ChunkStore> open(CrashFs& fs) {
    checkpoint::StoreOptions options;
    options.root = "/store";
    options.reserve_free_bytes = 0;
    return checkpoint::ChunkStore::open(fs, clock_, options).value();
  }

  /// As the daemon does it.
  void serve(io::FramedConnection& connection) {
    agent::ServedFetches::Session session(fetches_, connection);
    checkpoint::PeerServerDeps deps = *deps_;
    deps.on_fetch = [&session](const Ticket& ticket) { session.begin(ticket); };
    checkpoint::DriveOptions options;
    options.should_stop = [this] { return is_over_.load(); };
    options.on_progress = [&session](auto bytes) { session.set_left(bytes); };
    (void)checkpoint::serve_peer(connection, deps, options);
  }

  checkpoint::PeerTarget target() {
    checkpoint::PeerTarget target;
    target.host = "127.0.0.1";
    target.port = server_->port();
    target.expected_identity = "spiffe://site/node/n-2";
    target.tls = site_.end("spiffe://site/node/n-1");
    target.drive.should_stop = [this] { return is_over_.load(); };
    return target;
  }

  bool store() {
    checkpoint::PeerTarget to = target();
    to.on_connected = [this](io::FramedConnection& connection) { gauge_->attach(connection); };
    to.on_closing = [this] { gauge_->detach(); };
    to.drive.on_progress = [this](auto bytes) { gauge_->set_left(bytes); };
    return checkpoint::send_generation(to, *near_, ticket_, maker_.job, made_.hash).has_value();
  }

  bool fetch() {
    const auto fetched = checkpoint::fetch_from(target(), *far_, {ticket_, made_.hash, {}});
    return fetched && fetched->generation && far_->verify(maker_.job, made_.hash);
  }

  bool is_fetch_;
  std::atomic<bool> is_over_ = false;
  ManualClock clock_;
  CrashFs near_fs_{clock_, 1};
  CrashFs far_fs_{clock_, 2};
  SeededRng rng_{9};
  checkpoint::GenerationMaker maker_;
  crypto::SigningKey coordinator_ = crypto::make_signing_key(rng_);
  crypto::SigningKey holder_ = crypto::make_signing_key(rng_);
  std::unique_ptr<checkpoint::ChunkStore> near_;
  std::unique_ptr<checkpoint::ChunkStore> far_;
  checkpoint::GenerationMaker::Made made_;
  std::unique_ptr<checkpoint::PeerServerDeps> deps_;
  io::Site site_;
  Ticket ticket_;
  std::shared_ptr<agent::TransferGauge> gauge_;
  agent::ServedFetches fetches_;
  std::unique_ptr<io::FramedServer> server_;
  Steady::time_point done_at_{};
  std::future<bool> result_;
};

/// What each had sent at one look.
struct Look {
  double at_s = 0;
  double restore = 0;
  double evacuation = 0;
  double checkpoint = 0;
};

class ThinLine : public coordinator::Restoring {
 protected:
  ThinLine() : Restoring(kLine) {}

  /// Reports what is really left, and paces by what the coordinator answers, until all have
  /// arrived.
  void play(Route& restore, Route& evacuation, Route& checkpoint, double deadline_s) {
    const auto begun = Steady::now();
    for (auto* const one : {&restore, &evacuation, &checkpoint}) one->begin();
    for (int tick = 0; tick < 240; ++tick) {
      std::this_thread::sleep_until(begun + tick * kLook);
      const double at_s = seconds_since(begun);
      looks.push_back(
          {at_s,
           static_cast<double>(restore.sent()),
           static_cast<double>(evacuation.sent()),
           static_cast<double>(checkpoint.sent())}
      );
      const bool is_restoring = restore.is_under_way();
      const bool is_evacuating = evacuation.is_under_way();
      const bool is_saving = checkpoint.is_under_way();
      if (!is_restoring && !is_evacuating && !is_saving) break;
      const double left_s = deadline_s - at_s;
      if (is_restoring) restores(restore.left());
      if (!is_restoring) fetches("holder", {});
      if (is_evacuating && left_s > 0)
        copies(job_b_, evacuation.left(), static_cast<std::uint32_t>(left_s * 1000));
      if (!is_evacuating) tell(node("b"), wire::Transfers{});
      if (is_saving) copies(job_a_, checkpoint.left());
      pass(250);
      if (is_restoring) restore.pace(rate("holder") * 1e6 / 8);
      if (is_evacuating) evacuation.pace(rate("b") * 1e6 / 8);
      if (is_evacuating) promised.push_back(told("b").is_promised);
      if (is_saving) checkpoint.pace(rate("a") * 1e6 / 8);
    }
    evacuated_s = std::chrono::duration<double>(evacuation.done_at() - begun).count();
    restored_s = std::chrono::duration<double>(restore.done_at() - begun).count();
    saved_s = std::chrono::duration<double>(checkpoint.done_at() - begun).count();
  }

  /// Bytes/s between two moments.
  double average(double Look::*of, double from_s, double to_s) const {
    const auto at = [&](double when_s) {
      return *std::min_element(looks.begin(), looks.end(), [&](const Look& a, const Look& b) {
        return std::abs(a.at_s - when_s) < std::abs(b.at_s - when_s);
      });
    };
    const Look first = at(from_s);
    const Look last = at(to_s);
    return (last.*of - first.*of) / std::max(last.at_s - first.at_s, 1e-3);
  }

  std::vector<Look> looks;
  std::vector<bool> promised;
  double evacuated_s = 0;
  double restored_s = 0;
  double saved_s = 0;
};

TEST_F(ThinLine, a_restore_shares_it_with_an_evacuation_and_a_checkpoint_as_planned) {
  constexpr double kDeadline_s = 9;
  build();
  notice(job_b_);
  Route restore("j-restored", 176, TicketAction::kFetch);
  Route evacuation("j-evacuated", 96, TicketAction::kStore);
  Route checkpoint("j-saved", 64, TicketAction::kStore);

  play(restore, evacuation, checkpoint, kDeadline_s);

  ASSERT_FALSE(restore.is_under_way() || evacuation.is_under_way() || checkpoint.is_under_way());
  EXPECT_TRUE(restore.has_arrived());
  EXPECT_TRUE(evacuation.has_arrived());
  EXPECT_TRUE(checkpoint.has_arrived());
  const double beside = average(&Look::restore, 1, evacuated_s - 0.5);
  const double evacuating = average(&Look::evacuation, 1, evacuated_s - 0.5);
  const double saving = average(&Look::checkpoint, 1, restored_s - 0.5);
  const double alone = average(&Look::restore, evacuated_s + 0.5, restored_s - 0.5);
  std::printf(
      "  of %.2f MB/s: evacuation %.2f, restore beside it %.2f and then %.2f, checkpoint %.2f; "
      "evacuated after %.1f of %.0f s, restored after %.1f, saved after %.1f\n",
      kLine / 1e6,
      evacuating / 1e6,
      beside / 1e6,
      alone / 1e6,
      saving / 1e6,
      evacuated_s,
      kDeadline_s,
      restored_s,
      saved_s
  );
  EXPECT_GE(static_cast<double>(restore.sent()), 0.95 * static_cast<double>(restore.bytes()))
      << "what is over is no stranger's traffic";
  EXPECT_LT(evacuated_s, kDeadline_s);
  EXPECT_EQ(std::count(promised.begin() + 1, promised.end(), false), 0)
      << "the first look is early";
  EXPECT_NEAR(beside, 0.25 * kUsable, 0.08 * kUsable);
  EXPECT_NEAR(evacuating, 0.75 * kUsable, 0.15 * kUsable);
  EXPECT_GT(alone, 0.75 * kUsable);
  EXPECT_LT(saving, 0.08 * kUsable) << "1 Mbit/s, so that it does not stand still";
  EXPECT_LT(restored_s, saved_s);
  EXPECT_LT(beside + evacuating + saving, 1.02 * kLine);
}

}  // namespace
}  // namespace rn

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
