// SPDX-License-Identifier: Apache-2.0
#include "agent/hands.h"

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/hands_fixture.h"
#include "agent/local_work.h"
#include "agent/watcher.h"
#include "checkpoint/generation_fake.h"
#include "checkpoint/manifest.h"
#include "io/http_server.h"
#include "io/loop_fixture.h"
#include "io/real_clock.h"
#include "io/real_fs.h"
#include "io/real_rng.h"
#include "io/tls_fixture.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;

/// A wrong path here would be a folder of the owner's: without the look at the disk, "" is /work.
TEST_F(HandsTest, a_folder_that_is_no_guests_disk_is_neither_emptied_nor_read) {
  put(in_work("owners", "thesis.tex"), "ten years");
  for (const std::string& disk : {std::string(), std::string("/"), folder + "/owners"}) {
    PrepareWork start = a_start("disk");
    start.disk = disk;
    TakeSnapshot snapshot = a_snapshot(1);
    snapshot.disk = disk;
    UploadOutputs upload;
    upload.disk = disk;

    for (const auto& result : {run(start), run(snapshot), run(upload)}) {
      const auto* error = std::get_if<Error>(&result);
      ASSERT_NE(error, nullptr) << disk;
      EXPECT_EQ(error->code, ErrorCode::kUnavailable) << disk;
      EXPECT_THAT(error->message, HasSubstr("no disk that the warden has mounted"));
    }
  }
  EXPECT_EQ(text_of(in_work("owners", "thesis.tex")), "ten years");
  EXPECT_THAT(fs.refused(), testing::IsEmpty());
}

TEST_F(HandsTest, a_snapshot_is_restored_with_the_same_bytes_on_another_disk) {
  ASSERT_TRUE(std::holds_alternative<WorkPrepared>(run(a_start("disk"))));
  put(in_work("disk", "ckpt.bin"), "step 40");
  put(in_work("disk", "notes.txt"), "beside it");

  const WorkResult taken = run(a_snapshot(1));
  ASSERT_TRUE(std::holds_alternative<SnapshotTaken>(taken)) << std::get<Error>(taken).describe();
  PrepareWork resume = a_start("other");
  resume.resume = std::get<SnapshotTaken>(taken).generation;
  put(in_work("other", "left-over"), "of a try that was interrupted");
  const WorkResult restored = run(resume);

  ASSERT_TRUE(std::holds_alternative<WorkPrepared>(restored))
      << std::get<Error>(restored).describe();
  EXPECT_EQ(text_of(in_work("other", "ckpt.bin")), "step 40");
  EXPECT_EQ(text_of(in_work("other", "notes.txt")), "beside it");
  EXPECT_FALSE(fs.stat(folder + "/" + in_work("other", "left-over")));
}

TEST_F(HandsTest, a_generation_says_its_step_where_the_checkpoints_name_does) {
  run(a_start("disk"));
  TakeSnapshot first = a_snapshot(1);
  first.spec.paths = {"*.bin"};
  put(in_work("disk", "last.bin"), "of an unknown step");
  const WorkResult unnamed = run(first);
  ASSERT_TRUE(std::holds_alternative<SnapshotTaken>(unnamed));
  EXPECT_EQ(std::get<SnapshotTaken>(unnamed).generation.step, -1);

  TakeSnapshot second = a_snapshot(2);
  second.spec.paths = {"epoch*.bin"};
  put(in_work("disk", "epoch=1-step=40.bin"), "weights");
  const WorkResult named = run(second);

  ASSERT_TRUE(std::holds_alternative<SnapshotTaken>(named)) << std::get<Error>(named).describe();
  EXPECT_EQ(std::get<SnapshotTaken>(named).generation.step, 40);
}

TEST_F(HandsTest, a_snapshot_says_what_processor_time_it_took) {
  run(a_start("disk"));
  put(in_work("disk", "ckpt.bin"), std::string(4 << 20, 'w'));

  const WorkResult taken = run(a_snapshot(1));

  ASSERT_TRUE(std::holds_alternative<SnapshotTaken>(taken)) << std::get<Error>(taken).describe();
  EXPECT_GT(std::get<SnapshotTaken>(taken).cpu, std::chrono::microseconds(100));
  EXPECT_LT(std::get<SnapshotTaken>(taken).cpu, seconds(60));
}

