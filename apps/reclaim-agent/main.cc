// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <functional>
#include <iostream>

#include "commands.h"
#include <CLI/CLI.hpp>
#include <unistd.h>

#include "agent/daemon.h"
#include "agent/identity.h"
#include "io/real_fs.h"
#include "io/real_rng.h"

namespace rn::agent {
namespace {

constexpr const char* kDefaultConfig = "/etc/reclaimnet/agent.yaml";

int serve(const AgentConfig& config) {
  auto daemon = Daemon::start(config);
  if (!daemon) return report(daemon.error());
  const Status ended = (*daemon)->run();
  return ended ? 0 : report(ended.error());
}

struct JoinFlags {
  std::string url;
  std::string token;
  std::string ca_fingerprint;
  std::string lab;
  std::string hostname;
};

int do_join(const AgentConfig& config, const JoinFlags& flags) {
  io::RealFileSystem fs;
  io::RealRng rng;
  JoinOptions options;
  options.url = flags.url;
  if (!options.url.starts_with("https://")) options.url = "https://" + options.url;
  while (options.url.ends_with('/')) options.url.pop_back();
  options.token = flags.token;
  options.ca_fingerprint = flags.ca_fingerprint;
  options.lab = flags.lab;
  options.hostname = flags.hostname;
  if (options.hostname.empty()) {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    options.hostname = name;
  }
  options.folder = config.identity_folder();
  const auto machine = machine_id(fs, config.machine_id_file);
  if (!machine) return report(machine.error());
  options.machine_id = *machine;
  const auto identity = join(fs, rng, options);
  if (!identity) return report(identity.error());
  std::printf(
      "joined as %s of %s\nnext: reclaim-agent serve (or systemctl enable --now reclaim-agent)\n",
      identity->node.str().c_str(),
      identity->lab.str().c_str()
  );
  return 0;
}

/// Flags that were given replace what the file says.
struct Overrides {
  std::string config_file = kDefaultConfig;
  std::map<std::string, std::string> texts;

