// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_copies.h"

#include <algorithm>

#include "base/planted.h"
#include "coordinator/core_ahead.h"
#include "coordinator/core_evacuation.h"
#include "coordinator/core_gang_sets.h"
#include "coordinator/core_garbage.h"
#include "model/data_sets.h"
#include "model/gang.h"
#include "model/signing.h"
#include "reclaim/destinations.h"

namespace rn::coordinator {

namespace {

constexpr std::uint64_t kMib = 1u << 20;
constexpr std::uint64_t kUnbounded = 1ULL << 50;
constexpr std::size_t kSpareCopies = 2;
constexpr std::size_t kImagePeers = 4;
constexpr std::size_t kHoldersMost = 16;      // of a generation, that are written down
constexpr std::size_t kGenerationsKept = 64;  // per job in memory; the store has all
constexpr std::chrono::seconds kPlanAge{30};

/// k of "durable on k other failure domains".
std::uint32_t wanted_copies(const JobEntry& job) {
  if (planted("coordinator.is_content_with_one_copy")) return 1;
  return std::max(1u, job.row.job.spec.checkpoint.copies);
}

/// As many as the site can ever give: who asks for five where three nodes have joined has a
/// generation that is durable with two. A node that is away is waited for.
std::uint32_t needed_copies(const State& state, const JobEntry& job, const NodeEntry& source) {
  auto domains = copy_domains(state, job);
  domains.erase(failure_domain_of(source));
  return std::clamp(static_cast<std::uint32_t>(domains.size()), 1u, wanted_copies(job));
}

Ticket ticket_for(
    State& state,
    const JobId& job,
    LeaseEpoch epoch,
    const NodeId& from,
    const NodeId& to,
    TicketAction action
) {
  Ticket ticket;
  ticket.job = job;
  ticket.epoch = epoch;
  ticket.from = from;
  ticket.to = to;
  ticket.action = action;
  ticket.expiry_wall_ms =
      state.wall_ms() + static_cast<std::int64_t>(state.config.ticket_valid_s) * 1000;
  ticket.max_bytes = kUnbounded;
  return ticket;
}

/// Its ticket is not signed yet: most grants are looked at and never sent (refresh_plan).
PeerGrant grant_for(const NodeEntry& peer, Ticket ticket) {
  PeerGrant grant;
  grant.node = peer.row.node;
  grant.address = peer.row.address.peer;
  grant.failure_domain = failure_domain_of(peer);
  grant.ticket = std::move(ticket);
  return grant;
}

void sign_tickets(const State& state, std::vector<PeerGrant>& grants) {
  for (PeerGrant& grant : grants)
    grant.ticket = signed_ticket(std::move(grant.ticket), state.keys.ticket_key);
}

/// The ticket that the plan has for this place; nullptr if it has none.
const Ticket* ticket_in(const wire::CopyPlan& plan, const PeerGrant& grant) {
  for (const auto* grants : {&plan.copies, &plan.precopies}) {
    for (const PeerGrant& known : *grants) {
      if (known.node == grant.node) return &known.ticket;
    }
  }
  return nullptr;
}

/// A ticket that the plan has goes on being used, wherever in the plan its place is now.
void sign_new_tickets(
    const State& state, const wire::CopyPlan& plan, std::vector<PeerGrant>& grants
) {
  for (PeerGrant& grant : grants) {
    const Ticket* const known = ticket_in(plan, grant);
    grant.ticket =
        known != nullptr ? *known : signed_ticket(std::move(grant.ticket), state.keys.ticket_key);
  }
}

reclaim::CopySource source_of(const JobEntry& job, const NodeEntry& node) {
  reclaim::CopySource source;
  source.node = node.row.node;
  source.lab = node.row.lab;
  source.failure_domain = failure_domain_of(node);
  source.wanted = wanted_copies(job) + (job.row.job.is_degraded ? 1 : 0);
  source.destinations = job.row.job.spec.checkpoint.destinations;
  source.bytes = job.row.job.durable.bytes;
  const bool leaves = node.outlook.leaves_in_s < reclaim::kDepartsWithin_s;
  source.departs = leaves ? 1 : 1 - sched::survival(node.outlook, reclaim::kDepartsWithin_s);
  return source;
}

/// What places are chosen for.
struct CopyNeeds {
  reclaim::CopySource source;
  LikelyPlaces next;  ///< none: its node stays
};

CopyNeeds needs_of(
    const State& state, const JobEntry& job, const AttemptEntry& attempt, const NodeEntry& node
) {
  CopyNeeds needs{source_of(job, node), {}};
  if (needs.source.departs >= reclaim::kDepartsSoon)
    needs.next = likely_places(state, job, attempt, node);
  return needs;
}

/// An older agent deletes what sets need: it would take a member's copy and not keep it.
bool keeps_copies_of(const NodeEntry& node, const JobEntry& job) {
  if (!job.row.job.gang) return true;
  const auto& features = node.row.facts.features;
  return std::find(features.begin(), features.end(), kKeepsSetsFeature) != features.end();
}

std::vector<reclaim::CopyCandidate> copy_candidates(
    const State& state,
    const JobEntry& job,
    const NodeEntry& source,
    const NodeId& next,
    const std::vector<NodeId>& except
) {
  std::vector<reclaim::CopyCandidate> result;
  const GenerationRow* newest =
      find_generation(state, job.row.job.id, job.row.job.durable.generation);
  for (const auto& [id, node] : state.nodes) {
    if (node.row.is_revoked || !state.is_up(node) || node.row.address.peer.empty()) continue;
    if (node.row.facts.are_transfers_cut || !keeps_copies_of(node, job)) continue;
    if (std::find(except.begin(), except.end(), id) != except.end()) continue;
    reclaim::CopyCandidate c;
    c.node = id;
    c.lab = node.row.lab;
    c.failure_domain = failure_domain_of(node);
    c.room_bytes = room_for_copies(node);
    c.survival = sched::cautious_survival(node.outlook, reclaim::kCopyHorizon_s);
    c.is_storage = !node.row.contract.lends;
    c.has_parent = is_holder(newest, id);
    const auto& data = job.row.job.spec.data;
    c.has_data = !data.empty() && missing_data_set(data, node.row.facts.data_sets).empty();
    c.copies_held = static_cast<std::uint32_t>(node.copies_of.size());
    c.is_next = id == next;
    c.shares_switches = shared_switches(state, source, node);
    result.push_back(std::move(c));
  }
  return result;
}

/// Where an evacuation is directed comes first, whatever its score.
void put_first(
    const NodeId& holder,
    const std::vector<reclaim::CopyCandidate>& candidates,
    std::vector<reclaim::ChosenCopy>& copies
) {
  const auto is_holder_of = [&](const reclaim::ChosenCopy& copy) {
    return candidates[copy.index].node == holder;
  };
  std::erase_if(copies, is_holder_of);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].node == holder) copies.insert(copies.begin(), {.index = i, .score = 0});
  }
}