TEST_F(
    HandsTest, the_file_by_which_a_guest_is_told_is_in_no_generation_and_others_of_its_name_are
) {
  run(a_start("disk"));
  put(in_work("disk", "ckpt.bin"), "step 40");
  put(in_work("disk", "SAVE"), "{}");
  put(in_work("disk", "results/SAVE"), "the guest's own");
  TakeSnapshot w = a_snapshot(1);
  w.spec.tell_file = "SAVE";
  const WorkResult taken = run(w);
  ASSERT_TRUE(std::holds_alternative<SnapshotTaken>(taken)) << std::get<Error>(taken).describe();
  PrepareWork resume = a_start("other");
  resume.resume = std::get<SnapshotTaken>(taken).generation;
  ASSERT_TRUE(std::holds_alternative<WorkPrepared>(run(resume)));

  EXPECT_EQ(text_of(in_work("other", "ckpt.bin")), "step 40");
  EXPECT_EQ(text_of(in_work("other", "results/SAVE")), "the guest's own");
  EXPECT_FALSE(fs.stat(folder + "/" + in_work("other", "SAVE")));
}

TEST_F(HandsTest, what_did_not_change_is_nothing_new) {
  run(a_start("disk"));
  put(in_work("disk", "ckpt.bin"), "step 40");
  ASSERT_TRUE(std::holds_alternative<SnapshotTaken>(run(a_snapshot(1))));
  EXPECT_TRUE(std::holds_alternative<NothingNew>(run(a_snapshot(2))));

  put(in_work("disk", "ckpt.bin"), "step 41, longer");

  EXPECT_TRUE(std::holds_alternative<SnapshotTaken>(run(a_snapshot(2))));
}

TEST_F(HandsTest, a_snapshot_offers_each_new_chunk_once_to_a_copy_that_is_ahead) {
  run(a_start("disk"));
  put(in_work("disk", "ckpt.bin"), "step 40");
  const auto tap = std::make_shared<checkpoint::ChunkTap>();
  guests->entry(guest)->feed.connect(tap);
  const WorkResult taken = run(a_snapshot(1));
  ASSERT_TRUE(std::holds_alternative<SnapshotTaken>(taken));

  const auto chunk = tap->take(milliseconds(0));
  ASSERT_TRUE(chunk);
  EXPECT_EQ(crypto::sha256(*chunk->stored), chunk->cipher);
  EXPECT_TRUE(store->has(chunk->cipher));
  EXPECT_FALSE(tap->take(milliseconds(0)));

  put(in_work("disk", "ckpt.bin"), "step 41, longer");
  put(in_work("disk", "copy.bin"), "step 40");
  ASSERT_TRUE(std::holds_alternative<SnapshotTaken>(run(a_snapshot(2))));
  EXPECT_TRUE(tap->take(milliseconds(0)));
  EXPECT_FALSE(tap->take(milliseconds(0))) << "a chunk that is known was offered again";
}

TEST_F(HandsTest, a_copy_ahead_of_a_snapshot_that_is_given_up_ends_without_connecting) {
  CopyGeneration ahead;
  ahead.generation.job = guest.job;
  ahead.generation.generation = 1;
  ahead.peer.node = NodeId("n-0000000000000002");
  ahead.peer.address = "127.0.0.1:1";
  ahead.is_ahead = true;
  const auto tap = std::make_shared<checkpoint::ChunkTap>();
  std::thread canceller([&] { is_cancelled = true; });
  const WorkResult ended = hands->run(Work{1, guest, ahead}, is_cancelled, tap);
  canceller.join();

  ASSERT_TRUE(std::holds_alternative<Error>(ended));
  EXPECT_EQ(std::get<Error>(ended).code, ErrorCode::kTimeout);
}

TEST_F(HandsTest, a_guest_that_never_saved_has_nothing) {
  run(a_start("disk"));
  put(in_work("disk", "notes.txt"), "no checkpoint");

  EXPECT_TRUE(std::holds_alternative<NothingNew>(run(a_snapshot(1))));
}

TEST_F(HandsTest, a_generation_that_is_damaged_falls_back_to_the_one_before) {
  run(a_start("disk"));
  put(in_work("disk", "ckpt.bin"), "step 1");
  const auto first = std::get<SnapshotTaken>(run(a_snapshot(1))).generation;
  PrepareWork resume = a_start_after_one_that_nobody_has(first);

  const WorkResult restored = run(resume);

  ASSERT_TRUE(std::holds_alternative<WorkPrepared>(restored));
  EXPECT_EQ(std::get<WorkPrepared>(restored).restored.generation, 1u);
  EXPECT_THAT(std::get<WorkPrepared>(restored).note, HasSubstr("took generation 1"));
  EXPECT_EQ(text_of(in_work("other", "ckpt.bin")), "step 1");
}

