// SPDX-License-Identifier: Apache-2.0
#include "traffic/cut_switch.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

namespace rn::traffic {
namespace {

ErrorCode code_of(int negative_errno) {
  switch (negative_errno) {
    case -ENOENT:
      return ErrorCode::kNotFound;
    case -EPERM:
    case -EACCES:
      return ErrorCode::kDenied;
    default:
      return ErrorCode::kInternal;
  }
}

Status check(int result, const char* what) {
  if (result == 0) return {};
  return fail(code_of(result), std::string(what) + ": " + std::strerror(-result));
}

Status check_slot(Slot slot) {
  if (slot < RN_CUT_SLOTS) return {};
  return fail(ErrorCode::kInvalid, "no such traffic slot: " + std::to_string(slot));
}

DirectionCounters sum(const std::vector<rn_cut_counters>& per_cpu) {
  DirectionCounters total;
  std::uint64_t last_ns = 0;
  for (const rn_cut_counters& cpu : per_cpu) {
    total.passed_packets += cpu.passed_packets;
    total.passed_bytes += cpu.passed_bytes;
    last_ns = std::max<std::uint64_t>(last_ns, cpu.last_passed_boot_ns);
    for (std::size_t i = 0; i < total.dropped.size(); ++i) total.dropped[i] += cpu.dropped[i];
  }
  total.last_passed = instant_from_ns(static_cast<std::int64_t>(last_ns));
  return total;
}

Result<DirectionCounters> read_counters(int map_fd, Slot slot, rn_cut_direction direction) {
  const int cpus = libbpf_num_possible_cpus();
  if (cpus <= 0) return fail(ErrorCode::kInternal, "cannot tell the number of possible CPUs");
  std::vector<rn_cut_counters> per_cpu(static_cast<std::size_t>(cpus));
  const std::uint32_t key = slot * RN_CUT_DIRECTIONS + direction;
  RN_CHECK(
      check(bpf_map_lookup_elem(map_fd, &key, per_cpu.data()) == 0 ? 0 : -errno, "reading counters")
  );
  return sum(per_cpu);
}

}  // namespace

CutSwitch::CutSwitch(rn_pinned_cut pinned, int counters_fd)
    : pinned_(pinned), counters_fd_(counters_fd) {}

CutSwitch::CutSwitch(CutSwitch&& other) noexcept
    : pinned_(std::exchange(other.pinned_, {-1, -1, -1, -1})),
      counters_fd_(std::exchange(other.counters_fd_, -1)) {}

CutSwitch& CutSwitch::operator=(CutSwitch&& other) noexcept {
  std::swap(pinned_, other.pinned_);
  std::swap(counters_fd_, other.counters_fd_);
  return *this;
}

CutSwitch::~CutSwitch() {
  rn_pinned_cut_close(&pinned_);
  if (counters_fd_ >= 0) close(counters_fd_);
}

Result<CutSwitch> CutSwitch::open_pinned(const std::string& folder) {
  rn_pinned_cut pinned{-1, -1, -1, -1};
  if (const int result = rn_pinned_cut_open(folder.c_str(), &pinned); result != 0) {
    return fail(
        code_of(result),
        "opening the pinned gates in " + folder + ": " + std::strerror(-result),
        "is this node joined, and are you root?"
    );
  }
  CutSwitch opened(pinned, -1);
  opened.counters_fd_ = bpf_obj_get((folder + "/" RN_CUT_MAP_COUNTERS).c_str());
  if (opened.counters_fd_ < 0)
    return fail(code_of(-errno), "opening the pinned counters in " + folder);
  return opened;
}

Status CutSwitch::cut_node() {
  return check(rn_pinned_cut_node(&pinned_), "cutting the node");
}

Status CutSwitch::uncut_node() {
  return check(rn_pinned_uncut_node(&pinned_), "opening the node's gate");
}

Status CutSwitch::cut(Slot slot) {
  RN_CHECK(check_slot(slot));
  return check(rn_pinned_cut_slot(&pinned_, slot), "cutting a guest");
}

Status CutSwitch::uncut(Slot slot) {
  RN_CHECK(check_slot(slot));
  return check(rn_pinned_uncut_slot(&pinned_, slot), "opening a guest's gate");
}

Status CutSwitch::arm_lease(Instant until) {
  return check(
      rn_pinned_write_lease(&pinned_, static_cast<std::uint64_t>(to_ns(until))), "arming the lease"
  );
}

Status CutSwitch::renew_lease(Instant now, Instant until) {
  std::uint64_t current_ns = 0;
  RN_CHECK(check(rn_pinned_read_lease(&pinned_, &current_ns), "reading the lease"));
  if (current_ns <= static_cast<std::uint64_t>(to_ns(now))) {
    return fail(
        ErrorCode::kConflict,
        current_ns == 0 ? "the dead man's switch is not armed" : "the dead man's switch has cut",
        "reconcile the guests, then arm it"
    );
  }
  return arm_lease(until);
}

Status CutSwitch::disarm_lease() {
  return check(rn_pinned_write_lease(&pinned_, 0), "disarming the lease");
}

Result<CutState> CutSwitch::state() const {
  std::uint64_t is_open = 0;
  std::uint64_t until_ns = 0;
  RN_CHECK(check(rn_pinned_read_node(&pinned_, &is_open), "reading the node's gate"));
  RN_CHECK(check(rn_pinned_read_lease(&pinned_, &until_ns), "reading the lease"));
  return CutState{is_open != 0, instant_from_ns(static_cast<std::int64_t>(until_ns))};
}

Result<bool> CutSwitch::is_open(Slot slot) const {
  RN_CHECK(check_slot(slot));
  std::uint64_t is_open = 0;
  RN_CHECK(check(rn_pinned_read_slot(&pinned_, slot, &is_open), "reading a guest's gate"));
  return is_open != 0;
}

Result<SlotCounters> CutSwitch::counters(Slot slot) const {
  RN_CHECK(check_slot(slot));
  SlotCounters both;
  RN_TRY(both.from_guest, read_counters(counters_fd_, slot, RN_CUT_FROM_GUEST));
  RN_TRY(both.to_guest, read_counters(counters_fd_, slot, RN_CUT_TO_GUEST));
  return both;
}

}  // namespace rn::traffic
