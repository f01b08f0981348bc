// SPDX-License-Identifier: Apache-2.0
#include "arbiter/contract_order.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "arbiter/calendar.h"
#include "arbiter/contract_rules.h"
#include "base/crypto.h"
#include "model/codec.h"

namespace rn::arbiter {

namespace {

constexpr std::uint32_t kDayMinutes = 24 * 60;
constexpr std::size_t kWindowsMost = 256;
constexpr std::size_t kHolidaysMost = 512;
constexpr std::size_t kNamesMost = 1024;
constexpr seconds kLeavesAhead{7 * 86'400};

using Why = std::vector<std::string>;

/// The calendar's own answer for each minute of a week without holidays.
std::vector<bool> lent_week(const Contract& contract) {
  Contract plain;
  plain.windows = contract.windows;
  std::vector<bool> week;
  week.reserve(7 * kDayMinutes);
  for (std::uint32_t day = 0; day < 7; ++day) {
    for (std::uint32_t minute = 0; minute < kDayMinutes; ++minute)
      week.push_back(is_inside_windows(plain, LocalTime{0, day, minute}));
  }
  return week;
}

bool is_always(const std::vector<bool>& week) {
  return std::find(week.begin(), week.end(), false) == week.end();
}

/// 1970-01-01 was a Thursday.
std::uint32_t weekday_of(std::int64_t day) {
  return static_cast<std::uint32_t>(((day + 3) % 7 + 7) % 7);
}

bool is_whole_day_lent(const std::vector<bool>& week, std::uint32_t weekday) {
  const auto begin = week.begin() + weekday * kDayMinutes;
  return std::find(begin, begin + kDayMinutes, false) == begin + kDayMinutes;
}

/// Minute by minute of the same clock. Two zones are compared only where one lends always: which of
/// their clocks is ahead changes with the time of the year, and with what governments decide.
void judge_calendar(const Contract& from, const Contract& to, Why& out) {
  const std::vector<bool> before = lent_week(from);
  if (is_always(before)) return;
  const std::vector<bool> after = lent_week(to);
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (!after[i] || before[i]) continue;
    const auto minute = static_cast<std::uint32_t>(i);
    out.push_back(
        "windows: lends " + describe(LocalTime{0, minute / kDayMinutes, minute % kDayMinutes}) +
        ", which was not lent"
    );
    break;
  }
  if (to.time_zone != from.time_zone)
    out.push_back(
        "time_zone: the hours of " + to.time_zone + " are not those of " + from.time_zone
    );
  std::set<std::optional<std::int64_t>> known;
  for (const std::string& holiday : from.holidays) known.insert(parse_date(holiday));
  for (const std::string& holiday : to.holidays) {
    const auto day = parse_date(holiday);
    const bool is_less =
        day && (known.contains(day) || is_whole_day_lent(before, weekday_of(*day)));
    if (!is_less) out.push_back("holidays: lends all day on " + holiday);
  }
}

std::set<std::int64_t> days_of(const std::vector<std::string>& holidays) {
  std::set<std::int64_t> out;
  for (const std::string& holiday : holidays) {
    if (const auto day = parse_date(holiday)) out.insert(*day);
  }
  return out;
}

/// When one GPU is lent: in the hours of the machine and in its own. Borrows the machine's week,
/// which is worked out once and not for each of its GPUs.
class GpuHours {
 public:
  GpuHours(const Contract& contract, const std::vector<bool>& machine_week, std::uint32_t gpu)
      : own_(calendar_of_gpu(contract, gpu)),
        machine_week_(machine_week),
        own_week_(lent_week(own_)),
        machine_days_(days_of(contract.holidays)),
        own_days_(days_of(own_.holidays)) {}

  /// Of a day that is no holiday of the machine, or is one; and the GPU's.
  bool is_lent(std::uint32_t minute, bool is_machines, bool is_own) const {
    return (is_machines || machine_week_[minute]) && (is_own || own_week_[minute]);
  }

  bool is_holiday(std::int64_t day) const { return machine_days_.contains(day); }

  bool is_own_holiday(std::int64_t day) const { return own_days_.contains(day); }

  bool is_always() const {
    const auto is_whole = [](const std::vector<bool>& week) {
      return std::find(week.begin(), week.end(), false) == week.end();
    };
    return is_whole(machine_week_) && is_whole(own_week_);
  }

