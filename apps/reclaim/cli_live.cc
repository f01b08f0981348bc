// SPDX-License-Identifier: Apache-2.0
#include "cli_live.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cli_print.h"
#include "cli_top.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/time.h"
#include "io/standard_output.h"
#include "model/codec_detail.h"

namespace rn::cli {

namespace {

constexpr auto kTopCallTimeout = seconds(10);
/// What was rolled up changes seldom, and is most of what is fetched.
constexpr std::int64_t kHistoryEvery_ms = 60'000;

constexpr const char* kOpenScreen = "\x1b[?1049h\x1b[?25l";
constexpr const char* kCloseScreen = "\x1b[?25h\x1b[?1049l";

volatile std::sig_atomic_t g_top_signal = 0;

void note_top_signal(int number) {
  g_top_signal = number;
}

/// Ending signals are noted while it lives.
class NotedSignals {
 public:
  NotedSignals() {
    g_top_signal = 0;

    struct sigaction noted {};

    noted.sa_handler = note_top_signal;  // without SA_RESTART: poll() ends
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &noted, &before_[i]);
  }

  ~NotedSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      ::sigaction(kSignals[i], &before_[i], nullptr);
  }

  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

/// The whole terminal, with keys as they are pressed; as it was before at the end.
class WholeTerminal {
 public:
  WholeTerminal() : has_keys_(::tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (has_keys_) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      raw.c_cc[VMIN] = 0;
      raw.c_cc[VTIME] = 0;
      ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    std::fputs(kOpenScreen, stdout);
  }

  ~WholeTerminal() {
    std::fputs(kCloseScreen, stdout);
    std::fflush(stdout);
    if (has_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

  WholeTerminal(const WholeTerminal&) = delete;
  WholeTerminal& operator=(const WholeTerminal&) = delete;

  static ScreenSize size() {
    winsize window{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_row == 0) return {80, 24};
    return {window.ws_col, window.ws_row};
  }

  static Status show(const std::string& screen) {
    std::string text = "\x1b[H";
    for (const char c : screen) text += c == '\n' ? std::string("\x1b[K\r\n") : std::string(1, c);
    text.resize(text.size() - 2);  // the last line scrolls nothing
    text += "\x1b[J";
    std::fputs(text.c_str(), stdout);
    return io::flush_output();
  }

  /// True if it is to end: q was pressed, the keyboard is gone, or a signal came.
  bool is_ended_within(milliseconds time) const {
    const std::int64_t until = wall_now_ms() + time.count();
    while (g_top_signal == 0) {
      const std::int64_t left = until - wall_now_ms();
      if (left <= 0 || left > time.count()) return false;  // or the clock was set back
      pollfd keys{STDIN_FILENO, POLLIN, 0};
      const int ready = ::poll(&keys, has_keys_ ? 1 : 0, static_cast<int>(left));
      if (ready < 0 && errno != EINTR) return true;
      if (ready < 0) return g_top_signal != 0;  // another size of the terminal: drawn anew
      if (ready == 0) continue;
      char key = 0;
      const ssize_t got = ::read(STDIN_FILENO, &key, 1);
      if (got <= 0 || key == 'q' || key == 'Q') return true;
    }
    return true;
  }

 private:
  termios before_{};
  bool has_keys_;
};

bool is_utf8_terminal() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view text(value);
    for (const char* word : {"UTF-8", "utf-8", "UTF8", "utf8"})
      if (text.find(word) != std::string_view::npos) return true;
    return false;
  }
  return false;
}

/// What is shown, fetched anew.
class Site {
 public:
  explicit Site(const Client& client) : client_(client) {}

  /// On an error what was seen last stays.
  Status refresh() {
    const std::int64_t now = wall_now_ms();
    RN_TRY(const auto nodes, get<api::NodeList>("/v1/nodes"));
    RN_TRY(const auto jobs, get<api::JobList>("/v1/jobs?limit=1000"));
    if (telemetry_ms_ == 0 || now - telemetry_ms_ >= kHistoryEvery_ms || now < telemetry_ms_) {
      const std::string from = std::to_string(now - kTopHistory_ms);
      RN_TRY(telemetry_, get<api::TelemetryList>("/v1/telemetry?from=" + from));
      telemetry_ms_ = now;
    }
    view_ = top_view(nodes, jobs, telemetry_, now);
    return {};
  }

  const TopView& view() const { return view_; }

 private:
  template <class T>
  Result<T> get(const std::string& path) const {
    io::HttpCall call = client_.call("GET", path);
    call.timeout = kTopCallTimeout;
    call.max_body_bytes = 256u << 20;
    call.should_stop = [] { return g_top_signal != 0; };
    const auto reply = io::succeed(io::perform_blocking(call));
    if (!reply) return fail(with_next_step(reply.error(), client_.login().url));
    return from_json<T>(reply->body, Unknown::kLenient);
  }

  const Client& client_;
  TopView view_;
  api::TelemetryList telemetry_;
  std::int64_t telemetry_ms_ = 0;
};

int print_once(Site& site, bool is_json) {
  if (const Status seen = site.refresh(); !seen) return complain(seen.error());
  if (is_json) {
    print_json(to_json(site.view()));
  } else {
    std::fputs(top_screen(site.view(), {}, "", is_utf8_terminal()).c_str(), stdout);
  }
  return 0;
}

/// How it ended: a signal, an error that waiting does not mend, or neither, as asked.
Status show_until_asked(Site& site, const TopOptions& options) {
  const WholeTerminal terminal;
  const bool is_utf8 = is_utf8_terminal();
  Status seen;
  do {
    const std::string status = seen ? "q or Ctrl-C ends"
                                    : seen.error().message +
                                          " (seen last: " + absolute_time(site.view().at_wall_ms) +
                                          "; q or Ctrl-C ends)";
    const std::string screen = top_screen(site.view(), WholeTerminal::size(), status, is_utf8);
    RN_CHECK(WholeTerminal::show(screen));
    if (terminal.is_ended_within(seconds(options.every_s))) return {};
    seen = site.refresh();
    if (g_top_signal != 0) return {};
  } while (seen || is_retryable(seen.error().code));
  return seen;
}

}  // namespace

int top(const Client& client, const TopOptions& options) {
  Site site(client);
  if (options.is_once || options.is_json) {
    g_top_signal = 0;
    return print_once(site, options.is_json);
  }
  if (::isatty(STDOUT_FILENO) != 1)
    return complain(Error{
        ErrorCode::kInvalid,
        "standard output is no terminal",
        "--once prints one screen, --json the same for programs"});
  if (const Status first = site.refresh(); !first) return complain(first.error());
  const NotedSignals signals;
  const Status shown = show_until_asked(site, options);
  if (!shown) return end_of_output(shown.error());
  return g_top_signal == 0 || g_top_signal == SIGINT ? 0 : 128 + g_top_signal;
}

}  // namespace rn::cli
