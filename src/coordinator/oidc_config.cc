// SPDX-License-Identifier: Apache-2.0
#include "coordinator/oidc_config.h"

#include <algorithm>
#include <utility>

#include "coordinator/core_commands.h"
#include "coordinator/notify_config.h"
#include "io/url.h"

namespace rn::coordinator {

namespace {

constexpr std::uint64_t kMaxSecretBytes = 1024;
constexpr std::size_t kMaxWordBytes = 256;
constexpr std::uint32_t kMinSessionS = 60;
constexpr std::uint32_t kMaxSessionS = 7 * 86'400;

std::string in_lower_case(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

/// Printable ASCII without blanks, quotes and backslashes.
bool is_word(const std::string& text) {
  return !text.empty() && text.size() <= kMaxWordBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return c > ' ' && c < 0x7f && c != '"' && c != '\\';
         });
}

tl::unexpected<Error> wrong_setting(
    const std::string& field, const std::string& what, const std::string& next
) {
  return fail(ErrorCode::kInvalid, "oidc: " + field + ": " + what, next);
}

Status check_claim(OidcConfig& config) {
  if (config.claim != "sub" && config.claim != "email")
    return wrong_setting(
        "claim",
        "'" + config.claim.substr(0, 80) + "' is neither sub nor email",
        "sub is the default; others may be changed by the people themselves"
    );
  if (config.claim == "email") {
    std::map<std::string, std::string> users;
    for (const auto& [address, user] : config.users) users[in_lower_case(address)] = user;
    config.users = std::move(users);
  }
  if (config.domain.empty()) return {};
  if (config.claim != "email")
    return wrong_setting("domain", "is of addresses, and claim is not email", "leave one out");
  if (!io::is_host_name(config.domain) || io::is_ip_address(config.domain))
    return wrong_setting(
        "domain",
        "'" + config.domain.substr(0, 80) + "' is no domain of addresses",
        "what follows the @, as example.org"
    );
  config.domain = in_lower_case(config.domain);
  return {};
}

Status check_people(const OidcConfig& config) {
  for (const auto& [claim, user] : config.users)
    if (claim.empty() || !is_name(user))
      return wrong_setting(
          "users", "'" + user.substr(0, 80) + "' is no user's name", "letters, digits, -_.@"
      );
  for (const std::string& user : config.refuses)
    if (!is_name(user))
      return wrong_setting(
          "refuses", "'" + user.substr(0, 80) + "' is no user's name", "letters, digits, -_.@"
      );
  for (const auto& [group, lab] : config.labs)
    if (group.empty() || !is_name(lab))
      return wrong_setting(
          "labs", "'" + lab.substr(0, 80) + "' is no laboratory's name", "letters, digits, -_."
      );
  if (config.labs.empty() != config.groups_claim.empty())
    return wrong_setting(
        "labs",
        "labs and groups_claim go together",
        "name both, or neither: then only who has a user here can sign in"
    );
  return {};
}

Status check_words(const OidcConfig& config) {
  if (!is_word(config.client_id))
    return wrong_setting(
        "client_id",
        "is missing or no word",
        "as the provider gave it when this site was registered"
    );
  for (const std::string& scope : config.scopes)
    if (!is_word(scope))
      return wrong_setting("scopes", "'" + scope.substr(0, 80) + "' is no scope", "as email");
  for (const std::string* text : {&config.name, &config.contact})
    if (text->size() > kMaxWordBytes)
      return wrong_setting("name, contact", "more than 256 bytes", "say it shorter");
  if (config.session_s < kMinSessionS || config.session_s > kMaxSessionS)
    return wrong_setting(
        "session_s",
        "expected a minute to seven days (60 to 604800)",
        "43200, twelve hours, is the default"
    );
  return {};
}

/// Addresses are one in any spelling, so are those who are called by them: who is refused as "Ann"
/// must not come in as "ann".
bool is_kept_out(const std::string& user, const OidcConfig& config) {
  const bool is_address = config.claim == "email";
  return std::any_of(config.refuses.begin(), config.refuses.end(), [&](const std::string& refused) {
    return refused == user || (is_address && in_lower_case(refused) == in_lower_case(user));
  });
}

/// What the provider vouches for: the subject, or an address that it has verified.
Result<std::string> value_of_claim(const IdClaims& claims, const OidcConfig& config) {
  if (config.claim == "sub") return claims.subject;
  if (!claims.email.empty() && claims.is_email_verified) return in_lower_case(claims.email);
  return fail(
      ErrorCode::kDenied,
      "the identity provider does not say that it has verified your address of mail",
      "have it verified there; or ask " + contact_of(config)
  );
}

/// The user whom the claim's value means without `users`.
Result<std::string> user_by_value(const std::string& email, const OidcConfig& config) {
  if (config.claim == "sub" || config.domain.empty()) return email;
  const std::size_t at = email.find('@');
  if (at == std::string::npos || email.substr(at + 1) != config.domain)
    return fail(
        ErrorCode::kDenied,
        "only addresses of " + config.domain + " sign in here",
        "sign in with another account; or ask " + contact_of(config)
    );
  return email.substr(0, at);
}

}  // namespace