  void add_days(std::set<std::int64_t>& to) const {
    to.insert(machine_days_.begin(), machine_days_.end());
    to.insert(own_days_.begin(), own_days_.end());
  }

 private:
  Contract own_;
  const std::vector<bool>& machine_week_;
  std::vector<bool> own_week_;
  std::set<std::int64_t> machine_days_;
  std::set<std::int64_t> own_days_;
};

/// The first minute of the week that `to` lends and `from` does not; none on ordinary days.
std::optional<std::uint32_t> first_more(const GpuHours& from, const GpuHours& to) {
  for (std::uint32_t i = 0; i < 7 * kDayMinutes; ++i) {
    if (to.is_lent(i, false, false) && !from.is_lent(i, false, false)) return i;
  }
  return std::nullopt;
}

/// The first holiday of either that `to` lends a minute of which `from` does not. What holds on a
/// day follows from its weekday and whose holiday it is: each such kind of day is looked at once.
std::optional<std::int64_t> first_day_more(const GpuHours& from, const GpuHours& to) {
  std::set<std::int64_t> days;
  from.add_days(days);
  to.add_days(days);
  std::set<std::uint32_t> seen;
  for (const std::int64_t day : days) {
    const bool is[] = {
        from.is_holiday(day), from.is_own_holiday(day), to.is_holiday(day), to.is_own_holiday(day)};
    std::uint32_t kind = weekday_of(day);
    for (const bool one : is) kind = kind * 2 + (one ? 1U : 0U);
    if (!seen.insert(kind).second) continue;
    const std::uint32_t begin = weekday_of(day) * kDayMinutes;
    for (std::uint32_t i = begin; i < begin + kDayMinutes; ++i) {
      if (to.is_lent(i, is[2], is[3]) && !from.is_lent(i, is[0], is[1])) return day;
    }
  }
  return std::nullopt;
}

std::string date_words(std::int64_t day) {
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(day))};
  char text[48];
  std::snprintf(
      text,
      sizeof text,
      "%04d-%02u-%02u",
      static_cast<int>(date.year()),
      static_cast<unsigned>(date.month()),
      static_cast<unsigned>(date.day())
  );
  return text;
}

/// Of each GPU that either gives hours of its own.
void judge_gpu_windows(const Contract& from, const Contract& to, Why& out) {
  std::set<std::uint32_t> gpus;
  for (const GpuWindows& own : from.gpu_windows) gpus.insert(own.gpu);
  for (const GpuWindows& own : to.gpu_windows) gpus.insert(own.gpu);
  if (gpus.empty()) return;
  const std::vector<bool> week_before = lent_week(from);
  const std::vector<bool> week_after = lent_week(to);
  bool is_zone_said = from.time_zone == to.time_zone || !is_always(week_before);
  for (const std::uint32_t gpu : gpus) {
    const GpuHours before(from, week_before, gpu);
    if (before.is_always()) continue;
    const GpuHours after(to, week_after, gpu);
    const std::string lends = "gpu_windows: lends GPU " + std::to_string(gpu);
    if (const auto minute = first_more(before, after)) {
      const LocalTime at{0, *minute / kDayMinutes, *minute % kDayMinutes};
      out.push_back(lends + " " + describe(at) + ", which was not lent");
    } else if (const auto day = first_day_more(before, after)) {
      out.push_back(lends + " on " + date_words(*day) + " at times that were not lent");
    }
    if (is_zone_said) continue;
    is_zone_said = true;
    out.push_back(
        "time_zone: the hours of " + to.time_zone + " are not those of " + from.time_zone
    );
  }
}

void judge_gpus(const Contract& from, const Contract& to, Why& out) {
  for (std::uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if (!is_gpu_lent(to, gpu) || is_gpu_lent(from, gpu)) continue;
    // Of all that are lent by the new one, the machine's own are what counts to people.
    out.push_back(
        to.gpus.empty() ? std::string("gpus: lends all of them")
                        : "gpus: lends " + std::to_string(gpu)
    );
    if (to.gpus.empty()) return;
  }
}

/// Zero stands for no bound.
void judge_cap(const char* name, std::uint64_t from, std::uint64_t to, Why& out) {
  const bool is_less = from == 0 || (to != 0 && to <= from);
  if (is_less) return;
  out.push_back(
      std::string(name) + ": " + (to == 0 ? std::string("no bound") : std::to_string(to)) +
      " is more than " + std::to_string(from)
  );
}

