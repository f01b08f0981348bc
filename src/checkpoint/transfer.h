// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/crypto.h"
#include "base/time.h"
#include "checkpoint/chunk_feed.h"
#include "checkpoint/chunk_store.h"
#include "checkpoint/transfer_messages.h"
#include "model/checkpoint.h"

// Moving generations between stores: state machines without sockets. Each end is driven alike:
//
//   loop: while (auto frame = end.next()) send(*frame);  if (end.is_finished()) break;
//   end.on_frame(receive());
//
// Disks are reached through ChunkStore (blocking calls inside next and on_frame), so run them on
// threads that may block. A transfer that breaks off is resumed by running it again: only what is
// not durable at the other end moves. Memory: one frame in, one frame out, and the lists of
// digests.

namespace rn::checkpoint {

/// One end of a transfer.
class PeerEnd {
 public:
  virtual ~PeerEnd() = default;
  /// The next frame to send now; nullopt: nothing until a frame arrives, or finished.
  virtual std::optional<PeerFrame> next() = 0;
  /// A frame from the other end. Ignored once finished.
  virtual void on_frame(PeerFrameType type, BlobView body) = 0;
  /// Nothing more will be sent or expected.
  virtual bool is_finished() const = 0;

  /// Of the payload, that next() has still to give, as far as can be foreseen; nullopt: not known.
  virtual std::optional<std::uint64_t> bytes_left() const { return std::nullopt; }
};

// --- client: store a generation at a peer
// --------------------------------------------------------------------------------

struct TransferStats {
  std::uint64_t chunks = 0;   ///< that moved
  std::uint64_t bytes = 0;    ///< stored bytes that moved
  std::uint64_t skipped = 0;  ///< chunks that were there already
};

/// Sends one generation of the own store. The result is the holder's receipt, whose signature the
/// caller checks with the holder's key (the coordinator does it again). Errors: the peer's refusal
/// by its code; kNotFound or kCorrupt of the own store (chunks are sent as they lie there; when the
/// peer refuses them, they are verified here, and a damaged one is condemned); kInvalid for a peer
/// that breaks the protocol or signs for something else.
class StoreSender final : public PeerEnd {
 public:
  /// `store` outlives the sender. `manifest` must be in the store.
  StoreSender(ChunkStore& store, Ticket ticket, const SignedManifest& manifest, Manifest parsed);
  /// Begins ahead of the manifest: chunks go as they are offered, durable in the own store or not.
  /// Without release() the transfer never ends, and the holder has got chunks that nothing names.
  StoreSender(ChunkStore& store, Ticket ticket);

  /// Ahead only, and one at a time: while is_hungry().
  void offer(FreshChunk chunk);
  /// The generation is whole in the own store: what was not offered is asked about and sent, then
  /// the manifest. Once.
  void release(const SignedManifest& manifest, Manifest parsed);

  bool is_released() const { return is_released_; }

  /// Nothing to send until offer() or release(), and nothing to receive.
  bool is_hungry() const { return phase_ == Phase::kAhead && !offered_ && !is_released_; }

  std::optional<PeerFrame> next() override;
  void on_frame(PeerFrameType type, BlobView body) override;

  /// Of chunks; known when the peer has said what it has.
  std::optional<std::uint64_t> bytes_left() const override { return left_; }

  bool is_finished() const override { return phase_ == Phase::kDone || phase_ == Phase::kFailed; }

  /// Only when finished.
  const Result<Receipt>& outcome() const { return outcome_; }

  const TransferStats& stats() const { return stats_; }

 private:
  enum class Phase : std::uint8_t {
    kHello,
    kWelcome,
    kAhead,
    kAsk,
    kHave,
    kChunks,
    kManifest,
    kReceipt,
    kDone,
    kFailed
  };

  void on_have(BlobView body);
  void on_refusal(BlobView body);
  void on_receipt(BlobView body);
  std::optional<PeerFrame> next_ahead();
  void list_unsent();
  std::optional<PeerFrame> next_chunk();
  PeerFrame next_manifest_piece();
  std::optional<PeerFrame> give_up(Error error);

