// SPDX-License-Identifier: Apache-2.0
#include "io/delivery.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/curl_transfer.h"

namespace rn::io {

namespace {

constexpr milliseconds kDeliveryConnectTimeout{8000};
/// Of an answer nobody reads more.
constexpr std::size_t kAnswerBytes = 64 << 10;
constexpr std::size_t kWhyBytes = 200;

bool is_inner_v4(std::uint32_t address) {
  const std::uint32_t first = address >> 24;
  const bool is_link_local = address >> 16 == 0xa9fe;  // 169.254/16
  return first == 0 || first == 127 || is_link_local || first >= 224;
}

bool is_inner_v6(const in6_addr& address) {
  const std::uint8_t* const byte = address.s6_addr;
  const auto are_zero = [&](std::size_t count) {
    return std::all_of(byte, byte + count, [](std::uint8_t one) { return one == 0; });
  };
  const bool is_mapped = are_zero(10) && byte[10] == 0xff && byte[11] == 0xff;
  if (is_mapped || are_zero(12)) {  // the second: "::", "::1", and IPv4 as it once was written
    std::uint32_t inner = 0;
    std::memcpy(&inner, byte + 12, sizeof(inner));
    return are_zero(12) || is_inner_v4(ntohl(inner));
  }
  const bool is_nat64 = byte[0] == 0x00 && byte[1] == 0x64 && byte[2] == 0xff && byte[3] == 0x9b;
  const bool is_link_local = byte[0] == 0xfe && (byte[1] & 0xc0) == 0x80;
  return is_nat64 || is_link_local || byte[0] == 0xff;
}

/// What is no address of IP is; so is one with a zone.
bool leads_inside(const curl_sockaddr& address) {
  std::array<char, NI_MAXHOST> text{};
  const int failed = ::getnameinfo(
      &address.addr,
      address.addrlen,
      text.data(),
      static_cast<socklen_t>(text.size()),
      nullptr,
      0,
      NI_NUMERICHOST
  );
  return failed != 0 || is_inner_address(text.data());
}

/// One call of libcurl; its options point into this object.
class Call {
 public:
  explicit Call(const std::function<bool()>& should_stop) : should_stop_(should_stop) {
    initialise_curl();
    easy_ = curl_easy_init();
  }

  ~Call() {
    curl_easy_cleanup(easy_);
    curl_slist_free_all(list_);
  }

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool is_made() const { return easy_ != nullptr; }

  template <class Value>
  void set(CURLoption option, Value value) {
    (void)curl_easy_setopt(easy_, option, value);
  }