std::vector<PeerGrant> store_grants(
    State& state,
    const JobEntry& job,
    LeaseEpoch epoch,
    const NodeEntry& source,
    const CopyNeeds& needs,
    const std::vector<NodeId>& except,
    std::string* shortfall
) {
  const auto candidates = copy_candidates(state, job, source, needs.next.first, except);
  reclaim::CopyChoice choice = reclaim::choose_copies(needs.source, candidates, kSpareCopies);
  NodeId holder = directed_holder(state, job.row.job.id);
  if (holder.empty() && state.config.study.given_holder)
    holder = state.config.study.given_holder(job.row.job.id);
  if (!holder.empty()) put_first(holder, candidates, choice.copies);
  if (shortfall != nullptr) *shortfall = choice.shortfall;
  std::vector<PeerGrant> grants;
  for (const reclaim::ChosenCopy& copy : choice.copies) {
    NodeEntry& peer = *state.find_node(candidates[copy.index].node);
    peer.copies_of.insert(job.row.job.id);
    grants.push_back(grant_for(
        peer,
        ticket_for(
            state, job.row.job.id, epoch, source.row.node, peer.row.node, TicketAction::kStore
        )
    ));
  }
  return grants;
}

bool has_budget(const State& state, const NodeEntry& source) {
  const bool is_new_hour = state.now.boot - source.precopy_since >= std::chrono::hours(1);
  const std::uint64_t used = is_new_hour ? 0 : source.precopy_bytes;
  return used < state.config.precopy_mib_per_hour * kMib;
}