  ChunkStore& store_;
  Ticket ticket_;
  Manifest manifest_;
  Digest hash_{};
  Blob sealed_;               ///< the signed manifest's CBOR
  std::size_t sent_ = 0;      ///< bytes of it
  bool is_released_ = false;  ///< the manifest is known
  std::optional<FreshChunk> offered_;
  std::set<Digest> ahead_;                   ///< sent before the manifest was known
  std::vector<Digest> unsent_;               ///< of the manifest's chunks, all others
  std::vector<std::uint32_t> unsent_bytes_;  ///< of each
  std::optional<std::uint64_t> left_;        ///< bytes_left()
  std::size_t asked_ = 0;                    ///< of them, those asked about so far
  std::size_t asking_ = 0;                   ///< in the open question
  std::deque<Digest> missing_;               ///< chunks to send
  std::vector<Digest> moved_;                ///< sent by this run from the store
  Phase phase_ = Phase::kHello;
  Result<Receipt> outcome_ = fail(ErrorCode::kUnavailable, "the transfer broke off");
  TransferStats stats_;
};

// --- client: fetch from a peer
// ---------------------------------------------------------------------------------------------

struct FetchRequest {
  Ticket ticket;
  Digest manifest{};  ///< of a generation, as the coordinator named it: this hash is what makes it
                      ///< trusted
  std::vector<Digest> blobs;  ///< of an image; used when `manifest` is zero
};

struct Fetched {
  std::optional<GenerationRef>
      generation;               ///< in the own store, if one was asked for and nothing is missing
  std::vector<Digest> missing;  ///< what this peer could not serve: ask another one
};

/// Fetches what the own store lacks and makes it durable there in batches. Every chunk is verified
/// against its hash as it arrives. Errors: the peer's refusal by its code; kInvalid for a peer that
/// breaks the protocol; kCorrupt for one that sends other bytes; kExhausted for one that sends more
/// than was asked for. The own store is never the peer's fault: kUnavailable, or kExhausted where
/// it is full.
class Fetcher final : public PeerEnd {
 public:
  Fetcher(ChunkStore& store, FetchRequest request);
  ~Fetcher() override;

  std::optional<PeerFrame> next() override;
  void on_frame(PeerFrameType type, BlobView body) override;

  bool is_finished() const override { return phase_ == Phase::kDone || phase_ == Phase::kFailed; }

  const Result<Fetched>& outcome() const { return outcome_; }

  const TransferStats& stats() const { return stats_; }

 private:
  enum class Phase : std::uint8_t {
    kHello,
    kWelcome,
    kWantManifest,
    kManifest,
    kWantChunks,
    kChunks,
    kDone,
    kFailed
  };

  Status on_manifest_piece(BlobView body);
  Status on_chunk(BlobView body);
  Status on_absent(BlobView body);
  Status plan(const std::vector<Digest>& wanted);
  Status after_answer();
  Status flush();
  Status complete();
  void give_up(Error error);

  ChunkStore& store_;
  FetchRequest request_;
  ChunkStore::Session session_;
  Blob sealed_;
  SignedManifest manifest_;
  std::deque<Digest> wanted_;
  std::deque<Digest> asked_;  ///< in the open question, unanswered
  std::uint64_t unflushed_ = 0;
  Phase phase_ = Phase::kHello;
  Fetched fetched_;
  Result<Fetched> outcome_ = fail(ErrorCode::kUnavailable, "the transfer broke off");
  TransferStats stats_;
};

// --- server
// ----------------------------------------------------------------------------------------------------------------

/// What a serving node knows. All references outlive the sessions; the functions are called on the
/// session's thread.
struct PeerServerDeps {
  ChunkStore& store;             ///< generations
  ChunkStore* images = nullptr;  ///< blobs of images; none: image tickets are refused
  const Clock& clock;
  NodeId self;
  std::string failure_domain;
  const crypto::SigningKey& signer;
  crypto::PublicKey ticket_key{};  ///< the coordinator's
  /// Tickets are good for so long after their expiry: clocks on a campus are off.
  seconds clock_tolerance{300};
  /// Highest epoch this node has heard of for the job; a none epoch if it has heard of none.
  std::function<LeaseEpoch(const JobId&)> newest_epoch;
  /// The key of the node that signed a manifest, if it is known here: then the signature must be
  /// right.
  std::function<std::optional<crypto::PublicKey>(const NodeId&)> verify_key;
  /// True if the blob is part of the image. Empty: none is.
  std::function<bool(const std::string& image, const Digest& blob)> is_image_blob;
  /// How chunks become durable and are read back from the medium: deferred, on the session's
  /// thread, or async, on another one while the next arrive.
  std::launch flush = std::launch::deferred;
  /// That begins whenever so many bytes have come.
  std::uint64_t batch_bytes = 32ULL << 20;
  /// A ticket to fetch was accepted: from now on the session sends. Once; empty: nobody is told.
  std::function<void(const Ticket&)> on_fetch = {};
};

/// Serves one connection: stores a generation (and answers with a receipt only after chunks and
/// manifest were synced and read back from the medium), or serves chunks of the ticket's job or
/// image. Refuses: a ticket that is not the coordinator's, not for this node, not for the peer at
/// the other end, or expired; an epoch older than one known here (kConflict); more bytes than the
/// ticket allows (kExhausted); chunks that do not fit their hash; a manifest of another job, of a
/// later epoch than the ticket's, or lacking chunks; whatever the store refuses (quota, reserve).
class PeerServer final : public PeerEnd {
 public:
  /// `peer`: the node at the other end as its certificate says.
  PeerServer(const PeerServerDeps& deps, NodeId peer);
  ~PeerServer() override;

