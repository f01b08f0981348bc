// SPDX-License-Identifier: Apache-2.0
#include "arbiter/contract_order.h"

#include <array>
#include <cstdio>
#include <functional>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "arbiter/calendar.h"
#include "arbiter/contract_rules.h"
#include "base/rng.h"
#include "base/sanitizers.h"
#include "model/codec.h"

namespace rn::arbiter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::uint32_t kWeek = 7 * 24 * 60;
constexpr int kRounds = kIsSanitized ? 90 : 300;  // of what is looked at minute by minute
constexpr int kSeldom = kIsSanitized ? 12 : 40;

NodeFacts a_lender() {
  NodeFacts facts;
  facts.cpu_milli = 8000;
  facts.memory_mib = 16'000;
  facts.disk_mib = 200'000;
  for (const std::uint32_t index : {0u, 1u, 2u}) {
    Gpu gpu;
    gpu.index = index;
    facts.gpus.push_back(gpu);
  }
  return facts;
}

Contract nights_of_weekdays() {
  Contract contract;
  contract.windows = {{{"mon", "tue", "wed", "thu", "fri"}, "18:00", "08:00"}};
  contract.time_zone = "Europe/Berlin";
  return contract;
}

std::string first_of(const Contract& from, const Contract& to) {
  const auto found = widenings(from, to, a_lender());
  return found.empty() ? "" : found.front();
}

TEST(ContractOrder, a_contract_lends_no_more_than_itself) {
  EXPECT_THAT(widenings({}, {}, a_lender()), IsEmpty());
  EXPECT_THAT(widenings(nights_of_weekdays(), nights_of_weekdays(), a_lender()), IsEmpty());
}

TEST(ContractOrder, fewer_hours_are_less_and_other_hours_are_not) {
  Contract less = nights_of_weekdays();
  less.windows = {{{"mon", "tue"}, "19:00", "24:00"}, {{"tue"}, "00:00", "07:30"}};
  EXPECT_THAT(widenings(nights_of_weekdays(), less, a_lender()), IsEmpty());
  EXPECT_EQ(first_of(less, nights_of_weekdays()), "windows: lends mon 18:00, which was not lent");

  Contract other = nights_of_weekdays();
  other.windows[0].to = "08:01";
  EXPECT_EQ(first_of(nights_of_weekdays(), other), "windows: lends tue 08:00, which was not lent");
  other.windows.clear();
  EXPECT_THAT(first_of(nights_of_weekdays(), other), HasSubstr("windows: lends mon 00:00"));
}

TEST(ContractOrder, the_same_hours_in_other_words_are_no_more) {
  Contract whole;
  whole.windows = {{{}, "00:00", "24:00"}};
  whole.time_zone = "Asia/Tokyo";
  EXPECT_THAT(widenings(whole, {}, a_lender()), IsEmpty()) << "at any time, by any clock";
  EXPECT_THAT(widenings({}, whole, a_lender()), IsEmpty());
}

TEST(ContractOrder, another_time_zone_is_not_known_to_be_less) {
  Contract other = nights_of_weekdays();
  other.time_zone = "Europe/Paris";
  EXPECT_THAT(first_of(nights_of_weekdays(), other), HasSubstr("time_zone: "));

  EXPECT_THAT(widenings({}, other, a_lender()), IsEmpty()) << "of a machine that always lends";
}

TEST(ContractOrder, a_holiday_more_is_a_day_more_unless_that_day_is_lent_anyway) {
  Contract from = nights_of_weekdays();
  from.windows.push_back({{"sat"}, "00:00", "24:00"});
  from.holidays = {"2026-12-24"};
  Contract to = from;
  to.holidays = {"2026-12-24", "2026-11-28"};  // a Saturday
  EXPECT_THAT(widenings(from, to, a_lender()), IsEmpty());
  to.holidays.emplace_back("2026-12-25");
  EXPECT_EQ(first_of(from, to), "holidays: lends all day on 2026-12-25");

  to.holidays.clear();
  EXPECT_THAT(widenings(from, to, a_lender()), IsEmpty());
}

TEST(ContractOrder, a_longer_notice_keeps_the_owner_waiting_and_is_more) {
  Contract longer;
  longer.notice_s = 61;
  EXPECT_EQ(first_of({}, longer), "notice_s: 61 is more than 60");
  EXPECT_THAT(widenings(longer, {}, a_lender()), IsEmpty());
}

