// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fs.h"

namespace rn::checkpoint {

/// What the bytes of a file say about whether its writer had finished.
enum class Completeness : std::uint8_t {
  kComplete,     ///< the format's own end is there and fits
  kIncomplete,   ///< a known format, and something is missing
  kUnknownKind,  ///< nothing to look at: only holding still can tell
};

struct StructuralVerdict {
  Completeness completeness = Completeness::kUnknownKind;
  std::string reason;  ///< one clause for people, for kIncomplete and kUnknownKind
};

/// Looks at the structure of one file. The name chooses the check, the bytes decide:
///   .pt .pth .ckpt, and .pt.tar .pth.tar (no tape archives, in spite of their name):
///                        zip archive (torch ≥ 1.6): end record, zip64 records, central directory
///   of the stated length and
///                        count that ends at the end record, a local header before it for each
///                        entry. A legacy pickle, or anything else, is an unknown kind.
///   .npz                 zip archive
///   .safetensors         header length, header, and tensor offsets that end at the file's end
///   trainer_state.json   parses as a JSON object
///   .metadata            (torch distributed checkpoint) a pickle that has its STOP
/// The file may be hostile and may change meanwhile: every length is checked, at most kReadBytesMax
/// are held. Errors are the file's read errors. Sources: PKWARE APPNOTE 6.3.10 (4.3.6, 4.3.12–16);
/// huggingface/safetensors README.
Result<StructuralVerdict> check_completeness(File& file, std::string_view name);

inline constexpr std::uint64_t kReadBytesMax = 64ULL << 20;

}  // namespace rn::checkpoint
