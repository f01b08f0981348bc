// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "agent/core_types.h"
#include "base/rng.h"
#include "checkpoint/chunk_store.h"
#include "sim/agent_host.h"

namespace rn::sim {

/// What the agent's worker pool does, in zero simulated time at its end, by the production
/// checkpoint code on the simulated disk.
class AgentWork {
 public:
  AgentWork(AgentHost& host, Rng& rng);
  ~AgentWork();

  /// How long the work takes.
  nanoseconds length(const agent::Work& work);
  agent::WorkResult carry_out(const agent::Work& work);
  /// True if the work folder holds a complete checkpoint that `since` does not.
  bool has_news(const std::string& disk, const GenerationRef& since);

  /// The store, opened at first use; nullptr if the disk cannot be read.
  checkpoint::ChunkStore* store();
  /// The peer's side of a copy: what it lacks is sent and made durable; answers its signed receipt.
  Result<Receipt> receive(
      AgentHost& source, const GenerationRef& generation, const PeerGrant& grant
  );

 private:
  agent::WorkResult fetch_image(const agent::FetchImage& fetch);
  agent::WorkResult prepare(const agent::Work& work, const agent::PrepareWork& prepare);
  agent::WorkResult snapshot(const agent::Work& work, const agent::TakeSnapshot& take);
  agent::WorkResult copy(const agent::CopyGeneration& copy);
  agent::WorkResult upload(const agent::UploadOutputs& upload);
  agent::WorkResult read_log(const agent::Work& work, const agent::ReadLog& read);
  agent::WorkResult collect(const agent::CollectGarbage& collect);
  Status fetch_generation(const GenerationRef& generation, const std::vector<PeerGrant>& peers);

  AgentHost& host_;
  Rng& rng_;
  std::unique_ptr<checkpoint::ChunkStore> store_;
};

}  // namespace rn::sim
