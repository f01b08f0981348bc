// SPDX-License-Identifier: Apache-2.0
#include "cli_fetch.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "cli_print.h"
#include "cli_save_file.h"
#include "cli_upload.h"

#include "base/crypto.h"
#include "base/printable.h"
#include "io/real_fs.h"

namespace rn::cli {

namespace {

constexpr std::size_t kFetchesAtOnce = 6;
constexpr std::size_t kSmallFetchesAtOnce = 8;
constexpr std::size_t kSmallFilesAhead = 1000;
constexpr std::uint64_t kBytesAhead = kFetchesAtOnce * kPieceBytes;

/// Refuses to go through a link that somebody put into the listing or the folder.
Status check_parents(FileSystem& fs, const std::string& folder, const std::string& path) {
  for (auto slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const auto there = fs.stat(join_path(folder, path.substr(0, slash)));
    if (there && there->kind == FileStat::Kind::kSymlink) {
      return fail(
          ErrorCode::kDenied,
          path + " goes through the symbolic link " + path.substr(0, slash),
          "fetch into an empty folder: reclaim cp JOB: DEST"
      );
    }
  }
  return {};
}

/// What lies in .git is git's to run, and .reclaim is ours: no output has business there.
bool is_reserved(const std::string& path) {
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    std::string part = path.substr(begin, end - begin);
    std::transform(part.begin(), part.end(), part.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    if (part == ".git" || (begin == 0 && part == ".reclaim")) return true;
    begin = end + 1;
  }
  return false;
}

bool is_newer_here(
    FileSystem& fs, const std::string& folder, const ListedFile& file, const OwnFiles& own
) {
  if (own.since == WallTime::max() || file.kind == FileKind::kFolder) return false;
  const auto there = fs.stat(join_path(folder, file.path));
  return there && there->kind != FileStat::Kind::kDirectory &&
         there->mtime_ns > std::chrono::nanoseconds(own.since.time_since_epoch()).count();
}

/// Standard error names the first of them.
class Named {
 public:
  void add(const std::string& path) {
    if (++count_ <= kShown) text_ += (text_.empty() ? "" : ", ") + printable(path);
  }

  void say(const char* what, const std::string& next) const {
    if (count_ == 0) return;
    const std::string more =
        count_ > kShown ? " and " + std::to_string(count_ - kShown) + " more" : "";
    std::fprintf(stderr, "%s: %s%s; %s\n", what, text_.c_str(), more.c_str(), next.c_str());
  }

 private:
  static constexpr std::size_t kShown = 5;

  std::size_t count_ = 0;
  std::string text_;
};

bool is_wanted(const std::string& path, const std::string& prefix) {
  return prefix.empty() || path == prefix || path.starts_with(prefix + "/");
}

/// Whether an error of the coordinator's will come again with each file.
bool ends_all(const Error& error) {
  return is_retryable(error.code) || error.code == ErrorCode::kDenied;
}

using FilePointers = std::vector<const ListedFile*>;

/// Writes one file at a time: a big one downloaded in pieces, several pieces at once; small ones
/// out of what was downloaded ahead for many of them.
class Fetcher {
 public:
  Fetcher(const Client& client, std::string folder, Replace replace)
      : client_(client), folder_(std::move(folder)), replace_(replace) {}

  /// Whether an error of the last one will come again with each.
  bool is_last(const Error& error) const { return is_retryable(error.code) || is_refused_; }

  /// Downloads small files from `first` on, which fetch() then writes; answers the first one that
  /// is not among them. What fails here fails, and is said, when its turn to be written comes.
  std::size_t fetch_ahead(const FilePointers& files, std::size_t first) {
    ahead_.clear();
    ahead_error_.reset();
    std::vector<Digest> names;
    std::set<Digest> known;
    std::uint64_t bytes = 0;
    std::size_t end = first;
    for (; end < files.size() && names.size() < kSmallFilesAhead; ++end) {
      const ListedFile& file = *files[end];
      if (file.blobs.size() > 1 || file.bytes > kBytesAhead - bytes) break;
      bytes += file.bytes;
      if (!file.blobs.empty() && known.insert(file.blobs[0]).second) names.push_back(file.blobs[0]);
    }
    if (names.size() > 1) download_ahead(names);
    return std::max(end, first + 1);
  }

