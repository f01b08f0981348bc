// SPDX-License-Identifier: Apache-2.0
#include "warden/guest_uplink.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "io/read_text.h"

namespace rn::warden {

namespace {

constexpr std::uint64_t kLeastBps = 1'000'000;
constexpr std::uint64_t kMostBps = 1'000'000'000'000;
/// HTB's token bucket of a guest. Short, so that little is under way at a cut.
constexpr const char* kHtbBurst = "15k";

tl::unexpected<Error> not_a_grant(const std::string& text) {
  return fail(
      ErrorCode::kInvalid,
      "\"" + text + "\" is not INTERFACE:RATE",
      "for example eth0:90mbit; kbit, mbit or gbit, from 1mbit to 1000gbit"
  );
}

std::uint64_t unit_of(const std::string& word) {
  if (word == "kbit") return 1'000;
  if (word == "mbit") return 1'000'000;
  if (word == "gbit") return 1'000'000'000;
  return 0;
}

std::string class_of(std::uint64_t bps) {
  return " dev eth0 parent 1: classid 1:1 htb rate " + std::to_string(bps) + "bit burst " +
         kHtbBurst + "\n";
}

}  // namespace

Result<UplinkGrant> parse_uplink(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return not_a_grant(text);
  UplinkGrant grant;
  grant.interface = text.substr(0, colon);
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [unit_at, error] = std::from_chars(text.data() + colon + 1, end, number);
  const std::uint64_t unit = unit_of({unit_at, end});
  const bool is_name = !grant.interface.empty() && grant.interface.size() <= 15 &&
                       grant.interface.find_first_of("/ ") == std::string::npos &&
                       grant.interface.front() != '.';
  if (error != std::errc() || unit == 0 || !is_name) return not_a_grant(text);
  if (number > kMostBps / unit || number * unit < kLeastBps) return not_a_grant(text);
  grant.bps = number * unit;
  return grant;
}

Status check_uplink(const UplinkGrant& grant, const std::string& sys_net) {
  const std::string folder = sys_net + "/" + grant.interface;
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored))
    return fail(
        ErrorCode::kNotFound, "no interface " + grant.interface, "`ip link` lists what there is"
    );
  const std::string speed = io::read_text(folder + "/speed");
  std::int64_t mbit = 0;  // -1 or unreadable where the driver does not know
  std::from_chars(speed.data(), speed.data() + speed.size(), mbit);
  if (mbit <= 0) return {};
  if (grant.bps <= static_cast<std::uint64_t>(mbit) * 950'000) return {};
  return fail(
      ErrorCode::kInvalid,
      grant.interface + " has " + std::to_string(mbit) + " Mbit/s",
      "grant at most 95 % of it, or guests' packets wait in your own queue"
  );
}

std::uint64_t rate_of_guest(std::uint64_t cap_bps, std::uint64_t granted_bps, std::size_t guests) {
  if (granted_bps == 0) return cap_bps;
  const std::uint64_t part = granted_bps / std::max<std::uint64_t>(1, guests);
  return cap_bps == 0 ? part : std::min(cap_bps, part);
}

std::string guest_queue(std::uint64_t bps) {
  return "qdisc add dev eth0 root handle 1: htb default 1\nclass add" + class_of(bps);
}

std::string guest_rate(std::uint64_t bps) {
  return "class change" + class_of(bps);
}

std::uint32_t guest_gso_bytes(std::uint64_t bps) {
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bps / 8 / 4'000, 3'000, 65'536));
}

}  // namespace rn::warden
