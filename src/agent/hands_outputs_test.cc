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

#include "agent/hands_fixture.h"
#include "base/utf8.h"
#include "io/http_server.h"
#include "io/loop_fixture.h"
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
    config.body_limit = [](const std::string& path) -> std::size_t {  // as the coordinator's
      return path.ends_with("/missing") ? 1u << 20 : 4u << 20;
    };
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

/// A disk whose owner wants it back at the `at`-th reading of an output.
class CutAtRead final : public FencedFileSystem {
 public:
  CutAtRead(FileSystem& disk, const std::string& root, std::atomic<bool>& is_cancelled, int at)
      : FencedFileSystem(disk, root), is_cancelled_(is_cancelled), at_(at) {}

  Result<std::unique_ptr<File>> open(const std::string& path) override {
    RN_TRY(auto file, FencedFileSystem::open(path));
    if (path.find("work/") == std::string::npos) return file;
    return std::unique_ptr<File>(std::make_unique<Counted>(std::move(file), *this));
  }

  Result<std::unique_ptr<Folder>> open_folder(const std::string& path) override {
    return FileSystem::open_folder(path);  // by way of open()
  }

  int reads = 0;
  std::uint64_t largest = 0;
  std::uint64_t bytes_given_max = ~0ULL;  ///< by one read; for files of which nothing need be read

 private:
  class Counted final : public File {
   public:
    Counted(std::unique_ptr<File> file, CutAtRead& all) : file_(std::move(file)), all_(all) {}

    Result<Blob> read(std::uint64_t offset, std::uint64_t max) override {
      all_.largest = std::max(all_.largest, max);
      if (++all_.reads == all_.at_) all_.is_cancelled_ = true;
      return file_->read(offset, std::min(max, all_.bytes_given_max));
    }

    Status append(BlobView) override { return fail(ErrorCode::kDenied, "outputs are only read"); }

    Status sync() override { return {}; }

    Result<FileStat> stat() override { return file_->stat(); }

   private:
    std::unique_ptr<File> file_;
    CutAtRead& all_;
  };

  std::atomic<bool>& is_cancelled_;
  const int at_;
};

class HandsOutputs : public HandsTest {
 protected:
  const std::string work = folder + "/disk/work";

  HandsOutputs() : coordinator(site) {
    const io::TlsConfig client = site.client();
    identity.coordinator_url = coordinator.url();
    identity.certificate_pem = client.cert_pem;
    identity.key_pem = client.key_pem;
    identity.ca_pem = client.ca_pem;
    make_hands();
    EXPECT_TRUE(make_folders(fs, folder + "/disk/reclaim", 0755));
    EXPECT_TRUE(make_folders(fs, in_work("locked"), 0755));
  }

