// SPDX-License-Identifier: Apache-2.0
#include "cli_browser.h"

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "io/http_client.h"
#include "io/http_server.h"
#include "io/loop_fixture.h"
#include "model/codec.h"
#include "model/sign_in.h"

namespace rn::cli {
namespace {

/// A coordinator that begins a sign-in and ends it for the right ticket, state and code.
class SignInServer {
 public:
  SignInServer() {
    const Status started = thread_.call([&]() -> Status {
      RN_TRY(
          server_,
          io::HttpServer::start(
              thread_.loop(),
              {},
              [this](const io::HttpRequest& request, const io::Responder& responder) {
                responder.send(answer(request));
              }
          )
      );
      return {};
    });
    EXPECT_TRUE(started);
  }

  ~SignInServer() {
    thread_.call([&] { server_.reset(); });
  }

  SignInServer(const SignInServer&) = delete;
  SignInServer& operator=(const SignInServer&) = delete;

  Login site() const { return {"http://127.0.0.1:" + std::to_string(server_->port()), "", ""}; }

  /// Where the command waits; it is begun by another thread.
  std::uint32_t port_of_command() {
    for (int look = 0; look < 2000; ++look) {
      if (const std::uint32_t port = thread_.call([&] { return port_; })) return port;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return 0;
  }

 private:
  io::HttpResponse answer(const io::HttpRequest& request) {
    if (request.path == "/v1/signin") {
      const auto begin = from_json<api::SignInBegin>(request.body);
      port_ = begin ? begin->port : 0;
      return io::json_response(
          200,
          to_json(api::SignInBegun{"https://login.example.org/auth?a=b", "ticket", "st-1", "3F9A1C"}
          )
      );
    }
    const auto body = from_json<api::SignInFinish>(request.body);
    const bool is_right =
        body && body->ticket == "ticket" && body->state == "st-1" && body->code == "c d";
    api::TokenAnswer made;
    made.token = is_right ? "rnu1.s-1.x.y" : "rnu1.wrong.x.y";
    return io::json_response(201, to_json(made));
  }

  io::LoopThread thread_;
  std::unique_ptr<io::HttpServer> server_;
  std::uint32_t port_ = 0;
};

/// `reclaim login --browser`, and a browser that asks for addresses while it waits.
class BrowserSignIn : public ::testing::Test {
 protected:
  /// A developer's own browser is not opened.
  BrowserSignIn() {
    for (const char* name : {"BROWSER", "DISPLAY", "WAYLAND_DISPLAY"}) ::unsetenv(name);
  }

  void begin(std::uint32_t wait_s = 30) {
    command_ = std::jthread([this, wait_s] {
      token_ = sign_in_by_browser(server_.site(), BrowserOptions{0, wait_s});
    });
  }

  /// The status of the answer.
  int browse(const std::string& target, const std::string& host = {}) {
    io::HttpCall call;
    call.method = "GET";
    call.url = "http://127.0.0.1:" + std::to_string(server_.port_of_command()) + target;
    if (!host.empty()) call.headers.emplace_back("Host", host);
    const auto reply = io::perform_blocking(call);
    if (reply) pages_ += reply->body;
    return reply ? reply->status : 0;
  }

  const Result<std::string>& end() {
    if (command_.joinable()) command_.join();
    return token_;
  }

  SignInServer server_;
  std::string pages_;

 private:
  Result<std::string> token_ = fail(ErrorCode::kInternal, "not begun");
  std::jthread command_;
};

TEST_F(BrowserSignIn, what_comes_back_with_the_right_state_becomes_a_token) {
  begin();
  EXPECT_EQ(browse("/signin?code=c%20d&state=st-1"), 200);
  ASSERT_TRUE(end().has_value()) << end().error().describe();
  EXPECT_EQ(*end(), "rnu1.s-1.x.y");
}

TEST_F(BrowserSignIn, what_is_somebody_elses_is_refused_and_waited_on) {
  begin();
  EXPECT_EQ(browse("/favicon.ico"), 404);
  EXPECT_EQ(browse("/signin?code=x&state=st-2"), 400);
  EXPECT_EQ(browse("/signin?error=access_denied"), 400);
  EXPECT_EQ(browse("/signin?code=<b>&state="), 400);
  EXPECT_EQ(browse("/signin?code=c%20d&state=st-1", "evil.example.org"), 404);
  EXPECT_EQ(browse("/signin?code=c%20d&state=st-1"), 200);
  ASSERT_TRUE(end().has_value()) << end().error().describe();
  EXPECT_EQ(*end(), "rnu1.s-1.x.y");
  EXPECT_EQ(pages_.find("<b>"), std::string::npos) << "a page repeats what was sent";
}

TEST_F(BrowserSignIn, a_refusal_at_the_provider_is_told_in_its_word_alone) {
  begin();
  EXPECT_EQ(browse("/signin?error=access_denied&state=st-1"), 200);
  ASSERT_FALSE(end().has_value());
  EXPECT_EQ(end().error().code, ErrorCode::kDenied);
  EXPECT_NE(end().error().message.find("access_denied"), std::string::npos);
}

TEST_F(BrowserSignIn, an_address_that_somebody_wrote_says_nothing_in_our_name) {
  begin();
  EXPECT_EQ(browse("/signin?error=call%200900-1234&state=st-1"), 200);
  ASSERT_FALSE(end().has_value());
  EXPECT_EQ(end().error().describe().find("0900"), std::string::npos);
}

TEST_F(BrowserSignIn, nobody_is_waited_for_forever) {
  begin(1);
  ASSERT_FALSE(end().has_value());
  EXPECT_EQ(end().error().code, ErrorCode::kTimeout);
  EXPECT_FALSE(end().error().hint.empty());
}

TEST_F(BrowserSignIn, a_port_in_use_is_named_before_anything_is_begun) {
  const std::string url = server_.site().url;
  BrowserOptions options;
  options.port = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));

  const auto token = sign_in_by_browser(server_.site(), options);

  ASSERT_FALSE(token.has_value());
  EXPECT_EQ(token.error().code, ErrorCode::kConflict);
  EXPECT_NE(token.error().hint.find("--port"), std::string::npos);
}

TEST(BrowserHere, is_the_one_that_was_chosen_or_the_desktops) {
  std::map<std::string, std::string> variables;
  const auto read = [&variables](const char* name) { return variables[name]; };
  EXPECT_EQ(browser_here(read), "");
  variables["DISPLAY"] = ":0";
  EXPECT_EQ(browser_here(read), "xdg-open");
  variables["BROWSER"] = "/usr/bin/chromium";
  EXPECT_EQ(browser_here(read), "/usr/bin/chromium");
  variables["BROWSER"] = "w3m %s; sh";  // never a shell
  EXPECT_EQ(browser_here(read), "xdg-open");
}

}  // namespace
}  // namespace rn::cli