TEST(ContractOrder, gpus_are_compared_by_what_is_lent_of_them) {
  Contract two;
  two.gpus = {0, 2};
  Contract one;
  one.gpus = {2};
  Contract none;
  none.lends_gpus = false;
  for (const auto& [more, less] :
       {std::pair(Contract{}, two), std::pair(two, one), std::pair(one, none)}) {
    EXPECT_THAT(widenings(more, less, a_lender()), IsEmpty());
    EXPECT_THAT(first_of(less, more), HasSubstr("gpus: lends"));
  }
  Contract other;
  other.gpus = {1};
  EXPECT_EQ(first_of(one, other), "gpus: lends 1");
}

TEST(ContractOrder, a_line_that_is_left_out_is_compared_by_what_it_comes_to) {
  Contract some;
  some.guest_memory_mib = 12'000;  // three quarters of what there is
  EXPECT_THAT(widenings({}, some, a_lender()), IsEmpty());
  EXPECT_THAT(widenings(some, {}, a_lender()), IsEmpty());
  some.guest_memory_mib = 12'001;
  EXPECT_THAT(first_of({}, some), HasSubstr("guest_memory_mib: "));
  EXPECT_THAT(widenings({}, some, {}), SizeIs(1)) << "nobody knows how much there is";

  Contract capped;
  capped.guest_cpu_milli = 4000;
  EXPECT_THAT(widenings({}, capped, a_lender()), IsEmpty());
  EXPECT_EQ(first_of(capped, {}), "guest_cpu_milli: no bound is more than 4000");
}

TEST(ContractOrder, names_and_addresses_may_only_become_fewer) {
  Contract some;
  some.allow_labs = {"lab-a", "lab-b"};
  some.network = {{"10.0.0.0/8", 443, "tcp"}};
  Contract fewer = some;
  fewer.allow_labs = {"lab-b"};
  fewer.network = {{"10.1.0.0/16", 443, "tcp"}};
  EXPECT_THAT(widenings(some, fewer, a_lender()), IsEmpty());
  EXPECT_THAT(
      widenings(fewer, some, a_lender()),
      ElementsAre("allow_labs: allows lab-a", "network: opens 10.0.0.0/8 port 443")
  );

  fewer.allow_labs.clear();
  EXPECT_THAT(first_of(some, fewer), HasSubstr("allow_labs: allows all"));
}

TEST(ContractOrder, what_is_said_beside_lends_false_is_judged_too) {
  Contract off = nights_of_weekdays();
  off.lends = false;
  EXPECT_THAT(widenings(nights_of_weekdays(), off, a_lender()), IsEmpty());
  off.windows.clear();

  EXPECT_THAT(first_of(nights_of_weekdays(), off), HasSubstr("windows: "))
      << "`lends: true` alone would be shown to who lets it lend again";
}

