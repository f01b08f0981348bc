// SPDX-License-Identifier: Apache-2.0
//
// The checkpoint path on one thread, in MB/s (10^6 bytes of plaintext) per core: naming, encoding
// and decoding of chunks in memory, then whole snapshots of a file on a real disk: all chunks new,
// the file rewritten with a few chunks changed, rewritten with the same bytes, and untouched. Rates
// are by CPU time; the wall time beside them includes the disk's syncs.
//
//   bench_checkpoint [FILE | -] [ROUNDS=10] [FOLDER=/tmp]      without FILE: 100 MB of float32
//   weights with Adam's moments

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>

#include "bench_report.h"
#include <unistd.h>

#include "base/fs.h"
#include "checkpoint/chunker.h"
#include "checkpoint/restore.h"
#include "checkpoint/snapshot.h"
#include "io/real_clock.h"
#include "io/real_fs.h"
#include "io/real_rng.h"

namespace rn {
namespace {

using namespace checkpoint;  // NOLINT(google-build-using-namespace): a program of its own
using bench::quantile;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

double wall_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

struct Samples {
  std::vector<double> cpu, wall;

  void time(const std::function<void()>& work) {
    const double cpu_before = cpu_seconds();
    const double wall_before = wall_seconds();
    work();
    cpu.push_back(cpu_seconds() - cpu_before);
    wall.push_back(wall_seconds() - wall_before);
  }

  void print(const char* name, double bytes) const {
    const double median = quantile(cpu, 0.5);
    const double slow = quantile(cpu, 0.99);
    std::printf(
        "%-44s %3zu %9.0f %9.0f %11.1f %9.1f\n",
        name,
        cpu.size(),
        bytes / 1e6 / median,
        bytes / 1e6 / slow,
        quantile(wall, 0.5) * 1e3,
        quantile(wall, 0.99) * 1e3
    );
  }
};

/// A third weights, a third first moments, a third second moments, as torch saves a model with its
/// Adam.
Blob adam_like(std::size_t bytes) {
  SeededRng rng(1);
  Blob out(bytes / 4 * 4);
  const std::size_t count = out.size() / 4;
  for (std::size_t i = 0; i < count; ++i) {
    const double normal =
        std::sqrt(-2 * std::log(rng.unit() + 1e-12)) * std::cos(6.283185307 * rng.unit());
    const std::size_t part = i * 3 / count;
    const double value = part == 0   ? normal * 0.02
                         : part == 1 ? normal * 1e-4
                                     : normal * normal * 1e-8;
    const auto single = static_cast<float>(value);
    std::memcpy(out.data() + i * 4, &single, 4);
  }
  return out;
}

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().describe().c_str());
  std::exit(1);
}

void must(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "%s\n", status.error().describe().c_str());
  std::exit(1);
}

std::vector<BlobView> cut(BlobView bytes) {
  std::vector<BlobView> chunks;
  const std::size_t length = fixed_chunk_bytes(bytes.size());
  for (std::size_t at = 0; at < bytes.size(); at += length)
    chunks.push_back(bytes.subspan(at, std::min(length, bytes.size() - at)));
  return chunks;
}

void bench_chunks(BlobView bytes, int rounds) {
  io::RealRng rng;
  const JobKeys keys = derive_job_keys(crypto::random_key(rng));
  ChunkEncoder encoder(keys, rng);
  const auto chunks = cut(bytes);
  Samples naming;
  Samples encoding;
  Samples decoding;
  std::size_t stored = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Digest> names;
    std::vector<EncodedChunk> encoded;
    naming.time([&] {
      for (const BlobView chunk : chunks) names.push_back(chunk_name(keys, chunk));
    });
    encoding.time([&] {
      for (std::size_t i = 0; i < chunks.size(); ++i)
        encoded.push_back(encoder.encode(chunks[i], names[i]));
    });
    decoding.time([&] {
      for (const EncodedChunk& chunk : encoded)
        must(decode_chunk(keys, chunk.ref, chunk.stored).map([](const Blob&) {}));
    });
    stored = 0;
    for (const EncodedChunk& chunk : encoded) stored += chunk.stored.size();
  }
  const auto size = static_cast<double>(bytes.size());
  naming.print("name a chunk (HMAC-SHA-256)", size);
  encoding.print("encode (compress, encrypt, hash)", size);
  decoding.print("decode (hash, decrypt, decompress, name)", size);
  std::printf("stored / plain: %.3f\n", static_cast<double>(stored) / size);
}

/// A work folder and a store, both on the real disk.
class Disk {
 public:
  Disk(const std::string& folder, BlobView bytes)
      : root_(folder), bytes_(bytes.begin(), bytes.end()) {
    must(make_folders(fs_, join_path(root_, "work"), 0700));
    StoreOptions options;
    options.root = root_ + "/store";
    options.reserve_free_bytes = 1 << 20;
    store_ = must(ChunkStore::open(fs_, clock_, options));
    work_ = must(fs_.open_folder(join_path(root_, "work")));
    request_.job = JobId("j-bench");
    request_.epoch = {1, 1};
    request_.unit = {"checkpoint.bin", false};
    request_.signer = NodeId("n-bench");
  }

  ~Disk() { (void)remove_tree(fs_, root_); }

