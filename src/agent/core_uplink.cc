// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "agent/core_state.h"
#include "base/log.h"

// When what guests save goes elsewhere, and whose copy has the uplink: by the pure rules of
// reclaim/checkpoint_schedule.h and checkpoint_clock.h. A generation is taken when it is complete,
// as ever; it is its copy that waits. Who is known too little for a plan, and whoever must go, does
// not wait.
namespace rn::agent {

namespace {

constexpr seconds kControlPeriod{1};
constexpr double kAssumedUplink = 12.5e6;             // bytes/s, until a copy was measured
constexpr double kCheckpointShare = 0.5;              // of the uplink, for copies in the long run
constexpr double kGuessedHazard = 1.0 / (35 * 3600);  // as the coordinator's prior
constexpr double kEvacuationStarts_s = 2;
constexpr double kMostTaking_s = 600;    // of a core, to make a generation
constexpr double kNeverDone = 0.02;      // of an upload, by estimate
constexpr double kLastCall_s = 120;      // before a notice that is sure to come
constexpr double kWorthTheChange = 1.1;  // before another upload takes the uplink
constexpr double kMostly = 0.8;
constexpr double kTheLines = 1.25;  // times what its chunks took to make: then the line was slower

}  // namespace

// ---- what the plan stands on

/// Departures per second to plan with: above the mean, half way to the upper end of the band (one
/// copy too many costs less than one too few). Where nobody was told of any, the coordinator's
/// prior.
double Core::State::planning_hazard() const {
  const std::optional<double> mean = told_hazard();
  return mean ? *mean * std::sqrt(std::max(hazard_.high, 1.0)) : kGuessedHazard;
}

/// Until the node is expected to be gone for certain, or a GPU of the guest's: a window ends, or it
/// was announced.
std::optional<double> Core::State::leaves_in_s(const Attempt& a) {
  std::optional<double> left;
  if (const std::uint32_t window_s = closes_in_s(); window_s != 0) left = window_s;
  for (const GpuWindows& own : contract_.gpu_windows) {
    const auto& gpus = a.row.grant.gpus;
    if (std::find(gpus.begin(), gpus.end(), own.gpu) == gpus.end()) continue;
    const std::uint32_t window_s = closes_in_s(gpu_calendar(own.gpu));
    if (window_s != 0 && (!left || window_s < *left)) left = window_s;
  }
  if (hazard_.leaves_in_s != 0) {
    const double told_s = hazard_.leaves_in_s - in_s(now_.boot - hazard_at_);
    if (told_s > 0 && (!left || told_s < *left)) left = told_s;
  }
  return left;
}

double Core::State::uplink_rate() const {
  const double measured = uplink_bytes_per_s_ > 0 ? uplink_bytes_per_s_ : kAssumedUplink;
  const double cap = static_cast<double>(contract_.uplink_bps_normal) / 8;
  return cap > 0 ? std::min(cap, measured) : measured;
}

/// Rows that wait or are on their way, and what is saved elsewhere already.
reclaim::ExposedWork Core::State::exposed_work(const Attempt& a) const {
  Instant newest = instant_from_ns(a.row.started_ns);
  reclaim::ExposedWork work(newest);
  for (const GenerationRow& row : a.row.generations) {
    if (row.ref.snapshot_boot_ns <= 0 || row.is_refused) continue;
    newest = std::max(newest, instant_from_ns(row.ref.snapshot_boot_ns));
    work.snapshot_taken(row.ref.generation, newest, row.is_committed ? 0 : 1);
  }
  return work;
}

/// Cores that are busy while what it saved goes elsewhere, to all peers at once.
double Core::State::copy_cores(const Attempt& a) const {
  const double cores = sending_.busy_cores(uplink_rate());
  return sending_.is_measured() ? cores * std::max(a.row.plan.wanted, 1u) : cores;
}

/// What it saves is taken anyway, and costs nothing more, but where it saves because it is told to.
reclaim::CheckpointJob Core::State::checkpoint_job(const Attempt& a, double hazard) const {
  const SaveSchedule& s = a.schedule;
  const double cores = std::max(1.0, facts_.cpu_milli / 1000.0);
  reclaim::CheckpointJob job;
  job.weight = std::max<double>(1, static_cast<double>(a.row.grant.gpus.size()));
  job.pause_s = sending_.once_s() * std::max(a.row.plan.wanted, 1u) / cores;
  if (saves_when_told(a.commit.spec.checkpoint)) job.pause_s += s.pause_s + s.taking_s / cores;
  job.slowdown = std::min(copy_cores(a) / cores, 1.0);
  job.dirty = s.dirty.curve();
  const bool is_noticed = hazard_.noticed > 0 && hazard_.notice_s_max > 0;
  reclaim::NoticeMix mix;
  mix.emergency_share = is_noticed ? 1 - std::min(hazard_.noticed, 1.0) : 1;
  if (is_noticed)
    mix.notices.push_back(
        {.min_s = static_cast<double>(hazard_.notice_s_min),
         .max_s = static_cast<double>(hazard_.notice_s_max)}
    );
  const double exposed_s = in_s(exposed_work(a).exposed(now_.boot));
  const double evacuation_s = job.dirty.bytes(exposed_s) / uplink_rate() + kEvacuationStarts_s;
  job.hazard = reclaim::effective_hazard(hazard, mix, evacuation_s);
  return job;
}

std::vector<double> Core::State::plan_together(
    const std::vector<reclaim::CheckpointJob>& jobs,
    const std::vector<double>& in_force,
    double rate
) {
  const reclaim::UplinkShare uplink{
      .upload_bytes_per_s = rate, .checkpoint_bytes_per_s = rate * kCheckpointShare};
  if (config_.plans_saves_together) return intervals_.plan(jobs, uplink, in_force).interval_s;
  std::vector<double> each;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto plan =
        reclaim::plan_intervals({&jobs[i], 1}, uplink, kIntervalLimits, {&in_force[i], 1});
    each.push_back(plan.interval_s.front());
  }
  return each;
}

