// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "model/checkpoint.h"

// What peers say to each other on the data port. docs/formats/wire.md, section "Peer data". Control
// bodies are CBOR, bulk bodies raw. Every decoder here takes hostile bytes.

namespace rn::checkpoint {

inline constexpr std::uint32_t kPeerProtocol = 1;
inline constexpr std::uint32_t kPeerProtocolOldest = 1;

enum class PeerFrameType : std::uint8_t {
  kHello = 1,     ///< client, first: PeerHello
  kWelcome = 2,   ///< server: PeerWelcome
  kRefused = 3,   ///< either, last: PeerRefusal
  kAsk = 4,       ///< store: digests; "which of these do you have?"
  kHave = 5,      ///< answer to kAsk: one bit per digest, lowest bit first, 1 = durable here
  kChunk = 6,     ///< digest, then the stored bytes
  kManifest = 7,  ///< a piece of a SignedManifest's CBOR: flag byte (1 = last piece), then bytes
  kReceipt = 8,   ///< store, last: the holder's signed Receipt
  kWantManifest = 9,  ///< fetch: 32 bytes, the manifest's hash
  kWantChunks = 10,   ///< fetch: digests; answered by one kChunk or kAbsent each, in order
  kAbsent = 11,       ///< 32 bytes: the server cannot serve this chunk
};

struct PeerFrame {
  PeerFrameType type = PeerFrameType::kRefused;
  Blob body;
};

struct PeerHello {
  std::uint32_t protocol = kPeerProtocol;
  std::uint32_t oldest_protocol = kPeerProtocolOldest;
  Ticket ticket;

  RN_FIELDS(PeerHello, protocol, oldest_protocol, ticket)
};

struct PeerWelcome {
  std::uint32_t protocol = kPeerProtocol;

  RN_FIELDS(PeerWelcome, protocol)
};

struct PeerRefusal {
  std::string code;  ///< an ErrorCode's word
  std::string message;
  std::string hint;

  RN_FIELDS(PeerRefusal, code, message, hint)
};

inline constexpr std::size_t kDigestsPerFrame = 4096;
inline constexpr std::size_t kManifestPieceBytes = 4U << 20;

PeerFrame encode_hello(const PeerHello& hello);
PeerFrame encode_welcome(const PeerWelcome& welcome);
PeerFrame encode_refusal(const Error& error);
PeerFrame encode_receipt(const Receipt& receipt);
PeerFrame encode_digests(
    PeerFrameType type, std::span<const Digest> digests
);  ///< 1 to kDigestsPerFrame
PeerFrame encode_have(const std::vector<bool>& have);
PeerFrame encode_chunk(const Digest& cipher, BlobView stored);
PeerFrame encode_manifest_piece(BlobView piece, bool is_last);

// Each answers kInvalid for a body that is not one of its kind.
Result<PeerHello> decode_hello(BlobView body);
Result<PeerWelcome> decode_welcome(BlobView body);
Error decode_refusal(BlobView body);  ///< kInternal for one that cannot be read
Result<Receipt> decode_receipt(BlobView body);
Result<std::vector<Digest>> decode_digests(BlobView body);
Result<std::vector<bool>> decode_have(BlobView body, std::size_t asked);

struct ChunkBody {
  Digest cipher{};
  BlobView stored;  ///< into the body
};

Result<ChunkBody> decode_chunk_body(BlobView body);

struct ManifestPiece {
  bool is_last = false;
  BlobView bytes;  ///< into the body
};

Result<ManifestPiece> decode_manifest_piece(BlobView body);

}  // namespace rn::checkpoint
