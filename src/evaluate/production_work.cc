// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/assert.h"
#include "evaluate/production_node.h"
#include "model/signing.h"

// What takes an agent time: copies, restores, snapshots. Bytes are counted and sent as fluid, not
// made; how fast a core makes and takes them was measured (docs/results.md, "What copies cost").
namespace rn::evaluate {

namespace {

constexpr double kSendingOnce_s = 0.02;
constexpr Moment kRoundTrip = milliseconds(1);  ///< where nothing waits
constexpr Moment kSilence = seconds(10);        ///< until a transfer is given up

double most_of(std::uint64_t rate_bps) {
  if (rate_bps == 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(rate_bps) / 8;
}

}  // namespace

void NodeSeat::start_work(const agent::Work& work) {
  UnderWay& way = works_[work.id];
  way.work = work;
  const agent::WorkId id = work.id;
  if (std::holds_alternative<agent::FetchImage>(work.body)) {
    finish(id, milliseconds(100), agent::ImageFetched{"/images/base"});
  } else if (const auto* prepare_body = std::get_if<agent::PrepareWork>(&work.body)) {
    prepare(work, *prepare_body);
  } else if (const auto* take = std::get_if<agent::TakeSnapshot>(&work.body)) {
    snapshot(work, *take);
  } else if (const auto* copy_body = std::get_if<agent::CopyGeneration>(&work.body)) {
    way.rate_bps = copy_body->rate_bps;
    way.peer = site_.by_id.at(copy_body->peer.node);
    way.is_ahead = copy_body->is_ahead;
    const auto made = made_.find(work.guest);
    if (!way.is_ahead) {
      copy(id, copy_body->generation);
    } else if (made != made_.end()) {
      copy(id, made->second);
    }
  } else if (std::holds_alternative<agent::UploadOutputs>(work.body)) {
    Digest listing{};
    listing[0] = 1;
    finish(id, milliseconds(500), agent::OutputsUploaded{listing, ""});
  } else if (const auto* read = std::get_if<agent::ReadLog>(&work.body)) {
    finish(id, milliseconds(1), agent::LogRead{read->offset, {}, 0});
  } else if (const auto* collect = std::get_if<agent::CollectGarbage>(&work.body)) {
    if (collect->is_job_over) {
      store_.drop_job(collect->job);
    } else if (collect->replaced != 0) {
      store_.drop_one(collect->job, collect->replaced);
    } else {
      store_.drop_before(collect->job, collect->keep_from);
    }
    finish(id, milliseconds(1), agent::Done{});
  } else if (std::holds_alternative<agent::ListHoldings>(work.body)) {
    finish(id, milliseconds(1), agent::HoldingsListed{store_.jobs()});
  } else {
    finish(id, milliseconds(1), agent::Done{});
  }
}

void NodeSeat::finish(agent::WorkId id, Moment delay, agent::WorkResult result) {
  later(delay, [this, id, result = std::move(result)] {
    if (works_.erase(id) > 0) feed(agent::WorkDone{id, result});
  });
}

// ---- restores

/// From the own store if it is here, else from the first holder that answers and has it.
void NodeSeat::prepare(const agent::Work& work, const agent::PrepareWork& prepare) {
  const agent::WorkId id = work.id;
  const GenerationRef& wanted = prepare.resume;
  if (wanted.generation == 0)
    return finish(id, moment_of(site_.machine.preparing_s), agent::WorkPrepared{});
  const SavedState& state = site_.state_of(wanted.manifest);
  const StateKind& kind = site_.world->kind(state.job);
  UnderWay& way = works_.at(id);
  way.ref = wanted;
  if (store_.has(wanted)) return restore(id, wanted, 0);
  std::vector<NodeId> silent;
  for (const PeerGrant& grant : prepare.resume_from) {
    NodeSeat& holder = *site_.nodes[site_.by_id.at(grant.node)];
    if (&holder == this) continue;
    if (!holder.is_on()) {
      silent.push_back(grant.node);
      continue;
    }
    if (!holder.store().has(wanted)) continue;
    way.peer = site_.by_id.at(grant.node);
    way.bytes = store_.missing(wanted, state.progress_s, kind);
    if (!(site_.machine.fetch_begins_s > 0)) return fetch(id);
    later(moment_of(site_.machine.fetch_begins_s), [this, id] {
      if (works_.contains(id)) fetch(id);
    });
    return;
  }
  finish(id, kSilence, agent::HoldersAway{wanted.generation, silent, "no holder of it answers"});
}

/// Whoever serves it keeps to what its owner grants, less the margin that plans leave.
void NodeSeat::fetch(agent::WorkId id) {
  constexpr double kPlanned = 0.95;
  UnderWay& way = works_.at(id);
  const double granted = site_.world->campus().nodes[way.peer].transfers;
  const double most = site_.machine.sending_rate;
  way.flow = site_.world->flows().start(
      {.from = site_.world->place(way.peer),
       .to = site_.world->place(node_),
       .bytes = way.bytes,
       .most = granted > 0 ? std::min(most, granted * kPlanned) : most,
       .on_arrived =
           [this, id, life = life_] {
             if (life != life_ || !is_on_ || !works_.contains(id)) return;
             const UnderWay& there = works_.at(id);
             restore(id, GenerationRef(there.ref), there.bytes);
           }}
  );
}

void NodeSeat::restore(agent::WorkId id, const GenerationRef& ref, double bytes) {
  UnderWay& way = works_.at(id);
  way.flow.reset();
  const SavedState& state = site_.state_of(ref.manifest);
  store_.put(ref, state.progress_s);
  site_.counts.restored_bytes += bytes;
  warden_.prepare(way.work.guest, state.progress_s);
  const double takes_s = site_.world->kind(state.job).bytes / site_.machine.restoring_rate;
  finish(id, moment_of(site_.machine.preparing_s + takes_s), agent::WorkPrepared{ref, ""});
}

// ---- snapshots

void NodeSeat::snapshot(const agent::Work& work, const agent::TakeSnapshot& take) {
  const std::optional<double> saved = warden_.saved_s(work.guest);
  const bool has_parent = take.parent.generation != 0;
  const double before = has_parent ? site_.state_of(take.parent.manifest).progress_s : 0;
  if (!saved || (has_parent && before == *saved))
    return finish(work.id, moment_of(site_.machine.copy_begins_s), agent::NothingNew{});
  const JobNumber job = site_.jobs.at(work.guest.job);
  const StateKind& kind = site_.world->kind(job);
  GenerationRef ref;
  ref.job = work.guest.job;
  ref.epoch = take.epoch;
  ref.generation = take.generation;
  ref.manifest = site_.add_state({job, *saved});
  ref.step = static_cast<std::int64_t>(*saved);
  ref.bytes = static_cast<std::uint64_t>(kind.bytes);
  ref.new_bytes = static_cast<std::uint64_t>(
      has_parent ? differing_bytes(kind, before, *saved) : whole_bytes(kind, *saved)
  );
  ref.created_wall_ms = to_ms(site_.now().wall);
  made_[work.guest] = ref;
  // All of it is read to find what is new.
  const double takes_s = site_.machine.making_s + kind.bytes / site_.machine.making_rate;
  later(
      moment_of(takes_s),
      [this, id = work.id, guest = work.guest, ref, progress = *saved, takes_s] {
        if (works_.erase(id) == 0) return;
        made_.erase(guest);
        store_.put(ref, progress);
        ++site_.counts.generations;
        site_.tell(
            {.what = Happening::What::kMade,
             .job = site_.jobs.at(ref.job),
             .node = node_,
             .generation = ref.generation,
             .bytes = static_cast<double>(ref.new_bytes)}
        );
        feed(agent::WorkDone{
            id,
            agent::SnapshotTaken{
                ref,
                std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(takes_s))}});
      }
  );
}

// ---- copies

void NodeSeat::copy(agent::WorkId id, const GenerationRef& ref) {
  UnderWay& way = works_.at(id);
  way.ref = ref;
  NodeSeat& peer = *site_.nodes[way.peer];
  if (!peer.is_on())
    return finish(id, kSilence, Error{ErrorCode::kUnavailable, "the peer does not answer", ""});
  later(moment_of(site_.machine.copy_begins_s), [this, id] {
    const auto found = works_.find(id);
    if (found == works_.end()) return;
    UnderWay& there = found->second;
    const SavedState& state = site_.state_of(there.ref.manifest);
    there.bytes = site_.nodes[there.peer]->store().missing(
        there.ref, state.progress_s, site_.world->kind(state.job)
    );
    there.flow = site_.world->flows().start(
        {.from = site_.world->place(node_),
         .to = site_.world->place(there.peer),
         .bytes = there.bytes,
         .most = site_.machine.sending_rate,
         .on_arrived =
             [this, id, life = life_] {
               if (life == life_ && is_on_ && works_.contains(id)) arrived(id, works_.at(id).ref);
             }}
    );
    site_.world->flows().pace(*there.flow, most_now(there));
    if (site_.cadence.measures_always || site_.world->now() < expected_until_) measure_.quicken();
  });
}

/// As its core paces it and, ahead of its generation, as fast as new chunks of that are made: they
/// lie anywhere in it.
double NodeSeat::most_now(const UnderWay& way) const {
  const double paced = most_of(way.rate_bps);
  if (!way.is_ahead) return paced;
  const double share = way.ref.bytes == 0 ? 1
                                          : static_cast<double>(way.ref.new_bytes) /
                                                static_cast<double>(way.ref.bytes);
  return std::min(paced, site_.machine.making_rate * share);
}

void NodeSeat::arrived(agent::WorkId id, const GenerationRef& ref) {
  UnderWay& way = works_.at(id);
  way.flow.reset();
  if (!way.has_arrived) copied_bytes_ += way.bytes;
  way.has_arrived = true;
  if (way.is_ahead) return;  // its manifest follows
  NodeSeat& peer = *site_.nodes[way.peer];
  if (!peer.is_on())
    return finish(id, kSilence, Error{ErrorCode::kUnavailable, "the peer does not answer", ""});
  peer.store().put(ref, site_.state_of(ref.manifest).progress_s);
  ++site_.counts.copies;
  site_.counts.copied_bytes += way.bytes;
  site_.tell(
      {.what = Happening::What::kCopied,
       .job = site_.jobs.at(ref.job),
       .node = node_,
       .peer = way.peer,
       .generation = ref.generation,
       .bytes = way.bytes}
  );
  Receipt receipt;
  receipt.job = ref.job;
  receipt.epoch = ref.epoch;
  receipt.generation = ref.generation;
  receipt.manifest = ref.manifest;
  receipt.holder = peer.id();
  receipt.failure_domain = site_.world->campus().nodes[way.peer].lab;
  receipt.verified_wall_ms = to_ms(site_.now().wall);
  agent::GenerationCopied copied;
  copied.receipt = signed_receipt(std::move(receipt), peer.signer());
  copied.bytes = static_cast<std::uint64_t>(way.bytes);
  copied.cpu = moment_of(kSendingOnce_s + way.bytes / site_.machine.sending_rate);
  finish(id, moment_of(site_.machine.receipt_s), std::move(copied));
}

/// What went ahead of its generation goes on with it.
void NodeSeat::release(agent::WorkId id, const GenerationRef& ref) {
  const auto found = works_.find(id);
  if (found == works_.end() || !found->second.is_ahead) return;
  UnderWay& way = found->second;
  way.is_ahead = false;
  if (way.has_arrived) return arrived(id, ref);
  if (way.ref.generation != ref.generation) return copy(id, ref);  // it has not begun
  if (way.flow) site_.world->flows().pace(*way.flow, most_now(way));
}

void NodeSeat::pace(agent::WorkId id, std::uint64_t rate_bps) {
  const auto found = works_.find(id);
  if (found == works_.end()) return;
  found->second.rate_bps = rate_bps;
  Flows& flows = site_.world->flows();
  if (found->second.flow && flows.has(*found->second.flow))
    flows.pace(*found->second.flow, most_now(found->second));
}

/// What has arrived stays there.
void NodeSeat::cancel(agent::WorkId id) {
  const auto found = works_.find(id);
  if (found == works_.end()) return;
  UnderWay& way = found->second;
  Flows& flows = site_.world->flows();
  if (way.flow && flows.has(*way.flow)) {
    const double sent = flows.stop(*way.flow);
    const bool is_fetch = std::holds_alternative<agent::PrepareWork>(way.work.body);
    (is_fetch ? store_ : site_.nodes[way.peer]->store()).keep_beginning(way.ref, sent);
    if (!is_fetch) copied_bytes_ += sent;
  } else if (way.is_ahead && way.has_arrived) {
    site_.nodes[way.peer]->store().keep_beginning(way.ref, way.bytes);
  }
  if (std::holds_alternative<agent::TakeSnapshot>(way.work.body)) made_.erase(way.work.guest);
  works_.erase(found);
}

void NodeSeat::drop_flows() {
  while (!works_.empty()) cancel(works_.begin()->first);
}

void NodeSeat::peer_is_silent(NodeNumber peer) {
  std::vector<agent::WorkId> hit;
  for (const auto& [id, way] : works_) {
    if (way.flow && way.peer == peer) hit.push_back(id);
  }
  for (const agent::WorkId id : hit) {
    const agent::Work work = works_.at(id).work;
    cancel(id);
    works_[id].work = work;
    finish(id, kSilence, Error{ErrorCode::kUnavailable, "the peer does not answer any more", ""});
  }
}

double NodeSeat::copied_bytes() const {
  double bytes = copied_bytes_;
  const Flows& flows = site_.world->flows();
  for (const auto& [id, way] : works_) {
    const bool is_copy = std::holds_alternative<agent::CopyGeneration>(way.work.body);
    if (is_copy && way.flow && flows.has(*way.flow)) bytes += flows.sent(*way.flow);
  }
  return bytes;
}

bool NodeSeat::has_flows() const {
  return std::any_of(works_.begin(), works_.end(), [](const auto& entry) {
    return entry.second.flow &&
           std::holds_alternative<agent::CopyGeneration>(entry.second.work.body);
  });
}

void NodeSeat::expect_owner(Moment until) {
  expected_until_ = until;
  measure_.quicken();
}

/// How far copies are, until there is none: what has been told of once is told of to its end. How
/// much is left is not known while a generation is being made.
void NodeSeat::measure() {
  if (!has_flows()) return;
  agent::TransfersMeasured measured;
  const Flows& flows = site_.world->flows();
  for (const auto& [id, way] : works_) {
    const bool is_copy = std::holds_alternative<agent::CopyGeneration>(way.work.body);
    if (!is_copy || !way.flow || !flows.has(*way.flow)) continue;
    const double sent = flows.sent(*way.flow);
    agent::TransferProgress progress;
    progress.id = id;
    if (!way.is_ahead)
      progress.bytes_left = static_cast<std::uint64_t>(std::max(0.0, way.bytes - sent));
    progress.bytes_sent = static_cast<std::uint64_t>(sent);
    if (site_.machine.queue_s > 0) {
      const auto full = static_cast<double>(flows.full_links(*way.flow));
      progress.least_round_trip = kRoundTrip;
      progress.round_trip = kRoundTrip + moment_of(full * site_.machine.queue_s);
    }
    measured.transfers.push_back(std::move(progress));
  }
  feed(measured);
  measure_.rest(site_.cadence.measure);
}

}  // namespace rn::evaluate
