// SPDX-License-Identifier: Apache-2.0
#include "arbiter/contract_rules.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include <arpa/inet.h>

#include "arbiter/calendar.h"
#include "model/uplink_rate.h"

namespace rn::arbiter {

namespace {

using Problems = std::vector<std::string>;

constexpr std::uint32_t kMinutesOfDay = 24 * 60;
constexpr std::uint32_t kMinutesOfWeek = 7 * kMinutesOfDay;

/// Of one window: the minutes of the week at which it opens, and how long it lends.
struct Openings {
  std::vector<std::uint32_t> at;
  std::uint32_t minutes = 0;
};

/// None if it cannot be read, which check_calendar says.
Openings openings(const LendingWindow& window) {
  const auto from = parse_minute(window.from);
  const auto to = parse_minute(window.to);
  if (!from || !to || *from == *to) return {};
  Openings out;
  out.minutes = *to > *from ? *to - *from : *to + kMinutesOfDay - *from;
  for (std::uint32_t day = 0; day < 7; ++day) {
    const bool is_named = window.days.empty() ||
                          std::any_of(window.days.begin(), window.days.end(), [&](const auto& d) {
                            return parse_weekday(d) == day;
                          });
    if (is_named) out.at.push_back(day * kMinutesOfDay + *from);
  }
  return out;
}

/// Guests have their notice before a window ends, and nobody is taken once it has begun: in one
/// that is no longer nobody could ever run, and nothing would say why. Windows that touch are one.
void check_notice_fits(
    const std::vector<LendingWindow>& windows,
    std::uint32_t notice_s,
    const std::string& field,
    Problems& out
) {
  std::vector<bool> is_lent(kMinutesOfWeek, false);
  for (const LendingWindow& window : windows) {
    const Openings opens = openings(window);
    for (const std::uint32_t from : opens.at) {
      for (std::uint32_t i = 0; i < opens.minutes; ++i) is_lent[(from + i) % kMinutesOfWeek] = true;
    }
  }
  const std::uint32_t least = notice_s / 60 + (notice_s % 60 == 0 ? 1 : 2);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    for (const std::uint32_t from : openings(windows[i]).at) {
      if (is_lent[(from + kMinutesOfWeek - 1) % kMinutesOfWeek]) continue;  // goes on from another
      std::uint32_t minutes = 0;
      while (minutes < least && is_lent[(from + minutes) % kMinutesOfWeek]) ++minutes;
      if (minutes >= least) continue;
      out.push_back(
          field + "[" + std::to_string(i) + "]: lends for " + std::to_string(minutes * 60) +
          " s from " + describe(LocalTime{0, from / kMinutesOfDay, from % kMinutesOfDay}) +
          " on, and guests have a notice of " + std::to_string(notice_s) +
          " s (notice_s) before it ends, so that none could ever run: make the window longer than "
          "the notice by a minute at least, or the notice shorter"
      );
      break;
    }
  }
}

/// What no line carries, and what no copy gets through within its peer's patience: mistakes of a
/// unit (bytes, megabits). 0 is no bound.
void check_rates(const Contract& contract, Problems& out) {
  const std::pair<const char*, std::uint64_t> rates[] = {
      {"uplink_bps_normal", contract.uplink_bps_normal},
      {"uplink_bps_evacuation", contract.uplink_bps_evacuation}};
  for (const auto& [name, bps] : rates) {
    if (bps != 0 && !is_uplink_rate(bps))
      out.push_back(
          std::string(name) + ": " + std::to_string(bps) + " bits a second is no rate from " +
          std::to_string(kLeastUplink_bps) + " (1 Mbit/s) to " + std::to_string(kMostGranted_bps) +
          " (1 Tbit/s); leave the line out for no bound"
      );
  }
}

void check_windows(
    const std::vector<LendingWindow>& windows, const std::string& field, Problems& out
) {
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const LendingWindow& window = windows[i];
    const std::string at = field + "[" + std::to_string(i) + "]";
    for (const std::string& day : window.days) {
      if (!parse_weekday(day))
        out.push_back(at + ".days: \"" + day + "\" is none of mon, tue, wed, thu, fri, sat, sun");
    }
    const auto from = parse_minute(window.from);
    const auto to = parse_minute(window.to);
    if (!from || *from == 24 * 60)
      out.push_back(at + ".from: \"" + window.from + "\" is not a time from 00:00 to 23:59");
    if (!to) out.push_back(at + ".to: \"" + window.to + "\" is not a time from 00:00 to 24:00");
    if (from && to && *from == *to)
      out.push_back(
          at + ": from and to are both " + window.from +
          ": write from: \"00:00\", to: \"24:00\" for a whole day"
      );
  }
}

