// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/assert.h"
#include "base/fs.h"
#include "base/utf8.h"
#include "checkpoint/chunk_codec.h"
#include "model/codec.h"
#include "model/signing.h"

namespace rn::checkpoint {

namespace {

constexpr std::size_t kTargetBytesMax = 4095;

/// Signatures of one kind of thing never verify as another's.
Blob message_for(std::string_view purpose, BlobView bytes) {
  Blob message(purpose.begin(), purpose.end());
  message.push_back(0);
  message.insert(message.end(), bytes.begin(), bytes.end());
  return message;
}

Blob signature_blob(const crypto::Signature& signature) {
  return Blob(signature.begin(), signature.end());
}

bool verify_blob(const crypto::PublicKey& key, BlobView message, BlobView signature) {
  crypto::Signature fixed{};
  if (signature.size() != fixed.size()) return false;
  std::copy(signature.begin(), signature.end(), fixed.begin());
  return crypto::verify(key, message, fixed);
}

constexpr std::string_view kManifestPurpose = "reclaimnet manifest v1";

bool is_usable_path(const std::string& path) {
  return is_safe_relative_path(path) && is_utf8(path);
}

Status validate_entry(const FileEntry& entry, const Manifest& manifest, std::vector<bool>& used) {
  const auto wrong = [&](const std::string& what) {
    return fail(ErrorCode::kInvalid, "manifest entry " + entry.path + ": " + what);
  };
  if ((entry.mode & ~0777U) != 0) return wrong("more than permission bits");
  if (entry.kind != FileKind::kRegular && (!entry.chunks.empty() || entry.bytes != 0))
    return wrong("only files have contents");
  if (entry.kind == FileKind::kSymlink) {
    const bool is_fine = !entry.target.empty() && entry.target.size() <= kTargetBytesMax &&
                         is_utf8(entry.target) && entry.target.find('\0') == std::string::npos;
    return is_fine ? Status{} : wrong("a link's target is empty, too long or not text");
  }
  if (!entry.target.empty()) return wrong("only links have targets");
  std::uint64_t bytes = 0;
  for (const std::uint32_t index : entry.chunks) {
    if (index >= manifest.chunks.size()) return wrong("names a chunk that is not listed");
    used[index] = true;
    bytes += manifest.chunks[index].plain_bytes;
  }
  return bytes == entry.bytes ? Status{} : wrong("chunks do not add up to its length");
}

Status validate_paths(const Manifest& manifest) {
  std::set<std::string_view> files;  // that nothing may lie below
  for (const FileEntry& entry : manifest.files) {
    if (!is_usable_path(entry.path))
      return fail(ErrorCode::kInvalid, "manifest has an unsafe path");
    for (auto slash = entry.path.find('/'); slash != std::string::npos;
         slash = entry.path.find('/', slash + 1)) {
      if (files.contains(std::string_view(entry.path).substr(0, slash))) {
        return fail(
            ErrorCode::kInvalid,
            "manifest entry " + entry.path + ": lies below something that is no folder"
        );
      }
    }
    if (entry.kind != FileKind::kFolder) files.insert(entry.path);
  }
  const auto is_before = [](const FileEntry& a, const FileEntry& b) { return a.path >= b.path; };
  if (std::adjacent_find(manifest.files.begin(), manifest.files.end(), is_before) !=
      manifest.files.end()) {
    return fail(ErrorCode::kInvalid, "manifest files are not sorted or not unique");
  }
  if (!std::all_of(manifest.removed.begin(), manifest.removed.end(), is_usable_path)) {
    return fail(ErrorCode::kInvalid, "manifest removes an unsafe path");
  }
  if (std::adjacent_find(
          manifest.removed.begin(), manifest.removed.end(), std::greater_equal<>()
      ) != manifest.removed.end()) {
    return fail(ErrorCode::kInvalid, "manifest removals are not sorted or not unique");
  }
  return {};
}

}  // namespace

bool is_valid_job_id(const JobId& job) {
  return !job.empty() && job.value.size() <= 64 &&
         std::all_of(job.value.begin(), job.value.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_';
         });
}

