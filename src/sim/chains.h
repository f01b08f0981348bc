// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/rng.h"
#include "base/time.h"
#include "sim/cluster.h"

namespace rn::sim {

/// Jobs that wait for each other, and arrays of which a few may run at once: at some instant of the
/// first half of `length` a user submits a chain around an array, in which some have failed when
/// the others look; later somebody waits for what has perhaps ended long ago, and one array is
/// stopped in the middle. How each must end follows from who fails (SubmittedJob::ends_as), but of
/// the array that is stopped. `rng` is used at once, and not afterwards; the cluster must outlive
/// its queue.
void submit_chains(Cluster& cluster, Rng& rng, nanoseconds length);

}  // namespace rn::sim
