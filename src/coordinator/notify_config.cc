// SPDX-License-Identifier: Apache-2.0
#include "coordinator/notify_config.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "io/url.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kMaxAddressBytes = 254;
constexpr std::size_t kMaxLocalBytes = 64;
constexpr std::uint64_t kMaxPasswordBytes = 1024;

std::string in_small_letters(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

/// RFC 5321's atoms with dots between them, in ASCII.
bool is_local_part(std::string_view text) {
  if (text.empty() || text.size() > kMaxLocalBytes || text.front() == '.' || text.back() == '.' ||
      text.find("..") != std::string_view::npos)
    return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view(".!#$%&'*+/=?^_`{|}~-").find(c) != std::string_view::npos;
  });
}

Status check_smtp(SmtpConfig& smtp) {
  const bool is_tls = smtp.url.starts_with("smtps://");
  // The parts are those of any URL; smtp has no port of its own there.
  const std::string rest = smtp.url.substr(std::min(smtp.url.find("://"), smtp.url.size()));
  const auto url = io::parse_url("http" + rest);
  const bool is_mail = is_tls || smtp.url.starts_with("smtp://");
  if (!is_mail || !url || url->target != "/" || !io::is_host_name(url->host))
    return fail(
        ErrorCode::kInvalid,
        "smtp: url: '" + smtp.url + "' is no address of a mail server",
        "for example smtp://mail.example.org:587, which must offer STARTTLS, or "
        "smtps://mail.example.org:465"
    );
  const Status from = check_address(smtp.from);
  if (!from) return fail(from.error().with("smtp: from"));
  if (smtp.user.empty() != smtp.password_file.empty())
    return fail(
        ErrorCode::kInvalid,
        "smtp: user and password_file go together",
        "name both, or neither for a server that asks for none"
    );
  if (!smtp.user.empty() && !smtp.requires_tls && !is_tls)
    return fail(
        ErrorCode::kInvalid,
        "smtp: requires_tls: false would send the password in the clear",
        "leave it out; ca names the authority of a server with a certificate of its own"
    );
  for (std::string& domain : smtp.domains) {
    if (!io::is_host_name(domain))
      return fail(
          ErrorCode::kInvalid,
          "smtp: domains: '" + domain + "' is no domain of addresses",
          "what follows the @, as example.org"
      );
    domain = in_small_letters(domain);
  }
  return {};
}

}  // namespace

Result<std::string> origin_of(const std::string& text) {
  const auto url = io::parse_url(text);
  if (!url || (url->scheme != "https" && url->scheme != "http") || !io::is_host_name(url->host))
    return fail(
        ErrorCode::kInvalid,
        "'" + text.substr(0, 200) + "' is no http or https URL of a host",
        "for example https://chat.example.org/hooks/abc"
    );
  const std::string host = in_small_letters(url->host);
  const bool is_v6 = host.find(':') != std::string::npos;
  return url->scheme + "://" + (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(url->port);
}

Status check_address(const std::string& address) {
  const std::size_t at = address.rfind('@');
  const bool is_one = at != std::string::npos && address.size() <= kMaxAddressBytes &&
                      is_local_part(std::string_view(address).substr(0, at)) &&
                      io::is_host_name(address.substr(at + 1)) &&
                      !io::is_ip_address(address.substr(at + 1));
  if (is_one) return {};
  return fail(
      ErrorCode::kInvalid,
      "'" + address.substr(0, 80) + "' is no address of mail",
      "give one as ann@example.org, alone and without quotes"
  );
}

Status finish_notify_config(NotifyConfig& config) {
  if (config.smtp) RN_CHECK(check_smtp(*config.smtp));
  for (std::string& allowed : config.webhooks) {
    auto origin = origin_of(allowed);
    if (!origin) return fail(origin.error().with("webhooks: allow"));
    const auto url = io::parse_url(allowed);
    if (url->target != "/")
      return fail(
          ErrorCode::kInvalid,
          "webhooks: allow: '" + allowed + "' names more than scheme, host and port",
          "allow " + *origin
      );
    allowed = *std::move(origin);
  }
  return {};
}

Status read_smtp_password(FileSystem& fs, NotifyConfig& config) {
  if (!config.smtp || config.smtp->password_file.empty()) return {};
  const auto bytes = read_named(fs, config.smtp->password_file, kMaxPasswordBytes);
  if (!bytes) return fail(bytes.error().with("smtp: password_file"));
  std::string text(as_text(*bytes));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty())
    return fail(
        ErrorCode::kInvalid,
        "smtp: password_file: " + config.smtp->password_file + " is empty",
        "put the password alone into it"
    );
  config.smtp->password = std::move(text);
  return {};
}

}  // namespace rn::coordinator
