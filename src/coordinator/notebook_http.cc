// SPDX-License-Identifier: Apache-2.0
#include "coordinator/notebook_http.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "base/crypto.h"
#include "base/whole_number.h"

namespace rn::coordinator::notebook {

namespace {

constexpr std::string_view kNotebooks = "/notebooks/";
constexpr std::size_t kAnswerFieldsMax = 128;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return out;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

/// The parts between separators, without the blanks around them, and without empty ones.
std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (const auto part = trimmed(text.substr(0, end)); !part.empty()) parts.push_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string_view name_of(std::string_view pair) {
  return trimmed(pair.substr(0, pair.find('=')));
}

bool is_token(std::string_view text) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           kOthers.find(c) != std::string_view::npos;
  });
}

bool is_clean(std::string_view value) {
  return std::none_of(value.begin(), value.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' && c != '\t';
  });
}

/// Of one hop, in lower case: those that always are.
bool is_of_hop(const std::string& name) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "connection",
      "keep-alive",
      "te",
      "trailer",
      "upgrade",
      "proxy-connection",
      "proxy-authenticate",
      "proxy-authorization"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// Those that "Connection" names, but for what frames a body.
std::set<std::string> named_hops(const io::HttpHeaders& headers) {
  std::set<std::string> names;
  for (const auto& [name, value] : headers) {
    if (lower(name) != "connection") continue;
    for (const std::string_view part : parts_of(value, ',')) names.insert(lower(part));
  }
  for (const char* kept : {"host", "content-length", "transfer-encoding"}) names.erase(kept);
  return names;
}

/// Of a request, in lower case: credentials, and what only a proxy says.
bool is_not_for_guests(const std::string& name) {
  return name == "authorization" || name == "expect" || name == "forwarded" || name == "via" ||
         name == "x-real-ip" || name.starts_with("x-forwarded-") || name.starts_with("x-reclaim-");
}

/// Of an answer, in lower case: what would speak for the whole origin or host, or let other pages
/// in.
bool reaches_beyond(const std::string& name) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "service-worker-allowed",
      "strict-transport-security",
      "public-key-pins",
      "clear-site-data",
      "alt-svc",
      "nel",
      "report-to",
      "reporting-endpoints",
      "origin-agent-cluster"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         name.starts_with("access-control-") || name.starts_with("x-reclaim-");
}

/// The guest's cookies, without ours; empty: none are left.
std::string cookies_for_guest(std::string_view value) {
  std::string kept;
  for (const std::string_view pair : parts_of(value, ';')) {
    if (name_of(pair) == kCookie) continue;
    kept += (kept.empty() ? "" : "; ") + std::string(pair);
  }
  return kept;
}

/// A guest's cookie, held to the notebook's folder; empty: it is not set.
std::string cookie_in_folder(std::string_view value, std::uint64_t job) {
  const std::size_t end = std::min(value.find(';'), value.size());
  const std::string_view pair = trimmed(value.substr(0, end));
  const std::string name = lower(name_of(pair));
  // The prefixes are promises of ours, not of a guest.
  if (pair.find('=') == std::string_view::npos || name.starts_with("__")) return "";
  std::string out(pair);
  for (const std::string_view part : parts_of(value.substr(end), ';')) {
    const std::string attribute = lower(name_of(part));
    if (attribute == "path" || attribute == "domain" || attribute == "secure") continue;
    out += "; " + std::string(part);
  }
  return out + "; Path=" + folder_of(job) + "/; Secure";
}

Digest mac_of(const Session& session, const std::string& job, BlobView key) {
  const std::string text = "notebook session\n" + job + "\n" + session.token + "\n" +
                           std::to_string(session.until_wall_ms);
  return crypto::hmac_sha256(key, as_bytes(text));
}

struct Field {
  std::string name;
  std::string lower_name;
  std::string value;
};

Result<Field> field_of(std::string_view line) {
  const std::size_t colon = line.find(':');
  const std::string_view name = line.substr(0, std::min(colon, line.size()));
  if (colon == std::string_view::npos || !is_token(name) || !is_clean(line))
    return fail(ErrorCode::kInvalid, "the guest's answer has a line that is no header");
  return Field{std::string(name), lower(name), std::string(trimmed(line.substr(colon + 1)))};
}

/// "HTTP/1.1 200 OK" → 200
Result<int> status_of(std::string_view line) {
  const bool is_http = line.starts_with("HTTP/1.1 ") || line.starts_with("HTTP/1.0 ");
  const std::string_view code = line.substr(std::min<std::size_t>(9, line.size()), 3);
  const bool has_end = line.size() == 12 || (line.size() > 12 && line[12] == ' ');
  const auto number = whole_number<std::uint16_t>(code, 100, 599);
  if (!is_http || !has_end || !number || !is_clean(line))
    return fail(ErrorCode::kInvalid, "what answers in the guest does not speak HTTP/1.1");
  return static_cast<int>(*number);
}

std::vector<std::string_view> lines_of(std::string_view head) {
  std::vector<std::string_view> lines;
  while (!head.empty()) {
    const std::size_t end = std::min(head.find('\n'), head.size());
    std::string_view line = head.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.push_back(line);
    head.remove_prefix(std::min(end + 1, head.size()));
  }
  return lines;
}

}  // namespace

std::optional<Path> path_of(std::string_view path) {
  if (!path.starts_with(kNotebooks)) return std::nullopt;
  path.remove_prefix(kNotebooks.size());
  const std::size_t end = std::min(path.find('/'), path.size());
  const auto job = whole_number<std::uint64_t>(path.substr(0, end), 1);
  if (!job) return std::nullopt;
  return Path{*job, std::string(path.substr(end))};
}