void judge_most(const char* name, std::uint64_t from, std::uint64_t to, Why& out) {
  if (to > from)
    out.push_back(
        std::string(name) + ": " + std::to_string(to) + " is more than " + std::to_string(from)
    );
}

void judge_least(const char* name, std::uint64_t from, std::uint64_t to, Why& out) {
  if (to < from)
    out.push_back(
        std::string(name) + ": " + std::to_string(to) + " is less than " + std::to_string(from)
    );
}

void judge_amounts(const Contract& from, const Contract& to, const NodeFacts& facts, Why& out) {
  judge_cap("guest_cpu_milli", from.guest_cpu_milli, to.guest_cpu_milli, out);
  judge_cap("guest_cpu_each_milli", from.guest_cpu_each_milli, to.guest_cpu_each_milli, out);
  judge_cap("uplink_bps_normal", from.uplink_bps_normal, to.uplink_bps_normal, out);
  judge_cap("uplink_bps_evacuation", from.uplink_bps_evacuation, to.uplink_bps_evacuation, out);
  // Without a line it is three quarters of what there is.
  const bool is_known = facts.memory_mib != 0;
  const bool is_same = from.guest_memory_mib == to.guest_memory_mib;
  if (!is_same && is_known)
    judge_most("guest_memory_mib", lent_memory_mib(from, facts), lent_memory_mib(to, facts), out);
  if (!is_same && !is_known)
    out.emplace_back("guest_memory_mib: how much the machine has is not known");
  judge_most("guest_disk_mib", from.guest_disk_mib, to.guest_disk_mib, out);
  judge_most("store_mib", from.store_mib, to.store_mib, out);
  judge_least("reserve_disk_mib", from.reserve_disk_mib, to.reserve_disk_mib, out);
  judge_most("max_guests", from.max_guests, to.max_guests, out);
  judge_most("max_pids", from.max_pids, to.max_pids, out);
}

/// How long others may still have the machine after its owner has asked for it, or is back.
void judge_times(const Contract& from, const Contract& to, Why& out) {
  judge_most("notice_s", from.notice_s, to.notice_s, out);
  judge_most("orphan_limit_s", from.orphan_limit_s, to.orphan_limit_s, out);
  judge_most("max_drain_s", from.max_drain_s, to.max_drain_s, out);
  judge_least("min_free_s", from.min_free_s, to.min_free_s, out);
  judge_least("idle.idle_minutes", from.idle.idle_minutes, to.idle.idle_minutes, out);
  judge_most("idle.foreign_vram_mib", from.idle.foreign_vram_mib, to.idle.foreign_vram_mib, out);
}

/// An empty list is everybody.
void judge_names(
    const char* name,
    const std::vector<std::string>& from,
    const std::vector<std::string>& to,
    Why& out
) {
  if (from.empty()) return;
  if (to.empty()) {
    out.push_back(std::string(name) + ": allows all, and not only those that are named");
    return;
  }
  const std::set<std::string> known(from.begin(), from.end());
  for (const std::string& one : to) {
    if (!known.contains(one)) out.push_back(std::string(name) + ": allows " + one);
  }
}

void judge_network(const Contract& from, const Contract& to, Why& out) {
  for (const NetworkAllow& allow : to.network) {
    if (!is_opened(allow, from.network))
      out.push_back("network: opens " + allow.prefix + " port " + std::to_string(allow.port));
  }
}

/// A field that a later version adds is no narrowing before somebody has said here what less of it
/// is.
constexpr std::string_view kJudged[] = {
    "lends",
    "lends_gpus",
    "gpus",
    "windows",
    "time_zone",
    "holidays",
    "idle",
    "notice_s",
    "min_free_s",
    "guest_cpu_milli",
    "guest_cpu_each_milli",
    "guest_memory_mib",
    "guest_disk_mib",
    "store_mib",
    "reserve_disk_mib",
    "uplink_bps_normal",
    "uplink_bps_evacuation",
    "max_guests",
    "max_pids",
    "orphan_limit_s",
    "max_drain_s",
    "allow_users",
    "allow_labs",
    "allow_images",
    "own_lab_first",
    "network",
    "gangs",
    "gpu_windows",
};

