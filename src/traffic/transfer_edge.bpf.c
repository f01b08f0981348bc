/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The grants of the agent's own transfers, at the owner's uplink (clsact, both hooks).
 *
 * Fails open towards the owner: a packet is looked at only when its socket is the agent's (by the
 * socket's user id, which no program can forge), and whatever passes goes on to the owner's later
 * filters (TC_ACT_UNSPEC). Fails closed towards transfers: a gate that nobody has written is shut.
 *
 * One bucket is locked at a time (bpf_spin_lock, Linux 5.1): a packet that a later bucket refuses
 * is given back to the earlier ones. Headers are read relative to the network header, so that
 * interfaces without Ethernet do as well.
 */
#include "transfer_edge_abi.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>

#define IP_OFFSET_BITS 0x1fff
#define NS_PER_S 1000000000ULL
#define TICK_SHIFT 3 /* time in units of 8 ns: a second times 1 Tbit/s fits into 64 bits */
#define TICKS_PER_S (NS_PER_S >> TICK_SHIFT)

struct bucket {
  struct bpf_spin_lock lock;
  __u32 reserved;
  __s64 bytes;
  __u64 filled_ns; /* up to here, time has become bytes */
  __u64 rest;      /* of the last division */
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct rn_edge_gate);
} rn_edge_gate SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, RN_EDGE_TRANSFERS);
  __type(key, __u32);
  __type(value, struct rn_edge_gate);
} rn_edge_gates SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct rn_edge_settings);
} rn_edge_settings SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, RN_EDGE_TRANSFERS);
  __type(key, struct rn_edge_flow);
  __type(value, struct rn_edge_claim);
} rn_edge_claims SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, RN_EDGE_SLOTS);
  __type(key, __u32);
  __type(value, struct rn_edge_rate);
} rn_edge_rates SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, RN_EDGE_SLOTS);
  __type(key, __u32);
  __type(value, struct bucket);
} rn_edge_buckets SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, RN_EDGE_SLOTS);
  __type(key, __u32);
  __type(value, struct rn_edge_counters);
} rn_edge_counters SEC(".maps");

/* The loader's memory; no packet asks it. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, RN_EDGE_LINKS);
  __type(key, __u32);
  __type(value, struct rn_edge_link);
} rn_edge_links SEC(".maps");

struct packet {
  struct rn_edge_flow flow;
  __u32 payload; /* bytes */
  __u32 segments;
  __u8 is_ect;
};

enum verdict { PASS, MARK, DROP };

static __always_inline int is_open(void* map, __u32 key) {
  struct rn_edge_gate* gate = bpf_map_lookup_elem(map, &key);

  return gate && gate->is_open;
}

static __always_inline struct rn_edge_counters* counters_of(__u32 slot) {
  return bpf_map_lookup_elem(&rn_edge_counters, &slot);
}

/* ---- headers */

/* Ports, and how long the transport's header is. What cannot be read has no ports and no header. */
static __always_inline __u32
read_transport(struct __sk_buff* skb, __u32 offset, struct rn_edge_flow* flow, int is_out) {
  __u8 head[14];
  __u16 source, target;

  if (flow->protocol != IPPROTO_TCP && flow->protocol != IPPROTO_UDP) return 0;
  if (bpf_skb_load_bytes_relative(skb, offset, head, 8, BPF_HDR_START_NET) < 0) return 0;
  source = (__u16)(head[0] << 8 | head[1]);
  target = (__u16)(head[2] << 8 | head[3]);
  flow->local_port = is_out ? source : target;
  flow->remote_port = is_out ? target : source;
  if (flow->protocol == IPPROTO_UDP) return 8;
  if (bpf_skb_load_bytes_relative(skb, offset, head, sizeof(head), BPF_HDR_START_NET) < 0) return 0;
  return (__u32)(head[12] >> 4) * 4;
}