TEST_F(HandsTest, a_holder_that_does_not_answer_is_asked_again_and_nothing_older_is_taken) {
  run(a_start("disk"));
  put(in_work("disk", "ckpt.bin"), "step 1");
  const auto first = std::get<SnapshotTaken>(run(a_snapshot(1))).generation;
  PrepareWork resume = a_start_after_one_that_nobody_has(first);
  PeerGrant holder;
  holder.node = NodeId("n-elsewhere");
  holder.address = "127.0.0.1:1";  // nobody listens
  resume.resume_from = {holder};

  const WorkResult restored = run(resume);

  const auto* const away = std::get_if<HoldersAway>(&restored);
  ASSERT_NE(away, nullptr);
  EXPECT_EQ(away->holders, std::vector{holder.node});
}

TEST_F(HandsTest, another_nodes_sealed_key_opens_nothing) {
  run(a_start("disk"));
  put(in_work("disk", "ckpt.bin"), "step 1");
  TakeSnapshot w = a_snapshot(1);
  w.sealed_job_key = crypto::seal_for(
      crypto::make_box_key(rng).public_key, job_key, as_bytes(guest.job.str()), rng
  );

  EXPECT_TRUE(std::holds_alternative<Error>(run(w)));
}

TEST_F(HandsTest, the_log_outlives_the_disk_in_the_spool) {
  put("disk/reclaim/log", "line 1\nline 2\n");
  const WorkResult first = run(ReadLog{folder + "/disk", 7, 100});
  EXPECT_EQ(std::get<LogRead>(first).bytes, (Blob{'l', 'i', 'n', 'e', ' ', '2', '\n'}));
  ASSERT_TRUE(remove_tree(fs, folder + "/disk"));

  const WorkResult later = run(ReadLog{"", 0, 6});

  EXPECT_EQ(std::get<LogRead>(later).spooled_bytes, 14u);
  EXPECT_EQ(as_text(std::get<LogRead>(later).bytes), "line 1");
}

TEST_F(HandsTest, of_a_log_that_its_guest_has_made_longer_itself_no_more_is_kept) {
  put("disk/reclaim/log", "begins\n");
  ASSERT_EQ(truncate((folder + "/disk/reclaim/log").c_str(), 40 << 20), 0);

  const WorkResult read = run(ReadLog{folder + "/disk", 0, 6});

  EXPECT_EQ(as_text(std::get<LogRead>(read).bytes), "begins");
  EXPECT_EQ(std::get<LogRead>(read).spooled_bytes, warden_wire::kLogBytesMax);
}

TEST_F(HandsTest, a_guest_says_that_it_has_saved_by_one_whole_line) {
  const auto log_is = [&](const std::string& text) {
    put("disk/reclaim/log", text);
    return std::get<LogRead>(run(ReadLog{folder + "/disk", 0, 0})).is_declared;
  };
  const std::string line(kSavedLine);

  EXPECT_FALSE(log_is("begun\n" + line)) << "its end has not come yet";
  EXPECT_TRUE(log_is("begun\n" + line + "\n"));
  EXPECT_FALSE(log_is("begun\n" + line + "\n")) << "the same line";
  EXPECT_FALSE(log_is("begun\n" + line + "\nstep 2\n"));
  EXPECT_TRUE(log_is("begun\n" + line + "\nstep 2\n" + line + "\r\nstep"));
}

TEST_F(HandsTest, how_a_hook_ended_is_read_if_it_is_said_as_our_first_process_does) {
  const auto end_in = [&](const std::string& text) {
    put("disk/reclaim/hook", text);
    return std::get<LogRead>(run(ReadLog{folder + "/disk", 0, 0, true})).hook;
  };
  put("disk/reclaim/log", "");
  const auto end = end_in("7 3\n");
  ASSERT_TRUE(end);
  EXPECT_EQ(end->run, 7u);
  EXPECT_EQ(end->exit_code, 3);
  EXPECT_FALSE(end->is_late);
  EXPECT_TRUE(end_in("7 late\n")->is_late);
  for (const std::string bad :
       {"",
        "7",
        "7 3",
        "0 3\n",
        "7 256\n",
        "7 -1\n",
        "x 3\n",
        "7 3 4\n",
        "99999999999 1\n",
        "\n 7 3\n"})
    EXPECT_FALSE(end_in(bad)) << bad;
  EXPECT_FALSE(std::get<LogRead>(run(ReadLog{folder + "/disk", 0, 0})).hook) << "it has none";
}