  std::string in_work(const std::string& name) const { return work + "/" + name; }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(in_work(name)) << text;
  }

  OutputsUploaded upload(std::vector<std::string> outputs = {}, const std::string& tell_file = {}) {
    UploadOutputs w;
    w.disk = folder + "/disk";
    w.spec.tell_file = tell_file;
    w.spec.outputs = std::move(outputs);
    WorkResult result;
    without_rights_over_files([&] { result = run(w); });
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

TEST_F(HandsOutputs, a_folder_that_its_guest_has_shut_brings_nothing_home_and_is_named) {
  put("result.txt", "42");
  ASSERT_EQ(chmod(in_work(".").c_str(), 0), 0);

  const OutputsUploaded uploaded = upload();

  ASSERT_EQ(chmod(in_work(".").c_str(), 0755), 0);
  EXPECT_EQ(uploaded.listing, Digest{});
  EXPECT_THAT(uploaded.left_out, HasSubstr("./ (nobody but its owner may read it)"));
}

TEST_F(HandsOutputs, outputs_wait_for_the_wardens_view_and_are_not_taken_for_shut) {
  put("result.txt", "42");
  ASSERT_EQ(chmod(in_work(".").c_str(), 0), 0);
  ASSERT_TRUE(make_folders(fs, folder + "/view", 0755));
  UploadOutputs w;
  w.disk = folder + "/disk";
  WorkResult early;
  without_rights_over_files([&] { early = run(w); });
  ASSERT_EQ(chmod(in_work(".").c_str(), 0755), 0);
  std::filesystem::rename(folder + "/disk/work", folder + "/view/work");

  const OutputsUploaded uploaded = upload();

  ASSERT_TRUE(std::holds_alternative<Error>(early));
  EXPECT_EQ(std::get<Error>(early).code, ErrorCode::kUnavailable);
  EXPECT_THAT(published(uploaded), UnorderedElementsAre("result.txt"));
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

TEST_F(HandsOutputs, the_file_by_which_it_was_told_to_save_does_not_come_home) {
  put("result.txt", "42");
  put("SAVE", "{}");

  EXPECT_THAT(published(upload({}, "SAVE")), UnorderedElementsAre("result.txt"));
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

TEST_F(HandsOutputs, a_cut_lets_go_of_the_disk_in_the_middle_of_a_file) {
  put("result.bin", "");
  ASSERT_EQ(truncate(in_work("result.bin").c_str(), 256 << 20), 0);
  UploadOutputs w;
  w.disk = folder + "/disk";
  CutAtRead owned(disk_, folder, is_cancelled, 3);
  Hands own(HandsDeps{owned, clock, rng, *current, *store, *store, *guests, folder + "/images"});

  const WorkResult result =
      own.run(Work{1, {JobId("j-0123456789abcdef"), {1, 1}}, w}, is_cancelled);

  ASSERT_TRUE(std::holds_alternative<Error>(result));
  EXPECT_EQ(std::get<Error>(result).code, ErrorCode::kTimeout);
  EXPECT_EQ(owned.reads, 3) << "the disk was read after the cut";
  EXPECT_LE(owned.largest, 4u << 20) << "one read keeps the disk for long";
}

TEST_F(HandsOutputs, they_go_as_fast_as_they_may_and_it_is_seen_how_far_they_are) {
  put("result.txt", std::string(3 << 20, 'x'));
  UploadOutputs w;
  w.disk = folder + "/disk";
  const auto gauge = std::make_shared<TransferGauge>(40'000'000);
  std::atomic<bool> is_over = false;
  TransferGauge::Seen seen;
  std::thread looking([&] {
    // Between two looks, until the upload is over.
    for (; !is_over; std::this_thread::sleep_for(milliseconds(5))) {
      const TransferGauge::Seen now = gauge->look();
      if (!now.socket.remote.empty()) seen = now;
    }
  });

  const auto begun = std::chrono::steady_clock::now();
  const WorkResult result = hands->run(Work{1, guest, w}, is_cancelled, nullptr, gauge);
  const auto took = std::chrono::steady_clock::now() - begun;
  is_over = true;
  looking.join();

  ASSERT_TRUE(std::holds_alternative<OutputsUploaded>(result));
  EXPECT_GT(took, milliseconds(350)) << "3.1 MB at 5 MB/s take 630 ms, less what goes at once";
  EXPECT_EQ("https://" + seen.socket.remote, coordinator.url());
  EXPECT_LT(seen.bytes_left.value_or(~0ULL), 3u << 20);
  EXPECT_GT(gauge->look().bytes_sent, 3u << 20);
  EXPECT_EQ(gauge->look().socket.remote, "") << "over";
}

TEST_F(HandsOutputs, a_cut_lets_go_of_the_disk_in_the_middle_of_a_piece_that_goes_slowly) {
  put("result.txt", std::string(3 << 20, 'x'));
  UploadOutputs w;
  w.disk = folder + "/disk";
  const auto gauge = std::make_shared<TransferGauge>(1'000'000);
  std::thread owner([&] {
    // Between two looks, until some of it is on its way.
    while (gauge->look().bytes_sent < (64 << 10)) std::this_thread::sleep_for(milliseconds(2));
    is_cancelled = true;
  });

  const auto begun = std::chrono::steady_clock::now();
  const WorkResult result = hands->run(Work{1, guest, w}, is_cancelled, nullptr, gauge);
  const auto took = std::chrono::steady_clock::now() - begun;
  owner.join();

  ASSERT_TRUE(std::holds_alternative<Error>(result));
  EXPECT_EQ(std::get<Error>(result).code, ErrorCode::kTimeout);
  EXPECT_LT(took, seconds(8)) << "the piece alone takes 25 s";
}

TEST_F(HandsOutputs, a_file_of_holes_beyond_the_bound_is_named_and_not_read) {
  put("result.txt", "42");
  put("huge.bin", "");
  ASSERT_EQ(truncate(in_work("huge.bin").c_str(), 1LL << 40), 0);

  const OutputsUploaded uploaded = upload();

  EXPECT_THAT(published(uploaded), UnorderedElementsAre("result.txt"));
  EXPECT_THAT(uploaded.left_out, HasSubstr("huge.bin (larger than 256 GiB"));
}

TEST_F(HandsOutputs, the_pieces_of_a_huge_one_are_asked_for_in_queries_that_are_taken) {
  put("huge.bin", "");
  ASSERT_EQ(truncate(in_work("huge.bin").c_str(), 80LL << 30), 0);
  UploadOutputs w;
  w.disk = folder + "/disk";
  CutAtRead short_reads(disk_, folder, is_cancelled, -1);
  short_reads.bytes_given_max = 1;
  Hands own(HandsDeps{
      short_reads, clock, rng, *current, *store, *store, *guests, folder + "/images"});

  const WorkResult result =
      own.run(Work{1, {JobId("j-0123456789abcdef"), {1, 1}}, w}, is_cancelled);

  ASSERT_TRUE(std::holds_alternative<OutputsUploaded>(result))
      << std::get<Error>(result).describe();
  EXPECT_THAT(published(std::get<OutputsUploaded>(result)), UnorderedElementsAre("huge.bin"));
  EXPECT_EQ(coordinator.queries, 3);
}

TEST_F(HandsOutputs, more_than_a_list_holds_is_named_and_what_fits_comes_home) {
  const std::string target(4000, 't');
  for (int i = 0; i < 1100; ++i)
    ASSERT_EQ(symlink(target.c_str(), in_work("link" + std::to_string(i)).c_str()), 0);

  const OutputsUploaded uploaded = upload();

  EXPECT_THAT(uploaded.left_out, HasSubstr("(the list of outputs is full)"));
  EXPECT_LE(coordinator.blobs[to_hex(uploaded.listing)].size(), 4u << 20);
  EXPECT_GT(published(uploaded).size(), 1000U);
}

TEST_F(HandsOutputs, a_long_name_is_cut_between_two_characters) {
  std::string name = "x";
  for (int i = 0; i < 80; ++i) name += "\xc3\xa9";
  ASSERT_EQ(mkfifo(in_work(name).c_str(), 0644), 0);

  const OutputsUploaded uploaded = upload();

  EXPECT_THAT(uploaded.left_out, HasSubstr("... (a socket, pipe or device and no file)"));
  EXPECT_TRUE(is_utf8(uploaded.left_out));
}

}  // namespace
}  // namespace rn::agent
