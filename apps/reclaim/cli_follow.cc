// SPDX-License-Identifier: Apache-2.0
#include "cli_follow.h"

#include <csignal>
#include <cstdio>
#include <map>
#include <optional>

#include "cli_log_output.h"

#include "base/printable.h"
#include "io/loop.h"
#include "io/standard_output.h"

namespace rn::cli {

namespace {

constexpr auto kPollEvery = milliseconds(500);
constexpr int kMaxMisses = 600;  ///< five minutes without the coordinator

/// The job's row is polled; one log call at a time is open, for the oldest attempt whose log was
/// not read to its end.
class Follower {
 public:
  Follower(const Client& client, const FollowOptions& options)
      : client_(client), options_(options), calls_(loop_, 8) {
    offsets_[options_.from_attempt] = options_.from_offset;
  }

  Result<Followed> run() {
    const Status signals = loop_.on_signal({SIGINT}, [this](int) {
      result_.was_interrupted = true;
      loop_.stop();
    });
    if (!signals) return fail(signals.error());
    loop_.post([this] { poll(); });
    loop_.run();
    if (error_) return fail(with_next_step(*error_, client_.login().url));
    return std::move(result_);
  }

 private:
  std::string path(const std::string& rest) const {
    return "/v1/jobs/" + options_.job.str() + rest;
  }

  /// Nobody can see any more what the job says.
  void give_up(const Status& output) {
    result_.output = output;
    loop_.stop();
  }

  void poll() {
    if (io::has_output_lost_its_reader())
      return give_up(fail(ErrorCode::kUnavailable, "nobody reads standard output any more"));
    calls_.perform(client_.call("GET", path("")), [this](Result<io::HttpReply> reply) {
      auto good = io::succeed(std::move(reply));
      auto job =
          good ? from_json<Job>(good->body, Unknown::kLenient) : Result<Job>(fail(good.error()));
      if (job) {
        misses_ = 0;
        take_job(*std::move(job));
      } else if (!is_retryable(job.error().code) || ++misses_ > kMaxMisses) {
        error_ = job.error();
        return loop_.stop();
      } else if (misses_ == 1) {
        std::fprintf(stderr, "the coordinator does not answer; waiting for it ...\n");
      }
      loop_.run_after(kPollEvery, [this] { poll(); });
    });
  }

  void take_job(Job job) {
    const bool is_news = job.state != result_.job.state || job.node != result_.job.node ||
                         job.reason != result_.job.reason;
    result_.job = std::move(job);
    if (is_news && options_.tells_states) {
      const bool tells_node = options_.tells_nodes && !result_.job.node.empty();
      std::fprintf(
          stderr,
          "[%s] %s%s%s%s%s\n",
          printable(result_.job.id.str()).c_str(),
          std::string(to_string(result_.job.state)).c_str(),
          tells_node ? " on " : "",
          tells_node ? printable(result_.job.node.str()).c_str() : "",
          result_.job.reason.empty() ? "" : ": ",
          printable(result_.job.reason).c_str()
      );
    }
    if (!is_reading_) look_at_attempts();
  }

  void look_at_attempts() {
    if (result_.job.epoch.is_none()) return finish_if_over();
    is_reading_ = true;
    calls_.perform(client_.call("GET", path("/attempts")), [this](Result<io::HttpReply> reply) {
      is_reading_ = false;
      auto good = io::succeed(std::move(reply));
      if (!good) return;  // the next poll comes
      const auto list = from_json<api::AttemptList>(good->body, Unknown::kLenient);
      if (!list) return;
      for (const Attempt& attempt : list->attempts) {
        const std::uint32_t number = attempt.epoch.attempt;
        if (options_.attempt != 0 && number != options_.attempt) continue;
        if (ended_.contains(number) || number < options_.from_attempt) continue;
        return read_log(number, attempt.state == AttemptState::kEnded);
      }
      finish_if_over();
    });
  }

  void read_log(std::uint32_t attempt, bool has_ended) {
    is_reading_ = true;
    std::uint64_t& offset = offsets_[attempt];
    io::HttpCall call = client_.call(
        "GET",
        path(
            "/logs?follow=1&attempt=" + std::to_string(attempt) +
            "&offset=" + std::to_string(offset)
        )
    );
    call.timeout = milliseconds(0);
    call.on_data = [this, &offset](BlobView bytes) -> Status {
      offset += bytes.size();
      const Status written = output_.write(bytes);
      if (!written) give_up(written);
      return written;
    };
    calls_.perform(std::move(call), [this, attempt, has_ended](Result<io::HttpReply> reply) {
      is_reading_ = false;
      const auto good = io::succeed(std::move(reply));
      if (!result_.output) return;
      // The server ends the stream of an ended attempt only; a broken one is taken up again.
      if (good) {
        ended_[attempt] = true;
        if (const Status finished = output_.finish(); !finished) return give_up(finished);
      } else if (!is_retryable(good.error().code) && has_ended) {
        ended_[attempt] = true;
        std::fprintf(
            stderr, "the log of attempt %u: %s\n", attempt, printable(good.error().message).c_str()
        );
      }
      finish_if_over();
    });
  }

  void finish_if_over() {
    const bool is_one_read = options_.attempt != 0 && ended_.contains(options_.attempt);
    const bool are_all_read =
        result_.job.epoch.is_none() || ended_.contains(result_.job.epoch.attempt);
    if (is_one_read || (is_terminal(result_.job.state) && are_all_read)) loop_.stop();
  }

  const Client& client_;
  FollowOptions options_;
  io::Loop loop_;
  io::HttpClient calls_;
  LogOutput output_;
  Followed result_;
  std::optional<Error> error_;
  std::map<std::uint32_t, std::uint64_t> offsets_;
  std::map<std::uint32_t, bool> ended_;
  bool is_reading_ = false;
  int misses_ = 0;
};

}  // namespace

Result<Followed> follow_job(const Client& client, const FollowOptions& options) {
  return Follower(client, options).run();
}

}  // namespace rn::cli
