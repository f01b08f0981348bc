// SPDX-License-Identifier: Apache-2.0
#include "cli_browser.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "cli_client.h"

#include "base/printable.h"
#include "io/http.h"
#include "io/http_server.h"
#include "io/loop.h"
#include "io/subprocess.h"
#include "model/sign_in.h"

namespace rn::cli {

namespace {

constexpr const char* kReturnPath = "/signin";
/// For the page to reach the browser before its server goes.
constexpr auto kToAnswer = milliseconds(300);
constexpr auto kBrowserStarts = seconds(5);
constexpr std::size_t kMaxCodeBytes = 4u << 10;

std::string environment_variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
  return value == nullptr ? std::string() : value;
}

/// Nothing of the request is repeated in it.
io::HttpResponse page_for_browser(int status, std::string_view sentence) {
  io::HttpResponse response;
  response.status = status;
  response.headers = {
      {"Content-Type", "text/html; charset=utf-8"},
      {"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"},
      {"Cache-Control", "no-store"},
      {"Referrer-Policy", "no-referrer"},
      {"X-Content-Type-Options", "nosniff"}};
  response.body = "<!doctype html><html lang=\"en\"><title>ReclaimNet</title><p>" +
                  std::string(sentence) + "</p></html>\n";
  return response;
}

/// A provider's word (RFC 6749, 4.1.2.1); an address may be anybody's writing.
std::string plain_word(const std::string& text) {
  const bool is_plain = !text.empty() && text.size() <= 40 &&
                        text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
  return is_plain ? text : "an error without a name";
}

/// What comes back from the browser, once.
class WayBack {
 public:
  static Result<std::unique_ptr<WayBack>> open(std::uint16_t port) {
    std::unique_ptr<WayBack> made(new WayBack);
    io::HttpServerConfig config;
    config.port = port;
    config.max_connections = 16;
    config.max_body_bytes = 1024;
    config.idle_timeout = seconds(5);
    auto server = io::HttpServer::start(
        made->loop_,
        std::move(config),
        [self = made.get()](const io::HttpRequest& request, const io::Responder& responder) {
          responder.send(self->answer(request));
        }
    );
    if (!server && server.error().code == ErrorCode::kConflict)
      return fail(
          ErrorCode::kConflict,
          "port " + std::to_string(port) + " of this machine is in use",
          "choose another with --port, or leave it out: then one is found"
      );
    if (!server) return fail(server.error().with("waiting for the browser"));
    made->server_ = *std::move(server);
    return made;
  }

  std::uint16_t port() const { return server_->port(); }

  /// The code that came with `state`. kDenied if the provider refused; kTimeout.
  Result<std::string> wait(const std::string& state, std::uint32_t wait_s) {
    state_ = state;
    loop_.run_after(seconds(wait_s), [this] { loop_.stop(); });
    loop_.run();
    if (code_) return *std::exchange(code_, std::nullopt);
    return fail(
        ErrorCode::kTimeout,
        "nobody came back from the browser within " + std::to_string(wait_s) + " s",
        "begin again; without a browser on this machine leave out --browser and --port"
    );
  }

 private:
  WayBack() = default;

  io::HttpResponse answer(const io::HttpRequest& request) {
    const std::string here = "127.0.0.1:" + std::to_string(port());
    if (request.method != "GET" || request.path != kReturnPath || request.header("Host") != here)
      return page_for_browser(404, "There is nothing here.");
    const auto query = io::parse_query(request.query);
    const auto word = [&query](const char* name) {
      const auto found = query ? query->find(name) : decltype(query->end())();
      return query && found != query->end() ? found->second : std::string();
    };
    // Any page of any site can send a browser here: only the coordinator's answer has our state.
    if (code_ || state_.empty() || word("state") != state_)
      return page_for_browser(400, "This is not the sign-in that the terminal waits for.");
    const std::string code = word("code");
    if (!word("error").empty() || code.empty() || code.size() > kMaxCodeBytes) {
      code_ = fail(
          ErrorCode::kDenied,
          "you were not signed in: the identity provider says " + plain_word(word("error")),
          "begin again, or use a token from an administrator"
      );
    } else {
      code_ = code;
    }
    loop_.run_after(kToAnswer, [this] { loop_.stop(); });
    return page_for_browser(200, "Go back to the terminal: it says whether you are signed in.");
  }

  io::Loop loop_;
  std::unique_ptr<io::HttpServer> server_;
  std::string state_;
  std::optional<Result<std::string>> code_;
};

/// Whether one was started. It goes on when we end.
bool open_in_browser(const std::string& program, const std::string& url) {
  if (program.empty()) return false;
  io::SpawnOptions options;
  options.argv = {"setsid", "--fork", program, url};
  auto started = io::Subprocess::spawn(options);
  if (!started) return false;
  const auto end = started->wait(kBrowserStarts);
  return end && end->is_success();
}

void print_where_to_browse(const api::SignInBegun& begun, std::uint16_t port, bool is_opened) {
  std::fprintf(
      stderr,
      "%s\n\n  %s\n\nand go on there if the page shows %s.\nwaiting at 127.0.0.1:%u; Ctrl-C gives "
      "it up ...\n",
      is_opened ? "A browser should open; if none does, open this in one on this machine:"
                : "Open this in a browser on this machine:",
      printable(begun.url).c_str(),
      printable(begun.word).c_str(),
      static_cast<unsigned>(port)
  );
  if (!is_opened)
    std::fprintf(
        stderr,
        "(one on another machine gets here by: ssh -L %u:127.0.0.1:%u THIS-MACHINE)\n",
        static_cast<unsigned>(port),
        static_cast<unsigned>(port)
    );
}

}  // namespace

std::string browser_here(const std::function<std::string(const char* name)>& variable) {
  const std::string chosen = variable("BROWSER");
  // Some write a list or a whole command there, which is more than a program's name.
  if (!chosen.empty() && chosen.find_first_of(": %\t\n") == std::string::npos) return chosen;
  const bool has_screen = !variable("DISPLAY").empty() || !variable("WAYLAND_DISPLAY").empty();
  return has_screen ? "xdg-open" : "";
}

Result<std::string> sign_in_by_browser(const Login& site, const BrowserOptions& options) {
  RN_TRY(const auto back, WayBack::open(options.port));
  const Client client(site);
  RN_TRY(
      const auto begun,
      client.send_as<api::SignInBegun>(
          "POST", "/v1/signin", to_json(api::SignInBegin{back->port()})
      )
  );
  if (!begun.url.starts_with("https://") || begun.state.empty() || begun.word.empty())
    return fail(
        ErrorCode::kUnsupported,
        "this coordinator has no sign-in by a browser for terminals",
        "it is older than this command: reclaim login URL, without --browser and --port"
    );
  const bool is_opened = open_in_browser(browser_here(&environment_variable), begun.url);
  print_where_to_browse(begun, back->port(), is_opened);
  RN_TRY(const std::string code, back->wait(begun.state, options.wait_s));
  RN_TRY(
      const auto made,
      client.send_as<api::TokenAnswer>(
          "POST", "/v1/signin/finish", to_json(api::SignInFinish{begun.ticket, begun.state, code})
      )
  );
  return made.token;
}

}  // namespace rn::cli
