// SPDX-License-Identifier: Apache-2.0
#include "base/fs.h"

#include <algorithm>
#include <string_view>

namespace rn {

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
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string_view::npos) return false;
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
  if (bytes.size() > max) return fail(ErrorCode::kExhausted, path + " is longer than " + std::to_string(max) + " bytes");
  return bytes;
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

Status remove_tree(FileSystem& fs, const std::string& path) {
  const auto there = fs.stat(path);
  if (!there) return there.error().code == ErrorCode::kNotFound ? Status{} : Status(fail(there.error()));
  if (there->kind == FileStat::Kind::kDirectory) {
    RN_TRY(const auto names, fs.list(path));
    for (const std::string& name : names) RN_CHECK(remove_tree(fs, join_path(path, name)));
  }
  return fs.remove(path);
}

}  // namespace rn
