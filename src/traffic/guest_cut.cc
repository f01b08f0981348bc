// SPDX-License-Identifier: Apache-2.0
#include "traffic/guest_cut.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <net/if.h>

#include "base/assert.h"
#include "base/log.h"
#include "traffic/bpffs.h"
#include "traffic/guest_filter.h"
#include "traffic/prefix_table.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include "traffic/guest_cut.skel.h"
#pragma GCC diagnostic pop

namespace rn::traffic {

struct GuestCut::Parts {
  Parts(std::string pinned_in, guest_cut_bpf* loaded, CutSwitch switch_)
      : folder(std::move(pinned_in)), program(loaded), gates(std::move(switch_)) {}

  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  ~Parts() { guest_cut_bpf::destroy(program); }

  int guests_fd() const { return bpf_map__fd(program->maps.rn_guests); }

  int prefixes_fd() const { return bpf_map__fd(program->maps.rn_prefixes); }

  int counters_fd() const { return bpf_map__fd(program->maps.rn_counters); }

  std::string folder;
  guest_cut_bpf* program;
  CutSwitch gates;
};

namespace {

constexpr std::array<rn_cut_direction, 2> kBothDirections{RN_CUT_FROM_GUEST, RN_CUT_TO_GUEST};

struct Guest {
  std::uint32_t ifindex = 0;
  rn_cut_guest entry{};
};

/// libbpf writes to stderr by itself; its words become debug events.
int log_libbpf(libbpf_print_level level, const char* format, va_list arguments) {
  if (level == LIBBPF_DEBUG) return 0;
  std::array<char, 512> text{};
  const int length = std::vsnprintf(text.data(), text.size(), format, arguments);
  log::debug("libbpf", {{"says", std::string_view(text.data())}});
  return length;
}

tl::unexpected<Error> failed(const std::string& what, int error) {
  const bool is_denied = error == EPERM || error == EACCES;
  return fail(
      is_denied ? ErrorCode::kDenied : ErrorCode::kInternal, what + ": " + std::strerror(error)
  );
}

std::vector<Guest> read_guests(int map_fd) {
  std::vector<Guest> guests;
  std::uint32_t key = 0;
  const void* previous = nullptr;
  while (bpf_map_get_next_key(map_fd, previous, &key) == 0) {
    Guest guest{key, {}};
    if (bpf_map_lookup_elem(map_fd, &key, &guest.entry) == 0) guests.push_back(guest);
    previous = &key;
  }
  return guests;
}

Status clear_prefixes(int map_fd, Slot slot) {
  std::vector<rn_cut_prefix_key> keys;
  rn_cut_prefix_key key{};
  const void* previous = nullptr;
  while (bpf_map_get_next_key(map_fd, previous, &key) == 0) {
    if (key.slot == slot) keys.push_back(key);
    previous = &key;
  }
  for (const rn_cut_prefix_key& old : keys) {
    if (bpf_map_delete_elem(map_fd, &old) != 0 && errno != ENOENT)
      return failed("removing a prefix", errno);
  }
  return {};
}

Status write_prefixes(int map_fd, Slot slot, const std::map<IpPrefix, rn_cut_ports>& table) {
  for (const auto& [prefix, ports] : table) {
    rn_cut_prefix_key key{32u + prefix.bits, slot, {}};
    std::memcpy(key.address, prefix.address.data(), 16);
    if (bpf_map_update_elem(map_fd, &key, &ports, BPF_ANY) == 0) continue;
    if (errno == ENOSPC)
      return fail(ErrorCode::kExhausted, "too many prefixes in the allow lists of this node");
    return failed("writing prefix " + to_string(prefix), errno);
  }
  return {};
}

Status reset_counters(int map_fd, Slot slot) {
  const int cpus = libbpf_num_possible_cpus();
  if (cpus <= 0) return fail(ErrorCode::kInternal, "cannot tell the number of possible CPUs");
  const std::vector<rn_cut_counters> zeros(static_cast<std::size_t>(cpus));
  for (const rn_cut_direction direction : kBothDirections) {
    const std::uint32_t key = slot * RN_CUT_DIRECTIONS + direction;
    if (bpf_map_update_elem(map_fd, &key, zeros.data(), BPF_ANY) != 0)
      return failed("resetting counters", errno);
  }
  return {};
}

Status read_address(const std::string& text, int family, void* into) {
  if (text.empty() || inet_pton(family, text.c_str(), into) == 1) return {};
  return fail(ErrorCode::kInvalid, "not an address: " + text);
}

Result<rn_cut_guest> make_entry(Slot slot, const GuestPolicy& policy) {
  rn_cut_guest entry{};
  entry.slot = slot;
  RN_CHECK(read_address(policy.guest_v4, AF_INET, &entry.guest_v4));
  RN_CHECK(read_address(policy.gateway_v4, AF_INET, &entry.gateway_v4));
  RN_CHECK(read_address(policy.guest_v6, AF_INET6, entry.guest_v6));
  RN_CHECK(read_address(policy.gateway_v6, AF_INET6, entry.gateway_v6));
  return entry;
}

Status unbind(GuestCut::Parts& parts, const Guest& guest) {
  RN_CHECK(parts.gates.cut(guest.entry.slot));
  if (bpf_map_delete_elem(parts.guests_fd(), &guest.ifindex) != 0 && errno != ENOENT) {
    return failed("removing a guest", errno);
  }
  RN_CHECK(clear_prefixes(parts.prefixes_fd(), guest.entry.slot));
  return reset_counters(parts.counters_fd(), guest.entry.slot);
}

/// The guest bound to `ifindex`, after those left over by interfaces that are gone have been
/// removed from `slot`.
Result<std::optional<Guest>> claim(GuestCut::Parts& parts, std::uint32_t ifindex, Slot slot) {
  std::optional<Guest> own;
  for (const Guest& guest : read_guests(parts.guests_fd())) {
    if (guest.ifindex == ifindex) {
      if (guest.entry.slot != slot) {
        return fail(
            ErrorCode::kConflict,
            "the interface already has slot " + std::to_string(guest.entry.slot)
        );
      }
      own = guest;
      continue;
    }
    if (guest.entry.slot != slot) continue;
    std::array<char, IF_NAMESIZE> name{};
    if (if_indextoname(guest.ifindex, name.data()) != nullptr) {
      return fail(
          ErrorCode::kConflict, "slot " + std::to_string(slot) + " belongs to " + name.data()
      );
    }
    RN_CHECK(unbind(parts, guest));
  }
  return own;
}

/// Prefixes before the binding: a bound guest is never without its own list.
Status write_guest(
    GuestCut::Parts& parts, std::uint32_t ifindex, Slot slot, const GuestPolicy& policy
) {
  RN_TRY(rn_cut_guest entry, make_entry(slot, policy));
  RN_TRY(const auto host, host_prefixes());
  RN_TRY(const auto table, make_prefix_table(policy, host));
  RN_TRY(const std::optional<Guest> own, claim(parts, ifindex, slot));
  if (own) entry.made_clsact = own->entry.made_clsact;
  if (!own) {
    RN_CHECK(parts.gates.cut(slot));
    RN_CHECK(reset_counters(parts.counters_fd(), slot));
  }
  RN_CHECK(clear_prefixes(parts.prefixes_fd(), slot));
  RN_CHECK(write_prefixes(parts.prefixes_fd(), slot, table));
  if (bpf_map_update_elem(parts.guests_fd(), &ifindex, &entry, BPF_ANY) != 0) {
    return failed("binding the guest", errno);
  }
  return {};
}

Status mark_clsact_made(GuestCut::Parts& parts, std::uint32_t ifindex) {
  rn_cut_guest entry{};
  if (bpf_map_lookup_elem(parts.guests_fd(), &ifindex, &entry) != 0)
    return failed("reading a guest", errno);
  entry.made_clsact = 1;
  if (bpf_map_update_elem(parts.guests_fd(), &ifindex, &entry, BPF_EXIST) != 0) {
    return failed("marking a guest", errno);
  }
  return {};
}

Status put_filters(GuestCut::Parts& parts, std::uint32_t ifindex) {
  RN_TRY(const bool is_made, ensure_clsact(ifindex));
  if (is_made) RN_CHECK(mark_clsact_made(parts, ifindex));
  RN_CHECK(
      put_filter(ifindex, RN_CUT_FROM_GUEST, bpf_program__fd(parts.program->progs.rn_from_guest))
  );
  return put_filter(ifindex, RN_CUT_TO_GUEST, bpf_program__fd(parts.program->progs.rn_to_guest));
}

bool is_filtered(std::uint32_t ifindex) {
  return std::all_of(kBothDirections.begin(), kBothDirections.end(), [&](rn_cut_direction hook) {
    return has_filter(ifindex, hook);
  });
}

bool is_filtered_at_all(std::uint32_t ifindex) {
  return std::any_of(kBothDirections.begin(), kBothDirections.end(), [&](rn_cut_direction hook) {
    return has_filter(ifindex, hook);
  });
}

/// Where no filter can be. Answers `why`, and what went wrong here.
Error cut_without_filter(GuestCut::Parts& parts, const Guest& guest, Error why) {
  for (const Status& done : {set_link_down(guest.ifindex), parts.gates.cut(guest.entry.slot)}) {
    if (!done) why.message += "; " + done.error().message;
  }
  return why;
}

void undo_first_load(const std::string& folder) {
  std::error_code failed;
  for (std::filesystem::directory_iterator it(folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    const bool is_ours = it->path().filename().string().starts_with("rn_");  // the kernel has some
    std::error_code ignored;
    if (is_ours) std::filesystem::remove(it->path(), ignored);
  }
  if (const Status released = release_bpffs(folder); !released) {
    log::warning("traffic.release_failed", {{"why", released.error().describe()}});
  }
}

}  // namespace

std::vector<FilterBefore> filters_before(const CutSwitch& gates) {
  std::vector<FilterBefore> before;
  std::uint32_t ifindex = 0;
  Slot slot = 0;
  int result = rn_pinned_next_guest(&gates.pinned(), nullptr, &ifindex, &slot);
  for (; result == 0; result = rn_pinned_next_guest(&gates.pinned(), &ifindex, &ifindex, &slot)) {
    for (const rn_cut_direction direction : kBothDirections) {
      auto foreign = filter_before(ifindex, direction);
      std::array<char, IF_NAMESIZE> name{};
      if (if_indextoname(ifindex, name.data()) == nullptr) continue;  // gone, perhaps just now
      if (!foreign)
        foreign = ForeignFilter{"what nobody could look at (" + foreign.error().message + ")", ""};
      if (*foreign) before.push_back({slot, name.data(), std::move(**foreign)});
    }
  }
  return before;
}

GuestCut::GuestCut(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

GuestCut::GuestCut(GuestCut&&) noexcept = default;
GuestCut& GuestCut::operator=(GuestCut&&) noexcept = default;
GuestCut::~GuestCut() = default;

Result<GuestCut> GuestCut::open(const std::string& folder) {
  libbpf_set_print(log_libbpf);
  RN_CHECK(ensure_bpffs(folder));
  std::error_code unknown;  // then an earlier loader may have pinned it
  const bool is_first =
      !std::filesystem::exists(folder + "/" RN_CUT_MAP_NODE_GATE, unknown) && !unknown;
  auto opened = load(folder);
  // libbpf pins the maps before it loads the program. What an earlier loader has pinned stays as it
  // is.
  if (!opened && is_first) undo_first_load(folder);
  return opened;
}

Result<GuestCut> GuestCut::load(const std::string& folder) {
  std::unique_ptr<guest_cut_bpf, void (*)(guest_cut_bpf*)> program(
      guest_cut_bpf::open(), guest_cut_bpf::destroy
  );
  if (!program) return fail(ErrorCode::kInternal, "the built-in traffic program cannot be parsed");
  RN_CHECK(pin_maps_in(folder, program->obj));
  if (const int result = guest_cut_bpf::load(program.get()); result != 0)
    return fail(load_error(-result));
  RN_TRY(CutSwitch gates, CutSwitch::open_pinned(folder));
  return GuestCut(std::make_unique<Parts>(folder, program.release(), std::move(gates)));
}

Status GuestCut::bind(std::uint32_t ifindex, Slot slot, const GuestPolicy& policy) {
  if (slot >= RN_CUT_SLOTS)
    return fail(ErrorCode::kInvalid, "no such traffic slot: " + std::to_string(slot));
  return write_guest(*parts_, ifindex, slot, policy);
}

Status GuestCut::attach(const std::string& interface, Slot slot, const GuestPolicy& policy) {
  const std::uint32_t ifindex = if_nametoindex(interface.c_str());
  if (ifindex == 0) return fail(ErrorCode::kNotFound, "no interface " + interface);
  RN_CHECK(bind(ifindex, slot, policy));
  Status attached = put_filters(*parts_, ifindex);
  if (!attached) {
    Status undone = detach(slot);
    if (!undone)
      log::warning(
          "traffic.detach_failed", {{"interface", interface}, {"why", undone.error().describe()}}
      );
    return fail(attached.error().with("attaching to " + interface));
  }
  log::info("traffic.attached", {{"interface", interface}, {"slot", slot}});
  return {};
}

Status GuestCut::detach(Slot slot) {
  for (const Guest& guest : read_guests(parts_->guests_fd())) {
    if (guest.entry.slot != slot) continue;
    RN_CHECK(parts_->gates.cut(slot));
    // Without the filter nothing guards the interface: it goes down first. One that we never
    // filtered is not ours.
    if (is_filtered_at_all(guest.ifindex)) RN_CHECK(set_link_down(guest.ifindex));
    for (const rn_cut_direction direction : kBothDirections)
      RN_CHECK(remove_filter(guest.ifindex, direction));
    if (guest.entry.made_clsact != 0) RN_CHECK(remove_clsact(guest.ifindex));
    RN_CHECK(unbind(*parts_, guest));
    log::info("traffic.detached", {{"ifindex", guest.ifindex}, {"slot", slot}});
  }
  return {};
}

std::vector<FilterLoss> GuestCut::repair() {
  std::vector<FilterLoss> losses;
  for (const Guest& guest : read_guests(parts_->guests_fd())) {
    if (is_filtered(guest.ifindex)) continue;
    std::array<char, IF_NAMESIZE> name{};
    const Status put = put_filters(*parts_, guest.ifindex);
    // Gone with its namespace, perhaps just now: nothing is left to guard.
    if (if_indextoname(guest.ifindex, name.data()) == nullptr) continue;
    FilterLoss loss{guest.entry.slot, name.data(), put};
    if (!put) loss.repaired = Status(fail(cut_without_filter(*parts_, guest, put.error())));
    losses.push_back(std::move(loss));
  }
  return losses;
}

Status GuestCut::leave() {
  RN_CHECK(parts_->gates.cut_node());
  for (const Guest& guest : read_guests(parts_->guests_fd())) RN_CHECK(detach(guest.entry.slot));
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, parts_->program->obj) {
    if (bpf_map__is_pinned(map) && bpf_map__unpin(map, nullptr) != 0)
      return failed("unpinning a map", errno);
  }
  return release_bpffs(parts_->folder);
}

Result<SlotCounters> GuestCut::counters(Slot slot) const {
  return parts_->gates.counters(slot);
}

CutSwitch& GuestCut::gates() {
  return parts_->gates;
}

Result<std::vector<std::pair<Slot, std::uint32_t>>> GuestCut::bound_slots() const {
  std::vector<std::pair<Slot, std::uint32_t>> bound;
  for (const Guest& guest : read_guests(parts_->guests_fd()))
    bound.emplace_back(guest.entry.slot, guest.ifindex);
  return bound;
}

int GuestCut::program_fd(rn_cut_direction direction) const {
  return bpf_program__fd(
      direction == RN_CUT_FROM_GUEST ? parts_->program->progs.rn_from_guest
                                     : parts_->program->progs.rn_to_guest
  );
}

}  // namespace rn::traffic