/// Each field that a contract has, in the direction that lends more; a new one has to be put here.
const std::map<std::string, std::function<void(Contract&)>>& more_of_each() {
  static const std::map<std::string, std::function<void(Contract&)>> kMore = {
      {"lends", [](Contract& c) { c.lends = true; }},
      {"lends_gpus", [](Contract& c) { c.lends_gpus = true; }},
      {"gpus",
       [](Contract& c) {
         c.lends_gpus = true;
         c.gpus = {0, 1};
       }},
      {"windows",
       [](Contract& c) {
         c.windows = {{{}, "18:00", "08:00"}};
       }},
      {"time_zone", [](Contract& c) { c.time_zone = "Asia/Tokyo"; }},
      {"holidays", [](Contract& c) { c.holidays = {"2026-12-25"}; }},
      {"idle", [](Contract& c) { c.idle = {}; }},
      {"notice_s", [](Contract& c) { c.notice_s = 900; }},
      {"min_free_s", [](Contract& c) { c.min_free_s = 0; }},
      {"guest_cpu_milli", [](Contract& c) { c.guest_cpu_milli = 0; }},
      {"guest_cpu_each_milli", [](Contract& c) { c.guest_cpu_each_milli = 0; }},
      {"guest_memory_mib", [](Contract& c) { c.guest_memory_mib = 0; }},
      {"guest_disk_mib", [](Contract& c) { c.guest_disk_mib = 20'000; }},
      {"store_mib", [](Contract& c) { c.store_mib = 30'000; }},
      {"reserve_disk_mib", [](Contract& c) { c.reserve_disk_mib = 0; }},
      {"uplink_bps_normal", [](Contract& c) { c.uplink_bps_normal = 0; }},
      {"uplink_bps_evacuation", [](Contract& c) { c.uplink_bps_evacuation = 0; }},
      {"max_guests", [](Contract& c) { c.max_guests = 17; }},
      {"max_pids", [](Contract& c) { c.max_pids = 4096; }},
      {"orphan_limit_s", [](Contract& c) { c.orphan_limit_s = 3600; }},
      {"max_drain_s", [](Contract& c) { c.max_drain_s = 3600; }},
      {"allow_users", [](Contract& c) { c.allow_users = {}; }},
      {"allow_labs",
       [](Contract& c) {
         c.allow_labs = {"lab-a", "lab-z"};
       }},
      {"allow_images", [](Contract& c) { c.allow_images = {}; }},
      {"own_lab_first", [](Contract& c) { c.own_lab_first = false; }},
      {"network",
       [](Contract& c) {
         c.network = {{"0.0.0.0/0", 0, "any"}};
       }},
      {"gangs", [](Contract& c) { c.gangs = true; }},
      {"gpu_windows", [](Contract& c) { c.gpu_windows.clear(); }},
  };
  return kMore;
}

Contract a_narrow_one() {
  Contract contract = nights_of_weekdays();
  contract.lends = contract.lends_gpus = false;
  contract.idle = {15, 0};
  contract.min_free_s = 60;
  contract.guest_cpu_milli = contract.guest_cpu_each_milli = 1000;
  contract.guest_memory_mib = 1000;
  contract.uplink_bps_normal = contract.uplink_bps_evacuation = 10'000'000;
  contract.allow_users = {"ann"};
  contract.allow_labs = {"lab-a"};
  contract.allow_images = {"sha256:" + std::string(64, 'a')};
  contract.gpu_windows = {{1, {{{}, "19:00", "20:00"}}, {}}};
  return contract;
}

/// GPU 1 is lent at night, and on one holiday.
Contract a_gpu_at_night() {
  Contract contract;
  contract.gpu_windows = {{1, {{{}, "20:00", "08:00"}}, {"2026-12-24"}}};
  return contract;
}

TEST(ContractOrder, hours_of_a_single_gpu_are_less_than_those_of_the_machine) {
  EXPECT_TRUE(narrows({}, a_gpu_at_night(), a_lender()));
  EXPECT_EQ(
      first_of(a_gpu_at_night(), {}), "gpu_windows: lends GPU 1 mon 08:00, which was not lent"
  );
  Contract other = a_gpu_at_night();
  other.gpu_windows[0].gpu = 2;
  EXPECT_THAT(first_of(a_gpu_at_night(), other), HasSubstr("lends GPU 1 mon 08:00"));
}

TEST(ContractOrder, a_gpus_hours_count_within_those_of_the_machine) {
  Contract from;  // all of it by night
  from.windows = {{{}, "20:00", "08:00"}};
  Contract to = from;
  to.gpu_windows = {{1, {{{}, "00:00", "24:00"}}, {}}};
  EXPECT_TRUE(narrows(from, to, a_lender())) << "it is lent with the machine, as before";
  Contract shorter = a_gpu_at_night();
  shorter.windows = {{{}, "20:00", "22:00"}};
  shorter.gpu_windows[0].windows[0].from = "19:00";
  EXPECT_TRUE(narrows(a_gpu_at_night(), shorter, a_lender())) << "the machine is shut by then";
}

TEST(ContractOrder, a_gpus_holiday_is_a_day_more_and_one_less_is_less) {
  Contract none = a_gpu_at_night();
  none.gpu_windows[0].holidays.clear();
  EXPECT_TRUE(narrows(a_gpu_at_night(), none, a_lender()));
  EXPECT_EQ(
      first_of(none, a_gpu_at_night()),
      "gpu_windows: lends GPU 1 on 2026-12-24 at times that were not lent"
  );
  Contract shut = none;  // on a weekday on which the machine is not lent
  shut.windows = {{{"mon"}, "00:00", "24:00"}};
  Contract shut_more = shut;
  shut_more.gpu_windows[0].holidays = {"2026-12-24"};  // a Thursday
  EXPECT_TRUE(narrows(shut, shut_more, a_lender()));
}

TEST(ContractOrder, hours_of_two_zones_are_not_compared_for_a_single_gpu_either) {
  Contract to = a_gpu_at_night();
  to.time_zone = "Asia/Tokyo";
  EXPECT_THAT(first_of(a_gpu_at_night(), to), HasSubstr("time_zone: "));
  EXPECT_TRUE(narrows({}, to, a_lender()));
}

TEST(ContractOrder, who_has_a_gpu_leaves_when_the_first_of_both_windows_ends) {
  const Contract contract = a_gpu_at_night();
  const WallTime monday = wall_from_ms(*parse_date("2026-12-21") * 86'400'000);
  EXPECT_EQ(guests_leave_in(contract, monday, 0), std::nullopt);
  EXPECT_EQ(guests_leave_in(contract, monday, 0, {0}), std::nullopt);
  EXPECT_EQ(guests_leave_in(contract, monday, 0, {0, 1}), seconds(8 * 3600));
  EXPECT_EQ(guests_leave_in(contract, monday + std::chrono::hours(12), 0, {1}), seconds(60));
}

TEST(ContractOrder, more_of_any_single_field_is_named_by_it_and_less_of_it_is_not) {
  const nlohmann::json fields = to_document(Contract{});
  for (const auto& [name, value] : fields.items())
    EXPECT_TRUE(more_of_each().contains(name)) << "nobody says what more of " << name << " is";
  for (const auto& [name, widen] : more_of_each()) {
    const Contract from = a_narrow_one();
    Contract to = from;
    widen(to);
    const auto found = widenings(from, to, a_lender());
    ASSERT_FALSE(found.empty()) << name;
    const std::string field = name == "lends_gpus" ? "gpus" : name;
    EXPECT_TRUE(found.front().starts_with(field)) << found.front();
    const bool is_back = name != "time_zone";
    EXPECT_EQ(narrows(to, from, a_lender()), is_back) << name;
    EXPECT_THAT(changes(from, to), testing::Not(IsEmpty())) << name;
  }
}

// ---- properties, on contracts made by chance

constexpr std::array<const char*, 7> kDayNames = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};

std::string some_time(SeededRng& rng, bool is_end) {
  const auto minute = static_cast<int>(rng.below(is_end ? 97 : 96)) * 15;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%02d:%02d", minute / 60, minute % 60);
  return text.data();
}

LendingWindow some_window(SeededRng& rng) {
  LendingWindow window;
  for (const char* day : kDayNames)
    if (rng.below(2) == 0) window.days.emplace_back(day);
  do {
    window.from = some_time(rng, false);
    window.to = some_time(rng, true);
  } while (window.from == window.to);
  return window;
}

Contract some_contract(SeededRng& rng) {
  Contract c;
  for (std::uint64_t i = rng.below(4); i > 0; --i) c.windows.push_back(some_window(rng));
  if (!c.windows.empty() && rng.below(3) == 0) c.holidays = {"2026-12-24"};
  if (!c.windows.empty() && rng.below(3) == 0) c.holidays.emplace_back("2026-12-26");
  c.lends = rng.below(4) != 0;
  c.lends_gpus = rng.below(3) != 0;
  for (const std::uint32_t gpu : {0u, 1u, 2u})
    if (c.lends_gpus && rng.below(2) == 0) c.gpus.push_back(gpu);
  c.notice_s = static_cast<std::uint32_t>(rng.below(3)) * 30;
  c.guest_cpu_milli = static_cast<std::uint32_t>(rng.below(3)) * 2000;
  c.guest_memory_mib = rng.below(4) * 5000;
  c.idle.idle_minutes = static_cast<std::uint32_t>(rng.below(3)) * 5;
  c.max_guests = 1 + static_cast<std::uint32_t>(rng.below(3));
  if (rng.below(2) == 0) c.allow_labs = {"lab-a"};
  if (rng.below(4) == 0) c.allow_labs = {"lab-a", "lab-b"};
  if (rng.below(3) == 0) c.network = {{"10.0.0.0/8", 443, "tcp"}};
  for (const std::uint32_t gpu : {0u, 2u}) {
    if (rng.below(3) != 0) continue;
    c.gpu_windows.push_back({gpu, {some_window(rng)}, {}});
    if (rng.below(2) == 0) c.gpu_windows.back().holidays = {"2026-12-24"};
  }
  return c;
}

/// A change of it as an editor makes it: hours out or in, a limit down or up.
Contract edited(Contract c, SeededRng& rng) {
  switch (rng.below(11)) {
    case 0:
      if (!c.windows.empty()) c.windows.erase(c.windows.begin());
      break;
    case 1:
      c.windows.push_back(some_window(rng));
      break;
    case 2:
      for (LendingWindow& window : c.windows)
        if (!window.days.empty()) window.days.pop_back();
      break;
    case 3:
      c.notice_s = static_cast<std::uint32_t>(rng.below(4)) * 30;
      break;
    case 4:
      c.lends = !c.lends;
      break;
    case 5:
      if (c.gpus.size() > 1) c.gpus.pop_back();
      break;
    case 6:
      c.max_guests = 1 + static_cast<std::uint32_t>(rng.below(3));
      break;
    case 7:
      if (!c.gpu_windows.empty()) c.gpu_windows.pop_back();
      break;
    case 8:
      if (!c.gpu_windows.empty()) c.gpu_windows.back().holidays = {"2026-12-26"};
      break;
    case 9:
      for (GpuWindows& own : c.gpu_windows)
        if (!own.windows.front().days.empty()) own.windows.front().days.pop_back();
      break;
    default:
      if (!c.holidays.empty()) c.holidays.pop_back();
      break;
  }
  return c;
}

/// 2026-12-21 is a Monday; the week has both holidays, and the next one has none.
WallTime minute_of(std::uint32_t minute) {
  return wall_from_ms((*parse_date("2026-12-21") * 1440 + minute) * 60'000);
}

bool is_lent_at(const Contract& c, std::uint32_t minute) {
  return c.lends && is_inside_windows(c, local_time(minute_of(minute), 0));
}

bool is_gpu_lent_at(const Contract& c, std::uint32_t gpu, std::uint32_t minute) {
  return is_lent_at(c, minute) && is_gpu_lent(c, gpu) &&
         is_inside_windows(calendar_of_gpu(c, gpu), local_time(minute_of(minute), 0));
}

TEST(ContractOrderProperties, what_narrows_lends_at_no_minute_what_was_not_lent) {
  SeededRng rng(5);
  int seen = 0;
  for (int i = 0; i < kRounds; ++i) {
    const Contract from = some_contract(rng);
    const Contract to = rng.below(3) == 0 ? some_contract(rng) : edited(edited(from, rng), rng);
    if (!narrows(from, to, a_lender())) continue;
    ++seen;
    for (std::uint32_t minute = 0; minute < 2 * kWeek; minute += 5)
      ASSERT_LE(is_lent_at(to, minute), is_lent_at(from, minute)) << "minute " << minute << "\n"
                                                                  << to_json(from) << "\n"
                                                                  << to_json(to);
    for (std::uint32_t gpu = 0; gpu < 4; ++gpu) {
      ASSERT_LE(is_gpu_lent(to, gpu), is_gpu_lent(from, gpu)) << to_json(from) << to_json(to);
      for (std::uint32_t minute = 0; minute < 2 * kWeek; minute += 15)
        ASSERT_LE(is_gpu_lent_at(to, gpu, minute), is_gpu_lent_at(from, gpu, minute))
            << "GPU " << gpu << " minute " << minute << "\n"
            << to_json(from) << "\n"
            << to_json(to);
    }
    ASSERT_LE(lent_memory_mib(to, a_lender()), lent_memory_mib(from, a_lender()));
    ASSERT_LE(lent_cpu_milli(to, a_lender()), lent_cpu_milli(from, a_lender()));
    ASSERT_LE(to.notice_s, from.notice_s);
    ASSERT_LE(to.max_guests, from.max_guests);
    ASSERT_LE(lent_minutes(to), lent_minutes(from));
  }
  EXPECT_GT(seen, kSeldom) << "the property was looked at too seldom to say anything";
}

/// The other way round, where nothing but hours differs: what the calendar shows to be less is
/// less.
TEST(ContractOrderProperties, hours_are_less_exactly_when_the_calendar_says_so) {
  SeededRng rng(6);
  int less = 0;
  for (int i = 0; i < 200; ++i) {
    Contract from;
    for (std::uint64_t n = rng.below(4); n > 0; --n) from.windows.push_back(some_window(rng));
    Contract to = from;
    to.windows = edited(from, rng).windows;
    bool is_less = true;
    for (std::uint32_t minute = 0; minute < kWeek && is_less; ++minute)
      is_less = is_lent_at(to, minute) <= is_lent_at(from, minute);
    ASSERT_EQ(narrows(from, to, a_lender()), is_less) << to_json(from) << "\n" << to_json(to);
    less += is_less ? 1 : 0;
  }
  EXPECT_GT(less, 40);
  EXPECT_LT(less, 195);
}

TEST(ContractOrderProperties, less_than_less_is_less) {
  SeededRng rng(7);
  int seen = 0;
  for (int i = 0; i < kRounds; ++i) {
    const Contract a = some_contract(rng);
    const Contract b = edited(a, rng);
    const Contract c = edited(b, rng);
    if (!narrows(a, b, a_lender()) || !narrows(b, c, a_lender())) continue;
    ++seen;
    ASSERT_TRUE(narrows(a, c, a_lender())) << to_json(a) << "\n"
                                           << to_json(b) << "\n"
                                           << to_json(c);
  }
  EXPECT_GT(seen, kSeldom);
}

TEST(ContractOrderProperties, nothing_differs_exactly_where_the_versions_are_equal) {
  SeededRng rng(8);
  for (int i = 0; i < 200; ++i) {
    const Contract a = some_contract(rng);
    const Contract b = edited(a, rng);
    ASSERT_EQ(a == b, version_of(a) == version_of(b));
    ASSERT_EQ(a == b, changes(a, b).empty()) << to_json(a) << "\n" << to_json(b);
  }
}

// ---- words and times

TEST(ContractOrder, what_differs_is_said_as_an_owner_writes_it) {
  Contract to = nights_of_weekdays();
  to.gpus = {1};
  to.notice_s = 30;
  to.guest_cpu_milli = 4000;
  to.idle.idle_minutes = 10;

  EXPECT_THAT(
      changes({}, to),
      testing::UnorderedElementsAre(
          "gpus: 1, and it was all",
          "guest_cpu_milli: 4000, and it was all cores",
          "idle.idle_minutes: 10, and it was 0",
          "notice_s: 30, and it was 60",
          "time_zone: Europe/Berlin, and it was UTC",
          "windows: mon tue wed thu fri 18:00 to 08:00, and it was at any time"
      )
  );
}

TEST(ContractOrder, hours_of_a_single_gpu_are_said_with_its_number) {
  EXPECT_THAT(
      changes({}, a_gpu_at_night()),
      ElementsAre(
          "gpu_windows: GPU 1 every day 20:00 to 08:00, 2026-12-24, and it was each with the "
          "machine"
      )
  );
}

TEST(ContractOrder, the_hours_of_the_week_are_counted_by_the_calendar) {
  EXPECT_EQ(lent_minutes({}), kWeek);
  EXPECT_EQ(lent_minutes(nights_of_weekdays()), 5u * 14 * 60);
}

TEST(ContractOrder, guests_leave_when_the_window_ends_or_after_their_notice) {
  const Contract nights = nights_of_weekdays();
  EXPECT_EQ(guests_leave_in(nights, minute_of(20 * 60), 0), seconds(12 * 3600));
  EXPECT_EQ(guests_leave_in(nights, minute_of(12 * 60), 0), seconds(60)) << "it is outside";
  EXPECT_EQ(guests_leave_in(nights, minute_of(12 * 60), 7 * 3600), seconds(13 * 3600));
  EXPECT_FALSE(guests_leave_in({}, minute_of(0), 0));
  Contract off = nights;
  off.lends = false;
  EXPECT_EQ(guests_leave_in(off, minute_of(20 * 60), 0), seconds(60));
  off.notice_s = 0;
  EXPECT_EQ(guests_leave_in(off, minute_of(20 * 60), 0), seconds(1));
}

TEST(ContractOrder, lists_from_afar_are_bounded_by_name) {
  EXPECT_TRUE(check_bounds(nights_of_weekdays()));
  Contract long_one;
  long_one.windows.resize(257);
  EXPECT_THAT(check_bounds(long_one).error().message, HasSubstr("windows: 257"));
  long_one.windows.resize(1);
  long_one.windows[0].days.resize(8, "mon");
  EXPECT_THAT(check_bounds(long_one).error().message, HasSubstr("windows[0].days"));
  Contract many = a_gpu_at_night();
  many.gpu_windows[0].windows.resize(129);
  many.gpu_windows.push_back(many.gpu_windows[0]);
  EXPECT_THAT(check_bounds(many).error().message, HasSubstr("windows of gpu_windows: 258"));
  many = a_gpu_at_night();
  many.gpu_windows[0].windows[0].days.resize(8, "mon");
  EXPECT_THAT(check_bounds(many).error().message, HasSubstr("GPU 1: windows[0].days"));
  long_one = {};
  long_one.allow_users.resize(2000, "ann");
  EXPECT_FALSE(check_bounds(long_one));
}

}  // namespace
}  // namespace rn::arbiter