  Result<AgentConfig> resolve() const {
    auto loaded = load_config(config_file);
    if (!loaded && (loaded.error().code != ErrorCode::kNotFound || config_file != kDefaultConfig))
      return loaded;
    AgentConfig config = loaded.value_or(AgentConfig{});
    const std::map<std::string, std::string AgentConfig::*> fields = {
        {"state", &AgentConfig::state},
        {"run", &AgentConfig::run},
        {"warden-sock", &AgentConfig::warden_socket},
        {"kill-sock", &AgentConfig::kill_socket},
        {"listen-peer", &AgentConfig::listen_peer},
        {"listen-api", &AgentConfig::listen_api},
        {"advertise-peer", &AgentConfig::advertise_peer},
        {"advertise-api", &AgentConfig::advertise_api},
        {"failure-domain", &AgentConfig::failure_domain},
        {"machine-id-file", &AgentConfig::machine_id_file},
        {"nvml-library", &AgentConfig::nvml_library},
        {"guest-group", &AgentConfig::guest_group}};
    for (const auto& [name, value] : texts) {
      const auto field = fields.find(name);
      if (field != fields.end()) config.*(field->second) = value;
    }
    return config;
  }
};

int run(int argc, char** argv) {
  CLI::App app("ReclaimNet's agent: lends this machine as its contract says");
  app.require_subcommand(1);
  app.fallthrough();
  Overrides overrides;
  app.add_option("--config", overrides.config_file, "configuration file");
  const std::vector<std::pair<std::string, std::string>> flags = {
      {"state", "state folder (/var/lib/reclaimnet)"},
      {"run", "folder of sockets (/run/reclaimnet)"},
      {"warden-sock", "the warden's socket (RUN/warden.sock)"},
      {"kill-sock", "the warden's kill socket (RUN/kill.sock)"},
      {"listen-peer", "ADDRESS:PORT of the peer data port; empty = none"},
      {"listen-api", "ADDRESS:PORT of the LAN API; empty = none"},
      {"advertise-peer", "HOST:PORT that peers dial"},
      {"advertise-api", "HOST:PORT of the LAN API that others dial"},
      {"failure-domain", "machines that fail together share it (default: the lab)"},
      {"machine-id-file", "the machine's identifier (/etc/machine-id)"},
      {"nvml-library", "library that reads GPUs; empty = none"},
      {"guest-group", "begin of the guests' control groups' names"}};
  for (const auto& [name, help] : flags) app.add_option("--" + name, overrides.texts[name], help);

  std::function<int(const AgentConfig&)> action;
  const auto command = [&](CLI::App* sub, std::function<int(const AgentConfig&)> run_it) {
    sub->callback([&action, run_it = std::move(run_it)] { action = run_it; });
  };
  JoinFlags join_flags;
  ReclaimFlags reclaim_flags;
  std::string duration;
  bool is_json = false;
  bool explains = false;
  bool purges = false;
  std::string reason = "the owner leaves";
  std::uint32_t wait_s = 900;
  std::string file;

  command(app.add_subcommand("serve", "run the daemon"), serve);
  CLI::App* sub = app.add_subcommand("join", "join a coordinator with a one-use token");
  sub->add_option("url", join_flags.url, "https://HOST:PORT")->required();
  sub->add_option("--token", join_flags.token, "rn1.ID.SECRET.FINGERPRINT")->required();
  sub->add_option("--ca-fingerprint", join_flags.ca_fingerprint, "SHA-256 of the site's CA");
  sub->add_option("--lab", join_flags.lab, "refuse to join another lab");
  sub->add_option("--hostname", join_flags.hostname, "name to show");
  command(sub, [&](const AgentConfig& c) { return do_join(c, join_flags); });

  sub = app.add_subcommand("reclaim", "take the machine, or GPUs of it, back");
  sub->add_option("--gpu", reclaim_flags.gpus, "only this GPU; repeatable");
  auto* in = sub->add_option("--in", reclaim_flags.in, "announce it: 90s, 10m, 2h from now");
  sub->add_flag("--now", reclaim_flags.is_now, "at once, without any notice")->excludes(in);
  sub->add_option("-m,--message", reclaim_flags.message, "words for the guests");
  command(sub, [&](const AgentConfig& c) { return do_reclaim(c, reclaim_flags); });
  sub = app.add_subcommand("release", "lend again");
  sub->add_option("--gpu", reclaim_flags.gpus, "only this GPU; repeatable");
  command(sub, [&](const AgentConfig& c) { return do_release(c, reclaim_flags.gpus); });
  command(app.add_subcommand("pause", "take no new guests"), [](const AgentConfig& c) {
    return do_pause(c, 0);
  });
  command(app.add_subcommand("resume", "end a pause"), do_resume);
  sub = app.add_subcommand("snooze", "take no new guests for some time");
  sub->add_option("duration", duration, "90s, 10m, 2h")->required();
  command(sub, [&](const AgentConfig& c) {
    const auto for_s = parse_duration(duration);
    return for_s ? do_pause(c, std::max(*for_s, 1u)) : report(for_s.error());
  });
  sub = app.add_subcommand("status", "what is lent, to whom");
  sub->add_flag("--why", explains, "with reasons");
  sub->add_flag("--json", is_json, "for programs");
  command(sub, [&](const AgentConfig& c) { return do_status(c, explains, is_json); });
  sub = app.add_subcommand("doctor", "name every missing piece and what to do");
  sub->add_flag("--json", is_json, "for programs");
  command(sub, [&](const AgentConfig& c) { return do_doctor(c, is_json); });
  sub = app.add_subcommand("leave", "let guests save and go, tell the coordinator, end");
  sub->add_flag("--purge", purges, "and remove all files");
  sub->add_option("--reason", reason, "words for the record");
  sub->add_option("--wait", wait_s, "seconds to wait at most");
  command(sub, [&](const AgentConfig& c) { return do_leave(c, purges, reason, wait_s); });
  sub = app.add_subcommand("contract", "what this machine grants");
  sub->require_subcommand(1);
  command(sub->add_subcommand("show", "the one in force"), do_contract_show);
  CLI::App* check = sub->add_subcommand("check", "check a file without using it");
  check->add_option("file", file)->required();
  command(check, [&](const AgentConfig& c) { return do_contract_check(c, file); });
  CLI::App* set = sub->add_subcommand("set", "put a file in force");
  set->add_option("file", file)->required();
  command(set, [&](const AgentConfig& c) { return do_contract_set(c, file); });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  // Only flags that were given count: an empty --listen-api means none.
  for (const auto& [name, help] : flags) {
    if (app.count("--" + name) == 0) overrides.texts.erase(name);
  }
  const auto config = overrides.resolve();
  if (!config) return report(config.error());
  return action(*config);
}

}  // namespace
}  // namespace rn::agent

int main(int argc, char** argv) {
  return rn::agent::run(argc, argv);
}
