// SPDX-License-Identifier: Apache-2.0
#include "serve.h"

#include <csignal>
#include <filesystem>
#include <fstream>

#include "command_line.h"
#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "io/real_fs.h"
#include "io/service_manager.h"
#include "model/data_sets.h"
#include "warden/cgroup.h"
#include "warden/guest_ids.h"
#include "warden/guest_uplink.h"
#include "warden/server.h"

namespace rn::warden_cli {

using warden::MachineConfig;

namespace {

constexpr std::uint32_t kUidMax = 0xfffffffe;  ///< the kernel takes the last number for none

/// No other lab of the machine has them.
Status claim_ids(FileSystem& fs, MachineConfig& machine) {
  RN_TRY(const auto roots, warden::probe_cgroups());
  const auto guests = warden::pids_in_cgroup(roots, warden::MachinePaths(machine).cgroup);
  const bool has_guests = !guests || !guests->empty();
  RN_TRY(
      const warden::GuestIds ids,
      warden::claim_guest_ids(fs, {}, {machine.lab, machine.state, has_guests})
  );
  machine.first_guest_id = ids.first;
  const auto first = static_cast<std::int64_t>(ids.first);
  if (ids.is_new) log::info("guest_ids.chosen", {{"first", first}});
  if (!ids.shared_with.empty())
    log::warning("guest_ids.shared", {{"first", first}, {"with", ids.shared_with}});
  return {};
}

Status serve_until_signal(const Options& options) {
  io::ServiceManager manager = io::ServiceManager::take();  // before the engine is started
  if (geteuid() != 0)
    return fail(
        ErrorCode::kDenied,
        "the warden must run as root",
        "systemctl start reclaim-warden, or run this as root"
    );
  RN_TRY(const int lock, lock_pid_file(options));
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(lock, 0) != 0 || write(lock, pid.data(), pid.size()) < 0)
    return fail(ErrorCode::kInternal, pid_path(options) + " cannot be written");
  io::RealFileSystem fs;
  RN_CHECK(make_folders(fs, options.state + "/warden", 0711).map_error([](const Error& e) {
    return e.with("--state").hinting("name a folder of its own");
  }));
  MachineConfig machine = machine_of(options);
  if (machine.engine == "private") RN_CHECK(claim_ids(fs, machine));
  RN_CHECK(write_durably(
      fs,
      settings_path(options),
      as_bytes(machine.lab + "\n" + machine.engine + "\n" + machine.first_address + "\n"),
      0644
  ));
  io::Loop loop;
  RN_TRY(
      const auto server,
      warden::WardenServer::start({machine, options.owner_uids, options.is_floor_strict}, loop)
  );
  RN_CHECK(loop.on_signal({SIGTERM, SIGINT}, [&](int) { loop.stop(); }));
  log::info("warden.serving", {{"lab", machine.lab}, {"run", options.run}});
  manager.serving(loop);
  loop.run();
  log::info("warden.stopped");  // guests run on, cut by the lapsing lease until one serves again
  return {};
}

/// Names and paths; whether the folders are there is seen when they are opened.
Status check_data_flags(const Options& options) {
  const auto in_flag = [](const Error& error) { return error.with("--data-set"); };
  std::vector<std::string> names;
  for (const std::string& set : options.data_sets) {
    const auto equals = set.find('=');
    if (equals == std::string::npos)
      return fail(
          ErrorCode::kInvalid,
          "--data-set \"" + set + "\" is not NAME=FOLDER",
          "for example --data-set imagenet=/srv/imagenet"
      );
    names.push_back(set.substr(0, equals));
  }
  RN_CHECK(check_data_sets(names, kMaxDataSetsOfNode, "name").map_error(in_flag));
  const warden::DataConfig data = warden::data_config(machine_of(options));
  for (const auto& [name, path] : data.sets)
    RN_CHECK(warden::check_data_path(path, data.ours).map_error(in_flag));
  return {};
}

/// It becomes the first process of every guest, which has no loader: nothing but a program will do.
Status check_init(const Options& options) {
  if (geteuid() != 0) return {};  // who is not root is told that, whatever they cannot see
  const std::string init = machine_of(options).init;
  const std::string next = "give the path of the installed reclaim-init with --init";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(init, ignored))
    return fail(
        ErrorCode::kNotFound,
        init.empty() ? "reclaim-init is not beside this program"
                     : "--init " + init + " is not there, or is no file",
        next
    );
  char head[4] = {};
  std::ifstream(init, std::ios::binary).read(head, sizeof head);
  if (std::string_view(head, sizeof head) !=
          "\x7f"
          "ELF" ||
      access(init.c_str(), X_OK) != 0)
    return fail(ErrorCode::kInvalid, "--init " + init + " is no program that can be run", next);
  return {};
}

/// Whatever it is: a program, or a script of the owner's that runs one.
Status check_scrub(const Options& options) {
  if (geteuid() != 0 || options.gpu_scrub == "off") return {};
  const std::string scrub = machine_of(options).scrub;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(scrub, ignored) && access(scrub.c_str(), X_OK) == 0)
    return {};
  return fail(
      ErrorCode::kNotFound,
      scrub.empty()
          ? "--gpu-scrub " + options.gpu_scrub + ": reclaim-scrub is not beside this program"
          : "--gpu-scrub: " + scrub + " is no program that can be run",
      "give the path of the installed reclaim-scrub with --scrub, or --gpu-scrub off"
  );
}

Status check_uplink_flag(const Options& options) {
  if (options.uplink.empty()) return {};
  const auto in_flag = [](const Error& error) { return error.with("--uplink"); };
  const auto grant = warden::parse_uplink(options.uplink);
  if (!grant) return fail(in_flag(grant.error()));
  return warden::check_uplink(*grant, "/sys/class/net").map_error(in_flag);
}

