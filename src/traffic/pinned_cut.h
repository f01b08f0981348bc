/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RN_TRAFFIC_PINNED_CUT_H
#define RN_TRAFFIC_PINNED_CUT_H

#include <stdint.h>

/*
 * The smallest way to the gates: bpf(2) on the pinned maps, callable from C, no libbpf, no
 * allocation, no program. The emergency tool and the kill path use it; it works with the warden
 * dead.
 */

#ifdef __cplusplus
extern "C" {
#endif

/* Descriptors of the pinned maps; -1 = not open. Owned by the caller. */
struct rn_pinned_cut {
  int node_gate_fd;
  int slot_gate_fd;
  int lease_fd;
  int guests_fd;
};

/* Opens the maps pinned in `folder` (close-on-exec). 0, or -errno; then nothing stays open. */
int rn_pinned_cut_open(const char* folder, struct rn_pinned_cut* cut);
void rn_pinned_cut_close(struct rn_pinned_cut* cut);

/* One system call each on an open descriptor. From its return on, no packet newly reaching the hook
 * passes, in either direction. 0, or -errno. Idempotent. Async-signal-safe. */
int rn_pinned_cut_node(const struct rn_pinned_cut* cut);
int rn_pinned_cut_slot(const struct rn_pinned_cut* cut, uint32_t slot);

/* The shortest way for who does nothing else: opens the one pinned gate (of all guests, of all
 * transfers), shuts and closes it. 0, or -errno. */
int rn_pinned_shut_node(const char* folder);
int rn_pinned_shut_transfers(const char* folder);

/* The opposite; the other gates and the lease still apply. */
int rn_pinned_uncut_node(const struct rn_pinned_cut* cut);
int rn_pinned_uncut_slot(const struct rn_pinned_cut* cut, uint32_t slot);

/* Dead man's switch: guests pass until this instant of CLOCK_BOOTTIME; 0 disarms, which cuts. */
int rn_pinned_write_lease(const struct rn_pinned_cut* cut, uint64_t until_boot_ns);
int rn_pinned_read_lease(const struct rn_pinned_cut* cut, uint64_t* until_boot_ns);

/* is_open as the program sees it. */
int rn_pinned_read_node(const struct rn_pinned_cut* cut, uint64_t* is_open);
int rn_pinned_read_slot(const struct rn_pinned_cut* cut, uint32_t slot, uint64_t* is_open);

/* The guest bound after the interface `*previous` (NULL: the first), in no order. 0, -ENOENT after
 * the last, or -errno. `previous` and `ifindex` may be the same. */
int rn_pinned_next_guest(
    const struct rn_pinned_cut* cut, const uint32_t* previous, uint32_t* ifindex, uint32_t* slot
);

#ifdef __cplusplus
}
#endif

#endif