PeerGrant grant_ahead(
    State& state, const JobEntry& job, const NodeEntry& source, const NodeEntry& to
) {
  const Job& j = job.row.job;
  state.find_node(to.row.node)->copies_of.insert(j.id);
  return grant_for(
      to, ticket_for(state, j.id, j.epoch, source.row.node, to.row.node, TicketAction::kStore)
  );
}

/// Where the job would go on next, if its node will soon be taken back and has budget left, it
/// gets no copy anyway, and what goes ahead is likely to be of use.
std::vector<PeerGrant> precopy_grants(
    State& state,
    const JobEntry& job,
    const AttemptEntry& attempt,
    const NodeEntry& source,
    const CopyNeeds& needs,
    const std::vector<PeerGrant>& copies
) {
  const Job& j = job.row.job;
  const bool is_wanted = attempt.row.attempt.state == AttemptState::kRunning &&
                         j.durable.generation > 0 && j.durable.epoch == j.epoch &&
                         directed_holder(state, j.id).empty() && has_budget(state, source) &&
                         !j.gang && !source.row.facts.are_transfers_cut;
  if (!is_wanted) return {};
  const NodeEntry* next = place_ahead(state, job, source, needs.next.first);
  if (next == nullptr) return {};
  const std::size_t used = std::min<std::size_t>(copies.size(), wanted_copies(job));
  const bool gets_one = std::any_of(
      copies.begin(),
      copies.begin() + static_cast<std::ptrdiff_t>(used),
      [&](const PeerGrant& peer) { return peer.node == next->row.node; }
  );
  if (gets_one || !is_worth_sending_ahead(state, job, source, *next)) return {};
  return {grant_ahead(state, job, source, *next)};
}

/// In a degraded placement what is durable goes to one domain more, after all else: nothing waits
/// for it. Where the job would go on if none of the others lies there, else where it would go if
/// that could not take it, so that it is of use without a loss, too.
std::vector<PeerGrant> degraded_extra(
    State& state,
    const JobEntry& job,
    const NodeEntry& source,
    const CopyNeeds& needs,
    std::uint32_t needed,
    const std::vector<PeerGrant>& grants
) {
  if (!job.row.job.is_degraded || job.row.job.gang) return {};
  std::set<std::string> domains;
  auto at = grants.begin();
  for (; at != grants.end() && domains.size() < needed; ++at) domains.insert(at->failure_domain);
  if (domains.size() < needed) return {};
  for (const NodeId& id : {needs.next.first, needs.next.second}) {
    const NodeEntry* const node = place_ahead(state, job, source, id);
    if (node != nullptr && !domains.contains(failure_domain_of(*node)))
      return {grant_ahead(state, job, source, *node)};
  }
  for (; at != grants.end(); ++at) {
    if (!domains.contains(at->failure_domain)) return {*at};
  }
  return {};
}

/// Of the ticket that ends first; of no ticket, as of one that is made now.
std::int64_t first_expiry(const State& state, const wire::CopyPlan& plan) {
  std::int64_t first =
      state.wall_ms() + static_cast<std::int64_t>(state.config.ticket_valid_s) * 1000;
  for (const auto* grants : {&plan.copies, &plan.precopies}) {
    for (const PeerGrant& grant : *grants) first = std::min(first, grant.ticket.expiry_wall_ms);
  }
  return first;
}

bool is_same_place(const PeerGrant& a, const PeerGrant& b) {
  return a.node == b.node && a.address == b.address && a.failure_domain == b.failure_domain;
}

bool has_same_places(const std::vector<PeerGrant>& a, const std::vector<PeerGrant>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_same_place);
}

