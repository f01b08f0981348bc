// SPDX-License-Identifier: Apache-2.0
#include "io/url.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace rn::io {
namespace {

std::uint16_t default_port(std::string_view scheme) {
  if (scheme == "https" || scheme == "wss") return 443;
  return scheme == "http" || scheme == "ws" ? 80 : 0;
}

/// Splits "host:port" or "[address]:port" into its halves; the second is empty when there is none.
bool split_authority(std::string_view text, std::string_view& host, std::string_view& port) {
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return false;
    host = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    if (text.empty()) return true;
    if (text.front() != ':') return false;
    port = text.substr(1);
    return !port.empty();
  }
  const std::size_t colon = std::min(text.find(':'), text.size());
  host = text.substr(0, colon);
  if (colon == text.size()) return true;
  port = text.substr(colon + 1);
  return !port.empty();
}

}  // namespace

Result<Url> parse_url(const std::string& text) {
  const auto bad = [&] { return fail(ErrorCode::kInvalid, "'" + text + "' is not a URL"); };
  const bool is_clean = std::all_of(text.begin(), text.end(), [](char c) {
    return c > ' ' && c != '\x7f' && c != '#' && c != '\\';
  });
  const std::size_t scheme_end = text.find("://");
  if (!is_clean || scheme_end == std::string::npos || scheme_end == 0) return bad();
  Url url;
  url.scheme = text.substr(0, scheme_end);
  for (char& c : url.scheme) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;

  const std::string_view rest = std::string_view(text).substr(scheme_end + 3);
  const std::size_t end = std::min(rest.find_first_of("/?"), rest.size());
  const std::string_view authority = rest.substr(0, end);
  std::string_view host;
  std::string_view port;
  if (authority.find('@') != std::string_view::npos || !split_authority(authority, host, port) ||
      host.empty())
    return bad();
  url.host = host;
  url.authority = authority;
  url.port = default_port(url.scheme);
  if (!port.empty()) {
    const auto parsed = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (parsed.ec != std::errc() || parsed.ptr != port.data() + port.size()) return bad();
  }
  if (url.port == 0) return bad();
  url.target = rest.substr(end);
  if (url.target.empty() || url.target.front() != '/') url.target.insert(0, "/");
  return url;
}

}  // namespace rn::io