TEST_F(HandsTest, a_log_may_begin_with_that_line) {
  put("disk/reclaim/log", std::string(kSavedLine) + "\n");

  EXPECT_TRUE(std::get<LogRead>(run(ReadLog{folder + "/disk", 0, 0})).is_declared);
}

TEST_F(HandsTest, what_only_looks_like_that_line_says_nothing) {
  const std::string line(kSavedLine);
  put("disk/reclaim/log",
      "x" + line + "\n" + line + " \n" + line + line + "\n" + std::string(100, 'y') + line + "\n");

  EXPECT_FALSE(std::get<LogRead>(run(ReadLog{folder + "/disk", 0, 0})).is_declared);
}

TEST_F(HandsTest, that_line_is_found_wherever_the_log_is_cut) {
  const std::string text = "a step\n" + std::string(kSavedLine) + "\nanother\n";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    put("disk/reclaim/log", text.substr(0, cut));
    const bool is_early = std::get<LogRead>(run(ReadLog{folder + "/disk", 0, 0})).is_declared;
    put("disk/reclaim/log", text);
    const bool is_late = std::get<LogRead>(run(ReadLog{folder + "/disk", 0, 0})).is_declared;

    EXPECT_NE(is_early, is_late) << "cut after " << cut << " bytes";
    ASSERT_TRUE(std::holds_alternative<Done>(run(ForgetAttempt{})));
  }
}

TEST_F(HandsTest, what_a_dead_process_left_of_forgotten_attempts_goes_at_the_next_start) {
  put("guests/j-1-1.1/log", "of an attempt that the journal has");
  put("guests/j-1-1.2/log", "of one that it has no more");
  put("guests/j-2-1.1/log", "of another job");

  ASSERT_TRUE(remove_strays(fs, folder + "/guests", {{"attempt/j-1/1.1", "{}"}, {"node", "{}"}}));

  EXPECT_EQ(fs.list(folder + "/guests").value(), std::vector<std::string>{"j-1-1.1"});
}

TEST_F(HandsTest, a_job_name_that_would_leave_the_folder_is_refused) {
  guest.job = JobId("../../etc");

  const WorkResult result = run(ReadLog{"", 0, 6});

  ASSERT_TRUE(std::holds_alternative<Error>(result));
  EXPECT_EQ(std::get<Error>(result).code, ErrorCode::kInvalid);
}

TEST_F(HandsTest, an_image_whose_pieces_do_not_add_up_is_refused) {
  const Blob piece = {'a', 'b'};
  const Digest name = crypto::sha256(piece);
  checkpoint::ChunkStore::Session session(*images);
  ASSERT_TRUE(session.put(name, piece));
  ASSERT_TRUE(session.flush());
  FetchImage good{"sha256:" + to_hex(name), 2, {name}, {}};
  FetchImage bad{"sha256:" + std::string(64, '0'), 2, {name}, {}};

  const WorkResult fetched = run(good);
  const WorkResult refused = run(bad);

  ASSERT_TRUE(std::holds_alternative<ImageFetched>(fetched)) << std::get<Error>(fetched).describe();
  ASSERT_TRUE(std::holds_alternative<Error>(refused));
  EXPECT_EQ(std::get<Error>(refused).code, ErrorCode::kCorrupt);
}

TEST_F(HandsTest, two_jobs_that_fetch_one_image_at_once_get_one_whole_archive) {
  for (std::uint8_t round = 0; round < 5; ++round) {
    const FetchImage image = an_image(round, 4 << 20);
    WorkResult results[2];
    std::thread other([&] {
      results[1] = hands->run(Work{2, {JobId("j-fedcba9876543210"), {1, 1}}, image}, is_cancelled);
    });
    results[0] = run(image);
    other.join();

    for (const WorkResult& result : results) {
      ASSERT_TRUE(std::holds_alternative<ImageFetched>(result))
          << std::get<Error>(result).describe();
      const std::string path = std::get<ImageFetched>(result).archive_path;
      EXPECT_EQ("sha256:" + to_hex(crypto::sha256(*read_all(fs, path, 8 << 20))), image.digest);
    }
  }
}

