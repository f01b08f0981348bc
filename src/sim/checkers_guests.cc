// SPDX-License-Identifier: Apache-2.0
// The checkers' half that looks at guests: what they resume from, run, write and end with.
#include <algorithm>
#include <string_view>

#include "sim/checkers.h"

namespace rn::sim {

namespace {

std::string name(const warden_wire::GuestName& guest) {
  return guest.job.str() + " epoch " + to_string(guest.epoch);
}

}  // namespace

void Checkers::on_snapshot(
    const GenerationRef& generation, const std::optional<TrainingState>& state
) {
  ++checks_;
  if (!state) {
    return world_.violate(
        "I6", "a generation of " + generation.job.str() + " holds a torn checkpoint"
    );
  }
  if (state->chain != state_after(state->step, state->rank, state->size).chain) {
    world_.violate(
        "I6", "a generation of " + generation.job.str() + " holds a state that no step has"
    );
  }
  captured_.insert_or_assign(generation.manifest, std::pair(generation, *state));
  captured_at_[generation.manifest] = world_.now();
}

void Checkers::on_upload(const JobId& job, LeaseEpoch epoch, const Digest& listing) {
  attempts_[{job, epoch}].uploads.insert(listing);
}

bool Checkers::has_uploaded(const JobId& job, LeaseEpoch epoch) const {
  const auto attempt = attempts_.find({job, epoch});
  return attempt != attempts_.end() && !attempt->second.uploads.empty();
}

void Checkers::on_chunk_stored(const JobId& job, BlobView stored) {
  ++checks_;
  // Of every file that a simulated guest saves.
  for (const std::string_view plain : {"data_offsets", "a b c ", " loss ", "moments "}) {
    if (as_text(stored).find(plain) != std::string_view::npos)
      world_.violate("I14", "a stored chunk of " + job.str() + " is readable without its key");
  }
}

const TrainingState* Checkers::captured(const Digest& manifest) const {
  const auto found = captured_.find(manifest);
  return found == captured_.end() ? nullptr : &found->second.second;
}

void Checkers::on_guest_create(const Machine& machine, const Machine::Container& container) {
  ++checks_;
  const auto node = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    return entry.second.name == machine.name();
  });
  const auto job = jobs_.find(container.guest.job);
  const auto wanted = job == jobs_.end() ? std::vector<std::string>() : job->second.data;
  const bool are_there =
      std::all_of(wanted.begin(), wanted.end(), [&](const std::string& data_set) {
        return machine.data_sets().contains(data_set);
      });
  if (container.data != wanted || !are_there)
    return world_.violate(
        "I16", name(container.guest) + " is on " + machine.name() + " without its data"
    );
  if (!node->second.lends)
    return world_.violate("I10", name(container.guest) + " is on a machine that lends nothing");
  check_gpus(machine, container, node->second.gpus);
  std::uint64_t cpu_milli = 0;
  for (const auto& [guest, other] : machine.containers()) {
    if (other.state != Machine::ContainerState::kExited) cpu_milli += other.cpu_milli;
  }
  if (cpu_milli > node->second.cpu_milli)
    world_.violate(
        "I10",
        "guests on " + machine.name() + " have " + std::to_string(cpu_milli) +
            " thousandths of a core, its owner lends " + std::to_string(node->second.cpu_milli)
    );
}

/// It has as many as its job asked for, of those that are there, and each for itself.
void Checkers::check_gpus(
    const Machine& machine, const Machine::Container& container, std::uint32_t there
) {
  const auto job = jobs_.find(container.guest.job);
  const std::uint32_t wanted = job == jobs_.end() ? 0 : job->second.gpus;
  bool is_good = container.gpus.size() == wanted;
  for (const std::uint32_t gpu : container.gpus) {
    const auto sharers =
        std::count_if(machine.containers().begin(), machine.containers().end(), [&](const auto& e) {
          return e.second.state != Machine::ContainerState::kExited &&
                 Machine::has_gpu(e.second, gpu);
        });
    is_good = is_good && gpu < there && sharers == 1;
  }
  if (!is_good)
    world_.violate(
        "I10", name(container.guest) + " has not the GPUs of " + machine.name() + " for itself"
    );
}

void Checkers::on_left(const Machine& machine) {
  ++checks_;
  for (auto& [id, node] : nodes_) {
    if (node.name == machine.name()) node.is_hollow = node.has_left = true;
  }
  for (const auto& [guest, container] : machine.containers()) {
    if (container.state != Machine::ContainerState::kExited)
      return world_.violate("I10", name(guest) + " is on " + machine.name() + ", which has left");
  }
}

