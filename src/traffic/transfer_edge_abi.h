/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one contract between transfer_edge.bpf.c and its loaders: map names, keys and values. Plain
 * C, fixed widths, host byte order except where a field says "network order".
 *
 * What user space writes (gates, rates, settings, claims) and what the program writes (buckets,
 * counters) lie in maps of their own: a change of rate or gate is one write and takes nothing back
 * that a packet has just counted. Gates are closed at zero, as the guests' are.
 */
#ifndef RN_TRAFFIC_TRANSFER_EDGE_ABI_H
#define RN_TRAFFIC_TRANSFER_EDGE_ABI_H

#include <linux/types.h>

#define RN_EDGE_TRANSFERS 1024    /* claimed at a time */
#define RN_EDGE_LINKS 16          /* uplink interfaces */
#define RN_EDGE_CONTROL_PORTS 8   /* of the agent's connections that are no transfers */
#define RN_EDGE_UNBOUNDED (~0ULL) /* a rate: no bucket is asked */

/* Names of the pinned maps inside the caller's bpffs folder. */
#define RN_EDGE_MAP_GATE "rn_edge_gate"         /* ARRAY[1] of rn_edge_gate: all transfers */
#define RN_EDGE_MAP_GATES "rn_edge_gates"       /* ARRAY[RN_EDGE_TRANSFERS] of rn_edge_gate */
#define RN_EDGE_MAP_SETTINGS "rn_edge_settings" /* ARRAY[1] of rn_edge_settings */
#define RN_EDGE_MAP_CLAIMS "rn_edge_claims"     /* HASH rn_edge_flow -> rn_edge_claim */
#define RN_EDGE_MAP_RATES "rn_edge_rates"       /* ARRAY[RN_EDGE_SLOTS] of rn_edge_rate */
#define RN_EDGE_MAP_BUCKETS "rn_edge_buckets"   /* ARRAY[RN_EDGE_SLOTS]: the program's own */
#define RN_EDGE_MAP_COUNTERS                                                                 \
  "rn_edge_counters"                      /* PERCPU_ARRAY[RN_EDGE_SLOTS] of rn_edge_counters \
                                           */
#define RN_EDGE_MAP_LINKS "rn_edge_links" /* HASH ifindex (u32) -> rn_edge_link */

/* What a packet is sent for. Each class has a bucket, which all its transfers share. */
enum rn_edge_class {
  RN_EDGE_EVACUATION = 0,
  RN_EDGE_CHECKPOINT = 1,
  RN_EDGE_PREFETCH = 2,
  RN_EDGE_UNCLAIMED = 3, /* the agent's, but of no transfer that was claimed */
  RN_EDGE_CONTROL = 4,   /* to a control port: no gate cuts it */
  RN_EDGE_EMPTY = 5,     /* without payload: acknowledgements, opening and closing */
  RN_EDGE_ALL = 6,       /* what carries payload, of every class but RN_EDGE_CONTROL */
  RN_EDGE_CLASSES = 7,
};

/* A slot has a rate, a bucket and counters: the transfers', then the classes'. */
#define RN_EDGE_CLASS_SLOT(class) (RN_EDGE_TRANSFERS + (class))
#define RN_EDGE_SLOTS (RN_EDGE_TRANSFERS + RN_EDGE_CLASSES)

/* What a packet costs: its payload; a segment with less is charged as one of this size, so that
 * headers cannot be sent past the bucket. */
#define RN_EDGE_LEAST_BYTES 256
#define RN_EDGE_EMPTY_BYTES 64
/* For no longer than this may a queue behind the program hold back a packet of TCP's; any other not
 * at all. */
#define RN_EDGE_HELD_NS 2000000000ULL

struct rn_edge_gate {
  __u64 is_open; /* 0 = cut */
};

/* The program touches packets of this user's sockets alone. */
struct rn_edge_port {
  __u16 port;    /* host order; 0 = none */
  __u8 protocol; /* IPPROTO_TCP or UDP */
  __u8 is_local; /* the port of this machine's end; else the other's */
};

struct rn_edge_settings {
  __u32 agent_uid;
  __u32 reserved;
  struct rn_edge_port control[RN_EDGE_CONTROL_PORTS];
};

/* The five values of a connection, seen from this machine whichever way a packet goes. IPv4 is
 * ::ffff:a.b.c.d. */
struct rn_edge_flow {
  __u8 local[16];
  __u8 remote[16];
  __u16 local_port;  /* host order */
  __u16 remote_port; /* host order */
  __u8 protocol;
  __u8 reserved[3]; /* 0 */
};

struct rn_edge_claim {
  __u64 id;      /* the claimer's name for it */
  __u32 slot;    /* < RN_EDGE_TRANSFERS */
  __u16 class_;  /* RN_EDGE_EVACUATION, _CHECKPOINT or _PREFETCH */
  __u16 is_seen; /* written by the program: a packet of the agent's has left by it */
};

/* The bucket holds at most burst_bytes. A packet passes while something is in it, and may take it
 * below zero by its own size; one that carries ECN may find it as low as -mark_bytes, and is marked
 * then. */
struct rn_edge_rate {
  __u64 bytes_per_s; /* 0 = nothing with payload passes; RN_EDGE_UNBOUNDED */
  __u32 burst_bytes;
  __u32 mark_bytes;
};

struct rn_edge_counters {
  __u64 passed_packets; /* segments: a GSO packet counts as many as it becomes */
  __u64 passed_bytes;   /* payload */
  __u64 marked_packets; /* passed with CE */
  __u64 dropped_packets;
  __u64 dropped_bytes;       /* payload, as far as the bucket refused it */
  __u64 cut_packets;         /* refused by a gate */
  __u64 last_passed_boot_ns; /* of a packet with payload */
};

struct rn_edge_link {
  __u32 made_clsact; /* 1 when the loader created the qdisc, and so may remove it */
  __u32 reserved;
};

#ifdef __cplusplus
static_assert(sizeof(rn_edge_gate) == 8, "ABI");
static_assert(sizeof(rn_edge_settings) == 40, "ABI");
static_assert(sizeof(rn_edge_flow) == 40, "ABI");
static_assert(sizeof(rn_edge_claim) == 16, "ABI");
static_assert(sizeof(rn_edge_rate) == 16, "ABI");
static_assert(sizeof(rn_edge_counters) == 56, "ABI");
static_assert(sizeof(rn_edge_link) == 8, "ABI");
#endif

#endif
