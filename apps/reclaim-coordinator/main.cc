// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>

#include "command_line.h"
#include "dashboard_files.h"

#include "base/error_words.h"
#include "base/log.h"
#include "base/printable.h"
#include "coordinator/daemon.h"
#include "coordinator/sqlite_store.h"
#include "coordinator/topology_file.h"
#include "io/own_address.h"
#include "io/service_manager.h"
#include "io/standard_output.h"

namespace {

using namespace rn;
using namespace rn::coordinator;

constexpr const char* kDefaultConfig = "/etc/reclaimnet/coordinator.yaml";

struct Flags {
  std::string config;
  std::optional<std::string> state;
  std::optional<std::string> listen;
  std::optional<std::string> notebooks_listen;
  std::optional<std::string> url;
  std::optional<std::string> strategy;
  std::optional<std::string> topology;
  std::optional<std::uint32_t> heartbeat_ms;
  std::optional<std::uint32_t> lost_after;
  std::optional<std::uint32_t> min_residence_s;
  std::optional<std::uint32_t> certificate_s;
  std::optional<std::uint32_t> keep_ended_s;
  std::optional<std::uint32_t> keep_outputs_s;
  std::optional<std::uint32_t> home_settle_s;
  std::optional<std::uint32_t> rollup_s;
  std::vector<std::string> names;
  bool stays_away = false;
  bool has_public_metrics = false;
  bool makes_admin_token = false;
  std::string study_rates;
};

int complain(const Error& error) {
  std::fprintf(stderr, "reclaim-coordinator: %s\n", printable_lines(error.message).c_str());
  const std::string hint = error.hint.empty() ? "see 'reclaim-coordinator --help'" : error.hint;
  std::fprintf(stderr, "  next: %s\n", printable_lines(hint).c_str());
  return exit_code_of(error.code);
}

/// Whether anybody hears it or not: it serves all the same.
void hand_on_output() {
  if (!io::flush_output_or_drop()) log::warning("output.lost");
}

/// Of this machine's zone at this moment: an hour more in summer.
std::int32_t local_utc_offset_s() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  return ::localtime_r(&now, &local) == nullptr ? 0 : static_cast<std::int32_t>(local.tm_gmtoff);
}

/// Of a study, to be measured beside the site's own rule (docs/testbed.md).
Status parse_study_rates(const std::string& word, DaemonConfig& config) {
  if (word == "fair") {
    config.core.study.rates = reclaim::RateRule::kFairShare;
  } else if (word == "priority") {
    config.core.study.rates = reclaim::RateRule::kByValue;
  } else if (word == "edf") {
    config.core.study.rates = reclaim::RateRule::kByDeadline;
  } else {
    return fail(
        ErrorCode::kInvalid,
        "study-rates: '" + word + "' is none of fair, priority, edf",
        "leave it out for the site's own rule"
    );
  }
  log::warning("study.rates", {{"rule", word}});
  return {};
}

/// Flags win over the file, the file over the defaults.
Result<DaemonConfig> configure(const Flags& flags) {
  DaemonConfig config;
  const std::string path = flags.config.empty() ? kDefaultConfig : flags.config;
  const Status read = read_config_file(path, config);
  const bool is_optional = flags.config.empty();
  if (!read && !(is_optional && read.error().code == ErrorCode::kNotFound)) {
    return fail(read.error().hinting("name the configuration file with --config"));
  }
  if (flags.state) config.state = *flags.state;
  if (flags.url) config.url = *flags.url;
  if (flags.listen) RN_CHECK(parse_listen(*flags.listen, config));
  if (flags.notebooks_listen) RN_CHECK(parse_notebooks_listen(*flags.notebooks_listen, config));
  if (flags.strategy) RN_CHECK(parse_strategy(*flags.strategy, config));
  if (flags.topology) config.topology = *flags.topology;
  if (flags.heartbeat_ms) config.core.heartbeat_ms = *flags.heartbeat_ms;
  if (flags.lost_after) config.core.lost_after = *flags.lost_after;
  if (flags.min_residence_s) config.core.min_residence_s = *flags.min_residence_s;
  if (flags.certificate_s) config.certificate_s = *flags.certificate_s;
  if (flags.keep_ended_s) config.keep_ended_s = *flags.keep_ended_s;
  if (flags.keep_outputs_s) config.keep_outputs_s = *flags.keep_outputs_s;
  if (flags.home_settle_s) config.core.home_settle_s = *flags.home_settle_s;
  if (flags.rollup_s) config.core.rollup_s = *flags.rollup_s;
  config.utc_offset_s = local_utc_offset_s;
  config.core.utc_offset_s = local_utc_offset_s();
  if (flags.stays_away) config.core.migrates_back = false;
  if (flags.has_public_metrics) config.has_public_metrics = true;
  if (!flags.study_rates.empty()) RN_CHECK(parse_study_rates(flags.study_rates, config));
  config.makes_admin_token = flags.makes_admin_token;
  config.names.insert(config.names.end(), flags.names.begin(), flags.names.end());
  RN_CHECK(finish_config(config));
  return config;
}