static __always_inline void set_payload(
    struct __sk_buff* skb, struct packet* packet, __u32 total, __u32 headers
) {
  /* BIG TCP leaves the length field empty: then what the frame has */
  if (total == 0) total = skb->len;
  packet->payload = total > headers ? total - headers : 0;
  packet->segments = skb->gso_segs ? skb->gso_segs : 1;
}

static __always_inline int read_v4(struct __sk_buff* skb, struct packet* packet, int is_out) {
  struct rn_edge_flow* flow = &packet->flow;
  __u32 header, transport = 0;
  struct iphdr ip;

  if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET) < 0) return 0;
  if (ip.version != 4 || ip.ihl < 5) return 0;
  header = (__u32)ip.ihl * 4;
  flow->local[10] = flow->local[11] = flow->remote[10] = flow->remote[11] = 0xff;
  __builtin_memcpy(&flow->local[12], is_out ? &ip.saddr : &ip.daddr, 4);
  __builtin_memcpy(&flow->remote[12], is_out ? &ip.daddr : &ip.saddr, 4);
  flow->protocol = ip.protocol;
  packet->is_ect = (ip.tos & 3) != 0;
  if (!(ip.frag_off & bpf_htons(IP_OFFSET_BITS)))
    transport = read_transport(skb, header, flow, is_out);
  set_payload(skb, packet, bpf_ntohs(ip.tot_len), header + transport);
  return 1;
}

/* Extension headers are not walked: such a packet has no ports, so it is of no transfer. */
static __always_inline int read_v6(struct __sk_buff* skb, struct packet* packet, int is_out) {
  struct rn_edge_flow* flow = &packet->flow;
  __u32 transport, total;
  struct ipv6hdr ip;

  if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET) < 0) return 0;
  if (ip.version != 6) return 0;
  __builtin_memcpy(flow->local, is_out ? &ip.saddr : &ip.daddr, 16);
  __builtin_memcpy(flow->remote, is_out ? &ip.daddr : &ip.saddr, 16);
  flow->protocol = ip.nexthdr;
  packet->is_ect = (ip.flow_lbl[0] >> 4 & 3) != 0;
  transport = read_transport(skb, sizeof(ip), flow, is_out);
  total = ip.payload_len ? bpf_ntohs(ip.payload_len) + sizeof(ip) : 0;
  set_payload(skb, packet, total, sizeof(ip) + transport);
  return 1;
}

/* 0: neither IPv4 nor IPv6 */
static __always_inline int read_packet(struct __sk_buff* skb, struct packet* packet, int is_out) {
  if (skb->protocol == bpf_htons(ETH_P_IP)) return read_v4(skb, packet, is_out);
  if (skb->protocol == bpf_htons(ETH_P_IPV6)) return read_v6(skb, packet, is_out);
  return 0;
}

static __always_inline int is_control(
    const struct rn_edge_settings* settings, const struct rn_edge_flow* flow
) {
  for (__u32 i = 0; i < RN_EDGE_CONTROL_PORTS; i++) {
    const struct rn_edge_port* one = &settings->control[i];

    if (!one->port || one->protocol != flow->protocol) continue;
    if (one->port == (one->is_local ? flow->local_port : flow->remote_port)) return 1;
  }
  return 0;
}

/* ---- buckets */

/*
 * Below zero by one packet at most: a 64 KiB packet needs no burst of its size, and over any time
 * the bytes passed are the rate's but for the difference of two levels.
 */
