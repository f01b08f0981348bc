// SPDX-License-Identifier: Apache-2.0

// Sign-ins against a provider that is played in place of io::ask() and signs as real ones do; over
// TLS: tests/system/oidc_test.py.

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/scratch_folder.h"
#include "coordinator/daemon_fixture.h"
#include "coordinator/oidc_config.h"
#include "coordinator/oidc_fixture.h"
#include "coordinator/oidc_provider.h"
#include "io/http.h"
#include "io/real_fs.h"

namespace rn::coordinator {
namespace {

using nlohmann::json;

OidcConfig usual_oidc() {
  OidcConfig config;
  config.issuer = PlayedProvider::kIssuer;
  config.name = "University";
  config.client_id = "reclaimnet";
  config.contact = "helpdesk@example.org";
  return config;
}

json claims_of(const std::string& subject, const std::string& nonce = {}) {
  const std::int64_t now_s =
      std::chrono::duration_cast<seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  json claims = {
      {"iss", PlayedProvider::kIssuer},
      {"aud", "reclaimnet"},
      {"sub", subject},
      {"iat", now_s},
      {"exp", now_s + 300}};
  if (!nonce.empty()) claims["nonce"] = nonce;
  return claims;
}

/// A real coordinator whose provider is played.
class OidcSite : public ::testing::Test {
 protected:
  explicit OidcSite(const OidcConfig& oidc = usual_oidc())
      : site_({}, 100, {}, {}, {}, [this, oidc](DaemonConfig& config) {
          config.url = "https://coordinator.example.org:7443";
          config.oidc = oidc;
          config.ask = [this](const io::AskCall& call) { return provider_(call); };
        }) {
    site_.make_token(R"({"kind": "user", "user": "ann", "lab": "lab-a", "ttl_s": 60})");
  }

  struct Begun {
    std::string ticket;
    std::map<std::string, std::string> query;  ///< of the provider's address
    std::string word;
  };

  Begun begin(const std::string& request = "{}") {
    const auto reply = site_.call("POST", "/v1/signin", request, "");
    EXPECT_EQ(reply.status, 200) << reply.body;
    const json body = json::parse(reply.body);
    const std::string url = body["url"];
    EXPECT_TRUE(url.starts_with(std::string(PlayedProvider::kIssuer) + "/auth?")) << url;
    return {body["ticket"], *io::parse_query(url.substr(url.find('?') + 1)), body["word"]};
  }

  io::HttpReply finish(const std::string& ticket, const std::string& state) {
    const json body = {{"ticket", ticket}, {"state", state}, {"code", "c-1"}};
    return site_.call("POST", "/v1/signin/finish", body.dump(), "");
  }

  /// The whole way through, as `subject`.
  io::HttpReply sign_in(const std::string& subject, const json& more = json::object()) {
    const Begun begun = begin();
    json claims = claims_of(subject, begun.query.at("nonce"));
    claims.update(more);
    provider_.signs(claims);
    return finish(begun.ticket, begun.query.at("state"));
  }

  json whoami(const std::string& token) {
    return json::parse(site_.call("GET", "/v1/whoami", "", token).body);
  }