std::string folder_of(std::uint64_t job) {
  return std::string(kNotebooks) + std::to_string(job);
}

std::vector<std::string> session_cookies(const io::HttpHeaders& headers) {
  std::vector<std::string> values;
  for (const auto& [name, value] : headers) {
    if (lower(name) != "cookie") continue;
    for (const std::string_view pair : parts_of(value, ';')) {
      const std::size_t equals = pair.find('=');
      if (name_of(pair) == kCookie && equals != std::string_view::npos)
        values.emplace_back(trimmed(pair.substr(equals + 1)));
    }
  }
  return values;
}

std::string sealed(const Session& session, const std::string& job, BlobView key) {
  return session.token + "." + std::to_string(session.until_wall_ms) + "." +
         to_hex(mac_of(session, job, key));
}

Result<Session> opened(const std::string& cookie, const std::string& job, BlobView key) {
  const auto denied = [] { return fail(ErrorCode::kDenied, "this browser has no session here"); };
  const std::size_t first = cookie.find('.');
  const std::size_t second = first == std::string::npos ? first : cookie.find('.', first + 1);
  if (second == std::string::npos || cookie.size() > 256) return denied();
  constexpr std::uint64_t kLatest = std::uint64_t{1} << 53;
  const auto until =
      whole_number<std::uint64_t>(cookie.substr(first + 1, second - first - 1), 0, kLatest);
  const auto mac = from_hex(cookie.substr(second + 1));
  if (!until || !mac) return denied();
  Session session{cookie.substr(0, first), static_cast<std::int64_t>(*until)};
  if (!crypto::equal_in_constant_time(*mac, mac_of(session, job, key))) return denied();
  return session;
}

bool is_upgrade(const io::HttpRequest& request) {
  if (request.method != "GET" || lower(request.header("Upgrade")) != "websocket") return false;
  const auto parts = parts_of(request.header("Connection"), ',');
  return std::any_of(parts.begin(), parts.end(), [](std::string_view part) {
    return lower(part) == "upgrade";
  });
}

Status check_origin(const io::HttpRequest& request) {
  const auto denied = [](const std::string& what) {
    return fail(
        ErrorCode::kDenied,
        what + " asks, which may not",
        "open the notebook's own address in a window"
    );
  };
  const std::string_view origin = request.header("Origin");
  const std::string own = "https://" + lower(request.header("Host"));
  if (!origin.empty() && lower(origin) != own) return denied("a page of another origin");
  const std::string_view site = request.header("Sec-Fetch-Site");
  const bool is_visit = request.method == "GET" && !is_upgrade(request) &&
                        request.header("Sec-Fetch-Mode") == "navigate" &&
                        request.header("Sec-Fetch-Dest") == "document";
  if (!site.empty() && site != "same-origin" && site != "none" && !is_visit)
    return denied("a page of another site");
  return {};
}

std::string request_head(const io::HttpRequest& request) {
  std::string head = request.method + " " + request.target + " HTTP/1.1\r\n";
  const std::set<std::string> hops = named_hops(request.headers);
  for (const auto& [name, value] : request.headers) {
    const std::string low = lower(name);
    if (is_of_hop(low) || hops.contains(low) || is_not_for_guests(low)) continue;
    if (!is_token(name) || !is_clean(value)) continue;
    const std::string kept = low == "cookie" ? cookies_for_guest(value) : value;
    if (low == "cookie" && kept.empty()) continue;
    head += name + ": " + kept + "\r\n";
  }
  head += is_upgrade(request) ? "Connection: Upgrade\r\nUpgrade: websocket\r\n"
                              : "Connection: close\r\n";
  return head + "\r\n";
}

Result<AnswerHead> answer_head(std::string_view head, std::uint64_t job, bool upgrades) {
  const std::vector<std::string_view> lines = lines_of(head);
  if (lines.empty() || lines.size() > kAnswerFieldsMax)
    return fail(ErrorCode::kInvalid, "the guest's answer has no head, or too long a one");
  AnswerHead out;
  RN_TRY(out.status, status_of(lines.front()));
  const bool switches = out.status == 101;
  if (switches && !upgrades)
    return fail(ErrorCode::kInvalid, "the guest speaks another protocol than was asked for");
  io::HttpHeaders fields;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    RN_TRY(const Field field, field_of(lines[i]));
    fields.emplace_back(field.name, field.value);
  }
  if (out.status < 200 && !switches) return out;
  const std::set<std::string> hops = named_hops(fields);
  out.text = "HTTP/1.1" + std::string(lines.front().substr(8)) + "\r\n";
  for (const auto& [name, value] : fields) {
    const std::string low = lower(name);
    if (is_of_hop(low) || hops.contains(low) || reaches_beyond(low)) continue;
    const std::string kept = low == "set-cookie" ? cookie_in_folder(value, job) : value;
    if (low == "set-cookie" && kept.empty()) continue;
    out.text += name + ": " + kept + "\r\n";
  }
  out.text += switches ? "Connection: Upgrade\r\nUpgrade: websocket\r\n" : "Connection: close\r\n";
  out.text += "\r\n";
  return out;
}

std::size_t end_of_head(std::string_view bytes) {
  const std::size_t with_returns = bytes.find("\r\n\r\n");
  const std::size_t plain = bytes.find("\n\n");
  if (with_returns == std::string_view::npos && plain == std::string_view::npos) return 0;
  return with_returns < plain ? with_returns + 4 : plain + 2;
}

}  // namespace rn::coordinator::notebook
