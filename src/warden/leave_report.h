// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace rn::warden {

struct LeaveReport {
  std::vector<std::string> removed;  ///< in order, in words
  std::vector<std::string> stays;    ///< what could not be removed, and why
};

}  // namespace rn::warden
