// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "model/fields.h"

namespace rn {

/// A piece of a file. `name` is HMAC-SHA-256 of the plaintext under the job's name key
/// (deduplication inside the job); `cipher` is SHA-256 of the stored bytes, so that a peer without
/// the key can verify what it keeps.
struct ChunkRef {
  Digest name{};
  Digest cipher{};
  std::uint32_t plain_bytes = 0;
  std::uint32_t cipher_bytes = 0;

  RN_FIELDS(ChunkRef, name, cipher, plain_bytes, cipher_bytes)
};

enum class FileKind : std::uint8_t { kRegular, kFolder, kSymlink };
RN_ENUM(FileKind, "regular", "folder", "symlink")

struct FileEntry {
  std::string path;  ///< relative to the job's work folder, safe (is_safe_relative_path)
  FileKind kind = FileKind::kRegular;
  std::uint32_t mode = 0644;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  Digest content{};                   ///< SHA-256 of the plaintext, keyed by the job's name key
  std::vector<std::uint32_t> chunks;  ///< indices into Manifest::chunks, in order
  std::string target;                 ///< of a symbolic link

  RN_FIELDS(FileEntry, path, kind, mode, bytes, mtime_ns, content, chunks, target)
};

/// One complete generation of a job: its checkpoint with the workspace's delta:
/// docs/formats/manifest.md.
struct Manifest {
  std::uint32_t version = 1;
  JobId job;
  LeaseEpoch epoch;
  std::uint32_t generation = 0;  ///< grows by one per job, across attempts
  Digest parent{};               ///< hash of the parent manifest's signed bytes; zero for the first
  std::int64_t step = -1;        ///< the job's own step if it told one; -1 = unknown
  std::int64_t created_wall_ms = 0;
  std::vector<FileEntry> files;      ///< sorted by path
  std::vector<std::string> removed;  ///< of the submitted workspace, sorted
  std::vector<ChunkRef> chunks;

  RN_FIELDS(
      Manifest,
      version,
      job,
      epoch,
      generation,
      parent,
      step,
      created_wall_ms,
      files,
      removed,
      chunks
  )
};

/// The manifest's CBOR bytes with the signature of the node that made it. Its hash is SHA-256 of
/// `body`.
struct SignedManifest {
  Blob body;
  NodeId signer;
  Blob signature;

  RN_FIELDS(SignedManifest, body, signer, signature)
};

/// What everybody says of a generation without its chunk list.
struct GenerationRef {
  JobId job;
  LeaseEpoch epoch;
  std::uint32_t generation = 0;
  Digest manifest{};  ///< hash of the signed manifest's body
  std::int64_t step = -1;
  std::uint64_t bytes = 0;      ///< plaintext
  std::uint64_t new_bytes = 0;  ///< ciphertext that the parent generation did not have
  std::int64_t created_wall_ms = 0;
  std::int64_t snapshot_boot_ns = 0;  ///< on the node that made it; exposed age counts from here

  RN_FIELDS(
      GenerationRef,
      job,
      epoch,
      generation,
      manifest,
      step,
      bytes,
      new_bytes,
      created_wall_ms,
      snapshot_boot_ns
  )
};

/// A holder's signed word that every chunk and the manifest were verified on its medium.
struct Receipt {
  JobId job;
  LeaseEpoch epoch;
  std::uint32_t generation = 0;
  Digest manifest{};
  NodeId holder;
  std::string failure_domain;
  std::int64_t verified_wall_ms = 0;
  Blob
      signature;  ///< Ed25519 by the holder over the CBOR of this structure with an empty signature

  RN_FIELDS(
      Receipt, job, epoch, generation, manifest, holder, failure_domain, verified_wall_ms, signature
  )
};

/// kLink: connections to a guest of a gang's; the ticket's job is the member that is reached.
enum class TicketAction : std::uint8_t { kStore, kFetch, kFetchImage, kLink };
RN_ENUM(TicketAction, "store", "fetch", "fetch_image", "link")

/// The coordinator's permission for one transfer; peers accept nothing without one.
struct Ticket {
  JobId job;
  LeaseEpoch epoch;  ///< of the attempt that stores or fetches
  NodeId from;       ///< who connects
  NodeId to;         ///< who serves
  TicketAction action = TicketAction::kStore;
  std::string image;  ///< digest, for kFetchImage
  std::int64_t expiry_wall_ms = 0;
  std::uint64_t max_bytes = 0;
  Blob signature;  ///< Ed25519 by the coordinator over the CBOR of this structure with an empty
                   ///< signature

  RN_FIELDS(Ticket, job, epoch, from, to, action, image, expiry_wall_ms, max_bytes, signature)
};

/// A peer with the permission to use it.
struct PeerGrant {
  NodeId node;
  std::string address;  ///< peer port "host:port"
  std::string failure_domain;
  Ticket ticket;

  RN_FIELDS(PeerGrant, node, address, failure_domain, ticket)
};

}  // namespace rn
