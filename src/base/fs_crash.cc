// SPDX-License-Identifier: Apache-2.0
#include "base/fs_crash.h"

#include <algorithm>
#include <utility>

namespace rn {

namespace {

constexpr std::size_t kSector = 512;

}  // namespace

/// One unsynced change of a folder's names, in order. A rename inside one folder is one change;
/// between folders it is one change on each side, as journalling file systems do not tie them
/// either.
struct CrashFs::Change {
  std::string removed;  ///< name that goes away; empty if none
  std::string added;    ///< name that appears; empty if none
  NodeRef node;         ///< what `added` names
};

struct CrashFs::Node {
  FileStat::Kind kind = FileStat::Kind::kRegular;
  std::uint64_t inode = 0;
  std::uint32_t mode = 0644;
  std::int64_t mtime_ns = 0;
  std::int64_t changed_ns = 0;
  std::string target;  ///< of a link

  Blob cached;                ///< what reads see
  Blob medium;                ///< what a crash cannot take
  std::size_t clean = 0;      ///< bytes of `cached` that a sync still owes nothing for
  bool is_rewritten = false;  ///< truncated since the last sync

  Names names;          ///< of a folder, as seen
  Names durable_names;  ///< as of the last sync
  std::vector<Change> changes;
};

class CrashFs::OpenFile final : public File {
 public:
  OpenFile(CrashFs& fs, NodeRef node, std::string path)
      : fs_(fs), node_(std::move(node)), path_(std::move(path)), boot_(fs.boots_) {}

  Result<Blob> read(std::uint64_t offset, std::uint64_t max) override {
    RN_CHECK(check(Operation::kRead));
    if (fs_.read_hook_) fs_.read_hook_(path_);
    const auto& bytes = node_->cached;
    if (offset >= bytes.size()) return Blob{};
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    const auto length = std::min<std::uint64_t>(max, bytes.size() - offset);
    return Blob(begin, begin + static_cast<std::ptrdiff_t>(length));
  }

  Status append(BlobView bytes) override {
    const auto allowed = check(Operation::kAppend);
    if (allowed) return fs_.append_to(*node_, bytes);
    // A write that fails may have happened in part.
    const std::size_t part =
        bytes.empty() ? 0 : static_cast<std::size_t>(fs_.rng_.below(bytes.size() + 1));
    if (boot_ == fs_.boots_) (void)fs_.append_to(*node_, bytes.first(part));
    return allowed;
  }

  Status sync() override {
    const auto allowed = check(Operation::kSync);
    if (allowed) return fs_.sync_node(*node_);
    if (boot_ == fs_.boots_ && !fs_.crashed_)
      node_->clean = node_->cached.size();  // marked clean, never written
    return allowed;
  }

  Result<FileStat> stat() override {
    RN_CHECK(check(Operation::kStat));
    return FileStat{
        node_->kind,
        node_->cached.size(),
        node_->inode,
        node_->mtime_ns,
        node_->mode,
        1,
        node_->changed_ns};
  }

 private:
  Status check(Operation kind) {
    if (boot_ != fs_.boots_)
      return fail(ErrorCode::kInternal, path_ + ": handle of before the crash");
    return fs_.begin(kind);
  }

