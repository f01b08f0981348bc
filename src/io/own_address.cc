// SPDX-License-Identifier: Apache-2.0
#include "io/own_address.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include "io/errno_error.h"
#include "io/fd.h"

namespace rn::io {

Result<std::string> own_address_towards(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;  // to connect one only asks the routing table
  addrinfo* found = nullptr;
  const int looked_up = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (looked_up != 0)
    return fail(
        ErrorCode::kUnavailable, "looking up " + host + ": " + gai_strerror(looked_up), "check it"
    );
  const std::unique_ptr<addrinfo, decltype([](addrinfo* list) { freeaddrinfo(list); })> list(found);
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    const Fd fd(socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || connect(fd.get(), at->ai_addr, at->ai_addrlen) != 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    char text[NI_MAXHOST] = {};
    if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        getnameinfo(
            reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST
        ) == 0)
      return std::string(text);
  }
  return fail(ErrorCode::kUnavailable, "no route leads to " + host, "check the network");
}

std::string interface_of(const std::string& address) {
  std::string host = address;
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') - 1);
  } else if (std::count(host.begin(), host.end(), ':') == 1) {
    host = host.substr(0, host.find(':'));
  }
  // IPv4 on a socket that listens for both.
  if (constexpr std::string_view kMapped = "::ffff:"; host.starts_with(kMapped))
    host.erase(0, kMapped.size());
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype([](ifaddrs* list) { freeifaddrs(list); })> list(found);
  for (const ifaddrs* at = list.get(); at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char text[NI_MAXHOST] = {};
    if (getnameinfo(at->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 &&
        host == text)
      return at->ifa_name;
  }
  return {};
}

std::string own_hostname() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

}  // namespace rn::io
