// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/plan.h"

// How much a job will use, from jobs like it that are over. Pure.
namespace rn::sched {

/// By what jobs are alike.
struct JobKind {
  UserId user;
  std::string image;    ///< its digest
  std::string command;  ///< command_shape()
};

/// A job that is over, and how much of something it used: above 0, in any unit.
struct PastUse {
  JobKind kind;
  double used = 0;
};

struct Estimate {
  bool is_known = false;  ///< else only `jobs` says something: how many there are, too few
  Likeness likeness = Likeness::kSite;
  std::uint32_t jobs = 0;  ///< that it stands on
  double low = 0;
  double typical = 0;
  double high = 0;
};

/// The words of a command that two runs of one script have in common: numbers are '#', of paths the
/// last name counts, of a long word its end. The words of a shell's line count like others.
std::string command_shape(const std::vector<std::string>& command);

/// So many jobs of the past an interval needs that covers `share` (0 < share < 1): 19 for 0.9.
std::uint32_t jobs_needed(double share);

/// An interval that covers what a job of this kind uses with probability `share`, half of the rest
/// on each side, as far as it is like the jobs of the past. It stands on the nearest of these that
/// are jobs_needed(): of the same user, image and command; of this user and image; of this image;
/// all. In logarithms, centred on each kind's own mean, which is drawn towards the means of the
/// wider kinds as if these counted for three jobs; how far off that was, each job of the past says
/// that it is centred without. Source: the jackknife+ of Barber et al., Annals of Statistics 2021,
/// with signed residuals.
Estimate estimate(const JobKind& wanted, const std::vector<PastUse>& past, double share);

}  // namespace rn::sched
