// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/time.h"
#include "io/http.h"
#include "io/http_client.h"

// One message to somebody else's server: a mail by SMTP, or a body by HTTP. Both block for their
// timeout at most (a name's lookup included), ask no proxy of the environment and keep no
// connection.
namespace rn::io {

enum class DeliveryEnd : std::uint8_t {
  kTaken,    ///< the server has answered that it has it
  kLater,    ///< not this one now; others may be taken
  kDown,     ///< nothing is taken there now
  kRefused,  ///< and saying it again would not help
};

struct Delivery {
  DeliveryEnd end = DeliveryEnd::kDown;
  std::string why;  ///< in the server's or the network's words; empty if it was taken
};

struct MailCall {
  std::string url;  ///< "smtp://host:587" or "smtps://host:465"
  std::string user;
  std::string password;
  std::string ca_file;       ///< authorities in PEM; empty: the system's
  bool requires_tls = true;  ///< of smtp: STARTTLS or nothing; false: if the server offers it
  std::string from;          ///< an address, without brackets; as `to` without line breaks
  std::string to;
  std::string text;  ///< headers, an empty line, body; lines end with CR LF
  milliseconds timeout = seconds(20);
  std::function<bool()> should_stop;  ///< asked once a second at least; true: kDown
};

Delivery send_mail(const MailCall& call);

struct HookCall {
  std::string url;
  HttpHeaders headers;
  std::string body;
  std::string ca_file;
  /// Also to addresses for which is_inner_address() holds. Looked at when the connection is made,
  /// so that no name can be one thing when it is checked and another one when it is used.
  bool reaches_inside = false;
  milliseconds timeout = seconds(20);
  std::function<bool()> should_stop;
};

/// A POST. Redirects are not followed. 2xx is kTaken; 408, 429 and 5xx kDown; any other kRefused.
Delivery post_hook(const HookCall& call);

/// One request whose answer counts.
struct AskCall {
  std::string url;  ///< https only
  HttpHeaders headers;
  std::string form;     ///< POST of a form; empty: GET
  std::string ca_file;  ///< authorities in PEM; empty: the system's
  std::size_t max_body_bytes = 64 << 10;
  milliseconds timeout = seconds(10);
  std::function<bool()> should_stop;
};

/// An answer of any status is a value; redirects are one, and are not followed. kInvalid (no https
/// URL), kTimeout, kDenied (its certificate is not trusted), kExhausted (the answer is too long),
/// kUnavailable. Messages say neither the URL's query nor anything that was sent.
Result<HttpReply> ask(const AskCall& call);

/// An address of this machine, of its link, of nobody or of many: loopback, link-local,
/// unspecified, multicast and broadcast, of IPv4, IPv6 and IPv4 within IPv6. What is no address is
/// one, too.
bool is_inner_address(const std::string& address);

}  // namespace rn::io
