// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_hazard.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "coordinator/core_evacuation.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kLookEvery_ms = 60'000;
constexpr std::chrono::hours kRefitEvery{24};
/// A coordinator that was away for longer knows too little of what nodes did meanwhile.
constexpr std::chrono::hours kLongestGap{1};
/// A wall clock that leaves the boot clock behind by so much was set.
constexpr std::chrono::minutes kClockSlack{10};
constexpr double kCautious = 0.25;  // survival that is exceeded with a probability of 75 %
constexpr std::int64_t kSameDeadline_ms = 5000;
constexpr std::int64_t kNoticeMax_s = 86'400;
/// What is announced longer ahead was known when a job of usual length was placed: a deadline, and
/// no risk. The rest displaces guests that could not know of it.
constexpr std::int64_t kForeseen_ms = 4 * 3'600'000;

// What agents are told: the next two hours, anew where it differs noticeably, and now and then.
constexpr std::uint32_t kForecastStep_s = 900;
constexpr std::size_t kForecastSteps = 8;
constexpr std::chrono::minutes kForecastTrusted{30};
constexpr double kNoticeable = 0.2;
constexpr double kNoticeable_s = 60;

const reclaim::NodeHazard* lent(const State& state, const NodeEntry& node) {
  const reclaim::NodeHazard* known = state.hazard.find_node(node.row.node);
  return known != nullptr && known->is_lent && known->lab == node.row.lab ? known : nullptr;
}

void save_node(State& state, const NodeEntry& node) {
  if (const auto* known = state.hazard.find_node(node.row.node)) {
    // A node's row is of use only beside its lab's.
    if (state.labs_saved.insert(known->lab).second)
      state.write(PutLabHazard{*state.hazard.find_lab(known->lab)});
    state.write(PutNodeHazard{*known});
  }
}

/// Only while it is heard: what it did meanwhile it tells when it is back, or it was lost.
void advance(State& state, const NodeEntry& node) {
  if (!node.closed && node.connection != 0) state.hazard.advance(node.row.node, state.now.wall);
}

/// What older versions counted of each node, as evidence with every factor at 1.
reclaim::HazardState from_histories(const State& state) {
  reclaim::HazardState learnt = state.hazard.state();
  learnt.campus.reference_ms = state.wall_ms();
  std::map<LabId, reclaim::LabHazard> labs;
  for (const auto& [id, node] : state.nodes) {
    const NodeHistory& h = node.row.history;
    const reclaim::Tally tally{
        .events = static_cast<double>(h.notice) + h.emergency + h.lost,
        .exposure_s = static_cast<double>(h.exposure_s)};
    if (tally.events == 0 && tally.exposure_s == 0) continue;
    reclaim::LabHazard& lab = labs[node.row.lab];
    lab.lab = node.row.lab;
    lab.hours.resize(reclaim::kHoursOfWeek);
    for (reclaim::Tally* sum : {&learnt.campus.base, &lab.rate}) {
      sum->events += tally.events;
      sum->exposure_s += tally.exposure_s;
    }
    learnt.nodes.push_back({.node = id, .lab = node.row.lab, .rate = tally});
  }
  for (auto& [id, lab] : labs) learnt.labs.push_back(std::move(lab));
  return learnt;
}

void say_unusable(State& state, const Error& error) {
  log::warning("hazard.unusable", {{"what", error.message}});
  EventRow row;
  row.kind = "hazard.unusable";
  row.message = "what was learnt of the owners cannot be used (" + error.message +
                "): it begins anew with the nodes' counts";
  row.at_wall_ms = state.wall_ms();
  state.write(AppendEvent{std::move(row)});
}

/// A node's wall clock on ours. Nodes may lie: within what can be added without harm.
std::int64_t wall_ms_of(const NodeEntry& node, std::int64_t told_ms) {
  constexpr std::int64_t kFar_ms = 1'000'000'000'000'000;
  return std::clamp(told_ms, -kFar_ms, kFar_ms) +
         std::clamp(node.clock_offset_ms, -kFar_ms, kFar_ms);
}

/// From a reclaim's declaration to its deadline; 0 if there is none, or none that makes sense.
std::int64_t notice_ms(const ReclaimRecord& record) {
  if (record.declared_ns < 0 || record.deadline_ns <= record.declared_ns) return 0;
  return (record.deadline_ns - record.declared_ns) / 1'000'000;
}

