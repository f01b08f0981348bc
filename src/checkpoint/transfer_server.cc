// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/crypto.h"
#include "base/log.h"
#include "base/planted.h"
#include "checkpoint/manifest.h"
#include "checkpoint/transfer.h"
#include "model/codec.h"

namespace rn::checkpoint {

namespace {

constexpr std::uint64_t kSealedBytesMax = kManifestBytesMax + 4096;

/// It is not here, or it is and is not right.
bool is_lack(const Error& error) {
  return error.code == ErrorCode::kNotFound || error.code == ErrorCode::kCorrupt;
}

}  // namespace

PeerServer::PeerServer(const PeerServerDeps& deps, NodeId peer)
    : deps_(deps), peer_(std::move(peer)) {
  sessions_.push_back(std::make_unique<ChunkStore::Session>(deps_.store));
}

PeerServer::~PeerServer() {
  // The connection broke: what arrived whole is kept, and the sender, when it comes again, is told
  // so.
  (void)end_flush();
  if (unflushed_ > 0) (void)sessions_.back()->flush();
  if (!receipt_ && !arrived_.empty()) deps_.store.leave(ticket_->job, arrived_);
}

std::optional<PeerFrame> PeerServer::next() {
  if (!replies_.empty()) {
    PeerFrame frame = std::move(replies_.front());
    replies_.pop_front();
    return frame;
  }
  if (is_finished_ || to_serve_.empty()) return std::nullopt;
  const Digest cipher = to_serve_.front();
  to_serve_.pop_front();
  asked_bytes_ -= std::min(asked_bytes_, source().stored_bytes(cipher).value_or(0));
  if (to_serve_.empty()) asked_bytes_ = 0;
  return serve(cipher);
}

void PeerServer::on_frame(PeerFrameType type, BlobView body) {
  if (is_finished_) return;
  const auto handled = handle(type, body);
  if (handled) return;
  log::info("peer.refused", {{"peer", peer_.str()}, {"why", handled.error().describe()}});
  refusal_ = handled.error();
  replies_.clear();
  to_serve_.clear();
  replies_.push_back(encode_refusal(handled.error()));
  is_finished_ = true;
}

Status PeerServer::handle(PeerFrameType type, BlobView body) {
  if (type == PeerFrameType::kHello && !ticket_) return on_hello(body);
  if (!ticket_) return fail(ErrorCode::kDenied, "a ticket comes first");
  if (!to_serve_.empty())
    return fail(ErrorCode::kInvalid, "a question before the last one was answered");
  const bool is_store = ticket_->action == TicketAction::kStore;
  switch (type) {
    case PeerFrameType::kAsk:
      if (is_store) return on_ask(body);
      break;
    case PeerFrameType::kChunk:
      if (is_store) return on_chunk(body);
      break;
    case PeerFrameType::kManifest:
      if (is_store) return on_manifest(body);
      break;
    case PeerFrameType::kWantManifest:
      if (ticket_->action == TicketAction::kFetch) return on_want_manifest(body);
      break;
    case PeerFrameType::kWantChunks:
      if (!is_store) return on_want_chunks(body);
      break;
    case PeerFrameType::kHello:
    case PeerFrameType::kWelcome:
    case PeerFrameType::kRefused:
    case PeerFrameType::kHave:
    case PeerFrameType::kReceipt:
    case PeerFrameType::kAbsent:
      break;
  }
  return fail(ErrorCode::kInvalid, "the ticket does not allow this, or not now");
}

// --- tickets
// ----------------------------------------------------------------------------------------------------------

Status PeerServer::check_ticket(const Ticket& ticket) const {
  const std::string hint = "ask the coordinator for a new ticket";
  if (!is_signed_by(ticket, deps_.ticket_key) && !planted("holder.serves_any_ticket"))
    return fail(ErrorCode::kDenied, "the ticket is not signed by the coordinator", hint);
  if (ticket.to != deps_.self)
    return fail(
        ErrorCode::kDenied,
        "the ticket is for " + ticket.to.str() + ", this is " + deps_.self.str(),
        hint
    );
  if (ticket.from != peer_) {
    return fail(
        ErrorCode::kDenied,
        "the ticket is " + ticket.from.str() + "'s, the connection " + peer_.str() + "'s",
        hint
    );
  }
  const std::int64_t tolerance_ms =
      std::chrono::duration_cast<milliseconds>(deps_.clock_tolerance).count();
  if (to_ms(deps_.clock.now().wall) > ticket.expiry_wall_ms + tolerance_ms) {
    return fail(
        ErrorCode::kDenied,
        "the ticket has expired",
        "ask for a new ticket; check this node's clock"
    );
  }
  if (ticket.action == TicketAction::kLink)
    return fail(ErrorCode::kDenied, "the ticket is for a link, not for a transfer", hint);
  if (ticket.action == TicketAction::kFetchImage) {
    return deps_.images != nullptr ? Status{}
                                   : fail(ErrorCode::kUnsupported, "this node serves no images");
  }
  if (!is_valid_job_id(ticket.job) || ticket.epoch.is_none())
    return fail(ErrorCode::kInvalid, "the ticket names no job or no epoch");
  return check_epoch(ticket);
}

/// Fencing: neither what this node heard nor what it stores may be newer than the ticket's attempt.
Status PeerServer::check_epoch(const Ticket& ticket) const {
  LeaseEpoch newest = deps_.newest_epoch ? deps_.newest_epoch(ticket.job) : LeaseEpoch{};
  for (const GenerationRef& ref : deps_.store.list(ticket.job))
    newest = std::max(newest, ref.epoch);
  if (ticket.epoch >= newest) return {};
  return fail(
      ErrorCode::kConflict,
      "epoch " + to_string(ticket.epoch) + " of " + ticket.job.str() +
          " is stale: " + to_string(newest) + " is known here",
      "the attempt is fenced; stop it"
  );
}

Status PeerServer::on_hello(BlobView body) {
  RN_TRY(const PeerHello hello, decode_hello(body));
  const std::uint32_t protocol = std::min(hello.protocol, kPeerProtocol);
  if (protocol < kPeerProtocolOldest || protocol < hello.oldest_protocol) {
    return fail(ErrorCode::kUnsupported, "no common protocol version", "upgrade the older node");
  }
  RN_CHECK(check_ticket(hello.ticket));
  ticket_ = hello.ticket;
  if (ticket_->action != TicketAction::kStore && deps_.on_fetch) deps_.on_fetch(*ticket_);
  replies_.push_back(encode_welcome({protocol}));
  return {};
}

Status PeerServer::count(std::uint64_t bytes) {
  if (bytes > ticket_->max_bytes || moved_ > ticket_->max_bytes - bytes) {
    return fail(
        ErrorCode::kExhausted,
        "the ticket allows " + std::to_string(ticket_->max_bytes) + " bytes",
        "ask for a larger ticket"
    );
  }
  moved_ += bytes;
  return {};
}

// --- store
// ------------------------------------------------------------------------------------------------------------

/// On another thread, if the daemon says so. One batch at once.
Status PeerServer::begin_flush() {
  RN_CHECK(end_flush());
  if (unflushed_ == 0) return {};
  unflushed_ = 0;
  sessions_.push_back(std::make_unique<ChunkStore::Session>(deps_.store));
  ChunkStore::Session& batch = *sessions_[sessions_.size() - 2];
  flushing_ = std::async(deps_.flush, [&batch] { return batch.flush(); });
  return {};
}

/// Waits for the batch that is being made durable and read back, if there is one.
Status PeerServer::end_flush() {
  if (!flushing_.valid()) return {};
  const Status flushed = flushing_.get();
  if (!flushed)
    return fail(flushed.error()
                    .with("making the generation durable and reading it back from the medium")
                    .hinting("send it again"));
  return {};
}

Status PeerServer::on_ask(BlobView body) {
  RN_TRY(const auto digests, decode_digests(body));
  const bool is_on_its_way = std::any_of(digests.begin(), digests.end(), [&](const Digest& one) {
    return arrived_.contains(one);
  });
  if (is_on_its_way) {
    RN_CHECK(begin_flush());
    RN_CHECK(end_flush());
  }
  std::vector<bool> have(digests.size());
  for (std::size_t i = 0; i < digests.size(); ++i) {
    have[i] = sessions_.back()->keep(digests[i]);  // and it stays until the manifest is here
    stats_.skipped += have[i] ? 1 : 0;
  }
  replies_.push_back(encode_have(have));
  return {};
}

Status PeerServer::on_chunk(BlobView body) {
  RN_TRY(const ChunkBody chunk, decode_chunk_body(body));
  RN_CHECK(count(chunk.stored.size()));
  RN_CHECK(sessions_.back()->put_unverified(chunk.cipher, chunk.stored));
  arrived_.insert(chunk.cipher);
  unflushed_ += chunk.stored.size();
  ++stats_.chunks;
  stats_.bytes += chunk.stored.size();
  return unflushed_ >= deps_.batch_bytes ? begin_flush() : Status{};
}

Status PeerServer::on_manifest(BlobView body) {
  RN_TRY(const ManifestPiece piece, decode_manifest_piece(body));
  RN_CHECK(count(piece.bytes.size()));
  if (sealed_.size() + piece.bytes.size() > kSealedBytesMax)
    return fail(ErrorCode::kExhausted, "the manifest has no end");
  sealed_.insert(sealed_.end(), piece.bytes.begin(), piece.bytes.end());
  return piece.is_last ? accept_manifest() : Status{};
}

/// The order that a receipt stands for: chunks durable and read back from the medium, also those
/// that were here before; manifest durable and read back; then the word.
Status PeerServer::accept_manifest() {
  RN_CHECK(begin_flush());
  RN_TRY(const SignedManifest sealed, from_cbor<SignedManifest>(sealed_));
  sealed_ = {};
  RN_TRY(const Manifest manifest, parse_manifest(sealed.body));
  if (manifest.job != ticket_->job)
    return fail(ErrorCode::kDenied, "the manifest is another job's than the ticket's");
  if (manifest.epoch > ticket_->epoch)
    return fail(ErrorCode::kDenied, "the manifest's epoch is later than the ticket's");
  const auto key = deps_.verify_key ? deps_.verify_key(sealed.signer) : std::nullopt;
  if (key) RN_CHECK(verify_manifest(sealed, *key).map([](const Manifest&) {}));
  RN_CHECK(check_epoch(*ticket_));  // a newer attempt may have stored since the hello
  RN_CHECK(end_flush());
  RN_TRY(const GenerationRef ref, deps_.store.put_manifest(sealed));
  std::set<Digest> read_back;
  for (const auto& session : sessions_)
    read_back.insert(session->read_back().begin(), session->read_back().end());
  const auto verified = deps_.store.verify(ref.job, ref.manifest, read_back);
  if (!verified)
    return fail(verified.error()
                    .with("reading the generation back from the medium")
                    .hinting("send it again"));

  Receipt receipt;
  receipt.job = ref.job;
  receipt.epoch = ref.epoch;
  receipt.generation = ref.generation;
  receipt.manifest = ref.manifest;
  receipt.holder = deps_.self;
  receipt.failure_domain = deps_.failure_domain;
  receipt.verified_wall_ms = to_ms(deps_.clock.now().wall);
  receipt_ = sign_receipt(receipt, deps_.signer);
  leave_behind(manifest);
  replies_.push_back(encode_receipt(*receipt_));
  is_finished_ = true;
  return {};
}

/// Whatever broken transfers left, the job has gone on without it. What this one brought in vain,
/// from readings that were given up, goes with the next.
void PeerServer::leave_behind(const Manifest& manifest) {
  deps_.store.drop_left(manifest.job);
  for (const ChunkRef& chunk : manifest.chunks) arrived_.erase(chunk.cipher);
  if (!arrived_.empty()) deps_.store.leave(manifest.job, arrived_);
}

// --- fetch
// ------------------------------------------------------------------------------------------------------------

ChunkStore& PeerServer::source() {
  return ticket_->action == TicketAction::kFetchImage ? *deps_.images : deps_.store;
}

Status PeerServer::on_want_manifest(BlobView body) {
  RN_TRY(const auto digests, decode_digests(body));
  if (digests.size() != 1) return fail(ErrorCode::kInvalid, "one manifest at a time");
  RN_TRY(const SignedManifest sealed, deps_.store.load_manifest(ticket_->job, digests[0]));
  const Blob bytes = to_cbor(sealed);
  RN_CHECK(count(bytes.size()));
  for (std::size_t at = 0; at < bytes.size(); at += kManifestPieceBytes) {
    const std::size_t length = std::min(kManifestPieceBytes, bytes.size() - at);
    replies_.push_back(
        encode_manifest_piece(BlobView(bytes).subspan(at, length), at + length == bytes.size())
    );
  }
  if (const auto manifest = parse_manifest(sealed.body)) foresee(*manifest);
  return {};
}

void PeerServer::foresee(const Manifest& manifest) {
  std::set<Digest> seen;
  std::vector<ChunkRef> chunks;
  for (const ChunkRef& chunk : manifest.chunks) {
    if (seen.insert(chunk.cipher).second) chunks.push_back(chunk);
  }
  behind_.clear();
  rest_ = 0;
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
    behind_.emplace_back(chunk->cipher, rest_);
    rest_ += chunk->cipher_bytes;
  }
  std::sort(behind_.begin(), behind_.end());
}

