// SPDX-License-Identifier: Apache-2.0
#include "coordinator/blobs_log.h"

#include <cstdlib>
#include <utility>

#include "coordinator/log_times.h"

namespace rn::coordinator {

namespace {

// Files beside the logs; all but the first hold the time.
constexpr const char* kFetched = "fetched";
constexpr const char* kRemoved = "removed";
constexpr const char* kWarned = "warned";
constexpr const char* kOutputsRemoved = "outputs-removed";

// Beside each log, when what is in it came.
constexpr const char* kTimes = ".times";
constexpr std::int64_t kTimesEvery_ms = 1000;
constexpr std::uint64_t kTimesBytesMax = 8u << 20;  // some days of a guest that never falls silent
constexpr std::size_t kLogsNoted = 4096;

}  // namespace

AttemptLogs::AttemptLogs(FileSystem& fs, std::string root, std::uint64_t max_bytes_per_attempt)
    : fs_(fs),
      root_(std::move(root)),
      max_bytes_(max_bytes_per_attempt),
      thread_([this] { run(); }) {}

AttemptLogs::~AttemptLogs() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

std::string AttemptLogs::path_of(const JobId& job, LeaseEpoch epoch) const {
  return root_ + "/" + job.str() + "/" + to_string(epoch) + ".log";
}

Status AttemptLogs::append(
    const JobId& job,
    LeaseEpoch epoch,
    std::uint64_t offset,
    Blob bytes,
    Appended done,
    std::int64_t now_wall_ms
) {
  if (!is_safe_relative_path(job.str()))
    return fail(ErrorCode::kInvalid, "not a job id: " + job.str().substr(0, 40));
  {
    const std::lock_guard lock(mutex_);
    if (queued_bytes_ + bytes.size() > kMaxQueuedBytes)
      return fail(ErrorCode::kExhausted, "too many log bytes wait for the disk");
    queued_bytes_ += bytes.size();
    queue_.push_back({path_of(job, epoch), offset, std::move(bytes), std::move(done), now_wall_ms});
  }
  wake_.notify_one();
  return {};
}

Result<Blob> AttemptLogs::read(
    const JobId& job, LeaseEpoch epoch, std::uint64_t offset, std::uint64_t max
) {
  const auto file = fs_.open(path_of(job, epoch));
  if (!file) {
    if (file.error().code == ErrorCode::kNotFound) return Blob{};
    return fail(file.error());
  }
  return (*file)->read(offset, max);
}

Result<std::uint64_t> AttemptLogs::size(const JobId& job, LeaseEpoch epoch) {
  const auto there = fs_.stat(path_of(job, epoch));
  if (there) return there->size;
  if (there.error().code == ErrorCode::kNotFound) return std::uint64_t{0};
  return fail(there.error());
}

Result<std::vector<api::LogTime>> AttemptLogs::times(const JobId& job, LeaseEpoch epoch) const {
  const auto text = read_all(fs_, path_of(job, epoch) + kTimes, 2 * kTimesBytesMax);
  if (text) return parse_log_times(as_text(*text));
  if (text.error().code == ErrorCode::kNotFound) return std::vector<api::LogTime>();
  return fail(text.error());
}

/// Without it the log is as good: nothing fails for it, and it is not synced. What a power loss
/// takes of it seems to have come with what came before.
void AttemptLogs::note_time(const Append& append, std::uint64_t begin) {
  if (append.now_wall_ms == 0) return;
  const auto known = noted_ms_.find(append.path);
  const bool is_new = known == noted_ms_.end();
  if (!is_new && append.now_wall_ms - known->second < kTimesEvery_ms &&
      append.now_wall_ms >= known->second)
    return;
  if (noted_ms_.size() >= kLogsNoted) noted_ms_.clear();
  noted_ms_[append.path] = append.now_wall_ms;
  const auto file = fs_.open_append(append.path + kTimes, 0600);
  if (!file) return;
  const auto there = (*file)->stat();
  if (!there || there->size >= kTimesBytesMax) return;
  (void)(*file)->append(as_bytes(log_time_record({begin, append.now_wall_ms})));
}

Result<std::set<JobId>> AttemptLogs::jobs() const {
  RN_TRY(const auto names, fs_.list(root_));
  std::set<JobId> jobs;
  for (const std::string& name : names) jobs.insert(JobId(name));
  return jobs;
}

Result<bool> AttemptLogs::remove(const JobId& job, std::int64_t now_wall_ms) {
  if (!is_safe_relative_path(job.str())) return fail(ErrorCode::kInvalid, "not a job id");
  const std::string folder = join_path(root_, job.str());
  const auto names = fs_.list(folder);
  if (!names && names.error().code == ErrorCode::kNotFound) return false;
  if (!names) return fail(names.error());
  bool had_any = false;
  bool is_empty = true;
  for (const std::string& name : *names) {
    if (name.ends_with(".log")) {
      if (!had_any) RN_CHECK(mark(job, kRemoved, std::to_string(now_wall_ms)));
      is_empty = false;
      RN_CHECK(fs_.remove(join_path(folder, name)));
      had_any = true;
    } else if (name.ends_with(kTimes)) {
      is_empty = false;
      RN_CHECK(fs_.remove(join_path(folder, name)));
    } else {
      is_empty = false;
    }
  }
  if (is_empty) RN_CHECK(fs_.remove(folder));
  return had_any;
}

Status AttemptLogs::mark_fetched(const JobId& job) {
  if (!is_safe_relative_path(job.str())) return fail(ErrorCode::kInvalid, "not a job id");
  return is_fetched(job) ? Status() : mark(job, kFetched, "");
}

Status AttemptLogs::mark(const JobId& job, const char* name, const std::string& text) {
  const std::string folder = join_path(root_, job.str());
  RN_CHECK(make_folders(fs_, folder, 0700));
  RN_CHECK(write_durably(fs_, join_path(folder, name), as_bytes(text), 0600));
  return fs_.sync_folder(root_);
}

std::optional<std::int64_t> AttemptLogs::marked_wall_ms(const JobId& job, const char* name) const {
  if (!is_safe_relative_path(job.str())) return std::nullopt;
  const auto bytes = read_all(fs_, join_path(join_path(root_, job.str()), name), 32);
  if (!bytes) return std::nullopt;
  return std::strtoll(std::string(as_text(*bytes)).c_str(), nullptr, 10);
}

std::optional<std::int64_t> AttemptLogs::removed_wall_ms(const JobId& job) const {
  return marked_wall_ms(job, kRemoved);
}

Status AttemptLogs::mark_warned(const JobId& job, std::int64_t now_wall_ms) {
  if (!is_safe_relative_path(job.str())) return fail(ErrorCode::kInvalid, "not a job id");
  return warned_wall_ms(job) ? Status() : mark(job, kWarned, std::to_string(now_wall_ms));
}

std::optional<std::int64_t> AttemptLogs::warned_wall_ms(const JobId& job) const {
  return marked_wall_ms(job, kWarned);
}

Result<bool> AttemptLogs::mark_outputs_removed(const JobId& job, std::int64_t now_wall_ms) {
  if (!is_safe_relative_path(job.str())) return fail(ErrorCode::kInvalid, "not a job id");
  if (marked_wall_ms(job, kOutputsRemoved)) return false;
  RN_CHECK(mark(job, kOutputsRemoved, std::to_string(now_wall_ms)));
  return true;
}

bool AttemptLogs::is_fetched(const JobId& job) const {
  return is_safe_relative_path(job.str()) &&
         fs_.stat(join_path(join_path(root_, job.str()), kFetched)).has_value();
}

void AttemptLogs::run() {
  while (true) {
    std::vector<Append> batch;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      batch.swap(queue_);
      queued_bytes_ = 0;
    }
    write_batch(batch);
  }
}

