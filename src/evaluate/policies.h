// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "evaluate/world.h"

namespace rn::evaluate {

/// By its name (docs/evaluation.md). The seed is for the product's own draws; the setting for the
/// oracle alone, which is given what comes. kInvalid lists all names.
Result<std::unique_ptr<Policy>> make_policy(
    std::string_view name, std::uint64_t seed, const Setting& setting
);

/// All names, separated by commas; SECONDS stands for a number of at least 10.
std::string known_policies();

/// Seconds between saves, of "slurm-s1-600" and the like: a family's name, a dash and a number;
/// nullopt of all others.
std::optional<double> interval_in_name(std::string_view name);

/// Whether policies of this family are called by it, a dash and their interval: "slurm-s1",
/// "slurm-s2", "condor-vacate", "bamboo", "bamboo-one-lab" and "warm-shadow".
bool is_family(std::string_view name);

}  // namespace rn::evaluate
