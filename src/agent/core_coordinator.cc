// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/core_state.h"
#include "base/log.h"

namespace rn::agent {

namespace {

// Of an attempt that this node does not know: above every number that a real one reaches.
constexpr std::uint64_t kUnknownAttemptSeq = 1ULL << 40;

std::string keeps_many_words(std::size_t count) {
  return "the node still keeps " + std::to_string(count) + " attempts";
}

}  // namespace

Attempt* Core::State::find(const JobId& job, LeaseEpoch epoch) {
  const auto found = attempts_.find(GuestName{job, epoch});
  return found == attempts_.end() ? nullptr : &found->second;
}

void Core::State::note_generation(std::uint32_t generation) {
  if (generation <= node_.highest_generation) return;
  node_.highest_generation = generation;
  is_node_dirty_ = true;
}

void Core::State::on_message(const wire::Welcome& m) {
  is_welcome_ = true;
  welcomed_at_ = now_.boot;
  refusal_.clear();
  is_disowned_ = false;
  heartbeat_every_ = std::max(milliseconds(m.heartbeat_ms), milliseconds(100));
  lost_after_ = std::max(m.lost_after, 1u);
  clock_offset_ms_ = m.clock_offset_ms;
  heartbeat_at_ = Instant{};  // at once
  note_generation(m.generation);
  log::info("coordinator.welcome", {{"version", m.version}, {"generation", m.generation}});
  for (auto& [name, a] : attempts_) {
    // What was under way on the old connection is sent anew.
    a.event_sent_at = a.commit_sent_at = a.grant_sent_at = a.publish_sent_at = Instant{};
    a.log.in_flight.reset();
  }
  reclaim_sent_at_.clear();
  if (is_hello_outdated_) send_node_update();
  for (const wire::AttemptVerdict& verdict : m.verdicts) on_verdict(verdict);
  list_holdings();
  tell_orders();
  tell_edits();
}

/// One at a time: what is under way answers this welcome as well.
void Core::State::list_holdings() {
  const bool is_under_way = std::any_of(works_.begin(), works_.end(), [](const auto& work) {
    return work.second.task == Task::kHoldings;
  });
  if (!is_under_way) work_node(Task::kHoldings, GuestName{}, ListHoldings{});
}

void Core::State::send_holdings(const WorkResult& result) {
  const auto* const listed = std::get_if<HoldingsListed>(&result);
  if (listed == nullptr || !is_welcome_) return;  // the next welcome asks again
  const auto& jobs = listed->jobs;
  for (std::size_t at = 0; at < jobs.size(); at += wire::kMaxHoldings) {
    wire::Holdings part;
    const std::size_t end = std::min(jobs.size(), at + wire::kMaxHoldings);
    part.jobs.assign(jobs.begin() + at, jobs.begin() + end);
    send(std::move(part));
  }
}

void Core::State::on_message(const wire::Refused& m) {
  log::error("coordinator.refused", {{"code", m.code}, {"message", m.message}, {"hint", m.hint}});
  is_connected_ = is_hello_sent_ = is_welcome_ = false;
  is_disowned_ = m.retry_after_ms == 0 && m.code == to_string(ErrorCode::kDenied);
  refusal_ = m.message + (m.hint.empty() ? "" : "; next: " + m.hint);
  out_.effects.emplace_back(CloseCoordinator{m.message, m.retry_after_ms, m.retry_after_ms == 0});
}

void Core::State::on_message(const wire::HeartbeatAck& m) {
  clock_offset_ms_ = m.clock_offset_ms;
  for (const wire::AttemptVerdict& verdict : m.verdicts) on_verdict(verdict);
  for (const wire::CopyPlan& plan : m.plans) on_plan(plan);
  on_hazard(m.hazard);
}

void Core::State::on_verdict(const wire::AttemptVerdict& verdict) {
  Attempt* const a = find(verdict.job, verdict.epoch);
  if (a == nullptr || a->row.is_fenced) return;
  if (verdict.is_end_known && a->row.phase == Phase::kEnded) {
    a->row.events.clear();
    a->is_dirty = true;
    return;
  }
  if (!verdict.is_current || verdict.is_end_known) {
    fence(*a, "the coordinator says that epoch " + to_string(verdict.epoch) + " is stale");
    return;
  }
  a->renewed_at = now_.boot;
  hear_departure(*a, verdict.departure);
  arbiter_.renew(verdict.job, verdict.epoch, now_.boot + milliseconds(a->commit.lease_ms));
}

void Core::State::on_plan(const wire::CopyPlan& plan) {
  Attempt* const a = find(plan.job, plan.epoch);
  if (a == nullptr || a->row.plan == plan) return;
  a->row.plan = plan;
  a->is_dirty = true;  // it must be there when the coordinator is away
  if (plan.leaves_others) leave_others(*a);
}

void Core::State::on_message(const wire::Probe& m) {
  wire::ProbeReply reply;
  reply.probe = m.probe;
  reply.job = m.job;
  // A hold that no commit turns into a lease costs the job an epoch and a pause.
  const std::size_t kept = attempts_.size() + arbiter_.holds(now_);
  if (kept >= config_.attempts_max) {
    reply.reason = keeps_many_words(kept);
    send(std::move(reply));
    return;
  }
  const arbiter::ProbeAnswer answer = arbiter_.probe(m, now_);
  reply.hold = answer.hold;
  reply.ttl_ms = static_cast<std::uint32_t>(answer.ttl.count());
  reply.reason = answer.refusal.reason;
  reply.is_permanent = answer.refusal.is_permanent;
  reply.cpu_milli = answer.grant.cpu_milli;
  reply.has_image = std::find(warden_.images.begin(), warden_.images.end(), m.image_digest) !=
                    warden_.images.end();
  send(std::move(reply));
}

void Core::State::on_message(const wire::CancelHold& m) {
  arbiter_.cancel(m.hold);
}

void Core::State::on_message(const wire::Commit& m) {
  wire::CommitReply reply;
  reply.hold = m.hold;
  reply.job = m.job;
  reply.epoch = m.epoch;
  if (const Attempt* known = find(m.job, m.epoch)) {
    reply.is_granted = !known->row.is_fenced;
    reply.lease_ms = reply.is_granted ? known->commit.lease_ms : 0;
    if (!reply.is_granted) reply.reason = "epoch " + to_string(m.epoch) + " was fenced here";
    send(std::move(reply));
    return;
  }
  if (attempts_.size() >= config_.attempts_max) {
    reply.reason = keeps_many_words(attempts_.size());
    send(std::move(reply));
    return;
  }
  const arbiter::CommitAnswer answer = arbiter_.commit(m, now_);
  reply.is_granted = answer.is_granted;
  reply.reason = answer.reason;
  if (answer.is_granted) {
    reply.lease_ms = m.lease_ms;
    note_generation(m.epoch.generation);
    Attempt a;
    a.name = GuestName{m.job, m.epoch};
    a.commit = m;
    a.row.grant = answer.grant;
    a.row.boot_id = config_.boot_id;
    a.row.leased_ns = to_ns(now_.boot);
    a.row.plan = m.plan;
    a.renewed_at = now_.boot;
    a.is_new = true;
    attempts_.insert_or_assign(a.name, std::move(a));
    out_.writes.push_back({"epoch/" + m.job.str(), encode_row(EpochRow{m.epoch})});
    log::info("attempt.leased", {{"job", m.job.str()}, {"epoch", to_string(m.epoch)}});
  }
  send(std::move(reply));
}

void Core::State::on_message(const wire::StopAttempt& m) {
  Attempt* const a = find(m.job, m.epoch);
  if (a == nullptr) {
    wire::AttemptEvent event;
    event.report.job = m.job;
    event.report.epoch = m.epoch;
    event.report.state = AttemptState::kEnded;
    event.report.end = AttemptEnd::kLost;
    event.report.detail = "the node does not know this attempt";
    event.seq = kUnknownAttemptSeq;
    event.at_boot_ns = to_ns(now_.boot);
    event.at_wall_ms = to_ms(now_.wall);
    send(std::move(event));
    return;
  }
  if (a->row.is_fenced) return;
  switch (m.mode) {
    case StopMode::kFenced:
      fence(*a, m.reason);
      return;
    case StopMode::kAtOnce:
      order_stop(*a, StopOrder{m.end, 0, m.reason, {}});
      return;
    case StopMode::kSaveFirst:
      order_stop(
          *a,
          StopOrder{
              m.end, to_ns(now_.boot + milliseconds(std::max(m.deadline_ms, 1u))), m.reason, {}}
      );
      return;
  }
}

void Core::State::on_message(const wire::GenerationCommitted& m) {
  Attempt* const a = find(m.job, m.epoch);
  if (a == nullptr) return;
  for (GenerationRow& generation : a->row.generations) {
    if (generation.ref.generation != m.generation || generation.is_committed) continue;
    generation.is_committed = m.is_accepted;
    generation.is_refused = !m.is_accepted;
    a->is_dirty = true;
    if (!m.is_accepted)
      log::warning(
          "generation.refused",
          {{"job", m.job.str()}, {"generation", m.generation}, {"reason", m.reason}}
      );
  }
  if (m.is_accepted) trim_generations(*a);
}

void Core::State::on_message(const wire::Grants& m) {
  Attempt* const a = find(m.job, m.epoch);
  if (a == nullptr || m.action != TicketAction::kStore) return;
  a->extra_peers = m.peers;
  for (const PeerGrant& peer : m.peers) a->peer_after.erase(peer.node);
}

void Core::State::on_message(const wire::LogAck& m) {
  Attempt* const a = find(m.job, m.epoch);
  if (a == nullptr) return;
  a->log.in_flight.reset();
  if (!m.is_accepted) {
    a->log.is_done = true;  // a stale epoch; the verdict follows
    return;
  }
  a->log.acked = m.next_offset;
}

void Core::State::on_message(const wire::AttemptAck& m) {
  Attempt* const a = find(m.job, m.epoch);
  if (a == nullptr || a->row.is_fenced) return;
  if (!m.is_accepted) {
    fence(*a, "the coordinator refused an event of epoch " + to_string(m.epoch));
    return;
  }
  if (m.seq == 0) {
    if (a->row.phase == Phase::kPublishing && a->row.has_outputs) {
      a->row.is_published = true;
      a->is_dirty = true;
    }
    return;
  }
  const auto is_acked = [&](const wire::AttemptEvent& event) { return event.seq <= m.seq; };
  if (std::erase_if(a->row.events, is_acked) > 0) a->is_dirty = true;
}

void Core::State::on_message(const wire::ReclaimAck& m) {
  const auto found = reclaims_.find(m.id);
  if (found == reclaims_.end()) return;
  ReclaimRow& row = found->second;
  row.is_acked = true;
  row.acked = m.phase;
  const std::string key = "reclaim/" + m.id.str();
  if (row.acked == ReclaimPhase::kReturned && row.record.phase == ReclaimPhase::kReturned) {
    // Kept in memory so that the warden's list of last returned ones does not bring it back.
    out_.writes.push_back({key, std::nullopt});
    return;
  }
  out_.writes.push_back({key, encode_row(row)});
}

/// Own store only. I8: as long as an own attempt of the job lives, its last two durable generations
/// stay, whatever is asked.
void Core::State::on_message(const wire::CollectGarbage& m) {
  if (m.epoch < arbiter_.highest_epoch(m.job)) return;
  std::uint32_t keep_from = m.keep_from;
  bool is_job_over = m.is_job_over;
  for (const auto& [name, a] : attempts_) {
    if (name.job != m.job || a.row.is_fenced) continue;
    if (a.row.phase != Phase::kEnded) is_job_over = false;
    for (const GenerationRow& generation : a.row.generations)
      keep_from = std::min(keep_from, generation.ref.generation);
  }
  if (is_job_over) {
    arbiter_.forget_job(m.job);
    out_.writes.push_back({"epoch/" + m.job.str(), std::nullopt});
  }
  work_node(
      Task::kGarbage, GuestName{m.job, {}}, CollectGarbage{m.job, keep_from, is_job_over, m.epoch}
  );
}

}  // namespace rn::agent