void AttemptLogs::write_batch(std::vector<Append>& batch) {
  std::map<std::string, Result<Open>> files;
  std::vector<Result<std::uint64_t>> written;
  written.reserve(batch.size());
  for (const Append& append : batch) {
    auto found = files.find(append.path);
    if (found == files.end())
      found = files.emplace(append.path, open_for_append(append.path)).first;
    if (!found->second) {
      written.emplace_back(fail(found->second.error()));
      continue;
    }
    written.push_back(write_one(append, *found->second));
    // NOTE: after a failed append the file's end is unknown; nothing more goes to it in this batch.
    if (!written.back()) found->second = fail(written.back().error());
  }
  for (auto& [path, open] : files) {
    if (!open) continue;
    const Status synced = open->file->sync();
    if (!synced) open = fail(synced.error());
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto& file = files.at(batch[i].path);
    batch[i].done(file ? std::move(written[i]) : Result<std::uint64_t>(fail(file.error())));
  }
}

Result<AttemptLogs::Open> AttemptLogs::open_for_append(const std::string& path) {
  const bool is_new = !fs_.stat(path).has_value();
  if (is_new) RN_CHECK(make_folders(fs_, parent_folder(path), 0700));
  Open open;
  RN_TRY(open.file, fs_.open_append(path, 0600));
  if (is_new) {
    RN_CHECK(fs_.sync_folder(parent_folder(path)));
    RN_CHECK(fs_.sync_folder(root_));
  }
  RN_TRY(const FileStat there, open.file->stat());
  open.size = there.size;
  return open;
}

Result<std::uint64_t> AttemptLogs::write_one(const Append& append, Open& open) {
  const std::uint64_t end = append.offset + append.bytes.size();
  if (end > max_bytes_) return end;
  if (append.offset > open.size || end <= open.size) return open.size;
  const BlobView news = BlobView(append.bytes).subspan(open.size - append.offset);
  RN_CHECK(open.file->append(news));
  note_time(append, open.size);
  open.size = end;
  return open.size;
}

}  // namespace rn::coordinator
