/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cut at the guest's host-side interface (clsact, both hooks). Fails closed: an interface that no guest is bound
 * to, a closed or unwritten gate, an unarmed or expired lease, and anything that is not understood are dropped.
 *
 * The interface carries guest traffic only, so nothing of the owner's can be dropped here.
 * Headers are read with bpf_skb_load_bytes: a paged packet would fail direct access although it is whole.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "guest_cut_abi.h"

#define IP_FRAGMENT_BITS 0x3fff /* "more fragments" and the offset; not "don't fragment" */
#define TCP_SYN 0x02
#define TCP_ACK 0x10
#define ND_HOP_LIMIT 255
#define ND_SOLICIT 135
#define ND_ADVERT 136

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rn_cut_gate);
} rn_node_gate SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RN_CUT_SLOTS);
	__type(key, __u32);
	__type(value, struct rn_cut_gate);
} rn_slot_gate SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rn_cut_lease);
} rn_lease SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RN_CUT_SLOTS);
	__type(key, __u32);
	__type(value, struct rn_cut_guest);
} rn_guests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, RN_CUT_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct rn_cut_prefix_key);
	__type(value, struct rn_cut_ports);
} rn_prefixes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RN_CUT_SLOTS *RN_CUT_DIRECTIONS);
	__type(key, __u32);
	__type(value, struct rn_cut_counters);
} rn_counters SEC(".maps");

/* The two ends of a packet, seen from the guest, whichever way it goes. */
struct flow {
	__u8 remote[16];
	__u16 remote_port;
	__u16 local_port;
	__u8 protocol;
	__u8 is_opening; /* TCP SYN without ACK */
};

struct arp_ipv4 {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_len;
	__u8 protocol_len;
	__be16 operation;
	__u8 sender_mac[6];
	__u8 sender_ip[4];
	__u8 target_mac[6];
	__u8 target_ip[4];
} __attribute__((packed));

struct neighbour_message {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 flags;
	__u8 target[16];
};

static __always_inline int is_same_v6(const __u8 *a, const __u8 *b)
{
	const __u64 *x = (const __u64 *)a;
	const __u64 *y = (const __u64 *)b;

	return x[0] == y[0] && x[1] == y[1];
}

static __always_inline int is_none_v6(const __u8 *a)
{
	const __u64 *x = (const __u64 *)a;

	return x[0] == 0 && x[1] == 0;
}

static __always_inline int is_gate_open(void *map, __u32 key)
{
	struct rn_cut_gate *gate = bpf_map_lookup_elem(map, &key);

	return gate && gate->is_open;
}

static __always_inline int is_lease_alive(__u64 now)
{
	__u32 key = 0;
	struct rn_cut_lease *lease = bpf_map_lookup_elem(&rn_lease, &key);

	return lease && now < lease->until_boot_ns;
}

static __always_inline int is_forbidden_v4(__be32 address)
{
	__u32 ip = bpf_ntohl(address);

	return (ip >> 24) == 0 || (ip >> 24) == 127 || /* this network, loopback */
	       (ip >> 16) == 0xa9fe ||                 /* 169.254/16: link-local and metadata */
	       (ip >> 28) >= 0xe;                      /* multicast, reserved, broadcast */
}

static __always_inline int is_forbidden_v6(const __u8 *ip)
{
	const __u32 *word = (const __u32 *)ip;

	if (word[0] == 0 && word[1] == 0) /* unspecified, loopback, v4-compatible and v4-mapped */
		return 1;
	if (ip[0] == 0xff) /* multicast */
		return 1;
	if (ip[0] == 0xfe && (ip[1] & 0x80)) /* link-local, site-local */
		return 1;
	if (ip[0] == 0x20 && ip[1] == 0x02) /* 6to4 hides an IPv4 address */
		return 1;
	/* 64:ff9b::/32 holds both NAT64 prefixes, which hide IPv4 addresses as well */
	return word[0] == bpf_htonl(0x0064ff9b);
}

