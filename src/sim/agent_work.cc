// SPDX-License-Identifier: Apache-2.0
#include "sim/agent_work.h"

#include <algorithm>
#include <optional>

#include "base/planted.h"
#include "checkpoint/manifest.h"
#include "checkpoint/restore.h"
#include "checkpoint/snapshot.h"
#include "model/codec.h"
#include "sim/cluster.h"

namespace rn::sim {

namespace {

constexpr std::string_view kCheckpoint = "model.safetensors";

bool is_zero(const Digest& digest) {
  return digest == Digest{};
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

}  // namespace

AgentWork::AgentWork(AgentHost& host, Rng& rng) : host_(host), rng_(rng) {}

AgentWork::~AgentWork() = default;

checkpoint::ChunkStore* AgentWork::store() {
  if (store_) return store_.get();
  checkpoint::StoreOptions options;
  options.root = "/chunks";
  options.reserve_free_bytes = 0;
  auto opened =
      checkpoint::ChunkStore::open(host_.machine().disk(), host_.machine().clock(), options);
  if (!opened) {
    host_.world().trace(host_.machine().name(), "chunk store: " + opened.error().describe());
    return nullptr;
  }
  store_ = std::move(*opened);
  return store_.get();
}

nanoseconds AgentWork::length(const agent::Work& work) {
  const auto jitter = milliseconds(static_cast<std::int64_t>(rng_.below(40)));
  if (std::holds_alternative<agent::FetchImage>(work.body)) return milliseconds(800) + jitter;
  if (std::holds_alternative<agent::CopyGeneration>(work.body))
    return milliseconds(300) + 10 * jitter;
  if (std::holds_alternative<agent::ReadLog>(work.body)) return milliseconds(2);
  return milliseconds(60) + jitter;
}

agent::WorkResult AgentWork::carry_out(const agent::Work& work) {
  if (const auto* fetch = std::get_if<agent::FetchImage>(&work.body)) return fetch_image(*fetch);
  if (const auto* body = std::get_if<agent::PrepareWork>(&work.body)) return prepare(work, *body);
  if (const auto* take = std::get_if<agent::TakeSnapshot>(&work.body)) return snapshot(work, *take);
  if (const auto* body = std::get_if<agent::CopyGeneration>(&work.body)) return copy(*body);
  if (const auto* body = std::get_if<agent::UploadOutputs>(&work.body)) return upload(*body);
  if (const auto* read = std::get_if<agent::ReadLog>(&work.body)) return read_log(work, *read);
  if (const auto* body = std::get_if<agent::CollectGarbage>(&work.body)) return collect(*body);
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

Status AgentWork::fetch_generation(
    const GenerationRef& generation, const std::vector<PeerGrant>& peers
) {
  checkpoint::ChunkStore* mine = store();
  if (mine == nullptr) return fail(ErrorCode::kUnavailable, "the own store cannot be opened");
  if (mine->load_manifest(generation.job, generation.manifest) &&
      mine->verify(generation.job, generation.manifest))
    return {};
  Status last = fail(ErrorCode::kUnavailable, "no peer holds it");
  for (const PeerGrant& peer : peers) {
    const auto there = host_.site().agents.find(peer.node);
    if (there == host_.site().agents.end() || !there->second->process().is_up() ||
        there->second->process().is_paused())
      continue;
    if (!host_.site().can_talk(host_, *there->second)) continue;
    checkpoint::ChunkStore* theirs = there->second->work().store();
    if (theirs == nullptr) continue;
    last = [&]() -> Status {
      RN_TRY(
          const SignedManifest manifest, theirs->load_manifest(generation.job, generation.manifest)
      );
      RN_TRY(const Manifest parsed, checkpoint::parse_manifest(manifest.body));
      checkpoint::ChunkStore::Session session(*mine);
      for (const ChunkRef& chunk : parsed.chunks) {
        if (session.keep(chunk.cipher)) continue;
        RN_TRY(Blob stored, theirs->get(chunk.cipher));
        if (host_.site().is_liar(peer.node)) stored[stored.size() / 2] ^= 1;
        RN_CHECK(session.put(chunk.cipher, stored));
      }
      RN_CHECK(session.flush());
      RN_TRY(const GenerationRef kept, mine->put_manifest(manifest));
      return kept.manifest == generation.manifest
                 ? Status{}
                 : Status(fail(ErrorCode::kCorrupt, "another manifest"));
    }();
    if (last) return {};
  }
  return last;
}

agent::WorkResult AgentWork::prepare(const agent::Work& work, const agent::PrepareWork& prepare) {
  CrashFs& disk = host_.machine().disk();
  const std::string folder = work_folder(prepare.disk);
  if (!remove_tree(disk, folder) || !make_folders(disk, folder, 0755))
    return Error{ErrorCode::kUnavailable, "disk", ""};
  if (prepare.resume.generation == 0) return agent::WorkPrepared{};
  const auto key = open_job_key(host_.identity().box_key, prepare.sealed_job_key, work.guest.job);
  if (!key) return key.error();
  std::string note;
  for (const GenerationRef* wanted : {&prepare.resume, &prepare.resume_previous}) {
    if (wanted->generation == 0) continue;
    const Status there = fetch_generation(*wanted, prepare.resume_from);
    if (!there && is_retryable(there.error().code)) return there.error();
    const auto restored = [&]() -> Status {
      RN_CHECK(Status(there));
      RN_TRY(const SignedManifest manifest, store()->load_manifest(wanted->job, wanted->manifest));
      RN_TRY(const Manifest parsed, checkpoint::parse_manifest(manifest.body));
      RN_CHECK(remove_tree(disk, folder));
      RN_CHECK(make_folders(disk, folder, 0755));
      RN_TRY(
          const auto stats,
          checkpoint::restore_generation(
              disk,
              folder,
              parsed,
              checkpoint::derive_job_keys(*key),
              [this](const Digest& cipher) { return store()->get(cipher); }
          )
      );
      (void)stats;
      return {};
    }();
    if (restored) return agent::WorkPrepared{*wanted, note};
    note = restored.error().describe();
  }
  return Error{ErrorCode::kUnavailable, "no generation could be restored: " + note, ""};
}

bool AgentWork::has_news(const std::string& disk, const GenerationRef& since) {
  const auto state =
      read_checkpoint(host_.machine().disk(), work_folder(disk) + "/" + std::string(kCheckpoint));
  if (state.step == 0) return planted("agent.takes_torn_checkpoints");
  const TrainingState* known =
      since.generation == 0 ? nullptr : host_.site().checkers->captured(since.manifest);
  return known == nullptr || known->step != state.step;
}

agent::WorkResult AgentWork::snapshot(const agent::Work& work, const agent::TakeSnapshot& take) {
  CrashFs& disk = host_.machine().disk();
  const std::string file = work_folder(take.disk) + "/" + std::string(kCheckpoint);
  const auto bytes = read_all(disk, file, 4096);
  const auto state = bytes ? parse_checkpoint(*bytes) : Result<TrainingState>(fail(bytes.error()));
  if (!state && !planted("agent.takes_torn_checkpoints")) return agent::NothingNew{};
  if (take.parent.generation != 0) {
    const TrainingState* known = host_.site().checkers->captured(take.parent.manifest);
    if (known != nullptr && state && known->step == state->step) return agent::NothingNew{};
  }
  const auto key = open_job_key(host_.identity().box_key, take.sealed_job_key, work.guest.job);
  if (!key) return key.error();
  if (store() == nullptr)
    return Error{ErrorCode::kUnavailable, "the own store cannot be opened", ""};
  auto folder = disk.open_folder(work_folder(take.disk));
  if (!folder) return folder.error();
  const auto keys = checkpoint::derive_job_keys(*key);
  checkpoint::SnapshotRequest request;
  request.job = work.guest.job;
  request.epoch = take.epoch;
  request.generation = take.generation;
  request.parent = take.parent.manifest;
  request.unit = {std::string(kCheckpoint), false};
  request.temporary = take.spec.temporary;
  request.signer = host_.identity().node;
  checkpoint::SnapshotCache cache;
  const checkpoint::SnapshotDeps deps{
      **folder, *store_, host_.machine().clock(), rng_, keys, host_.identity().verify_key};
  const auto taken = checkpoint::take_snapshot(deps, request, cache);
  if (!taken) return taken.error();
  host_.site().checkers->on_snapshot(taken->ref, state ? std::optional(*state) : std::nullopt);
  for (const ChunkRef& chunk : taken->manifest.chunks) {
    if (const auto stored = store_->get(chunk.cipher))
      host_.site().checkers->on_chunk_stored(work.guest.job, *stored);
  }
  return agent::SnapshotTaken{taken->ref};
}

Result<Receipt> AgentWork::receive(
    AgentHost& source, const GenerationRef& generation, const PeerGrant& grant
) {
  checkpoint::ChunkStore* mine = store();
  checkpoint::ChunkStore* theirs = source.work().store();
  if (mine == nullptr || theirs == nullptr)
    return fail(ErrorCode::kUnavailable, "a store cannot be opened");
  const Ticket& ticket = grant.ticket;
  if (ticket.from != source.identity().node || ticket.to != host_.identity().node ||
      ticket.job != generation.job) {
    return fail(ErrorCode::kDenied, "the ticket is for another transfer");
  }
  RN_TRY(const SignedManifest manifest, theirs->load_manifest(generation.job, generation.manifest));
  RN_TRY(const Manifest parsed, checkpoint::parse_manifest(manifest.body));
  checkpoint::ChunkStore::Session session(*mine);
  for (const ChunkRef& chunk : parsed.chunks) {
    if (session.keep(chunk.cipher)) continue;
    RN_TRY(const Blob stored, theirs->get(chunk.cipher));
    RN_CHECK(session.put(chunk.cipher, stored));
  }
  RN_CHECK(session.flush());
  RN_TRY(const GenerationRef kept, mine->put_manifest(manifest));
  RN_CHECK(mine->verify(kept.job, kept.manifest));
  Receipt receipt{
      generation.job,
      generation.epoch,
      generation.generation,
      generation.manifest,
      host_.identity().node,
      grant.failure_domain,
      to_ms(host_.machine().clock().now().wall),
      {}};
  return checkpoint::sign_receipt(receipt, host_.identity().verify_key);
}

agent::WorkResult AgentWork::copy(const agent::CopyGeneration& copy) {
  const auto there = host_.site().agents.find(copy.peer.node);
  if (there == host_.site().agents.end()) return Error{ErrorCode::kNotFound, "no such peer", ""};
  AgentHost& peer = *there->second;
  if (!peer.process().is_up() || peer.process().is_paused() ||
      !host_.site().can_talk(host_, peer)) {
    return Error{ErrorCode::kUnavailable, "the peer does not answer", ""};
  }
  auto receipt = peer.work().receive(host_, copy.generation, copy.peer);
  if (!receipt) return receipt.error();
  return agent::GenerationCopied{*receipt};
}

agent::WorkResult AgentWork::upload(const agent::UploadOutputs& upload) {
  if (host_.world().network().is_cut(host_.machine().name(), CoordinatorHost::kName) ||
      !host_.site().coordinator->process().is_up()) {
    return Error{ErrorCode::kUnavailable, "the coordinator cannot be reached", ""};
  }
  auto bytes = read_all(host_.machine().disk(), work_folder(upload.disk) + "/final.bin", 4096);
  if (!bytes) return bytes.error();
  auto& blobs = host_.site().coordinator->blobs();
  const Digest content = crypto::sha256(*bytes);
  Listing listing;
  listing.files.push_back({"final.bin", FileKind::kRegular, 0644, bytes->size(), "", {content}});
  blobs[content] = *bytes;
  const Blob encoded = to_cbor(listing);
  const Digest name = crypto::sha256(encoded);
  blobs[name] = encoded;
  return agent::OutputsUploaded{name};
}

agent::WorkResult AgentWork::read_log(const agent::Work& work, const agent::ReadLog& read) {
  // The log of a simulated guest is one line per attempt; what matters is that it arrives once and
  // whole.
  const std::string line =
      "attempt " + work.guest.job.str() + " " + to_string(work.guest.epoch) + "\n";
  agent::LogRead out;
  out.offset = read.offset;
  out.spooled_bytes = line.size();
  if (read.offset < line.size() && read.max_bytes > 0) {
    const auto part = std::string_view(line).substr(read.offset, read.max_bytes);
    out.bytes.assign(part.begin(), part.end());
  }
  return out;
}

agent::WorkResult AgentWork::collect(const agent::CollectGarbage& collect) {
  if (store() == nullptr)
    return Error{ErrorCode::kUnavailable, "the own store cannot be opened", ""};
  if (collect.is_job_over) {
    const auto done = store_->forget(collect.job);
    if (!done) return done.error();
    return agent::Done{};
  }
  checkpoint::Retention retention;
  retention.job = collect.job;
  for (const GenerationRef& generation : store_->list(collect.job)) {
    if (generation.generation < collect.keep_from) continue;
    if (planted("store.collects_too_much")) continue;
    if (is_zero(retention.previous))
      retention.previous = generation.manifest;
    else if (is_zero(retention.acknowledged))
      retention.acknowledged = generation.manifest;
    retention.epoch = std::max(retention.epoch, generation.epoch);
  }
  if (is_zero(retention.acknowledged)) retention.acknowledged = retention.previous;
  const auto done = store_->collect(retention);
  if (!done) return done.error();
  return agent::Done{};
}

}  // namespace rn::sim
