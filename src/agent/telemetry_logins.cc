// SPDX-License-Identifier: Apache-2.0
#include "agent/telemetry_logins.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <set>

#include <dirent.h>
#include <sys/stat.h>
#include <utmpx.h>

namespace rn::agent {

namespace {

constexpr std::size_t kSessionsMax = 1024;
constexpr std::size_t kRecordsMax = 4096;
constexpr std::size_t kLinesMax = 256;

struct Session {
  std::string user;
  std::string kind;  ///< CLASS
  std::string state;

  bool is_somebody() const {
    const bool is_person =
        kind.empty() || kind.starts_with("user");  // also user-early and the like
    return is_person && (state == "active" || state == "online") && !user.empty();
  }
};

/// What logind writes of a session: KEY=VALUE, one a line.
Session read_session(const std::string& path) {
  std::ifstream file(path);
  Session out;
  std::string line;
  for (std::size_t i = 0; i < kLinesMax && std::getline(file, line); ++i) {
    const auto value_of = [&](const char* key) { return line.substr(std::strlen(key)); };
    if (line.starts_with("USER=")) out.user = value_of("USER=");
    if (line.starts_with("CLASS=")) out.kind = value_of("CLASS=");
    if (line.starts_with("STATE=")) out.state = value_of("STATE=");
  }
  return out;
}

void add_sessions(const std::string& folder, std::set<std::string>& people) {
  DIR* const open = ::opendir(folder.c_str());
  if (open == nullptr) return;
  std::size_t seen = 0;
  while (const dirent* const entry = ::readdir(open)) {
    const std::string name = entry->d_name;
    const bool is_session = !name.empty() && name.front() != '.' && !name.ends_with(".ref");
    if (!is_session || ++seen > kSessionsMax) continue;
    const Session session = read_session(folder + "/" + name);
    if (session.is_somebody()) people.insert(session.user);
  }
  ::closedir(open);
}

bool is_process_there(const std::string& root, pid_t pid) {
  if (pid <= 0) return false;

  struct stat info {};

  if (!root.empty()) return ::stat((root + "/proc/" + std::to_string(pid)).c_str(), &info) == 0;
  return ::kill(pid, 0) == 0 || errno == EPERM;
}

/// A record outlives a login that was killed, until its line is used again.
bool add_records(const std::string& path, const std::string& root, std::set<std::string>& people) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  utmpx record{};
  for (std::size_t i = 0; i < kRecordsMax; ++i) {
    if (!file.read(reinterpret_cast<char*>(&record), sizeof(record))) break;
    if (record.ut_type != USER_PROCESS || !is_process_there(root, record.ut_pid)) continue;
    const std::string user(record.ut_user, ::strnlen(record.ut_user, sizeof(record.ut_user)));
    if (!user.empty()) people.insert(user);
  }
  return true;
}

}  // namespace

std::uint32_t count_logins(const std::string& root) {
  std::set<std::string> people;
  add_sessions(root + "/run/systemd/sessions", people);
  if (!add_records(root + "/run/utmp", root, people))
    add_records(root + "/var/run/utmp", root, people);
  return static_cast<std::uint32_t>(people.size());
}

}  // namespace rn::agent
