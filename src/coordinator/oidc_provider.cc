// SPDX-License-Identifier: Apache-2.0
#include "coordinator/oidc_provider.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "coordinator/strict_json.h"
#include "io/http.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kMaxDocumentBytes = 128u << 10;
constexpr std::size_t kMaxTokenAnswerBytes = 64u << 10;
constexpr nanoseconds kDocumentFresh = std::chrono::hours(1);
constexpr nanoseconds kDocumentUsable = std::chrono::hours(24);
/// A provider that fails is not asked again for so long, and keys that nobody knows are looked for
/// no more often, however many ask.
constexpr nanoseconds kRestAfterFailure = seconds(5);
constexpr nanoseconds kKeysAgain = seconds(30);
constexpr std::size_t kMaxEndpointBytes = 2000;

Error provider_away(const Error& why) {
  return Error{
      ErrorCode::kUnavailable,
      "the identity provider does not answer as it should: " + why.message,
      "try again in a minute; a local token works meanwhile; the operator of this site finds more "
      "in the coordinator's log"};
}

/// A word of a provider's, for people: what else it may say is not repeated.
std::string error_word(const nlohmann::json& answer) {
  const std::string word = text_member(answer, "error");
  const bool is_plain = !word.empty() && word.size() <= 40 &&
                        word.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
  return is_plain ? word : "an error without a name";
}

std::uint32_t whole_seconds(
    const nlohmann::json& answer,
    const char* name,
    std::uint32_t otherwise,
    std::uint32_t least,
    std::uint32_t most
) {
  const auto found = answer.find(name);
  if (found == answer.end() || !found->is_number_unsigned()) return otherwise;
  const auto value = std::min<std::uint64_t>(found->get<std::uint64_t>(), most);
  return std::max(static_cast<std::uint32_t>(value), least);
}

bool lists(const nlohmann::json& document, const char* name, const char* word) {
  const auto found = document.find(name);
  return found != document.end() && found->is_array() &&
         std::any_of(found->begin(), found->end(), [word](const nlohmann::json& one) {
           return one.is_string() && one.get<std::string>() == word;
         });
}

}  // namespace

OidcProvider::OidcProvider(const OidcConfig& config, const Clock& clock, Ask ask)
    : config_(config), clock_(clock), ask_(std::move(ask)) {}

Result<std::string> OidcProvider::document(const std::string& url, std::size_t max_bytes) {
  io::AskCall call;
  call.url = url;
  call.headers = {{"Accept", "application/json"}};
  call.ca_file = config_.ca;
  call.should_stop = [this] { return is_stopping_.load(); };
  call.max_body_bytes = max_bytes;
  RN_TRY(io::HttpReply reply, ask_(call));
  if (reply.status != 200)
    return fail(
        ErrorCode::kUnavailable, url + " answers with status " + std::to_string(reply.status)
    );
  return std::move(reply.body);
}

/// Nothing is asked anywhere but where the operator said: a document that names other places is
/// refused, not followed.
Status OidcProvider::check_endpoint(const std::string& name, const std::string& url) const {
  const auto origin = url.size() > kMaxEndpointBytes ? https_origin("") : https_origin(url);
  if (!origin) return fail(ErrorCode::kInvalid, "its " + name + " is no https URL");
  const auto own = https_origin(config_.issuer);
  const auto& others = config_.origins;
  if ((own && *own == *origin) || std::find(others.begin(), others.end(), *origin) != others.end())
    return {};
  return fail(
      ErrorCode::kInvalid,
      "its " + name + " is at " + *origin + ", which oidc: origins does not list"
  );
}

Result<OidcEndpoints> OidcProvider::read_endpoints(const std::string& text) const {
  const auto said = strict_object(text);
  if (!said || text_member(*said, "issuer") != config_.issuer)
    return fail(
        ErrorCode::kInvalid, "what it says of itself is of another issuer than " + config_.issuer
    );
  OidcEndpoints made;
  made.authorization = text_member(*said, "authorization_endpoint");
  made.token = text_member(*said, "token_endpoint");
  made.keys = text_member(*said, "jwks_uri");
  made.device = text_member(*said, "device_authorization_endpoint");
  RN_CHECK(check_endpoint("authorization_endpoint", made.authorization));
  RN_CHECK(check_endpoint("token_endpoint", made.token));
  RN_CHECK(check_endpoint("jwks_uri", made.keys));
  if (!made.device.empty()) RN_CHECK(check_endpoint("device_authorization_endpoint", made.device));
  const char* const methods = "token_endpoint_auth_methods_supported";
  made.takes_secret_in_form = lists(*said, methods, "client_secret_post");
  made.takes_secret_in_header =
      !made.takes_secret_in_form || lists(*said, methods, "client_secret_basic");
  return made;
}

