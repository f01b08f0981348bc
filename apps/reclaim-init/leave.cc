// SPDX-License-Identifier: Apache-2.0
#include "leave.h"

#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rn::init {

namespace {

constexpr const char* kLeave = "/reclaim/leave";
constexpr const char* kLeaveTemporary = "/reclaim/.leave.new";
constexpr std::int64_t kAnswerMs = 500;
constexpr std::int64_t kKillWaitMs = 30'000;  ///< of slurm.conf(5), as it is if nobody sets it

}  // namespace

bool ask_to_leave(int code) {
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const int fd = open(kLeaveTemporary, flags, 0644);
  if (fd < 0) return false;
  const bool is_written = dprintf(fd, "%d\n", code) > 0;
  close(fd);
  return is_written && rename(kLeaveTemporary, kLeave) == 0;
}

int asked_to_leave() {
  const int fd = open(kLeave, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return 0;

  struct stat about {};

  char said[8] = "";
  const bool is_word = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
  const ssize_t size = is_word ? read(fd, said, sizeof said - 1) : 0;
  close(fd);
  if (size <= 0) return 0;
  const long code = strtol(said, nullptr, 10);
  return code == kQueueAgain || code == kCancelled ? static_cast<int>(code) : 0;
}

void Leaving::begin() {
  unlink(kLeave);
  is_on_ = true;
}

void Leaving::look(std::int64_t now, Log& log) {
  if (!is_on_ || is_asked()) return;
  code_ = asked_to_leave();
  if (!is_asked()) return;
  tell_at_ = now + kAnswerMs;
  kill_at_ = tell_at_ + kKillWaitMs;
  log.say(
      code_ == kQueueAgain ? "it asked to be queued again" : "it cancelled itself",
      "its processes are ended"
  );
}

void Leaving::step(std::int64_t now, bool is_time_to_look, Log& log) {
  if (is_time_to_look) look(now, log);
  if (!is_asked() || is_told_ || now < tell_at_) return;
  is_told_ = true;
  kill(-1, SIGCONT);
  kill(-1, SIGTERM);
}

std::int64_t Leaving::wakes_at() const {
  if (!is_asked()) return -1;
  return is_told_ ? kill_at_ : tell_at_;
}

}  // namespace rn::init
