// SPDX-License-Identifier: Apache-2.0
#include "agent/leaving.h"

#include <cerrno>
#include <vector>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/errno_error.h"
#include "io/framed_unix.h"

namespace rn::agent {

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

std::string untold_coordinator(const std::string& coordinator_url, const NodeId& node) {
  return "the coordinator " + coordinator_url + " was not told that " + node.str() +
         " has left: it lists the node as lost, starts its guests elsewhere from their last "
         "durable "
         "generation, and goes on counting on the copies that this machine held for others, which "
         "are gone; next: an administrator there says so: reclaim nodes revoke " +
         node.str();
}

}  // namespace rn::agent
