// SPDX-License-Identifier: Apache-2.0
#include "warden/machine.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "io/real_fs.h"
#include "io/real_rng.h"
#include "model/gang.h"
#include "warden/guest_gang.h"
#include "warden/guest_ids.h"
#include "warden/guest_word.h"
#include "warden/kernel_bounds.h"
#include "warden/posix.h"

namespace rn::warden {

namespace {

constexpr milliseconds kKillLimit = seconds(5);
constexpr milliseconds kClearLimit = seconds(10);
constexpr seconds kFactsAge{30};
constexpr milliseconds kGpuLook = seconds(2);
constexpr milliseconds kScrubLimit = seconds(15);  ///< of one GPU; an H100 takes below one
constexpr std::size_t kScrubNonceBytes = 4;
constexpr uid_t kNobody = 65534;
constexpr milliseconds kStep{20};
constexpr int kEndTries = 100;  ///< of kStep each: the engine learns of an end a little later
constexpr std::int32_t kUnknownExitCode = 137;
constexpr const char* kGo = "go";
constexpr std::size_t kTicketBytes = 16;
constexpr const char* kExit = "exit";
constexpr const char* kNotice = "notice";

std::optional<std::int32_t> number_of(const std::string& text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

}  // namespace

MachinePaths::MachinePaths(const MachineConfig& config)
    : attempts(config.state + "/attempts"),
      data(config.state + "/data"),
      init(config.state + "/bin/reclaim-init"),
      hosts(config.state + "/bin/members"),
      scrub(config.state + "/bin/reclaim-scrub"),
      engine(config.state + "/engine"),
      engine_run(config.run + "/engine"),
      gates(config.run + "/gates"),
      journal(config.state + "/journal"),
      sysctls(config.state + "/sysctls"),
      kill_journal(config.state + "/kill.journal"),
      hand_journal(config.state + "/kill-by-hand.journal"),
      ordered_journal(config.state + "/kill-ordered.journal"),
      transfers_cut(config.state + "/transfers-cut"),
      cgroup("reclaim-" + config.lab) {}

DataConfig data_config(const MachineConfig& config) {
  return {MachinePaths(config).data, config.data_sets, {parent_folder(config.state), config.run}};
}

std::uint32_t first_guest_id(const MachineConfig& config) {
  return config.first_guest_id != 0 ? config.first_guest_id : uid_base_of(config.lab);
}

Machine::Machine(const MachineConfig& config, const Clock& clock)
    : config_(config), paths_(config), clock_(clock) {}

KillPathConfig Machine::kill_config(const MachineConfig& config, const std::string& journal) {
  const MachinePaths paths(config);
  KillPathConfig kill;
  kill.journal = journal;
  kill.bpffs = paths.gates;
  kill.cgroup_parent = paths.cgroup;
  // NOTE: of mounts only the views of the owner's data are looked at, which a start that was broken
  // off may leave. A guest's own go with its mount namespace; the attempt's disk stays, because the
  // copies of what is on it go on after the guest.
  kill.attempts_folder = DataMounts::guests_folder(paths.data);
  if (config.engine == "private") {
    kill.uid_first = first_guest_id(config);
    kill.uid_count = kIdsPerLab;
  }
  return kill;
}

Result<std::unique_ptr<Machine>> Machine::open(const MachineConfig& config, const Clock& clock) {
  std::unique_ptr<Machine> machine(new Machine(config, clock));
  RN_CHECK(machine->open_parts());
  return machine;
}

Status Machine::open_parts() {
  const bool is_private = config_.engine == "private";
  const std::uint32_t uid_base = is_private ? first_guest_id(config_) : 0;
  io::RealFileSystem fs;
  for (const std::string& folder : {config_.state, config_.state + "/bin", config_.run})
    RN_CHECK(make_folders(fs, folder, 0711));
  // The guests' mapped uids must reach it, wherever this program was installed.
  RN_TRY(const Blob init, read_all(fs, config_.init, 16 << 20));
  RN_CHECK(write_durably(fs, paths_.init, init, 0755));
  RN_CHECK(write_durably(fs, paths_.hosts, as_bytes(member_hosts()), 0644));
  if (config_.gpu_scrub != GpuScrub::kOff) {
    RN_TRY(const Blob scrub, read_all(fs, config_.scrub, 16 << 20));
    RN_CHECK(write_durably(fs, paths_.scrub, scrub, 0755));
  }

  DiskConfig disks;
  disks.folder = paths_.attempts;
  disks.agent_uid = config_.agent_uid;
  disks.agent_gid = config_.agent_gid;
  disks.guest_uid = uid_base + kGuestUid;
  disks.reserve_mib = config_.reserve_mib;
  RN_TRY(disks_, AttemptDisks::open(disks));
  RN_TRY(data_, DataMounts::open(data_config(config_)));

  PrivateEngineConfig engine;
  engine.folder = paths_.engine;
  engine.run = paths_.engine_run;
  engine.cgroup_parent = "/" + paths_.cgroup;
  engine.uid_base = uid_base;
  engine.self = config_.self;
  if (is_private) {
    private_engine_.emplace(engine);
    RN_CHECK(private_engine_->remove_of_other_ids());
  }
  engine_.emplace(is_private ? private_engine_->socket() : config_.engine, config_.lab);

  RN_CHECK(make_folders(fs, paths_.gates, 0700));
  RN_TRY(cut_, traffic::GuestCut::open(paths_.gates));
  RN_TRY(gates_, traffic::CutSwitch::open_pinned(paths_.gates));
  net_ = std::make_unique<GuestNet>(
      GuestNetConfig{
          config_.lab,
          config_.first_address,
          config_.guest_uplink_bps,
          config_.granted_bps,
          paths_.sysctls},
      *cut_
  );
  if (const Status bounded = open_transfers(); !bounded) {
    transfers_refusal_ = bounded.error().describe();
    log::warning("transfers.not_bounded", {{"why", transfers_refusal_}});
  }
  RN_TRY(roots_, probe_cgroups());
  RN_CHECK(make_cgroup(roots_, paths_.cgroup));
  RN_TRY(CgroupKiller killer, CgroupKiller::open(roots_, clock_));
  killer_.emplace(std::move(killer));
  gpus_ = nvml_when_asked();
  if (config_.gpu_scrub != GpuScrub::kOff) scrubbed_gpus_ = nvml_when_asked();
  RN_TRY(
      auto ordered,
      KillPath::open(kill_config(config_, paths_.ordered_journal), clock_, gpus_.get())
  );
  ordered_ = std::make_unique<SharedKillPath>(std::move(ordered));
  const KernelFinding links = look_at_member_network();
  if (links.is_there) features_.emplace_back(kGangsFeature);
  if (!links.is_there) log::info("gangs.not_here", {{"why", links.what}});
  return {};
}

/// Without them guests are lent all the same: transfers are paced by who sends them then.
Status Machine::open_transfers() {
  if (!config_.transfers) return traffic::TransferEdge::leave_pinned(paths_.gates);
  RN_TRY(
      transfers_,
      TransferBounds::open(
          *config_.transfers, paths_.gates, paths_.transfers_cut, config_.agent_uid
      )
  );
  return {};
}

std::string Machine::cgroup_of(const std::string& container) const {
  return paths_.cgroup + "/" + container;
}

// ---- disks

Result<std::string> Machine::make_disk(const MakeDisk& order) {
  return disks_->prepare(order.guest, order.disk_mib);
}

Status Machine::adopt_disk(const AdoptDisk& order) {
  return disks_->adopt(order.guest);
}

Status Machine::drop_disk(const DropDisk& order) {
  // The container's mount namespace may hold the mount for a moment after its last process.
  Status status;
  for (int i = 0; i < kEndTries; ++i) {
    status = disks_->release(order.guest);
    if (status || status.error().code != ErrorCode::kUnavailable) return status;
    pause_for(kStep);
  }
  return status;
}

// ---- guests

Result<std::string> Machine::create(const Start& order, const std::string& go_ticket) {
  const std::string disk = disks_->folder_of(order.record.guest);
  ContainerSetting setting;
  setting.lab = config_.lab;
  setting.image_id = order.image_id;
  setting.work_source = disk + "/work";
  setting.reclaim_source = disk + "/reclaim";
  setting.data_source = data_->folder_of(order.record.guest);
  setting.init_path = paths_.init;
  setting.hosts_path = paths_.hosts;
  setting.cgroup_parent = "/" + paths_.cgroup;
  setting.slot = order.record.slot;
  setting.gpu_access = config_.gpu_access;
  RN_TRY(setting.gpu_driver, driver_for(order.record.gpus));
  setting.go_ticket = go_ticket;
  RN_TRY(const std::string request, make_create_request(order.start, setting));
  const std::string name = container_name(config_.lab, order.record.guest);
  auto created = engine_->create(name, request);
  if (!created && created.error().code == ErrorCode::kConflict) {
    // Left by a start that was given up: the core knows that nothing of it may live. An engine that
    // was killed in the middle of it may take a living container for one that never ran.
    RN_TRY(const EngineContainer before, engine_->inspect(name));
    RN_CHECK(kill_container(before.id));
    RN_CHECK(engine_->remove(before.id));
    created = engine_->create(name, request);
  }
  return created;
}

/// Nothing where an engine's own way is used.
Result<GpuDriver> Machine::driver_for(const std::vector<std::uint32_t>& gpus) {
  if (config_.gpu_access != GpuAccess::kDriver) return GpuDriver{};
  std::vector<std::string> uuids;
  for (const std::uint32_t gpu : gpus) {
    RN_TRY(std::string uuid, gpus_->uuid(gpu, kGpuLook));
    uuids.push_back(std::move(uuid));
  }
  return find_gpu_driver(uuids);
}

Result<StartedGuest> Machine::start(const Start& order) {
  RN_CHECK(data_->mount(order.record.guest, order.start.data));
  auto started = start_container(order);
  // The container's mount namespace has its own from now on, which go with the guest.
  if (const Status undone = data_->unmount(order.record.guest); !undone)
    log::warning("data.view_stays", {{"why", undone.error().describe()}});
  return started;
}

/// No GPU goes to the next tenant while it holds something of the one before. A look that cannot be
/// made counts as a finding.
Status Machine::check_gpus_are_free(const std::vector<std::uint32_t>& gpus) {
  if (gpus.empty()) return {};
  Remains left;
  auto guests = std::make_unique<PidSet>();
  RN_TRY(const CgroupName name, make_cgroup_name(paths_.cgroup));
  killer_->collect(name, *guests);
  look_at_gpus(*gpus_, gpus, *guests, kGpuLook, left);
  if (left.is_empty()) return {};
  return fail(
      ErrorCode::kUnavailable,
      "a GPU is not free yet: " + left.describe().front(),
      "wait a moment; if it stays, nvidia-smi shows who holds it"
  );
}

/// Nobody but that process: who takes all of a card's memory would take it from them.
Status Machine::check_nobody_computes(std::uint32_t gpu, pid_t but) {
  RN_TRY(const auto processes, scrubbed_gpus_->list(kGpuLook));
  for (const GpuProcess& process : processes) {
    if (process.gpu != gpu || process.pid == but) continue;
    return fail(
        ErrorCode::kUnavailable, "process " + std::to_string(process.pid) + " computes on it"
    );
  }
  return {};
}

/// In the slot of the guest that is about to start, so that each of the owner's orders that would
/// end that guest ends this.
Result<std::string> Machine::scrub_one(const GuestRecord& guest, std::uint32_t gpu) {
  const std::lock_guard lock(scrub_mutex_);
  const auto begun = [this] { return emergencies_ == nullptr ? 0 : emergencies_->begun.load(); };
  const std::uint64_t begun_before = begun();
  GpuScrubOrder order;
  order.program = paths_.scrub;
  RN_TRY(order.uuid, scrubbed_gpus_->uuid(gpu, kGpuLook));
  GuestRecord scrubber = guest;
  scrubber.container =
      "scrub-" + std::to_string(guest.slot) + "-" + io::RealRng().hex(kScrubNonceBytes);
  order.cgroup = cgroup_of(scrubber.container);
  order.uid = config_.engine == "private" ? first_guest_id(config_) + kGuestUid : kNobody;
  order.limit = kScrubLimit;
  register_guest(scrubber, 0);
  auto said = scrub_gpu(order, roots_, *killer_, clock_, [&](pid_t own) -> Status {
    // An order that was begun and ended meanwhile counts, too: it has not seen what began after it.
    if (is_emergency_pending() || begun() != begun_before)
      return fail(ErrorCode::kUnavailable, "the owner is taking the machine back");
    return check_nobody_computes(gpu, own);
  });
  unregister(guest.slot);
  return said;
}

/// What the tenant before left in a GPU's memory, where its owner wants that overwritten.
Status Machine::scrub_gpus(const GuestRecord& guest) {
  if (config_.gpu_scrub == GpuScrub::kOff) return {};
  for (const std::uint32_t gpu : guest.gpus) {
    const auto said = scrub_one(guest, gpu);
    if (said) {
      log::info("gpu.scrubbed", {{"gpu", gpu}, {"how", *said}});
      continue;
    }
    log::warning("gpu.not_scrubbed", {{"gpu", gpu}, {"why", said.error().describe()}});
    if (config_.gpu_scrub == GpuScrub::kTry) continue;
    return fail(
        ErrorCode::kUnavailable,
        "the memory of GPU " + std::to_string(gpu) +
            " could not be overwritten, as its owner wants it between guests: " +
            said.error().message,
        "try another node; its owner: " + said.error().hint
    );
  }
  return {};
}

Result<StartedGuest> Machine::start_container(const Start& order) {
  RN_CHECK(check_gpus_are_free(order.record.gpus));
  RN_CHECK(scrub_gpus(order.record));
  const traffic::Slot slot = order.record.slot;
  RN_CHECK(gates_->cut(slot));
  for (const char* old : {kGo, kWordFile, kHookEndFile})
    RN_CHECK(disks_->erase(order.record.guest, old));
  const std::string ticket = io::RealRng().hex(kTicketBytes);
  RN_TRY(const std::string id, create(order, ticket));
  GuestRecord record = order.record;
  record.container = id;
  register_guest(record, 0);
  const auto begin = [&]() -> Result<StartedGuest> {
    RN_CHECK(engine_->start(id));
    RN_TRY(const EngineContainer container, engine_->inspect(id));
    if (!container.is_running || container.pid <= 1)
      return fail(ErrorCode::kInternal, "the container ended before its command could run");
    RN_CHECK(data_->check_seen(order.record.guest, order.start.data, container.pid));
    RN_CHECK(bound_kernel_objects(container.pid));
    RN_TRY(const std::uint32_t ifindex, net_->attach(slot, container.pid, order.start.network));
    // Without it the guest runs as well, and nobody answers there.
    if (const Status given = GuestNet::give_metadata_address(container.pid); !given)
      log::warning("net.no_metadata_address", {{"why", given.error().describe()}});
    if (order.start.gang) RN_CHECK(give_member_network(container.pid, *order.start.gang));
    record.pid = container.pid;
    register_guest(record, ifindex);
    return StartedGuest{id, container.pid, to_ns(clock_.now().boot)};
  };
  auto started = begin();
  if (started) {
    const std::lock_guard lock(go_tickets_mutex_);
    go_tickets_[slot] = ticket;
    return started;
  }
  for (const Status& undone : {kill_container(id), engine_->remove(id), net_->detach(slot)}) {
    if (!undone) log::warning("guest.half_start_stays", {{"why", undone.error().describe()}});
  }
  unregister(slot);
  return started;
}

bool Machine::is_emergency_pending() const {
  return emergencies_ != nullptr && emergencies_->is_pending();
}

Status Machine::go(const Go& order) {
  std::string ticket;
  {
    const std::lock_guard lock(go_tickets_mutex_);
    ticket = std::exchange(go_tickets_[order.record.slot], {});
  }
  if (ticket.empty()) return fail(ErrorCode::kInternal, "nothing was started that could go");
  RN_CHECK(gates_->uncut(order.record.slot));
  if (is_emergency_pending()) {
    RN_CHECK(gates_->cut(order.record.slot));
    return fail(ErrorCode::kUnavailable, "the owner is taking the machine back");
  }
  return disks_->write(order.record.guest, kGo, ticket);
}

void Machine::register_guest(const GuestRecord& record, std::uint32_t ifindex) {
  GuestPlace place;
  place.cgroup = cgroup_of(record.container);
  if (record.pid > 1) {
    place.netns = "/proc/" + std::to_string(record.pid) + "/ns/net";
    place.netns_pid = record.pid;
  }
  place.ifindex = ifindex;
  for (SharedKillPath* path : {ordered_.get(), emergency_}) {
    if (path == nullptr) continue;
    const Status known =
        path->use([&](KillPath& p) { return p.guest_started(record.slot, place); });
    if (!known) log::error("kill_path.not_registered", {{"why", known.error().describe()}});
  }
  if (slot_gpus_ != nullptr && record.slot < kSlots)
    (*slot_gpus_)[record.slot] = warden_wire::mask_of(record.gpus);
}

void Machine::unregister(traffic::Slot slot) {
  for (SharedKillPath* path : {ordered_.get(), emergency_}) {
    if (path != nullptr) path->use([&](KillPath& p) { p.guest_ended(slot); });
  }
  if (slot_gpus_ != nullptr && slot < kSlots) (*slot_gpus_)[slot] = 0;
}

Result<std::uint32_t> Machine::tell(const warden_wire::TellGuest& order) {
  const WallTime now = clock_.now().wall;
  RN_TRY(
      const bool is_new,
      order.is_for_init
          ? disks_->write_new_beside(order.guest, kWordFile, word_for_init(order, now))
          : disks_->write_new(order.guest, order.file, word_as_json(order, now))
  );
  return is_new ? 1U : 0U;
}

Result<std::uint32_t> Machine::signal(const Signal& order) {
  if (order.file) return tell(*order.file);
  const std::string group = cgroup_of(order.record.container);
  int number = 0;
  switch (order.signal) {
    case SaveSignal::kAuto: {
      RN_TRY(const ToldToSave told, tell_to_save(roots_, group));
      return static_cast<std::uint32_t>(told.pids.size());
    }
    case SaveSignal::kUsr1:
      number = SIGUSR1;
      break;
    case SaveSignal::kUsr2:
      number = SIGUSR2;
      break;
    case SaveSignal::kTerm:
      number = SIGTERM;
      break;
    case SaveSignal::kNone:
      return 0U;
  }
  RN_TRY(const auto pids, signal_catchers(roots_, group, number));
  return static_cast<std::uint32_t>(pids.size());
}

Status Machine::kill_container(const std::string& container) {
  RN_TRY(const CgroupName name, make_cgroup_name(cgroup_of(container)));
  if (killer_->kill(name, clock_.now().boot + kKillLimit)) return {};
  RN_TRY(const auto left, pids_in_cgroup(roots_, cgroup_of(container)));
  return fail(
      ErrorCode::kInternal,
      std::to_string(left.size()) + " processes do not die" +
          (left.empty() ? "" : ", first " + std::to_string(left.front()))
  );
}

Status Machine::kill(const Kill& order) {
  if (order.record.slot < kSlots) RN_CHECK(gates_->cut(order.record.slot));
  if (order.record.container.empty()) return {};
  return kill_container(order.record.container);
}

Status Machine::notify(const Notify& order) {
  if (order.notice.deadline_wall_ms == 0) return disks_->erase(order.notice.guest, kNotice);
  const nlohmann::json notice = {
      {"reason", order.notice.reason},
      {"deadline_unix", static_cast<double>(order.notice.deadline_wall_ms) / 1000.0},
      {"grace_s", order.notice.grace_s},
      {"will_migrate", true}};
  return disks_->write(
      order.notice.guest,
      kNotice,
      notice.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"
  );
}

Status Machine::forget(const Forget& order) {
  if (!order.record.container.empty()) RN_CHECK(engine_->remove(order.record.container));
  if (order.record.slot < kSlots) {
    RN_CHECK(net_->detach(order.record.slot));
    unregister(order.record.slot);
  }
  return {};
}

Status Machine::remove_stray(const FoundContainer& container) {
  log::warning("guest.stray", {{"container", container.container}});
  RN_CHECK(kill_container(container.container));
  return engine_->remove(container.container);
}

Result<std::string> Machine::import(const Import& order) {
  const std::string prefix = config_.agent_state + "/";
  const std::string& path = order.image.archive_path;
  if (!path.starts_with(prefix) || !is_safe_relative_path(path.substr(prefix.size())))
    return fail(ErrorCode::kDenied, path + " is not inside the agent's state folder");
  // Resolved below the folder by the kernel: a link of the agent's leads nowhere else.
  io::RealFileSystem fs;
  RN_TRY(const auto folder, fs.open_folder(config_.agent_state));
  RN_TRY(const auto file, folder->open(path.substr(prefix.size())));
  const auto read = [&](std::uint64_t offset, std::size_t max) { return file->read(offset, max); };
  const warden_wire::LoadImage& image = order.image;
  return image.layers.empty() ? engine_->import_image(image.digest, read)
                              : engine_->load_image(image.digest, image.layers, read);
}

// ---- reclaims

ClearReport Machine::clear(const Clear& order, const std::function<void(Instant)>& cut) {
  KillOrder kill;
  kill.limit = kClearLimit;
  kill.scope.is_node = order.is_whole_node;
  for (const GuestRecord& guest : order.guests) {
    if (guest.slot < kSlots) kill.scope.slots.set(guest.slot);
  }
  kill.scope.gpus = warden_wire::mask_of(order.gpus);
  ClearReport out;
  if (!order.is_whole_node && kill.scope.slots.none()) {
    cut(clock_.now().boot);
    out.killed_ns = to_ns(clock_.now().boot);
    // Nobody is there to be killed; what somebody has left on the GPU counts all the same.
    out.remains =
        ordered_->use([&](KillPath& path) { return path.look(kill.scope, kGpuLook).describe(); });
    if (out.remains.empty()) out.cleared_ns = to_ns(clock_.now().boot);
    return out;
  }
  ordered_->use([&](KillPath& path) {
    const KillReport& first = path.cut(kill);
    if (first.is_cut()) cut(first.cut);
    const KillReport& report = path.clear(kill);
    out.killed_ns = to_ns(report.killed);
    out.cleared_ns = to_ns(report.cleared);
    out.processes = report.processes;
    out.remains = report.remains.describe();
    if (!report.is_cut())
      out.remains.push_back("the gates do not close: errno " + std::to_string(report.cut_error));
    if (!report.is_killed()) out.remains.push_back("processes that do not die");
    if (out.remains.empty() && !report.is_cleared()) out.remains.push_back("not verified in time");
  });
  return out;
}

Status Machine::set_gates(const SetGates& order) {
  if (!order.is_node_open) return gates_->cut_node();
  if (is_emergency_pending()) return {};
  RN_TRY(const CgroupKiller guests, CgroupKiller::open(roots_, clock_));
  RN_TRY(const CgroupName name, make_cgroup_name(paths_.cgroup));
  guests.allow_births(name, true);
  for (const std::uint32_t slot : order.open_slots) RN_CHECK(gates_->uncut(slot));
  RN_CHECK(gates_->uncut_node());
  if (!is_emergency_pending()) return {};
  // It began meanwhile, and may have cut before we opened.
  guests.allow_births(name, false);
  for (const std::uint32_t slot : order.open_slots) RN_CHECK(gates_->cut(slot));
  return gates_->cut_node();
}

// ---- looking

/// As its init wrote it down; none while the command runs.
std::optional<std::int32_t> Machine::own_exit_code(const GuestName& guest) const {
  const auto said = disks_->read(guest, kExit, 64);
  return said ? number_of(*said) : std::nullopt;
}

Exited Machine::look_at_end(const GuestRecord& record) {
  Exited end{record.guest, record.container, kUnknownExitCode, false, false};
  const auto said = own_exit_code(record.guest);
  end.exit_code = said.value_or(kUnknownExitCode);
  end.is_vanished = !said;
  for (int i = 0; i < kEndTries; ++i) {
    const auto container = engine_->inspect(record.container);
    // An engine that hangs or is gone: the guest's own word must do.
    if (!container) return end;
    if (!container->is_running) {
      end.exit_code = container->exit_code;
      end.is_oom_killed = container->is_oom_killed;
      end.is_vanished = has_vanished(said.has_value(), *container);
      return end;
    }
    pause_for(kStep);
  }
  return end;
}

/// What the engine is, is asked when it may be another one, and now and then: for that answer
/// dockerd starts two programs, and this is called each second.
Result<EngineFacts> Machine::ensure_engine(Instant now) {
  const Result<pid_t> up = private_engine_ ? private_engine_->ensure(now)
                                           : engine_->ping(seconds(2)).map([] { return pid_t{0}; });
  if (!up) {
    known_engine_.reset();
    return fail(up.error());
  }
  if (!known_engine_ || known_engine_->pid != *up || now - known_engine_->asked >= kFactsAge) {
    known_engine_.reset();
    RN_TRY(EngineFacts facts, engine_->facts());
    known_engine_ = KnownEngine{*up, now, std::move(facts)};
  }
  return known_engine_->facts;
}

Result<Reconciled> Machine::search(const std::vector<GuestRecord>& live) {
  Reconciled found;
  RN_TRY(const auto disks, disks_->find());
  for (const AttemptDisk& disk : disks)
    found.disks.push_back({disk.guest, disk.folder, disk.disk_mib});
  RN_TRY(const auto containers, engine_->list(kLabLabel, config_.lab));
  for (const EngineContainer& container : containers) {
    const auto label = [&](const char* key) {
      const auto value = container.labels.find(key);
      return value == container.labels.end() ? std::string() : value->second;
    };
    FoundContainer one;
    one.guest = {JobId(label(kJobLabel)), parse_epoch(label(kEpochLabel))};
    one.container = container.id;
    const auto slot = number_of(label(kSlotLabel));
    one.slot = slot && *slot >= 0 ? static_cast<std::uint32_t>(*slot) : kNoSlot;
    one.is_running = container.is_running;
    one.pid = container.pid;
    one.exit_code = container.exit_code;
    one.is_oom_killed = container.is_oom_killed;
    one.gpus = gpus_in(label(kGpusLabel));
    const bool has_disk = std::any_of(found.disks.begin(), found.disks.end(), [&](const auto& d) {
      return d.guest == one.guest;
    });
    const auto go_ahead = disks_->read(one.guest, kGo, 2 * kTicketBytes);
    one.has_go_ahead = go_ahead && !go_ahead->empty() && *go_ahead == label(kGoLabel);
    // A disk that was removed below a running guest took the go-ahead along: init is not alone when
    // the command runs.
    if (!has_disk && one.is_running) {
      const auto pids = pids_in_cgroup(roots_, cgroup_of(container.id));
      one.has_go_ahead = pids && pids->size() > 1;
    }
    one.has_own_end = own_exit_code(one.guest).has_value();
    one.is_vanished = !one.is_running && has_vanished(one.has_own_end, container);
    found.containers.push_back(std::move(one));
  }
  if (const auto old = engine_->remove_old_names()) {
    for (const std::string& what : old->stays) log::info("image.old_name", {{"stays", what}});
  }
  RN_TRY(const auto images, engine_->images());
  for (const EngineImage& image : images) found.images.push_back({image.digest, image.id});
  RN_CHECK(data_->undo_strays());
  std::map<traffic::Slot, std::int32_t> keep;
  for (const GuestRecord& guest : live) keep[guest.slot] = 0;
  for (const FoundContainer& one : found.containers) keep[one.slot] = one.is_running ? one.pid : 0;
  RN_CHECK(net_->keep_only(keep));
  return found;
}

FilterLook Machine::look_at_filters() {
  FilterLook look{net_->repair(), net_->filters_before()};
  std::bitset<RN_CUT_SLOTS> slots;
  for (const traffic::FilterBefore& one : look.before) {
    if (one.slot < slots.size()) slots.set(one.slot);
  }
  for (SharedKillPath* path : {ordered_.get(), emergency_}) {
    if (path != nullptr) path->use([&](KillPath& p) { p.note_filters_before(slots); });
  }
  return look;
}

std::uint32_t Machine::pids_of(const GuestRecord& record) const {
  if (record.container.empty()) return 0;
  const auto pids = pids_in_cgroup(roots_, cgroup_of(record.container));
  return pids ? static_cast<std::uint32_t>(pids->size()) : 0;
}

}  // namespace rn::warden
