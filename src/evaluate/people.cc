// SPDX-License-Identifier: Apache-2.0
#include "evaluate/people.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "evaluate/dice.h"

namespace rn::evaluate {

namespace {

constexpr double kPatience_s = 2 * kHour;
constexpr int kPressureDays = 10;  ///< before a deadline

/// Lengths of what people run, in hours, before each one's own factor.
constexpr std::array<double, 6> kRuns_h = {0.35, 0.8, 1.7, 3.2, 6.5, 11};
constexpr std::array<double, 6> kRunShares = {0.28, 0.26, 0.2, 0.13, 0.09, 0.04};
constexpr std::array<double, 3> kNightRuns_h = {5.5, 9, 13};
constexpr std::array<double, 3> kNightShares = {0.4, 0.4, 0.2};

enum class Stage : std::uint8_t { kReading, kCoding, kExperiments, kWriting };

/// Somebody wants a machine of the lab.
struct Wish {
  double at_s = 0;
  double length_s = 0;
  std::size_t favourite = 0;
};

struct LabLife {
  int meeting_day = 0;  ///< 0 = Monday
  double meeting_h = 0;
  std::vector<int> deadlines;  ///< days
  double days = 0;
};

bool is_pressed(const LabLife& lab, int day) {
  return std::any_of(lab.deadlines.begin(), lab.deadlines.end(), [&](int deadline) {
    return day <= deadline && deadline - day <= kPressureDays;
  });
}

/// One member of a lab, day after day.
class Person {
 public:
  Person(const LabLife& lab, std::size_t machines, Dice dice)
      : lab_(lab),
        dice_(std::move(dice)),
        arrives_h_(dice_.triangular(7.5, 9.2, 12)),
        leaves_h_(dice_.triangular(16, 18, 22)),
        weekend_(dice_.between(0.03, 0.35)),
        keenness_(dice_.between(0.5, 1.3)),
        favourite_(static_cast<std::size_t>(dice_.whole(0, static_cast<int>(machines) - 1))),
        stage_(static_cast<Stage>(dice_.whole(0, 3))),
        stage_ends_(dice_.whole(1, 8)),
        away_from_(dice_.whole(0, 80)),
        away_days_(dice_.whole(4, 16)) {}

  void live(int day, std::vector<Wish>& wishes) {
    follow_project(day);
    if (day >= away_from_ && day < away_from_ + away_days_) return;
    const bool is_weekend = day % 7 >= 5;
    const bool is_pressed_now = is_pressed(lab_, day);
    if (is_weekend && !dice_.chance(is_pressed_now ? 0.6 : weekend_)) return;
    if (!is_weekend && dice_.chance(0.06)) return;  // at home, ill, travelling
    const double from = (day * 24 + arrives_h_ + dice_.triangular(-0.75, 0, 1.5)) * kHour;
    double until = (day * 24 + leaves_h_ + dice_.triangular(-1.5, 0, 2)) * kHour;
    if (is_pressed_now) until += dice_.between(0, 4) * kHour;
    const Stage stage = is_pressed_now ? Stage::kExperiments : stage_;
    double now = from;
    while (now < until) now = spend_some_time(stage, day, now, wishes);
    const bool stays_overnight =
        dice_.chance(stage == Stage::kExperiments ? 0.45 * keenness_ : 0.06);
    if (stays_overnight)
      wish(now, kNightRuns_h[dice_.pick(kNightShares)] * dice_.between(0.8, 1.25), wishes);
  }

 private:
  /// Reading, coding, experiments, writing, and the next project.
  void follow_project(int day) {
    if (day < stage_ends_) return;
    constexpr std::array<std::array<int, 2>, 4> kDays = {{{2, 8}, {3, 10}, {4, 15}, {2, 8}}};
    stage_ = static_cast<Stage>((static_cast<int>(stage_) + 1) % 4);
    const auto& days = kDays[static_cast<std::size_t>(stage_)];
    stage_ends_ = day + dice_.whole(days[0], days[1]);
  }

  void wish(double at_s, double hours, std::vector<Wish>& wishes) {
    wishes.push_back({at_s, hours * kHour, favourite_});
  }

