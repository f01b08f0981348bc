// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/chunk_store.h"

#include <algorithm>
#include <cstdio>

#include "base/crypto.h"
#include "base/log.h"
#include "base/planted.h"
#include "checkpoint/manifest.h"
#include "model/codec.h"

namespace rn::checkpoint {

namespace {

constexpr std::uint32_t kFileMode = 0600;
constexpr std::uint32_t kFolderMode = 0700;
constexpr std::string_view kTemporarySuffix = ".new";
/// A session syncs when so much waits: bounds open files, and how long a flush may take.
constexpr std::size_t kUnsyncedMax = 64;
constexpr std::uint64_t kUnsyncedBytesMax = 64ULL << 20;
/// CBOR of a signed manifest around its body.
constexpr std::uint64_t kSignedManifestMax = kManifestBytesMax + 4096;

tl::unexpected<Error> condemned(const std::string& what, const Error& cause) {
  return fail(
      ErrorCode::kUnavailable,
      what + ": the disk did not sync it (" + cause.message + "); this copy is condemned",
      "check the disk; the next copy is written to a new file"
  );
}

std::string short_hex(const Digest& digest) {
  return to_hex(digest).substr(0, 16);
}

std::string manifest_file_name(const GenerationRef& ref) {
  char order[64];
  std::snprintf(
      order,
      sizeof order,
      "%010u.%010u.%010u-",
      ref.epoch.generation,
      ref.epoch.attempt,
      ref.generation
  );
  return order + to_hex(ref.manifest);
}

std::shared_ptr<const std::vector<Digest>> chunks_of(const Manifest& manifest) {
  std::vector<Digest> out;
  out.reserve(manifest.chunks.size());
  for (const ChunkRef& chunk : manifest.chunks) out.push_back(chunk.cipher);
  std::sort(out.begin(), out.end());
  return std::make_shared<const std::vector<Digest>>(std::move(out));
}

}  // namespace

// --- opening
// --------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<ChunkStore>> ChunkStore::open(
    FileSystem& fs, const Clock& clock, StoreOptions options
) {
  auto store = std::unique_ptr<ChunkStore>(new ChunkStore(fs, clock, std::move(options)));
  const auto recovered = store->recover();
  if (!recovered)
    return fail(recovered.error().with("opening the chunk store " + store->options_.root));
  return store;
}

Status ChunkStore::recover() {
  for (const char* name : {"chunks", "manifests"}) {
    RN_CHECK(make_folders(fs_, join_path(options_.root, name), kFolderMode));
  }
  RN_CHECK(fs_.sync_folder(options_.root));
  RN_CHECK(fs_.sync_folder(parent_folder(options_.root)));
  RN_CHECK(recover_chunks());
  RN_TRY(const auto names, fs_.list(join_path(options_.root, "manifests")));
  for (const std::string& name : names) {
    if (is_valid_job_id(JobId(name))) RN_CHECK(recover_job(name));
  }
  return {};
}

Status ChunkStore::recover_chunks() {
  const std::string root = join_path(options_.root, "chunks");
  RN_TRY(const auto folders, fs_.list(root));
  for (const std::string& folder : folders) {
    const std::string inside = join_path(root, folder);
    RN_TRY(const auto names, fs_.list(inside));
    for (const std::string& name : names) {
      const std::string path = join_path(inside, name);
      const auto cipher = digest_from_hex(name);
      if (!cipher || chunk_path(*cipher) != path) {
        if (name.ends_with(kTemporarySuffix)) RN_CHECK(fs_.remove(path));
        continue;
      }
      RN_TRY(const FileStat there, fs_.stat(path));
      chunks_[*cipher] = there.size;
      bytes_ += there.size;
    }
    // A rename that was seen before a crash of this process, not of the machine, may not be durable
    // yet.
    RN_CHECK(fs_.sync_folder(inside));
  }
  return fs_.sync_folder(root);
}

