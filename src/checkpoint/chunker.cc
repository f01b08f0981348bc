// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/chunker.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <string>

namespace rn::checkpoint {

namespace {

constexpr std::uint64_t kGearSeed = 0x7265636c61696d31;

constexpr std::array<std::uint64_t, 256> make_gear() {
  std::array<std::uint64_t, 256> table{};
  std::uint64_t state = kGearSeed;
  for (auto& entry : table) {
    state += 0x9e3779b97f4a7c15;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    entry = z ^ (z >> 31);
  }
  return table;
}

constexpr std::array<std::uint64_t, 256> kGear = make_gear();

/// The hash shifts left, so its top bits have seen the most bytes (64): the masks take those.
constexpr std::uint64_t top_bits(int count) {
  return ~std::uint64_t{0} << (64 - count);
}

constexpr int kAverageBits = std::countr_zero(kContentAverageBytes);
constexpr std::uint64_t kHardMask = top_bits(kAverageBits + 2);
constexpr std::uint64_t kEasyMask = top_bits(kAverageBits - 2);

constexpr std::array<std::string_view, 16> kTensorSuffixes = {
    ".pt",
    ".pth",
    ".pt.tar",
    ".pth.tar",
    ".ckpt",
    ".safetensors",
    ".bin",
    ".npy",
    ".npz",
    ".h5",
    ".hdf5",
    ".distcp",
    ".gguf",
    ".onnx",
    ".msgpack",
    ".dat"};

}  // namespace

bool is_tensor_file(std::string_view path) {
  const auto slash = path.rfind('/');
  std::string name(slash == std::string_view::npos ? path : path.substr(slash + 1));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return std::any_of(kTensorSuffixes.begin(), kTensorSuffixes.end(), [&](std::string_view suffix) {
    return name.ends_with(suffix);
  });
}

std::uint32_t fixed_chunk_bytes(std::uint64_t size) {
  if (size < 64ULL << 20) return 256U << 10;
  return size < 1ULL << 30 ? 1U << 20 : kChunkBytesMax;
}

CutMode cut_mode_for(std::string_view path, std::uint64_t size) {
  return size >= kLargeFileBytes || is_tensor_file(path) ? CutMode::kFixed : CutMode::kContent;
}

std::size_t content_cut(BlobView window) {
  const std::size_t end = std::min<std::size_t>(window.size(), kContentMaxBytes);
  if (end <= kContentMinBytes) return end;
  const std::size_t middle = std::min<std::size_t>(end, kContentAverageBytes);
  std::uint64_t hash = 0;
  std::size_t at = kContentMinBytes;
  for (; at < middle; ++at) {
    hash = (hash << 1) + kGear[window[at]];
    if ((hash & kHardMask) == 0) return at + 1;
  }
  for (; at < end; ++at) {
    hash = (hash << 1) + kGear[window[at]];
    if ((hash & kEasyMask) == 0) return at + 1;
  }
  return end;
}

Status for_each_chunk(
    File& file,
    std::uint64_t size,
    CutMode mode,
    const std::function<Status(std::uint64_t, BlobView)>& take
) {
  constexpr std::uint64_t kReadBytes = 4ULL << 20;
  const std::uint64_t wanted = mode == CutMode::kFixed ? fixed_chunk_bytes(size) : kContentMaxBytes;
  Blob buffer;
  std::size_t start = 0;  // of the bytes in `buffer` that were not handed out yet
  std::uint64_t offset = 0;
  std::uint64_t have = 0;  // bytes read so far
  while (offset < size) {
    if (buffer.size() - start < wanted && have < size) {
      RN_TRY(Blob more, file.read(have, std::min(kReadBytes, size - have)));
      if (more.empty())
        return fail(ErrorCode::kUnavailable, "the file became shorter while it was read");
      have += more.size();
      if (start == buffer.size()) {
        buffer = std::move(more);
      } else {
        buffer.erase(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(start));
        buffer.insert(buffer.end(), more.begin(), more.end());
      }
      start = 0;
      continue;
    }
    const BlobView left = BlobView(buffer).subspan(start);
    const std::size_t length =
        mode == CutMode::kFixed ? std::min<std::size_t>(left.size(), wanted) : content_cut(left);
    RN_CHECK(take(offset, left.first(length)));
    start += length;
    offset += length;
  }
  return {};
}

}  // namespace rn::checkpoint
