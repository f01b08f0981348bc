// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli_client.h"

#include "base/error.h"
#include "model/job.h"

namespace rn::cli {

/// How following a job ended.
struct Followed {
  Job job;
  bool was_interrupted = false;  ///< Ctrl-C; the job goes on
  /// kUnavailable: nobody reads standard output any more; others: it cannot be written. Then it was
  /// given up, and the job goes on.
  Status output;
};

struct FollowOptions {
  JobId job;
  std::uint32_t attempt = 0;       ///< only this one; 0 = all from the newest on
  bool tells_nodes = false;        ///< where it runs, beside its state
  bool tells_states = true;        ///< state changes on stderr
  std::uint32_t from_attempt = 0;  ///< none before it, and of it nothing before from_offset
  std::uint64_t from_offset = 0;
  bool stops_at_interrupt = true;
};

/// Streams the job's log to stdout, over all its attempts, until it has ended or Ctrl-C. Outlives
/// the coordinator's absence: it reconnects and goes on at the byte where it was.
Result<Followed> follow_job(const Client& client, const FollowOptions& options);

}  // namespace rn::cli