  void set_common(const std::string& url, milliseconds timeout, const std::string& ca_file) {
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_PROXY, "");
    set(CURLOPT_ERRORBUFFER, detail_.data());
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(kDeliveryConnectTimeout.count()));
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
    set(CURLOPT_QUICK_EXIT, 1L);  // a lookup that hangs does not hold up the end of the process
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &Call::on_progress);
    set(CURLOPT_XFERINFODATA, this);
    set(CURLOPT_WRITEFUNCTION, &Call::on_body);
    set(CURLOPT_WRITEDATA, this);
    if (!ca_file.empty()) {
      set(CURLOPT_CAINFO, ca_file.c_str());
      set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
    }
  }

  void stay_outside() {
    set(CURLOPT_OPENSOCKETFUNCTION, &Call::on_open);
    set(CURLOPT_OPENSOCKETDATA, this);
  }

  curl_slist* add(const std::string& line) {
    list_ = curl_slist_append(list_, line.c_str());
    return list_;
  }

  /// Of the answer's body, which is not kept without it.
  void keep_answer(std::size_t max_bytes) {
    keeps_ = true;
    max_answer_ = max_bytes;
  }

  std::string take_answer() { return std::move(answer_); }

  bool was_too_long() const { return answered_ > max_answer_; }

  void upload(std::string_view text) {
    upload_ = text;
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_READFUNCTION, &Call::on_upload);
    set(CURLOPT_READDATA, this);
  }

  CURLcode perform() { return curl_easy_perform(easy_); }

  /// The last answer's; 0 = there was none.
  long status() const {
    long code = 0;
    (void)curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &code);
    return code;
  }

  std::string words(CURLcode code) const {
    if (!refused_.empty()) return refused_;
    const std::string said = detail_[0] != '\0' ? detail_.data() : curl_easy_strerror(code);
    return said.substr(0, kWhyBytes);
  }

  bool was_kept_outside() const { return !refused_.empty(); }

 private:
  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    const auto& call = *static_cast<Call*>(self);
    return call.should_stop_ && call.should_stop_() ? 1 : 0;
  }

  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self) {
    auto& call = *static_cast<Call*>(self);
    call.answered_ += size * count;
    if (call.was_too_long()) return 0;
    if (call.keeps_) call.answer_.append(data, size * count);
    return size * count;
  }

  static std::size_t on_upload(char* out, std::size_t size, std::size_t count, void* self) {
    auto& call = *static_cast<Call*>(self);
    const std::size_t bytes = std::min(size * count, call.upload_.size());
    std::copy_n(call.upload_.data(), bytes, out);
    call.upload_.remove_prefix(bytes);
    return bytes;
  }

  static curl_socket_t on_open(void* self, curlsocktype, curl_sockaddr* address) {
    auto& call = *static_cast<Call*>(self);
    if (leads_inside(*address)) {
      call.refused_ = "its name leads to an address of the coordinator's own machine or link";
      return CURL_SOCKET_BAD;
    }
    return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  }

  const std::function<bool()>& should_stop_;
  CURL* easy_ = nullptr;
  curl_slist* list_ = nullptr;
  std::string_view upload_;
  std::size_t answered_ = 0;
  std::size_t max_answer_ = kAnswerBytes;
  bool keeps_ = false;
  std::string answer_;
  std::string refused_;
  std::array<char, CURL_ERROR_SIZE> detail_{};
};

Delivery mail_delivery(CURLcode code, long status, const std::string& words) {
  if (code == CURLE_OK) return {DeliveryEnd::kTaken, {}};
  const std::string why = status >= 400 ? words + " (" + std::to_string(status) + ")" : words;
  // What the server says of sender, receiver or text is of this one mail; all else is of all.
  const bool is_of_text = code == CURLE_SEND_ERROR || code == CURLE_WEIRD_SERVER_REPLY;
  if (!is_of_text || status < 400) return {DeliveryEnd::kDown, why};
  const bool is_final = code == CURLE_SEND_ERROR && status >= 500;
  return {is_final ? DeliveryEnd::kRefused : DeliveryEnd::kLater, why};
}

Delivery hook_delivery(CURLcode code, long status, const std::string& words) {
  // An answer that is too long is an answer.
  if (code != CURLE_OK && !(code == CURLE_WRITE_ERROR && status > 0))
    return {DeliveryEnd::kDown, words};
  if (status >= 200 && status < 300) return {DeliveryEnd::kTaken, {}};
  const std::string why = "it answers with status " + std::to_string(status);
  if (status >= 300 && status < 400)
    return {DeliveryEnd::kRefused, why + ", and redirects are not followed"};
  const bool is_passing = status == 408 || status == 429 || status >= 500;
  return {is_passing ? DeliveryEnd::kDown : DeliveryEnd::kRefused, why};
}

bool has_break(const std::string& text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos;
}

}  // namespace

