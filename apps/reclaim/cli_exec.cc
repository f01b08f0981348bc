// SPDX-License-Identifier: Apache-2.0
#include "cli_exec.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "cli_print.h"
#include "cli_sink.h"
#include "cli_visit.h"
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "io/loop.h"
#include "io/standard_output.h"
#include "model/visit.h"

namespace rn::cli {

namespace {

constexpr milliseconds kWrittenLook{10};  ///< while nobody reads the output
constexpr seconds kAliveEvery{300};
constexpr int kInterruptsToLeave = 3;
constexpr std::uint16_t kRowsByDefault = 24;
constexpr std::uint16_t kColumnsByDefault = 80;

/// Keys come as they are pressed; as it was before at the end.
class RawTerminal {
 public:
  RawTerminal() : is_one_(::tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!is_one_) return;
    termios raw = before_;
    ::cfmakeraw(&raw);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }

  ~RawTerminal() {
    if (is_one_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }

  bool is_one() const { return is_one_; }

  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  termios before_{};
  bool is_one_;
};

ExecTerminal terminal_here() {
  ExecTerminal terminal{true, kRowsByDefault, kColumnsByDefault, {}};
  winsize window{};
  const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_row > 0;
  if (is_known) {
    terminal.rows = window.ws_row;
    terminal.columns = window.ws_col;
  }
  if (const char* type = std::getenv("TERM"); type != nullptr) terminal.type = type;
  return terminal;
}

Blob size_frame(const ExecTerminal& terminal) {
  Blob body(4);
  visit::write_u16(body.data(), terminal.rows);
  visit::write_u16(body.data() + 2, terminal.columns);
  return body;
}

/// One run of a command: what goes between it and the standard files here.
class Exec {
 public:
  Exec(const Client& client, const ExecOptions& options)
      : client_(client),
        options_(options),
        is_terminal_(wants_terminal(options)),
        passes_input_(options.passes_input || is_terminal_),
        output_(STDOUT_FILENO, !is_terminal_ && ::isatty(STDOUT_FILENO) == 1),
        errors_(STDERR_FILENO, !is_terminal_ && ::isatty(STDERR_FILENO) == 1) {}

  int run() {
    const ExecTerminal terminal = is_terminal_ ? terminal_here() : ExecTerminal{};
    auto wanted = run_frame(options_.command, terminal, passes_input_);
    if (!wanted) return complain_here(wanted.error());
    const auto job = job_of_word(client_, options_.job);
    if (!job) return complain_here(job.error());
    number_ = std::to_string(job->number);
    const Status signals = loop_.on_signal(
        {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGWINCH}, [this](int signal) { on_signal(signal); }
    );
    if (!signals) return complain_here(signals.error());
    wanted_ = *std::move(wanted);
    visit_ = std::make_shared<Visit>(loop_, events());
    visit_->start(client_, job->id);
    loop_.run_every(kAliveEvery, [this] { visit_->say(visit::Frame::kAlive, {}); });
    loop_.run();
    visit_->stop();
    loop_.poll();
    raw_.reset();
    return answer();
  }

 private:
  static bool wants_terminal(const ExecOptions& options) {
    if (options.refuses_terminal) return false;
    if (options.wants_terminal) return true;
    return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  }

  static int complain_here(const Error& error) {
    complain(error);
    return kExecFailed;
  }

  Visit::Events events() {
    Visit::Events events;
    events.opened = [this] { begin(); };
    events.said = [this](visit::Frame frame, BlobView bytes) {
      const bool is_taken = (frame == visit::Frame::kOutput ? output_ : errors_).take(bytes);
      look_at_output();
      return is_taken;
    };
    events.has_room = [this] { want_input(); };
    events.over = [this](const Result<int>& code) {
      result_ = code;
      output_.finish();
      errors_.finish();
      look_at_output();
    };
    return events;
  }

  void begin() {
    visit_->say(visit::Frame::kRun, wanted_);
    if (is_terminal_) raw_.emplace();
    has_begun_ = true;
    if (!options_.began) return;
    options_.began([this](int signal) { loop_.post([this, signal] { on_signal(signal); }); });
  }

  // ---- output

  /// Written, or written a little later; the end waits for it.
  void look_at_output() {
    const bool is_written = output_.flush();
    const bool are_errors_written = errors_.flush();
    if (!output_.status() || (result_ && is_written && are_errors_written)) return loop_.stop();
    if ((is_written && are_errors_written) || is_looking_) return;
    is_looking_ = true;
    loop_.run_after(kWrittenLook, [this] {
      is_looking_ = false;
      look_at_output();
      visit_->resume();
    });
  }

  // ---- input

  void want_input() {
    if (!passes_input_ || has_input_ended_ || is_watching_) return;
    if (!is_file_) {
      const auto watch = loop_.watch_readable(STDIN_FILENO, [this] { (void)read_input(); });
      if (watch) {
        watch_ = *watch;
        is_watching_ = true;
        return;
      }
      is_file_ = true;  // or a device that never lets anybody wait
    }
    while (!has_input_ended_ && read_input()) {
    }
  }

