// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/fields.h"

// What a user or a laboratory may have at once, and within a time (docs/quotas.md).
namespace rn {

inline constexpr std::uint32_t kQuotaWindowS = 7 * 86'400;
inline constexpr std::uint32_t kQuotaWindowMostS = 31 * 86'400;  ///< no use is kept for longer

/// Key: subject, gpu_model. What is not set has no bound.
struct Quota {
  /// "user:anna", "lab:vision"; "user:*" and "lab:*" are of each that has none of its own for these
  /// GPUs.
  std::string subject;
  std::string gpu_model;  ///< of GPUs alone whose model has this in its name; empty: of all
  std::optional<std::uint32_t> gpus;     ///< that their jobs hold at once
  std::optional<std::uint32_t> running;  ///< jobs that run at once
  std::optional<std::uint32_t> jobs;     ///< that are not over: those that wait, too
  std::optional<double> gpu_hours;       ///< in the last window_s
  std::uint32_t window_s = kQuotaWindowS;
  /// Jobs that do not say it themselves are stopped when they used nothing for so long (JobSpec).
  std::optional<std::uint32_t> idle_stop_s;
  UserId set_by;
  std::int64_t set_wall_ms = 0;

  RN_FIELDS(
      Quota,
      subject,
      gpu_model,
      gpus,
      running,
      jobs,
      gpu_hours,
      window_s,
      idle_stop_s,
      set_by,
      set_wall_ms
  )
};

namespace api {

/// Takes the place of the whole quota that the subject has for these GPUs.
struct QuotaRequest {
  std::string gpu_model;
  std::optional<std::uint32_t> gpus;
  std::optional<std::uint32_t> running;
  std::optional<std::uint32_t> jobs;
  std::optional<double> gpu_hours;
  std::uint32_t window_s = kQuotaWindowS;
  std::optional<std::uint32_t> idle_stop_s;  ///< a minute at least

  RN_FIELDS(QuotaRequest, gpu_model, gpus, running, jobs, gpu_hours, window_s, idle_stop_s)
};

/// What somebody has, beside what they may have.
struct QuotaUse {
  std::string subject;    ///< "user:anna", "lab:vision"
  std::string rule;       ///< whose quota counts: their own, or "user:*"; empty: none
  std::string gpu_model;  ///< of that quota
  std::uint32_t gpus_used = 0;
  std::optional<std::uint32_t> gpus;
  std::uint32_t running_used = 0;
  std::optional<std::uint32_t> running;
  std::uint32_t jobs_used = 0;
  std::optional<std::uint32_t> jobs;
  double gpu_hours_used = 0;
  std::optional<double> gpu_hours;
  std::uint32_t window_s = kQuotaWindowS;

  RN_FIELDS(
      QuotaUse,
      subject,
      rule,
      gpu_model,
      gpus_used,
      gpus,
      running_used,
      running,
      jobs_used,
      jobs,
      gpu_hours_used,
      gpu_hours,
      window_s
  )
};

struct QuotaList {
  std::vector<Quota> quotas;  ///< admins: all; others: those that count for what they see
  /// The caller, and their lab where a quota of it counts; for owners also its users; admins: all.
  std::vector<QuotaUse> uses;

  RN_FIELDS(QuotaList, quotas, uses)
};

}  // namespace api

}  // namespace rn
