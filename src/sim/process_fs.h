// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fs.h"
#include "sim/world.h"

namespace rn::sim {

/// A process's view of its machine's disk. Each call that changes something is a crash point
/// (ROLE.create, .append, .sync, .rename, .sync_folder, .remove, …): there the process may die
/// before the call takes effect. From then on every call of this life fails and changes nothing, so
/// code that runs on to its end (destructors too) leaves the disk as the dead process left it.
class ProcessFs final : public FileSystem {
 public:
  /// `world` and `disk` outlive it.
  ProcessFs(World& world, FileSystem& disk, std::string role, std::string process)
      : world_(world), disk_(disk), role_(std::move(role)), process_(std::move(process)) {}

  /// Died at a crash point, or was told so.
  bool is_dead() const { return is_dead_; }

  void die() { is_dead_ = true; }

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
  class OpenFile;

  Status alive() const;
  Status point(const char* operation);

  World& world_;
  FileSystem& disk_;
  std::string role_;
  std::string process_;
  bool is_dead_ = false;
};

}  // namespace rn::sim
