// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/crypto.h"
#include "base/error.h"
#include "model/checkpoint.h"

// Manifests, receipts and tickets: made, signed, verified. Pure. docs/formats/manifest.md.

namespace rn::checkpoint {

inline constexpr std::uint64_t kManifestBytesMax = 32ULL << 20;  ///< of a signed manifest's body
inline constexpr std::uint32_t kManifestVersion = 1;

/// What a manifest must be before anything in it is used: version, ids, strictly sorted safe UTF-8
/// paths with no file above another entry, chunk indices in range whose lengths add up to each
/// file's, chunk lengths in bounds, no duplicate and no unused chunks, permission bits only.
/// kInvalid says which; kUnsupported for a later version.
Status validate_manifest(const Manifest& manifest);

/// "j-…" names folders on disks: at most 64 letters, digits, '-' and '_'.
bool is_valid_job_id(const JobId& job);

/// The hash that children name as their parent and rows name as the generation: SHA-256 of the
/// body.
Digest manifest_hash(const SignedManifest& manifest);

/// The manifest must be valid (asserted): what we make ourselves is.
SignedManifest sign_manifest(
    const Manifest& manifest, const NodeId& signer, const crypto::SigningKey& key
);
/// Parses and validates the body; does not look at the signature. kCorrupt or kInvalid, kExhausted
/// over kManifestBytesMax.
Result<Manifest> parse_manifest(BlobView body);
/// parse_manifest, after the signature proved right. kDenied if it is not the key's.
Result<Manifest> verify_manifest(const SignedManifest& manifest, const crypto::PublicKey& key);
/// kInvalid unless `child` may follow `parent`: its hash named, same job, a higher generation, no
/// older epoch.
Status check_chain(const Manifest& child, const Manifest& parent, const Digest& parent_hash);

/// The reference without what only the node that made it knows (new_bytes, snapshot_boot_ns).
GenerationRef describe(const Manifest& manifest, const Digest& hash);
std::uint64_t stored_bytes_of(const Manifest& manifest);  ///< sum of its chunks' stored sizes

Receipt sign_receipt(Receipt receipt, const crypto::SigningKey& holder);
bool is_signed_by(const Receipt& receipt, const crypto::PublicKey& holder);

Ticket sign_ticket(Ticket ticket, const crypto::SigningKey& coordinator);
bool is_signed_by(const Ticket& ticket, const crypto::PublicKey& coordinator);

}  // namespace rn::checkpoint
