// SPDX-License-Identifier: Apache-2.0
#include "warden/guest_word.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace rn::warden {

namespace {

using nlohmann::json;

constexpr std::size_t kReasonBytes = 1024;

/// Without half a character at its end.
std::string reason_of(const warden_wire::TellGuest& order) {
  std::string reason = order.reason.substr(0, kReasonBytes);
  std::size_t last = reason.size();
  while (last > 0 && reason.size() - last < 4) {
    --last;
    const bool is_inside = (static_cast<unsigned char>(reason[last]) & 0xc0) == 0x80;
    if (is_inside) continue;
    const std::string_view end = std::string_view(reason).substr(last);
    if (first_code_point(end).kind == CodePoint::Kind::kCutOff) reason.resize(last);
    break;
  }
  return reason;
}

json unix_time(std::int64_t wall_ms) {
  return static_cast<double>(wall_ms) / 1000.0;
}

}  // namespace

std::string word_as_json(const warden_wire::TellGuest& order, WallTime now) {
  json said = {{"reason", reason_of(order)}, {"told_unix", unix_time(to_ms(now))}};
  if (order.deadline_wall_ms != 0) {
    said["deadline_unix"] = unix_time(order.deadline_wall_ms);
    said["grace_s"] = order.grace_s;
  }
  return said.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string word_for_init(const warden_wire::TellGuest& order, WallTime now) {
  const bool has_to_leave = order.deadline_wall_ms != 0;
  std::string reason = reason_of(order);
  std::replace(reason.begin(), reason.end(), '\0', ' ');
  std::string word = word_as_json(order, now);
  const auto add = [&word](const char* name, const std::string& value) {
    word.push_back('\0');
    word += std::string(name) + "=" + value;
  };
  add("RECLAIM_REASON", reason);
  add("RECLAIM_TOLD_UNIX", unix_time(to_ms(now)).dump());
  add("RECLAIM_DEADLINE_UNIX", has_to_leave ? unix_time(order.deadline_wall_ms).dump() : "");
  add("RECLAIM_GRACE_S", has_to_leave ? std::to_string(order.grace_s) : "");
  return word;
}

}  // namespace rn::warden
