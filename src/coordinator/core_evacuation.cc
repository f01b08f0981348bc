// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_evacuation.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/planted.h"
#include "coordinator/core_copies.h"

namespace rn::coordinator {

namespace {

using reclaim::EvacuationChoice;
using reclaim::EvacuationWay;

constexpr std::chrono::minutes kKeptAhead{15};  // of a deadline: the longest notice of a contract
constexpr std::chrono::seconds kLookedAtAgain{1};  // for who has nowhere to go
constexpr std::uint32_t kChoicesTold = 32;  // per job and reclaim: owners must not fill the history

/// Whether the node can still take what was chosen for it.
bool can_still_take(const State& state, const NodeId& id, bool as_guest) {
  const auto found = state.nodes.find(id);
  if (found == state.nodes.end()) return false;
  const NodeEntry& node = found->second;
  if (!state.is_up(node) || node.row.is_revoked || is_taken_back(state, id)) return false;
  return !as_guest || node.lending == LendingState::kOpen;
}

bool is_waiting(const JobEntry& job) {
  return job.placement.has_value() || job.row.job.state == JobState::kPlacing ||
         job.row.job.state == JobState::kQueued;
}

/// What is chosen is under way: its last generation is on the wire, or it waits for its lease.
bool is_under_way(const State& state, const JobEntry& job, const Evacuation& evacuation) {
  if (evacuation.destination.empty()) return false;
  if (is_waiting(job)) return true;
  if (evacuation.is_stranded) return false;  // nobody has been asked or sent anything yet
  const auto attempt = state.attempts.find({job.row.job.id, job.row.job.epoch});
  return attempt != state.attempts.end() &&
         attempt->second.row.attempt.state == AttemptState::kDraining;
}

/// Of one choice: why it is made, and how many it leaves out.
struct Reason {
  std::string because;
  std::size_t beyond = 0;
  bool leaves_others = false;  ///< what is on its way elsewhere is broken off
};

std::string all_causes(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : "; ") + word;
  return text;
}

State::EventData data_of(const api::EvacuationView& v) {
  return {
      {"way", v.way},
      {"destination", v.destination},
      {"holder", v.holder},
      {"bytes", std::to_string(v.bytes)},
      {"rate_q10", decimal(v.rate_q10, 0)},
      {"arrives_s", decimal(v.arrives_s, 1)},
      {"notice_s", decimal(v.notice_s, 1)},
      {"chance", decimal(v.chance, 3)},
      {"downtime_s", decimal(v.downtime_s, 1)},
      {"stay_s", decimal(v.stay_s, 0)},
      {"speed", decimal(v.speed, 2)},
      {"group_risk", decimal(v.group_risk, 3)},
      {"utility", decimal(v.utility, 0)},
      {"regret", decimal(v.regret, 0)},
      {"next_best", v.next_best},
      {"together", std::to_string(v.together)},
      {"trust", decimal(v.trust, 2)},
      {"because", v.because}};
}

api::EvacuationView view_of_choice(
    const EvacuationInputs& in, std::size_t j, const EvacuationChoice& c, std::string because
) {
  api::EvacuationView v;
  v.way = std::string(to_string(c.way));
  if (c.destination) v.destination = in.nodes[*c.destination].str();
  if (c.holder) v.holder = in.nodes[*c.holder].str();
  v.bytes = static_cast<std::uint64_t>(std::max(0.0, c.bytes));
  v.rate_q10 = std::isfinite(c.rate) ? c.rate : 0;
  v.arrives_s = c.arrives_s;
  v.notice_s = in.jobs[j].notice_s;
  v.chance = c.chance;
  v.downtime_s = c.downtime_s;
  v.stay_s = c.stay_s;
  v.speed = c.speed;
  v.group_risk = c.group_risk;
  v.utility = c.utility;
  v.regret = c.regret;
  v.next_best = c.next_best;
  v.together = static_cast<std::uint32_t>(in.jobs.size());
  v.trust = in.policy.trust;
  v.because = std::move(because);
  v.sentence = c.sentence;
  return v;
}

/// Told at once: the next heartbeat may be most of the notice away.
void push_plan(State& state, JobEntry& job, bool leaves_others) {
  AttemptEntry* attempt = state.newest_attempt(job);
  if (attempt == nullptr || !attempt->is_live() || !attempt->is_granted) return;
  NodeEntry* node = state.find_node(attempt->row.attempt.node);
  if (node == nullptr || node->connection == 0) return;
  attempt->plan_made = Instant{};
  refresh_plan(state, job, *attempt);
  wire::HeartbeatAck ack;
  ack.clock_offset_ms = node->clock_offset_ms;
  if (!attempt->plan.job.empty()) {
    ack.plans.push_back(attempt->plan);
    ack.plans.back().leaves_others = leaves_others;
  }
  const JobId& id = job.row.job.id;
  const LeaseEpoch epoch = attempt->row.attempt.epoch;
  if (state.is_current(id, epoch))
    ack.verdicts.push_back(
        {.job = id,
         .epoch = epoch,
         .is_current = true,
         .departure = departure_of(state, id, node->row.node)}
    );
  if (ack.plans.empty() && ack.verdicts.empty()) return;
  state.send(*node, std::move(ack));
}

/// Until when its place is kept. Of who has nowhere to go: until when one is looked for.
Instant kept_until(const State& state, const JobEntry& job, const Evacuation& e) {
  const nanoseconds drain = milliseconds(state.config.drain_wait_ms);
  if (job.row.job.state == JobState::kStarting) return state.now.boot + drain;
  if (job.row.job.state != JobState::kQueued)
    return std::min(e.deadline, e.first_chosen_at + nanoseconds(kKeptAhead)) + drain;
  return (e.destination.empty() ? e.waits_since : state.now.boot) + drain;
}

void apply_choice(
    State& state,
    const EvacuationInputs& in,
    std::size_t j,
    const EvacuationChoice& choice,
    const Reason& reason
) {
  JobEntry& job = *state.find_job(in.ids[j]);
  Evacuation& e = state.evacuations.at(in.ids[j]);
  api::EvacuationView view = view_of_choice(in, j, choice, reason.because);
  // Where a member goes on is chosen for all of its gang together.
  if (job.row.job.gang) view.destination.clear();
  const bool goes_elsewhere = e.view.way != view.way || e.view.destination != view.destination;
  const bool is_other = goes_elsewhere || e.view.holder != view.holder;
  // Who stays for hours may have many a store in sight: that is no news.
  const bool is_news =
      goes_elsewhere || (is_other && !(in.jobs[j].may_stay && view.destination.empty()));
  if (is_other) ++state.metrics.choices.at(static_cast<std::size_t>(choice.way));
  const bool had_place = !e.view.destination.empty();
  e.destination = NodeId(view.destination);
  // Of a stranded job it is who has its state, and what is saved where it stays needs no copy
  // there.
  const bool is_copied = !in.jobs[j].is_stranded && view.holder != e.source.str();
  e.holder = is_copied ? NodeId(view.holder) : NodeId();
  if (!had_place) e.first_chosen_at = state.now.boot;
  e.chosen_at = state.now.boot;
  e.kept_until = kept_until(state, job, e);
  e.view = std::move(view);
  if (is_news && e.told < kChoicesTold) {
    ++e.told;
    State::EventData data = data_of(e.view);
    data["beyond"] = std::to_string(reason.beyond);
    data["tries"] = std::to_string(e.tries);
    state.note(job, "evacuation.chosen", e.view.sentence, std::move(data));
  }
  // Where an older copy holds the last one up, it is broken off although the choice is the same.
  if (!in.jobs[j].is_stranded && (is_other || reason.leaves_others))
    push_plan(state, job, reason.leaves_others);
}

/// Who its last save is promised to arrive at in time; empty: nobody.
NodeId promised_holder(const State& state, const JobId& id, const Evacuation& e) {
  const LeaseEpoch epoch = state.jobs.at(id).row.job.epoch;
  const auto& promises = state.transfers.promises;
  const auto at = promises.lower_bound(TransferKey(e.source, id, epoch, NodeId()));
  if (at == promises.end()) return {};
  const auto& [sender, job, of, peer] = at->first;
  return sender == e.source && job == id && of == epoch ? peer : NodeId();
}

/// What is promised holds, whatever was guessed of its size and room before.
void keep_promise(
    const State& state, const EvacuationInputs& in, std::size_t j, EvacuationChoice& c
) {
  if (in.jobs[j].is_stranded || c.destination) return;
  const Evacuation& e = state.evacuations.at(in.ids[j]);
  const NodeId peer = promised_holder(state, in.ids[j], e);
  const auto at = std::lower_bound(in.nodes.begin(), in.nodes.end(), peer);
  if (peer.empty() || at == in.nodes.end() || *at != peer) return;
  c.way = EvacuationWay::kStore;
  c.holder = static_cast<std::size_t>(at - in.nodes.begin());
  c.chance = 1;
  c.sentence =
      "what it saved last arrives in time at " + state.name_of(peer) + "; nobody can take it now";
}

std::optional<std::size_t> index_of(const EvacuationInputs& in, const NodeId& node) {
  const auto at = std::lower_bound(in.nodes.begin(), in.nodes.end(), node);
  if (node.empty() || at == in.nodes.end() || *at != node) return std::nullopt;
  return static_cast<std::size_t>(at - in.nodes.begin());
}

/// Of a study that says where it goes.
void go_as_given(
    const State& state, const EvacuationInputs& in, std::size_t j, EvacuationChoice& c
) {
  const Study& study = state.config.study;
  if (!study.given_destination) return;
  const auto destination = index_of(in, study.given_destination(in.ids[j]));
  if (!destination) return;
  c.destination = destination;
  c.way = EvacuationWay::kDestination;
  c.sentence = "goes to " + state.name_of(in.nodes[*destination]) + ", as the study says";
  if (in.jobs[j].is_stranded) return;
  const auto holder =
      study.given_holder ? index_of(in, study.given_holder(in.ids[j])) : destination;
  c.holder = holder ? holder : destination;
  if (c.holder != destination) c.way = EvacuationWay::kDelta;
}

/// Of a study: who comes first takes the best place, and what others need counts for nothing.
std::vector<EvacuationChoice> choose_one_by_one(const EvacuationInputs& in) {
  reclaim::EvacuationSite site = in.site;
  std::vector<EvacuationChoice> choices;
  for (const reclaim::EvacuatingJob& job : in.jobs) {
    choices.push_back(reclaim::choose_evacuation(site, {job}, in.policy).front());
    if (!choices.back().destination) continue;
    reclaim::Slots& free = site.nodes[*choices.back().destination].free;
    free.guests -= std::max(job.needs.guests, 1U);
    free.gpus -= job.needs.gpus;
    free.cpu_milli -= job.needs.cpu_milli;
    free.memory_mib -= job.needs.memory_mib;
  }
  return choices;
}

std::vector<EvacuationChoice> choose_together(const EvacuationInputs& in) {
  const bool is_alone =
      planted("coordinator.chooses_alone_after_losses") &&
      std::any_of(in.jobs.begin(), in.jobs.end(), [](const auto& job) { return job.is_stranded; });
  if (!planted("coordinator.promises_places_twice") && !is_alone)
    return reclaim::choose_evacuation(in.site, in.jobs, in.policy);
  std::vector<EvacuationChoice> each;
  for (const reclaim::EvacuatingJob& job : in.jobs)
    each.push_back(reclaim::choose_evacuation(in.site, {job}, in.policy).front());
  return each;
}

/// It waits, and its destination does not take it. True if that is enough.
bool turn_down(Evacuation& e) {
  e.refused_guest.insert(e.destination);
  e.destination = NodeId();
  return ++e.tries >= kTriesAtMost;
}

void give_up(State& state, const JobId& id) {
  const Evacuation& e = state.evacuations.at(id);
  std::string names;
  for (const NodeId& node : e.refused_guest)
    names += (names.empty() ? "" : ", ") + state.name_of(node);
  state.note(
      *state.find_job(id),
      "evacuation.given_up",
      std::to_string(e.tries) + " nodes did not take it (" + names.substr(0, 500) +
          "): it is placed as any other",
      {{"tries", std::to_string(e.tries)}}
  );
  state.evacuations.erase(id);
  state.is_dispatch_wanted = true;
}

/// Drops what is over, and destinations that can take nobody any more. Returns those that a choice
/// is wanted for, the heaviest first.
std::vector<JobId> evacuees(State& state) {
  std::vector<JobId> result;
  std::vector<JobId> over;
  std::vector<JobId> given_up;
  for (auto& [id, e] : state.evacuations) {
    const JobEntry* job = state.find_job(id);
    if (job == nullptr || is_terminal(job->row.job.state)) {
      over.push_back(id);
      continue;
    }
    if (!e.destination.empty() && !can_still_take(state, e.destination, true) &&
        !planted("coordinator.sends_to_taken_nodes")) {
      if (is_waiting(*job) && turn_down(e)) {
        given_up.push_back(id);
        continue;
      }
      e.destination = NodeId();
    }
    if (!e.holder.empty() && !can_still_take(state, e.holder, false))
      e.holder = e.destination = NodeId();
    if (is_under_way(state, *job, e)) continue;
    if (state.is_in_grace() && (e.is_stranded || is_waiting(*job))) {
      state.is_choice_put_off = true;  // hardly anybody is back yet who could take it
      continue;
    }
    result.push_back(id);
  }
  for (const JobId& id : over) state.evacuations.erase(id);
  for (const JobId& id : given_up) give_up(state, id);
  std::stable_sort(result.begin(), result.end(), [&](const JobId& a, const JobId& b) {
    return state.jobs.at(a).row.job.spec.resources.gpus >
           state.jobs.at(b).row.job.spec.resources.gpus;
  });
  return result;
}

/// More than can be chosen for at once: who waits is placed as always, who still computes is chosen
/// for when it waits. Returns how many.
std::size_t leave_out(State& state, std::vector<JobId>& jobs) {
  std::vector<JobId> chosen;
  std::vector<JobId> beyond;
  std::size_t copied = 0;
  for (const JobId& id : jobs) {
    const bool is_copied = !state.evacuations.at(id).is_stranded && !is_waiting(state.jobs.at(id));
    const bool is_one = chosen.size() < kPlannedAtOnce && (!is_copied || copied < kCopiedAtOnce);
    (is_one ? chosen : beyond).push_back(id);
    if (is_one && is_copied) ++copied;
  }
  jobs = std::move(chosen);
  for (const JobId& id : beyond) {
    Evacuation& e = state.evacuations.at(id);
    JobEntry& job = *state.find_job(id);
    if (!std::exchange(e.is_beyond, true))
      state.note(
          job,
          "evacuation.not_chosen",
          std::to_string(jobs.size() + beyond.size()) + " jobs have to go at once, and " +
              std::to_string(jobs.size()) + " are chosen for: it is placed as always",
          {{"together", std::to_string(jobs.size())}, {"beyond", std::to_string(beyond.size())}}
      );
    if (is_waiting(job)) state.evacuations.erase(id);
  }
  return beyond.size();
}

/// The lines from its node carry what they have left, for certain; what is new is as large as the
/// copy under way has shown. False if that is none that can be weighed.
bool take_what_is_left(EvacuationInputs& in, const Evacuation& e, const CopyShortage& shortage) {
  constexpr double kBeginning_s = 0.5;  // until the first byte of another copy leaves
  reclaim::EvacuatingJob& job = in.jobs.front();
  const auto peer = std::lower_bound(in.nodes.begin(), in.nodes.end(), shortage.peer);
  if (job.is_stranded || peer == in.nodes.end() || *peer != shortage.peer) return false;
  const double guess = in.deltas.front();
  const auto lacks = [guess](const reclaim::EvacuationOption& option) {
    return std::max(option.bytes - guess, 0.0);
  };
  const auto tried = static_cast<std::size_t>(peer - in.nodes.begin());
  const double fresh = shortage.bytes - lacks(job.options[tried]);
  const double least = std::min(shortage.bytes, guess);
  std::vector<std::vector<std::uint32_t>> ways(in.nodes.size());
  for (std::size_t n = 0; n < in.nodes.size(); ++n) {
    reclaim::EvacuationOption& option = job.options[n];
    if (n == job.source) continue;
    option.bytes = std::max(lacks(option) + fresh, least);
    if (n == tried || e.too_late.contains(in.nodes[n])) option.can_store = false;
    const double rate = shortage.rate_to(in.nodes[n]);
    ways[n] = in.site.path(job.source, n);
    if (!std::isfinite(rate)) continue;
    ways[n] = {static_cast<std::uint32_t>(in.site.links.size())};
    in.site.links.push_back({.q10 = rate, .median = rate});
  }
  job.save_s = kBeginning_s;
  job.notice_s = shortage.left_s;
  in.site.path = [source = job.source, ways = std::move(ways), other = std::move(in.site.path)](
                     std::size_t from, std::size_t to
                 ) { return from == source ? ways[to] : other(from, to); };
  return true;
}

/// A place may be free: who stays where it is for want of one is asked before the queue is.
void look_before_strangers(State& state) {
  if (!state.is_dispatch_wanted || state.queued.empty()) return;
  for (const auto& [id, e] : state.evacuations) {
    const JobEntry* const job = state.find_job(id);
    if (job != nullptr && job->row.job.gang) continue;
    const bool has_nowhere = !e.is_stranded && e.destination.empty() && !e.view.way.empty();
    if (!has_nowhere || state.now.boot - e.chosen_at < kLookedAtAgain) continue;
    want_choice(state, "a place may have become free");
    return;
  }
}

}  // namespace