std::string contact_of(const OidcConfig& config) {
  return config.contact.empty() ? "an administrator of this site" : config.contact;
}

Result<std::string> https_origin(const std::string& text) {
  const auto url = io::parse_url(text);
  if (!url || url->scheme != "https" || !io::is_host_name(url->host) ||
      text.find_first_of("?#") != std::string::npos)
    return fail(
        ErrorCode::kInvalid,
        "'" + text.substr(0, 200) + "' is no https URL without a query",
        "for example https://login.example.org"
    );
  return origin_of(text);
}

Status finish_oidc_config(OidcConfig& config, const std::string& url) {
  const auto origin = https_origin(config.issuer);
  if (!origin) return fail(origin.error().with("oidc: issuer"));
  if (url.empty())
    return fail(
        ErrorCode::kInvalid,
        "oidc: the provider sends people back to this site, whose url is not set",
        "set url: https://HOST:PORT, as browsers reach it; register URL/signin with the provider"
    );
  for (std::string& one : config.origins) {
    auto allowed = https_origin(one);
    if (!allowed) return fail(allowed.error().with("oidc: origins"));
    one = *std::move(allowed);
  }
  RN_CHECK(check_words(config));
  RN_CHECK(check_claim(config));
  RN_CHECK(check_people(config));
  if (config.name.empty()) config.name = io::parse_url(config.issuer)->host;
  if (config.claim == "email" &&
      std::find(config.scopes.begin(), config.scopes.end(), "email") == config.scopes.end())
    config.scopes.emplace_back("email");
  return {};
}

Status read_client_secret(FileSystem& fs, OidcConfig& config) {
  const std::string& path = config.client_secret_file;
  if (path.empty()) return {};
  if (!path.starts_with('/'))
    return wrong_setting("client_secret_file", path + " is no whole path", "begin it with /");
  const auto bytes = read_named(fs, path, kMaxSecretBytes);
  if (!bytes) return fail(bytes.error().with("oidc: client_secret_file"));
  const auto what = fs.stat(path);
  if (!what) return fail(what.error().with("oidc: client_secret_file"));
  if (what->kind != FileStat::Kind::kRegular)
    return wrong_setting("client_secret_file", path + " is a link", "name the file itself");
  if ((what->mode & 0027) != 0)
    return fail(
        ErrorCode::kDenied,
        "oidc: client_secret_file: others may read or change " + path,
        "chmod 0600 " + path + ", and have the provider make another secret"
    );
  std::string text(as_text(*bytes));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty())
    return wrong_setting("client_secret_file", path + " is empty", "put the secret alone into it");
  config.client_secret = std::move(text);
  return {};
}

Result<Person> person_of(const IdClaims& claims, const OidcConfig& config) {
  Person person;
  RN_TRY(const std::string value, value_of_claim(claims, config));
  // By the whole value: what a domain leaves of an address is not what an operator would write; and
  // whom they wrote down comes in from any domain.
  const auto named = config.users.find(value);
  person.is_named = named != config.users.end();
  if (person.is_named) {
    person.user = UserId(named->second);
  } else {
    RN_TRY(std::string user, user_by_value(value, config));
    person.user = UserId(std::move(user));
  }
  if (!is_name(person.user.str()))
    return fail(
        ErrorCode::kDenied,
        "your account's name at the identity provider cannot be one of this site",
        "ask " + contact_of(config) + " to name you in the coordinator's oidc: users"
    );
  if (is_kept_out(person.user.str(), config))
    return fail(
        ErrorCode::kDenied, "you may not sign in here any more", "ask " + contact_of(config)
    );
  for (const std::string& group : claims.groups) {
    const auto lab = config.labs.find(group);
    if (lab == config.labs.end()) continue;
    person.lab_if_new = LabId(lab->second);
    break;
  }
  return person;
}

}  // namespace rn::coordinator
