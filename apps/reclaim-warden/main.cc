// SPDX-License-Identifier: Apache-2.0
//
// reclaim-warden: the privileged half of a provider node. See docs/emergency.md for the owner.

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "command_line.h"
#include <fcntl.h>
#include <net/if.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/printable.h"
#include "io/patiently.h"
#include "io/real_clock.h"
#include "io/real_fs.h"
#include "model/data_sets.h"
#include "traffic/guest_cut.h"
#include "traffic/pinned_cut.h"
#include "traffic/transfer_gate.h"
#include "warden/engine_exec.h"
#include "warden/guest_uplink.h"
#include "warden/kill_service.h"
#include "warden/leave.h"
#include "warden/server.h"
#include "warden/verify.h"

namespace rn {
namespace {

using warden::MachineConfig;
using warden::MachinePaths;
using warden_wire::KillFrame;

constexpr milliseconds kDaemonLimit{1500};  ///< longer, and we do it ourselves
constexpr milliseconds kEndLimit = seconds(5);
constexpr std::uint32_t kUidMax = 0xfffffffe;  ///< the kernel takes the last number for none

/// Exit codes: what a script of the owner can rely on.
enum Code { kDone = 0, kFailed = 1, kUsage = 2, kNotCleared = 3 };

struct Options {
  std::string state = "/var/lib/reclaimnet";
  std::string run = "/run/reclaimnet";
  std::string lab;
  std::string engine;
  std::string init;
  std::string gpus = "static";
  std::string first_address;
  std::uint32_t agent_uid = 0;
  std::vector<std::uint32_t> owner_uids;
  std::uint64_t reserve_mib = 2048;
  std::uint64_t guest_uplink_bps = 0;
  std::string uplink;                  ///< INTERFACE:RATE
  std::vector<std::string> data_sets;  ///< NAME=/path
  bool is_floor_strict = false;
  std::vector<std::uint32_t> kill_gpus;
  bool is_cut_only = false;
  std::string transfers;  ///< INTERFACE[:RATE]
  bool cuts_transfers = false;
  bool allows_transfers = false;
  warden::EngineExec exec;
};

int complain(const Error& error) {
  std::fprintf(stderr, "reclaim-warden: %s\n", printable_lines(error.message).c_str());
  const std::string hint = error.hint.empty() ? "see 'reclaim-warden --help'" : error.hint;
  std::fprintf(stderr, "  next: %s\n", printable_lines(hint).c_str());
  return kFailed;
}

std::string own_path() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

/// Beside this program when installed, else in the build tree.
std::string find_init(const std::string& self) {
  const std::string folder = parent_folder(self);
  for (const std::string& path :
       {folder + "/reclaim-init",
        parent_folder(folder) + "/reclaim-init/reclaim-init",
        std::string("/usr/lib/reclaimnet/reclaim-init")}) {
    std::error_code ignored;  // nobody but root may be let in here
    if (std::filesystem::is_regular_file(path, ignored)) return path;
  }
  return {};
}

/// What `serve` was told and `kill`, `verify` and `leave` must know: lab, engine, addresses.
std::string settings_path(const Options& options) {
  return options.state + "/warden/settings";
}

/// Fills in what the flags leave out, and answers the lab that served; empty for none.
std::string recall_settings(Options& options) {
  std::ifstream file(settings_path(options));
  std::string lab, engine, address;
  file >> lab >> engine >> address;
  if (options.lab.empty()) options.lab = lab;
  if (options.engine.empty()) options.engine = engine;
  if (options.first_address.empty()) options.first_address = address;
  return lab;
}

MachineConfig machine_of(const Options& options) {
  MachineConfig machine;
  machine.lab = options.lab;
  machine.state = options.state + "/warden";
  machine.run = options.run;
  machine.agent_state = options.state + "/agent";
  machine.self = own_path();
  machine.init = options.init.empty() ? find_init(machine.self) : options.init;
  machine.engine = options.engine.empty() ? "private" : options.engine;
  machine.agent_uid = options.agent_uid;
  const passwd* agent = getpwuid(options.agent_uid);
  machine.agent_gid = agent != nullptr ? agent->pw_gid : options.agent_uid;
  machine.reserve_mib = options.reserve_mib;
  if (options.gpus == "nvidia") machine.gpu_access = warden::GpuAccess::kDeviceRequests;
  if (options.gpus == "cdi") machine.gpu_access = warden::GpuAccess::kCdi;
  if (!options.first_address.empty()) machine.first_address = options.first_address;
  machine.guest_uplink_bps = options.guest_uplink_bps;
  if (const auto grant = warden::parse_uplink(options.uplink)) machine.granted_bps = grant->bps;
  if (const auto transfers = warden::parse_transfers(options.transfers))
    machine.transfers = *transfers;
  for (const std::string& set : options.data_sets) {
    const auto equals = set.find('=');  // there: check_flags
    if (equals == std::string::npos) continue;
    std::string path = set.substr(equals + 1);
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    machine.data_sets[set.substr(0, equals)] = path;
  }
  return machine;
}

std::string pid_path(const Options& options) {
  return options.run + "/warden.pid";
}

/// Held while the daemon lives; -1 when another one holds it.
Result<int> lock_pid_file(const Options& options) {
  io::RealFileSystem fs;
  RN_CHECK(make_folders(fs, options.run, 0711).map_error([](const Error& e) {
    return e.with("--run").hinting("name a folder of its own");
  }));
  const int fd = open(pid_path(options).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return fail(ErrorCode::kDenied, pid_path(options) + " cannot be opened");
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return fail(ErrorCode::kConflict, "a warden runs already", "stop it first");
  }
  return fd;
}

Status serve_until_signal(const Options& options) {
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
  const MachineConfig machine = machine_of(options);
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

void print(const KillFrame& frame, bool is_by_hand) {
  const auto after = [&](const char* what, std::int64_t ns) {
    char text[64];
    const double ms = static_cast<double>(ns - frame.declared_ns) / 1e6;
    std::snprintf(text, sizeof text, ns == 0 ? "not %s" : "%s after %.3f ms", what, ms);
    return std::string(text);
  };
  const bool is_cut_only = frame.verb == KillFrame::kCutOnly;
  std::string words = after("cut", frame.cut_ns);
  if (!is_cut_only || frame.killed_ns != 0) words += ", " + after("killed", frame.killed_ns);
  if (!is_cut_only || frame.cleared_ns != 0) words += ", " + after("cleared", frame.cleared_ns);
  std::printf(
      "%s%s: %s, %u processes\n",
      frame.status != 0 ? "NOT CLEARED"
      : is_cut_only     ? "cut"
                        : "cleared",
      is_by_hand ? " (by hand)" : "",
      words.c_str(),
      frame.processes
  );
}

/// Closed gates are no cut for guests that live on and whose packets something sees before them.
/// The daemon knows by its last look, and has no room to name it; this tool looks now.
void look_past_the_gates(const std::string& folder, KillFrame& frame) {
  const auto gates = traffic::CutSwitch::open_pinned(folder);
  if (!gates) return;  // then nothing was cut, and that is said
  for (const traffic::FilterBefore& found : traffic::filters_before(*gates)) {
    frame.status = 2;
    frame.cut_ns = 0;
    std::printf(
        "remains: %s before the cut at %s%s%s\n",
        printable(found.filter.what).c_str(),
        found.interface.c_str(),
        found.filter.remove.empty() ? "" : "; next: ",
        found.filter.remove.c_str()
    );
  }
}

/// Root's order for the whole machine shuts the node's gate before it asks anybody, so that its cut
/// waits neither for a daemon that hangs nor for what comes before it in the daemon. The daemon, or
/// this program by hand, then does the whole: it journals, cuts again, kills and looks. An order
/// that comes to nothing in between was not answered, and whoever gave it repeats it.
void cut_at_once(const Options& options) {
  MachineConfig machine;
  machine.lab = options.lab;
  machine.state = options.state + "/warden";
  machine.run = options.run;
  const MachinePaths paths(machine);
  rn_pinned_shut_node(paths.gates.c_str());  // what fails here is told by what comes after it
}

/// After the daemon has answered an order that lets guests live.
void name_what_is_before(const Options& options, KillFrame& answer) {
  if (geteuid() == 0) {
    look_past_the_gates(MachinePaths(machine_of(options)).gates, answer);
  } else if (answer.status != 0) {
    std::fprintf(
        stderr,
        "reclaim-warden: next: reclaim-agent status --why names what stands before the cut\n"
    );
  }
}

/// Without the daemon: pinned gates and the guests' parent cgroup, directly.
Result<KillFrame> act_by_hand(const Options& options, KillFrame frame) {
  const MachineConfig machine = machine_of(options);
  const MachinePaths paths(machine);
  const io::RealClock clock{};
  warden::KillPathConfig config = warden::Machine::kill_config(machine, paths.hand_journal);
  config.is_emergency = true;
  const auto contexts = warden::nvml_when_asked();
  RN_TRY(const auto path, warden::KillPath::open(config, clock, contexts.get()));
  for (const std::string& missing : path->missing())
    std::fprintf(stderr, "reclaim-warden: going on without: %s\n", missing.c_str());
  const warden::ByHand meant =
      warden::by_hand(frame.gpu_mask, warden::JournalFile::look(paths.journal));
  if (!meant.widened.empty() && frame.verb != KillFrame::kStatus)
    std::fprintf(
        stderr,
        "reclaim-warden: which guest has which GPU is not known (%s): all guests of the machine "
        "go; "
        "next: start the warden, and reclaim-agent release when guests may come again\n",
        printable(meant.widened).c_str()
    );
  frame.gpu_mask = meant.gpu_mask;
  warden::SlotGpus gpus{};
  for (const warden::GuestRecord& guest : meant.guests) {
    gpus[guest.slot] = warden_wire::mask_of(guest.gpus);
    RN_CHECK(path->guest_started(guest.slot, {paths.cgroup + "/" + guest.container, "", "", 0}));
  }
  warden::EmergencyDone done;
  warden::carry_out(*path, gpus, clock, frame, done);
  if (frame.verb == KillFrame::kCutOnly) look_past_the_gates(paths.gates, frame);
  for (const std::string& left : done.report.remains)
    std::printf("remains: %s\n", printable(left).c_str());
  return frame;
}

/// Without the daemon: the pinned gate, then the file by which the next daemon knows.
Result<KillFrame> order_transfers_by_hand(const Options& options, KillFrame frame) {
  const MachinePaths paths(machine_of(options));
  auto cut = warden::TransfersCut::open(paths.gates, paths.transfers_cut);
  if (!cut && cut.error().code == ErrorCode::kNotFound) {
    frame.status = 5;
    return frame;
  }
  if (!cut) return fail(cut.error());
  warden::carry_out(*cut, io::RealClock(), frame);
  if (const Status kept = cut->record(); !kept)
    std::fprintf(
        stderr,
        "reclaim-warden: it holds until the machine is started again: %s\n",
        printable(kept.error().describe()).c_str()
    );
  return frame;
}

/// A mistyped name must not do to another lab what was meant for one. Unnamed, the gate of this run
/// folder is meant, whatever the settings say.
Status check_named_lab(Options& options) {
  const std::string asked = options.lab;
  const std::string served = recall_settings(options);
  if (asked.empty()) return {};
  RN_CHECK(warden::lab_to_kill(asked, served, warden::labs_here(), options.state));
  return {};
}

int order_transfers(Options& options, KillFrame::Verb verb) {
  if (const Status lab = check_named_lab(options); !lab) return complain(lab.error());
  KillFrame frame;
  frame.verb = verb;
  frame.declared_ns = to_ns(io::RealClock().now().boot);
  const auto asked = warden::ask_kill_socket(options.run + "/kill.sock", frame, kDaemonLimit);
  const bool is_by_hand = !asked;
  if (is_by_hand && geteuid() != 0)
    return complain(asked.error().hinting("run it as root: then it works without the daemon"));
  const auto answer = is_by_hand ? order_transfers_by_hand(options, frame) : asked;
  if (!answer) return complain(answer.error());
  if (answer->status == 5)
    return complain(
        {ErrorCode::kNotFound,
         "the agent's transfers are not bounded by a warden of " + options.run +
             ": nothing was done",
         "stop the agent (systemctl stop reclaim-agent), or name the folder that the warden's "
         "serve was given with --run; with --transfers it bounds them"}
    );
  if (answer->status == 3)
    return complain(
        {ErrorCode::kDenied,
         "only the owner may do this",
         "run it as root, or as a user named by the warden's --owner-uid"}
    );
  const char* const hand = is_by_hand ? " (by hand)" : "";
  if (answer->status != 0) {
    std::printf("NOT DONE%s: the kernel refuses the map write\n", hand);
    return kNotCleared;
  }
  if (verb == KillFrame::kAllowTransfers) {
    std::printf("transfers go on%s\n", hand);
    return kDone;
  }
  const double ms = static_cast<double>(answer->cut_ns - answer->declared_ns) / 1e6;
  std::printf("transfers cut%s after %.3f ms\n", hand, ms);
  return kDone;
}

int kill_machine(Options& options, KillFrame::Verb verb) {
  const std::string asked = options.lab;
  const std::string served = recall_settings(options);
  if (verb == KillFrame::kStatus) {
    const Status known = warden::check_served(asked, served, options.state);
    if (!known) return complain(known.error());
  } else {
    auto lab = warden::lab_to_kill(asked, served, warden::labs_here(), options.state);
    if (!lab) return complain(lab.error());
    options.lab = *std::move(lab);
  }
  const Status gpus = warden_wire::check_gpus(options.kill_gpus);
  if (!gpus) return complain(gpus.error());
  KillFrame frame;
  frame.verb = verb;
  frame.gpu_mask = warden_wire::mask_of(options.kill_gpus);
  if (verb != KillFrame::kStatus && frame.gpu_mask == 0 && geteuid() == 0) cut_at_once(options);
  // After that write: a release that opened the gate behind it ended no order that is younger.
  frame.declared_ns = to_ns(io::RealClock().now().boot);
  bool is_by_hand = false;
  auto answer = warden::ask_kill_socket(options.run + "/kill.sock", frame, kDaemonLimit);
  if (!answer && geteuid() != 0)
    return complain(answer.error().hinting("run it as root: then it works without the daemon"));
  if (!answer) {
    std::fprintf(stderr, "reclaim-warden: %s: by hand\n", answer.error().message.c_str());
    is_by_hand = true;
    answer = act_by_hand(options, frame);
  }
  if (!answer) return complain(answer.error());
  if (answer->status == 4)
    return complain(
        {ErrorCode::kConflict,
         "the whole machine was released after this order: nothing was done",
         "give the order again"}
    );
  if (answer->status == 3)
    return complain(
        {ErrorCode::kDenied,
         "only the owner may do this",
         "run it as root, or as a user named by the warden's --owner-uid"}
    );
  if (verb == KillFrame::kStatus) {
    std::printf(
        "%s, %u things of guests seen\n",
        answer->status == 0 ? "clear" : "guests",
        answer->processes
    );
    // The daemon's answer has no room for names.
    if (answer->status != 0 && !is_by_hand && geteuid() == 0) (void)act_by_hand(options, frame);
  } else {
    const bool is_whole = answer->gpu_mask == 0;  // of one GPU's guests the daemon knows more
    if (verb == KillFrame::kCutOnly && !is_by_hand && (is_whole || answer->status != 0))
      name_what_is_before(options, *answer);
    print(*answer, is_by_hand);
  }
  return answer->status == 0 ? kDone : kNotCleared;
}

/// After an order that failed: what it, or reclaim-kill ahead of it, has cut all the same.
void name_what_stays_cut(const Options& options) {
  const std::string gates = MachinePaths(machine_of(options)).gates;
  if (options.cuts_transfers || options.allows_transfers) {
    const auto gate = traffic::TransferGate::open_pinned(gates);
    const Result<bool> is_open = gate ? gate->is_open() : fail(gate.error());
    if (is_open && !*is_open)
      std::fprintf(
          stderr,
          "reclaim-warden: the agent's transfers stay cut\n"
          "  next: reclaim-kill --allow-transfers lets them go on\n"
      );
    return;
  }
  const auto gate = traffic::CutSwitch::open_pinned(gates);
  const Result<traffic::CutState> state = gate ? gate->state() : fail(gate.error());
  if (state && !state->is_node_open)
    std::fprintf(
        stderr,
        "reclaim-warden: the guests' packets stay cut\n"
        "  next: reclaim-agent release lets them pass again\n"
    );
}

int carry_out_kill(Options& options) {
  if (options.cuts_transfers) return order_transfers(options, KillFrame::kCutTransfers);
  if (options.allows_transfers) return order_transfers(options, KillFrame::kAllowTransfers);
  return kill_machine(options, options.is_cut_only ? KillFrame::kCutOnly : KillFrame::kCutAndClear);
}

int order_kill(Options& options) {
  const int code = carry_out_kill(options);
  if (code == kFailed) name_what_stays_cut(options);
  return code;
}

/// Ends the daemon, if one runs, and keeps another from starting: answers the pid file's lock,
/// which also tells a living one from a stale file. A daemon that waits for a hanging engine is
/// killed: it is made for that.
Result<int> stop_daemon(const Options& options) {
  pid_t pid = 0;
  for (const int signal : {SIGTERM, SIGKILL}) {
    const auto locked = lock_pid_file(options);
    if (locked || locked.error().code != ErrorCode::kConflict) return locked;
    std::ifstream file(pid_path(options));
    if (file >> pid && pid > 1) kill(pid, signal);
    std::fprintf(stderr, "reclaim-warden: ending the running warden, 5 s at most\n");
    Result<int> lock = fail(ErrorCode::kConflict, "");
    const Status ended = io::patiently(kEndLimit, [&]() -> Status {
      lock = lock_pid_file(options);
      return lock ? Status{} : fail(lock.error());
    });
    if (ended) return lock;
  }
  return fail(
      ErrorCode::kTimeout,
      "the running warden (process " + std::to_string(pid) + ") does not end",
      "stop its service: systemctl stop reclaim-warden; then leave again"
  );
}

int leave(Options& options) {
  if (geteuid() != 0)
    return complain(
        {ErrorCode::kDenied,
         "leave must run as root: nobody else sees what is to be removed",
         "run it as root"}
    );
  recall_settings(options);
  if (options.lab.empty()) {
    std::printf("nothing to remove in %s\n", options.state.c_str());
    return kDone;
  }
  const auto lock = stop_daemon(options);
  if (!lock) return complain(lock.error());
  const io::RealClock clock{};
  const warden::LeaveReport report =
      warden::leave(machine_of(options), clock, [](const std::string& step) {
        std::fprintf(stderr, "reclaim-warden: %s\n", step.c_str());
      });
  for (const std::string& what : report.removed)
    std::printf("removed %s\n", printable(what).c_str());
  for (const std::string& what : report.stays) std::printf("STAYS %s\n", printable(what).c_str());
  close(*lock);
  if (report.stays.empty()) return kDone;
  return complain(
      {ErrorCode::kConflict,
       "not everything could be removed",
       "end what is named above, then: reclaim-warden leave"}
  );
}

std::string folder_name(const std::string& text) {
  return text.empty() ? "names no folder; give its path, or leave the flag out" : "";
}

void add_places(CLI::App& command, Options& options) {
  command.add_option("--state", options.state, "state folder")
      ->check(folder_name)
      ->capture_default_str();
  command.add_option("--run", options.run, "folder of the sockets")
      ->check(folder_name)
      ->capture_default_str();
  command.add_option("--lab", options.lab, "the lab's short name");
  command.add_option("--engine", options.engine, "private, or the socket of an engine");
  command.add_option(
      "--guest-addresses", options.first_address, "first address of the guests' /22"
  );
}

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
  command.add_option("--gpus", options.gpus, "how GPUs are given: static, nvidia or cdi")
      ->check(CLI::IsMember({"static", "nvidia", "cdi"}));
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

}  // namespace
}  // namespace rn

int main(int argc, char** argv) {
  using rn::KillFrame;
  CLI::App app("reclaim-warden: gives the machine back to its owner");
  app.require_subcommand(1);
  rn::Options options;
  int code = rn::kUsage;
  rn::add_serve(app, options, code);

  CLI::App& kill =
      *app.add_subcommand("kill", "take the machine back now; works without the daemon");
  rn::add_places(kill, options);
  rn::add_numbers(kill, "--gpu", options.kill_gpus, "only guests of these GPUs", 0u, 63u);
  CLI::Option* const cut_only =
      kill.add_flag("--cut-only", options.is_cut_only, "cut their packets, let them live");
  CLI::Option* const cut_transfers = kill.add_flag(
                                             "--transfers",
                                             options.cuts_transfers,
                                             "only cut the agent's own transfers; guests stay"
  )
                                         ->excludes(cut_only)
                                         ->excludes("--gpu");
  kill.add_flag("--allow-transfers", options.allows_transfers, "let them go on")
      ->excludes(cut_only)
      ->excludes(cut_transfers)
      ->excludes("--gpu");
  kill.callback([&] { code = rn::order_kill(options); });
  CLI::App& verify = *app.add_subcommand("verify", "look whether anything of a guest is left");
  rn::add_places(verify, options);
  verify.callback([&] { code = rn::kill_machine(options, KillFrame::kStatus); });
  CLI::App& leave = *app.add_subcommand("leave", "remove everything and say what");
  rn::add_places(leave, options);
  leave.callback([&] { code = rn::leave(options); });

  CLI::App& exec =
      *app.add_subcommand("engine-exec", "(internal) start the private engine")->group("");
  exec.add_option("--etc", options.exec.etc)->required();
  exec.add_option("--containerd", options.exec.containerd)->required();
  exec.add_option("--log", options.exec.log)->required();
  exec.add_option("argv", options.exec.argv)->required();
  exec.callback([&] {
    (void)std::signal(SIGPIPE, SIG_DFL);  // a program inherits what is ignored
    const rn::Status started = rn::warden::exec_engine(options.exec);
    code = started ? rn::kDone : rn::complain(started.error());
  });

  // Before any verb runs: engine and guests see these paths from other folders, and the kernel
  // names mounts by their true paths.
  app.parse_complete_callback([&] {
    for (std::string* path : {&options.state, &options.run, &options.init}) {
      if (path->empty()) continue;
      std::error_code failed;  // below a folder that is gone, a relative path stays what it is
      const auto absolute = std::filesystem::absolute(*path, failed);
      if (failed) continue;
      std::string whole = std::filesystem::weakly_canonical(absolute, failed);
      while (whole.size() > 1 && whole.back() == '/') whole.pop_back();
      if (!failed) *path = whole;
    }
  });
  return rn::run_command_line(app, argc, argv, "reclaim-warden", [&] { return code; });
}
