// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent/config.h"
#include "agent/core_types.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/time.h"
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

/// What lies in the agent's store: generations of jobs of those to whom the machine was lent, its
/// own guests' and copies for other nodes.
struct HeldForOthers {
  std::uint64_t jobs = 0;
  std::uint64_t generations = 0;
  std::uint64_t bytes = 0;  ///< on the disk; generations of one job share what did not change
};

/// Counted from the files, so that it needs no agent that runs and no coordinator. A store that is
/// not there holds nothing. Reads only. Errors: the disk's. Blocking.
Result<HeldForOthers> held_for_others(FileSystem& fs, const AgentConfig& config);

/// One sentence for the owner who leaves, before anything is done; empty if nothing is held. Pure.
std::string held_words(const HeldForOthers& held, bool purges);

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
