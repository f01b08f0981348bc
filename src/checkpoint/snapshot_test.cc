// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/snapshot.h"

#include <mutex>

#include <gtest/gtest.h>

#include "base/fs_crash.h"
#include "checkpoint/chunker.h"
#include "checkpoint/manifest.h"
#include "checkpoint/restore.h"
#include "checkpoint/zip_builder_fake.h"

namespace rn::checkpoint {
namespace {

/// For several threads at once, as the real one is.
class SharedRng final : public Rng {
 public:
  explicit SharedRng(std::uint64_t seed) : rng_(seed) {}

  void fill(std::span<std::uint8_t> out) override {
    const std::lock_guard lock(mutex_);
    rng_.fill(out);
  }

 private:
  std::mutex mutex_;
  SeededRng rng_;
};

/// A job's work folder, the store beside it, and a base workspace of two files and a link.
class SnapshotTest : public ::testing::Test {
 protected:
  SnapshotTest() : fs_(clock_, 1) {
    StoreOptions options;
    options.root = "/store";
    options.reserve_free_bytes = 0;
    store_ = ChunkStore::open(fs_, clock_, options).value();
    list("train.py", "print('training')\n");
    list("data/labels.csv", "1,2,3\n");
    base_.files.push_back({"latest", FileKind::kSymlink, 0777, 0, "data", {}});
    std::sort(base_.files.begin(), base_.files.end(), [](const auto& a, const auto& b) {
      return a.path < b.path;
    });
    lay("/guest");
    work_ = fs_.open_folder("/guest").value();
    cache_ = prime_cache(*work_, base_, nullptr, clock_).value();
    request_.job = JobId("j-0123456789abcdef");
    request_.epoch = {1, 1};
    request_.signer = NodeId("n-1");
    request_.temporary = {"*.tmp", "cache/"};
    request_.base = base_;
    request_.unit = {"checkpoint.pt", false};
  }

  void list(const std::string& path, const std::string& content) {
    const Digest sha = crypto::sha256(as_bytes(content));
    blobs_[sha] = Blob(content.begin(), content.end());
    base_.files.push_back({path, FileKind::kRegular, 0644, content.size(), "", {sha}});
  }

  void lay(const std::string& folder) {
    ASSERT_TRUE(make_folders(fs_, folder, 0755));
    const auto laid = lay_workspace(
        fs_,
        folder,
        base_,
        [&](const Digest& sha) -> Result<Blob> { return blobs_.at(sha); },
        clock_.now().wall
    );
    ASSERT_TRUE(laid) << laid.error().describe();
  }

  /// A guest's write at a new time.
  void write(const std::string& path, BlobView bytes) {
    clock_.advance(seconds(5));
    ASSERT_TRUE(make_folders(fs_, parent_folder("/guest/" + path), 0755));
    fs_.overwrite("/guest/" + path, bytes);
  }

  void write(const std::string& path, const std::string& text) { write(path, as_bytes(text)); }

  /// The watch finds these whole, as they are now.
  void find_whole(const std::vector<std::string>& paths) {
    for (const std::string& path : paths)
      request_.seen[path] = state_of(fs_.stat("/guest/" + path).value());
  }

  Result<Snapshot> take() {
    clock_.advance(seconds(5));
    const SnapshotDeps deps{*work_, *store_, clock_, rng_, keys_, signer_};
    ++request_.generation;
    auto taken = take_snapshot(deps, request_, cache_);
    if (taken) request_.parent = taken->ref.manifest;
    return taken;
  }

  static std::vector<std::string> paths(const Manifest& m) {
    std::vector<std::string> out;
    for (const auto& entry : m.files) out.push_back(entry.path);
    return out;
  }

  Result<RestoreStats> restore(const Manifest& m, const std::string& folder) {
    lay(folder);
    return restore_generation(fs_, folder, m, keys_, [&](const Digest& sha) {
      return store_->get(sha);
    });
  }

  std::string text_of(const std::string& path) {
    const auto bytes = read_all(fs_, path, 1 << 24);
    return bytes ? std::string(as_text(*bytes))
                 : "<" + std::string(to_string(bytes.error().code)) + ">";
  }