void note_turned_down(State& state, const JobId& job, const NodeId& node, const std::string& why) {
  const auto found = state.evacuations.find(job);
  if (found == state.evacuations.end() || found->second.destination != node) return;
  if (turn_down(found->second)) return give_up(state, job);
  want_choice(state, state.name_of(node) + " does not take it: " + why.substr(0, 120));
}

void note_copies_refused(State& state, const JobId& job, const std::vector<NodeId>& tried) {
  const auto found = state.evacuations.find(job);
  if (found == state.evacuations.end()) return;
  Evacuation& e = found->second;
  if (std::find(tried.begin(), tried.end(), e.holder) == tried.end()) return;
  for (const NodeId& node : tried) {
    if (state.find_node(node) != nullptr) e.refused_copy.insert(node);
  }
  // Its place there is of use only with the state beside it, or near: chosen anew.
  want_choice(state, state.name_of(e.holder) + " takes no copy");
  e.holder = NodeId();
  e.destination = NodeId();
}

void note_held(State& state, const JobId& job, const GenerationRow& row) {
  const auto found = state.evacuations.find(job);
  if (found == state.evacuations.end() || found->second.holder.empty()) return;
  Evacuation& e = found->second;
  const bool is_there =
      std::any_of(row.receipts.begin(), row.receipts.end(), [&](const Receipt& r) {
        return r.holder == e.holder;
      });
  if (is_there || row.receipts.empty()) return;
  want_choice(state, "its state went to " + state.name_of(row.receipts.front().holder));
  e.destination = NodeId();
}

