// SPDX-License-Identifier: Apache-2.0
#include "io/curl_transfer.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/crypto.h"
#include "io/errno_error.h"
#include "io/http_error.h"
#include "io/tls.h"

namespace rn::io {
namespace {

/// Names what makes two TLS connections differ in whom they trust and who we are.
std::string policy_name(const TlsConfig& tls) {
  crypto::Sha256 hash;
  for (const std::string* part :
       {&tls.ca_pem, &tls.cert_pem, &tls.key_pem, &tls.ca_fingerprint, &tls.expected_peer}) {
    hash.update(as_bytes(std::to_string(part->size()) + ":"));
    hash.update(as_bytes(*part));
  }
  return to_hex(hash.finish());
}

std::string trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

bool tells_of_refused_certificate(std::string_view detail) {
  return detail.find("alert certificate") != std::string_view::npos ||
         detail.find("alert bad certificate") != std::string_view::npos ||
         detail.find("alert unknown ca") != std::string_view::npos ||
         detail.find("alert access denied") != std::string_view::npos;
}

}  // namespace

void initialise_curl() {
  static std::once_flag once;
  std::call_once(once, [] {
    RN_ASSERT(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "libcurl can start");
  });
}

Result<std::unique_ptr<CurlTransfer>> CurlTransfer::prepare(
    HttpCall call, CURL* kept, SessionSockets* sockets
) {
  initialise_curl();
  std::unique_ptr<CurlTransfer> transfer(new CurlTransfer(std::move(call)));
  transfer->is_borrowed_ = kept != nullptr;
  transfer->easy_ = kept != nullptr ? kept : curl_easy_init();
  if (transfer->easy_ == nullptr) return fail(ErrorCode::kExhausted, "no memory for a call");
  RN_CHECK(transfer->set_options());
  transfer->set_watchers(sockets);
  return transfer;
}

CurlTransfer::~CurlTransfer() {
  if (is_borrowed_) {
    curl_easy_reset(easy_);  // no option points into this object any more; connections stay
  } else if (easy_ != nullptr) {
    curl_easy_cleanup(easy_);
  }
  curl_slist_free_all(headers_);
}

Status CurlTransfer::check_texts() const {
  const auto breaks = [](const std::string& text) {
    return text.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos;
  };
  bool is_bad = breaks(call_.method) || breaks(call_.url) || call_.method.empty();
  for (const auto& [name, value] : call_.headers) is_bad = is_bad || breaks(name) || breaks(value);
  if (is_bad) return fail(ErrorCode::kInvalid, "a line break in a method, URL or header");
  return {};
}

Status CurlTransfer::set_options() {
  RN_CHECK(check_texts());
  RN_CHECK(set_url());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PROXY, "");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_ERRORBUFFER, detail_.data());
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(call_.connect_timeout.count()));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(call_.timeout.count()));
  if (call_.stall_timeout > milliseconds(0)) {
    const auto whole = std::chrono::ceil<seconds>(call_.stall_timeout).count();
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(whole));
  }
  if (!call_.unix_socket.empty()) set(CURLOPT_UNIX_SOCKET_PATH, call_.unix_socket.c_str());
  set(CURLOPT_WRITEFUNCTION, &CurlTransfer::on_body);
  set(CURLOPT_WRITEDATA, this);
  set(CURLOPT_HEADERFUNCTION, &CurlTransfer::on_header);
  set(CURLOPT_HEADERDATA, this);
  RN_CHECK(set_body());
  set_headers();
  return {};
}

void CurlTransfer::set_watchers(SessionSockets* sockets) {
  if (sockets != nullptr) {
    set(CURLOPT_SOCKOPTFUNCTION, &CurlTransfer::on_socket);
    set(CURLOPT_SOCKOPTDATA, sockets);
  }
  if (!call_.should_stop) return;
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &CurlTransfer::on_progress);
  set(CURLOPT_XFERINFODATA, this);
}

int CurlTransfer::on_socket(void* sockets, curl_socket_t socket, curlsocktype) {
  static_cast<SessionSockets*>(sockets)->opened(socket);
  return CURL_SOCKOPT_OK;
}

int CurlTransfer::on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<CurlTransfer*>(self);
  if (!transfer.call_.should_stop()) return 0;
  transfer.failure_ = Error{ErrorCode::kTimeout, "cancelled", {}};
  return 1;
}

