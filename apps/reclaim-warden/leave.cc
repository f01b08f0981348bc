// SPDX-License-Identifier: Apache-2.0
#include "leave.h"

#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>

#include <unistd.h>

#include "base/printable.h"
#include "io/patiently.h"
#include "io/real_clock.h"
#include "warden/leave.h"
#include "warden/verify.h"

namespace rn::warden_cli {

namespace {

constexpr milliseconds kEndLimit = seconds(5);

/// Ends the daemon, if one runs, and keeps another from starting: answers the pid file's lock,
/// which also tells a living one from a stale file. A daemon that waits for a hanging engine is
/// killed: it is made for that.
Result<int> stop_daemon(const Options& options) {
  pid_t pid = 0;
  for (const int signal : {SIGTERM, SIGKILL}) {
    const auto locked = lock_pid_file(options);
    if (locked || locked.error().code != ErrorCode::kConflict) return locked;
    std::ifstream file(pid_path(options));
    if (file >> pid && pid > 1) kill(pid, signal);
    std::fprintf(stderr, "reclaim-warden: ending the running warden, 5 s at most\n");
    Result<int> lock = fail(ErrorCode::kConflict, "");
    const Status ended = io::patiently(kEndLimit, [&]() -> Status {
      lock = lock_pid_file(options);
      return lock ? Status{} : fail(lock.error());
    });
    if (ended) return lock;
  }
  return fail(
      ErrorCode::kTimeout,
      "the running warden (process " + std::to_string(pid) + ") does not end",
      "stop its service: systemctl stop reclaim-warden; then leave again"
  );
}

}  // namespace

int leave(Options& options) {
  if (geteuid() != 0)
    return complain(
        {ErrorCode::kDenied,
         "leave must run as root: nobody else sees what is to be removed",
         "run it as root"}
    );
  const std::string asked = options.lab;
  const std::string served = recall_settings(options);
  // A mistyped name must not do to another lab what was meant for one.
  if (!asked.empty() && !served.empty() && asked != served)
    return complain(warden::lab_to_kill(asked, served, warden::labs_here(), options.state).error());
  if (options.lab.empty() || !warden::may_have_served(machine_of(options), "/sys/fs/cgroup")) {
    const std::string whose = asked.empty() ? "" : " of lab \"" + asked + "\"";
    std::printf("nothing to remove%s in %s\n", printable(whose).c_str(), options.state.c_str());
    return kDone;
  }
  const auto lock = stop_daemon(options);
  if (!lock) return complain(lock.error());
  const io::RealClock clock{};
  const warden::LeaveReport report =
      warden::leave(machine_of(options), clock, [](const std::string& step) {
        std::fprintf(stderr, "reclaim-warden: %s\n", step.c_str());
      });
  for (const std::string& what : report.removed)
    std::printf("removed %s\n", printable(what).c_str());
  for (const std::string& what : report.stays) std::printf("STAYS %s\n", printable(what).c_str());
  close(*lock);
  if (report.stays.empty() && report.removed.empty())
    std::printf("nothing to remove in %s\n", options.state.c_str());
  if (report.stays.empty()) return kDone;
  return complain(
      {ErrorCode::kConflict,
       "not everything could be removed",
       "end what is named above, then: reclaim-warden leave"}
  );
}
}  // namespace rn::warden_cli
