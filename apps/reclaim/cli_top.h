// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/api.h"
#include "model/fields.h"
#include "model/job.h"
#include "model/node.h"

// What `reclaim top` shows, made from what the coordinator answers. Pure: no terminal, no clock.
namespace rn::cli {

/// Percentages over time, oldest first: means of the coordinator's buckets, then the newest word.
/// -1: nothing was heard.
using History = std::vector<double>;

/// So many buckets of a history are shown.
inline constexpr std::size_t kTopBuckets = 24;
/// Time for which they are asked for.
inline constexpr std::int64_t kTopHistory_ms = std::int64_t{kTopBuckets} * 300'000;

struct TopGpu {
  std::uint32_t index = 0;
  std::string model;
  bool is_lent = true;
  bool is_wedged = false;
  std::string sickness;                 ///< empty: it is well
  bool is_owners = false;               ///< used by its owner, by the contract's rule
  std::uint32_t foreign_processes = 0;  ///< that are not of guests
  std::uint32_t utilisation_percent = 0;
  History history;
  std::uint64_t memory_used_mib = 0;
  std::uint64_t memory_mib = 0;
  std::int32_t temperature_c = 0;

  RN_FIELDS(
      TopGpu,
      index,
      model,
      is_lent,
      is_wedged,
      sickness,
      is_owners,
      foreign_processes,
      utilisation_percent,
      history,
      memory_used_mib,
      memory_mib,
      temperature_c
  )
};

struct TopNode {
  NodeId node;
  std::string host;
  LabId lab;
  bool is_connected = false;
  LendingState lending = LendingState::kNotLending;
  std::uint32_t guests = 0;
  std::uint32_t cpu_percent = 0;
  History history;  ///< of the processor
  std::uint64_t memory_used_mib = 0;
  std::uint64_t memory_mib = 0;
  std::uint32_t used_gpus = 0;  ///< by guests, and kept for who comes
  std::vector<TopGpu> gpus;

  RN_FIELDS(
      TopNode,
      node,
      host,
      lab,
      is_connected,
      lending,
      guests,
      cpu_percent,
      history,
      memory_used_mib,
      memory_mib,
      used_gpus,
      gpus
  )
};

struct TopJob {
  JobId job;
  std::uint64_t number = 0;
  std::string name;
  UserId user;
  JobState state = JobState::kQueued;
  std::string host;  ///< of its node; empty: it has none
  std::uint32_t gpus = 0;
  std::uint32_t attempt = 0;
  std::int64_t started_wall_ms = 0;  ///< first of all; 0: not yet
  /// Of its node, which it may share: the GPUs' mean if it asked for some, else the processor.
  History history;
  std::string reason;

  RN_FIELDS(
      TopJob, job, number, name, user, state, host, gpus, attempt, started_wall_ms, history, reason
  )
};

struct TopView {
  std::int64_t at_wall_ms = 0;
  std::vector<TopNode> nodes;  ///< who has guests first, then who lends, then the others
  std::vector<TopJob> jobs;    ///< that are not over and may be seen; those with a node first

  RN_FIELDS(TopView, at_wall_ms, nodes, jobs)
};

TopView top_view(
    const api::NodeList& nodes,
    const api::JobList& jobs,
    const api::TelemetryList& telemetry,
    std::int64_t now_wall_ms
);

struct ScreenSize {
  std::size_t columns = 0;  ///< 0: as many as there are
  std::size_t lines = 0;    ///< the same
};

/// A bar for each value, from 0 to 100 percent; a blank for what was not heard.
std::string sparkline(const History& history, bool is_utf8);

/// At most so many lines, none longer than that many columns, each with its end; what has no room
/// is counted. `status` is the last line; empty: there is none.
std::string top_screen(
    const TopView& view, const ScreenSize& size, const std::string& status, bool is_utf8
);

}  // namespace rn::cli