Status ChunkStore::recover_job(const std::string& name) {
  const JobId job(name);
  const std::string folder = job_folder(job);
  RN_TRY(const auto names, fs_.list(folder));
  for (const std::string& file : names) {
    Stored stored;
    stored.path = join_path(folder, file);
    if (file.ends_with(kTemporarySuffix)) {
      RN_CHECK(fs_.remove(stored.path));
      continue;
    }
    const auto hash =
        digest_from_hex(std::string_view(file).substr(std::min(file.size(), file.find('-') + 1)));
    if (!hash) continue;
    stored.ref.manifest = *hash;
    const auto loaded = load_from(stored);
    auto manifest = loaded ? parse_manifest(loaded->body) : Result<Manifest>(fail(loaded.error()));
    if (manifest && manifest->job != job)
      manifest = fail(ErrorCode::kCorrupt, "a manifest in another job's folder");
    if (!manifest) {
      if (manifest.error().code == ErrorCode::kInternal) return fail(manifest.error());
      log::warning(
          "store.manifest_condemned", {{"path", stored.path}, {"why", manifest.error().describe()}}
      );
      RN_CHECK(fs_.remove(stored.path));
      ++condemned_;
      continue;
    }
    stored.ref = describe(*manifest, *hash);
    RN_TRY(const FileStat there, fs_.stat(stored.path));
    stored.file_bytes = there.size;
    stored.chunks = chunks_of(*manifest);
    bytes_ += there.size;
    generations_[job][{{stored.ref.epoch, stored.ref.generation}, *hash}] = stored;
  }
  return fs_.sync_folder(folder);
}

// --- chunks
// ---------------------------------------------------------------------------------------------------------

std::string ChunkStore::chunk_folder(const Digest& cipher) const {
  return join_path(join_path(options_.root, "chunks"), to_hex(BlobView(cipher).first(1)));
}

std::string ChunkStore::chunk_path(const Digest& cipher) const {
  return join_path(chunk_folder(cipher), to_hex(cipher));
}

std::string ChunkStore::job_folder(const JobId& job) const {
  return join_path(join_path(options_.root, "manifests"), job.str());
}

/// Counts the bytes before they are written, so that two writers cannot both take the last room.
Status ChunkStore::admit(std::uint64_t bytes) {
  RN_TRY(const std::uint64_t free, fs_.free_bytes(options_.root));
  const std::lock_guard lock(mutex_);
  if (free < bytes || free - bytes < options_.reserve_free_bytes) {
    return fail(
        ErrorCode::kExhausted,
        "the disk has " + std::to_string(free) + " bytes left and its owner keeps " +
            std::to_string(options_.reserve_free_bytes),
        "free space on the node or lend less"
    );
  }
  if (bytes > options_.quota_bytes || bytes_ > options_.quota_bytes - bytes) {
    return fail(
        ErrorCode::kExhausted,
        "the store's quota of " + std::to_string(options_.quota_bytes) + " bytes is used up"
    );
  }
  bytes_ += bytes;
  return {};
}

/// Neither synced nor under its name yet.
Result<ChunkStore::Session::Waiting> ChunkStore::write_chunk(
    const Digest& cipher, BlobView stored
) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++temporary_;
  }
  Session::Waiting out;
  out.bytes = stored.size();
  out.temporary = chunk_path(cipher) + "." + std::to_string(number) + std::string(kTemporarySuffix);
  const auto written = [&]() -> Status {
    const auto made = fs_.make_folder(chunk_folder(cipher), kFolderMode);
    if (!made && made.error().code != ErrorCode::kConflict) return made;
    RN_TRY(out.file, fs_.create(out.temporary, kFileMode));
    return out.file->append(stored);
  }();
  if (written) return out;
  out.file.reset();
  (void)fs_.remove(out.temporary);
  return fail(written.error());
}

bool ChunkStore::has(const Digest& cipher) const {
  const std::lock_guard lock(mutex_);
  return chunks_.contains(cipher);
}

std::optional<std::uint64_t> ChunkStore::stored_bytes(const Digest& cipher) const {
  const std::lock_guard lock(mutex_);
  const auto found = chunks_.find(cipher);
  return found == chunks_.end() ? std::nullopt : std::optional(found->second);
}

