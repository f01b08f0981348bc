// SPDX-License-Identifier: Apache-2.0
#include "warden/guest_gang.h"

#include <utility>
#include <vector>

#include "io/subprocess.h"
#include "model/gang_link.h"

namespace rn::warden {

namespace {

constexpr milliseconds kMemberLimit = seconds(5);
constexpr const char* kMemberTable = "ip reclaimgang";
/// Open or lately closed: each is an entry in the machine's memory.
constexpr int kMemberConnections = 4096;

std::string address_text(std::uint32_t rank) {
  return gang_link::kPrefix + std::to_string(rank + 1);
}

/// Commands for `ip -batch -`, and behind an empty line a file for `nft -f -`.
constexpr const char* kMakeNetwork =
    "set -e; a=; while IFS= read -r l && [ -n \"$l\" ]; do a=\"$a$l\n\"; done; "
    "printf %s \"$a\" | ip -batch -; exec nft -f -";

Status make_network(std::vector<std::string> enter, std::uint32_t rank) {
  io::SpawnOptions options;
  options.argv = std::move(enter);
  for (const char* word : {"sh", "-c", kMakeNetwork}) options.argv.emplace_back(word);
  RN_TRY(
      const io::RunOutput output,
      io::run_process(options, kMemberLimit, member_addresses(rank) + "\n" + member_rules(rank))
  );
  if (output.status.is_success()) return {};
  std::string words = output.err.substr(0, output.err.find('\n'));
  if (words.empty()) words = "ip or nft failed";
  return fail(
      ErrorCode::kInternal,
      "the network of a gang's member cannot be made: " + words,
      "reclaim-warden doctor says what the kernel lacks"
  );
}

}  // namespace

std::string member_name(std::uint32_t rank) {
  return "member-" + std::to_string(rank);
}

std::string member_hosts() {
  std::string text = "127.0.0.1\tlocalhost\n";
  for (std::uint32_t rank = 0; rank < gang_link::kRanks; ++rank)
    text += address_text(rank) + "\t" + member_name(rank) + "\n";
  return text;
}

std::string member_addresses(std::uint32_t rank) {
  const std::string own = address_text(rank);
  return "link set lo up\n"
         "link add gang0 type veth peer name gang1\n"
         "link set gang0 addrgenmode none\n"
         "link set gang1 addrgenmode none\n"
         "addr add " +
         own +
         "/32 dev gang0\n"
         "link set gang0 up\n"
         "link set gang1 up\n"
         "route replace local " +
         gang_link::kRange + " dev lo src " + own + "\n";
}

std::string member_rules(std::uint32_t rank) {
  const std::string range = gang_link::kRange;
  const std::string others = "ip daddr " + range + " ip daddr != " + address_text(rank);
  const std::string untracked =
      "policy accept;\n    ip saddr != " + range + " ip daddr != " + range + " notrack\n  }\n";
  const std::string table = kMemberTable;
  return "add table " + table + "\nflush table " + table + "\ntable " + table +
         " {\n"
         "  chain untracked_out { type filter hook output priority -300; " +
         untracked + "  chain untracked_in { type filter hook prerouting priority -300; " +
         untracked +
         // Before the address is changed, which comes at -100.
         "  chain refused {\n"
         "    type filter hook output priority -150; policy accept;\n"
         "    " +
         others +
         " meta l4proto != tcp reject\n"
         "    ip daddr " +
         range + " ct state new ct count over " + std::to_string(kMemberConnections) +
         " drop\n"
         "  }\n"
         "  chain taken {\n"
         "    type nat hook output priority -100; policy accept;\n"
         "    " +
         others + " meta l4proto tcp redirect to :" + std::to_string(gang_link::kListenPort) +
         "\n"
         "  }\n"
         "}\n";
}

Status give_member_network(std::int32_t pid, const warden_wire::GangMember& member) {
  return make_network({"nsenter", "-t", std::to_string(pid), "-n"}, member.rank);
}

KernelFinding look_at_member_network() {
  const Status made = make_network({"unshare", "-n"}, 0);
  KernelFinding finding;
  finding.piece = "gangs' links";
  finding.is_there = made.has_value();
  finding.what = made ? "members of a gang reach each other, where the contract says gangs: true"
                      : made.error().message + ": this machine can have no member of a gang";
  if (!made)
    finding.next =
        "nft and ip, and a kernel with CONFIG_VETH, CONFIG_NF_TABLES, CONFIG_NFT_NAT, "
        "CONFIG_NFT_REDIR, CONFIG_NFT_REJECT, CONFIG_NFT_CONNLIMIT and CONFIG_NFT_CT; "
        "or leave it: jobs of one machine need none of that";
  return finding;
}

}  // namespace rn::warden
