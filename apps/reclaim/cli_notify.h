// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli_client.h"

#include "base/ids.h"
#include "model/notify.h"

namespace rn::cli {

struct NotifyOptions {
  std::string mail;
  std::string webhook;
  std::vector<std::string> on;  ///< words; empty: the usual ones
  std::string job;
  std::string rule;
  std::string code;
  bool all = false;
  bool is_json = false;
};

// One function per command; each prints, and answers the exit code.

int add_notification(const Client& client, const NotifyOptions& options);
int list_notifications(const Client& client, const NotifyOptions& options);
int confirm_notification(const Client& client, const NotifyOptions& options);
/// Waits until it is known what became of it.
int test_notification(const Client& client, const NotifyOptions& options);
int remove_notification(const Client& client, const NotifyOptions& options);

/// A receiver of `--notify`: an address, or a URL. kInvalid for what is neither.
Result<api::NotifyRequest> notify_request(const std::string& receiver);
/// Each is told of the job. The job is there already: what fails is a warning.
void notify_of_job(
    const Client& client, const JobId& job, const std::vector<std::string>& receivers
);

/// One line a rule, for `list`. Pure.
std::string table_of_rules(const api::NotifyList& list, std::int64_t now_wall_ms);

}  // namespace rn::cli
