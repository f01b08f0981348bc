// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api_answers.h"
#include "coordinator/oidc_desk.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kMaxReturnedBytes = 4u << 10;

/// The desk, or the refusal sent: then nullptr.
OidcDesk* sign_in_desk(ApiContext& context, const io::Responder& responder) {
  if (context.sign_in == nullptr)
    responder.send_error(Error{
        ErrorCode::kNotFound,
        "this site has no sign-in by an identity provider",
        "log in with a token from an administrator: reclaim login URL --token T"});
  return context.sign_in;
}

std::string user_token(const ApiContext& context, const TokenMade& made) {
  return std::string(api::kUserTokenPrefix) + "." + made.token.id + "." + made.secret + "." +
         context.pki.ca_fingerprint();
}

/// Who has others open an address of the provider's, and listens at the port of a machine that they
/// share, would be signed in as they: so people say themselves that it was they who began. `place`
/// is where it goes on, percent-encoded.
io::HttpResponse page_of_program(std::string place, std::uint16_t port, const std::string& word) {
  for (std::size_t at = 0; (at = place.find('&', at)) != std::string::npos; at += 5)
    place.replace(at, 1, "&amp;");
  io::HttpResponse response;
  response.headers = {
      {"Content-Type", "text/html; charset=utf-8"},
      {"Content-Security-Policy",
       "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"Cache-Control", "no-store"},
      {"Referrer-Policy", "no-referrer"}};
  response.body =
      "<!doctype html><html lang=\"en\"><meta name=\"viewport\" content=\"width=device-width\">"
      "<title>ReclaimNet: a terminal</title><main><h1>Sign in a terminal?</h1>"
      "<p>A program on this machine, at port " +
      std::to_string(port) +
      ", asks to act as you. Go on only if you have just begun <code>reclaim login</code> here, "
      "and it shows <strong>" +
      word + "</strong>.</p><p><a href=\"" + place +
      "\">Go on</a></p><p>If not, close this window: who sent you here wants to act as you.</p>"
      "</main></html>\n";
  return response;
}

}  // namespace

void describe_sign_in(ApiContext& context, ApiRequest, io::Responder responder) {
  answer(
      context, responder, context.sign_in == nullptr ? api::SignInOffer{} : context.sign_in->offer()
  );
}

void begin_sign_in(ApiContext& context, ApiRequest request, io::Responder responder) {
  OidcDesk* const desk = sign_in_desk(context, responder);
  api::SignInBegin body;
  if (desk == nullptr || !read_body(request, responder, body)) return;
  desk->begin(request.http.remote, body, [&context, responder](Result<api::SignInBegun> begun) {
    if (!begun) return responder.send_error(begun.error());
    answer(context, responder, *begun);
  });
}

void finish_sign_in(ApiContext& context, ApiRequest request, io::Responder responder) {
  OidcDesk* const desk = sign_in_desk(context, responder);
  api::SignInFinish body;
  if (desk == nullptr || !read_body(request, responder, body)) return;
  desk->finish(request.http.remote, body, [&context, responder](Result<TokenMade> made) {
    if (!made) return responder.send_error(made.error());
    api::TokenAnswer body_out;
    body_out.token = user_token(context, *made);
    body_out.info = token_info(made->token);
    answer(context, responder, body_out, 201);
  });
}

void begin_device_sign_in(ApiContext& context, ApiRequest request, io::Responder responder) {
  OidcDesk* const desk = sign_in_desk(context, responder);
  if (desk == nullptr) return;
  desk->begin_device(request.http.remote, [&context, responder](Result<api::DeviceSignIn> begun) {
    if (!begun) return responder.send_error(begun.error());
    answer(context, responder, *begun);
  });
}

void finish_device_sign_in(ApiContext& context, ApiRequest request, io::Responder responder) {
  OidcDesk* const desk = sign_in_desk(context, responder);
  api::DeviceFinish body;
  if (desk == nullptr || !read_body(request, responder, body)) return;
  desk->finish_device(
      request.http.remote,
      body.ticket,
      [&context, responder](bool is_too_fast) {
        api::DeviceAnswer body_out;
        body_out.is_pending = true;
        body_out.is_too_fast = is_too_fast;
        answer(context, responder, body_out);
      },
      [&context, responder](Result<TokenMade> made) {
        if (!made) return responder.send_error(made.error());
        api::DeviceAnswer body_out;
        body_out.token = user_token(context, *made);
        body_out.info = token_info(made->token);
        answer(context, responder, body_out);
      }
  );
}

/// What the provider adds goes from the query, which servers log, to the fragment, which only the
/// page sees: it is code there and has its ticket in the same window. Or it goes on to the program
/// on the browser's own machine that waits for it and has the ticket, a code by way of a page.
void return_from_sign_in(ApiContext& context, ApiRequest request, io::Responder responder) {
  const OidcDesk* const desk = sign_in_desk(context, responder);
  if (desk == nullptr) return;
  const auto state = request.query.find("state");
  const std::uint16_t port = state == request.query.end() ? 0 : desk->port_of(state->second);
  std::string place =
      port == 0 ? "/ui/#signin" : "http://127.0.0.1:" + std::to_string(port) + "/signin";
  char joint = '?';
  for (const char* name : {"code", "state", "error"}) {
    const auto found = request.query.find(name);
    if (found == request.query.end() || found->second.size() > kMaxReturnedBytes) continue;
    place += joint + std::string(name) + "=" + io::percent_encode(found->second);
    joint = '&';
  }
  if (port != 0 && request.query.contains("code"))
    return responder.send(page_of_program(place, port, OidcDesk::word_of(state->second)));
  io::HttpResponse response;
  response.status = 303;
  response.headers = {
      {"Location", place}, {"Cache-Control", "no-store"}, {"Referrer-Policy", "no-referrer"}};
  responder.send(std::move(response));
}

}  // namespace rn::coordinator