std::optional<CopyElsewhere> choose_by_what_is_left(
    State& state, const JobId& job, const CopyShortage& shortage
) {
  if (state.config.study.given_destination) return std::nullopt;
  Evacuation& e = state.evacuations.at(job);
  EvacuationInputs in = evacuation_inputs(state, {job}, state.evacuations);
  if (!take_what_is_left(in, e, shortage)) return std::nullopt;
  const EvacuationChoice choice = reclaim::choose_evacuation(in.site, in.jobs, in.policy).front();
  const bool arrives = choice.holder && choice.way != EvacuationWay::kLastDurable;
  if (!arrives || *choice.holder == in.jobs.front().source) return std::nullopt;
  ++e.moves;
  e.too_late.insert(shortage.peer);
  const Reason reason{
      .because = "its copy to " + state.name_of(shortage.peer) + " is not promised",
      .leaves_others = true};
  apply_choice(state, in, 0, choice, reason);
  state.is_dispatch_wanted = true;
  return CopyElsewhere{in.nodes[*choice.holder], choice.bytes};
}

void end_evacuation(State& state, const JobId& job) {
  state.evacuations.erase(job);
}

void look_at_evacuations(State& state) {
  if (state.evacuations.empty()) return;
  const bool is_due = state.now.boot - state.evacuations_looked_at >= state.heartbeat() / 4;
  if (!is_due) return;
  state.evacuations_looked_at = state.now.boot;
  std::vector<JobId> over;
  for (auto& [id, e] : state.evacuations) {
    const JobEntry* job = state.find_job(id);
    if (job == nullptr || is_terminal(job->row.job.state)) {
      over.push_back(id);
      continue;
    }
    const bool is_late = state.now.boot >= e.kept_until && !e.view.way.empty();
    if (is_late && (job->row.job.state == JobState::kQueued ||
                    state.now.boot >= e.deadline + nanoseconds(kKeptAhead))) {
      over.push_back(id);
      continue;
    }
    const bool has_nowhere = e.destination.empty() && !e.view.way.empty();
    if (!e.destination.empty() && !can_still_take(state, e.destination, true)) {
      want_choice(state, state.name_of(e.destination) + " can take nobody any more");
    } else if (!e.holder.empty() && !can_still_take(state, e.holder, false)) {
      want_choice(state, state.name_of(e.holder) + " can keep nothing any more");
    } else if (has_nowhere && state.now.boot - e.chosen_at >= state.heartbeat()) {
      want_choice(state, "nobody could take it");
    }
  }
  for (const JobId& id : over) state.evacuations.erase(id);
}

