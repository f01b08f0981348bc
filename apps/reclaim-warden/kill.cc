// SPDX-License-Identifier: Apache-2.0
#include "kill.h"

#include <cstdio>
#include <string>

#include <unistd.h>

#include "base/printable.h"
#include "io/real_clock.h"
#include "traffic/guest_cut.h"
#include "traffic/pinned_cut.h"
#include "traffic/transfer_gate.h"
#include "warden/journal_file.h"
#include "warden/kill_service.h"
#include "warden/verify.h"

namespace rn::warden_cli {

using warden::MachineConfig;
using warden::MachinePaths;
using warden_wire::KillFrame;

namespace {

constexpr milliseconds kDaemonLimit{1500};  ///< longer, and we do it ourselves

Result<KillFrame> ask_the_daemon(const Options& options, const KillFrame& frame) {
  return warden::ask_kill_socket(
      options.run + "/kill.sock", frame, kDaemonLimit, pid_path(options)
  );
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

int complain_to_stranger() {
  return complain(
      {ErrorCode::kDenied,
       "only the owner may do this",
       "run it as root, or as a user named by the warden's --owner-uid"}
  );
}

int order_transfers(Options& options, KillFrame::Verb verb) {
  if (const Status lab = check_named_lab(options); !lab) return complain(lab.error());
  KillFrame frame;
  frame.verb = verb;
  frame.declared_ns = to_ns(io::RealClock().now().boot);
  const auto asked = ask_the_daemon(options, frame);
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
  if (answer->status == 3) return complain_to_stranger();
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
  auto answer = ask_the_daemon(options, frame);
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
  if (answer->status == 3) return complain_to_stranger();
  if (verb == KillFrame::kStatus) {
    std::printf(
        "%s: of guests' processes, interfaces, mounts and the like, %u are there\n",
        answer->status == 0 ? "clear" : "not clear",
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

}  // namespace

int order_kill(Options& options) {
  const int code = carry_out_kill(options);
  if (code == kFailed) name_what_stays_cut(options);
  return code;
}

int look_whether_clear(Options& options) {
  return kill_machine(options, KillFrame::kStatus);
}

}  // namespace rn::warden_cli
