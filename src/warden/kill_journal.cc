// SPDX-License-Identifier: Apache-2.0
#include "warden/kill_journal.h"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"

namespace rn::warden {
namespace {

std::uint64_t checksum_of(const KillRecord& record) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&record);
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < offsetof(KillRecord, checksum); ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

bool is_valid(const KillRecord& record) {
  return record.magic == KillRecord::kMagic && record.checksum == checksum_of(record);
}

tl::unexpected<Error> system_error(const std::string& what) {
  return fail(ErrorCode::kInternal, what + ": " + std::strerror(errno));
}

tl::unexpected<Error> unreadable(const std::string& path) {
  return fail(ErrorCode::kCorrupt, path + " cannot be read: " + std::strerror(errno));
}

bool write_durably(int fd, const KillRecord& record) {
  const ssize_t written = write(fd, &record, sizeof(record));
  return written == static_cast<ssize_t>(sizeof(record)) && fdatasync(fd) == 0;
}

/// The end that is no whole record is a power cut's. So is a whole last one that is damaged, and an
/// append behind it would make it one inside.
Status cut_off_torn(int fd, const std::string& path) {
  constexpr auto kBytes = static_cast<off_t>(sizeof(KillRecord));

  struct stat info {};

  if (fstat(fd, &info) != 0) return system_error("reading " + path);
  off_t whole = info.st_size - info.st_size % kBytes;
  KillRecord last;
  if (whole > 0 && pread(fd, &last, sizeof(last), whole - kBytes) != kBytes)
    return system_error("reading " + path);
  if (whole > 0 && !is_valid(last)) whole -= kBytes;
  if (whole != info.st_size && ftruncate(fd, whole) != 0) return system_error("truncating " + path);
  return {};
}

/// The new file's name must be durable before the first record is promised to be.
Status sync_folder_of(const std::string& path) {
  const int folder = open(parent_folder(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return system_error("opening the folder of " + path);
  const int result = fsync(folder);
  close(folder);
  if (result != 0) return system_error("syncing the folder of " + path);
  return {};
}

}  // namespace

Result<std::unique_ptr<KillJournal>> KillJournal::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return system_error("opening " + path);
  Status ready = cut_off_torn(fd, path);
  if (ready) ready = sync_folder_of(path);
  if (!ready) {
    close(fd);
    return fail(ready.error());
  }
  return std::unique_ptr<KillJournal>(new KillJournal(fd));
}

KillJournal::KillJournal(int fd) : fd_(fd), writer_([this] { run(); }) {}

KillJournal::~KillJournal() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  writer_.join();
  close(fd_);
}

bool KillJournal::post(KillRecord record) {
  record.checksum = checksum_of(record);
  {
    const std::lock_guard lock(mutex_);
    if (is_condemned_ || queued_ == queue_.size()) return false;
    queue_[queued_++] = record;
  }
  changed_.notify_all();
  return true;
}

bool KillJournal::wait(nanoseconds limit) {
  std::unique_lock lock(mutex_);
  const auto is_settled = [&] { return is_condemned_ || (queued_ == 0 && !is_writing_); };
  // NOTE: a wait on the steady clock; libstdc++ passes it on as CLOCK_MONOTONIC, so a set wall
  // clock does no harm.
  changed_.wait_for(lock, limit, is_settled);
  return !is_condemned_ && queued_ == 0 && !is_writing_;
}

bool KillJournal::is_condemned() const {
  const std::lock_guard lock(mutex_);
  return is_condemned_;
}

void KillJournal::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return queued_ > 0 || is_stopping_; });
    if (queued_ == 0) return;
    const KillRecord record = queue_[0];
    queue_[0] = queue_[1];
    --queued_;
    is_writing_ = true;
    lock.unlock();
    const bool is_durable = write_durably(fd_, record);
    lock.lock();
    is_writing_ = false;
    if (!is_durable) is_condemned_ = true;
    if (is_condemned_) queued_ = 0;
    changed_.notify_all();
  }
}

Result<std::vector<KillRecord>> read_kill_journal(const std::string& path) {
  std::vector<KillRecord> records;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return records;
  if (fd < 0) return unreadable(path);
  bool is_damaged = false;
  Status all;
  for (KillRecord record; all;) {
    const ssize_t got = read(fd, &record, sizeof(record));
    if (got < 0) all = unreadable(path);
    if (got != static_cast<ssize_t>(sizeof(record))) break;
    if (is_damaged) all = fail(ErrorCode::kCorrupt, "a record inside " + path + " is damaged");
    is_damaged = !is_valid(record);
    if (!is_damaged) records.push_back(record);
  }
  close(fd);
  if (!all) return fail(all.error());
  return records;
}

Status put_kill_journal_aside(const std::string& path) {
  if (rename(path.c_str(), damaged_kill_journal(path).c_str()) != 0)
    return system_error("putting " + path + " aside");
  return sync_folder_of(path);
}

std::string damaged_kill_journal(const std::string& path) {
  return path + ".damaged";
}

}  // namespace rn::warden
