// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <string>

#include "agent/core_state.h"

// The links between members of gangs are the shell's (gang_links.h). The core says whose guests
// have them, and starts each with what it needs to know of the others.
namespace rn::agent {

namespace {

bool may_be_linked(Phase phase) {
  return phase == Phase::kStarting || phase == Phase::kRunning || phase == Phase::kNoticed;
}

}  // namespace

std::vector<LinkedGuest> Core::State::linked_guests() const {
  std::vector<LinkedGuest> out;
  for (const auto& [name, a] : attempts_) {
    const bool is_member = a.commit.gang && a.row.gang_go && !a.row.is_fenced;
    if (!is_member || !may_be_linked(a.row.phase)) continue;
    out.push_back({name, *a.commit.gang, a.row.disk, a.row.gang_go->members});
  }
  return out;
}

/// A crash of the guest that comes after it may be for that. While the journal waits no row is due:
/// the end's has it, too.
void Core::State::on(const LinkBroken& e) {
  const auto found = attempts_.find(e.guest);
  if (found == attempts_.end()) return;
  Attempt& a = found->second;
  if (!a.commit.gang || a.row.phase == Phase::kEnded) return;
  const bool is_first = a.row.links_broken++ == 0;
  if (is_first && !wait_) a.is_dirty = true;
}

/// The links of an earlier process of this agent broke with it, and their guests have lived on.
void Core::State::note_broken_before(Attempt& a) {
  if (!a.commit.gang || !a.row.gang_go || !has_guest(a.row.phase)) return;
  ++a.row.links_broken;
  a.is_dirty = true;
}

/// What this agent and its warden know, both of them; and what needs no warden.
void Core::State::offer_features() {
  facts_.features.clear();
  std::copy_if(
      own_features_.begin(),
      own_features_.end(),
      std::back_inserter(facts_.features),
      [this](const std::string& one) {
        const auto& wardens = warden_.features;
        return one == kKeepsSetsFeature ||
               std::find(wardens.begin(), wardens.end(), one) != wardens.end();
      }
  );
}

}  // namespace rn::agent
