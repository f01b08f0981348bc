// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/job.h"

namespace rn::cli {

/// A job as its file says it.
struct JobFile {
  JobSpec spec;
  std::vector<std::string> notify;  ///< addresses and URLs that are told of it
  std::string folder;               ///< to upload, relative to the file; empty = none asked
};

/// A native job file (YAML, or JSON in the same words), or a JobSpec as the API takes it (JSON with
/// "command"). docs/guests.md explains the native fields. kInvalid names the field and the nearest
/// known one.
Result<JobFile> parse_job_file(std::string_view text);

inline constexpr std::size_t kJobFileMaxBytes = 1 << 20;

Error job_file_too_long(const std::string& what);

/// Its text. Only of a regular file (a pipe that nobody writes into is not waited for) of at most
/// kJobFileMaxBytes; each error says what to do.
Result<std::string> read_job_file(const std::string& path);

/// All native fields, sorted; what is in another one as "resources.cpus".
std::vector<std::string> job_file_words();

/// "512", "512MB", "4GiB", "2g" in MiB; a bare number is GiB as in other tools' files. kInvalid.
Result<std::uint64_t> parse_memory_mib(const std::string& text);
/// "2", "0.5", "4+" in thousandths of a core. kInvalid.
Result<std::uint32_t> parse_cpu_milli(const std::string& text);
/// "1", "24GB", "A100:2", "24GB:2", "7.0+" is no GPU: count and memory. kInvalid.
Status parse_gpu(const std::string& text, Resources& resources);
/// "90", "90s", "5m", "2h", "1d" in seconds. kInvalid.
Result<std::uint32_t> parse_duration_s(const std::string& text);
/// "10.1.2.0/24:5000/udp"; port and protocol may be left out. kInvalid.
Result<NetworkAllow> parse_peer(const std::string& text);
/// "17", "fail:17": the id or number of a job, with what must have become of it (ok, fail, any,
/// started; it must have succeeded if nothing is said). kInvalid.
Result<AfterJob> parse_after(const std::string& text);
/// "USR1", "sigterm", "auto". kInvalid.
Result<SaveSignal> parse_signal(const std::string& text);

}  // namespace rn::cli
