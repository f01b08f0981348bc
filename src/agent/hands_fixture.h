// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "agent/hands.h"
#include "base/fenced_fs_fixture.h"
#include "base/scratch_folder.h"
#include "io/real_clock.h"
#include "io/real_fs.h"
#include "io/real_rng.h"

namespace rn::agent {

/// A node with real disk, stores and hands; no daemon, no coordinator.
class HandsTest : public testing::Test {
 private:
  ScratchFolder scratch_;  ///< outlives what lies in it

 protected:
  const std::string folder = scratch_.path();

  HandsTest() {
    identity.node = NodeId("n-0000000000000001");
    identity.signing = crypto::make_signing_key(rng);
    identity.box = crypto::make_box_key(rng);
    identity.coordinator_url = "https://127.0.0.1:1";
    store = open_store("chunks");
    images = open_store("images-pieces");
    guests = std::make_unique<GuestBook>(fs, folder + "/guests");
    make_hands();
    job_key = crypto::random_key(rng);
    sealed = crypto::seal_for(identity.box.public_key, job_key, as_bytes(guest.job.str()), rng);
  }

  /// Anew, with `identity` as it is now.
  void make_hands(std::uint64_t image_archives_bytes = 1ull << 30) {
    hands.reset();
    current = std::make_unique<CurrentIdentity>(identity);
    hands = std::make_unique<Hands>(HandsDeps{
        fs,
        clock,
        rng,
        *current,
        *store,
        *images,
        *guests,
        folder + "/images",
        image_archives_bytes,
        [this](const GuestName& name) { unstable.push_back(name); }});
  }

  std::unique_ptr<checkpoint::ChunkStore> open_store(const std::string& name) {
    checkpoint::StoreOptions options;
    options.root = folder + "/" + name;
    options.reserve_free_bytes = 0;
    auto opened = checkpoint::ChunkStore::open(fs, clock, options);
    return opened ? *std::move(opened) : nullptr;
  }

  void put(const std::string& path, const std::string& text) {
    const std::string full = folder + "/" + path;
    ASSERT_TRUE(make_folders(fs, parent_folder(full), 0755));
    std::ofstream(full) << text;
  }

  std::string text_of(const std::string& path) {
    const auto bytes = read_all(fs, folder + "/" + path, 1 << 20);
    return bytes ? std::string(as_text(*bytes)) : "(" + bytes.error().message + ")";
  }

  /// A file of the guest's folder on one of the disks here.
  static std::string in_work(const std::string& disk, const std::string& file) {
    return join_path(join_path(disk, "work"), file);
  }

  WorkResult run(WorkBody body) {
    return hands->run(Work{1, guest, std::move(body)}, is_cancelled);
  }

  TakeSnapshot a_snapshot(std::uint32_t generation, bool is_final = true) {
    TakeSnapshot w;
    w.disk = folder + "/disk";
    w.epoch = guest.epoch;
    w.generation = generation;
    w.spec.paths = {"ckpt.bin"};
    w.sealed_job_key = sealed;
    w.is_final = is_final;
    return w;
  }

  /// An image whose pieces are here.
  FetchImage an_image(std::uint8_t seed, std::size_t bytes) {
    const Blob piece(bytes, seed);
    const Digest name = crypto::sha256(piece);
    checkpoint::ChunkStore::Session session(*images);
    EXPECT_TRUE(session.put(name, piece));
    EXPECT_TRUE(session.flush());
    return {"sha256:" + to_hex(name), bytes, {name}, {}};
  }

  /// On a disk as the warden makes them.
  PrepareWork a_start(const std::string& disk) {
    PrepareWork w;
    w.disk = folder + "/" + disk;
    EXPECT_TRUE(make_folders(fs, w.disk + "/reclaim", 0755));
    w.sealed_job_key = sealed;
    return w;
  }

  /// On the other disk, from generation 2, which nobody has; `first` is the one before it.
  PrepareWork a_start_after_one_that_nobody_has(const GenerationRef& first) {
    PrepareWork w = a_start("other");
    w.resume = w.resume_previous = first;
    w.resume.generation = 2;
    w.resume.manifest[0] ^= 1;
    return w;
  }

  io::RealFileSystem disk_;
  FencedFileSystem fs{disk_, folder};
  io::RealClock clock;
  io::RealRng rng;
  Identity identity;
  std::unique_ptr<CurrentIdentity> current;
  std::unique_ptr<checkpoint::ChunkStore> store;
  std::unique_ptr<checkpoint::ChunkStore> images;
  std::unique_ptr<GuestBook> guests;
  std::vector<GuestName> unstable;  ///< told by the hands
  std::unique_ptr<Hands> hands;
  GuestName guest{JobId("j-0123456789abcdef"), {1, 1}};
  crypto::Key256 job_key{};
  Blob sealed;
  std::atomic<bool> is_cancelled = false;
};

}  // namespace rn::agent
