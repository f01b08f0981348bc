// SPDX-License-Identifier: Apache-2.0
#include "io/url.h"

#include <gtest/gtest.h>

namespace rn::io {
namespace {

std::string refusal(const std::string& text) {
  const auto url = site_url(text);
  return url ? "taken as " + *url : url.error().message;
}

TEST(SiteUrl, scheme_and_port_may_be_left_out) {
  EXPECT_EQ(site_url("campus").value(), "https://campus:7443");
  EXPECT_EQ(site_url("https://campus.example.org/").value(), "https://campus.example.org:7443");
  EXPECT_EQ(site_url("HTTPS://Campus:443").value(), "https://Campus:443");
  EXPECT_EQ(site_url("10.1.2.3", 8000).value(), "https://10.1.2.3:8000");
  EXPECT_EQ(site_url("https://[::1]:8443/").value(), "https://[::1]:8443");
  EXPECT_EQ(site_url("[fd00::7]").value(), "https://[fd00::7]:7443");
}

TEST(SiteUrl, what_is_wrong_is_said) {
  const std::string it = "the coordinator's address ";
  EXPECT_EQ(refusal("http://campus"), it + "'http://campus' is not one of https");
  EXPECT_EQ(refusal("wss://campus"), it + "'wss://campus' is not one of https");
  EXPECT_EQ(
      refusal("https://campus/path"),
      it + "'https://campus/path' names more than host and port: /path"
  );
  EXPECT_EQ(refusal("campus?x=1"), it + "'campus?x=1' names more than host and port: ?x=1");
  EXPECT_EQ(refusal("campus:0"), it + "'campus:0': port '0' is no whole number from 1 to 65535");
  EXPECT_EQ(
      refusal("campus:99999"),
      it + "'campus:99999': port '99999' is no whole number from 1 to 65535"
  );
  EXPECT_EQ(refusal("campus:"), it + "'campus:' has no port after its colon, or no ']'");
  EXPECT_EQ(
      refusal("campus:http"), it + "'campus:http': port 'http' is no whole number from 1 to 65535"
  );
  EXPECT_EQ(refusal(""), it + "'' names no host: ''");
  EXPECT_EQ(refusal("https://"), it + "'https://' names no host: ''");
  EXPECT_EQ(refusal("cam pus"), it + "'cam pus' names no host: 'cam pus'");
  EXPECT_EQ(refusal("10.0.0.300"), it + "'10.0.0.300' names no host: '10.0.0.300'");
  EXPECT_EQ(refusal("[10.0.0.3]"), it + "'[10.0.0.3]' names no host: '10.0.0.3'");
  EXPECT_EQ(refusal("[::1"), it + "'[::1' has no port after its colon, or no ']'");
}

TEST(SiteUrl, an_address_without_brackets_is_told_how) {
  const auto url = site_url("fd00::7");

  ASSERT_FALSE(url);
  EXPECT_EQ(url.error().hint, "put an IPv6 address into brackets: https://[fd00::7]:7443");
}

TEST(SiteUrl, a_password_is_not_repeated) {
  const auto url = site_url("https://ada:secret@campus");

  ASSERT_FALSE(url);
  EXPECT_EQ(url.error().message, "the coordinator's address carries a user name or password");
  EXPECT_EQ(url.error().describe().find("secret"), std::string::npos);
}

TEST(Host, names_and_addresses_are_told_from_other_text) {
  for (const char* good :
       {"a", "lab-a.example.org", "x.", "10.1.2.3", "::1", "fd00::1", "node_1", "7up"})
    EXPECT_TRUE(is_host_name(good)) << good;
  for (const char* bad :
       {"", ".", "-a", "a-", "a..b", "a b", "a/b", "[::1]", "1.2.3", "a:1", "\xc3\xa9"})
    EXPECT_FALSE(is_host_name(bad)) << bad;
  EXPECT_FALSE(is_host_name(std::string(64, 'a')));
}

}  // namespace
}  // namespace rn::io
