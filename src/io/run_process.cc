// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "io/errno_error.h"
#include "io/fd.h"
#include "io/net.h"
#include "io/pipe.h"
#include "io/subprocess.h"

namespace rn::io {
namespace {

constexpr std::size_t kTailBytes = 400;

void make_non_blocking(const Fd& fd) {
  (void)fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

std::string tail_of(const std::string& text) {
  const std::size_t start = text.size() > kTailBytes ? text.size() - kTailBytes : 0;
  std::string tail = text.substr(start);
  while (!tail.empty() && tail.back() == '\n') tail.pop_back();
  return tail;
}

/// Moves bytes between us and the child until its output ends.
class Exchange {
 public:
  Exchange(Fd to_child, Fd out, Fd err, std::string_view input, std::size_t max)
      : to_child_(std::move(to_child)),
        sources_{std::move(out), std::move(err)},
        input_(input),
        max_(max) {
    make_non_blocking(to_child_);
    for (const Fd& source : sources_) make_non_blocking(source);
    if (input_.empty()) to_child_.reset();
  }

  bool is_over() const { return !sources_[0] && !sources_[1]; }

  /// False: the deadline is over.
  bool step(const Deadline& deadline, RunOutput& output) {
    std::array<pollfd, 3> all = {
        pollfd{to_child_.get(), POLLOUT, 0},
        pollfd{sources_[0].get(), POLLIN, 0},
        pollfd{sources_[1].get(), POLLIN, 0}};
    const int ready = poll(all.data(), all.size(), deadline.remaining_ms());
    if (ready == 0) return false;
    if (all[0].revents != 0) feed();
    if (all[1].revents != 0) drain(sources_[0], output.out, output);
    if (all[2].revents != 0) drain(sources_[1], output.err, output);
    return true;
  }

 private:
  void feed() {
    const ssize_t put = write(to_child_.get(), input_.data(), input_.size());
    if (put < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (put > 0) input_.remove_prefix(static_cast<std::size_t>(put));
    if (put < 0 || input_.empty()) to_child_.reset();  // EPIPE: the child does not want the rest
  }

  void drain(Fd& source, std::string& into, RunOutput& output) const {
    std::array<char, 16384> piece{};
    const ssize_t got = read(source.get(), piece.data(), piece.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      source.reset();
      return;
    }
    const auto size = static_cast<std::size_t>(got);
    const std::size_t taken = std::min(size, max_ - std::min(max_, into.size()));
    into.append(piece.data(), taken);
    if (taken < size) output.is_truncated = true;
  }

  Fd to_child_;
  std::array<Fd, 2> sources_;
  std::string_view input_;
  std::size_t max_;
};

Error timed_out(const std::string& program, const RunOutput& output) {
  Error error{ErrorCode::kTimeout, program + " took too long and was killed", {}};
  const std::string& last = output.err.empty() ? output.out : output.err;
  if (!last.empty()) error.message += "; its last output: " + tail_of(last);
  return error;
}

}  // namespace

Result<RunOutput> run_process(
    SpawnOptions options,
    milliseconds timeout,
    const std::string& input,
    std::size_t max_output_bytes
) {
  (void)std::signal(SIGPIPE, SIG_IGN);  // NOLINT(concurrency-mt-unsafe): idempotent
  const Deadline deadline(timeout);
  RN_TRY(Pipe in, make_pipe());
  RN_TRY(Pipe out, make_pipe());
  RN_TRY(Pipe err, make_pipe());
  options.new_session = true;
  options.fds.insert(
      options.fds.end(), {{in.read.get(), 0}, {out.write.get(), 1}, {err.write.get(), 2}}
  );
  const std::string program = options.argv.empty() ? "" : options.argv.front();
  RN_TRY(Subprocess child, Subprocess::spawn(options));
  in.read.reset();
  out.write.reset();
  err.write.reset();

  RunOutput output;
  Exchange exchange(
      std::move(in.write), std::move(out.read), std::move(err.read), input, max_output_bytes
  );
  while (!exchange.is_over()) {
    if (!exchange.step(deadline, output)) return fail(timed_out(program, output));
  }
  auto status = child.wait(milliseconds(deadline.remaining_ms()));
  if (!status && status.error().code == ErrorCode::kTimeout)
    return fail(timed_out(program, output));
  RN_TRY(output.status, std::move(status));
  return output;
}

Result<std::string> run_for_output(const std::vector<std::string>& argv, milliseconds timeout) {
  SpawnOptions options;
  options.argv = argv;
  RN_TRY(RunOutput output, run_process(std::move(options), timeout));
  if (output.status.is_success()) return std::move(output.out);
  std::string command;
  for (const std::string& word : argv) command += (command.empty() ? "" : " ") + word;
  const std::string how = output.status.signal != 0
                              ? "was killed by signal " + std::to_string(output.status.signal)
                              : "failed with " + std::to_string(output.status.code);
  return fail(ErrorCode::kInternal, "'" + command + "' " + how + ": " + tail_of(output.err));
}

}  // namespace rn::io
