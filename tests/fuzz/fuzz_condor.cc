// SPDX-License-Identifier: Apache-2.0
// HTCondor submit files, as people hand them in.

#include <algorithm>
#include <string>

#include "cli_condor_file.h"
#include "cli_condor_lines.h"

#include "base/assert.h"
#include "base/utf8.h"
#include "model/codec.h"

namespace {

void check_job(const rn::cli::CondorJob& job) {
  const rn::JobSpec& spec = job.spec;
  RN_ASSERT(!spec.command.empty(), "a job that was accepted has a command");
  RN_ASSERT(spec.resources.gpus <= 64, "a job that was accepted fits a machine");
  RN_ASSERT(spec.resources.memory_mib >= 16, "a job that was accepted has memory");
  for (const rn::cli::InputFile& input : job.inputs) {
    RN_ASSERT(input.from.starts_with('/'), "files are named whole");
    RN_ASSERT(input.as.find('/') == std::string::npos, "and lie in the job's folder itself");
    RN_ASSERT(input.as != ".." && input.as != ".", "and nowhere else");
  }
  const auto sent = rn::from_json<rn::JobSpec>(rn::to_json(spec));
  RN_ASSERT(sent.has_value(), "a job that was accepted can be sent");
  RN_ASSERT(sent->command == spec.command && sent->env == spec.env, "and arrives as it is");
  for (const std::string& word : spec.command)
    RN_ASSERT(word.find('\x01') == std::string::npos, "no mark of a macro is left");
  for (const auto& [name, value] : spec.env)
    RN_ASSERT((name + value).find('\x01') == std::string::npos, "neither in variables");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  (void)rn::cli::is_condor_file(text);
  rn::cli::CondorPlace place;
  place.folder = "/home/ada/digits";
  place.variable = [](const std::string& name) { return std::optional<std::string>(name); };
  place.read = [&](const std::string&) { return rn::Result<std::string>(text); };
  const auto file = rn::cli::parse_condor_file(text, place);
  if (!file) {
    RN_ASSERT(!file.error().message.empty(), "a refusal says why");
    RN_ASSERT(!file.error().hint.empty(), "and what to do");
    return 0;
  }
  RN_ASSERT(!file->jobs.empty(), "a file that was accepted has jobs");
  RN_ASSERT(file->jobs.size() <= rn::cli::kCondorJobsMax, "and a bounded number of them");
  check_job(file->jobs.front());
  check_job(file->jobs.back());
  for (const std::string& warning : file->warnings)
    RN_ASSERT(rn::is_utf8(warning), "a warning can be shown");
  return 0;
}
