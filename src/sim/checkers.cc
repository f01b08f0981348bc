// SPDX-License-Identifier: Apache-2.0
#include "sim/checkers.h"

#include <algorithm>
#include <string_view>

namespace rn::sim {

namespace {

std::string name(const JobId& job, LeaseEpoch epoch) {
  return job.str() + " epoch " + to_string(epoch);
}

}  // namespace

void Checkers::on_write(const coordinator::Write& write) {
  ++checks_;
  if (const auto* job = std::get_if<coordinator::PutJob>(&write)) on_job(job->row);
  if (const auto* attempt = std::get_if<coordinator::PutAttempt>(&write)) on_attempt(attempt->row);
  if (const auto* generation = std::get_if<coordinator::PutGeneration>(&write))
    on_generation(*generation);
  if (const auto* outputs = std::get_if<coordinator::PutOutputs>(&write)) {
    const JobHistory& history = jobs_[outputs->row.job];
    if (outputs->row.epoch != history.newest) {
      world_.violate(
          "I3",
          "outputs of " + name(outputs->row.job, outputs->row.epoch) + " accepted, newest is " +
              to_string(history.newest)
      );
    }
  }
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
  history.is_known = true;
  history.state = row.job.state;
  // ADR 0005: the newest generation is condemned, once, and the one before it counts.
  if (row.is_fallback && !history.has_fallen_back) history.durable_step = history.previous_step;
  history.has_fallen_back = row.is_fallback;
  if (row.job.epoch > history.newest) {
    history.newest = row.job.epoch;
    history.floor_step[row.job.epoch] = history.durable_step;
  }
}

void Checkers::on_attempt(const coordinator::AttemptRow& row) {
  JobHistory& history = jobs_[row.attempt.job];
  if (history.floor_step.contains(row.attempt.epoch)) return;
  if (row.attempt.epoch <= history.newest) {
    return world_.violate(
        "I4",
        "a new attempt " + name(row.attempt.job, row.attempt.epoch) + " after " +
            to_string(history.newest)
    );
  }
  history.newest = row.attempt.epoch;
  history.floor_step[row.attempt.epoch] = history.durable_step;
}

void Checkers::on_generation(const coordinator::PutGeneration& put) {
  const GenerationRef& generation = put.row.generation;
  JobHistory& history = jobs_[generation.job];
  // A known generation's row is written again when it was collected; only its first row is an
  // effect of an attempt.
  if (!history.accepted.insert(generation.manifest).second) return;
  if (generation.epoch != history.newest) {
    world_.violate(
        "I3",
        "generation of " + name(generation.job, generation.epoch) + " accepted, newest is " +
            to_string(history.newest)
    );
  }
  const TrainingState* state = captured(generation.manifest);
  if (state == nullptr)
    return world_.violate(
        "I15", "a generation of " + generation.job.str() + " that nobody took was accepted"
    );
  std::set<std::string> domains;
  for (const Receipt& receipt : put.row.receipts) {
    if (receipt.holder != put.row.source) domains.insert(receipt.failure_domain);
  }
  if (domains.empty())
    world_.violate(
        "I5", "generation of " + generation.job.str() + " accepted without a copy elsewhere"
    );
  if (state->step != history.durable_step) {
    history.previous_step = history.durable_step;
    history.durable_step = std::max(history.durable_step, state->step);
  }
}

void Checkers::on_submit_acknowledged(const std::string& key, const JobId& job) {
  ++checks_;
  const auto [found, is_new] = acknowledged_.emplace(key, job);
  if (!is_new && found->second != job) {
    world_.violate("I2", "key " + key + " gave " + found->second.str() + " and then " + job.str());
  }
}

void Checkers::check_acknowledged(const std::map<JobId, coordinator::JobRow>& jobs) {
  ++checks_;
  for (const auto& [key, job] : acknowledged_) {
    if (!jobs.contains(job))
      return world_.violate("I1", job.str() + " was acknowledged and is not in the store");
  }
}

void Checkers::on_snapshot(
    const GenerationRef& generation, const std::optional<TrainingState>& state
) {
  ++checks_;
  if (!state) {
    return world_.violate(
        "I6", "a generation of " + generation.job.str() + " holds a torn checkpoint"
    );
  }
  if (state->chain != state_after(state->step).chain) {
    world_.violate(
        "I6", "a generation of " + generation.job.str() + " holds a state that no step has"
    );
  }
  captured_[generation.manifest] = *state;
}

const TrainingState* Checkers::captured(const Digest& manifest) const {
  const auto found = captured_.find(manifest);
  return found == captured_.end() ? nullptr : &found->second;
}

void Checkers::on_guest_start(const Machine& machine, const Machine::Container& container) {
  ++checks_;
  const TrainingState& state = container.progress;
  if (state.chain != state_after(state.step).chain) {
    world_.violate(
        "I6",
        name(container.guest.job, container.guest.epoch) + " started from a torn state on " +
            machine.name()
    );
  }
  const JobHistory& history = jobs_[container.guest.job];
  const auto floor = history.floor_step.find(container.guest.epoch);
  if (floor != history.floor_step.end() && state.step < floor->second) {
    world_.violate(
        "I7",
        name(container.guest.job, container.guest.epoch) + " resumed at step " +
            std::to_string(state.step) + ", acknowledged was " + std::to_string(floor->second)
    );
  }
}

void Checkers::on_guest_step(
    const Machine& machine, const Machine::Container& container, bool is_node_taken
) {
  ++checks_;
  if (is_node_taken) {
    world_.violate(
        "I9",
        name(container.guest.job, container.guest.epoch) + " did a step on " + machine.name() +
            ", which its owner has taken"
    );
  }
}

void Checkers::on_outputs(const JobId& job, BlobView final_state, const Training& training) {
  ++checks_;
  const TrainingState expected = state_after(training.steps);
  std::uint64_t chain = 0;
  for (std::size_t i = 0; i < 8 && i < final_state.size(); ++i)
    chain |= std::uint64_t{final_state[i]} << (8 * i);
  if (final_state.size() != 8 || chain != expected.chain) {
    world_.violate("I6", "the result of " + job.str() + " is not that of an undisturbed run");
  }
}

void Checkers::on_chunk_stored(const JobId& job, BlobView stored) {
  ++checks_;
  constexpr std::string_view kPlain = "data_offsets";
  if (as_text(stored).find(kPlain) != std::string_view::npos) {
    world_.violate("I14", "a stored chunk of " + job.str() + " is readable without its key");
  }
}

void Checkers::on_retention(
    const JobId& job, std::uint32_t generation, std::size_t holders_with_it
) {
  ++checks_;
  if (holders_with_it == 0) {
    world_.violate(
        "I8",
        "no node holds generation " + std::to_string(generation) + " of " + job.str() +
            ", which was acknowledged"
    );
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
