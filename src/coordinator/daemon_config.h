// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "coordinator/core_types.h"
#include "coordinator/dashboard.h"
#include "coordinator/notify_config.h"
#include "coordinator/oidc_config.h"
#include "io/delivery.h"

namespace rn::coordinator {

struct ListenPlace {
  std::string address = "0.0.0.0";
  std::uint16_t port = 0;
};

struct DaemonConfig {
  std::string state = "/var/lib/reclaimnet/coordinator";
  std::string listen_address = "0.0.0.0";
  std::uint16_t port = 7443;             ///< 0: the kernel chooses
  std::optional<ListenPlace> notebooks;  ///< where notebooks are served; none: they are not
  std::string url;                 ///< told to nodes; empty: the name by which they reached us
  std::vector<std::string> names;  ///< DNS names and addresses for the certificate
  std::string topology;            ///< its file; empty: none is declared
  bool has_public_metrics = false;
  bool makes_admin_token =
      false;  ///< at this start, though the site has users (the old one is lost)
  std::uint32_t certificate_s = 7 * 24 * 3600;  ///< life of the nodes' certificates and its own
  /// Logs and files of a job stay so long after its end.
  std::uint32_t keep_ended_s = 30 * 24 * 3600;
  /// And so long if nobody has fetched its outputs (at least keep_ended_s).
  std::uint32_t keep_outputs_s = 90 * 24 * 3600;
  std::uint64_t log_limit_bytes = 256u << 20;     ///< per attempt
  std::uint64_t disk_reserve_bytes = 256u << 20;  ///< uploads leave so much free
  std::span<const DashboardFile> dashboard;       ///< served under /ui/; empty: none was built in
  NotifyConfig notify;
  /// In place of io::ask(), for tests: what the identity provider answers.
  std::function<Result<io::HttpReply>(const io::AskCall&)> ask;
  std::optional<OidcConfig> oidc;  ///< none: people have local tokens alone
  Config core;
  /// Of the machine's own time zone at this moment; asked at the start and before every Tick.
  std::function<std::int32_t()> utc_offset_s;
};

/// Reads a configuration file (YAML) over `config`. kInvalid names the field; kNotFound if there is
/// no such file. Blocking.
Status read_config_file(const std::string& path, DaemonConfig& config);

/// "127.0.0.1:7443", "[::]:7443", ":7443" or "7443" into listen_address and port. kInvalid.
Status parse_listen(const std::string& text, DaemonConfig& config);

/// The same into notebooks. kInvalid.
Status parse_notebooks_listen(const std::string& text, DaemonConfig& config);

/// "priority", "round_robin" or "fair". kInvalid.
Status parse_strategy(const std::string& word, DaemonConfig& config);

/// Reads the file of `topology` into the core's configuration, if there is one. As
/// read_topology_file(). Blocking.
Status load_topology(DaemonConfig& config);

/// What follows from other fields: the lease lives for lost_after heartbeats, and the like.
Status finish_config(DaemonConfig& config);

}  // namespace rn::coordinator
