// SPDX-License-Identifier: Apache-2.0
#include "agent/local_work.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "base/planted.h"
#include "base/whole_number.h"
#include "checkpoint/glob.h"
#include "checkpoint/watch.h"

namespace rn::agent {

namespace {

/// The log is a guest's own file, to which it may write more than is kept of what it prints.
constexpr std::uint64_t kSpoolBytesMax = warden_wire::kLogBytesMax;
constexpr std::uint64_t kReadBytes = 1u << 20;

/// Finds kSavedLine in a log that comes in pieces, wherever they are cut.
class SavedLineSearch {
 public:
  static constexpr std::size_t kKept = kSavedLine.size() + 2;  // the line, "\r", what is before it

  /// `before`: the newest bytes of what was searched already; the line's end must be new.
  SavedLineSearch(BlobView before, bool is_from_start)
      : kept_(as_text(before)), is_from_start_(is_from_start) {}

  void look_at(BlobView piece) {
    const std::size_t searched = kept_.size();
    kept_ += as_text(piece);
    for (auto end = kept_.find('\n', searched); end != std::string::npos && !is_found;
         end = kept_.find('\n', end + 1))
      is_found = is_line_before(end);
    if (kept_.size() <= kKept) return;
    kept_.erase(0, kept_.size() - kKept);
    is_from_start_ = false;
  }

  bool is_found = false;

 private:
  bool is_line_before(std::size_t end) const {
    if (end > 0 && kept_[end - 1] == '\r') --end;
    if (end < kSavedLine.size()) return false;
    const std::size_t begin = end - kSavedLine.size();
    if (kept_.compare(begin, kSavedLine.size(), kSavedLine) != 0) return false;
    return begin == 0 ? is_from_start_ : kept_[begin - 1] == '\n';
  }