static __always_inline int match_ports(const struct rn_cut_ports *ports, const struct flow *flow, __u32 direction)
{
	__u8 opener = direction == RN_CUT_FROM_GUEST ? RN_CUT_GUEST_OPENS : RN_CUT_REMOTE_OPENS;
	int reason = RN_CUT_NOT_ALLOWED;

	for (__u32 i = 0; i < RN_CUT_PORTS_PER_PREFIX; i++) {
		const struct rn_cut_port *port = &ports->port[i];

		if (i >= ports->count)
			break;
		if (port->protocol != flow->protocol)
			continue;
		if (port->remote_port && port->remote_port != flow->remote_port)
			continue;
		if (port->local_port && port->local_port != flow->local_port)
			continue;
		if (!flow->is_opening || (port->opener & opener))
			return RN_CUT_PASS;
		reason = RN_CUT_WRONG_OPENER;
	}
	return reason;
}

static __always_inline int match_allow_list(__u32 slot, const struct flow *flow, __u32 direction)
{
	struct rn_cut_prefix_key key = { .prefix_bits = 32 + 128, .slot = slot };
	struct rn_cut_ports *ports;

	__builtin_memcpy(key.address, flow->remote, 16);
	ports = bpf_map_lookup_elem(&rn_prefixes, &key);
	if (!ports)
		return RN_CUT_NOT_ALLOWED;
	return match_ports(ports, flow, direction);
}

static __always_inline int read_tcp(struct __sk_buff *skb, __u32 offset, struct flow *flow, __u32 direction)
{
	__u8 head[14];
	__u16 source, target;

	if (bpf_skb_load_bytes(skb, offset, head, sizeof(head)) < 0)
		return RN_CUT_MALFORMED;
	source = (__u16)(head[0] << 8 | head[1]);
	target = (__u16)(head[2] << 8 | head[3]);
	flow->local_port = direction == RN_CUT_FROM_GUEST ? source : target;
	flow->remote_port = direction == RN_CUT_FROM_GUEST ? target : source;
	flow->is_opening = (head[13] & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	return RN_CUT_PASS;
}

static __always_inline int read_udp(struct __sk_buff *skb, __u32 offset, struct flow *flow, __u32 direction)
{
	__u8 head[8];
	__u16 source, target;

	if (bpf_skb_load_bytes(skb, offset, head, sizeof(head)) < 0)
		return RN_CUT_MALFORMED;
	source = (__u16)(head[0] << 8 | head[1]);
	target = (__u16)(head[2] << 8 | head[3]);
	flow->local_port = direction == RN_CUT_FROM_GUEST ? source : target;
	flow->remote_port = direction == RN_CUT_FROM_GUEST ? target : source;
	return RN_CUT_PASS;
}

/* Echo and the errors that a transport needs; no redirects, no router messages. */
static __always_inline int read_icmp(struct __sk_buff *skb, __u32 offset, __u8 protocol)
{
	__u8 head[8];

	if (bpf_skb_load_bytes(skb, offset, head, sizeof(head)) < 0)
		return RN_CUT_MALFORMED;
	if (protocol == IPPROTO_ICMP)
		return head[0] == 0 || head[0] == 3 || head[0] == 8 || head[0] == 11 ? RN_CUT_PASS : RN_CUT_NOT_ALLOWED;
	if (head[0] >= 133 && head[0] <= 137)
		return RN_CUT_NEIGHBOUR;
	return (head[0] >= 1 && head[0] <= 4) || head[0] == 128 || head[0] == 129 ? RN_CUT_PASS : RN_CUT_NOT_ALLOWED;
}

static __always_inline int judge_transport(
	struct __sk_buff *skb, __u32 offset, struct flow *flow, __u32 slot, __u32 direction)
{
	int reason = RN_CUT_NOT_ALLOWED;

	if (flow->protocol == IPPROTO_TCP)
		reason = read_tcp(skb, offset, flow, direction);
	else if (flow->protocol == IPPROTO_UDP)
		reason = read_udp(skb, offset, flow, direction);
	else if (flow->protocol == IPPROTO_ICMP || flow->protocol == IPPROTO_ICMPV6)
		reason = read_icmp(skb, offset, flow->protocol);
	if (reason != RN_CUT_PASS)
		return reason;
	return match_allow_list(slot, flow, direction);
}

static __always_inline int judge_v4(struct __sk_buff *skb, const struct rn_cut_guest *guest, __u32 direction)
{
	struct flow flow = {};
	struct iphdr ip;
	__be32 local, remote;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) < 0)
		return RN_CUT_MALFORMED;
	if (ip.version != 4 || ip.ihl != 5)
		return RN_CUT_MALFORMED;
	if (ip.frag_off & bpf_htons(IP_FRAGMENT_BITS))
		return RN_CUT_FRAGMENT;
	local = direction == RN_CUT_FROM_GUEST ? ip.saddr : ip.daddr;
	remote = direction == RN_CUT_FROM_GUEST ? ip.daddr : ip.saddr;
	if (is_forbidden_v4(remote))
		return RN_CUT_FORBIDDEN;
	if (!guest->guest_v4 || local != guest->guest_v4)
		return RN_CUT_SPOOFED;
	if (ip.protocol == IPPROTO_ICMPV6)
		return RN_CUT_NOT_ALLOWED;

	flow.remote[10] = 0xff;
	flow.remote[11] = 0xff;
	__builtin_memcpy(&flow.remote[12], &remote, 4);
	flow.protocol = ip.protocol;
	return judge_transport(skb, ETH_HLEN + sizeof(ip), &flow, guest->slot, direction);
}