  void stop_watching() {
    if (std::exchange(is_watching_, false)) loop_.unwatch(watch_);
  }

  /// False: there is no room for more, or nothing is there.
  bool read_input() {
    const std::size_t room = visit_->room();
    if (room < 2) {
      stop_watching();
      return false;
    }
    std::array<char, visit::kBodyMax> bytes;
    // One less: a "~" that was kept back before may come, too.
    const std::size_t most = std::min(room - 1, bytes.size());
    const ssize_t got = ::read(STDIN_FILENO, bytes.data(), most);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      has_input_ended_ = true;
      stop_watching();
      visit_->say(visit::Frame::kInputEnd, {});
      return false;
    }
    pass_input({bytes.data(), static_cast<std::size_t>(got)});
    return true;
  }

  void pass_input(std::string_view bytes) {
    if (!raw_ || !raw_->is_one()) return visit_->say_input(as_bytes(bytes));
    const std::string keys = keys_.take(bytes);
    if (!keys.empty()) visit_->say_input(as_bytes(keys));
    if (keys_.leaves()) leave(kExecFailed, "left; the command is ended in the job\r\n");
  }

  // ---- signals

  void on_signal(int signal) {
    if (signal == SIGWINCH) {
      if (is_terminal_ && has_begun_) visit_->say(visit::Frame::kSize, size_frame(terminal_here()));
      return;
    }
    const bool is_passed_on = has_begun_ && !is_terminal_ && signal != SIGHUP;
    if (!is_passed_on || ++interrupts_ >= kInterruptsToLeave)
      return leave(128 + signal, "left; the command is ended in the job\n");
    const auto number = static_cast<std::uint8_t>(signal);
    visit_->say(visit::Frame::kSignal, BlobView(&number, 1));
  }

  void leave(int code, const char* words) {
    if (left_) return;
    left_ = code;
    if (has_begun_) std::fputs(words, stderr);
    loop_.stop();
  }

  // ---- the end

  int answer() const {
    if (left_) return *left_;
    if (!output_.status()) {
      end_of_output(output_.status().error());
      const bool is_reader_gone = output_.status().error().code == ErrorCode::kUnavailable;
      return is_reader_gone ? io::kReaderGone : kExecFailed;
    }
    if (!result_) return kExecFailed;
    if (*result_) return **result_;
    return complain_here(result_->error().hinting(
        "what it ran has ended with it, or is ended in 5 s; `reclaim why " + number_ +
        "` says where the job is, and exec works when it runs"
    ));
  }

  const Client& client_;
  const ExecOptions& options_;
  const bool is_terminal_;
  const bool passes_input_;
  io::Loop loop_;
  OutputSink output_;
  OutputSink errors_;
  std::shared_ptr<Visit> visit_;
  Blob wanted_;
  std::string number_;
  std::optional<RawTerminal> raw_;
  TerminalKeys keys_;
  io::WatchId watch_;
  bool is_watching_ = false;
  bool is_file_ = false;
  bool has_input_ended_ = false;
  bool has_begun_ = false;
  bool is_looking_ = false;
  int interrupts_ = 0;
  std::optional<int> left_;
  std::optional<Result<int>> result_;
};

}  // namespace

std::string TerminalKeys::take(std::string_view keys) {
  std::string passed;
  for (const char key : keys) {
    if (std::exchange(has_tilde_, false)) {
      if (key == '.') {
        leaves_ = true;
        return passed;
      }
      passed += '~';
      is_at_line_start_ = false;
      if (key == '~') continue;
    } else if (key == '~' && is_at_line_start_) {
      has_tilde_ = true;
      continue;
    }
    passed += key;
    is_at_line_start_ = key == '\r' || key == '\n';
  }
  return passed;
}

Result<Blob> run_frame(
    const std::vector<std::string>& command, const ExecTerminal& terminal, bool passes_input
) {
  if (command.empty() || command.front().empty())
    return fail(
        ErrorCode::kInvalid, "the command is empty", "say it after --: reclaim exec 7 -- ls -l"
    );
  Blob body(visit::Run::kFixed);
  body[0] = static_cast<std::uint8_t>(
      (terminal.is_there ? visit::Run::kTerminal : 0) | (passes_input ? visit::Run::kInput : 0)
  );
  visit::write_u16(body.data() + 1, terminal.rows);
  visit::write_u16(body.data() + 3, terminal.columns);
  const auto add = [&](const std::string& word) {
    body.insert(body.end(), word.begin(), word.end());
    body.push_back(0);
  };
  add(terminal.type);
  for (const std::string& word : command) add(word);
  if (body.size() <= visit::kBodyMax && command.size() <= std::size_t{visit::kWordsMax})
    return body;
  return fail(
      ErrorCode::kInvalid,
      "the command is longer than 16 KiB, or than 512 words",
      "copy a script there, and run that: reclaim cp run.sh JOB:/tmp/"
  );
}

int exec_command(const Client& client, const ExecOptions& options) {
  return Exec(client, options).run();
}

}  // namespace rn::cli
