// SPDX-License-Identifier: Apache-2.0
#include "evaluate/spot_trace.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "evaluate/trace_rows.h"

namespace rn::evaluate {

namespace {
constexpr std::int64_t kLatest_ms = 366 * std::int64_t{86'400'000};
constexpr std::size_t kLongestName = 200;
}  // namespace

Result<SpotTrace> parse_spot_trace(std::string_view text, const std::string& file) {
  constexpr std::size_t kTime = 0;
  constexpr std::size_t kEvent = 1;
  constexpr std::size_t kNode = 2;
  RN_TRY(TraceRows rows, TraceRows::open(text, file, {"ms", "event", "node"}));
  SpotTrace trace;
  std::map<std::string, std::int64_t, std::less<>> there;
  bool is_any = false;
  while (true) {
    RN_TRY(const bool is_row, rows.next());
    if (!is_row) break;
    RN_TRY(const std::int64_t at_ms, rows.integer(kTime, 0, kLatest_ms));
    if (is_any && at_ms < trace.ends_ms)
      return rows.fail_here(
          "ms goes back: " + std::to_string(trace.ends_ms) + " stands before it",
          "sort the rows by ms"
      );
    is_any = true;
    trace.ends_ms = at_ms;
    const std::string machine(rows.field(kNode));
    if (machine.empty() || machine.size() > kLongestName)
      return rows.fail_here("node has no name, or a longer one than 200 bytes");
    const auto found = there.find(machine);
    if (rows.field(kEvent) == "add") {
      if (found != there.end()) return rows.fail_here("a node is added that is there already");
      there.emplace(machine, at_ms);
      trace.most_at_once = std::max(trace.most_at_once, there.size());
    } else if (rows.field(kEvent) == "remove") {
      if (found == there.end()) return rows.fail_here("a node is removed that is not there");
      trace.spells.push_back({machine, found->second, at_ms, true});
      there.erase(found);
    } else {
      return rows.fail_here("event is neither add nor remove");
    }
  }
  if (!is_any) return rows.fail_here("there are no rows");
  for (const auto& [machine, from_ms] : there)
    trace.spells.push_back({machine, from_ms, trace.ends_ms, false});
  std::stable_sort(trace.spells.begin(), trace.spells.end(), [](const auto& a, const auto& b) {
    return std::tie(a.from_ms, a.machine) < std::tie(b.from_ms, b.machine);
  });
  return trace;
}

Result<SpotTrace> read_spot_trace(const std::string& path) {
  RN_TRY(const std::string text, read_trace_text(path));
  return parse_spot_trace(text, path);
}

}  // namespace rn::evaluate
