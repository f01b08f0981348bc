// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace rn {

/// What a path is. `inode`, `size`, `mtime_ns` and `changed_ns` together tell whether a file held
/// still.
struct FileStat {
  enum class Kind : std::uint8_t { kRegular, kDirectory, kSymlink, kOther };
  Kind kind = Kind::kOther;
  std::uint64_t size = 0;
  std::uint64_t inode = 0;
  std::int64_t mtime_ns = 0;
  std::uint32_t mode = 0;  ///< permission bits only
  std::uint32_t links = 0;
  /// When its content, or anything said here of it, changed last: the kernel's own word, which
  /// nobody can set back as they can mtime_ns. 0 = the disk does not say.
  std::int64_t changed_ns = 0;

  friend bool operator==(const FileStat&, const FileStat&) = default;
};

/// An open file. Reading through a handle keeps seeing the same inode after the name was renamed
/// over.
class File {
 public:
  virtual ~File() = default;
  /// At most `max` bytes from `offset`; shorter only at the end of the file.
  virtual Result<Blob> read(std::uint64_t offset, std::uint64_t max) = 0;
  virtual Status append(BlobView bytes) = 0;
  /// Durable when this returns without error. An error is final: the file is condemned, do not
  /// retry on it (the kernel may have dropped the pages; Rebello et al., ATC'20).
  virtual Status sync() = 0;
  virtual Result<FileStat> stat() = 0;
};

/// A folder held open, for reading a tree that somebody hostile (a guest) may change at the same
/// time. Names are safe relative paths ("" is the folder itself, for stat and list); no symbolic
/// link on the way is ever followed, so nothing outside the folder can be reached, whatever is
/// renamed meanwhile. Errors: kNotFound, kDenied (a link or an escape on the way), kUnsupported
/// (open of something that is not a regular file; it never blocks on a FIFO), kInternal.
class Folder {
 public:
  virtual ~Folder() = default;
  virtual Result<std::unique_ptr<File>> open(const std::string& relative) = 0;
  virtual Result<FileStat> stat(const std::string& relative) = 0;  ///< of the link itself
  virtual Result<std::vector<std::string>> list(const std::string& relative) = 0;
  virtual Result<std::string> read_symlink(const std::string& relative) = 0;
};

/// The disk. Blocking: call it from the worker pool, never from a loop. Real (io), in-memory fake
/// and simulated implementations; the simulated one loses and tears what was not synced. Paths are
/// absolute. Errors: kNotFound, kConflict (exists), kExhausted (full), kDenied, kUnsupported (not
/// that kind), kInternal (EIO).
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Opens for reading without following a symbolic link in the last component.
  virtual Result<std::unique_ptr<File>> open(const std::string& path) = 0;
  /// Creates a file that must not exist yet, for appending.
  virtual Result<std::unique_ptr<File>> create(const std::string& path, std::uint32_t mode) = 0;
  /// Opens an existing file for appending, creating it if it is missing.
  virtual Result<std::unique_ptr<File>> open_append(
      const std::string& path, std::uint32_t mode
  ) = 0;

  virtual Status rename(const std::string& from, const std::string& to) = 0;  ///< replaces `to`
  virtual Status remove(const std::string& path) = 0;  ///< one file or one empty folder
  virtual Status make_folder(const std::string& path, std::uint32_t mode) = 0;
  virtual Status make_symlink(const std::string& target, const std::string& path) = 0;
  virtual Result<std::string> read_symlink(const std::string& path) = 0;
  virtual Status set_mode(const std::string& path, std::uint32_t mode) = 0;
  virtual Status set_mtime(
      const std::string& path, std::int64_t mtime_ns
  ) = 0;  ///< of the link itself
  virtual Status sync_folder(const std::string& path
  ) = 0;  ///< makes creates, renames and removes in it durable
  virtual Result<FileStat> stat(const std::string& path) = 0;  ///< of the link itself
  /// Tells mounts apart: a folder whose answer differs from that of the folder above is a mount of
  /// its own, also one of the same disk. A disk without mounts, as the default, is all one.
  virtual Result<std::uint64_t> mount_of(const std::string& path);
  virtual Result<std::vector<std::string>> list(const std::string& path
  ) = 0;  ///< names, sorted, without . and ..
  virtual Result<std::uint64_t> free_bytes(const std::string& path) = 0;
  /// Asks the kernel to forget cached pages of the file, so that the next read comes from the
  /// medium. Best effort.
  virtual void drop_cache(const std::string& path) = 0;
  /// The default walks the path and looks at each component before using it, which is exact only
  /// where nobody else changes the tree (in-memory disks). The real disk resolves in the kernel
  /// (openat2). The disk outlives the folder.
  virtual Result<std::unique_ptr<Folder>> open_folder(const std::string& path);
};

/// create, append, sync, rename over `path`, sync of its folder: the durable order that every store
/// here uses. On error `path` is as it was. Errors as the calls'.
Status write_durably(FileSystem& fs, const std::string& path, BlobView bytes, std::uint32_t mode);
/// The whole file; kExhausted if it is longer than `max` bytes.
Result<Blob> read_all(FileSystem& fs, const std::string& path, std::uint64_t max);
/// The same of a file that a person named: links are followed, and what is no regular file (a
/// folder, a pipe, a device) is kInvalid and never waited for. Every message names the path.
Result<Blob> read_named(FileSystem& fs, const std::string& path, std::uint64_t max);
/// mkdir -p; existing folders are fine.
Status make_folders(FileSystem& fs, const std::string& path, std::uint32_t mode);
/// rm -r without following links; a missing path is fine. It stays on the mount that `path` is on:
/// what is mounted below may be somebody's own files, is left as it is, and the answer is
/// kConflict.
Status remove_tree(FileSystem& fs, const std::string& path);
std::string parent_folder(const std::string& path);
std::string join_path(const std::string& folder, const std::string& name);
/// True for a relative path without empty, "." or ".." components, of at most 4,096 bytes: safe to
/// join below a root.
bool is_safe_relative_path(const std::string& path);

}  // namespace rn