bool is_inner_address(const std::string& address) {
  in_addr v4{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return is_inner_v4(ntohl(v4.s_addr));
  in6_addr v6{};
  return ::inet_pton(AF_INET6, address.c_str(), &v6) != 1 || is_inner_v6(v6);
}

Delivery send_mail(const MailCall& mail) {
  if (has_break(mail.from) || has_break(mail.to) || has_break(mail.url))
    return {DeliveryEnd::kRefused, "a line break in an address"};
  Call call(mail.should_stop);
  if (!call.is_made()) return {DeliveryEnd::kDown, "no memory for a call"};
  call.set_common(mail.url, mail.timeout, mail.ca_file);
  call.set(CURLOPT_PROTOCOLS_STR, "smtp,smtps");
  const long tls = mail.requires_tls ? CURLUSESSL_ALL : CURLUSESSL_TRY;
  call.set(CURLOPT_USE_SSL, tls);
  if (!mail.user.empty()) {
    call.set(CURLOPT_USERNAME, mail.user.c_str());
    call.set(CURLOPT_PASSWORD, mail.password.c_str());
  }
  const std::string from = "<" + mail.from + ">";
  call.set(CURLOPT_MAIL_FROM, from.c_str());
  call.set(CURLOPT_MAIL_RCPT, call.add("<" + mail.to + ">"));
  call.upload(mail.text);
  const CURLcode code = call.perform();
  return mail_delivery(code, call.status(), call.words(code));
}

Delivery post_hook(const HookCall& hook) {
  bool is_broken = has_break(hook.url);
  for (const auto& header : hook.headers)
    is_broken = is_broken || has_break(header.first) || has_break(header.second);
  if (is_broken) return {DeliveryEnd::kRefused, "a line break in a URL or header"};
  Call call(hook.should_stop);
  if (!call.is_made()) return {DeliveryEnd::kDown, "no memory for a call"};
  call.set_common(hook.url, hook.timeout, hook.ca_file);
  call.set(CURLOPT_PROTOCOLS_STR, "http,https");
  call.set(CURLOPT_FOLLOWLOCATION, 0L);
  call.set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  call.set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (!hook.reaches_inside) call.stay_outside();
  curl_slist* headers = call.add("Expect:");
  for (const auto& header : hook.headers) headers = call.add(header.first + ": " + header.second);
  call.set(CURLOPT_HTTPHEADER, headers);
  call.set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(hook.body.size()));
  call.set(CURLOPT_POSTFIELDS, hook.body.c_str());
  const CURLcode code = call.perform();
  if (call.was_kept_outside() && code != CURLE_OK) return {DeliveryEnd::kRefused, call.words(code)};
  return hook_delivery(code, call.status(), call.words(code));
}

Result<HttpReply> ask(const AskCall& asked) {
  bool is_broken = has_break(asked.url) || !asked.url.starts_with("https://");
  for (const auto& header : asked.headers)
    is_broken = is_broken || has_break(header.first) || has_break(header.second);
  if (is_broken) return fail(ErrorCode::kInvalid, "no https URL, or a line break in a header");
  Call call(asked.should_stop);
  if (!call.is_made()) return fail(ErrorCode::kExhausted, "no memory for a call");
  call.set_common(asked.url, asked.timeout, asked.ca_file);
  call.set(CURLOPT_PROTOCOLS_STR, "https");
  call.set(CURLOPT_FOLLOWLOCATION, 0L);
  call.set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  call.set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  call.keep_answer(asked.max_body_bytes);
  curl_slist* headers = call.add("Expect:");
  for (const auto& header : asked.headers) headers = call.add(header.first + ": " + header.second);
  call.set(CURLOPT_HTTPHEADER, headers);
  if (!asked.form.empty()) {
    call.set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(asked.form.size()));
    call.set(CURLOPT_POSTFIELDS, asked.form.c_str());
  }
  const CURLcode code = call.perform();
  const std::string place = asked.url.substr(0, asked.url.find('?'));
  if (code == CURLE_OK) {
    HttpReply reply;
    reply.status = static_cast<int>(call.status());
    reply.body = call.take_answer();
    return reply;
  }
  if (call.was_too_long())
    return fail(
        ErrorCode::kExhausted,
        place + ": the answer is longer than " + std::to_string(asked.max_body_bytes) + " bytes"
    );
  const bool is_untrusted = code == CURLE_PEER_FAILED_VERIFICATION;
  const ErrorCode why = code == CURLE_OPERATION_TIMEDOUT ? ErrorCode::kTimeout
                        : is_untrusted                   ? ErrorCode::kDenied
                                                         : ErrorCode::kUnavailable;
  return fail(why, place + ": " + call.words(code));
}

}  // namespace rn::io
