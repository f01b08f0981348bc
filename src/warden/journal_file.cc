// SPDX-License-Identifier: Apache-2.0
#include "warden/journal_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crypto.h"
#include "base/fs.h"
#include "io/errno_error.h"
#include "model/codec_detail.h"

namespace rn {

RN_INSTANTIATE_CODEC(warden::Journal)

namespace warden {

namespace {

/// In front of each slot; host byte order, since the file never leaves the machine.
struct SlotHeader {
  static constexpr std::uint64_t kMagic = 0x314a574e4d4c4352;  // "RCLMNWJ1"

  std::uint64_t magic = kMagic;
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;
  Digest digest{};  ///< SHA-256 over sequence, bytes and body
};

static_assert(sizeof(SlotHeader) == 56);

Digest digest_of(const SlotHeader& header, BlobView body) {
  crypto::Sha256 hash;
  hash.update({reinterpret_cast<const std::uint8_t*>(&header.sequence), 16});
  hash.update(body);
  return hash.finish();
}

struct Slot {
  bool is_blank = true;
  std::uint64_t sequence = 0;
  std::optional<Journal> journal;
};

Result<Slot> read_slot(int fd, std::uint64_t offset) {
  Slot slot;
  SlotHeader header;
  if (pread(fd, &header, sizeof header, static_cast<off_t>(offset)) !=
      static_cast<ssize_t>(sizeof header))
    return fail(io::error_from_errno(errno, "reading the intent journal"));
  const auto* raw = reinterpret_cast<const std::uint8_t*>(&header);
  slot.is_blank = std::all_of(raw, raw + sizeof header, [](std::uint8_t b) { return b == 0; });
  if (header.magic != SlotHeader::kMagic || header.bytes > JournalFile::kSlotBytes - sizeof header)
    return slot;
  Blob body(header.bytes);
  const ssize_t got =
      pread(fd, body.data(), body.size(), static_cast<off_t>(offset + sizeof header));
  if (got != static_cast<ssize_t>(body.size()) || digest_of(header, body) != header.digest)
    return slot;
  auto journal = from_cbor<Journal>(body);
  if (!journal) return slot;
  slot.sequence = header.sequence;
  slot.journal = std::move(*journal);
  return slot;
}

struct Newest {
  std::uint64_t sequence = 0;
  Journal journal;
};

Result<Newest> read_newest(int fd) {
  RN_TRY(Slot first, read_slot(fd, 0));
  RN_TRY(Slot second, read_slot(fd, JournalFile::kSlotBytes));
  if (!first.journal && !second.journal) {
    if (first.is_blank || second.is_blank)
      return Newest{};  // new, or the very first write was torn
    return fail(
        ErrorCode::kCorrupt,
        "both slots of the intent journal are damaged",
        "start reclaim-warden serve: it puts the journal aside and takes no guests until you say so"
    );
  }
  const bool is_second = second.journal && (!first.journal || second.sequence > first.sequence);
  Slot& newest = is_second ? second : first;
  return Newest{newest.sequence, std::move(*newest.journal)};
}

Status sync_folder_of(const std::string& path) {
  const int folder = ::open(parent_folder(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return fail(io::error_from_errno(errno, "the folder of " + path));
  const int result = fsync(folder);
  const int error = errno;
  close(folder);
  if (result != 0) return fail(io::error_from_errno(error, "the folder of " + path));
  return {};
}

}  // namespace

Result<JournalFile> JournalFile::replace(
    const std::string& path, const std::string& aside, const Journal& first
) {
  const std::string fresh = path + ".new";
  if (unlink(fresh.c_str()) != 0 && errno != ENOENT)
    return fail(io::error_from_errno(errno, fresh));
  auto file = open(fresh);
  const Status written = file ? file->write(first) : Status(fail(file.error()));
  if (!written) {
    unlink(fresh.c_str());
    return fail(written.error());
  }
  if (unlink(aside.c_str()) != 0 && errno != ENOENT)
    return fail(io::error_from_errno(errno, aside));
  if (link(path.c_str(), aside.c_str()) != 0) return fail(io::error_from_errno(errno, aside));
  if (rename(fresh.c_str(), path.c_str()) != 0) return fail(io::error_from_errno(errno, path));
  RN_CHECK(sync_folder_of(path));
  return file;
}

Result<Journal> JournalFile::look(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return fail(io::error_from_errno(errno, path));
  auto newest = read_newest(fd);
  close(fd);
  if (!newest) return fail(newest.error());
  return std::move(newest->journal);
}

Result<JournalFile> JournalFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return fail(io::error_from_errno(errno, path));
  JournalFile file(fd);
  const int error = posix_fallocate(fd, 0, static_cast<off_t>(2 * kSlotBytes));
  if (error != 0) return fail(io::error_from_errno(error, "space for " + path));
  if (fsync(fd) != 0) return fail(io::error_from_errno(errno, path));
  return file;
}

Journal owners_part(const Journal& journal) {
  Journal part = journal;
  part.guests.clear();
  part.images.clear();
  return part;
}

JournalFile::JournalFile(JournalFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      sequence_(other.sequence_),
      is_condemned_(other.is_condemned_) {}

JournalFile::~JournalFile() {
  if (fd_ >= 0) close(fd_);
}

Result<Journal> JournalFile::read() {
  RN_TRY(Newest newest, read_newest(fd_));
  sequence_ = newest.sequence;
  return std::move(newest.journal);
}

Status JournalFile::write(const Journal& journal) {
  if (is_condemned_)
    return fail(ErrorCode::kInternal, "the intent journal failed before and is condemned");
  const Blob body = to_cbor(journal);
  SlotHeader header;
  if (body.size() > kSlotBytes - sizeof header)
    return fail(ErrorCode::kExhausted, "the intent journal is larger than its slot");
  header.sequence = sequence_ + 1;
  header.bytes = body.size();
  header.digest = digest_of(header, body);
  Blob slot(sizeof header + body.size());
  std::memcpy(slot.data(), &header, sizeof header);
  std::copy(body.begin(), body.end(), slot.begin() + sizeof header);
  const auto offset = static_cast<off_t>((header.sequence % 2) * kSlotBytes);
  if (pwrite(fd_, slot.data(), slot.size(), offset) != static_cast<ssize_t>(slot.size()) ||
      fdatasync(fd_) != 0) {
    is_condemned_ = true;
    return fail(io::error_from_errno(errno, "writing the intent journal"));
  }
  sequence_ = header.sequence;
  return {};
}

}  // namespace warden

}  // namespace rn