/// When a reclaim that is announced comes, on this clock; 0 = it is none, or no more.
std::int64_t announced_ms(const NodeEntry& node, const ReclaimRecord& record) {
  const bool is_ahead =
      record.phase == ReclaimPhase::kDeclared || record.phase == ReclaimPhase::kEvacuating;
  const bool is_announced = record.kind == ReclaimKind::kAnnounced && record.gpus.empty();
  if (!is_announced || !is_ahead || notice_ms(record) == 0) return 0;
  return wall_ms_of(node, record.declared_wall_ms) + notice_ms(record);
}

/// Nodes ran on while the coordinator was away. What they did in a short time they tell at their
/// hello (open reclaims, their boot); over a long time windows came and went, and nobody says so.
void close_long_gap(State& state) {
  std::int64_t seen_to_ms = 0;
  for (const auto& [id, node] : state.nodes) {
    if (const auto* known = lent(state, node)) seen_to_ms = std::max(seen_to_ms, known->seen_to_ms);
  }
  const auto gap = milliseconds(std::abs(state.wall_ms() - seen_to_ms));
  for (auto& [id, node] : state.nodes) {
    const auto* known = lent(state, node);
    if (known == nullptr) continue;
    if (gap > kLongestGap || node.row.is_revoked)
      state.hazard.withdrawn(id, wall_from_ms(known->seen_to_ms));
  }
}

/// The earlier one of an announced reclaim and of the end of the lending window. Windows are told
/// in whole seconds with each heartbeat: what is about the same is the same. True if it has
/// changed.
bool tell_deadline(State& state, NodeEntry& node) {
  const auto* known = lent(state, node);
  if (known == nullptr) return false;
  std::int64_t leaves_at_ms = node.announced_leave_ms;
  if (leaves_at_ms == 0 || (node.window_ends_ms != 0 && node.window_ends_ms < leaves_at_ms))
    leaves_at_ms = node.window_ends_ms;
  const bool is_none = leaves_at_ms == 0;
  if (is_none == (known->leaves_at_ms == 0) &&
      std::abs(leaves_at_ms - known->leaves_at_ms) < kSameDeadline_ms)
    return false;
  state.hazard.announce(
      node.row.node,
      is_none ? std::nullopt : std::optional(wall_from_ms(leaves_at_ms)),
      state.now.wall
  );
  return true;
}

void tell_presence(State& state, NodeEntry& node) {
  const auto* known = lent(state, node);
  if (known == nullptr) return;
  const auto& gpus = node.telemetry.gpus;
  const bool is_foreign = std::any_of(gpus.begin(), gpus.end(), [&](const GpuTelemetry& gpu) {
    return is_gpu_lent(node.row.contract, gpu.index) && is_owners_own(node.row.contract, gpu);
  });
  const bool is_logged_in = node.telemetry.logins > 0;
  if (is_foreign == known->foreign_process && is_logged_in == known->owner_login) return;
  state.hazard.set_presence(
      node.row.node,
      {.is_logged_in = is_logged_in, .has_foreign_process = is_foreign},
      state.now.wall
  );
  refresh_outlook(state, node);
}

void depart(State& state, NodeEntry& node, WallTime at, reclaim::Warning warning) {
  if (lent(state, node) == nullptr) return;
  learn_trust(state, node.row.node);
  state.hazard.reclaimed(node.row.node, std::min(at, state.now.wall), warning);
  node.closed.reset();
  node.announced_leave_ms = 0;
  save_node(state, node);
  state.labs_departed.insert(node.row.lab);
}

/// It closed because its owner came as was announced, and not long before.
bool is_announced_come(const State& state, const NodeEntry& node) {
  const bool is_foreseen = node.announced_ahead_ms > kForeseen_ms;
  if (node.announced_leave_ms == 0 || is_foreseen) return false;
  const std::int64_t slack_ms = 2 * std::int64_t{state.config.heartbeat_ms};
  return node.lending == LendingState::kReclaimed ||
         to_ms(node.closed->wall) + slack_ms >= node.announced_leave_ms;
}

/// Closed, and no reclaim was reported in the time that a report takes: it was no departure, but of
/// an owner who comes as announced.
void settle_closed(State& state, NodeEntry& node) {
  if (!node.closed || state.now.boot - node.closed->boot < 2 * state.heartbeat()) return;
  if (lent(state, node) != nullptr && is_announced_come(state, node)) {
    depart(state, node, node.closed->wall, reclaim::Warning::kAnnounced);
  } else if (lent(state, node) != nullptr) {
    state.hazard.withdrawn(node.row.node, node.closed->wall);
    save_node(state, node);
  }
  node.closed.reset();
}

