// SPDX-License-Identifier: Apache-2.0
#include "cli_copy.h"

#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "cli_commands.h"
#include "cli_print.h"
#include "cli_tree.h"
#include "cli_visit.h"

#include "base/printable.h"
#include "io/loop.h"
#include "model/visit.h"

namespace rn::cli {

namespace {

constexpr const char* kCopyExample =
    "for example reclaim cp 7:model.pt . or reclaim cp x.py 7:/tmp/";
constexpr std::size_t kGuestWordsMax = 2000;
constexpr int kPartlyCopied = 5;

bool runs_now(const Job& job) {
  return job.state == JobState::kRunning || job.state == JobState::kNoticed;
}

/// What our exit codes mean, when a guest's side of a copy ended with one.
ErrorCode code_of_copy(int exit_code) {
  if (exit_code == 3) return ErrorCode::kNotFound;
  if (exit_code == 4) return ErrorCode::kDenied;
  if (exit_code == 5) return ErrorCode::kConflict;
  if (exit_code == 8) return ErrorCode::kExhausted;
  return ErrorCode::kInternal;
}

/// The last step of a guest's path; empty for "", "x/", "." and "..".
std::string last_step_of(const std::string& path) {
  const std::string step = path.substr(path.rfind('/') + 1);
  return step == "." || step == ".." ? "" : step;
}

/// One copy, either way.
class Copy {
 public:
  Copy(const Client& client, const Job& job, const std::string& path)
      : client_(client), job_(job), path_(path.empty() ? "." : path) {}

  int bring(const std::string& to) {
    writer_ = std::make_unique<TreeWriter>(to, last_step_of(path_));
    return run(visit::Frame::kSend);
  }

  int send(const std::string& from) {
    auto reader = TreeReader::open(from);
    if (!reader) return complain(reader.error());
    reader_.emplace(*std::move(reader));
    return run(visit::Frame::kTake);
  }

 private:
  int run(visit::Frame what) {
    if (path_.size() > visit::kPathMax || path_.find('\0') != std::string::npos)
      return complain(Error{ErrorCode::kInvalid, "the path is longer than 4095 bytes", kCopyExample}
      );
    const Status signals =
        loop_.on_signal({SIGINT, SIGTERM, SIGHUP}, [this](int) { loop_.stop(); });
    if (!signals) return complain(signals.error());
    Visit::Events events;
    events.opened = [this, what] { visit_->say(what, as_bytes(path_)); };
    events.said = [this](visit::Frame frame, BlobView bytes) {
      hear(frame, bytes);
      return true;
    };
    events.has_room = [this] { send_some(); };
    events.over = [this](const Result<int>& code) {
      result_ = code;
      loop_.stop();
    };
    visit_ = std::make_shared<Visit>(loop_, std::move(events));
    visit_->start(client_, job_.id);
    loop_.run();
    visit_->stop();
    loop_.poll();
    return answer();
  }

  void hear(visit::Frame frame, BlobView bytes) {
    if (frame == visit::Frame::kErrors) {
      if (words_.size() < kGuestWordsMax) words_ += as_text(bytes);
      return;
    }
    if (!writer_ || error_) return;
    const Status taken = writer_->take(bytes);
    if (taken) return;
    error_ = taken.error();
    loop_.stop();
  }

  void send_some() {
    while (reader_ && !has_sent_all_ && visit_->room() > 0) {
      const Blob bytes = reader_->next(visit_->room());
      has_sent_all_ = bytes.empty();
      if (has_sent_all_) return visit_->say(visit::Frame::kInputEnd, {});
      visit_->say_input(bytes);
    }
  }

  int answer() const {
    if (error_) return complain(*error_);
    if (!result_) {
      std::fprintf(stderr, "interrupted: what was copied whole is there\n");
      return kInterruptedStatus;
    }
    const std::string number = std::to_string(job_.number);
    if (!*result_)
      return complain(result_->error().hinting(
          "files that were copied whole are there; `reclaim why " + number +
          "` says where the job is, copy again when it runs"
      ));
    if (const int code = **result_; code != 0)
      return complain(Error{
          code_of_copy(code),
          "job " + number + ": " + (words_.empty() ? "the copy ended there" : words_),
          "paths are the job's own, from its folder: reclaim exec " + number + " -- ls -la"});
    if (writer_) {
      if (const Status whole = writer_->finish(); !whole) return complain(whole.error());
    }
    return tell_left_out(writer_ ? writer_->left_out() : reader_->left_out());
  }

  static int tell_left_out(const LeftOut& left_out) {
    if (left_out.is_empty()) return 0;
    for (const std::string& one : left_out.named)
      std::fprintf(stderr, "left out: %s\n", printable(one).c_str());
    if (left_out.more > 0) std::fprintf(stderr, "left out: %zu more\n", left_out.more);
    return kPartlyCopied;
  }

  const Client& client_;
  const Job& job_;
  const std::string path_;
  io::Loop loop_;
  std::shared_ptr<Visit> visit_;
  std::unique_ptr<TreeWriter> writer_;  ///< of a copy from there
  std::optional<TreeReader> reader_;    ///< of one to there
  bool has_sent_all_ = false;
  std::string words_;
  std::optional<Error> error_;
  std::optional<Result<int>> result_;
};

int copy_from_guest(const Client& client, const CopySide& from, const std::string& to) {
  const auto job = job_of_word(client, from.job);
  if (!job) return complain(job.error());
  if (runs_now(*job)) return Copy(client, *job, from.path).bring(to);
  return copy(client, job->id.str() + ":" + from.path, to);
}

int copy_to_guest(const Client& client, const std::string& from, const CopySide& to) {
  const auto job = job_of_word(client, to.job);
  if (!job) return complain(job.error());
  const std::string number = std::to_string(job->number);
  if (!runs_now(*job))
    return complain(Error{
        ErrorCode::kConflict,
        "job " + number + " does not run now: " + std::string(to_string(job->state)),
        "only what runs takes files; `reclaim why " + number + "` says what it waits for"});
  return Copy(client, *job, to.path).send(from);
}

}  // namespace

Result<CopySide> copy_side(const std::string& text) {
  const std::size_t colon = text.find(':');
  const bool is_here = colon == std::string::npos || text.starts_with('/') || text.starts_with('.');
  if (is_here) return CopySide{{}, text};
  CopySide side{text.substr(0, colon), text.substr(colon + 1)};
  const std::string wrong = side.job.empty() ? "which job?" : task_word(side.job);
  if (wrong.empty()) return side;
  return fail(ErrorCode::kInvalid, "'" + text + "' is not JOB:path: " + wrong, kCopyExample);
}

int copy_command(const Client& client, const std::string& from, const std::string& to) {
  const auto source = copy_side(from);
  if (!source) return complain(source.error());
  const auto target = copy_side(to);
  if (!target) return complain(target.error());
  if (source->job.empty() == target->job.empty())
    return complain(
        source->job.empty()
            ? Error{ErrorCode::kInvalid, "'" + from + "' is not JOB:path", kCopyExample}
            : Error{
                  ErrorCode::kInvalid,
                  "both are paths of jobs",
                  "copy to a folder here first, and from there on"}
    );
  if (target->job.empty()) return copy_from_guest(client, *source, target->path);
  return copy_to_guest(client, from, *target);
}

}  // namespace rn::cli
