// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "coordinator/api_answers.h"
#include "coordinator/collector.h"
#include "coordinator/log_times.h"

namespace rn::coordinator {

namespace {

constexpr std::uint64_t kPieceBytes = 128 << 10;
/// A look even if nobody called: covers an attempt whose end changes no job row.
constexpr auto kLookEvery = milliseconds(300);
/// The end of an attempt may be known a little before the rest of its log is here.
constexpr int kQuietLooksAfterEnd = 3;

/// The attempt that ?attempt=N names, or the newest.
Result<Attempt> pick_attempt(const std::vector<Attempt>& attempts, std::uint64_t number) {
  if (attempts.empty()) {
    return fail(
        ErrorCode::kNotFound, "the job has not been placed yet", "'reclaim why JOB' says why"
    );
  }
  if (number == 0) return attempts.back();
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend(); ++attempt) {
    if (attempt->epoch.attempt == number) return *attempt;
  }
  return fail(
      ErrorCode::kNotFound,
      "no attempt " + std::to_string(number) + "; the newest is " +
          std::to_string(attempts.back().epoch.attempt),
      "leave 'attempt' out for the newest one"
  );
}

/// Sends one attempt's log and, when following, what is appended until the attempt has ended.
class LogReader : public std::enable_shared_from_this<LogReader> {
 public:
  LogReader(
      ApiContext& context, Attempt attempt, std::uint64_t offset, std::uint64_t end, bool follows
  )
      : context_(context),
        attempt_(std::move(attempt)),
        offset_(offset),
        end_(end),
        follows_(follows) {}

  void start(const io::Responder& responder) {
    io::HttpResponse head;
    head.headers = {
        {"Content-Type", "application/octet-stream"},
        {"X-Reclaim-Attempt", std::to_string(attempt_.epoch.attempt)}};
    stream_ = std::make_unique<io::ResponseStream>(responder.stream(std::move(head)));
    stream_->on_drained([self = weak_from_this()] {
      if (const auto reader = self.lock()) reader->read_next();
    });
    stream_->on_closed([self = weak_from_this()] {
      if (const auto reader = self.lock()) reader->stop();
    });
    if (follows_) {
      watch_ = context_.shell.watch_job(attempt_.job, [self = weak_from_this()] {
        if (const auto reader = self.lock()) reader->read_next();
      });
    }
    // The timer owns the reader.
    timer_ = context_.loop.run_every(kLookEvery, [self = shared_from_this()] { self->look(); });
    read_next();
  }

 private:
  void look() {
    ++quiet_looks_;
    read_next();
  }

  bool has_ended() const {
    const auto attempts = context_.shell.core().attempts(attempt_.job);
    for (const Attempt& one : attempts) {
      if (one.epoch == attempt_.epoch) return one.state == AttemptState::kEnded;
    }
    return true;
  }

  void read_next() {
    if (is_reading_ || is_done_ || stream_->queued_bytes() > 0) return;
    is_reading_ = true;
    const std::uint64_t most = std::min(kPieceBytes, end_ - std::min(offset_, end_));
    const bool had_ended =
        !follows_ || most == 0 || (has_ended() && quiet_looks_ >= kQuietLooksAfterEnd);
    const Status submitted = context_.workers.submit_for(
        [&logs = context_.logs, attempt = attempt_, offset = offset_, most]() -> Result<Blob> {
          if (most == 0) return Blob{};
          return logs.read(attempt.job, attempt.epoch, offset, most);
        },
        [self = shared_from_this(), had_ended](const Result<Blob>& piece) {
          self->is_reading_ = false;
          self->take(piece, had_ended);
        }
    );
    if (!submitted) is_reading_ = false;  // the timer looks again
    if (!submitted && !follows_) abort();
  }

  void take(const Result<Blob>& piece, bool had_ended) {
    if (is_done_) return;
    if (!piece) return abort();
    if (piece->empty()) {
      if (had_ended) finish();
      return;
    }
    quiet_looks_ = 0;
    const Status written = stream_->write(std::string(as_text(*piece)));
    if (!written) {
      // kExhausted: on_drained reads the same piece again.
      if (written.error().code != ErrorCode::kExhausted) stop();
      return;
    }
    offset_ += piece->size();
    if (stream_->queued_bytes() == 0) read_next();
  }

  void abort() {
    stream_->abort();
    stop();
  }

  void finish() {
    stream_->finish();
    stop();
  }

  void stop() {
    if (is_done_) return;
    is_done_ = true;
    if (follows_) context_.shell.unwatch_job(attempt_.job, watch_);
    // NOTE: later, because the timer's or a stream's callback may be running.
    context_.loop.post([&loop = context_.loop, timer = timer_] { loop.cancel(timer); });
  }

