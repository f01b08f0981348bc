// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "sim/world.h"

namespace rn::sim {

struct ChaosOptions {
  std::uint64_t seed = 1;
  nanoseconds length = std::chrono::hours(2);  ///< of the safety phase: faults anywhere
  /// Afterwards, without faults: every job must end. Longer if the jobs need it.
  nanoseconds liveness = std::chrono::hours(6);
  std::uint32_t jobs = 6;
  std::set<std::string> crash_at;  ///< besides what the seed draws: where these are first passed
  bool has_strikes = true;         ///< faults at crash points other than the process's own death
  bool echo = false;
};

struct ChaosReport {
  std::uint64_t seed = 0;
  std::uint64_t fingerprint = 0;
  std::uint64_t events = 0;
  std::uint64_t checks = 0;
  nanoseconds simulated{0};
  std::vector<std::string> violations;
  std::vector<std::string> history;  ///< the newest lines, if there are violations
  std::map<std::string, World::Coverage, std::less<>> coverage;
  std::map<std::string, std::uint64_t> faults;  ///< how often each was injected
};

/// One seeded run: a swarm (each seed switches a random subset of the faults on), then the liveness
/// phase. Same options, same fingerprint.
ChaosReport run_chaos(const ChaosOptions& options);

}  // namespace rn::sim
