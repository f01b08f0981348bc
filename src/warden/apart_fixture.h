// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <thread>

#include <sched.h>
#include <sys/mount.h>

namespace rn::warden::test {

/// Runs in a mount namespace of its own, which ends with its thread: no mount is left, whatever
/// happens. False without the right to make one.
inline bool run_apart(const std::function<void()>& body) {
  bool is_apart = false;
  std::thread([&] {
    is_apart = unshare(CLONE_NEWNS) == 0 &&
               mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    if (is_apart) body();
  }).join();
  return is_apart;
}

}  // namespace rn::warden::test