  CrashFs& fs_;
  NodeRef node_;
  std::string path_;
  std::uint64_t boot_;
};

CrashFs::CrashFs(const Clock& clock, std::uint64_t seed) : clock_(clock), rng_(seed) {
  root_ = make_node(FileStat::Kind::kDirectory, 0755);
}

CrashFs::~CrashFs() = default;

void CrashFs::crash_at(std::uint64_t operation) {
  crash_at_ = operations_ + operation;
}

void CrashFs::fail_once(Operation kind, std::uint64_t nth, ErrorCode code) {
  planned_[kind][counts_[kind] + nth] = code;
}

bool CrashFs::forget_failures() {
  const bool were_there = std::any_of(planned_.begin(), planned_.end(), [](const auto& of_kind) {
    return !of_kind.second.empty();
  });
  planned_.clear();
  return were_there;
}

std::int64_t CrashFs::wall_ns() const {
  return to_ms(clock_.now().wall) * 1'000'000;
}

Status CrashFs::begin(Operation kind) {
  const std::uint64_t number = operations_++;
  const std::uint64_t of_kind = counts_[kind]++;
  if (crash_at_ && number >= *crash_at_) crashed_ = true;
  if (crashed_) return fail(ErrorCode::kInternal, "the machine has crashed");
  auto& planned = planned_[kind];
  const auto found = planned.find(of_kind);
  if (found == planned.end()) return {};
  const ErrorCode code = found->second;
  planned.erase(found);
  return fail(code, "injected fault");
}

CrashFs::NodeRef CrashFs::make_node(FileStat::Kind kind, std::uint32_t mode) {
  auto node = std::make_shared<Node>();
  node->kind = kind;
  node->mode = mode & 07777;
  node->inode = next_inode_++;
  node->mtime_ns = node->changed_ns = wall_ns();
  nodes_[node->inode] = node;
  return node;
}

Result<CrashFs::NodeRef> CrashFs::find(const std::string& path) const {
  if (path.empty() || path.front() != '/')
    return fail(ErrorCode::kInvalid, "not an absolute path: " + path);
  NodeRef at = root_;
  std::size_t start = 1;
  while (start < path.size()) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    const std::string part = path.substr(start, end - start);
    if (at->kind != FileStat::Kind::kDirectory)
      return fail(ErrorCode::kNotFound, path + " does not exist");
    const auto found = at->names.find(part);
    if (found == at->names.end()) return fail(ErrorCode::kNotFound, path + " does not exist");
    at = found->second;
    start = end + 1;
  }
  return at;
}

Result<CrashFs::NodeRef> CrashFs::find_folder(const std::string& path) const {
  RN_TRY(NodeRef node, find(path));
  if (node->kind != FileStat::Kind::kDirectory)
    return fail(ErrorCode::kUnsupported, path + " is not a folder");
  return node;
}

Result<std::pair<CrashFs::NodeRef, std::string>> CrashFs::find_parent(const std::string& path
) const {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos || slash + 1 == path.size())
    return fail(ErrorCode::kInvalid, "not a file's path: " + path);
  RN_TRY(NodeRef folder, find_folder(parent_folder(path)));
  return std::pair(std::move(folder), path.substr(slash + 1));
}

Status CrashFs::add(const std::string& path, NodeRef node) {
  RN_TRY(const auto place, find_parent(path));
  const auto& [folder, name] = place;
  if (folder->names.contains(name)) return fail(ErrorCode::kConflict, path + " exists");
  folder->names[name] = node;
  folder->changes.push_back({"", name, std::move(node)});
  folder->mtime_ns = folder->changed_ns = wall_ns();
  return {};
}

std::uint64_t CrashFs::used_bytes() const {
  std::uint64_t used = 0;
  for (const auto& [inode, weak] : nodes_) {
    if (const auto node = weak.lock()) used += node->cached.size();
  }
  return used;
}

Status CrashFs::append_to(Node& node, BlobView bytes) {
  const std::uint64_t used = capacity_ == ~std::uint64_t{0} ? 0 : used_bytes();
  const std::uint64_t room = capacity_ > used ? capacity_ - used : 0;
  const auto taken = static_cast<std::size_t>(std::min<std::uint64_t>(room, bytes.size()));
  node.cached.insert(
      node.cached.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken)
  );
  node.mtime_ns = node.changed_ns = wall_ns();
  if (taken < bytes.size()) return fail(ErrorCode::kExhausted, "the disk is full");
  return {};
}

Status CrashFs::sync_node(Node& node) {
  if (node.is_rewritten) {
    node.medium = node.cached;
  } else {
    // Bytes marked clean by a failed sync are not written again: the medium keeps zeros in their
    // place.
    node.medium.resize(std::max(node.medium.size(), node.cached.size()));
    const auto from = static_cast<std::ptrdiff_t>(node.clean);
    std::copy(node.cached.begin() + from, node.cached.end(), node.medium.begin() + from);
  }
  node.clean = node.cached.size();
  node.is_rewritten = false;
  return {};
}

Result<std::unique_ptr<File>> CrashFs::open(const std::string& path) {
  RN_CHECK(begin(Operation::kOpen));
  RN_TRY(NodeRef node, find(path));
  if (node->kind == FileStat::Kind::kSymlink)
    return fail(ErrorCode::kDenied, path + " is a symbolic link");
  if (node->kind != FileStat::Kind::kRegular)
    return fail(ErrorCode::kUnsupported, path + " is not a file");
  return std::make_unique<OpenFile>(*this, std::move(node), path);
}

