// SPDX-License-Identifier: Apache-2.0
//
// A node fetches an image from the coordinator, over a thin line out of its building, beside an
// evacuation that is promised: a real coordinator with its HTTPS server and database, nodes'
// certificates, and connections as agents make them. The evacuation sends as fast as it is told to,
// and no bytes: tests/system/restore_share.cc has those. Takes some ten seconds of real time.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "coordinator/daemon_fixture.h"
#include "coordinator/daemon_light_agent.h"

namespace rn {
namespace {

using coordinator::LightAgent;
using coordinator::LightIdentity;
using coordinator::LiveSite;
using nlohmann::json;
using Steady = std::chrono::steady_clock;

constexpr double kLine = 5e6;             ///< bytes/s
constexpr double kUsable = 0.95 * kLine;  ///< less the margin
constexpr std::size_t kPieceBytes = 4u << 20;
constexpr std::size_t kPieces = 6;
constexpr std::size_t kConnections = 3;  ///< as agents fetch images
constexpr auto kLook = milliseconds(250);

double seconds_since(Steady::time_point then) {
  return std::chrono::duration<double>(Steady::now() - then).count();
}

/// The coordinator and a laboratory are in one building, whoever starts a job is outside of it.
reclaim::Topology a_thin_line() {
  reclaim::TopologyDeclaration declared;
  declared.switches = {{"campus", "", {}}, {"building-a", "campus", {kLine, kLine, 0.001}}};
  declared.nodes = {
      {"coordinator", "building-a", {125e6, 125e6, 0}},
      {"light-inside", "building-a", {125e6, 125e6, 0}}};
  return *reclaim::Topology::make(declared);
}

class ImageShare : public testing::Test {
 protected:
  ImageShare() : site_({}, 100, a_thin_line()) {}

  ~ImageShare() override {
    is_over_ = true;
    fetchers_.clear();  // joins
    loop_.post([this] {
      inside_.reset();
      outside_.reset();
      loop_.stop();
    });
    if (thread_.joinable()) thread_.join();
  }

  void start() {
    add_image();
    thread_ = std::thread([this] { loop_.run(); });
    LightAgent::Behaviour behaviour;
    behaviour.image_digest = image_;
    behaviour.max_guests = 1;
    behaviour.on_commit = [this](const wire::Commit& commit) {
      const std::lock_guard lock(mutex_);
      evacuated_ = {commit.job, commit.epoch};
    };
    behaviour.on_rates = [this](const wire::TransferRates& told) {
      const std::lock_guard lock(mutex_);
      if (!told.rates.empty()) told_ = told.rates[0];
    };
    begin(inside_, "inside", behaviour);
    wait("the job inside", [this] { return job(1)["state"] == "running"; });
    LightAgent::Behaviour starting;
    starting.stays_before_start = true;
    begin(outside_, "outside", starting);
    wait("the start outside", [this] {
      return json::parse(site_.call("GET", "/v1/jobs/2/attempts").body)["attempts"][0]["state"] ==
             "fetching";
    });
    post([this] {
      const std::lock_guard lock(mutex_);
      outside_->send(wire::Holdings{{evacuated_.first}});
      inside_->tell_noticed();
    });
    wait("the notice", [this] {
      return json::parse(site_.call("GET", "/v1/jobs/1/attempts").body)["attempts"][0]["state"] ==
             "noticed";
    });
  }

  /// By the connections of a node, each piece once.
  void fetch_image() {
    is_fetching_ = kConnections;
    for (std::size_t i = 0; i < kConnections; ++i) {
      fetchers_.emplace_back([this] {
        io::HttpSession session;
        for (std::size_t at = next_++; at < kPieces && !is_over_; at = next_++) {
          EXPECT_TRUE(fetch(session, pieces_[at])) << "piece " << at;
        }
        if (--is_fetching_ == 0) fetched_at_ = Steady::now();
      });
    }
  }

