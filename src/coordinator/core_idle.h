// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "coordinator/core_state.h"

// Jobs that hold GPUs and use nothing of them. By the telemetry of heartbeats: the busiest of the
// job's GPUs counts, over a window that slides (sched/use_window.h). Heartbeats tell the processors
// of the whole machine alone: while these are busy the job counts as busy, and a job without GPUs
// is not judged.
namespace rn::coordinator {

/// Looks at what the node's newest heartbeat says of its guests: marks those that use nothing for
/// Config::idle_after_s, once in the history, and stops those that asked for it (idle_stop_s).
void look_at_use(State& state, const NodeEntry& node);

/// "it has used next to nothing of its GPUs for 2.0 h", for `why`; empty: it uses them, or nobody
/// knows.
std::string idle_words(const State& state, const JobEntry& job);

}  // namespace rn::coordinator