void settle_evacuations(State& state) {
  if (state.is_choice_put_off && !state.is_in_grace()) {
    state.is_choice_put_off = false;
    want_choice(state, "the coordinator has started again");
  }
  look_before_strangers(state);
  if (state.evacuation_causes.empty()) return;
  Reason reason{.because = all_causes(std::exchange(state.evacuation_causes, {}))};
  std::vector<JobId> jobs = evacuees(state);
  reason.beyond = leave_out(state, jobs);
  if (jobs.empty()) return;
  if (reason.beyond > 0)
    reason.because += "; " + std::to_string(reason.beyond) + " more are placed as always";
  const EvacuationInputs in = evacuation_inputs(state, jobs, state.evacuations);
  auto choices = state.config.study.chooses_alone ? choose_one_by_one(in) : choose_together(in);
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    keep_promise(state, in, j, choices[j]);
    go_as_given(state, in, j, choices[j]);
  }
  for (std::size_t j = 0; j < jobs.size(); ++j) apply_choice(state, in, j, choices[j], reason);
  state.is_dispatch_wanted = true;
}

Departure departure_of(const State& state, const JobId& job, const NodeId& from) {
  const auto found = state.evacuations.find(job);
  if (found == state.evacuations.end()) return Departure::kUntold;
  const Evacuation& e = found->second;
  if (e.source != from || e.is_stranded || e.view.way.empty()) return Departure::kUntold;
  return e.destination.empty() ? Departure::kStays : Departure::kGoes;
}

NodeId kept_destination(const State& state, const JobId& job) {
  const auto found = state.evacuations.find(job);
  if (found == state.evacuations.end() || state.now.boot >= found->second.kept_until) return {};
  return found->second.destination;
}

NodeId directed_holder(const State& state, const JobId& job) {
  const auto found = state.evacuations.find(job);
  return found == state.evacuations.end() ? NodeId() : found->second.holder;
}

void learn_trust(State& state, const NodeId& departed) {
  std::vector<double> rates;
  std::size_t who = 0;
  bool is_among = false;
  for (const auto& [id, node] : state.nodes) {
    const auto* known = state.hazard.find_node(id);
    if (known == nullptr || !known->is_lent) continue;
    if (id == departed) {
      who = rates.size();
      is_among = true;
    }
    rates.push_back(node.departures_per_day);
  }
  if (is_among) state.trust.departed(rates, who);
}

}  // namespace rn::coordinator
