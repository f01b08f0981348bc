// SPDX-License-Identifier: Apache-2.0
#include "agent/hands.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "agent/image_pieces.h"
#include "agent/local_work.h"
#include "agent/peers.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "checkpoint/restore.h"
#include "checkpoint/snapshot.h"
#include "io/real_clock.h"
#include "model/api.h"
#include "model/codec.h"

namespace rn::agent {

namespace {

constexpr std::uint64_t kListingBytesMax = 64u << 20;
/// After its last use an archive may still be on its way into the engine: the warden reads it.
constexpr nanoseconds kArchiveInUse = std::chrono::minutes(10);
/// Pieces asked of the coordinator at once: while one is hashed and synced, others travel. More
/// would only take memory (4 MiB each) and the coordinator's turns from other nodes.
constexpr std::size_t kPiecesAtOnce = 3;
constexpr std::uint64_t kArchiveReadBytes = 1u << 20;
constexpr std::size_t kBlobBytesMax = 16u << 20;  ///< four times what the coordinator keeps as one
constexpr milliseconds kBlobLimit = std::chrono::minutes(10);
constexpr milliseconds kBlobStall = seconds(30);  ///< without a byte

Status cancelled() {
  return fail(ErrorCode::kTimeout, "cancelled");
}

/// Empties a folder that stays itself (the warden made it).
Status empty_folder(FileSystem& fs, const std::string& path) {
  auto names = fs.list(path);
  if (!names) {
    if (names.error().code == ErrorCode::kNotFound) return make_folders(fs, path, 0700);
    return fail(names.error());
  }
  for (const std::string& name : *names) RN_CHECK(remove_tree(fs, join_path(path, name)));
  return {};
}

}  // namespace

Status check_guest_disk(FileSystem& fs, const std::string& disk) {
  if (disk.size() > 1 && disk.front() == '/') {
    const auto marker = fs.stat(join_path(disk, "reclaim"));
    if (marker && marker->kind == FileStat::Kind::kDirectory) return {};
  }
  return fail(
      ErrorCode::kUnavailable,
      "\"" + disk + "\" is no disk that the warden has mounted for a guest",
      "look at the warden's log"
  );
}

std::string guest_view(FileSystem& fs, const std::string& disk) {
  const std::string view = join_path(parent_folder(disk), "view");
  return fs.stat(join_path(view, "work")) ? view : disk;
}

Result<std::string> readable_work(FileSystem& fs, const std::string& disk) {
  RN_CHECK(check_guest_disk(fs, disk));
  const std::string view = guest_view(fs, disk);
  // The warden removes the folder where it can make no view.
  if (view == disk && fs.stat(join_path(parent_folder(disk), "view")))
    return fail(ErrorCode::kUnavailable, "the warden has not mounted its view of " + disk + " yet");
  return join_path(view, "work");
}

WorkResult Hands::run(
    const Work& work,
    const std::atomic<bool>& is_cancelled,
    const std::shared_ptr<checkpoint::ChunkTap>& tap,
    const std::shared_ptr<TransferGauge>& gauge
) {
  struct Visitor {
    Hands& hands;
    const Work& work;
    const std::atomic<bool>& c;
    const std::shared_ptr<checkpoint::ChunkTap>& tap;
    const std::shared_ptr<TransferGauge>& gauge;

    Result<WorkResult> operator()(const FetchImage& w) { return hands.fetch_image(w, c); }

    Result<WorkResult> operator()(const PrepareWork& w) { return hands.prepare(work.guest, w, c); }

    Result<WorkResult> operator()(const TakeSnapshot& w) {
      return hands.snapshot(work.guest, w, c);
    }

    Result<WorkResult> operator()(const CopyGeneration& w) {
      return hands.copy(work.guest, w, c, tap, gauge);
    }

    Result<WorkResult> operator()(const UploadOutputs& w) {
      return hands.upload(
          work.guest, w, c, gauge != nullptr ? gauge : std::make_shared<TransferGauge>(w.rate_bps)
      );
    }

    Result<WorkResult> operator()(const ReadLog& w) { return hands.read_log(work.guest, w); }

    Result<WorkResult> operator()(const CollectGarbage& w) { return hands.collect(w); }

    Result<WorkResult> operator()(const ListHoldings&) {
      return WorkResult(HoldingsListed{hands.deps_.store.jobs()});
    }

    Result<WorkResult> operator()(const ForgetAttempt&) { return hands.forget(work.guest); }
  };

  if (is_cancelled) return Error{ErrorCode::kTimeout, "cancelled", ""};
  if (!work.guest.job.empty() && !checkpoint::is_valid_job_id(work.guest.job))
    return Error{ErrorCode::kInvalid, "\"" + work.guest.job.str() + "\" is no job's name", ""};
  auto result = std::visit(Visitor{*this, work, is_cancelled, tap, gauge}, work.body);
  if (!result) return result.error();
  return *std::move(result);
}

/// As long as something comes: the coordinator makes it wait for what is more urgent on a line.
Result<Blob> Hands::get_blob(
    io::HttpSession& session, const Digest& name, const Cancelled& is_cancelled
) const {
  io::HttpCall call;
  call.timeout = kBlobLimit;
  call.stall_timeout = kBlobStall;
  Blob bytes;
  call.on_data = [&](BlobView piece) -> Status {
    if (is_cancelled) return cancelled();
    if (bytes.size() + piece.size() > kBlobBytesMax)
      return fail(ErrorCode::kCorrupt, "it is longer than any blob");
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return {};
  };
  const auto self = deps_.identity.get();
  call.url = self->coordinator_url + "/v1/blobs/" + to_hex(name);
  call.tls = tls_to_coordinator(*self);
  auto reply = io::succeed(session.perform(call));
  if (!reply) {
    Error error = reply.error().with("blob " + to_hex(name).substr(0, 12));
    // The coordinator is busy, which passes; only this node's own disk is full for longer.
    if (error.code == ErrorCode::kExhausted) error.code = ErrorCode::kUnavailable;
    return fail(error);
  }
  if (crypto::sha256(bytes) != name)
    return fail(ErrorCode::kCorrupt, "blob " + to_hex(name) + " came with other bytes");
  return bytes;
}

// ---- images

Status Hands::fetch_pieces(const FetchImage& w, const Cancelled& is_cancelled) {
  const auto missing = [&] {
    std::vector<Digest> out;
    for (const Digest& blob : w.blobs) {
      if (!deps_.images.has(blob)) out.push_back(blob);
    }
    return out;
  };
  for (const PeerGrant& peer : w.peers) {
    if (missing().empty()) return {};
    if (is_cancelled) return cancelled();
    const auto target = target_of(*deps_.identity.get(), peer, nullptr, is_cancelled);
    checkpoint::TransferStats stats;
    const auto fetched =
        target ? checkpoint::fetch_from(*target, deps_.images, {peer.ticket, {}, missing()}, &stats)
               : Result<checkpoint::Fetched>(fail(target.error()));
    tell_pieces(w, peer.node.str(), stats, image_traffic_.from_peers);
    if (!fetched)
      log::info(
          "image.peer_failed", {{"peer", peer.node.str()}, {"error", fetched.error().describe()}}
      );
  }
  return fetch_from_coordinator(w, missing(), is_cancelled);
}

/// Who brought what of an image: an owner's uplink and the coordinator's are asked about it.
void Hands::tell_pieces(
    const FetchImage& w,
    const std::string& source,
    const checkpoint::TransferStats& stats,
    std::atomic<std::uint64_t>& bytes_of_all
) {
  if (stats.chunks == 0) return;
  bytes_of_all += stats.bytes;
  log::info(
      "image.pieces",
      {{"image", w.digest}, {"from", source}, {"pieces", stats.chunks}, {"bytes", stats.bytes}}
  );
}

/// Several at once, each over a kept connection of its own. What came whole stays when another
/// piece fails, so that the next try asks for less.
Status Hands::fetch_from_coordinator(
    const FetchImage& w, const std::vector<Digest>& names, const Cancelled& is_cancelled
) {
  std::atomic<std::size_t> next = 0;
  std::atomic<std::uint64_t> pieces_come = 0;
  std::atomic<std::uint64_t> bytes_come = 0;
  std::atomic<bool> has_failed = false;
  const auto bring = [&](checkpoint::ChunkStore::Session& pieces) -> Status {
    io::HttpSession session;
    for (std::size_t at = next++; at < names.size() && !has_failed; at = next++) {
      if (is_cancelled) return cancelled();
      RN_TRY(const Blob bytes, get_blob(session, names[at], is_cancelled));
      ++pieces_come;
      bytes_come += bytes.size();
      RN_CHECK(pieces.put_hashed(names[at], bytes));
    }
    return {};
  };
  std::vector<Status> outcomes(std::min(kPiecesAtOnce, names.size()));
  std::vector<std::jthread> threads;
  for (Status& outcome : outcomes) {
    threads.emplace_back([&] {
      checkpoint::ChunkStore::Session pieces(deps_.images);
      outcome = bring(pieces);
      if (!outcome) has_failed = true;
      const Status kept = pieces.flush();
      if (outcome) outcome = kept;
    });
  }
  threads.clear();  // joins
  const checkpoint::TransferStats stats{.chunks = pieces_come, .bytes = bytes_come, .skipped = 0};
  tell_pieces(w, "coordinator", stats, image_traffic_.from_coordinator);
  for (const Status& outcome : outcomes) RN_CHECK(outcome);
  return {};
}

/// Stamps the archive as used now; then the least recently used ones go until the rest is within
/// the bound. What was used a short while ago stays even beyond it. An archive is a cache: after a
/// crash in between, or when it is wanted again, it is put together anew.
Status Hands::use_archive(const std::string& path) {
  struct Archive {
    std::int64_t used_ns = 0;
    std::uint64_t bytes = 0;
    std::string path;
  };

  const std::int64_t now_ns =
      std::chrono::duration_cast<nanoseconds>(deps_.clock.now().wall.time_since_epoch()).count();
  RN_CHECK(deps_.fs.set_mtime(path, now_ns));
  RN_TRY(const auto names, deps_.fs.list(deps_.images_folder));
  std::vector<Archive> archives;
  std::uint64_t total = 0;
  for (const std::string& name : names) {
    if (!name.ends_with(".tar")) continue;
    const std::string one = join_path(deps_.images_folder, name);
    const auto stat = deps_.fs.stat(one);
    if (!stat) continue;
    total += stat->size;
    archives.push_back({stat->mtime_ns, stat->size, one});
  }
  std::sort(archives.begin(), archives.end(), [](const Archive& a, const Archive& b) {
    return a.used_ns != b.used_ns ? a.used_ns < b.used_ns : a.path < b.path;
  });
  for (const Archive& oldest : archives) {
    if (total <= deps_.image_archives_bytes) break;
    if (oldest.path == path || now_ns - oldest.used_ns < kArchiveInUse.count()) continue;
    RN_CHECK(deps_.fs.remove(oldest.path));
    total -= oldest.bytes;
    log::info("image.archive_removed", {{"path", oldest.path}, {"bytes", oldest.bytes}});
  }
  return {};
}

/// Without this look a damaged archive would be offered for ever to a warden that refuses it.
Result<bool> Hands::is_archive_of(
    const std::string& path, const Digest& wanted, const Cancelled& is_cancelled
) const {
  RN_TRY(const auto file, deps_.fs.open(path));
  crypto::Sha256 hash;
  for (std::uint64_t at = 0;;) {
    if (is_cancelled) return fail(cancelled().error());
    RN_TRY(const Blob bytes, file->read(at, kArchiveReadBytes));
    if (bytes.empty()) return hash.finish() == wanted;
    hash.update(bytes);
    at += bytes.size();
  }
}

/// What peers with a ticket for this image may ask for.
Status Hands::remember_pieces(const FetchImage& w) {
  return ImagePieces(deps_.fs, deps_.images_folder).remember(w.digest, w.blobs);
}

Result<WorkResult> Hands::fetch_image(const FetchImage& w, const Cancelled& is_cancelled) {
  if (!w.digest.starts_with("sha256:"))
    return fail(ErrorCode::kInvalid, "\"" + w.digest + "\" is no image digest");
  RN_TRY(const Digest wanted, digest_from_hex(w.digest.substr(7)));
  RN_CHECK(make_folders(deps_.fs, deps_.images_folder, 0755));
  const std::string path = join_path(deps_.images_folder, to_hex(wanted) + ".tar");
  std::unique_lock lock(fetching_image_, std::defer_lock);
  while (!lock.try_lock_for(milliseconds(100))) {
    if (is_cancelled) return fail(cancelled().error());
  }
  if (deps_.fs.stat(path)) {  // complete, as it was renamed; what lay here since may have rotted
    RN_TRY(const bool is_whole, is_archive_of(path, wanted, is_cancelled));
    if (is_whole) {
      RN_CHECK(remember_pieces(w));
      RN_CHECK(use_archive(path));
      return WorkResult(ImageFetched{path});
    }
    log::warning("image.archive_damaged", {{"path", path}});
    RN_CHECK(deps_.fs.remove(path));
  }
  RN_CHECK(fetch_pieces(w, is_cancelled));
  const std::string part = path + ".part";
  RN_CHECK(remove_tree(deps_.fs, part));
  crypto::Sha256 hash;
  {
    RN_TRY(const auto file, deps_.fs.create(part, 0644));
    for (const Digest& blob : w.blobs) {
      if (is_cancelled) return fail(cancelled().error());
      RN_TRY(const Blob bytes, deps_.images.get_unverified(blob));
      hash.update(bytes);
      RN_CHECK(file->append(bytes));
    }
    RN_CHECK(file->sync());
  }
  if (hash.finish() != wanted) {
    RN_CHECK(remove_tree(deps_.fs, part));
    for (const Digest& blob : w.blobs) (void)deps_.images.get(blob);  // condemns what is damaged
    return fail(
        ErrorCode::kCorrupt,
        "the image's pieces do not add up to " + w.digest,
        "list the image again: reclaim image add"
    );
  }
  RN_CHECK(deps_.fs.rename(part, path));
  RN_CHECK(deps_.fs.sync_folder(deps_.images_folder));
  RN_CHECK(remember_pieces(w));
  RN_CHECK(use_archive(path));
  return WorkResult(ImageFetched{path});
}

// ---- workspace and resume

Status Hands::load_base(
    GuestEntry& entry,
    const GuestName& guest,
    const Digest& workspace,
    const Cancelled& is_cancelled
) {
  if (entry.is_base_known) return {};
  if (workspace != Digest{}) {
    const std::string path = join_path(deps_.guests.folder(guest), "base.cbor");
    auto bytes = read_all(deps_.fs, path, kListingBytesMax);
    if (!bytes || crypto::sha256(*bytes) != workspace) {
      io::HttpSession session;
      bytes = get_blob(session, workspace, is_cancelled);
      if (!bytes) return fail(bytes.error().with("the workspace's listing"));
      RN_CHECK(make_folders(deps_.fs, parent_folder(path), 0700));
      RN_CHECK(write_durably(deps_.fs, path, *bytes, 0600));
    }
    RN_TRY(entry.base, from_cbor<Listing>(*bytes));
  }
  entry.is_base_known = true;
  return {};
}

Status Hands::fetch_generation(
    const GenerationRef& ref,
    const std::vector<PeerGrant>& peers,
    AskedHolders& asked,
    const Cancelled& is_cancelled
) {
  asked.silent.clear();
  const auto is_here = [&] {
    if (!deps_.store.load_manifest(ref.job, ref.manifest)) return false;
    return deps_.store.verify(ref.job, ref.manifest).has_value();
  };
  if (is_here()) return {};
  Error last{ErrorCode::kUnavailable, "no peer holds it", ""};
  std::vector<HolderAnswer> answers;
  for (const PeerGrant& peer : peers) {
    if (is_cancelled) return cancelled();
    if (peer.node == deps_.identity.get()->node) continue;
    const auto target = target_of(*deps_.identity.get(), peer, nullptr, is_cancelled);
    const auto fetched =
        target ? checkpoint::fetch_from(*target, deps_.store, {peer.ticket, ref.manifest, {}})
               : Result<checkpoint::Fetched>(fail(target.error()));
    if (fetched && fetched->generation) {
      asked.silent.clear();
      return {};
    }
    last = fetched ? Error{ErrorCode::kNotFound, peer.node.str() + " lacks chunks", ""}
                   : fetched.error();
    answers.push_back(answer_of(last.code));
    if (answers.back() == HolderAnswer::kNoWord) asked.silent.push_back(peer.node);
    if (last.code != ErrorCode::kCorrupt) continue;
    asked.lying.emplace(peer.node, last.message);
    log::warning(
        "restore.peer_lies",
        {{"job", ref.job.str()}, {"peer", peer.node.str()}, {"error", last.describe()}}
    );
  }
  // Only if nobody has it any more is an older one the best there is.
  last.code = may_fall_back(answers) ? ErrorCode::kNotFound : ErrorCode::kUnavailable;
  return fail(last.with("generation " + std::to_string(ref.generation)));
}

/// Chunks that were here before the fetch may have rotted since: the store gives them up when they
/// are read, and the holders have them.
Result<Manifest> Hands::restore(
    const GuestName& guest,
    const PrepareWork& w,
    const GenerationRef& from,
    const std::vector<PeerGrant>& peers,
    std::set<std::string>* only_missing,
    AskedHolders& asked,
    const Cancelled& is_cancelled
) {
  const std::string folder = join_path(w.disk, "work");
  RN_TRY(
      const crypto::Key256 key, open_job_key(deps_.identity.get()->box, guest.job, w.sealed_job_key)
  );
  std::atomic<bool> is_damaged_here = false;
  const checkpoint::BlobSource chunks = [&](const Digest& name) -> Result<Blob> {
    if (is_cancelled) return fail(cancelled().error());
    auto stored = deps_.store.get(name);
    if (!stored && answer_of(stored.error().code) == HolderAnswer::kLacks) is_damaged_here = true;
    return stored;
  };
  Error last;
  for (int tries = 0; tries < kRestoresMax; ++tries) {
    RN_CHECK(fetch_generation(from, peers, asked, is_cancelled));
    RN_TRY(const SignedManifest sealed, deps_.store.load_manifest(from.job, from.manifest));
    // The coordinator named this hash, from a row that it committed: that is what makes it trusted.
    RN_TRY(Manifest manifest, checkpoint::parse_manifest(sealed.body));
    if (only_missing != nullptr) {
      if (tries == 0)  // a later try finds what this one leaves
        *only_missing = missing_of(deps_.fs, folder, w.checkpoint_paths, manifest);
      leave_but(manifest, *only_missing);
    }
    is_damaged_here = false;
    const auto restored = checkpoint::restore_generation(
        deps_.fs, folder, manifest, checkpoint::derive_job_keys(key), chunks, w.lanes
    );
    if (restored) return manifest;
    if (!is_damaged_here) return fail(restored.error());
    last = restored.error();
    log::warning(
        "restore.damaged_here",
        {{"job", from.job.str()}, {"generation", from.generation}, {"why", last.message}}
    );
  }
  last.code = ErrorCode::kUnavailable;  // they have it (I7)
  return fail(last.with("what was fetched does not stay right on this disk"));
}

Result<WorkPrepared> Hands::lay_out(
    GuestEntry& entry,
    const GuestName& guest,
    const PrepareWork& w,
    const GenerationRef& from,
    AskedHolders& asked,
    const Cancelled& is_cancelled
) {
  RN_CHECK(check_guest_disk(deps_.fs, w.disk));
  const std::string folder = join_path(w.disk, "work");
  RN_CHECK(empty_folder(deps_.fs, folder));
  io::HttpSession session;
  const checkpoint::BlobSource blobs = [&](const Digest& name) -> Result<Blob> {
    if (is_cancelled) return fail(cancelled().error());
    return get_blob(session, name, is_cancelled);
  };
  RN_TRY(
      const auto laid,
      checkpoint::lay_workspace(deps_.fs, folder, entry.base, blobs, deps_.clock.now().wall)
  );
  (void)laid;
  RN_TRY(const auto work, deps_.fs.open_folder(folder));
  if (from.generation == 0) {
    RN_TRY(entry.cache, checkpoint::prime_cache(*work, entry.base, nullptr, deps_.clock));
    RN_CHECK(add_shared(entry, guest, w, asked, is_cancelled));
    return WorkPrepared{};
  }
  RN_TRY(
      const Manifest manifest, restore(guest, w, from, w.resume_from, nullptr, asked, is_cancelled)
  );
  RN_TRY(entry.cache, checkpoint::prime_cache(*work, entry.base, &manifest, deps_.clock));
  RN_CHECK(add_shared(entry, guest, w, asked, is_cancelled));
  return WorkPrepared{from, ""};
}

/// Of the other members of its gang, lower ranks first. What comes from them is no save of this
/// guest's: as long as it does not change it, it is part of no generation of its own, and is
/// brought anew, of another set, next time.
Status Hands::add_shared(
    GuestEntry& entry,
    const GuestName& guest,
    const PrepareWork& w,
    AskedHolders& asked,
    const Cancelled& is_cancelled
) {
  for (const wire::SharedGeneration& shared : w.shares) {
    if (shared.generation.generation == 0) continue;
    std::set<std::string> paths;
    const auto added =
        restore(guest, w, shared.generation, shared.resume_from, &paths, asked, is_cancelled);
    if (!added)
      return fail(added.error().with("the checkpoint of rank " + std::to_string(shared.rank)));
    for (const std::string& path : paths) {
      auto there = deps_.fs.stat(join_path(join_path(w.disk, "work"), path));
      if (!there) return fail(there.error());
      if (there->kind != FileStat::Kind::kRegular) continue;
      // No guest has run yet: a later write shows by the kernel's own time.
      const bool is_settled = there->changed_ns != 0 ||
                              checkpoint::SnapshotCache::is_settled(*there, deps_.clock.now().wall);
      entry.cache.put(
          {path, there->inode, there->size, there->mtime_ns, 0, true, is_settled, {}, {}}
      );
    }
  }
  return {};
}

Result<WorkResult> Hands::prepare(
    const GuestName& guest, const PrepareWork& w, const Cancelled& is_cancelled
) {
  const auto entry = deps_.guests.entry(guest);
  const std::lock_guard lock(entry->work);
  entry->is_base_known = false;
  RN_CHECK(load_base(*entry, guest, w.workspace, is_cancelled));
  AskedHolders asked;
  std::uint32_t wanted = w.resume.generation;
  auto prepared = lay_out(*entry, guest, w, w.resume, asked, is_cancelled);
  const bool is_lost = !prepared && answer_of(prepared.error().code) == HolderAnswer::kLacks;
  if (is_lost && !is_cancelled && w.resume.generation > 0 && w.resume_previous.generation > 0) {
    const std::string why = prepared.error().message;
    log::warning("restore.fell_back", {{"job", guest.job.str()}, {"why", why}});
    wanted = w.resume_previous.generation;
    prepared = lay_out(*entry, guest, w, w.resume_previous, asked, is_cancelled);
    if (prepared)
      prepared->note = "generation " + std::to_string(w.resume.generation) +
                       " could not be restored (" + why + "); took generation " +
                       std::to_string(w.resume_previous.generation);
  }
  const bool is_waiting = !prepared && prepared.error().code == ErrorCode::kUnavailable;
  if (is_waiting && !asked.silent.empty())
    return WorkResult(HoldersAway{wanted, std::move(asked.silent), prepared.error().message});
  if (!prepared) return fail(prepared.error());
  for (const auto& [node, why] : asked.lying)
    prepared->note += (prepared->note.empty() ? "" : "; ") + ("what " + node.str()) +
                      " served of it was not believed (" + why + ")";
  // What the watch compares with: older files are not news.
  const std::string marker = join_path(deps_.guests.folder(guest), "prepared");
  RN_CHECK(make_folders(deps_.fs, parent_folder(marker), 0700));
  RN_CHECK(
      write_durably(deps_.fs, marker, as_bytes(std::to_string(to_ms(deps_.clock.now().wall))), 0600)
  );
  return WorkResult(*std::move(prepared));
}

// ---- copies and garbage

Result<WorkResult> Hands::copy(
    const GuestName& guest,
    const CopyGeneration& w,
    const Cancelled& is_cancelled,
    const std::shared_ptr<checkpoint::ChunkTap>& tap,
    const std::shared_ptr<TransferGauge>& gauge
) {
  const nanoseconds cpu_before = io::thread_cpu_time();
  const auto paced = gauge != nullptr ? gauge : std::make_shared<TransferGauge>(w.rate_bps);
  RN_TRY(
      const checkpoint::PeerTarget target,
      target_of(*deps_.identity.get(), w.peer, paced, is_cancelled)
  );
  checkpoint::TransferStats stats;
  const auto send = [&]() -> Result<Receipt> {
    if (!w.is_ahead) {
      return checkpoint::send_generation(
          target, deps_.store, w.peer.ticket, w.generation.job, w.generation.manifest, &stats
      );
    }
    if (tap == nullptr) return fail(ErrorCode::kInvalid, "a copy ahead of nothing");
    deps_.guests.entry(guest)->feed.connect(tap);
    return checkpoint::send_ahead(target, deps_.store, w.peer.ticket, *tap, &stats);
  };
  auto receipt = send();
  if (!receipt) return fail(receipt.error());
  const nanoseconds cpu = io::thread_cpu_time() - cpu_before;
  log::info(
      "generation.copied",
      {{"job", w.generation.job.str()},
       {"generation", w.generation.generation},
       {"peer", w.peer.node.str()},
       {"bytes", stats.bytes},
       {"cpu_ms", cpu / milliseconds(1)},
       {"is_ahead", w.is_ahead},
       {"rate_bps", paced->look().socket.rate_bps},
       {"skipped_chunks", stats.skipped}}
  );
  return WorkResult(GenerationCopied{*std::move(receipt), stats.bytes, cpu});
}

Result<WorkResult> Hands::collect(const CollectGarbage& w) {
  RN_CHECK(collect_garbage(deps_.store, w));
  return WorkResult(Done{});
}

}  // namespace rn::agent