Result<OidcEndpoints> OidcProvider::endpoints() {
  const std::lock_guard lock(mutex_);
  const Instant now = clock_.now().boot;
  if (endpoints_ && now - endpoints_at_ < kDocumentFresh) return *endpoints_;
  const bool may_ask = !endpoints_failed_ || now - endpoints_tried_ >= kRestAfterFailure;
  if (may_ask) {
    const bool has_slash = config_.issuer.ends_with('/');
    const auto text = document(
        config_.issuer + (has_slash ? "" : "/") + ".well-known/openid-configuration",
        kMaxDocumentBytes
    );
    auto read = text ? read_endpoints(*text) : Result<OidcEndpoints>(fail(text.error()));
    endpoints_tried_ = clock_.now().boot;
    if (read) {
      endpoints_ = *read;
      endpoints_at_ = endpoints_tried_;
      endpoints_failed_.reset();
      return read;
    }
    log::warning("signin.provider_away", {{"why", read.error().describe()}});
    endpoints_failed_ = read.error();
  }
  if (endpoints_ && now - endpoints_at_ < kDocumentUsable) return *endpoints_;
  return fail(provider_away(*endpoints_failed_));
}

Result<std::vector<ProviderKey>> OidcProvider::keys(bool is_anew) {
  RN_TRY(const OidcEndpoints where, endpoints());
  const std::lock_guard lock(mutex_);
  const Instant now = clock_.now().boot;
  if (keys_ && !is_anew && now - keys_at_ < kDocumentFresh) return *keys_;
  const nanoseconds rest = keys_ ? kKeysAgain : kRestAfterFailure;
  const bool may_ask = keys_tried_ == Instant{} || now - keys_tried_ >= rest;
  Error why{ErrorCode::kUnavailable, "its keys could not be read a moment ago", {}};
  if (may_ask) {
    const auto text = document(where.keys, kMaxKeySetBytes);
    auto read = text ? parse_key_set(*text) : Result<std::vector<ProviderKey>>(fail(text.error()));
    keys_tried_ = clock_.now().boot;
    if (read) {
      keys_ = *read;
      keys_at_ = keys_tried_;
      return read;
    }
    why = read.error();
    log::warning("signin.keys_away", {{"why", why.describe()}});
  }
  if (keys_ && now - keys_at_ < kDocumentUsable) return *keys_;
  return fail(provider_away(why));
}

Result<io::HttpReply> OidcProvider::post(const std::string& url, std::string form) {
  RN_TRY(const OidcEndpoints where, endpoints());
  io::AskCall call;
  call.url = url;
  call.ca_file = config_.ca;
  call.should_stop = [this] { return is_stopping_.load(); };
  call.max_body_bytes = kMaxTokenAnswerBytes;
  call.headers = {
      {"Accept", "application/json"}, {"Content-Type", "application/x-www-form-urlencoded"}};
  const std::string id = io::percent_encode(config_.client_id);
  const std::string secret = io::percent_encode(config_.client_secret);
  // Some providers take a header's words as they are, and not encoded, as RFC 6749, 2.3.1 has them.
  const bool is_read_alike = id == config_.client_id && secret == config_.client_secret;
  const bool is_in_header = !config_.client_secret.empty() && where.takes_secret_in_header &&
                            (is_read_alike || !where.takes_secret_in_form);
  if (is_in_header) {
    call.headers.emplace_back("Authorization", "Basic " + to_base64(as_bytes(id + ":" + secret)));
  } else if (!config_.client_secret.empty()) {
    form += "&client_secret=" + secret;
  }
  form += "&client_id=" + id;
  call.form = std::move(form);
  auto reply = ask_(call);
  if (reply && reply->status < 500) return reply;
  const Error why =
      reply
          ? Error{ErrorCode::kUnavailable, url + " answers with status " + std::to_string(reply->status), {}}
          : reply.error();
  log::warning("signin.provider_away", {{"why", why.describe()}});
  return fail(provider_away(why));
}

