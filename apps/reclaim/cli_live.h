// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cli_client.h"

namespace rn::cli {

struct TopOptions {
  std::uint32_t every_s = 2;
  bool is_once = false;  ///< one screen, whatever standard output is
  bool is_json = false;  ///< the same, as TopView in JSON
};

/// Shows the site on the whole terminal until q or Ctrl-C, which both answer 0; the terminal is as
/// before then. A coordinator that does not answer is waited for, with what was seen last.
int top(const Client& client, const TopOptions& options);

}  // namespace rn::cli
