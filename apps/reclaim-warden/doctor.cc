// SPDX-License-Identifier: Apache-2.0
#include "doctor.h"

#include <cstdio>

#include "options.h"
#include <sys/utsname.h>
#include <unistd.h>

#include "base/printable.h"
#include "traffic/kernel_probe.h"
#include "warden/guest_gang.h"
#include "warden/kernel_findings.h"

namespace rn::warden_cli {

int look_at_kernel() {
  if (geteuid() != 0)
    return complain(
        {ErrorCode::kDenied,
         "the kernel answers only root what queues and programs it has",
         "run it as root"}
    );
  utsname kernel{};
  uname(&kernel);
  std::printf("%s %s\n", kernel.sysname, kernel.release);
  bool is_missing = false;
  auto findings = warden::judge_kernel(traffic::ask_kernel(), warden::read_tcp_settings());
  findings.push_back(warden::look_at_member_network());
  for (const warden::KernelFinding& one : findings) {
    const bool is_fatal = !one.is_there && one.is_needed;
    is_missing = is_missing || is_fatal;
    const char* const word = one.is_there ? "ok" : is_fatal ? "MISSING" : "absent";
    std::printf("%-7s %-20s %s\n", word, one.piece.c_str(), printable(one.what).c_str());
    if (!one.is_there && !one.next.empty())
      std::printf("        next: %s\n", printable(one.next).c_str());
  }
  return is_missing ? kFailed : kDone;
}

}  // namespace rn::warden_cli