  ApiContext& context_;
  Attempt attempt_;
  std::uint64_t offset_;
  std::uint64_t end_;  ///< nothing from here on
  bool follows_;
  std::unique_ptr<io::ResponseStream> stream_;
  JobWatchId watch_;
  io::TimerId timer_;
  int quiet_looks_ = 0;
  bool is_reading_ = false;
  bool is_done_ = false;
};

void start_reading(
    ApiContext& context,
    const ApiRequest& request,
    const std::vector<Attempt>& attempts,
    bool is_live,
    const io::Responder& responder
) {
  const auto number = query_number(request, "attempt", 0);
  const auto offset = query_number(request, "offset", 0);
  const auto end = query_number(request, "end", std::numeric_limits<std::uint64_t>::max());
  if (!number) return responder.send_error(number.error());
  if (!offset) return responder.send_error(offset.error());
  if (!end) return responder.send_error(end.error());
  auto attempt = pick_attempt(attempts, *number);
  if (!attempt) return responder.send_error(attempt.error());
  const bool follows = is_live && query_flag(request, "follow");
  const auto reader =
      std::make_shared<LogReader>(context, *std::move(attempt), *offset, *end, follows);
  reader->start(responder);
}

/// Both bounds of a time are numbers of the query; not there: none.
Result<LogWanted> wanted_of(const ApiRequest& request) {
  LogWanted wanted;
  RN_TRY(wanted.offset, query_number(request, "offset", 0));
  RN_TRY(wanted.tail, query_number(request, "tail", 0));
  for (const auto& [name, bound] :
       {std::pair("since_ms", &wanted.since_ms), std::pair("until_ms", &wanted.until_ms)}) {
    if (!request.query.contains(name)) continue;
    RN_TRY(const std::uint64_t value, query_number(request, name, 0));
    *bound = static_cast<std::int64_t>(
        std::min<std::uint64_t>(value, std::numeric_limits<std::int64_t>::max())
    );
  }
  return wanted;
}

Result<api::LogRange> find_range(
    AttemptLogs& logs, const Attempt& attempt, const LogWanted& wanted
) {
  RN_TRY(const std::uint64_t size, logs.size(attempt.job, attempt.epoch));
  RN_TRY(const auto times, logs.times(attempt.job, attempt.epoch));
  const auto read = [&](std::uint64_t offset, std::uint64_t max) {
    return logs.read(attempt.job, attempt.epoch, offset, max);
  };
  RN_TRY(api::LogRange range, find_log_range(wanted, size, times, read));
  range.attempt = attempt.epoch.attempt;
  return range;
}

void start_finding(
    ApiContext& context,
    const ApiRequest& request,
    const std::vector<Attempt>& attempts,
    bool /*is_live*/,
    const io::Responder& responder
) {
  const auto number = query_number(request, "attempt", 0);
  if (!number) return responder.send_error(number.error());
  const auto wanted = wanted_of(request);
  if (!wanted) return responder.send_error(wanted.error());
  const auto attempt = pick_attempt(attempts, *number);
  if (!attempt) return responder.send_error(attempt.error());
  on_worker(
      context,
      responder,
      [&logs = context.logs, attempt = *attempt, wanted = *wanted] {
        return find_range(logs, attempt, wanted);
      },
      [&context, responder](const api::LogRange& range) { answer(context, responder, range); }
  );
}

/// What is done with the attempts of a job.
using OnAttempts =
    void (*)(ApiContext&, const ApiRequest&, const std::vector<Attempt>&, bool, const io::Responder&);

void read_log_of(
    ApiContext& context,
    const ApiRequest& request,
    const Job& job,
    bool is_live,
    const io::Responder& responder,
    OnAttempts then
) {
  if (is_live)
    return then(context, request, context.shell.core().attempts(job.id), true, responder);
  on_worker(
      context,
      responder,
      [&store = context.store, id = job.id] { return store.attempts(id); },
      [&context, request, responder, then](const std::vector<Attempt>& attempts) {
        then(context, request, attempts, false, responder);
      }
  );
}

/// An empty answer would say that the job wrote nothing.
Status check_kept(const AttemptLogs& logs, const Job& job) {
  const auto removed = logs.removed_wall_ms(job.id);
  if (!removed) return {};
  return fail(
      ErrorCode::kNotFound,
      "the logs of job " + std::to_string(job.number) + " were removed at " + utc_text(*removed) +
          ": it ended at " + utc_text(job.finished_wall_ms),
      "the operator can keep logs longer: keep_ended_s of the coordinator (--keep-ended-s)"
  );
}

void with_log(
    ApiContext& context, const ApiRequest& request, const io::Responder& responder, OnAttempts then
) {
  // NOTE: copied, because with_job may answer after this frame is gone.
  with_job(
      context,
      request,
      responder,
      [&context, request, responder, then](const Job& job, bool is_live) {
        if (!is_terminal(job.state))
          return read_log_of(context, request, job, is_live, responder, then);
        on_worker(
            context,
            responder,
            [&logs = context.logs, job] { return check_kept(logs, job); },
            [&context, request, job, is_live, responder, then] {
              read_log_of(context, request, job, is_live, responder, then);
            }
        );
      }
  );
}

}  // namespace

void stream_log(ApiContext& context, ApiRequest request, io::Responder responder) {
  with_log(context, request, responder, start_reading);
}

void find_in_log(ApiContext& context, ApiRequest request, io::Responder responder) {
  with_log(context, request, responder, start_finding);
}

}  // namespace rn::coordinator