  /// `below`: a folder in the folder, or nothing.
  Status fetch(const ListedFile& file, Progress& progress, const std::string& below = "") {
    if (!is_safe_relative_path(file.path))
      return fail(
          ErrorCode::kDenied, "the outputs name a path outside the folder: " + file.path, ""
      );
    const std::string place = below.empty() ? file.path : join_path(below, file.path);
    RN_CHECK(check_parents(fs_, folder_, place));
    const std::string path = join_path(folder_, place);
    if (file.kind == FileKind::kFolder) return make_folders(fs_, path, 0755);
    RN_CHECK(make_folders(fs_, parent_folder(path), 0755));
    if (file.kind == FileKind::kSymlink) return make_link(file, path);
    return write(file, path, progress);
  }

 private:
  Status make_link(const ListedFile& file, const std::string& path) {
    RN_CHECK(check_may_write(fs_, path, Replace::kFile));
    const std::string temporary = fresh_name(path);
    (void)fs_.remove(temporary);
    RN_CHECK(fs_.make_symlink(file.target, temporary));
    return fs_.rename(temporary, path);
  }

  Status write(const ListedFile& file, const std::string& path, Progress& progress) {
    return save_file(fs_, path, file.mode, replace_, [&](File& out) -> Status {
      // Pieces in windows, so that a big file does not fill the memory.
      for (std::size_t first = 0; first < file.blobs.size(); first += kFetchesAtOnce) {
        const auto window = fetch_window(file, first);
        if (!window) {
          is_refused_ = window.error().code == ErrorCode::kDenied;
          return fail(window.error());
        }
        for (const std::string& piece : *window) {
          RN_CHECK(out.append(as_bytes(piece)));
          progress.advance(piece.size());
        }
      }
      return {};
    });
  }

  void download_ahead(const std::vector<Digest>& names) {
    std::size_t next_name = 0;
    std::uint64_t kept = 0;
    const auto next = [&](io::HttpCall& call, std::uint64_t& tag) -> Result<bool> {
      if (next_name == names.size()) return false;
      tag = next_name++;
      call = client_.call("GET", "/v1/blobs/" + to_hex(names[tag]));
      call.timeout = seconds(300);
      return true;
    };
    const auto done = [&](std::uint64_t tag, const io::HttpReply& reply) -> Status {
      // Larger than the listing says, or damaged: fetched by itself, which says so.
      if (reply.body.size() > kBytesAhead - kept) return {};
      if (crypto::sha256(as_bytes(reply.body)) != names[tag]) return {};
      kept += reply.body.size();
      ahead_.emplace(names[tag], reply.body);
      return {};
    };
    const auto failed = [](const Error& error) -> Status {
      if (ends_all(error)) return fail(error);
      return {};
    };
    if (const Status all = perform_many(kSmallFetchesAtOnce, next, done, failed); !all)
      ahead_error_ = all.error();
  }

  Result<std::vector<std::string>> fetch_window(const ListedFile& file, std::size_t first) {
    if (file.blobs.size() == 1) {
      const auto there = ahead_.find(file.blobs[0]);
      if (there != ahead_.end()) return std::vector<std::string>{there->second};
      if (ahead_error_) return fail(*ahead_error_);
    }
    const std::size_t last = std::min(file.blobs.size(), first + kFetchesAtOnce);
    std::vector<std::string> window(last - first);
    std::size_t next_piece = first;
    const auto next = [&](io::HttpCall& call, std::uint64_t& tag) -> Result<bool> {
      if (next_piece == last) return false;
      tag = next_piece++;
      call = client_.call("GET", "/v1/blobs/" + to_hex(file.blobs[tag]));
      call.timeout = seconds(300);
      return true;
    };
    const auto done = [&](std::uint64_t tag, const io::HttpReply& reply) -> Status {
      if (crypto::sha256(as_bytes(reply.body)) != file.blobs[tag])
        return fail(
            ErrorCode::kCorrupt, file.path + " arrived damaged", "fetch it again: reclaim cp"
        );
      window[tag - first] = reply.body;
      return {};
    };
    RN_CHECK(perform_many(kFetchesAtOnce, next, done));
    return window;
  }

  const Client& client_;
  std::string folder_;
  Replace replace_;
  bool is_refused_ = false;
  std::map<Digest, std::string> ahead_;
  std::optional<Error> ahead_error_;  ///< what ended the download ahead before it had all
  io::RealFileSystem fs_;
};

/// What could not be written is no reason to leave the rest where it is.
class NotWritten {
 public:
  void add(const std::string& path, const Error& error) {
    const bool names_path = error.message.find(path) != std::string::npos;
    if (++count_ <= kNamed)
      text_ += (text_.empty() ? "" : "; ") + (names_path ? "" : path + ": ") + error.message;
  }

