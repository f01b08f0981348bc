// SPDX-License-Identifier: Apache-2.0
#include "agent/told_reports.h"

#include <algorithm>

namespace rn::agent {

void ToldReports::on_sent(const wire::Message& message) {
  const auto of = [this](const JobId& job, LeaseEpoch epoch) {
    return std::find_if(reports_.begin(), reports_.end(), [&](const wire::AttemptReport& r) {
      return r.job == job && r.epoch == epoch;
    });
  };
  if (const auto* hello = std::get_if<wire::Hello>(&message)) {
    reports_ = hello->attempts;
  } else if (const auto* beat = std::get_if<wire::Heartbeat>(&message)) {
    reports_ = beat->attempts;
  } else if (const auto* event = std::get_if<wire::AttemptEvent>(&message)) {
    const auto known = of(event->report.job, event->report.epoch);
    if (known != reports_.end()) *known = event->report;
  } else if (const auto* reply = std::get_if<wire::CommitReply>(&message)) {
    if (!reply->is_granted || of(reply->job, reply->epoch) != reports_.end()) return;
    wire::AttemptReport leased;
    leased.job = reply->job;
    leased.epoch = reply->epoch;
    leased.state = AttemptState::kLeased;
    reports_.push_back(leased);
  }
}

}  // namespace rn::agent