int serve(const Flags& flags) {
  io::ServiceManager manager = io::ServiceManager::take();
  auto config = configure(flags);
  if (!config) return complain(config.error());
  if (const Status loaded = load_topology(*config); !loaded) return complain(loaded.error());
  config->dashboard = dashboard_files();
  io::Loop loop;
  std::optional<Error> died;
  Daemon::Events events;
  events.admin_token = [&](const std::string& token) {
    std::printf(
        "An admin token of this site, shown once (also in %s/admin.token):\n\n  %s\n\n",
        config->state.c_str(),
        token.c_str()
    );
    hand_on_output();
  };
  events.fatal = [&](const Error& error) {
    died = error;
    loop.stop();
  };
  auto daemon = Daemon::start(loop, *config, events);
  if (!daemon) return complain(daemon.error());
  bool is_second = false;
  const Status signals = loop.on_signal({SIGTERM, SIGINT}, [&](int) {
    if (is_second) return loop.stop();
    is_second = true;
    log::info("daemon.draining");
    (*daemon)->drain([&] { loop.stop(); });
  });
  if (!signals) return complain(signals.error());
  std::printf(
      "listening on port %u, CA %s\n", (*daemon)->port(), (*daemon)->ca_fingerprint().c_str()
  );
  hand_on_output();
  manager.serving(loop);
  loop.run();
  return died ? complain(died->hinting("see the message; then start the coordinator again")) : 0;
}

int verify(const Flags& flags) {
  const auto config = configure(flags);
  if (!config) return complain(config.error());
  const auto store = SqliteStore::open_to_read(config->state);
  if (!store) return complain(store.error());
  const auto report = (*store)->verify_chain();
  if (!report) return complain(report.error());
  const bool is_whole =
      report->first_bad_seq == 0 && !report->missing_to && report->differs.empty();
  std::printf(
      "%llu events, head %s\n",
      static_cast<unsigned long long>(report->events),
      to_hex(report->head).c_str()
  );
  if (is_whole) return 0;
  std::string what = "event " + std::to_string(report->first_bad_seq) + ": " + report->complaint;
  if (report->first_bad_seq == 0)
    what = report->missing_to
               ? "the last events are missing, up to " + std::to_string(*report->missing_to)
               : "a table was changed: " + report->differs;
  return complain(Error{
      ErrorCode::kCorrupt,
      "the audit chain is broken: " + what,
      "keep this database as evidence and compare it with a backup"});
}

/// Of the site whose database is there; without one only the file itself is looked at.
int check_topology(const Flags& flags) {
  const auto config = configure(flags);
  if (!config) return complain(config.error());
  const auto topology = read_topology_file(*flags.topology);
  if (!topology) return complain(topology.error());
  std::printf("%zu links, %zu nodes\n", topology->switches(), topology->nodes().size());
  std::error_code ignored;
  if (!std::filesystem::exists(config->state + "/coordinator.db", ignored)) {
    std::printf(
        "warning: there is no site in %s, so its nodes were not compared (--state)\n",
        printable_lines(config->state).c_str()
    );
    return 0;
  }
  const auto store = SqliteStore::open_to_read(config->state);
  if (!store) return complain(store.error());
  const auto site = (*store)->load();
  if (!site) return complain(site.error());
  for (const std::string& warning : topology_warnings(*topology, site->nodes, io::own_hostname()))
    std::printf("warning: %s\n", printable_lines(warning).c_str());
  return 0;
}

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option(
      "--config", flags.config, std::string("configuration file (default ") + kDefaultConfig + ")"
  );
  app.add_option("--state", flags.state, "state folder (default /var/lib/reclaimnet/coordinator)");
}