  Status said(std::size_t of) const {
    if (count_ == 0) return {};
    const std::string more =
        count_ > kNamed ? "; and " + std::to_string(count_ - kNamed) + " more" : "";
    return fail(
        ErrorCode::kConflict,
        std::to_string(count_) + " of " + std::to_string(of) +
            " outputs were not written: " + text_ + more,
        "the others are here; fetch these into an empty folder: reclaim cp JOB: FOLDER"
    );
  }

 private:
  static constexpr std::size_t kNamed = 20;

  std::size_t count_ = 0;
  std::string text_;
};

Status fetch_log(
    const Client& client, const Job& job, std::uint32_t attempt, const std::string& path
) {
  io::RealFileSystem fs;
  return save_file(fs, path, 0644, Replace::kFile, [&](File& out) -> Status {
    io::HttpCall call =
        client.call("GET", "/v1/jobs/" + job.id.str() + "/logs?attempt=" + std::to_string(attempt));
    call.timeout = seconds(600);
    call.on_data = [&](BlobView bytes) { return out.append(bytes); };
    const auto reply = io::succeed(io::perform_blocking(call));
    if (!reply) return fail(with_next_step(reply.error(), client.login().url));
    return {};
  });
}

}  // namespace

Status fetch_listing(
    const Client& client,
    const Listing& listing,
    const std::string& prefix,
    const std::string& folder,
    const OwnFiles& own
) {
  io::RealFileSystem fs;
  RN_CHECK(make_folders(fs, folder, 0755));
  std::uint64_t total = 0;
  FilePointers wanted;
  Named reserved;
  for (const ListedFile& file : listing.files) {
    if (!is_wanted(file.path, prefix)) continue;
    if (is_reserved(file.path)) {
      reserved.add(file.path);
      continue;
    }
    wanted.push_back(&file);
    total += file.bytes;
  }
  if (wanted.empty() && !prefix.empty()) {
    return fail(
        ErrorCode::kNotFound,
        "the job's outputs have no '" + prefix + "'",
        "'reclaim cp JOB: FOLDER' brings all of them"
    );
  }
  Progress progress("fetching outputs", total);
  Fetcher fetcher(client, folder, Replace::kFile);
  Named kept;
  NotWritten not_written;
  std::size_t ahead_until = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (i == ahead_until) ahead_until = fetcher.fetch_ahead(wanted, i);
    const ListedFile& file = *wanted[i];
    const bool is_kept = is_newer_here(fs, folder, file, own);
    if (is_kept) kept.add(file.path);
    const Status fetched = fetcher.fetch(file, progress, is_kept ? own.aside : "");
    if (fetched) continue;
    if (fetcher.is_last(fetched.error()))
      return fail(with_next_step(fetched.error().with(file.path), client.login().url));
    not_written.add(file.path, fetched.error());
  }
  reserved.say(
      "not brought home",
      "git's and our own folders are not written to; let the job name it otherwise"
  );
  kept.say("changed here while the job ran, and kept", "the job's are in " + own.aside);
  return not_written.said(wanted.size());
}

Status fetch_file(
    const Client& client, const ListedFile& file, const std::string& folder, Replace replace
) {
  Progress progress("fetching " + file.path, file.bytes);
  const Status fetched = Fetcher(client, folder, replace).fetch(file, progress);
  if (!fetched) return fail(with_next_step(fetched.error(), client.login().url));
  return {};
}

Status fetch_logs(const Client& client, const Job& job, const std::string& folder) {
  RN_TRY(
      const auto list, client.get_as<api::AttemptList>("/v1/jobs/" + job.id.str() + "/attempts")
  );
  io::RealFileSystem fs;
  const std::string below = ".reclaim/" + job.id.str();
  RN_CHECK(check_parents(fs, folder, below + "/"));
  const std::string place = join_path(folder, below);
  RN_CHECK(make_folders(fs, place, 0755));
  for (const Attempt& attempt : list.attempts) {
    const std::uint32_t number = attempt.epoch.attempt;
    RN_CHECK(fetch_log(
        client, job, number, join_path(place, "attempt-" + std::to_string(number) + ".log")
    ));
  }
  return {};
}

Status bring_home(const Client& client, const Job& job, const std::string& folder, WallTime since) {
  if (!is_safe_relative_path(job.id.str()))
    return fail(ErrorCode::kCorrupt, "the coordinator names a strange job", "");
  RN_CHECK(fetch_logs(client, job, folder));
  if (job.outputs == Digest{}) return {};
  RN_TRY(const auto listing, client.get_as<Listing>("/v1/jobs/" + job.id.str() + "/outputs"));
  return fetch_listing(
      client, listing, "", folder, {since, ".reclaim/" + job.id.str() + "/outputs"}
  );
}

}  // namespace rn::cli
