// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests only: a folder that vanishes, and rows with good defaults.

#include <filesystem>
#include <string>

#include <stdlib.h>

#include "base/assert.h"
#include "coordinator/rows.h"

namespace rn::coordinator {

/// A fresh folder below the system's temporary folder; removed at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "reclaimnet-test-XXXXXX").string();
    RN_ASSERT(::mkdtemp(name.data()) != nullptr, "a temporary folder can be made");
    path_ = name;
  }

  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

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