void judge_rest(const Contract& from, const Contract& to, Why& out) {
  const nlohmann::json before = to_document(from);
  const nlohmann::json after = to_document(to);
  for (const auto& [name, value] : after.items()) {
    const bool is_judged =
        std::find(std::begin(kJudged), std::end(kJudged), name) != std::end(kJudged);
    if (!is_judged && before.at(name) != value)
      out.push_back(name + ": it is not known which of the two lends less");
  }
}

// ---- in words

std::string windows_words(const std::vector<LendingWindow>& windows) {
  if (windows.empty()) return "at any time";
  std::string text;
  for (const LendingWindow& window : windows) {
    text += text.empty() ? "" : "; ";
    if (window.days.empty()) text += "every day";
    for (std::size_t i = 0; i < window.days.size(); ++i)
      text += (i == 0 ? "" : " ") + window.days[i];
    text += " " + window.from + " to " + window.to;
  }
  return text;
}

std::string gpu_windows_words(const Contract& contract) {
  if (contract.gpu_windows.empty()) return "each with the machine";
  std::string text;
  for (const GpuWindows& own : contract.gpu_windows) {
    text += text.empty() ? "" : "; ";
    text += "GPU " + std::to_string(own.gpu) + " " + windows_words(own.windows);
    for (const std::string& holiday : own.holidays) text += ", " + holiday;
  }
  return text;
}

std::string gpus_words(const Contract& contract) {
  if (!contract.lends_gpus) return "none";
  if (contract.gpus.empty()) return "all";
  std::string text;
  for (const std::uint32_t gpu : contract.gpus)
    text += (text.empty() ? "" : ", ") + std::to_string(gpu);
  return text;
}

/// What 0, or an empty list, stands for.
constexpr std::pair<std::string_view, std::string_view> kNothingMeans[] = {
    {"guest_cpu_milli", "all cores"},
    {"guest_cpu_each_milli", "no bound"},
    {"guest_memory_mib", "three quarters of the memory"},
    {"uplink_bps_normal", "no bound"},
    {"uplink_bps_evacuation", "no bound"},
    {"allow_users", "everybody"},
    {"allow_labs", "all"},
    {"allow_images", "the site's"},
    {"holidays", "none"},
    {"network", "nothing"},
};

std::string value_words(const std::string& name, const nlohmann::json& value) {
  const bool is_nothing = value == 0 || (value.is_array() && value.empty());
  for (const auto& [field, means] : kNothingMeans) {
    if (is_nothing && field == name) return std::string(means);
  }
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& one : value)
    text += (text.empty() ? "" : ", ") + (one.is_string() ? one.get<std::string>() : one.dump());
  return text;
}

std::string change_words(
    const std::string& name, const std::string& before, const std::string& now
) {
  return name + ": " + now + ", and it was " + before;
}

}  // namespace

std::vector<std::string> widenings(
    const Contract& from, const Contract& to, const NodeFacts& facts
) {
  Why out;
  if (to == from) return out;
  // What a contract that lends nothing says beside is judged, too: `lends: true` alone would be
  // shown to who lets it lend again.
  if (to.lends && !from.lends) out.emplace_back("lends: runs guests, which it did not");
  judge_calendar(from, to, out);
  judge_gpus(from, to, out);
  judge_gpu_windows(from, to, out);
  judge_amounts(from, to, facts, out);
  judge_times(from, to, out);
  judge_names("allow_users", from.allow_users, to.allow_users, out);
  judge_names("allow_labs", from.allow_labs, to.allow_labs, out);
  judge_names("allow_images", from.allow_images, to.allow_images, out);
  if (from.own_lab_first && !to.own_lab_first)
    out.emplace_back("own_lab_first: others' jobs go before those of the own laboratory");
  judge_network(from, to, out);
  if (to.gangs && !from.gangs)
    out.emplace_back("gangs: runs members of gangs, which reach each other through the agents");
  judge_rest(from, to, out);
  return out;
}

bool narrows(const Contract& from, const Contract& to, const NodeFacts& facts) {
  return widenings(from, to, facts).empty();
}