Result<std::unique_ptr<File>> CrashFs::create(const std::string& path, std::uint32_t mode) {
  RN_CHECK(begin(Operation::kCreate));
  auto node = make_node(FileStat::Kind::kRegular, mode);
  RN_CHECK(add(path, node));
  return std::make_unique<OpenFile>(*this, std::move(node), path);
}

Result<std::unique_ptr<File>> CrashFs::open_append(const std::string& path, std::uint32_t mode) {
  const auto there = find(path);
  if (!there) return create(path, mode);
  return open(path);
}

Status CrashFs::rename(const std::string& from, const std::string& to) {
  RN_CHECK(begin(Operation::kRename));
  RN_TRY(const auto source, find_parent(from));
  RN_TRY(const auto target, find_parent(to));
  const auto found = source.first->names.find(source.second);
  if (found == source.first->names.end())
    return fail(ErrorCode::kNotFound, from + " does not exist");
  const auto over = target.first->names.find(target.second);
  if (over != target.first->names.end() && over->second->kind == FileStat::Kind::kDirectory &&
      !over->second->names.empty()) {
    return fail(ErrorCode::kConflict, to + " is a folder that is not empty");
  }
  if (from == to) return {};
  const NodeRef node = found->second;
  source.first->names.erase(found);
  target.first->names[target.second] = node;
  if (source.first == target.first) {
    source.first->changes.push_back({source.second, target.second, node});
  } else {
    target.first->changes.push_back({"", target.second, node});
    source.first->changes.push_back({source.second, "", nullptr});
  }
  return {};
}

Status CrashFs::remove(const std::string& path) {
  RN_CHECK(begin(Operation::kRemove));
  RN_TRY(const auto place, find_parent(path));
  const auto& [folder, name] = place;
  const auto found = folder->names.find(name);
  if (found == folder->names.end()) return fail(ErrorCode::kNotFound, path + " does not exist");
  if (!found->second->names.empty())
    return fail(ErrorCode::kConflict, path + " is a folder that is not empty");
  folder->names.erase(found);
  folder->changes.push_back({name, "", nullptr});
  return {};
}

Status CrashFs::make_folder(const std::string& path, std::uint32_t mode) {
  RN_CHECK(begin(Operation::kMakeFolder));
  if (path == "/") return fail(ErrorCode::kConflict, "/ exists");
  return add(path, make_node(FileStat::Kind::kDirectory, mode));
}

Status CrashFs::make_symlink(const std::string& target, const std::string& path) {
  RN_CHECK(begin(Operation::kLink));
  auto node = make_node(FileStat::Kind::kSymlink, 0777);
  node->target = target;
  return add(path, std::move(node));
}

Result<std::string> CrashFs::read_symlink(const std::string& path) {
  RN_CHECK(begin(Operation::kLink));
  RN_TRY(const NodeRef node, find(path));
  if (node->kind != FileStat::Kind::kSymlink)
    return fail(ErrorCode::kUnsupported, path + " is not a link");
  return node->target;
}

Status CrashFs::set_mode(const std::string& path, std::uint32_t mode) {
  RN_CHECK(begin(Operation::kSetAttribute));
  RN_TRY(const NodeRef node, find(path));
  node->mode = mode & 07777;
  node->changed_ns = wall_ns();
  return {};
}

Status CrashFs::set_mtime(const std::string& path, std::int64_t mtime_ns) {
  RN_CHECK(begin(Operation::kSetAttribute));
  RN_TRY(const NodeRef node, find(path));
  node->mtime_ns = mtime_ns;
  node->changed_ns = wall_ns();
  return {};
}

Status CrashFs::sync_folder(const std::string& path) {
  RN_CHECK(begin(Operation::kSyncFolder));
  RN_TRY(const NodeRef folder, find_folder(path));
  folder->durable_names = folder->names;
  folder->changes.clear();
  return {};
}

Result<FileStat> CrashFs::stat(const std::string& path) {
  RN_CHECK(begin(Operation::kStat));
  RN_TRY(const NodeRef node, find(path));
  return FileStat{
      node->kind,
      node->cached.size(),
      node->inode,
      node->mtime_ns,
      node->mode,
      1,
      node->changed_ns};
}

Result<std::vector<std::string>> CrashFs::list(const std::string& path) {
  RN_CHECK(begin(Operation::kList));
  RN_TRY(const NodeRef folder, find_folder(path));
  std::vector<std::string> names;
  for (const auto& [name, node] : folder->names) names.push_back(name);
  return names;
}