Status CurlTransfer::set_url() {
  CURLU* parts = curl_url();
  const std::unique_ptr<CURLU, decltype([](CURLU* url) { curl_url_cleanup(url); })> owner(parts);
  char* scheme = nullptr;
  char* host = nullptr;
  const bool is_parsed = curl_url_set(parts, CURLUPART_URL, call_.url.c_str(), 0) == CURLUE_OK &&
                         curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                         curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK;
  const std::string scheme_text = scheme == nullptr ? "" : scheme;
  host_ = host == nullptr ? "" : host;
  curl_free(scheme);
  curl_free(host);
  if (!is_parsed) return fail(ErrorCode::kInvalid, "'" + call_.url + "' is not a URL");
  if (host_.size() > 2 && host_.front() == '[') host_ = host_.substr(1, host_.size() - 2);
  set(CURLOPT_URL, call_.url.c_str());
  if (scheme_text == "https") return set_tls();
  if (scheme_text == "http") return {};
  return fail(ErrorCode::kInvalid, "'" + call_.url + "' is neither https nor http");
}

Status CurlTransfer::set_tls() {
  if (!call_.tls) return fail(ErrorCode::kInvalid, "https needs a certificate authority to trust");
  // Our own callback verifies (on_tls); curl's checks would ask the system's authorities.
  set(CURLOPT_SSL_VERIFYPEER, 0L);
  set(CURLOPT_SSL_VERIFYHOST, 0L);
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_3));
  set(CURLOPT_SSL_CTX_FUNCTION, &CurlTransfer::on_tls);
  set(CURLOPT_SSL_CTX_DATA, this);
  // NOTE(curl): a kept connection is reused for another call only if this path is the same. Nothing
  // is read from it.
  const std::string path = "/nonexistent/" + policy_name(*call_.tls);
  set(CURLOPT_CAPATH, path.c_str());
  return {};
}

Status CurlTransfer::set_body() {
  if (!call_.upload_file.empty()) {
    file_ = Fd(::open(call_.upload_file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));

    struct stat what {};

    if (!file_ || fstat(file_.get(), &what) != 0)
      return fail(error_from_errno(errno, "opening " + call_.upload_file));
    if (!S_ISREG(what.st_mode))
      return fail(ErrorCode::kUnsupported, call_.upload_file + " is not a regular file");
    call_.body_bytes = static_cast<std::uint64_t>(what.st_size);
  }
  if (file_ || call_.upload) {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_READFUNCTION, &CurlTransfer::on_upload);
    set(CURLOPT_READDATA, this);
    if (call_.body_bytes) set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(*call_.body_bytes));
  } else if (!call_.body.empty() || call_.method == "POST" || call_.method == "PUT" ||
             call_.method == "PATCH") {
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(call_.body.size()));
    set(CURLOPT_POSTFIELDS, call_.body.c_str());
  } else if (call_.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  }
  set(CURLOPT_CUSTOMREQUEST, call_.method.c_str());
  return {};
}

void CurlTransfer::set_headers() {
  for (const auto& [name, value] : call_.headers) {
    const std::string line = value.empty() ? name + ";" : name + ": " + value;
    headers_ = curl_slist_append(headers_, line.c_str());
  }
  // Without these curl would wait for "100 Continue" and call every body a form.
  headers_ = curl_slist_append(headers_, "Expect:");
  if (find_header(call_.headers, "Content-Type").empty())
    headers_ = curl_slist_append(headers_, "Content-Type:");
  set(CURLOPT_HTTPHEADER, headers_);
}

CURLcode CurlTransfer::on_tls(CURL*, void* context, void* self) {
  auto& transfer = *static_cast<CurlTransfer*>(self);
  const Status set_up =
      configure_client_context(static_cast<SSL_CTX*>(context), *transfer.call_.tls, transfer.host_);
  if (set_up) return CURLE_OK;
  transfer.failure_ = set_up.error();
  return CURLE_SSL_CERTPROBLEM;
}

std::size_t CurlTransfer::on_body(char* data, std::size_t size, std::size_t count, void* self) {
  return static_cast<CurlTransfer*>(self)->take_body({data, size * count});
}

std::size_t CurlTransfer::take_body(std::string_view bytes) {
  long status = 0;
  (void)curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  if (call_.on_data && status >= 200 && status < 300) {
    const Status taken = call_.on_data(as_bytes(bytes));
    if (taken) return bytes.size();
    failure_ = taken.error();
    return 0;
  }
  if (reply_.body.empty()) make_room();
  if (reply_.body.size() + bytes.size() > call_.max_body_bytes) {
    failure_ = Error{
        ErrorCode::kExhausted,
        "the answer is longer than " + std::to_string(call_.max_body_bytes) + " bytes",
        {}};
    return 0;
  }
  reply_.body.append(bytes);
  return bytes.size();
}

