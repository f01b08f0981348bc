// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_gang_members.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "model/signing.h"

namespace rn::coordinator {

namespace {

/// An agent that was started again has broken its links, and a program may notice that late.
constexpr nanoseconds kGreetedBefore = std::chrono::minutes(10);

wire::GangPeer peer_of(
    const State& state,
    const GangEntry& gang,
    const MemberView& to,
    const NodeId& from,
    bool is_self
) {
  wire::GangPeer peer;
  peer.rank = to.rank;
  peer.job = to.job->row.job.id;
  peer.node = to.attempt->row.attempt.node;
  const auto node = state.nodes.find(peer.node);
  if (node != state.nodes.end()) peer.address = node->second.row.address.peer;
  if (is_self) return peer;
  Ticket ticket;
  ticket.job = peer.job;
  ticket.epoch = gang.row.epoch;
  ticket.from = from;
  ticket.to = peer.node;
  ticket.action = TicketAction::kLink;
  ticket.expiry_wall_ms =
      state.wall_ms() + static_cast<std::int64_t>(state.config.ticket_valid_s) * 1000;
  peer.ticket_out = signed_ticket(std::move(ticket), state.keys.ticket_key);
  return peer;
}

/// Its owner has told it to go: it waits for nobody, and no later deadline of ours may reach it.
bool leaves_by_itself(const State& state, const MemberView& member) {
  const auto found = state.evacuations.find(member.job->row.job.id);
  if (found == state.evacuations.end()) return false;
  const Evacuation& e = found->second;
  if (e.source != member.attempt->row.attempt.node || e.is_stranded) return false;
  const bool is_noticed =
      member.attempt->row.attempt.state >= AttemptState::kNoticed && !member.known->is_stop_told;
  return !e.is_announced || is_noticed;
}

std::uint32_t left_ms(const State& state, const GangLife& life) {
  const auto left = std::chrono::duration_cast<milliseconds>(life.stop_until - state.now.boot);
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(left.count(), 0, 86'400'000));
}

void send_stop_to(State& state, const GangEntry& gang, const GangLife& life, MemberView& member) {
  const bool saves = gang.row.stop_saves_first;
  member.known->is_stop_told = true;
  member.job->stop_sent = state.now.boot;
  const bool is_asked = gang.row.stop_end != AttemptEnd::kNone;
  state.send(
      member.attempt->row.attempt.node,
      wire::StopAttempt{
          .job = member.job->row.job.id,
          .epoch = gang.row.epoch,
          .mode = saves ? StopMode::kSaveFirst : StopMode::kAtOnce,
          .deadline_ms = saves ? left_ms(state, life) : 0,
          .end = is_asked ? gang.row.stop_end : AttemptEnd::kMigrated,
          .reason = gang.row.cause.reason}
  );
}

}  // namespace

GangLife& life_of(State& state, const GangEntry& gang) {
  GangLife& life = state.gang_lives[gang.row.id];
  if (life.epoch == gang.row.epoch && life.members.size() == gang.row.members.size()) return life;
  life = GangLife{};
  life.epoch = gang.row.epoch;
  life.members.resize(gang.row.members.size());
  return life;
}

std::vector<MemberView> members_of(State& state, const GangEntry& gang) {
  GangLife& life = life_of(state, gang);
  std::vector<MemberView> members;
  for (std::uint32_t rank = 0; rank < gang.row.members.size(); ++rank) {
    JobEntry* job = state.find_job(gang.row.members[rank]);
    if (job == nullptr) continue;  // forgotten, so it is over
    members.push_back(
        {.rank = rank,
         .job = job,
         .attempt = state.find_attempt(job->row.job.id, gang.row.epoch),
         .known = &life.members[rank]}
    );
  }
  return members;
}

bool is_node_gone(const State& state, const NodeId& node) {
  const auto found = state.nodes.find(node);
  return found == state.nodes.end() || found->second.row.is_revoked ||
         found->second.row.state == NodeState::kLost || found->second.row.state == NodeState::kLeft;
}

bool has_ended(const State& state, const GangEntry& gang, const MemberView& member) {
  if (member.attempt == nullptr || !member.attempt->is_live()) return true;
  if (is_node_gone(state, member.attempt->row.attempt.node)) return true;
  // Never granted and never told to go: there is no guest, and its epoch is burnt.
  return !gang.row.is_go && !member.attempt->is_granted;
}

