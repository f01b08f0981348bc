// SPDX-License-Identifier: Apache-2.0
#include "cli_client.h"

#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "io/http_error.h"

namespace rn::cli {

namespace {

constexpr int kSubmitTries = 20;
constexpr int kUploadTries = 6;

}  // namespace

Error with_next_step(Error error, const std::string& url) {
  switch (error.code) {
    case ErrorCode::kUnavailable:
      return error.hinting("check that the coordinator runs: curl -k " + url + "/healthz");
    case ErrorCode::kTimeout:
      return error.hinting("repeat the command; it may have been carried out already");
    case ErrorCode::kDenied:
      return error.hinting("log in again: reclaim login " + url + " --token T");
    case ErrorCode::kExhausted:
      return error.hinting("wait a little, or ask an operator for more room");
    case ErrorCode::kInternal:
    case ErrorCode::kCorrupt:
      return error.hinting("look at the coordinator's log");
    case ErrorCode::kUnsupported:
      return error.hinting("compare 'reclaim --version' with " + url + "/version");
    case ErrorCode::kInvalid:
    case ErrorCode::kNotFound:
    case ErrorCode::kConflict:
      return error.hinting("see 'reclaim --help'");
  }
  return error;
}

io::HttpCall Client::call(const std::string& method, const std::string& path, std::string body)
    const {
  io::HttpCall call;
  call.method = method;
  call.url = login_.url + path;
  call.headers = {{"Authorization", "Bearer " + login_.token}};
  call.body = std::move(body);
  io::TlsConfig tls;
  tls.ca_fingerprint = login_.ca_fingerprint;
  tls.expected_peer = "spiffe://reclaimnet/coordinator";
  call.tls = std::move(tls);
  return call;
}

Result<std::string> Client::get(const std::string& path) const {
  return send("GET", path, {});
}

Result<std::string> Client::send(
    const std::string& method, const std::string& path, const std::string& body
) const {
  auto reply = io::succeed(io::perform_blocking(call(method, path, body)));
  if (!reply) return fail(with_next_step(reply.error(), login_.url));
  return std::move(reply->body);
}

Result<api::SubmitAnswer> Client::submit(const JobSpec& spec, const std::string& key) const {
  RN_TRY(const std::string answer, submit_to("/v1/jobs", to_json(spec), key));
  return from_json<api::SubmitAnswer>(answer, Unknown::kLenient);
}

Result<api::ArrayAnswer> Client::submit(const api::ArrayRequest& array, const std::string& key)
    const {
  RN_TRY(const std::string answer, submit_to("/v1/arrays", to_json(array), key));
  return from_json<api::ArrayAnswer>(answer, Unknown::kLenient);
}

Result<std::string> Client::submit_to(
    const std::string& path, const std::string& body, const std::string& key
) const {
  Error last;
  for (int tries = 0; tries < kSubmitTries; ++tries) {
    io::HttpCall one = call("POST", path, body);
    one.headers.emplace_back("Idempotency-Key", key);
    auto reply = io::succeed(io::perform_blocking(one));
    if (reply) return std::move(reply->body);
    last = reply.error();
    if (last.code != ErrorCode::kUnavailable && last.code != ErrorCode::kTimeout) break;
    if (tries == 0)
      std::fprintf(stderr, "the coordinator does not answer; repeating the submit ...\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  return fail(with_next_step(last, login_.url));
}

namespace {

/// One pass of perform_many on its own loop.
class Batch {
 public:
  using Next = std::function<Result<bool>(io::HttpCall&, std::uint64_t&)>;
  using Done = std::function<Status(std::uint64_t, const io::HttpReply&)>;
  using Failed = std::function<Status(const Error&)>;

  Batch(std::size_t parallel, const Next& next, const Done& done, const Failed& failed)
      : client_(loop_, parallel), parallel_(parallel), next_(next), done_(done), failed_(failed) {}

  Status run() {
    loop_.post([this] { fill(); });
    loop_.run();
    return status_;
  }

 private:
  void fill() {
    while (status_ && !is_at_end_ && active_ < parallel_) {
      io::HttpCall call;
      std::uint64_t tag = 0;
      const auto more = next_(call, tag);
      if (!more) {
        status_ = fail(more.error());
      } else if (!*more) {
        is_at_end_ = true;
      } else {
        start(std::move(call), tag, 0);
      }
    }
    if (active_ == 0 && (is_at_end_ || !status_)) loop_.stop();
  }

  void start(io::HttpCall call, std::uint64_t tag, int tries) {
    ++active_;
    const io::HttpCall again = call;
    client_.perform(std::move(call), [this, again, tag, tries](Result<io::HttpReply> reply) {
      --active_;
      finish(io::succeed(std::move(reply)), again, tag, tries);
    });
  }

  void finish(
      const Result<io::HttpReply>& reply, const io::HttpCall& call, std::uint64_t tag, int tries
  ) {
    const bool may_repeat = !reply && tries < kUploadTries && status_ &&
                            (reply.error().code == ErrorCode::kUnavailable ||
                             reply.error().code == ErrorCode::kTimeout);
    if (may_repeat) {
      ++active_;
      loop_.run_after(milliseconds(200 << tries), [this, call, tag, tries] {
        --active_;
        start(call, tag, tries + 1);
      });
      return;
    }
    const Status taken = reply     ? done_(tag, *reply)
                         : failed_ ? failed_(reply.error())
                                   : Status(fail(reply.error()));
    if (status_) status_ = taken;
    fill();
  }

  io::Loop loop_;
  io::HttpClient client_;
  std::size_t parallel_;
  const Next& next_;
  const Done& done_;
  const Failed& failed_;
  std::size_t active_ = 0;
  bool is_at_end_ = false;
  Status status_;
};

}  // namespace

Status perform_many(
    std::size_t parallel,
    const std::function<Result<bool>(io::HttpCall& call, std::uint64_t& tag)>& next,
    const std::function<Status(std::uint64_t tag, const io::HttpReply& reply)>& done,
    const std::function<Status(const Error& error)>& failed
) {
  return Batch(parallel, next, done, failed).run();
}

}  // namespace rn::cli