/// Once a second: the joint intervals of the guests that share the uplink.
void Core::State::plan_saves() {
  if (planned_at_ && now_.boot - *planned_at_ < kControlPeriod) return;
  const double passed_s =
      planned_at_ ? in_s(std::min<nanoseconds>(now_.boot - *planned_at_, config_.longest_look)) : 0;
  planned_at_ = now_.boot;
  const bool is_known = known_hazard().has_value();
  const double hazard = planning_hazard();
  std::vector<Attempt*> running;
  std::vector<reclaim::CheckpointJob> jobs;
  std::vector<double> in_force;
  for (auto& [name, a] : attempts_) {
    a.schedule.is_planned = is_known && plans_saves(a);
    if (!plans_saves(a)) continue;
    running.push_back(&a);
    jobs.push_back(checkpoint_job(a, hazard));
    const double before = a.schedule.interval_s;
    in_force.push_back(before > 0 ? before : std::numeric_limits<double>::infinity());
  }
  if (running.empty()) return;
  const double rate = uplink_rate();
  const std::vector<double> intervals = plan_together(jobs, in_force, rate);
  for (std::size_t i = 0; i < running.size(); ++i) {
    SaveSchedule& s = running[i]->schedule;
    s.interval_s = intervals[i];
    s.hazard = jobs[i].hazard;
    s.owner_hazard = hazard;
    s.cost_s = reclaim::checkpoint_cost(jobs[i], s.interval_s, rate);
    s.clock.advance(passed_s, s.interval_s);
    if (turn_ == running[i]->name && !running[i]->copies.empty()) s.sent_s += passed_s;
  }
}

bool Core::State::plans_saves(const Attempt& a) const {
  return a.row.phase == Phase::kRunning && a.row.started_ns > 0 && !a.row.is_fenced &&
         !a.commit.spec.checkpoint.is_stateless;
}

// ---- which generation goes, and whose turn it is

/// What it saves may wait. Whoever has to leave does not.
bool Core::State::takes_turns(const Attempt& a) const {
  return config_.plans_saves_together && a.schedule.is_planned && plans_saves(a) && !a.put_off;
}

GenerationRow* Core::State::find_generation(Attempt& a, std::uint32_t number) {
  for (GenerationRow& row : a.row.generations) {
    if (row.ref.generation == number) return &row;
  }
  return nullptr;
}

bool Core::State::has_its_copies(const Attempt& a, const GenerationRow& row) const {
  return row.receipts.size() >= std::max<std::size_t>(a.row.plan.wanted, 1);
}

/// Else the uplink is of no use to it: nobody takes it, and new peers are asked for.
bool Core::State::can_send(const Attempt& a, const GenerationRow& row) const {
  return !a.copies.empty() || !choose_peers(a, row.receipts).ready.empty();
}

