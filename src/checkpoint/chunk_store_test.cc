// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/chunk_store.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/fs_crash.h"
#include "base/sanitizers.h"
#include "checkpoint/generation_fake.h"

namespace rn::checkpoint {
namespace {

using Operation = CrashFs::Operation;

StoreOptions options() {
  StoreOptions out;
  out.root = "/store";
  out.reserve_free_bytes = 0;
  return out;
}

class ChunkStoreTest : public ::testing::Test {
 protected:
  ChunkStoreTest() : fs_(clock_, 1) { reopen(options()); }

  void reopen(StoreOptions with) {
    store_.reset();
    auto opened = ChunkStore::open(fs_, clock_, std::move(with));
    ASSERT_TRUE(opened) << opened.error().describe();
    store_ = std::move(*opened);
  }

  Status put_one(const std::string& text) {
    ChunkStore::Session session(*store_);
    RN_CHECK(session.put(crypto::sha256(as_bytes(text)), as_bytes(text)));
    return session.flush();
  }

  std::string path_of(const Digest& cipher) {
    const std::string hex = to_hex(cipher);
    return "/store/chunks/" + hex.substr(0, 2) + "/" + hex;
  }

  /// Of the generations here, ascending.
  std::vector<std::uint32_t> numbers() const {
    std::vector<std::uint32_t> out;
    for (const auto& ref : store_->list(maker_.job)) out.push_back(ref.generation);
    std::sort(out.begin(), out.end());
    return out;
  }

