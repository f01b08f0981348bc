// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "traffic/kernel_probe.h"

namespace rn::warden {

/// The machine's own settings of TCP; empty where the kernel has none.
struct TcpSettings {
  std::string congestion;  ///< "cubic"
  std::string available;   ///< "reno cubic"
  std::string ecn;         ///< "2"
};

/// Below `root`, which tests choose. Never blocks.
TcpSettings read_tcp_settings(const std::string& root = {});

/// One thing that traffic rests on.
struct KernelFinding {
  std::string piece;
  bool is_there = false;
  bool is_needed = false;  ///< without it nothing is lent
  std::string what;        ///< what it is for or, where it is not there, what is done instead
  std::string next;        ///< for who wants it; may be empty
};

std::vector<KernelFinding> judge_kernel(
    const traffic::KernelAnswers& answers, const TcpSettings& tcp
);

}  // namespace rn::warden
