// SPDX-License-Identifier: Apache-2.0
// The checkers' half that looks at what leaves the coordinator: nothing may be said that the store
// does not hold by then, and nothing to the wrong node.
#include "sim/checkers.h"

namespace rn::sim {

void Checkers::on_effect(
    const coordinator::Effect& effect,
    const NodeId& node,
    const MemoryStore& store,
    std::uint64_t log_bytes
) {
  ++checks_;
  const auto* send = std::get_if<coordinator::SendToAgent>(&effect);
  // On a connection that is closed already it reaches nobody.
  if (send != nullptr && !node.empty()) on_message(send->message, node, store, log_bytes);
}

void Checkers::on_message(
    const wire::Message& message,
    const NodeId& node,
    const MemoryStore& store,
    std::uint64_t log_bytes
) {
  if (const auto* commit = std::get_if<wire::Commit>(&message)) {
    check_commit(*commit, node, store);
  } else if (const auto* done = std::get_if<wire::GenerationCommitted>(&message)) {
    const auto row = store.generations().find({done->job, done->generation});
    const bool is_there =
        row != store.generations().end() && row->second.generation.epoch == done->epoch;
    if (done->is_accepted && !is_there)
      world_.violate(
          "I5",
          "generation " + std::to_string(done->generation) + " of " +
              attempt_name(done->job, done->epoch) + " was acknowledged before it was durable"
      );
  } else if (const auto* log = std::get_if<wire::LogAck>(&message)) {
    if (log->is_accepted && log->next_offset > log_bytes)
      world_.violate(
          "I5",
          "the log of " + attempt_name(log->job, log->epoch) + " is acknowledged to byte " +
              std::to_string(log->next_offset) + ", stored are " + std::to_string(log_bytes)
      );
  } else if (const auto* ack = std::get_if<wire::AttemptAck>(&message)) {
    check_event_ack(*ack, store);
  } else if (const auto* order = std::get_if<wire::CollectGarbage>(&message)) {
    check_collection(*order, store);
  } else if (const auto* grants = std::get_if<wire::Grants>(&message)) {
    check_peers(grants->peers, grants->job, grants->epoch, node);
  } else if (const auto* beat = std::get_if<wire::HeartbeatAck>(&message)) {
    for (const wire::CopyPlan& plan : beat->plans)
      check_peers(plan.copies, plan.job, plan.epoch, node);
  } else if (const auto* reclaim = std::get_if<wire::ReclaimAck>(&message)) {
    if (!store.reclaims().contains({node, reclaim->id}))
      world_.violate(
          "I5", "reclaim " + reclaim->id.str() + " was acknowledged before it was recorded"
      );
  }
}

void Checkers::check_commit(
    const wire::Commit& commit, const NodeId& node, const MemoryStore& store
) {
  const auto row = store.attempts().find({commit.job, commit.epoch});
  if (row == store.attempts().end())
    return world_.violate(
        "I4", attempt_name(commit.job, commit.epoch) + " was issued before its row was durable"
    );
  if (row->second.attempt.node != node)
    world_.violate(
        "I14", "the key of " + attempt_name(commit.job, commit.epoch) + " was sent to " + node.str()
    );
  check_peers(commit.resume_from, commit.job, commit.epoch, node);
  check_peers(commit.plan.copies, commit.job, commit.epoch, node);
}

void Checkers::check_peers(
    const std::vector<PeerGrant>& peers, const JobId& job, LeaseEpoch epoch, const NodeId& node
) {
  for (const PeerGrant& peer : peers) {
    const bool is_its_own = attempts_[{job, epoch}].node == node && peer.ticket.from == node &&
                            peer.ticket.job == job && peer.ticket.to == peer.node;
    if (!is_its_own)
      return world_.violate(
          "I14",
          node.str() + " was given a ticket for " + attempt_name(job, epoch) + ", which is not its"
      );
    if (peer.ticket.epoch != epoch)
      return world_.violate(
          "I3", "a ticket of " + attempt_name(job, epoch) + " is for another epoch"
      );
  }
}

void Checkers::check_collection(const wire::CollectGarbage& order, const MemoryStore& store) {
  const auto row = store.jobs().find(order.job);
  if (row == store.jobs().end())
    return world_.violate("I8", "garbage of " + order.job.str() + ", which is not in the store");
  const Job& job = row->second.job;
  if (order.is_job_over && !is_terminal(job.state))
    return world_.violate("I8", "all of " + order.job.str() + " is collected, and it goes on");
  if (job.gang) return;  // its gang's sets say what it needs: GangChecks
  const std::uint32_t needed =
      job.previous.generation > 0 ? job.previous.generation : job.durable.generation;
  if (!order.is_job_over && order.keep_from > needed)
    world_.violate(
        "I8",
        "generations of " + order.job.str() + " before " + std::to_string(order.keep_from) +
            " are collected, needed are those from " + std::to_string(needed) + " on"
    );
}

void Checkers::check_event_ack(const wire::AttemptAck& ack, const MemoryStore& store) {
  if (!ack.is_accepted) return;
  const auto attempt = store.attempts().find({ack.job, ack.epoch});
  const bool is_recorded = attempt != store.attempts().end() && attempt->second.last_seq >= ack.seq;
  const bool has_outputs = ack.seq != 0 || store.outputs().contains({ack.job, ack.epoch});
  if (!is_recorded || !has_outputs)
    world_.violate(
        "I5",
        "event " + std::to_string(ack.seq) + " of " + attempt_name(ack.job, ack.epoch) +
            " was acknowledged before it was durable"
    );
}

}  // namespace rn::sim
