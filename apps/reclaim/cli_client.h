// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli_config.h"

#include "base/bytes.h"
#include "base/error.h"
#include "io/http_client.h"
#include "io/loop.h"
#include "model/api.h"
#include "model/codec.h"

namespace rn::cli {

/// Calls to the coordinator. Blocking unless said otherwise. Every error has a hint.
class Client {
 public:
  explicit Client(Login login) : login_(std::move(login)) {}

  /// A call with credentials and the pinned authority; for the loop or for perform_blocking.
  io::HttpCall call(const std::string& method, const std::string& path, std::string body = {})
      const;

  Result<std::string> get(const std::string& path) const;
  Result<std::string> send(
      const std::string& method, const std::string& path, const std::string& body
  ) const;

  template <class T>
  Result<T> get_as(const std::string& path) const {
    RN_TRY(const std::string text, get(path));
    return from_json<T>(text, Unknown::kLenient);
  }

  template <class T>
  Result<T> send_as(const std::string& method, const std::string& path, const std::string& body)
      const {
    RN_TRY(const std::string text, send(method, path, body));
    return from_json<T>(text, Unknown::kLenient);
  }

  /// Submits with a key; repeats while the coordinator is away, which the key makes harmless.
  Result<api::SubmitAnswer> submit(const JobSpec& spec, const std::string& key) const;
  /// The same for an array.
  Result<api::ArrayAnswer> submit(const api::ArrayRequest& array, const std::string& key) const;

  const Login& login() const { return login_; }

 private:
  Result<std::string> submit_to(
      const std::string& path, const std::string& body, const std::string& key
  ) const;

  Login login_;
};

/// `error` with a hint for the person at the keyboard, if it has none.
Error with_next_step(Error error, const std::string& url);

/// Performs many calls with at most `parallel` at a time on an own loop; stops at the first error.
/// `next` gives the next call, or false at the end; `done` gets each reply, also those of calls
/// that were under way at an error. `failed` gets the error of a call that was repeated in vain,
/// and answers what to stop with, or nothing to go on; empty: each error stops.
Status perform_many(
    std::size_t parallel,
    const std::function<Result<bool>(io::HttpCall& call, std::uint64_t& tag)>& next,
    const std::function<Status(std::uint64_t tag, const io::HttpReply& reply)>& done,
    const std::function<Status(const Error& error)>& failed = {}
);

}  // namespace rn::cli
