// SPDX-License-Identifier: Apache-2.0
#include "cli_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "cli_print.h"

namespace rn::cli {

namespace {

/// With links followed and no slash at its end; empty if it is not there.
std::string real_path(const std::string& path) {
  std::error_code failed;
  const auto real = std::filesystem::canonical(path, failed);
  return failed ? std::string() : real.string();
}

}  // namespace

Status check_upload_folder(const std::string& folder, const std::string& home) {
  const std::string real = real_path(folder);
  const std::string own = home.empty() ? std::string() : real_path(home);
  if (real.empty()) return {};
  std::string what;
  if (real == "/") {
    what = "/ is the whole machine";
  } else if (real == own) {
    what = real + " is your home folder";
  } else if (own.starts_with(real + "/")) {
    what = "your home folder is in " + real;
  } else {
    return {};
  }
  std::error_code ignored;
  if (std::filesystem::is_regular_file(real + "/.reclaimignore", ignored)) return {};
  return fail(
      ErrorCode::kInvalid,
      what + ", and all of it would be uploaded: nothing was sent",
      "call it in the folder with the script, or name that one (--folder; workdir in a job file, "
      "--chdir for sbatch); --no-upload starts in an empty folder. If it is meant, a "
      ".reclaimignore "
      "there says what stays"
  );
}

Error too_many_files(const Listing& begun, std::size_t limit) {
  constexpr std::size_t kNamed = 3;
  std::map<std::string, std::size_t> below;
  for (const ListedFile& file : begun.files) {
    const auto slash = file.path.find('/');
    if (slash != std::string::npos) ++below[file.path.substr(0, slash)];
  }
  std::vector<std::pair<std::size_t, std::string>> most;
  for (const auto& [name, count] : below) most.emplace_back(count, name);
  std::sort(most.rbegin(), most.rend());
  std::string named;
  for (std::size_t i = 0; i < std::min(kNamed, most.size()); ++i)
    named += "\n  " + std::to_string(most[i].first) + "  " + most[i].second + "/";
  return {
      ErrorCode::kExhausted,
      "the folder has more than " + std::to_string(limit) + " files and folders" +
          (named.empty() ? std::string() : "; of those that were counted, most are in:" + named),
      "leave folders out with .reclaimignore, or pack many small files into one archive"};
}

std::string words_of_size(const Listing& listing) {
  std::size_t files = 0;
  std::uint64_t bytes = 0;
  for (const ListedFile& file : listing.files) {
    files += file.kind == FileKind::kFolder ? 0 : 1;
    bytes += file.bytes;
  }
  return std::to_string(files) + (files == 1 ? " file, " : " files, ") + human_bytes(bytes);
}

}  // namespace rn::cli
