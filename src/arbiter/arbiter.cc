// SPDX-License-Identifier: Apache-2.0
#include "arbiter/arbiter.h"

#include <algorithm>
#include <cstdio>

#include "arbiter/calendar.h"
#include "base/planted.h"
#include "model/data_sets.h"

namespace rn::arbiter {

namespace {

template <class T>
bool contains(const std::vector<T>& list, const T& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool overlap(const std::vector<std::uint32_t>& list, std::uint32_t item) {
  return contains(list, item);
}

std::string text(std::uint64_t value) {
  return std::to_string(value);
}

std::optional<std::pair<int, int>> parse_capability(const std::string& capability) {
  int major = 0;
  int minor = 0;
  char rest = 0;
  const int read = std::sscanf(capability.c_str(), "%4d.%4d%c", &major, &minor, &rest);
  if (read != 2 || major < 0 || minor < 0) return std::nullopt;
  return std::pair(major, minor);
}

}  // namespace

bool is_capable(const std::string& capability, const std::string& minimum) {
  if (minimum.empty()) return true;
  const auto has = parse_capability(capability);
  const auto needs = parse_capability(minimum);
  return has && needs && *has >= *needs;
}

std::uint32_t Arbiter::cpu_cap() const {
  return lent_cpu_milli(contract_, facts_);
}

std::uint32_t Arbiter::cpu_cap_of_one() const {
  if (contract_.guest_cpu_each_milli == 0) return cpu_cap();
  return std::min(contract_.guest_cpu_each_milli, cpu_cap());
}

std::uint64_t Arbiter::memory_cap() const {
  return lent_memory_mib(contract_, facts_);
}

LendingState Arbiter::lending(Now now) const {
  if (conditions_.is_draining) return LendingState::kDraining;
  if (!contract_.lends) return LendingState::kNotLending;
  if (conditions_.is_reclaimed) return LendingState::kReclaimed;
  if (conditions_.is_paused) return LendingState::kPaused;
  if (!is_inside_windows(contract_, local_time(now.wall, conditions_.utc_offset_s)))
    return LendingState::kOutsideWindow;
  if (conditions_.is_owner_present) return LendingState::kOwnerPresent;
  if (!conditions_.taken_because.empty()) return LendingState::kReclaimed;
  if (now.boot < conditions_.closed_until) return LendingState::kReclaimed;
  if (!conditions_.is_able) return LendingState::kNotLending;
  return LendingState::kOpen;
}

std::string Arbiter::why(Now now) const {
  switch (lending(now)) {
    case LendingState::kOpen:
      return "the node lends";
    case LendingState::kDraining:
      return "the node is leaving";
    case LendingState::kNotLending:
      if (!contract_.lends) return "the contract does not lend (lends: false)";
      return conditions_.unable_because;
    case LendingState::kPaused:
      return "the owner paused lending";
    case LendingState::kOwnerPresent:
      return "the owner is at the machine (idle rule: " + text(contract_.idle.idle_minutes) +
             " minutes without input)";
    case LendingState::kReclaimed:
      if (conditions_.is_taken_later) return std::string(kTakenLater);
      if (conditions_.is_reclaimed) return "the owner has taken the node back";
      if (!conditions_.taken_because.empty())
        return "the node is taken back by its contract: " + conditions_.taken_because;
      return "the node must be free for " + text(contract_.min_free_s) +
             " s after a reclaim before it lends again";
    case LendingState::kOutsideWindow: {
      const auto ahead = time_to_change(contract_, now.wall, conditions_.utc_offset_s);
      std::string out = "outside the contract's lending windows";
      if (ahead)
        out += "; the next one opens " +
               describe(local_time(now.wall + *ahead, conditions_.utc_offset_s)) + " (" +
               contract_.time_zone + ")";
      return out;
    }
  }
  return {};
}

/// What no waiting can change, as long as contract and machine stay as they are.
Refusal Arbiter::never(const wire::Probe& probe) const {
  const Resources& wanted = probe.resources;
  const auto no = [](std::string reason) { return Refusal{std::move(reason), true}; };
  if (!contract_.allow_users.empty() && !contains(contract_.allow_users, probe.user.str()))
    return no("the contract does not allow user " + probe.user.str());
  if (!contract_.allow_labs.empty() && probe.lab != own_lab_ &&
      !contains(contract_.allow_labs, probe.lab.str()))
    return no("the contract does not allow lab " + probe.lab.str());
  if (!contract_.allow_images.empty() && !contains(contract_.allow_images, probe.image_digest))
    return no("the contract does not allow image " + probe.image_digest);
  if (!probe.gang.empty() && !contract_.gangs)
    return no("the contract does not allow members of gangs");
  if (const std::string missing = missing_data_set(probe.data, facts_.data_sets); !missing.empty())
    return no("the node offers no data set " + missing);
  if (wanted.cpu_milli_min > cpu_cap_of_one())
    return no(
        "needs at least " + text(wanted.cpu_milli_min) + " milli-CPU, the contract lends " +
        text(cpu_cap_of_one())
    );
  if (wanted.memory_mib > memory_cap())
    return no(
        "needs " + text(wanted.memory_mib) + " MiB of memory, the contract lends " +
        text(memory_cap())
    );
  if (wanted.disk_mib > contract_.guest_disk_mib)
    return no(
        "needs " + text(wanted.disk_mib) + " MiB of disk, the contract lends " +
        text(contract_.guest_disk_mib)
    );
  const auto fitting = std::count_if(facts_.gpus.begin(), facts_.gpus.end(), [&](const Gpu& gpu) {
    return is_gpu_lent(contract_, gpu.index) && gpu.memory_mib >= wanted.gpu_memory_mib &&
           is_capable(gpu.compute_capability, wanted.compute_capability_min);
  });
  if (wanted.gpus > static_cast<std::uint64_t>(fitting))
    return no(
        "needs " + text(wanted.gpus) + " GPUs of " + text(wanted.gpu_memory_mib) +
        " MiB, the node lends " + text(static_cast<std::uint64_t>(fitting)) + " such"
    );
  return {};
}

/// Null: it has no windows of its own.
const GpuWindow* Arbiter::window_of(std::uint32_t gpu) const {
  for (const GpuWindow& window : conditions_.gpu_windows) {
    if (window.gpu == gpu) return &window;
  }
  return nullptr;
}

/// Who gets a GPU that closes last is displaced last.
std::vector<const Gpu*> Arbiter::last_to_close_first() const {
  std::vector<const Gpu*> out;
  out.reserve(facts_.gpus.size());
  for (const Gpu& gpu : facts_.gpus) out.push_back(&gpu);
  const auto left_s = [this](const Gpu& gpu) {
    const GpuWindow* const window = window_of(gpu.index);
    return window == nullptr || window->closes_in_s == 0 ? UINT32_MAX : window->closes_in_s;
  };
  std::stable_sort(out.begin(), out.end(), [&](const Gpu* a, const Gpu* b) {
    return left_s(*a) > left_s(*b);
  });
  return out;
}

bool Arbiter::is_gpu_usable(const Gpu& gpu) const {
  if (!is_gpu_lent(contract_, gpu.index)) return false;
  const GpuWindow* const window = window_of(gpu.index);
  if (window != nullptr && !window->closed_because.empty()) return false;
  if (contains(conditions_.reclaimed_gpus, gpu.index)) return false;
  if (contains(conditions_.paused_gpus, gpu.index)) return false;
  return std::none_of(
      conditions_.gpus.begin(),
      conditions_.gpus.end(),
      [&](const GpuTelemetry& seen) {
        return seen.index == gpu.index &&
               (seen.is_wedged || !seen.sickness.empty() || is_owners_own(contract_, seen));
      }
  );
}

std::string Arbiter::why_gpus(const Resources& wanted, std::size_t free) const {
  std::string out = "needs " + text(wanted.gpus) + " GPUs, " + text(free) + " free";
  for (const std::uint32_t gpu : conditions_.paused_gpus)
    out += "; GPU " + text(gpu) + " is paused by the owner";
  for (const GpuWindow& window : conditions_.gpu_windows) {
    if (!window.closed_because.empty())
      out += "; GPU " + text(window.gpu) + " is " + window.closed_because;
  }
  for (const GpuTelemetry& seen : conditions_.gpus) {
    if (seen.is_wedged) out += "; GPU " + text(seen.index) + " is wedged";
    if (!seen.sickness.empty()) out += "; GPU " + text(seen.index) + " is sick: " + seen.sickness;
    if (is_owners_own(contract_, seen))
      out += "; GPU " + text(seen.index) + " is used by " + text(seen.foreign_processes) +
             " foreign processes";
  }
  return out;
}

Arbiter::Fit Arbiter::fit(const wire::Probe& probe, const std::map<JobId, Hold>& holds) const {
  const Resources& wanted = probe.resources;
  Grant used;
  std::size_t guests = 0;
  const auto add = [&](const Grant& grant) {
    used.cpu_milli += grant.cpu_milli;
    used.memory_mib += grant.memory_mib;
    used.disk_mib += grant.disk_mib;
    used.gpus.insert(used.gpus.end(), grant.gpus.begin(), grant.gpus.end());
    ++guests;
  };
  for (const auto& [job, lease] : leases_) add(lease.grant);
  for (const auto& [job, hold] : holds) {
    if (job != probe.job) add(hold.grant);
  }
  const auto no = [](std::string reason) { return Fit{false, {}, std::move(reason)}; };
  if (guests >= contract_.max_guests)
    return no("all " + text(contract_.max_guests) + " guest places are taken");
  const std::uint32_t cpu_free = cpu_cap() - std::min(cpu_cap(), used.cpu_milli);
  if (cpu_free == 0 || cpu_free < wanted.cpu_milli_min)
    return no(
        "needs at least " + text(wanted.cpu_milli_min) + " milli-CPU, " + text(cpu_free) + " free"
    );
  if (used.memory_mib + wanted.memory_mib > memory_cap())
    return no(
        "needs " + text(wanted.memory_mib) + " MiB of memory, " +
        text(memory_cap() - std::min(memory_cap(), used.memory_mib)) + " free"
    );
  // Images are sparse: what leases were granted may not be used yet, so all of it counts as used.
  if (conditions_.disk_free_mib < used.disk_mib + wanted.disk_mib + contract_.reserve_disk_mib)
    return no(
        "needs " + text(wanted.disk_mib) + " MiB of disk, the node has " +
        text(conditions_.disk_free_mib) + " MiB free, of which " + text(used.disk_mib) +
        " are granted and " + text(contract_.reserve_disk_mib) + " reserved"
    );
  Fit out{true, {}, {}};
  for (const Gpu* const gpu : last_to_close_first()) {
    if (out.grant.gpus.size() == wanted.gpus) break;
    if (gpu->memory_mib < wanted.gpu_memory_mib || overlap(used.gpus, gpu->index)) continue;
    if (!is_capable(gpu->compute_capability, wanted.compute_capability_min)) continue;
    if (is_gpu_usable(*gpu)) out.grant.gpus.push_back(gpu->index);
  }
  std::sort(out.grant.gpus.begin(), out.grant.gpus.end());
  if (out.grant.gpus.size() < wanted.gpus) return no(why_gpus(wanted, out.grant.gpus.size()));
  out.grant.cpu_milli = planted("arbiter.grants_what_is_asked")
                            ? wanted.cpu_milli
                            : std::min({wanted.cpu_milli, cpu_free, cpu_cap_of_one()});
  out.grant.memory_mib = wanted.memory_mib;
  out.grant.disk_mib = wanted.disk_mib;
  return out;
}

bool Arbiter::is_weaker(const Hold& hold, const wire::Probe& probe) const {
  const bool is_own = contract_.own_lab_first && probe.lab == own_lab_;
  if (is_own != hold.is_own_lab) return is_own;
  return hold.priority > probe.priority;  // 0 is the highest
}

std::vector<JobId> Arbiter::weaker_holds(const wire::Probe& probe) const {
  std::vector<std::pair<std::pair<bool, std::uint32_t>, JobId>> weaker;
  for (const auto& [job, hold] : holds_) {
    if (job != probe.job && is_weaker(hold, probe))
      weaker.push_back({{!hold.is_own_lab, hold.priority}, job});
  }
  std::sort(weaker.begin(), weaker.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<JobId> out;
  out.reserve(weaker.size());
  for (const auto& entry : weaker) out.push_back(entry.second);
  return out;
}

ProbeAnswer Arbiter::probe(const wire::Probe& probe, Now now) {
  expire(now);
  ProbeAnswer answer;
  answer.refusal = never(probe);
  if (answer.refusal.is_permanent) return answer;
  if (lending(now) != LendingState::kOpen) {
    answer.refusal.reason = why(now);
    return answer;
  }
  if (leases_.contains(probe.job)) {
    answer.refusal.reason = "an earlier attempt of this job is still here";
    return answer;
  }
  std::map<JobId, Hold> rest = holds_;
  Fit fitting = fit(probe, rest);
  for (const JobId& weaker : weaker_holds(probe)) {
    if (fitting.fits) break;
    rest.erase(weaker);
    fitting = fit(probe, rest);
  }
  if (!fitting.fits) {
    answer.refusal.reason = fitting.reason;
    return answer;
  }
  const auto old = rest.find(probe.job);
  if (old == rest.end() && rest.size() >= kHoldsMax) {
    answer.refusal.reason = "the node has answered too many probes at once";
    return answer;
  }
  Hold hold = old != rest.end() ? old->second : Hold{HoldId("h-" + rng_.hex(8)), {}, {}, 0, false};
  answer.ttl = std::clamp(milliseconds(probe.hold_ms), kHoldMin, kHoldMax);
  hold.expiry = now.boot + answer.ttl;
  hold.priority = probe.priority;
  hold.is_own_lab = contract_.own_lab_first && probe.lab == own_lab_;
  if (old == rest.end() || old->second.grant.gpus.size() != probe.resources.gpus)
    hold.grant = fitting.grant;
  answer.hold = hold.id;
  answer.grant = hold.grant;
  rest[probe.job] = std::move(hold);
  holds_ = std::move(rest);
  return answer;
}

void Arbiter::cancel(const HoldId& hold) {
  std::erase_if(holds_, [&](const auto& entry) { return entry.second.id == hold; });
}

CommitAnswer Arbiter::commit(const wire::Commit& commit, Now now) {
  expire(now);
  CommitAnswer answer;
  const auto lease = leases_.find(commit.job);
  if (lease != leases_.end() && lease->second.epoch == commit.epoch) {
    answer.is_granted = true;
    answer.is_repeated = true;
    answer.grant = lease->second.grant;
    return answer;
  }
  const LeaseEpoch highest = highest_epoch(commit.job);
  if (commit.epoch.is_none() || commit.epoch <= highest) {
    answer.reason =
        "epoch " + to_string(commit.epoch) + " is stale: the node has seen " + to_string(highest);
    return answer;
  }
  if (lease != leases_.end()) {
    answer.reason = "attempt " + to_string(lease->second.epoch) + " of this job is still here";
    return answer;
  }
  const auto hold = holds_.find(commit.job);
  if (hold == holds_.end() || hold->second.id != commit.hold) {
    answer.reason = "the hold has expired";
    return answer;
  }
  if (lending(now) != LendingState::kOpen) {
    answer.reason = why(now);
    return answer;
  }
  const std::string missing = missing_data_set(commit.spec.data, facts_.data_sets);
  if (!missing.empty()) {
    answer.reason = "the node no longer offers data set " + missing;
    return answer;
  }
  for (const std::uint32_t gpu : hold->second.grant.gpus) {
    const GpuWindow* const window = window_of(gpu);
    if (window != nullptr && !window->closed_because.empty()) {
      answer.reason = "GPU " + text(gpu) + " is " + window->closed_because;
      return answer;
    }
    const bool is_taken = contains(conditions_.reclaimed_gpus, gpu);
    if (!is_taken && !contains(conditions_.paused_gpus, gpu)) continue;
    answer.reason =
        "GPU " + text(gpu) + (is_taken ? " was taken back" : " was paused") + " meanwhile";
    return answer;
  }
  answer.is_granted = true;
  answer.grant = hold->second.grant;
  holds_.erase(hold);
  leases_[commit.job] = Lease{commit.epoch, answer.grant, now.boot + milliseconds(commit.lease_ms)};
  note_epoch(commit.job, commit.epoch);
  return answer;
}

bool Arbiter::renew(const JobId& job, LeaseEpoch epoch, Instant expiry) {
  const auto lease = leases_.find(job);
  if (lease == leases_.end() || lease->second.epoch != epoch) return false;
  lease->second.expiry = std::max(lease->second.expiry, expiry);
  return true;
}

void Arbiter::release(const JobId& job, LeaseEpoch epoch) {
  const auto lease = leases_.find(job);
  if (lease != leases_.end() && lease->second.epoch == epoch) leases_.erase(lease);
}

void Arbiter::restore_lease(const JobId& job, Lease lease) {
  note_epoch(job, lease.epoch);
  leases_[job] = std::move(lease);
}

void Arbiter::note_epoch(const JobId& job, LeaseEpoch epoch) {
  LeaseEpoch& highest = highest_[job];
  highest = std::max(highest, epoch);
}

LeaseEpoch Arbiter::highest_epoch(const JobId& job) const {
  const auto found = highest_.find(job);
  return found == highest_.end() ? LeaseEpoch{} : found->second;
}

std::size_t Arbiter::holds(Now now) const {
  return static_cast<std::size_t>(std::count_if(
      holds_.begin(),
      holds_.end(),
      [&](const auto& entry) { return entry.second.expiry > now.boot; }
  ));
}

void Arbiter::expire(Now now) {
  std::erase_if(holds_, [&](const auto& entry) { return entry.second.expiry <= now.boot; });
}

}  // namespace rn::arbiter
