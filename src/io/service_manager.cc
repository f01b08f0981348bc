// SPDX-License-Identifier: Apache-2.0
#include "io/service_manager.h"

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/whole_number.h"

namespace rn::io {

namespace {

constexpr timeval kReadyPatience{5, 0};
constexpr int kSignsInWatchdogTime = 3;  ///< two may be late
/// More is no watch on anything, and would not fit into nanoseconds.
constexpr std::uint64_t kWatchdogMaxUs = 7ull * 86'400 * 1'000'000;

/// The variable's value, which is gone afterwards; empty for none.
std::string take_variable(const char* name) {
  const char* const value = std::getenv(name);
  const std::string taken = value == nullptr ? "" : value;
  ::unsetenv(name);
  return taken;
}

std::optional<sockaddr_un> socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) return std::nullopt;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

ServiceManager ServiceManager::take() {
  ServiceManager manager;
  std::string address = take_variable("NOTIFY_SOCKET");
  const auto watchdog_us =
      whole_number<std::uint64_t>(take_variable("WATCHDOG_USEC"), 1, kWatchdogMaxUs);
  const std::string watched = take_variable("WATCHDOG_PID");
  if (address.empty()) return manager;
  if (address.front() == '@') address.front() = '\0';
  manager.socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const bool is_usable = manager.socket_ && socket_address(address) &&
                         (address.front() == '/' || address.front() == '\0');
  if (!is_usable) {
    log::warning("service_manager.not_told", {{"why", "NOTIFY_SOCKET cannot be used"}});
    return manager;
  }
  ::setsockopt(
      manager.socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &kReadyPatience, sizeof kReadyPatience
  );
  manager.address_ = address;
  // Who named a process by number means that one alone, not its children.
  const bool is_me = watched.empty() || watched == std::to_string(::getpid());
  if (watchdog_us && is_me) manager.watchdog_ = std::chrono::microseconds(*watchdog_us);
  return manager;
}

void ServiceManager::ready() {
  tell("READY=1", true);
}

void ServiceManager::serving(Loop& loop) {
  ready();
  if (address_.empty() || watchdog_ == nanoseconds(0)) return;
  loop.run_every(watchdog_ / kSignsInWatchdogTime, [this] { tell("WATCHDOG=1", false); });
}

void ServiceManager::tell(std::string_view what, bool may_block) {
  const auto address = socket_address(address_);
  if (!address) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  const int flags = MSG_NOSIGNAL | (may_block ? 0 : MSG_DONTWAIT);
  const ssize_t sent = ::sendto(
      socket_.get(),
      what.data(),
      what.size(),
      flags,
      reinterpret_cast<const sockaddr*>(&*address),
      length
  );
  if (sent < 0)
    log::warning("service_manager.not_told", {{"what", std::string(what)}, {"errno", errno}});
}

}  // namespace rn::io