/// Why these receipts do not make the generation durable; empty if they do. Fills `good`. `told`:
/// how many its node was told to make, 0 if nothing since the start.
std::string check_receipts(
    State& state,
    const JobEntry& job,
    const NodeEntry& source,
    const wire::CommitGeneration& message,
    std::uint32_t told,
    std::vector<Receipt>& good
) {
  std::set<std::string> domains;
  std::string last;
  for (const Receipt& receipt : message.receipts) {
    const GenerationRef& ref = message.generation;
    const NodeEntry* holder = state.find_node(receipt.holder);
    if (receipt.job != ref.job || receipt.generation != ref.generation ||
        receipt.manifest != ref.manifest) {
      last = "a receipt is for another generation";
    } else if (receipt.epoch != ref.epoch) {
      last = "a receipt is from another epoch";
    } else if (holder == nullptr || holder->row.is_revoked) {
      last = "a receipt's holder " + receipt.holder.str() + " is unknown";
    } else if (!verify_receipt(receipt, holder->row.verify_key)) {
      last = "the signature of " + receipt.holder.str() + " does not verify";
    } else if (receipt.holder == source.row.node || failure_domain_of(*holder) == failure_domain_of(source)) {
      last = receipt.holder.str() + " is in the failure domain of the source";
    } else {
      // The registry's word counts, not the receipt's.
      domains.insert(failure_domain_of(*holder));
      good.push_back(receipt);
    }
  }
  std::uint32_t needed = needed_copies(state, job, source);
  if (told > 0)
    needed = std::min(needed, told);  // a node that joined since then is not held against it
  if (domains.size() >= needed || planted("coordinator.needs_no_receipts")) return {};
  std::string reason = std::to_string(domains.size()) +
                       " verified copies in other failure domains, " + std::to_string(needed) +
                       " needed";
  return last.empty() ? reason : reason + ": " + last;
}

/// Receipts of a generation that is durable already name one holder more: a copy that went ahead.
void add_holders(
    State& state, const JobEntry& job, NodeEntry& source, const wire::CommitGeneration& message
) {
  const GenerationRef& ref = message.generation;
  GenerationRow& row = state.generations[ref.job][ref.generation];
  std::vector<Receipt> good;
  check_receipts(state, job, source, message, 0, good);
  bool is_new = false;
  for (Receipt& receipt : good) {
    if (is_holder(&row, receipt.holder) || row.receipts.size() >= kHoldersMost) continue;
    state.find_node(receipt.holder)->copies_of.insert(ref.job);
    if (state.now.boot - source.precopy_since >= std::chrono::hours(1)) {
      source.precopy_since = state.now.boot;
      source.precopy_bytes = 0;
    }
    const GenerationRow* parent = find_generation(state, ref.job, ref.generation - 1);
    source.precopy_bytes += is_holder(parent, receipt.holder) ? ref.new_bytes : ref.bytes;
    row.receipts.push_back(std::move(receipt));
    is_new = true;
  }
  if (is_new) state.write(PutGeneration{.row = row, .required_epoch = ref.epoch});
}

void answer_generation(
    State& state,
    const NodeEntry& sender,
    const GenerationRef& ref,
    bool is_accepted,
    std::string reason
) {
  if (!is_accepted) ++state.metrics.generations_refused;
  state.send(
      sender,
      wire::GenerationCommitted{
          .job = ref.job,
          .epoch = ref.epoch,
          .generation = ref.generation,
          .is_accepted = is_accepted,
          .reason = std::move(reason)}
  );
}

void make_durable(
    State& state,
    JobEntry& job,
    const NodeEntry& source,
    const GenerationRef& ref,
    std::vector<Receipt> receipts
) {
  GenerationRow row;
  row.generation = ref;
  row.source = source.row.node;
  row.receipts = std::move(receipts);
  row.committed_wall_ms = state.wall_ms();
  for (const Receipt& receipt : row.receipts)
    state.find_node(receipt.holder)->copies_of.insert(ref.job);
  state.find_node(source.row.node)->copies_of.insert(ref.job);
  const std::uint32_t garbage_from = kept_by_holders(state, job);
  learn_rates(state, source, row);
  note_held(state, ref.job, row);
  state.generations[ref.job][ref.generation] = row;
  state.write(PutGeneration{.row = std::move(row), .required_epoch = ref.epoch});
  job.row.job.previous = job.row.job.durable;
  job.row.job.durable = ref;
  job.row.is_fallback = false;
  state.save(job);
  ++state.metrics.generations_durable;
  std::string holders;
  for (const Receipt& receipt : state.generations[ref.job][ref.generation].receipts)
    holders += (holders.empty() ? "" : ", ") + state.name_of(receipt.holder);
  state.note(
      job,
      "generation.durable",
      "generation " + std::to_string(ref.generation) + " is durable on " + holders,
      {{"generation", std::to_string(ref.generation)},
       {"step", std::to_string(ref.step)},
       {"bytes", std::to_string(ref.bytes)},
       {"new_bytes", std::to_string(ref.new_bytes)}}
  );
  auto& kept = state.generations[ref.job];
  while (kept.size() > kGenerationsKept) {
    const auto needless = std::find_if(kept.begin(), kept.end(), [&](const auto& one) {
      return !is_in_set(state, job, one.first);
    });
    kept.erase(needless);  // two sets have two of them
  }
  if (job.row.job.gang) note_member_durable(state, job, ref);
  collect_replaced(state, job, source, garbage_from);
}

}  // namespace

