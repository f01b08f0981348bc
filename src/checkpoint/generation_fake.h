// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/crypto.h"
#include "checkpoint/chunk_codec.h"
#include "checkpoint/chunk_store.h"
#include "checkpoint/manifest.h"

namespace rn::checkpoint {

/// Makes small generations of one job by hand. For tests.
class GenerationMaker {
 public:
  explicit GenerationMaker(std::uint64_t seed = 1) : rng_(seed) {}

  JobId job{"j-0123456789abcdef"};
  NodeId node{"n-aaaaaaaaaaaaaaaa"};
  crypto::Key256 job_key = [] {
    crypto::Key256 key;
    key.fill(7);
    return key;
  }();
  JobKeys keys = derive_job_keys(job_key);
  crypto::SigningKey signer = crypto::signing_key_from_seed(job_key);
  LeaseEpoch epoch{1, 1};

  struct Made {
    Manifest manifest;
    SignedManifest sealed;
    Digest hash{};
    std::vector<EncodedChunk> chunks;  ///< all that it references
  };

  /// One chunk per file. A content that an earlier generation had keeps its chunk.
  Made make(std::uint32_t generation, const std::map<std::string, std::string>& files) {
    Made out;
    Manifest& m = out.manifest;
    m.job = job;
    m.epoch = epoch;
    m.generation = generation;
    m.parent = parent_;
    m.step = generation * 10;
    m.created_wall_ms = 1'700'000'000'000 + generation;
    ChunkEncoder encoder(keys, rng_);
    std::map<std::string, std::uint32_t> indices;
    for (const auto& [path, content] : files) {
      FileEntry entry;
      entry.path = path;
      entry.bytes = content.size();
      entry.mtime_ns = 1'600'000'000'000'000'000;
      if (!content.empty()) {
        if (!known_.contains(content)) {
          known_[content] = encoder.encode(as_bytes(content), chunk_name(keys, as_bytes(content)));
        }
        if (!indices.contains(content)) {
          indices[content] = static_cast<std::uint32_t>(m.chunks.size());
          m.chunks.push_back(known_[content].ref);
          out.chunks.push_back(known_[content]);
        }
        entry.chunks.push_back(indices[content]);
      }
      m.files.push_back(entry);
    }
    out.sealed = sign_manifest(m, node, signer);
    out.hash = manifest_hash(out.sealed);
    parent_ = out.hash;
    return out;
  }

  /// Everything into the store, in the durable order.
  static Result<GenerationRef> store(ChunkStore& into, const Made& made) {
    ChunkStore::Session session(into);
    for (const EncodedChunk& chunk : made.chunks)
      RN_CHECK(session.put(chunk.ref.cipher, chunk.stored));
    RN_CHECK(session.flush());
    return into.put_manifest(made.sealed);
  }

 private:
  SeededRng rng_;
  Digest parent_{};
  std::map<std::string, EncodedChunk> known_;
};

}  // namespace rn::checkpoint
