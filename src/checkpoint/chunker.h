// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/bytes.h"
#include "base/fs.h"

// Where files are cut. Both sides of a job's life cut alike, so equal content gets equal chunks on
// every node: changing a constant here costs every job its deduplication once (nothing else:
// manifests list what they need).

namespace rn::checkpoint {

enum class CutMode : std::uint8_t {
  kFixed,    ///< every fixed_chunk_bytes(size) from the file's start: tensors change in place and
             ///< dedup by position
  kContent,  ///< where the content says so: text and archives shift
};

inline constexpr std::uint32_t kContentMinBytes = 64U << 10;
inline constexpr std::uint32_t kContentAverageBytes = 256U << 10;
inline constexpr std::uint32_t kContentMaxBytes = 1U << 20;
/// No chunk of either mode holds more.
inline constexpr std::uint32_t kChunkBytesMax = 4U << 20;
/// Files from this size on are cut by position whatever their name says.
inline constexpr std::uint64_t kLargeFileBytes = 16ULL << 20;

/// How long the chunks of a file of `size` bytes are that is cut by position: 256 KiB below 64 MiB,
/// 1 MiB below 1 GiB, 4 MiB from there on. What a save changed in one piece is sent with two
/// chunks' rest at most, so that small states are sent nearly as their delta and large ones have
/// few chunks. A file that grows past a bound is sent whole once.
std::uint32_t fixed_chunk_bytes(std::uint64_t size);

/// Fixed for tensor files (by suffix) and for large ones; content-defined for the rest.
CutMode cut_mode_for(std::string_view path, std::uint64_t size);

/// By suffix only: the usual containers of weights and arrays.
bool is_tensor_file(std::string_view path);

/// Length of the first content-defined chunk of `window`, which begins at a chunk's start and holds
/// kContentMaxBytes or all that is left of the file. 0 only for an empty window. FastCDC with
/// normalised chunking of level 2 (Xia et al., USENIX ATC 2016): a harder mask before the average
/// size, an easier one after it. The gear table is the splitmix64 sequence of the seed
/// 0x7265636c61696d31 ("reclaim1").
std::size_t content_cut(BlobView window);

/// Reads `size` bytes of the file once and hands out its chunks in order. Stops at the first error
/// that `take` answers. kUnavailable if the file ends before `size`. Holds two reads of 4 MiB at
/// most. Blocking.
Status for_each_chunk(
    File& file,
    std::uint64_t size,
    CutMode mode,
    const std::function<Status(std::uint64_t offset, BlobView bytes)>& take
);

}  // namespace rn::checkpoint
