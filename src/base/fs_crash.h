// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/rng.h"
#include "base/time.h"

namespace rn {

/// An in-memory disk that is as unkind as POSIX allows. Used by property tests and by the
/// simulator.
///
/// What it models. A file's bytes are durable only after its sync; a name is durable only after the
/// sync of its folder (a synced file under an unsynced name is gone after a crash). At a crash,
/// bytes that were appended and not synced survive, vanish or turn to zeros per 512-byte sector,
/// and the unsynced changes of each folder survive as an arbitrary subset in which a rename stays
/// atomic. A failed sync drops the dirty bytes while reads from the cache go on showing them until
/// drop_cache, and the next sync of the same file "succeeds" without writing them: what ext4, XFS
/// and Btrfs do. Every call is one numbered operation, so a test can crash at each. Not
/// thread-safe.
class CrashFs final : public FileSystem {
 public:
  enum class Operation : std::uint8_t {
    kRead,
    kOpen,
    kCreate,
    kAppend,
    kSync,
    kRename,
    kRemove,
    kMakeFolder,
    kLink,
    kSetAttribute,
    kSyncFolder,
    kStat,
    kList
  };

  /// `clock` gives modification times and outlives the disk; `seed` decides what a crash loses.
  CrashFs(const Clock& clock, std::uint64_t seed);
  ~CrashFs() override;

  // --- faults
  // -------------------------------------------------------------------------------------------------------
  /// From the `operation`-th call on (0 = the next one), every call fails with kInternal and
  /// changes nothing, except that an append may have been performed in part. Cleared by restart().
  void crash_at(std::uint64_t operation);

  bool has_crashed() const { return crashed_; }

  /// Power comes back: what was not durable is lost or torn. Handles of before answer kInternal.
  /// May be called without a crash_at: that is a power cut between two operations.
  void restart();
  /// The `nth` next call (0 = next) of this kind fails once with `code`; sync failures behave as
  /// described above.
  void fail_once(Operation kind, std::uint64_t nth, ErrorCode code);

  /// Takes back the failures that have not come; whether there were any.
  bool forget_failures();

  /// Appends beyond so many bytes on the whole disk fail with kExhausted, after a partial write.
  void set_capacity(std::uint64_t bytes) { capacity_ = bytes; }

  /// Bit rot: changes the byte on the medium and, unless `only_medium`, in the cache. False if
  /// there is no such byte.
  bool flip(
      const std::string& path, std::uint64_t offset, std::uint8_t mask, bool only_medium = false
  );

  std::uint64_t operations() const { return operations_; }  ///< calls so far

  std::uint64_t used_bytes() const;

  // --- a guest's writes, which FileSystem does not offer
  // --------------------------------------------------------------
  /// Truncates and rewrites the file in place (same inode), or creates it.
  void overwrite(const std::string& path, BlobView bytes);
  /// A socket, FIFO or device: stat says kOther.
  void make_special(const std::string& path);

  /// Called before every read of a file's bytes: lets a test rewrite files in the middle of
  /// somebody's copy.
  void before_each_read(std::function<void(const std::string& path)> hook) {
    read_hook_ = std::move(hook);
  }

  // --- FileSystem
  // ---------------------------------------------------------------------------------------------------
  Result<std::unique_ptr<File>> open(const std::string& path) override;
  Result<std::unique_ptr<File>> create(const std::string& path, std::uint32_t mode) override;
  Result<std::unique_ptr<File>> open_append(const std::string& path, std::uint32_t mode) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status make_folder(const std::string& path, std::uint32_t mode) override;
  Status make_symlink(const std::string& target, const std::string& path) override;
  Result<std::string> read_symlink(const std::string& path) override;
  Status set_mode(const std::string& path, std::uint32_t mode) override;
  Status set_mtime(const std::string& path, std::int64_t mtime_ns) override;
  Status sync_folder(const std::string& path) override;
  Result<FileStat> stat(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<std::uint64_t> free_bytes(const std::string& path) override;
  void drop_cache(const std::string& path) override;

 private:
  struct Node;
  struct Change;
  class OpenFile;
  using NodeRef = std::shared_ptr<Node>;
  using Names = std::map<std::string, NodeRef>;

  Status begin(Operation kind);
  Result<NodeRef> find(const std::string& path) const;
  Result<NodeRef> find_folder(const std::string& path) const;
  Result<std::pair<NodeRef, std::string>> find_parent(const std::string& path) const;
  NodeRef make_node(FileStat::Kind kind, std::uint32_t mode);
  Status add(const std::string& path, NodeRef node);
  Status append_to(Node& node, BlobView bytes);
  Status sync_node(Node& node);
  void lose_names(Node& folder);
  void lose_bytes(Node& file);
  std::int64_t wall_ns() const;

  const Clock& clock_;
  SeededRng rng_;
  NodeRef root_;
  std::map<std::uint64_t, std::weak_ptr<Node>>
      nodes_;  ///< by inode: an order that does not depend on addresses
  std::function<void(const std::string&)> read_hook_;
  std::map<Operation, std::map<std::uint64_t, ErrorCode>>
      planned_;  ///< by number of that kind's call
  std::map<Operation, std::uint64_t> counts_;
  std::uint64_t next_inode_ = 2;
  std::uint64_t operations_ = 0;
  std::uint64_t boots_ = 0;
  std::uint64_t capacity_ = ~std::uint64_t{0};
  std::optional<std::uint64_t> crash_at_;
  bool crashed_ = false;
};

}  // namespace rn