TEST_F(HandsTest, archives_beyond_the_bound_go_least_recently_used_first_and_never_one_in_use) {
  const auto path_of = [&](const FetchImage& image) {
    return folder + "/images/" + image.digest.substr(7) + ".tar";
  };
  const auto used_minutes_ago = [&](const FetchImage& image, int minutes) {
    const auto at = clock.now().wall.time_since_epoch() - std::chrono::minutes(minutes);
    ASSERT_TRUE(fs.set_mtime(path_of(image), std::chrono::nanoseconds(at).count()));
  };
  make_hands(2500);
  const FetchImage a = an_image(1, 1000);
  const FetchImage b = an_image(2, 1000);
  const FetchImage c = an_image(3, 1000);
  const FetchImage d = an_image(4, 1000);
  for (const FetchImage& image : {a, b, c})
    ASSERT_TRUE(std::holds_alternative<ImageFetched>(run(image)));
  EXPECT_TRUE(fs.stat(path_of(a))) << "all were used just now: the bound waits";
  used_minutes_ago(a, 30);
  used_minutes_ago(b, 60);
  used_minutes_ago(c, 1);

  ASSERT_TRUE(std::holds_alternative<ImageFetched>(run(a)));  // used again: now b is the oldest

  EXPECT_TRUE(fs.stat(path_of(a)));
  EXPECT_FALSE(fs.stat(path_of(b)));
  EXPECT_TRUE(fs.stat(path_of(c)));
  ASSERT_TRUE(std::holds_alternative<ImageFetched>(run(d)));
  EXPECT_TRUE(fs.stat(path_of(c))) << "perhaps the warden reads it now";
  EXPECT_TRUE(std::holds_alternative<ImageFetched>(run(b))) << "made again from its pieces";
}

/// A coordinator of which only the blobs are there. It remembers over how many connections they
/// were asked for.
class BlobServer {
 public:
  explicit BlobServer(const io::Site& site) {
    io::HttpServerConfig config;
    config.tls = site.end(kCoordinatorIdentity);
    thread_.call([&] {
      server_ = *io::HttpServer::start(
          thread_.loop(),
          config,
          [this](const io::HttpRequest& request, const io::Responder& responder) {
            const auto found = blobs.find(request.path.substr(request.path.rfind('/') + 1));
            remotes.insert(request.remote);
            ++requests;
            if (found == blobs.end())
              return responder.send_error(Error{ErrorCode::kNotFound, "no such blob", ""});
            responder.send(io::HttpResponse{200, {}, found->second});
          }
      );
    });
  }

  ~BlobServer() {
    thread_.call([&] { server_.reset(); });
  }

  std::string url() const { return "https://127.0.0.1:" + std::to_string(server_->port()); }

  std::map<std::string, std::string> blobs;  ///< changed only while nobody asks
  std::set<std::string> remotes;
  int requests = 0;

 private:
  io::LoopThread thread_;
  std::unique_ptr<io::HttpServer> server_;
};

/// Twenty pieces that lie at the coordinator.
class HandsOfImages : public HandsTest {
 protected:
  HandsOfImages() : coordinator(site) {
    const io::TlsConfig client = site.client();
    identity.coordinator_url = coordinator.url();
    identity.certificate_pem = client.cert_pem;
    identity.key_pem = client.key_pem;
    identity.ca_pem = client.ca_pem;
    make_hands();
    std::string whole;
    for (char c = 'a'; c < 'a' + 20; ++c) {
      const std::string piece(1000, c);
      image.blobs.push_back(crypto::sha256(as_bytes(piece)));
      coordinator.blobs[to_hex(image.blobs.back())] = piece;
      whole += piece;
    }
    image.digest = "sha256:" + to_hex(crypto::sha256(as_bytes(whole)));
    image.bytes = whole.size();
  }

  io::Site site;
  BlobServer coordinator;
  FetchImage image;
};