std::uint64_t ChunkStore::unlink_chunk(const Digest& cipher, bool only_unpinned) {
  const std::lock_guard lock(mutex_);
  const auto found = chunks_.find(cipher);
  if (found == chunks_.end() || (only_unpinned && pins_.contains(cipher))) return 0;
  const std::uint64_t size = found->second;
  const auto removed = fs_.remove(chunk_path(cipher));
  if (!removed && removed.error().code != ErrorCode::kNotFound) return 0;
  chunks_.erase(found);
  bytes_ -= std::min(bytes_, size);
  return size;
}

void ChunkStore::condemn(const Digest& cipher) {
  log::warning("store.chunk_condemned", {{"chunk", short_hex(cipher)}});
  unlink_chunk(cipher, false);
  const std::lock_guard lock(mutex_);
  ++condemned_;
}

Result<Blob> ChunkStore::read_compared(const Digest& cipher, const std::string& path) {
  auto bytes = read_all(fs_, path, kBlobBytesMax);
  if (!bytes) return fail(bytes.error().with("chunk " + short_hex(cipher)));
  if (crypto::sha256(*bytes) == cipher || planted("store.trusts_what_it_gets")) return bytes;
  return fail(
      ErrorCode::kCorrupt,
      "chunk " + short_hex(cipher) + " on the disk does not have the bytes of its hash"
  );
}

Result<Blob> ChunkStore::read_checked(const Digest& cipher) {
  auto bytes = read_compared(cipher, chunk_path(cipher));
  if (bytes) return bytes;
  const ErrorCode code = bytes.error().code;
  if (code == ErrorCode::kNotFound)
    unlink_chunk(cipher, false);  // somebody removed it from under us
  if (code == ErrorCode::kExhausted || code == ErrorCode::kCorrupt) condemn(cipher);  // it grew
  return bytes;
}

Result<Blob> ChunkStore::get(const Digest& cipher) {
  if (!has(cipher))
    return fail(ErrorCode::kNotFound, "chunk " + short_hex(cipher) + " is not here");
  return read_checked(cipher);
}

Result<Blob> ChunkStore::get_unverified(const Digest& cipher) {
  if (!has(cipher))
    return fail(ErrorCode::kNotFound, "chunk " + short_hex(cipher) + " is not here");
  return read_all(fs_, chunk_path(cipher), kBlobBytesMax);
}

Result<Blob> ChunkStore::get_from_medium(const Digest& cipher) {
  if (!has(cipher))
    return fail(ErrorCode::kNotFound, "chunk " + short_hex(cipher) + " is not here");
  fs_.drop_cache(chunk_path(cipher));
  return read_checked(cipher);
}

// --- sessions
// -------------------------------------------------------------------------------------------------------

ChunkStore::Session::~Session() {
  const std::lock_guard lock(store_->mutex_);
  abandon_all();
  for (const Digest& cipher : pinned_) {
    const auto pin = store_->pins_.find(cipher);
    if (--pin->second == 0) store_->pins_.erase(pin);
  }
}

/// Takes back a chunk that was not flushed, but for a name that others write, too, or have
/// finished. Under the store's mutex_.
ChunkStore::Session::Waitings::iterator ChunkStore::Session::abandon(Waitings::iterator at) {
  auto& [cipher, waiting] = *at;
  store_->bytes_ -= std::min(store_->bytes_, waiting.bytes);
  if (waiting.file) {
    waiting.file.reset();
    (void)store_->fs_.remove(waiting.temporary);
  } else if (!store_->chunks_.contains(cipher) && store_->pins_[cipher] == 1) {
    (void)store_->fs_.remove(store_->chunk_path(cipher));
  }
  return waiting_.erase(at);
}

void ChunkStore::Session::abandon_all() {
  while (!waiting_.empty()) abandon(waiting_.begin());
  unsynced_ = 0;
  unsynced_bytes_ = 0;
}

bool ChunkStore::Session::keep(const Digest& cipher) {
  const std::lock_guard lock(store_->mutex_);
  if (!store_->chunks_.contains(cipher)) return false;
  ++store_->pins_[cipher];
  pinned_.push_back(cipher);
  return true;
}

