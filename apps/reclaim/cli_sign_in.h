// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli_config.h"

#include "base/error.h"

namespace rn::cli {

/// Signs in with an account of the site's identity provider: prints an address and a code for a
/// browser, which may be on any machine, and waits until that is done there. `site` needs no token.
/// The token of the site's own that comes of it. Blocks for half an hour at most; kDenied,
/// kNotFound (the site has no provider), kUnsupported, kTimeout and as Client.
Result<std::string> sign_in_from_terminal(const Login& site);

}  // namespace rn::cli