TEST_F(HandsOfImages, a_renewed_certificate_is_used_by_the_hands_that_are_at_work) {
  io::CertificateSpec spec;
  spec.uris = {"spiffe://site/client"};
  spec.validity = std::chrono::hours(1);
  const std::string good = identity.certificate_pem;
  const WallTime two_days_ago = clock.now().wall - std::chrono::hours(48);
  const auto expired =
      site.authority.issue(*io::public_key_of(identity.key_pem), spec, two_days_ago);
  ASSERT_TRUE(expired) << expired.error().describe();
  identity.certificate_pem = *expired;
  make_hands();
  ASSERT_TRUE(std::holds_alternative<Error>(run(image)));
  EXPECT_EQ(coordinator.requests, 0);

  current->renew(good, identity.ca_pem);

  const WorkResult fetched = run(image);
  EXPECT_TRUE(std::holds_alternative<ImageFetched>(fetched)) << std::get<Error>(fetched).describe();
}

TEST_F(HandsOfImages, pieces_come_over_a_few_kept_connections_and_add_up) {
  const WorkResult fetched = run(image);

  ASSERT_TRUE(std::holds_alternative<ImageFetched>(fetched)) << std::get<Error>(fetched).describe();
  const auto archive = read_all(fs, std::get<ImageFetched>(fetched).archive_path, 1 << 20);
  ASSERT_TRUE(archive);
  EXPECT_EQ("sha256:" + to_hex(crypto::sha256(*archive)), image.digest);
  EXPECT_EQ(coordinator.requests, 20);
  EXPECT_LE(coordinator.remotes.size(), 3U);
}

TEST_F(
    HandsOfImages, a_piece_with_other_bytes_is_refused_and_the_good_ones_are_not_asked_for_again
) {
  std::string& broken = coordinator.blobs[to_hex(image.blobs[10])];
  const std::string good = std::exchange(broken, std::string(1000, '!'));

  const WorkResult refused = run(image);
  broken = good;
  const int asked = std::exchange(coordinator.requests, 0);
  const WorkResult fetched = run(image);

  ASSERT_TRUE(std::holds_alternative<Error>(refused));
  EXPECT_EQ(std::get<Error>(refused).code, ErrorCode::kCorrupt);
  ASSERT_TRUE(std::holds_alternative<ImageFetched>(fetched)) << std::get<Error>(fetched).describe();
  // At most those under way beside the broken one are asked for a second time.
  EXPECT_EQ(asked + coordinator.requests, 21);
}

TEST_F(HandsTest, garbage_collection_keeps_the_generations_from_the_one_named) {
  run(a_start("disk"));
  GenerationRef parent;
  for (std::uint32_t n = 1; n <= 3; ++n) {
    put(in_work("disk", "ckpt.bin"), "step " + std::string(n, '1'));
    TakeSnapshot w = a_snapshot(n);
    w.parent = parent;
    const WorkResult taken = run(w);
    ASSERT_TRUE(std::holds_alternative<SnapshotTaken>(taken));
    parent = std::get<SnapshotTaken>(taken).generation;
  }

  ASSERT_TRUE(std::holds_alternative<Done>(run(CollectGarbage{guest.job, 2, false})));
  ASSERT_FALSE(store->list(guest.job).empty());
  EXPECT_EQ(store->list(guest.job).back().generation, 3u);
  EXPECT_EQ(store->latest_valid(guest.job).value().generation, 3u);
  ASSERT_TRUE(std::holds_alternative<Done>(run(CollectGarbage{guest.job, 0, true})));
  EXPECT_TRUE(store->list(guest.job).empty());
}

/// A holder's store after several attempts: what is durable is for the order to say.
class HandsOfHolder : public HandsTest {
 protected:
  void hold(std::uint32_t attempt, std::uint32_t generation) {
    maker.job = guest.job;
    maker.epoch = {1, attempt};
    const std::string content = std::to_string(attempt) + "." + std::to_string(generation);
    ASSERT_TRUE(
        checkpoint::GenerationMaker::store(*store, maker.make(generation, {{"a.pt", content}}))
    );
  }

  /// Attempt and number of what is left, in the order of the numbers.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> left_from(std::uint32_t keep_from) {
    EXPECT_TRUE(std::holds_alternative<Done>(run(CollectGarbage{guest.job, keep_from, false})));
    std::vector<std::pair<std::uint32_t, std::uint32_t>> out;
    for (const auto& ref : store->list(guest.job)) {
      EXPECT_TRUE(store->verify(guest.job, ref.manifest));
      out.emplace_back(ref.epoch.attempt, ref.generation);
    }
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second < b.second : a.first < b.first;
    });
    return out;
  }

  using Left = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

  checkpoint::GenerationMaker maker;
};

