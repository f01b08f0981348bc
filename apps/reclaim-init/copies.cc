// SPDX-License-Identifier: Apache-2.0
#include "copies.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/copy_stream.h"
#include "model/visit.h"

namespace rn::init {

namespace {

using copy_stream::Kind;
using copy_stream::Reader;

constexpr int kIn = 0;
constexpr int kOut = 1;
constexpr int kFailed = 1;  ///< of the command lines' exit codes (docs/commands.md), as those below
constexpr int kNotThere = 3;
constexpr int kNotAllowed = 4;
constexpr int kOtherThere = 5;
constexpr int kNoRoom = 8;
constexpr std::size_t kPieceBytes = 32u << 10;
constexpr int kReadOnly = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

int g_copy_code = kFailed;  ///< what this process ends with if it fails

/// "cannot WHAT NAME: WHY"; false, for who answers with it.
bool complain_why(const char* what, const char* name, const char* why, int code) {
  dprintf(2, "cannot %s %s: %s\n", what, name, why);
  g_copy_code = code;
  return false;
}

bool complain_of(const char* what, const char* name, int error) {
  int code = kFailed;
  if (error == ENOENT || error == ENOTDIR) code = kNotThere;
  if (error == EACCES || error == EPERM || error == EROFS) code = kNotAllowed;
  if (error == EEXIST || error == EISDIR || error == ELOOP) code = kOtherThere;
  if (error == ENOSPC || error == EDQUOT) code = kNoRoom;
  return complain_why(what, name, strerror(error), code);
}

bool put(const void* bytes, std::size_t size) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t wrote = write(kOut, at, size);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;  // nobody takes it any more
    at += wrote;
    size -= static_cast<std::size_t>(wrote);
  }
  return true;
}

bool put_kind(Kind kind) {
  const auto byte = static_cast<std::uint8_t>(kind);
  return put(&byte, 1);
}

bool put_entry(Kind kind, const struct stat& about, const char* name) {
  std::uint8_t entry[copy_stream::kEntryMax];
  return put(
      entry, copy_stream::write_entry(entry, kind, about.st_mode & 07777, name, strlen(name))
  );
}

bool put_left_out(const char* name, const char* why) {
  std::uint8_t entry[copy_stream::kEntryMax];
  return put(entry, copy_stream::write_left_out(entry, name, strlen(name), why));
}

/// False: nobody takes it any more. A file that cannot be read to its end is said to be broken.
bool put_content(int fd) {
  static std::uint8_t piece[4 + kPieceBytes];
  while (true) {
    const ssize_t got = read(fd, piece + 4, kPieceBytes);
    if (got < 0 && errno == EINTR) continue;
    const std::uint32_t size = got < 0    ? copy_stream::kChunksBroken
                               : got == 0 ? copy_stream::kChunksWhole
                                          : static_cast<std::uint32_t>(got);
    copy_stream::write_chunk_head(piece, size);
    if (!put(piece, 4 + (got > 0 ? static_cast<std::size_t>(got) : 0))) return false;
    if (got <= 0) return true;
  }
}

