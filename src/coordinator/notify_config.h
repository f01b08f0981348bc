// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"

namespace rn::coordinator {

/// The site's mail server.
struct SmtpConfig {
  std::string url;   ///< "smtp://host:587" or "smtps://host:465"
  std::string from;  ///< an address
  std::string user;  ///< empty: the server asks for none
  std::string password_file;
  std::string ca;                    ///< file of authorities; empty: the system's
  bool requires_tls = true;          ///< false: by smtp only if the server offers it; without user
  std::vector<std::string> domains;  ///< of addresses that may be told; empty: all
  std::string password;              ///< of password_file
};

/// What the operator allows to be sent, and by what.
struct NotifyConfig {
  std::optional<SmtpConfig> smtp;     ///< none: mail is refused
  std::vector<std::string> webhooks;  ///< "https://host:port" each; none: webhooks are refused
  std::string webhook_ca;             ///< file of authorities; empty: the system's
};

/// "https://host:443" of a URL or of what an operator lists: scheme, host and port, in small
/// letters. kInvalid.
Result<std::string> origin_of(const std::string& url);

/// LOCAL@DOMAIN of letters, digits and what needs no quotes, so that it can be nothing but an
/// address wherever it is put. kInvalid.
Status check_address(const std::string& address);

/// Before the start: brings what is allowed into its one form. kInvalid names the field.
Status finish_notify_config(NotifyConfig& config);

/// Reads the password, if there is a file of it. Blocking.
Status read_smtp_password(FileSystem& fs, NotifyConfig& config);

}  // namespace rn::coordinator
