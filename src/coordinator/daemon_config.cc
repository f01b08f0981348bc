// SPDX-License-Identifier: Apache-2.0
#include "coordinator/daemon_config.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "base/whole_number.h"
#include "coordinator/topology_file.h"
#include "io/own_address.h"
#include "io/real_fs.h"
#include "io/url.h"
#include "model/codec_detail.h"
#include "model/yaml.h"

namespace rn::coordinator {

namespace {

struct FileSmtp {
  std::string url;
  std::string from;
  std::string user;
  std::string password_file;
  std::string ca;
  bool requires_tls = true;
  std::vector<std::string> domains;

  RN_FIELDS(FileSmtp, url, from, user, password_file, ca, requires_tls, domains)
};

struct FileWebhooks {
  std::vector<std::string> allow;
  std::string ca;

  RN_FIELDS(FileWebhooks, allow, ca)
};

struct FileOidc {
  std::string issuer;
  std::string name;
  std::string client_id;
  std::string client_secret_file;
  std::string ca;
  std::vector<std::string> origins;
  std::vector<std::string> scopes;
  std::string claim = "sub";
  std::string domain;
  std::map<std::string, std::string> users;
  std::vector<std::string> refuses;
  std::string groups_claim;
  std::map<std::string, std::string> labs;
  std::uint32_t session_s = OidcConfig().session_s;
  std::string contact;

  RN_FIELDS(
      FileOidc,
      issuer,
      name,
      client_id,
      client_secret_file,
      ca,
      origins,
      scopes,
      claim,
      domain,
      users,
      refuses,
      groups_claim,
      labs,
      session_s,
      contact
  )
};

/// The file's form: every field may be left out.
struct FileConfig {
  std::optional<std::string> state;
  std::optional<std::string> listen;
  std::optional<std::string> notebooks_listen;
  std::optional<std::string> url;
  std::optional<std::vector<std::string>> names;
  std::optional<std::string> topology;
  std::optional<bool> has_public_metrics;
  std::optional<std::uint32_t> certificate_s;
  std::optional<std::uint32_t> keep_ended_s;
  std::optional<std::uint32_t> keep_outputs_s;
  std::optional<std::uint64_t> log_limit_bytes;
  std::optional<std::uint64_t> disk_reserve_bytes;
  std::optional<std::string> strategy;
  std::optional<std::uint32_t> heartbeat_ms;
  std::optional<std::uint32_t> lost_after;
  std::optional<std::uint32_t> fair_half_life_s;
  std::optional<bool> migrates_back;
  std::optional<std::uint32_t> min_residence_s;
  std::optional<std::uint32_t> home_settle_s;
  std::optional<std::uint32_t> rollup_s;
  std::optional<std::uint64_t> precopy_mib_per_hour;
  std::optional<std::uint32_t> idle_after_s;
  std::optional<std::uint32_t> idle_below_percent;
  std::optional<std::uint32_t> wanted_after_s;
  std::optional<FileSmtp> smtp;
  std::optional<FileWebhooks> webhooks;
  std::optional<FileOidc> oidc;