double Core::State::remaining_bytes(const Attempt& a) const {
  for (const GenerationRow& row : a.row.generations) {
    if (row.ref.generation != a.schedule.going || has_its_copies(a, row)) continue;
    const double all = std::max<double>(1, static_cast<double>(row.ref.new_bytes));
    return std::max(all - a.schedule.sent_s * uplink_rate(), all * kNeverDone);
  }
  return 0;
}

/// Whether the newest generation, or the one to come, is worth its copy now. One that is let go
/// goes to its end; what is complete meanwhile waits, each in place of the one before.
void Core::State::judge_saves(Attempt& a) {
  SaveSchedule& s = a.schedule;
  const GenerationRow* const last = newest(a);
  const GenerationRow* going = find_generation(a, s.going);
  if (going == nullptr || going->is_committed || going->is_refused) s.going = 0;
  if (s.going != 0 && going != last && going->receipts.empty() && a.copies.empty()) {
    going = last;  // it had not left yet
    s.going = last->ref.generation;
    s.sent_s = 0;
  }
  if (!plans_saves(a)) return;
  if (s.going == 0 && s.is_planned) adopt_copy(a);
  going = find_generation(a, s.going);
  const bool waits = last != nullptr && !last->is_committed && !last->is_refused;
  const bool is_anything_saved =
      a.row.restored.generation != 0 ||
      std::any_of(a.row.generations.begin(), a.row.generations.end(), [](const GenerationRow& g) {
        return g.is_committed;
      });
  const double rate = uplink_rate();
  reclaim::SnapshotQuestion q;
  for (const auto& [name, other] : attempts_) {
    if (other.schedule.going != 0 && name != a.name && takes_turns(other))
      q.wait_s += remaining_bytes(other) / rate;
  }
  const reclaim::DirtyCurve dirty = s.dirty.curve();
  q.exposed_s = in_s(exposed_work(a).exposed(now_.boot));
  q.dirty_bytes =
      std::max(1.0, waits ? static_cast<double>(last->ref.new_bytes) : dirty.bytes(q.exposed_s));
  q.upload_s = q.dirty_bytes / rate;
  const std::optional<double> leaves = leaves_in_s(a);
  const bool is_last_call =
      leaves && *leaves < contract_.notice_s + 2 * (q.wait_s + q.upload_s) + s.gap_s + kLastCall_s;
  q.is_due = s.clock.is_due() || !is_anything_saved || is_last_call;
  // Without the coordinator a copy stays a copy; it says so when it is back.
  q.is_in_flight = s.going != 0 && (is_welcome_ || !has_its_copies(a, *going));
  q.hazard = s.hazard;
  q.interval_s = s.interval_s;
  q.cost_s = s.cost_s;
  // Whatever goes before the node does need not go after it.
  if (is_last_call || !is_anything_saved) q.cost_s = 0;
  s.answer = reclaim::judge_snapshot(q);
  if (s.answer != reclaim::SnapshotAnswer::kTake || !waits || !s.is_planned) return;
  let_go(a, *last);
}

/// One that began before there was a plan.
void Core::State::adopt_copy(Attempt& a) {
  for (const auto& [peer, id] : a.copies) {
    const PendingWork& pending = works_.at(id);
    const GenerationRow* const row = find_generation(a, pending.generation);
    if (pending.is_ahead || row == nullptr || row->is_committed || row->is_refused) continue;
    return let_go(a, *row);
  }
}

void Core::State::let_go(Attempt& a, const GenerationRow& row) {
  SaveSchedule& s = a.schedule;
  s.going = row.ref.generation;
  s.sent_s = 0;
  s.clock.snapshot_taken();
  const Instant taken = instant_from_ns(row.ref.snapshot_boot_ns);
  if (row.ref.snapshot_boot_ns > 0 && taken < now_.boot)
    s.clock.advance(in_s(now_.boot - taken), s.interval_s);
}