  ManualClock clock_;
  CrashFs fs_;
  SharedRng rng_{5};
  crypto::SigningKey signer_ = crypto::make_signing_key(rng_);
  JobKeys keys_ = derive_job_keys(crypto::random_key(rng_));
  std::unique_ptr<ChunkStore> store_;
  std::unique_ptr<Folder> work_;
  Listing base_;
  std::map<Digest, Blob> blobs_;
  SnapshotCache cache_;
  SnapshotRequest request_;
};

TEST_F(SnapshotTest, a_generation_is_the_delta_against_the_workspace_and_restores_byte_for_byte) {
  const Blob checkpoint = torch_like_zip(false, 9'000'000);
  write("checkpoint.pt", checkpoint);
  write("data/labels.csv", "4,5,6\n");
  write("logs/run.txt", "step 1\n");
  write("scratch.tmp", "no");
  write("cache/big.bin", "no");
  ASSERT_TRUE(fs_.make_symlink("../train.py", "/guest/logs/script"));
  ASSERT_TRUE(fs_.remove("/guest/latest"));
  ASSERT_TRUE(fs_.make_folder("/guest/empty", 0700));
  ASSERT_TRUE(fs_.set_mode("/guest/checkpoint.pt", 0640));
  fs_.make_special("/guest/socket");

  const auto taken = take();

  ASSERT_TRUE(taken) << taken.error().describe();
  EXPECT_EQ(
      paths(taken->manifest),
      (std::vector<std::string>{
          "cache",
          "checkpoint.pt",
          "data",
          "data/labels.csv",
          "empty",
          "logs",
          "logs/run.txt",
          "logs/script"})
  );
  EXPECT_EQ(taken->manifest.removed, std::vector<std::string>{"latest"});
  EXPECT_EQ(taken->stats.specials, 1U);
  EXPECT_TRUE(taken->stats.left_out.empty());
  EXPECT_EQ(verify_manifest(taken->sealed, signer_.public_key).value(), taken->manifest);
  EXPECT_TRUE(store_->verify(request_.job, taken->ref.manifest));

  ASSERT_TRUE(restore(taken->manifest, "/other"));
  EXPECT_EQ(text_of("/other/checkpoint.pt"), std::string(as_text(checkpoint)));
  EXPECT_EQ(text_of("/other/data/labels.csv"), "4,5,6\n");
  EXPECT_EQ(text_of("/other/train.py"), "print('training')\n");
  EXPECT_EQ(fs_.stat("/other/latest").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(fs_.stat("/other/scratch.tmp").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(fs_.read_symlink("/other/logs/script").value(), "../train.py");
  EXPECT_EQ(fs_.stat("/other/empty")->mode, 0700U);
  EXPECT_EQ(fs_.stat("/other/checkpoint.pt")->mode, 0640U);
  EXPECT_EQ(fs_.stat("/other/checkpoint.pt")->mtime_ns, fs_.stat("/guest/checkpoint.pt")->mtime_ns);
}

TEST_F(SnapshotTest, unchanged_files_are_not_read_and_unchanged_chunks_not_stored_again) {
  Blob checkpoint(9 << 20);
  rng_.fill(checkpoint);
  write("checkpoint.bin", checkpoint);
  write("logs/run.txt", "step 1\n");
  request_.unit = {"checkpoint.bin", false};
  ASSERT_TRUE(take());

  checkpoint[5 << 20] ^= 1;  // in the 21st of 36 chunks
  write("checkpoint.bin", checkpoint);
  const auto second = take();

  ASSERT_TRUE(second);
  EXPECT_EQ(second->stats.new_chunks, 1U);
  EXPECT_EQ(second->stats.read_files, 1U);
  EXPECT_EQ(second->stats.reused_files, 3U);  // log, script, labels
  const auto third = take();
  ASSERT_TRUE(third);
  EXPECT_EQ(third->stats.read_bytes, 0U);
  EXPECT_EQ(third->stats.new_chunks, 0U);
  EXPECT_EQ(third->manifest.chunks, second->manifest.chunks);
  EXPECT_TRUE(check_chain(third->manifest, second->manifest, second->ref.manifest));
}

TEST_F(SnapshotTest, a_chunk_that_the_store_lost_is_stored_again_though_its_checksum_is_known) {
  write("checkpoint.bin", std::string(200'000, 'c'));
  request_.unit = {"checkpoint.bin", false};
  const auto first = take();
  ASSERT_TRUE(first);
  ASSERT_TRUE(store_->forget(request_.job));
  ASSERT_FALSE(store_->has(first->manifest.chunks[0].cipher));

  const auto second = take();

  ASSERT_TRUE(second) << second.error().describe();
  EXPECT_EQ(second->stats.new_chunks, 1U);
  EXPECT_TRUE(store_->verify(request_.job, second->ref.manifest));
}

TEST_F(SnapshotTest, a_lost_cache_costs_reading_and_not_storing) {
  write("checkpoint.bin", std::string(200'000, 'c'));
  request_.unit = {"checkpoint.bin", false};
  const auto first = take();
  ASSERT_TRUE(first);

  cache_ = SnapshotCache();
  cache_.add_chunks(first->manifest);
  const auto second = take();

  ASSERT_TRUE(second);
  EXPECT_EQ(second->stats.new_chunks, 0U);
  EXPECT_EQ(second->stats.read_files, 1U);
  EXPECT_EQ(
      paths(second->manifest), paths(first->manifest)
  );  // the workspace is found equal by content
}

TEST_F(SnapshotTest, the_cache_survives_a_restart_of_the_agent) {
  write("checkpoint.pt", torch_like_zip());
  ASSERT_TRUE(take());

  cache_ = SnapshotCache::from_bytes(cache_.to_bytes()).value();
  const auto second = take();

  ASSERT_TRUE(second);
  EXPECT_EQ(second->stats.read_bytes, 0U);
  EXPECT_FALSE(SnapshotCache::from_bytes(as_bytes("rubbish")));
}

TEST_F(SnapshotTest, a_file_changed_within_the_clocks_tick_is_read_again) {
  write("checkpoint.bin", "one");
  request_.unit = {"checkpoint.bin", false};
  const SnapshotDeps deps{*work_, *store_, clock_, rng_, keys_, signer_};
  request_.generation = 1;
  ASSERT_TRUE(take_snapshot(deps, request_, cache_));
  fs_.overwrite("/guest/checkpoint.bin", as_bytes("two"));  // same inode, size and mtime
  request_.generation = 2;

  const auto second = take_snapshot(deps, request_, cache_);

  ASSERT_TRUE(second);
  ASSERT_TRUE(restore(second->manifest, "/other"));
  EXPECT_EQ(text_of("/other/checkpoint.bin"), "two");
}

TEST_F(SnapshotTest, an_in_place_checkpoint_that_changes_during_every_reading_is_not_taken) {
  write("checkpoint.bin", std::string(100, 'a'));
  request_.unit = {"checkpoint.bin", false};
  int round = 0;
  fs_.before_each_read([&](const std::string& path) {
    if (path != "/guest/checkpoint.bin") return;
    clock_.advance(seconds(1));
    fs_.overwrite(path, as_bytes(std::string(100, static_cast<char>('a' + ++round % 20))));
  });

  const auto taken = take();

  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(store_->list(request_.job).empty());
  fs_.before_each_read({});
  EXPECT_TRUE(take());
}

TEST_F(SnapshotTest, a_checkpoint_whose_writer_has_begun_anew_since_the_watch_saw_it_is_not_taken) {
  request_.unit = {"checkpoint.bin", false};
  write("checkpoint.bin", std::string(6000, 'a'));
  find_whole({"checkpoint.bin"});
  write("checkpoint.bin", std::string(100, 'b'));  // then its share of the processor is used up

  const auto taken = take();

  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(store_->list(request_.job).empty());
  write("checkpoint.bin", std::string(6000, 'b'));
  find_whole({"checkpoint.bin"});
  EXPECT_TRUE(take());
}

TEST_F(
    SnapshotTest, a_writer_that_begins_anew_between_the_look_at_the_folder_and_the_file_is_found
) {
  request_.unit = {"checkpoint.bin", false};
  write("a.log", "read before");
  write("checkpoint.bin", std::string(6000, 'a'));
  find_whole({"checkpoint.bin"});
  bool is_done = false;
  fs_.before_each_read([&](const std::string& path) {
    if (path != "/guest/a.log" || is_done) return;
    is_done = true;
    clock_.advance(seconds(1));
    fs_.overwrite("/guest/checkpoint.bin", as_bytes(std::string(100, 'b')));
  });

  EXPECT_EQ(take().error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(is_done);
}

TEST_F(SnapshotTest, a_rewrite_of_the_same_size_and_time_is_not_what_the_watch_saw) {
  request_.unit = {"checkpoint.bin", false};
  write("checkpoint.bin", std::string(100, 'a'));
  find_whole({"checkpoint.bin"});
  const auto mtime = fs_.stat("/guest/checkpoint.bin")->mtime_ns;
  write("checkpoint.bin", std::string(50, 'b') + std::string(50, 'a'));
  ASSERT_TRUE(fs_.set_mtime("/guest/checkpoint.bin", mtime));

  EXPECT_EQ(take().error().code, ErrorCode::kUnavailable);
}

TEST_F(SnapshotTest, each_file_of_a_save_must_be_as_the_watch_saw_it) {
  request_.unit = {"optimizer.bin", false};
  write("model.bin", "all of the model");
  write("optimizer.bin", "all of the optimizer");
  find_whole({"model.bin", "optimizer.bin"});
  ASSERT_TRUE(take());

  write("optimizer.bin", "more of it");
  find_whole({"optimizer.bin"});
  write("model.bin", "half");
  EXPECT_EQ(take().error().code, ErrorCode::kUnavailable);
  ASSERT_TRUE(fs_.remove("/guest/model.bin"));
  EXPECT_EQ(take().error().code, ErrorCode::kUnavailable);
  write("model.bin", "the next");
  find_whole({"model.bin"});
  EXPECT_TRUE(take());
}

TEST_F(SnapshotTest, a_folder_checkpoint_that_has_got_a_file_since_the_watch_saw_it_is_not_taken) {
  request_.unit = {"checkpoint-5", true};
  write("checkpoint-5/a.bin", "a");
  find_whole({"checkpoint-5/a.bin"});
  write("checkpoint-5/b.bin", "hal");

  EXPECT_EQ(take().error().code, ErrorCode::kUnavailable);
  find_whole({"checkpoint-5/b.bin"});
  EXPECT_TRUE(take());
}

TEST_F(SnapshotTest, a_renamed_checkpoint_that_another_one_has_replaced_waits_for_the_watch) {
  write("checkpoint.bin", std::string(6000, 'a'));
  request_.unit = {"checkpoint.bin", false};
  request_.is_renamed = true;
  find_whole({"checkpoint.bin"});
  write("next", std::string(6000, 'b'));
  ASSERT_TRUE(fs_.rename("/guest/next", "/guest/checkpoint.bin"));

  EXPECT_EQ(take().error().code, ErrorCode::kUnavailable);
  find_whole({"checkpoint.bin"});
  EXPECT_TRUE(take());
}

TEST_F(SnapshotTest, a_change_that_keeps_inode_size_and_mtime_is_found_by_the_second_reading) {
  write("checkpoint.bin", std::string(100, 'a'));
  request_.unit = {"checkpoint.bin", false};
  int reads = 0;
  fs_.before_each_read([&](const std::string& path) {
    if (path == "/guest/checkpoint.bin" && ++reads == 2) {  // as a memory map does it: no new mtime
      const auto mtime = fs_.stat(path)->mtime_ns;
      fs_.overwrite(path, as_bytes(std::string(100, 'b')));
      ASSERT_TRUE(fs_.set_mtime(path, mtime));
    }
  });

  const auto taken = take();

  ASSERT_TRUE(taken);
  ASSERT_TRUE(restore(taken->manifest, "/other"));
  EXPECT_EQ(text_of("/other/checkpoint.bin"), std::string(100, 'b'));
}

TEST_F(SnapshotTest, a_guest_that_gives_its_files_old_times_is_saved_as_they_are) {
  const auto save = [this](char content) {
    write("checkpoint.bin", std::string(100, content));  // in place, of the same size
    ASSERT_TRUE(fs_.set_mtime("/guest/checkpoint.bin", 0));
    clock_.advance(seconds(5));
  };
  request_.unit = {"checkpoint.bin", false};
  save('a');
  ASSERT_TRUE(take());
  save('b');

  const auto taken = take();

  ASSERT_TRUE(taken);
  ASSERT_TRUE(restore(taken->manifest, "/other"));
  EXPECT_EQ(text_of("/other/checkpoint.bin"), std::string(100, 'b'));
}

TEST_F(SnapshotTest, what_was_laid_out_is_read_again_only_if_the_guest_touched_it) {
  write("checkpoint.bin", std::string(100, 'a'));
  ASSERT_TRUE(fs_.set_mtime("/guest/checkpoint.bin", 0));
  write("other.bin", std::string(100, 'o'));
  ASSERT_TRUE(fs_.set_mtime("/guest/other.bin", 0));
  request_.unit = {"checkpoint.bin", false};
  const auto first = take();
  ASSERT_TRUE(first);
  const auto work = fs_.open_folder("/guest");
  auto primed = prime_cache(**work, {}, &first->manifest, clock_);
  ASSERT_TRUE(primed);
  cache_ = *std::move(primed);
  clock_.advance(seconds(5));
  ASSERT_TRUE(fs_.set_mode("/guest/checkpoint.bin", 0600));  // as its owner is set
  ASSERT_TRUE(fs_.set_mode("/guest/other.bin", 0600));
  clock_.advance(seconds(5));
  request_.guest_since_ns = to_ms(clock_.now().wall) * 1'000'000;
  clock_.advance(seconds(5));
  fs_.overwrite("/guest/checkpoint.bin", as_bytes(std::string(100, 'b')));
  ASSERT_TRUE(fs_.set_mtime("/guest/checkpoint.bin", 0));

  const auto taken = take();

  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->stats.read_files, 1U);
  EXPECT_EQ(taken->stats.reused_files, 1U);
  ASSERT_TRUE(restore(taken->manifest, "/other"));
  EXPECT_EQ(text_of("/other/checkpoint.bin"), std::string(100, 'b'));
}

TEST_F(SnapshotTest, a_torn_checkpoint_that_holds_still_is_not_taken) {
  const Blob whole = torch_like_zip(false, 5000);
  write("checkpoint.pt", BlobView(whole).first(3000));  // its writer was killed

  const auto taken = take();

  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kUnavailable);
}

TEST_F(SnapshotTest, a_torn_file_beside_the_unit_keeps_its_last_whole_content) {
  const Blob good = torch_like_zip(false, 5000);
  write("best.pt", good);
  write("checkpoint.pt", torch_like_zip());
  ASSERT_TRUE(take());
  write("best.pt", BlobView(good).first(3000));
  write("checkpoint.pt", torch_like_zip(false, 1234));

  const auto taken = take();

  ASSERT_TRUE(taken) << taken.error().describe();
  ASSERT_EQ(taken->stats.left_out.size(), 1U);
  ASSERT_TRUE(restore(taken->manifest, "/other"));
  EXPECT_EQ(text_of("/other/best.pt"), std::string(as_text(good)));
}

TEST_F(
    SnapshotTest, a_renamed_checkpoint_is_taken_whole_although_the_next_one_replaces_it_meanwhile
) {
  const Blob first = torch_like_zip(false, 6'000'000);
  write("checkpoint.pt", first);
  request_.is_renamed = true;
  find_whole({"checkpoint.pt"});
  bool is_done = false;
  fs_.before_each_read([&](const std::string& path) {
    if (path != "/guest/checkpoint.pt" || is_done) return;
    is_done = true;
    fs_.overwrite("/guest/next", torch_like_zip(false, 100));
    ASSERT_TRUE(fs_.rename("/guest/next", "/guest/checkpoint.pt"));
  });

  const auto taken = take();

  fs_.before_each_read({});
  ASSERT_TRUE(taken) << taken.error().describe();
  ASSERT_TRUE(restore(taken->manifest, "/other"));
  EXPECT_EQ(text_of("/other/checkpoint.pt"), std::string(as_text(first)));
}

TEST_F(SnapshotTest, a_renamed_checkpoint_that_is_changed_in_place_after_all_is_not_taken) {
  write("checkpoint.bin", std::string(6 << 20, 'a'));
  request_.unit = {"checkpoint.bin", false};
  request_.is_renamed = true;
  fs_.before_each_read([&](const std::string& path) {
    if (path != "/guest/checkpoint.bin") return;
    clock_.advance(seconds(1));
    fs_.overwrite(path, as_bytes(std::string(6 << 20, 'b')));
  });

  EXPECT_EQ(take().error().code, ErrorCode::kUnavailable);
}

TEST_F(SnapshotTest, a_log_that_grows_while_it_is_read_is_taken_up_to_its_first_length) {
  write("checkpoint.pt", torch_like_zip());
  write("train.log", "line 1\nline 2\n");
  fs_.before_each_read([&](const std::string& path) {
    if (path != "/guest/train.log") return;
    clock_.advance(seconds(1));
    auto log = fs_.open_append(path, 0644).value();
    ASSERT_TRUE(log->append(as_bytes("more\n")));
  });

  const auto taken = take();

  ASSERT_TRUE(taken) << taken.error().describe();
  EXPECT_TRUE(taken->stats.left_out.empty());
  ASSERT_TRUE(restore(taken->manifest, "/other"));
  EXPECT_TRUE(text_of("/other/train.log").starts_with("line 1\nline 2\n"));
}

TEST_F(SnapshotTest, a_folder_checkpoint_that_changes_between_its_files_is_not_taken) {
  write("checkpoint-5/a.bin", "a");
  write("checkpoint-5/b.bin", "b");
  request_.unit = {"checkpoint-5", true};
  bool is_done = false;
  fs_.before_each_read([&](const std::string& path) {
    if (path != "/guest/checkpoint-5/b.bin" || is_done) return;
    is_done = true;
    clock_.advance(seconds(1));
    fs_.overwrite("/guest/checkpoint-5/a.bin", as_bytes("A"));
  });

  EXPECT_EQ(take().error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(take());
}

TEST_F(SnapshotTest, being_told_to_stop_leaves_no_generation_and_the_cache_as_it_was) {
  write("checkpoint.bin", std::string(9 << 20, 'x'));
  request_.unit = {"checkpoint.bin", false};
  int asked = 0;
  request_.should_stop = [&] { return ++asked > 2; };

  EXPECT_EQ(take().error().code, ErrorCode::kTimeout);
  EXPECT_TRUE(store_->list(request_.job).empty());
  request_.should_stop = {};
  EXPECT_TRUE(take());
}

TEST_F(SnapshotTest, a_unit_that_is_gone_and_a_full_store_are_errors) {
  EXPECT_EQ(take().error().code, ErrorCode::kUnavailable);

  write("checkpoint.bin", std::string(100'000, 'x'));
  request_.unit = {"checkpoint.bin", false};
  fs_.set_capacity(fs_.used_bytes() + 100);
  EXPECT_EQ(take().error().code, ErrorCode::kExhausted);
  fs_.set_capacity(~std::uint64_t{0});
  EXPECT_TRUE(take());
}

TEST_F(SnapshotTest, files_behind_a_link_outside_are_never_read) {
  ASSERT_TRUE(fs_.make_folder("/owner", 0700));
  fs_.overwrite("/owner/secret.pt", as_bytes("secret"));
  ASSERT_TRUE(fs_.make_symlink("/owner", "/guest/stolen"));
  ASSERT_TRUE(fs_.make_symlink("/owner/secret.pt", "/guest/secret.pt"));
  write("checkpoint.pt", torch_like_zip());

  const auto taken = take();

  ASSERT_TRUE(taken);
  for (const auto& entry : taken->manifest.files) {
    const bool is_link = entry.path == "stolen" || entry.path == "secret.pt";
    EXPECT_EQ(entry.kind == FileKind::kSymlink, is_link) << entry.path;
    EXPECT_NE(entry.path, "stolen/secret.pt");
  }
}

// --- restore against hostile input
// -------------------------------------------------------------------------------------

TEST_F(SnapshotTest, a_restore_never_writes_or_removes_through_a_link) {
  ASSERT_TRUE(fs_.make_folder("/owner", 0700));
  fs_.overwrite("/owner/file", as_bytes("mine"));
  base_.files.push_back({"zlink", FileKind::kSymlink, 0777, 0, "/owner", {}});
  write("checkpoint.bin", "x");
  request_.unit = {"checkpoint.bin", false};
  Manifest m = take()->manifest;
  FileEntry entry = m.files.front();
  entry.path = "zlink/file";
  m.files.push_back(entry);

  EXPECT_EQ(restore(m, "/other").error().code, ErrorCode::kCorrupt);
  m.files.pop_back();
  m.removed = {"zlink/file"};
  EXPECT_TRUE(restore(m, "/another"));

  EXPECT_EQ(text_of("/owner/file"), "mine");
}

TEST_F(SnapshotTest, a_changed_chunk_on_the_way_stops_the_restore) {
  write("checkpoint.bin", "precious");
  request_.unit = {"checkpoint.bin", false};
  const Manifest m = take()->manifest;
  lay("/other");

  const auto restored =
      restore_generation(fs_, "/other", m, keys_, [&](const Digest& sha) -> Result<Blob> {
        Blob bytes = store_->get(sha).value();
        bytes[bytes.size() / 2] ^= 1;
        return bytes;
      });

  EXPECT_EQ(restored.error().code, ErrorCode::kCorrupt);
}

TEST_F(SnapshotTest, chunks_in_another_order_than_the_file_had_stop_the_restore) {
  const std::uint32_t length = fixed_chunk_bytes(1);
  const std::string two_chunks = std::string(length, 'a') + std::string(length, 'b');
  write("checkpoint.bin", two_chunks);
  request_.unit = {"checkpoint.bin", false};
  Manifest m = take()->manifest;
  ASSERT_EQ(m.files.front().chunks.size(), 2U);
  std::swap(m.files.front().chunks[0], m.files.front().chunks[1]);

  EXPECT_EQ(restore(m, "/other").error().code, ErrorCode::kCorrupt);
}

TEST_F(SnapshotTest, a_chunk_that_comes_again_while_it_is_being_encoded_is_stored_once) {
  const std::uint32_t length = fixed_chunk_bytes(1);
  const std::string same(length, 'a');
  write("checkpoint.bin", same + same + "b" + same.substr(1) + same + "end");
  request_.unit = {"checkpoint.bin", false};

  const auto taken = take();

  ASSERT_TRUE(taken) << taken.error().describe();
  EXPECT_EQ(taken->stats.new_chunks, 3U);
  EXPECT_EQ(taken->manifest.files.front().chunks, (std::vector<std::uint32_t>{0, 0, 1, 0, 2}));
  ASSERT_TRUE(restore(taken->manifest, "/other"));
  EXPECT_TRUE(
      read_all(fs_, "/other/checkpoint.bin", 1 << 25) ==
      read_all(fs_, "/guest/checkpoint.bin", 1 << 25)
  );
}

TEST_F(SnapshotTest, a_workspace_that_lists_a_path_twice_or_outside_is_refused) {
  for (const std::string path : {"../x", "/x", "train.py"}) {
    Listing listing = base_;
    listing.files.push_back({path, FileKind::kSymlink, 0777, 0, "y", {}});
    ASSERT_TRUE(fs_.make_folder("/bad", 0755));
    const auto laid = lay_workspace(
        fs_,
        "/bad",
        listing,
        [&](const Digest& sha) -> Result<Blob> { return blobs_.at(sha); },
        clock_.now().wall
    );
    EXPECT_EQ(laid.error().code, ErrorCode::kInvalid) << path;
    ASSERT_TRUE(remove_tree(fs_, "/bad"));
  }
}

TEST_F(SnapshotTest, several_cores_make_the_same_chunks_in_the_order_of_the_file) {
  Blob weights(40'000'000);
  rng_.fill(weights);
  std::copy_n(weights.begin(), 9'000'000, weights.begin() + 20'000'000);
  write("checkpoint.bin", weights);
  request_.unit = {"checkpoint.bin", false};
  std::vector<Digest> offered;
  request_.offer = [&](const FreshChunk& chunk) { offered.push_back(chunk.cipher); };
  request_.lanes = 1;
  const auto by_one = take();
  ASSERT_TRUE(by_one) << by_one.error().describe();
  cache_ = SnapshotCache();
  offered.clear();
  request_.lanes = 4;

  const auto by_four = take();

  ASSERT_TRUE(by_four) << by_four.error().describe();
  EXPECT_EQ(by_four->stats.new_chunks, by_one->stats.new_chunks);
  EXPECT_GT(by_four->stats.new_chunks, 8U);
  const auto names = [](const Snapshot& taken) {
    std::vector<Digest> out;
    for (const ChunkRef& chunk : taken.manifest.chunks) out.push_back(chunk.name);
    return out;
  };
  EXPECT_EQ(names(*by_four), names(*by_one));
  std::vector<Digest> made;
  for (const ChunkRef& chunk : by_four->manifest.chunks) made.push_back(chunk.cipher);
  EXPECT_EQ(offered, made);
  ASSERT_TRUE(restore(by_four->manifest, "/elsewhere"));
  EXPECT_TRUE(read_all(fs_, "/elsewhere/checkpoint.bin", 1 << 26).value() == weights);
  EXPECT_GT(by_four->stats.aside_cpu.count(), 0);
}

TEST_F(
    SnapshotTest, several_cores_restore_the_same_bytes_and_stop_at_the_first_that_are_not_right
) {
  Blob weights(40'000'000);
  rng_.fill(weights);
  write("checkpoint.bin", weights);
  request_.unit = {"checkpoint.bin", false};
  const auto taken = take();
  ASSERT_TRUE(taken) << taken.error().describe();
  std::map<Digest, Blob> stored;
  for (const ChunkRef& chunk : taken->manifest.chunks)
    stored[chunk.cipher] = store_->get(chunk.cipher).value();
  const BlobSource source = [&](const Digest& cipher) -> Result<Blob> { return stored.at(cipher); };
  lay("/elsewhere");
  lay("/nowhere");

  ASSERT_TRUE(restore_generation(fs_, "/elsewhere", taken->manifest, keys_, source, 4));
  EXPECT_TRUE(read_all(fs_, "/elsewhere/checkpoint.bin", 1 << 26).value() == weights);

  stored.at(taken->manifest.chunks[3].cipher)[100] ^= 1;
  const auto torn = restore_generation(fs_, "/nowhere", taken->manifest, keys_, source, 4);
  ASSERT_FALSE(torn);
  EXPECT_EQ(torn.error().code, ErrorCode::kCorrupt);
}

TEST_F(SnapshotTest, told_to_stop_it_waits_for_the_cores_that_encode_and_leaves_no_generation) {
  Blob weights(40'000'000);
  rng_.fill(weights);
  write("checkpoint.bin", weights);
  request_.unit = {"checkpoint.bin", false};
  request_.lanes = 4;
  int asked = 0;
  request_.should_stop = [&] { return ++asked > 6; };

  const auto taken = take();

  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kTimeout);
  EXPECT_TRUE(store_->list(request_.job).empty());
}

TEST_F(SnapshotTest, a_primed_cache_after_a_restore_spares_reading_everything) {
  write("checkpoint.bin", std::string(300'000, 'x'));
  request_.unit = {"checkpoint.bin", false};
  const auto first = take();
  ASSERT_TRUE(first);
  ASSERT_TRUE(restore(first->manifest, "/elsewhere"));
  work_ = fs_.open_folder("/elsewhere").value();
  cache_ = prime_cache(*work_, base_, &first->manifest, clock_).value();
  request_.epoch = {1, 2};

  const auto second = take();

  ASSERT_TRUE(second) << second.error().describe();
  EXPECT_EQ(second->stats.read_bytes, 0U);
  EXPECT_EQ(second->stats.new_chunks, 0U);
  EXPECT_EQ(second->manifest.files, first->manifest.files);
}

}  // namespace
}  // namespace rn::checkpoint
