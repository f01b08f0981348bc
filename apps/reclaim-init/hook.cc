// SPDX-License-Identifier: Apache-2.0
#include "hook.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rn::init {

namespace {

constexpr const char* kEnd = "/reclaim/hook";
constexpr const char* kEndTemporary = "/reclaim/.hook.new";
constexpr int kNotExecutable = 126;
constexpr int kNoSuchCommand = 127;
constexpr std::int64_t kLongestMs = 10 * 60 * 1000;
/// Between two runs, however often the guest tells itself.
constexpr std::int64_t kRestMs = 1000;
constexpr int kEnvironmentMax = 2048;  ///< the warden lets a guest have 640 variables

bool has_same_name(const char* one, const char* other) {
  const char* const end = strchr(other, '=');
  return end != nullptr && strncmp(one, other, static_cast<std::size_t>(end - other) + 1) == 0;
}

/// The guest's variables, and over them those of the word.
char* const* environment_with(char* const* variables) {
  static char* all[kEnvironmentMax + Word::kVariablesMax + 1];
  int count = 0;
  for (char** one = environ; *one != nullptr && count < kEnvironmentMax; ++one) {
    bool is_replaced = false;
    for (char* const* mine = variables; *mine != nullptr; ++mine)
      is_replaced = is_replaced || has_same_name(*one, *mine);
    if (!is_replaced) all[count++] = *one;
  }
  for (char* const* mine = variables; *mine != nullptr; ++mine) all[count++] = *mine;
  all[count] = nullptr;
  return all;
}

}  // namespace

void become(char* const* command, char* const* environment, int output, const sigset_t& mask) {
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, 0);
  dup2(output, 1);
  dup2(output, 2);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  setsid();
  execvpe(command[0], command, environment);
  const int error = errno;
  dprintf(2, "[reclaimnet] cannot run %s: %s\n", command[0], strerror(error));
  _exit(error == ENOENT ? kNoSuchCommand : kNotExecutable);
}

void Hook::set(const char* script, int output, const sigset_t& mask) {
  script_ = script;
  output_ = output;
  mask_ = mask;
}

void Hook::step(std::int64_t now, bool is_time_to_look, Word& word, Log& log) {
  if (!is_set()) return;
  if (pid_ != 0) {
    if (now < end_by_) return;
    is_late_ = true;
    end_by_ = now + kRestMs;
    // It is not reaped yet, so the number is its own. Children that have left its group are
    // processes of the guest like any other.
    if (kill(-pid_, SIGKILL) != 0) kill(pid_, SIGKILL);
    return;
  }
  const bool has_rested = rest_until_ != 0 && now >= rest_until_;
  if (rest_until_ != 0 && !has_rested) return;
  if (!has_rested && !is_time_to_look) return;
  rest_until_ = 0;
  if (word.load()) start(now, word, log);
}

void Hook::start(std::int64_t now, const Word& word, Log& log) {
  const std::int64_t grace_ms = word.grace_s() * 1000;
  const pid_t pid = fork();
  if (pid == 0) {
    char shell[] = "/bin/sh";
    char flags[] = "-ec";
    // The script is an argument of ours, and stays as it is.
    char* command[] = {shell, flags, const_cast<char*>(script_), nullptr};
    become(command, environment_with(word.variables()), output_, mask_);
  }
  if (pid < 0) {  // the guest's processes are used up: the word stands, and it is tried again
    if (!has_failed_to_start_) log.say("the hook cannot be started yet", strerror(errno));
    has_failed_to_start_ = true;
    rest_until_ = now + kRestMs;
    return;
  }
  has_failed_to_start_ = false;
  pid_ = pid;
  is_late_ = false;
  end_by_ = now + (grace_ms > 0 ? grace_ms : kLongestMs);
}

void Hook::on_ended(pid_t pid, int status, std::int64_t now, Log& log) {
  if (pid_ == 0 || pid != pid_) return;
  const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  pid_ = 0;
  ++runs_;
  rest_until_ = now + kRestMs;
  char how[24];
  snprintf(how, sizeof how, "exit code %d", code);
  if (is_late_)
    log.say("the hook did not end in time", "it was ended");
  else if (code != 0)
    log.say("the hook ended", how);
  snprintf(how, sizeof how, "%d", code);
  write_end(is_late_ ? "late" : how);
  if (!Word::take_away()) rest_until_ = now + kLongestMs;  // it would be run on and on
}

/// For the agent, which tells the job's author. A guest that is in the way loses its own word.
void Hook::write_end(const char* how) const {
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const int fd = open(kEndTemporary, flags, 0644);
  if (fd < 0) return;
  const bool is_written = dprintf(fd, "%u %s\n", runs_, how) > 0;
  close(fd);
  if (is_written) rename(kEndTemporary, kEnd);
}

std::int64_t Hook::wakes_at() const {
  if (!is_set()) return -1;
  if (pid_ != 0) return end_by_;
  return rest_until_ != 0 ? rest_until_ : -1;
}

}  // namespace rn::init
