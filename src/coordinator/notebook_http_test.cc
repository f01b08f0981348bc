// SPDX-License-Identifier: Apache-2.0
#include "coordinator/notebook_http.h"

#include <string>

#include <gtest/gtest.h>

#include "base/crypto.h"

namespace rn::coordinator::notebook {
namespace {

const Blob kNotebookKey(32, 7);

io::HttpRequest browser_request(io::HttpHeaders headers) {
  io::HttpRequest request;
  request.method = "GET";
  request.target = "/notebooks/12/tree?a=b%20c";
  request.path = "/notebooks/12/tree";
  request.headers = {{"Host", "site:7444"}};
  request.headers.insert(request.headers.end(), headers.begin(), headers.end());
  return request;
}

std::string own_cookie(const std::string& value) {
  return std::string(kCookie) + "=" + value;
}

TEST(NotebookPath, is_a_job_and_what_follows) {
  EXPECT_EQ(path_of("/notebooks/12/tree/a")->job, 12u);
  EXPECT_EQ(path_of("/notebooks/12/tree/a")->rest, "/tree/a");
  EXPECT_EQ(path_of("/notebooks/12")->rest, "");
  EXPECT_EQ(path_of("/notebooks/12/../13/")->job, 12u) << "whatever the guest makes of it";
  EXPECT_EQ(folder_of(12), "/notebooks/12");
  for (const char* none :
       {"/",
        "/notebooks",
        "/notebooks/",
        "/notebooks/x/",
        "/notebooks/012/",
        "/notebooks/-1/",
        "/notebooks/0/",
        "/notebooksx/1/",
        "//notebooks/1/"})
    EXPECT_FALSE(path_of(none)) << none;
}

TEST(NotebookSession, is_opened_for_its_job_by_the_sites_key_alone) {
  const std::string cookie = sealed({"t-1", 1'700'000'000'000}, "j-1", kNotebookKey);

  const auto session = opened(cookie, "j-1", kNotebookKey);

  ASSERT_TRUE(session);
  EXPECT_EQ(session->token, "t-1");
  EXPECT_EQ(session->until_wall_ms, 1'700'000'000'000);
  EXPECT_FALSE(opened(cookie, "j-2", kNotebookKey)) << "another job's";
  EXPECT_FALSE(opened(cookie, "j-1", Blob(32, 8))) << "another site's";
  for (std::size_t i = 0; i < cookie.size(); ++i) {
    std::string changed = cookie;
    changed[i] = changed[i] == '1' ? '2' : '1';
    EXPECT_FALSE(opened(changed, "j-1", kNotebookKey)) << changed;
  }
  for (const std::string& none :
       {std::string(),
        std::string("."),
        std::string(".."),
        std::string("t-1.5."),
        std::string(300, '.')})
    EXPECT_FALSE(opened(none, "j-1", kNotebookKey)) << none;
}

TEST(NotebookRequest, goes_on_without_what_is_ours_or_of_one_hop) {
  const io::HttpRequest request = browser_request({
      {"Cookie", "_xsrf=2|a; " + own_cookie("secret") + "; other=1"},
      {"cookie", own_cookie("again")},
      {"Authorization", "Bearer rnu1.x"},
      {"Connection", "keep-alive, X-Hop"},
      {"X-Hop", "1"},
      {"Keep-Alive", "5"},
      {"Expect", "100-continue"},
      {"X-Forwarded-For", "10.1.1.1"},
      {"Transfer-Encoding", "chunked"},
      {"X-XSRFToken", "2|a"},
  });

  EXPECT_EQ(
      request_head(request),
      "GET /notebooks/12/tree?a=b%20c HTTP/1.1\r\nHost: site:7444\r\nCookie: _xsrf=2|a; other=1\r\n"
      "Transfer-Encoding: chunked\r\nX-XSRFToken: 2|a\r\nConnection: close\r\n\r\n"
  );
  EXPECT_EQ(session_cookies(request.headers), (std::vector<std::string>{"secret", "again"}));
}

TEST(NotebookRequest, a_body_stays_framed_whatever_its_connection_header_names) {
  const std::string head = request_head(
      browser_request({{"Connection", "Content-Length, Host, close"}, {"Content-Length", "5"}})
  );

  EXPECT_NE(head.find("Content-Length: 5\r\n"), head.npos) << head;
  EXPECT_NE(head.find("Host: site:7444\r\n"), head.npos) << head;
}

TEST(NotebookRequest, an_upgrade_stays_one) {
  const io::HttpRequest request = browser_request(
      {{"Connection", "keep-alive, Upgrade"},
       {"Upgrade", "WebSocket"},
       {"Sec-WebSocket-Key", "abc"}}
  );

  EXPECT_TRUE(is_upgrade(request));
  EXPECT_EQ(
      request_head(request),
      "GET /notebooks/12/tree?a=b%20c HTTP/1.1\r\nHost: site:7444\r\nSec-WebSocket-Key: abc\r\n"
      "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
  );
  EXPECT_FALSE(is_upgrade(browser_request({{"Connection", "Upgrade"}, {"Upgrade", "h2c"}})));
  EXPECT_FALSE(is_upgrade(browser_request({{"Upgrade", "websocket"}})));
}

TEST(NotebookOrigin, pages_of_others_may_not_ask) {
  const auto is_allowed = [](const io::HttpHeaders& headers, const char* method = "GET") {
    io::HttpRequest request = browser_request(headers);
    request.method = method;
    return check_origin(request).has_value();
  };
  EXPECT_TRUE(is_allowed({})) << "a program";
  EXPECT_TRUE(is_allowed({{"Origin", "https://site:7444"}}, "POST"));
  EXPECT_TRUE(is_allowed({{"Origin", "https://SITE:7444"}, {"Sec-Fetch-Site", "same-origin"}}));
  EXPECT_TRUE(is_allowed({{"Sec-Fetch-Site", "none"}})) << "a person";
  EXPECT_TRUE(is_allowed(
      {{"Sec-Fetch-Site", "same-site"},
       {"Sec-Fetch-Mode", "navigate"},
       {"Sec-Fetch-Dest", "document"}}
  )) << "a link of the dashboard";

  EXPECT_FALSE(is_allowed({{"Origin", "https://site:7443"}})) << "the dashboard is another origin";
  EXPECT_FALSE(is_allowed({{"Origin", "http://site:7444"}}));
  EXPECT_FALSE(is_allowed({{"Origin", "null"}}, "POST"));
  EXPECT_FALSE(is_allowed({{"Sec-Fetch-Site", "same-site"}, {"Sec-Fetch-Mode", "no-cors"}}));
  EXPECT_FALSE(is_allowed(
      {{"Sec-Fetch-Site", "cross-site"},
       {"Sec-Fetch-Mode", "navigate"},
       {"Sec-Fetch-Dest", "iframe"}}
  ));
  EXPECT_FALSE(is_allowed(
      {{"Sec-Fetch-Site", "cross-site"},
       {"Sec-Fetch-Mode", "navigate"},
       {"Sec-Fetch-Dest", "document"}},
      "POST"
  ));
  EXPECT_FALSE(is_allowed(
      {{"Connection", "Upgrade"},
       {"Upgrade", "websocket"},
       {"Sec-Fetch-Site", "cross-site"},
       {"Sec-Fetch-Mode", "navigate"},
       {"Sec-Fetch-Dest", "document"}}
  ));
}

TEST(NotebookAnswer, goes_on_without_what_reaches_beyond_its_folder) {
  const auto head = answer_head(
      "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\nConnection: close, "
      "X-Hop\r\n"
      "X-Hop: 1\r\nService-Worker-Allowed: /\r\nStrict-Transport-Security: max-age=1\r\n"
      "Clear-Site-Data: \"*\"\r\nAlt-Svc: h3=\":1\"\r\nAccess-Control-Allow-Origin: *\r\n"
      "Set-Cookie: _xsrf=2|a; Path=/; Domain=site; HttpOnly; Expires=Fri, 01 Jan 2027 00:00:00 "
      "GMT\r\n"
      "Set-Cookie: __Secure-reclaim-notebook=evil; Path=/notebooks/13\r\nSet-Cookie: none\r\n\r\n",
      12,
      false
  );

  ASSERT_TRUE(head) << head.error().describe();
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(
      head->text,
      "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\n"
      "Set-Cookie: _xsrf=2|a; HttpOnly; Expires=Fri, 01 Jan 2027 00:00:00 GMT; "
      "Path=/notebooks/12/; "
      "Secure\r\nConnection: close\r\n\r\n"
  );
}

TEST(NotebookAnswer, switches_protocols_only_where_that_was_asked_for) {
  constexpr const char* kSwitch =
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Accept: x\r\n\r\n";
  const auto head = answer_head(kSwitch, 12, true);
  ASSERT_TRUE(head);
  EXPECT_EQ(
      head->text,
      "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\nConnection: Upgrade\r\n"
      "Upgrade: websocket\r\n\r\n"
  );
  EXPECT_FALSE(answer_head(kSwitch, 12, false));
  const auto interim = answer_head("HTTP/1.1 100 Continue\r\n\r\n", 12, false);
  ASSERT_TRUE(interim);
  EXPECT_EQ(interim->text, "") << "the coordinator says that itself";
}

TEST(NotebookAnswer, what_is_no_head_is_refused) {
  for (const std::string& none :
       {std::string("\r\n\r\n"),
        std::string("SSH-2.0-x\r\n\r\n"),
        std::string("HTTP/2 200\r\n\r\n"),
        std::string("HTTP/1.1 20 OK\r\n\r\n"),
        std::string("HTTP/1.1 2000\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nno header\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nA B: c\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\n folded: c\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nA: b\rc: d\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n", 27)}) {
    const auto head = answer_head(none, 12, false);
    EXPECT_FALSE(head) << none;
  }
  std::string long_one = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 200; ++i) long_one += "A: b\r\n";
  EXPECT_FALSE(answer_head(long_one + "\r\n", 12, false));
}

TEST(NotebookAnswer, a_head_ends_at_its_empty_line) {
  EXPECT_EQ(end_of_head("HTTP/1.1 200 OK\r\nA: b\r\n"), 0u);
  EXPECT_EQ(end_of_head("HTTP/1.1 200 OK\r\n\r\nbody\n\n"), 19u);
  EXPECT_EQ(end_of_head("HTTP/1.1 200 OK\n\nbody"), 17u);
}

}  // namespace
}  // namespace rn::coordinator::notebook
