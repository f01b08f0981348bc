// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/hands.h"
#include "base/fenced_fs_fixture.h"
#include "base/scratch_folder.h"
#include "base/utf8.h"
#include "io/http_server.h"
#include "io/loop_fixture.h"
#include "io/real_clock.h"
#include "io/real_fs.h"
#include "io/real_rng.h"
#include "io/tls_fixture.h"
#include "model/api.h"
#include "model/codec.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

/// A coordinator that lacks every blob and takes them all.
class OutputServer {
 public:
  explicit OutputServer(const io::Site& site) {
    io::HttpServerConfig config;
    config.tls = site.end(kCoordinatorIdentity);
    thread_.call([&] {
      server_ = *io::HttpServer::start(
          thread_.loop(),
          config,
          [this](const io::HttpRequest& request, const io::Responder& responder) {
            if (request.method == "POST") {
              ++queries;
              const auto query = from_json<api::BlobQuery>(request.body, Unknown::kLenient);
              return responder.send({200, {}, to_json(api::BlobMissing{query->digests})});
            }
            blobs[request.path.substr(request.path.rfind('/') + 1)] = request.body;
            responder.send({201, {}, "{}"});
          }
      );
    });
  }

  ~OutputServer() {
    thread_.call([&] { server_.reset(); });
  }

  std::string url() const { return "https://127.0.0.1:" + std::to_string(server_->port()); }

  std::map<std::string, std::string> blobs;
  std::atomic<int> queries = 0;  ///< which of them it lacks

 private:
  io::LoopThread thread_;
  std::unique_ptr<io::HttpServer> server_;
};

/// As an agent that runs without root's rights over files of others.
void without_rights_over_files(const std::function<void()>& body) {
  std::thread([&] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct rights[2] = {};
    ASSERT_EQ(syscall(SYS_capget, &header, rights), 0);
    rights[0].effective &= ~((1U << CAP_DAC_OVERRIDE) | (1U << CAP_DAC_READ_SEARCH));
    ASSERT_EQ(syscall(SYS_capset, &header, rights), 0);
    body();
  }).join();
}

class HandsOutputs : public testing::Test {
 private:
  ScratchFolder scratch_;  ///< outlives what lies in it

 protected:
  const std::string folder = scratch_.path();
  const std::string work = folder + "/disk/work";

  HandsOutputs() : coordinator(site) {
    const io::TlsConfig client = site.client();
    identity.coordinator_url = coordinator.url();
    identity.certificate_pem = client.cert_pem;
    identity.key_pem = client.key_pem;
    identity.ca_pem = client.ca_pem;
    current = std::make_unique<CurrentIdentity>(identity);
    checkpoint::StoreOptions options;
    options.root = folder + "/chunks";
    options.reserve_free_bytes = 0;
    store = *checkpoint::ChunkStore::open(fs, clock, options);
    guests = std::make_unique<GuestBook>(fs, folder + "/guests");
    hands = std::make_unique<Hands>(HandsDeps{
        fs, clock, rng, *current, *store, *store, *guests, folder + "/images"});
    EXPECT_TRUE(make_folders(fs, folder + "/disk/reclaim", 0755));
    EXPECT_TRUE(make_folders(fs, in_work("locked"), 0755));
  }

  std::string in_work(const std::string& name) const { return work + "/" + name; }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(in_work(name)) << text;
  }

  OutputsUploaded upload(std::vector<std::string> outputs = {}) {
    UploadOutputs w;
    w.disk = folder + "/disk";
    w.spec.outputs = std::move(outputs);
    WorkResult result;
    without_rights_over_files([&] {
      const std::atomic<bool> is_cancelled = false;
      result = hands->run(Work{1, {JobId("j-0123456789abcdef"), {1, 1}}, w}, is_cancelled);
    });
    const auto* const error = std::get_if<Error>(&result);
    EXPECT_EQ(error, nullptr) << error->describe();
    return error == nullptr ? std::get<OutputsUploaded>(result) : OutputsUploaded{};
  }

  std::vector<std::string> published(const OutputsUploaded& uploaded) {
    const std::string& bytes = coordinator.blobs[to_hex(uploaded.listing)];
    std::vector<std::string> out;
    const auto listing = from_cbor<Listing>(as_bytes(bytes));
    if (!listing) return {listing.error().describe()};
    for (const ListedFile& file : listing->files) out.push_back(file.path);
    return out;
  }

  io::Site site;
  OutputServer coordinator;
  io::RealFileSystem disk_;
  FencedFileSystem fs{disk_, folder};
  io::RealClock clock;
  io::RealRng rng;
  Identity identity;
  std::unique_ptr<CurrentIdentity> current;
  std::unique_ptr<checkpoint::ChunkStore> store;
  std::unique_ptr<GuestBook> guests;
  std::unique_ptr<Hands> hands;
};

