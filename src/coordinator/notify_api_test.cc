// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "coordinator/api.h"
#include "coordinator/daemon_fixture.h"

namespace rn::coordinator {
namespace {

using nlohmann::json;

NotifyConfig a_config() {
  NotifyConfig config;
  config.smtp.emplace();
  config.smtp->url = "smtp://127.0.0.1:9";  // nobody listens there
  config.smtp->from = "site@example.org";
  config.smtp->domains = {"example.org"};
  config.webhooks = {"http://127.0.0.1:9"};
  return config;
}

/// A site with a mail server and a receiver that are both dead.
class NotifyApi : public ::testing::Test {
 protected:
  NotifyApi() : site_({}, 100, {}, {}, a_config()) {
    ann_ = site_.make_token(R"({"kind":"user","user":"ann","lab":"lab-a"})");
    bob_ = site_.make_token(R"({"kind":"user","user":"bob","lab":"lab-a"})");
    oli_ = site_.make_token(R"({"kind":"user","user":"oli","lab":"lab-a","role":"owner"})");
  }

  io::HttpReply add(const json& body, const std::string& who) const {
    return site_.call("POST", "/v1/notifications", body.dump(), who);
  }

  static std::string said(const io::HttpReply& reply) {
    const json error = json::parse(reply.body)["error"];
    EXPECT_FALSE(error["hint"].get<std::string>().empty()) << reply.body;
    return error["code"].get<std::string>() + ": " + error["message"].get<std::string>();
  }

  json rules_of(const std::string& who, const std::string& query = "") const {
    return json::parse(site_.call("GET", "/v1/notifications" + query, "", who).body)["rules"];
  }

  LiveSite site_;
  std::string ann_;
  std::string bob_;
  std::string oli_;
};

TEST_F(NotifyApi, a_rule_is_seen_tested_and_removed_by_its_own_user_alone) {
  const auto made = add({{"webhook", "http://127.0.0.1:9/hooks/s3cret"}}, ann_);

  ASSERT_EQ(made.status, 201) << made.body;
  const json answer = json::parse(made.body);
  EXPECT_EQ(answer["secret"].get<std::string>().size(), 64u);
  EXPECT_EQ(
      answer["rule"]["on"],
      json({"finished", "failed", "moved", "waiting", "expiring", "idle", "unsaved"})
  );
  const std::string path = "/v1/notifications/" + answer["rule"]["id"].get<std::string>();
  EXPECT_EQ(rules_of(ann_).size(), 1u);
  EXPECT_EQ(rules_of(ann_)[0]["webhook"], "http://127.0.0.1:9/hooks/s3cret");
  EXPECT_FALSE(rules_of(ann_)[0].contains("secret"));
  EXPECT_EQ(rules_of(bob_).size(), 0u);
  EXPECT_EQ(site_.call("POST", path + "/test", "", bob_).status, 404);
  EXPECT_EQ(site_.call("DELETE", path, "", bob_).status, 404);
  EXPECT_EQ(site_.call("POST", path + "/test", "", ann_).status, 204);
  EXPECT_EQ(site_.call("GET", "/v1/notifications?all=1", "", ann_).status, 403);
  EXPECT_EQ(rules_of("admin").size(), 0u);
  EXPECT_EQ(rules_of("admin", "?all=1")[0]["webhook"], "http://127.0.0.1:9") << "without its path";
  EXPECT_EQ(site_.call("DELETE", path, "", "admin").status, 204);
  EXPECT_EQ(rules_of(ann_).size(), 0u);
}

TEST_F(NotifyApi, rules_are_in_the_audit_log_without_the_secrets_of_webhooks) {
  ASSERT_EQ(add({{"webhook", "http://127.0.0.1:9/hooks/s3cret"}}, ann_).status, 201);

  const json events =
      json::parse(site_.call("GET", "/v1/events?kind=notify.", "", ann_).body)["events"];

  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["kind"], "notify.added");
  EXPECT_EQ(events.dump().find("s3cret"), std::string::npos);
}

TEST_F(NotifyApi, what_the_operator_does_not_allow_is_refused_with_what_is) {
  EXPECT_EQ(
      said(add({{"webhook", "http://127.0.0.1:22/"}}, ann_)),
      "denied: this site calls no webhooks at http://127.0.0.1:22"
  );
  EXPECT_EQ(add({{"webhook", "https://127.0.0.1:9/"}}, ann_).status, 403);
  EXPECT_EQ(add({{"webhook", "http://127.0.0.1:9@evil.example/"}}, ann_).status, 400);
  EXPECT_EQ(
      said(add({{"mail", "ann@elsewhere.org"}}, ann_)),
      "denied: this site sends no mail to elsewhere.org"
  );
  EXPECT_EQ(
      said(add({{"mail", "ann@example.org\r\nBcc: eve@example.org"}}, ann_)).substr(0, 9),
      "invalid: "
  );
  EXPECT_EQ(said(add(json::object(), ann_)), "invalid: expected one of mail and webhook");
  EXPECT_EQ(
      said(add({{"mail", "ann@example.org"}, {"on", {"fnished"}}}, ann_)).substr(0, 15),
      "invalid: on[0]:"
  );
}

TEST_F(NotifyApi, a_site_without_settings_says_what_is_missing) {
  const LiveSite bare;

  const auto mail = bare.call("POST", "/v1/notifications", R"({"mail": "ann@example.org"})");
  const auto hook = bare.call("POST", "/v1/notifications", R"({"webhook": "https://x.org/"})");

  EXPECT_EQ(said(mail), "unsupported: this site sends no mail");
  EXPECT_NE(mail.body.find("smtp: in coordinator.yaml"), std::string::npos) << mail.body;
  EXPECT_EQ(said(hook), "unsupported: this site calls no webhooks");
}

TEST_F(NotifyApi, machines_are_told_of_to_owners_alone) {
  const json body = {{"webhook", "http://127.0.0.1:9/"}, {"on", {"reclaimed"}}};

  EXPECT_EQ(add(body, ann_).status, 403);
  EXPECT_EQ(add(body, oli_).status, 201);
}

TEST_F(NotifyApi, one_job_is_told_of_to_its_own_user_alone) {
  site_.add_base_image();
  ASSERT_EQ(site_.call("POST", "/v1/jobs", R"({"command": ["true"]})", ann_).status, 201);
  const json body = {{"webhook", "http://127.0.0.1:9/"}, {"job", "1"}};

  EXPECT_EQ(add(body, bob_).status, 404);
  EXPECT_EQ(said(add(body, "admin")), "denied: job 1 is of ann");
  const json made = json::parse(add(body, ann_).body);
  EXPECT_EQ(made["rule"]["job_number"], 1);
}

TEST_F(NotifyApi, an_address_waits_for_its_code) {
  const json made = json::parse(add({{"mail", "ann@example.org"}}, ann_).body);
  const std::string path = "/v1/notifications/" + made["rule"]["id"].get<std::string>();

  EXPECT_EQ(made["rule"]["is_confirmed"], false);
  EXPECT_EQ(made["secret"], "");
  EXPECT_EQ(site_.call("POST", path + "/test", "", ann_).status, 409);
  EXPECT_EQ(site_.call("POST", path + "/confirm", R"({"code": "0"})", ann_).status, 403);
  EXPECT_EQ(site_.call("POST", path + "/confirm", R"({"code": "0"})", bob_).status, 404);
}

}  // namespace
}  // namespace rn::coordinator
