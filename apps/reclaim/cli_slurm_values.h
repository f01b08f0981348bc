// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/job.h"

// How sbatch(1) writes numbers, times and memory. Pure; nothing = it is none.
namespace rn::cli {

// One machine has no more (model/job_rules.cc), so that products stay within 64 bits.
inline constexpr std::uint64_t kSlurmMibMax = 64u << 20;
inline constexpr std::uint64_t kSlurmSecondsMax = 10ull * 365 * 86'400;

using SlurmParts = std::vector<std::string>;

/// At least one, which may be empty.
SlurmParts slurm_parts(const std::string& text, char at);

std::string slurm_upper(std::string text);

/// Digits alone, also with zeros in front, as in times: "08:00:00".
std::optional<std::uint64_t> slurm_digits(const std::string& text, std::uint64_t most);

/// "90", "90:00", "1:30:00", "1-12", "1-12:30", "1-12:30:00" in seconds, a bare number counting
/// minutes; 0 for no limit.
std::optional<std::uint64_t> slurm_seconds(const std::string& text);

/// "USR1", "SIGUSR1" or "10": a signal on which a job may save.
std::optional<SaveSignal> save_signal_named(std::string name);

/// "16G", "4000", "500M" in MiB, rounded up; a bare number counts MiB. 0 is 0.
std::optional<std::uint64_t> slurm_mib(const std::string& text);

}  // namespace rn::cli
