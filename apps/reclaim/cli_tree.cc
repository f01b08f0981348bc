// SPDX-License-Identifier: Apache-2.0
#include "cli_tree.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/errno_error.h"

namespace rn::cli {

namespace {

using TreeKind = copy_stream::Kind;
using TreeEvent = copy_stream::Reader::Event;

constexpr std::size_t kTreePieceBytes = 16u << 10;
constexpr int kTreeFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
constexpr int kTreeFile = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

/// As for published outputs: what lies there git runs.
bool is_gits(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return name == ".git";
}

Error cannot_write(int number, const std::string& where) {
  return io::error_from_errno(number, "writing " + where)
      .hinting(
          number == ELOOP || number == ENOTDIR
              ? "a link or a file is in the way, and is not followed: remove it, or copy elsewhere"
              : "see that there is room, and that you may write there"
      );
}

const char* why_left_out(mode_t mode) {
  if (S_ISLNK(mode)) return "a link";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

void LeftOut::add(const std::string& name, const std::string& why) {
  if (named.size() < kNamed) return named.push_back(name + ": " + why);
  ++more;
}

// ---- from a guest

TreeWriter::TreeWriter(std::string to, std::string name)
    : to_(std::move(to)), name_(std::move(name)) {}

TreeWriter::~TreeWriter() {
  drop_file();
}

Status TreeWriter::take(BlobView bytes) {
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  while (left > 0) RN_CHECK(obey(reader_.next(at, left)));
  return {};
}

Status TreeWriter::finish() const {
  if (reader_.is_over()) return {};
  return fail(ErrorCode::kCorrupt, "what the guest sent broke off", "copy it again");
}

Status TreeWriter::obey(TreeEvent event) {
  switch (event) {
    case TreeEvent::kFile:
      return begin_file();
    case TreeEvent::kFolder:
      return enter_folder();
    case TreeEvent::kUp:
      leave_folder();
      return {};
    case TreeEvent::kBytes:
      return write_file();
    case TreeEvent::kWhole:
      return end_file();
    case TreeEvent::kBroken:
      if (!is_skipping_file_) left_out_.add(file_name_, "it could not be read to its end");
      is_skipping_file_ = false;
      drop_file();
      return {};
    case TreeEvent::kLeftOut:
      if (skipped_folders_ == 0) left_out_.add(reader_.name(), reader_.words());
      return {};
    case TreeEvent::kEnd:
    case TreeEvent::kMore:
      return {};
    case TreeEvent::kBad:
      break;
  }
  return fail(
      ErrorCode::kCorrupt,
      std::string("what the guest sent is refused: ") + reader_.wrong(),
      "nothing was written outside of " + to_ + "; see what runs in the job"
  );
}

/// Where the first thing goes. With an empty name the root is the folder itself.
Status TreeWriter::find_root() {
  std::error_code failed;
  const bool wants_folder = to_.ends_with('/') || name_.empty();
  if (wants_folder && !std::filesystem::exists(to_, failed))
    std::filesystem::create_directory(to_, failed);
  if (std::filesystem::is_directory(to_, failed) || wants_folder) {
    root_.reset(::open(to_.c_str(), kTreeFolder));
    if (!root_) return fail(cannot_write(errno, to_));
    return {};
  }
  const std::filesystem::path path(to_);
  name_ = path.filename().string();
  const std::string above = path.has_parent_path() ? path.parent_path().string() : ".";
  if (!copy_stream::is_name(name_.data(), name_.size()))
    return fail(ErrorCode::kInvalid, "'" + to_ + "' is no name for it", "name a folder or a file");
  root_.reset(::open(above.c_str(), kTreeFolder));
  if (!root_) return fail(cannot_write(errno, above));
  return {};
}

/// The folder in which what comes next is made. The first thing has the name that was asked for,
/// whatever the guest calls it.
Result<int> TreeWriter::place_of_next() {
  if (!folders_.empty()) {
    file_name_ = reader_.name();
    return folders_.back().get();
  }
  RN_CHECK(find_root());
  file_name_ = name_;
  return root_.get();
}

/// What git would run, and all in it.
bool TreeWriter::is_skipped() {
  if (skipped_folders_ > 0) return true;
  if (folders_.empty() || !is_gits(reader_.name())) return false;
  left_out_.add(reader_.name(), "git runs what lies there");
  return true;
}

Status TreeWriter::begin_file() {
  if (is_skipped()) {
    is_skipping_file_ = true;
    return {};
  }
  RN_TRY(const int place, place_of_next());
  if (file_name_.empty())
    return fail(ErrorCode::kCorrupt, "the guest sent a file for a folder", "name the file");
  temporary_ = ".reclaim-cp-" + std::to_string(::getpid()) + "-" + std::to_string(++files_);
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  file_.reset(::openat(place, temporary_.c_str(), flags, (reader_.mode() & 0777u) | 0600u));
  if (!file_) return fail(cannot_write(errno, file_name_));
  return {};
}

Status TreeWriter::write_file() {
  if (is_skipping_file_) return {};
  const std::uint8_t* at = reader_.bytes();
  std::size_t left = reader_.size();
  while (left > 0) {
    const ssize_t wrote = ::write(file_.get(), at, left);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return fail(cannot_write(errno, file_name_));
    at += wrote;
    left -= static_cast<std::size_t>(wrote);
    bytes_ += static_cast<std::uint64_t>(wrote);
  }
  return {};
}

Status TreeWriter::end_file() {
  if (std::exchange(is_skipping_file_, false)) return {};
  const int place = folders_.empty() ? root_.get() : folders_.back().get();

  struct stat there {};

  const bool is_there = ::fstatat(place, file_name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0;
  if (is_there && !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode))
    return fail(
        ErrorCode::kConflict,
        file_name_ + " is there, and is no file",
        "move it away, or copy to another place"
    );
  if (::renameat(place, temporary_.c_str(), place, file_name_.c_str()) != 0)
    return fail(cannot_write(errno, file_name_));
  file_.reset();
  return {};
}

void TreeWriter::drop_file() {
  if (!file_) return;
  const int place = folders_.empty() ? root_.get() : folders_.back().get();
  ::unlinkat(place, temporary_.c_str(), 0);
  file_.reset();
}

Status TreeWriter::enter_folder() {
  if (is_skipped()) {
    ++skipped_folders_;
    return {};
  }
  RN_TRY(const int place, place_of_next());
  if (file_name_.empty()) {  // what is in it, into the root
    folders_.push_back(std::move(root_));
    return {};
  }
  const mode_t mode = (reader_.mode() & 0777u) | 0700u;
  if (::mkdirat(place, file_name_.c_str(), mode) != 0 && errno != EEXIST)
    return fail(cannot_write(errno, file_name_));
  io::Fd folder(::openat(place, file_name_.c_str(), kTreeFolder | O_NOFOLLOW));
  if (!folder) return fail(cannot_write(errno, file_name_));
  folders_.push_back(std::move(folder));
  return {};
}

void TreeWriter::leave_folder() {
  if (skipped_folders_ > 0) {
    --skipped_folders_;
  } else {
    folders_.pop_back();
  }
}

// ---- to a guest

Result<TreeReader> TreeReader::open(const std::string& path) {
  io::Fd fd(::open(path.c_str(), kTreeFile));
  if (!fd)
    return fail(io::error_from_errno(errno, path).hinting("name a file or a folder to copy"));

  struct stat about {};

  const bool is_known = ::fstat(fd.get(), &about) == 0;
  if (!is_known || (!S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)))
    return fail(
        ErrorCode::kInvalid, path + " is neither a file nor a folder", "name one of the two"
    );
  std::error_code failed;
  const auto real = std::filesystem::canonical(path, failed);
  // The name as it was given, of "." and "x/.." the folder's own.
  std::string name = std::filesystem::path(path).filename().string();
  if (!copy_stream::is_name(name.data(), name.size()))
    name = failed ? std::string() : real.filename().string();
  if (!copy_stream::is_name(name.data(), name.size())) name = "root";
  TreeReader reader;
  reader.begin(std::move(fd), about, name, path);
  return reader;
}

Blob TreeReader::next(std::size_t most) {
  while (used_ == ready_.size() && !is_over_) {
    ready_.clear();
    used_ = 0;
    produce();
  }
  const std::size_t size = std::min(most, ready_.size() - used_);
  const auto from = ready_.begin() + static_cast<std::ptrdiff_t>(used_);
  used_ += size;
  return Blob(from, from + static_cast<std::ptrdiff_t>(size));
}

void TreeReader::put(TreeKind kind) {
  ready_.push_back(static_cast<std::uint8_t>(kind));
}

void TreeReader::produce() {
  if (file_) return read_file();
  if (!folders_.empty()) return next_of_folder();
  put(TreeKind::kEnd);
  is_over_ = true;
}

void TreeReader::begin(
    io::Fd fd, const struct stat& about, const std::string& name, std::string path
) {
  const bool is_folder = S_ISDIR(about.st_mode);
  const TreeKind kind = is_folder ? TreeKind::kFolder : TreeKind::kFile;
  std::uint8_t entry[copy_stream::kEntryMax];
  const std::size_t size =
      copy_stream::write_entry(entry, kind, about.st_mode & 0777u, name.data(), name.size());
  ready_.insert(ready_.end(), entry, entry + size);
  if (!is_folder) {
    file_ = std::move(fd);
    file_path_ = std::move(path);
    return;
  }
  Folder folder;
  folder.path = std::move(path);
  DIR* const all = ::fdopendir(::dup(fd.get()));
  if (all == nullptr) left_out_.add(folder.path, "it cannot be read");
  for (const dirent* one = nullptr; all != nullptr && (one = ::readdir(all)) != nullptr;) {
    const std::string found = one->d_name;
    if (copy_stream::is_name(found.data(), found.size())) folder.names.push_back(found);
  }
  if (all != nullptr) ::closedir(all);
  std::sort(folder.names.begin(), folder.names.end());
  folder.fd = std::move(fd);
  folders_.push_back(std::move(folder));
}

void TreeReader::read_file() {
  ready_.resize(4 + kTreePieceBytes);
  const ssize_t got = ::read(file_.get(), ready_.data() + 4, kTreePieceBytes);
  std::uint32_t size = copy_stream::kChunksBroken;
  if (got >= 0) size = static_cast<std::uint32_t>(got);  // none: it is whole
  copy_stream::write_chunk_head(ready_.data(), size);
  ready_.resize(4 + (got > 0 ? static_cast<std::size_t>(got) : 0));
  if (got > 0) return;
  if (got < 0) left_out_.add(file_path_, "it cannot be read to its end");
  file_.reset();
}

void TreeReader::next_of_folder() {
  Folder& folder = folders_.back();
  if (folder.at == folder.names.size()) {
    put(TreeKind::kUp);
    folders_.pop_back();
    return;
  }
  const std::string name = folder.names[folder.at++];
  std::string path = folder.path + "/" + name;

  struct stat about {};

  if (::fstatat(folder.fd.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0)
    return left_out_.add(path, "it cannot be read");
  const bool is_folder = S_ISDIR(about.st_mode);
  if (!is_folder && !S_ISREG(about.st_mode))
    return left_out_.add(path, why_left_out(about.st_mode));
  if (is_folder && folders_.size() >= std::size_t{copy_stream::kDepthMax})
    return left_out_.add(path, "folders in it are too deep");
  const int flags = kTreeFile | O_NOFOLLOW | (is_folder ? O_DIRECTORY : 0);
  io::Fd fd(::openat(folder.fd.get(), name.c_str(), flags));
  const bool is_same = fd && ::fstat(fd.get(), &about) == 0 &&
                       S_ISDIR(about.st_mode) == is_folder && (is_folder || S_ISREG(about.st_mode));
  if (!is_same) return left_out_.add(path, "it cannot be read");
  begin(std::move(fd), about, name, std::move(path));
}

}  // namespace rn::cli
