// SPDX-License-Identifier: Apache-2.0
#include "agent/local_work.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace rn::agent {

namespace {

constexpr std::uint64_t kSpoolBytesMax = 256u << 20;  // the warden's log limit is far below
constexpr std::uint64_t kReadBytes = 1u << 20;

}  // namespace

Status collect_garbage(checkpoint::ChunkStore& store, const CollectGarbage& work) {
  if (work.is_job_over) return store.forget(work.job).map([](const auto&) {});
  const std::vector<GenerationRef> all = store.list(work.job);
  const auto previous = std::find_if(all.begin(), all.end(), [&](const GenerationRef& ref) {
    return ref.generation >= work.keep_from;
  });
  if (previous == all.end()) return {};
  const auto next = std::next(previous);
  checkpoint::Retention retention;
  retention.job = work.job;
  retention.previous = previous->manifest;
  retention.acknowledged = next == all.end() ? previous->manifest : next->manifest;
  retention.epoch = all.back().epoch;
  RN_CHECK(store.collect(retention));
  RN_CHECK(store.sweep());  // what broken transfers left and nobody came back for
  return {};
}

Result<LogRead> read_log(
    FileSystem& fs, const std::string& spool, const std::string& source, const ReadLog& work
) {
  RN_TRY(const auto file, fs.open_append(spool, 0600));
  RN_TRY(FileStat stat, file->stat());
  if (!source.empty()) {
    const auto disk = fs.open_folder(source);
    auto log =
        disk ? (*disk)->open("reclaim/log") : Result<std::unique_ptr<File>>(fail(disk.error()));
    while (log && stat.size < kSpoolBytesMax) {
      RN_TRY(const Blob bytes, (*log)->read(stat.size, kReadBytes));
      if (bytes.empty()) break;
      RN_CHECK(file->append(bytes));
      stat.size += bytes.size();
    }
  }
  LogRead out;
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
  return std::all_of(answers.begin(), answers.end(), [](HolderAnswer answer) {
    return answer == HolderAnswer::kLacks;
  });
}

}  // namespace rn::agent
