// SPDX-License-Identifier: Apache-2.0
#include "traffic/ip_prefix.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

namespace rn::traffic {
namespace {

constexpr std::uint8_t kV4Bits = 96;

IpPrefix from_v4(const in_addr& v4, std::uint8_t bits) {
  IpPrefix prefix;
  prefix.address[10] = prefix.address[11] = 0xff;
  std::memcpy(&prefix.address[12], &v4, 4);
  prefix.bits = static_cast<std::uint8_t>(kV4Bits + bits);
  return prefix;
}

IpPrefix from_v6(const in6_addr& v6, std::uint8_t bits) {
  IpPrefix prefix;
  std::memcpy(prefix.address.data(), &v6, 16);
  prefix.bits = bits;
  return prefix;
}

IpPrefix masked(IpPrefix prefix) {
  for (std::size_t i = 0; i < 16; ++i) {
    const int keep = std::clamp(static_cast<int>(prefix.bits) - static_cast<int>(i) * 8, 0, 8);
    prefix.address[i] = static_cast<std::uint8_t>(prefix.address[i] & (0xff00 >> keep));
  }
  return prefix;
}

template <class Bytes>
std::uint8_t mask_bits(const Bytes& mask) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&mask);
  int bits = 0;
  for (std::size_t i = 0; i < sizeof(mask); ++i) bits += std::popcount(bytes[i]);
  return static_cast<std::uint8_t>(bits);
}

void add_interface_address(const ifaddrs& entry, std::vector<IpPrefix>& prefixes) {
  if (entry.ifa_addr == nullptr) return;
  if (entry.ifa_addr->sa_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in*>(entry.ifa_addr)->sin_addr;
    prefixes.push_back(from_v4(address, 32));
    if (entry.ifa_netmask == nullptr) return;
    const auto& mask = reinterpret_cast<const sockaddr_in*>(entry.ifa_netmask)->sin_addr;
    prefixes.push_back(masked(from_v4(address, mask_bits(mask))));
  } else if (entry.ifa_addr->sa_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr;
    prefixes.push_back(from_v6(address, 128));
    if (entry.ifa_netmask == nullptr) return;
    const auto& mask = reinterpret_cast<const sockaddr_in6*>(entry.ifa_netmask)->sin6_addr;
    prefixes.push_back(masked(from_v6(address, mask_bits(mask))));
  }
}

}  // namespace

bool IpPrefix::is_v4() const {
  static constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return bits >= kV4Bits && std::equal(kMapped.begin(), kMapped.end(), address.begin());
}

bool IpPrefix::contains(const IpPrefix& other) const {
  if (other.bits < bits) return false;
  IpPrefix widened = other;
  widened.bits = bits;
  return masked(widened).address == address;
}

Result<IpPrefix> parse_prefix(std::string_view text) {
  const auto slash = text.find('/');
  const std::string address(text.substr(0, slash));
  const auto bad = [&] {
    return fail(
        ErrorCode::kInvalid,
        "not an IP prefix: " + std::string(text),
        "write it like 10.1.2.0/24 or fd00:1::/64, with zero host bits"
    );
  };
  in_addr v4{};
  in6_addr v6{};
  const bool is_v4 = inet_pton(AF_INET, address.c_str(), &v4) == 1;
  if (!is_v4 && inet_pton(AF_INET6, address.c_str(), &v6) != 1) return bad();
  const unsigned widest = is_v4 ? 32 : 128;
  unsigned bits = widest;
  if (slash != std::string_view::npos) {
    const std::string_view digits = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
    if (error != std::errc() || end != digits.data() + digits.size() || bits > widest) return bad();
  }
  const IpPrefix prefix = is_v4 ? from_v4(v4, static_cast<std::uint8_t>(bits))
                                : from_v6(v6, static_cast<std::uint8_t>(bits));
  if (masked(prefix) != prefix) return bad();
  return prefix;
}

std::string to_string(const IpPrefix& prefix) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool is_v4 = prefix.is_v4();
  inet_ntop(
      is_v4 ? AF_INET : AF_INET6,
      prefix.address.data() + (is_v4 ? 12 : 0),
      text.data(),
      static_cast<socklen_t>(text.size())
  );
  return std::string(text.data()) + "/" +
         std::to_string(is_v4 ? prefix.bits - kV4Bits : prefix.bits);
}

Result<std::vector<IpPrefix>> host_prefixes() {
  ifaddrs* entries = nullptr;
  if (getifaddrs(&entries) != 0) {
    return fail(ErrorCode::kInternal, std::string("getifaddrs: ") + std::strerror(errno));
  }
  std::vector<IpPrefix> prefixes;
  for (const ifaddrs* entry = entries; entry != nullptr; entry = entry->ifa_next) {
    add_interface_address(*entry, prefixes);
  }
  freeifaddrs(entries);
  std::sort(prefixes.begin(), prefixes.end());
  prefixes.erase(std::unique(prefixes.begin(), prefixes.end()), prefixes.end());
  return prefixes;
}

}  // namespace rn::traffic