  std::string kept_;
  bool is_from_start_;  ///< of the log
};

/// "RUN CODE", or "RUN late". The file is the guest's: anything else says nothing.
std::optional<HookEnd> hook_end_in(FileSystem& fs, const std::string& source) {
  constexpr std::size_t kMost = 32;
  const auto disk = fs.open_folder(source);
  if (!disk) return std::nullopt;
  const auto file = (*disk)->open("reclaim/hook");
  if (!file) return std::nullopt;
  const auto bytes = (*file)->read(0, kMost);
  if (!bytes) return std::nullopt;
  const std::string_view text = as_text(*bytes);
  const auto blank = text.find(' ');
  const auto end = text.find('\n');
  if (blank == text.npos || end == text.npos || end < blank) return std::nullopt;
  const auto run = whole_number<std::uint32_t>(std::string(text.substr(0, blank)), 1);
  if (!run) return std::nullopt;
  const std::string how(text.substr(blank + 1, end - blank - 1));
  if (how == "late") return HookEnd{*run, 0, true};
  const auto code = whole_number<std::uint32_t>(how, 0, 255);
  if (!code) return std::nullopt;
  return HookEnd{*run, static_cast<std::int32_t>(*code), false};
}

/// The file itself is named by a pattern, or a folder that it lies in.
bool is_of_checkpoint(const std::vector<std::string>& patterns, const std::string& path) {
  const auto& wanted = patterns.empty() ? checkpoint::usual_checkpoint_names() : patterns;
  for (auto end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
    if (checkpoint::matches_any(wanted, path.substr(0, end))) return true;
  }
  return checkpoint::matches_any(wanted, path);
}

Result<SavedLineSearch> search_from(FileSystem& fs, const std::string& spool, std::uint64_t size) {
  const std::uint64_t back = std::min<std::uint64_t>(size, SavedLineSearch::kKept);
  Blob before;
  if (back > 0) {
    RN_TRY(const auto reader, fs.open(spool));
    RN_TRY(before, reader->read(size - back, back));
  }
  return SavedLineSearch(before, back == size);
}

}  // namespace

std::set<std::string> missing_of(
    FileSystem& fs,
    const std::string& folder,
    const std::vector<std::string>& patterns,
    const Manifest& manifest
) {
  std::set<std::string> out;
  // No link is followed on the way: what lies behind one of the member's own is not looked at.
  const auto root = fs.open_folder(folder);
  for (const FileEntry& file : manifest.files) {
    const bool is_content = file.kind == FileKind::kRegular || file.kind == FileKind::kSymlink;
    if (!is_content || !is_of_checkpoint(patterns, file.path)) continue;
    const auto there = root ? (*root)->stat(file.path) : Result<FileStat>(fail(root.error()));
    if (!there && there.error().code == ErrorCode::kNotFound) out.insert(file.path);
  }
  return out;
}

void leave_but(Manifest& manifest, const std::set<std::string>& paths) {
  std::erase_if(manifest.files, [&](const FileEntry& file) { return !paths.contains(file.path); });
  manifest.removed.clear();
}

Status collect_garbage(checkpoint::ChunkStore& store, const CollectGarbage& work) {
  if (work.is_job_over) return store.finish(work.job, work.epoch).map([](const auto&) {});
  if (work.replaced != 0)
    return store.replace(work.job, work.epoch, work.replaced).map([](const auto&) {});
  RN_CHECK(store.collect({work.job, work.keep_from, work.also_keep}));
  RN_CHECK(store.sweep());  // what broken transfers left and nobody came back for
  return {};
}

Result<LogRead> read_log(
    FileSystem& fs, const std::string& spool, const std::string& source, const ReadLog& work
) {
  RN_TRY(const auto file, fs.open_append(spool, 0600));
  RN_TRY(FileStat stat, file->stat());
  LogRead out;
  if (!source.empty()) {
    std::optional<SavedLineSearch> search;
    const auto disk = fs.open_folder(source);
    auto log =
        disk ? (*disk)->open("reclaim/log") : Result<std::unique_ptr<File>>(fail(disk.error()));
    while (log && stat.size < kSpoolBytesMax) {
      const std::uint64_t most = std::min(kReadBytes, kSpoolBytesMax - stat.size);
      RN_TRY(const Blob bytes, (*log)->read(stat.size, most));
      if (bytes.empty()) break;
      if (!search) {
        RN_TRY(search, search_from(fs, spool, stat.size));
      }
      RN_CHECK(file->append(bytes));
      stat.size += bytes.size();
      search->look_at(bytes);
    }
    out.is_declared = search && search->is_found;
    if (work.has_hook) out.hook = hook_end_in(fs, source);
  }
  out.offset = work.offset;
  out.spooled_bytes = stat.size;
  if (work.max_bytes > 0 && work.offset < stat.size) {
    RN_TRY(const auto reader, fs.open(spool));
    RN_TRY(out.bytes, reader->read(work.offset, work.max_bytes));
  }
  return out;
}

Status remove_strays(
    FileSystem& fs, const std::string& folder, const std::vector<JournalRow>& journal
) {
  constexpr std::string_view kAttempt = "attempt/";
  std::set<std::string> needed;
  for (const JournalRow& row : journal) {
    const std::size_t slash = row.key.rfind('/');
    if (!row.key.starts_with(kAttempt) || slash < kAttempt.size()) continue;
    const std::string job = row.key.substr(kAttempt.size(), slash - kAttempt.size());
    needed.insert(job + "-" + row.key.substr(slash + 1));
  }
  const auto names = fs.list(folder);
  if (!names) return names.error().code == ErrorCode::kNotFound ? Status{} : fail(names.error());
  for (const std::string& name : *names) {
    if (!needed.contains(name)) RN_CHECK(remove_tree(fs, join_path(folder, name)));
  }
  return {};
}

HolderAnswer answer_of(ErrorCode code) {
  const bool has_it_not = code == ErrorCode::kNotFound || code == ErrorCode::kCorrupt;
  return has_it_not ? HolderAnswer::kLacks : HolderAnswer::kNoWord;
}

bool may_fall_back(const std::vector<HolderAnswer>& answers) {
  if (planted("agent.falls_back_too_soon")) return true;
  return std::all_of(answers.begin(), answers.end(), [](HolderAnswer answer) {
    return answer == HolderAnswer::kLacks;
  });
}

Result<crypto::Key256> open_job_key(
    const crypto::BoxKey& box, const JobId& job, const Blob& sealed
) {
  auto bytes = crypto::open_sealed(box, sealed, as_bytes(job.str()));
  if (!bytes) return fail(bytes.error().with("the job's key"));
  crypto::Key256 key{};
  if (bytes->size() != key.size())
    return fail(ErrorCode::kCorrupt, "the job's key has not 32 bytes");
  std::copy(bytes->begin(), bytes->end(), key.begin());
  return key;
}

}  // namespace rn::agent
