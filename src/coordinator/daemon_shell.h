// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "coordinator/blobs.h"
#include "coordinator/blobs_log.h"
#include "coordinator/core.h"
#include "coordinator/served_blobs.h"
#include "coordinator/store.h"
#include "coordinator/store_writer.h"
#include "io/loop.h"
#include "io/websocket.h"
#include "io/workers.h"

namespace rn::coordinator {

/// Names somebody who waits for log bytes or for a change of a job.
struct JobWatchId {
  std::uint64_t value = 0;
};

/// Names somebody who waits for events.
struct EventWatchId {
  std::uint64_t value = 0;
};

/// The imperative shell around Core: turns sockets, timers and finished work into events, makes an
/// output's writes durable, then carries out its effects in order (ADR 0001). Loop thread only.
/// Borrows everything in Deps.
class Shell {
 public:
  struct Deps {
    io::Loop& loop;
    io::Workers& workers;
    Store& store;
    BlobStore& blobs;
    AttemptLogs& logs;
    Rng& rng;
    /// The database or a log condemned our memory: the process must end. Called once.
    std::function<void(const Error&)> fatal;
    std::function<std::int32_t()> utc_offset_s;  ///< told with every Tick; none: as configured
  };

  Shell(const Deps& deps, const Config& config, const SiteKeys& keys);
  ~Shell();
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;

  /// Reads the store (blocking, before the loop runs) and starts ticking.
  Status restore();

  /// Runs a command; `done` on the loop once the answer is durable. kUnavailable at once when too
  /// much waits for the disk.
  void command(const Caller& caller, Command command, std::function<void(Result<Answer>)> done);
  /// Runs `fn` once everything that the views show now is durable; at once if it already is.
  void when_durable(std::function<void()> fn);

  /// An agent's connection whose certificate says `node` with this key.
  void adopt_agent(
      const NodeId& node, const Digest& public_key, std::shared_ptr<io::WebSocket> socket
  );

  /// A node fetches a blob by this connection, which goes as fast as the core plans it.
  void blob_asked(const NodeId& node, const Digest& blob, const io::SendingSide& side);

  /// Calls `fn` on the loop each time the job's log grew or its row changed, until unwatch().
  JobWatchId watch_job(const JobId& job, std::function<void()> fn);
  void unwatch_job(const JobId& job, JobWatchId watch);

  /// Calls `fn` on the loop each time events became durable, until unwatch_events().
  EventWatchId watch_events(std::function<void()> fn);
  void unwatch_events(EventWatchId watch);

  /// Proves that the store takes writes.
  void check_writable(std::function<void(Status)> done);

  const Core& core() const { return core_; }

  Now now() const;

  StoreWriter::Counts store_counts() const { return writer_->counts(); }

  std::size_t waiting_for_disk() const { return pending_.size(); }

  std::size_t agents() const { return connections_.size(); }

  std::uint64_t log_commit_errors() const { return log_errors_; }

  /// Rows as they pass by, for /metrics.
  void on_write(std::function<void(const Write&)> fn) { on_write_ = std::move(fn); }

 private:
  struct Pending {
    std::uint64_t batch = 0;  ///< of StoreWriter; carried out when it is durable
    std::vector<Effect> effects;
    std::function<void()> fn;
  };

  void handle(const Event& event);
  void take(Output output);
  void schedule_tick();
  void durable_through(std::uint64_t batch);
  void carry_out(std::vector<Effect> effects);
  void carry_out(SendToAgent& effect);
  void carry_out(CloseAgent& effect);
  void carry_out(Reply& effect);
  void carry_out(AppendLog& effect);
  void carry_out(CheckOutputs& effect);
  void carry_out(PaceBlobs& effect);
  void look_at_blobs();
  void receive(ConnectionId connection, const Blob& bytes);
  void notify(const JobId& job);
  void notify_of_events();
  void die(const Error& error);

  Deps deps_;
  Core core_;
  std::unique_ptr<StoreWriter> writer_;
  std::deque<Pending> pending_;
  std::uint64_t last_batch_ = 0;     ///< newest that was given to the writer
  std::uint64_t durable_batch_ = 0;  ///< newest that is durable
  std::map<ConnectionId, std::shared_ptr<io::WebSocket>> connections_;
  ConnectionId next_connection_ = 1;
  std::map<RequestId, std::function<void(Result<Answer>)>> requests_;
  RequestId next_request_ = 1;
  std::map<JobId, std::map<std::uint64_t, std::function<void()>>> watches_;
  std::map<std::uint64_t, std::function<void()>> event_watches_;
  std::uint64_t next_watch_ = 1;
  std::vector<JobId> changed_jobs_;  ///< by the output that is being taken
  std::function<void(const Write&)> on_write_;
  ServedBlobs served_blobs_;
  io::TimerId blobs_look_;
  io::TimerId ticker_;
  Instant ticks_at_;  ///< of `ticker_`; far away when none is set
  std::uint64_t log_errors_ = 0;
  bool is_dead_ = false;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  ///< read by late callbacks
};

}  // namespace rn::coordinator
