// SPDX-License-Identifier: Apache-2.0
#include "sim/checkers.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "model/signing.h"
#include "sim/agent_host.h"
#include "sim/agent_work.h"
#include "sim/process_fs.h"

namespace rn::sim {

std::string attempt_name(const JobId& job, LeaseEpoch epoch) {
  return job.str() + " epoch " + to_string(epoch);
}

// --- rows

void Checkers::on_write(const coordinator::Write& write) {
  ++checks_;
  if (const auto* job = std::get_if<coordinator::PutJob>(&write)) on_job(job->row);
  if (const auto* attempt = std::get_if<coordinator::PutAttempt>(&write)) on_attempt(attempt->row);
  if (const auto* put = std::get_if<coordinator::PutGeneration>(&write)) on_generation(*put);
  if (const auto* put = std::get_if<coordinator::PutNode>(&write)) check_node(put->row);
  if (const auto* outputs = std::get_if<coordinator::PutOutputs>(&write))
    on_outputs_row(outputs->row);
  if (const auto* usage = std::get_if<coordinator::PutUsage>(&write)) on_usage(usage->row);
  if (const auto* meta = std::get_if<coordinator::SetMeta>(&write)) on_meta(*meta);
  if (const auto* quota = std::get_if<coordinator::PutQuota>(&write))
    running_most_ = quota->row.running;
}

/// A node speaks of itself only: what the table has of an honest one is what that one is.
void Checkers::check_node(const coordinator::NodeRow& row) {
  const auto truth = nodes_.find(row.node);
  if (truth == nodes_.end() || truth->second.is_braggart) return;
  const bool is_own = row.facts.hostname == truth->second.name && row.lab == truth->second.lab &&
                      row.contract.guest_cpu_milli == truth->second.cpu_milli;
  if (!is_own)
    world_.violate("I15", truth->second.name + " is told to be what another node says that it is");
}

void Checkers::on_meta(const coordinator::SetMeta& meta) {
  if (meta.key != "generation") return;
  std::uint64_t value = 0;
  std::from_chars(meta.value.data(), meta.value.data() + meta.value.size(), value);
  if (value <= generation_)
    world_.violate(
        "I4",
        "the database's generation went from " + std::to_string(generation_) + " to " + meta.value
    );
  generation_ = value;
}

void Checkers::on_job(const coordinator::JobRow& row) {
  if (!row.idempotency_key.empty()) {
    const auto [found, is_new] =
        stored_keys_.emplace(std::pair(row.job.owner, row.idempotency_key), row.job.id);
    if (!is_new && found->second != row.job.id) {
      world_.violate(
          "I2",
          "key " + row.idempotency_key + " made " + found->second.str() + " and then " +
              row.job.id.str()
      );
    }
  }
  JobHistory& history = jobs_[row.job.id];
  if (history.is_known && !may_follow(history.state, row.job.state)) {
    world_.violate(
        "I12",
        row.job.id.str() + " went from " + std::string(to_string(history.state)) + " to " +
            std::string(to_string(row.job.state))
    );
  }
  if (row.job.epoch < history.newest) {
    world_.violate(
        "I4",
        row.job.id.str() + " went back to epoch " + to_string(row.job.epoch) + " from " +
            to_string(history.newest)
    );
  }
  // ADR 0005: the newest generation is condemned, once, and the one before it counts.
  const bool falls_back = row.is_fallback && !history.has_fallen_back;
  if (falls_back) history.durable_step = history.previous_step;
  history.is_member = row.job.gang.has_value();
  const bool is_back = row.job.durable.generation < history.durable_generation;
  if (is_back && !falls_back && !history.is_member)
    world_.violate(
        "I7",
        row.job.id.str() + " went back from durable generation " +
            std::to_string(history.durable_generation) + " to " +
            std::to_string(row.job.durable.generation)
    );
  if (row.job.durable.generation != 0 && !history.accepted.contains(row.job.durable.manifest))
    world_.violate("I5", row.job.id.str() + " calls a generation durable that has no row");
  if (is_terminal(row.job.state) && history.state != row.job.state) check_end(row);
  check_waits(row);
  check_quota(row);
  history.is_known = true;
  history.state = row.job.state;
  history.data = row.job.spec.data;
  history.gpus = row.job.spec.resources.gpus;
  history.lab = row.job.lab;
  history.copies = std::max(1U, row.job.spec.checkpoint.copies);
  history.durable_generation = row.job.durable.generation;
  history.has_fallen_back = row.is_fallback;
  if (row.job.epoch > history.newest) {
    history.newest = row.job.epoch;
    AttemptHistory& attempt = attempts_[{row.job.id, row.job.epoch}];
    attempt.is_issued = true;
    attempt.floor_step = history.durable_step;
  }
}

/// By what the rows say of those that it names.
bool Checkers::has_happened(const AfterJob& after) const {
  std::size_t tasks = 1;
  std::size_t ended = 0;
  std::size_t begun = 0;
  bool has_failed = false;
  for (const auto& [id, history] : jobs_) {
    const bool is_of_array = history.array && history.array->array == after.job;
    if (!is_of_array && id.str() != after.job) continue;
    if (is_of_array) tasks = history.array->tasks;
    const bool is_over = is_terminal(history.state);
    ended += is_over ? 1 : 0;
    begun += is_over || history.has_begun ? 1 : 0;
    has_failed = has_failed || (is_over && history.state != JobState::kSucceeded);
  }
  switch (after.when) {
    case AfterWhen::kOk:
      return ended == tasks && !has_failed;
    case AfterWhen::kFail:
      return ended == tasks && has_failed;
    case AfterWhen::kAny:
      return ended == tasks;
    case AfterWhen::kStarted:
      return begun == tasks;
  }
  return false;
}

void Checkers::check_waits(const coordinator::JobRow& row) {
  const Job& job = row.job;
  JobHistory& history = jobs_[job.id];
  const bool is_released = !row.is_held && (!history.is_known || history.is_held);
  if (row.is_held && history.is_known && !history.is_held)
    world_.violate("I17", job.id.str() + " was released, and is held again");
  if (row.is_held && !job.epoch.is_none())
    world_.violate("I17", job.id.str() + " waits for others, and has an attempt");
  history.is_held = row.is_held;
  history.has_begun = job.started_wall_ms != 0;
  history.array = job.array;
  history.state = job.state;
  for (const AfterJob& after : job.spec.after) {
    if (is_released && !has_happened(after))
      world_.violate(
          "I17",
          job.id.str() + " is released, and waits for " + after.job + " to be " +
              std::string(to_string(after.when))
      );
  }
  if (!job.array || job.array->at_most == 0 || row.is_held) return;
  std::uint32_t out = 0;
  for (const auto& [id, other] : jobs_) {
    const bool is_beside = other.array && other.array->array == job.array->array;
    out += is_beside && !other.is_held && !is_terminal(other.state) ? 1 : 0;
  }
  if (out > job.array->at_most)
    world_.violate(
        "I17",
        std::to_string(out) + " tasks of array " + job.array->array + " run or may, at most " +
            std::to_string(job.array->at_most) + " are to"
    );
}

void Checkers::check_quota(const coordinator::JobRow& row) {
  const Job& job = row.job;
  const bool waits = job.state == JobState::kQueued && !row.is_displaced;
  if (waits || is_terminal(job.state)) {
    holding_.erase(job.id);
    return;
  }
  const bool begins = holding_.insert(job.id).second;
  if (!begins || !running_most_ || holding_.size() <= *running_most_) return;
  world_.violate(
      "I18",
      job.id.str() + " begins, and makes " + std::to_string(holding_.size()) +
          " jobs that run, of which " + std::to_string(*running_most_) + " may"
  );
}

void Checkers::check_end(const coordinator::JobRow& row) {
  const AttemptHistory& attempt = attempts_[{row.job.id, row.job.epoch}];
  if (row.job.state != JobState::kSucceeded) return;
  if (attempt.own_exit != 0)
    world_.violate(
        "I15",
        attempt_name(row.job.id, row.job.epoch) +
            " is called a success, and its guest did not exit with 0"
    );
  if (!attempt.uploads.contains(row.job.outputs))
    world_.violate(
        "I15",
        attempt_name(row.job.id, row.job.epoch) + " ends with outputs that its node did not upload"
    );
}

void Checkers::on_restore(const MemoryStore& store) {
  std::erase_if(acknowledged_, [&](const auto& e) { return !store.jobs().contains(e.second.job); });
  std::erase_if(stored_keys_, [&](const auto& e) { return !store.jobs().contains(e.second); });
  for (auto& [id, history] : jobs_) {
    const auto row = store.jobs().find(id);
    history.is_known = row != store.jobs().end();
    history.newest = history.is_known ? row->second.job.epoch : LeaseEpoch{};
    history.state = history.is_known ? row->second.job.state : JobState::kQueued;
    history.is_held = history.is_known && row->second.is_held;
    if (!history.is_known) history.array.reset();
    history.has_begun = history.is_known && row->second.job.started_wall_ms != 0;
    history.durable_generation = history.is_known ? row->second.job.durable.generation : 0;
    history.has_fallen_back = history.is_known && row->second.is_fallback;
    history.durable_step = history.previous_step = 0;
    history.rows.clear();  // its holders may have deleted what was old in the lost time
  }
  for (auto& [key, attempt] : attempts_) {
    const auto row = store.attempts().find(key);
    attempt.is_lost = attempt.is_lost || row == store.attempts().end();
    attempt.has_ended =
        row != store.attempts().end() && row->second.attempt.state == AttemptState::kEnded;
    attempt.end = row != store.attempts().end() ? row->second.attempt.end : AttemptEnd::kNone;
  }
  used_by_user_.clear();
  used_by_lab_.clear();
  const auto meta = store.load().meta;
  if (const auto found = meta.find("generation"); found != meta.end())
    generation_ = std::stoull(found->second);
}

void Checkers::on_attempt(const coordinator::AttemptRow& row) {
  const rn::Attempt& a = row.attempt;
  JobHistory& history = jobs_[a.job];
  AttemptHistory& attempt = attempts_[{a.job, a.epoch}];
  if (attempt.is_lost)
    world_.violate(
        "I4", attempt_name(a.job, a.epoch) + " was issued before the restore, and is issued again"
    );
  if (!attempt.is_issued) {
    if (a.epoch <= history.newest)
      world_.violate(
          "I4",
          "a new attempt " + attempt_name(a.job, a.epoch) + " after " + to_string(history.newest)
      );
    history.newest = a.epoch;
    attempt.is_issued = true;
    attempt.floor_step = history.durable_step;
  }
  if (!attempt.node.empty() && attempt.node != a.node)
    world_.violate("I3", attempt_name(a.job, a.epoch) + " has changed its node");
  attempt.node = a.node;
  if (attempt.has_ended && (a.state != AttemptState::kEnded || a.end != attempt.end))
    world_.violate("I12", attempt_name(a.job, a.epoch) + " has changed after its end");
  if (a.state == AttemptState::kRunning && !attempt.has_started)
    world_.violate(
        "I15", attempt_name(a.job, a.epoch) + " is called running, and no guest was started"
    );
  if (a.state == AttemptState::kEnded && a.end == AttemptEnd::kSucceeded && attempt.own_exit != 0)
    world_.violate(
        "I15",
        attempt_name(a.job, a.epoch) + " is called a success, and its guest did not exit with 0"
    );
  attempt.has_ended = a.state == AttemptState::kEnded;
  attempt.end = a.end;
  const auto node = nodes_.find(a.node);
  attempt.is_elsewhere = node != nodes_.end() && node->second.lab != history.lab;
  const bool is_charged = a.state >= AttemptState::kRunning && a.state <= AttemptState::kSaving;
  if (is_charged && !attempt.running_since) attempt.running_since = world_.now();
  if (is_charged || !attempt.running_since) return;
  attempt.table_s += seconds_of(world_.now() - *std::exchange(attempt.running_since, {}));
}

void Checkers::on_outputs_row(const coordinator::OutputsRow& row) {
  const JobHistory& history = jobs_[row.job];
  if (row.epoch != history.newest)
    world_.violate(
        "I3",
        "outputs of " + attempt_name(row.job, row.epoch) + " accepted, newest is " +
            to_string(history.newest)
    );
  if (!attempts_[{row.job, row.epoch}].uploads.contains(row.listing))
    world_.violate(
        "I15",
        "outputs of " + attempt_name(row.job, row.epoch) + " accepted that its node did not upload"
    );
}

void Checkers::on_generation(const coordinator::PutGeneration& put) {
  const GenerationRef& generation = put.row.generation;
  JobHistory& history = jobs_[generation.job];
  history.rows[generation.generation] = put.row;
  // A known generation's row is written again when it was collected; only its first row is an
  // effect of an attempt.
  if (!history.accepted.insert(generation.manifest).second) return;
  if (generation.epoch != history.newest) {
    world_.violate(
        "I3",
        "generation of " + attempt_name(generation.job, generation.epoch) +
            " accepted, newest is " + to_string(history.newest)
    );
  }
  const auto taken = captured_.find(generation.manifest);
  const bool is_true = taken != captured_.end() && taken->second.first.job == generation.job &&
                       taken->second.first.epoch == generation.epoch &&
                       taken->second.first.generation == generation.generation;
  if (!is_true)
    return world_.violate(
        "I15", "a generation of " + generation.job.str() + " that nobody took was accepted"
    );
  check_copies(put.row);
  const TrainingState& state = taken->second.second;
  if (state.step != history.durable_step) {
    history.previous_step = history.durable_step;
    history.durable_step = std::max(history.durable_step, state.step);
  }
}

/// k other failure domains, by what is true of the nodes: their places, their keys, their disks.
void Checkers::check_copies(const coordinator::GenerationRow& row) {
  const GenerationRef& generation = row.generation;
  const std::string which =
      "generation " + std::to_string(generation.generation) + " of " + generation.job.str();
  const auto source = nodes_.find(row.source);
  if (source == nodes_.end() || attempts_[{generation.job, generation.epoch}].node != row.source)
    return world_.violate("I15", which + " was accepted from a node that does not run the job");
  std::set<std::string> domains;
  for (const Receipt& receipt : row.receipts) {
    const auto holder = nodes_.find(receipt.holder);
    const bool is_of_it = receipt.job == generation.job && receipt.epoch == generation.epoch &&
                          receipt.generation == generation.generation &&
                          receipt.manifest == generation.manifest;
    if (!is_of_it || holder == nodes_.end() || !verify_receipt(receipt, holder->second.verify_key))
      return world_.violate("I5", which + " was accepted with a receipt that nobody gave for it");
    if (holder->second.failure_domain == source->second.failure_domain) continue;
    domains.insert(holder->second.failure_domain);
    check_holder(*holder->second.agent, row);
  }
  // Where too few are left for what was asked for, all of them are enough.
  std::set<std::string> others;
  for (const auto& [id, node] : nodes_) {
    if (!node.has_left && node.failure_domain != source->second.failure_domain)
      others.insert(node.failure_domain);
  }
  const auto most = static_cast<std::uint32_t>(std::max<std::size_t>(others.size(), 1));
  const std::uint32_t wanted = std::min(jobs_[generation.job].copies, most);
  if (domains.size() < wanted)
    world_.violate(
        "I5",
        which + " was accepted with copies in " + std::to_string(domains.size()) +
            " other failure domains, " + std::to_string(wanted) + " are promised"
    );
}

/// It lies, or what it keeps has rotted since the generation was taken.
bool Checkers::may_lack(const NodeId& node, const GenerationRef& generation) const {
  const auto known = nodes_.find(node);
  if (known == nodes_.end() || known->second.is_liar || known->second.is_hollow) return true;
  const auto rot = rotted_.find({node, generation.job});
  const auto taken = captured_at_.find(generation.manifest);
  return rot != rotted_.end() && (taken == captured_at_.end() || rot->second >= taken->second);
}

/// No honest node has the newest durable generation: then one before it is the best that there is.
bool Checkers::is_lost_everywhere(const JobHistory& history) const {
  const auto row = history.rows.find(history.durable_generation);
  if (row == history.rows.end()) return false;
  const auto lacks = [&](const NodeId& node) { return may_lack(node, row->second.generation); };
  return lacks(row->second.source) && std::all_of(
                                          row->second.receipts.begin(),
                                          row->second.receipts.end(),
                                          [&](const auto& one) { return lacks(one.holder); }
                                      );
}

void Checkers::check_holder(AgentHost& agent, const coordinator::GenerationRow& row) {
  if (may_lack(agent.identity().node, row.generation)) return;  // looking would condemn it
  if (!agent.process().is_up() || agent.fs().is_dead() || agent.work().store() == nullptr) return;
  ++checks_;
  if (agent.has_whole(row.generation.job, row.generation.manifest)) return;
  const Status has_it = agent.work().store()->verify(row.generation.job, row.generation.manifest);
  world_.violate(
      "I8",
      agent.process().name() + " has signed for generation " +
          std::to_string(row.generation.generation) + " of " + row.generation.job.str() +
          " and does not have it: " + (has_it ? "it has other bytes" : has_it.error().describe())
  );
}

// --- submits

void Checkers::on_submit_acknowledged(
    const std::string& key, const JobId& job, const JobSpec& spec
) {
  ++checks_;
  const auto [found, is_new] = acknowledged_.emplace(key, Acknowledged{job, spec});
  if (!is_new && found->second.job != job) {
    world_.violate(
        "I2", "key " + key + " gave " + found->second.job.str() + " and then " + job.str()
    );
  }
}

void Checkers::check_acknowledged(const std::map<JobId, coordinator::JobRow>& jobs) {
  ++checks_;
  for (const auto& [key, mine] : acknowledged_) {
    const auto row = jobs.find(mine.job);
    if (row == jobs.end())
      return world_.violate("I1", mine.job.str() + " was acknowledged and is not in the store");
    const JobSpec& spec = row->second.job.spec;
    if (spec.command != mine.spec.command || spec.env != mine.spec.env ||
        spec.checkpoint.copies != mine.spec.checkpoint.copies)
      return world_.violate("I1", mine.job.str() + " is not what was submitted and acknowledged");
  }
}

// --- garbage

/// What must be there now: of a job that goes on, the newest durable generation and the one before.
std::vector<const coordinator::GenerationRow*> Checkers::needed(const JobHistory& history) const {
  std::vector<const coordinator::GenerationRow*> rows;
  if (history.is_member) {
    for (const auto& [number, row] : history.rows) {
      if (needed_by_gang && needed_by_gang(row.generation.job).contains(number))
        rows.push_back(&row);
    }
    return rows;
  }
  if (is_terminal(history.state) || history.durable_generation == 0) return rows;
  const auto newest = history.rows.find(history.durable_generation);
  if (newest == history.rows.end()) return rows;
  rows.push_back(&newest->second);
  if (newest != history.rows.begin()) rows.push_back(&std::prev(newest)->second);
  return rows;
}

void Checkers::on_collected(AgentHost& agent, const JobId& job) {
  if (!agent.process().is_up()) return;
  for (const auto* row : needed(jobs_[job])) {
    for (const Receipt& receipt : row->receipts) {
      if (receipt.holder == agent.identity().node) check_holder(agent, *row);
    }
  }
}

void Checkers::check_holders(const std::map<JobId, coordinator::JobRow>& jobs) {
  for (const auto& [id, row] : jobs) {
    for (const auto* generation : needed(jobs_[id])) {
      for (const Receipt& receipt : generation->receipts) {
        const auto holder = nodes_.find(receipt.holder);
        if (holder != nodes_.end()) check_holder(*holder->second.agent, *generation);
      }
    }
  }
}

void Checkers::on_early_clear(
    const std::string& node, const GenerationRef& newest, bool is_elsewhere, nanoseconds left
) {
  ++checks_;
  if (is_elsewhere) return;
  world_.violate(
      "evacuation",
      node + " was cleared " + std::to_string(left / seconds(1)) +
          " s before its deadline, and generation " + std::to_string(newest.generation) + " of " +
          newest.job.str() + " is nowhere else"
  );
}

void Checkers::on_minute(std::uint64_t messages, std::size_t nodes, std::size_t jobs) {
  ++checks_;
  // Heartbeats, logs, probes with backoff: a storm is an order of magnitude more.
  const std::uint64_t bound = 2000 + 400 * nodes + 400 * jobs;
  if (messages > bound) {
    world_.violate(
        "I13",
        std::to_string(messages) + " messages in a minute, the bound is " + std::to_string(bound)
    );
  }
}

}  // namespace rn::sim