Status ChunkStore::Session::put(const Digest& cipher, BlobView stored) {
  if (waiting_.contains(cipher) || keep(cipher)) return {};
  if (crypto::sha256(stored) == cipher) return put_hashed(cipher, stored);
  return fail(ErrorCode::kCorrupt, "chunk " + short_hex(cipher) + " arrived with other bytes");
}

Status ChunkStore::Session::put_hashed(const Digest& cipher, BlobView stored) {
  return put(cipher, stored, false);
}

Status ChunkStore::Session::put_unverified(const Digest& cipher, BlobView stored) {
  return put(cipher, stored, true);
}

Status ChunkStore::Session::put(const Digest& cipher, BlobView stored, bool is_unverified) {
  if (waiting_.contains(cipher) || keep(cipher)) return {};
  if (stored.size() > kBlobBytesMax)
    return fail(ErrorCode::kExhausted, "a chunk is longer than the store takes");
  RN_CHECK(store_->admit(stored.size()));
  {
    const std::lock_guard lock(store_->mutex_);
    ++store_->pins_[cipher];
    pinned_.push_back(cipher);
  }
  auto written = store_->write_chunk(cipher, stored);
  if (!written) {
    const std::lock_guard lock(store_->mutex_);
    store_->bytes_ -= std::min<std::uint64_t>(store_->bytes_, stored.size());
    return fail(written.error());
  }
  written->is_unverified = is_unverified;
  waiting_[cipher] = *std::move(written);
  ++unsynced_;
  unsynced_bytes_ += stored.size();
  if (unsynced_ < kUnsyncedMax && unsynced_bytes_ < kUnsyncedBytesMax) return {};
  return sync_and_name();
}

/// Bytes durable, then compared, then under their name, which is durable only after the folders'
/// syncs. What is not right is taken back alone; after any other error nothing is left.
Status ChunkStore::Session::sync_and_name() {
  Status compared;
  bool is_synced = true;
  const auto done = [&]() -> Status {
    for (auto& [cipher, waiting] : waiting_) {
      if (!waiting.file || planted("store.skips_fsync")) continue;
      const auto synced = waiting.file->sync();
      is_synced = synced.has_value();
      if (!is_synced) return condemned("chunk " + short_hex(cipher), synced.error());
    }
    compared = compare();
    for (auto& [cipher, waiting] : waiting_) {
      if (!waiting.file) continue;
      RN_CHECK(store_->fs_.rename(waiting.temporary, store_->chunk_path(cipher)));
      waiting.file.reset();
    }
    return {};
  }();
  unsynced_ = 0;
  unsynced_bytes_ = 0;
  if (done) return compared;
  const std::lock_guard lock(store_->mutex_);
  if (!is_synced) store_->condemned_ += waiting_.size();
  abandon_all();
  return done;
}

/// Reads back what nobody has compared. Answers the first error; what is not right is taken back:
/// other bytes never get the name of a hash, where they could replace the right ones of another
/// session.
Status ChunkStore::Session::compare() {
  Status first;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto& [cipher, waiting] = *at;
    if (!waiting.file || !waiting.is_unverified) {
      ++at;
      continue;
    }
    store_->fs_.drop_cache(waiting.temporary);
    const auto read = store_->read_compared(cipher, waiting.temporary);
    if (read) {
      read_back_.insert(cipher);
      ++at;
      continue;
    }
    log::warning("store.chunk_condemned", {{"chunk", short_hex(cipher)}});
    if (first) first = fail(read.error());
    const std::lock_guard lock(store_->mutex_);
    ++store_->condemned_;
    at = abandon(at);
  }
  return first;
}

Status ChunkStore::Session::sync_folders() {
  std::set<std::string> folders;
  for (const auto& [cipher, waiting] : waiting_) folders.insert(store_->chunk_folder(cipher));
  folders.insert(join_path(store_->options_.root, "chunks"));
  const auto synced = [&]() -> Status {
    for (const std::string& folder : folders) RN_CHECK(store_->fs_.sync_folder(folder));
    return {};
  }();
  if (synced) return {};
  const std::size_t count = waiting_.size();
  const std::lock_guard lock(store_->mutex_);
  store_->condemned_ += count;
  abandon_all();
  return condemned(std::to_string(count) + " chunks", synced.error());
}

