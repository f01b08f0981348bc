// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <functional>

#include "command_line.h"
#include "commands.h"

#include "agent/daemon.h"
#include "agent/identity.h"
#include "base/printable.h"
#include "io/own_address.h"
#include "io/real_clock.h"
#include "io/real_fs.h"
#include "io/real_rng.h"
#include "io/service_manager.h"
#include "io/url.h"

namespace rn::agent {
namespace {

constexpr const char* kDefaultConfig = "/etc/reclaimnet/agent.yaml";
constexpr std::uint32_t kGpuMax = 63;  ///< the kill socket's frame has a bit for each
constexpr std::uint32_t kWaitMaxS = 7 * 86'400;

int serve(const AgentConfig& config) {
  io::ServiceManager manager = io::ServiceManager::take();
  io::RealFileSystem fs;
  if (has_left(fs, config.identity_folder())) {
    // 0, so that no service tries again; an end before this word would be a failure.
    manager.ready();
    std::fprintf(
        stderr,
        "reclaim-agent: this node has left its site for good\n"
        "  next: reclaim-agent leave --purge removes its files; then it may join again\n"
    );
    return 0;
  }
  auto daemon = Daemon::start(config);
  if (!daemon) return report(daemon.error());
  manager.serving((*daemon)->loop());
  const Status ended = (*daemon)->run();
  return ended ? 0 : report(ended.error());
}

struct JoinFlags {
  std::string url;
  std::string token;
  std::string ca_fingerprint;
  std::string lab;
  std::string hostname;
  bool is_again = false;
};

int do_join(const AgentConfig& config, const JoinFlags& flags) {
  io::RealFileSystem fs;
  io::RealRng rng;
  JoinOptions options;
  const auto url = io::site_url(flags.url);
  if (!url) return report(url.error());
  options.url = *url;
  options.token = flags.token;
  options.ca_fingerprint = flags.ca_fingerprint;
  options.lab = flags.lab;
  options.hostname = io::own_hostname();
  options.shown_as = flags.hostname;
  if (!flags.hostname.empty() && !io::is_host_name(flags.hostname))
    return report(
        {ErrorCode::kInvalid,
         "--hostname: '" + flags.hostname + "' is no name of a machine",
         "use letters, digits, '-' and '.', as node1.example.org"}
    );
  options.folder = config.identity_folder();
  options.now = io::RealClock().now().wall;
  options.is_again = flags.is_again;
  const bool was_joined = fs.stat(join_path(options.folder, "identity.json")).has_value();
  const auto machine = machine_id(fs, config.machine_id_file);
  if (!machine) return report(machine.error());
  options.machine_id = *machine;
  const auto identity = join(fs, rng, options);
  if (!identity) return report(identity.error());
  std::printf(
      "joined%s as %s of %s\nnext: %s\n",
      was_joined ? " again" : "",
      printable(identity->node.str()).c_str(),
      printable(identity->lab.str()).c_str(),
      was_joined ? "restart the agent, if it runs (systemctl restart reclaim-agent)"
                 : "reclaim-agent serve (or systemctl enable --now reclaim-agent)"
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

/// Everything that commands read; filled by the parser before one of them runs.
struct Flags {
  JoinFlags join;
  ReclaimFlags reclaim;
  std::string duration;
  bool is_json = false;
  bool explains = false;
  bool purges = false;
  std::string reason = "the owner leaves";
  std::uint32_t wait_s = 900;
  std::string file;
  std::uint32_t gpu = 0;
  bool is_sure = false;
};

using Action = std::function<int(const AgentConfig&)>;

const std::vector<std::pair<std::string, std::string>>& override_flags() {
  static const std::vector<std::pair<std::string, std::string>> kFlags = {
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
  return kFlags;
}

class Commands {
 public:
  Commands(CLI::App& app, Flags& flags) : app_(app), flags_(flags) {
    add(app_.add_subcommand("serve", "run the daemon"), serve);
    add_join();
    add_owner();
    add_views();
    add_gpu();
    add_contract();
  }

  int run(const AgentConfig& config) const { return action_(config); }

 private:
  void add(CLI::App* command, Action action) {
    command->callback([this, action = std::move(action)] { action_ = action; });
  }

  void add_join() {
    CLI::App* sub = app_.add_subcommand("join", "join a coordinator with a one-use token");
    sub->add_option("url", flags_.join.url, "https://HOST[:PORT], by default port 7443")
        ->required();
    add_secret(*sub, "--token", flags_.join.token, "rn1.ID.SECRET.FINGERPRINT")->required();
    sub->add_option("--ca-fingerprint", flags_.join.ca_fingerprint, "SHA-256 of the site's CA");
    sub->add_option("--lab", flags_.join.lab, "refuse to join another lab");
    sub->add_option("--hostname", flags_.join.hostname, "name to show instead of the machine's");
    sub->add_flag(
        "--again", flags_.join.is_again, "another certificate, though the present one is valid"
    );
    add(sub, [this](const AgentConfig& c) { return do_join(c, flags_.join); });
    sub = app_.add_subcommand("leave", "let guests save and go, tell the coordinator, end");
    sub->add_flag("--purge", flags_.purges, "and remove all files");
    sub->add_option("--reason", flags_.reason, "words for the record");
    add_number(*sub, "--wait", flags_.wait_s, "seconds to wait at most", 1u, kWaitMaxS);
    add(sub, [this](const AgentConfig& c) {
      return do_leave(c, flags_.purges, flags_.reason, flags_.wait_s);
    });
  }

  void add_owner() {
    CLI::App* sub = app_.add_subcommand(
        "reclaim",
        "take the machine, or GPUs of it, back; without a flag with the notice of its contract"
    );
    add_numbers(*sub, "--gpu", flags_.reclaim.gpus, "only this GPU; repeatable", 0u, kGpuMax);
    auto* in = sub->add_option("--in", flags_.reclaim.in, "announce it: 90s, 10m, 2h from now");
    sub->add_flag("--now", flags_.reclaim.is_now, "at once, without any notice")->excludes(in);
    sub->add_option(
        "-m,--message", flags_.reclaim.message, "words for the guests (--now: none hears them)"
    );
    add(sub, [this](const AgentConfig& c) { return do_reclaim(c, flags_.reclaim); });
    sub = app_.add_subcommand("release", "lend again what was taken back");
    add_numbers(*sub, "--gpu", flags_.reclaim.gpus, "only this GPU; repeatable", 0u, kGpuMax);
    add(sub, [this](const AgentConfig& c) { return do_release(c, flags_.reclaim.gpus); });
    add_pauses();
  }

  void add_pauses() {
    CLI::App* sub =
        app_.add_subcommand("pause", "take no new guests, until 'resume'; who is there stays");
    add_numbers(*sub, "--gpu", flags_.reclaim.gpus, "on this GPU alone; repeatable", 0u, kGpuMax);
    add(sub, [this](const AgentConfig& c) { return do_pause(c, 0, flags_.reclaim.gpus); });
    sub = app_.add_subcommand("resume", "end a pause, of the machine and all its GPUs");
    add_numbers(*sub, "--gpu", flags_.reclaim.gpus, "of this GPU alone; repeatable", 0u, kGpuMax);
    add(sub, [this](const AgentConfig& c) { return do_resume(c, flags_.reclaim.gpus); });
    sub = app_.add_subcommand("snooze", "take no new guests for some time");
    add_numbers(*sub, "--gpu", flags_.reclaim.gpus, "on this GPU alone; repeatable", 0u, kGpuMax);
    sub->add_option("duration", flags_.duration, "90s, 10m, 2h")->required();
    add(sub, [this](const AgentConfig& c) {
      const auto for_s = parse_duration(flags_.duration);
      return for_s ? do_pause(c, *for_s, flags_.reclaim.gpus) : report(for_s.error());
    });
  }

  void add_gpu() {
    CLI::App* sub = app_.add_subcommand("gpu", "GPUs that are sick");
    sub->require_subcommand(1);
    CLI::App* ok = sub->add_subcommand("ok", "you have looked at it: lend it again");
    add_number(*ok, "index", flags_.gpu, "as reclaim-agent status shows it", 0u, kGpuMax)
        ->required();
    add(ok, [this](const AgentConfig& c) { return do_gpu_ok(c, flags_.gpu); });
  }

  void add_views() {
    CLI::App* sub = app_.add_subcommand("status", "what is lent, to whom");
    sub->add_flag("--why", flags_.explains, "with reasons");
    sub->add_flag("--json", flags_.is_json, "for programs");
    add(sub,
        [this](const AgentConfig& c) { return do_status(c, flags_.explains, flags_.is_json); });
    sub = app_.add_subcommand("doctor", "name every missing piece and what to do");
    sub->add_flag("--json", flags_.is_json, "for programs");
    add(sub, [this](const AgentConfig& c) { return do_doctor(c, flags_.is_json); });
  }

  void add_contract() {
    CLI::App* sub = app_.add_subcommand("contract", "what this machine grants");
    sub->require_subcommand(1);
    add(sub->add_subcommand("show", "the one in force"), do_contract_show);
    CLI::App* check = sub->add_subcommand("check", "check a file without using it");
    check->add_option("file", flags_.file)->required();
    add(check, [this](const AgentConfig& c) { return do_contract_check(c, flags_.file); });
    CLI::App* set = sub->add_subcommand("set", "put a file in force");
    set->add_option("file", flags_.file)->required();
    add(set, [this](const AgentConfig& c) { return do_contract_set(c, flags_.file); });
    add(sub->add_subcommand("pending", "the change made elsewhere that waits"),
        do_contract_pending);
    CLI::App* accept = sub->add_subcommand("accept", "put the change that waits in force");
    accept->add_flag("-y,--yes", flags_.is_sure, "do not ask");
    add(accept, [this](const AgentConfig& c) { return do_contract_accept(c, flags_.is_sure); });
    add(sub->add_subcommand("reject", "drop the change that waits"), do_contract_reject);
  }

  CLI::App& app_;
  Flags& flags_;
  Action action_;
};

void make_absolute(std::string& path) {
  if (!path.empty()) path = std::filesystem::absolute(path).lexically_normal().string();
}

constexpr const char* kExitCodes =
    "Exit codes: 0 success, 1 failure, 2 usage, 3 not found, 4 permission, 5 conflict,\n"
    "6 unreachable, 7 timeout, 8 no room, 141 nobody reads the output. See docs/commands.md.";

/// With everything parsed: what the file says, the flags over it, and the command.
int act(const CLI::App& app, const Commands& commands, Overrides& overrides, Flags& flags) {
  // Only flags that were given count: an empty --listen-api means none.
  for (const auto& [name, help] : override_flags()) {
    if (app.count("--" + name) == 0) overrides.texts.erase(name);
  }
  // People name files relative to where they stand; everything below works with absolute paths.
  for (std::string* path : {&overrides.config_file, &flags.file}) make_absolute(*path);
  auto config = overrides.resolve();
  if (!config) return report(config.error());
  for (std::string* path :
       {&config->state,
        &config->run,
        &config->warden_socket,
        &config->kill_socket,
        &config->machine_id_file})
    make_absolute(*path);
  // Flags may have replaced what the file said.
  if (const Status good = check_config(*config); !good)
    return report(good.error().hinting("correct it in the configuration file, or by its flag"));
  return commands.run(*config);
}

int run(int argc, char** argv) {
  CLI::App app(
      "Lends this machine as its contract says, and takes it back.\n\n"
      "For its owner:\n"
      "  reclaim-agent reclaim --now      it is yours at once; 'reclaim-kill' does it where all "
      "else is dead\n"
      "  reclaim-agent reclaim --in 10m   guests are told, save and leave until then\n"
      "  reclaim-agent release            lends it again\n"
      "  reclaim-agent snooze 2h          lets nobody new in for two hours; who is there stays\n"
      "  reclaim-agent status --why       what is lent to whom, or why nothing is\n"
      "  reclaim-agent contract check contract.yaml\n\n"
      "docs/lending.md says how a machine joins; docs/emergency.md is the page to print."
  );
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(kExitCodes);
  Overrides overrides;
  app.add_option("--config", overrides.config_file, "configuration file");
  for (const auto& [name, help] : override_flags())
    app.add_option("--" + name, overrides.texts[name], help);
  Flags flags;
  const Commands commands(app, flags);
  return run_command_line(app, argc, argv, "reclaim-agent", [&] {
    return act(app, commands, overrides, flags);
  });
}

}  // namespace
}  // namespace rn::agent

int main(int argc, char** argv) {
  return rn::agent::run(argc, argv);
}