void add_serve_flags(CLI::App& app, Flags& flags) {
  app.add_option("--listen", flags.listen, "ADDRESS:PORT (default 0.0.0.0:7443)");
  app.add_option(
      "--notebooks-listen",
      flags.notebooks_listen,
      "ADDRESS:PORT for notebooks (default: none are served)"
  );
  app.add_option("--url", flags.url, "https://host:port under which nodes reach it");
  app.add_option("--name", flags.names, "another DNS name or address for its certificate");
  const auto number = [&](const char* flag, std::optional<std::uint32_t>& out, const char* what) {
    add_number(app, flag, out, what);  // bounds: finish_config()
  };
  number("--heartbeat-ms", flags.heartbeat_ms, "period of the nodes' heartbeats (default 5000)");
  number("--lost-after", flags.lost_after, "missed heartbeats until a node is lost (default 3)");
  app.add_option("--strategy", flags.strategy, "priority, round_robin or fair (default)");
  app.add_option(
      "--topology", flags.topology, "the site's network (docs/topology.md; default: none)"
  );
  number("--min-residence-s", flags.min_residence_s, "no migrate-back before (default 300)");
  number(
      "--home-settle-s",
      flags.home_settle_s,
      "a returned node must be open for so long (default 60)"
  );
  number(
      "--rollup-s", flags.rollup_s, "width of the buckets of telemetry that is kept (default 300)"
  );
  number(
      "--certificate-s",
      flags.certificate_s,
      "life of the nodes' certificates and of its own, renewed after a seventh (default 604800)"
  );
  number(
      "--keep-ended-s",
      flags.keep_ended_s,
      "logs and files of ended jobs stay so long (default 2592000)"
  );
  number(
      "--keep-outputs-s",
      flags.keep_outputs_s,
      "the same for jobs whose outputs nobody has fetched (default 7776000)"
  );
  app.add_flag("--no-migrate-back", flags.stays_away, "never send jobs home");
  app.add_flag("--public-metrics", flags.has_public_metrics, "/metrics without a token");

  app.add_flag(
      "--new-admin-token",
      flags.makes_admin_token,
      "make another admin token (the first one was lost)"
  );
#ifdef RN_STUDIED
  app.add_option(
      "--study-rates", flags.study_rates, "how copies share lines: fair, priority, edf (no site's)"
  );
#endif
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Coordinator of a ReclaimNet site: the queue, the nodes and the dashboard.\n\n"
      "First steps:\n"
      "  reclaim-coordinator serve                     writes STATE/admin.token at its first "
      "start\n"
      "  reclaim login https://HERE:7443 --token -     reads that token\n"
      "  reclaim token create --lab LAB                for a machine to join with\n\n"
      "docs/coordinator.md lists the settings."
  );
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 success, 1 failure, 2 usage, 3 not found, 4 permission, 5 conflict,\n"
      "6 unavailable, 7 timeout, 8 no room, 141 nobody reads the output. See docs/commands.md."
  );
  Flags flags;

  CLI::App* serve_command =
      app.add_subcommand("serve", "Run the coordinator. Needs no configuration at all.");
  add_flags(*serve_command, flags);
  add_serve_flags(*serve_command, flags);

  CLI::App* verify_command =
      app.add_subcommand("verify", "Check the database and the audit chain.");
  add_flags(*verify_command, flags);

  CLI::App* topology_command = app.add_subcommand(
      "check-topology", "Check a file for serve --topology, and whether it fits the site's nodes."
  );
  add_flags(*topology_command, flags);
  topology_command->add_option("FILE", flags.topology, "the file")->required();

  return run_command_line(app, argc, argv, "reclaim-coordinator", [&] {
    if (topology_command->parsed()) return check_topology(flags);
    return serve_command->parsed() ? serve(flags) : verify(flags);
  });
}
