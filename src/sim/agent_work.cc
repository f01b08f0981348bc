// SPDX-License-Identifier: Apache-2.0
#include "sim/agent_work.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "agent/guest_book.h"
#include "agent/local_work.h"
#include "base/planted.h"
#include "checkpoint/manifest.h"
#include "checkpoint/restore.h"
#include "checkpoint/snapshot.h"
#include "model/codec.h"
#include "sim/checkers.h"
#include "sim/checkers_gangs.h"
#include "sim/peer_port.h"
#include "sim/process_fs.h"

namespace rn::sim {

namespace {

constexpr std::string_view kCheckpoint = "model.safetensors";
constexpr std::uint64_t kFirstPort = 1024;  ///< of copies' own ends, as they are told
constexpr std::uint64_t kPorts = 60'000;
constexpr auto kImageLook = milliseconds(50);
constexpr auto kUploadLook = milliseconds(50);
constexpr double kUploadAtMost = 1.25e9;  ///< bytes/s, where nothing is said

// What works take of a processor, in nanoseconds: about as in docs/results.md.
constexpr std::uint64_t kTakingOnce = 5'000'000;
constexpr std::uint64_t kTakingByte = 6;
constexpr std::uint64_t kSendingOnce = 8'000'000;
constexpr std::uint64_t kSendingByte = 3;

nanoseconds cpu_of(std::uint64_t once, std::uint64_t per_byte, std::uint64_t bytes) {
  return nanoseconds(static_cast<std::int64_t>(once + per_byte * bytes));
}

agent::GenerationCopied copied(const Receipt& receipt, std::uint64_t bytes) {
  return {receipt, bytes, cpu_of(kSendingOnce, kSendingByte, bytes)};
}

std::string spool_folder(const GuestName& guest) {
  return "/spool/" + guest.job.str() + "-" + to_string(guest.epoch);
}

std::string work_folder(const std::string& disk) {
  return disk + "/work";
}

Result<crypto::Key256> open_job_key(const crypto::BoxKey& box, BlobView sealed, const JobId& job) {
  RN_TRY(const Blob raw, crypto::open_sealed(box, sealed, as_bytes(job.str())));
  crypto::Key256 key{};
  if (raw.size() != key.size()) return fail(ErrorCode::kCorrupt, "a job key is 32 bytes");
  std::copy(raw.begin(), raw.end(), key.begin());
  return key;
}

constexpr std::uint64_t kFrozenBytesLeast = 128U << 10;  // all others are of some bytes

bool is_mostly_frozen(const Manifest& manifest) {
  return std::any_of(manifest.files.begin(), manifest.files.end(), [](const FileEntry& file) {
    return file.path == kCheckpoint && file.bytes > kFrozenBytesLeast;
  });
}

}  // namespace

/// A sender that is fed by the snapshot under way.
class AgentWork::Ahead final : public checkpoint::PeerEnd {
 public:
  Ahead(checkpoint::ChunkStore& store, const Ticket& ticket, GuestName guest)
      : store_(store), sender_(store, ticket), guest_(std::move(guest)) {}

  void offer(const checkpoint::FreshChunk& chunk) { waiting_.push_back(chunk); }

  void release(const GenerationRef& generation) { released_ = generation; }

  const GuestName& guest() const { return guest_; }

  const Result<Receipt>& outcome() const { return sender_.outcome(); }

  std::uint64_t sent_bytes() const { return sender_.stats().bytes; }

  std::optional<checkpoint::PeerFrame> next() override {
    if (sender_.is_hungry() && !waiting_.empty()) {
      sender_.offer(std::move(waiting_.front()));
      waiting_.pop_front();
    } else if (sender_.is_hungry() && released_) {
      auto sealed = store_.load_manifest(released_->job, released_->manifest);
      auto parsed = sealed ? checkpoint::parse_manifest(sealed->body)
                           : Result<Manifest>(fail(sealed.error()));
      if (!parsed) {
        is_broken_ = true;
        return std::nullopt;
      }
      sender_.release(*std::move(sealed), *std::move(parsed));
    }
    return sender_.next();
  }

