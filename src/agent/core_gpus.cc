// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "agent/core_state.h"
#include "arbiter/calendar.h"
#include "base/log.h"

// Single GPUs that go back without a word of the owner's: the owner computes on one, or it is sick.
// The agent measures; declaring, cutting and looking are the warden's, which needs nobody from then
// on (ADR 0006). The rest of the machine is lent as before.
namespace rn::agent {

namespace {

/// A process that looks at the GPU and is gone again (nvidia-smi, an import) takes nobody's place.
constexpr seconds kOwnersProcessCounts{5};
/// One that begins anew again and again is one that stays. The contract may say longer
/// (min_free_s).
constexpr seconds kOwnersProcessGone{30};
constexpr seconds kHeatCounts{60};   // a short peak is every card's
constexpr seconds kHeatIsOver{120};  // without its guest it cools down, and is as hot with the next
constexpr seconds kGpuWindowSlack{2};  // the agent sees the end before the warden's timer does
constexpr seconds kGpuWindowAhead{7 * 86'400};
constexpr nanoseconds kSameEnd{1'000'000'000};  // two instants of one end, by the wall clock

bool is_same_end(const warden_wire::AnnounceGpu& a, const warden_wire::AnnounceGpu& b) {
  const auto are_close = [](std::int64_t x, std::int64_t y) {
    return (x == 0) == (y == 0) && std::abs(x - y) <= kSameEnd.count();
  };
  return a.gpu == b.gpu && a.message == b.message && are_close(a.deadline_ns, b.deadline_ns) &&
         are_close(a.declare_ns, b.declare_ns);
}

}  // namespace

GpuWatch& Core::State::watch_of(std::uint32_t gpu) {
  return gpu_watches_[gpu];
}

/// From a new sample: on which GPUs the owner computes, and since when. How long it lasts is
/// counted from sample to sample: a driver that hangs says nothing.
void Core::State::note_gpus() {
  for (const warden_wire::AnnouncedGpu& held : warden_.announced_gpus) watch_of(held.gpu);
  std::set<std::uint32_t> used;
  for (const GpuTelemetry& seen : telemetry_.gpus) {
    if (is_owners_own(contract_, seen)) used.insert(seen.index);
  }
  for (const std::uint32_t gpu : used) watch_of(gpu);
  for (auto& [gpu, watch] : gpu_watches_) {
    if (used.contains(gpu)) {
      if (!watch.used_since) watch.used_since = now_.boot;
      watch.free_since.reset();
    } else {
      if (!watch.free_since) watch.free_since = now_.boot;
      watch.used_since.reset();
    }
  }
}

/// What is remembered of the GPU that has this index now.
GpuHealth& Core::State::health_of(std::uint32_t gpu) {
  std::string uuid;
  for (const Gpu& known : facts_.gpus) {
    if (known.index == gpu) uuid = known.uuid;
  }
  auto& all = node_.health;
  auto found = std::find_if(all.begin(), all.end(), [gpu](const GpuHealth& one) {
    return one.index == gpu;
  });
  if (found == all.end()) found = all.insert(all.end(), GpuHealth{.index = gpu});
  if (found->uuid != uuid) *found = GpuHealth{.index = gpu, .uuid = uuid};
  if (found->boot_id != config_.boot_id) {
    found->boot_id = config_.boot_id;
    found->xids.clear();
  }
  return *found;
}

void Core::State::note_heat(GpuWatch& watch) {
  if (watch.signs.is_slowed_by_heat) {
    if (!watch.hot_since) watch.hot_since = now_.boot;
    watch.cool_since.reset();
    if (now_.boot - *watch.hot_since >= kHeatCounts) watch.is_hot = true;
  } else {
    if (!watch.cool_since) watch.cool_since = now_.boot;
    watch.hot_since.reset();
    if (now_.boot - *watch.cool_since >= kHeatIsOver) watch.is_hot = false;
  }
}

void Core::State::judge_health(std::uint32_t gpu, GpuWatch& watch) {
  const std::string sickness = sickness_of(health_of(gpu), watch.signs, watch.is_hot);
  if (sickness != watch.sickness) {
    if (sickness.empty()) log::info("gpu.well", {{"gpu", gpu}});
    if (!sickness.empty()) log::warning("gpu.sick", {{"gpu", gpu}, {"why", sickness}});
  }
  watch.sickness = sickness;
  show_health();
}

/// Also in a sample that says nothing of it.
void Core::State::show_health() {
  for (GpuTelemetry& seen : telemetry_.gpus) {
    const auto watch = gpu_watches_.find(seen.index);
    if (watch != gpu_watches_.end()) seen.sickness = watch->second.sickness;
  }
}

void Core::State::note_health(const std::vector<GpuSigns>& signs) {
  for (const GpuSigns& one : signs) {
    if (note_signs(health_of(one.index), one)) is_node_dirty_ = true;
    GpuWatch& watch = watch_of(one.index);
    watch.signs = one;
    note_heat(watch);
    judge_health(one.index, watch);
  }
  show_health();
}

void Core::State::on(const GpuAccepted& e) {
  GpuWatch& watch = watch_of(e.gpu);
  accept_signs(health_of(e.gpu), watch.signs);
  is_node_dirty_ = true;
  watch.is_hot = false;
  watch.hot_since.reset();
  judge_health(e.gpu, watch);
}

/// Why the GPU's guest has to go; empty = it may stay.
std::string Core::State::gpu_leaves_because(std::uint32_t gpu, const GpuWatch& watch) const {
  if (!watch.sickness.empty()) return "GPU " + std::to_string(gpu) + " is sick: " + watch.sickness;
  const bool is_used = contract_.idle.owner_processes == OwnerProcesses::kEvict &&
                       watch.used_since && telemetry_at_ &&
                       *telemetry_at_ - *watch.used_since >= kOwnersProcessCounts;
  return is_used ? "the owner computes on GPU " + std::to_string(gpu) : "";
}

bool Core::State::is_gpu_free_again(std::uint32_t gpu, const GpuWatch& watch) const {
  if (!gpu_leaves_because(gpu, watch).empty() || !telemetry_at_) return false;
  if (contract_.idle.owner_processes != OwnerProcesses::kEvict) return true;
  if (!watch.free_since) return false;
  const seconds settling = std::max(kOwnersProcessGone, seconds(contract_.min_free_s));
  return *telemetry_at_ - *watch.free_since >= settling;
}

/// Or is being got ready for one.
bool Core::State::has_guest_on(std::uint32_t gpu) const {
  return std::any_of(attempts_.begin(), attempts_.end(), [gpu](const auto& entry) {
    const AttemptRow& row = entry.second.row;
    const auto& own = row.grant.gpus;
    return row.phase <= Phase::kStopping && std::find(own.begin(), own.end(), gpu) != own.end();
  });
}

/// Repeated until the warden's state shows it.
void Core::State::announce_gpu(GpuWatch& watch, const warden_wire::AnnounceGpu& wanted) {
  const bool is_sent = watch.told_at && is_same_end(watch.told, wanted);
  if (is_sent && !is_due(*watch.told_at)) return;
  watch.told = wanted;
  watch.told_at = now_.boot;
  ask_node(Ask::kAnnounce, wanted);
}

/// Of what is held until the owner's process has gone: is it in order, and nobody at work on it?
bool Core::State::is_gpu_settled(const ReclaimId& id) const {
  const auto row = reclaims_.find(id);
  if (row == reclaims_.end()) return false;
  const ReclaimPhase phase = row->second.record.phase;
  return phase == ReclaimPhase::kEvacuating || phase == ReclaimPhase::kCleared;
}

/// Why its guest has to go, and in what time; none if it may stay.
std::optional<Core::State::Closing> Core::State::gpu_closing(
    std::uint32_t gpu, const GpuWatch& watch
) {
  const Calendar& windows = gpu_calendar(gpu);
  const nanoseconds notice = seconds(std::max(contract_.notice_s, 1U));
  std::optional<nanoseconds> window;
  if (windows.is_inside && windows.change) window = *windows.change - now_.wall;
  std::string why = gpu_leaves_because(gpu, watch);
  if (why.empty() && !windows.is_inside) why = "the lending window of this GPU is over";
  if (!why.empty()) return Closing{std::move(why), window ? std::min(notice, *window) : notice};
  if (window && *window <= seconds(contract_.notice_s) + kGpuWindowSlack)
    return Closing{kGpuWindowEnds, *window};
  return std::nullopt;
}

/// None as long as nobody is there; else what takes it now, or the next end of its own window.
warden_wire::AnnounceGpu Core::State::wanted_of_gpu(
    std::uint32_t gpu, const GpuWatch& watch, const std::optional<Closing>& why
) {
  if (!has_guest_on(gpu)) return {gpu, 0, ""};
  const std::int64_t now_ns = to_ns(now_.boot);
  if (why) {
    const std::int64_t deadline_ns = now_ns + why->left.count();
    // Its deadline does not move while it lasts, but to come earlier.
    const bool is_told = watch.told_at && watch.told.deadline_ns != 0 &&
                         watch.told.declare_ns == 0 &&
                         watch.told.deadline_ns <= deadline_ns + kSameEnd.count();
    return is_told ? watch.told : warden_wire::AnnounceGpu{gpu, deadline_ns, why->reason};
  }
  const Calendar& windows = gpu_calendar(gpu);
  if (!windows.is_inside || !windows.change) return {gpu, 0, ""};
  const nanoseconds left = *windows.change - now_.wall;
  if (left > kGpuWindowAhead) return {gpu, 0, ""};
  const std::int64_t end_ns = now_ns + left.count();
  const std::int64_t declare_ns = end_ns - nanoseconds(seconds(contract_.notice_s)).count();
  return {gpu, end_ns, kGpuWindowEnds, declare_ns};
}

void Core::State::step_gpu(std::uint32_t gpu, GpuWatch& watch) {
  const auto& all = warden_.announced_gpus;
  const auto held =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.gpu == gpu; });
  const bool is_declared = held != all.end() && !held->reclaim.empty();
  const std::optional<Closing> why = gpu_closing(gpu, watch);
  if (is_declared) {
    if (!why && is_gpu_free_again(gpu, watch) && is_gpu_settled(held->reclaim))
      announce_gpu(watch, {gpu, 0, ""});
    return;
  }
  const warden_wire::AnnounceGpu wanted = wanted_of_gpu(gpu, watch, why);
  const bool is_nothing = held == all.end() && wanted.deadline_ns == 0;
  const bool is_held =
      held != all.end() &&
      is_same_end({gpu, held->deadline_ns, held->message, held->declare_ns}, wanted);
  if (is_nothing || is_held)
    watch.told_at.reset();
  else
    announce_gpu(watch, wanted);
}

void Core::State::step_gpus() {
  if (!is_reconciled_) return;
  for (const GpuWindows& own : contract_.gpu_windows) watch_of(own.gpu);
  for (const warden_wire::AnnouncedGpu& held : warden_.announced_gpus) watch_of(held.gpu);
  for (auto& [gpu, watch] : gpu_watches_) step_gpu(gpu, watch);
}

/// Of each GPU with windows of its own: whether somebody may come, and until when.
std::vector<arbiter::GpuWindow> Core::State::gpu_windows() {
  std::vector<arbiter::GpuWindow> out;
  for (const GpuWindows& own : contract_.gpu_windows) {
    const Calendar& windows = gpu_calendar(own.gpu);
    arbiter::GpuWindow window{own.gpu, closes_in_s(windows), ""};
    const seconds notice = seconds(contract_.notice_s) + kGpuWindowSlack;
    if (!windows.is_inside) {
      window.closed_because = "outside its lending windows";
      if (windows.change)
        window.closed_because +=
            ", the next one opens " +
            arbiter::describe(arbiter::local_time(*windows.change, utc_offset_s_)) + " (" +
            contract_.time_zone + ")";
    } else if (windows.change && *windows.change - now_.wall <= notice) {
      window.closed_because = "at the end of its lending window";
    }
    out.push_back(std::move(window));
  }
  return out;
}

/// Also of a GPU that no driver tells of. What was looked at last, at every event.
void Core::State::show_gpu_windows(NodeTelemetry& telemetry) const {
  for (const GpuWindows& own : contract_.gpu_windows) {
    const auto looked = gpu_calendars_.find(own.gpu);
    if (looked == gpu_calendars_.end() || !looked->second) continue;
    auto& all = telemetry.gpus;
    auto shown = std::find_if(all.begin(), all.end(), [&](const GpuTelemetry& one) {
      return one.index == own.gpu;
    });
    if (shown == all.end()) {
      GpuTelemetry unseen;
      unseen.index = own.gpu;
      unseen.is_unseen = true;
      shown = all.insert(all.end(), std::move(unseen));
    }
    shown->closes_in_s = closes_in_s(*looked->second);
    shown->is_outside_window = !looked->second->is_inside;
  }
}

/// By the contract, and not by the owner's word.
bool Core::State::is_announced(const ReclaimId& id) const {
  const auto& gpus = warden_.announced_gpus;
  return id == warden_.announced.reclaim ||
         std::any_of(gpus.begin(), gpus.end(), [&](auto& one) { return one.reclaim == id; });
}

}  // namespace rn::agent