/// A body of announced length is collected without being moved while it grows.
void CurlTransfer::make_room() {
  curl_off_t announced = -1;
  (void)curl_easy_getinfo(easy_, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &announced);
  if (announced <= 0) return;
  reply_.body.reserve(std::min(static_cast<std::size_t>(announced), call_.max_body_bytes));
}

std::size_t CurlTransfer::on_header(char* data, std::size_t size, std::size_t count, void* self) {
  static_cast<CurlTransfer*>(self)->take_header({data, size * count});
  return size * count;
}

void CurlTransfer::take_header(std::string_view line) {
  if (line.starts_with("HTTP/")) reply_.headers.clear();  // the head of "100 Continue" came before
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return;
  reply_.headers.emplace_back(std::string(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
}

Result<Blob> CurlTransfer::next_upload(std::size_t max) {
  if (!file_) return call_.upload(max);
  Blob bytes(max);
  const ssize_t got = read(file_.get(), bytes.data(), bytes.size());
  if (got < 0) return fail(error_from_errno(errno, "reading " + call_.upload_file));
  bytes.resize(static_cast<std::size_t>(got));
  return bytes;
}

std::size_t CurlTransfer::on_upload(char* out, std::size_t size, std::size_t count, void* self) {
  return static_cast<CurlTransfer*>(self)->give_body(out, size * count);
}

std::size_t CurlTransfer::give_body(char* out, std::size_t max) {
  auto bytes = next_upload(max);
  if (bytes && bytes->size() > max)
    bytes = fail(ErrorCode::kInternal, "an upload callback gave more than was asked for");
  if (!bytes) {
    failure_ = bytes.error();
    return CURL_READFUNC_ABORT;
  }
  std::copy(bytes->begin(), bytes->end(), out);
  return bytes->size();
}

Error CurlTransfer::network_error(CURLcode code) const {
  const std::string detail = detail_[0] != '\0' ? detail_.data() : curl_easy_strerror(code);
  Error error{ErrorCode::kUnavailable, call_.method + " " + call_.url + ": " + detail, {}};
  if (code == CURLE_OPERATION_TIMEDOUT) {
    error.code = ErrorCode::kTimeout;
  } else if (code == CURLE_PEER_FAILED_VERIFICATION || tells_of_refused_certificate(detail)) {
    error.code = ErrorCode::kDenied;
    error.hint =
        "check that the address is right, the certificates belong to this site, and both clocks "
        "are right";
  } else if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) {
    error.code = ErrorCode::kInvalid;
  } else if (code == CURLE_OUT_OF_MEMORY) {
    error.code = ErrorCode::kExhausted;
  } else if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST) {
    error.hint = "check that the address is right and the server is running";
  }
  return error;
}

Result<HttpReply> CurlTransfer::finish(CURLcode code) {
  if (failure_) return fail(*failure_);
  if (code != CURLE_OK) return fail(network_error(code));
  long status = 0;
  (void)curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  reply_.status = static_cast<int>(status);
  return std::move(reply_);
}

Result<HttpReply> perform_blocking(const HttpCall& call) {
  RN_TRY(const auto transfer, CurlTransfer::prepare(call));
  return transfer->finish(curl_easy_perform(transfer->easy()));
}

struct HttpSession::State {
  std::shared_ptr<SessionSockets> sockets;
  CURL* easy = nullptr;

  ~State() {
    if (easy != nullptr) curl_easy_cleanup(easy);
  }
};

HttpSession::HttpSession(std::shared_ptr<SessionSockets> sockets)
    : state_(std::make_unique<State>()) {
  state_->sockets = std::move(sockets);
}

HttpSession::~HttpSession() = default;
HttpSession::HttpSession(HttpSession&& other) noexcept = default;
HttpSession& HttpSession::operator=(HttpSession&& other) noexcept = default;

Result<HttpReply> HttpSession::perform(const HttpCall& call) {
  initialise_curl();
  if (state_->easy == nullptr) state_->easy = curl_easy_init();
  if (state_->easy == nullptr) return fail(ErrorCode::kExhausted, "no memory for a call");
  RN_TRY(const auto transfer, CurlTransfer::prepare(call, state_->easy, state_->sockets.get()));
  (void)curl_easy_setopt(state_->easy, CURLOPT_MAXCONNECTS, 1L);
  return transfer->finish(curl_easy_perform(state_->easy));
}

Result<HttpReply> succeed(Result<HttpReply> reply) {
  if (!reply || reply->is_success()) return reply;
  return fail(error_from_http(reply->status, reply->body));
}

}  // namespace rn::io
