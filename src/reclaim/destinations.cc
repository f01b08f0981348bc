// SPDX-License-Identifier: Apache-2.0
#include "reclaim/destinations.h"

#include <algorithm>
#include <set>

#include "base/counted.h"

namespace rn::reclaim {

namespace {

bool is_allowed(const CopySource& source, const CopyCandidate& c) {
  if (source.destinations.empty()) return true;
  return std::any_of(
      source.destinations.begin(),
      source.destinations.end(),
      [&](const std::string& name) { return name == c.node.str() || name == c.lab.str(); }
  );
}

bool is_possible(const CopySource& source, const CopyCandidate& c) {
  return c.node != source.node && c.failure_domain != source.failure_domain && c.is_reachable &&
         c.room_bytes > 0 && c.room_bytes >= source.bytes && is_allowed(source, c);
}

double score_of(const CopySource& source, const CopyCandidate& c) {
  double score = c.survival;
  if (c.lab != source.lab) score += 0.5;
  if (c.is_storage) score += 0.2;
  if (c.has_parent) score += 0.3;
  if (c.has_data) score += 0.3;
  if (c.is_next && source.departs >= kDepartsSoon) score += 0.3 * source.departs;
  return score - 0.02 * c.copies_held - 0.2 * c.shares_switches;
}

void judge_quality(
    const CopySource& source,
    const std::vector<CopyCandidate>& candidates,
    std::size_t domains,
    CopyChoice& choice
) {
  if (domains == 0) {
    choice.quality = CopyQuality::kNone;
    choice.shortfall =
        "no node in another failure domain can take a copy: checkpoints stay on the "
        "machine that runs the job";
  } else if (domains < source.wanted) {
    choice.quality = CopyQuality::kFewerCopies;
    choice.shortfall = counted(domains, "copy place") + " instead of " +
                       std::to_string(source.wanted) + " in other failure domains";
  } else {
    const auto same_lab = std::count_if(
        choice.copies.begin(),
        choice.copies.begin() + static_cast<std::ptrdiff_t>(source.wanted),
        [&](const ChosenCopy& copy) { return candidates[copy.index].lab == source.lab; }
    );
    choice.quality = same_lab == 0 ? CopyQuality::kFull : CopyQuality::kSameLab;
    if (same_lab > 0) choice.shortfall = "a copy lies in the same lab as the job";
  }
}

}  // namespace

CopyChoice choose_copies(
    const CopySource& source, const std::vector<CopyCandidate>& candidates, std::size_t spares
) {
  std::vector<ChosenCopy> possible;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (is_possible(source, candidates[i]))
      possible.push_back({.index = i, .score = score_of(source, candidates[i])});
  }
  const auto is_better = [&](const ChosenCopy& a, const ChosenCopy& b) {
    const bool a_away = candidates[a.index].lab != source.lab;
    const bool b_away = candidates[b.index].lab != source.lab;
    if (a_away != b_away) return a_away;
    if (a.score != b.score) return a.score > b.score;
    return candidates[a.index].node < candidates[b.index].node;
  };
  std::sort(possible.begin(), possible.end(), is_better);

  CopyChoice choice;
  std::vector<ChosenCopy> later;
  std::set<std::string> domains;
  for (const ChosenCopy& copy : possible) {
    const bool is_new = domains.insert(candidates[copy.index].failure_domain).second;
    (is_new ? choice.copies : later).push_back(copy);
  }
  const std::size_t limit = source.wanted + spares;
  const std::size_t distinct = choice.copies.size();
  for (const ChosenCopy& copy : later) choice.copies.push_back(copy);
  if (choice.copies.size() > limit) choice.copies.resize(limit);
  judge_quality(source, candidates, distinct, choice);
  return choice;
}

}  // namespace rn::reclaim