std::vector<std::string> changes(const Contract& from, const Contract& to) {
  std::vector<std::string> out;
  const nlohmann::json before = to_document(from);
  const nlohmann::json after = to_document(to);
  const bool are_gpus_same = from.lends_gpus == to.lends_gpus && from.gpus == to.gpus;
  if (!are_gpus_same) out.push_back(change_words("gpus", gpus_words(from), gpus_words(to)));
  for (const auto& [name, value] : after.items()) {
    const nlohmann::json& was = before.at(name);
    if (name == "gpus" || name == "lends_gpus" || was == value) continue;
    if (name == "windows") {
      out.push_back(change_words(name, windows_words(from.windows), windows_words(to.windows)));
    } else if (name == "gpu_windows") {
      out.push_back(change_words(name, gpu_windows_words(from), gpu_windows_words(to)));
    } else if (name == "idle") {
      for (const auto& [part, now] : value.items()) {
        if (was.at(part) != now)
          out.push_back(
              change_words("idle." + part, value_words(part, was.at(part)), value_words(part, now))
          );
      }
    } else {
      out.push_back(change_words(name, value_words(name, was), value_words(name, value)));
    }
  }
  return out;
}

std::uint32_t lent_minutes(const Contract& contract) {
  const std::vector<bool> week = lent_week(contract);
  return static_cast<std::uint32_t>(std::count(week.begin(), week.end(), true));
}

std::optional<seconds> guests_leave_in(
    const Contract& contract,
    WallTime wall,
    std::int32_t utc_offset_s,
    const std::vector<std::uint32_t>& gpus
) {
  std::optional<seconds> first = guests_leave_in(contract, wall, utc_offset_s);
  for (const std::uint32_t gpu : gpus) {
    Contract own = calendar_of_gpu(contract, gpu);
    own.notice_s = contract.notice_s;
    const auto left = guests_leave_in(own, wall, utc_offset_s);
    if (left && (!first || *left < *first)) first = left;
  }
  return first;
}

std::optional<seconds> guests_leave_in(
    const Contract& contract, WallTime wall, std::int32_t utc_offset_s
) {
  const bool is_inside = is_inside_windows(contract, local_time(wall, utc_offset_s));
  std::optional<seconds> change;
  if (is_inside) change = time_to_change(contract, wall, utc_offset_s);
  const seconds notice(std::max(contract.notice_s, 1u));
  if (!contract.lends || !is_inside) return change ? std::min(notice, *change) : notice;
  return change && *change <= kLeavesAhead ? change : std::nullopt;
}

std::string version_of(const Contract& contract) {
  return to_hex(crypto::sha256(to_cbor(contract)));
}

namespace {

Status check_days(const std::vector<LendingWindow>& windows, const std::string& field) {
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].days.size() > 7)
      return fail(
          ErrorCode::kInvalid,
          field + "[" + std::to_string(i) + "].days: a week has seven of them",
          "name each day once"
      );
  }
  return {};
}

}  // namespace

Status check_bounds(const Contract& contract) {
  // Of all GPUs together: each of their hours is compared with the machine's.
  std::size_t gpu_windows = 0;
  std::size_t gpu_holidays = 0;
  for (const GpuWindows& own : contract.gpu_windows) {
    gpu_windows += own.windows.size();
    gpu_holidays += own.holidays.size();
  }
  const std::pair<const char*, std::pair<std::size_t, std::size_t>> lists[] = {
      {"windows", {contract.windows.size(), kWindowsMost}},
      {"holidays", {contract.holidays.size(), kHolidaysMost}},
      {"gpus", {contract.gpus.size(), kMaxGpus}},
      {"allow_users", {contract.allow_users.size(), kNamesMost}},
      {"allow_labs", {contract.allow_labs.size(), kNamesMost}},
      {"allow_images", {contract.allow_images.size(), kNamesMost}},
      {"network", {contract.network.size(), kWindowsMost}},
      {"gpu_windows", {contract.gpu_windows.size(), kMaxGpus}},
      {"windows of gpu_windows", {gpu_windows, kWindowsMost}},
      {"holidays of gpu_windows", {gpu_holidays, kHolidaysMost}}};
  for (const auto& [name, size] : lists) {
    if (size.first > size.second)
      return fail(
          ErrorCode::kInvalid,
          std::string(name) + ": " + std::to_string(size.first) + " entries are more than " +
              std::to_string(size.second),
          "shorten the list"
      );
  }
  RN_CHECK(check_days(contract.windows, "windows"));
  for (const GpuWindows& own : contract.gpu_windows)
    RN_CHECK(check_days(own.windows, "gpu_windows: GPU " + std::to_string(own.gpu) + ": windows"));
  return {};
}

}  // namespace rn::arbiter
