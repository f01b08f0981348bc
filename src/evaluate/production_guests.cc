// SPDX-License-Identifier: Apache-2.0
#include "evaluate/production_guests.h"

#include <algorithm>

#include "base/assert.h"

namespace rn::evaluate {

namespace {

constexpr std::uint64_t kAgentSession = 1;
constexpr std::uint64_t kOwnerSession = 0;
constexpr Moment kShort = milliseconds(5);
constexpr Moment kReplyTakes = std::chrono::microseconds(100);
constexpr Moment kDiskTakes = milliseconds(20);
constexpr std::int32_t kSavedAndLeft = 85;
constexpr std::int32_t kKilledCode = 137;

std::string folder_of(const GuestName& guest) {
  return "/attempts/" + guest.job.str() + "-" + to_string(guest.epoch);
}

}  // namespace

WardenSeat::WardenSeat(ProductionSite& site, NodeNumber node)
    : site_(site), node_(node), rng_(site.rng.next()) {
  journal_.images.push_back({kImage, "image"});
}

void WardenSeat::later(Moment delay, std::function<void()> action) {
  site_.agenda().after(delay, [this, life = life_, action = std::move(action)] {
    if (life == life_ && is_on_) action();
  });
}

void WardenSeat::power_on(const std::string& boot_id) {
  ++life_;
  is_on_ = true;
  warden::CoreConfig config;
  config.boot_id = boot_id;
  core_.emplace(config, journal_, rng_);
  obey(core_->start(site_.now()));
  answer_later(milliseconds(30), warden::EngineChanged{true, "simulated"});
  later(milliseconds(50), [this] {
    warden::Reconciled found;
    found.images = journal_.images;
    for (const warden::GuestRecord& record : journal_.guests) {
      if (!record.disk.empty()) found.disks.push_back({record.guest, record.disk, record.disk_mib});
    }
    feed(found);
  });
}

void WardenSeat::power_off() {
  is_on_ = false;
  ++life_;
  declared_.reset();
  if (timer_) site_.agenda().cancel(*timer_);
  timer_.reset();
  for (auto& [name, guest] : guests_) {
    if (guest.run) site_.runs.erase(*guest.run);
    guest.run.reset();
  }
}

// ---- the owner

void WardenSeat::declare(ReclaimKind kind, Moment deadline) {
  declared_ = kind;
  const auto left =
      static_cast<std::uint32_t>((deadline - site_.world->now()) / seconds(1));  // whole seconds
  warden_wire::DeclareReclaim request;
  request.kind = kind;
  (kind == ReclaimKind::kAnnounced ? request.in_s : request.notice_s) = left;
  feed(warden::Asked{{kOwnerSession, ++owner_requests_, true}, request});
}

void WardenSeat::emergency() {
  declared_ = ReclaimKind::kEmergency;
  kill_all();
  const std::int64_t at = to_ns(site_.now().boot);
  warden::EmergencyDone done;
  done.sequence = ++emergencies_;
  done.declared_ns = at;
  done.cut_ns = at + 1000;
  done.report.killed_ns = at + 2000;
  done.report.cleared_ns = at + 3000;
  feed(done);
}

void WardenSeat::release() {
  declared_.reset();
  release_request_ = ++owner_requests_;
  feed(warden::Asked{{kOwnerSession, release_request_, true}, warden_wire::Release{}});
}

// ---- the agent

void WardenSeat::ask(const warden_wire::NumberedRequest& request) {
  later(kReplyTakes, [this, request] {
    if (std::holds_alternative<warden_wire::SetTransfers>(request.request)) {
      warden_wire::Answer answer;
      answer.request = request.number;
      return on_reply(answer);
    }
    feed(warden::Asked{{kAgentSession, request.number, false}, request.request});
  });
}

std::optional<double> WardenSeat::saved_s(const GuestName& name) const {
  const auto found = guests_.find(name);
  return found == guests_.end() ? std::nullopt : found->second.saved_s;
}

// ---- the core

void WardenSeat::feed(const warden::Event& event) {
  if (!is_on_) return;
  ++site_.counts.warden_events;
  obey(core_->handle(event, site_.now()));
}

void WardenSeat::obey(const warden::Output& output) {
  if (output.journal) journal_ = *output.journal;
  for (const auto& effect : output.effects) carry_out(effect);
  if (output.is_state_changed) push_state();
  arm_timer();
}

void WardenSeat::push_state() {
  warden_wire::WardenState state = core_->state();
  const double granted = site_.world->campus().nodes[node_].transfers;
  if (granted > 0) {
    state.transfers.is_there = true;
    state.transfers.bytes_per_s = static_cast<std::uint64_t>(granted);
  }
  later(kReplyTakes, [this, state = std::move(state)] {
    on_reply(warden_wire::StateChanged{state});
  });
}

void WardenSeat::arm_timer() {
  if (timer_) site_.agenda().cancel(*timer_);
  timer_.reset();
  const auto wake = core_->wake_at();
  if (!wake) return;
  const Moment delay = std::max(Moment(0), *wake - site_.now().boot);
  timer_ = site_.agenda().after(delay, [this, life = life_] {
    timer_.reset();
    if (life == life_ && is_on_) feed(warden::Tick{});
  });
}

void WardenSeat::answer_later(Moment delay, warden::Event event) {
  later(delay, [this, event = std::move(event)] { feed(event); });
}

void WardenSeat::carry_out(const warden::Effect& effect) {
  if (const auto* send = std::get_if<warden::SendAnswer>(&effect)) {
    if (send->caller.session == kOwnerSession) {
      // Guests are being cleared still: the owner says it once more.
      if (send->caller.number == release_request_ && !send->answer.code.empty())
        later(seconds(1), [this] {
          if (site_.world->is_lent(node_)) release();
        });
      return;
    }
    later(kReplyTakes, [this, answer = send->answer] { on_reply(answer); });
  } else if (const auto* make = std::get_if<warden::MakeDisk>(&effect)) {
    answer_later(kDiskTakes, warden::DiskMade{make->op, folder_of(make->guest)});
  } else if (const auto* adopt = std::get_if<warden::AdoptDisk>(&effect)) {
    answer_later(kShort, warden::Finished{adopt->op, {}});
  } else if (const auto* drop = std::get_if<warden::DropDisk>(&effect)) {
    guests_.erase(drop->guest);
    prepared_.erase(drop->guest);
    answer_later(kShort, warden::Finished{drop->op, {}});
  } else if (const auto* begin = std::get_if<warden::Start>(&effect)) {
    Guest& guest = guests_[begin->record.guest];
    guest.job = site_.jobs.at(begin->record.guest.job);
    guest.container = "c-" + std::to_string(next_container_++);
    answer_later(
        moment_of(site_.machine.container_s),
        warden::Started{
            begin->op, warden::StartedGuest{guest.container, 1000, to_ns(site_.now().boot)}}
    );
  } else if (const auto* start = std::get_if<warden::Go>(&effect)) {
    answer_later(kShort, warden::Finished{start->op, go(start->record.guest)});
  } else if (const auto* tell = std::get_if<warden::Signal>(&effect)) {
    answer_later(kShort, warden::Signalled{tell->op, signal(tell->record.guest)});
  } else if (const auto* end = std::get_if<warden::Kill>(&effect)) {
    kill(end->record.guest);
    answer_later(kShort, warden::Finished{end->op, {}});
  } else if (const auto* notify = std::get_if<warden::Notify>(&effect)) {
    answer_later(kShort, warden::Finished{notify->op, {}});
  } else if (const auto* forget = std::get_if<warden::Forget>(&effect)) {
    kill(forget->record.guest);
    answer_later(kShort, warden::Finished{forget->op, {}});
  } else if (const auto* import = std::get_if<warden::Import>(&effect)) {
    answer_later(kShort, warden::Imported{import->op, import->image.digest});
  } else if (const auto* all = std::get_if<warden::Clear>(&effect)) {
    clear(*all);
  }
}

void WardenSeat::clear(const warden::Clear& clear) {
  const std::int64_t cut = to_ns(site_.now().boot);
  if (clear.is_whole_node) {
    kill_all();
  } else {
    for (const auto& guest : clear.guests) kill(guest.guest);
  }
  answer_later(std::chrono::microseconds(50), warden::WasCut{clear.reclaim, cut});
  answer_later(
      milliseconds(10),
      warden::WasCleared{clear.reclaim, {cut + 5'000'000, cut + 10'000'000, 0, {}}}
  );
}

// ---- guests

Status WardenSeat::go(const GuestName& name) {
  Guest& guest = guests_.at(name);
  World& world = *site_.world;
  const bool has_room =
      world.is_lent(node_) && !declared_ && world.free_gpus(node_) >= world.job(guest.job).gpus;
  if (!has_room)
    return fail(ErrorCode::kUnavailable, "the machine is its owner's", "try another node");
  const auto prepared = prepared_.find(name);
  guest.run = world.start(guest.job, node_, prepared == prepared_.end() ? 0 : prepared->second);
  site_.runs[*guest.run] = node_;
  const double progress_s = world.progress_s(*guest.run);
  if (site_.guests != nullptr) {
    site_.guests->began(guest.job, node_, progress_s);
    arm_save(name);
  }
  site_.tell({.what = Happening::What::kBegan, .job = guest.job, .node = node_, .bytes = progress_s}
  );
  return {};
}

/// Of a guest that saves by itself: its next save.
void WardenSeat::arm_save(const GuestName& name) {
  const Guest& guest = guests_.at(name);
  const Moment now = site_.world->now();
  const auto save = site_.guests->next_save(guest.job, now + Moment(1));
  if (!save) return;
  later(save->at - now, [this, name, run = *guest.run, save = *save] {
    const auto found = guests_.find(name);
    if (found == guests_.end() || found->second.run != run) return;
    saved(name, save.began, save.progress_s);
    arm_save(name);
  });
}

void WardenSeat::saved(const GuestName& name, Moment began, double progress_s) {
  guests_.at(name).saved_s = progress_s;
  later(kShort, [this, name, began] { on_saved(name, began); });
}

void WardenSeat::kill(const GuestName& name) {
  const auto found = guests_.find(name);
  if (found == guests_.end() || !found->second.run) return;
  const RunNumber run = *found->second.run;
  found->second.run.reset();
  site_.runs.erase(run);
  if (site_.world->has_run(run))
    site_.world->stop(run, declared_ ? run_end_of(*declared_) : RunEnd::kMoved);
  tell_ended(found->second.job);
  told_exit(name, kKilledCode, true);
}

void WardenSeat::kill_all() {
  std::vector<GuestName> all;
  for (const auto& [name, guest] : guests_) all.push_back(name);
  for (const GuestName& name : all) kill(name);
}

void WardenSeat::told_exit(const GuestName& name, std::int32_t exit_code, bool is_vanished) {
  answer_later(
      kShort, warden::Exited{name, guests_.at(name).container, exit_code, false, is_vanished}
  );
}

/// Of guests that save by themselves: who hears it saves once more, and leaves.
std::uint32_t WardenSeat::tell(const GuestName& name) {
  const Guest& guest = guests_.at(name);
  const Moment now = site_.world->now();
  const auto save = site_.guests->told(guest.job, now);
  if (!save) return 0;
  later(save->at - now, [this, name, run = *guest.run, save = *save] {
    const auto found = guests_.find(name);
    if (found == guests_.end() || found->second.run != run) return;
    saved(name, save.began, save.progress_s);
    found->second.run.reset();
    site_.runs.erase(run);
    site_.world->stop(run, declared_ ? run_end_of(*declared_) : RunEnd::kMoved);
    told_exit(name, kSavedAndLeft, false);
    tell_ended(found->second.job);
  });
  return 1;
}

void WardenSeat::tell_ended(JobNumber job) const {
  site_.tell({.what = Happening::What::kEnded, .job = job, .node = node_});
}

/// The guests of a setting without guests of its own all save on a signal and go on.
std::uint32_t WardenSeat::signal(const GuestName& name) {
  const auto found = guests_.find(name);
  if (found == guests_.end() || !found->second.run) return 0;
  if (site_.guests != nullptr) return tell(name);
  // Who is told while it saves goes on with that save.
  if (!found->second.saves_since) found->second.saves_since = site_.world->now();
  const Moment began = *found->second.saves_since;
  site_.world->save(*found->second.run, [this, name, began, life = life_](double progress_s) {
    if (life != life_ || !is_on_) return;
    const auto guest = guests_.find(name);
    if (guest == guests_.end()) return;
    guest->second.saved_s = progress_s;
    guest->second.saves_since.reset();
    later(kShort, [this, name, began] { on_saved(name, began); });
  });
  return 1;
}

void WardenSeat::on_finished(RunNumber run) {
  for (auto& [name, guest] : guests_) {
    if (guest.run != run) continue;
    guest.run.reset();
    site_.runs.erase(run);
    return told_exit(name, 0, false);
  }
}

}  // namespace rn::evaluate
