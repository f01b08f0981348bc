// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/transfer_messages.h"

#include <algorithm>

#include "base/assert.h"
#include "base/error_words.h"
#include "checkpoint/chunk_store.h"
#include "model/codec_detail.h"

namespace rn {

RN_INSTANTIATE_CODEC(checkpoint::PeerHello)
RN_INSTANTIATE_CODEC(checkpoint::PeerWelcome)
RN_INSTANTIATE_CODEC(checkpoint::PeerRefusal)

namespace checkpoint {

namespace {

constexpr std::size_t kTextMax = 1000;  ///< of a refusal's message that is passed on

template <class T>
Result<T> decode_as(BlobView body, std::string_view what) {
  auto value = from_cbor<T>(body);
  if (!value) return fail(ErrorCode::kInvalid, std::string(what) + ": " + value.error().message);
  return value;
}

}  // namespace

PeerFrame encode_hello(const PeerHello& hello) {
  return {PeerFrameType::kHello, to_cbor(hello)};
}

PeerFrame encode_welcome(const PeerWelcome& welcome) {
  return {PeerFrameType::kWelcome, to_cbor(welcome)};
}

PeerFrame encode_refusal(const Error& error) {
  const PeerRefusal refusal{
      std::string(to_string(error.code)),
      error.message.substr(0, kTextMax),
      error.hint.substr(0, kTextMax)};
  return {PeerFrameType::kRefused, to_cbor(refusal)};
}

PeerFrame encode_receipt(const Receipt& receipt) {
  return {PeerFrameType::kReceipt, to_cbor(receipt)};
}

PeerFrame encode_digests(PeerFrameType type, std::span<const Digest> digests) {
  RN_ASSERT(!digests.empty() && digests.size() <= kDigestsPerFrame, "callers ask in batches");
  PeerFrame frame{type, {}};
  frame.body.reserve(digests.size() * sizeof(Digest));
  for (const Digest& digest : digests)
    frame.body.insert(frame.body.end(), digest.begin(), digest.end());
  return frame;
}

PeerFrame encode_have(const std::vector<bool>& have) {
  PeerFrame frame{PeerFrameType::kHave, Blob((have.size() + 7) / 8, 0)};
  for (std::size_t i = 0; i < have.size(); ++i) {
    if (have[i]) frame.body[i / 8] = static_cast<std::uint8_t>(frame.body[i / 8] | (1U << (i % 8)));
  }
  return frame;
}

PeerFrame encode_chunk(const Digest& cipher, BlobView stored) {
  PeerFrame frame{PeerFrameType::kChunk, {}};
  frame.body.reserve(cipher.size() + stored.size());
  frame.body.assign(cipher.begin(), cipher.end());
  frame.body.insert(frame.body.end(), stored.begin(), stored.end());
  return frame;
}

PeerFrame encode_manifest_piece(BlobView piece, bool is_last) {
  PeerFrame frame{PeerFrameType::kManifest, {static_cast<std::uint8_t>(is_last ? 1 : 0)}};
  frame.body.insert(frame.body.end(), piece.begin(), piece.end());
  return frame;
}

Result<PeerHello> decode_hello(BlobView body) {
  return decode_as<PeerHello>(body, "hello");
}

Result<PeerWelcome> decode_welcome(BlobView body) {
  return decode_as<PeerWelcome>(body, "welcome");
}

Result<Receipt> decode_receipt(BlobView body) {
  return decode_as<Receipt>(body, "receipt");
}

Error decode_refusal(BlobView body) {
  const auto refusal = from_cbor<PeerRefusal>(body);
  if (!refusal) return {ErrorCode::kInternal, "the peer refused in words that cannot be read", ""};
  return {
      error_code_of(refusal->code).value_or(ErrorCode::kInternal),
      "the peer refused: " + refusal->message.substr(0, kTextMax),
      refusal->hint.substr(0, kTextMax)};
}

Result<std::vector<Digest>> decode_digests(BlobView body) {
  if (body.empty() || body.size() % sizeof(Digest) != 0 ||
      body.size() / sizeof(Digest) > kDigestsPerFrame) {
    return fail(ErrorCode::kInvalid, "not a list of digests");
  }
  std::vector<Digest> digests(body.size() / sizeof(Digest));
  for (std::size_t i = 0; i < digests.size(); ++i) {
    std::copy_n(
        body.begin() + static_cast<std::ptrdiff_t>(i * sizeof(Digest)),
        sizeof(Digest),
        digests[i].begin()
    );
  }
  return digests;
}

Result<std::vector<bool>> decode_have(BlobView body, std::size_t asked) {
  if (body.size() != (asked + 7) / 8)
    return fail(ErrorCode::kInvalid, "an answer for another number of chunks");
  std::vector<bool> have(asked);
  for (std::size_t i = 0; i < asked; ++i) have[i] = ((body[i / 8] >> (i % 8)) & 1) != 0;
  return have;
}

Result<ChunkBody> decode_chunk_body(BlobView body) {
  if (body.size() <= sizeof(Digest) || body.size() - sizeof(Digest) > kBlobBytesMax) {
    return fail(ErrorCode::kInvalid, "a chunk frame's length is out of bounds");
  }
  ChunkBody out;
  std::copy_n(body.begin(), sizeof(Digest), out.cipher.begin());
  out.stored = body.subspan(sizeof(Digest));
  return out;
}

Result<ManifestPiece> decode_manifest_piece(BlobView body) {
  if (body.size() < 2 || body.size() - 1 > kManifestPieceBytes || body[0] > 1) {
    return fail(ErrorCode::kInvalid, "a manifest piece's length or flag is out of bounds");
  }
  return ManifestPiece{body[0] == 1, body.subspan(1)};
}

}  // namespace checkpoint
}  // namespace rn
