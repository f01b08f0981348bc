// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace rn::io {

/// This machine's address on the way to `host`, as its routes are now: "10.1.2.3" or "2001:db8::1",
/// without brackets. Sends nothing. kUnavailable: the name is not known, or no route leads there.
/// Blocks for the lookup of a name.
Result<std::string> own_address_towards(const std::string& host, std::uint16_t port);

/// The interface that has this address ("10.1.2.3:4711", "[2001:db8::1]:4711" or without a port);
/// empty if none has.
std::string interface_of(const std::string& address);

/// The machine's own name; "localhost" if it has none.
std::string own_hostname();

}  // namespace rn::io