  /// Renames a new file into place, `changes` of whose chunks differ from the last one's, with a
  /// settled mtime.
  void save(std::size_t changes) {
    for (std::size_t i = 0; i < changes; ++i)
      ++bytes_[std::min(bytes_.size() - 1, i * fixed_chunk_bytes(bytes_.size()) + 17)];
    (void)fs_.remove(root_ + "/new");
    const auto file = must(fs_.create(root_ + "/new", 0600));
    must(file->append(bytes_));
    must(fs_.set_mtime(root_ + "/new", to_ms(clock_.now().wall) * 1'000'000 - 10'000'000'000));
    must(fs_.rename(root_ + "/new", join_path(join_path(root_, "work"), "checkpoint.bin")));
  }

  void forget() {
    must(store_->forget(request_.job).map([](const GarbageStats&) {}));
    cache_ = SnapshotCache();
  }

  Snapshot take(bool is_renamed, std::uint32_t lanes = 1) {
    ++request_.generation;
    request_.lanes = lanes;
    request_.is_renamed = is_renamed;
    return must(take_snapshot({*work_, *store_, clock_, rng_, keys_, signer_}, request_, cache_));
  }

  /// Decoded from the store into a folder of its own.
  void restore(const Manifest& manifest, std::uint32_t lanes) {
    const std::string folder = root_ + "/restored";
    must(make_folders(fs_, folder, 0700));
    must(restore_generation(
             fs_,
             folder,
             manifest,
             keys_,
             [&](const Digest& name) { return store_->get(name); },
             lanes
    )
             .map([](const RestoreStats&) {}));
    must(remove_tree(fs_, folder));
  }

  double size() const { return static_cast<double>(bytes_.size()); }

  std::size_t chunks() const {
    const std::size_t length = fixed_chunk_bytes(bytes_.size());
    return (bytes_.size() + length - 1) / length;
  }

 private:
  std::string root_;
  Blob bytes_;
  io::RealFileSystem fs_;
  io::RealClock clock_;
  io::RealRng rng_;
  JobKeys keys_ = derive_job_keys(crypto::random_key(rng_));
  crypto::SigningKey signer_ = crypto::make_signing_key(rng_);
  std::unique_ptr<ChunkStore> store_;
  std::unique_ptr<Folder> work_;
  SnapshotCache cache_;
  SnapshotRequest request_;
};

void bench_snapshots(const std::string& folder, BlobView bytes, int rounds) {
  Disk disk(folder, bytes);
  Samples all_new;
  std::map<std::uint32_t, Samples> by_lanes = {{2, {}}, {4, {}}, {8, {}}};
  std::map<std::uint32_t, Samples> restores = {{1, {}}, {2, {}}, {4, {}}, {8, {}}};
  Samples in_place;
  Samples few_new;
  Samples same;
  Samples untouched;
  for (int round = 0; round < rounds; ++round) {
    disk.forget();
    disk.save(0);
    all_new.time([&] { disk.take(true); });
    for (auto& [lanes, samples] : by_lanes) {
      disk.forget();
      disk.save(0);
      samples.time([&, count = lanes] { disk.take(true, count); });
    }
    disk.forget();
    disk.save(0);
    const Manifest manifest = disk.take(true).manifest;
    for (auto& [lanes, samples] : restores)
      samples.time([&, count = lanes] { disk.restore(manifest, count); });
    disk.forget();
    disk.save(0);
    in_place.time([&] { disk.take(false); });
    disk.save(std::max<std::size_t>(1, disk.chunks() / 10));
    few_new.time([&] { disk.take(true); });
    disk.save(0);
    same.time([&] { disk.take(true); });
    untouched.time([&] { disk.take(true); });
  }
  all_new.print("snapshot, renamed, all chunks new", disk.size());
  for (auto& [lanes, samples] : by_lanes) {
    const std::string words = "the same, " + std::to_string(lanes) + " chunks at once";
    samples.print(words.c_str(), disk.size());
  }
  for (auto& [lanes, samples] : restores) {
    const std::string words = "restore, " + std::to_string(lanes) + " chunks at once";
    samples.print(words.c_str(), disk.size());
  }
  in_place.print("snapshot, in place (read twice), all new", disk.size());
  few_new.print("snapshot, renamed, a tenth of chunks new", disk.size());
  same.print("snapshot, renamed, same bytes again", disk.size());
  untouched.print("snapshot, file untouched", disk.size());
}

}  // namespace
}  // namespace rn

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "-";
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 10;
  const std::string folder = argc > 3 ? argv[3] : "/tmp";
  rn::bench::print_machine("bench_checkpoint: one thread, but where more are named");
  rn::io::RealFileSystem fs;
  const rn::Blob bytes =
      path == "-" ? rn::adam_like(100'000'000) : rn::must(rn::read_all(fs, path, 4ULL << 30));
  std::printf(
      "input: %s, %zu bytes; n = %d rounds\n",
      path == "-" ? "synthetic weights with Adam" : path.c_str(),
      bytes.size(),
      rounds
  );
  std::printf(
      "%-44s %3s %9s %9s %11s %9s\n", "", "n", "MB/s p50", "MB/s p99", "wall ms p50", "p99"
  );
  rn::bench_chunks(bytes, rounds);
  rn::bench_snapshots(folder + "/bench_checkpoint." + std::to_string(::getpid()), bytes, rounds);
  return 0;
}
