// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/inotify_watcher.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "checkpoint/glob.h"

namespace rn::checkpoint {

namespace {

constexpr std::uint32_t kMask = IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM |
                                IN_CREATE | IN_DELETE | IN_ONLYDIR | IN_EXCL_UNLINK;
constexpr std::size_t kWatchDepthMax = 128;

/// A descriptor of our own; closed at the end of the block.
class Handle {
 public:
  explicit Handle(int fd) : fd_(fd) {}

  ~Handle() {
    if (fd_ >= 0) ::close(fd_);
  }

  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  int get() const { return fd_; }

  bool is_open() const { return fd_ >= 0; }

  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// Opens a folder below `root` one component at a time: no link on the way is followed. -1 if it is
/// gone or no folder.
int open_below(int root, const std::string& path) {
  int at = ::fcntl(root, F_DUPFD_CLOEXEC, 0);
  std::size_t start = 0;
  while (at >= 0 && start < path.size()) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    const std::string part = path.substr(start, end - start);
    const int next = ::openat(at, part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ::close(at);
    at = next;
    start = end + 1;
  }
  return at;
}

std::string join_relative(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

ErrorCode code_of_errno(int error) {
  switch (error) {
    case ENOENT:
      return ErrorCode::kNotFound;
    case ENOTDIR:
    case ELOOP:
      return ErrorCode::kUnsupported;
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case ENOMEM:
      return ErrorCode::kExhausted;
    case EACCES:
    case EPERM:
      return ErrorCode::kDenied;
    default:
      return ErrorCode::kInternal;
  }
}

tl::unexpected<Error> fail_errno(const std::string& what, int error) {
  return fail(
      code_of_errno(error), what + ": " + std::strerror(error)
  );  // NOLINT(concurrency-mt-unsafe): glibc's is
}

}  // namespace

Result<std::unique_ptr<InotifyWatcher>> InotifyWatcher::open(
    const std::string& folder, Options options
) {
  Handle root(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!root.is_open()) return fail_errno("watching " + folder, errno);
  Handle events(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!events.is_open()) return fail_errno("inotify", errno);
  auto watcher = std::unique_ptr<InotifyWatcher>(
      new InotifyWatcher(events.release(), root.release(), std::move(options))
  );
  watcher->add_tree("", nullptr);
  if (watcher->folders_.empty())
    return fail(ErrorCode::kExhausted, "no inotify watch is left for " + folder);
  return watcher;
}

InotifyWatcher::~InotifyWatcher() {
  ::close(fd_);
  ::close(root_);
}

void InotifyWatcher::add_tree(const std::string& path, std::vector<FileEvent>* found) {
  std::vector<std::string> waiting = {path};
  while (!waiting.empty()) {
    const std::string at = std::move(waiting.back());
    waiting.pop_back();
    if (!at.empty() && matches_any(options_.skip, at)) continue;
    if (static_cast<std::size_t>(std::count(at.begin(), at.end(), '/')) >= kWatchDepthMax ||
        folders_.size() >= options_.folders_max) {
      is_complete_ = false;
      continue;
    }
    Handle folder(open_below(root_, at));
    if (!folder.is_open()) continue;  // gone again, or a link by now
    // Watch before listing: what appears in between is reported twice rather than never.
    const std::string by_handle = "/proc/self/fd/" + std::to_string(folder.get());
    const int watch = ::inotify_add_watch(fd_, by_handle.c_str(), kMask);
    if (watch < 0) {
      is_complete_ = false;
      continue;
    }
    folders_[watch] = at;
    watches_[at] = watch;
    DIR* entries = ::fdopendir(folder.get());
    if (entries == nullptr) continue;
    (void)folder.release();
    while (const dirent* entry = ::readdir(entries)) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      const std::string inside = join_relative(at, name);

      struct stat there {};

      if (::fstatat(::dirfd(entries), entry->d_name, &there, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (S_ISDIR(there.st_mode)) waiting.push_back(inside);
      if (S_ISREG(there.st_mode) && found != nullptr)
        found->push_back({inside, FileEventKind::kModified, false});
    }
    ::closedir(entries);
  }
}

/// A folder that was renamed keeps its watches under a path that is no longer true.
void InotifyWatcher::drop_tree(const std::string& path) {
  for (auto at = watches_.lower_bound(path); at != watches_.end();) {
    const bool is_below = at->first == path || at->first.starts_with(path + "/");
    if (!is_below && !at->first.starts_with(path)) break;
    if (!is_below) {
      ++at;
      continue;
    }
    ::inotify_rm_watch(fd_, at->second);
    folders_.erase(at->second);
    at = watches_.erase(at);
  }
}

Result<InotifyWatcher::Batch> InotifyWatcher::read_events() {
  Batch batch;
  alignas(inotify_event) std::array<char, 65536> buffer;
  const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return batch;
  if (got < 0) return fail_errno("reading inotify events", errno);
  for (std::size_t at = 0; at + sizeof(inotify_event) <= static_cast<std::size_t>(got);) {
    inotify_event event{};
    std::memcpy(&event, buffer.data() + at, sizeof event);
    const std::string name(
        buffer.data() + at + sizeof event, ::strnlen(buffer.data() + at + sizeof event, event.len)
    );
    at += sizeof event + event.len;
    if ((event.mask & IN_Q_OVERFLOW) != 0) {
      batch.must_rescan = true;
      continue;
    }
    const auto folder = folders_.find(event.wd);
    if (folder == folders_.end()) continue;
    if ((event.mask & IN_IGNORED) != 0) {  // the folder itself is gone
      watches_.erase(folder->second);
      folders_.erase(folder);
      continue;
    }
    if (name.empty()) continue;
    const std::string path = join_relative(folder->second, name);
    const bool is_folder = (event.mask & IN_ISDIR) != 0;
    if ((event.mask & (IN_MOVED_FROM | IN_DELETE)) != 0) {
      if (is_folder) drop_tree(path);
      batch.events.push_back({path, FileEventKind::kDeleted, is_folder});
    } else if ((event.mask & IN_MOVED_TO) != 0) {
      if (is_folder) add_tree(path, &batch.events);
      batch.events.push_back({path, FileEventKind::kMovedTo, is_folder});
    } else if (is_folder) {
      if ((event.mask & IN_CREATE) != 0) add_tree(path, &batch.events);
    } else if ((event.mask & IN_CLOSE_WRITE) != 0) {
      batch.events.push_back({path, FileEventKind::kCloseWrite, false});
    } else if ((event.mask & (IN_MODIFY | IN_CREATE)) != 0) {
      batch.events.push_back({path, FileEventKind::kModified, false});
    }
  }
  return batch;
}

}  // namespace rn::checkpoint
