// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/time.h"
#include "io/fd.h"
#include "io/loop.h"

namespace rn::io {

/// The service manager that started this process, if it wants to be told (sd_notify(3),
/// `Type=notify`): that the daemon serves, and, if it asks (`WatchdogSec=`), that its loop still
/// turns. Started by anybody else, every call does nothing. What cannot be told is logged.
class ServiceManager {
 public:
  /// Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment: what this process
  /// starts is not to speak for it. Once, before any thread is there.
  static ServiceManager take();

  /// The daemon's start is over. May block for some seconds; before the loop runs.
  void ready();
  /// The same, and from now on a sign of life each third of the watchdog's time, from the loop.
  /// Both live until the loop has stopped.
  void serving(Loop& loop);

 private:
  void tell(std::string_view what, bool may_block);

  std::string address_;  ///< as the kernel takes it: abstract ones begin with '\0'; empty: nobody
  nanoseconds watchdog_{0};  ///< 0: none
  Fd socket_;  ///< kept: a sign of life must not fail because descriptors have run out
};

}  // namespace rn::io