const GenerationRow* find_generation(const State& state, const JobId& job, std::uint32_t number) {
  const auto of_job = state.generations.find(job);
  if (of_job == state.generations.end()) return nullptr;
  const auto found = of_job->second.find(number);
  return found == of_job->second.end() ? nullptr : &found->second;
}

bool is_holder(const GenerationRow* row, const NodeId& node) {
  return row != nullptr &&
         std::any_of(row->receipts.begin(), row->receipts.end(), [&](const Receipt& receipt) {
           return receipt.holder == node;
         });
}

bool is_copy_place(const std::vector<std::string>& names, const NodeEntry& node) {
  if (names.empty()) return true;
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name == node.row.node.str() || name == node.row.lab.str();
  });
}

std::set<std::string> copy_domains(const State& state, const JobEntry& job) {
  std::set<std::string> domains;
  for (const auto& [id, node] : state.nodes) {
    const bool is_place = !node.row.is_revoked && keeps_copies_of(node, job) &&
                          is_copy_place(job.row.job.spec.checkpoint.destinations, node);
    if (is_place) domains.insert(failure_domain_of(node));
  }
  return domains;
}

std::string left_copies_words(const State& state, const JobEntry& job) {
  const Job& j = job.row.job;
  const GenerationRow* row = find_generation(state, j.id, j.durable.generation);
  if (j.durable.generation == 0 || row == nullptr) return {};
  const auto has_left = [&](const NodeId& id) {
    const auto node = state.nodes.find(id);
    return node == state.nodes.end() || node->second.row.is_revoked;
  };
  const bool is_held =
      std::any_of(row->receipts.begin(), row->receipts.end(), [&](const Receipt& r) {
        return !has_left(r.holder);
      });
  if (is_held) return {};
  const std::string number = std::to_string(j.durable.generation);
  if (has_left(row->source))
    return "all who had generation " + number + " have left the site: nobody has it now";
  return "all who held copies of generation " + number + " have left the site: only " +
         state.name_of(row->source) + ", which made it, may still have it";
}

void note_left_copies(State& state, const NodeEntry& node) {
  for (const JobId& id : node.copies_of) {
    JobEntry* job = state.find_job(id);
    if (job == nullptr || is_terminal(job->row.job.state)) continue;
    const GenerationRow* row = find_generation(state, id, job->row.job.durable.generation);
    if (!is_holder(row, node.row.node) && (row == nullptr || row->source != node.row.node))
      continue;
    if (std::string words = left_copies_words(state, *job); !words.empty())
      state.note(*job, "copies.left", std::move(words));
  }
}

std::uint64_t room_for_copies(const NodeEntry& node) {
  const Contract& contract = node.row.contract;
  const std::uint64_t store = contract.store_mib * kMib;
  std::uint64_t room = store - std::min(store, node.telemetry.chunk_bytes);
  if (node.telemetry.disk_free_mib > 0) {
    const std::uint64_t free = node.telemetry.disk_free_mib;
    room = std::min(room, (free - std::min(free, contract.reserve_disk_mib)) * kMib);
  }
  return room;
}

std::string failure_domain_of(const NodeEntry& node) {
  const std::string& declared = node.row.facts.failure_domain;
  return declared.empty() ? node.row.lab.str() : declared;
}

