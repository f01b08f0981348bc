// SPDX-License-Identifier: Apache-2.0
#include "evaluate/policies.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/core.h>

#include "evaluate/check_freq.h"
#include "evaluate/condor.h"
#include "evaluate/oracle.h"
#include "evaluate/production.h"
#include "evaluate/redundancy.h"
#include "evaluate/slurm.h"
#include "evaluate/young_daly.h"

namespace rn::evaluate {

namespace {

using Made = std::unique_ptr<Policy>;

// ---- the product, and what it is without something

using Product = Production::Options;

struct Variant {
  std::string_view name;
  void (*change)(Product&);
};

constexpr std::array<Variant, 14> kVariants = {{
    {"reclaimnet", [](Product&) {}},
    {"reclaimnet-daemons", [](Product& o) { o.cadence = Cadence::daemons(); }},
    {"reclaimnet-stays", [](Product& o) { o.migrates_back = false; }},
    {"reclaimnet-no-ahead", [](Product& o) { o.copies_ahead = false; }},
    {"reclaimnet-flat", [](Product& o) { o.knows_topology = false; }},
    {"reclaimnet-constant-hazard", [](Product& o) { o.study.is_hazard_constant = true; }},
    {"reclaimnet-no-joint", [](Product& o) { o.plans_saves_together = false; }},
    {"reclaimnet-one-by-one", [](Product& o) { o.study.chooses_alone = true; }},
    {"reclaimnet-no-groups", [](Product& o) { o.study.ignores_groups = true; }},
    {"reclaimnet-fair-share", [](Product& o) { o.study.rates = reclaim::RateRule::kFairShare; }},
    {"reclaimnet-strict-priority",
     [](Product& o) { o.study.rates = reclaim::RateRule::kStrictPriority; }},
    {"reclaimnet-random",
     [](Product& o) { o.study.destinations = reclaim::DestinationRule::kRandom; }},
    {"reclaimnet-most-free",
     [](Product& o) { o.study.destinations = reclaim::DestinationRule::kMostFree; }},
    {"reclaimnet-nearest",
     [](Product& o) { o.study.destinations = reclaim::DestinationRule::kNearest; }},
}};

// ---- others

struct Baseline {
  std::string_view name;
  Made (*make)();
};

constexpr std::array<Baseline, 8> kBaselines = {{
    {"slurm-s0", []() -> Made { return std::make_unique<Slurm>(Slurm::Options{}); }},
    {"slurm-term",
     []() -> Made {
       return std::make_unique<Slurm>(Slurm::Options{
           .interval_s = std::nullopt, .catches_sigterm = true});
     }},
    {"young-daly", []() -> Made { return std::make_unique<YoungDaly>(); }},
    {"condor-vacate", []() -> Made { return std::make_unique<Condor>(); }},
    {"checkfreq", []() -> Made { return std::make_unique<CheckFreq>(); }},
    {"bamboo", []() -> Made { return std::make_unique<Redundancy>(Redundancy::Options{}); }},
    {"bamboo-one-lab",
     []() -> Made {
       return std::make_unique<Redundancy>(Redundancy::Options{
           .is_spread = false, .name = "bamboo-one-lab"});
     }},
    {"warm-shadow",
     []() -> Made {
       return std::make_unique<Redundancy>(Redundancy::Options{
           .has_pipelines = false, .name = "warm-shadow"});
     }},
}};

struct Family {
  std::string_view name;
  Made (*make)(double interval_s);
};

std::string named(std::string_view family, double interval_s) {
  return fmt::format("{}-{:.0f}s", family, interval_s);
}

constexpr std::array<Family, 6> kFamilies = {{
    {"slurm-s1",
     [](double s) -> Made { return std::make_unique<Slurm>(Slurm::Options{.interval_s = s}); }},
    {"slurm-s2",
     [](double s) -> Made {
       return std::make_unique<Slurm>(Slurm::Options{.interval_s = s, .catches_sigterm = true});
     }},
    {"condor-vacate", [](double s) -> Made { return std::make_unique<Condor>(s); }},
    {"bamboo",
     [](double s) -> Made {
       return std::make_unique<Redundancy>(Redundancy::Options{
           .interval_s = s, .name = named("bamboo", s)});
     }},
    {"bamboo-one-lab",
     [](double s) -> Made {
       return std::make_unique<Redundancy>(Redundancy::Options{
           .is_spread = false, .interval_s = s, .name = named("bamboo-one-lab", s)});
     }},
    {"warm-shadow",
     [](double s) -> Made {
       return std::make_unique<Redundancy>(Redundancy::Options{
           .has_pipelines = false, .interval_s = s, .name = named("warm-shadow", s)});
     }},
}};

/// Of "FAMILY-SECONDS".
std::optional<double> interval_of(std::string_view name, std::string_view family) {
  if (!name.starts_with(family)) return std::nullopt;
  name.remove_prefix(family.size());
  if (!name.starts_with('-')) return std::nullopt;
  name.remove_prefix(1);
  double seconds = 0;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), seconds);
  const bool is_all = read.ec == std::errc() && read.ptr == name.data() + name.size();
  if (!is_all || !(seconds >= 10) || seconds > 1e6) return std::nullopt;
  return seconds;
}

}  // namespace

Result<std::unique_ptr<Policy>> make_policy(
    std::string_view name, std::uint64_t seed, const Setting& setting
) {
  for (const Variant& variant : kVariants) {
    if (variant.name != name) continue;
    Product options{.seed = seed, .name = std::string(name)};
    variant.change(options);
    return Made(std::make_unique<Production>(std::move(options)));
  }
  for (const Baseline& baseline : kBaselines) {
    if (baseline.name == name) return baseline.make();
  }
  if (name == "oracle") return Made(std::make_unique<Oracle>(setting.interruptions));
  for (const Family& family : kFamilies) {
    if (const auto seconds = interval_of(name, family.name)) return family.make(*seconds);
  }
  return fail(
      ErrorCode::kInvalid, "no policy is called " + std::string(name), "known: " + known_policies()
  );
}

std::string known_policies() {
  std::string names;
  const auto add = [&](std::string_view name, std::string_view end = "") {
    names += (names.empty() ? "" : ", ") + std::string(name) + std::string(end);
  };
  for (const Variant& variant : kVariants) add(variant.name);
  for (const Baseline& baseline : kBaselines) add(baseline.name);
  add("oracle");
  for (const Family& family : kFamilies) add(family.name, "-SECONDS");
  return names;
}

std::optional<double> interval_in_name(std::string_view name) {
  for (const Family& family : kFamilies) {
    if (const auto seconds = interval_of(name, family.name)) return seconds;
  }
  return std::nullopt;
}

bool is_family(std::string_view name) {
  return std::any_of(kFamilies.begin(), kFamilies.end(), [&](const Family& family) {
    return family.name == name;
  });
}

}  // namespace rn::evaluate
