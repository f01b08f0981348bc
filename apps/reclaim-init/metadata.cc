// SPDX-License-Identifier: Apache-2.0
#include "metadata.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rn::init {

namespace {

constexpr const char* kNotice = "/reclaim/notice";
constexpr const char* kTokenPath = "/latest/api/token";
constexpr const char* kAction = "/latest/meta-data/spot/instance-action";
constexpr const char* kTime = "/latest/meta-data/spot/termination-time";
constexpr const char* kRebalance = "/latest/meta-data/events/recommendations/rebalance";
constexpr double kLatestUnix = 253402300799.0;  ///< the last second of four-digit years

struct Notice {
  time_t deadline = 0;  ///< 0 = there is none
  time_t told = 0;
};

/// The warden writes its names in their order, so the first one is no part of the owner's words.
Notice read_notice() {
  constexpr char kDeadline[] = "\"deadline_unix\":";
  Notice notice;
  const int fd = open(kNotice, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return notice;

  struct stat about {};

  char text[1024];
  const bool is_file = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
  const ssize_t size = is_file ? read(fd, text, sizeof text - 1) : 0;
  close(fd);
  if (size <= 0) return notice;
  text[size] = '\0';
  const char* const found = strstr(text, kDeadline);
  const double deadline = found == nullptr ? 0 : strtod(found + sizeof kDeadline - 1, nullptr);
  if (!(deadline > 0 && deadline < kLatestUnix)) return notice;
  notice.deadline = static_cast<time_t>(deadline);
  notice.told = about.st_mtim.tv_sec;
  return notice;
}

struct TimeText {
  char text[32] = "";

  explicit TimeText(time_t at) {
    tm parts{};
    if (gmtime_r(&at, &parts) != nullptr) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  }
};

}  // namespace

int metadata_port(const char* url) {
  constexpr char kBegin[] = "http://127.0.0.1:";
  if (strncmp(url, kBegin, sizeof kBegin - 1) != 0) return 0;
  char* end = nullptr;
  const char* const digits = url + sizeof kBegin - 1;
  const long port = strtol(digits, &end, 10);
  const bool is_whole = *end == '\0' || strcmp(end, "/") == 0;
  const bool is_number = *digits >= '0' && *digits <= '9';
  return is_number && is_whole && port >= 1024 && port <= 65'535 ? static_cast<int>(port) : 0;
}

MetadataAnswer answer_metadata(const char* method, const char* path) {
  MetadataAnswer answer;
  const auto say = [&answer](bool is_json, const char* format, const char* value) {
    answer.status = 200;
    answer.is_json = is_json;
    snprintf(answer.body, sizeof answer.body, format, value);
  };
  if (strcmp(method, "PUT") == 0 && strcmp(path, kTokenPath) == 0) say(false, "%s", "reclaimnet");
  if (strcmp(method, "GET") != 0) return answer;
  const Notice notice = read_notice();
  if (notice.deadline == 0) return answer;
  const TimeText deadline(notice.deadline);
  if (strcmp(path, kAction) == 0)
    say(true, "{\"action\":\"terminate\",\"time\":\"%s\"}", deadline.text);
  else if (strcmp(path, kTime) == 0)
    say(false, "%s", deadline.text);
  answer.tells_to_leave = answer.status == 200;
  if (strcmp(path, kRebalance) == 0)
    say(true, "{\"noticeTime\":\"%s\"}", TimeText(notice.told).text);
  return answer;
}

}  // namespace rn::init
