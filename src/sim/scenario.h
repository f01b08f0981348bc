// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"

namespace rn::sim {

/// One line of a scenario file (docs/scenarios.md): a verb with its words. Lines that start with #
/// tell the story.
struct ScenarioCommand {
  std::uint32_t line = 0;
  std::vector<std::string> words;
  std::string text;
  std::optional<std::uint32_t> gpu = {};  ///< of the node that it names
};

/// kInvalid with the line's number for what is no command. Pure.
Result<std::vector<ScenarioCommand>> parse_scenario(const std::string& text);

/// "90s", "5m", "2h", "250ms". kInvalid otherwise.
Result<nanoseconds> parse_duration(const std::string& text);

struct ScenarioOutcome {
  std::uint64_t fingerprint = 0;
  std::uint64_t events = 0;
  std::uint64_t checks = 0;
  nanoseconds simulated{0};
};

/// Plays the commands on a simulated site; invariants are checked after every event, liveness by
/// the last command (`end`). The error names the line that failed and the newest history.
Result<ScenarioOutcome> play_scenario(
    const std::vector<ScenarioCommand>& commands, std::uint64_t seed, bool echo
);

}  // namespace rn::sim
