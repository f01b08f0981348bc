// SPDX-License-Identifier: Apache-2.0
#include "sim/process_fs.h"

namespace rn::sim {

class ProcessFs::OpenFile final : public File {
 public:
  OpenFile(ProcessFs& fs, std::unique_ptr<File> file) : fs_(fs), file_(std::move(file)) {}

  Result<Blob> read(std::uint64_t offset, std::uint64_t max) override {
    RN_CHECK(fs_.alive());
    return file_->read(offset, max);
  }

  Status append(BlobView bytes) override {
    RN_CHECK(fs_.point("append"));
    return file_->append(bytes);
  }

  Status sync() override {
    RN_CHECK(fs_.point("sync"));
    return file_->sync();
  }

  Result<FileStat> stat() override {
    RN_CHECK(fs_.alive());
    return file_->stat();
  }

 private:
  ProcessFs& fs_;
  std::unique_ptr<File> file_;
};

Status ProcessFs::alive() const {
  return is_dead_ ? fail(ErrorCode::kInternal, "the process has died") : Status{};
}

Status ProcessFs::point(const char* operation) {
  RN_CHECK(alive());
  is_dead_ = world_.crashes_at(role_ + "." + operation, process_);
  return alive();
}

Result<std::unique_ptr<File>> ProcessFs::open(const std::string& path) {
  RN_CHECK(alive());
  RN_TRY(auto file, disk_.open(path));
  return std::make_unique<OpenFile>(*this, std::move(file));
}

Result<std::unique_ptr<File>> ProcessFs::create(const std::string& path, std::uint32_t mode) {
  RN_CHECK(point("create"));
  RN_TRY(auto file, disk_.create(path, mode));
  return std::make_unique<OpenFile>(*this, std::move(file));
}

Result<std::unique_ptr<File>> ProcessFs::open_append(const std::string& path, std::uint32_t mode) {
  RN_CHECK(point("create"));
  RN_TRY(auto file, disk_.open_append(path, mode));
  return std::make_unique<OpenFile>(*this, std::move(file));
}

Status ProcessFs::rename(const std::string& from, const std::string& to) {
  RN_CHECK(point("rename"));
  return disk_.rename(from, to);
}

Status ProcessFs::remove(const std::string& path) {
  RN_CHECK(point("remove"));
  return disk_.remove(path);
}

Status ProcessFs::make_folder(const std::string& path, std::uint32_t mode) {
  RN_CHECK(point("make_folder"));
  return disk_.make_folder(path, mode);
}

Status ProcessFs::make_symlink(const std::string& target, const std::string& path) {
  RN_CHECK(point("create"));
  return disk_.make_symlink(target, path);
}

Result<std::string> ProcessFs::read_symlink(const std::string& path) {
  RN_CHECK(alive());
  return disk_.read_symlink(path);
}

Status ProcessFs::set_mode(const std::string& path, std::uint32_t mode) {
  RN_CHECK(alive());
  return disk_.set_mode(path, mode);
}

Status ProcessFs::set_mtime(const std::string& path, std::int64_t mtime_ns) {
  RN_CHECK(alive());
  return disk_.set_mtime(path, mtime_ns);
}

Status ProcessFs::sync_folder(const std::string& path) {
  RN_CHECK(point("sync_folder"));
  return disk_.sync_folder(path);
}

Result<FileStat> ProcessFs::stat(const std::string& path) {
  RN_CHECK(alive());
  return disk_.stat(path);
}

Result<std::vector<std::string>> ProcessFs::list(const std::string& path) {
  RN_CHECK(alive());
  return disk_.list(path);
}

Result<std::uint64_t> ProcessFs::free_bytes(const std::string& path) {
  RN_CHECK(alive());
  return disk_.free_bytes(path);
}

void ProcessFs::drop_cache(const std::string& path) {
  if (!is_dead_) disk_.drop_cache(path);
}

}  // namespace rn::sim
