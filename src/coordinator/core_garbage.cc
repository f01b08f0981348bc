// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_garbage.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/planted.h"
#include "coordinator/core_ahead.h"
#include "coordinator/core_gang_sets.h"

namespace rn::coordinator {

namespace {

constexpr std::uint32_t kToldToAll = 8;  // generations, until who may have one hears of it

wire::CollectGarbage collection_of(const State& state, const JobEntry& job) {
  wire::CollectGarbage message;
  message.job = job.row.job.id;
  message.epoch = job.row.job.epoch;
  const GenerationRef& previous = job.row.job.previous;
  message.keep_from =
      previous.generation > 0 ? previous.generation : job.row.job.durable.generation;
  message.is_job_over = is_terminal(job.row.job.state);
  if (job.row.job.gang) {
    MemberKeep keep = kept_of_member(state, job);
    message.keep_from = keep.from;
    message.also_keep = std::move(keep.older);
    return message;
  }
  if (planted("coordinator.keeps_one_generation"))
    message.keep_from = job.row.job.durable.generation;
  return message;
}

/// The same for one node: what went there ahead is what the next round adds to.
wire::CollectGarbage collection_at(const State& state, const JobEntry& job, const NodeId& node) {
  wire::CollectGarbage message = collection_of(state, job);
  if (!message.is_job_over && !job.row.job.gang && !planted("coordinator.keeps_one_generation"))
    message.keep_from = std::min(message.keep_from, kept_from(state, job, node));
  return message;
}

/// Who is named as having one of the generations from `first` to before `end`.
std::set<NodeId> holders_between(
    const State& state, const JobId& job, std::uint32_t first, std::uint32_t end
) {
  std::set<NodeId> holders;
  const auto& rows = state.generations.at(job);
  for (auto at = rows.lower_bound(first); at != rows.end() && at->first < end; ++at) {
    holders.insert(at->second.source);
    for (const Receipt& receipt : at->second.receipts) holders.insert(receipt.holder);
  }
  return holders;
}

/// What it may delete of a job, as far as it has to be told.
void tell_holder(State& state, NodeEntry& node, const JobEntry& job) {
  const wire::CollectGarbage message = collection_at(state, job, node.row.node);
  if (!message.is_job_over && message.keep_from <= 1) return;
  state.send(node, message);
  if (message.is_job_over) node.collecting[message.job] = 0;
}

void forget_generations(State& state, const JobId& job) {
  const auto found = state.generations.find(job);
  if (found == state.generations.end()) return;
  for (auto& [number, row] : found->second) {
    if (row.is_collected) continue;
    row.is_collected = true;
    state.write(PutGeneration{.row = row, .required_epoch = state.jobs.at(job).row.job.epoch});
  }
}

}  // namespace

std::uint32_t kept_by_holders(const State& state, const JobEntry& job) {
  return collection_of(state, job).keep_from;
}

void collect_replaced(
    State& state, const JobEntry& job, const NodeEntry& source, std::uint32_t garbage_from
) {
  const wire::CollectGarbage message = collection_of(state, job);
  if (message.keep_from <= 1) return;
  const bool is_for_all = message.keep_from / kToldToAll != garbage_from / kToldToAll;
  auto holders = holders_between(state, message.job, garbage_from, message.keep_from);
  holders.insert(source.row.node);
  for (auto& [id, node] : state.nodes) {
    if (!node.copies_of.contains(message.job)) continue;
    if (is_for_all || holders.contains(id)) state.send(node, collection_at(state, job, id));
  }
}

void collect_job(State& state, const JobEntry& job) {
  const wire::CollectGarbage message = collection_of(state, job);
  for (auto& [id, node] : state.nodes) {
    if (node.connection == 0 || !node.copies_of.contains(message.job)) continue;
    state.send(node, message);
    node.collecting[message.job] = 0;
  }
}

void tell_holders(State& state, const JobEntry& job) {
  for (auto& [id, node] : state.nodes) {
    if (node.connection != 0 && node.copies_of.contains(job.row.job.id))
      tell_holder(state, node, job);
  }
}

void greet_holder(State& state, NodeEntry& node) {
  node.collecting.clear();
  for (const JobId& id : node.copies_of) {
    if (const JobEntry* job = state.find_job(id); job != nullptr) tell_holder(state, node, *job);
  }
}

void on_holdings(State& state, NodeEntry& node, const wire::Holdings& message) {
  for (const JobId& id : message.jobs) {
    // NOTE: jobs that this record does not know stay: it may be a backup that was put back.
    const JobEntry* job = state.find_job(id);
    if (job == nullptr || !node.copies_of.insert(id).second) continue;
    tell_holder(state, node, *job);
  }
}

void count_beat_for_garbage(State& state, NodeEntry& node) {
  for (auto at = node.collecting.begin(); at != node.collecting.end();) {
    if (++at->second < 3) {
      ++at;
      continue;
    }
    const JobId job = at->first;
    node.copies_of.erase(job);
    at = node.collecting.erase(at);
    const bool is_last =
        std::none_of(state.nodes.begin(), state.nodes.end(), [&](const auto& other) {
          return other.second.copies_of.contains(job);
        });
    if (is_last) forget_generations(state, job);
  }
}

}  // namespace rn::coordinator
