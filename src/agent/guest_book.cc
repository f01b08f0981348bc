// SPDX-License-Identifier: Apache-2.0
#include "agent/guest_book.h"

#include "base/log.h"

namespace rn::agent {

namespace {

constexpr int kRestlessQuiets = 40;  // two minutes of the usual three seconds

}  // namespace

std::shared_ptr<GuestEntry> GuestBook::entry(const GuestName& name) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<GuestEntry>& entry = entries_[name];
  if (entry == nullptr) entry = std::make_shared<GuestEntry>();
  return entry;
}

std::string GuestBook::folder(const GuestName& name) const {
  return join_path(folder_, name.job.str() + "-" + to_string(name.epoch));
}

void GuestBook::forget(const GuestName& name) {
  {
    const std::lock_guard lock(mutex_);
    entries_.erase(name);
  }
  const Status removed = remove_tree(fs_, folder(name));
  if (!removed) log::warning("guest.forget_failed", {{"error", removed.error().describe()}});
}

std::vector<std::string> temporary_globs(const CheckpointSpec& spec) {
  std::vector<std::string> globs = spec.temporary;
  if (!spec.tell_file.empty())
    globs.push_back("/" + spec.tell_file);  // this one, in no folder else
  return globs;
}

checkpoint::WatchRules watch_rules(const CheckpointSpec& spec) {
  checkpoint::WatchRules rules;
  rules.paths = spec.paths;
  rules.temporary = temporary_globs(spec);
  rules.complete_marker = spec.complete_marker;
  rules.quiet = milliseconds(spec.quiet_ms);
  rules.restless = rules.quiet * kRestlessQuiets;
  return rules;
}

}  // namespace rn::agent
