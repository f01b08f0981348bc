// SPDX-License-Identifier: Apache-2.0
// Structural checks: the first byte chooses the kind, the rest is the file.

#include <array>

#include "base/assert.h"
#include "base/fs_crash.h"
#include "checkpoint/completeness.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static constexpr std::array<const char*, 5> kNames = {
      "a.pt", "m.safetensors", "trainer_state.json", ".metadata", "x.npz"};
  if (size == 0) return 0;
  rn::ManualClock clock;
  rn::CrashFs fs(clock, 1);
  fs.overwrite("/f", {data + 1, size - 1});
  const auto file = fs.open("/f");
  const char* const name = kNames[data[0] % kNames.size()];
  const auto verdict = rn::checkpoint::check_completeness(**file, name);
  RN_ASSERT(verdict.has_value(), "a readable file has a verdict");

  const bool is_zip = data[0] % kNames.size() == 0;
  if (!is_zip || verdict->completeness != rn::checkpoint::Completeness::kComplete) return 0;
  fs.overwrite("/f", {data + 1, size - 2});
  const auto shorter = rn::checkpoint::check_completeness(**fs.open("/f"), name);
  RN_ASSERT(
      shorter->completeness != rn::checkpoint::Completeness::kComplete,
      "a cut archive is not complete"
  );
  return 0;
}