Result<IdClaims> OidcProvider::claims_in(const io::HttpReply& reply, const std::string& nonce) {
  const auto answer = strict_object(reply.body);
  if (!answer || reply.status != 200)
    return fail(
        ErrorCode::kDenied,
        "the identity provider did not let you in: " +
            (answer ? error_word(*answer) : std::string("its answer cannot be read")),
        "sign in again; if it stays so, tell the operator of this site"
    );
  const std::string token = text_member(*answer, "id_token");
  IdTokenRules rules;
  rules.issuer = config_.issuer;
  rules.client = config_.client_id;
  rules.nonce = nonce;
  rules.groups_claim = config_.groups_claim;
  rules.now_s = to_ms(clock_.now().wall) / 1000;
  RN_TRY(const std::vector<ProviderKey> known, keys(false));
  auto claims = verify_id_token(token, known, rules);
  if (!claims && claims.error().code == ErrorCode::kNotFound) {
    // It may have changed its keys since.
    RN_TRY(const std::vector<ProviderKey> fresh, keys(true));
    claims = verify_id_token(token, fresh, rules);
  }
  if (!claims) log::warning("signin.not_trusted", {{"why", claims.error().describe()}});
  if (!claims && claims.error().code == ErrorCode::kNotFound)
    return fail(ErrorCode::kDenied, claims.error().message, claims.error().hint);
  return claims;
}

Result<IdClaims> OidcProvider::redeem(
    const std::string& code,
    const std::string& verifier,
    const std::string& nonce,
    const std::string& redirect
) {
  RN_TRY(const OidcEndpoints where, endpoints());
  RN_TRY(
      const io::HttpReply reply,
      post(
          where.token,
          "grant_type=authorization_code&code=" + io::percent_encode(code) + "&redirect_uri=" +
              io::percent_encode(redirect) + "&code_verifier=" + io::percent_encode(verifier)
      )
  );
  return claims_in(reply, nonce);
}

Result<DeviceGrant> OidcProvider::begin_device() {
  RN_TRY(const OidcEndpoints where, endpoints());
  if (where.device.empty())
    return fail(
        ErrorCode::kUnsupported,
        "this site's identity provider has no sign-in from a terminal",
        "sign in by a browser on the same machine: reclaim login URL --browser; or ask " +
            contact_of(config_) + " for a token"
    );
  std::string scopes = "openid";
  for (const std::string& scope : config_.scopes) scopes += " " + scope;
  RN_TRY(const io::HttpReply reply, post(where.device, "scope=" + io::percent_encode(scopes)));
  const auto answer = strict_object(reply.body);
  DeviceGrant grant;
  if (answer && reply.status == 200) {
    grant.device_code = text_member(*answer, "device_code");
    grant.user_code = text_member(*answer, "user_code");
    grant.url = text_member(*answer, "verification_uri");
    grant.url_with_code = text_member(*answer, "verification_uri_complete");
    grant.interval_s = whole_seconds(*answer, "interval", 5, 1, 60);
    grant.expires_s = whole_seconds(*answer, "expires_in", 600, 1, 1800);
  }
  // People are sent there by our word.
  if (!https_origin(grant.url) || grant.device_code.empty() || grant.user_code.empty() ||
      grant.device_code.size() > kMaxEndpointBytes || grant.user_code.size() > 64)
    return fail(provider_away(Error{
        ErrorCode::kInvalid,
        "it began no sign-in from a terminal: " +
            (answer ? error_word(*answer) : std::string("its answer cannot be read")),
        {}}));
  if (!grant.url_with_code.starts_with("https://") ||
      grant.url_with_code.size() > kMaxEndpointBytes)
    grant.url_with_code.clear();
  return grant;
}

Result<DeviceLook> OidcProvider::look_at_device(const std::string& device_code) {
  RN_TRY(const OidcEndpoints where, endpoints());
  RN_TRY(
      const io::HttpReply reply,
      post(
          where.token,
          "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code&device_code=" +
              io::percent_encode(device_code)
      )
  );
  const auto answer = strict_object(reply.body);
  const std::string word = answer && reply.status != 200 ? text_member(*answer, "error") : "";
  DeviceLook look;
  look.is_too_fast = word == "slow_down";
  if (look.is_too_fast || word == "authorization_pending") return look;
  if (word == "expired_token")
    return fail(
        ErrorCode::kDenied, "nobody finished this sign-in in time", "begin again: reclaim login URL"
    );
  if (word == "access_denied")
    return fail(
        ErrorCode::kDenied,
        "this sign-in was refused in the browser",
        "begin again: reclaim login URL"
    );
  RN_TRY(look.claims, claims_in(reply, ""));
  return look;
}

}  // namespace rn::coordinator