TEST_F(HandsOutputs, what_cannot_be_read_is_named_and_the_rest_comes_home) {
  put("result.txt", "42");
  put("private.txt", "mine");
  put("locked/inside.txt", "not seen");
  ASSERT_EQ(mkfifo(in_work("pipe").c_str(), 0644), 0);
  ASSERT_EQ(symlink("result.txt", in_work("latest").c_str()), 0);
  ASSERT_EQ(chmod(in_work("private.txt").c_str(), 0), 0);
  ASSERT_EQ(chmod(in_work("locked").c_str(), 0), 0);

  const OutputsUploaded uploaded = upload();

  ASSERT_EQ(chmod(in_work("locked").c_str(), 0755), 0);
  EXPECT_THAT(published(uploaded), UnorderedElementsAre("result.txt", "latest"));
  EXPECT_THAT(uploaded.left_out, HasSubstr("private.txt (nobody but its owner may read it)"));
  EXPECT_THAT(uploaded.left_out, HasSubstr("locked/ (nobody but its owner may read it)"));
  EXPECT_THAT(uploaded.left_out, HasSubstr("pipe (a socket, pipe or device and no file)"));
  EXPECT_THAT(uploaded.left_out, HasSubstr("next: "));
  EXPECT_THAT(uploaded.left_out, Not(HasSubstr(folder))) << "the node's own paths are not told";
}

TEST_F(HandsOutputs, what_was_not_wanted_is_not_missed) {
  put("result.txt", "42");
  put("private.txt", "mine");
  ASSERT_EQ(mkfifo(in_work("pipe").c_str(), 0644), 0);
  ASSERT_EQ(chmod(in_work("private.txt").c_str(), 0), 0);

  const OutputsUploaded uploaded = upload({"result.txt"});

  EXPECT_THAT(published(uploaded), UnorderedElementsAre("result.txt"));
  EXPECT_EQ(uploaded.left_out, "");
}

TEST_F(HandsOutputs, thousands_that_cannot_be_read_are_counted) {
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(mkfifo(in_work("pipe" + std::to_string(i)).c_str(), 0644), 0);

  const OutputsUploaded uploaded = upload();

  EXPECT_THAT(uploaded.left_out, HasSubstr("and 92 more"));
  EXPECT_LT(uploaded.left_out.size(), 1000U);
}

TEST_F(HandsOutputs, names_that_are_not_text_and_folders_too_deep_are_named) {
  put("result.txt", "42");
  put("caf\xe9.txt", "latin");
  std::string deep = "deep";
  for (int i = 0; i < 200; ++i) deep += "/d";
  std::filesystem::create_directories(in_work(deep));

  const OutputsUploaded uploaded = upload();

  EXPECT_THAT(published(uploaded), UnorderedElementsAre("result.txt"));
  EXPECT_THAT(uploaded.left_out, HasSubstr(".txt (its name is not UTF-8)"));
  EXPECT_THAT(uploaded.left_out, HasSubstr("(folders are nested too deeply)"));
  EXPECT_TRUE(is_utf8(uploaded.left_out));
}

TEST_F(HandsOutputs, an_owner_who_comes_does_not_wait_until_a_big_one_is_read) {
  put("big.bin", "");
  ASSERT_EQ(::truncate(in_work("big.bin").c_str(), 2LL << 30), 0);
  std::atomic<bool> is_cancelled = false;
  std::thread owner([&] {
    std::this_thread::sleep_for(milliseconds(30));  // it is being read by then
    is_cancelled = true;
  });
  UploadOutputs w;
  w.disk = folder + "/disk";
  const WorkResult result =
      hands->run(Work{1, {JobId("j-0123456789abcdef"), {1, 1}}, w}, is_cancelled);
  owner.join();

  const auto* const error = std::get_if<Error>(&result);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code, ErrorCode::kTimeout);
  EXPECT_EQ(coordinator.queries, 0) << "it was read to its end";
}

}  // namespace
}  // namespace rn::agent
