// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace rn::io {

/// The parts of "scheme://host[:port][/path][?query]".
struct Url {
  std::string scheme;      ///< lower case
  std::string host;        ///< without the brackets of an IPv6 address
  std::uint16_t port = 0;  ///< given, or the scheme's: 443 for https and wss, 80 for http and ws
  std::string authority;   ///< "host:port" as a Host header has it
  std::string target;      ///< path and query; "/" when there is none
};

/// kInvalid for anything else, also for user names, fragments, blanks and control characters.
Result<Url> parse_url(const std::string& text);

}  // namespace rn::io
