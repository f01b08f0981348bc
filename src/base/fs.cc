// SPDX-License-Identifier: Apache-2.0
#include "base/fs.h"

#include <algorithm>
#include <string_view>

namespace rn {

namespace {

/// Checks component by component, then asks the disk by full path.
class WalkedFolder final : public Folder {
 public:
  WalkedFolder(FileSystem& fs, std::string root) : fs_(fs), root_(std::move(root)) {}

  Result<std::unique_ptr<File>> open(const std::string& relative) override {
    RN_TRY(const std::string path, resolve(relative, false));
    RN_TRY(const FileStat there, fs_.stat(path));
    if (there.kind == FileStat::Kind::kSymlink)
      return fail(ErrorCode::kDenied, relative + " is a symbolic link");
    if (there.kind != FileStat::Kind::kRegular)
      return fail(ErrorCode::kUnsupported, relative + " is not a file");
    return fs_.open(path);
  }

  Result<FileStat> stat(const std::string& relative) override {
    RN_TRY(const std::string path, resolve(relative, true));
    return fs_.stat(path);
  }

  Result<std::vector<std::string>> list(const std::string& relative) override {
    RN_TRY(const std::string path, resolve(relative, true));
    RN_TRY(const FileStat there, fs_.stat(path));
    if (there.kind == FileStat::Kind::kSymlink)
      return fail(ErrorCode::kDenied, relative + " is a symbolic link");
    return fs_.list(path);
  }

  Result<std::string> read_symlink(const std::string& relative) override {
    RN_TRY(const std::string path, resolve(relative, false));
    return fs_.read_symlink(path);
  }

 private:
  Result<std::string> resolve(const std::string& relative, bool may_be_root) const {
    if (relative.empty() && may_be_root) return root_;
    if (!is_safe_relative_path(relative))
      return fail(ErrorCode::kDenied, "not a path inside the folder: " + relative);
    for (auto slash = relative.find('/'); slash != std::string::npos;
         slash = relative.find('/', slash + 1)) {
      const std::string above = relative.substr(0, slash);
      RN_TRY(const FileStat there, fs_.stat(join_path(root_, above)));
      if (there.kind == FileStat::Kind::kSymlink)
        return fail(ErrorCode::kDenied, above + " is a symbolic link");
      if (there.kind != FileStat::Kind::kDirectory)
        return fail(ErrorCode::kNotFound, above + " is not a folder");
    }
    return join_path(root_, relative);
  }

  FileSystem& fs_;
  std::string root_;
};

}  // namespace

Result<std::uint64_t> FileSystem::mount_of(const std::string&) {
  return std::uint64_t{0};
}

Result<std::unique_ptr<Folder>> FileSystem::open_folder(const std::string& path) {
  RN_TRY(const FileStat there, stat(path));
  if (there.kind != FileStat::Kind::kDirectory)
    return fail(ErrorCode::kUnsupported, path + " is not a folder");
  return std::make_unique<WalkedFolder>(*this, path);
}

std::string parent_folder(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string join_path(const std::string& folder, const std::string& name) {
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

bool is_safe_relative_path(const std::string& path) {
  if (path.empty() || path.size() > 4096 || path.front() == '/') return false;
  std::size_t start = 0;
  while (start <= path.size()) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    const std::string_view part(path.data() + start, end - start);
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string_view::npos)
      return false;
    start = end + 1;
  }
  return true;
}

Status write_durably(FileSystem& fs, const std::string& path, BlobView bytes, std::uint32_t mode) {
  const std::string temporary = path + ".new";
  const auto stale = fs.remove(temporary);
  if (!stale && stale.error().code != ErrorCode::kNotFound) return stale;
  const auto written = [&]() -> Status {
    RN_TRY(const auto file, fs.create(temporary, mode));
    RN_CHECK(file->append(bytes));
    return file->sync();
  }();
  if (!written) {
    (void)fs.remove(temporary);
    return written;
  }
  RN_CHECK(fs.rename(temporary, path));
  return fs.sync_folder(parent_folder(path));
}

Result<Blob> read_all(FileSystem& fs, const std::string& path, std::uint64_t max) {
  RN_TRY(const auto file, fs.open(path));
  RN_TRY(Blob bytes, file->read(0, max + 1));
  if (bytes.size() > max)
    return fail(ErrorCode::kExhausted, path + " is longer than " + std::to_string(max) + " bytes");
  return bytes;
}

Result<Blob> read_named(FileSystem& fs, const std::string& path, std::uint64_t max) {
  constexpr int kLinks = 16;
  std::string target = path;
  for (int links = 0; links < kLinks; ++links) {
    const auto next = fs.read_symlink(target);
    if (!next) break;
    target = next->starts_with('/') ? *next : join_path(parent_folder(target), *next);
  }
  const auto there = fs.stat(target);
  if (there && there->kind == FileStat::Kind::kDirectory)
    return fail(ErrorCode::kInvalid, path + " is a folder");
  if (there && there->kind == FileStat::Kind::kOther)
    return fail(ErrorCode::kInvalid, path + " is not a regular file");
  auto bytes = read_all(fs, target, max);
  if (bytes || target == path) return bytes;
  return fail(bytes.error().with(path));
}

Status make_folders(FileSystem& fs, const std::string& path, std::uint32_t mode) {
  const auto made = fs.make_folder(path, mode);
  if (made) return {};
  if (made.error().code == ErrorCode::kConflict) {
    RN_TRY(const FileStat there, fs.stat(path));
    if (there.kind == FileStat::Kind::kDirectory) return {};
    return fail(ErrorCode::kConflict, path + " exists and is not a folder");
  }
  const std::string parent = parent_folder(path);
  if (made.error().code != ErrorCode::kNotFound || parent == path) return made;
  RN_CHECK(make_folders(fs, parent, mode));
  return fs.make_folder(path, mode);
}

namespace {

Status remove_on_mount(FileSystem& fs, const std::string& path, std::uint64_t mount) {
  RN_TRY(const FileStat there, fs.stat(path));
  if (there.kind == FileStat::Kind::kDirectory) {
    RN_TRY(const std::uint64_t own, fs.mount_of(path));
    if (own != mount)
      return fail(
          ErrorCode::kConflict,
          path + " is a mount of its own: nothing in it is deleted",
          "unmount it, then try again"
      );
    RN_TRY(const auto names, fs.list(path));
    for (const std::string& name : names)
      RN_CHECK(remove_on_mount(fs, join_path(path, name), mount));
  }
  return fs.remove(path);
}

}  // namespace

Status remove_tree(FileSystem& fs, const std::string& path) {
  const auto there = fs.stat(path);
  if (!there)
    return there.error().code == ErrorCode::kNotFound ? Status{} : Status(fail(there.error()));
  if (there->kind != FileStat::Kind::kDirectory) return fs.remove(path);
  RN_TRY(const std::uint64_t mount, fs.mount_of(path));
  return remove_on_mount(fs, path, mount);
}

}  // namespace rn
