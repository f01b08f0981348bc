// SPDX-License-Identifier: Apache-2.0
// Recorded owners, jobs and spot machines: the first byte says which.

#include <string_view>

#include "base/assert.h"
#include "evaluate/job_trace.h"
#include "evaluate/owner_trace.h"
#include "evaluate/spot_trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rn::evaluate;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0]) {
    case 'o':
    case 'g': {
      const TraceGaps gaps = data[0] == 'g' ? TraceGaps::kEndSpells : TraceGaps::kRefused;
      const auto lab = parse_owner_trace(text, "f", "lab", {.gaps = gaps});
      if (!lab) break;
      std::int64_t free_from = 0;
      std::size_t node = 0;
      for (const LentSpell& spell : lab->spells) {
        if (spell.node != node) free_from = lab->begins_ms;
        node = spell.node;
        RN_ASSERT(spell.node < lab->nodes, "a spell is of a node that there is");
        RN_ASSERT(spell.from_ms < spell.to_ms, "a spell takes time");
        RN_ASSERT(spell.from_ms >= free_from, "spells of a node follow each other");
        free_from = spell.to_ms;
      }
      RN_ASSERT(lab->gaps == 0 || data[0] == 'g', "gaps are refused unless they are asked for");
      break;
    }
    case 'j': {
      const auto jobs = parse_job_trace(text, "f");
      if (!jobs) break;
      for (std::size_t i = 1; i < jobs->size(); ++i)
        RN_ASSERT((*jobs)[i].submitted_ms >= (*jobs)[i - 1].submitted_ms, "jobs are ordered");
      break;
    }
    default: {
      const auto trace = parse_spot_trace(text, "f");
      if (!trace) break;
      for (const SpotSpell& spell : trace->spells)
        RN_ASSERT(spell.from_ms <= spell.to_ms, "a machine goes after it came");
    }
  }
  return 0;
}