/// One upload at a time, the one that averts most per second of the link; evacuations go before all
/// of them. Who loses its turn goes on from what has arrived.
void Core::State::choose_turn() {
  std::vector<reclaim::PendingUpload> uploads;
  std::vector<GuestName> names;
  std::optional<std::size_t> current;
  bool is_any_planned = false;
  bool is_evacuating = false;
  for (auto& [name, a] : attempts_) {
    judge_saves(a);
    is_any_planned |= takes_turns(a);
    is_evacuating |=
        a.row.phase > Phase::kRunning && a.row.phase <= Phase::kDraining && !a.copies.empty();
    const GenerationRow* const going = find_generation(a, a.schedule.going);
    if (!takes_turns(a) || going == nullptr || has_its_copies(a, *going)) continue;
    if (!can_send(a, *going)) continue;
    if (turn_ == name) current = uploads.size();
    names.push_back(name);
    uploads.push_back(
        {.weight = std::max<double>(1, static_cast<double>(a.row.grant.gpus.size())),
         .hazard = a.schedule.hazard,
         .gain_s = in_s(exposed_work(a).gain(a.schedule.going)),
         .remaining_bytes = remaining_bytes(a)}
    );
  }
  if (!is_any_planned) return turn_.reset();
  const double rate = uplink_rate();
  // A copy that is stopped sends the chunk under way to its end (checkpoint/peer_link.h), so that
  // any moment is a boundary.
  auto next = reclaim::next_upload(uploads, rate, current, true);
  if (next && current &&
      reclaim::upload_index(uploads[*next], rate) <
          kWorthTheChange * reclaim::upload_index(uploads[*current], rate))
    next = current;
  if (is_evacuating) next.reset();
  if (next) {
    turn_ = names[*next];
  } else {
    turn_.reset();
  }
  for (auto& [name, a] : attempts_) {
    const bool may_copy = turn_ == name || (!turn_ && !is_evacuating && a.schedule.going == 0);
    if (takes_turns(a) && !may_copy) stop_copies(a);
  }
}

/// What has arrived stays there, for the next try to go on from.
void Core::State::stop_copies(Attempt& a) {
  for (const auto& [peer, id] : a.copies) cancel_work(id);
  a.copies.clear();
}

/// Null: it waits. Who has to go, and whoever's owner nobody knows, does not.
GenerationRow* Core::State::generation_to_copy(Attempt& a) {
  const SaveSchedule& s = a.schedule;
  if (!takes_turns(a)) return newest(a);
  GenerationRow* const row = find_generation(a, s.going);
  const bool is_let_go =
      row != nullptr && (turn_ == a.name || has_its_copies(a, *row) || !can_send(a, *row));
  if (is_let_go) return row;
  for (auto it = a.row.generations.rbegin(); it != a.row.generations.rend(); ++it) {
    const bool is_open = !it->is_committed && !it->is_refused;
    if (is_open && has_its_copies(a, *it)) return &*it;  // the coordinator is to be told
  }
  return nullptr;
}

/// The chunks of a generation that is being made may go ahead of it.
bool Core::State::may_go_ahead(const Attempt& a) const {
  const SaveSchedule& s = a.schedule;
  if (!takes_turns(a)) return true;
  return !turn_ && s.going == 0 && s.answer == reclaim::SnapshotAnswer::kTake;
}

/// Generations that nobody was told of, and in whose place a newer one waits now.
void Core::State::replace_waiting(Attempt& a) {
  if (!takes_turns(a)) return;
  const std::uint32_t newest_number = a.row.generations.back().ref.generation;
  std::erase_if(a.row.generations, [&](const GenerationRow& row) {
    const std::uint32_t number = row.ref.generation;
    const bool is_needed = row.is_committed || row.is_refused || !row.receipts.empty() ||
                           number == a.schedule.going || number == newest_number;
    const bool is_copied = std::any_of(a.copies.begin(), a.copies.end(), [&](const auto& copy) {
      return works_.at(copy.second).generation == number;
    });
    if (is_needed || is_copied) return false;
    a.is_dirty = true;
    work_node(
        Task::kGarbage,
        GuestName{a.name.job, {}},
        CollectGarbage{a.name.job, 0, false, a.name.epoch, number}
    );
    return true;
  });
}

