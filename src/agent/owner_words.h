// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/core_types.h"
#include "base/error.h"
#include "base/time.h"
#include "model/node.h"
#include "model/reclaim.h"
#include "model/warden.h"

// What the owner's commands decide and say. Pure.
namespace rn::agent {

/// "the whole node", "GPU 0", "GPUs 0, 2".
std::string gpu_words(const std::vector<std::uint32_t>& gpus);

struct Notice {
  std::uint32_t seconds = 0;
  std::string doubt;  ///< why it may not be the contract's; empty = it is
};

/// What the contract's notice comes to, in seconds: 15 minutes at most, whatever it says.
std::uint32_t notice_s_of(const Contract& contract);

/// The contract's notice. Who may not read the contract's file (the agent's folder is closed) hears
/// it from the agent, which is asked only then; where nobody knows, the usual notice and a doubt.
Notice notice_of(
    const Result<Contract>& file, const std::function<Result<Contract>()>& ask_the_agent
);

/// Those of `asked` that this machine surely has not: the agent does not know them, no reclaim that
/// is open names them, and the system has no device for them. Without a word of the agent's
/// (nullopt) nothing is sure.
std::vector<std::uint32_t> gpus_not_there(
    const std::vector<std::uint32_t>& asked,
    const std::optional<NodeView>& view,
    const std::function<bool(std::uint32_t)>& has_device
);

/// Names those that are not there and those that are.
Error no_such_gpus(const std::vector<std::uint32_t>& not_there, const NodeView& view);

/// What holds after an order for `gpus` at `asked_at`: the reclaim that it made, or an older one
/// that says more, and since when. `now` and `asked_at` are of the boot that `reclaim` is of.
std::string reclaim_words(
    const std::vector<std::uint32_t>& gpus, const ReclaimRecord& reclaim, Instant asked_at, Now now
);

/// True if one of these is a reclaim of any of `gpus` (none: of anything) that is not returned.
bool is_taken_back(
    const std::vector<std::uint32_t>& gpus, const std::vector<ReclaimRecord>& reclaims
);

/// What the owner takes back later: when, by the node's clock, and how many of `guests` leave, or
/// stay until when. Empty: nothing. `utc_offset_s` is of the times that are named.
std::string taking_words(
    const std::vector<ReclaimRecord>& reclaims,
    const std::vector<AttemptView>& guests,
    Now now,
    std::int32_t utc_offset_s
);

/// The emergency for `gpus` (empty: the whole node) that a warden which is awake is at work on, or
/// has done, with all processes of its guests gone; nullopt: there is none, or guests of it run.
std::optional<ReclaimRecord> emergency_at_work(
    const warden_wire::WardenState& state, const std::vector<std::uint32_t>& gpus
);

}  // namespace rn::agent
