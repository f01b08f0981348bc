// SPDX-License-Identifier: Apache-2.0
// Scripts with lines #SBATCH, as people hand them in.

#include <string>

#include "cli_slurm_script.h"

#include "base/assert.h"
#include "base/utf8.h"
#include "model/codec.h"
#include "model/job_rules.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  rn::cli::SlurmPlace place;
  place.script = "train.sbatch";
  place.folder = "/home/ada/digits";
  place.variable = [](const std::string& name) { return std::optional<std::string>(name); };
  const auto job = rn::cli::parse_slurm_script(text, place);
  if (!job) {
    RN_ASSERT(!job.error().message.empty(), "a refusal says why");
    RN_ASSERT(!job.error().hint.empty(), "and what to do");
    return 0;
  }
  RN_ASSERT(job->tasks.empty() || rn::check_indices(job->tasks), "an array is bounded");
  RN_ASSERT(job->spec.command.size() >= 4, "a job that was accepted has a shell and its text");
  RN_ASSERT(job->spec.resources.gpus <= 64, "a job that was accepted fits a machine");
  RN_ASSERT(job->spec.resources.memory_mib >= 16, "a job that was accepted has memory");
  const auto sent = rn::from_json<rn::JobSpec>(rn::to_json(job->spec));
  RN_ASSERT(sent.has_value(), "a job that was accepted can be sent");
  RN_ASSERT(
      sent->command == job->spec.command && sent->env == job->spec.env, "and arrives as it is"
  );
  RN_ASSERT(sent->after == job->spec.after, "with whom it waits for");
  for (const std::string& warning : job->warnings)
    RN_ASSERT(rn::is_utf8(warning), "a warning can be shown");
  return 0;
}
