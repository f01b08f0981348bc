// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/time.h"
#include "coordinator/store.h"

namespace rn::coordinator {

/// The embedded default: FOLDER/coordinator.db (WAL, synchronous=FULL) and FOLDER/coordinator.lock.
class SqliteStore final : public Store {
 public:
  /// Takes the folder's lock, opens or creates the database, migrates its schema. kConflict:
  /// another coordinator uses the folder. kUnavailable: another program holds the database locked.
  /// kDenied: read-only. kUnsupported: newer schema. kCorrupt. Each with what to do next.
  static Result<std::unique_ptr<SqliteStore>> open(
      const std::string& folder, milliseconds busy_timeout = seconds(5)
  );
  /// For `verify` and the like: no lock, no change, works beside a running coordinator. apply() and
  /// check_writable() answer kDenied.
  static Result<std::unique_ptr<SqliteStore>> open_to_read(const std::string& folder);
  ~SqliteStore() override;

  Result<Snapshot> load() override;
  Status apply(std::span<const Write> writes) override;
  Status check_writable() override;
  Result<std::vector<StoredEvent>> events(const EventFilter& filter) override;
  Result<std::vector<Job>> jobs(const JobFilter& filter) override;
  Result<Job> find_job(const JobId& id) override;
  Result<Job> find_job(std::uint64_t number) override;
  Result<std::vector<Attempt>> attempts(const JobId& job) override;
  Result<std::vector<GenerationRow>> generations(const JobId& job) override;
  Result<std::vector<ReclaimRow>> reclaims(std::uint32_t limit) override;
  Result<std::vector<RollupRow>> rollups(const RollupFilter& filter) override;
  Result<ChainReport> verify_chain() override;

 private:
  struct State;
  explicit SqliteStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace rn::coordinator
