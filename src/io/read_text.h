// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace rn::io {

/// The text of a small file of /proc, /sys or /etc, at most 16 MiB. Such files vanish while they
/// are read, and a process that ends makes read(2) fail: what cannot be read is left out, so that
/// "" means gone, empty or not readable. Never throws; blocks as long as read(2).
std::string read_text(const std::string& path);

/// The pids in /proc at this moment, in its order. Never throws.
std::vector<pid_t> all_pids();

}  // namespace rn::io
