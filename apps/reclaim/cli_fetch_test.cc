// SPDX-License-Identifier: Apache-2.0
#include "cli_fetch.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/crypto.h"
#include "base/scratch_folder.h"
#include "io/http_server.h"
#include "io/loop_fixture.h"
#include "io/real_clock.h"

namespace rn::cli {
namespace {

/// Has blobs, and answers when as many as `at_once` are asked for, or when nothing more comes.
class BlobServer {
 public:
  BlobServer() {
    const Status started = thread_.call([&]() -> Status {
      RN_TRY(
          server_,
          io::HttpServer::start(
              thread_.loop(),
              {},
              [this](const io::HttpRequest& request, const io::Responder& responder) {
                take(request.path.substr(request.path.rfind('/') + 1), responder);
              }
          )
      );
      return {};
    });
    EXPECT_TRUE(started);
  }

  ~BlobServer() {
    thread_.call([&] {
      waiting_.clear();
      server_.reset();
    });
  }

  BlobServer(const BlobServer&) = delete;
  BlobServer& operator=(const BlobServer&) = delete;

  ListedFile file(const std::string& path, const std::string& bytes, bool is_there = true) {
    const Digest name = crypto::sha256(as_bytes(bytes));
    if (is_there) blobs_[to_hex(name)] = bytes;
    return {.path = path, .bytes = bytes.size(), .blobs = {name}};
  }

  void damage(const ListedFile& file) { blobs_[to_hex(file.blobs[0])] = "other bytes"; }

  Client client() const {
    return Client(Login{"http://127.0.0.1:" + std::to_string(server_->port()), "token", ""});
  }

  std::size_t at_once = 1;
  int status_of_missing = 404;
  std::size_t most_at_once = 0;

 private:
  void take(const std::string& name, const io::Responder& responder) {
    waiting_.emplace_back(name, responder);
    most_at_once = std::max(most_at_once, waiting_.size());
    if (waiting_.size() >= at_once) return answer();
    if (timer_) thread_.loop().cancel(*timer_);
    timer_ = thread_.loop().run_after(milliseconds(100), [this] { answer(); });
  }

  void answer() {
    for (const auto& [name, responder] : std::exchange(waiting_, {})) {
      const auto there = blobs_.find(name);
      if (there == blobs_.end()) {
        responder.send(io::json_response(
            status_of_missing, R"({"error": {"code": "x", "message": "no such blob"}})"
        ));
      } else {
        responder.send(io::HttpResponse{200, {}, there->second});
      }
    }
  }

  io::LoopThread thread_;
  std::unique_ptr<io::HttpServer> server_;
  std::map<std::string, std::string> blobs_;
  std::vector<std::pair<std::string, io::Responder>> waiting_;
  std::optional<io::TimerId> timer_;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Fetch, small_files_are_asked_for_beside_each_other) {
  BlobServer server;
  Listing listing;
  for (int i = 0; i < 40; ++i)
    listing.files.push_back(server.file("out/" + std::to_string(i), "file " + std::to_string(i)));
  server.at_once = 8;
  const ScratchFolder folder;

  const Status fetched = fetch_listing(server.client(), listing, "", folder.path());

  ASSERT_TRUE(fetched) << fetched.error().describe();
  EXPECT_EQ(server.most_at_once, 8u);
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(text_of(folder.path() + "/out/" + std::to_string(i)), "file " + std::to_string(i));
}

TEST(Fetch, what_fails_is_named_in_order_and_the_others_are_there) {
  BlobServer server;
  Listing listing;
  listing.files = {
      server.file("one", "1"),
      server.file("two", "never uploaded", false),
      server.file("three", "3"),
      server.file("four", "4"),
      server.file("five", "5")};
  server.damage(listing.files[3]);
  const ScratchFolder folder;
  std::filesystem::create_directory(folder.path() + "/three");
  server.at_once = 8;

  const Status fetched = fetch_listing(server.client(), listing, "", folder.path());

  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().code, ErrorCode::kConflict);
  const std::string& said = fetched.error().message;
  EXPECT_TRUE(said.starts_with("3 of 5 outputs were not written: two: ")) << said;
  EXPECT_LT(said.find("two: "), said.find("/three")) << said;
  EXPECT_LT(said.find("/three"), said.find("four arrived damaged")) << said;
  EXPECT_EQ(text_of(folder.path() + "/one"), "1");
  EXPECT_EQ(text_of(folder.path() + "/five"), "5");
}

TEST(Fetch, a_refusal_that_will_come_again_with_each_ends_it) {
  BlobServer server;
  server.status_of_missing = 403;
  Listing listing;
  listing.files = {server.file("a", "1"), server.file("b", "2", false), server.file("c", "3")};
  const ScratchFolder folder;

  const Status fetched = fetch_listing(server.client(), listing, "", folder.path());

  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().code, ErrorCode::kDenied);
  EXPECT_EQ(text_of(folder.path() + "/a"), "1");
}

TEST(Fetch, nothing_is_written_into_gits_folders_and_ours) {
  BlobServer server;
  Listing listing;
  listing.files = {
      server.file(".git/hooks/post-checkout", "#!/bin/sh"),
      server.file("lib/.GIT/config", "[core]"),
      server.file(".reclaim/j-1/attempt-1.log", "lies"),
      server.file("lib/.gitignore", "*.o"),
      server.file("model.pt", "weights")};
  const ScratchFolder folder;

  testing::internal::CaptureStderr();
  const Status fetched = fetch_listing(server.client(), listing, "", folder.path());
  const std::string said = testing::internal::GetCapturedStderr();

  ASSERT_TRUE(fetched) << fetched.error().describe();
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/.git"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/lib/.GIT"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/.reclaim"));
  EXPECT_EQ(text_of(folder.path() + "/lib/.gitignore"), "*.o");
  EXPECT_EQ(text_of(folder.path() + "/model.pt"), "weights");
  EXPECT_NE(
      said.find("not brought home: .git/hooks/post-checkout, lib/.GIT/config"), std::string::npos
  ) << said;
}

TEST(Fetch, what_was_written_here_while_the_job_ran_stays_and_the_jobs_lies_aside) {
  BlobServer server;
  Listing listing;
  listing.files = {server.file("train.py", "the job's"), server.file("old.csv", "new")};
  const ScratchFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path() + "/" + name) << text;
  };
  write("old.csv", "old");
  std::this_thread::sleep_for(milliseconds(20));
  const WallTime begun = io::RealClock{}.now().wall;
  std::this_thread::sleep_for(milliseconds(20));
  write("train.py", "edited since");

  testing::internal::CaptureStderr();
  const Status fetched =
      fetch_listing(server.client(), listing, "", folder.path(), {begun, ".reclaim/j-1/outputs"});
  const std::string said = testing::internal::GetCapturedStderr();

  ASSERT_TRUE(fetched) << fetched.error().describe();
  EXPECT_EQ(text_of(folder.path() + "/train.py"), "edited since");
  EXPECT_EQ(text_of(folder.path() + "/.reclaim/j-1/outputs/train.py"), "the job's");
  EXPECT_EQ(text_of(folder.path() + "/old.csv"), "new");
  EXPECT_NE(said.find("changed here while the job ran, and kept: train.py"), std::string::npos)
      << said;
}

}  // namespace
}  // namespace rn::cli
