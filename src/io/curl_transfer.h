// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <curl/curl.h>

#include "base/error.h"
#include "io/fd.h"
#include "io/http_client.h"

// Private to io: one HttpCall as a libcurl transfer, driven by somebody else.
namespace rn::io {

void initialise_curl();  ///< once per process; repeatable, any thread

class CurlTransfer {
 public:
  /// kInvalid for a call that cannot be made; kNotFound and such for its file. `kept`, when given,
  /// is a handle of an earlier transfer that is over: its connection may be used again. It stays
  /// the caller's and outlives the transfer.
  /// `sockets` see the connections that it makes; they outlive the transfer.
  static Result<std::unique_ptr<CurlTransfer>> prepare(
      HttpCall call, CURL* kept = nullptr, SessionSockets* sockets = nullptr
  );
  ~CurlTransfer();
  CurlTransfer(const CurlTransfer&) = delete;
  CurlTransfer& operator=(const CurlTransfer&) = delete;

  CURL* easy() { return easy_; }

  /// The outcome, once curl says that the transfer ended with `code`.
  Result<HttpReply> finish(CURLcode code);

 private:
  explicit CurlTransfer(HttpCall call) : call_(std::move(call)) {}

  Status check_texts() const;
  Status set_options();
  void set_watchers(SessionSockets* sockets);
  Status set_url();
  Status set_tls();
  Status set_body();
  void set_headers();

  template <class Value>
  void set(CURLoption option, Value value) {
    (void)curl_easy_setopt(easy_, option, value);
  }

  std::size_t take_body(std::string_view bytes);
  void make_room();
  void take_header(std::string_view line);
  std::size_t give_body(char* out, std::size_t max);
  Result<Blob> next_upload(std::size_t max);
  Error network_error(CURLcode code) const;

  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t on_upload(char* out, std::size_t size, std::size_t count, void* self);
  static int on_socket(void* sockets, curl_socket_t socket, curlsocktype purpose);
  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t);
  static CURLcode on_tls(CURL* easy, void* context, void* self);

  HttpCall call_;
  HttpReply reply_;
  std::optional<Error> failure_;  ///< why one of our callbacks aborted the transfer
  CURL* easy_ = nullptr;
  bool is_borrowed_ = false;  ///< easy_ is somebody else's
  curl_slist* headers_ = nullptr;
  std::string host_;
  Fd file_;
  std::array<char, CURL_ERROR_SIZE> detail_{};
};

}  // namespace rn::io
