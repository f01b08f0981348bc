// SPDX-License-Identifier: Apache-2.0
#include "coordinator/oidc_desk.h"

#include <utility>

#include "base/log.h"
#include "coordinator/core.h"
#include "coordinator/strict_json.h"
#include "io/http.h"

namespace rn::coordinator {

namespace {

constexpr std::int64_t kBrowserMs = 600'000;  // to type a password, and find the second factor
constexpr std::size_t kMaxTicketBytes = 8u << 10;
constexpr std::size_t kMaxCodeBytes = 4u << 10;
constexpr std::string_view kBrowserTicket = "sign-in by a browser";
constexpr std::string_view kDeviceTicket = "sign-in from a terminal";
constexpr std::string_view kProgramState = "way back to a program";
constexpr std::uint32_t kLeastPort = 1024;  // others are no program's of a user
constexpr std::uint32_t kMostPort = 65'535;
constexpr std::size_t kWordDigits = 6;

/// 256 bits, as RFC 7636 has its verifiers.
std::string random_word(Rng& rng) {
  return to_base64url(crypto::random_key(rng));
}

std::string hash_of_ticket(const std::string& ticket) {
  return to_base64url(crypto::sha256(as_bytes(ticket)));
}

Error ticket_over() {
  return Error{
      ErrorCode::kDenied,
      "this sign-in is over, or was begun in another window",
      "begin again; a sign-in has ten minutes"};
}

/// A sentence for who tried too often.
Error too_many_sign_ins() {
  return Error{ErrorCode::kExhausted, "too many sign-ins at once", "try again in a few seconds"};
}

struct BrowserSecrets {
  std::string verifier;
  std::string nonce;
};

/// Where the browser goes; `state` ties what comes back to the ticket.
std::string authorization_url(
    const OidcConfig& config,
    const OidcEndpoints& where,
    const std::string& redirect,
    const BrowserSecrets& secrets,
    const std::string& state
) {
  std::string scopes = "openid";
  for (const std::string& scope : config.scopes) scopes += " " + scope;
  const std::string challenge = to_base64url(crypto::sha256(as_bytes(secrets.verifier)));
  return where.authorization +
         "?response_type=code&client_id=" + io::percent_encode(config.client_id) +
         "&redirect_uri=" + io::percent_encode(redirect) + "&scope=" + io::percent_encode(scopes) +
         "&state=" + state + "&nonce=" + secrets.nonce + "&code_challenge=" + challenge +
         "&code_challenge_method=S256";
}

}  // namespace

OidcDesk::OidcDesk(const Deps& deps, std::string redirect, const crypto::Key256& key)
    : deps_(deps), redirect_(std::move(redirect)), key_(key) {}

api::SignInOffer OidcDesk::offer() const {
  return {true, deps_.config.name};
}

Status OidcDesk::admit(const std::string& remote) {
  const Instant now = deps_.loop.now().boot;
  const std::string address = remote.substr(0, remote.rfind(':'));
  if (addresses_.admit(address, now) && everybody_.admit("all", now)) return {};
  return fail(too_many_sign_ins());
}

std::string OidcDesk::sealed(const std::string& text, std::string_view purpose) {
  return to_base64url(crypto::seal(key_, as_bytes(text), as_bytes(purpose), deps_.rng));
}

Result<std::string> OidcDesk::opened(const std::string& ticket, std::string_view purpose) const {
  if (ticket.size() > kMaxTicketBytes) return fail(ticket_over());
  const auto bytes = from_base64url(ticket);
  if (!bytes) return fail(ticket_over());
  const auto plain = crypto::unseal(key_, *bytes, as_bytes(purpose));
  const auto content = plain ? strict_object(as_text(*plain)) : std::nullopt;
  if (!content) return fail(ticket_over());
  const auto until = content->find("until_ms");
  const bool counts = until != content->end() && until->is_number_integer() &&
                      to_ms(deps_.loop.now().wall) < until->get<std::int64_t>();
  if (!counts) return fail(ticket_over());
  return content->dump();
}

/// Ties what comes back to the ticket. A program's says where it waits, sealed.
std::string OidcDesk::state_for(const std::string& ticket, std::uint32_t port) {
  if (port == 0) return hash_of_ticket(ticket);
  const nlohmann::json content = {{"ticket", hash_of_ticket(ticket)}, {"port", port}};
  return sealed(content.dump(), kProgramState);
}

std::string OidcDesk::word_of(const std::string& state) {
  std::string word = to_hex(crypto::sha256(as_bytes("word of " + state))).substr(0, kWordDigits);
  for (char& c : word) c = c >= 'a' ? static_cast<char>(c - 'a' + 'A') : c;
  return word;
}

OidcDesk::Tied OidcDesk::tied_by(const std::string& state) const {
  Tied tied{state, 0};
  const auto bytes = from_base64url(state.size() > kMaxTicketBytes ? "" : state);
  if (!bytes) return tied;
  const auto plain = crypto::unseal(key_, *bytes, as_bytes(kProgramState));
  const auto content = plain ? strict_object(as_text(*plain)) : std::nullopt;
  const auto port = content ? content->find("port") : nlohmann::json::const_iterator();
  if (!content || port == content->end() || !port->is_number_unsigned()) return tied;
  tied.ticket = text_member(*content, "ticket");
  tied.port = port->get<std::uint16_t>();
  return tied;
}

void OidcDesk::begin(
    const std::string& remote,
    const api::SignInBegin& request,
    std::function<void(Result<api::SignInBegun>)> done
) {
  const std::uint32_t port = request.port;
  if (port != 0 && (port < kLeastPort || port > kMostPort))
    return done(
        fail(ErrorCode::kInvalid, "port: expected 1024 to 65535", "0, or none, is the dashboard's")
    );
  if (const Status admitted = admit(remote); !admitted) return done(fail(admitted.error()));
  const Status submitted = deps_.workers.submit_for(
      [this] { return deps_.provider.endpoints(); },
      [this, done, port](const Result<OidcEndpoints>& where) {
        if (!where) return done(fail(where.error()));
        const BrowserSecrets secrets{random_word(deps_.rng), random_word(deps_.rng)};
        const nlohmann::json content = {
            {"until_ms", to_ms(deps_.loop.now().wall) + kBrowserMs},
            {"verifier", secrets.verifier},
            {"nonce", secrets.nonce}};
        api::SignInBegun begun;
        begun.ticket = sealed(content.dump(), kBrowserTicket);
        begun.state = state_for(begun.ticket, port);
        begun.word = word_of(begun.state);
        begun.url = authorization_url(deps_.config, *where, redirect_, secrets, begun.state);
        done(std::move(begun));
      }
  );
  if (!submitted) done(fail(too_many_sign_ins()));
}

void OidcDesk::finish(
    const std::string& remote,
    const api::SignInFinish& request,
    std::function<void(Result<TokenMade>)> done
) {
  if (const Status admitted = admit(remote); !admitted) return done(fail(admitted.error()));
  const auto content = opened(request.ticket, kBrowserTicket);
  const bool is_of_ticket = crypto::equal_in_constant_time(
      as_bytes(tied_by(request.state).ticket), as_bytes(hash_of_ticket(request.ticket))
  );
  if (!content || !is_of_ticket) return done(fail(ticket_over()));
  if (request.code.empty() || request.code.size() > kMaxCodeBytes)
    return done(fail(ErrorCode::kInvalid, "code: missing or too long", "sign in again"));
  const auto secrets = strict_object(*content);
  const std::string verifier = text_member(*secrets, "verifier");
  const std::string nonce = text_member(*secrets, "nonce");
  // Without a nonce the token could be of another sign-in.
  if (verifier.empty() || nonce.empty()) return done(fail(ticket_over()));
  const Status submitted = deps_.workers.submit_for(
      [this, code = request.code, verifier, nonce] {
        return deps_.provider.redeem(code, verifier, nonce, redirect_);
      },
      [this, done](const Result<IdClaims>& claims) {
        if (!claims) return done(fail(claims.error()));
        let_in(*claims, done);
      }
  );
  if (!submitted) done(fail(too_many_sign_ins()));
}

void OidcDesk::begin_device(
    const std::string& remote, std::function<void(Result<api::DeviceSignIn>)> done
) {
  if (const Status admitted = admit(remote); !admitted) return done(fail(admitted.error()));
  const Status submitted = deps_.workers.submit_for(
      [this] { return deps_.provider.begin_device(); },
      [this, done](const Result<DeviceGrant>& grant) {
        if (!grant) return done(fail(grant.error()));
        const std::int64_t lives_ms = std::int64_t{grant->expires_s} * 1000;
        const nlohmann::json content = {
            {"until_ms", to_ms(deps_.loop.now().wall) + lives_ms},
            {"device_code", grant->device_code}};
        api::DeviceSignIn begun;
        begun.url = grant->url;
        begun.url_with_code = grant->url_with_code;
        begun.code = grant->user_code;
        begun.ticket = sealed(content.dump(), kDeviceTicket);
        begun.interval_s = grant->interval_s;
        begun.expires_s = grant->expires_s;
        done(std::move(begun));
      }
  );
  if (!submitted) done(fail(too_many_sign_ins()));
}

void OidcDesk::finish_device(
    const std::string& remote,
    const std::string& ticket,
    std::function<void(bool is_too_fast)> pending,
    std::function<void(Result<TokenMade>)> done
) {
  if (const Status admitted = admit(remote); !admitted) return done(fail(admitted.error()));
  const auto content = opened(ticket, kDeviceTicket);
  const auto secrets = content ? strict_object(*content) : std::nullopt;
  const std::string code = secrets ? text_member(*secrets, "device_code") : "";
  if (code.empty()) return done(fail(ticket_over()));
  const Status submitted = deps_.workers.submit_for(
      [this, code] { return deps_.provider.look_at_device(code); },
      [this, pending, done](const Result<DeviceLook>& look) {
        if (!look) return done(fail(look.error()));
        if (!look->claims) return pending(look->is_too_fast);
        let_in(*look->claims, done);
      }
  );
  if (!submitted) done(fail(too_many_sign_ins()));
}

void OidcDesk::let_in(const IdClaims& claims, std::function<void(Result<TokenMade>)> done) {
  const auto person = person_of(claims, deps_.config);
  if (!person) {
    log::warning("signin.refused", {{"why", person.error().message}});
    return done(fail(person.error()));
  }
  SignIn command;
  command.user = person->user;
  command.lab_if_new = person->lab_if_new;
  command.may_be_admin = person->is_named;
  command.ttl_s = deps_.config.session_s;
  command.contact = contact_of(deps_.config);
  deps_.shell.command(
      Core::system_caller(),
      std::move(command),
      [done = std::move(done), user = person->user](Result<Answer> result) {
        if (!result) {
          log::warning("signin.refused", {{"user", user.str()}, {"why", result.error().message}});
          return done(fail(result.error()));
        }
        done(std::get<TokenMade>(*std::move(result)));
      }
  );
}

}  // namespace rn::coordinator