  std::optional<PeerFrame> next() override;
  void on_frame(PeerFrameType type, BlobView body) override;

  /// Of a fetch: what was asked and is not sent, and, once the manifest was, what lies in that
  /// behind the last question: a fetcher asks in its order. So it is what the own store knows and
  /// what was asked, never what the peer says; too much where the peer has some of it already.
  std::optional<std::uint64_t> bytes_left() const override;

  bool is_finished() const override { return is_finished_ && replies_.empty(); }

  const TransferStats& stats() const { return stats_; }

  const std::optional<Receipt>& receipt() const { return receipt_; }  ///< that was given

  const std::optional<Error>& refusal() const { return refusal_; }

 private:
  Status handle(PeerFrameType type, BlobView body);
  Status on_hello(BlobView body);
  Status check_ticket(const Ticket& ticket) const;
  Status check_epoch(const Ticket& ticket) const;
  Status on_ask(BlobView body);
  Status on_chunk(BlobView body);
  Status on_manifest(BlobView body);
  Status accept_manifest();
  void leave_behind(const Manifest& manifest);
  Status on_want_manifest(BlobView body);
  Status on_want_chunks(BlobView body);
  Status begin_flush();
  Status end_flush();
  Status count(std::uint64_t bytes);
  Result<bool> may_serve(const Digest& cipher);
  PeerFrame serve(const Digest& cipher);
  ChunkStore& source();
  void foresee(const Manifest& manifest);
  void note_question(const std::vector<Digest>& digests);

  const PeerServerDeps& deps_;
  NodeId peer_;
  std::optional<Ticket> ticket_;
  /// One for each batch, the last one for what arrives now: together they hold all chunks until the
  /// manifest is here.
  std::vector<std::unique_ptr<ChunkStore::Session>> sessions_;
  std::optional<std::set<Digest>> allowed_;  ///< chunks of the job, found when first asked for
  std::deque<PeerFrame> replies_;
  std::deque<Digest> to_serve_;
  std::uint64_t asked_bytes_ = 0;  ///< of to_serve_
  /// Of each chunk of the manifest that was served, sorted: the bytes of those behind it.
  std::vector<std::pair<Digest, std::uint64_t>> behind_;
  std::uint64_t rest_ = 0;  ///< of it, not asked for so far
  Blob sealed_;
  std::uint64_t moved_ = 0;   ///< counted against the ticket
  std::set<Digest> arrived_;  ///< chunks that came on this connection
  std::uint64_t unflushed_ = 0;
  bool is_finished_ = false;
  TransferStats stats_;
  std::optional<Receipt> receipt_;
  std::optional<Error> refusal_;
  std::future<Status> flushing_;  ///< of the last session but one; may be on a thread
};

/// A fetcher makes chunks durable whenever so many bytes wait: what a broken transfer must send
/// again.
inline constexpr std::uint64_t kFlushBytes = 64ULL << 20;

}  // namespace rn::checkpoint