Status ChunkStore::Session::flush() {
  if (waiting_.empty()) return {};
  const Status named = sync_and_name();
  if (!waiting_.empty()) RN_CHECK(sync_folders());
  const std::lock_guard lock(store_->mutex_);
  for (const auto& [cipher, waiting] : waiting_) {
    // Another session may have been faster with the same bytes.
    if (!store_->chunks_.try_emplace(cipher, waiting.bytes).second)
      store_->bytes_ -= std::min(store_->bytes_, waiting.bytes);
  }
  waiting_.clear();
  return named;
}

// --- manifests
// ------------------------------------------------------------------------------------------------------

/// Looks at the files, not only at the index: the owner may have removed some.
Status ChunkStore::check_chunks(const Manifest& manifest) {
  std::size_t missing = 0;
  for (const ChunkRef& chunk : manifest.chunks) {
    const auto size = stored_bytes(chunk.cipher);
    if (size && *size == chunk.cipher_bytes) {
      const auto there = fs_.stat(chunk_path(chunk.cipher));
      if (there && there->size == *size) continue;
      if (!there && there.error().code != ErrorCode::kNotFound) return fail(there.error());
      unlink_chunk(chunk.cipher, false);
    }
    ++missing;
  }
  if (missing == 0) return {};
  return fail(
      ErrorCode::kConflict,
      std::to_string(missing) + " of " + std::to_string(manifest.chunks.size()) +
          " chunks are not here"
  );
}

Result<GenerationRef> ChunkStore::put_manifest(const SignedManifest& manifest) {
  RN_TRY(const Manifest parsed, parse_manifest(manifest.body));
  const std::lock_guard collecting(collecting_);
  {
    const std::lock_guard lock(mutex_);
    const auto over = finished_.find(parsed.job);
    if (over != finished_.end() && parsed.epoch <= over->second)
      return fail(
          ErrorCode::kConflict,
          "job " + parsed.job.str() + " is over since epoch " + to_string(over->second),
          "the attempt is fenced; stop it"
      );
  }
  RN_CHECK(check_chunks(parsed));
  Stored stored;
  stored.ref = describe(parsed, manifest_hash(manifest));
  const std::pair<Order, Digest> key{{parsed.epoch, parsed.generation}, stored.ref.manifest};
  std::uint64_t damaged_bytes = 0;  // of the same manifest, which the new file replaces
  for (const Stored& known : generations_of(parsed.job)) {
    if (known.ref.manifest != stored.ref.manifest) continue;
    if (load_from(known)) return known.ref;
    damaged_bytes = known.file_bytes;
  }
  const Blob bytes = to_cbor(manifest);
  RN_CHECK(admit(bytes.size()));
  stored.file_bytes = bytes.size();
  stored.chunks = chunks_of(parsed);
  stored.path = join_path(job_folder(parsed.job), manifest_file_name(stored.ref));
  const auto written = [&]() -> Status {
    const auto made = fs_.make_folder(job_folder(parsed.job), kFolderMode);
    if (!made && made.error().code != ErrorCode::kConflict) return made;
    RN_CHECK(fs_.sync_folder(join_path(options_.root, "manifests")));
    return write_durably(fs_, stored.path, bytes, kFileMode);
  }();
  const std::lock_guard lock(mutex_);
  if (!written) {
    bytes_ -= std::min<std::uint64_t>(bytes_, bytes.size());
    (void)fs_.remove(stored.path);
    if (written.error().code != ErrorCode::kInternal) return fail(written.error());
    ++condemned_;
    return condemned(
        "the manifest of generation " + std::to_string(parsed.generation), written.error()
    );
  }
  bytes_ -= std::min(bytes_, damaged_bytes);
  generations_[parsed.job][key] = stored;
  return stored.ref;
}

