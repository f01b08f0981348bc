// SPDX-License-Identifier: Apache-2.0
#include "sim/machine.h"

#include <algorithm>
#include <cstdio>

namespace rn::sim {

bool is_of(const ReclaimRecord& record, std::optional<std::uint32_t> gpu) {
  if (!gpu) return record.gpus.empty();
  return std::find(record.gpus.begin(), record.gpus.end(), *gpu) != record.gpus.end();
}

Machine::Machine(World& world, std::string name, std::uint64_t seed, nanoseconds wall_error)
    : world_(world), name_(std::move(name)), clock_(world, wall_error), disk_(clock_, seed) {}

void Machine::fill_disk(bool is_full) {
  world_.trace(name_, is_full ? "its disk is full" : "its disk has room again");
  is_disk_full_ = is_full;
  disk_.set_capacity(is_full ? disk_.used_bytes() : ~std::uint64_t{0});
}

void Machine::lose_power() {
  world_.trace(name_, "loses power");
  is_on_ = false;
  containers_.clear();
  disk_.restart();
  ++boots_;
  clock_.reboot();
}

Result<std::string> Machine::create(
    const GuestName& guest,
    const warden_wire::StartGuest& start,
    std::uint32_t slot,
    const std::string& work
) {
  if (containers_.contains(guest))
    return fail(ErrorCode::kConflict, "a container with this name exists");
  if (std::find(images_.begin(), images_.end(), start.image_digest) == images_.end()) {
    return fail(ErrorCode::kNotFound, "no such image: " + start.image_digest);
  }
  for (const std::string& name : start.data) {
    if (!data_sets_.contains(name)) return fail(ErrorCode::kNotFound, "no such data set: " + name);
  }
  Container container;
  container.id = name_ + "-c" + std::to_string(next_id_++);
  container.guest = guest;
  container.training = Training::from(start.env);
  container.work = work;
  container.slot = slot;
  container.cpu_milli = std::max(1U, start.cpu_milli);
  container.gpus = start.gpus;
  container.data = start.data;
  container.started_boot_ns = to_ns(clock_.now().boot);
  containers_[guest] = container;
  if (on_create) on_create(container);
  return container.id;
}

void Machine::set_data(const std::string& name, bool is_there) {
  if (data_sets_.contains(name) == is_there) return;
  world_.trace(name_, "data set " + name + (is_there ? " is there" : " has gone"));
  if (is_there) data_sets_.insert(name);
  if (!is_there) data_sets_.erase(name);
  if (on_data) on_data();
}

Status Machine::go(const GuestName& guest) {
  Container* container = find(guest);
  if (container == nullptr || container->state == ContainerState::kExited) {
    return fail(ErrorCode::kNotFound, "no such container");
  }
  if (container->state == ContainerState::kRunning) return {};
  container->state = ContainerState::kRunning;
  container->started = world_.now();
  container->progress = read_checkpoint(disk_, container->work + "/model.safetensors");
  container->step_beside = step_beside(container->work);
  world_.trace(
      name_,
      "guest " + guest.job.str() + " " + to_string(guest.epoch) + " starts at step " +
          std::to_string(container->progress.step)
  );
  if (on_start) on_start(*container);
  say(*container, "starts at step " + std::to_string(container->progress.step));
  container->run = next_id_++;
  schedule_step(*container);
  return {};
}

void Machine::schedule_step(Container& container) {
  container.step_began = world_.now();
  const auto length = nanoseconds(
      std::int64_t{container.training.step_ms} * 1'000'000 * 1000 /
      std::min(1000U, container.cpu_milli)
  );
  world_.queue().after(length, [this, guest = container.guest, run = container.run] {
    finish_step(guest, run);
  });
}

void Machine::finish_step(const GuestName& guest, std::uint64_t run) {
  Container* container = find(guest);
  if (container == nullptr || container->run != run || container->state != ContainerState::kRunning)
    return;
  container->progress = next(container->progress);
  if (on_step) on_step(*container);
  const std::uint64_t step = container->progress.step;
  const bool leaves = container->has_term && container->training.leaves_at_term;
  if (container->has_term || step % container->training.save_every == 0) {
    container->has_term = false;
    save(*container, leaves);
  }
  if (leaves && step < container->training.steps) return end(*container, 0, true);
  if (container->training.crash_at_step != 0 && step == container->training.crash_at_step &&
      container->started + milliseconds(container->training.step_ms) * 3 < world_.now()) {
    return end(*container, 1, true);
  }
  if (container->training.fails_at_step != 0 && step >= container->training.fails_at_step)
    return end(*container, 1, true);
  if (step >= container->training.steps) {
    Blob result;
    for (int i = 0; i < 8; ++i)
      result.push_back(static_cast<std::uint8_t>(container->progress.chain >> (8 * i)));
    disk_.overwrite(container->work + "/final.bin", result);
    if (on_file) on_file(guest, "final.bin", false);
    return end(*container, 0, true);
  }
  schedule_step(*container);
}

/// Of save_beside(); none in a work folder where nothing was saved yet.
std::optional<std::uint64_t> Machine::step_beside(const std::string& work) {
  const auto losses = read_all(disk_, work + "/losses.txt", 4096);
  unsigned long long step = 0;
  if (!losses) return std::nullopt;
  if (std::sscanf(std::string(as_text(*losses)).c_str(), "step %20llu ", &step) != 1) return 0;
  return step;
}

/// What scripts keep beside their checkpoint: a file that never changes and some that always do.
/// Each is a chunk of its own.
void Machine::save_beside(const Container& container) {
  const std::string step = std::to_string(container.progress.step);
  const std::string chain = std::to_string(container.progress.chain);
  if (!disk_.stat(container.work + "/vocabulary.txt"))
    disk_.overwrite(
        container.work + "/vocabulary.txt", as_bytes("a b c " + container.guest.job.str())
    );
  disk_.overwrite(container.work + "/losses.txt", as_bytes("step " + step + " loss " + chain));
  disk_.overwrite(container.work + "/optimizer.txt", as_bytes("moments " + chain + " " + step));
}

void Machine::say(const Container& container, const std::string& line) {
  const std::string path = parent_folder(container.work) + "/reclaim/log";
  const std::string text = line + "\n";
  const auto written = [&]() -> Status {
    RN_TRY(const auto log, disk_.open_append(path, 0644));
    return log->append(as_bytes(text));
  }();
  if (on_log) on_log(container, text, written.has_value());
}

/// `is_whole`: it waits until all of it is written.
void Machine::save(Container& container, bool is_whole) {
  save_beside(container);
  say(container, "saves step " + std::to_string(container.progress.step));
  const std::string path = container.work + "/model.safetensors";
  const Blob bytes = checkpoint_of(container.progress, container.training.has_frozen_layers);
  if (container.training.saves_in_place && is_whole) {
    disk_.overwrite(path, bytes);
    if (on_file) on_file(container.guest, "model.safetensors", false);
    return;
  }
  if (container.training.saves_in_place) {
    // A script that writes in place can be caught in the middle by a kill: first half now, the rest
    // a moment later.
    disk_.overwrite(path, BlobView(bytes).first(bytes.size() / 2));
    world_.queue().after(
        milliseconds(40),
        [this, guest = container.guest, run = container.run, path, bytes] {
          const Container* same = find(guest);
          if (same == nullptr || same->run != run || same->state != ContainerState::kRunning)
            return;
          disk_.overwrite(path, bytes);
          if (on_file) on_file(guest, "model.safetensors", false);
        }
    );
    return;
  }
  const std::string temporary = path + ".tmp";
  disk_.overwrite(temporary, bytes);
  if (disk_.rename(temporary, path) && on_file) on_file(container.guest, "model.safetensors", true);
}

void Machine::end(Container& container, std::int32_t exit_code, bool is_own) {
  container.state = ContainerState::kExited;
  container.exit_code = exit_code;
  container.has_own_end = is_own;
  container.ended = world_.now();
  container.run = 0;
  world_.trace(
      name_,
      "guest " + container.guest.job.str() + " " + to_string(container.guest.epoch) +
          " exits with " + std::to_string(exit_code)
  );
  const Container copy = container;
  if (on_end) on_end(copy);
  if (on_exit) on_exit(copy);
}

bool Machine::kill(const GuestName& guest) {
  Container* container = find(guest);
  if (container == nullptr || container->state == ContainerState::kExited) return false;
  end(*container, 137, false);
  return true;
}

std::uint32_t Machine::kill_all() {
  return kill_those([](const Container&) { return true; });
}

std::uint32_t Machine::kill_on(std::uint32_t gpu) {
  return kill_those([gpu](const Container& container) { return has_gpu(container, gpu); });
}

std::uint32_t Machine::kill_those(const std::function<bool(const Container&)>& is_meant) {
  std::vector<GuestName> running;
  for (const auto& [guest, container] : containers_) {
    const bool is_there = container.state != ContainerState::kExited;
    if (is_there && is_meant(container)) running.push_back(guest);
  }
  for (const GuestName& guest : running) kill(guest);
  return static_cast<std::uint32_t>(running.size());
}

bool Machine::has_gpu(const Container& container, std::uint32_t gpu) {
  return std::find(container.gpus.begin(), container.gpus.end(), gpu) != container.gpus.end();
}

void Machine::remove(const GuestName& guest) {
  kill(guest);
  containers_.erase(guest);
}

void Machine::notify(const GuestName& guest, bool is_told) {
  const auto found = containers_.find(guest);
  if (found != containers_.end()) found->second.is_told = is_told;
}

std::uint32_t Machine::signal_term(const GuestName& guest) {
  Container* container = find(guest);
  if (container == nullptr || container->state != ContainerState::kRunning ||
      !(container->training.handles_term || container->training.leaves_at_term))
    return 0;
  container->has_term = true;
  return 1;
}

Machine::Container* Machine::find(const GuestName& guest) {
  const auto found = containers_.find(guest);
  return found == containers_.end() ? nullptr : &found->second;
}

}  // namespace rn::sim
