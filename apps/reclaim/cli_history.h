// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli_client.h"

#include "model/api.h"
#include "model/fields.h"

namespace rn::cli {

/// A job that has ended.
struct PastJob {
  JobId job;
  std::uint64_t number = 0;
  std::string name;
  JobState state = JobState::kSucceeded;
  std::int64_t submitted_wall_ms = 0;
  std::int64_t started_wall_ms = 0;
  std::int64_t finished_wall_ms = 0;
  std::vector<std::string> hosts;  ///< where it ran, in order; an id where the node has gone
  std::uint32_t attempts = 0;      ///< that ran
  std::uint32_t displacements = 0;
  std::uint32_t restarts = 0;
  double ran_s = 0;   ///< all attempts together
  double lost_s = 0;  ///< of this: done again by a later attempt
  std::int32_t exit_code = 0;
  std::string reason;

  RN_FIELDS(
      PastJob,
      job,
      number,
      name,
      state,
      submitted_wall_ms,
      started_wall_ms,
      finished_wall_ms,
      hosts,
      attempts,
      displacements,
      restarts,
      ran_s,
      lost_s,
      exit_code,
      reason
  )
};

struct PastJobs {
  std::vector<PastJob> jobs;  ///< who ended last first

  RN_FIELDS(PastJobs, jobs)
};

struct HistoryOptions {
  std::string since;   ///< ended in this time: "7d"; empty: whenever
  std::string status;  ///< "succeeded", "failed" or "cancelled"; empty: all
  std::uint32_t limit = 20;
  bool is_json = false;
};

/// Time that ran and was done again: what an attempt did after the state from which the next one
/// went on, as the dashboard counts it. Nothing is claimed where that state's row has been
/// collected.
std::int64_t lost_work_ms(
    const std::vector<Attempt>& attempts, const std::vector<api::GenerationInfo>& generations
);

/// Pure. `hosts` are the nodes' hostnames.
PastJob past_job(
    const Job& job,
    const std::vector<Attempt>& attempts,
    const std::vector<api::GenerationInfo>& generations,
    const std::map<NodeId, std::string>& hosts
);

std::string table_of_history(const PastJobs& history, std::int64_t now_wall_ms);

/// Of the caller's own jobs.
int history(const Client& client, const HistoryOptions& options);

}  // namespace rn::cli
