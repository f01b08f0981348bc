// SPDX-License-Identifier: Apache-2.0
#include "evaluate/interruptions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "evaluate/dice.h"

namespace rn::evaluate {

namespace {

constexpr double kLeastSpell_s = 1;

std::vector<DeclaredNotices> all_notices() {
  return {
      {.name = "emergency-heavy", .announced = 0.2, .announced_max_s = 300, .noticed = 0.3},
      {.name = "mixed", .announced = 0.6, .noticed = 0.3},
      {.name = "generous",
       .announced = 0.7,
       .announced_min_s = 600,
       .announced_max_s = 1800,
       .noticed = 0.28,
       .notice_min_s = 120,
       .notice_max_s = 300},
  };
}

/// Uses that leave too little between them to lend are one.
std::vector<OwnerUse> joined(const std::vector<OwnerUse>& uses, double idle_s) {
  std::vector<OwnerUse> out;
  for (const OwnerUse& use : uses) {
    if (!out.empty() && use.from_s < out.back().to_s + idle_s + kLeastSpell_s) {
      out.back().to_s = std::max(out.back().to_s, use.to_s);
    } else {
      out.push_back(use);
    }
  }
  return out;
}

/// Seconds since the first midnight of the trace.
double since_midnight_s(const LabTrace& lab, std::int64_t at_ms) {
  const std::int64_t midnight = lab.begins_ms - lab.begins_ms % kDayMs;
  return static_cast<double>(at_ms - midnight) / 1000;
}

/// The uses of one recorded node: what lies between its lent spells, without the idle time that
/// ends each.
std::vector<OwnerUse> recorded_uses(const LabTrace& lab, std::size_t node) {
  std::vector<OwnerUse> uses;
  double busy_from = 0;
  for (const LentSpell& spell : lab.spells) {
    if (spell.node != node) continue;
    const double free_from = since_midnight_s(lab, spell.from_ms) - kLentAfterIdle_s;
    if (free_from > busy_from) uses.push_back({busy_from, free_from});
    busy_from = since_midnight_s(lab, spell.to_ms);
  }
  const double ends = since_midnight_s(lab, lab.ends_ms);
  if (ends > busy_from) uses.push_back({busy_from, ends});
  return uses;
}

}  // namespace

Result<DeclaredNotices> find_notices(std::string_view name) {
  std::string known;
  for (const DeclaredNotices& notices : all_notices()) {
    if (notices.name == name) return notices;
    known += (known.empty() ? "" : ", ") + notices.name;
  }
  return fail(
      ErrorCode::kInvalid, "no mix of notices is called " + std::string(name), "known: " + known
  );
}

std::vector<Interruption> interruptions_of(
    const OwnerUses& uses, const DeclaredNotices& notices, std::uint64_t seed, double idle_s
) {
  std::vector<Interruption> out;
  for (std::size_t node = 0; node < uses.size(); ++node) {
    Dice dice(seed, "notice", node);
    double lent_from = 0;
    for (const OwnerUse& use : joined(uses[node], idle_s)) {
      const double kind = dice.between(0, 1);
      const double length = dice.between(0, 1);
      Interruption one{.node = node, .deadline_s = use.from_s, .returns_s = use.to_s + idle_s};
      double notice_s = 0;
      if (kind < notices.announced) {
        one.kind = ReclaimKind::kAnnounced;
        notice_s =
            notices.announced_min_s + length * (notices.announced_max_s - notices.announced_min_s);
      } else if (kind < notices.announced + notices.noticed) {
        one.kind = ReclaimKind::kNotice;
        notice_s = notices.notice_min_s + length * (notices.notice_max_s - notices.notice_min_s);
      } else {
        one.kind = ReclaimKind::kEmergency;
      }
      one.declared_s = std::max({use.from_s - std::floor(notice_s), lent_from, 0.0});
      lent_from = one.returns_s;
      out.push_back(one);
    }
  }
  return out;
}

std::vector<Interruption> gpunion_interruptions(
    std::size_t nodes, double days, std::uint64_t seed
) {
  constexpr double kScheduledNotice_s = 600;
  std::vector<Interruption> out;
  for (std::size_t node = 0; node < nodes; ++node) {
    Dice dice(seed, "gpunion", node);
    const double a_day = dice.between(0.5, 3.2);
    double owed = dice.between(0, 1);
    double lent_from = 0;
    for (int day = 0; day < days; ++day) {
      owed += a_day;
      std::vector<double> times;
      for (; owed >= 1; --owed) times.push_back(day * kDay + dice.triangular(0, 14, 24) * kHour);
      std::sort(times.begin(), times.end());
      for (const double at : times) {
        const int kind = dice.whole(0, 2);
        const double away = dice.between(0, 1);
        if (at < lent_from + kLeastSpell_s) continue;  // it is away still
        Interruption one{.node = node, .declared_s = at, .deadline_s = at};
        if (kind == 0) {
          one.kind = ReclaimKind::kAnnounced;
          one.declared_s = std::max({at - kScheduledNotice_s, lent_from, 0.0});
          one.returns_s = at + (1 + 5 * away) * kHour;
        } else if (kind == 1) {
          one.kind = ReclaimKind::kEmergency;
          one.returns_s = at + (0.5 + 3.5 * away) * kHour;
        } else {
          one.kind = ReclaimKind::kLost;
          one.returns_s = at + (3 + 27 * away) * 60;
        }
        lent_from = one.returns_s;
        out.push_back(one);
      }
    }
  }
  return out;
}

Result<OwnerUses> uses_of(
    const std::vector<LabTrace>& labs, std::size_t nodes, double days, std::uint64_t seed
) {
  struct Recorded {
    std::size_t lab;
    std::size_t node;
  };

  std::vector<Recorded> all;
  for (std::size_t lab = 0; lab < labs.size(); ++lab) {
    for (std::size_t node = 0; node < labs[lab].nodes; ++node) all.push_back({lab, node});
  }
  if (all.empty()) return fail(ErrorCode::kInvalid, "the traces have no nodes");
  Dice dice(seed, "traces");
  for (std::size_t i = all.size(); i > 1; --i)
    std::swap(all[i - 1], all[static_cast<std::size_t>(dice.whole(0, static_cast<int>(i) - 1))]);
  OwnerUses out(nodes);
  for (std::size_t n = 0; n < nodes; ++n) {
    const Recorded& recorded = all[n % all.size()];
    const LabTrace& lab = labs[recorded.lab];
    // Whole weeks, where there is one: what depends on the day of the week keeps doing so.
    const double recorded_days = std::ceil(since_midnight_s(lab, lab.ends_ms) / kDay);
    const double period = recorded_days >= 7 ? std::floor(recorded_days / 7) * 7 : recorded_days;
    const std::vector<OwnerUse> uses = recorded_uses(lab, recorded.node);
    for (double begin = 0; begin < days * kDay; begin += period * kDay) {
      for (const OwnerUse& use : uses) {
        const double from = begin + use.from_s;
        const double to = std::min({begin + use.to_s, begin + period * kDay, days * kDay});
        if (from >= to) continue;
        if (!out[n].empty() && out[n].back().to_s >= from) {
          out[n].back().to_s = to;
        } else {
          out[n].push_back({from, to});
        }
      }
    }
  }
  return out;
}

std::vector<Interruption> interruptions_of(const SpotTrace& trace, std::size_t nodes) {
  std::vector<Interruption> out;
  std::vector<double> gone_at(nodes, 0);
  const double end = static_cast<double>(trace.ends_ms) / 1000 + kLeastSpell_s;
  const auto away = [&](std::size_t node, double until) {
    const double from = gone_at[node];
    if (until <= 0) return;  // there from the beginning on
    out.push_back({node, ReclaimKind::kEmergency, from, from, std::max(until, from + 1e-3)});
  };
  for (const SpotSpell& spell : trace.spells) {
    const double from = static_cast<double>(spell.from_ms) / 1000;
    const auto slot =
        std::find_if(gone_at.begin(), gone_at.end(), [&](double at) { return at <= from; });
    if (slot == gone_at.end()) continue;
    away(static_cast<std::size_t>(slot - gone_at.begin()), from);
    *slot = spell.is_removed ? static_cast<double>(spell.to_ms) / 1000 : 2 * end;
  }
  for (std::size_t node = 0; node < nodes; ++node) {
    if (gone_at[node] < end) away(node, end);
  }
  return out;
}

std::vector<Interruption> by_time(std::vector<Interruption> interruptions) {
  std::stable_sort(interruptions.begin(), interruptions.end(), [](const auto& a, const auto& b) {
    return std::tie(a.declared_s, a.node) < std::tie(b.declared_s, b.node);
  });
  return interruptions;
}

}  // namespace rn::evaluate