/// A generation is safe: what it says of the guest's habits.
void Core::State::learn_saves(
    Attempt& a, const GenerationRef& before, const GenerationRef& ref, nanoseconds cpu
) {
  SaveSchedule& s = a.schedule;
  const std::int64_t since_ns = before.snapshot_boot_ns > 0 && before.epoch == ref.epoch
                                    ? before.snapshot_boot_ns
                                    : a.row.started_ns;
  s.gap_s = in_s(nanoseconds(ref.snapshot_boot_ns - since_ns));
  const auto bytes = static_cast<double>(ref.bytes);
  const auto fresh = static_cast<double>(ref.new_bytes);
  s.dirty.observe(s.gap_s, std::max(bytes, fresh), fresh, fresh);
  if (const double taking_s = std::min(in_s(cpu), kMostTaking_s); taking_s > 0)
    s.taking_s = s.taking_s > 0 ? 0.8 * s.taking_s + 0.2 * taking_s : taking_s;
  if (s.tells_unheard > 0 && s.told_at && a.snapshot_at && *a.snapshot_at > *s.told_at) {
    const double pause_s = in_s(*a.snapshot_at - *s.told_at);
    s.pause_s = s.is_pause_measured ? (s.pause_s + pause_s) / 2 : pause_s;
    s.is_pause_measured = true;
  }
  s.tells_unheard = 0;
  s.tell_after = now_.boot + kTellRest;
  if (!s.is_planned) return s.clock.snapshot_taken();  // it goes at once
  const bool is_ahead = std::any_of(a.copies.begin(), a.copies.end(), [&](const auto& copy) {
    return works_.at(copy.second).generation == ref.generation;
  });
  if (is_ahead) let_go(a, a.row.generations.back());
  replace_waiting(a);
}

/// What a copy that arrived says of the uplink, and of what copies cost.
void Core::State::learn_copy(
    const Attempt& a, const PendingWork& pending, const GenerationCopied& copied
) {
  sending_.observe(static_cast<double>(copied.bytes), in_s(copied.cpu));
  const bool is_known = std::any_of(
      a.row.generations.begin(),
      a.row.generations.end(),
      [&](const GenerationRow& row) { return row.ref.generation == pending.generation; }
  );
  const double took_s = in_s(now_.boot - pending.started_at);
  const auto bytes = static_cast<double>(copied.bytes);  // a new holder lacks more than is new
  if (!is_known || bytes < reclaim::CopyCost::kTellingBytes || took_s <= 0) return;
  const double rate = bytes / took_s;
  const double ahead_s = pending.was_ahead ? in_s(pending.released_at - pending.started_at) : 0;
  const double known = uplink_bytes_per_s_ > 0 ? uplink_bytes_per_s_ : kAssumedUplink;
  if (took_s < kTheLines * ahead_s) {
    // It went as its chunks were made: the line carries so much at least.
    if (rate > known) uplink_bytes_per_s_ = rate;
    return;
  }
  uplink_bytes_per_s_ = uplink_bytes_per_s_ > 0 ? 0.7 * uplink_bytes_per_s_ + 0.3 * rate : rate;
}

// ---- in words

/// Of its processor time, for each gibibyte; empty while it is assumed.
std::string Core::State::cost_words(const Attempt& a) const {
  if (!sending_.is_measured()) return "";
  constexpr double kGib = 1 << 30;
  const double core_s = copy_cores(a) / uplink_rate() * kGib;
  const std::string number = core_s < 10 ? std::to_string(std::llround(core_s * 10) / 10) + "." +
                                               std::to_string(std::llround(core_s * 10) % 10)
                                         : std::to_string(std::llround(core_s));
  return ", at " + number + " s of a core for each GiB";
}

/// For `reclaim why`; empty where each save goes at once.
std::string Core::State::saving_words(const Attempt& a) const {
  const SaveSchedule& s = a.schedule;
  if (!s.is_planned || !plans_saves(a) || !(s.interval_s > 0)) return "";
  const double exposed_s = in_s(exposed_work(a).exposed(now_.boot));
  std::string text = "what it saves goes elsewhere every " + rough_duration(s.interval_s) +
                     ", for an owner who comes back every " + rough_duration(1 / s.owner_hazard);
  if (s.hazard < kMostly * s.owner_hazard)
    text += " (too soon for a last copy every " + rough_duration(1 / s.hazard) + ")";
  text += cost_words(a);
  text += "; " + rough_duration(exposed_s) + " of its work are nowhere else";
  if (s.going != 0)
    text += "; generation " + std::to_string(s.going) +
            (turn_ == a.name ? " is on its way" : " waits for another one on the uplink");
  const GenerationRow* const last = a.row.generations.empty() ? nullptr : &a.row.generations.back();
  if (last == nullptr || last->is_committed || last->is_refused) return text;
  if (last->ref.generation == s.going) return text;
  text += "; generation " + std::to_string(last->ref.generation) +
          " waits: " + std::string(to_string(s.answer));
  if (s.answer == reclaim::SnapshotAnswer::kNotDue)
    text += " (in " + rough_duration((1 - s.clock.phase) * s.interval_s) + ")";
  return text;
}

}  // namespace rn::agent
