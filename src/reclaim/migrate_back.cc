// SPDX-License-Identifier: Apache-2.0
#include "reclaim/migrate_back.h"

#include <cstdio>

namespace rn::reclaim {

namespace {

std::string sentence(const MigrateBackDecision& d, const MigrateBackInput& input, const char* why) {
  char text[256];
  std::snprintf(
      text,
      sizeof text,
      "%s: gains %.0f s over %.1f h for %.0f s (speed %.2f against %.2f, value %.2f against %.2f)",
      why,
      d.gain_s,
      d.horizon_s / 3600,
      d.cost_s,
      input.speed_home,
      input.speed_here,
      d.value_home,
      d.value_here
  );
  return text;
}

}  // namespace

double horizon_of(double remaining_s, const MigrateBackPolicy& policy) {
  return remaining_s > 0 ? remaining_s : policy.horizon_s;
}

MigrateBackDecision decide_migrate_back(
    const MigrateBackInput& input, const MigrateBackPolicy& policy
) {
  MigrateBackDecision d;
  d.horizon_s = horizon_of(input.remaining_s, policy);
  d.value_home = input.speed_home * input.presence_home;
  d.value_here = input.speed_here * input.presence_here;
  d.gain_s = (d.value_home - d.value_here) * d.horizon_s;
  const double rate = input.bytes_per_s > 0 ? input.bytes_per_s : policy.default_bytes_per_s;
  d.cost_s = (input.bytes_missing / rate + input.restore_s) * input.speed_here + input.unsaved_s;
  const char* why = "goes home";
  if (d.value_home <= (1 + policy.hysteresis) * d.value_here) {
    why = "stays: home is not clearly better";
  } else if (d.gain_s <= policy.gain_over_cost * d.cost_s) {
    why = "stays: going home does not pay";
  } else if (input.residence_s < policy.min_residence_s) {
    why = "stays: it has just come";
  } else if (input.home_open_s < policy.home_settle_s) {
    why = "stays: home is only just back";
  } else {
    d.moves = true;
  }
  d.sentence = sentence(d, input, why);
  return d;
}

}  // namespace rn::reclaim