  bool is_fetching() const { return is_fetching_ > 0; }

  void evacuates(double bytes, double left_s) {
    post([this, bytes, left_s] {
      wire::TransferReport report;
      report.id = 7;
      report.peer = outside_->identity().node;
      report.kind = TransferKind::kEvacuation;
      report.bytes_left = static_cast<std::uint64_t>(bytes);
      report.is_size_known = true;
      report.deadline_ms = static_cast<std::uint32_t>(left_s * 1000);
      const std::lock_guard lock(mutex_);
      std::tie(report.job, report.epoch) = evacuated_;
      inside_->send(bytes > 0 ? wire::Transfers{{report}, 0} : wire::Transfers{});
    });
  }

  wire::TransferRate told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }

  void wait(const std::string& what, const std::function<bool()>& is_so) {
    for (int i = 0; i < 1000; ++i) {
      if (is_so()) return;
      std::this_thread::sleep_for(milliseconds(20));  // between two looks
    }
    FAIL() << what << " did not come: " << site_.call("GET", "/v1/jobs").body;
  }

  std::string why(int number) {
    const auto reply = site_.call("GET", "/v1/jobs/" + std::to_string(number) + "/why");
    return reply.body;
  }

  LiveSite site_;
  std::atomic<std::uint64_t> come_ = 0;  ///< bytes of the image
  Steady::time_point fetched_at_{};      ///< once it is not fetching

 private:
  void add_image() {
    std::string archive = "\x1f\x8b, an archive";
    archive.resize(kPieces * kPieceBytes, 'x');
    for (std::size_t i = 0; i < kPieces; ++i) {
      archive[i * kPieceBytes + 100] = static_cast<char>('a' + i);
      pieces_.push_back(site_.put(archive.substr(i * kPieceBytes, kPieceBytes)));
    }
    image_ = "sha256:" + to_hex(crypto::sha256(as_bytes(archive)));
    const json body = {
        {"name", "base"}, {"digest", image_}, {"bytes", archive.size()}, {"blobs", pieces_}};
    ASSERT_EQ(site_.call("POST", "/v1/images", body.dump()).status, 201);
  }

  /// Joins, and gets the next job.
  void begin(
      std::unique_ptr<LightAgent>& agent, const std::string& name, LightAgent::Behaviour behaviour
  ) {
    const std::string token = site_.make_token(R"({"kind": "join", "lab": ")" + name + "\"}");
    auto identity = coordinator::join_light_agent(site_.url(), token, name);
    ASSERT_TRUE(identity) << identity.error().describe();
    tls_ = identity->tls;
    std::atomic<bool> is_welcome = false;
    behaviour.on_welcome = [&is_welcome] { is_welcome = true; };
    post([&, behaviour] {
      agent = std::make_unique<LightAgent>(loop_, *identity, behaviour);
      agent->connect(site_.agent_url());
    });
    wait(name + " to be welcome", [&is_welcome] { return is_welcome.load(); });
    const json spec = {
        {"command", {"true"}},
        {"checkpoint", {{"paths", {"*.pt"}}}},
        {"resources", {{"cpu_milli", 1000}, {"cpu_milli_min", 1000}}},
        {"only_labs", {name}}};
    const auto reply = site_.call("POST", "/v1/jobs", spec.dump());
    ASSERT_EQ(reply.status, 201) << reply.body;
  }

  void post(std::function<void()> fn) { loop_.post(std::move(fn)); }

  bool fetch(io::HttpSession& session, const std::string& piece) {
    crypto::Sha256 hash;
    io::HttpCall call;
    call.url = site_.url() + "/v1/blobs/" + piece;
    call.tls = tls_;
    call.on_data = [&](BlobView bytes) -> Status {
      if (is_over_) return fail(ErrorCode::kTimeout, "the test is over");
      hash.update(bytes);
      come_ += bytes.size();
      return {};
    };
    return io::succeed(session.perform(call)).has_value() && to_hex(hash.finish()) == piece;
  }