Result<SignedManifest> ChunkStore::load_from(const Stored& stored) {
  RN_TRY(const Blob bytes, read_all(fs_, stored.path, kSignedManifestMax));
  auto manifest = from_cbor<SignedManifest>(bytes);
  if (!manifest || manifest_hash(*manifest) != stored.ref.manifest) {
    return fail(
        ErrorCode::kCorrupt,
        "manifest " + short_hex(stored.ref.manifest) + " on the disk is damaged"
    );
  }
  return manifest;
}

std::vector<ChunkStore::Stored> ChunkStore::generations_of(const JobId& job) const {
  const std::lock_guard lock(mutex_);
  std::vector<Stored> out;
  const auto found = generations_.find(job);
  if (found == generations_.end()) return out;
  for (const auto& [key, stored] : found->second) out.push_back(stored);
  return out;
}

Result<SignedManifest> ChunkStore::load_manifest(const JobId& job, const Digest& manifest) {
  for (const Stored& stored : generations_of(job)) {
    if (stored.ref.manifest == manifest) return load_from(stored);
  }
  return fail(
      ErrorCode::kNotFound, "no generation " + short_hex(manifest) + " of " + job.str() + " here"
  );
}

std::vector<GenerationRef> ChunkStore::list(const JobId& job) const {
  std::vector<GenerationRef> out;
  for (const Stored& stored : generations_of(job)) out.push_back(stored.ref);
  return out;
}

std::vector<JobId> ChunkStore::jobs() const {
  const std::lock_guard lock(mutex_);
  std::vector<JobId> out;
  for (const auto& [job, generations] : generations_) {
    if (!generations.empty()) out.push_back(job);
  }
  return out;
}

/// False for damaged or lacking chunks; an error only where the disk itself failed.
Result<bool> ChunkStore::is_whole(const Stored& stored) {
  const auto whole = [&]() -> Status {
    RN_TRY(const SignedManifest loaded, load_from(stored));
    RN_TRY(const Manifest manifest, parse_manifest(loaded.body));
    return check_chunks(manifest);
  }();
  if (whole) return true;
  if (whole.error().code == ErrorCode::kInternal) return fail(whole.error());
  return false;
}

Result<GenerationRef> ChunkStore::latest_valid(const JobId& job) {
  auto generations = generations_of(job);
  std::reverse(generations.begin(), generations.end());
  for (const Stored& stored : generations) {
    RN_TRY(const bool whole, is_whole(stored));
    if (whole) return stored.ref;
  }
  return fail(ErrorCode::kNotFound, "no whole generation of " + job.str() + " here");
}

Status ChunkStore::verify(
    const JobId& job, const Digest& manifest, const std::set<Digest>& read_back
) {
  for (const Stored& stored : generations_of(job)) {
    if (stored.ref.manifest != manifest) continue;
    fs_.drop_cache(stored.path);
    RN_TRY(const SignedManifest loaded, load_from(stored));
    RN_TRY(const Manifest parsed, parse_manifest(loaded.body));
    Status first;
    for (const ChunkRef& chunk : parsed.chunks) {
      if (read_back.contains(chunk.cipher) && stored_bytes(chunk.cipher) == chunk.cipher_bytes)
        continue;
      const auto bytes = get_from_medium(chunk.cipher);
      if (bytes && bytes->size() == chunk.cipher_bytes) continue;
      if (first)
        first =
            bytes ? fail(ErrorCode::kCorrupt, "a chunk's length is wrong") : fail(bytes.error());
    }
    return first;
  }
  return fail(
      ErrorCode::kNotFound, "no generation " + short_hex(manifest) + " of " + job.str() + " here"
  );
}

void ChunkStore::set_limits(std::uint64_t quota_bytes, std::uint64_t reserve_free_bytes) {
  const std::lock_guard lock(mutex_);
  options_.quota_bytes = quota_bytes;
  options_.reserve_free_bytes = reserve_free_bytes;
}

StoreUsage ChunkStore::usage() const {
  const std::lock_guard lock(mutex_);
  return {chunks_.size(), bytes_, options_.quota_bytes, condemned_};
}

}  // namespace rn::checkpoint
