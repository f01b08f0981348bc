// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli_client.h"
#include "cli_config.h"

#include "coordinator/daemon_fixture.h"

// For tests: the command line's client of a real coordinator.
namespace rn::cli {

/// As who holds the token.
inline Client client_of(const coordinator::LiveSite& site, const std::string& token) {
  return Client(Login{site.url(), token, fingerprint_in_token(token)});
}

}  // namespace rn::cli