void Checkers::on_guest_start(const Machine& machine, const Machine::Container& container) {
  ++checks_;
  const TrainingState& state = container.progress;
  if (state.chain != state_after(state.step, state.rank, state.size).chain) {
    world_.violate("I6", name(container.guest) + " started from a torn state on " + machine.name());
  }
  if (container.step_beside.value_or(state.step) != state.step)
    world_.violate(
        "I6",
        name(container.guest) + " started from a mixture on " + machine.name() + ": step " +
            std::to_string(state.step) + " and files of step " +
            std::to_string(*container.step_beside)
    );
  AttemptHistory& attempt = attempts_[{container.guest.job, container.guest.epoch}];
  const auto node = nodes_.find(attempt.node);
  if (!attempt.is_issued || node == nodes_.end() || node->second.name != machine.name())
    return world_.violate(
        "I4", name(container.guest) + " runs on " + machine.name() + ", which was never given it"
    );
  if (jobs_[container.guest.job].is_held)
    world_.violate("I17", name(container.guest) + " runs, and its job waits for others");
  if (attempt.has_started)
    world_.violate("I3", name(container.guest) + " was started a second time");
  attempt.has_started = true;
  // What a gang's member begins with is its gang's set: GangChecks look at that.
  const bool is_alone = !container.training.is_member();
  if (is_alone && state.step < attempt.floor_step &&
      !is_lost_everywhere(jobs_[container.guest.job])) {
    world_.violate(
        "I7",
        name(container.guest) + " resumed at step " + std::to_string(state.step) +
            ", acknowledged was " + std::to_string(attempt.floor_step)
    );
  }
}

void Checkers::on_guest_step(const Machine&, const Machine::Container& container) {
  // Of a gang's member a step ends when the slowest of them has heard from all.
  const double took_s =
      container.training.is_member()
          ? std::chrono::duration<double>(world_.now() - container.step_began).count()
          : container.training.step_ms / double(std::min(1000U, container.cpu_milli));
  attempts_[{container.guest.job, container.guest.epoch}].ran_s += took_s;
}

void Checkers::on_guest_end(const Machine::Container& container) {
  // 137: somebody killed it.
  if (container.exit_code != 137)
    attempts_[{container.guest.job, container.guest.epoch}].own_exit = container.exit_code;
}

void Checkers::on_guest_log(
    const Machine::Container& container, const std::string& line, bool is_whole
) {
  AttemptHistory& attempt = attempts_[{container.guest.job, container.guest.epoch}];
  attempt.log += line;
  attempt.is_log_torn = attempt.is_log_torn || !is_whole;
}

/// Logs are not synced: what was on the way through its disks may be gone or torn.
void Checkers::on_power_loss(const Machine& machine) {
  for (auto& [key, attempt] : attempts_) {
    const auto node = nodes_.find(attempt.node);
    if (node != nodes_.end() && node->second.name == machine.name()) attempt.is_log_torn = true;
  }
}

void Checkers::on_log_stored(const JobId& job, LeaseEpoch epoch, BlobView log) {
  ++checks_;
  const AttemptHistory& attempt = attempts_[{job, epoch}];
  if (attempt.is_log_torn) return;
  if (std::string_view(attempt.log).substr(0, log.size()) != as_text(log))
    world_.violate(
        "I15",
        "the log of " + job.str() + " epoch " + to_string(epoch) + " is not what its guest wrote"
    );
}

void Checkers::on_final_log(const JobId& job, LeaseEpoch epoch, BlobView log) {
  ++checks_;
  const AttemptHistory& attempt = attempts_[{job, epoch}];
  if (!attempt.is_log_torn && log.size() < attempt.log.size())
    world_.violate(
        "I3",
        "the log of " + job.str() + " epoch " + to_string(epoch) + " has " +
            std::to_string(log.size()) + " bytes, its guest wrote " +
            std::to_string(attempt.log.size())
    );
}

void Checkers::on_outputs(const JobId& job, BlobView final_state, const Training& training) {
  ++checks_;
  const TrainingState expected = state_after(training.steps, training.rank, training.size);
  std::uint64_t chain = 0;
  for (std::size_t i = 0; i < 8 && i < final_state.size(); ++i)
    chain |= std::uint64_t{final_state[i]} << (8 * i);
  if (final_state.size() != 8 || chain != expected.chain) {
    world_.violate("I6", "the result of " + job.str() + " is not that of an undisturbed run");
  }
}

}  // namespace rn::sim
