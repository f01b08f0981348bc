// SPDX-License-Identifier: Apache-2.0
#include "cli_save_file.h"

#include "base/crypto.h"

namespace rn::cli {

namespace {

Status write_new(
    FileSystem& fs,
    const std::string& path,
    std::uint32_t mode,
    const std::function<Status(File& out)>& fill
) {
  RN_TRY(const auto out, fs.create(path, 0600));
  RN_CHECK(fill(*out));
  RN_CHECK(out->sync());
  return fs.set_mode(path, mode & 0777);
}

}  // namespace

std::string fresh_name(const std::string& path) {
  const std::string name = ".reclaim-new-" + to_hex(crypto::sha256(as_bytes(path))).substr(0, 16);
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? name : path.substr(0, slash + 1) + name;
}

Status check_may_write(FileSystem& fs, const std::string& path, Replace replace) {
  const auto there = fs.stat(path);
  if (!there && there.error().code == ErrorCode::kNotFound) return {};
  if (!there) return fail(there.error());
  switch (there->kind) {
    case FileStat::Kind::kDirectory:
      return fail(ErrorCode::kInvalid, path + " is a folder", "name a file");
    case FileStat::Kind::kOther:
      return fail(
          ErrorCode::kInvalid,
          path + " is a device, a socket or a pipe, which is not replaced",
          "name another file"
      );
    case FileStat::Kind::kRegular:
    case FileStat::Kind::kSymlink:
      break;
  }
  if (replace == Replace::kFile) return {};
  return fail(
      ErrorCode::kConflict, path + " is there already", "name another file, or say --force"
  );
}

Status save_file(
    FileSystem& fs,
    const std::string& path,
    std::uint32_t mode,
    Replace replace,
    const std::function<Status(File& out)>& fill
) {
  RN_CHECK(check_may_write(fs, path, replace));
  const std::string fresh = fresh_name(path);
  RN_CHECK(check_may_write(fs, fresh, Replace::kFile));  // left by one that was interrupted
  if (fs.stat(fresh)) RN_CHECK(fs.remove(fresh));
  Status written = write_new(fs, fresh, mode, fill);
  if (written) written = check_may_write(fs, path, replace);  // it may have come meanwhile
  if (written) written = fs.rename(fresh, path);
  if (!written) {
    (void)fs.remove(fresh);
    return fail(written.error());
  }
  return {};
}

}  // namespace rn::cli
