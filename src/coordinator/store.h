// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/ids.h"
#include "coordinator/rows.h"

namespace rn::coordinator {

/// An event as it stands in the chain: hash = SHA-256(previous hash ‖ body). The first one's
/// previous hash is zero.
struct StoredEvent {
  std::uint64_t seq = 0;  ///< from 1, without holes
  Digest hash{};
  EventRow row;
};

/// Empty fields match everything.
struct EventFilter {
  JobId job;
  NodeId node;
  UserId user;
  std::string kind_prefix;  ///< "job." or "job.submitted"
  std::uint64_t after = 0;  ///< only events with a greater seq
  bool is_newest_first = false;
  std::uint32_t limit = 100;
};

struct JobFilter {
  UserId owner;
  bool with_finished = false;
  std::uint64_t before_number = 0;  ///< 0 = from the newest
  std::uint32_t limit = 100;
};

struct RollupFilter {
  NodeId node;
  std::int64_t from_wall_ms = 0;
  std::int64_t to_wall_ms = INT64_MAX;
  std::uint32_t limit = 10'000;
};

/// What `verify` found in the event chain, and in the tables that the events tell of.
struct ChainReport {
  std::uint64_t events = 0;
  Digest head{};                            ///< hash of the last event
  std::uint64_t first_bad_seq = 0;          ///< 0 = the chain is whole
  std::string complaint;                    ///< of first_bad_seq
  std::optional<std::uint64_t> missing_to;  ///< the recorded head is further on: the tail was cut
  std::string differs;  ///< a state in a table that is not what the events say; empty = none
};

/// The site's state on disk. One conformance suite (store_conformance.h) runs on every
/// implementation. apply() and check_writable() come from one thread; the queries may come from any
/// other, at the same time, and see whole transactions only. All block.
class Store {
 public:
  virtual ~Store() = default;

  /// Everything the core needs at start, from one transaction.
  virtual Result<Snapshot> load() = 0;

  /// All writes in order, in one transaction, durable on return. Any error means that none was
  /// applied: kConflict if a condition failed or another coordinator has opened a newer generation,
  /// kExhausted if the disk is full, else as the database says. The caller must not go on after an
  /// error: its memory is ahead of the disk.
  virtual Status apply(std::span<const Write> writes) = 0;

  /// Proves by a committed write that the store takes writes.
  virtual Status check_writable() = 0;

  virtual Result<std::vector<StoredEvent>> events(const EventFilter& filter) = 0;
  virtual Result<std::vector<Job>> jobs(const JobFilter& filter) = 0;  ///< newest first
  virtual Result<Job> find_job(const JobId& id) = 0;                   ///< kNotFound
  virtual Result<Job> find_job(std::uint64_t number) = 0;              ///< kNotFound
  virtual Result<std::vector<Attempt>> attempts(const JobId& job) = 0;
  virtual Result<std::vector<GenerationRow>> generations(const JobId& job) = 0;
  virtual Result<std::vector<ReclaimRow>> reclaims(std::uint32_t limit) = 0;  ///< newest first
  virtual Result<std::vector<RollupRow>> rollups(const RollupFilter& filter) = 0;

  /// Reads the whole chain. A broken chain is a report, not an error.
  virtual Result<ChainReport> verify_chain() = 0;
};

}  // namespace rn::coordinator
