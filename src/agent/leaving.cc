// SPDX-License-Identifier: Apache-2.0
#include "agent/leaving.h"

#include <cerrno>
#include <cstdio>
#include <vector>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/counted.h"
#include "io/errno_error.h"
#include "io/framed_unix.h"

namespace rn::agent {

namespace {

Status find_no_mount_but(FileSystem& fs, const std::string& path, std::uint64_t mount) {
  const auto there = fs.stat(path);
  if (!there || there->kind != FileStat::Kind::kDirectory) return {};
  RN_TRY(const std::uint64_t own, fs.mount_of(path));
  if (own != mount)
    return fail(
        ErrorCode::kConflict,
        path + " is mounted: nothing was removed",
        "if the warden has mounted it, for a guest or to show it a data set: systemctl stop "
        "reclaim-warden, then reclaim-warden leave; else unmount it; then run this again"
    );
  const auto names = fs.list(path);
  if (!names && names.error().code == ErrorCode::kDenied) return {};
  if (!names) return fail(names.error());
  for (const std::string& name : *names)
    RN_CHECK(find_no_mount_but(fs, join_path(path, name), mount));
  return {};
}

}  // namespace

std::string held_words(const checkpoint::StoredOnDisk& held, bool purges) {
  if (held.jobs == 0) return {};
  char size[32];
  std::snprintf(size, sizeof size, "%.1f MiB", static_cast<double>(held.bytes) / (1 << 20));
  const bool is_one = held.generations == 1;
  std::string out = "holds " + counted(held.generations, "generation") + " of " +
                    counted(held.jobs, "job") + " of others (" + size + "): ";
  if (purges) {
    out += is_one ? "it goes with it" : "they go with it";
  } else {
    out += std::string("once it has left, nobody can fetch ") + (is_one ? "it" : "them");
  }
  return out + "; owners of jobs whose last copy that is are told by the coordinator (copies.left)";
}

std::string purged_words(const std::string& folder, bool was_there, bool was_joined) {
  if (!was_there) return "nothing to remove: there is no " + folder;
  return folder + " is removed" + (was_joined ? "" : "; this machine had joined no site");
}

Result<ServingProcess> ServingProcess::of(const std::string& socket) {
  RN_TRY(const auto connection, io::FramedUnixClient::connect(socket));
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, connection->peer().pid, 0));
  if (pidfd < 0 && errno != ESRCH) return fail(io::error_from_errno(errno, "holding the process"));
  return ServingProcess(pidfd);
}

bool ServingProcess::ends_within(milliseconds limit) const {
  if (!pidfd_) return true;
  pollfd end{pidfd_.get(), POLLIN, 0};
  return poll(&end, 1, static_cast<int>(limit.count())) == 1;
}

std::string leaving_waits_for(const NodeView& view) {
  std::vector<std::string> reasons;
  for (const AttemptView& a : view.attempts) {
    std::string text = "guest " + a.report.job.str() + " (" + a.phase + ")";
    if (!a.report.detail.empty()) text += ": " + a.report.detail;
    reasons.push_back(std::move(text));
  }
  if (!view.is_warden_connected) {
    reasons.emplace_back("the warden does not answer");
  } else if (view.engine_gone_s >= 0) {
    reasons.push_back("the container engine " + engine_trouble(view));
  }
  if (!view.is_coordinator_connected)
    reasons.emplace_back("the coordinator, which must be told, is away");
  if (reasons.empty()) return "the coordinator's word that it knows";
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "" : "; ") + reason;
  return text;
}

Status check_nothing_mounted(FileSystem& fs, const std::string& folder) {
  const auto there = fs.stat(folder);
  const bool is_hidden = !there && there.error().code == ErrorCode::kDenied;
  if (is_hidden || (!there && there.error().code == ErrorCode::kNotFound)) return {};
  RN_TRY(const std::uint64_t mount, fs.mount_of(folder));
  return find_no_mount_but(fs, folder, mount);
}

Status purge(FileSystem& fs, const AgentConfig& config) {
  RN_CHECK(check_nothing_mounted(fs, config.folder()));
  return remove_tree(fs, config.folder());
}

LeavingEnd leaving_end(bool is_known, bool was_served) {
  if (is_known) return LeavingEnd::kLeft;
  return was_served ? LeavingEnd::kDied : LeavingEnd::kNoAgent;
}

Error died_while_leaving() {
  return Error{
      ErrorCode::kUnavailable,
      "the agent ended before the node had left: nothing is removed, and what lies only here is "
      "still here",
      "start it again (systemctl start reclaim-agent; after a crash its service does so by "
      "itself): it goes on leaving, and reclaim-agent leave waits for it; or give up what lies "
      "only here: reclaim-agent leave --purge without an agent"};
}

std::string untold_coordinator(const std::string& coordinator_url, const NodeId& node) {
  return "the coordinator " + coordinator_url + " was not told that " + node.str() +
         " has left: it lists the node as lost, starts its guests elsewhere from their last "
         "durable "
         "generation, and goes on counting on the copies that this machine held for others, which "
         "are gone; next: an administrator there says so: reclaim nodes revoke " +
         node.str();
}

}  // namespace rn::agent
