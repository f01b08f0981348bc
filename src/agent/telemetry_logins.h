// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace rn::agent {

/// People logged in on the machine, each once: those with a session of systemd-logind that is open
/// (no greeter, no cron job), and those with a record in utmp whose process lives. `root` as in
/// telemetry_host.h. Files that are not there count as nobody; bounded.
std::uint32_t count_logins(const std::string& root);

}  // namespace rn::agent
