// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/ids.h"
#include "coordinator/id_token.h"

namespace rn::coordinator {

/// The identity provider whose word is taken for who somebody is (docs/sign-in.md). What they may
/// do here is the site's own to say.
struct OidcConfig {
  std::string issuer;              ///< "https://login.example.org/realm", as its tokens spell it
  std::string name;                ///< what people call it; empty: the issuer's host
  std::string client_id;           ///< by which it knows this site
  std::string client_secret_file;  ///< empty: a public client
  std::string client_secret;       ///< of that file
  std::string ca;                  ///< file of authorities; empty: the system's
  /// Beside the issuer's own, "https://host:port" each, at which it may have endpoints.
  std::vector<std::string> origins;
  std::vector<std::string> scopes;  ///< beside openid
  std::string claim = "sub";        ///< "sub" or "email", which must be verified
  /// Of email: only addresses of it, beside those in `users`; who has one is what stands before @.
  std::string domain;
  std::map<std::string, std::string> users;  ///< a claim's value: the user; goes before all else
  std::vector<std::string> refuses;          ///< users who may not sign in
  std::string groups_claim;                  ///< empty: none is read
  /// A group: the lab in which who is unknown here becomes a user by it. Empty: nobody does.
  std::map<std::string, std::string> labs;
  std::uint32_t session_s = 12 * 3600;  ///< life of a token that a sign-in gives
  std::string contact;                  ///< whom to ask, in words
};

/// Before the start: brings what is configured into its one form. `url` is the site's own, to
/// which people come back. kInvalid names the field.
Status finish_oidc_config(OidcConfig& config, const std::string& url);

/// Reads the secret, if there is a file of it. kDenied if others than its owner and its group may
/// read it, or its group may write it. Blocking.
Status read_client_secret(FileSystem& fs, OidcConfig& config);

/// "https://host:port" of a URL by https without user, fragment and query. kInvalid.
Result<std::string> https_origin(const std::string& url);

/// A person as the site knows them.
struct Person {
  UserId user;
  LabId lab_if_new;       ///< by a group; empty: who is unknown stays out
  bool is_named = false;  ///< by `users`: only so may they be administrators
};

/// Whom the verified claims mean. kDenied with whom to ask.
Result<Person> person_of(const IdClaims& claims, const OidcConfig& config);

/// Whom to ask, as the end of a sentence.
std::string contact_of(const OidcConfig& config);

}  // namespace rn::coordinator