void refresh_plan(State& state, JobEntry& job, AttemptEntry& attempt) {
  if (job.row.job.spec.checkpoint.is_stateless) return;
  const NodeEntry* source = state.find_node(attempt.row.attempt.node);
  if (source == nullptr) return;
  const bool is_made = attempt.plan_made != Instant{};
  const auto half = static_cast<std::int64_t>(state.config.ticket_valid_s) * 1000 / 2;
  const bool is_expiring = attempt.tickets_expire_wall_ms - state.wall_ms() < half ||
                           attempt.tickets_expire_wall_ms - state.wall_ms() > 2 * half;
  const bool is_broken = attempt.plan.copies.size() < attempt.plan.wanted ||
                         std::any_of(
                             attempt.plan.copies.begin(),
                             attempt.plan.copies.end(),
                             [&](const PeerGrant& peer) {
                               const NodeEntry* node = state.find_node(peer.node);
                               return node == nullptr || !state.is_up(*node);
                             }
                         );
  const nanoseconds age = state.now.boot - attempt.plan_made;
  if (is_made && !is_expiring && age < (is_broken ? state.heartbeat() : nanoseconds(kPlanAge)))
    return;

  std::string shortfall;
  const CopyNeeds needs = needs_of(state, job, attempt, *source);
  // Once it is chosen where it goes, it is no longer a question of where it would.
  if (!state.evacuations.contains(job.row.job.id)) attempt.next = needs.next.first;
  auto grants = store_grants(state, job, attempt.row.attempt.epoch, *source, needs, {}, &shortfall);
  auto precopies = precopy_grants(state, job, attempt, *source, needs, grants);
  const std::uint32_t needed = needed_copies(state, job, *source);
  if (needed < wanted_copies(job) && !grants.empty())
    shortfall += ": a generation counts as durable with " + std::to_string(needed);
  for (PeerGrant& extra : degraded_extra(state, job, *source, needs, needed, grants)) {
    const auto is_it = [&](const PeerGrant& peer) { return peer.node == extra.node; };
    if (std::none_of(precopies.begin(), precopies.end(), is_it))
      precopies.push_back(std::move(extra));
  }
  attempt.plan_made = state.now.boot;
  if (is_made && !is_expiring && needed == attempt.plan.wanted &&
      has_same_places(grants, attempt.plan.copies) &&
      has_same_places(precopies, attempt.plan.precopies))
    return;
  const wire::CopyPlan known = is_expiring ? wire::CopyPlan{} : std::move(attempt.plan);
  sign_new_tickets(state, known, grants);
  sign_new_tickets(state, known, precopies);
  const CheckpointSpec& spec = job.row.job.spec.checkpoint;
  attempt.plan.job = job.row.job.id;
  attempt.plan.epoch = attempt.row.attempt.epoch;
  attempt.plan.wanted = needed;
  // Degraded: it may save twice as often.
  attempt.plan.min_interval_s =
      job.row.job.is_degraded ? spec.min_interval_s / 2 : spec.min_interval_s;
  attempt.plan.copies = std::move(grants);
  attempt.plan.precopies = std::move(precopies);
  attempt.tickets_expire_wall_ms = first_expiry(state, attempt.plan);
  if (shortfall != attempt.shortfall) {
    attempt.shortfall = shortfall;
    if (!shortfall.empty()) state.note(job, "copies.short", shortfall);
  }
}

std::vector<PeerGrant> resume_grants(
    State& state, const JobEntry& job, LeaseEpoch epoch, const NodeId& node
) {
  std::vector<NodeId> holders;
  const ResumePoint point = resume_point(job);
  for (const GenerationRef* ref : {&point.resume, &point.previous}) {
    const GenerationRow* row = find_generation(state, ref->job, ref->generation);
    if (ref->generation == 0 || row == nullptr) continue;
    for (const Receipt& receipt : row->receipts) holders.push_back(receipt.holder);
    holders.push_back(row->source);
  }
  std::vector<PeerGrant> grants;
  std::set<NodeId> seen = {node};
  for (const bool wants_up : {true, false}) {
    for (const NodeId& id : holders) {
      const NodeEntry* holder = state.find_node(id);
      if (holder == nullptr || holder->row.is_revoked || holder->row.address.peer.empty()) continue;
      if (state.is_up(*holder) != wants_up || !seen.insert(id).second) continue;
      grants.push_back(grant_for(
          *holder, ticket_for(state, job.row.job.id, epoch, node, id, TicketAction::kFetch)
      ));
    }
  }
  sign_tickets(state, grants);
  return grants;
}