  ManualClock clock_;
  CrashFs fs_;
  GenerationMaker maker_;
  std::unique_ptr<ChunkStore> store_;
};

TEST_F(ChunkStoreTest, a_chunk_counts_only_after_the_flush_and_is_found_after_reopening) {
  const Digest cipher = crypto::sha256(as_bytes("hello"));
  {
    ChunkStore::Session session(*store_);
    ASSERT_TRUE(session.put(cipher, as_bytes("hello")));
    EXPECT_FALSE(store_->has(cipher));
    ASSERT_TRUE(session.flush());
    EXPECT_TRUE(store_->has(cipher));
  }
  fs_.restart();
  reopen(options());

  EXPECT_EQ(as_text(store_->get(cipher).value()), "hello");
  EXPECT_EQ(store_->usage().bytes, 5U);
}

TEST_F(ChunkStoreTest, bytes_that_do_not_fit_their_hash_are_refused_and_leave_nothing) {
  ChunkStore::Session session(*store_);

  EXPECT_EQ(
      session.put(crypto::sha256(as_bytes("a")), as_bytes("b")).error().code, ErrorCode::kCorrupt
  );
  EXPECT_EQ(store_->usage().bytes, 0U);
}

TEST_F(ChunkStoreTest, a_session_that_ends_without_a_flush_leaves_nothing) {
  const Digest cipher = crypto::sha256(as_bytes("hello"));
  {
    ChunkStore::Session session(*store_);
    ASSERT_TRUE(session.put(cipher, as_bytes("hello")));
  }
  EXPECT_EQ(store_->usage().bytes, 0U);
  EXPECT_EQ(fs_.stat(path_of(cipher)).error().code, ErrorCode::kNotFound);
}

TEST_F(ChunkStoreTest, the_quota_and_the_owners_reserve_hold) {
  auto tight = options();
  tight.quota_bytes = 10;
  reopen(tight);
  EXPECT_TRUE(put_one("12345678"));
  EXPECT_EQ(put_one("9abcdef").error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(put_one("9a"));

  auto reserved = options();
  reserved.reserve_free_bytes = 1000;
  reopen(reserved);
  fs_.set_capacity(1015);
  EXPECT_EQ(put_one("more than five bytes").error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(put_one("five!"));
}

TEST_F(ChunkStoreTest, another_quota_and_another_reserve_hold_at_once) {
  auto tight = options();
  tight.quota_bytes = 10;
  reopen(tight);
  EXPECT_EQ(put_one("more than ten bytes").error().code, ErrorCode::kExhausted);

  store_->set_limits(100, 0);
  EXPECT_TRUE(put_one("more than ten bytes"));
  fs_.set_capacity(1000);
  store_->set_limits(100, 1000);
  EXPECT_EQ(put_one("x").error().code, ErrorCode::kExhausted);
}

TEST_F(ChunkStoreTest, a_disk_that_fills_up_in_the_middle_loses_nothing_that_was_there) {
  ASSERT_TRUE(put_one("precious"));
  fs_.set_capacity(10);

  const auto written = put_one("does not fit any more");

  EXPECT_EQ(written.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(store_->usage().bytes, 8U);
  EXPECT_EQ(
      as_text(store_->get_from_medium(crypto::sha256(as_bytes("precious"))).value()), "precious"
  );
}

TEST_F(ChunkStoreTest, a_failed_sync_condemns_the_copy_and_the_next_put_writes_a_new_file) {
  const Digest cipher = crypto::sha256(as_bytes("hello"));
  for (const Operation kind : {Operation::kSync, Operation::kSyncFolder}) {
    fs_.fail_once(kind, 0, ErrorCode::kInternal);

    const auto written = put_one("hello");

    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, ErrorCode::kUnavailable);
    EXPECT_FALSE(store_->has(cipher));
    EXPECT_EQ(fs_.stat(path_of(cipher)).error().code, ErrorCode::kNotFound);
  }
  EXPECT_EQ(store_->usage().condemned, 2U);
  EXPECT_EQ(store_->usage().bytes, 0U);

  ASSERT_TRUE(put_one("hello"));
  EXPECT_EQ(as_text(store_->get_from_medium(cipher).value()), "hello");
}

TEST_F(ChunkStoreTest, a_sync_that_fails_among_many_takes_all_of_its_session_back) {
  for (std::uint64_t nth = 0; nth < 3; ++nth) {
    ChunkStore::Session session(*store_);
    for (const char* text : {"one", "two", "three"})
      ASSERT_TRUE(session.put(crypto::sha256(as_bytes(text)), as_bytes(text)));
    fs_.fail_once(Operation::kSync, nth, ErrorCode::kInternal);

    EXPECT_EQ(session.flush().error().code, ErrorCode::kUnavailable);

    for (const char* text : {"one", "two", "three"}) {
      EXPECT_FALSE(store_->has(crypto::sha256(as_bytes(text))));
      EXPECT_TRUE(fs_.list(parent_folder(path_of(crypto::sha256(as_bytes(text))))).value().empty());
    }
    EXPECT_EQ(store_->usage().bytes, 0U);
  }
}

TEST_F(ChunkStoreTest, what_nobody_compared_is_read_back_before_anybody_sees_it) {
  const Digest good = crypto::sha256(as_bytes("good"));
  const Digest wrong = crypto::sha256(as_bytes("wrong"));
  ChunkStore::Session session(*store_);
  ASSERT_TRUE(session.put_unverified(good, as_bytes("good")));
  ASSERT_TRUE(session.put_unverified(wrong, as_bytes("other bytes")));
  fs_.before_each_read([&](const std::string&) {
    EXPECT_FALSE(store_->has(good));
    EXPECT_FALSE(store_->has(wrong));
  });

  EXPECT_EQ(session.flush().error().code, ErrorCode::kCorrupt);

  fs_.before_each_read({});
  EXPECT_EQ(session.read_back(), std::set<Digest>{good});
  EXPECT_TRUE(store_->get_from_medium(good));
  EXPECT_FALSE(store_->has(wrong));
  EXPECT_EQ(fs_.stat(path_of(wrong)).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store_->usage().bytes, 4U);
}

TEST_F(ChunkStoreTest, other_bytes_never_replace_a_chunk_that_another_session_stores_meanwhile) {
  const Digest cipher = crypto::sha256(as_bytes("right"));
  ChunkStore::Session early(*store_);
  ChunkStore::Session honest(*store_);
  ChunkStore::Session late(*store_);
  ASSERT_TRUE(early.put_unverified(cipher, as_bytes("wrong")));
  ASSERT_TRUE(honest.put_unverified(cipher, as_bytes("right")));
  ASSERT_TRUE(late.put_unverified(cipher, as_bytes("wrong")));

  EXPECT_EQ(early.flush().error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(honest.flush());
  EXPECT_EQ(late.flush().error().code, ErrorCode::kCorrupt);

  EXPECT_EQ(as_text(store_->get_from_medium(cipher).value()), "right");
  EXPECT_EQ(store_->usage().bytes, 5U);
}

TEST_F(ChunkStoreTest, a_session_that_is_given_up_takes_nothing_from_another_with_the_same_chunk) {
  const Digest cipher = crypto::sha256(as_bytes("same"));
  ChunkStore::Session lasting(*store_);
  ASSERT_TRUE(lasting.put(cipher, as_bytes("same")));
  for (int i = 0; i < 100 && !fs_.stat(path_of(cipher)); ++i) {
    const std::string text = std::to_string(i);
    ASSERT_TRUE(lasting.put(crypto::sha256(as_bytes(text)), as_bytes(text)));
  }
  ASSERT_TRUE(fs_.stat(path_of(cipher))) << "it has its name, which is not durable yet";
  {
    ChunkStore::Session given_up(*store_);
    ASSERT_TRUE(given_up.put(cipher, as_bytes("same")));
    fs_.fail_once(Operation::kSyncFolder, 0, ErrorCode::kInternal);
    EXPECT_FALSE(given_up.flush());
  }

  ASSERT_TRUE(lasting.flush());

  EXPECT_EQ(as_text(store_->get_from_medium(cipher).value()), "same");
}

TEST_F(ChunkStoreTest, a_session_keeps_only_so_many_files_open) {
  std::optional<ChunkStore::Session> session(std::in_place, *store_);
  std::vector<Digest> ciphers;
  for (int i = 0; i < 200; ++i) {
    const std::string text = "chunk " + std::to_string(i);
    ciphers.push_back(crypto::sha256(as_bytes(text)));
    ASSERT_TRUE(session->put(ciphers.back(), as_bytes(text)));
  }
  // What has its name is synced and closed.
  const auto open = std::count_if(ciphers.begin(), ciphers.end(), [&](const Digest& cipher) {
    return !fs_.stat(path_of(cipher));
  });
  EXPECT_LT(open, 64);
  ASSERT_TRUE(session->flush());
  session.reset();
  fs_.restart();
  reopen(options());

  for (const Digest& cipher : ciphers) EXPECT_TRUE(store_->get_from_medium(cipher));
}

TEST_F(ChunkStoreTest, bit_rot_is_found_and_the_copy_condemned) {
  ASSERT_TRUE(put_one("hello"));
  const Digest cipher = crypto::sha256(as_bytes("hello"));
  ASSERT_TRUE(fs_.flip(path_of(cipher), 2, 0x10, true));

  EXPECT_TRUE(store_->get(cipher));  // the page cache still shows the right bytes
  EXPECT_EQ(store_->get_from_medium(cipher).error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(store_->has(cipher));
  EXPECT_EQ(store_->get(cipher).error().code, ErrorCode::kNotFound);
}

TEST_F(ChunkStoreTest, a_manifest_needs_all_its_chunks) {
  const auto made = maker_.make(1, {{"a.pt", "alpha"}, {"b.pt", "beta"}});
  ChunkStore::Session session(*store_);
  ASSERT_TRUE(session.put(made.chunks[0].ref.cipher, made.chunks[0].stored));
  ASSERT_TRUE(session.flush());
  EXPECT_EQ(store_->put_manifest(made.sealed).error().code, ErrorCode::kConflict);

  ASSERT_TRUE(session.put(made.chunks[1].ref.cipher, made.chunks[1].stored));
  ASSERT_TRUE(session.flush());
  const auto ref = store_->put_manifest(made.sealed);

  ASSERT_TRUE(ref);
  EXPECT_EQ(ref->bytes, 9U);
  EXPECT_TRUE(store_->put_manifest(made.sealed));  // again: the same
  EXPECT_EQ(store_->list(maker_.job).size(), 1U);
  EXPECT_TRUE(store_->verify(maker_.job, made.hash));
}

TEST_F(ChunkStoreTest, a_chunk_that_the_owner_removed_is_noticed_before_a_manifest_relies_on_it) {
  const auto made = maker_.make(1, {{"a.pt", "alpha"}});
  ChunkStore::Session session(*store_);
  ASSERT_TRUE(session.put(made.chunks[0].ref.cipher, made.chunks[0].stored));
  ASSERT_TRUE(session.flush());
  ASSERT_TRUE(fs_.remove(path_of(made.chunks[0].ref.cipher)));

  EXPECT_EQ(store_->put_manifest(made.sealed).error().code, ErrorCode::kConflict);
  EXPECT_FALSE(store_->has(made.chunks[0].ref.cipher));
}

TEST_F(ChunkStoreTest, the_latest_valid_generation_is_the_one_before_a_damaged_one) {
  const auto first = maker_.make(1, {{"a.pt", "one"}});
  const auto second = maker_.make(2, {{"a.pt", "two"}});
  ASSERT_TRUE(GenerationMaker::store(*store_, first));
  ASSERT_TRUE(GenerationMaker::store(*store_, second));
  EXPECT_EQ(store_->latest_valid(maker_.job)->generation, 2U);

  ASSERT_TRUE(fs_.flip(path_of(second.chunks[0].ref.cipher), 20, 1));
  EXPECT_EQ(store_->verify(maker_.job, second.hash).error().code, ErrorCode::kCorrupt);

  EXPECT_EQ(store_->latest_valid(maker_.job)->generation, 1U);
}

TEST_F(ChunkStoreTest, a_damaged_manifest_is_dropped_when_the_store_opens) {
  const auto first = maker_.make(1, {{"a.pt", "one"}});
  const auto second = maker_.make(2, {{"a.pt", "two"}});
  ASSERT_TRUE(GenerationMaker::store(*store_, first));
  ASSERT_TRUE(GenerationMaker::store(*store_, second));
  const std::string folder = "/store/manifests/" + maker_.job.str();
  const auto names = fs_.list(folder).value();
  ASSERT_EQ(names.size(), 2U);
  ASSERT_TRUE(fs_.flip(folder + "/" + names[1], 100, 4));

  reopen(options());

  EXPECT_EQ(store_->list(maker_.job).size(), 1U);
  EXPECT_EQ(store_->latest_valid(maker_.job)->generation, 1U);
}

TEST_F(ChunkStoreTest, a_manifest_that_was_damaged_meanwhile_is_written_anew_when_it_is_put_again) {
  const auto made = maker_.make(1, {{"a.pt", "alpha"}});
  ASSERT_TRUE(GenerationMaker::store(*store_, made));
  const std::uint64_t bytes = store_->usage().bytes;
  const std::string folder = "/store/manifests/" + maker_.job.str();
  ASSERT_TRUE(fs_.flip(folder + "/" + fs_.list(folder).value()[0], 100, 4));
  ASSERT_FALSE(store_->load_manifest(maker_.job, made.hash));

  ASSERT_TRUE(GenerationMaker::store(*store_, made));

  EXPECT_TRUE(store_->verify(maker_.job, made.hash));
  EXPECT_EQ(store_->usage().bytes, bytes);
  EXPECT_EQ(store_->list(maker_.job).size(), 1U);
}

TEST_F(ChunkStoreTest, collection_keeps_everything_from_the_number_that_it_is_told) {
  std::vector<GenerationMaker::Made> made;
  for (std::uint32_t i = 1; i <= 5; ++i) {
    made.push_back(
        maker_.make(i, {{"a.pt", "generation " + std::to_string(i)}, {"same.txt", "same"}})
    );
    ASSERT_TRUE(GenerationMaker::store(*store_, made.back()));
  }
  const auto stats = store_->collect({maker_.job, 3});

  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->generations, 2U);
  EXPECT_EQ(stats->chunks, 2U);  // the shared one stays
  EXPECT_EQ(numbers(), (std::vector<std::uint32_t>{3, 4, 5}));
  for (const auto& ref : store_->list(maker_.job))
    EXPECT_TRUE(store_->verify(maker_.job, ref.manifest));
}

TEST_F(ChunkStoreTest, collection_asks_for_the_number_and_not_for_the_epoch) {
  const auto durable = maker_.make(5, {{"a.pt", "durable"}});
  ASSERT_TRUE(GenerationMaker::store(*store_, durable));
  maker_.epoch = {1, 2};
  for (const std::uint32_t number : {3, 4, 6}) {
    const auto later = maker_.make(number, {{"a.pt", "later " + std::to_string(number)}});
    ASSERT_TRUE(GenerationMaker::store(*store_, later));
  }

  ASSERT_TRUE(store_->collect({maker_.job, 5}));

  EXPECT_EQ(numbers(), (std::vector<std::uint32_t>{5, 6}));
  EXPECT_TRUE(store_->verify(maker_.job, durable.hash));
}

TEST_F(ChunkStoreTest, collection_leaves_two_whole_generations_when_newer_ones_are_damaged_here) {
  std::vector<GenerationMaker::Made> made;
  for (std::uint32_t i = 1; i <= 4; ++i) {
    made.push_back(maker_.make(i, {{"a.pt", std::to_string(i)}}));
    ASSERT_TRUE(GenerationMaker::store(*store_, made.back()));
  }
  ASSERT_TRUE(fs_.remove(path_of(made[3].chunks[0].ref.cipher)));

  ASSERT_TRUE(store_->collect({maker_.job, 4}));

  EXPECT_EQ(store_->latest_valid(maker_.job)->generation, 3U);
  EXPECT_TRUE(store_->verify(maker_.job, made[1].hash));
  EXPECT_FALSE(store_->load_manifest(maker_.job, made[0].hash));
}

TEST_F(ChunkStoreTest, collection_leaves_older_ones_that_are_named) {
  std::vector<GenerationMaker::Made> made;
  for (std::uint32_t i = 1; i <= 6; ++i) {
    made.push_back(maker_.make(i, {{"a.pt", std::to_string(i)}}));
    ASSERT_TRUE(GenerationMaker::store(*store_, made.back()));
  }

  ASSERT_TRUE(store_->collect({maker_.job, 5, {1, 3}}));

  for (const std::size_t kept : {0U, 2U, 4U, 5U})
    EXPECT_TRUE(store_->verify(maker_.job, made[kept].hash)) << kept + 1;
  EXPECT_FALSE(store_->load_manifest(maker_.job, made[1].hash));
  EXPECT_FALSE(store_->load_manifest(maker_.job, made[3].hash));
}

TEST_F(ChunkStoreTest, collection_leaves_all_whole_ones_of_a_number_that_it_leaves) {
  ASSERT_TRUE(GenerationMaker::store(*store_, maker_.make(1, {{"a.pt", "one"}})));
  ASSERT_TRUE(GenerationMaker::store(*store_, maker_.make(2, {{"a.pt", "of the first"}})));
  maker_.epoch = {1, 2};
  ASSERT_TRUE(GenerationMaker::store(*store_, maker_.make(2, {{"a.pt", "of the second"}})));
  ASSERT_TRUE(GenerationMaker::store(*store_, maker_.make(3, {{"a.pt", "three"}})));

  ASSERT_TRUE(store_->collect({maker_.job, 9}));

  EXPECT_EQ(numbers(), (std::vector<std::uint32_t>{2, 2, 3}));
}

TEST_F(ChunkStoreTest, one_generation_is_replaced_only_by_a_newer_whole_one_of_its_epoch) {
  std::vector<GenerationMaker::Made> made;
  for (std::uint32_t i = 1; i <= 4; ++i) {
    made.push_back(maker_.make(i, {{"a.pt", std::to_string(i)}, {"same.txt", "same"}}));
    ASSERT_TRUE(GenerationMaker::store(*store_, made.back()));
  }
  const auto stats = store_->replace(maker_.job, maker_.epoch, 3);
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->generations, 1U);
  EXPECT_EQ(stats->chunks, 1U);  // the shared one stays
  EXPECT_EQ(numbers(), (std::vector<std::uint32_t>{1, 2, 4}));
  EXPECT_TRUE(store_->verify(maker_.job, made[3].hash));

  ASSERT_TRUE(store_->replace(maker_.job, maker_.epoch, 4));
  ASSERT_TRUE(store_->replace(maker_.job, {7, 7}, 1));
  ASSERT_TRUE(store_->replace(maker_.job, maker_.epoch, 3));
  EXPECT_EQ(numbers(), (std::vector<std::uint32_t>{1, 2, 4})) << "the newest, another's, none";

  ASSERT_TRUE(fs_.remove(path_of(made[3].chunks[0].ref.cipher)));
  ASSERT_TRUE(store_->replace(maker_.job, maker_.epoch, 2));
  EXPECT_EQ(numbers(), (std::vector<std::uint32_t>{1, 2, 4})) << "the newer one is damaged";
}

TEST_F(ChunkStoreTest, sweeping_takes_old_orphans_and_nothing_that_a_session_holds) {
  ASSERT_TRUE(put_one("orphan"));
  ASSERT_TRUE(put_one("held"));
  const auto made = maker_.make(1, {{"a.pt", "alpha"}});
  ASSERT_TRUE(GenerationMaker::store(*store_, made));
  EXPECT_EQ(store_->sweep()->chunks, 0U);  // too young

  clock_.advance(seconds(3601));
  {
    ChunkStore::Session session(*store_);
    ASSERT_TRUE(session.keep(crypto::sha256(as_bytes("held"))));
    EXPECT_EQ(store_->sweep()->chunks, 1U);
    EXPECT_TRUE(store_->has(crypto::sha256(as_bytes("held"))));
  }
  EXPECT_EQ(store_->sweep()->chunks, 1U);
  EXPECT_TRUE(store_->verify(maker_.job, made.hash));
}

TEST_F(ChunkStoreTest, a_manifest_that_cannot_be_read_for_a_while_costs_no_chunk) {
  const auto made = maker_.make(1, {{"a.pt", "alpha"}});
  ASSERT_TRUE(GenerationMaker::store(*store_, made));
  clock_.advance(seconds(3601));
  const std::string folder = "/store/manifests/" + maker_.job.str();
  const std::string path = folder + "/" + fs_.list(folder).value()[0];
  ASSERT_TRUE(fs_.flip(path, 100, 4));
  ASSERT_FALSE(store_->verify(maker_.job, made.hash));

  EXPECT_EQ(store_->sweep()->chunks, 0U);

  ASSERT_TRUE(fs_.flip(path, 100, 4));
  EXPECT_TRUE(store_->verify(maker_.job, made.hash));
}

TEST_F(ChunkStoreTest, a_finished_job_leaves_nothing) {
  ASSERT_TRUE(GenerationMaker::store(*store_, maker_.make(1, {{"a.pt", "alpha"}})));

  ASSERT_TRUE(store_->forget(maker_.job));

  EXPECT_EQ(store_->usage().bytes, 0U);
  EXPECT_TRUE(store_->jobs().empty());
}

TEST_F(ChunkStoreTest, an_attempt_that_does_not_know_of_its_jobs_end_stores_nothing_any_more) {
  const auto late = maker_.make(1, {{"a.pt", "alpha"}});
  ASSERT_TRUE(store_->finish(maker_.job, maker_.epoch));

  EXPECT_EQ(GenerationMaker::store(*store_, late).error().code, ErrorCode::kConflict);
  EXPECT_TRUE(store_->jobs().empty());

  // A coordinator with an older database goes on with the job, under later epochs.
  maker_.epoch = {maker_.epoch.generation + 1, 1};
  EXPECT_TRUE(GenerationMaker::store(*store_, maker_.make(2, {{"a.pt", "beta"}})));
}

// --- the property: crash at every operation
// ---------------------------------------------------------------------------

/// A life of three generations with garbage collection between them, interrupted by one crash. What
/// was said before the crash must hold after it: whatever put_manifest answered can be read back,
/// byte by byte, from the medium; nothing is torn; the acknowledged generation and its predecessor
/// are there. (I6, I7, I8, and the local part of I5.)
class CrashedLife {
 public:
  CrashedLife(std::uint64_t seed, std::uint64_t crash_at) : fs_(clock_, seed) {
    auto opened = ChunkStore::open(fs_, clock_, options());
    EXPECT_TRUE(opened);
    fs_.crash_at(crash_at);
    live(**opened);
    survived_ = !fs_.has_crashed();
    opened->reset();
    fs_.restart();
    check();
  }

  bool survived() const { return survived_; }

 private:
  void live(ChunkStore& store) {
    for (std::uint32_t i = 1; i <= 4; ++i) {
      made_.push_back(maker_.make(
          i,
          {{"a.pt", std::string(2000, static_cast<char>('a' + i))},
           {"same.txt", "same"},
           {"log", "l" + std::to_string(i / 2)}}
      ));
      const auto stored = GenerationMaker::store(store, made_.back());
      if (!stored) return;
      acknowledged_ = i;
      if (i >= 2 && !store.collect({maker_.job, i - 1})) return;
    }
  }

  void check() {
    const auto opened = ChunkStore::open(fs_, clock_, options());
    ASSERT_TRUE(opened) << opened.error().describe();
    ChunkStore& store = **opened;
    for (const auto& ref : store.list(maker_.job)) {  // I6: what is listed is whole
      const auto whole = store.verify(maker_.job, ref.manifest);
      ASSERT_TRUE(whole) << "generation " << ref.generation << ": " << whole.error().describe();
    }
    if (acknowledged_ == 0) return;
    const auto latest = store.latest_valid(maker_.job);  // I7
    ASSERT_TRUE(latest) << "generation " << acknowledged_ << " was acknowledged";
    ASSERT_GE(latest->generation, acknowledged_);
    for (std::uint32_t i = acknowledged_; i + 1 >= acknowledged_ && i >= 1; --i) {  // I8
      ASSERT_TRUE(store.verify(maker_.job, made_[i - 1].hash)) << "generation " << i << " is lost";
    }
    read_back(store);
  }

  void read_back(ChunkStore& store) {
    const auto& wanted = made_[acknowledged_ - 1];
    const auto sealed = store.load_manifest(maker_.job, wanted.hash);
    ASSERT_TRUE(sealed);
    const auto manifest = verify_manifest(*sealed, maker_.signer.public_key);
    ASSERT_TRUE(manifest);
    ASSERT_EQ(*manifest, wanted.manifest);
    for (const ChunkRef& chunk : manifest->chunks) {
      ASSERT_TRUE(decode_chunk(maker_.keys, chunk, store.get_from_medium(chunk.cipher).value()));
    }
  }

  ManualClock clock_;
  CrashFs fs_;
  GenerationMaker maker_;
  std::vector<GenerationMaker::Made> made_;
  std::uint32_t acknowledged_ = 0;
  bool survived_ = false;
};

TEST(ChunkStoreCrash, what_was_acknowledged_survives_a_crash_at_every_operation) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    for (std::uint64_t at = 0;; at += kIsSanitized ? 4 : 1) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", crash at operation " + std::to_string(at));
      const CrashedLife life(seed, at);
      if (::testing::Test::HasFatalFailure()) return;
      if (life.survived()) {
        EXPECT_GT(at, 100U);
        break;
      }
    }
  }
}

