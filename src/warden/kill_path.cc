// SPDX-License-Identifier: Apache-2.0
#include "warden/kill_path.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/precedence.h"
#include "traffic/pinned_cut.h"
#include "warden/kill_journal.h"
#include "warden/posix.h"

namespace rn::warden {
namespace {

constexpr milliseconds kLookStep{10};  ///< between looks while a driver or a namespace is torn down
constexpr milliseconds kGpuLimit{2'000};
/// Also of the last look, so that what is left is named, and not that there was no time.
constexpr milliseconds kGpuLeast{100};

using FixedPath = std::array<char, 256>;

/// A GuestPlace in fixed arrays.
struct Place {
  bool is_used = false;
  CgroupName cgroup{};
  FixedPath folder{};
  FixedPath netns{};
  int netns_whose = -1;  ///< pidfd
  std::uint32_t ifindex = 0;
};

Result<FixedPath> fixed_path(const std::string& path) {
  FixedPath fixed{};
  if (path.size() >= fixed.size()) return fail(ErrorCode::kInvalid, "path too long: " + path);
  std::copy(path.begin(), path.end(), fixed.begin());
  return fixed;
}

std::array<char, 40> read_boot_id() {
  std::array<char, 40> id{};
  const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return id;
  const ssize_t got = read(fd, id.data(), 36);
  close(fd);
  if (got != 36) id = {};
  return id;
}

KillRecord make_record(
    KillStep step, const KillScope& scope, Now now, const std::array<char, 40>& boot_id
) {
  KillRecord record;
  record.step = step;
  record.is_node = scope.is_node ? 1 : 0;
  record.declared_boot_ns = to_ns(now.boot);
  record.declared_wall_ms = to_ms(now.wall);
  record.gpus = scope.gpus;
  record.boot_id = boot_id;
  return record;
}

/// Every slot is tried; the first errno is answered.
int close_gates(const rn_pinned_cut& gates, const KillScope& scope) {
  if (gates.node_gate_fd < 0) return ENOENT;
  if (scope.is_node) return -rn_pinned_cut_node(&gates);
  int first_error = 0;
  for (std::size_t slot = 0; slot < scope.slots.size(); ++slot) {
    if (!scope.slots.test(slot)) continue;
    const int result = rn_pinned_cut_slot(&gates, static_cast<std::uint32_t>(slot));
    if (result != 0 && first_error == 0) first_error = -result;
  }
  return first_error;
}

Result<CgroupKiller> open_cgroups(const KillPathConfig& config, const Clock& clock) {
  RN_TRY(const CgroupRoots roots, probe_cgroups(config.cgroup_root));
  RN_CHECK(make_cgroup(roots, config.cgroup_parent));
  return CgroupKiller::open(roots, clock);
}

Status open_gates(const std::string& bpffs, rn_pinned_cut& gates) {
  const int result = rn_pinned_cut_open(bpffs.c_str(), &gates);
  if (result == 0) return {};
  return fail(ErrorCode::kNotFound, "no gates pinned in " + bpffs + ": " + std::strerror(-result));
}

}  // namespace

/// Everything that an order needs, made in open(). The steps are in the order in which an order
/// takes them.
struct KillPath::State {
  State(const KillPathConfig& settings, const Clock& time, GpuProcesses* devices)
      : config(settings), clock(time), gpus(devices), boot_id(read_boot_id()) {}

  State(const State&) = delete;
  State& operator=(const State&) = delete;

  ~State() {
    for (Place& place : places) drop(place);
    rn_pinned_cut_close(&gates);
  }

  static void drop(Place& place) {
    if (place.netns_whose >= 0) close(place.netns_whose);
    place = {};
  }

  void cut(const KillOrder& order, KillStep intent);
  void await_journal();
  void kill_processes(const KillOrder& order);
  void sweep(const KillScope& scope);
  void look(const KillScope& scope, Instant deadline);
  void clear(const KillOrder& order);
  void journal_done(const KillOrder& order);

  template <class Visit>
  void each_guest(const KillScope& scope, Visit visit) const {
    for (std::size_t slot = 0; slot < places.size(); ++slot) {
      if (places[slot].is_used && (scope.is_node || scope.slots.test(slot))) visit(places[slot]);
    }
  }

  /// The parent for the whole node, else one cgroup per guest.
  template <class Visit>
  void each_cgroup(const KillScope& scope, Visit visit) const {
    if (!cgroups) return;
    if (scope.is_node) return visit(parent);
    each_guest(scope, [&](const Place& place) { visit(place.cgroup); });
  }

  /// All that the traffic program has bound (the emergency tool has no register), and the
  /// registered ones.
  template <class Visit>
  void each_interface(const KillScope& scope, Visit visit) const;

  Instant deadline_of(const KillOrder& order) const { return report.declared + order.limit; }

  const KillPathConfig config;
  const Clock& clock;
  GpuProcesses* const gpus;
  const std::array<char, 40> boot_id;

  rn_pinned_cut gates{-1, -1, -1, -1};
  std::optional<CgroupKiller> cgroups;
  std::unique_ptr<KillJournal> journal;
  CgroupName parent{};
  std::array<Place, RN_CUT_SLOTS> places{};
  std::vector<std::string> missing;

