// SPDX-License-Identifier: Apache-2.0
#include "warden/kernel_findings.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/scratch_folder.h"

namespace rn::warden {
namespace {

using traffic::KernelAnswers;
using traffic::KernelPiece;

const TcpSettings kDebiansTcp{"cubic", "reno cubic", "2"};

KernelAnswers kernel_with_all() {
  KernelAnswers answers;
  answers.all.fill(0);
  return answers;
}

KernelFinding kernel_finding(
    const std::string& piece, const KernelAnswers& answers, const TcpSettings& tcp = kDebiansTcp
) {
  for (const KernelFinding& one : judge_kernel(answers, tcp)) {
    if (one.piece == piece) return one;
  }
  ADD_FAILURE() << "nothing about " << piece;
  return {};
}

bool says(const KernelFinding& finding, const std::string& words) {
  return finding.what.find(words) != std::string::npos;
}

TEST(KernelFindings, a_kernel_that_has_all_lacks_nothing_and_needs_no_next_step) {
  for (const KernelFinding& one : judge_kernel(kernel_with_all(), {"bbr", "reno bbr", "1"})) {
    EXPECT_TRUE(one.is_there) << one.piece;
    EXPECT_EQ(one.next, "") << one.piece;
  }
}

TEST(KernelFindings, without_fq_tcp_paces_by_itself_and_nothing_is_missing) {
  KernelAnswers answers = kernel_with_all();
  answers[KernelPiece::kFq] = -ENOENT;

  const KernelFinding fq = kernel_finding("fq", answers);

  EXPECT_FALSE(fq.is_there);
  EXPECT_FALSE(fq.is_needed);
  EXPECT_EQ(fq.what, "not in this kernel: TCP paces copies by itself, at the same rates");
}

TEST(KernelFindings, without_htb_it_says_which_flags_stop_guests) {
  KernelAnswers answers = kernel_with_all();
  answers[KernelPiece::kHtb] = -ENOENT;

  const KernelFinding htb = kernel_finding("HTB", answers);

  EXPECT_FALSE(htb.is_needed) << "only with the flags";
  EXPECT_TRUE(says(htb, "with --uplink or --guest-uplink-bps no guest can be started")) << htb.what;
  EXPECT_NE(htb.next, "");
}

TEST(KernelFindings, a_kernel_that_takes_no_guests_program_cannot_lend) {
  KernelAnswers answers = kernel_with_all();
  answers[KernelPiece::kGuestProgram] = -EPERM;
  answers[KernelPiece::kTransferProgram] = -EPERM;

  const KernelFinding guests = kernel_finding("guests' cut", answers);
  const KernelFinding transfers = kernel_finding("transfers' edge", answers);

  EXPECT_TRUE(guests.is_needed);
  EXPECT_TRUE(says(guests, "Operation not permitted: guests' packets cannot be cut"));
  EXPECT_FALSE(transfers.is_needed);
  EXPECT_TRUE(says(transfers, "paced by the agent alone")) << transfers.what;
}

TEST(KernelFindings, what_was_not_answered_is_not_called_missing) {
  KernelAnswers answers;
  answers[KernelPiece::kApart] = -EPERM;

  const auto findings = judge_kernel(answers, kDebiansTcp);

  EXPECT_EQ(findings.front().piece, "questions");
  EXPECT_TRUE(says(findings.front(), "Operation not permitted"));
  EXPECT_TRUE(std::none_of(findings.begin(), findings.end(), [](const KernelFinding& one) {
    return one.is_needed;
  }));
  EXPECT_TRUE(says(kernel_finding("clsact", answers), "not known"));
}

TEST(KernelFindings, ecn_counts_where_connections_ask_for_it) {
  for (const char* const asked : {"1", "3", "4"})
    EXPECT_TRUE(kernel_finding("ECN", kernel_with_all(), {"reno", "reno", asked}).is_there)
        << asked;
  for (const char* const silent : {"0", "2", "5", ""})
    EXPECT_FALSE(kernel_finding("ECN", kernel_with_all(), {"reno", "reno", silent}).is_there)
        << silent;
}

TEST(KernelFindings, names_the_congestion_control_and_whether_there_is_bbr) {
  EXPECT_TRUE(says(kernel_finding("congestion control", kernel_with_all()), "cubic for copies"));
  EXPECT_TRUE(says(kernel_finding("congestion control", kernel_with_all()), "; no bbr"));
  EXPECT_FALSE(says(
      kernel_finding("congestion control", kernel_with_all(), {"bbr", "reno bbr", "2"}), "; no bbr"
  ));
  EXPECT_TRUE(says(kernel_finding("congestion control", kernel_with_all(), {}), "not known"));
}

TEST(KernelFindings, reads_the_settings_below_a_root) {
  const ScratchFolder root;
  const std::string folder = root.path() + "/proc/sys/net/ipv4";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/tcp_congestion_control") << "cubic\n";
  std::ofstream(folder + "/tcp_available_congestion_control") << "reno cubic bbr \n";

  const TcpSettings tcp = read_tcp_settings(root.path());

  EXPECT_EQ(tcp.congestion, "cubic");
  EXPECT_EQ(tcp.available, "reno cubic bbr");
  EXPECT_EQ(tcp.ecn, "");
}

}  // namespace
}  // namespace rn::warden
