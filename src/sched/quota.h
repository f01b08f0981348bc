// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/quota.h"

// Whether a quota lets a job begin. Pure.
namespace rn::sched {

/// What somebody has of what a quota bounds.
struct QuotaCount {
  std::uint32_t gpus = 0;
  std::uint32_t running = 0;
  std::uint32_t jobs = 0;
  double gpu_hours = 0;
  /// That what runs may still use, as far as it says for how long it runs.
  double promised_gpu_hours = 0;
};

/// What one more job asks for.
struct QuotaNeed {
  std::uint32_t gpus = 0;
  double gpu_hours = 0;  ///< at most, as the job says; 0: it does not say
};

/// "NVIDIA H100 80GB HBM3" has "h100" in its name. An empty pattern matches every model.
bool is_gpu_model(std::string_view pattern, std::string_view model);

/// Why no such job can ever begin: "user:anna may have 4 GPUs at once, and this job asks for 8".
/// Empty: it can. Of a quota for some models nothing is said: there are others.
std::string never_words(const Quota& quota, std::string_view who, const QuotaNeed& need);

/// Why it does not begin now: "anna runs 4 of 4 GPUs". Empty: it may. A job without GPUs is bounded
/// by the number of jobs alone; exactly what is left may be had.
std::string not_now_words(
    const Quota& quota, std::string_view who, const QuotaCount& count, const QuotaNeed& need
);

/// Why no `more` jobs are taken: "anna has 10 of 10 jobs that are not over". Empty: they are.
std::string too_many_words(
    const Quota& quota, std::string_view who, const QuotaCount& count, std::uint64_t more
);

/// "anna" of "user:anna", "lab vision" of "lab:vision".
std::string quota_subject_words(std::string_view subject);

}  // namespace rn::sched
