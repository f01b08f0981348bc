// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "model/wire.h"

namespace rn::agent {

/// What has left for the coordinator about each attempt: rows that are durable stand behind it, so
/// it may be said again while the journal cannot write. One thread.
class ToldReports {
 public:
  /// Every message that leaves, in order.
  void on_sent(const wire::Message& message);

  const std::vector<wire::AttemptReport>& reports() const { return reports_; }

 private:
  std::vector<wire::AttemptReport> reports_;
};

}  // namespace rn::agent
