// SPDX-License-Identifier: Apache-2.0
#include "warden/guest_net.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include <arpa/inet.h>
#include <net/if.h>
#include <sys/stat.h>

#include "base/log.h"
#include "io/patiently.h"
#include "io/read_text.h"
#include "io/real_fs.h"
#include "io/subprocess.h"
#include "warden/guest_uplink.h"

namespace rn::warden {

namespace {

constexpr milliseconds kLimit = seconds(5);
constexpr const char* kTable = "reclaimnet";
constexpr int kGuestConnections = 4096;

using io::read_text;

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

/// Runs a program that reads its commands from standard input. A failure's message has its words.
Status run_with_input(std::vector<std::string> argv, const std::string& input) {
  const std::string program = argv.front();
  io::SpawnOptions options;
  options.argv = std::move(argv);
  RN_TRY(const io::RunOutput output, io::run_process(options, kLimit, input));
  if (output.status.is_success()) return {};
  return fail(ErrorCode::kInternal, program + ": " + trimmed(output.err));
}

std::string prefix_of(const std::string& lab) {
  std::uint32_t hash = 2'166'136'261U;  // FNV-1a
  for (const char c : lab) hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619U;
  std::array<char, 8> text{};
  snprintf(text.data(), text.size(), "rn%04x", (hash ^ (hash >> 16)) & 0xffffU);
  return text.data();
}

std::string forwarding_path(const std::string& interface) {
  return "/proc/sys/net/ipv4/conf/" + interface + "/forwarding";
}

}  // namespace

Result<SlotAddresses> addresses_of(const std::string& first_address, traffic::Slot slot) {
  in_addr first{};
  if (inet_pton(AF_INET, first_address.c_str(), &first) != 1 || (ntohl(first.s_addr) & 1023) != 0)
    return fail(ErrorCode::kInvalid, "\"" + first_address + "\" is not the first of a /22");
  if (slot >= RN_CUT_SLOTS) return fail(ErrorCode::kInvalid, "no such slot");
  const auto text = [&](std::uint32_t offset) {
    in_addr address{htonl(ntohl(first.s_addr) + 4 * slot + offset)};
    std::array<char, INET_ADDRSTRLEN> out{};
    inet_ntop(AF_INET, &address, out.data(), out.size());
    return std::string(out.data());
  };
  return SlotAddresses{text(1), text(2)};
}

std::string interface_name(const std::string& lab, traffic::Slot slot) {
  return prefix_of(lab) + "g" + std::to_string(slot);
}

Result<std::vector<traffic::AllowRule>> allow_rules(const std::vector<NetworkAllow>& network) {
  std::vector<traffic::AllowRule> rules;
  for (const NetworkAllow& allow : network) {
    RN_TRY(const traffic::IpPrefix remote, traffic::parse_prefix(allow.prefix));
    if (allow.port > 65'535)
      return fail(ErrorCode::kInvalid, "no port " + std::to_string(allow.port));
    const bool is_any = allow.protocol == "any" || allow.protocol.empty();
    if (!is_any && allow.protocol != "tcp" && allow.protocol != "udp")
      return fail(
          ErrorCode::kInvalid, "protocol \"" + allow.protocol + "\" is not tcp, udp or any"
      );
    const auto port = static_cast<std::uint16_t>(allow.port);
    if (is_any || allow.protocol == "tcp")
      rules.push_back({remote, traffic::Protocol::kTcp, port, 0, traffic::Opener::kGuest});
    if (is_any || allow.protocol == "udp")
      rules.push_back({remote, traffic::Protocol::kUdp, port, 0, traffic::Opener::kGuest});
    if (is_any && port == 0 && remote.is_v4())
      rules.push_back({remote, traffic::Protocol::kIcmp, 0, 0, traffic::Opener::kGuest});
  }
  return rules;
}

std::string nat_rules(const GuestNetConfig& config) {
  const std::string table = std::string("inet ") + kTable;
  return "add table " + table + "\nflush table " + table + "\ntable " + table +
         " {\n"
         "  chain postrouting {\n"
         "    type nat hook postrouting priority srcnat; policy accept;\n"
         "    ip saddr " +
         config.first_address + "/22 oifname != \"" + prefix_of(config.lab) +
         "g*\" masquerade\n"
         "  }\n"
         "  set connections { type ipv4_addr; size 256; flags dynamic; }\n"
         "  chain forward {\n"
         "    type filter hook forward priority filter; policy accept;\n"
         "    ip saddr " +
         config.first_address + "/22 ct state new add @connections { ip saddr ct count over " +
         std::to_string(kGuestConnections) +
         " } drop\n"
         "  }\n"
         "}\n";
}

Status GuestNet::enable_forwarding(const std::string& interface) {
  const std::string path = forwarding_path(interface);
  const std::string before = trimmed(read_text(path));
  if (before == "1") return {};
  if (before.empty()) return fail(ErrorCode::kNotFound, "no interface " + interface);
  const bool is_ours = interface.starts_with(prefix_of(config_.lab) + "g");
  if (!is_ours) {
    // Written down before it is changed, once: the first value is the owner's.
    const std::string record = read_text(config_.sysctl_record);
    if (record.find(path + " ") == std::string::npos) {
      io::RealFileSystem fs;
      RN_CHECK(write_durably(
          fs, config_.sysctl_record, as_bytes(record + path + " " + before + "\n"), 0600
      ));
    }
  }
  std::ofstream file(path);
  file << "1\n" << std::flush;
  if (!file) return fail(ErrorCode::kInternal, path + " cannot be written");
  return {};
}

Status GuestNet::forward_towards(const std::vector<NetworkAllow>& network) {
  std::vector<std::string> done;
  for (const NetworkAllow& allow : network) {
    const std::string address = allow.prefix.substr(0, allow.prefix.find('/'));
    if (address.find(':') != std::string::npos) continue;  // guests have IPv4 alone
    const auto route = io::run_for_output({"ip", "-o", "route", "get", address}, kLimit);
    if (!route) continue;  // not reachable now: the guest will see that too
    std::istringstream words(*route);
    for (std::string word; words >> word;) {
      if (word != "dev") continue;
      words >> word;
      if (word != "lo" && std::find(done.begin(), done.end(), word) == done.end()) {
        done.push_back(word);
        RN_CHECK(enable_forwarding(word));
      }
      break;
    }
  }
  return {};
}

Status GuestNet::make_nat() {
  if (has_nat_) return {};
  RN_CHECK(run_with_input({"nft", "-f", "-"}, nat_rules(config_)));
  has_nat_ = true;
  return {};
}

/// What the one before at this address had counts no longer, also where its entries last.
Status GuestNet::count_anew(const std::string& guest) const {
  const std::string element =
      std::string(" element inet ") + kTable + " connections { " + guest + " }\n";
  // Added first: what is not there cannot be deleted.
  return run_with_input({"nft", "-f", "-"}, "add" + element + "delete" + element);
}

Status GuestNet::wire(
    traffic::Slot slot, std::int32_t pid, const std::vector<NetworkAllow>& network
) {
  RN_TRY(const SlotAddresses addresses, addresses_of(config_.first_address, slot));
  const std::string name = interface_name(config_.lab, slot);
  const std::string process = std::to_string(pid);
  RN_CHECK(run_with_input(
      {"ip", "-batch", "-"},
      "link add " + name + " type veth peer name eth0 netns " + process + "\n" + "link set " +
          name + " addrgenmode none\n"
  ));
  traffic::GuestPolicy policy;
  policy.guest_v4 = addresses.guest;
  policy.gateway_v4 = addresses.gateway;
  RN_TRY(policy.allow, allow_rules(network));
  // Before it is up: until then nothing filters it.
  RN_CHECK(cut_.attach(name, slot, policy));
  RN_CHECK(enable_forwarding(name));
  RN_CHECK(run_with_input(
      {"ip", "-batch", "-"},
      "addr add " + addresses.gateway + "/30 dev " + name + "\nlink set " + name + " up\n"
  ));
  RN_CHECK(run_with_input(
      {"nsenter", "-t", process, "-n", "ip", "-batch", "-"},
      "link set lo up\nlink set eth0 addrgenmode none\naddr add " + addresses.guest +
          "/30 dev eth0\nlink set eth0 up\nroute add default via " + addresses.gateway + "\n"
  ));
  // The others give up their part before this one gets its own. In the guest's namespace: queued
  // packets die with it, and nothing is left behind a cut.
  pids_[slot] = pid;
  own_.insert(slot);
  share_uplink(slot);
  if (const std::uint64_t bps = rate_of_each(); bps > 0) {
    RN_CHECK(run_with_input(
        {"nsenter", "-t", process, "-n", "ip", "-batch", "-"},
        "link set eth0 gso_max_size " + std::to_string(guest_gso_bytes(bps)) + "\n"
    ));
    RN_CHECK(run_with_input({"nsenter", "-t", process, "-n", "tc", "-batch", "-"}, guest_queue(bps))
    );
  }
  RN_CHECK(forward_towards(network));
  RN_CHECK(make_nat());
  return count_anew(addresses.guest);
}

std::uint64_t GuestNet::rate_of_each() const {
  return rate_of_guest(config_.uplink_bps, config_.granted_bps, pids_.size());
}

void GuestNet::share_uplink(traffic::Slot but) const {
  if (config_.granted_bps == 0) return;
  const std::uint64_t bps = rate_of_each();
  for (const auto& [slot, pid] : pids_) {
    if (slot == but) continue;
    const Status changed = run_with_input(
        {"nsenter", "-t", std::to_string(pid), "-n", "tc", "-batch", "-"}, guest_rate(bps)
    );
    // Mostly a guest that is just ending: its namespace is gone, and its part with it.
    if (!changed)
      log::warning("net.rate_stays", {{"slot", slot}, {"why", changed.error().describe()}});
  }
}

Result<std::uint32_t> GuestNet::attach(
    traffic::Slot slot, std::int32_t pid, const std::vector<NetworkAllow>& network
) {
  const std::lock_guard lock(mutex_);
  RN_CHECK(detach_locked(slot));
  if (network.empty()) return 0;
  if (const Status wired = wire(slot, pid, network); !wired) {
    if (const Status undone = detach_locked(slot); !undone)
      log::warning("net.detach_failed", {{"why", undone.error().describe()}});
    return fail(wired.error().with("wiring the guest"));
  }
  return if_nametoindex(interface_name(config_.lab, slot).c_str());
}

Status GuestNet::give_metadata_address(std::int32_t pid) {
  // The file is of the namespace of who opens it. An engine may have set it lower.
  static constexpr const char* kScript =
      "set -e; ip -batch -; f=/proc/sys/net/ipv4/ip_unprivileged_port_start; read -r p < $f; "
      "[ \"$p\" -le 80 ] || echo 80 > $f";
  return run_with_input(
      {"nsenter", "-t", std::to_string(pid), "-n", "sh", "-c", kScript},
      "link set lo up\naddr replace 169.254.169.254/32 dev lo\n"
  );
}

Status GuestNet::detach_locked(traffic::Slot slot) {
  const bool was_sharing = pids_.erase(slot) > 0;
  own_.erase(slot);
  const Status detached = cut_.detach(slot);
  const std::string name = interface_name(config_.lab, slot);
  if (if_nametoindex(name.c_str()) != 0) {
    const auto deleted = io::run_for_output({"ip", "link", "del", name}, kLimit);
    // The guest's namespace may take its end, and so ours, at the same moment.
    if (!deleted && if_nametoindex(name.c_str()) != 0) return fail(deleted.error());
  }
  if (was_sharing) share_uplink(slot);
  return detached;
}

Status GuestNet::detach(traffic::Slot slot) {
  const std::lock_guard lock(mutex_);
  return detach_locked(slot);
}

Status GuestNet::keep_only(const std::map<traffic::Slot, std::int32_t>& keep) {
  const std::lock_guard lock(mutex_);
  RN_TRY(const auto bound, cut_.bound_slots());
  for (const auto& [slot, ifindex] : bound) {
    if (own_.contains(slot)) continue;
    const auto kept = keep.find(slot);
    if (kept == keep.end()) {
      RN_CHECK(detach_locked(slot));
    } else if (kept->second > 1) {
      pids_[slot] = kept->second;
    }
  }
  return {};
}

std::vector<traffic::FilterLoss> GuestNet::repair() {
  const std::lock_guard lock(mutex_);
  return cut_.repair();
}

std::vector<traffic::FilterBefore> GuestNet::filters_before() {
  const std::lock_guard lock(mutex_);
  return traffic::filters_before(cut_.gates());
}

LeaveReport GuestNet::leave() {
  const std::lock_guard lock(mutex_);
  LeaveReport report;
  const auto note = [&](const Status& done, const std::string& what) {
    if (done) {
      report.removed.push_back(what);
    } else {
      report.stays.push_back(what + ": " + done.error().describe());
    }
  };
  for (traffic::Slot slot = 0; slot < RN_CUT_SLOTS; ++slot) {
    const std::string name = interface_name(config_.lab, slot);
    if (if_nametoindex(name.c_str()) == 0) continue;
    const Status detached = io::patiently(kLimit, [&] { return detach_locked(slot); });
    // It may have gone with its namespace meanwhile.
    note(if_nametoindex(name.c_str()) == 0 ? Status{} : detached, "interface " + name);
  }
  const std::string table = std::string("inet ") + kTable;
  if (io::run_for_output({"nft", "list", "table", "inet", kTable}, kLimit)) {
    note(
        run_with_input({"nft", "-f", "-"}, "delete table " + table + "\n"),
        "nftables table " + table
    );
  }
  std::istringstream record(read_text(config_.sysctl_record));
  for (std::string path, before; record >> path >> before;) {
    std::ofstream file(path);
    file << before << "\n" << std::flush;
    if (file) report.removed.push_back("sysctl " + path + " is " + before + " again");
  }
  io::RealFileSystem fs;
  if (const Status gone = remove_tree(fs, config_.sysctl_record); !gone)
    log::warning("net.record_stays", {{"why", gone.error().describe()}});
  has_nat_ = false;
  return report;
}

}  // namespace rn::warden
