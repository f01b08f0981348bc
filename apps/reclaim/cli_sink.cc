// SPDX-License-Identifier: Apache-2.0
#include "cli_sink.h"

#include <algorithm>
#include <cerrno>

#include <poll.h>
#include <unistd.h>

#include "io/errno_error.h"

namespace rn::cli {

namespace {

/// A pipe or a terminal that can be written to takes so much at once.
constexpr std::size_t kSinkPieceBytes = 4096;

}  // namespace

bool OutputSink::take(BlobView bytes) {
  if (!flush()) return false;
  if (!status_) return true;  // it is lost, as all that follows
  waiting_ = shown_ ? shown_->take(as_text(bytes)) : std::string(as_text(bytes));
  (void)flush();
  return true;
}

bool OutputSink::flush() {
  std::size_t done = 0;
  while (done < waiting_.size() && status_) {
    pollfd ready{fd_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) break;
    const std::size_t size = std::min(waiting_.size() - done, kSinkPieceBytes);
    const ssize_t wrote = ::write(fd_, waiting_.data() + done, size);
    if (wrote < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (wrote < 0) {
      status_ = errno == EPIPE ? fail(ErrorCode::kUnavailable, "nobody reads its output any more")
                               : fail(io::error_from_errno(errno, "writing its output"));
      waiting_.clear();
      return true;
    }
    done += static_cast<std::size_t>(wrote);
  }
  waiting_.erase(0, done);
  return waiting_.empty();
}

void OutputSink::finish() {
  if (shown_ && status_) waiting_ += shown_->finish();
}

}  // namespace rn::cli