  PlayedProvider provider_;
  LiveSite site_;
};

TEST_F(OidcSite, a_browser_brings_a_token_of_the_sites_own_with_an_end) {
  const auto reply = sign_in("ann");

  ASSERT_EQ(reply.status, 201) << reply.body;
  const json body = json::parse(reply.body);
  const json who = whoami(body["token"]);
  EXPECT_EQ(who["user"], "ann");
  EXPECT_EQ(who["lab"], "lab-a");
  EXPECT_EQ(who["role"], "user");
  const std::int64_t life_ms = body["info"]["expires_wall_ms"].get<std::int64_t>() -
                               body["info"]["created_wall_ms"].get<std::int64_t>();
  EXPECT_EQ(life_ms, 12LL * 3600 * 1000);
  const auto asked = provider_.asked("/realm/token");
  ASSERT_EQ(asked.size(), 1u);
  const auto form = io::parse_query(asked[0].form);
  ASSERT_TRUE(form.has_value());
  EXPECT_EQ(form->at("code"), "c-1");
  EXPECT_EQ(form->at("redirect_uri"), "https://coordinator.example.org:7443/signin");
  EXPECT_EQ(form->at("client_id"), "reclaimnet");
  EXPECT_GE(form->at("code_verifier").size(), 43u) << "RFC 7636";
}

TEST_F(OidcSite, what_goes_to_the_provider_proves_who_came_back) {
  const Begun one = begin();
  const Begun other = begin();

  EXPECT_EQ(one.query.at("response_type"), "code");
  EXPECT_EQ(one.query.at("code_challenge_method"), "S256");
  for (const char* name : {"state", "nonce", "code_challenge"})
    EXPECT_NE(one.query.at(name), other.query.at(name)) << name;
  // The challenge is of the verifier that the coordinator redeems the code with.
  provider_.signs(claims_of("ann", one.query.at("nonce")));
  ASSERT_EQ(finish(one.ticket, one.query.at("state")).status, 201);
  const auto form = *io::parse_query(provider_.asked("/realm/token").at(0).form);
  EXPECT_EQ(
      to_base64url(crypto::sha256(as_bytes(form.at("code_verifier")))),
      one.query.at("code_challenge")
  );
}

TEST_F(OidcSite, what_was_begun_elsewhere_is_refused_before_the_provider_is_asked) {
  const Begun one = begin();
  const Begun other = begin();

  for (const auto& [ticket, state] : std::vector<std::pair<std::string, std::string>>{
           {one.ticket, other.query.at("state")},
           {one.ticket, ""},
           {"", one.query.at("state")},
           {"AAAA", to_base64url(crypto::sha256(as_bytes("AAAA")))},
           {one.ticket + "=", one.query.at("state")},
           {std::string(20'000, 'A'), one.query.at("state")}}) {
    const auto reply = finish(ticket, state);
    EXPECT_EQ(reply.status, 401) << reply.body;
  }
  EXPECT_TRUE(provider_.asked("/realm/token").empty());
}

TEST_F(OidcSite, another_sign_ins_nonce_is_refused) {
  const Begun begun = begin();
  provider_.signs(claims_of("ann", "somebody-elses"));

  const auto reply = finish(begun.ticket, begun.query.at("state"));

  EXPECT_EQ(reply.status, 401);
  EXPECT_NE(reply.body.find("of another sign-in"), std::string::npos) << reply.body;
}

TEST_F(OidcSite, who_is_unknown_here_gets_nothing_and_is_told_whom_to_ask) {
  const auto reply = sign_in("stranger");

  EXPECT_EQ(reply.status, 401) << reply.body;
  EXPECT_NE(reply.body.find("no account at this site"), std::string::npos) << reply.body;
  EXPECT_NE(reply.body.find("helpdesk@example.org"), std::string::npos) << reply.body;
}

TEST_F(OidcSite, an_administrator_signs_in_only_if_the_operator_named_them) {
  const auto reply = sign_in("admin");  // who is there since the site's first start

  EXPECT_EQ(reply.status, 401) << reply.body;
  EXPECT_NE(reply.body.find("is an administrator"), std::string::npos) << reply.body;
}

TEST_F(OidcSite, a_terminal_waits_for_a_browser_anywhere) {
  provider_.answers(
      "/realm/device",
      json{
          {"device_code", "secret-device"},
          {"user_code", "WDJB-MJHT"},
          {"verification_uri", "https://login.example.org/device"},
          {"expires_in", 300},
          {"interval", 1}}
          .dump()
  );
  const json begun = json::parse(site_.call("POST", "/v1/signin/device", "{}", "").body);
  EXPECT_EQ(begun["code"], "WDJB-MJHT");
  EXPECT_EQ(begun["url"], "https://login.example.org/device");
  EXPECT_EQ(begun.dump().find("secret-device"), std::string::npos);
  const std::string body = json{{"ticket", begun["ticket"]}}.dump();
  const auto look = [&] {
    return json::parse(site_.call("POST", "/v1/signin/device/finish", body, "").body);
  };

  provider_.answers("/realm/token", R"({"error": "authorization_pending"})", 400);
  EXPECT_EQ(look()["is_pending"], true);
  provider_.answers("/realm/token", R"({"error": "slow_down"})", 400);
  EXPECT_EQ(look()["is_too_fast"], true);
  provider_.answers("/realm/token", R"({"error": "access_denied"})", 400);
  EXPECT_EQ(look()["error"]["code"], "denied");
  provider_.answers(
      "/realm/token", json{{"id_token", provider_.signer().token(claims_of("ann"))}}.dump()
  );
  EXPECT_EQ(whoami(look()["token"])["user"], "ann");
  // A ticket of the one is none of the other.
  EXPECT_NE(finish(begun["ticket"], "x").status, 201);
}

TEST_F(OidcSite, a_provider_without_a_sign_in_from_terminals_is_said_to_have_none) {
  json without = PlayedProvider::discovery();
  without.erase("device_authorization_endpoint");
  provider_.answers("/realm/.well-known/openid-configuration", without.dump());

  const auto reply = site_.call("POST", "/v1/signin/device", "{}", "");

  EXPECT_EQ(reply.status, 501);
  EXPECT_NE(reply.body.find("by a browser"), std::string::npos) << reply.body;
}

TEST_F(OidcSite, the_way_back_leads_to_the_dashboard_with_nothing_else) {
  const auto reply =
      site_.call("GET", "/signin?code=a%26b&state=s&session_state=x&iss=https://e", "", "");

  EXPECT_EQ(reply.status, 303);
  EXPECT_EQ(io::find_header(reply.headers, "Location"), "/ui/#signin?code=a%26b&state=s");
  EXPECT_EQ(io::find_header(reply.headers, "Cache-Control"), "no-store");
}

TEST_F(OidcSite, a_programs_sign_in_comes_back_to_its_port_of_the_browsers_own_machine) {
  const Begun begun = begin(R"({"port": 40123})");
  const std::string state = begun.query.at("state");

  const auto back = site_.call("GET", "/signin?code=c%22%3E&state=" + state, "", "");

  EXPECT_EQ(back.status, 200) << "a page asks whether it was they who began";
  EXPECT_NE(back.body.find("it shows <strong>" + begun.word + "</strong>"), std::string::npos);
  const std::string link = "\"http://127.0.0.1:40123/signin?code=c%22%3E&amp;state=" + state + "\"";
  EXPECT_NE(back.body.find(link), std::string::npos) << back.body;
  EXPECT_EQ(io::find_header(back.headers, "Cache-Control"), "no-store");
  const auto no = site_.call("GET", "/signin?error=access_denied&state=" + state, "", "");
  EXPECT_EQ(
      io::find_header(no.headers, "Location"),
      "http://127.0.0.1:40123/signin?state=" + state + "&error=access_denied"
  );
  EXPECT_EQ(begun.query.at("redirect_uri"), "https://coordinator.example.org:7443/signin")
      << "the one that is registered with the provider";
  provider_.signs(claims_of("ann", begun.query.at("nonce")));
  const auto reply = finish(begun.ticket, state);
  ASSERT_EQ(reply.status, 201) << reply.body;
  EXPECT_EQ(whoami(json::parse(reply.body)["token"])["user"], "ann");
}

TEST_F(OidcSite, a_state_that_was_not_made_here_leads_to_no_port) {
  const Begun program = begin(R"({"port": 40123})");
  const Begun page = begin();
  std::string changed = program.query.at("state");
  changed[20] = changed[20] == 'A' ? 'B' : 'A';
  for (const std::string& state :
       {changed,
        page.query.at("state"),
        page.ticket,  // sealed by the same key, for something else
        program.ticket,
        to_base64url(as_bytes(R"({"port":40123,"ticket":"x"})")),
        std::string("x"),
        std::string()}) {
    const auto back = site_.call("GET", "/signin?code=c&state=" + state, "", "");
    EXPECT_TRUE(io::find_header(back.headers, "Location").starts_with("/ui/#signin?")) << state;
  }
  // One program's way back is of no use to another window's ticket, nor the other way.
  EXPECT_EQ(finish(page.ticket, program.query.at("state")).status, 401);
  EXPECT_EQ(finish(program.ticket, page.query.at("state")).status, 401);
  EXPECT_TRUE(provider_.asked("/realm/token").empty());
  for (const char* request : {R"({"port": 80})", R"({"port": 65536})", R"({"port": -1})"})
    EXPECT_EQ(site_.call("POST", "/v1/signin", request, "").status, 400) << request;
}

TEST_F(OidcSite, local_tokens_go_on_and_the_offer_names_the_provider) {
  EXPECT_EQ(whoami("admin")["role"], "admin");
  const json offer = json::parse(site_.call("GET", "/v1/signin", "", "").body);
  EXPECT_EQ(offer["is_offered"], true);
  EXPECT_EQ(offer["name"], "University");
}

TEST_F(OidcSite, a_sign_in_can_be_revoked_by_who_signed_in) {
  const json made = json::parse(sign_in("ann").body);
  const std::string token = made["token"];
  const std::string id = made["info"]["id"];

  EXPECT_EQ(site_.call("DELETE", "/v1/tokens/" + id, "", token).status, 204);
  EXPECT_EQ(site_.call("GET", "/v1/whoami", "", token).status, 403);
}

OidcConfig with_people() {
  OidcConfig config = usual_oidc();
  config.users = {{"sub-of-root", "admin"}};
  config.groups_claim = "groups";
  config.labs = {{"cn=vision", "lab-v"}};
  return config;
}

class OidcPeopleSite : public OidcSite {
 protected:
  OidcPeopleSite() : OidcSite(with_people()) {}
};

TEST_F(OidcPeopleSite, a_named_administrator_and_a_listed_group_get_in) {
  const auto root = sign_in("sub-of-root");
  ASSERT_EQ(root.status, 201) << root.body;
  EXPECT_EQ(whoami(json::parse(root.body)["token"])["role"], "admin");

  const auto eve = sign_in("eve", {{"groups", json::array({"cn=other", "cn=vision"})}});
  ASSERT_EQ(eve.status, 201) << eve.body;
  const json who = whoami(json::parse(eve.body)["token"]);
  EXPECT_EQ(who["lab"], "lab-v");
  EXPECT_EQ(who["role"], "user");

  EXPECT_EQ(sign_in("mallory", {{"groups", json::array({"cn=other"})}}).status, 401);
  // A group makes nobody more than the table says.
  const auto ann = sign_in("ann", {{"groups", json::array({"cn=vision"})}});
  EXPECT_EQ(whoami(json::parse(ann.body)["token"])["lab"], "lab-a");
}

// ---- who it is

IdClaims mail_claims(const std::string& address, bool is_verified) {
  IdClaims claims;
  claims.subject = "sub-1";
  claims.email = address;
  claims.is_email_verified = is_verified;
  return claims;
}

TEST(OidcPerson, an_address_counts_when_it_is_verified_and_of_the_domain) {
  OidcConfig config = usual_oidc();
  config.claim = "email";
  config.domain = "example.org";

  EXPECT_EQ(person_of(mail_claims("Ann@Example.ORG", true), config)->user, UserId("ann"));
  for (const IdClaims& claims :
       {mail_claims("ann@example.org", false),
        mail_claims("", true),
        mail_claims("ann@evil.org", true),
        mail_claims("ann@example.org@evil.org", true),
        mail_claims("ann@evil.org@example.org", true),
        mail_claims("ann@example.org.evil.org", true),
        mail_claims("example.org", true),
        mail_claims("@example.org", true),
        mail_claims("a n@example.org", true)})
    EXPECT_FALSE(person_of(claims, config).has_value()) << claims.email;
}

TEST(OidcPerson, an_address_that_the_operator_named_is_of_any_domain_and_verified_all_the_same) {
  OidcConfig config = usual_oidc();
  config.claim = "email";
  config.domain = "example.org";
  config.users = {{"Guest@Example.com", "guest"}, {"ann@example.org", "ann-of-lab-a"}};
  ASSERT_TRUE(finish_oidc_config(config, "https://site:7443").has_value());

  EXPECT_EQ(person_of(mail_claims("guest@example.com", true), config)->user, UserId("guest"));
  EXPECT_EQ(person_of(mail_claims("ann@example.org", true), config)->user, UserId("ann-of-lab-a"));
  EXPECT_FALSE(person_of(mail_claims("guest@example.com", false), config).has_value());
  EXPECT_FALSE(person_of(mail_claims("other@example.com", true), config).has_value());
}

TEST(OidcPerson, the_operators_own_list_goes_first_and_who_is_refused_stays_out) {
  OidcConfig config = usual_oidc();
  config.users = {{"sub-1", "ann"}, {"sub-2", "bob"}};
  config.refuses = {"bob"};
  IdClaims claims;
  claims.subject = "sub-1";
  EXPECT_EQ(person_of(claims, config)->user, UserId("ann"));
  EXPECT_TRUE(person_of(claims, config)->is_named);
  claims.subject = "sub-2";
  EXPECT_FALSE(person_of(claims, config).has_value());
  claims.subject = "a subject with blanks";
  EXPECT_NE(person_of(claims, config).error().hint.find("oidc: users"), std::string::npos);
}

TEST(OidcPerson, who_is_refused_by_an_address_is_so_in_any_spelling) {
  OidcConfig config = usual_oidc();
  config.claim = "email";
  config.refuses = {"Ann@Example.org"};
  EXPECT_FALSE(person_of(mail_claims("ann@example.org", true), config).has_value());
  EXPECT_TRUE(person_of(mail_claims("bob@example.org", true), config).has_value());

  config.claim = "sub";  // a provider's own words are not one in any spelling
  config.refuses = {"Ann"};
  IdClaims claims;
  claims.subject = "ann";
  EXPECT_TRUE(person_of(claims, config).has_value());
  claims.subject = "Ann";
  EXPECT_FALSE(person_of(claims, config).has_value());
}

// ---- what the operator says

TEST(OidcSettings, what_cannot_be_meant_is_named) {
  struct Case {
    const char* words;
    std::function<void(OidcConfig&)> change;
  };

  const std::vector<Case> cases = {
      {"oidc: issuer", [](OidcConfig& c) { c.issuer = "http://login.example.org"; }},
      {"oidc: issuer", [](OidcConfig& c) { c.issuer = "https://login.example.org/?a=b"; }},
      {"oidc: issuer", [](OidcConfig& c) { c.issuer = ""; }},
      {"oidc: origins", [](OidcConfig& c) { c.origins = {"http://127.0.0.1"}; }},
      {"oidc: client_id", [](OidcConfig& c) { c.client_id = ""; }},
      {"oidc: claim", [](OidcConfig& c) { c.claim = "preferred_username"; }},
      {"oidc: domain", [](OidcConfig& c) { c.domain = "example.org"; }},
      {"oidc: users",
       [](OidcConfig& c) {
         c.users = {{"s", "no name"}};
       }},
      {"oidc: refuses", [](OidcConfig& c) { c.refuses = {""}; }},
      {"oidc: labs",
       [](OidcConfig& c) {
         c.labs = {{"g", "lab-a"}};
       }},
      {"oidc: labs", [](OidcConfig& c) { c.groups_claim = "groups"; }},
      {"oidc: session_s", [](OidcConfig& c) { c.session_s = 0; }},
      {"oidc: session_s", [](OidcConfig& c) { c.session_s = 604'801; }},
      {"oidc: scopes", [](OidcConfig& c) { c.scopes = {"a b"}; }},
  };
  for (const Case& one : cases) {
    OidcConfig config = usual_oidc();
    one.change(config);
    const Status finished = finish_oidc_config(config, "https://site:7443");
    ASSERT_FALSE(finished.has_value()) << one.words;
    EXPECT_TRUE(finished.error().message.starts_with(one.words)) << finished.error().describe();
    EXPECT_FALSE(finished.error().hint.empty());
  }
  OidcConfig config = usual_oidc();
  EXPECT_FALSE(finish_oidc_config(config, "").has_value()) << "people must come back somewhere";
  EXPECT_TRUE(finish_oidc_config(config, "https://site:7443").has_value());
}

TEST(OidcSettings, a_secret_that_others_may_read_is_refused) {
  const ScratchFolder folder;
  io::RealFileSystem fs;
  OidcConfig config = usual_oidc();
  config.client_secret_file = folder.path() + "/secret";
  std::ofstream(config.client_secret_file) << "open sesame\n";
  std::filesystem::permissions(config.client_secret_file, std::filesystem::perms(0644));
  EXPECT_EQ(read_client_secret(fs, config).error().code, ErrorCode::kDenied);

  std::filesystem::permissions(config.client_secret_file, std::filesystem::perms(0640));
  ASSERT_TRUE(read_client_secret(fs, config).has_value());
  EXPECT_EQ(config.client_secret, "open sesame");
  std::filesystem::create_symlink(config.client_secret_file, folder.path() + "/link");
  config.client_secret_file = folder.path() + "/link";
  EXPECT_FALSE(read_client_secret(fs, config).has_value());
  config.client_secret_file = folder.path() + "/none";
  EXPECT_EQ(read_client_secret(fs, config).error().code, ErrorCode::kNotFound);
}

// ---- the provider

/// One whose time stands still unless it is moved.
struct ProviderAlone {
  PlayedProvider played;
  ManualClock clock;
  OidcConfig config = usual_oidc();
  OidcProvider provider{config, clock, [this](const io::AskCall& call) { return played(call); }};

  ProviderAlone() {
    clock.set_wall(wall_from_ms(to_ms(WallTime(std::chrono::duration_cast<milliseconds>(
        std::chrono::system_clock::now().time_since_epoch()
    )))));
  }

  std::size_t asked_for(const std::string& path) const {
    return played.asked("/realm" + path).size();
  }

  Result<IdClaims> redeem() { return provider.redeem("c", "v", "n", "https://site/signin"); }
};

TEST(OidcProvider, its_documents_are_kept_and_asked_for_again_after_an_hour) {
  ProviderAlone site;
  site.played.signs(claims_of("ann", "n"));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(site.redeem().has_value());
  EXPECT_EQ(site.asked_for("/.well-known/openid-configuration"), 1u);
  EXPECT_EQ(site.asked_for("/keys"), 1u);

  site.clock.advance(std::chrono::minutes(61));
  site.played.signs(claims_of("ann", "n"));
  (void)site.redeem();
  EXPECT_EQ(site.asked_for("/.well-known/openid-configuration"), 2u);
  EXPECT_EQ(site.asked_for("/keys"), 2u);
}

TEST(OidcProvider, changed_keys_are_read_again_but_not_for_each_unknown_one) {
  ProviderAlone site;
  site.played.signs(claims_of("ann", "n"));
  ASSERT_TRUE(site.redeem().has_value());
  const TestSigner newer(ProviderKey::Kind::kP256, "ec-2");
  site.played.answers(
      "/realm/token", json{{"id_token", newer.token(claims_of("ann", "n"))}}.dump()
  );

  // Not published yet: asked for at most once in half a minute, however often it is tried.
  for (int i = 0; i < 10; ++i) EXPECT_EQ(site.redeem().error().code, ErrorCode::kDenied);
  EXPECT_LE(site.asked_for("/keys"), 2u);
  site.played.answers("/realm/keys", key_set_of({&newer}));
  site.clock.advance(seconds(31));
  EXPECT_TRUE(site.redeem().has_value());
  EXPECT_LE(site.asked_for("/keys"), 3u);
}

TEST(OidcProvider, a_new_key_of_an_old_name_or_of_none_is_read_once_more) {
  for (const char* name : {"ec-1", ""}) {
    ProviderAlone site;
    site.played.signs(claims_of("ann", "n"));
    ASSERT_TRUE(site.redeem().has_value());
    const TestSigner newer(ProviderKey::Kind::kP256, name);
    json key = newer.jwk();
    json header = newer.header();
    if (newer.id().empty()) {
      key.erase("kid");
      header.erase("kid");
    }
    site.played.answers("/realm/keys", json{{"keys", json::array({key})}}.dump());
    const std::string token = newer.token_of(header.dump(), claims_of("ann", "n").dump());
    site.played.answers("/realm/token", json{{"id_token", token}}.dump());

    EXPECT_EQ(site.redeem().error().code, ErrorCode::kDenied) << "read less than 30 s ago";
    site.clock.advance(seconds(31));
    EXPECT_TRUE(site.redeem().has_value()) << name;
    EXPECT_EQ(site.asked_for("/keys"), 2u);
  }
}

TEST(OidcProvider, one_that_is_away_is_not_asked_at_once_again_and_its_documents_serve_a_day) {
  ProviderAlone site;
  site.played.answers("/realm/.well-known/openid-configuration", "");
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(site.provider.endpoints().error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(site.asked_for("/.well-known/openid-configuration"), 1u);

  site.clock.advance(seconds(6));
  site.played.answers(
      "/realm/.well-known/openid-configuration", PlayedProvider::discovery().dump()
  );
  ASSERT_TRUE(site.provider.endpoints().has_value());
  site.played.answers("/realm/.well-known/openid-configuration", "");
  site.clock.advance(std::chrono::hours(23));
  EXPECT_TRUE(site.provider.endpoints().has_value());
  site.clock.advance(std::chrono::hours(2));
  EXPECT_FALSE(site.provider.endpoints().has_value());
}

TEST(OidcProvider, endpoints_that_the_operator_did_not_allow_are_not_asked) {
  for (const char* name :
       {"authorization_endpoint", "token_endpoint", "jwks_uri", "device_authorization_endpoint"})
    for (const char* url :
         {"https://evil.example.org/x",
          "http://login.example.org/x",
          "https://login.example.org:8443/x",
          "https://login.example.org@evil.org/x",
          "file:///etc/passwd",
          "https://127.0.0.1/x"}) {
      ProviderAlone site;
      json document = PlayedProvider::discovery();
      document[name] = url;
      site.played.answers("/realm/.well-known/openid-configuration", document.dump());
      EXPECT_FALSE(site.provider.endpoints().has_value()) << name << " " << url;
    }
  ProviderAlone site;
  json document = PlayedProvider::discovery();
  document["jwks_uri"] = "https://keys.example.org/x";
  site.played.answers("/realm/.well-known/openid-configuration", document.dump());
  site.config.origins = {"https://keys.example.org:443"};
  EXPECT_TRUE(site.provider.endpoints().has_value());
}

TEST(OidcProvider, one_that_says_it_is_another_is_refused) {
  ProviderAlone site;
  json document = PlayedProvider::discovery();
  document["issuer"] = "https://login.example.org/other";
  site.played.answers("/realm/.well-known/openid-configuration", document.dump());

  EXPECT_NE(site.provider.endpoints().error().message.find("another issuer"), std::string::npos);
}

TEST(OidcProvider, a_secret_goes_where_the_provider_wants_it_and_into_no_message) {
  ProviderAlone site;
  site.config.client_secret = "open sesame";
  site.played.answers("/realm/token", R"({"error": "invalid_client"})", 401);
  const auto refused = site.redeem();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().describe().find("sesame"), std::string::npos);
  const auto asked = site.played.asked("/realm/token").at(0);
  EXPECT_EQ(
      io::find_header(asked.headers, "Authorization"),
      "Basic " + to_base64(as_bytes("reclaimnet:open%20sesame"))
  );
  EXPECT_EQ(asked.form.find("sesame"), std::string::npos);
}

/// The call by which `secret` went to a provider that says that it takes secrets by `methods`.
io::AskCall call_with_secret(const std::string& secret, const json& methods) {
  ProviderAlone site;
  json document = PlayedProvider::discovery();
  document["token_endpoint_auth_methods_supported"] = methods;
  site.played.answers("/realm/.well-known/openid-configuration", document.dump());
  site.config.client_secret = secret;
  (void)site.redeem();
  return site.played.asked("/realm/token").at(0);
}

TEST(OidcProvider, a_secret_that_providers_read_differently_in_a_header_goes_into_the_form) {
  const json both = json::array({"client_secret_basic", "client_secret_post"});
  const auto odd = call_with_secret("open sesame", both);
  EXPECT_EQ(io::find_header(odd.headers, "Authorization"), "");
  EXPECT_NE(odd.form.find("&client_secret=open%20sesame&"), std::string::npos) << odd.form;

  const auto plain = call_with_secret("sesame-2.0_~", both);
  EXPECT_NE(io::find_header(plain.headers, "Authorization"), "");
  EXPECT_EQ(plain.form.find("client_secret"), std::string::npos);

  const auto in_form = call_with_secret("sesame", json::array({"client_secret_post"}));
  EXPECT_EQ(io::find_header(in_form.headers, "Authorization"), "");
}

TEST(OidcProvider, answers_that_are_none_are_refused_in_words) {
  ProviderAlone site;
  for (const char* body :
       {"",
        "<html>",
        "[]",
        "{}",
        R"({"id_token": 7})",
        R"({"id_token": "a.b.c"})",
        R"({"id_token": "x", "id_token": "y"})"}) {
    site.played.answers("/realm/token", body);
    const auto claims = site.redeem();
    ASSERT_FALSE(claims.has_value()) << body;
    EXPECT_FALSE(claims.error().hint.empty()) << body;
  }
}

}  // namespace
}  // namespace rn::coordinator