  /// Answers when they turn to the next thing.
  double spend_some_time(Stage stage, int day, double now, std::vector<Wish>& wishes) {
    const double meeting = (day * 24 + lab_.meeting_h) * kHour;
    if (day % 7 == lab_.meeting_day && now >= meeting - 0.5 * kHour && now < meeting + kHour) {
      const double after = meeting + dice_.between(1, 1.4) * kHour;
      if (dice_.chance(0.4 * keenness_)) run(after, wishes);  // what was talked about is tried
      return after + dice_.between(0.1, 0.5) * kHour;
    }
    switch (stage) {
      case Stage::kReading:
      case Stage::kWriting:
        if (dice_.chance(0.12 * keenness_)) run(now, wishes);
        return now + dice_.between(1, 4) * kHour;
      case Stage::kCoding:
        return try_things_out(now, wishes);
      case Stage::kExperiments:
        if (dice_.chance(0.55 * keenness_)) run(now, wishes);
        return now + dice_.between(0.6, 2.8) * kHour;
    }
    return now + kHour;
  }

  void run(double at_s, std::vector<Wish>& wishes) {
    wish(at_s, kRuns_h[dice_.pick(kRunShares)] * dice_.between(0.7, 1.4), wishes);
  }

  /// Some rounds of a change and a short test of it.
  double try_things_out(double now, std::vector<Wish>& wishes) {
    const int rounds = dice_.whole(1, 5);
    for (int i = 0; i < rounds; ++i) {
      now += dice_.between(0.15, 0.8) * kHour;
      const double hours = dice_.triangular(0.02, 0.06, 0.3);
      if (dice_.chance(0.7 * keenness_)) wish(now, hours, wishes);
      now += hours * kHour;
    }
    return now + dice_.between(0.3, 2) * kHour;
  }

  const LabLife& lab_;
  Dice dice_;
  double arrives_h_;
  double leaves_h_;
  double weekend_;
  double keenness_;
  std::size_t favourite_;
  Stage stage_;
  int stage_ends_;
  int away_from_;
  int away_days_;
};

LabLife make_lab(Dice& dice, double days) {
  LabLife lab;
  lab.meeting_day = dice.whole(0, 4);
  lab.meeting_h = dice.whole(9, 16);
  lab.days = days;
  int deadline = dice.whole(5, 45);
  while (deadline < days + kPressureDays) {
    lab.deadlines.push_back(deadline);
    deadline += dice.whole(25, 70);
  }
  return lab;
}

/// The favourite machine, else one that is free, else the one that becomes free first.
void give_machines(std::vector<Wish> wishes, double until_s, OwnerUses& machines) {
  std::stable_sort(wishes.begin(), wishes.end(), [](const Wish& a, const Wish& b) {
    return a.at_s < b.at_s;
  });
  std::vector<double> free_at(machines.size(), 0);
  for (const Wish& wish : wishes) {
    if (wish.at_s >= until_s) break;
    std::size_t machine = wish.favourite;
    for (std::size_t i = 0; free_at[machine] > wish.at_s && i < machines.size(); ++i) {
      if (free_at[i] < free_at[machine]) machine = i;
    }
    const double from = std::max(wish.at_s, free_at[machine]);
    if (from - wish.at_s > kPatience_s || from >= until_s) continue;
    free_at[machine] = std::min(from + wish.length_s, until_s);
    auto& uses = machines[machine];
    if (!uses.empty() && uses.back().to_s >= from) {
      uses.back().to_s = free_at[machine];
    } else {
      uses.push_back({from, free_at[machine]});
    }
  }
}

}  // namespace

OwnerUses make_owner_uses(const Campus& campus, const PeopleOptions& options, std::uint64_t seed) {
  std::map<std::string, std::vector<std::size_t>> machines_of;
  for (std::size_t i = 0; i < campus.nodes.size(); ++i)
    machines_of[campus.nodes[i].lab].push_back(i);
  OwnerUses out(campus.nodes.size());
  std::uint64_t lab_number = 0;
  for (const auto& [name, machines] : machines_of) {
    Dice dice(seed, "lab", lab_number++);
    const LabLife lab = make_lab(dice, options.days);
    const auto people = static_cast<std::uint64_t>(
        std::max(2.0, std::ceil(options.people_per_node * static_cast<double>(machines.size())))
    );
    std::vector<Wish> wishes;
    for (std::uint64_t i = 0; i < people; ++i) {
      Person person(lab, machines.size(), Dice(seed, "person " + name, i));
      for (int day = 0; day < options.days; ++day) person.live(day, wishes);
    }
    OwnerUses uses(machines.size());
    give_machines(std::move(wishes), options.days * kDay, uses);
    for (std::size_t i = 0; i < machines.size(); ++i) out[machines[i]] = std::move(uses[i]);
  }
  return out;
}

}  // namespace rn::evaluate