  void on_frame(checkpoint::PeerFrameType type, BlobView body) override {
    sender_.on_frame(type, body);
  }

  std::optional<std::uint64_t> bytes_left() const override { return sender_.bytes_left(); }

  bool is_finished() const override { return is_broken_ || sender_.is_finished(); }

 private:
  checkpoint::ChunkStore& store_;
  checkpoint::StoreSender sender_;
  GuestName guest_;
  std::deque<checkpoint::FreshChunk> waiting_;
  std::optional<GenerationRef> released_;
  bool is_broken_ = false;
};

AgentWork::AgentWork(AgentHost& host, Rng& rng) : host_(host), rng_(rng) {}

AgentWork::~AgentWork() = default;

bool AgentWork::open_store() {
  checkpoint::StoreOptions options;
  options.root = "/chunks";
  options.reserve_free_bytes = 0;
  auto opened = checkpoint::ChunkStore::open(host_.fs(), host_.machine().clock(), options);
  if (!opened) {
    host_.world().trace(host_.machine().name(), "chunk store: " + opened.error().describe());
    return false;
  }
  store_ = std::move(*opened);
  return true;
}

nanoseconds AgentWork::length(const agent::Work& work) {
  const nanoseconds more = jitter();
  if (std::holds_alternative<agent::FetchImage>(work.body)) return milliseconds(800) + more;
  if (std::holds_alternative<agent::CopyGeneration>(work.body)) return more;
  if (std::holds_alternative<agent::ReadLog>(work.body)) return milliseconds(2);
  return milliseconds(60) + more;
}

nanoseconds AgentWork::jitter() {
  return milliseconds(static_cast<std::int64_t>(rng_.below(40)));
}

void AgentWork::begin(const agent::Work& work, const Done& done) {
  if (const auto* body = std::get_if<agent::CopyGeneration>(&work.body))
    return body->is_ahead ? copy_ahead(work, *body, done) : copy(work, *body, done);
  if (std::holds_alternative<agent::TakeSnapshot>(work.body)) {
    // The process learns of it a little later: chunks are on their way meanwhile.
    auto result = carry_out(work);
    if (host_.dies_if_disk_did()) return;
    return host_.process().later(jitter(), [done, result = std::move(result)] { done(result); });
  }
  if (const auto* body = std::get_if<agent::PrepareWork>(&work.body))
    return prepare(work, *body, done);
  if (const auto* body = std::get_if<agent::FetchImage>(&work.body))
    return fetch_over_lines(*body, done);
  if (const auto* body = std::get_if<agent::UploadOutputs>(&work.body))
    return begin_upload(work, *body, done);
  done(carry_out(work));
}

void AgentWork::release(agent::WorkId id, const GenerationRef& generation) {
  const auto found = ahead_.find(id);
  if (found == ahead_.end()) {
    released_[id] = generation;
    return;
  }
  found->second->release(generation);
  host_.peers().go_on(transfers_.at(id));
}

void AgentWork::set_rate(agent::WorkId id, std::uint64_t rate_bps) {
  copies_[id] = rate_bps;
  const auto found = transfers_.find(id);
  if (found != transfers_.end()) host_.peers().pace(found->second, rate_bps);
  const auto upload = uploads_.find(id);
  if (upload == uploads_.end()) return;
  const double rate = static_cast<double>(rate_bps) / 8;
  host_.world().lines().pace(upload->second.sender, rate > 0 ? rate : kUploadAtMost);
}

void AgentWork::leave_lines() {
  for (const auto& [id, upload] : uploads_) host_.world().lines().end(upload.sender);
  uploads_.clear();
}

std::vector<agent::TransferProgress> AgentWork::progress() const {
  std::vector<agent::TransferProgress> out;
  for (const auto& [id, rate_bps] : copies_) {
    const auto found = transfers_.find(id);
    if (found == transfers_.end()) continue;
    const PeerPort::Progress seen = host_.peers().progress(found->second);
    const std::string port = std::to_string(kFirstPort + found->second % kPorts);
    out.push_back({id, seen.bytes_left, seen.bytes_sent, "10.0.0.1:" + port, "10.0.0.2:7445"});
  }
  for (const auto& [id, upload] : uploads_) {
    const std::string port = std::to_string(kFirstPort + id % kPorts);
    const auto left = static_cast<std::uint64_t>(upload.left);
    const auto sent = static_cast<std::uint64_t>(upload.sent);
    out.push_back({id, left, sent, "10.0.0.1:" + port, "10.0.0.9:7443"});
  }
  return out;
}

void AgentWork::stop(agent::WorkId id) {
  ahead_.erase(id);
  copies_.erase(id);
  released_.erase(id);
  if (const auto upload = uploads_.extract(id)) host_.world().lines().end(upload.mapped().sender);
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  host_.peers().stop(found->second);
  transfers_.erase(found);
}

agent::WorkResult AgentWork::carry_out(const agent::Work& work) {
  if (const auto* take = std::get_if<agent::TakeSnapshot>(&work.body)) return snapshot(work, *take);
  if (const auto* read = std::get_if<agent::ReadLog>(&work.body)) return read_log(work, *read);
  if (const auto* body = std::get_if<agent::CollectGarbage>(&work.body)) return collect(*body);
  if (std::holds_alternative<agent::ListHoldings>(work.body))
    return agent::HoldingsListed{store_->jobs()};
  if (std::holds_alternative<agent::ForgetAttempt>(work.body)) {
    if (const Status gone = remove_tree(host_.fs(), spool_folder(work.guest)); !gone)
      return gone.error();
  }
  return agent::Done{};
}

agent::WorkResult AgentWork::fetch_image(const agent::FetchImage& fetch) {
  for (const Digest& blob : fetch.blobs) {
    if (!host_.site().coordinator->blobs().contains(blob))
      return Error{ErrorCode::kNotFound, "no such blob", ""};
  }
  if (host_.world().network().is_cut(host_.machine().name(), CoordinatorHost::kName)) {
    return Error{ErrorCode::kUnavailable, "the coordinator cannot be reached", ""};
  }
  return agent::ImageFetched{"/images/" + fetch.digest};
}

void AgentWork::fetch_over_lines(const agent::FetchImage& fetch, const Done& done) {
  agent::WorkResult whole = fetch_image(fetch);
  const double bytes = host_.site().image_bytes;
  if (bytes == 0 || std::holds_alternative<Error>(whole)) return done(std::move(whole));
  const Digest& blob = fetch.blobs.front();
  const std::string& to = host_.process().name();
  const auto left = host_.site().coordinator->serve(host_.identity().node, to, blob, bytes);
  if (!left) return done(left.error());
  if (*left == 0) return done(std::move(whole));
  host_.process().later(kImageLook, [&host = host_, fetch, done] {
    host.work().fetch_over_lines(fetch, done);
  });
}

/// A resume under way: the wanted generation from its holders in turn, then the one before it if
/// that is lost. The same order and the same decisions as agent::Hands.
struct AgentWork::Resume {
  agent::WorkId id = 0;
  GuestName guest;
  agent::PrepareWork prepare;
  Done done;
  bool is_previous = false;
  std::size_t peer = 0;
  std::vector<agent::HolderAnswer> answers;
  std::vector<NodeId> silent;  ///< of them, who gave no word
  std::string note;
  int restores = 0;                        ///< tried so far, of the wanted one
  bool is_damaged_here = false;            ///< by the last of them
  agent::WorkPrepared prepared = {};       ///< with its own generation
  std::optional<std::size_t> shared = {};  ///< of which other member's it is the turn
  std::set<std::string> missing = {};      ///< files that this one brings