/// Whoever asks once more for what was served is not expected to ask for all that followed, too.
void PeerServer::note_question(const std::vector<Digest>& digests) {
  asked_bytes_ = 0;
  for (const Digest& one : digests) asked_bytes_ += source().stored_bytes(one).value_or(0);
  const auto last = std::lower_bound(
      behind_.begin(), behind_.end(), std::make_pair(digests.back(), std::uint64_t{0})
  );
  if (last != behind_.end() && last->first == digests.back()) rest_ = std::min(rest_, last->second);
}

std::optional<std::uint64_t> PeerServer::bytes_left() const {
  if (!ticket_ || ticket_->action == TicketAction::kStore) return std::nullopt;
  if (ticket_->action == TicketAction::kFetch && behind_.empty()) return std::nullopt;
  return asked_bytes_ + rest_;
}

/// A ticket opens one job's chunks or one image's blobs, nothing else of the store.
Result<bool> PeerServer::may_serve(const Digest& cipher) {
  if (ticket_->action == TicketAction::kFetchImage)
    return deps_.is_image_blob && deps_.is_image_blob(ticket_->image, cipher);
  if (!allowed_) {
    std::set<Digest> allowed;
    for (const GenerationRef& ref : deps_.store.list(ticket_->job)) {
      const auto sealed = deps_.store.load_manifest(ref.job, ref.manifest);
      const auto manifest =
          sealed ? parse_manifest(sealed->body) : Result<Manifest>(fail(sealed.error()));
      if (!manifest && !is_lack(manifest.error())) return fail(manifest.error());
      if (!manifest) continue;
      for (const ChunkRef& chunk : manifest->chunks) allowed.insert(chunk.cipher);
    }
    allowed_ = std::move(allowed);
  }
  return allowed_->contains(cipher);
}

Status PeerServer::on_want_chunks(BlobView body) {
  RN_TRY(const auto digests, decode_digests(body));
  to_serve_.assign(digests.begin(), digests.end());
  note_question(digests);
  return {};
}

PeerFrame PeerServer::serve(const Digest& cipher) {
  const auto absent = [&] { return encode_digests(PeerFrameType::kAbsent, std::span(&cipher, 1)); };
  const auto refuse = [&](const Error& error) {
    refusal_ = error;
    to_serve_.clear();
    is_finished_ = true;
    return encode_refusal(error);
  };
  // A disk that cannot be read now may be read tomorrow: only who surely lacks it says so (I7).
  const auto not_now = [&](Error error) {
    error.code = ErrorCode::kUnavailable;
    return refuse(error.with("reading what is kept here"));
  };
  const auto may = may_serve(cipher);
  if (!may) return not_now(may.error());
  if (!*may) return absent();
  const auto stored = source().get(cipher);
  if (!stored) return is_lack(stored.error()) ? absent() : not_now(stored.error());
  const auto counted = count(stored->size());
  if (!counted) return refuse(counted.error());
  ++stats_.chunks;
  stats_.bytes += stored->size();
  return encode_chunk(cipher, *stored);
}

}  // namespace rn::checkpoint