  std::bitset<RN_CUT_SLOTS> passed_by;  ///< slots with something before their gates
  PidSet pids;                          ///< the guests' processes before the last kill
  bool is_intent_posted = false;
  KillReport report;
};

template <class Visit>
void KillPath::State::each_interface(const KillScope& scope, Visit visit) const {
  std::array<std::uint32_t, 2 * RN_CUT_SLOTS> found{};
  std::size_t count = 0;
  std::uint32_t ifindex = 0;
  std::uint32_t slot = 0;
  int result = rn_pinned_next_guest(&gates, nullptr, &ifindex, &slot);
  for (; result == 0 && count < RN_CUT_SLOTS;
       result = rn_pinned_next_guest(&gates, &ifindex, &ifindex, &slot)) {
    if (scope.is_node || (slot < RN_CUT_SLOTS && scope.slots.test(slot))) found[count++] = ifindex;
  }
  each_guest(scope, [&](const Place& place) {
    auto* const end = found.data() + count;
    if (place.ifindex != 0 && std::find(found.data(), end, place.ifindex) == end)
      found[count++] = place.ifindex;
  });
  for (std::size_t i = 0; i < count; ++i) visit(found[i]);
}

void KillPath::State::cut(const KillOrder& order, KillStep intent) {
  Now now = clock.now();
  if (order.declared != Instant{}) now.boot = order.declared;
  report = {};
  report.declared = now.boot;
  is_intent_posted = journal && journal->post(make_record(intent, order.scope, now, boot_id));
  if (!config.cuts_before_journaled) await_journal();
  report.cut_error = close_gates(gates, order.scope);
  if (report.cut_error == 0) report.cut = clock.now().boot;
}

void KillPath::State::await_journal() {
  if (!is_intent_posted || report.is_journaled) return;
  report.is_journaled = journal->wait(config.journal_limit);
  if (report.is_journaled) report.journaled = clock.now().boot;
}

void KillPath::State::kill_processes(const KillOrder& order) {
  pids.clear();
  each_cgroup(order.scope, [&](const CgroupName& name) { cgroups->collect(name, pids); });
  report.processes = static_cast<std::uint32_t>(pids.total);
  // What an engine is starting at this moment would come to life behind our back. Opening the
  // node's gate allows it again.
  if (cgroups && order.scope.is_node) cgroups->allow_births(parent, false);
  // All are struck before one is waited for.
  each_cgroup(order.scope, [&](const CgroupName& name) { cgroups->strike(name); });
  // The parent's weight counts against the rest of the machine, so it is lifted too; its limits may
  // be the owner's own and come back. The guests' cgroups go.
  CpuLimits parents;
  if (cgroups) parents = cgroups->hurry(parent, order.scope.is_node);
  if (!order.scope.is_node) {
    each_cgroup(order.scope, [&](const CgroupName& name) { cgroups->hurry(name, true); });
  }
  bool is_empty = cgroups.has_value();
  each_cgroup(order.scope, [&](const CgroupName& name) {
    if (!cgroups->kill(name, deadline_of(order))) is_empty = false;
  });
  if (cgroups) cgroups->restore(parent, parents);
  if (is_empty) report.killed = clock.now().boot;
}

void KillPath::State::sweep(const KillScope& scope) {
  std::array<std::uint32_t, 2 * RN_CUT_SLOTS> interfaces{};
  std::size_t count = 0;
  each_interface(scope, [&](std::uint32_t ifindex) { interfaces[count++] = ifindex; });
  delete_interfaces({interfaces.data(), count});
  each_guest(scope, [](const Place& place) {
    if (place.folder[0] != '\0') detach_mounts(place.folder.data());
  });
  if (scope.is_node && !config.attempts_folder.empty())
    detach_mounts(config.attempts_folder.c_str());
}

void KillPath::State::look(const KillScope& scope, Instant deadline) {
  Remains& remains = report.remains;
  remains = {};
  if (!cgroups) remains.add(RemainderKind::kUnverified, 0, "cgroups");
  each_cgroup(scope, [&](const CgroupName& name) { look_at_cgroup(*cgroups, name, remains); });
  each_interface(scope, [&](std::uint32_t ifindex) { look_at_interface(ifindex, remains); });
  each_guest(scope, [&](const Place& place) {
    if (place.netns[0] != '\0') look_at_ports(place.netns.data(), remains, place.netns_whose);
    if (place.folder[0] != '\0' && !scope.is_node) look_at_mounts(place.folder.data(), remains);
  });
  if (scope.is_node) {
    look_at_uids(config.uid_first, config.uid_count, parent, remains);
    if (!config.attempts_folder.empty()) look_at_mounts(config.attempts_folder.c_str(), remains);
  }
  if (gpus == nullptr) return;
  const nanoseconds left =
      std::clamp<nanoseconds>(deadline - clock.now().boot, kGpuLeast, kGpuLimit);
  look_at_gpus(
      *gpus,
      pids,
      scope.is_node ? ~std::uint64_t{0} : scope.gpus,
      std::chrono::duration_cast<milliseconds>(left),
      remains
  );
}

void KillPath::State::clear(const KillOrder& order) {
  const Instant deadline = deadline_of(order);
  sweep(order.scope);
  // GPU contexts and network namespaces go a little after their processes.
  for (look(order.scope, deadline); !report.remains.is_empty() && clock.now().boot < deadline;) {
    pause_for(kLookStep);
    look(order.scope, deadline);
  }
  if (report.remains.is_empty() && report.is_cut()) report.cleared = clock.now().boot;
}

void KillPath::State::journal_done(const KillOrder& order) {
  if (!journal) return;
  Now declared = clock.now();
  declared.boot = report.declared;
  KillRecord record = make_record(KillStep::kDone, order.scope, declared, boot_id);
  record.cleared_boot_ns = to_ns(report.cleared);
  record.processes = report.processes;
  record.remaining = static_cast<std::uint32_t>(report.remains.total());
  // The owner does not wait for it; the intent alone makes a restarted warden look again.
  journal->post(record);
}

KillPath::KillPath(std::unique_ptr<State> state) : state_(std::move(state)) {}

KillPath::~KillPath() = default;

Result<std::unique_ptr<KillPath>> KillPath::open(
    const KillPathConfig& config, const Clock& clock, GpuProcesses* gpus
) {
  auto state = std::make_unique<State>(config, clock, gpus);
  RN_TRY(state->parent, make_cgroup_name(config.cgroup_parent));
  const auto lacks = [&](const Error& error) { state->missing.push_back(error.describe()); };
  if (const Status opened = open_gates(config.bpffs, state->gates); !opened) lacks(opened.error());
  auto cgroups = open_cgroups(config, clock);
  if (cgroups) {
    state->cgroups.emplace(std::move(*cgroups));
  } else {
    lacks(cgroups.error());
  }
  auto journal = KillJournal::open(config.journal);
  if (journal) {
    state->journal = std::move(*journal);
  } else {
    lacks(journal.error());
  }
  if (!config.is_emergency && !state->missing.empty()) {
    return fail(
        ErrorCode::kUnavailable, "the kill path is not complete: " + state->missing.front()
    );
  }
  return std::unique_ptr<KillPath>(new KillPath(std::move(state)));
}

Status KillPath::guest_started(traffic::Slot slot, const GuestPlace& place) {
  if (slot >= RN_CUT_SLOTS)
    return fail(ErrorCode::kInvalid, "no such traffic slot: " + std::to_string(slot));
  if (!place.cgroup.starts_with(state_->config.cgroup_parent + "/")) {
    return fail(
        ErrorCode::kInvalid, "a guest's cgroup must lie below " + state_->config.cgroup_parent
    );
  }
  Place fixed;
  fixed.is_used = true;
  fixed.ifindex = place.ifindex;
  RN_TRY(fixed.cgroup, make_cgroup_name(place.cgroup));
  RN_TRY(fixed.folder, fixed_path(place.folder));
  RN_TRY(fixed.netns, fixed_path(place.netns));
  if (place.netns_pid > 0) {
    fixed.netns_whose = static_cast<int>(syscall(SYS_pidfd_open, place.netns_pid, 0));
    if (fixed.netns_whose < 0 && errno == ESRCH) fixed.netns = {};  // ended already
  }
  State::drop(state_->places[slot]);
  state_->places[slot] = fixed;
  return {};
}

void KillPath::guest_ended(traffic::Slot slot) {
  if (slot < RN_CUT_SLOTS) State::drop(state_->places[slot]);
}

void KillPath::note_filters_before(const std::bitset<RN_CUT_SLOTS>& slots) {
  state_->passed_by = slots;
}

const KillReport& KillPath::cut(const KillOrder& order) {
  const io::Precedence precedence;
  state_->cut(order, KillStep::kIntentCut);
  const auto& slots = order.scope.slots;
  state_->report.is_passed_by =
      (order.scope.is_node ? state_->passed_by : state_->passed_by & slots).any();
  state_->await_journal();
  return state_->report;
}

const KillReport& KillPath::kill(const KillOrder& order) {
  const io::Precedence precedence;
  state_->cut(order, KillStep::kIntentKill);
  state_->kill_processes(order);
  state_->await_journal();
  return state_->report;
}

const KillReport& KillPath::clear(const KillOrder& order) {
  const io::Precedence precedence;
  kill(order);
  state_->clear(order);
  state_->journal_done(order);
  return state_->report;
}

bool KillPath::kill_latecomers() {
  std::uint64_t is_open = 1;
  const bool has_gate = state_->gates.node_gate_fd >= 0;
  if (!has_gate || rn_pinned_read_node(&state_->gates, &is_open) != 0 || is_open != 0) return false;
  if (state_->cgroups && !state_->cgroups->is_empty(state_->parent))
    state_->cgroups->strike(state_->parent);
  return true;
}

const Remains& KillPath::look(const KillScope& scope, milliseconds limit) {
  state_->look(scope, state_->clock.now().boot + limit);
  return state_->report.remains;
}

const std::vector<std::string>& KillPath::missing() const {
  return state_->missing;
}

}  // namespace rn::warden
