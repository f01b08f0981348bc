// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace rn::warden {

/// Processes that have a file, a working folder or their program on the file system mounted on
/// `folder`, as "1234 (dd)", at most `max`. Empty if nothing is mounted there. For errors: it looks
/// at every process, and what ends meanwhile is left out.
std::vector<std::string> users_of_mount(const std::string& folder, std::size_t max = 4);

}  // namespace rn::warden
