// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests only: rows with good defaults.

#include <string>

#include "base/scratch_folder.h"
#include "coordinator/rows.h"

namespace rn::coordinator {

inline JobRow a_job(const std::string& id, std::uint64_t number) {
  JobRow row;
  row.job.id = JobId(id);
  row.job.number = number;
  row.job.owner = UserId("ann");
  row.job.lab = LabId("lab-a");
  row.job.epoch = {1, 1};
  row.job.spec.command = {"true"};
  row.wrapped_key = {1, 2, 3};
  return row;
}

inline EventRow an_event(const std::string& kind, const std::string& job) {
  EventRow row;
  row.kind = kind;
  row.message = "something happened";
  row.job = JobId(job);
  row.at_wall_ms = 1'700'000'000'000;
  return row;
}

}  // namespace rn::coordinator
