// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/time.h"
#include "io/http.h"
#include "io/loop.h"
#include "io/pki.h"
#include "io/session_sockets.h"

namespace rn::io {

/// One call. Redirects are not followed, proxies of the environment are not used.
struct HttpCall {
  std::string method = "GET";
  std::string url;  ///< "https://host:port/path"; with unix_socket "http://docker/v1.41/info"
  HttpHeaders headers;
  std::string body;
  std::string unix_socket;  ///< path of the socket to connect to instead of the URL's host
  std::optional<TlsConfig>
      tls;  ///< for https; without it the call is refused (kInvalid), never unverified

  std::string upload_file;  ///< when set, the body is this file's content
  /// When set, the body comes from here, chunked (or body_bytes long): at most `max` bytes a call,
  /// empty at the end; an error aborts the call and is its result.
  std::function<Result<Blob>(std::size_t max)> upload;
  std::optional<std::uint64_t> body_bytes;

  /// When set, a 2xx body is given here piece by piece instead of being collected; an error aborts
  /// the call and is its result. Bodies of other statuses are collected (they are error texts).
  std::function<Status(BlobView)> on_data;

  /// When set, asked several times a second as a rule, once a second at least; true ends the call
  /// with kTimeout.
  std::function<bool()> should_stop;

  milliseconds connect_timeout = seconds(10);
  milliseconds timeout = seconds(60);  ///< of the whole call; 0: none (logs -f)
  milliseconds stall_timeout =
      seconds(0);  ///< less than 1 byte/s for so long; 0: none. Whole seconds.
  std::size_t max_body_bytes = 16 << 20;  ///< of a collected answer; more is kExhausted
};

struct HttpReply {
  int status = 0;
  HttpHeaders headers;
  std::string body;

  bool is_success() const { return status >= 200 && status < 300; }
};

/// Blocks. For workers and the CLI. An answer of any status is a value (use succeed() to make it an
/// error); errors: kTimeout, kUnavailable (no connection, or cut in the middle), kDenied
/// (certificate or identity not accepted, by either side), kInvalid (bad URL), kExhausted (answer
/// too long). Keeps no connection open.
Result<HttpReply> perform_blocking(const HttpCall& call);

/// Blocking calls one after another, with one connection kept for the next call to the same server
/// by the same certificates (a TLS handshake with both costs more than a megabyte of body). One
/// thread at a time; the connection ends with the object. A kept connection that the server has
/// closed meanwhile is replaced unnoticed.
class HttpSession {
 public:
  /// `sockets`, if there are any, see its connections and say how fast they send.
  explicit HttpSession(std::shared_ptr<SessionSockets> sockets = nullptr);
  ~HttpSession();
  HttpSession(HttpSession&& other) noexcept;
  HttpSession& operator=(HttpSession&& other) noexcept;

  /// As perform_blocking.
  Result<HttpReply> perform(const HttpCall& call);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Passes a 2xx on, turns any other status into error_from_http().
Result<HttpReply> succeed(Result<HttpReply> reply);

/// Names a call of one client.
struct HttpCallId {
  std::uint64_t value = 0;
};

/// Calls on the loop, with connections kept and reused. At most `max_calls` at once: beyond it
/// perform() answers kExhausted through `done`. Loop thread. Destroying it drops all calls without
/// calling `done`.
class HttpClient {
 public:
  explicit HttpClient(Loop& loop, std::size_t max_calls = 256);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Results as perform_blocking. `done` is never called before perform() returns. upload_file is
  /// read on the loop: small files only. The call's own callbacks run on the loop.
  HttpCallId perform(HttpCall call, std::function<void(Result<HttpReply>)> done);
  /// Its `done` will not be called. Finished and none names are fine.
  void cancel(HttpCallId id);
  std::size_t active() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rn::io
