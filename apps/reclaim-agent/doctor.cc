// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "commands.h"
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/contract_file.h"
#include "agent/core_types.h"
#include "agent/identity.h"
#include "agent/telemetry_host.h"
#include "agent/telemetry_nvml.h"
#include "arbiter/clocks.h"
#include "base/printable.h"
#include "io/framed_unix.h"
#include "io/http_client.h"
#include "io/real_clock.h"
#include "io/real_fs.h"
#include "model/data_sets.h"

namespace rn::agent {

namespace {

struct Finding {
  std::string piece;
  bool is_there = false;
  bool is_needed = true;
  std::string what;
  std::string next;
};

using Findings = std::vector<Finding>;

/// As the agent's sentence on why it lends or not begins this part (src/agent/core.cc).
constexpr const char* kRefusedWords = "the coordinator refuses this machine";

void look_at_machine(const AgentConfig& config, Findings& out) {
  io::RealFileSystem fs;
  const HostSampler host(config.root);
  const auto id = machine_id(fs, config.machine_id_file);
  out.push_back(
      {"machine identifier",
       id.has_value(),
       true,
       id ? config.machine_id_file : id.error().message,
       "systemd-machine-id-setup"}
  );
  const std::string groups = host.cgroup_version();
  out.push_back({"control groups", true, true, groups, ""});
  out.push_back(
      {"user namespaces",
       host.has_user_namespaces(),
       false,
       host.has_user_namespaces() ? "on" : "off: guests run without their own uid range",
       "sysctl -w user.max_user_namespaces=10000"}
  );

  if (host.lacks_apparmor_parser()) {
    out.push_back(
        {"AppArmor",
         false,
         true,
         "the kernel has it on, and there is no apparmor_parser: no guest can start",
         "apt install apparmor"}
    );
  }

  struct stat info {};

  const bool has_bpf = stat((config.root + "/sys/fs/bpf").c_str(), &info) == 0;
  out.push_back({"BPF file system", has_bpf, true, "/sys/fs/bpf", "mount -t bpf bpf /sys/fs/bpf"});
  const auto free = fs.free_bytes(parent_folder(config.state));
  const std::uint64_t free_mib = free.value_or(0) >> 20;
  out.push_back(
      {"disk",
       free_mib > 4096,
       true,
       std::to_string(free_mib) + " MiB free",
       "free at least 4 GiB below " + config.state}
  );
  if (!config.nvml_library.empty()) {
    const auto nvml = NvmlSampler::open(config.nvml_library);
    out.push_back(
        {"NVIDIA driver",
         nvml.has_value(),
         false,
         nvml ? std::to_string((*nvml)->gpus().size()) + " GPUs" : nvml.error().message,
         nvml || nvml.error().hint.empty()
             ? "apt install nvidia-driver, if the machine has such GPUs"
             : nvml.error().hint}
    );
  }
}

void look_at_identity(const AgentConfig& config, Findings& out) {
  io::RealFileSystem fs;
  const auto id = machine_id(fs, config.machine_id_file);
  const auto identity = load_identity(fs, config.identity_folder(), id.value_or(""));
  if (!identity) {
    out.push_back({"identity", false, true, identity.error().message, identity.error().hint});
    return;
  }
  out.push_back({"identity", true, true, identity->node.str() + " of " + identity->lab.str(), ""});
  const std::string expiry = expiry_of(*identity, io::RealClock().now().wall);
  out.push_back(
      {"certificate",
       expiry.empty(),
       true,
       expiry.empty() ? "valid" : expiry,
       rejoin_help(*identity)}
  );
  io::HttpCall call;
  call.url = identity->coordinator_url + "/healthz";
  call.tls = tls_to_coordinator(*identity);
  call.timeout = seconds(5);
  const auto reply = io::succeed(io::perform_blocking(call));
  out.push_back(
      {"coordinator",
       reply.has_value(),
       true,
       reply ? identity->coordinator_url : reply.error().message,
       "check the network to " + identity->coordinator_url + "; running guests go on meanwhile"}
  );
}

/// The warden leaves the reason where it could not show a guest's disk to the agent.
void look_at_views(const AgentConfig& config, Findings& out) {
  io::RealFileSystem fs;
  const auto why = read_all(fs, config.state + "/warden/no-view", 4096);
  out.push_back(
      {"guests' private files",
       !why,
       false,
       why ? "not readable by the agent, so not saved: " + std::string(as_text(*why))
           : "can be saved",
       "let guests write checkpoints that everybody may read (umask 022), or see the reason"}
  );
}

void look_at_data(const AgentConfig& config, const NodeFacts& facts, Findings& out) {
  for (const std::string& name : config.data_sets) {
    const bool is_offered = missing_data_set({name}, facts.data_sets).empty();
    out.push_back(
        {"data set",
         is_offered,
         true,
         name + (is_offered ? " is offered"
                            : " is not offered: the warden has none of this name, or its folder is "
                              "not there"),
         "reclaim-warden serve --data-set " + name + "=FOLDER (systemctl restart reclaim-warden)"}
    );
  }
}

/// Nothing where the coordinator's is not known: that it is away is said by another line.
void look_at_clock(const NodeView& view, Findings& out) {
  if (!view.is_coordinator_connected) return;
  const std::string clocks = arbiter::clocks_words(view.contract, view.clock_offset_ms);
  out.push_back(
      {"clock",
       clocks.empty(),
       false,
       clocks.empty() ? "that of the coordinator" : clocks,
       arbiter::kClocksHelp}
  );
}

/// Reclaims of which something of a guest is still there.
void look_at_wedged(const NodeView& view, Findings& out) {
  for (const ReclaimRecord& reclaim : view.reclaims) {
    if (reclaim.phase != ReclaimPhase::kWedged) continue;
    std::string what = "of a guest there remains:";
    for (const std::string& remains : reclaim.remains) what += " " + remains + ";";
    what.pop_back();
    out.push_back(
        {"reclaim " + reclaim.id.str(),
         false,
         true,
         what,
         "end what is named; it is looked at again by itself, or at once with: reclaim-kill"}
    );
  }
}

void look_at_welcome(const NodeView& view, Findings& out) {
  const std::size_t at = view.why.find(kRefusedWords);
  if (at == std::string::npos) return;
  out.push_back(
      {"welcome",
       false,
       true,
       view.why.substr(at),
       "do what the coordinator says; it is tried again by itself"}
  );
}

/// What the agent says about its coordinator and its engine, beyond that it can be reached.
void look_at_agents_view(const AgentConfig& config, Findings& out) {
  io::HttpCall call;
  call.url = "http://agent/v1/node";
  call.unix_socket = config.control_path();
  call.timeout = seconds(5);
  const auto reply = io::succeed(io::perform_blocking(call));
  const auto view =
      reply ? node_view_from_json(reply->body) : Result<NodeView>(fail(reply.error()));
  if (!view) return;  // said by the agent's own line
  const bool has_engine = view->is_warden_connected && view->engine_gone_s < 0;
  out.push_back(
      {"container engine",
       has_engine,
       true,
       has_engine                   ? view->engine
       : !view->is_warden_connected ? "not known: the warden does not answer"
                                    : engine_trouble(*view),
       engine_help(!view->engine_refusal.empty())}
  );
  look_at_clock(*view, out);
  const bool has_room = view->journal_waits_s < 0;
  out.push_back(
      {"journal",
       has_room,
       true,
       has_room ? "written"
                : "has waited for room on a full disk for " +
                      std::to_string(view->journal_waits_s) + " s",
       kRoomHelp}
  );
  out.push_back(
      {"copies at the uplink",
       view->are_copies_bounded,
       false,
       view->copies,
       "reclaim-warden serve --transfers auto:RATE, if the kernel is to hold copies to their rates"}
  );
  for (const std::string& trouble : view->troubles) {
    out.push_back(
        {"guests' packets",
         false,
         false,
         trouble,
         "find what changes foreign interfaces (a network manager? a script with tc?) and let it "
         "leave rn…g… alone"}
    );
  }
  look_at_wedged(*view, out);
  look_at_data(config, view->facts, out);
  look_at_welcome(*view, out);
}

void look_at_daemons(const AgentConfig& config, Findings& out) {
  const auto warden = io::FramedUnixClient::connect(config.warden_path());
  out.push_back(
      {"warden",
       warden.has_value(),
       true,
       warden ? config.warden_path() : warden.error().message,
       "systemctl start reclaim-warden"}
  );
  io::HttpCall call;
  call.url = "http://agent/healthz";
  call.unix_socket = config.control_path();
  call.timeout = seconds(5);
  const bool is_up = io::succeed(io::perform_blocking(call)).has_value();
  out.push_back(
      {"agent",
       is_up,
       true,
       is_up ? config.control_path() : "does not answer",
       "systemctl start reclaim-agent"}
  );
  if (is_up) look_at_agents_view(config, out);
  look_at_views(config, out);
  io::RealFileSystem fs;
  const auto contract = load_contract(fs, config.contract_path(), {}, config.zone_folder);
  const bool is_good = contract || contract.error().code == ErrorCode::kNotFound;
  out.push_back(
      {"contract",
       is_good,
       true,
       contract  ? (contract->lends ? "lends" : "does not lend")
       : is_good ? "none yet: the default holds"
                 : contract.error().message,
       "reclaim-agent contract set FILE"}
  );
}

}  // namespace

int do_doctor(const AgentConfig& config, bool as_json) {
  Findings findings;
  look_at_machine(config, findings);
  look_at_identity(config, findings);
  look_at_daemons(config, findings);
  int missing = 0;
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& f : findings) {
    if (!f.is_there && f.is_needed) ++missing;
    if (as_json) {
      list.push_back(
          {{"piece", f.piece},
           {"is_there", f.is_there},
           {"is_needed", f.is_needed},
           {"what", f.what},
           {"next", f.is_there ? "" : f.next}}
      );
      continue;
    }
    std::printf(
        "%-7s %-20s %s\n",
        f.is_there    ? "ok"
        : f.is_needed ? "MISSING"
                      : "absent",
        f.piece.c_str(),
        printable(f.what).c_str()
    );
    if (!f.is_there && !f.next.empty())
      std::printf("        next: %s\n", printable(f.next).c_str());
  }
  if (as_json) {
    using nlohmann::json;
    const std::string text = list.dump(2, ' ', false, json::error_handler_t::replace);
    std::printf("%s\n", printable_json(text).c_str());
  }
  if (!as_json && missing == 0) std::printf("nothing is missing\n");
  return missing == 0 ? 0 : 1;
}

}  // namespace rn::agent