  const GenerationRef& wanted() const {
    if (shared) return prepare.shares[*shared].generation;
    return is_previous ? prepare.resume_previous : prepare.resume;
  }

  const std::vector<PeerGrant>& peers() const {
    return shared ? prepare.shares[*shared].resume_from : prepare.resume_from;
  }

  /// Another generation's turn.
  void begin_anew() {
    restores = 0;
    peer = 0;
    answers.clear();
    silent.clear();
  }
};

void AgentWork::prepare(
    const agent::Work& work, const agent::PrepareWork& prepare, const Done& done
) {
  const std::string folder = work_folder(prepare.disk);
  // A real agent cannot make an attempt's disk: its parent is the warden's.
  if (const auto disk = host_.fs().stat(prepare.disk); !disk) return done(disk.error());
  if (!remove_tree(host_.fs(), folder) || !make_folders(host_.fs(), folder, 0755))
    return done(Error{ErrorCode::kUnavailable, "disk", ""});
  const auto resume = std::make_shared<Resume>(Resume{
      work.id, work.guest, prepare, done, {}, {}, {}, {}, {}, {}, {}});
  if (prepare.resume.generation == 0) return resume_shared(resume, agent::WorkPrepared{});
  resume_next(resume);
}

/// Own generation is there: those of the other members come, one after the other.
void AgentWork::resume_shared(const std::shared_ptr<Resume>& resume, agent::WorkPrepared prepared) {
  if (!resume->shared) resume->prepared = std::move(prepared);
  const auto& shares = resume->prepare.shares;
  std::size_t at = resume->shared ? *resume->shared + 1 : 0;
  while (at < shares.size() && shares[at].generation.generation == 0) ++at;
  if (at >= shares.size()) return resume->done(resume->prepared);
  resume->shared = at;
  resume->begin_anew();
  resume_next(resume);
}

void AgentWork::resume_next(const std::shared_ptr<Resume>& resume) {
  const GenerationRef& wanted = resume->wanted();
  if (resume->peer == 0 && store_->load_manifest(wanted.job, wanted.manifest) &&
      store_->verify(wanted.job, wanted.manifest))
    return resume_fetched(resume, {});
  const auto& peers = resume->peers();
  while (resume->peer < peers.size() && peers[resume->peer].node == host_.identity().node)
    ++resume->peer;
  if (resume->peer >= peers.size()) {
    const bool is_lost = agent::may_fall_back(resume->answers);
    if (!is_lost)
      return resume->done(agent::HoldersAway{
          wanted.generation, resume->silent, "holders give no word"});
    return resume_fetched(resume, fail(ErrorCode::kNotFound, "no peer serves it"));
  }
  const PeerGrant& peer = peers[resume->peer++];
  AgentHost& there = *host_.site().agents.at(peer.node);
  const NodeId fetched_from = peer.node;
  const auto fetcher = std::make_shared<checkpoint::Fetcher>(
      *store_, checkpoint::FetchRequest{peer.ticket, wanted.manifest, {}}
  );
  transfers_[resume->id] =
      host_.peers().run(there, fetcher, [this, resume, fetcher, fetched_from](Status connection) {
        transfers_.erase(resume->id);
        if (fetcher->is_finished() && fetcher->outcome() && fetcher->outcome()->generation)
          return resume_fetched(resume, {});
        const ErrorCode code = !fetcher->is_finished() && !connection ? connection.error().code
                               : fetcher->outcome()                   ? ErrorCode::kNotFound
                                                    : fetcher->outcome().error().code;
        resume->answers.push_back(agent::answer_of(code));
        if (resume->answers.back() == agent::HolderAnswer::kNoWord)
          resume->silent.push_back(fetched_from);
        resume_next(resume);
      });
}

void AgentWork::resume_fetched(const std::shared_ptr<Resume>& resume, const Status& there) {
  const GenerationRef& wanted = resume->wanted();
  const Status restored = there ? restore(*resume, wanted) : there;
  if (restored) return resume_shared(resume, agent::WorkPrepared{wanted, resume->note});
  if (std::exchange(resume->is_damaged_here, false)) {
    if (++resume->restores >= agent::kRestoresMax)
      return resume->done(Error{ErrorCode::kUnavailable, restored.error().message, ""});
    resume->peer = 0;
    resume->answers.clear();
    resume->silent.clear();
    return resume_next(resume);
  }
  const bool is_lost = agent::answer_of(restored.error().code) == agent::HolderAnswer::kLacks;
  if (!is_lost || resume->shared || resume->is_previous ||
      resume->prepare.resume_previous.generation == 0)
    return resume->done(restored.error());
  resume->note = restored.error().describe();
  resume->is_previous = true;
  resume->begin_anew();
  resume_next(resume);
}

Status AgentWork::restore(Resume& resume, const GenerationRef& wanted) {
  const std::string folder = work_folder(resume.prepare.disk);
  RN_TRY(
      const auto key,
      open_job_key(host_.identity().box_key, resume.prepare.sealed_job_key, resume.guest.job)
  );
  RN_TRY(const SignedManifest manifest, store_->load_manifest(wanted.job, wanted.manifest));
  RN_TRY(Manifest parsed, checkpoint::parse_manifest(manifest.body));
  if (resume.shared) {
    if (resume.restores == 0)
      resume.missing =
          agent::missing_of(host_.fs(), folder, resume.prepare.checkpoint_paths, parsed);
    agent::leave_but(parsed, resume.missing);
  } else {
    RN_CHECK(remove_tree(host_.fs(), folder));
    RN_CHECK(make_folders(host_.fs(), folder, 0755));
  }
  return checkpoint::restore_generation(
             host_.fs(),
             folder,
             parsed,
             checkpoint::derive_job_keys(key),
             [&](const Digest& cipher) {
               auto stored = store_->get(cipher);
               resume.is_damaged_here =
                   !stored && agent::answer_of(stored.error().code) == agent::HolderAnswer::kLacks;
               return stored;
             }
  ).map([](const auto&) {});
}

bool AgentWork::has_news(const std::string& disk, const GenerationRef& since) {
  const auto state =
      read_checkpoint(host_.machine().disk(), work_folder(disk) + "/" + checkpoint_in(disk));
  if (state.step == 0) return planted("agent.takes_torn_checkpoints");
  const TrainingState* known =
      since.generation == 0 ? nullptr : host_.site().checkers->captured(since.manifest);
  return known == nullptr || known->step != state.step;
}

/// Of a member that saves nothing it is a name that no file has: what lies there is rank 0's.
std::string AgentWork::checkpoint_in(const std::string& disk) const {
  for (const auto& [guest, container] : host_.machine().containers()) {
    if (container.work != work_folder(disk)) continue;
    return container.training.saves() ? container.training.checkpoint_name() : "none";
  }
  return std::string(kCheckpoint);
}

/// Of the generation before, where most of it is frozen: that is not new. (All else of a save is,
/// so that what a story says of a generation is true of its every byte.)
checkpoint::SnapshotCache AgentWork::known_chunks(const GenerationRef& parent) {
  checkpoint::SnapshotCache cache;
  if (parent.generation == 0) return cache;
  const auto manifest = store_->load_manifest(parent.job, parent.manifest);
  if (!manifest) return cache;
  const auto parsed = checkpoint::parse_manifest(manifest->body);
  if (parsed && is_mostly_frozen(*parsed)) cache.add_chunks(*parsed);
  return cache;
}

agent::WorkResult AgentWork::snapshot(const agent::Work& work, const agent::TakeSnapshot& take) {
  FileSystem& disk = host_.fs();
  const std::string unit = checkpoint_in(take.disk);
  const std::string file = work_folder(take.disk) + "/" + unit;
  const auto bytes = read_all(disk, file, kCheckpointBytesMost);
  const auto state = bytes ? parse_checkpoint(*bytes) : Result<TrainingState>(fail(bytes.error()));
  if (!state && !planted("agent.takes_torn_checkpoints")) return agent::NothingNew{};
  if (take.parent.generation != 0) {
    const TrainingState* known = host_.site().checkers->captured(take.parent.manifest);
    if (known != nullptr && state && known->step == state->step) return agent::NothingNew{};
  }
  const auto key = open_job_key(host_.identity().box_key, take.sealed_job_key, work.guest.job);
  if (!key) return key.error();
  auto folder = disk.open_folder(work_folder(take.disk));
  if (!folder) return folder.error();
  const auto keys = checkpoint::derive_job_keys(*key);
  checkpoint::SnapshotRequest request;
  request.job = work.guest.job;
  request.epoch = take.epoch;
  request.generation = take.generation;
  request.parent = take.parent.manifest;
  if (state && state->size > 1) request.step = static_cast<std::int64_t>(state->step);
  request.unit = {unit, false};
  request.temporary = agent::temporary_globs(take.spec);
  request.signer = host_.identity().node;
  request.offer = [&](const checkpoint::FreshChunk& chunk) { offer(work.guest, chunk); };
  checkpoint::SnapshotCache cache = known_chunks(take.parent);
  const checkpoint::SnapshotDeps deps{
      **folder, *store_, host_.machine().clock(), rng_, keys, host_.identity().verify_key};
  const auto taken = checkpoint::take_snapshot(deps, request, cache);
  if (!taken) return taken.error();
  host_.site().checkers->on_snapshot(taken->ref, state ? std::optional(*state) : std::nullopt);
  host_.site().gangs->on_snapshot(taken->ref);
  for (const ChunkRef& chunk : taken->manifest.chunks) {
    if (const auto stored = store_->get(chunk.cipher))
      host_.site().checkers->on_chunk_stored(work.guest.job, *stored);
  }
  return agent::SnapshotTaken{taken->ref, cpu_of(kTakingOnce, kTakingByte, taken->stats.new_bytes)};
}

void AgentWork::offer(const GuestName& guest, const checkpoint::FreshChunk& chunk) {
  for (const auto& [id, ahead] : ahead_) {
    if (ahead->guest() != guest) continue;
    ahead->offer(chunk);
    host_.peers().go_on(transfers_.at(id));
  }
}

void AgentWork::copy_ahead(
    const agent::Work& work, const agent::CopyGeneration& copy, const Done& done
) {
  const auto there = host_.site().agents.find(copy.peer.node);
  if (there == host_.site().agents.end())
    return done(Error{ErrorCode::kNotFound, "no such peer", ""});
  const auto ahead = std::make_shared<Ahead>(*store_, copy.peer.ticket, work.guest);
  if (const auto released = released_.extract(work.id)) ahead->release(released.mapped());
  ahead_[work.id] = ahead;
  const auto ended = [this, id = work.id, ahead, done](const Status& broken) {
    transfers_.erase(id);
    copies_.erase(id);
    ahead_.erase(id);
    if (ahead->is_finished()) {
      if (!ahead->outcome()) return done(ahead->outcome().error());
      return done(copied(*ahead->outcome(), ahead->sent_bytes()));
    }
    if (!broken) return done(broken.error());
    done(Error{ErrorCode::kUnavailable, "the connection ended early", ""});
  };
  transfers_[work.id] = host_.peers().run(*there->second, ahead, ended);
  set_rate(work.id, copies_.try_emplace(work.id, copy.rate_bps).first->second);
}

void AgentWork::copy(const agent::Work& work, const agent::CopyGeneration& copy, const Done& done) {
  const agent::WorkId id = work.id;
  const auto there = host_.site().agents.find(copy.peer.node);
  auto sealed = store_->load_manifest(copy.generation.job, copy.generation.manifest);
  if (there == host_.site().agents.end() || !sealed)
    return done(Error{ErrorCode::kNotFound, "no such peer, or no such generation", ""});
  auto parsed = checkpoint::parse_manifest(sealed->body);
  if (!parsed) return done(parsed.error());
  const auto sender = std::make_shared<checkpoint::StoreSender>(
      *store_, copy.peer.ticket, *std::move(sealed), *std::move(parsed)
  );
  transfers_[id] = host_.peers()
                       .run(
                           *there->second,
                           sender,
                           [this, id, sender, done](Status connection) {
                             transfers_.erase(id);
                             copies_.erase(id);
                             if (!sender->is_finished())
                               return done(connection ? Error{ErrorCode::kUnavailable, "the connection ended early", ""}
                                 : connection.error());
                             if (!sender->outcome()) return done(sender->outcome().error());
                             done(copied(*sender->outcome(), sender->stats().bytes));
                           }
                       );
  set_rate(id, copies_.try_emplace(id, copy.rate_bps).first->second);
}

void AgentWork::begin_upload(
    const agent::Work& work, const agent::UploadOutputs& body, const Done& done
) {
  const std::uint64_t rate_bps = copies_.try_emplace(work.id, body.rate_bps).first->second;
  const double bytes = host_.site().output_bytes;
  if (bytes == 0) {
    copies_.erase(work.id);
    return done(upload(work, body));
  }
  Lines& lines = host_.world().lines();
  const Lines::Sender sender = lines.begin(host_.process().name(), CoordinatorHost::kName);
  uploads_[work.id] = {bytes, 0, host_.world().now(), sender};
  set_rate(work.id, rate_bps);
  go_on_uploading(work, body, done);
}

void AgentWork::go_on_uploading(
    const agent::Work& work, const agent::UploadOutputs& body, const Done& done
) {
  const auto found = uploads_.find(work.id);
  if (found == uploads_.end()) return;  // stopped
  Upload& one = found->second;
  const TrueTime now = host_.world().now();
  const double span_s = std::chrono::duration<double>(now - one.at).count();
  const double carried = std::min(host_.world().lines().rate_of(one.sender) * span_s, one.left);
  one.at = now;
  one.left -= carried;
  one.sent += carried;
  if (one.left < 1) {
    stop(work.id);
    return done(upload(work, body));
  }
  host_.process().later(kUploadLook, [&host = host_, work, body, done] {
    host.work().go_on_uploading(work, body, done);
  });
}

agent::WorkResult AgentWork::upload(const agent::Work& work, const agent::UploadOutputs& upload) {
  if (host_.world().network().is_cut(host_.machine().name(), CoordinatorHost::kName) ||
      !host_.site().coordinator->process().is_up()) {
    return Error{ErrorCode::kUnavailable, "the coordinator cannot be reached", ""};
  }
  auto& disk = host_.machine().disk();
  auto bytes = read_all(disk, work_folder(upload.disk) + "/final.bin", 4096);
  const bool is_none = !bytes && bytes.error().code == ErrorCode::kNotFound;
  if (is_none && disk.stat(work_folder(upload.disk))) {  // its guest wrote none: no error
    host_.site().checkers->on_upload(work.guest.job, work.guest.epoch, {});
    return agent::OutputsUploaded{};
  }
  if (!bytes) return bytes.error();
  auto& blobs = host_.site().coordinator->blobs();
  const Digest content = crypto::sha256(*bytes);
  Listing listing;
  listing.files.push_back({"final.bin", FileKind::kRegular, 0644, bytes->size(), "", {content}});
  blobs[content] = *bytes;
  const Blob encoded = to_cbor(listing);
  const Digest name = crypto::sha256(encoded);
  blobs[name] = encoded;
  host_.site().checkers->on_upload(work.guest.job, work.guest.epoch, name);
  return agent::OutputsUploaded{name};
}

agent::WorkResult AgentWork::read_log(const agent::Work& work, const agent::ReadLog& read) {
  const std::string folder = spool_folder(work.guest);
  if (const Status made = make_folders(host_.fs(), folder, 0700); !made) return made.error();
  auto out = agent::read_log(host_.fs(), folder + "/log", read.disk, read);
  if (!out) return out.error();
  return *std::move(out);
}

agent::WorkResult AgentWork::collect(const agent::CollectGarbage& collect) {
  const Status done = agent::collect_garbage(*store_, collect);
  host_.site().checkers->on_collected(host_, collect.job);
  if (!done) return done.error();
  return agent::Done{};
}

}  // namespace rn::sim
