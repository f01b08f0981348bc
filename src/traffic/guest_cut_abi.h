/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one contract between guest_cut.bpf.c and its loaders: map names, keys, values and reasons.
 * Plain C, fixed widths, host byte order except where a field says "network order".
 *
 * Every gate is closed at zero, so a map that nobody has written lets no guest packet pass (fail
 * closed to guests). Each gate is a map of its own: two processes (warden and emergency tool) may
 * write at once without a read-modify-write of each other's field.
 */
#ifndef RN_TRAFFIC_GUEST_CUT_ABI_H
#define RN_TRAFFIC_GUEST_CUT_ABI_H

#include <linux/types.h>

#define RN_CUT_SLOTS 256          /* guests on one node at a time */
#define RN_CUT_PREFIXES 16384     /* prefixes of all slots together */
#define RN_CUT_PORTS_PER_PREFIX 8 /* port entries of one prefix */

/* Names of the pinned maps inside the caller's bpffs folder. */
#define RN_CUT_MAP_NODE_GATE "rn_node_gate" /* ARRAY[1] of rn_cut_gate */
#define RN_CUT_MAP_SLOT_GATE "rn_slot_gate" /* ARRAY[RN_CUT_SLOTS] of rn_cut_gate */
#define RN_CUT_MAP_LEASE "rn_lease"         /* ARRAY[1] of rn_cut_lease */
#define RN_CUT_MAP_GUESTS "rn_guests"       /* HASH ifindex (u32) -> rn_cut_guest */
#define RN_CUT_MAP_PREFIXES "rn_prefixes"   /* LPM_TRIE rn_cut_prefix_key -> rn_cut_ports */
#define RN_CUT_MAP_COUNTERS \
  "rn_counters" /* PERCPU_ARRAY[slot * 2 + direction] of rn_cut_counters */

/* No map: a file in the run folder, RN_CUT_SLOTS masks (u64) of the GPUs of each slot's guest. */
#define RN_CUT_SLOT_GPUS_FILE "slot-gpus"

enum rn_cut_direction {
  RN_CUT_FROM_GUEST = 0, /* ingress hook of the host-side interface */
  RN_CUT_TO_GUEST = 1,   /* egress hook of the host-side interface */
  RN_CUT_DIRECTIONS = 2,
};

/* Why a packet was dropped. RN_CUT_PASS is not counted among the drops. */
enum rn_cut_reason {
  RN_CUT_PASS = 0,
  RN_CUT_NODE_GATE = 1,     /* the owner has cut the node */
  RN_CUT_SLOT_GATE = 2,     /* this guest is cut */
  RN_CUT_LEASE = 3,         /* dead man's switch: not armed, or expired */
  RN_CUT_NOT_IP = 4,        /* neither IPv4, IPv6 nor ARP */
  RN_CUT_VLAN = 5,          /* tagged frame */
  RN_CUT_MALFORMED = 6,     /* truncated, IP options, extension header, wrong version */
  RN_CUT_FRAGMENT = 7,      /* fragments carry no ports: never passed */
  RN_CUT_SPOOFED = 8,       /* the guest's end is not the guest's address */
  RN_CUT_FORBIDDEN = 9,     /* loopback, link-local, metadata, multicast, broadcast, mapped */
  RN_CUT_NEIGHBOUR = 10,    /* ARP or ND that is not about guest and gateway */
  RN_CUT_NOT_ALLOWED = 11,  /* no entry of the allow list matches */
  RN_CUT_WRONG_OPENER = 12, /* a TCP SYN from the end that may not open */
  RN_CUT_REASONS = 13,
};

/* Who may open a TCP connection that matches a port entry. */
enum rn_cut_opener {
  RN_CUT_GUEST_OPENS = 1,
  RN_CUT_REMOTE_OPENS = 2,
};

struct rn_cut_gate {
  __u64 is_open; /* 0 = cut */
};

struct rn_cut_lease {
  __u64 until_boot_ns; /* CLOCK_BOOTTIME; 0 = not armed */
};

/* The guest behind one interface. An address of all zeros is "none": nothing of that family passes.
 */
struct rn_cut_guest {
  __u32 slot;
  __u32 made_clsact; /* 1 when the loader created the qdisc, and so may remove it */
  __u32 guest_v4;    /* network order */
  __u32 gateway_v4;  /* network order */
  __u8 guest_v6[16];
  __u8 gateway_v6[16];
};

/* IPv4 is kept as ::ffff:a.b.c.d, so one trie serves both families. prefix_bits counts the slot's
 * 32 bits too. */
struct rn_cut_prefix_key {
  __u32 prefix_bits;
  __u32 slot;
  __u8 address[16];
};

struct rn_cut_port {
  __u16 remote_port; /* host order; 0 = any */
  __u16 local_port;  /* the guest's own port, host order; 0 = any */
  __u8 protocol;     /* IPPROTO_TCP, UDP, ICMP or ICMPV6 */
  __u8 opener;       /* bits of rn_cut_opener; TCP only */
  __u16 reserved;
};

/* What the longest matching prefix allows; count 0 = nothing (a denied prefix). Shorter prefixes
 * are not consulted. */
struct rn_cut_ports {
  __u32 count;
  __u32 reserved;
  struct rn_cut_port port[RN_CUT_PORTS_PER_PREFIX];
};

struct rn_cut_counters {
  __u64 passed_packets; /* wire packets: a GSO packet counts its segments */
  __u64 passed_bytes;   /* with Ethernet header */
  __u64 last_passed_boot_ns;
  __u64 dropped[RN_CUT_REASONS];
};

#ifdef __cplusplus
static_assert(sizeof(rn_cut_gate) == 8, "ABI");
static_assert(sizeof(rn_cut_lease) == 8, "ABI");
static_assert(sizeof(rn_cut_guest) == 48, "ABI");
static_assert(sizeof(rn_cut_prefix_key) == 24, "ABI");
static_assert(sizeof(rn_cut_port) == 8, "ABI");
static_assert(sizeof(rn_cut_ports) == 72, "ABI");
static_assert(sizeof(rn_cut_counters) == 128, "ABI");
#endif

#endif