void check_holidays(
    const std::vector<std::string>& holidays, const std::string& field, Problems& out
) {
  for (const std::string& holiday : holidays) {
    if (!parse_date(holiday))
      out.push_back(field + ": \"" + holiday + "\" is not a date like 2026-12-24");
  }
}

void check_calendar(const Contract& contract, Problems& out) {
  check_windows(contract.windows, "windows", out);
  check_holidays(contract.holidays, "holidays", out);
  if (!contract.holidays.empty() && contract.windows.empty())
    out.emplace_back(
        "holidays: without windows the node lends always; holidays would change nothing"
    );
  if (contract.time_zone.empty())
    out.emplace_back("time_zone: is empty; write UTC or a name like Europe/Berlin");
}

/// Of the machine's GPUs; one whose facts are not known yet may have any.
bool may_have_gpu(const NodeFacts& facts, std::uint32_t gpu) {
  return facts.cpu_milli == 0 ||
         std::any_of(facts.gpus.begin(), facts.gpus.end(), [&](const Gpu& g) {
           return g.index == gpu;
         });
}

/// The calendar's own answer for each minute of a week without holidays.
std::vector<bool> week_of(const std::vector<LendingWindow>& windows) {
  Contract plain;
  plain.windows = windows;
  std::vector<bool> week(kMinutesOfWeek);
  for (std::uint32_t i = 0; i < kMinutesOfWeek; ++i)
    week[i] = is_inside_windows(plain, LocalTime{0, i / kMinutesOfDay, i % kMinutesOfDay});
  return week;
}