/// Exposure is counted in wall time, because hours of the week matter. When that clock is set, the
/// time between is nobody's.
void watch_wall_clock(State& state) {
  const Now before = std::exchange(state.hazard_seen, state.now);
  const nanoseconds drift = (state.now.wall - before.wall) - (state.now.boot - before.boot);
  if (std::chrono::abs(drift) < kClockSlack) return;
  log::warning("clock.was_set", {{"by_s", std::chrono::floor<seconds>(drift).count()}});
  for (auto& [id, node] : state.nodes) {
    const auto* known = lent(state, node);
    if (known == nullptr) continue;
    const LabId lab = known->lab;
    const auto age = milliseconds(known->seen_to_ms - known->lent_since_ms);
    state.hazard.withdrawn(id, before.wall);
    if (!node.closed) state.hazard.lend(id, lab, state.now.wall, state.now.wall - age);
  }
}

void save_all(State& state) {
  const reclaim::HazardState all = state.hazard.state();
  state.hazard_reference_ms = all.campus.reference_ms;
  state.write(PutCampusHazard{all.campus});
  for (const reclaim::LabHazard& lab : all.labs) {
    state.labs_saved.insert(lab.lab);
    state.write(PutLabHazard{lab});
  }
  for (const reclaim::NodeHazard& node : all.nodes) state.write(PutNodeHazard{node});
}

