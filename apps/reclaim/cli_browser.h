// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli_config.h"

#include "base/error.h"

namespace rn::cli {

struct BrowserOptions {
  std::uint16_t port = 0;      ///< of this machine, where what comes back is waited for; 0: any
  std::uint32_t wait_s = 600;  ///< so long; a sign-in itself has ten minutes
};

/// Signs in with an account of the site's identity provider, in a browser on this machine (RFC
/// 8252): opens one if there is one to open, prints the address in any case, and waits at 127.0.0.1
/// for what comes back. What comes with another state than this sign-in's is refused, and waited
/// on. `site` needs no token. The token of the site's own that comes of it. Blocks for
/// `options.wait_s`; kConflict (the port is taken), kDenied, kNotFound (the site has no provider),
/// kTimeout and as Client.
Result<std::string> sign_in_by_browser(const Login& site, const BrowserOptions& options);

/// The program that opens addresses here; empty: there is none, or no screen for it. `variable`
/// reads the environment.
std::string browser_here(const std::function<std::string(const char* name)>& variable);

}  // namespace rn::cli
