// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace rn::io {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// Value of the first header of that name (case-insensitive), or empty.
std::string_view find_header(const HttpHeaders& headers, std::string_view name);

/// What a server handler gets.
struct HttpRequest {
  std::string method;  ///< "GET"
  std::string path;    ///< percent-decoded, begins with '/', without the query
  std::string query;   ///< raw text after '?', or empty
  HttpHeaders headers;
  std::string body;
  std::optional<std::string> peer_identity;  ///< first URI SAN of the verified client certificate
  std::optional<Digest> peer_key;  ///< SHA-256 of that certificate's SubjectPublicKeyInfo (DER)
  std::optional<std::uint32_t> peer_uid;  ///< Unix sockets only: SO_PEERCRED
  std::string remote;                     ///< "192.0.2.1:4711", or "unix"
  std::string target;                     ///< path and query as they were sent

  std::string_view header(std::string_view name) const { return find_header(headers, name); }
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;  ///< Content-Length, Date and Connection are set by the server
  std::string body;
};

HttpResponse json_response(int status, std::string json);

/// "a=1&b=x%20y" → {a: "1", b: "x y"}; of a repeated name the first wins. kInvalid on a bad escape.
Result<std::map<std::string, std::string>> parse_query(std::string_view query);
/// Decodes %XX (and '+' if `plus_is_blank`). kInvalid on a bad escape or a NUL byte.
Result<std::string> percent_decode(std::string_view text, bool plus_is_blank = false);
/// Encodes everything but RFC 3986's unreserved characters.
std::string percent_encode(std::string_view text);

}  // namespace rn::io