/// For how many minutes on end both lend, at most; a week is a ring.
std::uint32_t longest_together(const std::vector<bool>& a, const std::vector<bool>& b) {
  std::uint32_t longest = 0;
  std::uint32_t run = 0;
  for (std::uint32_t i = 0; i < 2 * kMinutesOfWeek; ++i) {
    const std::uint32_t minute = i % kMinutesOfWeek;
    run = a[minute] && b[minute] ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return std::min(longest, kMinutesOfWeek);
}

/// A GPU whose hours lie beside those of the machine would never be lent, and nothing would say
/// why.
void check_hours_meet(
    const std::vector<bool>& machine,
    const GpuWindows& own,
    std::uint32_t notice_s,
    const std::string& field,
    Problems& out
) {
  const std::uint32_t together = longest_together(machine, week_of(own.windows));
  if (together * 60 > notice_s) return;
  out.push_back(
      field + ": GPU " + std::to_string(own.gpu) + " is lent while the machine is, which is for " +
      std::to_string(together * 60) + " s on end at most, and guests have a notice of " +
      std::to_string(notice_s) +
      " s (notice_s), so that none could ever run: give the machine (windows) those hours, too"
  );
}

/// Each of `gpu_windows` names a GPU that is lent, once, and says when.
void check_gpu_windows(const Contract& contract, const NodeFacts& facts, Problems& out) {
  if (contract.gpu_windows.empty()) return;
  const std::vector<bool> machine = week_of(contract.windows);
  std::set<std::uint32_t> seen;
  for (std::size_t i = 0; i < contract.gpu_windows.size(); ++i) {
    const GpuWindows& own = contract.gpu_windows[i];
    const std::string at = "gpu_windows[" + std::to_string(i) + "]";
    const std::string gpu = "GPU " + std::to_string(own.gpu);
    const std::size_t before = out.size();
    if (own.gpu >= kMaxGpus)
      out.push_back(at + ".gpu: " + std::to_string(own.gpu) + " is above 63, the last one");
    else if (!may_have_gpu(facts, own.gpu))
      out.push_back(
          at + ".gpu: the machine has no " + gpu + " (it has " + std::to_string(facts.gpus.size()) +
          ")"
      );
    else if (!is_gpu_lent(contract, own.gpu))
      out.push_back(
          at + ".gpu: " + gpu + " is not lent (gpus): add it there, or take these windows out"
      );
    if (!seen.insert(own.gpu).second)
      out.push_back(at + ".gpu: " + gpu + " has windows twice: write all of them into one entry");
    if (own.windows.empty())
      out.push_back(
          at + ".windows: say when " + gpu + " is lent; to lend it with the machine leave the " +
          "entry out, and to lend it never name the others in `gpus`"
      );
    check_windows(own.windows, at + ".windows", out);
    check_holidays(own.holidays, at + ".holidays", out);
    if (contract.lends && out.size() == before)
      check_notice_fits(own.windows, contract.notice_s, at + ".windows", out);
    if (contract.lends && out.empty())
      check_hours_meet(machine, own, contract.notice_s, at + ".windows", out);
  }
}

void check_gpus(const Contract& contract, const NodeFacts& facts, Problems& out) {
  std::set<std::uint32_t> seen;
  for (const std::uint32_t gpu : contract.gpus) {
    if (gpu >= kMaxGpus) {
      out.push_back("gpus: " + std::to_string(gpu) + " is above 63, the last that a node can lend");
      continue;
    }
    if (!seen.insert(gpu).second) out.push_back("gpus: " + std::to_string(gpu) + " is named twice");
    if (!may_have_gpu(facts, gpu))
      out.push_back(
          "gpus: " + std::to_string(gpu) + " is lent, but the machine has no such GPU (it has " +
          std::to_string(facts.gpus.size()) + ")"
      );
  }
}

void check_amounts(const Contract& contract, const NodeFacts& facts, Problems& out) {
  if (contract.notice_s > 900) out.emplace_back("notice_s: is more than 900 (15 minutes)");
  if (contract.max_pids < 8) out.emplace_back("max_pids: below 8 no program can start");
  if (contract.lends && contract.max_guests == 0)
    out.emplace_back(
        "max_guests: is 0 though lends is true: set lends to false, or max_guests to 1 or more"
    );
  if (contract.lends && contract.guest_disk_mib < 64)
    out.emplace_back("guest_disk_mib: below 64 no guest fits");
  if (contract.uplink_bps_normal != 0 && contract.uplink_bps_evacuation != 0 &&
      contract.uplink_bps_evacuation < contract.uplink_bps_normal)
    out.emplace_back(
        "uplink_bps_evacuation: is below uplink_bps_normal; an evacuation may not be slower than "
        "normal copying"
    );
  if (contract.uplink_bps_normal == 0 && contract.uplink_bps_evacuation != 0)
    out.emplace_back(
        "uplink_bps_evacuation: caps evacuations while uplink_bps_normal (0) leaves normal copying "
        "uncapped"
    );
  if (facts.cpu_milli != 0 && contract.guest_cpu_milli > facts.cpu_milli)
    out.push_back(
        "guest_cpu_milli: lends " + std::to_string(contract.guest_cpu_milli) +
        ", the machine has " + std::to_string(facts.cpu_milli)
    );
  if (contract.guest_cpu_milli != 0 && contract.guest_cpu_each_milli > contract.guest_cpu_milli)
    out.push_back(
        "guest_cpu_each_milli: one guest may have " +
        std::to_string(contract.guest_cpu_each_milli) + ", all together only " +
        std::to_string(contract.guest_cpu_milli) + " (guest_cpu_milli)"
    );
  if (facts.memory_mib != 0 && contract.guest_memory_mib > facts.memory_mib)
    out.push_back(
        "guest_memory_mib: lends " + std::to_string(contract.guest_memory_mib) +
        ", the machine has " + std::to_string(facts.memory_mib)
    );
  if (facts.disk_mib != 0 && contract.reserve_disk_mib >= facts.disk_mib)
    out.push_back(
        "reserve_disk_mib: keeps " + std::to_string(contract.reserve_disk_mib) +
        " free, the disk has " + std::to_string(facts.disk_mib) + ": nothing could ever be stored"
    );
}

void check_lists(const Contract& contract, Problems& out) {
  for (const std::string& image : contract.allow_images) {
    const bool is_digest = image.size() == 71 && image.starts_with("sha256:") &&
                           std::all_of(image.begin() + 7, image.end(), [](char c) {
                             return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                           });
    if (!is_digest)
      out.push_back("allow_images: \"" + image + "\" is not sha256: and 64 lower-case hex digits");
  }
  for (std::size_t i = 0; i < contract.network.size(); ++i) {
    const NetworkAllow& allow = contract.network[i];
    const std::string at = "network[" + std::to_string(i) + "]";
    if (!is_network_prefix(allow.prefix))
      out.push_back(at + ".prefix: \"" + allow.prefix + "\" is not like 10.1.2.0/24 or fd00::/8");
    if (allow.port > 65535) out.push_back(at + ".port: is above 65535");
    if (allow.protocol != "udp" && allow.protocol != "tcp" && allow.protocol != "any")
      out.push_back(at + ".protocol: \"" + allow.protocol + "\" is none of udp, tcp, any");
    if (allow.protocol == "any" && allow.port != 0)
      out.push_back(at + ".port: a port needs protocol udp or tcp");
  }
}

struct Prefix {
  bool is_v4 = false;
  std::array<unsigned char, 16> bytes{};
  unsigned bits = 0;
};

std::optional<Prefix> parse_prefix(const std::string& text) {
  const std::size_t slash = text.find('/');
  const std::string address = text.substr(0, slash);
  Prefix out;
  out.is_v4 = inet_pton(AF_INET, address.c_str(), out.bytes.data()) == 1;
  if (!out.is_v4 && inet_pton(AF_INET6, address.c_str(), out.bytes.data()) != 1)
    return std::nullopt;
  const unsigned most = out.is_v4 ? 32 : 128;
  out.bits = most;
  if (slash == std::string::npos) return out;
  const std::string length = text.substr(slash + 1);
  if (length.empty() || length.size() > 3) return std::nullopt;
  if (!std::all_of(length.begin(), length.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  out.bits = static_cast<unsigned>(std::stoi(length));
  if (out.bits > most) return std::nullopt;
  return out;
}

bool contains(const Prefix& outer, const Prefix& inner) {
  if (outer.is_v4 != inner.is_v4 || outer.bits > inner.bits) return false;
  for (unsigned bit = 0; bit < outer.bits; ++bit) {
    const unsigned mask = 0x80u >> (bit % 8);
    if ((outer.bytes[bit / 8] & mask) != (inner.bytes[bit / 8] & mask)) return false;
  }
  return true;
}

}  // namespace

bool is_network_prefix(const std::string& text) {
  return parse_prefix(text).has_value();
}

bool is_opened(const NetworkAllow& wanted, const std::vector<NetworkAllow>& contract) {
  const auto inner = parse_prefix(wanted.prefix);
  if (!inner) return false;
  return std::any_of(contract.begin(), contract.end(), [&](const NetworkAllow& open) {
    const auto outer = parse_prefix(open.prefix);
    return outer && contains(*outer, *inner) && (open.port == 0 || open.port == wanted.port) &&
           (open.protocol == "any" || open.protocol == wanted.protocol);
  });
}

std::vector<std::string> problems_of(const Contract& contract, const NodeFacts& facts) {
  Problems out;
  check_calendar(contract, out);
  if (contract.lends && out.empty())
    check_notice_fits(contract.windows, contract.notice_s, "windows", out);
  check_gpus(contract, facts, out);
  check_gpu_windows(contract, facts, out);
  check_rates(contract, out);
  check_amounts(contract, facts, out);
  check_lists(contract, out);
  return out;
}

Status check_contract(const Contract& contract, const NodeFacts& facts) {
  const Problems problems = problems_of(contract, facts);
  if (problems.empty()) return {};
  std::string text;
  for (const std::string& problem : problems) text += (text.empty() ? "" : "; ") + problem;
  return fail(
      ErrorCode::kInvalid,
      "the contract cannot be used: " + text,
      "correct these fields; the contract that was in force stays in force"
  );
}

}  // namespace rn::arbiter
