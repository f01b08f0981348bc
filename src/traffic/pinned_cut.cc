// SPDX-License-Identifier: Apache-2.0
#include "traffic/pinned_cut.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "traffic/guest_cut_abi.h"
#include "traffic/shut_gate.h"
#include "traffic/transfer_edge_abi.h"

namespace {

int call_bpf(int command, bpf_attr& attributes) {
  const long result = syscall(SYS_bpf, command, &attributes, sizeof(attributes));
  return result < 0 ? -errno : static_cast<int>(result);
}

int open_map(const char* folder, const char* name) {
  char path[512];
  const int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
  if (length < 0 || static_cast<size_t>(length) >= sizeof(path)) return -ENAMETOOLONG;
  bpf_attr attributes;
  memset(&attributes, 0, sizeof(attributes));
  attributes.pathname = reinterpret_cast<std::uintptr_t>(path);
  return call_bpf(BPF_OBJ_GET, attributes);  // the kernel sets close-on-exec itself
}

int access_map(int command, int map_fd, std::uint32_t key, void* value) {
  bpf_attr attributes;
  memset(&attributes, 0, sizeof(attributes));
  attributes.map_fd = static_cast<std::uint32_t>(map_fd);
  attributes.key = reinterpret_cast<std::uintptr_t>(&key);
  attributes.value = reinterpret_cast<std::uintptr_t>(value);
  return call_bpf(command, attributes);
}

int write_gate(int map_fd, std::uint32_t key, std::uint64_t is_open) {
  rn_cut_gate gate{is_open};
  return access_map(BPF_MAP_UPDATE_ELEM, map_fd, key, &gate);
}

int read_gate(int map_fd, std::uint32_t key, std::uint64_t* is_open) {
  rn_cut_gate gate{};
  const int result = access_map(BPF_MAP_LOOKUP_ELEM, map_fd, key, &gate);
  if (result == 0) *is_open = gate.is_open;
  return result;
}

void close_if_open(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

}  // namespace

int rn_pinned_cut_open(const char* folder, struct rn_pinned_cut* cut) {
  cut->node_gate_fd = open_map(folder, RN_CUT_MAP_NODE_GATE);
  cut->slot_gate_fd = open_map(folder, RN_CUT_MAP_SLOT_GATE);
  cut->lease_fd = open_map(folder, RN_CUT_MAP_LEASE);
  cut->guests_fd = open_map(folder, RN_CUT_MAP_GUESTS);
  for (const int fd : {cut->node_gate_fd, cut->slot_gate_fd, cut->lease_fd, cut->guests_fd}) {
    if (fd >= 0) continue;
    rn_pinned_cut_close(cut);
    return fd;
  }
  return 0;
}

void rn_pinned_cut_close(struct rn_pinned_cut* cut) {
  close_if_open(cut->node_gate_fd);
  close_if_open(cut->slot_gate_fd);
  close_if_open(cut->lease_fd);
  close_if_open(cut->guests_fd);
}

int rn_pinned_cut_node(const struct rn_pinned_cut* cut) {
  return write_gate(cut->node_gate_fd, 0, 0);
}

int rn_pinned_cut_slot(const struct rn_pinned_cut* cut, uint32_t slot) {
  return write_gate(cut->slot_gate_fd, slot, 0);
}

int rn_pinned_shut_node(const char* folder) {
  return rn::traffic::shut_pinned_gate(folder, RN_CUT_MAP_NODE_GATE);
}

int rn_pinned_shut_transfers(const char* folder) {
  return rn::traffic::shut_pinned_gate(folder, RN_EDGE_MAP_GATE);
}

int rn_pinned_uncut_node(const struct rn_pinned_cut* cut) {
  return write_gate(cut->node_gate_fd, 0, 1);
}

int rn_pinned_uncut_slot(const struct rn_pinned_cut* cut, uint32_t slot) {
  return write_gate(cut->slot_gate_fd, slot, 1);
}

int rn_pinned_write_lease(const struct rn_pinned_cut* cut, uint64_t until_boot_ns) {
  rn_cut_lease lease{until_boot_ns};
  return access_map(BPF_MAP_UPDATE_ELEM, cut->lease_fd, 0, &lease);
}

int rn_pinned_read_lease(const struct rn_pinned_cut* cut, uint64_t* until_boot_ns) {
  rn_cut_lease lease{};
  const int result = access_map(BPF_MAP_LOOKUP_ELEM, cut->lease_fd, 0, &lease);
  if (result == 0) *until_boot_ns = lease.until_boot_ns;
  return result;
}

int rn_pinned_read_node(const struct rn_pinned_cut* cut, uint64_t* is_open) {
  return read_gate(cut->node_gate_fd, 0, is_open);
}

int rn_pinned_read_slot(const struct rn_pinned_cut* cut, uint32_t slot, uint64_t* is_open) {
  return read_gate(cut->slot_gate_fd, slot, is_open);
}

int rn_pinned_next_guest(
    const struct rn_pinned_cut* cut, const uint32_t* previous, uint32_t* ifindex, uint32_t* slot
) {
  bpf_attr attributes;
  memset(&attributes, 0, sizeof(attributes));
  std::uint32_t next = 0;
  attributes.map_fd = static_cast<std::uint32_t>(cut->guests_fd);
  attributes.key = reinterpret_cast<std::uintptr_t>(previous);
  attributes.next_key = reinterpret_cast<std::uintptr_t>(&next);
  if (const int result = call_bpf(BPF_MAP_GET_NEXT_KEY, attributes); result != 0) return result;
  rn_cut_guest guest{};
  // A guest that was unbound meanwhile is still answered: its interface may be there.
  access_map(BPF_MAP_LOOKUP_ELEM, cut->guests_fd, next, &guest);
  *ifindex = next;
  *slot = guest.slot;
  return 0;
}
