// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

// Names of crash points that belong to the alternatives of a variant, in its order.

namespace rn::sim {

/// Before each kind of the warden's effects.
inline constexpr std::array<const char*, 15> kWardenEffectPoints = {
    "warden.answer",
    "warden.make_disk",
    "warden.adopt_disk",
    "warden.drop_disk",
    "warden.start",
    "warden.go",
    "warden.signal",
    "warden.kill",
    "warden.notify",
    "warden.forget",
    "warden.remove_stray",
    "warden.import",
    "warden.clear",
    "warden.set_gates",
    "warden.watch"};

/// Before each kind of the agent's works begins.
inline constexpr std::array<const char*, 9> kWorkPoints = {
    "agent.begin.fetch_image",
    "agent.begin.prepare",
    "agent.begin.snapshot",
    "agent.begin.copy",
    "agent.begin.upload",
    "agent.begin.log",
    "agent.begin.garbage",
    "agent.begin.holdings",
    "agent.begin.forget"};

}  // namespace rn::sim
