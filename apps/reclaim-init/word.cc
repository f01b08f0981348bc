// SPDX-License-Identifier: Apache-2.0
#include "word.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rn::init {

namespace {

constexpr const char* kWord = "/reclaim/told";
constexpr char kPrefix[] = "RECLAIM_";
constexpr char kGrace[] = "RECLAIM_GRACE_S=";
constexpr std::int64_t kGraceMaxS = 30 * 86'400;

/// -1 if there is no such regular file of at most `max` bytes.
ssize_t read_whole(const char* path, char* out, std::size_t max) {
  const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return -1;

  struct stat about {};

  const bool is_word = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0 &&
                       about.st_size <= static_cast<off_t>(max);
  const ssize_t got = is_word ? read(fd, out, max) : -1;
  close(fd);
  return got > 0 ? got : -1;
}

}  // namespace

bool Word::load() {
  const ssize_t size = read_whole(kWord, bytes_, kBytesMax);
  if (size < 0) return false;
  char* const end = bytes_ + size;
  *end = '\0';
  json_size_ = strlen(bytes_);
  int found = 0;
  for (char* at = bytes_ + json_size_ + 1; at < end && found < kVariablesMax;
       at += strlen(at) + 1) {
    const bool is_variable = strncmp(at, kPrefix, sizeof kPrefix - 1) == 0 && strchr(at, '=');
    if (is_variable) variables_[found++] = at;
  }
  variables_[found] = nullptr;
  return true;
}

bool Word::take_away() {
  return unlink(kWord) == 0 || errno == ENOENT;
}

std::int64_t Word::grace_s() const {
  for (char* const* one = variables_; *one != nullptr; ++one) {
    if (strncmp(*one, kGrace, sizeof kGrace - 1) != 0) continue;
    const long long said = strtoll(*one + sizeof kGrace - 1, nullptr, 10);
    if (said <= 0) return 0;
    return said < kGraceMaxS ? said : kGraceMaxS;
  }
  return 0;
}

void WordWatch::begin() {
  fd_ = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd_ >= 0) inotify_add_watch(fd_, "/reclaim", IN_CREATE | IN_MOVED_TO);
}

bool WordWatch::is_due(std::int64_t now) {
  bool has_news = false;
  char drop[4096];
  for (int round = 0; fd_ >= 0 && round < 16 && read(fd_, drop, sizeof drop) > 0; ++round)
    has_news = true;
  if (!has_news && now - looked_ < kLookMs) return false;
  looked_ = now;
  return true;
}

}  // namespace rn::init
