// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "model/api.h"
#include "model/fields.h"

// Signing in with an account of the site's identity provider (docs/sign-in.md). A ticket is what
// the coordinator has to remember of a sign-in, sealed, so that it remembers nothing itself.
namespace rn::api {

struct SignInOffer {
  bool is_offered = false;
  std::string name;  ///< of the provider, for people

  RN_FIELDS(SignInOffer, is_offered, name)
};

struct SignInBegin {
  /// On the browser's own machine, at 127.0.0.1: a program waits there for what comes back
  /// (RFC 8252). 0: the dashboard does.
  std::uint32_t port = 0;

  RN_FIELDS(SignInBegin, port)
};

struct SignInBegun {
  std::string url;     ///< at the provider, for the browser
  std::string ticket;  ///< goes back with SignInFinish, from the same window or program
  std::string state;   ///< comes back with the code; what comes with another one is somebody else's
  /// For people: a program shows it, and the page on which they say whether it was they who began.
  std::string word;

  RN_FIELDS(SignInBegun, url, ticket, state, word)
};

struct SignInFinish {
  std::string ticket;
  std::string state;  ///< as it came back by the browser
  std::string code;   ///< the same

  RN_FIELDS(SignInFinish, ticket, state, code)
};

struct DeviceSignIn {
  std::string url;            ///< at the provider, for any browser
  std::string url_with_code;  ///< the same with the code in it; empty: there is none
  std::string code;           ///< for people to type there
  std::string ticket;         ///< goes back with DeviceFinish
  std::uint32_t interval_s = 5;
  std::uint32_t expires_s = 0;

  RN_FIELDS(DeviceSignIn, url, url_with_code, code, ticket, interval_s, expires_s)
};

struct DeviceFinish {
  std::string ticket;

  RN_FIELDS(DeviceFinish, ticket)
};

struct DeviceAnswer {
  bool is_pending = false;   ///< nobody has finished it yet: ask again
  bool is_too_fast = false;  ///< and five seconds less often from now on
  std::string token;         ///< shown once
  TokenInfo info;

  RN_FIELDS(DeviceAnswer, is_pending, is_too_fast, token, info)
};

}  // namespace rn::api
