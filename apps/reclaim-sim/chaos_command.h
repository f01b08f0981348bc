// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "sim/chaos.h"

namespace rn {

struct ChaosArguments {
  std::uint64_t seed = 1;
  std::uint64_t seeds = 0;  ///< 0: as many as `hours` take
  double hours = 2;
  std::uint32_t jobs = sim::ChaosOptions{}.jobs;
  std::uint32_t threads = 1;
  double wall_seconds = 0;  ///< 0: no limit
  bool echo = false;
  bool twice = false;
  bool has_strikes = true;
  bool needs_every_cell = false;
  std::string csv;  ///< file for the coverage table; empty: none
  std::string plant;
};

double hours_of(nanoseconds time);

/// Runs of a swarm, seed after seed. Prints coverage and figures; answers the exit status.
int chaos_command(const ChaosArguments& arguments);

/// Runs, each crashing where a point that no run has crashed at yet is first passed, until none is
/// left. Answers the exit status.
int crash_points_command(const ChaosArguments& arguments);

}  // namespace rn
