// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/completeness.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

namespace rn::checkpoint {

namespace {

constexpr std::uint64_t kJsonBytesMax = 16ULL << 20;  // a parsed document takes many times its text

StructuralVerdict complete() {
  return {Completeness::kComplete, {}};
}

StructuralVerdict incomplete(std::string reason) {
  return {Completeness::kIncomplete, std::move(reason)};
}

StructuralVerdict unknown(std::string reason) {
  return {Completeness::kUnknownKind, std::move(reason)};
}

std::uint64_t little(BlobView bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i) value |= std::uint64_t{bytes[at + i]} << (8 * i);
  return value;
}

// --- zip
// ------------------------------------------------------------------------------------------------------------

constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kCentralHeader = 0x02014b50;
constexpr std::uint32_t kEndRecord = 0x06054b50;
constexpr std::uint32_t kEndRecord64 = 0x06064b50;
constexpr std::uint32_t kEndLocator64 = 0x07064b50;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kLocatorBytes = 20;
constexpr std::size_t kCentralBytes = 46;
constexpr std::size_t kLocalBytes = 30;
constexpr std::uint64_t kCommentMax = 65535;

struct Directory {
  std::uint64_t entries = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t end = 0;  ///< where the records after it begin; offset + bytes must meet it
};

struct Entry {
  std::uint64_t local_offset = 0;
  std::uint64_t stored_bytes = 0;
};

/// Position in `tail` of the end record whose comment reaches exactly to the file's end.
std::optional<std::size_t> find_end_record(BlobView tail) {
  if (tail.size() < kEndBytes) return std::nullopt;
  for (std::size_t at = tail.size() - kEndBytes + 1; at-- > 0;) {
    if (little(tail, at, 4) == kEndRecord &&
        at + kEndBytes + little(tail, at + 20, 2) == tail.size())
      return at;
  }
  return std::nullopt;
}

/// Fills in what the 32-bit record could not hold. `end_at` is the end record's position in the
/// file.
Result<bool> read_end64(File& file, std::uint64_t end_at, Directory& directory) {
  if (end_at < kLocatorBytes + kEnd64Bytes) return false;
  RN_TRY(const Blob locator, file.read(end_at - kLocatorBytes, kLocatorBytes));
  if (locator.size() != kLocatorBytes || little(locator, 0, 4) != kEndLocator64) return false;
  const std::uint64_t record_at = little(locator, 8, 8);
  if (record_at > end_at - kLocatorBytes - kEnd64Bytes) return false;
  RN_TRY(const Blob record, file.read(record_at, kEnd64Bytes));
  if (record.size() != kEnd64Bytes || little(record, 0, 4) != kEndRecord64) return false;
  const std::uint64_t length = little(record, 4, 8);
  if (length > end_at || record_at + 12 + length != end_at - kLocatorBytes) return false;
  if (little(record, 16, 4) != 0 || little(record, 20, 4) != 0) return false;
  if (little(record, 24, 8) != little(record, 32, 8)) return false;
  directory = {little(record, 32, 8), little(record, 48, 8), little(record, 40, 8), record_at};
  return true;
}

/// Zip64 extra field: replaces the values that are all ones, in the order of the specification
/// (4.5.3).
bool apply_extra64(BlobView extra, bool has_big_plain, Entry& entry) {
  for (std::size_t at = 0; at + 4 <= extra.size();) {
    const std::size_t id = little(extra, at, 2);
    const std::size_t length = little(extra, at + 2, 2);
    at += 4;
    if (length > extra.size() - at) return false;
    if (id == 1) {
      BlobView left = extra.subspan(at, length);
      const auto take = [&left](std::uint64_t& value) {
        if (left.size() < 8) return false;
        value = little(left, 0, 8);
        left = left.subspan(8);
        return true;
      };
      std::uint64_t plain = 0;
      if (has_big_plain && !take(plain)) return false;
      if (entry.stored_bytes == 0xffffffff && !take(entry.stored_bytes)) return false;
      return entry.local_offset != 0xffffffff || take(entry.local_offset);
    }
    at += length;
  }
  return false;
}

/// The entries of a central directory, or the reason why it is none.
Result<std::vector<Entry>> parse_directory(BlobView bytes, std::uint64_t count) {
  std::vector<Entry> entries;
  std::size_t at = 0;
  while (at < bytes.size()) {
    if (bytes.size() - at < kCentralBytes || little(bytes, at, 4) != kCentralHeader) {
      return fail(ErrorCode::kCorrupt, "the zip central directory has a hole");
    }
    const std::size_t name = little(bytes, at + 28, 2);
    const std::size_t extra = little(bytes, at + 30, 2);
    const std::size_t whole = kCentralBytes + name + extra + little(bytes, at + 32, 2);
    if (whole > bytes.size() - at)
      return fail(ErrorCode::kCorrupt, "a zip directory entry is cut off");
    Entry entry{little(bytes, at + 42, 4), little(bytes, at + 20, 4)};
    const bool has_big_plain = little(bytes, at + 24, 4) == 0xffffffff;
    if (has_big_plain || entry.local_offset == 0xffffffff || entry.stored_bytes == 0xffffffff) {
      if (!apply_extra64(bytes.subspan(at + kCentralBytes + name, extra), has_big_plain, entry)) {
        return fail(ErrorCode::kCorrupt, "a zip64 directory entry lacks its sizes");
      }
    }
    entries.push_back(entry);
    at += whole;
  }
  if (entries.size() != count)
    return fail(ErrorCode::kCorrupt, "the zip directory has another number of entries than stated");
  return entries;
}

Result<StructuralVerdict> check_entries(
    File& file, const std::vector<Entry>& entries, std::uint64_t directory_at
) {
  for (const Entry& entry : entries) {
    if (entry.local_offset > directory_at || directory_at - entry.local_offset < kLocalBytes) {
      return incomplete("a zip entry lies outside the archive");
    }
    RN_TRY(const Blob header, file.read(entry.local_offset, kLocalBytes));
    if (header.size() != kLocalBytes || little(header, 0, 4) != kLocalHeader) {
      return incomplete("a zip entry's local header is missing");
    }
    const std::uint64_t around = kLocalBytes + little(header, 26, 2) + little(header, 28, 2);
    const std::uint64_t room = directory_at - entry.local_offset;
    if (around > room || entry.stored_bytes > room - around)
      return incomplete("a zip entry's data is cut off");
  }
  return complete();
}

Result<StructuralVerdict> check_zip(File& file, std::uint64_t size) {
  const std::uint64_t tail_bytes = std::min<std::uint64_t>(size, kEndBytes + kCommentMax);
  RN_TRY(const Blob tail, file.read(size - tail_bytes, tail_bytes));
  if (tail.size() != tail_bytes) return incomplete("the file shrank while it was read");
  const auto found = find_end_record(tail);
  if (!found) return incomplete("the zip end record is missing");
  const BlobView record = BlobView(tail).subspan(*found);
  const std::uint64_t end_at = size - tail_bytes + *found;
  if (little(record, 4, 2) != 0 || little(record, 6, 2) != 0)
    return unknown("a zip archive in several volumes");
  if (little(record, 8, 2) != little(record, 10, 2))
    return incomplete("the zip end record contradicts itself");

  Directory directory{little(record, 10, 2), little(record, 16, 4), little(record, 12, 4), end_at};
  const bool says_64 = directory.entries == 0xffff || directory.offset == 0xffffffff ||
                       directory.bytes == 0xffffffff;
  // torch writes zip64 records also where they are not needed: then the 32-bit values end before
  // the 64-bit record.
  if (says_64 || directory.offset + directory.bytes != end_at) {
    RN_TRY(const bool has_64, read_end64(file, end_at, directory));
    if (!has_64 && says_64) return incomplete("the zip64 end record is missing");
  }
  if (directory.offset > size || directory.bytes > size ||
      directory.offset + directory.bytes != directory.end) {
    return incomplete("the zip central directory does not end at the end record");
  }
  if (directory.bytes > kReadBytesMax)
    return unknown("the zip central directory is too long to check");
  RN_TRY(const Blob bytes, file.read(directory.offset, directory.bytes));
  if (bytes.size() != directory.bytes) return incomplete("the file shrank while it was read");
  const auto entries = parse_directory(bytes, directory.entries);
  if (!entries) return incomplete(entries.error().message);
  if (entries->empty()) return incomplete("the zip archive is empty");
  return check_entries(file, *entries, directory.offset);
}

/// Fewer bytes than a mark has: perhaps the beginning of an archive, perhaps somebody's own format,
/// such as a step number in a file.
StructuralVerdict check_short_torch(BlobView head) {
  constexpr std::uint8_t kMark[] = {'P', 'K', 3};
  if (std::equal(head.begin(), head.end(), std::begin(kMark)) ||
      std::all_of(head.begin(), head.end(), [](std::uint8_t b) { return b == 0; }))
    return incomplete("the file has only begun");
  return unknown("too short for a zip archive");
}

/// A torch file: zip since torch 1.6, before that a sequence of pickles and raw storages with no
/// end mark.
Result<StructuralVerdict> check_torch(File& file, std::uint64_t size) {
  if (size == 0) return incomplete("the file is empty");
  RN_TRY(const Blob head, file.read(0, 4));
  if (head.size() < 4) return check_short_torch(head);
  if (head.size() == 4 && little(head, 0, 4) == kLocalHeader) return check_zip(file, size);
  if (head.size() == 4 && little(head, 0, 4) == 0) return incomplete("the file begins with a hole");
  if (!head.empty() && head[0] == 0x80)
    return unknown("a pickle in torch's old format has no end mark");
  return unknown("not a zip archive");
}

// --- safetensors, JSON, pickle
// ----------------------------------------------------------------------------------------

/// Where the last tensor ends; the reason if the header is none.
Result<std::uint64_t> tensors_end(BlobView header) {
  const auto parsed = nlohmann::json::parse(header.begin(), header.end(), nullptr, false);
  if (!parsed.is_object())
    return fail(ErrorCode::kCorrupt, "the safetensors header is not a JSON object");
  std::uint64_t end = 0;
  for (const auto& [name, tensor] : parsed.items()) {
    if (name == "__metadata__") continue;
    const auto offsets = tensor.is_object() ? tensor.find("data_offsets") : tensor.end();
    if (!tensor.is_object() || offsets == tensor.end() || !offsets->is_array() ||
        offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
        !(*offsets)[1].is_number_unsigned()) {
      return fail(ErrorCode::kCorrupt, "a safetensors entry has no offsets");
    }
    const auto from = (*offsets)[0].get<std::uint64_t>();
    const auto to = (*offsets)[1].get<std::uint64_t>();
    if (from > to) return fail(ErrorCode::kCorrupt, "a safetensors entry ends before it begins");
    end = std::max(end, to);
  }
  return end;
}

Result<StructuralVerdict> check_safetensors(File& file, std::uint64_t size) {
  if (size < 8) return incomplete("the safetensors header has only begun");
  RN_TRY(const Blob length, file.read(0, 8));
  if (length.size() != 8) return incomplete("the file shrank while it was read");
  const std::uint64_t header_bytes = little(length, 0, 8);
  if (header_bytes > size - 8) return incomplete("the safetensors header is longer than the file");
  if (header_bytes > kJsonBytesMax) return unknown("the safetensors header is too long to check");
  RN_TRY(const Blob header, file.read(8, header_bytes));
  const auto end = tensors_end(header);
  if (!end) return incomplete(end.error().message);
  if (*end != size - 8 - header_bytes)
    return incomplete("the safetensors data has another length than its header says");
  return complete();
}

Result<StructuralVerdict> check_json(File& file, std::uint64_t size) {
  if (size > kJsonBytesMax) return unknown("too long to check");
  RN_TRY(const Blob bytes, file.read(0, size));
  const auto parsed = nlohmann::json::parse(bytes.begin(), bytes.end(), nullptr, false);
  return parsed.is_object() ? complete() : incomplete("not a whole JSON object");
}

Result<StructuralVerdict> check_pickle(File& file, std::uint64_t size) {
  if (size < 3) return incomplete("the pickle has only begun");
  RN_TRY(const Blob head, file.read(0, 2));
  RN_TRY(const Blob last, file.read(size - 1, 1));
  if (head.size() != 2 || head[0] != 0x80 || head[1] < 2) return incomplete("not a pickle");
  return last.size() == 1 && last[0] == '.' ? complete() : incomplete("the pickle has no STOP");
}

bool ends_with_folded(std::string_view name, std::string_view suffix) {
  if (name.size() < suffix.size()) return false;
  const auto tail = name.substr(name.size() - suffix.size());
  return std::equal(tail.begin(), tail.end(), suffix.begin(), [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  });
}

}  // namespace

Result<StructuralVerdict> check_completeness(File& file, std::string_view name) {
  const auto slash = name.rfind('/');
  const std::string_view base = slash == std::string_view::npos ? name : name.substr(slash + 1);
  RN_TRY(const FileStat there, file.stat());
  for (const std::string_view suffix : {".pt", ".pth", ".pt.tar", ".pth.tar", ".ckpt"}) {
    if (ends_with_folded(base, suffix)) return check_torch(file, there.size);
  }
  if (ends_with_folded(base, ".npz")) return check_zip(file, there.size);
  if (ends_with_folded(base, ".safetensors")) return check_safetensors(file, there.size);
  if (base == "trainer_state.json") return check_json(file, there.size);
  if (base == ".metadata") return check_pickle(file, there.size);
  return unknown("no structural check for this kind of file");
}

}  // namespace rn::checkpoint