const char* why_not_sent(mode_t mode) {
  if (S_ISLNK(mode)) return "a link";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

bool put_folder(int folder, dev_t device, int depth);

/// False: nobody takes it any more.
bool put_one_of(int folder, const char* name, dev_t device, int depth) {
  struct stat about {};

  if (fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT || put_left_out(name, strerror(errno));
  const bool is_folder = S_ISDIR(about.st_mode);
  if (!is_folder && !S_ISREG(about.st_mode)) return put_left_out(name, why_not_sent(about.st_mode));
  if (is_folder && about.st_dev != device) return put_left_out(name, "another file system");
  if (is_folder && depth >= copy_stream::kDepthMax)
    return put_left_out(name, "folders in it are too deep");
  const int fd = openat(folder, name, kReadOnly | O_NOFOLLOW | (is_folder ? O_DIRECTORY : 0));
  if (fd < 0) return put_left_out(name, strerror(errno));
  // What it is may have changed since.
  const bool is_same = fstat(fd, &about) == 0 && S_ISDIR(about.st_mode) == is_folder &&
                       (is_folder || S_ISREG(about.st_mode));
  bool is_taken = true;
  if (!is_same)
    is_taken = put_left_out(name, "it changes");
  else if (is_folder)
    is_taken = put_entry(Kind::kFolder, about, name) && put_folder(fd, device, depth + 1) &&
               put_kind(Kind::kUp);
  else
    is_taken = put_entry(Kind::kFile, about, name) && put_content(fd);
  close(fd);
  return is_taken;
}

/// Borrows the descriptor.
bool put_folder(int folder, dev_t device, int depth) {
  DIR* const all = fdopendir(dup(folder));
  if (all == nullptr) return put_left_out("(what is in it)", strerror(errno));
  bool is_taken = true;
  while (is_taken) {
    const dirent* const one = readdir(all);
    if (one == nullptr) break;
    const std::size_t size = strlen(one->d_name);
    if (copy_stream::is_name(one->d_name, size))  // not "." and ".."
      is_taken = put_one_of(folder, one->d_name, device, depth);
  }
  closedir(all);
  return is_taken;
}

/// The last step of a path; "it" where that is none. Not longer than a name may be.
const char* last_step(const char* path, char (&out)[copy_stream::kNameMax + 1]) {
  std::size_t end = strlen(path);
  while (end > 0 && path[end - 1] == '/') --end;
  std::size_t begin = end;
  while (begin > 0 && path[begin - 1] != '/') --begin;
  if (!copy_stream::is_name(path + begin, end - begin)) return "it";
  memcpy(out, path + begin, end - begin);
  out[end - begin] = '\0';
  return out;
}

}  // namespace

int send_path(const char* path) {
  const int fd = open(path, kReadOnly);
  if (fd < 0) {
    complain_of("read", path, errno);
    return g_copy_code;
  }

  struct stat about {};

  const bool is_known = fstat(fd, &about) == 0;
  char room[copy_stream::kNameMax + 1];
  const char* const name = last_step(path, room);
  bool is_taken = false;
  if (is_known && S_ISREG(about.st_mode))
    is_taken = put_entry(Kind::kFile, about, name) && put_content(fd);
  else if (is_known && S_ISDIR(about.st_mode))
    is_taken = put_entry(Kind::kFolder, about, name) && put_folder(fd, about.st_dev, 1) &&
               put_kind(Kind::kUp);
  else
    complain_why("copy", path, "it is neither a file nor a folder", kOtherThere);
  return is_taken && put_kind(Kind::kEnd) ? 0 : g_copy_code;
}

namespace {

/// Where what comes is written: folders that were entered, and the file that comes.
class Taker {
 public:
  explicit Taker(const char* path) : path_(path) {}

  /// False, with words said: it goes no further.
  bool take(Reader& reader, Reader::Event event) {
    switch (event) {
      case Reader::Event::kFile:
        return begin_file(reader.name(), reader.mode());
      case Reader::Event::kFolder:
        return enter(reader.name(), reader.mode());
      case Reader::Event::kUp:
        close(folders_[--depth_]);
        return true;
      case Reader::Event::kBytes:
        return write_file(reader.bytes(), reader.size());
      case Reader::Event::kWhole:
        return end_file();
      case Reader::Event::kBroken:
        drop_file();
        return complain_why("take", name_, "it could not be read to its end", kFailed);
      case Reader::Event::kLeftOut:
      case Reader::Event::kEnd:
      case Reader::Event::kMore:
        return true;
      case Reader::Event::kBad:
        break;
    }
    return complain_why("take", path_, reader.wrong(), kFailed);
  }

  void drop_file() {
    if (file_ < 0) return;
    close(file_);
    file_ = -1;
    unlinkat(at_, temporary_, 0);
  }

 private:
  /// The folder and the name of what is to be made first, or next in the folder that was entered.
  bool find_place(const char* name) {
    if (depth_ > 0) {
      at_ = folders_[depth_ - 1];
      return remember(name, strlen(name));
    }
    const int inside = open(path_, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (inside >= 0) {
      at_ = inside;
      return remember(name, strlen(name));
    }
    const std::size_t size = strlen(path_);
    std::size_t begin = size;
    while (begin > 0 && path_[begin - 1] != '/') --begin;
    char above[visit::kPathMax + 1];
    memcpy(above, path_, begin);
    above[begin] = '\0';
    if (begin == size) return complain_why("write to", path_, "there is no such folder", kNotThere);
    at_ = open(begin == 0 ? "." : above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at_ < 0) return complain_of("write to", path_, errno);
    return remember(path_ + begin, size - begin);
  }

  bool remember(const char* name, std::size_t size) {
    if (!copy_stream::is_name(name, size))
      return complain_why("write to", path_, "it is no name", kFailed);
    memcpy(name_, name, size);
    name_[size] = '\0';
    return true;
  }

  bool begin_file(const char* name, unsigned mode) {
    if (!find_place(name)) return false;
    mode_ = mode;
    snprintf(temporary_, sizeof temporary_, ".reclaim-cp-%d-%u", getpid(), ++files_);
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    file_ = openat(at_, temporary_, flags, 0600);
    return file_ >= 0 || complain_of("write", name_, errno);
  }

  bool write_file(const std::uint8_t* bytes, std::size_t size) {
    while (size > 0) {
      const ssize_t wrote = write(file_, bytes, size);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return complain_of("write", name_, errno);
      bytes += wrote;
      size -= static_cast<std::size_t>(wrote);
    }
    return true;
  }

  bool end_file() {
    struct stat there {};

    const bool is_taken = fstatat(at_, name_, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
                          !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode);
    if (is_taken)
      return complain_why("write", name_, "something else than a file is there", kOtherThere);
    if (fchmod(file_, mode_) != 0 || renameat(at_, temporary_, at_, name_) != 0)
      return complain_of("write", name_, errno);
    close(file_);
    file_ = -1;
    if (depth_ == 0) close(at_);
    return true;
  }

  bool enter(const char* name, unsigned mode) {
    if (!find_place(name)) return false;
    const bool is_made = mkdirat(at_, name_, (mode & 0777) | 0700) == 0;
    if (!is_made && errno != EEXIST) return complain_of("make the folder", name_, errno);
    const int folder = openat(at_, name_, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) return complain_of("write to the folder", name_, errno);
    if (depth_ == 0) close(at_);
    folders_[depth_++] = folder;  // the reader enters no more than there is room for
    return true;
  }

  const char* const path_;
  int folders_[copy_stream::kDepthMax] = {};
  int depth_ = 0;
  int at_ = -1;  ///< where the file that comes lies
  int file_ = -1;
  unsigned mode_ = 0;
  unsigned files_ = 0;
  char name_[copy_stream::kNameMax + 1] = "";
  char temporary_[48] = "";
};

}  // namespace

int take_path(const char* path) {
  static std::uint8_t bytes[kPieceBytes];
  static Reader reader;
  Taker taker(path);
  while (true) {
    const ssize_t got = read(kIn, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    const std::uint8_t* at = bytes;
    auto left = static_cast<std::size_t>(got);
    while (left > 0) {
      if (taker.take(reader, reader.next(at, left))) continue;
      taker.drop_file();
      return g_copy_code;
    }
  }
  taker.drop_file();
  if (reader.is_over()) return 0;
  complain_why("take", path, "it broke off before its end", kFailed);
  return g_copy_code;
}

}  // namespace rn::init