std::vector<PeerGrant> image_grants(
    State& state, const JobEntry& job, LeaseEpoch epoch, const NodeId& node
) {
  std::vector<PeerGrant> grants;
  const std::string& digest = job.row.job.image_digest;
  for (const auto& [id, peer] : state.nodes) {
    if (grants.size() >= kImagePeers) break;
    if (id == node || !state.is_up(peer) || peer.row.address.peer.empty()) continue;
    const auto& images = peer.row.facts.images;
    if (std::find(images.begin(), images.end(), digest) == images.end()) continue;
    Ticket ticket = ticket_for(state, job.row.job.id, epoch, node, id, TicketAction::kFetchImage);
    ticket.image = digest;
    grants.push_back(grant_for(peer, std::move(ticket)));
  }
  sign_tickets(state, grants);
  return grants;
}

ResumePoint resume_point(const JobEntry& job) {
  if (job.row.job.spec.checkpoint.is_stateless) return {};
  // Never what it has saved alone, and no older one by itself: all go on from one set.
  if (job.row.job.gang) return {.resume = job.of_set};
  return {.resume = job.row.job.durable, .previous = job.row.job.previous};
}

void on_commit_generation(State& state, NodeEntry& sender, const wire::CommitGeneration& message) {
  const GenerationRef& ref = message.generation;
  const AttemptEntry* attempt = state.find_attempt(ref.job, ref.epoch);
  JobEntry* job = state.find_job(ref.job);
  const bool is_sender = attempt != nullptr && attempt->row.attempt.node == sender.row.node;
  if (job == nullptr || !is_sender || !state.is_current(ref.job, ref.epoch)) {
    ++state.metrics.effects_fenced;
    answer_generation(state, sender, ref, false, "epoch " + to_string(ref.epoch) + " is stale");
    return;
  }
  const GenerationRef& durable = job->row.job.durable;
  if (ref.generation == durable.generation && ref.manifest == durable.manifest) {
    add_holders(state, *job, sender, message);
    answer_generation(state, sender, ref, true, "");
    return;
  }
  if (ref.generation <= durable.generation && !is_numbered_from_set(state, *job, ref)) {
    answer_generation(
        state,
        sender,
        ref,
        false,
        "generation " + std::to_string(durable.generation) + " is durable already"
    );
    return;
  }
  std::vector<Receipt> good;
  const std::string reason =
      check_receipts(state, *job, sender, message, attempt->plan.wanted, good);
  if (reason.empty()) make_durable(state, *job, sender, ref, std::move(good));
  answer_generation(state, sender, ref, reason.empty(), reason);
}

void on_grant_request(State& state, NodeEntry& sender, const wire::GrantRequest& message) {
  const AttemptEntry* attempt = state.find_attempt(message.job, message.epoch);
  JobEntry* job = state.find_job(message.job);
  const bool is_its_own = attempt != nullptr && (attempt->row.attempt.node == sender.row.node ||
                                                 planted("coordinator.gives_tickets_to_anybody"));
  if (job == nullptr || !is_its_own || !state.is_current(message.job, message.epoch)) {
    ++state.metrics.effects_fenced;
    return;
  }
  wire::Grants grants{.job = message.job, .epoch = message.epoch, .action = message.action};
  switch (message.action) {
    case TicketAction::kStore:
      note_copies_refused(state, message.job, message.tried);
      grants.peers = store_grants(
          state,
          *job,
          message.epoch,
          sender,
          needs_of(state, *job, *attempt, sender),
          message.tried,
          nullptr
      );
      sign_tickets(state, grants.peers);
      break;
    case TicketAction::kFetch:
      grants.peers = resume_grants(state, *job, message.epoch, sender.row.node);
      break;
    case TicketAction::kFetchImage:
      grants.peers = image_grants(state, *job, message.epoch, sender.row.node);
      break;
    case TicketAction::kLink:
      break;  // gang_go alone says where links go
  }
  state.send(sender, std::move(grants));
}

}  // namespace rn::coordinator