  json job(int number) {
    return json::parse(site_.call("GET", "/v1/jobs/" + std::to_string(number)).body);
  }

  std::string image_;
  std::vector<std::string> pieces_;
  io::TlsConfig tls_;  ///< of who joined last
  io::Loop loop_;
  std::thread thread_;
  std::unique_ptr<LightAgent> inside_;  ///< the loop's
  std::unique_ptr<LightAgent> outside_;
  std::mutex mutex_;  ///< of the two below
  std::pair<JobId, LeaseEpoch> evacuated_;
  wire::TransferRate told_;
  std::atomic<bool> is_over_ = false;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<std::size_t> is_fetching_ = 0;
  std::vector<std::jthread> fetchers_;
};

TEST_F(ImageShare, an_image_from_the_coordinator_shares_a_thin_line_with_an_evacuation_as_planned) {
  constexpr double kDeadline_s = 9;
  constexpr double kEvacuated = 10e6;
  start();
  const auto begun = Steady::now();
  fetch_image();
  double left = kEvacuated;
  double rate = 0;
  double evacuated_s = kDeadline_s;
  double at_s = 0;
  double mark_s = 0;  // since when both are under way as planned
  std::uint64_t come_then = 0;
  double beside = 0;
  double told_sum = 0;
  int told_looks = 0;
  std::uint64_t come_alone = 0;
  double alone_from_s = 0;
  std::string said;
  for (int tick = 1; tick < 160 && (is_fetching() || left > 0); ++tick) {
    evacuates(left, std::max(kDeadline_s - at_s, 0.01));
    std::this_thread::sleep_until(begun + tick * kLook);
    const double then_s = std::exchange(at_s, seconds_since(begun));
    if (left <= 0) {
      if (alone_from_s == 0 && at_s > evacuated_s + 0.6) {
        alone_from_s = at_s;
        come_alone = come_;
      }
      continue;
    }
    EXPECT_TRUE(told().is_promised || tick <= 2) << at_s;
    left -= rate * (at_s - then_s);
    rate = static_cast<double>(told().rate_bps) / 8;
    if (left <= 0) evacuated_s = at_s;
    if (mark_s == 0 && at_s > 0.9) {
      mark_s = at_s;
      come_then = come_;
      said = why(2);
    } else if (mark_s > 0 && left > 0) {
      beside = static_cast<double>(come_ - come_then) / (at_s - mark_s);
      told_sum += rate;
      ++told_looks;
    }
  }

  ASSERT_FALSE(is_fetching());
  const double fetched_s = std::chrono::duration<double>(fetched_at_ - begun).count();
  const double alone =
      static_cast<double>(come_ - come_alone) / std::max(fetched_s - alone_from_s, 1e-3);
  const double evacuating = told_sum / std::max(told_looks, 1);
  std::printf(
      "  of %.2f MB/s: evacuation %.2f, image beside it %.2f and then %.2f; evacuated after %.1f "
      "of "
      "%.0f s, fetched after %.1f\n",
      kLine / 1e6,
      evacuating / 1e6,
      beside / 1e6,
      alone / 1e6,
      evacuated_s,
      kDeadline_s,
      fetched_s
  );
  EXPECT_NE(said.find("its image comes from the coordinator"), std::string::npos) << said;
  EXPECT_LT(evacuated_s, kDeadline_s);
  EXPECT_NEAR(beside, 0.25 * kUsable, 0.08 * kUsable);
  EXPECT_NEAR(evacuating, 0.75 * kUsable, 0.1 * kUsable);
  EXPECT_LT(beside + evacuating, 1.02 * kLine);
  EXPECT_NEAR(alone, kUsable, 0.2 * kUsable);
  EXPECT_EQ(come_, kPieces * kPieceBytes);
}

}  // namespace
}  // namespace rn

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