wire::HazardForecast forecast_of(const State& state, const NodeEntry& node) {
  wire::HazardForecast out{.step_s = kForecastStep_s};
  // An announced one takes no work with it: there is time to save.
  const double unannounced =
      state.hazard.unannounced_share(node.row.node, node.row.lab, state.now.wall);
  double before = 0;
  double shape = 0;
  for (std::size_t i = 0; i < kForecastSteps; ++i) {
    const auto within = state.hazard.survival(
        node.row.node, node.row.lab, state.now.wall, static_cast<double>((i + 1) * kForecastStep_s)
    );
    const double departures = std::max(0.0, within.expected_departures - before);
    out.per_day.push_back(unannounced * departures * 86'400 / kForecastStep_s);
    before = within.expected_departures;
    shape = within.shape;
  }
  const reclaim::Gamma band{.shape = shape, .rate = shape};
  out.low = reclaim::gamma_quantile(band, 0.05);
  out.high = reclaim::gamma_quantile(band, 0.95);
  // Where little was seen yet, a departure counts as one without notice.
  const NodeHistory& h = node.row.history;
  const double sudden = 1.0 + h.emergency + h.lost;
  out.noticed = h.notice / (h.notice + sudden);
  out.notice_s_min = h.notice_s_min;
  out.notice_s_max = h.notice_s_max;
  return out;
}

std::uint32_t leaves_in_s(const State& state, const NodeEntry& node) {
  const auto* known = lent(state, node);
  if (known == nullptr || known->leaves_at_ms == 0) return 0;
  const std::int64_t left_s = (known->leaves_at_ms - state.wall_ms()) / 1000;
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(left_s, 1, 7 * 86'400));
}

bool is_noticeable(double before, double now) {
  return std::abs(now - before) > kNoticeable * before;
}

/// What it was told, as far as its time has come, against what is expected now.
bool knows_hazard(const State& state, const NodeEntry& node, std::uint32_t leaves_s) {
  const wire::HazardForecast& told = node.told_hazard;
  const nanoseconds age = state.now.boot - node.hazard_told_at;
  if (node.hazard_told_on != node.connection || age >= kForecastTrusted) return false;
  if (is_noticeable(told.high, node.forecast.high)) return false;
  if (is_noticeable(1 - told.noticed, 1 - node.forecast.noticed)) return false;
  const auto passed = static_cast<std::size_t>(age / seconds(kForecastStep_s));
  for (std::size_t i = passed; i < told.per_day.size(); ++i) {
    if (is_noticeable(told.per_day[i], node.forecast.per_day[i - passed])) return false;
  }
  if ((leaves_s == 0) != (told.leaves_in_s == 0)) return false;
  const double expected_s = told.leaves_in_s - std::chrono::duration<double>(age).count();
  return leaves_s == 0 || std::abs(leaves_s - expected_s) < kNoticeable_s;
}

}  // namespace

reclaim::HazardParameters hazard_parameters(const Config& config) {
  return {.utc_offset_s = config.utc_offset_s, .is_constant = config.study.is_hazard_constant};
}

void restore_hazard(State& state, Snapshot& snapshot) {
  state.hazard_seen = state.now;
  state.hazard_refitted_at = state.now.boot;
  const bool is_learnt = snapshot.campus_hazard.has_value();
  if (is_learnt) {
    auto restored = reclaim::HazardModel::restore(
        hazard_parameters(state.config),
        {.campus = *std::move(snapshot.campus_hazard),
         .labs = std::move(snapshot.lab_hazards),
         .nodes = std::move(snapshot.node_hazards)}
    );
    if (restored) {
      state.hazard = *std::move(restored);
      for (const auto& lab : state.hazard.state().labs) state.labs_saved.insert(lab.lab);
      state.hazard_reference_ms = state.hazard.campus().reference_ms;
    } else {
      say_unusable(state, restored.error());
    }
  }
  if (!is_learnt || state.hazard_reference_ms == 0) {
    auto begun =
        reclaim::HazardModel::restore(hazard_parameters(state.config), from_histories(state));
    if (begun) state.hazard = *std::move(begun);
    save_all(state);
  }
  close_long_gap(state);
  for (const auto& [key, row] : state.reclaims) {
    NodeEntry* node = state.find_node(key.first);
    const std::int64_t leaves_at_ms = node == nullptr ? 0 : announced_ms(*node, row.record);
    if (leaves_at_ms == 0) continue;
    node->announced_leave_ms = leaves_at_ms;
    node->announced_ahead_ms = notice_ms(row.record);
  }
  for (auto& [id, node] : state.nodes) refresh_outlook(state, node);
}

void follow_lending(State& state, NodeEntry& node) {
  const bool was_lent = lent(state, node) != nullptr;
  if (node.lending != LendingState::kOpen) {
    if (!was_lent || node.closed) return;
    // Only the idle rule says so; a reclaim's record may be on its way behind the other states.
    if (node.lending == LendingState::kOwnerPresent)
      return note_departure(state, node, state.now.wall);
    node.closed = state.now;
    return;
  }
  node.closed.reset();
  // It takes guests after its deadline: whatever was announced did not come.
  const std::int64_t patience_ms = 2 * std::int64_t{state.config.heartbeat_ms};
  if (node.announced_leave_ms + patience_ms < state.wall_ms()) node.announced_leave_ms = 0;
  if (!was_lent) state.hazard.lend(node.row.node, node.row.lab, state.now.wall);
  const bool is_new = tell_deadline(state, node) || !was_lent;
  tell_presence(state, node);
  if (!is_new) return;
  save_node(state, node);
  refresh_outlook(state, node);
}

void note_departure(State& state, NodeEntry& node, WallTime at) {
  depart(state, node, at, reclaim::Warning::kNone);
}

void settle_departures(State& state) {
  if (state.labs_departed.empty()) return;
  state.write(PutCampusHazard{state.hazard.campus()});
  for (const LabId& lab : state.labs_departed)
    state.write(PutLabHazard{*state.hazard.find_lab(lab)});
  for (auto& [id, node] : state.nodes) {
    if (state.labs_departed.contains(node.row.lab)) refresh_outlook(state, node);
  }
  state.labs_departed.clear();
}

void note_withdrawal(State& state, NodeEntry& node) {
  node.closed.reset();
  node.announced_leave_ms = 0;
  if (lent(state, node) == nullptr) return;
  state.hazard.withdrawn(node.row.node, state.now.wall);
  save_node(state, node);
}

void note_announcement(State& state, NodeEntry& node, const ReclaimRecord& record) {
  if (record.kind != ReclaimKind::kAnnounced || !record.gpus.empty()) return;
  const bool is_called_off = record.phase == ReclaimPhase::kReturned;
  const std::int64_t leaves_at_ms = announced_ms(node, record);
  if (leaves_at_ms == 0 && !is_called_off) return;
  node.announced_leave_ms = leaves_at_ms;
  node.announced_ahead_ms = notice_ms(record);
  tell_deadline(state, node);
  refresh_outlook(state, node);
  save_node(state, node);
}

void note_reclaim(State& state, NodeEntry& node, const ReclaimRecord& record) {
  NodeHistory& history = node.row.history;
  if (record.kind == ReclaimKind::kAnnounced) ++history.announced;
  if (record.kind == ReclaimKind::kEmergency) ++history.emergency;
  if (record.kind == ReclaimKind::kNotice) {
    ++history.notice;
    const auto length =
        static_cast<std::uint32_t>(std::min<std::int64_t>(notice_ms(record) / 1000, kNoticeMax_s));
    const bool is_first = history.notice_s_max == 0;
    history.notice_s_min = is_first ? length : std::min(history.notice_s_min, length);
    history.notice_s_max = std::max(history.notice_s_max, length);
  }
  const bool is_departure =
      record.kind == ReclaimKind::kNotice || record.kind == ReclaimKind::kEmergency;
  if (!is_departure) return;
  const bool is_timed = record.declared_wall_ms != 0;
  note_departure(
      state,
      node,
      is_timed ? wall_from_ms(wall_ms_of(node, record.declared_wall_ms)) : state.now.wall
  );
}

void refresh_outlook(State& state, NodeEntry& node) {
  const NodeId& id = node.row.node;
  const WallTime now = state.now.wall;
  advance(state, node);
  sched::SurvivalCurve curve;
  for (std::size_t i = 0; i < sched::kHorizons_s.size(); ++i) {
    reclaim::SurvivalForecast forecast =
        state.hazard.survival(id, node.row.lab, now, sched::kHorizons_s[i]);
    forecast.leaves_before = false;  // a deadline of its own, below
    curve.mean[i] = forecast.probability();
    curve.cautious[i] = forecast.quantile(kCautious);
  }
  const auto* known = lent(state, node);
  if (known != nullptr && known->leaves_at_ms != 0)
    curve.leaves_in_s = std::max(0.0, static_cast<double>(known->leaves_at_ms - to_ms(now)) / 1e3);
  node.outlook = curve;
  node.forecast = forecast_of(state, node);
  node.departures_per_day = state.hazard.rate(id, node.row.lab, now) * 86'400;
  node.outlook_at = state.now.boot;
}

wire::HazardForecast news_of_hazard(State& state, NodeEntry& node) {
  const std::uint32_t leaves_s = leaves_in_s(state, node);
  if (node.forecast.per_day.empty() || knows_hazard(state, node, leaves_s)) return {};
  node.told_hazard = node.forecast;
  node.told_hazard.leaves_in_s = leaves_s;
  node.hazard_told_at = state.now.boot;
  node.hazard_told_on = node.connection;
  return node.told_hazard;
}

void set_utc_offset(State& state, std::int32_t utc_offset_s) {
  if (utc_offset_s == state.hazard.utc_offset_s()) return;
  for (const auto& [id, node] : state.nodes) advance(state, node);
  state.hazard.set_utc_offset(utc_offset_s);
}

void look_at_hazards(State& state) {
  watch_wall_clock(state);
  for (auto& [id, node] : state.nodes) settle_closed(state, node);
  const std::size_t share = state.nodes.size() * state.config.tick_ms / kLookEvery_ms + 1;
  auto at = state.nodes.upper_bound(state.hazard_looked_to);
  for (std::size_t i = 0; i < std::min(share, state.nodes.size()); ++i, ++at) {
    if (at == state.nodes.end()) at = state.nodes.begin();
    state.hazard_looked_to = at->first;
    if (state.now.boot - at->second.outlook_at >= milliseconds(kLookEvery_ms))
      refresh_outlook(state, at->second);
  }
  if (state.now.boot - state.hazard_refitted_at < kRefitEvery) return;
  state.hazard_refitted_at = state.now.boot;
  state.hazard.refit_strengths(state.now.wall);
}

void save_hazard(State& state) {
  for (const auto& [id, node] : state.nodes) advance(state, node);
  // Old evidence was scaled down everywhere at once.
  if (state.hazard.campus().reference_ms != state.hazard_reference_ms) return save_all(state);
  std::set<LabId> labs;
  for (const auto& [id, node] : state.nodes) {
    if (lent(state, node) == nullptr) continue;
    labs.insert(node.row.lab);
    save_node(state, node);
  }
  if (labs.empty()) return;
  state.write(PutCampusHazard{state.hazard.campus()});
  for (const LabId& lab : labs) state.write(PutLabHazard{*state.hazard.find_lab(lab)});
}

}  // namespace rn::coordinator
