// SPDX-License-Identifier: Apache-2.0
#include "io/url.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <arpa/inet.h>

#include "base/whole_number.h"

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

bool is_label(std::string_view label) {
  if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-')
    return false;
  return std::all_of(label.begin(), label.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

tl::unexpected<Error> no_site(const std::string& what, const std::string& next) {
  return fail(ErrorCode::kInvalid, "the coordinator's address " + what, next);
}

constexpr const char* kSiteExample = "for example https://coordinator:7443";

/// What follows the scheme, if that is https or left out.
Result<std::string> site_place(const std::string& text) {
  // First of all, so that no other message repeats a password.
  if (text.find('@') != std::string::npos)
    return no_site("carries a user name or password", "leave it out; a token goes to --token");
  const std::size_t scheme_end = text.find("://");
  if (scheme_end == std::string::npos) return text;
  std::string scheme = text.substr(0, scheme_end);
  for (char& c : scheme) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (scheme != "https")
    return no_site("'" + text + "' is not one of https", "write https:// or leave it out");
  return text.substr(scheme_end + 3);
}

}  // namespace

bool is_ip_address(const std::string& text) {
  in6_addr address{};
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

bool is_host_name(const std::string& text) {
  if (text.find('\0') != std::string::npos || text.size() > 253) return false;
  if (is_ip_address(text)) return true;
  if (text.find_first_not_of("0123456789.") == std::string::npos) return false;
  std::string_view rest = text;
  if (rest.ends_with('.')) rest.remove_suffix(1);
  while (true) {
    const std::size_t dot = rest.find('.');
    if (!is_label(rest.substr(0, dot))) return false;
    if (dot == std::string_view::npos) return true;
    rest.remove_prefix(dot + 1);
  }
}

Result<std::string> site_url(const std::string& text, std::uint16_t port) {
  RN_TRY(std::string place, site_place(text));
  while (place.ends_with('/')) place.pop_back();
  const std::size_t end = place.find_first_of("/?#");
  if (end != std::string::npos)
    return no_site(
        "'" + text + "' names more than host and port: " + place.substr(end), kSiteExample
    );
  std::string_view host;
  std::string_view digits;
  if (!place.starts_with('[') && std::count(place.begin(), place.end(), ':') > 1)
    return no_site(
        "'" + text + "' has more than one colon",
        "put an IPv6 address into brackets: https://[" + (is_ip_address(place) ? place : "::1") +
            "]:" + std::to_string(port)
    );
  if (!split_authority(place, host, digits))
    return no_site("'" + text + "' has no port after its colon, or no ']'", kSiteExample);
  const std::string name(host);
  const bool is_bracketed = place.starts_with('[');
  if (is_bracketed ? name.find(':') == std::string::npos || !is_ip_address(name)
                   : !is_host_name(name))
    return no_site("'" + text + "' names no host: '" + name + "'", kSiteExample);
  if (!digits.empty()) {
    const auto given = whole_number<std::uint16_t>(digits, 1);
    if (!given) return no_site("'" + text + "': port " + given.error().message, kSiteExample);
    port = *given;
  }
  return "https://" + (is_bracketed ? "[" + name + "]" : name) + ":" + std::to_string(port);
}

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