Status validate_manifest(const Manifest& manifest) {
  if (manifest.version == 0) return fail(ErrorCode::kInvalid, "manifest has no version");
  if (manifest.version > kManifestVersion) {
    return fail(
        ErrorCode::kUnsupported,
        "manifest of version " + std::to_string(manifest.version),
        "upgrade this node"
    );
  }
  if (!is_valid_job_id(manifest.job)) return fail(ErrorCode::kInvalid, "manifest has no valid job");
  if (manifest.generation == 0)
    return fail(ErrorCode::kInvalid, "manifest generations count from 1");
  if (manifest.epoch.is_none()) return fail(ErrorCode::kInvalid, "manifest has no epoch");
  RN_CHECK(validate_paths(manifest));
  std::set<Digest> ciphers;
  for (const ChunkRef& chunk : manifest.chunks) {
    const bool is_fine = chunk.plain_bytes > 0 && chunk.plain_bytes <= kChunkBytesMax &&
                         chunk.cipher_bytes > 0 && chunk.cipher_bytes <= kStoredChunkMax;
    if (!is_fine)
      return fail(ErrorCode::kInvalid, "manifest lists a chunk with a length out of bounds");
    if (!ciphers.insert(chunk.cipher).second)
      return fail(ErrorCode::kInvalid, "manifest lists a chunk twice");
  }
  std::vector<bool> used(manifest.chunks.size(), false);
  for (const FileEntry& entry : manifest.files) RN_CHECK(validate_entry(entry, manifest, used));
  if (std::find(used.begin(), used.end(), false) != used.end()) {
    return fail(ErrorCode::kInvalid, "manifest lists a chunk that no file uses");
  }
  return {};
}

Digest manifest_hash(const SignedManifest& manifest) {
  return crypto::sha256(manifest.body);
}

SignedManifest sign_manifest(
    const Manifest& manifest, const NodeId& signer, const crypto::SigningKey& key
) {
  const auto valid = validate_manifest(manifest);
  RN_ASSERT(valid.has_value(), "a manifest is valid before it is signed");
  SignedManifest out;
  out.body = to_cbor(manifest);
  out.signer = signer;
  out.signature = signature_blob(crypto::sign(key, message_for(kManifestPurpose, out.body)));
  return out;
}

Result<Manifest> parse_manifest(BlobView body) {
  if (body.size() > kManifestBytesMax)
    return fail(ErrorCode::kExhausted, "manifest is longer than its bound");
  RN_TRY(Manifest manifest, from_cbor<Manifest>(body));
  RN_CHECK(validate_manifest(manifest));
  return manifest;
}

Result<Manifest> verify_manifest(const SignedManifest& manifest, const crypto::PublicKey& key) {
  if (manifest.body.size() > kManifestBytesMax)
    return fail(ErrorCode::kExhausted, "manifest is longer than its bound");
  if (!verify_blob(key, message_for(kManifestPurpose, manifest.body), manifest.signature)) {
    return fail(ErrorCode::kDenied, "manifest is not signed by " + manifest.signer.str());
  }
  return parse_manifest(manifest.body);
}

Status check_chain(const Manifest& child, const Manifest& parent, const Digest& parent_hash) {
  if (child.job != parent.job)
    return fail(ErrorCode::kInvalid, "manifest's parent is another job's");
  if (child.parent != parent_hash)
    return fail(ErrorCode::kInvalid, "manifest names another parent");
  if (child.generation <= parent.generation)
    return fail(ErrorCode::kInvalid, "manifest's generation does not grow");
  if (child.epoch < parent.epoch)
    return fail(ErrorCode::kInvalid, "manifest's epoch is older than its parent's");
  return {};
}

GenerationRef describe(const Manifest& manifest, const Digest& hash) {
  GenerationRef ref;
  ref.job = manifest.job;
  ref.epoch = manifest.epoch;
  ref.generation = manifest.generation;
  ref.manifest = hash;
  ref.step = manifest.step;
  for (const FileEntry& entry : manifest.files) ref.bytes += entry.bytes;
  ref.created_wall_ms = manifest.created_wall_ms;
  return ref;
}

std::uint64_t stored_bytes_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const ChunkRef& chunk : manifest.chunks) bytes += chunk.cipher_bytes;
  return bytes;
}

Receipt sign_receipt(Receipt receipt, const crypto::SigningKey& holder) {
  return signed_receipt(std::move(receipt), holder);
}

bool is_signed_by(const Receipt& receipt, const crypto::PublicKey& holder) {
  return verify_receipt(receipt, holder);
}

Ticket sign_ticket(Ticket ticket, const crypto::SigningKey& coordinator) {
  return signed_ticket(std::move(ticket), coordinator);
}

bool is_signed_by(const Ticket& ticket, const crypto::PublicKey& coordinator) {
  return verify_ticket(ticket, coordinator);
}

}  // namespace rn::checkpoint