TEST(ChunkStoreCrash, an_injected_error_at_any_operation_loses_nothing_that_was_acknowledged) {
  for (const Operation kind :
       {Operation::kSync,
        Operation::kSyncFolder,
        Operation::kAppend,
        Operation::kCreate,
        Operation::kRename,
        Operation::kRemove,
        Operation::kRead,
        Operation::kStat}) {
    for (std::uint64_t nth = 0; nth < 40; nth += kIsSanitized ? 3 : 1) {
      SCOPED_TRACE(
          "kind " + std::to_string(static_cast<int>(kind)) + ", call " + std::to_string(nth)
      );
      ManualClock clock;
      CrashFs fs(clock, nth);
      GenerationMaker maker;
      const auto store = ChunkStore::open(fs, clock, options()).value();
      fs.fail_once(kind, nth, ErrorCode::kInternal);
      std::vector<GenerationMaker::Made> acknowledged;
      for (std::uint32_t i = 1; i <= 4; ++i) {
        const auto made =
            maker.make(i, {{"a.pt", "content " + std::to_string(i)}, {"b.pt", "same"}});
        if (!GenerationMaker::store(*store, made)) continue;
        acknowledged.push_back(made);
        (void)store->collect({maker.job, i});
      }
      ASSERT_GE(acknowledged.size(), 3U);  // one error costs one generation at most
      fs.restart();
      const auto again = ChunkStore::open(fs, clock, options()).value();
      ASSERT_TRUE(again->verify(maker.job, acknowledged.back().hash));
      ASSERT_TRUE(again->verify(maker.job, acknowledged[acknowledged.size() - 2].hash));
    }
  }
}

}  // namespace
}  // namespace rn::checkpoint