/// Of the owner's engine that is to be used. It may be away: an engine can start after its warden.
Status check_engine_flag(const Options& options) {
  if (options.engine.empty() || options.engine == "private") return {};
  const std::string help =
      "give --engine private, or the whole path of an engine's socket, as "
      "/run/docker.sock";
  if (options.engine.front() != '/')
    return fail(
        ErrorCode::kInvalid, "--engine \"" + options.engine + "\" is no path from / on", help
    );

  struct stat there {};

  if (stat(options.engine.c_str(), &there) == 0 && !S_ISSOCK(there.st_mode))
    return fail(ErrorCode::kInvalid, "--engine " + options.engine + " is no socket", help);
  return {};
}

Status check_transfers_flag(const Options& options) {
  if (options.transfers.empty()) return {};
  const auto in_flag = [](const Error& error) { return error.with("--transfers"); };
  const auto grant = warden::parse_transfers(options.transfers);
  if (!grant) return fail(in_flag(grant.error()));
  if (options.agent_uid == 0)
    return fail(
        ErrorCode::kInvalid,
        "--transfers: an agent that runs as root cannot be told from you",
        "give it a user of its own, and that user's number as --agent-uid"
    );
  // Of this network namespace: /sys/class/net may show another one's.
  if (grant->interface.empty() || if_nametoindex(grant->interface.c_str()) != 0) return {};
  return fail(
      ErrorCode::kNotFound,
      "--transfers: no interface " + grant->interface,
      "`ip link` lists what there is; auto takes those of the default routes"
  );
}

/// What CLI11 cannot see; each error names its flag.
Status check_flags(const Options& options) {
  const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  if (options.lab.empty() || options.lab.size() > 63 ||
      letters.find(options.lab.front()) == std::string::npos ||
      options.lab.find_first_not_of(letters + "._-") != std::string::npos)
    return fail(
        ErrorCode::kInvalid,
        "--lab \"" + options.lab + "\" is no name of a control group",
        "use at most 63 letters, digits, '.', '_' and '-', with a letter or digit first"
    );
  if (options.agent_uid == 0)
    return fail(
        ErrorCode::kInvalid,
        "--agent-uid 0: the agent speaks to the network and must not be root",
        "useradd --system reclaim-agent; then --agent-uid $(id -u reclaim-agent)"
    );
  const auto addresses = warden::addresses_of(machine_of(options).first_address, 0);
  if (!addresses)
    return fail(addresses.error()
                    .with("--guest-addresses")
                    .hinting("give the first address of a private /22, as 100.64.0.0"));
  RN_CHECK(check_init(options));
  RN_CHECK(check_scrub(options));
  RN_CHECK(check_engine_flag(options));
  RN_CHECK(check_uplink_flag(options));
  RN_CHECK(check_transfers_flag(options));
  return check_data_flags(options);
}

/// Before the number is read, so that a name is told how it becomes one.
std::string user_number(const std::string& text) {
  const bool is_name = text.find_first_not_of("0123456789-") != std::string::npos;
  return is_name ? "'" + text + "' is no whole number; for a user called so: $(id -u " + text + ")"
                 : "";
}

int serve(Options& options) {
  umask(0022);
  if (const Status good = check_flags(options); !good) {
    complain(good.error());
    return kUsage;
  }
  const Status served = serve_until_signal(options);
  return served ? kDone : complain(served.error());
}
}  // namespace

void add_serve(CLI::App& app, Options& options, int& code) {
  CLI::App& command = *app.add_subcommand("serve", "run the daemon");
  add_places(command, options);
  command.get_option("--lab")->required();
  add_number(command, "--agent-uid", options.agent_uid, "who may ask for guests", 0u, kUidMax)
      ->required()
      ->check(user_number);
  add_numbers(
      command,
      "--owner-uid",
      options.owner_uids,
      "who may take the machine back, beside root",
      0u,
      kUidMax
  )
      ->check(user_number);
  command.add_option("--gpus", options.gpus, "how GPUs are given: static, nvidia, cdi or driver")
      ->check(CLI::IsMember({"static", "nvidia", "cdi", "driver"}));
  command
      .add_option(
          "--gpu-scrub",
          options.gpu_scrub,
          "whether a GPU's memory is overwritten before each guest: off, try, or must (no guest "
          "where that fails)"
      )
      ->check(CLI::IsMember({"off", "try", "must"}));
  command.add_option("--scrub", options.scrub, "the program that does it (reclaim-scrub)");
  command.add_option("--init", options.init, "the guest's static init");
  add_number(command, "--reserve-mib", options.reserve_mib, "disk never promised to guests");
  add_number(
      command, "--guest-uplink-bps", options.guest_uplink_bps, "cap of each guest; 0 = none"
  );
  command.add_option(
      "--uplink",
      options.uplink,
      "INTERFACE:RATE granted to all guests together, as eth0:90mbit: then none of their packets "
      "waits in a queue of that interface when you cut them"
  );
  command.add_option(
      "--transfers",
      options.transfers,
      "INTERFACE or INTERFACE:RATE, as auto:90mbit: where the agent's own transfers are bounded "
      "and "
      "can be cut; auto takes the interfaces of the default routes"
  );
  command.add_option(
      "--data-set", options.data_sets, "NAME=FOLDER that guests may read as /data/NAME, repeatable"
  );
  command.add_flag("--engine-floor-strict", options.is_floor_strict, "refuse old engines and runc");
  command.callback([&] { code = serve(options); });
}

}  // namespace rn::warden_cli
