// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent/config.h"
#include "agent/core_types.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/time.h"
#include "checkpoint/chunk_store.h"
#include "io/fd.h"

// What `reclaim-agent leave` needs to wait well: whom it waits for, and for what.
namespace rn::agent {

/// The process that serves a Unix socket, whoever gets its pid later. Its socket closes before it
/// has ended: what it still writes would come back into a folder that is being removed.
class ServingProcess {
 public:
  /// kNotFound: no socket; kUnavailable: nobody serves it; kDenied: not for us.
  static Result<ServingProcess> of(const std::string& socket);

  /// Blocking for `limit` at most. A zombie has ended.
  bool ends_within(milliseconds limit) const;

 private:
  explicit ServingProcess(int pidfd) : pidfd_(pidfd) {}

  io::Fd pidfd_;  ///< none: it had ended before it could be held
};

/// What a node that leaves for good still waits for, for its owner: guests with their phases, and
/// whoever does not answer. Pure.
std::string leaving_waits_for(const NodeView& view);

/// One sentence for the owner who leaves, of what the agent's store has of those to whom the
/// machine was lent (its own guests' and copies for other nodes), before anything is done; empty if
/// nothing is held. Pure.
std::string held_words(const checkpoint::StoredOnDisk& held, bool purges);

/// What a purge has removed, or that there was nothing. Pure.
std::string purged_words(const std::string& folder, bool was_there, bool was_joined);

/// For before the agent's files are removed: kConflict, with what to do, if anything is mounted
/// below `folder`; such a mount may show somebody's own files. A missing folder, and what this user
/// may not look into, have none. Reads only. Blocking.
Status check_nothing_mounted(FileSystem& fs, const std::string& folder);

/// Removes the agent's folder if nothing is mounted below it; else nothing is removed. What the
/// warden has mounted is its own to undo. Errors as above and remove_tree's. Blocking.
Status purge(FileSystem& fs, const AgentConfig& config);

/// How a leaving stands once nobody serves the socket, or may be asked for it, any more.
enum class LeavingEnd : std::uint8_t {
  kLeft,     ///< the coordinator knows
  kDied,     ///< the agent ended before: it goes on when it is started again
  kNoAgent,  ///< none was there to be asked
};

/// `is_known`: has_left(); `was_served`: an agent served the socket when the command began. Pure.
LeavingEnd leaving_end(bool is_known, bool was_served);

/// For kDied, with what to do. Pure.
Error died_while_leaving();

/// What follows when a machine that has joined forgets it and the coordinator was not told. Pure.
std::string untold_coordinator(const std::string& coordinator_url, const NodeId& node);

}  // namespace rn::agent
