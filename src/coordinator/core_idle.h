// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/core_state.h"

// Jobs that hold GPUs, or cores, and use nothing of them. By what heartbeats say: of GPUs the
// busiest of the job's counts, of a job without any the processor time of its own guest beside the
// cores that it was granted, over a window that slides (sched/use_window.h). One that works on
// processors while it holds GPUs is busy, and so is one into which somebody has a tunnel. What
// nobody knows (an older agent, GPUs without a driver that tells) is not judged.
namespace rn::coordinator {

/// Looks at what the node's newest heartbeat says of its guests: marks those that use nothing for
/// Config::idle_after_s (half of the time after which they are stopped, if that is less), once in
/// the history, and stops those that are to be stopped for it.
void look_at_use(State& state, const NodeEntry& node);

/// When such a job is stopped.
struct IdleStop {
  std::uint32_t after_s = 0;  ///< 0: never
  std::string whose;          ///< of whose quota that is, "lab vision"; empty: its own word
};

/// By its own word (JobSpec::idle_stop_s), else by its user's quota, else by its lab's.
IdleStop idle_stop_of(const State& state, const Job& job);

/// "it is stopped when it uses next to nothing of its cores for 2.0 h, by the quota of lab vision";
/// empty
/// if no quota says so, or it has a word of its own.
std::string idle_stop_words(const State& state, const Job& job);

/// "it has used next to nothing of its GPUs for 2.0 h", for `why`, and of one that works what
/// idle_stop_words() says.
std::string idle_words(const State& state, const JobEntry& job);

}  // namespace rn::coordinator
