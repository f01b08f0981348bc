// SPDX-License-Identifier: Apache-2.0
#include "warden/kernel_findings.h"

#include <array>
#include <cerrno>
#include <cstring>

#include "io/read_text.h"

namespace rn::warden {

namespace {

using traffic::KernelPiece;

/// What is said of a piece that the kernel has, of one that it lacks, and how to get it.
struct PieceWords {
  KernelPiece piece;
  const char* name;
  bool is_needed;
  const char* use;
  const char* instead;
  const char* next;
};

constexpr std::array<PieceWords, 7> kPieceWords = {{
    {KernelPiece::kClsact,
     "clsact",
     true,
     "filters hang at guests' interfaces and at the uplink",
     "guests' packets cannot be cut, so the warden does not start",
     "a kernel with CONFIG_NET_CLS_ACT and CONFIG_NET_CLS_BPF"},
    {KernelPiece::kGuestProgram,
     "guests' cut",
     true,
     "the kernel takes the program",
     "guests' packets cannot be cut, so the warden does not start",
     "a kernel with CONFIG_BPF_SYSCALL, whose lockdown lets root load programs"},
    {KernelPiece::kTransferProgram,
     "transfers' edge",
     false,
     "the kernel holds copies to their rates, where `serve` has --transfers",
     "copies are paced by the agent alone; --transfers bounds nothing",
     "a kernel with CONFIG_BPF_SYSCALL, whose lockdown lets root load programs"},
    {KernelPiece::kPacedSocket,
     "paced sockets",
     false,
     "the agent paces its copies (SO_MAX_PACING_RATE)",
     "copies go as fast as TCP lets them, at most as fast as --transfers says",
     "Linux 4.20 or newer"},
    {KernelPiece::kFq,
     "fq",
     false,
     "paces copies where an interface has it; elsewhere TCP does it by itself",
     "TCP paces copies by itself, at the same rates",
     ""},
    {KernelPiece::kHtb,
     "HTB",
     false,
     "guests get queues of their own, where `serve` has --uplink or --guest-uplink-bps",
     "with --uplink or --guest-uplink-bps no guest can be started; without, guests have no "
     "queue of their own",
     "a kernel with CONFIG_NET_SCH_HTB, or `serve` without these flags"},
    {KernelPiece::kTbf,
     "TBF",
     false,
     "of use to your own rules, if to anything here",
     "nothing of ReclaimNet needs it (scripts/testbed.sh --shaper tbf does)",
     ""},
}};

KernelFinding finding_of(const PieceWords& words, int answer) {
  KernelFinding finding{words.name, answer == 0, words.is_needed, words.use, {}};
  if (answer == 0) return finding;
  finding.next = words.next;
  if (answer == traffic::kNotAnswered) {
    finding.is_needed = false;
    finding.what = "not known: the kernel did not answer";
    finding.next.clear();
    return finding;
  }
  const bool is_unknown_kind = answer == -ENOENT;
  finding.what = is_unknown_kind ? "not in this kernel" : std::strerror(-answer);
  finding.what += std::string(": ") + words.instead;
  return finding;
}

/// Which values of tcp_ecn have a connection ask for it: 1, and since AccECN 3 and 4.
KernelFinding ecn_finding(const TcpSettings& tcp) {
  const bool is_asked = tcp.ecn == "1" || tcp.ecn == "3" || tcp.ecn == "4";
  const std::string setting = "net.ipv4.tcp_ecn = " + (tcp.ecn.empty() ? "?" : tcp.ecn);
  return {
      "ECN",
      is_asked,
      false,
      setting + (is_asked ? ": what is over a copy's rate at the edge is marked, and dropped only "
                            "where that does not help"
                          : ": copies do not ask for it; what is over a copy's rate at the edge is "
                            "dropped, not marked"),
      ""};
}

KernelFinding congestion_finding(const TcpSettings& tcp) {
  if (tcp.congestion.empty())
    return {"congestion control", false, false, "not known: copies are paced all the same", ""};
  std::string what = tcp.congestion + " for copies as for all else";
  if (!tcp.available.empty()) what += "; there are " + tcp.available;
  const bool has_bbr = (" " + tcp.available + " ").find(" bbr ") != std::string::npos;
  if (!has_bbr) what += "; no bbr, which nothing needs";
  return {"congestion control", true, false, what, ""};
}

}  // namespace

TcpSettings read_tcp_settings(const std::string& root) {
  const std::string folder = root + "/proc/sys/net/ipv4/tcp_";
  const auto read = [&](const char* name) {
    std::string text = io::read_text(folder + name);
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    return text;
  };
  return {read("congestion_control"), read("available_congestion_control"), read("ecn")};
}

std::vector<KernelFinding> judge_kernel(
    const traffic::KernelAnswers& answers, const TcpSettings& tcp
) {
  std::vector<KernelFinding> findings;
  if (const int apart = answers[KernelPiece::kApart]; apart < 0) {
    findings.push_back(
        {"questions",
         false,
         false,
         std::string("no network namespace for them: ") + std::strerror(-apart),
         "a kernel with CONFIG_NET_NS; guests need one each, too"}
    );
  }
  for (const PieceWords& words : kPieceWords)
    findings.push_back(finding_of(words, answers[words.piece]));
  findings.push_back(ecn_finding(tcp));
  findings.push_back(congestion_finding(tcp));
  return findings;
}

}  // namespace rn::warden
