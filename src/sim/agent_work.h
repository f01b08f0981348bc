// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/core_types.h"
#include "base/rng.h"
#include "checkpoint/chunk_feed.h"
#include "checkpoint/chunk_store.h"
#include "checkpoint/snapshot_cache.h"
#include "sim/agent_host.h"
#include "sim/lines.h"

namespace rn::sim {

/// What the agent's worker pool does, by the production checkpoint code on the process's disk.
/// Transfers take as long as their frames do; everything else is done in zero simulated time at its
/// end.
class AgentWork {
 public:
  using Done = std::function<void(agent::WorkResult)>;

  AgentWork(AgentHost& host, Rng& rng);
  ~AgentWork();

  /// How long the work takes before anything of it is seen.
  nanoseconds length(const agent::Work& work);
  /// `done` is called once, now or later, unless the work is stopped or the process dies.
  void begin(const agent::Work& work, const Done& done);
  /// The generation that a copy is ahead of is whole. Any number may be named.
  void release(agent::WorkId id, const GenerationRef& generation);
  /// From now on its copy sends so fast. Any number may be named.
  void set_rate(agent::WorkId id, std::uint64_t rate_bps);
  /// Of all copies that are connected, or wait to be, and of outputs on their way.
  std::vector<agent::TransferProgress> progress() const;
  /// Breaks off what the work has under way. Any number may be named.
  void stop(agent::WorkId id);
  /// True if the work folder holds a complete checkpoint that `since` does not.
  bool has_news(const std::string& disk, const GenerationRef& since);
  /// Where the guest of this disk writes its checkpoints: of a gang's member by its rank.
  std::string checkpoint_in(const std::string& disk) const;

  /// The process dies.
  void leave_lines();

  /// First thing in a life. False if the disk cannot be read or written.
  bool open_store();

  checkpoint::ChunkStore* store() { return store_.get(); }

 private:
  struct Resume;

  class Ahead;

  nanoseconds jitter();
  agent::WorkResult carry_out(const agent::Work& work);
  agent::WorkResult fetch_image(const agent::FetchImage& fetch);
  /// Over the lines, where images take time.
  void fetch_over_lines(const agent::FetchImage& fetch, const Done& done);
  checkpoint::SnapshotCache known_chunks(const GenerationRef& parent);
  agent::WorkResult snapshot(const agent::Work& work, const agent::TakeSnapshot& take);
  agent::WorkResult upload(const agent::Work& work, const agent::UploadOutputs& upload);
  /// Over the lines, where outputs take time.
  void begin_upload(const agent::Work& work, const agent::UploadOutputs& body, const Done& done);
  void go_on_uploading(const agent::Work& work, const agent::UploadOutputs& body, const Done& done);
  agent::WorkResult read_log(const agent::Work& work, const agent::ReadLog& read);
  agent::WorkResult collect(const agent::CollectGarbage& collect);

  void copy(const agent::Work& work, const agent::CopyGeneration& copy, const Done& done);
  void copy_ahead(const agent::Work& work, const agent::CopyGeneration& copy, const Done& done);
  void offer(const GuestName& guest, const checkpoint::FreshChunk& chunk);
  void prepare(const agent::Work& work, const agent::PrepareWork& prepare, const Done& done);
  void resume_next(const std::shared_ptr<Resume>& resume);
  void resume_fetched(const std::shared_ptr<Resume>& resume, const Status& there);
  Status restore(Resume& resume, const GenerationRef& wanted);
  void resume_shared(const std::shared_ptr<Resume>& resume, agent::WorkPrepared prepared);

  /// Outputs on their way home.
  struct Upload {
    double left = 0;
    double sent = 0;
    TrueTime at{0};
    Lines::Sender sender = 0;
  };

  AgentHost& host_;
  Rng& rng_;
  std::unique_ptr<checkpoint::ChunkStore> store_;
  std::map<agent::WorkId, std::uint64_t> transfers_;  ///< connections under way
  std::map<agent::WorkId, std::shared_ptr<Ahead>> ahead_;
  std::map<agent::WorkId, GenerationRef> released_;  ///< before their work began
  std::map<agent::WorkId, std::uint64_t> copies_;    ///< and outputs, under way, with their rates
  std::map<agent::WorkId, Upload> uploads_;
};

}  // namespace rn::sim
