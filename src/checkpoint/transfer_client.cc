// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/assert.h"
#include "base/crypto.h"
#include "checkpoint/manifest.h"
#include "checkpoint/transfer.h"
#include "model/codec.h"

namespace rn::checkpoint {

namespace {

Error unexpected(PeerFrameType type) {
  return {
      ErrorCode::kInvalid,
      "the peer sent frame " + std::to_string(static_cast<int>(type)) + " out of turn",
      ""};
}

/// Of the own store while it takes what a peer sent. Whatever fails there says nothing about the
/// peer's copy: the same bytes are to be had again (I7).
tl::unexpected<Error> not_kept(const Error& cause) {
  Error error = cause.with("keeping what the peer sent");
  if (error.code != ErrorCode::kExhausted) error.code = ErrorCode::kUnavailable;
  return fail(std::move(error));
}

constexpr std::uint64_t kReceivedManifestMax = kManifestBytesMax + 4096;
constexpr std::size_t kWantedPerFrame = 64;  ///< bounds what a fetcher has under way

}  // namespace

// --- store
// ------------------------------------------------------------------------------------------------------------

StoreSender::StoreSender(
    ChunkStore& store, Ticket ticket, const SignedManifest& manifest, Manifest parsed
)
    : StoreSender(store, std::move(ticket)) {
  release(manifest, std::move(parsed));
}

StoreSender::StoreSender(ChunkStore& store, Ticket ticket)
    : store_(store), ticket_(std::move(ticket)) {}

void StoreSender::offer(FreshChunk chunk) {
  RN_ASSERT(is_hungry(), "one chunk at a time, and none after the manifest");
  if (!ahead_.contains(chunk.cipher)) offered_ = std::move(chunk);
}

void StoreSender::release(const SignedManifest& manifest, Manifest parsed) {
  RN_ASSERT(!is_released_, "one sender sends one generation");
  is_released_ = true;
  manifest_ = std::move(parsed);
  hash_ = manifest_hash(manifest);
  sealed_ = to_cbor(manifest);
}

std::optional<PeerFrame> StoreSender::next_ahead() {
  if (offered_) {
    const FreshChunk chunk = *std::exchange(offered_, std::nullopt);
    ahead_.insert(chunk.cipher);
    ++stats_.chunks;
    stats_.bytes += chunk.stored->size();
    return encode_chunk(chunk.cipher, *chunk.stored);
  }
  if (!is_released_) return std::nullopt;
  list_unsent();
  return next();
}

void StoreSender::list_unsent() {
  for (const ChunkRef& chunk : manifest_.chunks) {
    if (ahead_.contains(chunk.cipher)) continue;
    unsent_.push_back(chunk.cipher);
    unsent_bytes_.push_back(chunk.cipher_bytes);
  }
  if (unsent_.empty()) left_ = 0;
  phase_ = unsent_.empty() ? Phase::kManifest : Phase::kAsk;
}

std::optional<PeerFrame> StoreSender::give_up(Error error) {
  phase_ = Phase::kFailed;
  outcome_ = fail(std::move(error));
  return std::nullopt;
}

std::optional<PeerFrame> StoreSender::next_chunk() {
  const Digest cipher = missing_.front();
  // The holder compares with the hash; on_refusal() finds out whose fault it is.
  auto stored = store_.get_unverified(cipher);
  if (!stored) stored = store_.get(cipher);  // which gives up a copy that is not there
  if (!stored) return give_up(stored.error().with("reading a chunk to send"));
  missing_.pop_front();
  moved_.push_back(cipher);
  ++stats_.chunks;
  stats_.bytes += stored->size();
  left_ = *left_ - std::min<std::uint64_t>(*left_, stored->size());
  if (missing_.empty()) phase_ = asked_ < unsent_.size() ? Phase::kAsk : Phase::kManifest;
  return encode_chunk(cipher, *stored);
}

PeerFrame StoreSender::next_manifest_piece() {
  const std::size_t length = std::min(kManifestPieceBytes, sealed_.size() - sent_);
  const bool is_last = sent_ + length == sealed_.size();
  PeerFrame piece = encode_manifest_piece(BlobView(sealed_).subspan(sent_, length), is_last);
  sent_ += length;
  if (is_last) phase_ = Phase::kReceipt;
  return piece;
}

std::optional<PeerFrame> StoreSender::next() {
  switch (phase_) {
    case Phase::kHello:
      phase_ = Phase::kWelcome;
      return encode_hello({kPeerProtocol, kPeerProtocolOldest, ticket_});
    case Phase::kAhead:
      return next_ahead();
    case Phase::kAsk:
      asking_ = std::min(kDigestsPerFrame, unsent_.size() - asked_);
      phase_ = Phase::kHave;
      return encode_digests(PeerFrameType::kAsk, std::span(unsent_).subspan(asked_, asking_));
    case Phase::kChunks:
      return next_chunk();
    case Phase::kManifest:
      return next_manifest_piece();
    case Phase::kWelcome:
    case Phase::kHave:
    case Phase::kReceipt:
    case Phase::kDone:
    case Phase::kFailed:
      return std::nullopt;
  }
  return std::nullopt;
}

void StoreSender::on_have(BlobView body) {
  const auto have = decode_have(body, asking_);
  if (!have) {
    give_up(have.error());
    return;
  }
  // What is not asked about yet counts as missing.
  if (!left_) left_ = std::accumulate(unsent_bytes_.begin(), unsent_bytes_.end(), std::uint64_t{0});
  for (std::size_t i = 0; i < asking_; ++i) {
    if ((*have)[i]) {
      *left_ -= std::min<std::uint64_t>(*left_, unsent_bytes_[asked_ + i]);
      ++stats_.skipped;
    } else {
      missing_.push_back(unsent_[asked_ + i]);
    }
  }
  asked_ += asking_;
  phase_ = !missing_.empty()         ? Phase::kChunks
           : asked_ < unsent_.size() ? Phase::kAsk
                                     : Phase::kManifest;
}

void StoreSender::on_refusal(BlobView body) {
  Error refusal = decode_refusal(body);
  if (refusal.code == ErrorCode::kCorrupt) {
    for (const Digest& cipher : moved_) {
      const auto own = store_.get(cipher);  // condemns a damaged one
      if (own) continue;
      give_up(own.error().with("the chunk that was sent"));
      return;
    }
  }
  give_up(std::move(refusal));
}

void StoreSender::on_receipt(BlobView body) {
  auto receipt = decode_receipt(body);
  if (!receipt) {
    give_up(receipt.error());
    return;
  }
  const bool is_ours = receipt->job == manifest_.job && receipt->epoch == manifest_.epoch &&
                       receipt->manifest == hash_ && receipt->generation == manifest_.generation &&
                       receipt->holder == ticket_.to;
  if (!is_ours) {
    give_up({ErrorCode::kInvalid, "the peer signed a receipt for something else", ""});
    return;
  }
  phase_ = Phase::kDone;
  outcome_ = std::move(*receipt);
}

void StoreSender::on_frame(PeerFrameType type, BlobView body) {
  if (is_finished()) return;
  if (type == PeerFrameType::kRefused) {
    on_refusal(body);
  } else if (type == PeerFrameType::kWelcome && phase_ == Phase::kWelcome) {
    const auto welcome = decode_welcome(body);
    if (!welcome || welcome->protocol < kPeerProtocolOldest || welcome->protocol > kPeerProtocol) {
      give_up({ErrorCode::kUnsupported, "the peer speaks another protocol", ""});
      return;
    }
    phase_ = Phase::kAhead;
  } else if (type == PeerFrameType::kHave && phase_ == Phase::kHave) {
    on_have(body);
  } else if (type == PeerFrameType::kReceipt && phase_ == Phase::kReceipt) {
    on_receipt(body);
  } else {
    give_up(unexpected(type));
  }
}

// --- fetch
// ------------------------------------------------------------------------------------------------------------

Fetcher::Fetcher(ChunkStore& store, FetchRequest request)
    : store_(store), request_(std::move(request)), session_(store) {}

Fetcher::~Fetcher() {
  // What arrived whole is worth keeping when the connection broke: the next run asks for less.
  if (unflushed_ > 0) (void)session_.flush();
}

void Fetcher::give_up(Error error) {
  phase_ = Phase::kFailed;
  outcome_ = fail(std::move(error));
}

std::optional<PeerFrame> Fetcher::next() {
  switch (phase_) {
    case Phase::kHello:
      phase_ = Phase::kWelcome;
      return encode_hello({kPeerProtocol, kPeerProtocolOldest, request_.ticket});
    case Phase::kWantManifest:
      phase_ = Phase::kManifest;
      return encode_digests(PeerFrameType::kWantManifest, std::span(&request_.manifest, 1));
    case Phase::kWantChunks: {
      const std::size_t count = std::min(kWantedPerFrame, wanted_.size());
      asked_.assign(wanted_.begin(), wanted_.begin() + static_cast<std::ptrdiff_t>(count));
      wanted_.erase(wanted_.begin(), wanted_.begin() + static_cast<std::ptrdiff_t>(count));
      phase_ = Phase::kChunks;
      return encode_digests(
          PeerFrameType::kWantChunks, std::vector<Digest>(asked_.begin(), asked_.end())
      );
    }
    case Phase::kWelcome:
    case Phase::kManifest:
    case Phase::kChunks:
    case Phase::kDone:
    case Phase::kFailed:
      return std::nullopt;
  }
  return std::nullopt;
}

/// Waits for what was put since the last time.
Status Fetcher::flush() {
  if (unflushed_ == 0) return {};
  unflushed_ = 0;
  const Status flushed = session_.flush();
  return flushed ? flushed : not_kept(flushed.error());
}

Status Fetcher::complete() {
  RN_CHECK(flush());
  if (request_.manifest != Digest{} && fetched_.missing.empty()) {
    const auto stored = store_.put_manifest(manifest_);
    if (!stored) return not_kept(stored.error());
    fetched_.generation = *stored;
  }
  phase_ = Phase::kDone;
  outcome_ = std::move(fetched_);
  return {};
}

Status Fetcher::plan(const std::vector<Digest>& wanted) {
  std::set<Digest> seen;
  for (const Digest& cipher : wanted) {
    if (!seen.insert(cipher).second) continue;
    if (session_.keep(cipher)) {
      ++stats_.skipped;
    } else {
      wanted_.push_back(cipher);
    }
  }
  return after_answer();
}

/// Where to go when no question is open.
Status Fetcher::after_answer() {
  if (!asked_.empty()) return {};
  if (unflushed_ >= kFlushBytes) RN_CHECK(flush());
  if (wanted_.empty()) return complete();
  phase_ = Phase::kWantChunks;
  return {};
}

Status Fetcher::on_manifest_piece(BlobView body) {
  RN_TRY(const ManifestPiece piece, decode_manifest_piece(body));
  if (sealed_.size() + piece.bytes.size() > kReceivedManifestMax)
    return fail(ErrorCode::kExhausted, "the peer's manifest has no end");
  sealed_.insert(sealed_.end(), piece.bytes.begin(), piece.bytes.end());
  if (!piece.is_last) return {};
  RN_TRY(manifest_, from_cbor<SignedManifest>(sealed_));
  sealed_ = {};
  if (manifest_hash(manifest_) != request_.manifest)
    return fail(ErrorCode::kCorrupt, "the peer sent another manifest");
  RN_TRY(const Manifest parsed, parse_manifest(manifest_.body));
  if (parsed.job != request_.ticket.job)
    return fail(ErrorCode::kCorrupt, "the manifest is another job's");
  std::vector<Digest> wanted;
  for (const ChunkRef& chunk : parsed.chunks) wanted.push_back(chunk.cipher);
  return plan(wanted);
}

Status Fetcher::on_chunk(BlobView body) {
  RN_TRY(const ChunkBody chunk, decode_chunk_body(body));
  if (asked_.empty() || asked_.front() != chunk.cipher)
    return fail(ErrorCode::kInvalid, "the peer sent a chunk that was not asked for");
  if (crypto::sha256(chunk.stored) != chunk.cipher)
    return fail(ErrorCode::kCorrupt, "the peer sent a chunk with other bytes");
  const Status put = session_.put_hashed(chunk.cipher, chunk.stored);
  if (!put) return not_kept(put.error());
  asked_.pop_front();
  unflushed_ += chunk.stored.size();
  ++stats_.chunks;
  stats_.bytes += chunk.stored.size();
  return after_answer();
}

Status Fetcher::on_absent(BlobView body) {
  RN_TRY(const auto digests, decode_digests(body));
  if (digests.size() != 1 || asked_.empty() || asked_.front() != digests[0]) {
    return fail(ErrorCode::kInvalid, "the peer lacks a chunk that was not asked for");
  }
  fetched_.missing.push_back(digests[0]);
  asked_.pop_front();
  return after_answer();
}

void Fetcher::on_frame(PeerFrameType type, BlobView body) {
  if (is_finished()) return;
  if (type == PeerFrameType::kRefused) {
    give_up(decode_refusal(body));
    return;
  }
  const auto handled = [&]() -> Status {
    if (type == PeerFrameType::kWelcome && phase_ == Phase::kWelcome) {
      RN_TRY(const PeerWelcome welcome, decode_welcome(body));
      if (welcome.protocol < kPeerProtocolOldest || welcome.protocol > kPeerProtocol) {
        return fail(ErrorCode::kUnsupported, "the peer speaks another protocol");
      }
      if (request_.manifest == Digest{}) return plan(request_.blobs);
      phase_ = Phase::kWantManifest;
      return {};
    }
    if (type == PeerFrameType::kManifest && phase_ == Phase::kManifest)
      return on_manifest_piece(body);
    if (type == PeerFrameType::kChunk && phase_ == Phase::kChunks) return on_chunk(body);
    if (type == PeerFrameType::kAbsent && phase_ == Phase::kChunks) return on_absent(body);
    return fail(unexpected(type));
  }();
  if (!handled) give_up(handled.error());
}

}  // namespace rn::checkpoint