  RN_FIELDS(
      FileConfig,
      state,
      listen,
      notebooks_listen,
      url,
      names,
      topology,
      has_public_metrics,
      certificate_s,
      keep_ended_s,
      keep_outputs_s,
      log_limit_bytes,
      disk_reserve_bytes,
      strategy,
      heartbeat_ms,
      lost_after,
      fair_half_life_s,
      migrates_back,
      min_residence_s,
      home_settle_s,
      rollup_s,
      precopy_mib_per_hour,
      idle_after_s,
      idle_below_percent,
      wanted_after_s,
      smtp,
      webhooks,
      oidc
  )
};

constexpr std::uint64_t kMaxFileBytes = 64 << 10;

template <class T>
void take(const std::optional<T>& from, T& to) {
  if (from) to = *from;
}

void take_notify(const FileConfig& file, NotifyConfig& config) {
  if (file.smtp) {
    const FileSmtp& smtp = *file.smtp;
    config.smtp = SmtpConfig{
        smtp.url,
        smtp.from,
        smtp.user,
        smtp.password_file,
        smtp.ca,
        smtp.requires_tls,
        smtp.domains,
        {}};
  }
  if (file.webhooks) config.webhooks = file.webhooks->allow;
  if (file.webhooks) config.webhook_ca = file.webhooks->ca;
}

void take_oidc(const FileOidc& file, std::optional<OidcConfig>& config) {
  config = OidcConfig{
      file.issuer,
      file.name,
      file.client_id,
      file.client_secret_file,
      {},
      file.ca,
      file.origins,
      file.scopes,
      file.claim,
      file.domain,
      file.users,
      file.refuses,
      file.groups_claim,
      file.labs,
      file.session_s,
      file.contact};
}

Status apply(const FileConfig& file, DaemonConfig& config) {
  take(file.state, config.state);
  take(file.url, config.url);
  take(file.names, config.names);
  take(file.topology, config.topology);
  take(file.has_public_metrics, config.has_public_metrics);
  take(file.certificate_s, config.certificate_s);
  take(file.keep_ended_s, config.keep_ended_s);
  take(file.keep_outputs_s, config.keep_outputs_s);
  take(file.log_limit_bytes, config.log_limit_bytes);
  take(file.disk_reserve_bytes, config.disk_reserve_bytes);
  take(file.heartbeat_ms, config.core.heartbeat_ms);
  take(file.lost_after, config.core.lost_after);
  take(file.fair_half_life_s, config.core.fair_half_life_s);
  take(file.migrates_back, config.core.migrates_back);
  take(file.min_residence_s, config.core.min_residence_s);
  take(file.home_settle_s, config.core.home_settle_s);
  take(file.rollup_s, config.core.rollup_s);
  take(file.precopy_mib_per_hour, config.core.precopy_mib_per_hour);
  take(file.idle_after_s, config.core.idle_after_s);
  take(file.idle_below_percent, config.core.idle_below_percent);
  take(file.wanted_after_s, config.core.wanted_after_s);
  take_notify(file, config.notify);
  if (file.oidc) take_oidc(*file.oidc, config.oidc);
  if (file.listen) RN_CHECK(parse_listen(*file.listen, config));
  if (file.notebooks_listen) RN_CHECK(parse_notebooks_listen(*file.notebooks_listen, config));
  if (file.strategy) RN_CHECK(parse_strategy(*file.strategy, config));
  return {};
}

}  // namespace

Status read_config_file(const std::string& path, DaemonConfig& config) {
  io::RealFileSystem fs;
  std::error_code ignored;
  const std::string whole = std::filesystem::absolute(path, ignored).string();
  const auto bytes = read_named(fs, whole, kMaxFileBytes);
  if (!bytes) return fail(bytes.error().with("the configuration file"));
  const auto document = parse_yaml(as_text(*bytes));
  if (!document) return fail(document.error().with(path).hinting("correct the file"));
  const auto file = from_document<FileConfig>(*document);
  if (!file) return fail(file.error().with(path).hinting("correct the file, or remove the line"));
  const Status applied = apply(*file, config);
  if (!applied) return fail(applied.error().with(path));
  const Status known = read_smtp_password(fs, config.notify);
  if (!known) return fail(known.error().with(path).hinting("make it readable for the coordinator"));
  if (!config.oidc) return {};
  const Status has_secret = read_client_secret(fs, *config.oidc);
  if (!has_secret)
    return fail(has_secret.error().with(path).hinting("make it readable for the coordinator alone")
    );
  return {};
}

namespace {

/// Over `otherwise`, whose address stands where the text has none.
Result<ListenPlace> listen_place(
    const std::string& field, const std::string& text, ListenPlace otherwise
) {
  const auto colon = text.rfind(':');
  std::string address = colon == std::string::npos ? "" : text.substr(0, colon);
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  const bool is_bracketed = address.size() > 1 && address.front() == '[' && address.back() == ']';
  if (is_bracketed) address = address.substr(1, address.size() - 2);
  const auto number = whole_number<std::uint16_t>(port);
  const bool is_v6 = address.find(':') != std::string::npos;
  // Without brackets nobody knows where an IPv6 address ends and its port begins.
  if (!number || is_v6 != is_bracketed || (!address.empty() && !io::is_ip_address(address))) {
    return fail(
        ErrorCode::kInvalid,
        field + ": '" + text + "' is no ADDRESS:PORT" +
            (number ? "" : " (port " + number.error().message + ")"),
        "for example 0.0.0.0:7443 or [::]:7443; names are none"
    );
  }
  if (!address.empty()) otherwise.address = address;
  otherwise.port = *number;
  return otherwise;
}

}  // namespace

Status parse_listen(const std::string& text, DaemonConfig& config) {
  RN_TRY(const ListenPlace place, listen_place("listen", text, {config.listen_address, 0}));
  config.listen_address = place.address;
  config.port = place.port;
  return {};
}

Status parse_notebooks_listen(const std::string& text, DaemonConfig& config) {
  RN_TRY(config.notebooks, listen_place("notebooks_listen", text, ListenPlace{}));
  return {};
}

Status parse_strategy(const std::string& word, DaemonConfig& config) {
  if (word == "priority") {
    config.core.strategy = sched::Strategy::kPriority;
  } else if (word == "round_robin") {
    config.core.strategy = sched::Strategy::kRoundRobin;
  } else if (word == "fair") {
    config.core.strategy = sched::Strategy::kFair;
  } else {
    return fail(
        ErrorCode::kInvalid,
        "strategy: '" + word + "' is none of priority, round_robin, fair",
        "fair is the default"
    );
  }
  return {};
}

Status load_topology(DaemonConfig& config) {
  config.core.hostname = io::own_hostname();
  if (config.topology.empty()) return {};
  RN_TRY(config.core.topology, read_topology_file(config.topology));
  return {};
}

namespace {

Status check_when_people_are_told(const Config& core) {
  if (core.idle_after_s != 0 && (core.idle_after_s < 60 || core.idle_after_s > 30u * 86'400))
    return fail(
        ErrorCode::kInvalid,
        "idle_after_s: expected a minute to 30 days (60 to 2592000), or 0",
        "3600, an hour, is the default; with 0 nobody is told"
    );
  if (core.idle_below_percent < 1 || core.idle_below_percent > 50)
    return fail(ErrorCode::kInvalid, "idle_below_percent: expected 1 to 50", "5 is the default");
  if (core.wanted_after_s < 10 || core.wanted_after_s > 30u * 86'400)
    return fail(
        ErrorCode::kInvalid,
        "wanted_after_s: expected 10 seconds to 30 days (2592000)",
        "600, ten minutes, is the default; who wants no word of it has no rule with `wanted`"
    );
  return {};
}

}  // namespace

Status finish_config(DaemonConfig& config) {
  Config& core = config.core;
  if (core.heartbeat_ms < 50 || core.heartbeat_ms > 60'000)
    return fail(ErrorCode::kInvalid, "heartbeat_ms: expected 50 to 60000", "5000 is the default");
  if (core.lost_after < 2 || core.lost_after > 20)
    return fail(ErrorCode::kInvalid, "lost_after: expected 2 to 20 heartbeats", "3 is the default");
  if (core.rollup_s < 10 || core.rollup_s > 86'400)
    return fail(
        ErrorCode::kInvalid, "rollup_s: expected 10 seconds to a day (86400)", "300 is the default"
    );
  if (core.precopy_mib_per_hour > 1u << 30)
    return fail(
        ErrorCode::kInvalid,
        "precopy_mib_per_hour: expected 0 to 1073741824",
        "4096 is the default; 0 sends nothing ahead"
    );
  RN_CHECK(check_when_people_are_told(core));
  if (config.certificate_s < 10 || config.certificate_s > 90 * 24 * 3600)
    return fail(
        ErrorCode::kInvalid,
        "certificate_s: expected 10 seconds to 90 days (7776000)",
        "604800, a week, is the default"
    );
  if (config.keep_ended_s < 4 || config.keep_ended_s > 10u * 365 * 24 * 3600)
    return fail(
        ErrorCode::kInvalid,
        "keep_ended_s: expected 4 seconds to 10 years",
        "2592000, thirty days, is the default"
    );
  if (config.keep_outputs_s < 4 || config.keep_outputs_s > 10u * 365 * 24 * 3600)
    return fail(
        ErrorCode::kInvalid,
        "keep_outputs_s: expected 4 seconds to 10 years",
        "7776000, ninety days, is the default"
    );
  config.keep_outputs_s = std::max(config.keep_outputs_s, config.keep_ended_s);
  if (!config.state.starts_with('/'))
    return fail(
        ErrorCode::kInvalid,
        "state: expected an absolute path",
        "for example /var/lib/reclaimnet/coordinator"
    );
  if (!config.url.empty()) {
    const auto url = io::site_url(config.url, config.port == 0 ? io::kSitePort : config.port);
    if (!url) return fail(url.error().with("url"));
    config.url = *url;
  }
  RN_CHECK(finish_notify_config(config.notify));
  if (config.oidc) RN_CHECK(finish_oidc_config(*config.oidc, config.url));
  for (const std::string& name : config.names) {
    if (!io::is_host_name(name))
      return fail(
          ErrorCode::kInvalid,
          "names: '" + name + "' is neither a name nor an address of a machine",
          "without scheme, port and brackets, as coordinator.example.org or fd00::7"
      );
  }
  core.lease_ms = core.heartbeat_ms * core.lost_after;
  core.tick_ms = std::min<std::uint32_t>(250, core.heartbeat_ms / 4);
  return {};
}

}  // namespace rn::coordinator