Result<std::uint64_t> CrashFs::free_bytes(const std::string& path) {
  RN_CHECK(begin(Operation::kStat));
  RN_TRY(const NodeRef node, find(path));
  if (capacity_ == ~std::uint64_t{0}) return std::uint64_t{1} << 50;
  const std::uint64_t used = used_bytes();
  return capacity_ > used ? capacity_ - used : 0;
}

void CrashFs::drop_cache(const std::string& path) {
  const auto node = find(path);
  if (!node || (*node)->kind != FileStat::Kind::kRegular) return;
  Node& file = **node;
  if (file.is_rewritten || file.clean < file.cached.size()) return;  // dirty pages stay
  file.medium.resize(file.cached.size());  // sectors that were never written read as zeros
  file.cached = file.medium;
}

bool CrashFs::flip(
    const std::string& path, std::uint64_t offset, std::uint8_t mask, bool only_medium
) {
  const auto node = find(path);
  if (!node || offset >= (*node)->cached.size()) return false;
  const auto at = static_cast<std::size_t>(offset);
  if (at < (*node)->medium.size()) (*node)->medium[at] ^= mask;
  if (!only_medium) (*node)->cached[at] ^= mask;
  return true;
}

void CrashFs::overwrite(const std::string& path, BlobView bytes) {
  auto node = find(path);
  if (!node) {
    node = make_node(FileStat::Kind::kRegular, 0644);
    if (!add(path, *node)) return;
  }
  (*node)->cached.assign(bytes.begin(), bytes.end());
  (*node)->is_rewritten = true;
  (*node)->clean = 0;
  (*node)->mtime_ns = (*node)->changed_ns = wall_ns();
}

void CrashFs::make_special(const std::string& path) {
  (void)add(path, make_node(FileStat::Kind::kOther, 0644));
}

void CrashFs::lose_names(Node& folder) {
  Names after = folder.durable_names;
  const bool is_ordered =
      rng_.below(2) == 0;  // a journal keeps a prefix; POSIX promises not even that
  const std::uint64_t kept = is_ordered ? rng_.below(folder.changes.size() + 1) : 0;
  std::uint64_t index = 0;
  for (const Change& change : folder.changes) {
    const bool survives = is_ordered ? index < kept : rng_.below(2) == 0;
    ++index;
    if (!survives) continue;
    // A rename whose source never reached the disk cannot have either.
    const bool is_rename = !change.removed.empty() && !change.added.empty();
    if (is_rename && !after.contains(change.removed)) continue;
    if (!change.removed.empty()) after.erase(change.removed);
    if (!change.added.empty()) after[change.added] = change.node;
  }
  folder.names = after;
  folder.durable_names = std::move(after);
  folder.changes.clear();
}

void CrashFs::lose_bytes(Node& file) {
  if (!file.is_rewritten &&
      file.clean >= file.cached.size()) {  // nothing owed: cache and medium may still differ
    file.medium.resize(file.cached.size());
    file.cached = file.medium;
    return;
  }
  const std::size_t synced = file.is_rewritten ? 0 : std::min(file.clean, file.cached.size());
  const auto length =
      synced + static_cast<std::size_t>(rng_.below(file.cached.size() - synced + 1));
  Blob after(length, 0);
  std::copy_n(file.medium.begin(), std::min({synced, file.medium.size(), length}), after.begin());
  for (std::size_t at = synced; at < length; at = (at / kSector + 1) * kSector) {
    const std::size_t end = std::min(length, (at / kSector + 1) * kSector);
    if (rng_.below(3) == 0) continue;  // this sector stays zeros
    std::copy(
        file.cached.begin() + static_cast<std::ptrdiff_t>(at),
        file.cached.begin() + static_cast<std::ptrdiff_t>(end),
        after.begin() + static_cast<std::ptrdiff_t>(at)
    );
  }
  file.medium = after;
  file.cached = std::move(after);
  file.clean = file.cached.size();
  file.is_rewritten = false;
}

void CrashFs::restart() {
  ++boots_;
  crashed_ = false;
  crash_at_.reset();
  planned_.clear();
  for (auto at = nodes_.begin(); at != nodes_.end();) {
    const auto node = at->second.lock();
    if (!node) {
      at = nodes_.erase(at);
      continue;
    }
    if (node->kind == FileStat::Kind::kDirectory) lose_names(*node);
    if (node->kind == FileStat::Kind::kRegular) lose_bytes(*node);
    ++at;
  }
}

}  // namespace rn