static __always_inline int take(__u32 slot, __u64 now, __u32 bytes, int is_ect) {
  struct rn_edge_rate* rate = bpf_map_lookup_elem(&rn_edge_rates, &slot);
  struct bucket* bucket = bpf_map_lookup_elem(&rn_edge_buckets, &slot);
  __u64 per_s, ticks, sum;
  __s64 burst, mark;
  int verdict;

  if (!rate || !bucket) return DROP;
  per_s = rate->bytes_per_s;
  burst = rate->burst_bytes;
  mark = is_ect ? rate->mark_bytes : 0;
  if (per_s == RN_EDGE_UNBOUNDED) return PASS;
  if (per_s == 0) return DROP;
  bpf_spin_lock(&bucket->lock);
  /* two CPUs may come in the wrong order: then no time has passed */
  ticks = now > bucket->filled_ns ? (now - bucket->filled_ns) >> TICK_SHIFT : 0;
  if (ticks > TICKS_PER_S) {
    ticks = TICKS_PER_S;
    bucket->filled_ns = now;
  } else {
    bucket->filled_ns += ticks << TICK_SHIFT;
  }
  sum = ticks * per_s + bucket->rest;
  bucket->bytes += (__s64)(sum / TICKS_PER_S);
  bucket->rest = sum % TICKS_PER_S;
  if (bucket->bytes > burst) {
    bucket->bytes = burst;
    bucket->rest = 0;
  }
  verdict = bucket->bytes > 0 ? PASS : bucket->bytes > -mark ? MARK : DROP;
  if (verdict != DROP) bucket->bytes -= bytes;
  bpf_spin_unlock(&bucket->lock);
  return verdict;
}

static __always_inline void give_back(__u32 slot, __u32 bytes) {
  struct bucket* bucket = bpf_map_lookup_elem(&rn_edge_buckets, &slot);

  if (!bucket) return;
  bpf_spin_lock(&bucket->lock);
  bucket->bytes += bytes;
  bpf_spin_unlock(&bucket->lock);
}

/* ---- the queue behind */

/*
 * fq sends a packet at the time that it carries. TCP's is of its pace: at most three packets are
 * ahead of theirs, 1.6 s at the least rate that a copy has. Any other was asked for (SO_TXTIME):
 * what is counted here would be heaped up there, to leave all at once, and after a cut.
 */
static __always_inline void bound_departure(struct __sk_buff* skb, __u8 protocol) {
  __u64 latest;

  if (!skb->tstamp) return;
  if (protocol != IPPROTO_TCP) {
    skb->tstamp = 0;
    return;
  }
  latest = bpf_ktime_get_ns() + RN_EDGE_HELD_NS;
  if (skb->tstamp > latest) skb->tstamp = latest;
}

/* ---- the agent's packets */

static __always_inline int drop(const struct packet* packet, __u32 slot, int is_gate) {
  struct rn_edge_counters* counters = counters_of(slot);

  if (!counters) return TC_ACT_SHOT;
  if (is_gate) {
    counters->cut_packets += packet->segments;
  } else {
    counters->dropped_packets += packet->segments;
    counters->dropped_bytes += packet->payload;
  }
  return TC_ACT_SHOT;
}

static __always_inline void count(
    const struct packet* packet, __u32 slot, __u64 now, int is_marked
) {
  struct rn_edge_counters* counters = counters_of(slot);

  if (!counters) return;
  counters->passed_packets += packet->segments;
  counters->passed_bytes += packet->payload;
  if (is_marked) counters->marked_packets += packet->segments;
  if (packet->payload) counters->last_passed_boot_ns = now;
}

/* Without payload: bounded together, by number, so that it starves nothing and is no way past the
 * buckets. */
static __always_inline int pass_empty(const struct packet* packet, __u64 now) {
  __u32 slot = RN_EDGE_CLASS_SLOT(RN_EDGE_EMPTY);

  if (take(slot, now, RN_EDGE_EMPTY_BYTES, 0) == DROP) return drop(packet, slot, 0);
  count(packet, slot, now, 0);
  return TC_ACT_UNSPEC;
}

static __always_inline int pass_control(const struct packet* packet, __u64 now, __u32 bytes) {
  __u32 slot = RN_EDGE_CLASS_SLOT(RN_EDGE_CONTROL);

  if (take(slot, now, bytes, 0) == DROP) return drop(packet, slot, 0);
  count(packet, slot, now, 0);
  return TC_ACT_UNSPEC;
}

