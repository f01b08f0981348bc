// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli_client.h"

#include "model/quota.h"

namespace rn::cli {

/// The options of `quota` as they were typed.
struct QuotaOptions {
  std::string subject;
  std::string model;
  std::optional<std::uint32_t> gpus;
  std::optional<std::uint32_t> running;
  std::optional<std::uint32_t> jobs;
  std::string gpu_hours;  ///< "200", "200/7d"
  std::string idle_stop;  ///< "2h"
  bool is_json = false;
};

// One function per command; each prints, and answers the exit code.

int show_quotas(const Client& client, bool is_json);
int set_quota(const Client& client, const QuotaOptions& options);
int remove_quota(const Client& client, const QuotaOptions& options);

/// What `set` asks for. kInvalid for hours that are none.
Result<api::QuotaRequest> quota_request(const QuotaOptions& options);
/// One line for each whose quotas are seen: "3 of 4". Pure.
std::string table_of_quotas(const api::QuotaList& list);

}  // namespace rn::cli
