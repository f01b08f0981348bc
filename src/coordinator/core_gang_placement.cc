// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_gang_placement.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/planted.h"
#include "coordinator/core_copies.h"
#include "coordinator/core_holders.h"
#include "coordinator/core_placement.h"
#include "coordinator/core_topology.h"

namespace rn::coordinator {

namespace {

constexpr std::chrono::seconds kNextRound{5};
constexpr std::chrono::seconds kSeatRefusedFor{5};
constexpr std::chrono::seconds kSeatSilentFor{10};
constexpr std::chrono::seconds kHoldLeft{1};  ///< that every hold must have when all are committed

JobEntry& member_of(State& state, const GangEntry& gang, std::size_t rank) {
  return *state.find_job(gang.row.members[rank]);
}

/// At which switch each of them hangs; empty if no network is declared.
std::vector<std::string> switches_of(
    const State& state, const std::vector<sched::Candidate>& candidates
) {
  std::vector<std::string> names;
  if (state.config.topology.switches() == 0) return names;
  for (const sched::Candidate& c : candidates) {
    const auto place = place_of(state, state.nodes.at(c.node));
    const auto above =
        place ? state.config.topology.switches_above(*place) : std::vector<std::string>();
    names.push_back(above.empty() ? "" : above.front());
  }
  return names;
}

const GangEntry* gang_in_round(const State& state) {
  for (const GangId& id : state.open_gangs) {
    const GangEntry& gang = state.gangs.at(id);
    if (gang.round) return &gang;
  }
  return nullptr;
}

bool may_have_kept(const State& state, const GangEntry& gang) {
  return gang.row.is_displaced || is_gathered(state, gang);
}

/// Without nodes that refused it a moment ago.
void leave_out_refused(
    const State& state, const GangEntry& gang, std::vector<sched::Candidate>& candidates
) {
  const JobEntry& first = state.jobs.at(gang.row.members.front());
  std::erase_if(candidates, [&](const sched::Candidate& c) {
    return !is_askable(state, first, c.node);
  });
}

bool is_paused(const State& state, const GangEntry& gang) {
  // A wall clock that jumped back must not hold it for longer than the longest pause.
  const std::int64_t until = gang.row.not_before_wall_ms;
  return state.now.boot < gang.not_before ||
         (until > state.wall_ms() && until <= state.wall_ms() + state.config.backoff_max_ms);
}

void say_waits(State& state, GangEntry& gang, std::string words) {
  gang.waits_for = std::move(words);
  for (const JobId& id : gang.row.members)
    state.find_job(id)->row.job.reason = "waits: " + gang.waits_for;
}

/// Where a quota keeps the first such member from, beside the members before it and their places,
/// of which it is barred only from its own. Empty: it keeps nobody from its place.
std::set<NodeId> barred_places(
    const State& state,
    const GangEntry& gang,
    const std::vector<sched::Candidate>& candidates,
    const sched::GangChoice& choice,
    QuotaBook book,
    std::string& words
) {
  std::set<NodeId> taken;
  for (std::size_t rank = 0; rank < choice.seats.size(); ++rank) {
    const JobEntry& member = state.jobs.at(gang.row.members[rank]);
    const NodeId& node = candidates[choice.seats[rank].index].node;
    words = book.barred(member, state.nodes.at(node).row);
    if (words.empty()) {
      book.take_at(member, node);
      taken.insert(node);
      continue;
    }
    std::set<NodeId> barred = {node};
    for (const sched::Candidate& c : candidates) {
      const bool is_free = !taken.contains(c.node);
      if (is_free && !book.barred(member, state.nodes.at(c.node).row).empty())
        barred.insert(c.node);
    }
    return barred;
  }
  return {};
}

/// Of `candidates`, from which it takes those that are barred; `barred` says why.
std::optional<sched::GangChoice> choose(
    const State& state,
    const GangEntry& gang,
    const sched::GangDemand& demand,
    std::vector<sched::Candidate>& candidates,
    const QuotaBook& quotas,
    std::string& barred
) {
  while (true) {
    auto choice = sched::choose_gang(demand, candidates, switches_of(state, candidates));
    if (!choice) return std::nullopt;
    std::string words;
    const std::set<NodeId> places = barred_places(state, gang, candidates, *choice, quotas, words);
    if (places.empty()) return choice;
    barred = std::move(words);
    std::erase_if(candidates, [&](const sched::Candidate& c) { return places.contains(c.node); });
  }
}

Asked seat_at(
    const sched::GangDemand& demand, const sched::Candidate& c, const sched::Ranked& ranked
) {
  Asked asked;
  asked.node = c.node;
  asked.score = ranked.score;
  asked.cpu_milli = ranked.cpu_milli;
  asked.because = sched::because(demand.member, c, ranked) + ", one of " +
                  std::to_string(demand.size) + " together";
  return asked;
}

void begin_round(
    State& state,
    GangEntry& gang,
    const sched::GangDemand& demand,
    const sched::GangChoice& choice,
    const std::vector<sched::Candidate>& candidates
) {
  gang.round.emplace();
  gang.round->began = state.now.boot;
  for (std::size_t rank = 0; rank < choice.seats.size(); ++rank) {
    const sched::GangSeat& seat = choice.seats[rank];
    const sched::Candidate& c = candidates[seat.index];
    const sched::Ranked ranked = sched::score(demand.member, c, seat.index, seat.cpu_milli);
    Asked asked = seat_at(demand, c, ranked);
    send_probe(state, member_of(state, gang, rank), *state.find_node(c.node), asked, kGangHold);
    gang.round->seats.push_back(std::move(asked));
  }
  say_waits(state, gang, "asks " + std::to_string(demand.size) + " nodes together");
}

/// What it asked for is free again.
void end_round(State& state, GangEntry& gang) {
  for (const Asked& seat : gang.round->seats) {
    if (seat.phase == Asked::Phase::kOver) continue;
    // One whose hold is being renewed waits, and has the hold.
    cancel_hold(state, seat);
    close_probe(state, seat);
  }
  gang.round.reset();
  state.is_dispatch_wanted = true;
}

void give_round_up(State& state, GangEntry& gang, const std::string& words) {
  end_round(state, gang);
  gang.not_before = state.now.boot + nanoseconds(kNextRound);
  if (gang.vain_since == Instant{}) gang.vain_since = state.now.boot;
  say_waits(state, gang, words);
}

/// The next best node, which nobody else of the gang was asked for; empty if there is none.
NodeId ask_another(State& state, GangEntry& gang, std::size_t rank) {
  const sched::GangDemand demand = demand_of(state, gang);
  std::vector<sched::Candidate> candidates = candidates_of(state, may_have_kept(state, gang));
  leave_out_refused(state, gang, candidates);
  if (demand.is_spread)
    std::erase_if(candidates, [&](const sched::Candidate& c) {
      const auto& seats = gang.round->seats;
      return std::any_of(seats.begin(), seats.end(), [&](const Asked& seat) {
        return seat.phase != Asked::Phase::kOver && seat.node == c.node;
      });
    });
  const QuotaBook quotas(state);
  JobEntry& member = member_of(state, gang, rank);
  for (const sched::Ranked& ranked : sched::rank(demand.member, candidates)) {
    const sched::Candidate& c = candidates[ranked.index];
    if (!quotas.barred(member, state.nodes.at(c.node).row).empty()) continue;
    Asked asked = seat_at(demand, c, ranked);
    send_probe(state, member, *state.find_node(c.node), asked, kGangHold);
    gang.round->seats[rank] = std::move(asked);
    return c.node;
  }
  return {};
}

/// That node does not take the member: another one is asked, or the round is over.
void turn_seat_down(State& state, GangEntry& gang, std::size_t rank, Refusal refusal) {
  Asked& seat = gang.round->seats[rank];
  const NodeId node = seat.node;
  cancel_hold(state, seat);
  close_probe(state, seat);
  seat.phase = Asked::Phase::kOver;
  const std::string words = state.name_of(node) + ": " + refusal.reason;
  member_of(state, gang, 0).refusals[node] = std::move(refusal);
  const std::string who = "no place for member " + std::to_string(rank) + ", " + words;
  const bool is_too_long = gang.round->replaced >= kGangReplacements ||
                           state.now.boot - gang.round->began >= nanoseconds(kGangRoundMost);
  if (is_too_long) return give_round_up(state, gang, who);
  ++gang.round->replaced;
  if (ask_another(state, gang, rank).empty()) give_round_up(state, gang, who);
}

/// Epoch issue, for all: no state has attempts of some members alone.
void commit_gang(State& state, GangEntry& gang) {
  const GangRound round = *std::exchange(gang.round, std::nullopt);
  GangRow& row = gang.row;
  std::uint32_t last = 0;
  for (const JobId& id : row.members)
    last = std::max(last, state.jobs.at(id).row.job.epoch.attempt);
  row.epoch = {state.generation, last + 1};
  row.is_go = row.is_displaced = false;
  row.cause = {};
  row.stop_end = AttemptEnd::kNone;
  row.stop_saves_first = false;
  row.stop_deadline_ms = 0;
  row.stopped_wall_ms = row.not_before_wall_ms = 0;
  gang.vain_since = gang.not_before = Instant{};
  gang.waits_for.clear();
  if (is_gathered(state, gang)) state.gathering.reset();
  state.move(gang, GangState::kPreparing);
  for (const Asked& seat : round.seats) close_probe(state, seat);
  for (std::size_t rank = 0; rank < round.seats.size(); ++rank) {
    if (planted("coordinator.commits_half_a_gang") && rank + 1 == round.seats.size()) break;
    const Asked& seat = round.seats[rank];
    const double stays = sched::survival(state.nodes.at(seat.node).outlook, 3600);
    issue(state, member_of(state, gang, rank), seat, row.epoch, stays < kVolatileSurvival);
  }
  state.note(
      member_of(state, gang, 0),
      "gang.preparing",
      "all " + std::to_string(row.size) + " members of gang " + row.id.str() + " have a place",
      {{"gang", row.id.str()}, {"epoch", to_string(row.epoch)}}
  );
}

/// The same node is asked again, which renews its hold.
void renew(State& state, GangEntry& gang, std::size_t rank) {
  Asked& seat = gang.round->seats[rank];
  close_probe(state, seat);
  seat.phase = Asked::Phase::kWaiting;
  send_probe(state, member_of(state, gang, rank), *state.find_node(seat.node), seat, kGangHold);
}

bool is_ending(const State& state, const Asked& seat) {
  return seat.hold_until - state.now.boot < nanoseconds(kHoldLeft);
}

void settle_round(State& state, GangEntry& gang) {
  if (!gang.round) return;
  const std::vector<Asked>& seats = gang.round->seats;
  const bool have_all = std::all_of(seats.begin(), seats.end(), [](const Asked& seat) {
    return seat.phase == Asked::Phase::kOffered;
  });
  if (!have_all) return;
  const bool are_long = std::none_of(seats.begin(), seats.end(), [&](const Asked& seat) {
    return is_ending(state, seat);
  });
  if (are_long) commit_gang(state, gang);
}

void look_at_round(State& state, GangEntry& gang) {
  if (state.now.boot - gang.round->began >= nanoseconds(kGangRoundMost))
    return give_round_up(state, gang, "not all of the nodes that were asked answered in time");
  for (std::size_t rank = 0; gang.round && rank < gang.round->seats.size(); ++rank) {
    const Asked& seat = gang.round->seats[rank];
    if (seat.phase == Asked::Phase::kOffered) {
      if (is_ending(state, seat)) renew(state, gang, rank);
      continue;
    }
    const bool is_late =
        state.now.boot - seat.asked_at >= milliseconds(state.config.probe_timeout_ms);
    if (!is_late) continue;
    ++state.metrics.probes_unanswered;
    turn_seat_down(
        state,
        gang,
        rank,
        {.reason = "did not answer", .until = state.now.boot + nanoseconds(kSeatSilentFor)}
    );
  }
}

/// Its place in the round; nullptr if it has none by this probe.
Asked* seat_by(GangEntry* gang, const ProbeId& probe) {
  if (gang == nullptr || !gang->round) return nullptr;
  for (Asked& seat : gang->round->seats) {
    if (seat.probe == probe) return &seat;
  }
  return nullptr;
}

}  // namespace

std::vector<const GangEntry*> waiting_gangs(const State& state) {
  std::vector<const GangEntry*> result;
  for (const GangId& id : state.open_gangs) {
    const GangEntry& gang = state.gangs.at(id);
    const bool waits =
        gang.row.state == GangState::kWaiting && !gang.row.members.empty() &&
        std::all_of(gang.row.members.begin(), gang.row.members.end(), [&](const JobId& member) {
          const auto job = state.jobs.find(member);
          return job != state.jobs.end() && job->second.row.job.state == JobState::kQueued &&
                 !job->second.row.is_held;
        });
    if (waits) result.push_back(&gang);
  }
  return result;
}

sched::GangDemand demand_of(const State& state, const GangEntry& gang) {
  sched::GangDemand demand;
  demand.member = demand_of(state.jobs.at(gang.row.members.front()));
  demand.member.preferred = demand.member.avoided = NodeId();
  demand.size = gang.row.size;
  demand.is_spread = gang.row.spread == GangSpread::kNode;
  for (const JobId& id : gang.row.members) {
    const JobRow& row = state.jobs.at(id).row;
    const auto attempt = state.attempts.find({id, row.job.epoch});
    demand.had.push_back(
        attempt == state.attempts.end() ? NodeId() : attempt->second.row.attempt.node
    );
    if (!row.avoid.empty()) demand.avoided.insert(row.avoid);
  }
  return demand;
}

std::string gang_obstacle(State& state, const GangEntry& gang, const QuotaBook& quotas) {
  if (!is_image_listed(state, member_of(state, gang, 0)))
    return "its image was taken off the allow list after the submit";
  QuotaBook book = quotas;
  for (std::size_t rank = 0; rank < gang.row.members.size(); ++rank) {
    JobEntry& member = member_of(state, gang, rank);
    if (!away_words(state, member).empty()) {
      hold_back(state, member);
      return "member " + std::to_string(rank) + " " + member.row.job.reason;
    }
    member.is_away_told = false;
    if (std::string held = book.held_back(member); !held.empty()) return held;
    book.take(member);
  }
  return {};
}

bool place_gang(
    State& state, GangEntry& gang, std::vector<sched::Candidate>& candidates, QuotaBook& quotas
) {
  if (gang.round || is_paused(state, gang)) return false;
  const GangEntry* other = gang_in_round(state);
  if (other != nullptr && !planted("coordinator.two_rounds")) {
    say_waits(state, gang, "gang " + other->row.id.str() + " is placed first");
    return false;
  }
  if (std::string words = gang_obstacle(state, gang, quotas); !words.empty()) {
    say_waits(state, gang, std::move(words));
    return false;
  }
  std::vector<sched::Candidate> own =
      may_have_kept(state, gang) ? candidates_of(state, true) : candidates;
  leave_out_refused(state, gang, own);
  const sched::GangDemand demand = demand_of(state, gang);
  std::string barred;
  const auto choice = choose(state, gang, demand, own, quotas, barred);
  if (!choice) {
    if (gang.vain_since == Instant{}) gang.vain_since = state.now.boot;
    if (!barred.empty()) barred += "; ";
    say_waits(state, gang, barred + gang_lacks_words(demand, own));
    return true;
  }
  begin_round(state, gang, demand, *choice, own);
  for (std::size_t rank = 0; rank < choice->seats.size(); ++rank)
    quotas.take_at(member_of(state, gang, rank), own[choice->seats[rank].index].node);
  for (sched::Candidate& c : candidates) {
    const auto is_there = [&](const Asked& seat) { return seat.node == c.node; };
    const std::vector<Asked>& seats = gang.round->seats;
    if (std::none_of(seats.begin(), seats.end(), is_there)) continue;
    c = candidate_of(state, state.nodes.at(c.node));
    count_kept(state, c);
  }
  return true;
}

void on_seat_reply(
    State& state, const JobEntry& member, NodeEntry& node, const wire::ProbeReply& reply
) {
  GangEntry* gang = state.gang_of(member);
  Asked* seat = seat_by(gang, reply.probe);
  if (seat == nullptr || seat->node != node.row.node || seat->phase != Asked::Phase::kWaiting) {
    // Twice: the same hold again is nothing new.
    const bool is_known =
        seat != nullptr && seat->node == node.row.node && seat->hold == reply.hold;
    if (!reply.hold.empty() && !is_known) state.send(node, wire::CancelHold{reply.hold});
    return;
  }
  state.probe_latency.add(state.now.boot - seat->asked_at);
  if (!reply.hold.empty()) {
    take_offer(*seat, reply);
    return settle_round(state, *gang);
  }
  ++state.metrics.probes_refused;
  const auto rank = static_cast<std::size_t>(seat - gang->round->seats.data());
  seat->hold = HoldId();  // the node has none of this job any more
  turn_seat_down(
      state,
      *gang,
      rank,
      {.reason = reply.reason.substr(0, 200),
       .is_permanent = reply.is_permanent,
       .until = state.now.boot + nanoseconds(kSeatRefusedFor)}
  );
}

void on_seat_gone(State& state, const JobEntry& member, NodeEntry& node, const ProbeId& probe) {
  GangEntry* gang = state.gang_of(member);
  Asked* seat = seat_by(gang, probe);
  state.probes.erase(probe);
  node.probes.erase(probe);
  if (seat == nullptr || seat->phase == Asked::Phase::kOver) return;
  seat->hold = HoldId();
  const auto rank = static_cast<std::size_t>(seat - gang->round->seats.data());
  turn_seat_down(
      state,
      *gang,
      rank,
      {.reason = "vanished when asked", .until = state.now.boot + nanoseconds(kSeatRefusedFor)}
  );
}

bool is_seat_wanted(
    State& state, const JobEntry& member, const NodeEntry& node, const HoldId& hold
) {
  const GangEntry* gang = state.gang_of(member);
  if (gang == nullptr || !gang->round) return false;
  const Asked& seat = gang->round->seats[member.row.job.gang->rank];
  return seat.node == node.row.node && (seat.phase == Asked::Phase::kWaiting || seat.hold == hold);
}

void look_at_gang_rounds(State& state) {
  const std::set<GangId> open = state.open_gangs;
  for (const GangId& id : open) {
    GangEntry* gang = state.find_gang(id);
    if (gang != nullptr && gang->round) look_at_round(state, *gang);
  }
}

Instant gang_rounds_wake(const State& state, Instant otherwise) {
  const GangEntry* gang = gang_in_round(state);
  if (gang == nullptr) return otherwise;
  Instant result = std::min(otherwise, gang->round->began + nanoseconds(kGangRoundMost));
  for (const Asked& seat : gang->round->seats) {
    if (seat.phase == Asked::Phase::kWaiting)
      result = std::min(result, seat.asked_at + milliseconds(state.config.probe_timeout_ms));
  }
  return result;
}

void cancel_gang_round(State& state, const JobEntry& member) {
  GangEntry* gang = state.gang_of(member);
  if (gang != nullptr && gang->round) end_round(state, *gang);
}

std::vector<wire::SharedGeneration> shares_for(
    State& state, const JobEntry& member, NodeEntry& node
) {
  std::vector<wire::SharedGeneration> shares;
  const GangEntry* gang = state.gang_of(member);
  if (gang == nullptr || gang->row.share != GangShare::kAll) return shares;
  for (std::size_t rank = 0; rank < gang->row.members.size(); ++rank) {
    const JobEntry& other = member_of(state, *gang, rank);
    const GenerationRef ref = resume_point(other).resume;
    if (rank == member.row.job.gang->rank || ref.generation == 0) continue;
    node.copies_of.insert(other.row.job.id);
    shares.push_back(
        {.rank = static_cast<std::uint32_t>(rank),
         .generation = ref,
         .resume_from = resume_grants(state, other, member.row.job.epoch, node.row.node)}
    );
  }
  return shares;
}

std::string gang_never_words(
    const sched::GangDemand& demand, const std::vector<sched::Candidate>& candidates
) {
  const std::uint32_t room = sched::room_ever(demand, candidates);
  if (room >= demand.size) return {};
  std::vector<sched::Candidate> others = candidates;
  std::erase_if(others, [&](const sched::Candidate& c) {
    return sched::room_ever_at(demand, c) > 0;
  });
  return "nodes for " + std::to_string(room) + " of its " + std::to_string(demand.size) +
         " members are there, whoever runs on them" +
         (others.empty() ? "" : "; of the others: " + sched::explain(demand.member, others));
}

std::string gang_lacks_words(
    const sched::GangDemand& demand, const std::vector<sched::Candidate>& candidates
) {
  std::vector<sched::Candidate> others = candidates;
  std::erase_if(others, [&](const sched::Candidate& c) {
    return sched::judge(demand.member, c).fit == sched::Fit::kFits;
  });
  return "there is room for " + std::to_string(sched::room_now(demand, candidates)) + " of its " +
         std::to_string(demand.size) + " members at once" +
         (others.empty() ? "" : "; of the other nodes: " + sched::explain(demand.member, others));
}

std::string why_gang_waits(const State& state, const JobEntry& member) {
  const GangPlace& place = *member.row.job.gang;
  const auto found = state.gangs.find(place.gang);
  if (found == state.gangs.end()) return member.row.job.reason;
  const GangEntry& gang = found->second;
  std::string text = "member " + std::to_string(place.rank) + " of " + std::to_string(place.size) +
                     " of gang " + place.gang.str() + ", ";
  if (gang.round) {
    const std::vector<Asked>& seats = gang.round->seats;
    const auto held = std::count_if(seats.begin(), seats.end(), [](const Asked& seat) {
      return seat.phase == Asked::Phase::kOffered;
    });
    return text + "which asks " + std::to_string(seats.size()) +
           " nodes together: " + std::to_string(held) + " hold a place for it";
  }
  if (is_paused(state, gang)) {
    text += "which is tried again in a moment: ";
  } else {
    const std::vector<JobId> order = queue_order(state);
    const auto at = std::find(order.begin(), order.end(), gang.row.members.front());
    text += "number " + std::to_string(at - order.begin() + 1) + " of " +
            std::to_string(order.size()) + " in the queue: ";
  }
  text += gang.waits_for.empty() ? member.row.job.reason : gang.waits_for;
  if (is_gathered(state, gang)) text += "; " + kept_words(state);
  return text;
}

}  // namespace rn::coordinator
