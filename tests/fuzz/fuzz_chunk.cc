// SPDX-License-Identifier: Apache-2.0
// The header of a stored chunk as it is, and the body of one whose encryption is right but whose
// writer is hostile.

#include <algorithm>

#include "base/assert.h"
#include "base/crypto.h"
#include "checkpoint/chunk_codec.h"

namespace {

using rn::Blob;
using rn::BlobView;

void decode_as_written(const rn::checkpoint::JobKeys& keys, BlobView stored) {
  const auto header = rn::checkpoint::read_chunk_header(stored);
  const rn::ChunkRef ref{
      {},
      rn::crypto::sha256(stored),
      header ? header->plain_bytes : 0,
      static_cast<std::uint32_t>(stored.size())};
  RN_ASSERT(!rn::checkpoint::decode_chunk(keys, ref, stored), "nobody guesses a tag and a name");
}

/// input = encoding, plain length (2 bytes), body: encrypted as a node that has the key would.
void decode_hostile_body(const rn::checkpoint::JobKeys& keys, BlobView input) {
  if (input.size() < 3) return;
  Blob header = {
      'R',
      'N',
      'C',
      'H',
      1,
      static_cast<std::uint8_t>(input[0] % 4),
      0,
      0,
      input[1],
      input[2],
      0,
      0};
  rn::SeededRng rng(1);
  Blob stored = header;
  rn::crypto::seal_onto(stored, keys.data, input.subspan(3), header, rng);
  const std::uint32_t plain_bytes = input[1] | std::uint32_t{input[2]} << 8;
  const rn::ChunkRef ref{
      {}, rn::crypto::sha256(stored), plain_bytes, static_cast<std::uint32_t>(stored.size())};
  RN_ASSERT(!rn::checkpoint::decode_chunk(keys, ref, stored), "no plaintext has the name zero");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const rn::checkpoint::JobKeys kKeys = rn::checkpoint::derive_job_keys({});
  decode_as_written(kKeys, {data, size});
  decode_hostile_body(kKeys, {data, size});
  return 0;
}
