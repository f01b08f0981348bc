// SPDX-License-Identifier: Apache-2.0
#include "sim/warden_host.h"

#include <algorithm>

#include "base/planted.h"
#include "model/gang.h"
#include "sim/crash_points.h"
#include "warden/engine.h"
#include "warden/transfer_bounds.h"

namespace rn::sim {

namespace {

constexpr std::uint64_t kOwnerSession = 0;

const char* point_of(const warden::Effect& effect) {
  static_assert(std::variant_size_v<warden::Effect> == kWardenEffectPoints.size());
  return kWardenEffectPoints[effect.index()];
}

std::string attempt_folder(const GuestName& guest) {
  return "/attempts/" + guest.job.str() + "-" + to_string(guest.epoch);
}

/// As the real machine tells it: who was killed together with its init has no end of its own.
bool has_vanished(const Machine::Container& container) {
  warden::EngineContainer seen;
  seen.exit_code = container.exit_code;
  const bool has_exited = container.state == Machine::ContainerState::kExited;
  return has_exited && warden::has_vanished(container.has_own_end, seen);
}

}  // namespace

WardenHost::WardenHost(World& world, Machine& machine)
    : world_(world), machine_(machine), process_(world, machine.name() + ".warden") {}

WardenHost::~WardenHost() = default;

bool WardenHost::dies_at(std::string_view point) {
  if (!world_.crashes_at(point, process_.name())) return false;
  crash(milliseconds(100 + static_cast<std::int64_t>(world_.rng().below(5000))));
  return true;
}

void WardenHost::start() {
  if (process_.is_up() || !machine_.is_on()) return;
  process_.begin_life();
  rng_ = std::make_unique<SeededRng>(world_.rng().next());
  warden::CoreConfig config;
  config.boot_id = machine_.boot_id();
  core_ = std::make_unique<warden::WardenCore>(config, journal_, *rng_);
  machine_.on_exit = [this](const Machine::Container& container) {
    process_.later(milliseconds(5), [this, container] {
      const bool is_vanished = has_vanished(container);
      feed(warden::Exited{container.guest, container.id, container.exit_code, false, is_vanished});
    });
  };
  machine_.on_data = [this] { process_.later(seconds(5), [this] { push_state(); }); };
  obey(core_->start(machine_.clock().now()));
  answer_later(milliseconds(30), warden::EngineChanged{true, "simulated"});
  process_.later(search_takes_, [this] { reconcile(); });
}

void WardenHost::crash(nanoseconds restart_after) {
  if (!process_.is_up()) return;
  world_.trace(process_.name(), "dies");
  process_.end_life();
  core_.reset();
  waiting_.clear();
  is_committing_ = false;
  is_journal_lost_ = false;
  owner_waits_.clear();
  auto sessions = std::move(sessions_);
  sessions_.clear();
  for (auto& [id, session] : sessions) {
    if (session.on_close) session.on_close();
  }
  world_.queue().after(restart_after, [this] { start(); });
}

void WardenHost::lose_journal() {
  world_.trace(process_.name(), "its journal is removed");
  journal_ = {};
  search_takes_ = seconds(5);  // for which the agent must wait
  // The real one tells by the node's gate that these are over (emergencies_over).
  journal_.emergencies_seen = machine_.emergencies().size();
}

std::uint64_t WardenHost::open_session(
    std::function<void(warden_wire::Reply)> on_reply, std::function<void()> on_close
) {
  if (!process_.is_up()) return 0;
  const std::uint64_t id = next_session_++;
  sessions_[id] = {std::move(on_reply), std::move(on_close)};
  return id;
}

void WardenHost::close_session(std::uint64_t session) {
  sessions_.erase(session);
}

void WardenHost::ask(std::uint64_t session, const warden_wire::NumberedRequest& request) {
  process_.later(std::chrono::microseconds(100), [this, session, request] {
    if (const auto* wanted = std::get_if<warden_wire::SetTransfers>(&request.request))
      return claim(session, request.number, *wanted);
    feed(warden::Asked{{session, request.number, false}, request.request});
  });
}

/// As the server does it, with no kernel behind: by the production checks.
void WardenHost::claim(
    std::uint64_t session, std::uint64_t number, const warden_wire::SetTransfers& wanted
) {
  warden_wire::Answer answer;
  answer.request = number;
  if (const auto claims = warden::claims_of(wanted); !claims) {
    world_.violate("transfers", process_.name() + " is told " + claims.error().describe());
    answer.code = to_string(claims.error().code);
    answer.message = claims.error().message;
  }
  for (const warden_wire::Transfer& one : wanted.transfers)
    answer.transfers.transfers.push_back({one.id, 0, 0, 0, 0});
  const auto found = sessions_.find(session);
  if (found != sessions_.end()) found->second.on_reply(answer);
}

void WardenHost::owner_asks(const warden_wire::Request& request, OwnerAnswer on_answer) {
  process_.run([this, request, on_answer = std::move(on_answer)] {
    owner_waits_[++owner_requests_] = on_answer;
    feed(warden::Asked{{kOwnerSession, owner_requests_, true}, request});
  });
}

void WardenHost::emergency(std::optional<std::uint32_t> gpu) {
  const std::int64_t at = to_ns(machine_.clock().now().boot);
  machine_.emergencies().push_back({at, gpu});
  const std::uint32_t processes = gpu ? machine_.kill_on(*gpu) : machine_.kill_all();
  // The gates stay shut, and the engine starts nothing behind them.
  world_.trace(
      machine_.name(),
      "owner: emergency" + (gpu ? " of GPU " + std::to_string(*gpu) : "") + ", " +
          std::to_string(processes) + " guests killed"
  );
  report_emergencies();
}

void WardenHost::report_emergencies() {
  process_.run([this] {
    for (std::uint64_t i = core_->journal().emergencies_seen; i < machine_.emergencies().size();
         ++i) {
      const Machine::Emergency& order = machine_.emergencies()[i];
      const std::int64_t at = order.declared_ns;
      warden::EmergencyDone done;
      done.sequence = i + 1;
      if (order.gpu) done.gpu_mask = warden_wire::mask_of({*order.gpu});
      done.declared_ns = at;
      done.cut_ns = at + 1000;
      done.report.killed_ns = at + 2000;
      done.report.cleared_ns = at + 3000;
      feed(done);
    }
  });
}

bool WardenHost::is_taken(std::optional<std::uint32_t> gpu) const {
  const auto& orders = machine_.emergencies();
  for (std::uint64_t i = journal_.emergencies_seen; i < orders.size(); ++i)
    if (orders[i].gpu == gpu) return true;
  return std::any_of(
      journal_.reclaims.begin(),
      journal_.reclaims.end(),
      [&](const ReclaimRecord& record) {
        return is_of(record, gpu) && record.phase == ReclaimPhase::kCleared;
      }
  );
}

void WardenHost::feed(const warden::Event& event) {
  if (core_ == nullptr) return;
  obey(core_->handle(event, machine_.clock().now()));
}

void WardenHost::obey(warden::Output output) {
  waiting_.push_back(std::move(output));
  arm_timer();
  if (is_committing_) return;
  is_committing_ = true;
  process_.later(std::chrono::microseconds(500), [this] {
    auto batch = std::move(waiting_);
    waiting_.clear();
    for (auto& one : batch) {
      const auto life = process_.life();
      finish(std::move(one));
      if (life != process_.life()) return;
    }
    is_committing_ = false;
    if (!waiting_.empty()) {
      auto next = std::move(waiting_);
      waiting_.clear();
      for (auto& one : next) obey(std::move(one));
    }
  });
}

void WardenHost::finish(warden::Output output) {
  if (output.journal) {
    if (dies_at("warden.before_journal")) return;
    is_journal_lost_ = is_journal_lost_ || machine_.is_disk_full();
  }
  if (output.journal && !is_journal_lost_) {
    if (!planted("warden.forgets_journal")) journal_ = *output.journal;
    if (on_journal) on_journal(*output.journal);
    if (dies_at("warden.after_journal")) return;
  }
  for (const auto& effect : output.effects) {
    if (dies_at(point_of(effect))) return;
    const bool frees = std::holds_alternative<warden::Clear>(effect) ||
                       std::holds_alternative<warden::Kill>(effect);
    if (frees || !is_journal_lost_) carry_out(effect);
  }
  if (output.is_state_changed) push_state();
}

/// The server adds what the core does not know.
warden_wire::WardenState WardenHost::state() const {
  warden_wire::WardenState state = core_->state();
  state.data_sets.assign(machine_.data_sets().begin(), machine_.data_sets().end());
  state.transfers.is_there = true;
  state.features = {kGangsFeature};
  return state;
}

void WardenHost::push_state() {
  if (core_ == nullptr || is_journal_lost_) return;
  for (const auto& [id, session] : std::map(sessions_))
    session.on_reply(warden_wire::StateChanged{state()});
}

void WardenHost::slow_engine(nanoseconds for_so_long) {
  if (for_so_long > nanoseconds(0)) world_.trace(machine_.name(), "its engine answers late");
  engine_slow_until_ = world_.now() + for_so_long;
}

nanoseconds WardenHost::engine_takes(nanoseconds usually) const {
  return usually + std::max(nanoseconds(0), engine_slow_until_ - world_.now());
}

void WardenHost::answer_later(nanoseconds delay, warden::Event event) {
  process_.later(delay, [this, event = std::move(event)] { feed(event); });
}

void WardenHost::make_disk(const warden::MakeDisk& make) {
  const std::string folder = attempt_folder(make.guest);
  Status made = make_folders(machine_.disk(), folder + "/work", 0755);
  if (made) made = make_folders(machine_.disk(), folder + "/reclaim", 0755);
  Result<std::string> result = folder;
  if (!made) result = fail(made.error());
  answer_later(milliseconds(20), warden::DiskMade{make.op, result});
}

void WardenHost::start_guest(const warden::Start& start) {
  auto created = machine_.create(
      start.record.guest, start.start, start.record.slot, start.record.disk + "/work"
  );
  Result<warden::StartedGuest> result;
  if (created)
    result = warden::StartedGuest{*created, 1000, to_ns(machine_.clock().now().boot)};
  else
    result = fail(created.error());
  answer_later(engine_takes(milliseconds(300)), warden::Started{start.op, result});
}

void WardenHost::clear(const warden::Clear& clear) {
  const std::int64_t cut = to_ns(machine_.clock().now().boot);
  for (const ReclaimRecord& record : journal_.reclaims) {
    if (record.id == clear.reclaim && on_clear)
      on_clear(clear, nanoseconds(record.deadline_ns - cut));
  }
  std::uint32_t processes = 0;
  if (!planted("warden.clear_kills_nothing")) {
    if (clear.is_whole_node)
      processes = machine_.kill_all();
    else
      for (const auto& guest : clear.guests) processes += machine_.kill(guest.guest) ? 1 : 0;
  }
  answer_later(std::chrono::microseconds(50), warden::WasCut{clear.reclaim, cut});
  answer_later(
      milliseconds(10),
      warden::WasCleared{clear.reclaim, {cut + 5'000'000, cut + 10'000'000, processes, {}}}
  );
}

std::uint32_t WardenHost::signalled(const warden::Signal& signal) {
  if (!signal.file) return machine_.signal_term(signal.record.guest);
  const std::string folder = attempt_folder(signal.record.guest);
  const std::string path = signal.file->is_for_init
                               ? join_path(folder, "reclaim/told")
                               : join_path(folder, "work/" + signal.file->file);
  if (machine_.disk().stat(path)) return 0;
  machine_.disk().overwrite(path, as_bytes(signal.file->reason));
  return 1;
}

void WardenHost::carry_out(const warden::Effect& effect) {
  constexpr auto kShort = milliseconds(5);
  if (const auto* e = std::get_if<warden::SendAnswer>(&effect)) {
    if (e->caller.session == kOwnerSession) {
      const auto waits = owner_waits_.extract(e->caller.number);
      if (!waits.empty() && waits.mapped()) waits.mapped()(e->answer);
      return;
    }
    const auto found = sessions_.find(e->caller.session);
    warden_wire::Answer answer = e->answer;
    if (answer.code.empty() && answer.state != warden_wire::WardenState{}) answer.state = state();
    if (found != sessions_.end()) found->second.on_reply(answer);
  } else if (const auto* make = std::get_if<warden::MakeDisk>(&effect)) {
    make_disk(*make);
  } else if (const auto* adopt = std::get_if<warden::AdoptDisk>(&effect)) {
    answer_later(kShort, warden::Finished{adopt->op, {}});
  } else if (const auto* drop = std::get_if<warden::DropDisk>(&effect)) {
    const Status done = remove_tree(machine_.disk(), attempt_folder(drop->guest));
    answer_later(kShort, warden::Finished{drop->op, done});
  } else if (const auto* begin = std::get_if<warden::Start>(&effect)) {
    start_guest(*begin);
  } else if (const auto* go = std::get_if<warden::Go>(&effect)) {
    const Status gone = machine_.go(go->record.guest);
    answer_later(engine_takes(kShort), warden::Finished{go->op, gone});
  } else if (const auto* signal = std::get_if<warden::Signal>(&effect)) {
    answer_later(kShort, warden::Signalled{signal->op, signalled(*signal)});
  } else if (const auto* kill = std::get_if<warden::Kill>(&effect)) {
    machine_.kill(kill->record.guest);
    answer_later(kShort, warden::Finished{kill->op, {}});
  } else if (const auto* notify = std::get_if<warden::Notify>(&effect)) {
    machine_.notify(notify->notice.guest, notify->notice.deadline_wall_ms != 0);
    answer_later(kShort, warden::Finished{notify->op, {}});
  } else if (const auto* forget = std::get_if<warden::Forget>(&effect)) {
    machine_.remove(forget->record.guest);
    answer_later(engine_takes(kShort), warden::Finished{forget->op, {}});
  } else if (const auto* stray = std::get_if<warden::RemoveStray>(&effect)) {
    machine_.remove(stray->container.guest);
  } else if (const auto* import = std::get_if<warden::Import>(&effect)) {
    machine_.add_image(import->image.digest);
    answer_later(
        engine_takes(milliseconds(500)), warden::Imported{import->op, import->image.digest}
    );
  } else if (const auto* clear_effect = std::get_if<warden::Clear>(&effect)) {
    clear(*clear_effect);
  }
}

void WardenHost::reconcile() {
  warden::Reconciled found;
  for (const auto& [guest, container] : machine_.containers()) {
    warden::FoundContainer one;
    one.guest = guest;
    one.container = container.id;
    one.slot = container.slot;
    one.is_running = container.state != Machine::ContainerState::kExited;
    one.has_go_ahead = container.state != Machine::ContainerState::kCreated;
    one.exit_code = container.exit_code;
    one.has_own_end = container.has_own_end;
    one.is_vanished = has_vanished(container);
    one.started_boot_ns = container.started_boot_ns;
    one.gpus = container.gpus;
    one.pid = 1000;
    found.containers.push_back(one);
  }
  if (const auto names = machine_.disk().list("/attempts")) {
    for (const std::string& name : *names) {
      const auto dash = name.rfind('-');
      found.disks.push_back(
          {{JobId(name.substr(0, dash)), parse_epoch(name.substr(dash + 1))},
           "/attempts/" + name,
           2048}
      );
    }
  }
  for (const auto& image : machine_.images()) found.images.push_back({image, image});
  feed(found);
  report_emergencies();
}

void WardenHost::arm_timer() {
  const auto wake = core_->wake_at();
  if (!wake) return;
  const nanoseconds delay =
      std::max(nanoseconds(0), *wake - machine_.clock().now().boot) + nanoseconds(1000);
  process_.later(delay, [this] {
    const auto again = core_->wake_at();
    if (again && *again <= machine_.clock().now().boot) feed(warden::Tick{});
  });
}

}  // namespace rn::sim