/*
 * Neighbour discovery between guest and gateway, and about nothing else: each may ask for the other and answer for
 * itself. The kernel may use a link-local source for it, and a solicited-node group as target.
 */
static __always_inline int judge_neighbour_v6(
	struct __sk_buff *skb, const struct ipv6hdr *ip, const struct rn_cut_guest *guest, __u32 direction)
{
	const __u8 *to = (const __u8 *)&ip->daddr;
	struct neighbour_message message;
	int is_about_gateway;

	if (bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(*ip), &message, sizeof(message)) < 0)
		return RN_CUT_MALFORMED;
	if (message.code != 0 || ip->hop_limit != ND_HOP_LIMIT)
		return RN_CUT_NEIGHBOUR;
	/* link-local, a solicited-node group (ff02::1:ffXX:XXXX), or one of the two addresses */
	if (!(to[0] == 0xfe && (to[1] & 0xc0) == 0x80) && !(to[0] == 0xff && to[1] == 0x02 && to[12] == 0xff) &&
	    !is_same_v6(to, guest->guest_v6) && !is_same_v6(to, guest->gateway_v6))
		return RN_CUT_NEIGHBOUR;
	is_about_gateway = (direction == RN_CUT_FROM_GUEST) == (message.type == ND_SOLICIT);
	if (is_about_gateway && is_same_v6(message.target, guest->gateway_v6))
		return RN_CUT_PASS;
	if (!is_about_gateway && is_same_v6(message.target, guest->guest_v6))
		return RN_CUT_PASS;
	return RN_CUT_NEIGHBOUR;
}

static __always_inline int judge_v6(struct __sk_buff *skb, const struct rn_cut_guest *guest, __u32 direction)
{
	struct flow flow = {};
	struct ipv6hdr ip;
	const __u8 *local, *remote;
	__u8 type = 0;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) < 0)
		return RN_CUT_MALFORMED;
	if (ip.version != 6)
		return RN_CUT_MALFORMED;
	if (ip.nexthdr == 44)
		return RN_CUT_FRAGMENT;
	if (is_none_v6(guest->guest_v6))
		return RN_CUT_SPOOFED;
	if (ip.nexthdr == IPPROTO_ICMPV6) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip), &type, 1) < 0)
			return RN_CUT_MALFORMED;
		if (type == ND_SOLICIT || type == ND_ADVERT)
			return judge_neighbour_v6(skb, &ip, guest, direction);
	}
	local = direction == RN_CUT_FROM_GUEST ? (const __u8 *)&ip.saddr : (const __u8 *)&ip.daddr;
	remote = direction == RN_CUT_FROM_GUEST ? (const __u8 *)&ip.daddr : (const __u8 *)&ip.saddr;
	__builtin_memcpy(flow.remote, remote, 16);
	if (is_forbidden_v6(flow.remote))
		return RN_CUT_FORBIDDEN;
	if (!is_same_v6(local, guest->guest_v6))
		return RN_CUT_SPOOFED;
	/* Extension headers (hop-by-hop, routing, destination options) are not walked: nothing needs them here. */
	if (ip.nexthdr == 0 || ip.nexthdr == 43 || ip.nexthdr == 60)
		return RN_CUT_MALFORMED;
	if (ip.nexthdr == IPPROTO_ICMP)
		return RN_CUT_NOT_ALLOWED;

	flow.protocol = ip.nexthdr;
	return judge_transport(skb, ETH_HLEN + sizeof(ip), &flow, guest->slot, direction);
}