/* own: the claim's slot, or that of its class when there is no claim. Counted where it was refused,
 * or there. */
static __always_inline int pass_transfer(
    struct __sk_buff* skb,
    const struct packet* packet,
    __u64 now,
    __u32 own,
    __u32 class_slot,
    __u32 bytes
) {
  const __u32 all_slot = RN_EDGE_CLASS_SLOT(RN_EDGE_ALL);
  int first, second = PASS, third;
  int is_marked;

  first = take(own, now, bytes, packet->is_ect);
  if (first == DROP) return drop(packet, own, 0);
  if (class_slot != own) second = take(class_slot, now, bytes, packet->is_ect);
  if (second == DROP) {
    give_back(own, bytes);
    return drop(packet, own, 0);
  }
  third = take(all_slot, now, bytes, packet->is_ect);
  if (third == DROP) {
    give_back(own, bytes);
    if (class_slot != own) give_back(class_slot, bytes);
    return drop(packet, own, 0);
  }
  is_marked = (first == MARK || second == MARK || third == MARK) && bpf_skb_ecn_set_ce(skb) == 1;
  count(packet, own, now, is_marked);
  if (class_slot != own) count(packet, class_slot, now, is_marked);
  return TC_ACT_UNSPEC;
}

SEC("tc")

int rn_edge_out(struct __sk_buff* skb) {
  __u32 key = 0;
  struct rn_edge_settings* settings = bpf_map_lookup_elem(&rn_edge_settings, &key);
  struct packet packet = {};
  struct rn_edge_claim* claim;
  __u32 own, class_slot, bytes;
  __u64 now;

  /* A packet without a socket (forwarded, of the kernel's) has the overflow user, which no agent
   * has. */
  if (!settings || bpf_get_socket_uid(skb) != settings->agent_uid) return TC_ACT_UNSPEC;
  if (!read_packet(skb, &packet, 1)) return TC_ACT_UNSPEC;
  bound_departure(skb, packet.flow.protocol);
  now = bpf_ktime_get_boot_ns();
  bytes = packet.segments * RN_EDGE_LEAST_BYTES;
  if (packet.payload > bytes) bytes = packet.payload;

  own = class_slot = RN_EDGE_CLASS_SLOT(RN_EDGE_UNCLAIMED);
  claim = bpf_map_lookup_elem(&rn_edge_claims, &packet.flow);
  if (!claim && is_control(settings, &packet.flow)) return pass_control(&packet, now, bytes);
  if (claim && claim->slot < RN_EDGE_TRANSFERS && claim->class_ < RN_EDGE_CLASSES) {
    own = claim->slot;
    class_slot = RN_EDGE_CLASS_SLOT(claim->class_);
    if (!claim->is_seen) claim->is_seen = 1;
    if (!is_open(&rn_edge_gates, own)) return drop(&packet, own, 1);
  }
  if (!is_open(&rn_edge_gate, 0)) return drop(&packet, own, 1);
  if (packet.payload == 0) return pass_empty(&packet, now);
  return pass_transfer(skb, &packet, now, own, class_slot, bytes);
}

/*
 * Only gates, no rates: what has arrived has used its way already. No socket is known here, so a
 * claim counts when the agent has been seen to send by it; a false one cannot touch the owner's
 * connections.
 */
SEC("tc")

int rn_edge_in(struct __sk_buff* skb) {
  struct packet packet = {};
  struct rn_edge_claim* claim;

  if (!read_packet(skb, &packet, 0)) return TC_ACT_UNSPEC;
  claim = bpf_map_lookup_elem(&rn_edge_claims, &packet.flow);
  if (!claim || !claim->is_seen) return TC_ACT_UNSPEC;
  if (is_open(&rn_edge_gate, 0) && is_open(&rn_edge_gates, claim->slot)) return TC_ACT_UNSPEC;
  return drop(&packet, claim->slot, 1);
}

char _license[] SEC("license") = "Apache-2.0";
