// SPDX-License-Identifier: Apache-2.0
// Files that people write by hand: jobs and contracts in YAML.

#include <string>

#include "cli_job_file.h"

#include "agent/contract_file.h"
#include "base/assert.h"
#include "model/codec.h"

namespace {

void check_contract(const std::string& text) {
  // No folder of zones: the decoder is under test, not this machine's files.
  const std::string zones = "/nonexistent";
  const auto contract = rn::agent::parse_contract(text, {}, zones);
  if (!contract) {
    RN_ASSERT(!contract.error().message.empty(), "a refusal says why");
    return;
  }
  // NOTE: invalid UTF-8 in strings is replaced when written, so compare after one round.
  const auto once = rn::agent::parse_contract(rn::agent::to_yaml(*contract), {}, zones);
  RN_ASSERT(once.has_value(), "a contract that was accepted can be stored and read");
  RN_ASSERT(rn::to_json(*once) == rn::to_json(*contract), "storing a contract changes nothing");
}

void check_job(const std::string& text) {
  const auto job = rn::cli::parse_job_file(text);
  if (!job) {
    RN_ASSERT(!job.error().message.empty(), "a refusal says why");
    return;
  }
  RN_ASSERT(!job->spec.command.empty(), "a job that was accepted has a command");
  const auto sent = rn::from_json<rn::JobSpec>(rn::to_json(job->spec));
  RN_ASSERT(sent.has_value(), "a job that was accepted can be sent");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_job(text);
  check_contract(text);
  return 0;
}
