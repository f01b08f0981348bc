// SPDX-License-Identifier: Apache-2.0
#include "traffic/kernel_probe.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string_view>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include "traffic/guest_cut.skel.h"
#include "traffic/transfer_edge.skel.h"
#pragma GCC diagnostic pop

namespace rn::traffic {
namespace {

constexpr int kLoopbackIndex = 1;  ///< the one interface that a fresh namespace has
constexpr std::uint64_t kPaceOf40Gbit = 5'000'000'000;

/// A request about the root queue of the loopback interface, and the kernel's answer to it.
int request_queue(int netlink, std::uint16_t what, std::uint16_t flags, std::string_view kind) {
  struct {
    nlmsghdr head;
    tcmsg place;
    rtattr kind_head;
    std::array<char, 16> kind;
  } request{};

  request.head.nlmsg_type = what;
  request.head.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
  request.place.tcm_ifindex = kLoopbackIndex;
  request.place.tcm_parent = TC_H_ROOT;
  request.kind_head.rta_type = TCA_KIND;
  request.kind_head.rta_len = static_cast<std::uint16_t>(RTA_LENGTH(kind.size() + 1));
  kind.copy(request.kind.data(), request.kind.size() - 1);
  request.head.nlmsg_len = static_cast<std::uint32_t>(
      NLMSG_LENGTH(sizeof(tcmsg)) + RTA_ALIGN(request.kind_head.rta_len)
  );
  if (send(netlink, &request, request.head.nlmsg_len, 0) < 0) return -errno;
  alignas(nlmsghdr) std::array<char, 4096> answer{};
  const ssize_t got = recv(netlink, answer.data(), answer.size(), 0);
  if (got < 0) return -errno;
  const auto* const head = reinterpret_cast<const nlmsghdr*>(answer.data());
  if (static_cast<std::size_t>(got) < NLMSG_LENGTH(sizeof(nlmsgerr)) ||
      head->nlmsg_type != NLMSG_ERROR)
    return -EPROTO;
  return static_cast<const nlmsgerr*>(NLMSG_DATA(head))->error;
}

/// -ENOENT: no queue of this name. One that is there and wants options says -EINVAL.
int ask_for_queue(std::string_view kind) {
  const int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (netlink < 0) return -errno;
  int answer = request_queue(netlink, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, kind);
  if (answer == 0) (void)request_queue(netlink, RTM_DELQDISC, 0, kind);
  if (answer == -EINVAL) answer = 0;
  close(netlink);
  return answer;
}

bpf_tc_hook loopback_hook(bpf_tc_attach_point point) {
  bpf_tc_hook hook{};
  hook.sz = sizeof hook;
  hook.ifindex = kLoopbackIndex;
  hook.attach_point = point;
  return hook;
}

int ask_for_clsact() {
  bpf_tc_hook hook = loopback_hook(BPF_TC_INGRESS);
  return bpf_tc_hook_create(&hook);
}

int attach_to_loopback(bpf_tc_attach_point point, const bpf_program* program) {
  const bpf_tc_hook hook = loopback_hook(point);
  bpf_tc_opts options{};
  options.sz = sizeof options;
  options.prog_fd = bpf_program__fd(program);
  return bpf_tc_attach(&hook, &options);
}

template <class Program>
using LoadedProgram = std::unique_ptr<Program, void (*)(Program*)>;

int why_not_loaded() {
  return errno != 0 ? -errno : -EIO;
}

int ask_for_guest_program() {
  const LoadedProgram<guest_cut_bpf> program(
      guest_cut_bpf::open_and_load(), guest_cut_bpf::destroy
  );
  if (!program) return why_not_loaded();
  const int in = attach_to_loopback(BPF_TC_INGRESS, program->progs.rn_from_guest);
  return in != 0 ? in : attach_to_loopback(BPF_TC_EGRESS, program->progs.rn_to_guest);
}

int ask_for_transfer_program() {
  const LoadedProgram<transfer_edge_bpf> program(
      transfer_edge_bpf::open_and_load(), transfer_edge_bpf::destroy
  );
  if (!program) return why_not_loaded();
  const int in = attach_to_loopback(BPF_TC_INGRESS, program->progs.rn_edge_in);
  return in != 0 ? in : attach_to_loopback(BPF_TC_EGRESS, program->progs.rn_edge_out);
}

int ask_for_paced_socket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  std::uint64_t rate = kPaceOf40Gbit;
  socklen_t size = sizeof rate;
  int answer = setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, size) == 0 ? 0 : -errno;
  if (answer == 0 && getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size) != 0)
    answer = -errno;
  if (answer == 0 && rate != kPaceOf40Gbit) answer = -EOVERFLOW;
  close(fd);
  return answer;
}

struct Answered {
  KernelPiece piece;
  int answer;
};

int ask_for(KernelPiece piece) {
  switch (piece) {
    case KernelPiece::kApart:
      return unshare(CLONE_NEWNET) == 0 ? 0 : -errno;
    case KernelPiece::kFq:
      return ask_for_queue("fq");
    case KernelPiece::kHtb:
      return ask_for_queue("htb");
    case KernelPiece::kTbf:
      return ask_for_queue("tbf");
    case KernelPiece::kClsact:
      return ask_for_clsact();
    case KernelPiece::kGuestProgram:
      return ask_for_guest_program();
    case KernelPiece::kTransferProgram:
      return ask_for_transfer_program();
    case KernelPiece::kPacedSocket:
      return ask_for_paced_socket();
  }
  return -EINVAL;
}

/// The child's. Each answer leaves at once: one that never comes does not hold back the others.
[[noreturn]] void answer_all(int out) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)libbpf_set_print(nullptr);
  for (std::size_t i = 0; i < kKernelPieces; ++i) {
    const auto piece = static_cast<KernelPiece>(i);
    const Answered answered{piece, ask_for(piece)};
    if (write(out, &answered, sizeof answered) != sizeof answered) break;
    // Nothing is asked for in the machine's own namespace.
    if (piece == KernelPiece::kApart && answered.answer != 0) break;
  }
  _exit(0);
}

/// One that hangs in the kernel dies when that lets it go: it has a second, and is not waited for
/// then.
void end_of(pid_t child) {
  kill(child, SIGKILL);
  for (int i = 0; i < 100 && waitpid(child, nullptr, WNOHANG) == 0; ++i)
    usleep(10'000);  // two looks
}

}  // namespace

KernelAnswers ask_kernel(milliseconds limit) {
  KernelAnswers answers;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return answers;
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    answer_all(ends[1]);
  }
  close(ends[1]);
  using Steady = std::chrono::steady_clock;
  const auto end = Steady::now() + limit;
  while (child > 0) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Steady::now()).count();
    pollfd ready{ends[0], POLLIN, 0};
    const int got = left > 0 ? poll(&ready, 1, static_cast<int>(left)) : 0;
    if (got < 0 && errno == EINTR) continue;
    Answered answered{};
    if (got != 1 || read(ends[0], &answered, sizeof answered) != sizeof answered) break;
    answers[answered.piece] = answered.answer;
  }
  close(ends[0]);
  if (child > 0) end_of(child);
  return answers;
}

}  // namespace rn::traffic
