// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "model/visit.h"

namespace rn::init {

/// A child for a visit, and our ends of what it reads and writes, which do not block; errors is -1
/// where it has a terminal, whose other side the first two are.
struct VisitChild {
  pid_t pid = -1;
  int input = -1;
  int output = -1;
  int errors = -1;
};

/// The user's command, in a session of its own. False with errno; then nothing is open.
bool start_command(const visit::Run& run, const sigset_t& mask, VisitChild& out);
/// A child that sends the path, or takes what comes to it (copies.h). As above.
bool start_copy(bool is_sent, const char* path, const sigset_t& mask, VisitChild& out);

/// To all processes of the session that `leader` began, as far as it can be read which they are.
void signal_session(pid_t leader, int signal);

}  // namespace rn::init
