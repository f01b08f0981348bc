// SPDX-License-Identifier: Apache-2.0
#include "sim/machine.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/assert.h"

namespace rn::sim {

namespace {
constexpr auto kRendezvous = std::chrono::minutes(5);  ///< of a gang's first step, as c10d's
constexpr auto kWatchdog = seconds(10);                ///< of all others, as NCCL's
constexpr auto kGangLook = milliseconds(100);
}  // namespace

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
  const std::string checkpoint = container->work + "/" + container->training.checkpoint_name();
  container->progress = container->training.is_member()
                            ? read_gang_checkpoint(disk_, checkpoint, container->training)
                            : read_checkpoint(disk_, checkpoint);
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
  if (container.training.is_member()) {
    RN_ASSERT(floor_ != nullptr, "members of gangs meet somewhere");
    const bool wants_save = std::exchange(container.has_term, false);
    floor_->say(
        container.training, container.guest.epoch, name_, {container.progress.chain, wants_save}
    );
    ++container.turns;
  }
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
  bool is_told = false;
  if (container->training.is_member()) {
    const auto together = step_together(*container);
    if (!together) return;
    is_told = *together;
  } else {
    container->progress = next(container->progress);
    is_told = std::exchange(container->has_term, false);
  }
  if (on_step) on_step(*container);
  const std::uint64_t step = container->progress.step;
  // A member that is told stays: the others save with it, and need it.
  const bool leaves =
      is_told && container->training.leaves_at_term && !container->training.is_member();
  const bool is_due = is_told || step % container->training.save_every == 0;
  if (is_due && container->training.saves()) save(*container, leaves);
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

/// All save after the same step, whoever was told: a script that is told asks the others.
std::optional<bool> Machine::step_together(Container& container) {
  const Training& training = container.training;
  const auto words = floor_->hear(training, container.guest.epoch, name_, container.turns - 1);
  if (!words) {
    const auto patience = container.turns == 1 ? nanoseconds(kRendezvous) : nanoseconds(kWatchdog);
    const nanoseconds computed = milliseconds(training.step_ms) * 2;
    if (world_.now() - container.step_began > computed + patience) {
      end(container, training.gives_up_with, true);
      return std::nullopt;
    }
    world_.queue().after(kGangLook, [this, guest = container.guest, run = container.run] {
      finish_step(guest, run);
    });
    return std::nullopt;
  }
  GangChains before;
  bool is_told = false;
  for (const GangFloor::Word& word : *words) {
    before.push_back(word.chain);
    is_told = is_told || word.wants_save;
  }
  container.chains = next(before);
  container.progress = {
      container.progress.step + 1, container.chains[training.rank], training.rank, training.size};
  return is_told;
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
  const std::string name = container.training.checkpoint_name();
  const std::string path = container.work + "/" + name;
  const Blob bytes =
      container.training.is_member()
          ? gang_checkpoint_of(container.training, container.progress.step, container.chains)
          : checkpoint_of(container.progress, container.training.has_frozen_layers);
  if (container.training.saves_in_place && is_whole) {
    disk_.overwrite(path, bytes);
    if (on_file) on_file(container.guest, name, false);
    return;
  }
  if (container.training.saves_in_place) {
    // A script that writes in place can be caught in the middle by a kill: first half now, the rest
    // a moment later.
    disk_.overwrite(path, BlobView(bytes).first(bytes.size() / 2));
    world_.queue().after(
        milliseconds(40),
        [this, guest = container.guest, run = container.run, path, name, bytes] {
          const Container* same = find(guest);
          if (same == nullptr || same->run != run || same->state != ContainerState::kRunning)
            return;
          disk_.overwrite(path, bytes);
          if (on_file) on_file(guest, name, false);
        }
    );
    return;
  }
  const std::string temporary = path + ".tmp";
  disk_.overwrite(temporary, bytes);
  if (disk_.rename(temporary, path) && on_file) on_file(container.guest, name, true);
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