/* ARP between guest and gateway only; a guest may not claim another address. */
static __always_inline int judge_arp(struct __sk_buff *skb, const struct rn_cut_guest *guest, __u32 direction)
{
	struct arp_ipv4 arp;
	__u32 sender, target, guest_end, gateway_end;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &arp, sizeof(arp)) < 0)
		return RN_CUT_MALFORMED;
	if (arp.hardware != bpf_htons(1) || arp.protocol != bpf_htons(ETH_P_IP) || arp.hardware_len != 6 ||
	    arp.protocol_len != 4)
		return RN_CUT_NEIGHBOUR;
	__builtin_memcpy(&sender, arp.sender_ip, 4);
	__builtin_memcpy(&target, arp.target_ip, 4);
	guest_end = direction == RN_CUT_FROM_GUEST ? sender : target;
	gateway_end = direction == RN_CUT_FROM_GUEST ? target : sender;
	if (!guest->guest_v4 || !guest->gateway_v4)
		return RN_CUT_NEIGHBOUR;
	return guest_end == guest->guest_v4 && gateway_end == guest->gateway_v4 ? RN_CUT_PASS : RN_CUT_NEIGHBOUR;
}

static __always_inline int judge_frame(struct __sk_buff *skb, const struct rn_cut_guest *guest, __u32 direction)
{
	__be16 type;

	if (skb->vlan_present)
		return RN_CUT_VLAN;
	if (bpf_skb_load_bytes(skb, 12, &type, sizeof(type)) < 0)
		return RN_CUT_MALFORMED;
	if (type == bpf_htons(ETH_P_IP))
		return judge_v4(skb, guest, direction);
	if (type == bpf_htons(ETH_P_IPV6))
		return judge_v6(skb, guest, direction);
	if (type == bpf_htons(ETH_P_ARP))
		return judge_arp(skb, guest, direction);
	if (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD))
		return RN_CUT_VLAN;
	return RN_CUT_NOT_IP;
}

/* Gates first: a cut guest costs three lookups a packet, whatever it sends. */
static __always_inline int judge(
	struct __sk_buff *skb, const struct rn_cut_guest *guest, __u64 now, __u32 direction)
{
	if (!is_gate_open(&rn_node_gate, 0))
		return RN_CUT_NODE_GATE;
	if (!is_gate_open(&rn_slot_gate, guest->slot))
		return RN_CUT_SLOT_GATE;
	if (!is_lease_alive(now))
		return RN_CUT_LEASE;
	return judge_frame(skb, guest, direction);
}

static __always_inline int handle(struct __sk_buff *skb, __u32 direction)
{
	__u32 ifindex = skb->ifindex;
	struct rn_cut_guest *guest = bpf_map_lookup_elem(&rn_guests, &ifindex);
	struct rn_cut_counters *counters;
	__u64 now = bpf_ktime_get_boot_ns();
	__u32 key;
	__u32 reason;

	if (!guest)
		return TC_ACT_SHOT;
	reason = (__u32)judge(skb, guest, now, direction);
	key = guest->slot * RN_CUT_DIRECTIONS + direction;
	counters = bpf_map_lookup_elem(&rn_counters, &key);
	if (!counters)
		return TC_ACT_SHOT;
	if (reason != RN_CUT_PASS) {
		if (reason < RN_CUT_REASONS)
			counters->dropped[reason]++;
		return TC_ACT_SHOT;
	}
	counters->passed_packets += skb->gso_segs ? skb->gso_segs : 1;
	counters->passed_bytes += skb->len;
	counters->last_passed_boot_ns = now;
	return TC_ACT_OK;
}

SEC("tc")
int rn_from_guest(struct __sk_buff *skb)
{
	return handle(skb, RN_CUT_FROM_GUEST);
}

SEC("tc")
int rn_to_guest(struct __sk_buff *skb)
{
	return handle(skb, RN_CUT_TO_GUEST);
}

char _license[] SEC("license") = "Apache-2.0";