TEST_F(HandsOfHolder, garbage_collection_keeps_the_durable_one_behind_one_that_never_became_it) {
  hold(1, 4);  // durable
  hold(1, 5);  // too few copies
  hold(1, 6);  // durable
  hold(2, 7);  // of the next attempt, not durable yet

  EXPECT_EQ(left_from(4), (Left{{1, 4}, {1, 5}, {1, 6}, {2, 7}}));
}

TEST_F(HandsTest, the_watch_reports_a_checkpoint_that_is_renamed_into_place) {
  ASSERT_TRUE(make_folders(fs, join_path(folder + "/disk", "work"), 0755));
  std::mutex mutex;
  std::condition_variable wake;
  std::string found;
  Watcher watcher(
      fs,
      clock,
      [&](const GuestName&, const checkpoint::GenerationReady& ready) {
        const std::lock_guard lock(mutex);
        found = ready.unit.path;
        wake.notify_one();
      },
      [](const GuestName&, const checkpoint::GivenUp&) {}
  );
  CheckpointSpec spec;
  spec.paths = {"ckpt.bin"};
  spec.quiet_ms = 50;
  watcher.start(guest, join_path(folder + "/disk", "work"), watch_rules(spec), wall_from_ms(0));
  put(in_work("disk", "ckpt.tmp"), "step 1");
  ASSERT_TRUE(fs.rename(
      folder + "/" + in_work("disk", "ckpt.tmp"), folder + "/" + in_work("disk", "ckpt.bin")
  ));

  std::unique_lock lock(mutex);
  ASSERT_TRUE(wake.wait_for(lock, seconds(20), [&] { return !found.empty(); }));
  EXPECT_EQ(found, "ckpt.bin");
}

TEST_F(HandsTest, the_watch_reports_the_whole_folder_when_the_guest_says_so) {
  ASSERT_TRUE(make_folders(fs, join_path(folder + "/disk", "work"), 0755));
  std::mutex mutex;
  std::condition_variable wake;
  std::optional<checkpoint::GenerationReady> found;
  Watcher watcher(
      fs,
      clock,
      [&](const GuestName&, const checkpoint::GenerationReady& ready) {
        const std::lock_guard lock(mutex);
        found = ready;
        wake.notify_one();
      },
      [](const GuestName&, const checkpoint::GivenUp&) {}
  );
  put(in_work("disk", "weights.raw"), "no name and no structure that anybody knows");
  watcher.start(guest, join_path(folder + "/disk", "work"), {}, wall_from_ms(0));

  watcher.declare(guest);

  std::unique_lock lock(mutex);
  ASSERT_TRUE(wake.wait_for(lock, seconds(20), [&] { return found.has_value(); }));
  EXPECT_TRUE(found->is_declared);
  EXPECT_EQ(found->unit, (checkpoint::Unit{"", true}));
}

TEST_F(HandsTest, the_watch_tells_of_a_checkpoint_that_is_written_in_place_all_the_time) {
  ASSERT_TRUE(make_folders(fs, join_path(folder + "/disk", "work"), 0755));
  std::atomic<bool> is_told = false;
  std::atomic<int> found = 0;
  Watcher watcher(
      fs,
      clock,
      [&](const GuestName&, const checkpoint::GenerationReady&) { ++found; },
      [&](const GuestName&, const checkpoint::GivenUp& unit) {
        EXPECT_EQ(unit.unit.path, "ckpt.bin");
        EXPECT_TRUE(unit.is_restless);
        is_told = true;
      }
  );
  checkpoint::WatchRules rules;
  rules.paths = {"ckpt.bin"};
  rules.quiet = seconds(5);
  rules.restless = milliseconds(300);
  watcher.start(guest, join_path(folder + "/disk", "work"), rules, wall_from_ms(0));
  const auto file = fs.open_append(folder + "/" + in_work("disk", "ckpt.bin"), 0644);
  ASSERT_TRUE(file);
  const Instant until = clock.now().boot + seconds(20);
  while (!is_told && clock.now().boot < until) {
    ASSERT_TRUE((*file)->append(as_bytes("x")));
    std::this_thread::sleep_for(milliseconds(10));  // a guest that writes
  }

  EXPECT_TRUE(is_told);
  EXPECT_EQ(found, 0);
}

}  // namespace
}  // namespace rn::agent