bool has_succeeded(const MemberView& member) {
  return member.attempt != nullptr && !member.attempt->is_live() &&
         member.attempt->row.attempt.end == AttemptEnd::kSucceeded;
}

bool is_done(const GangEntry& gang, const std::vector<MemberView>& members) {
  if (members.empty()) return false;
  if (gang.row.ends == GangEnds::kFirst)
    return members.front().rank == 0 && has_succeeded(members.front());
  return std::all_of(members.begin(), members.end(), has_succeeded);
}

bool is_saver(const GangEntry& gang, std::uint32_t rank) {
  const bool all = gang.row.saves == GangSaves::kAll ||
                   (gang.row.saves == GangSaves::kAuto && gang.row.all_save);
  return all || rank == 0;
}

std::string broken_links_words(State& state, const GangEntry& gang) {
  const Instant stopped = life_of(state, gang).crashed_at;
  for (const MemberView& member : members_of(state, gang)) {
    if (member.attempt == nullptr) continue;
    const GangMember& known = *member.known;
    const std::string who = member_words(state, member);
    if (known.links_broken > 0)
      return who + " broke or could not open " + std::to_string(known.links_broken) + " links";
    if (known.greeted != Instant{} && stopped - known.greeted <= kGreetedBefore)
      return "the agent of " + who + " came anew, which breaks links";
    const auto node = state.nodes.find(member.attempt->row.attempt.node);
    if (node != state.nodes.end() && node->second.row.facts.are_transfers_cut)
      return "the owner of " + who + " has cut transfers";
  }
  return {};
}

std::string member_words(const State& state, const MemberView& member) {
  std::string text = "rank " + std::to_string(member.rank);
  if (member.attempt != nullptr) text += " on " + state.name_of(member.attempt->row.attempt.node);
  return text;
}

std::string waiting_members_words(State& state, const GangEntry& gang) {
  const bool is_stopping = gang.row.state == GangState::kStopping;
  std::size_t there = 0;
  std::string first;
  const std::vector<MemberView> members = members_of(state, gang);
  for (const MemberView& member : members) {
    const bool is_there = is_stopping
                              ? has_ended(state, gang, member)
                              : member.attempt != nullptr &&
                                    member.attempt->row.attempt.state == AttemptState::kReady;
    if (is_there) {
      ++there;
    } else if (first.empty() && member.attempt != nullptr) {
      first = "; " + member_words(state, member) + " is " +
              std::string(to_string(member.attempt->row.attempt.state));
    }
  }
  return std::to_string(there) + " of " + std::to_string(members.size()) +
         (is_stopping ? " have ended" : " are ready") + first;
}

void note_gang(
    State& state,
    const GangEntry& gang,
    const std::string& kind,
    const std::string& message,
    State::EventData data
) {
  const JobEntry* first = gang.row.members.empty() ? nullptr : state.find_job(gang.row.members[0]);
  if (first == nullptr) return;
  data["gang"] = gang.row.id.str();
  state.note(*first, kind, message, std::move(data));
}

void send_go(State& state, const GangEntry& gang, MemberView& member) {
  if (member.attempt == nullptr) return;
  const NodeId& node = member.attempt->row.attempt.node;
  wire::GangGo go{.job = member.job->row.job.id, .epoch = gang.row.epoch};
  for (const MemberView& other : members_of(state, gang)) {
    if (other.attempt == nullptr) continue;
    go.members.push_back(peer_of(state, gang, other, node, other.rank == member.rank));
  }
  member.known->go_sent = state.now.boot;
  state.send(node, std::move(go));
}

void send_stops(State& state, GangEntry& gang) {
  GangLife& life = life_of(state, gang);
  life.stop_sent = state.now.boot;
  const bool is_asked = gang.row.stop_end != AttemptEnd::kNone;
  for (MemberView& member : members_of(state, gang)) {
    if (member.attempt == nullptr || !member.attempt->is_live()) continue;
    if (planted("coordinator.stops_one_member") && member.rank != gang.row.cause.rank) continue;
    if (is_asked || !leaves_by_itself(state, member)) send_stop_to(state, gang, life, member);
    if (life.is_saved)
      state.send(
          member.attempt->row.attempt.node,
          wire::GangSaved{.job = member.job->row.job.id, .epoch = gang.row.epoch}
      );
  }
}

}  // namespace rn::coordinator
