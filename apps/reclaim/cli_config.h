// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/error.h"
#include "model/fields.h"

namespace rn::cli {

/// Where the coordinator is and who we are. $XDG_CONFIG_HOME/reclaimnet/config.json, else in
/// ~/.config, mode 0600;
/// RECLAIM_URL and RECLAIM_TOKEN win over the file.
struct Login {
  std::string url;             ///< "https://host:port"
  std::string token;           ///< "rnu1.ID.SECRET.CA-FINGERPRINT"
  std::string ca_fingerprint;  ///< SHA-256 of the site's CA, 64 hex digits

  RN_FIELDS(Login, url, token, ca_fingerprint)
};

/// $HOME, or what the machine's list of users says where that is not set, as in services; empty if
/// nobody knows.
std::string home_folder();

std::string login_path();
/// kDenied with how to log in if there is none.
Result<Login> load_login();
Status save_login(const Login& login);

/// The last part of a token, or empty.
std::string fingerprint_in_token(const std::string& token);

}  // namespace rn::cli
