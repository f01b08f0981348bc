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

/// The port of a coordinator for which nobody chose another.
inline constexpr std::uint16_t kSitePort = 7443;

/// kInvalid for anything else, also for user names, fragments, blanks and control characters.
Result<Url> parse_url(const std::string& text);

/// An address of IPv4 or IPv6, without brackets, zone and prefix.
bool is_ip_address(const std::string& text);

/// A DNS name (letters, digits, '-' and '.') or an address. All digits and dots is an address or
/// nothing.
bool is_host_name(const std::string& text);

/// A coordinator's address as people give it, as "https://HOST:PORT": the scheme may be left out,
/// and the port, which is `port` then. kInvalid says what is wrong: another scheme, a user name or
/// password (not repeated in the message), a path, an IPv6 address without brackets, no host, a
/// port that is none.
Result<std::string> site_url(const std::string& text, std::uint16_t port = kSitePort);

}  // namespace rn::io
